"""The formats that external reviewers declare."""

import json
from typing import Any, get_args

import pytest

from codeloupe.config.schema import ReviewFormat, Settings
from codeloupe.model.finding import Severity
from codeloupe.model.review import Verdict
from codeloupe.reviewers.answers import MAX_ITEMS, ReviewAnswer
from codeloupe.reviewers.formats import read_output

GATE_ITEM = {"reviewer": "codex", "file_path": "a.py", "line_start": 2, "priority": 1, "title": "[P1] T", "body": "B"}
RESULT: dict[str, Any] = {
    "ruleId": "S1",
    "level": "error",
    "message": {"text": "Divides by zero."},
    "locations": [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "src/a%20b.py"},
                "region": {"startLine": 3, "endLine": 4, "snippet": {"text": "x / 0"}},
            }
        }
    ],
}
DIAGNOSTIC: dict[str, Any] = {
    "message": "Unused.",
    "location": {"path": "a.py", "range": {"start": {"line": 7, "column": 2}, "end": {"line": 8}}},
    "severity": "INFO",
    "code": {"value": "E1"},
    "suggestions": [{"text": "x"}],
}


def read(value: Any, output_format: ReviewFormat) -> ReviewAnswer:
    return read_output(json.dumps(value), output_format)


def severities(answer: ReviewAnswer) -> list[str]:
    return [claim.severity.label for claim in answer.claims]


@pytest.mark.parametrize("output_format", get_args(ReviewFormat))
def test_empty_output_is_a_failure_in_every_format(output_format: ReviewFormat) -> None:
    for text in ("", " \n\t"):
        assert read_output(text, output_format).problem == "empty output"
    assert Settings(review_command_format=output_format).review_command_format == output_format


@pytest.mark.parametrize("output_format", get_args(ReviewFormat))
def test_output_in_another_format_is_a_failure(output_format: ReviewFormat) -> None:
    for text in ("Traceback (most recent call last):", "{", "[]", "null", "{}", '{"version": "2.1.0"}', "[" * 100_000):
        answer = read_output(text, output_format)
        assert answer.problem
        assert not answer.claims


def test_findings_are_read_as_an_answer() -> None:
    item = {"file": "a.py", "line": 2, "severity": "low", "body": "B"}
    assert read({"findings": [item]}, "findings").is_exact
    assert read({"findings": [item], "summary": "S"}, "findings").problem == "unknown field: summary"
    text = f"1 problem\n{json.dumps({'findings': [item]})}"
    assert (read_output(text, "findings").is_exact, len(read_output(text, "findings").claims)) == (False, 1)


class TestReviewGate:
    def test_findings_name_their_reporter(self) -> None:
        document = {"status": "complete", "consensus_verdict": "FAIL", "aggregated_findings": [GATE_ITEM]}
        answer = read({**document, "reviewers": {}, "parse_errors": []}, "review-gate")
        assert (answer.problem, answer.verdict) == ("", Verdict.FAIL)
        [claim] = answer.claims
        assert (claim.reporter, claim.file, claim.line_start, claim.title) == ("codex", "a.py", 2, "T")

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"aggregated_findings": None}, "missing field: aggregated_findings"),
            ({"aggregated_findings": [{"title": "T"}]}, "missing field: severity (finding 1)"),
            ({"consensus_verdict": None}, "missing field: consensus_verdict"),
            ({"consensus_verdict": "ERROR"}, "invalid verdict: ERROR"),
            ({"consensus_verdict": "FAIL"}, "invalid verdict: FAIL, but the findings give PASS"),
            ({"status": "timeout"}, "its status is timeout"),
            (
                {"parse_errors": [{"reviewer": "gemini", "error": "quota"}]},
                "it could not read what its reviewers said: gemini: quota",
            ),
        ],
    )
    def test_a_document_without_an_explained_verdict_is_a_failure(self, changes: dict[str, Any], problem: str) -> None:
        document = {"status": "complete", "consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": []}
        assert read(document, "review-gate").is_exact
        assert read({**document, **changes}, "review-gate").problem == problem


