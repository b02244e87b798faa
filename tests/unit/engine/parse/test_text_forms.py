import json
from typing import Any

import pytest

from codeloupe.engine.parse.items import NO_JSON, TRUNCATED_JSON
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.parse.sentences import says_clean
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from tests.grave_answers import CLEAN_WORDS, WORDED_ANSWERS
from tests.rows import each

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW


def finding(severity: Severity, title: str, file: str, line: int, **more: Any) -> ClaimedFinding:
    return ClaimedFinding(severity=severity, title=title, file=file, line_start=line, **more)


INJECTION = finding(HIGH, "A query is built from text", "src/a.py", 12, category="security", evidence="q = f'{x}'")
LOOP = finding(LOW, "It never ends", "b.py", 3, category="reliability", evidence="while True:")
BULLETS = """\
- **Severity:** HIGH
- **Category:** security
- **Description:** A query is built from text
- **Evidence:** src/a.py:12 - q = f'{x}'

- **Severity:** low
- **Category:** reliability
- **Description:** It never ends
- **Evidence:** b.py:3 - while True:
"""
BOTH = [
    *(BULLETS, BULLETS.strip(), f"I found two things:\n\n{BULLETS}\nThat is all I have to say."),
    BULLETS.replace("- **Category", "  **Category").replace("- **Desc", "  **Desc").replace("- **Evid", "  **Evid"),
    *(BULLETS.replace(":**", "**:"), BULLETS.replace("**", "__"), BULLETS.replace("**", "")),
    *(BULLETS.replace("**", "").replace("- ", ""), BULLETS.replace("- **", "* **"), BULLETS.replace("\n\n", "\n")),
    *(BULLETS.replace("\n\n", "\n\n---\n\n### 2. The loop\n\n"), BULLETS.replace("\n- **", " **")),
    *(BULLETS.replace("\n", "\n\n"), BULLETS.replace("\n", "\r\n")),
    f"### Finding 1: Query\n\n{BULLETS}".replace("\n\n- **Severity:** low", "\n### Finding 2\n\n- **Severity:** low"),
    BULLETS.replace("HIGH", "**[P1]**").replace("low", "`P3`"),
    BULLETS.replace("src/a.py:12 - q = f'{x}'", "`src/a.py:12` - `q = f'{x}'`"),
    BULLETS.replace("src/a.py:12 - q", "src/a.py:12\n```python\nq").replace("'\n\n", "'\n```\n\n"),
    json.dumps({"type": "result", "result": BULLETS}),
]


@pytest.mark.requirement("D4")
@each("text", BOTH)
def test_bullets_are_findings(text: str) -> None:
    answer = read_review_answer(text)
    assert answer.findings == (INJECTION, LOOP)
    assert (answer.problem, answer.dropped) == (None, ())


FIELDS = (
    "**File:** a.py\n**Line:** 3-5\n**Title:** T\n**Description:** One.\n\nTwo.\n**Priority:** 2\n"
    "**Suggestion:** do\nit\n"
)
YAML = (
    'findings:\n  - file: a.py\n    line: 3\n    severity: high\n    title: "A: b"\n    body: why\n'
    "  - file: b.py\n    line: 4\n    severity: low\n    title: B\n"
)
# A field before the bullets does not tear them apart.
ABOVE = (
    "**File:** the whole change\n\n**Severity:** high\n**File:** a.py:1\n**Title:** A\n\n"
    "**Severity:** low\n**File:** b.py:2\n**Title:** B\n"
)


@each(
    ("text", "findings"),
    [
        (FIELDS, [finding(MEDIUM, "T", "a.py", 3, body="One.\n\nTwo.", line_end=5, suggestion="do\nit")]),
        (YAML, [finding(HIGH, "A: b", "a.py", 3, body="why"), finding(LOW, "B", "b.py", 4)]),
        (ABOVE, [finding(HIGH, "A", "a.py", 1), finding(LOW, "B", "b.py", 2)]),
    ],
)
def test_other_fields_of_bullets_are_read(text: str, findings: list[ClaimedFinding]) -> None:
    assert list(read_review_answer(text).findings) == findings


