import json
from typing import Any

from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from tests.rows import each

RULES = [{"id": "R1", "defaultConfiguration": {"level": "error"}}, {"id": "R2"}]


def result(**more: Any) -> dict[str, Any]:
    region = {"startLine": 3, "endLine": 4, "snippet": {"text": "x = 1"}}
    location = {"physicalLocation": {"artifactLocation": {"uri": "src/a%20b.py"}, "region": region}}
    return {"ruleId": "R2", "message": {"text": "It fails.\nAlways."}, "locations": [location], **more}


def document(*results: Any, **run: Any) -> dict[str, Any]:
    runs = [{"tool": {"driver": {"name": "x", "rules": RULES}}, "results": list(results), **run}]
    return {"$schema": "https://example.invalid/sarif-2.1.0.json", "version": "2.1.0", "runs": runs}


def read(value: Any) -> ReviewAnswer:
    return read_review_answer(json.dumps(value))


def test_a_result_is_a_finding() -> None:
    answer = read(document(result()))
    place: dict[str, Any] = {"file": "src/a b.py", "line_start": 3, "line_end": 4, "evidence": "x = 1"}
    words: dict[str, Any] = {"title": "It fails.", "body": "It fails.\nAlways.", "rule": "R2"}
    assert answer == ReviewAnswer(findings=(ClaimedFinding(severity=Severity.MEDIUM, **words, **place),))


def test_the_level_is_the_result_s_own_or_its_rule_s_or_a_warning() -> None:
    high, medium, low = Severity.HIGH, Severity.MEDIUM, Severity.LOW
    for level, severity in (("error", high), ("warning", medium), ("note", low), ("none", low)):
        assert [finding.severity for finding in read(document(result(level=level))).findings] == [severity]
    rules = [result(ruleId="R1"), result(ruleId="unknown"), result(ruleId="R1", level="note")]
    assert [finding.severity for finding in read(document(*rules)).findings] == [high, medium, low]


def test_the_results_of_all_runs_are_taken_but_for_passes_and_suppressed_ones_are_counted() -> None:
    accepted = result(suppressions=[{"kind": "inSource"}])
    refused = result(suppressions=[{"kind": "external", "status": "rejected"}], ruleId="R1")
    both = document(result(kind="pass"), accepted, refused)
    both["runs"].append(document(result())["runs"][0])
    answer = read(both)
    assert [finding.rule for finding in answer.findings] == ["R1", "R2"]
    assert (answer.summary, answer.problem, answer.dropped) == ("1 suppressed results", None, ())
    assert read(document()) == ReviewAnswer()


@each(
    ("value", "problem"),
    [
        ({"version": "2.1.0", "runs": []}, "missing field: runs"),
        ({"version": "2.1.0", "runs": [{"tool": {}}]}, "missing field: results"),
        ({"version": "2.1.0", "runs": [3]}, "missing field: results"),
        (document(result(level="odd")), "invalid severity: odd"),
        (document(result(message={})), "missing field: title"),
        (document("text"), "missing field: title"),
        (document(invocations=[{"executionSuccessful": False}]), "the tool says that it failed"),
    ],
)
def test_what_is_no_whole_document_has_a_problem(value: Any, problem: str) -> None:
    assert read(value).problem == problem


def test_a_bad_result_costs_that_result_and_odd_places_are_unknown_places() -> None:
    places: list[Any] = [None, [5], [{"physicalLocation": {"region": []}}]]
    answer = read(document(result(level=5), *(result(locations=place, ruleId=str(place)) for place in places)))
    assert len(answer.findings) == 3
    assert answer.dropped == ("invalid severity: 5 (finding 1)",)
    assert {(found.file, found.line_start, found.evidence) for found in answer.findings} == {(None, None, "")}


def test_a_level_that_the_missing_part_may_tell_is_unknown() -> None:
    text = json.dumps(
        {"runs": [{"results": [result(ruleId="R1"), result(level="note")], "tool": document()["runs"][0]["tool"]}]}
    )
    answer = read_review_answer(text[: text.index('"rules"')])
    assert [finding.severity for finding in answer.findings] == [Severity.LOW]
    assert answer.dropped == ("missing field: level (finding 1)",)
    assert answer.problem == "invalid json: truncated"
