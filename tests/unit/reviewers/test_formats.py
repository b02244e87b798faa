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
SUCCESS = {"executionSuccessful": True}
DIAGNOSTIC: dict[str, Any] = {
    "message": "Unused.",
    "location": {"path": "a.py", "range": {"start": {"line": 7, "column": 2}, "end": {"line": 8}}},
    "severity": "INFO",
    "code": {"value": "E1"},
    "suggestions": [{"text": "x"}],
}


def read(value: Any, output_format: ReviewFormat) -> ReviewAnswer:
    return read_output(json.dumps(value), output_format)


def unlevelled(changes: dict[str, Any]) -> dict[str, Any]:
    """Return a result that does not state its level, and names its rule as `changes` say."""
    result = {key: value for key, value in RESULT.items() if key not in ("level", "ruleId")}
    return {**result, **changes}


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
            *[
                ({"status": status}, f"its status is {status}")
                for status in ("timeout", "error", "no_reviewers", "pending", "ERROR", "COMPLETE", "failed")
            ],
            ({"status": 1}, "invalid json: Expected `str`, got `int` - at `$.status`"),
            ({"parse_errors": "codex: no JSON"}, "invalid json: Expected `array`, got `str` - at `$.parse_errors`"),
            (
                {"parse_errors": {"codex": "no JSON"}},
                "invalid json: Expected `array`, got `object` - at `$.parse_errors`",
            ),
            *[
                ({"parse_errors": [item]}, f"one of its reviewers failed: {words}")
                for item, words in (
                    ("claude: quota", "claude: quota"),
                    ({"reviewer": "gemini", "error": "quota"}, "gemini: quota"),
                    ({"agent": "codex"}, "{'agent': 'codex'}"),
                    ({}, "{}"),
                    ("", "''"),
                    (None, "None"),
                )
            ],
            ({"reviewers": ["codex"]}, "invalid json: Expected `object`, got `array` - at `$.reviewers`"),
            ({"error": "crashed"}, "invalid json: Object contains unknown field `error`"),
            ({"failed": True}, "invalid json: Object contains unknown field `failed`"),
        ],
    )
    def test_a_document_without_an_explained_verdict_is_a_failure(self, changes: dict[str, Any], problem: str) -> None:
        document = {"status": "complete", "consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": []}
        for status in ("complete", "resolved", None):
            assert read({**document, "status": status, "reviewers": {}, "error": None}, "review-gate").is_exact
        assert read({**document, **changes}, "review-gate").problem == problem


