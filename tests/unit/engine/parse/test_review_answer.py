from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.parse.items import EMPTY_OUTPUT, MAX_FINDINGS, NO_JSON, TRUNCATED_JSON, stated_severity
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from tests.rows import each
from tests.unit.engine.parse.review_shapes import ENVELOPES, FINDINGS, JSON_SHAPES, dumped, gate_item, own_item

ITEM = {"file": "a.py", "line": 3, "severity": "high", "title": "It fails", "body": "Always."}
FINDING = ClaimedFinding(severity=Severity.HIGH, title="It fails", body="Always.", file="a.py", line_start=3)
# Orchestrators tell these apart from something that was read in vain.
NOTHING_TO_READ = (EMPTY_OUTPUT, NO_JSON)


def read(value: Any) -> ReviewAnswer:
    return read_review_answer(json.dumps(value))


def only_finding(item: dict[str, Any]) -> ClaimedFinding:
    answer = read({"findings": [item]})
    assert (answer.problem, answer.dropped) == (None, ())
    (finding,) = answer.findings
    return finding


@pytest.mark.requirement("D4")
@pytest.mark.requirement("V6")
@pytest.mark.requirement("C6")
@each("shape", JSON_SHAPES)
@each("envelope", ENVELOPES)
def test_every_shape_is_read_from_every_envelope(shape: str, envelope: str) -> None:
    answer = read_review_answer(ENVELOPES[envelope](JSON_SHAPES[shape].value(FINDINGS)))
    assert answer.findings == JSON_SHAPES[shape].expected(FINDINGS)
    assert (answer.problem, answer.dropped, answer.repaired) == (None, (), False)


@each("shape", JSON_SHAPES)
def test_every_shape_is_read_from_the_structured_value(shape: str) -> None:
    answer = read_review_answer("It is done.", JSON_SHAPES[shape].value(FINDINGS))
    assert answer.findings == JSON_SHAPES[shape].expected(FINDINGS)
    assert answer.problem is None


@pytest.mark.requirement("V6")
@each("stated", ["PASS", "fail", "Needs Work", "NEEDS_WORK", " needs-work "])
def test_the_verdict_is_told_as_it_was_stated(stated: str) -> None:
    answer = read({"verdict": stated, "findings": [gate_item(FINDINGS[0])]})
    assert answer.verdict in {"PASS", "FAIL", "NEEDS_WORK"}
    assert (answer.verdict or "").replace("_", "") == stated.upper().strip().replace(" ", "").replace("_", "").replace(
        "-", ""
    )
    assert answer.problem is None