def test_a_bullet_that_cannot_be_read_costs_that_bullet() -> None:
    answer = read_review_answer(BULLETS.replace("HIGH", "horrible"))
    assert (answer.findings, answer.dropped) == ((LOOP,), ("invalid severity: horrible (finding 1)",))
    assert read_review_answer("- **Severity:** HIGH\n- **Category:** x\n").problem == "missing field: title"


def test_prose_that_names_fields_is_no_finding() -> None:
    assert read_review_answer("Description: it is a parser.\nFile: a.py\nIts severity is high.").problem == NO_JSON


@each("shown", [BULLETS[:-40], BULLETS[: BULLETS.rindex("- **Evidence")].rstrip()])
def test_a_last_bullet_without_its_evidence_is_cut(shown: str) -> None:
    answer = read_review_answer(shown)
    assert (answer.findings, answer.problem) == ((INJECTION,), TRUNCATED_JSON)


COMMENTS = "x\n\nFull review comments:\n\n- [P1] Bug - here — /r/a.txt:1-2\n  b\n\n  c\n\n- [P3] Nit — b.py:3-3\n  d\n"
TABLE = "| Severity | File | Line | Issue | Why |\n|---|---|---|---|---|\n| P1 | `a.py` | 3 | a \\| b | it is |\n"
XML = "<r><finding severity='high'><title>a &amp; b</title><file>a.py</file><line>3</line></finding></r>"
HEADING = "## [HIGH] It fails\n\n`a.py:3`\n\n```\nx = 1\n```\n\n## Low\n\n1. `b.py:4`: it is slow\n"
FAILS = finding(HIGH, "It fails", "a.py", 3, body="`a.py:3`\n\n```\nx = 1\n```", evidence="x = 1")