class TestSarif:
    def document(self, *results: Any, **run: Any) -> dict[str, Any]:
        return {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t"}}, "results": [*results], **run}]}

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
        ("names", "rule"),
        [
            ({"ruleId": "E1"}, "E1"),
            ({"ruleId": "E1/1"}, "E1/1"),
            ({"ruleIndex": 1}, "E1"),
            ({"ruleId": "E1", "ruleIndex": 1}, "E1"),
            ({"ruleId": "E1/part", "ruleIndex": 1}, "E1/part"),
            ({"ruleIndex": -1, "ruleId": "E1"}, "E1"),
            ({"rule": {"id": "E1"}}, "E1"),
            ({"rule": {"index": 1}}, "E1"),
            ({"rule": {"guid": "g-1"}}, "E1"),
            ({"ruleId": "X1"}, "X1"),
            ({"ruleId": "X1", "rule": {"id": "X1", "index": 0, "toolComponent": {"index": 0}}}, "X1"),
            ({"rule": {"index": 0, "toolComponent": {"guid": "g-x"}}}, "X1"),
            ({"ruleIndex": 0, "rule": {"toolComponent": {"index": 0}}}, "X1"),
        ],
    )
    def test_a_rule_is_found_by_index_guid_or_id(self, names: dict[str, Any], rule: str) -> None:
        rules = [
            {"id": "N1", "defaultConfiguration": {"level": "note"}},
            {"id": "E1", "guid": "g-1", "defaultConfiguration": {"level": "error"}},
        ]
        extension = {
            "name": "x",
            "guid": "g-x",
            "rules": [{"id": "X1", "defaultConfiguration": {"level": "error"}}],
        }
        tool = {"driver": {"name": "t", "rules": rules}, "extensions": [extension]}
        answer = read(self.document(unlevelled(names), tool=tool), "sarif")
        assert (severities(answer), answer.problem) == (["high"], "")
        assert answer.claims[0].rule == rule

    @pytest.mark.parametrize(
        ("names", "problem"),
        [
            ({"ruleIndex": 7}, "it names the rule 7, which the document does not have"),
            ({"rule": {"index": 7}}, "it names the rule 7, which the document does not have"),
            ({"rule": {"guid": "g"}}, "it names the rule g, which the document does not have"),
            (
                {"rule": {"index": 0, "toolComponent": {"index": 3}}},
                "it names the tool component 3, which the document does not have",
            ),
            (
                {"rule": {"index": 0, "toolComponent": {"guid": "g"}}},
                "it names the tool component g, which the document does not have",
            ),
            ({"ruleId": "E1", "ruleIndex": 0}, "it names two rules: E1 and N1"),
            ({"ruleId": "N10", "ruleIndex": 0}, "it names two rules: N10 and N1"),
            ({"ruleId": "E1", "rule": {"id": "N1"}}, "it names two rules: E1 and N1"),
            ({"ruleIndex": 1, "rule": {"index": 0}}, "it names two rules: 1 and 0"),
            ({"provenance": {"invocationIndex": 2}}, "it names the invocation 2, which the document does not have"),
            ({"ruleIndex": "0"}, "invalid json: Expected `int`, got `str` - at `$.ruleIndex`"),
            ({"ruleIndex": -2}, "invalid json: Expected `int` >= -1 - at `$.ruleIndex`"),
        ],
    )
    def test_a_result_whose_rule_cannot_be_resolved_is_invalid(self, names: dict[str, Any], problem: str) -> None:
        rules = [{"id": "N1"}, {"id": "E1"}]
        document = self.document(unlevelled(names), tool={"driver": {"name": "t", "rules": rules}})
        answer = read(document, "sarif")
        assert (answer.claims, answer.problem) == ((), f"{problem} (finding 1)")

    @pytest.mark.parametrize(
        ("changes", "overrides", "severity"),
        [
            ({}, [[("R1", "error")]], "high"),
            ({}, [[("R1", "error")], []], "high"),
            ({}, [[("R2", "error")]], "low"),
            ({"ruleId": "R1/part"}, [[("R1", "error")]], "high"),
            ({"ruleId": "R9"}, [[("R9", "error")]], "high"),
            ({"ruleId": "R9/part"}, [[("R9", "error")]], "high"),
            ({"provenance": {"invocationIndex": 1}}, [[("R1", "error")], []], "low"),
            ({"provenance": {"invocationIndex": 1}}, [[], [("R1", "error")]], "high"),
            # The level of the rule counts unless the result names the invocation that lowered it.
            ({"ruleId": "R2"}, [[("R2", "note")]], "high"),
            ({"ruleId": "R2", "provenance": {"invocationIndex": 0}}, [[("R2", "note")]], "low"),
            ({"level": "note"}, [[("R1", "error")]], "low"),
        ],
    )
    def test_an_override_of_the_invocation_changes_the_level_of_a_rule(
        self, changes: dict[str, Any], overrides: list[list[tuple[str, str]]], severity: str
    ) -> None:
        rules = [
            {"id": "R1", "defaultConfiguration": {"level": "note"}},
            {"id": "R2", "defaultConfiguration": {"level": "error"}},
        ]
        invocations: list[dict[str, Any]] = []
        for group in overrides:
            written = [{"descriptor": {"id": rule}, "configuration": {"level": level}} for rule, level in group]
            invocations.append({"executionSuccessful": True, "ruleConfigurationOverrides": written})
        result = unlevelled({"ruleId": "R1", **changes})
        document = self.document(result, tool={"driver": {"name": "t", "rules": rules}}, invocations=invocations)
        assert severities(read(document, "sarif")) == [severity]

    def test_a_result_may_name_no_rule(self) -> None:
        tool = {"driver": {"name": "t", "rules": [{"id": "", "defaultConfiguration": {"level": "note"}}]}}
        [claim] = read(self.document(unlevelled({}), tool=tool), "sarif").claims
        assert (claim.severity.label, claim.rule) == ("medium", None)

    def test_an_override_that_names_no_rule_of_the_document_is_a_failure(self) -> None:
        override = {"descriptor": {"index": 3}, "configuration": {"level": "error"}}
        invocation = {"executionSuccessful": True, "ruleConfigurationOverrides": [override]}
        answer = read(self.document(unlevelled({"ruleId": "R1"}), invocations=[invocation]), "sarif")
        assert answer.problem == "invalid override: it names the rule 3, which the document does not have"
        assert len(answer.claims) == 1

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
            ({"invocations": [{"exitCode": 2}]}, "the tool does not say whether it succeeded"),
            ({"invocations": [{"exitCode": 0}]}, "the tool does not say whether it succeeded"),
            ({"invocations": [SUCCESS, {}]}, "the tool does not say whether it succeeded"),
            ({"conversion": {"invocation": {}}}, "the tool does not say whether it succeeded"),
            *[
                ({"externalPropertyFileReferences": {name: {}}}, f"a part of it is in another file: {name}")
                for name in ("results", "invocations", "driver", "extensions", "conversion")
            ],
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

    @pytest.mark.defect("F8")
    @pytest.mark.parametrize(
        ("notification", "problem"),
        [
            ({"level": "warning"}, ""),
            ({"level": "note"}, ""),
            ({"level": "none"}, ""),
            ({}, ""),
            ({"descriptor": {"id": "other"}}, ""),
            ({"descriptor": {"id": "W1"}}, ""),
            ({"level": "error"}, "the tool reports an error: x"),
            ({"level": "Error"}, "the tool reports an error: x"),
            ({"level": "fatal"}, "the tool reports an error: x"),
            ({"descriptor": {"id": "E1"}}, "the tool reports an error: x"),
            ({"descriptor": {"id": "E1/2"}}, "the tool reports an error: x"),
            ({"descriptor": {"index": 1}}, "the tool reports an error: x"),
            ({"descriptor": {"index": 0, "toolComponent": {"index": 0}}}, "the tool reports an error: x"),
            ({"descriptor": {"id": "O1"}}, "the tool reports an error: x"),
            (
                {"descriptor": {"index": 9}},
                "invalid notification: it names the kind of notification 9, which the document does not have",
            ),
        ],
    )
    def test_only_a_notification_below_error_is_not_a_failure(self, notification: dict[str, Any], problem: str) -> None:
        error = {"defaultConfiguration": {"level": "error"}}
        kinds = [{"id": "W1"}, {"id": "E1", **error}, {"id": "O1"}]
        extension = {"name": "x", "notifications": [{"id": "X1", **error}]}
        tool = {"driver": {"name": "t", "notifications": kinds}, "extensions": [extension]}
        override = {"descriptor": {"id": "O1"}, "configuration": {"level": "error"}}
        invocation = {
            "executionSuccessful": True,
            "toolExecutionNotifications": [{"message": {"text": "x"}, **notification}],
            "notificationConfigurationOverrides": [override],
        }
        answer = read(self.document(RESULT, tool=tool, invocations=[invocation]), "sarif")
        assert (answer.problem, len(answer.claims)) == (problem, 1)

    @pytest.mark.defect("F8", "F11")
    @pytest.mark.parametrize(
        "run",
        [
            {"results": {}},
            {"tool": []},
            {"tool": {"driver": {"rules": {}}}},
            {"tool": {"extensions": {}}},
            {"invocations": {"executionSuccessful": False}},
            {"invocations": [[]]},
            {"invocations": [{"executionSuccessful": "false"}]},
            {"invocations": [{"executionSuccessful": 0}]},
            {"invocations": [{**SUCCESS, "toolExecutionNotifications": {"level": "error"}}]},
            {"invocations": [{**SUCCESS, "toolConfigurationNotifications": "crashed"}]},
            {"invocations": [{**SUCCESS, "toolExecutionNotifications": [{"level": 1}]}]},
            {"invocations": [{**SUCCESS, "ruleConfigurationOverrides": {}}]},
            {"conversion": []},
            {"externalPropertyFileReferences": []},
        ],
    )
    def test_a_part_of_another_type_is_a_failure(self, run: dict[str, Any]) -> None:
        assert read(self.document(**run), "sarif").problem.startswith("invalid json: Expected ")

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

    @pytest.mark.defect("F11")
    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"error": "tool crashed"}, "Object contains unknown field `error`"),
            ({"exit_code": 2}, "Object contains unknown field `exit_code`"),
            ({"diagnostics": {}}, "Expected `array | null`, got `object` - at `$.diagnostics`"),
            ({"source": "golint"}, "Expected `object`, got `str` - at `$.source`"),
            ({"severity": []}, "Expected `int | str`, got `array` - at `$.severity`"),
        ],
    )
    def test_an_unknown_key_or_another_type_at_the_top_is_a_failure(
        self, changes: dict[str, Any], problem: str
    ) -> None:
        document: dict[str, Any] = {"source": {"name": "t"}, "severity": "ERROR", "diagnostics": [], "error": None}
        assert read(document, "rdjson") == ReviewAnswer()
        assert read({**document, **changes}, "rdjson").problem == f"invalid json: {problem}"

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