@pytest.mark.requirement("V8")
@each(
    ("output", "problem"),
    [
        ("", EMPTY_OUTPUT),
        (" \n\ufeff\t", EMPTY_OUTPUT),
        ('{"verdict": "MAYBE", "findings": []}', "invalid verdict: MAYBE"),
        ('{"verdict": null, "findings": []}', "invalid verdict: null"),
        ('{"verdict": 3, "findings": []}', "invalid verdict: 3"),
        ('{"verdict": ["PASS"], "findings": []}', "invalid verdict: a list"),
        ('{"consensus_verdict": "no_reviewers", "aggregated_findings": []}', "invalid verdict: no_reviewers"),
        ('{"verdict": "PASS"}', "missing field: findings"),
        ('{"verdict": "PASS", "findings": null}', "missing field: findings"),
        ('{"verdict": "PASS", "findings": "see above"}', "missing field: findings"),
        ('{"passed": true, "summary": "fine"}', "missing field: issues"),
        ('{"consensus_verdict": "PASS"}', "missing field: aggregated_findings"),
        ('{"answer": 42}', "missing field: findings"),
        ("{}", "missing field: findings"),
        ('{"findings": [{"severity": "low"}]}', "missing field: title"),
        ('{"findings": [{"title": "x", "file": "a.py"}]}', "missing field: severity"),
        ('{"findings": [{"title": "x", "file_path": "a.py"}]}', "missing field: priority"),
        ('{"findings": [{"title": "x", "severity": "banana"}]}', "invalid severity: banana"),
        ('{"findings": ["a.py is bad", 3, null]}', "missing field: title"),
        ('{"findings": [SQL injection in a.py]}', "invalid json: stray text at character 15"),
        ('{"findings": [], "findings": []}', "invalid json: duplicate key: findings"),
        ('{"findings": [{"file": "a.py"', TRUNCATED_JSON),
        ('{"findings"', TRUNCATED_JSON),
        ("{broken}", "invalid json: Expecting property name enclosed in double quotes at character 2"),
        ('{"findings": []', TRUNCATED_JSON),
        ("[" * 200, "invalid json: nested more than 100 levels deep"),
        ("{'readable': false, 'findings': []}", "invalid answer: it is no review"),
        (
            '{"consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": ["codex: x"]}',
            "parse errors: codex: x",
        ),
        ('{"findings": [], "error": "no access"}', "the run failed: no access"),
        ('{"findings": [], "errors": [{"kind": "x"}]}', "the run failed: an object"),
        ('{"findings": [], "complete": false}', "the run failed: it is not complete"),
        ('{"type": "result", "is_error": true, "result": "API Error: 529"}', "the run failed: API Error: 529"),
        ('{"type": "result", "is_error": true, "result": "{\\"findings\\": []}"}', 'the run failed: {"findings": []}'),
        ('{"response": "", "stats": {}}', EMPTY_OUTPUT),
        ('{"response": "I could not do it."}', NO_JSON),
    ],
)
def test_what_is_no_answer_has_a_named_problem(output: str, problem: str) -> None:
    answer = read_review_answer(output)
    assert (answer.problem, answer.findings) == (problem, ())


@pytest.mark.requirement("C7")
@each("output", ["", "I could not do it.", "text {", "} text", "[1] and (2)", "{", "}", "a {", "x = [] # y"])
def test_an_output_without_json_has_no_structure(output: str) -> None:
    assert read_review_answer(output).problem in NOTHING_TO_READ


@pytest.mark.requirement("C7")
@each("output", ["{broken}", '{"passed": tru}', '{"passed": true', '{"a": 1}', '{"verdict": "x"}'])
def test_an_output_with_json_that_cannot_be_read_has_some(output: str) -> None:
    problem = read_review_answer(output).problem
    assert problem
    assert problem not in NOTHING_TO_READ


@each(
    "value",
    [
        {"verdict": "FAIL", "findings": []},
        {"verdict": "needs work", "findings": []},
        {"passed": False, "summary": "It is bad.", "issues": []},
        {"passed": "false", "issues": []},
        {"findings": [], "overall_correctness": "patch is incorrect"},
        {"consensus_verdict": "FAIL", "aggregated_findings": []},
    ],
)
def test_a_bad_verdict_without_findings_is_not_clean(value: object) -> None:
    assert "without findings" in str(read(value).problem)


@each(
    "value",
    [
        {"findings": []},
        {"verdict": "PASS", "findings": []},
        {"passed": True, "summary": "fine", "issues": []},
        {"findings": [], "overall_correctness": "patch is correct"},
        {"consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": []},
        {"findings": "No issues found."},
        {"findings": [], "error": None, "errors": [], "complete": True},
        {"result": "No issues found"},
        "No issues found.",
        [],
    ],
)
def test_an_empty_list_is_clean(value: object) -> None:
    answer = read(value)
    assert (answer.problem, answer.findings, answer.dropped) == (None, (), ())
    assert read_review_answer("done", value) == answer


@each(
    ("stated", "severity"),
    [
        ("P0", Severity.CRITICAL),
        ("[P1]", Severity.HIGH),
        (2, Severity.MEDIUM),
        (3.0, Severity.LOW),
        ("0", Severity.CRITICAL),
        (" Critical ", Severity.CRITICAL),
        ("ERROR", Severity.HIGH),
        ("warning", Severity.MEDIUM),
        ("Suggestion", Severity.LOW),
        ("info", Severity.LOW),
    ],
)
@each("name", ["severity", "priority"])
def test_severities_are_read_in_every_spelling(name: str, stated: object, severity: Severity) -> None:
    assert only_finding({"title": "x", name: stated}).severity is severity