class TestSarif:
    def document(self, *results: Any, **run: Any) -> dict[str, Any]:
        return {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t"}}, "results": list(results), **run}]}

    def test_a_result_is_a_claim(self) -> None:
        answer = read(self.document(RESULT), "sarif")
        [claim] = answer.claims
        assert (claim.severity, claim.title, claim.rule) == (Severity.HIGH, "Divides by zero.", "S1")
        assert (claim.file, claim.line_start, claim.line_end, claim.quote) == ("src/a b.py", 3, 4, "x / 0")
        assert answer.is_exact
        assert read(self.document(), "sarif") == ReviewAnswer()

    def test_the_level_of_the_rule_and_then_warning_is_the_default(self) -> None:
        rules = [{"id": "S1", "defaultConfiguration": {"level": "note"}}, {"id": "S2"}]
        tool = {"driver": {"name": "t", "rules": rules}}
        results = [{**RESULT, "level": None}, {**RESULT, "level": None, "ruleId": "S2"}, RESULT]
        assert severities(read(self.document(*results, tool=tool), "sarif")) == ["low", "medium", "high"]

    @pytest.mark.parametrize(
        ("changes", "counts"),
        [
            ({"kind": "pass"}, False),
            ({"kind": "notApplicable"}, False),
            ({"kind": "fail"}, True),
            ({"kind": "review"}, True),
            ({"baselineState": "absent"}, False),
            ({"baselineState": "unchanged"}, True),
            ({"suppressions": []}, True),
            ({"suppressions": [{"kind": "inSource"}]}, False),
            ({"suppressions": [{"kind": "inSource", "status": "underReview"}]}, True),
        ],
    )
    def test_results_that_report_no_defect_do_not_count(self, changes: dict[str, Any], counts: bool) -> None:
        answer = read(self.document({**RESULT, **changes}), "sarif")
        assert (bool(answer.claims), answer.is_exact) == (counts, True)

    @pytest.mark.defect("F8")
    @pytest.mark.parametrize(
        ("run", "problem"),
        [
            ({"results": None}, "missing field: results"),
            ({"invocations": [{"executionSuccessful": False}]}, "the tool says that it failed"),
            *[
                (
                    {
                        "invocations": [
                            {"executionSuccessful": True, kind: [{"level": "error", "message": {"text": "x"}}]}
                        ]
                    },
                    "the tool reports an error: x",
                )
                for kind in ("toolExecutionNotifications", "toolConfigurationNotifications")
            ],
        ],
    )
    def test_an_error_of_the_tool_is_a_failure(self, run: dict[str, Any], problem: str) -> None:
        document = self.document(RESULT)
        document["runs"].append({"results": [], **run})
        answer = read(document, "sarif")
        assert (answer.problem, len(answer.claims)) == (problem, 1)

    def test_a_warning_of_the_tool_is_not_a_failure(self) -> None:
        notification = {"level": "warning", "message": {"text": "x"}}
        invocation = {"executionSuccessful": True, "toolExecutionNotifications": [notification]}
        assert read(self.document(invocations=[invocation]), "sarif").is_exact

    @pytest.mark.parametrize(
        ("result", "problem"),
        [
            ({**RESULT, "level": "bad"}, "invalid severity: bad (finding 1)"),
            ({**RESULT, "message": {"id": "default"}}, "missing field: title (finding 1)"),
            (
                {**RESULT, "locations": "a.py:3"},
                "invalid json: Expected `array`, got `str` - at `$.locations` (finding 1)",
            ),
            (7, "invalid json: Expected `object`, got `int` (finding 1)"),
        ],
    )
    def test_a_result_that_cannot_be_read_is_a_failure(self, result: Any, problem: str) -> None:
        answer = read(self.document(result), "sarif")
        assert (answer.problem, answer.invalid) == (problem, (problem,))

    def test_a_document_needs_a_run(self) -> None:
        for runs in (None, list[Any]()):
            assert read({"version": "2.1.0", "runs": runs}, "sarif").problem == "missing field: runs"
        assert read({"runs": {}}, "sarif").problem == "invalid json: Expected `array`, got `object` - at `$.runs`"

    def test_one_invalid_result_does_not_hide_the_others(self) -> None:
        answer = read(self.document(RESULT, 7, RESULT), "sarif")
        assert (len(answer.claims), len(answer.invalid), answer.is_exact) == (2, 1, False)

    def test_null_is_a_part_that_is_not_given(self) -> None:
        nulls = {"kind": None, "rule": None, "suppressions": None, "locations": [{"physicalLocation": None}]}
        [claim] = read(self.document({**RESULT, **nulls}, invocations=None), "sarif").claims
        assert (claim.file, claim.line_start, claim.title) == ("", None, "Divides by zero.")


class TestRdjson:
    def test_a_diagnostic_is_a_claim(self) -> None:
        for answer in (read({"diagnostics": [DIAGNOSTIC]}, "rdjson"), read(DIAGNOSTIC, "rdjsonl")):
            [claim] = answer.claims
            assert (claim.severity, claim.title, claim.rule) == (Severity.LOW, "Unused.", "E1")
            assert (claim.file, claim.line_start, claim.line_end) == ("a.py", 7, 8)
            assert answer.is_exact
        assert read({"diagnostics": []}, "rdjson") == ReviewAnswer()

    @pytest.mark.parametrize(
        ("stated", "default", "severity"),
        [
            ("ERROR", None, "high"),
            (2, None, "medium"),
            (None, "ERROR", "high"),
            (None, None, "medium"),
            ("UNKNOWN_SEVERITY", None, "medium"),
        ],
    )
    def test_a_severity_comes_from_the_diagnostic_or_the_document(
        self, stated: object, default: object, severity: str
    ) -> None:
        document = {"severity": default, "diagnostics": [{**DIAGNOSTIC, "severity": stated}]}
        assert severities(read(document, "rdjson")) == [severity]

    def test_lines_are_diagnostics_and_any_other_line_is_a_failure(self) -> None:
        line = json.dumps(DIAGNOSTIC)
        assert severities(read_output(f"{line}\n\n{line}\n", "rdjsonl")) == ["low", "low"]
        answer = read_output(f"{line}\npanic: nil", "rdjsonl")
        assert (len(answer.claims), answer.problem.startswith("invalid json: ")) == (1, True)
        assert read_output("No issues found\n", "rdjsonl") == ReviewAnswer()

    def test_a_diagnostic_without_words_or_with_another_severity_is_a_failure(self) -> None:
        for changes, problem in (
            ({"message": ""}, "missing field: title"),
            ({"severity": "BAD"}, "invalid severity: BAD"),
        ):
            answer = read({"diagnostics": [{**DIAGNOSTIC, **changes}]}, "rdjson")
            assert answer.problem == f"{problem} (finding 1)"


class TestLines:
    def test_each_line_is_a_claim(self) -> None:
        text = "a.py:2:5: error: division by zero\n\nsrc/b c.py:10: warning: unused: x\r\nd.c:1: note: see there\n"
        answer = read_output(text, "lines")
        places = [(claim.file, claim.line_start, claim.title) for claim in answer.claims]
        assert places == [
            ("a.py", 2, "division by zero"),
            ("src/b c.py", 10, "unused: x"),
            ("d.c", 1, "see there"),
        ]
        assert severities(answer) == ["high", "medium", "low"]
        assert answer.is_exact

    def test_any_other_line_is_a_failure(self) -> None:
        for other in ("Found 1 error.", "a.py:2: division by zero", "a.py: error: no line", "a.py:2: awful: word"):
            answer = read_output(f"a.py:2: error: division by zero\n{other}", "lines")
            assert (len(answer.claims), len(answer.invalid), answer.is_exact) == (1, 1, False)

    def test_a_clean_program_says_so(self) -> None:
        assert read_output("No issues found\n", "lines") == ReviewAnswer()
        assert not read_output("No issues found\npanic: nil", "lines").is_exact

    def test_more_lines_than_the_limit_are_a_failure(self) -> None:
        answer = read_output("a.py:2: error: x\n" * (MAX_ITEMS + 5), "lines")
        assert (len(answer.claims), answer.problem) == (MAX_ITEMS, f"more than {MAX_ITEMS:,} findings")