@pytest.mark.defect("V6")
@each(
    ("text", "findings"),
    [
        (COMMENTS, [finding(HIGH, "Bug - here", "/r/a.txt", 1, body="b\n\nc", line_end=2)]),
        (TABLE, [finding(HIGH, "a | b", "a.py", 3, body="it is")]),
        (XML, [finding(HIGH, "a & b", "a.py", 3)]),
        (HEADING, [FAILS, finding(LOW, "it is slow", "b.py", 4)]),
        (f'{{"findings": []}}\n\n{TABLE}', [finding(HIGH, "a | b", "a.py", 3, body="it is")]),
    ],
)
def test_lists_headings_tables_and_tags_are_read(text: str, findings: list[ClaimedFinding]) -> None:
    for form in (text, json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": text}})):
        answer = read_review_answer(form)
        assert (list(answer.findings)[: len(findings)], answer.problem, answer.dropped) == (findings, None, ())


def test_what_has_no_place_among_such_is_told() -> None:
    answer = read_review_answer(COMMENTS.replace("b.py:3-3", "somewhere"))
    assert (len(answer.findings), answer.lost) == (2, "missing field: file")
    assert read_review_answer("# Review\n\n- It reads well: a.py\n- High quality\n").problem == NO_JSON


def test_the_lines_of_a_linter_are_findings_and_such_lines_of_a_model_are_none() -> None:
    text = "src/a.c:3:7: error: it fails\nb.py:12: E501 too long\nFound 2 errors.\nat 10:30: we met\n"
    expected = (finding(HIGH, "it fails", "src/a.c", 3), finding(MEDIUM, "E501 too long", "b.py", 12))
    assert read_review_answer(text, from_program=True).findings == expected
    assert read_review_answer(text).problem == NO_JSON
    drive = "C:\\dir\\a.c:3-5: info: x\r\nb dir/c.rs:1: HIGH - it's bad"
    found = (finding(LOW, "x", "C:\\dir\\a.c", 3, line_end=5), finding(HIGH, "it's bad", "b dir/c.rs", 1))
    assert read_review_answer(drive, from_program=True).findings == found


@pytest.mark.requirement("D9")
@each(
    "text",
    [
        *("No issues found", "No issues found.", "no issues found!", "**No issues found.**"),
        *("```\nNo issues found.\n```", "No issues were found in the changes.", "There are no issues in this diff."),
        *("I found no problems.", "I didn’t find any bugs.", "No findings.", "No findings to report."),
        *("Nothing to report.", "✅ No issues found. The code looks good.", "LGTM! No issues found."),
        *("Review result: No issues found", "Success: no issues found in 3 source files", "All checks passed!"),
    ],
)
def test_words_that_say_nothing_was_found_are_an_empty_list(text: str) -> None:
    assert read_review_answer(text) == ReviewAnswer()


@pytest.mark.requirement("D9")
@each(
    "text",
    [
        *("No critical issues found.", "No security issues found.", "No other issues found."),
        *("No further issues found.", "No issues found in a.py, but b.py is broken.", "No issues fou", "None", "", "!"),
        *("No issues found. However, the loop never ends.", "No issues found\n\n1. The loop never ends", "LGTM"),
        *("I could not read the files. No issues found.", "I cannot say that no issues were found."),
        *("Not sure. No issues found?", "The code looks good.", "No errors found.", "No issues found " + "." * 1000),
        *("If no issues are found, answer with an empty list.", 'The answer "No issues found" would be wrong.'),
    ],
)
def test_words_that_leave_room_for_more_are_not(text: str) -> None:
    assert not says_clean(text)
    assert read_review_answer(text).problem is not None


def test_an_empty_list_is_clean_only_where_nothing_else_stands() -> None:
    for text in ("[]", " [ ]\n", "```json\n[]\n```", "~~~\n[]\n~~~", "```\n[]"):
        assert read_review_answer(text) == ReviewAnswer()
    for text in ("The default is []", "```\n[]\n```\nis mutable: a bug", "[] []", "x = []", "[[]]"):
        assert read_review_answer(text).problem is not None


@pytest.mark.defect("T8")
def test_no_wording_of_a_grave_defect_is_read_as_a_clean_answer_and_clean_ones_are() -> None:
    def passes(text: str, structured: object = None) -> bool:
        answer = read_review_answer(text, structured)
        is_grave = any(finding.severity.at_least(Severity.HIGH) for finding in answer.findings)
        return answer.problem is None and answer.lost is None and not is_grave

    assert len(WORDED_ANSWERS) >= 150
    assert [name for name, text in WORDED_ANSWERS.items() if passes(text)] == []
    assert [name for name, text in CLEAN_WORDS.items() if not passes(text)] == []
    # What an agent gave apart from its text takes nothing from what stands in the text.
    nits = {"findings": [{"title": "x", "severity": "low"}]}
    told = [name for name in WORDED_ANSWERS if name.startswith("a nit, then ")]
    assert [name for name in told if passes(WORDED_ANSWERS[name], nits)] == []


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


def test_a_result_of_sarif_is_a_finding() -> None:
    words = {"body": "It fails.\nAlways.", "rule": "R2", "evidence": "x = 1"}
    expected = finding(MEDIUM, "It fails.", "src/a b.py", 3, line_end=4, **words)
    assert read(document(result())) == ReviewAnswer(findings=(expected,))


def test_the_level_is_the_result_s_own_or_its_rule_s_or_a_warning() -> None:
    for level, severity in (("error", HIGH), ("warning", MEDIUM), ("note", LOW), ("none", LOW)):
        assert [finding.severity for finding in read(document(result(level=level))).findings] == [severity]
    rules = [result(ruleId="R1"), result(ruleId="unknown"), result(ruleId="R1", level="note")]
    assert [finding.severity for finding in read(document(*rules)).findings] == [HIGH, MEDIUM, LOW]


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
def test_what_is_no_whole_sarif_document_has_a_problem(value: Any, problem: str) -> None:
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
    assert [finding.severity for finding in answer.findings] == [LOW]
    assert answer.dropped == ("missing field: level (finding 1)",)
    assert answer.problem == "invalid json: truncated"