def test_the_gravest_severity_that_an_item_states_counts_also_in_its_title() -> None:
    assert only_finding({"title": "[P0] x", "body": "y"}).severity is Severity.CRITICAL
    assert only_finding({"title": "[P0] x", "priority": 3}).severity is Severity.CRITICAL
    assert only_finding({"title": "[P3] x", "priority": 1}).severity is Severity.HIGH
    assert only_finding({"title": "x", "severity": "low", "priority": "P0"}).severity is Severity.CRITICAL
    assert only_finding({"title": "[P2] x", "severity": None}).title == "[P2] x"
    assert only_finding({"title": "[P0] x", "severity": "banana"}).severity is Severity.CRITICAL


def test_a_severity_that_is_unknown_gives_way_to_a_priority_that_is_known() -> None:
    assert only_finding({"title": "x", "severity": "major", "priority": 1}).severity is Severity.HIGH


def test_one_bad_item_costs_that_item() -> None:
    answer = read(
        {"findings": [ITEM, {**ITEM, "severity": "banana"}, {"severity": "low"}, "text", {**ITEM, "title": "B"}]}
    )
    assert [finding.title for finding in answer.findings] == ["It fails", "B"]
    assert answer.dropped == (
        "invalid severity: banana (finding 2)",
        "missing field: title (finding 3)",
        "missing field: title (finding 4)",
    )
    assert answer.problem is None


@pytest.mark.defect("V6")
def test_an_item_with_a_key_twice_has_the_gravest_severity_and_the_answer_is_in_doubt() -> None:
    doubtful = '{"title": "x", "severity": "low", "severity": "critical"}'
    answer = read_review_answer(f'{{"findings": [{doubtful}, {json.dumps(ITEM)}]}}')
    assert [(found.title, found.severity) for found in answer.findings] == [
        ("x", Severity.CRITICAL),
        (FINDING.title, FINDING.severity),
    ]
    assert answer.dropped == ("invalid json: duplicate key: severity (finding 1)",)
    assert answer.lost


@each(
    ("fields", "file", "start", "end"),
    [
        ({"file": "a.py", "line": 3}, "a.py", 3, None),
        ({"filePath": "a.py", "lineStart": "3", "lineEnd": 5.0}, "a.py", 3, 5),
        ({"path": "a.py", "lines": "L3-L5"}, "a.py", 3, 5),
        ({"filename": "a.py", "line_range": [3, 5]}, "a.py", 3, 5),
        ({"file": "a.py:3"}, "a.py", 3, None),
        ({"file": "a.py:3-5"}, "a.py", 3, 5),
        ({"location": "a.py:3"}, "a.py", 3, None),
        ({"location": {"path": "a.py", "start_line": 3, "end_line": 5}}, "a.py", 3, 5),
        ({"code_location": {"file_path": "a.py", "line_range": {"start": 3, "end": 5}}}, "a.py", 3, 5),
        ({"code_location": {"absolute_file_path": "/r/a.py", "line_range": {"start": 3, "end": 3}}}, "/r/a.py", 3, 3),
        ({"evidence": "a.py:3 - x = 1"}, "a.py", 3, None),
        ({"evidence": "`a.py:3-5` – x = 1"}, "a.py", 3, 5),
        ({"evidence": "a.py:3:7: x = 1"}, "a.py", 3, None),
        ({"evidence": {"file": "a.py", "line": 3, "code": "x = 1"}}, "a.py", 3, None),
        ({"file": "b.py", "evidence": "a.py:3 - x = 1"}, "b.py", None, None),
        ({"file": "a.py", "line": 0}, "a.py", None, None),
        ({"file": "a.py", "line": -4}, "a.py", None, None),
        ({"file": "a.py", "line": True}, "a.py", None, None),
        ({"file": "a.py", "line": 10**30}, "a.py", None, None),
        ({"file": "a.py", "line": "twelve"}, "a.py", None, None),
        ({"file": "a.py", "line_start": 9, "line_end": 4}, "a.py", 9, None),
        ({"file": "", "line": 3}, None, 3, None),
        ({"file": "a" * 5000}, None, None, None),
        ({"file": ["a.py"]}, None, None, None),
        ({"file": "dir\udcff/\0a.py"}, "dir\udcff/\0a.py", None, None),
    ],
)
def test_places_are_read_in_every_spelling(
    fields: dict[str, Any], file: str | None, start: int | None, end: int | None
) -> None:
    finding = only_finding({"title": "x", "severity": "low", **fields})
    assert (finding.file, finding.line_start, finding.line_end) == (file, start, end)


@each(
    ("fields", "evidence"),
    [
        ({"evidence": "a.py:3 - x = 1"}, "x = 1"),
        ({"evidence": "a.py:3 - `x = 1`"}, "x = 1"),
        ({"evidence": "a.py:3"}, ""),
        ({"file": "src/a.py", "evidence": "a.py:3 - x = 1"}, "x = 1"),
        ({"file": "b.py", "evidence": "a.py:3 - x = 1"}, "a.py:3 - x = 1"),
        ({"quote": "  x = 1\n"}, "  x = 1\n"),
        ({"evidence": ["x = 1", "y = 2"]}, "x = 1\ny = 2"),
        ({"evidence": {"file": "a.py", "code": "x = 1"}}, "x = 1"),
        ({"quote": "x" * 20_000}, "x" * 10_000),
        ({"evidence": 5}, ""),
    ],
)
def test_the_evidence_is_the_quote_without_its_place(fields: dict[str, Any], evidence: str) -> None:
    assert only_finding({"title": "x", "severity": "low", **fields}).evidence == evidence


@each(
    ("stated", "confidence"),
    [
        (0.8, 0.8),
        (1, 1.0),
        (85, 0.85),
        ("0.5", 0.5),
        ("80%", 0.8),
        (-1, None),
        (101, None),
        (True, None),
        ("high", None),
    ],
)
def test_a_confidence_is_a_share_of_one(stated: object, confidence: float | None) -> None:
    assert only_finding({**ITEM, "confidence": stated}).confidence == confidence


def test_without_a_title_the_first_line_or_sentence_of_the_words_is_one() -> None:
    assert only_finding({"severity": "low", "message": "One. Two."}).title == "One. Two."
    two_lines = only_finding({"severity": "low", "description": "One.\nTwo."})
    assert (two_lines.title, two_lines.body) == ("One.", "One.\nTwo.")
    long = only_finding({"severity": "low", "description": f"{'word ' * 30}ends. Then more."})
    assert long.title == f"{'word ' * 30}ends."
    assert long.body.endswith("Then more.")


def test_all_words_of_an_item_are_kept() -> None:
    finding = only_finding({"severity": "low", "title": "T", "message": "M", "description": "D", "body": "B"})
    assert (finding.title, finding.body) == ("T", "B\n\nM\n\nD")


def test_texts_are_capped() -> None:
    finding = only_finding({"severity": "low", "title": "t" * 5000, "body": "b" * 50_000, "category": "c" * 5000})
    assert len(finding.title) < 400
    assert (len(finding.body), len(finding.category)) == (20_000, 200)
    assert read({"findings": [], "summary": "s" * 50_000}).summary == "s" * 10_000


def test_more_findings_than_the_cap_are_counted() -> None:
    answer = read({"findings": [{**ITEM, "line": number + 1} for number in range(MAX_FINDINGS + 5)]})
    assert len(answer.findings) == MAX_FINDINGS
    assert answer.dropped == ("5 more findings than the 1,000 that are read",)


def test_more_bad_items_than_anybody_reads_are_counted() -> None:
    answer = read({"findings": [ITEM, *[1] * 5000]})
    assert answer.findings == (FINDING,)
    assert answer.dropped[-1] == "4,900 more findings that could not be read"
    assert len(answer.dropped) == 101


def test_findings_and_reasons_of_many_answers_are_capped_and_counted() -> None:
    lines = [json.dumps({**ITEM, "line": number + 1}) for number in range(MAX_FINDINGS + 5)]
    answer = read_review_answer("\n".join(lines))
    assert len(answer.findings) == MAX_FINDINGS
    assert answer.dropped == ("5 more findings than the 1,000 that are read",)
    bad = [json.dumps({"title": "x", "severity": f"odd {number}"}) for number in range(300)]
    answer = read_review_answer("\n".join([json.dumps(ITEM), *bad]))
    assert answer.findings == (FINDING,)
    assert answer.dropped[200:] == ("400 more reasons like these",)


def test_a_single_object_in_place_of_the_list_is_its_only_item() -> None:
    assert read({"findings": ITEM}).findings == (FINDING,)


def test_lines_of_objects_are_a_list_of_findings() -> None:
    answer = read_review_answer(f"{json.dumps(ITEM)}\n{json.dumps({**ITEM, 'title': 'B'})}\n")
    assert [finding.title for finding in answer.findings] == ["It fails", "B"]
    assert answer.problem is None


def test_a_line_of_a_log_is_no_finding() -> None:
    text = '{"level": "info", "message": "starting"}\n{"findings": []}'
    assert read_review_answer(text) == ReviewAnswer()


class TestSeveralAnswers:
    EMPTY = '{"findings": []}'

    def test_findings_of_all_blocks_are_taken_once_each(self) -> None:
        one, other = json.dumps({"findings": [ITEM]}), json.dumps({"findings": [ITEM, {**ITEM, "title": "B"}]})
        answer = read_review_answer(f"```json\n{one}\n```\nand\n```json\n{other}\n```")
        assert [finding.title for finding in answer.findings] == ["It fails", "B"]
        assert answer.problem is None

    def test_what_fits_no_shape_gives_way_to_what_does(self) -> None:
        answer = read_review_answer(f'{{"a": 1}} [1] {{b: oops oops}} {json.dumps({"findings": [ITEM]})} {{"c": []}}')
        assert (answer.findings, answer.problem) == ((FINDING,), None)

    def test_an_example_of_the_form_gives_way_to_the_answer_and_is_told(self) -> None:
        example = '{"findings": [{"file": "...", "severity": "critical|high|medium|low", "title": "..."}]}'
        answer = read_review_answer(f"The form is {example}.\n{json.dumps({'findings': [ITEM]})}")
        assert (answer.findings, answer.problem) == ((FINDING,), None)
        assert any("critical|high|medium|low" in reason for reason in answer.dropped)

    def test_a_problem_does_not_give_way_to_an_empty_answer(self) -> None:
        answer = read_review_answer(f'{{"verdict": "FAIL", "findings": []}}\n{self.EMPTY}')
        assert answer.problem == "verdict FAIL without findings"

    def test_an_answer_that_is_cut_off_never_gives_way(self) -> None:
        whole = json.dumps({"findings": [ITEM]})
        for cut in ('{"findings": [{"title": "B"', '{"find', '{"title": "B", "seve'):
            answer = read_review_answer(f"{whole}\n{cut}")
            assert (answer.findings, answer.problem) == ((FINDING,), TRUNCATED_JSON)

    def test_text_behind_an_answer_may_hold_an_open_brace(self) -> None:
        assert read_review_answer(f"{self.EMPTY} That is {'{'} all {{").problem is None

    def test_bullets_beside_an_empty_answer_are_findings(self) -> None:
        answer = read_review_answer(f"- **Severity:** high\n- **Description:** Bad\n\n{self.EMPTY}\n")
        assert [finding.title for finding in answer.findings] == ["Bad"]

    def test_what_was_said_to_a_model_is_not_its_answer(self) -> None:
        messages = [
            {"role": "user", "content": json.dumps({"findings": [ITEM]})},
            {"role": "assistant", "content": self.EMPTY},
        ]
        assert read({"messages": messages}) == ReviewAnswer()

    def test_only_the_result_of_a_run_counts(self) -> None:
        lines = [
            {"type": "assistant", "message": {"content": [{"type": "text", "text": json.dumps({"findings": [ITEM]})}]}},
            {"type": "result", "is_error": False, "result": self.EMPTY},
        ]
        assert read(lines) == ReviewAnswer()
        assert read_review_answer("\n".join(map(json.dumps, lines))) == ReviewAnswer()

    def test_findings_of_a_run_that_failed_are_not_the_whole_answer(self) -> None:
        lines = [
            {"type": "item.completed", "item": {"type": "agent_message", "text": json.dumps({"findings": [ITEM]})}},
            {"type": "turn.failed", "error": {"message": "stream disconnected"}},
        ]
        answer = read_review_answer("\n".join(map(json.dumps, lines)))
        assert (answer.findings, answer.problem) == ((FINDING,), "the run failed: stream disconnected")

    @pytest.mark.no_cover
    def test_more_values_in_one_than_are_looked_at_are_told(self) -> None:
        answer = read([{"findings": [ITEM]}, *[{"a": {}}] * 10_000])
        assert (answer.findings, answer.dropped) == ((FINDING,), ("invalid json: more than 10,000 values in one",))

    def test_what_is_lost_around_an_answer_may_have_been_another(self) -> None:
        assert read_review_answer('{"first": oops oops, "second": {"findings": []}}').problem is not None


class TestStructured:
    def test_a_good_structured_value_counts_before_the_text(self) -> None:
        other = json.dumps([{**ITEM, "title": "Another"}])
        assert read_review_answer(other, {"findings": [ITEM]}).findings == (FINDING,)
        assert read_review_answer("I am done.", {"findings": []}) == ReviewAnswer()

    @pytest.mark.defect("T8")
    def test_an_empty_one_is_not_clean_beside_a_text_that_tells_of_findings(self) -> None:
        assert read_review_answer(json.dumps([ITEM]), {"findings": []}).findings == (FINDING,)
        assert read_review_answer("A critical bug remains in a.py.", {"findings": []}).problem

    @each("structured", [{}, {"a": 1}, 5, "x", "", [1], True, {"findings": [{"title": "x"}]}, object()])
    def test_one_that_is_no_answer_gives_way_to_the_text(self, structured: object) -> None:
        assert read_review_answer(json.dumps({"findings": [ITEM]}), structured).findings == (FINDING,)
        assert read_review_answer("nothing here", structured).problem is not None

    def test_its_problem_is_told_when_the_text_is_no_better(self) -> None:
        assert read_review_answer("nothing", {"verdict": "x", "findings": []}).problem == "invalid verdict: x"

    def test_it_may_be_any_mapping_and_any_text(self) -> None:
        assert read_review_answer("", MappingProxyType({"findings": [ITEM]})).findings == (FINDING,)
        assert read_review_answer("", json.dumps({"findings": [ITEM]})).findings == (FINDING,)

    def test_odd_values_in_it_do_no_harm(self) -> None:
        odd: dict[Any, Any] = {
            **ITEM,
            "confidence": float("nan"),
            "line": float("inf"),
            "category": object(),
            5: 6,
            "body": None,
        }
        answer = read_review_answer("", {"findings": [odd], "summary": 3})
        assert answer.findings == (ClaimedFinding(severity=Severity.HIGH, title="It fails", file="a.py"),)
        loop: dict[str, Any] = {}
        loop["a"] = [loop]
        assert read_review_answer("", loop).problem is not None


class TestRepaired:
    @each(
        "text",
        [
            repr({"findings": [own_item(FINDINGS[2])]}),
            dumped({"findings": [own_item(FINDINGS[2])]}).replace("}]", ",},]"),
            dumped({"findings": [own_item(FINDINGS[2])]}).replace('"title"', "title").replace('"findings"', "findings"),
            dumped({"findings": [own_item(FINDINGS[2])]}, indent=2).replace(",\n", "\n"),
            dumped({"findings": [own_item(FINDINGS[2])]}, indent=2).replace("\n", " // why\n"),
            "\ufeff" + dumped({"findings": [own_item(FINDINGS[2])]}).replace("0.5", ".5"),
        ],
    )
    def test_broken_json_is_mended_and_that_is_told(self, text: str) -> None:
        answer = read_review_answer(text)
        assert answer.findings == JSON_SHAPES["own"].expected(FINDINGS[2:])
        assert (answer.problem, answer.repaired) == (None, True)

    def test_json_with_escaped_quotes_is_read(self) -> None:
        inside = json.dumps(json.dumps({"findings": [ITEM]}))[1:-1]
        answer = read_review_answer(inside)
        assert (answer.findings, answer.problem, answer.repaired) == ((FINDING,), None, True)

    def test_an_item_without_its_brace_is_not_whole(self) -> None:
        text = json.dumps({"findings": [ITEM, {**ITEM, "title": "B"}]})
        answer = read_review_answer(text.replace("}]}", "]}"))
        assert answer.findings == (FINDING, replace(FINDING, title="B"))
        assert answer.dropped == ("invalid json: truncated (finding 2)",)

    def test_a_list_without_its_bracket_is_not_whole(self) -> None:
        answer = read_review_answer(json.dumps({"findings": [ITEM]}).replace("]", ""))
        assert (answer.findings, answer.problem) == ((FINDING,), TRUNCATED_JSON)

    def test_words_between_items_are_told(self) -> None:
        items = f"{json.dumps(ITEM)}, and then {json.dumps({**ITEM, 'title': 'B'})}, ..."
        answer = read_review_answer(f'{{"findings": [{items}]}}')
        assert [finding.title for finding in answer.findings] == ["It fails", "B"]
        assert answer.dropped == (f"invalid json: stray text at character {len(json.dumps(ITEM)) + 17} (finding 2)",)


@each(
    "stated",
    [
        '"passed": "not a boolean"',
        '"passed": null',
        '"passed": []',
        '"passed": 2',
        '"passed": ""',
        '"verdict": null',
        '"verdict": "PASS", "passed": "perhaps"',
        '"overall_correctness": "who knows"',
        '"overall_correctness": null',
    ],
)
@pytest.mark.requirement("C7")
def test_a_verdict_that_cannot_be_understood_never_reads_as_clean(stated: str) -> None:
    for listed in ('"issues": []', '"findings": []'):
        answer = read_review_answer(f"{{{stated}, {listed}}}")
        assert answer.problem is not None
        assert answer.problem.startswith("invalid verdict: ")
    assert read_review_answer(f"{{{stated}}}").problem is not None


@each("passed", ["true", '"yes"', '"True"', "1"])
def test_that_it_passed_may_be_said_in_several_ways(passed: str) -> None:
    answer = read_review_answer(f'{{"passed": {passed}, "issues": []}}')
    assert (answer.verdict, answer.problem) == ("PASS", None)


@each("stated", ['"passed": "no"', '"passed": 0', '"verdict": "PASS", "passed": false'])
def test_that_it_did_not_pass_is_never_lost_without_findings(stated: str) -> None:
    assert read_review_answer(f'{{{stated}, "issues": []}}').problem == "verdict FAIL without findings"


def test_the_count_of_passed_tests_beside_an_answer_is_no_verdict() -> None:
    answer = read_review_answer('I ran them: {"passed": 12, "failed": 0}\n\n{"findings": []}')
    assert answer.problem is None


@each(
    "answer",
    [
        [{"file": "a.py", "findings": [{"line": 3, "severity": "high", "message": "x"}]}],
        {"files": [{"path": "a.py", "issues": [{"line": 3, "severity": "high", "message": "x"}]}]},
        {"filename": "a.py", "passed": False, "issues": [{"line": 3, "severity": "error", "message": "x"}]},
    ],
)
def test_a_file_that_is_named_once_is_the_file_of_all_findings_about_it(answer: object) -> None:
    [finding] = read(answer).findings
    assert (finding.file, finding.line_start) == ("a.py", 3)


def test_a_finding_that_names_its_own_file_keeps_it() -> None:
    [finding] = read({"file": "b.py", "findings": [ITEM]}).findings
    assert finding.file == FINDING.file


@each(
    "answer",
    [
        {"name": "report", "arguments": json.dumps({"findings": [ITEM]})},
        {"verdict": "FAIL", "findings": json.dumps([ITEM])},
    ],
)
def test_an_answer_that_was_put_into_a_string_is_read(answer: object) -> None:
    assert read(answer).findings == (FINDING,)


CLEAN = json.dumps({"verdict": "PASS", "findings": []})
FOUND = json.dumps({"verdict": "FAIL", "findings": [ITEM]})


@each("tag", ["think", "thinking", "Reasoning", "thought"])
def test_what_was_thought_is_not_what_was_said(tag: str) -> None:
    answer = read_review_answer(f"\n<{tag}>It may be {FOUND}, but no.</{tag}>\n{CLEAN}")
    assert (answer.findings, answer.problem) == ((), None)
    answer = read_review_answer(f"<{tag}>It seems {CLEAN}.</{tag}>\n{FOUND}")
    assert (answer.findings, answer.problem) == ((FINDING,), None)


@each("text", [f"<think>Is it {CLEAN}", f"<think>{CLEAN}</think>", "<think>hm</think> \n"])
def test_nothing_but_reasoning_is_never_clean(text: str) -> None:
    assert read_review_answer(text).problem == "invalid json: nothing but reasoning"


def test_what_was_found_in_reasoning_without_an_answer_is_kept() -> None:
    answer = read_review_answer(f"<think>I see {FOUND}")
    assert (answer.findings, answer.problem) == ((FINDING,), "invalid json: nothing but reasoning")


def test_a_closing_tag_that_is_quoted_hides_nothing() -> None:
    answer = read_review_answer(f"<think>The code has </think>{CLEAN}\n, a trick.</think>{FOUND}")
    assert answer.findings == (FINDING,)


@pytest.mark.requirement("V7")
@each(
    ("stated", "severity"),
    [
        ("blocker", Severity.CRITICAL),
        ("BLOCKER", Severity.CRITICAL),
        ("Must fix", Severity.CRITICAL),
        ("major", Severity.HIGH),
        ("should fix", Severity.MEDIUM),
        ("moderate", Severity.MEDIUM),
        ("minor", Severity.LOW),
        ("nit", Severity.LOW),
        ("HIGH (P1)", Severity.HIGH),
        ("P1 - high", Severity.HIGH),
        ("1 (high)", Severity.HIGH),
        ("Severity: high", Severity.HIGH),
        ("**HIGH**", Severity.HIGH),
        ("🔴 Critical!", Severity.CRITICAL),
        ("medium-high", Severity.HIGH),
        ("P0/P1", Severity.CRITICAL),
        (1.0, Severity.HIGH),
    ],
)
def test_other_names_and_decoration_are_understood(stated: object, severity: Severity) -> None:
    assert stated_severity(stated) is severity


@each(
    "stated",
    [
        "banana",
        "not critical",
        "non-critical",
        "very high",
        "critical|high|medium|low",
        "high|medium",
        "low to critical",
        "error, warning or suggestion",
        "8/10",
        "high 8.5",
        "1.0",
        "P4",
        "",
        "!!",
        "high " * 40,
        1.5,
        True,
        None,
        ["high"],
    ],
)
def test_what_leaves_a_doubt_is_no_severity(stated: object) -> None:
    with pytest.raises(ValueError, match="not a severity"):
        stated_severity(stated)
