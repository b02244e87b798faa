import json
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.parse.items import EMPTY_OUTPUT, MAX_FINDINGS, NO_JSON, TRUNCATED_JSON, known_severity
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, ReviewAnswer, Severity
from tests.kept import broken_by_kept_inputs
from tests.rows import each
from tests.unit.engine.parse.review_shapes import ENVELOPES, FINDINGS, JSON_SHAPES, dumped, gate_item, own_item

ITEM = {"file": "a.py", "line": 3, "severity": "high", "title": "It fails", "body": "Always."}
FINDING = ClaimedFinding(severity=Severity.HIGH, title="It fails", body="Always.", file="a.py", line_start=3)
FOUND = json.dumps({"verdict": "FAIL", "findings": [ITEM]})
CLEAN = json.dumps({"verdict": "PASS", "findings": []})
EMPTY = '{"findings": []}'


def read(value: Any) -> ReviewAnswer:
    return read_review_answer(json.dumps(value))


def titles(answer: ReviewAnswer) -> list[str]:
    return [finding.title for finding in answer.findings]


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
def test_every_shape_is_read_from_every_envelope_and_from_the_structured_value(shape: str, envelope: str) -> None:
    value = JSON_SHAPES[shape].value(FINDINGS)
    for answer in (read_review_answer(ENVELOPES[envelope](value)), read_review_answer("It is done.", value)):
        assert answer.findings == JSON_SHAPES[shape].expected(FINDINGS)
        assert (answer.problem, answer.dropped, answer.repaired) == (None, (), False)


def test_no_kept_input_breaks_the_reader() -> None:
    assert broken_by_kept_inputs("extraction", lambda data: read_review_answer(data.decode("utf-8", "replace"))) == {}


@pytest.mark.requirement("V6")
@each("stated", ["PASS", "fail", "Needs Work", "NEEDS_WORK", " needs-work "])
def test_the_verdict_is_read_as_it_was_stated(stated: str) -> None:
    answer = read({"verdict": stated, "findings": [gate_item(FINDINGS[0])]})
    assert (answer.verdict, answer.problem) == (stated.strip().upper().replace(" ", "_").replace("-", "_"), None)


@pytest.mark.requirement("V8")
@each(
    ("output", "problem"),
    [
        *[("", EMPTY_OUTPUT), (" \n\ufeff\t", EMPTY_OUTPUT), ('{"response": "", "stats": {}}', EMPTY_OUTPUT)],
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
        *[('{"answer": 42}', "missing field: findings"), ("{}", "missing field: findings")],
        ('{"findings": [{"severity": "low"}]}', "missing field: title"),
        ('{"findings": [{"title": "x", "file": "a.py"}]}', "missing field: severity"),
        ('{"findings": [{"title": "x", "file_path": "a.py"}]}', "missing field: priority"),
        ('{"findings": [{"title": "x", "severity": "banana"}]}', "invalid severity: banana"),
        ('{"findings": ["a.py is bad", 3, null]}', "missing field: title"),
        ('{"findings": [SQL injection in a.py]}', "invalid json: stray text at character 15"),
        ('{"findings": [], "findings": []}', "invalid json: duplicate key: findings"),
        *[('{"findings": [{"file": "a.py"', TRUNCATED_JSON), ('{"findings"', TRUNCATED_JSON)],
        ("{broken}", "invalid json: Expecting property name enclosed in double quotes at character 2"),
        *[('{"findings": []', TRUNCATED_JSON), ("[" * 200, "invalid json: nested more than 100 levels deep")],
        ("{'readable': false, 'findings': []}", "invalid answer: it is no review"),
        ('{"consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": ["x: y"]}', "parse errors: x: y"),
        ('{"findings": [], "error": "no access"}', "the run failed: no access"),
        ('{"findings": [], "errors": [{"kind": "x"}]}', "the run failed: an object"),
        ('{"findings": [], "complete": false}', "the run failed: it is not complete"),
        ('{"type": "result", "is_error": true, "result": "API Error: 529"}', "the run failed: API Error: 529"),
        ('{"type": "result", "is_error": true, "result": "{\\"findings\\": []}"}', 'the run failed: {"findings": []}'),
        ('{"response": "I could not do it."}', NO_JSON),
    ],
)
def test_what_is_no_answer_has_a_named_problem(output: str, problem: str) -> None:
    answer = read_review_answer(output)
    assert (answer.problem, answer.findings) == (problem, ())


@pytest.mark.requirement("C7")
def test_an_output_without_json_is_told_from_json_that_cannot_be_read() -> None:
    """Orchestrators tell the two apart."""
    for output in ("", "I could not do it.", "text {", "} text", "[1] and (2)", "{", "}", "a {", "x = [] # y"):
        assert read_review_answer(output).problem in (EMPTY_OUTPUT, NO_JSON)
    for output in ("{broken}", '{"passed": tru}', '{"passed": true', '{"a": 1}', '{"verdict": "x"}'):
        assert read_review_answer(output).problem not in (None, EMPTY_OUTPUT, NO_JSON)


BAD = (
    *({"verdict": "FAIL", "findings": []}, {"verdict": "needs work", "findings": []}, {"passed": 0, "issues": []}),
    *({"passed": False, "summary": "It is bad.", "issues": []}, {"passed": "false", "issues": []}),
    *({"verdict": "PASS", "passed": False, "issues": []}, {"consensus_verdict": "FAIL", "aggregated_findings": []}),
    {"findings": [], "overall_correctness": "patch is incorrect"},
)
GOOD: tuple[Any, ...] = (
    *({"findings": []}, {"verdict": "PASS", "findings": []}, [], "No issues found.", {"result": "No issues found"}),
    *({"passed": True, "summary": "fine", "issues": []}, {"passed": "yes", "issues": []}, {"passed": 1, "issues": []}),
    *({"findings": [], "overall_correctness": "patch is correct"}, {"findings": "No issues found."}),
    {"consensus_verdict": "PASS", "aggregated_findings": [], "parse_errors": []},
    {"findings": [], "error": None, "errors": [], "complete": True},
)


def test_an_empty_list_is_clean_unless_the_verdict_is_bad() -> None:
    assert [value for value in BAD if "without findings" not in str(read(value).problem)] == []
    for value in GOOD:
        answer = read(value)
        assert (answer.problem, answer.findings, answer.dropped) == (None, (), ()), value
        assert read_review_answer("done", value) == answer
    # The count of passed tests beside an answer is no verdict.
    assert read_review_answer('I ran them: {"passed": 12, "failed": 0}\n\n{"findings": []}').problem is None


@each(
    "stated",
    [
        *('"passed": "not a boolean"', '"passed": null', '"passed": []', '"passed": 2', '"passed": ""'),
        *('"verdict": null', '"verdict": "PASS", "passed": "perhaps"'),
        *('"overall_correctness": "who knows"', '"overall_correctness": null'),
    ],
)
@pytest.mark.requirement("C7")
def test_a_verdict_that_cannot_be_understood_never_reads_as_clean(stated: str) -> None:
    for listed in ('"issues": []', '"findings": []'):
        assert str(read_review_answer(f"{{{stated}, {listed}}}").problem).startswith("invalid verdict: ")
    assert read_review_answer(f"{{{stated}}}").problem is not None


class TestSeverities:
    SPELLINGS: dict[Severity, list[Any]] = {  # noqa: RUF012 - a table
        Severity.CRITICAL: ["P0", "0", " Critical ", "blocker", "BLOCKER", "Must fix", "🔴 Critical!", "P0/P1"],
        Severity.HIGH: [
            *["[P1]", "ERROR", "major", "HIGH (P1)", "P1 - high", "1 (high)", "Severity: high", "**HIGH**", 1.0],
            "medium-high",
        ],
        Severity.MEDIUM: [2, "warning", "should fix", "moderate"],
        Severity.LOW: [3.0, "Suggestion", "info", "minor", "nit"],
    }

    @pytest.mark.requirement("V7")
    @each("name", ["severity", "priority"])
    @each(("severity", "stated"), [(severity, word) for severity, words in SPELLINGS.items() for word in words])
    def test_every_spelling_other_names_and_decoration_are_understood(
        self, name: str, stated: object, severity: Severity
    ) -> None:
        assert known_severity(stated) is only_finding({"title": "x", name: stated}).severity is severity

    @each(
        "stated",
        [
            *["banana", "not critical", "non-critical", "very high", "critical|high|medium|low", "high|medium"],
            *["low to critical", "error, warning or suggestion", "8/10", "high 8.5", "1.0", "P4", "", "!!"],
            *["high " * 40, 1.5, True, None, ["high"]],
        ],
    )
    def test_what_leaves_a_doubt_is_no_severity(self, stated: object) -> None:
        assert known_severity(stated) is None

    @each(
        ("item", "severity"),
        [
            ({"title": "[P0] x", "body": "y"}, Severity.CRITICAL),
            ({"title": "[P0] x", "priority": 3}, Severity.CRITICAL),
            ({"title": "[P3] x", "priority": 1}, Severity.HIGH),
            ({"title": "x", "severity": "low", "priority": "P0"}, Severity.CRITICAL),
            ({"title": "[P2] x", "severity": None}, Severity.MEDIUM),
            ({"title": "[P0] x", "severity": "banana"}, Severity.CRITICAL),
            ({"title": "x", "severity": "banana", "priority": 1}, Severity.HIGH),
        ],
    )
    def test_the_highest_that_an_item_states_counts_also_in_its_title(
        self, item: dict[str, Any], severity: Severity
    ) -> None:
        finding = only_finding(item)
        assert (finding.title, finding.severity) == (item["title"], severity)

    @pytest.mark.defect("V6")
    def test_an_item_with_a_key_twice_has_the_gravest_severity_and_the_answer_is_in_doubt(self) -> None:
        doubtful = '{"title": "x", "severity": "low", "severity": "critical"}'
        answer = read_review_answer(f'{{"findings": [{doubtful}, {json.dumps(ITEM)}]}}')
        severities = [(found.title, found.severity) for found in answer.findings]
        assert severities == [("x", Severity.CRITICAL), (FINDING.title, FINDING.severity)]
        assert answer.dropped == ("invalid json: duplicate key: severity (finding 1)",)
        assert answer.lost


def test_a_severity_is_read_though_the_key_after_it_is_mistyped() -> None:
    for key in ('"confiden\'e": 0.8', '"conf 0.8', 'onfidence": 0.8'):
        finding = f'"file": "a.py", "title": "It fails", "severity": "high", {key}, "suggestion": "mend it"'
        answer = read_review_answer(f'{{"findings": [{{{finding}}}]}}')
        assert [(one.title, one.severity) for one in answer.findings] == [("It fails", Severity.HIGH)]


def test_one_bad_item_costs_that_item() -> None:
    answer = read(
        {"findings": [ITEM, {**ITEM, "severity": "banana"}, {"severity": "low"}, "text", {**ITEM, "title": "B"}]}
    )
    reasons = ("invalid severity: banana (finding 2)", "missing field: title (finding 3)")
    assert (titles(answer), answer.problem) == (["It fails", "B"], None)
    assert answer.dropped == (*reasons, "missing field: title (finding 4)")


@each(
    ("fields", "file", "start", "end"),
    [
        *[({"file": "a.py", "line": 3}, "a.py", 3, None), ({"file": "a.py:3-5"}, "a.py", 3, 5)],
        ({"filePath": "a.py", "lineStart": "3", "lineEnd": 5.0}, "a.py", 3, 5),
        *[({"path": "a.py", "lines": "L3-L5"}, "a.py", 3, 5), ({"filename": "a.py", "range": [3, 5]}, "a.py", 3, 5)],
        *[({"location": "a.py:3"}, "a.py", 3, None), ({"evidence": "a.py:3 - x = 1"}, "a.py", 3, None)],
        ({"location": {"path": "a.py", "start_line": 3, "end_line": 5}}, "a.py", 3, 5),
        ({"code_location": {"absolute_file_path": "/r/a.py", "line_range": {"start": 3, "end": 3}}}, "/r/a.py", 3, 3),
        *[({"evidence": "`a.py:3-5` – x = 1"}, "a.py", 3, 5), ({"evidence": "a.py:3:7: x = 1"}, "a.py", 3, None)],
        ({"evidence": {"file": "a.py", "line": 3, "code": "x = 1"}}, "a.py", 3, None),
        ({"file": "b.py", "evidence": "a.py:3 - x = 1"}, "b.py", None, None),
        *[({"file": "a.py", "line": odd}, "a.py", None, None) for odd in (0, -4, True, 10**30, "twelve")],
        *[
            ({"file": "a.py", "line_start": 9, "line_end": 4}, "a.py", 9, None),
            ({"file": "", "line": 3}, None, 3, None),
        ],
        *[({"file": "a" * 5000}, None, None, None), ({"file": ["a.py"]}, None, None, None)],
        ({"file": "dir\udcff/\0a.py"}, "dir\udcff/\0a.py", None, None),
    ],
)
def test_places_are_read_in_every_spelling(
    fields: dict[str, Any], file: str | None, start: int | None, end: int | None
) -> None:
    finding = only_finding({"title": "x", "severity": "low", **fields})
    assert (finding.file, finding.line_start, finding.line_end) == (file, start, end)


def test_the_evidence_is_the_quote_without_its_place_and_a_confidence_a_share_of_one() -> None:
    rows: list[Any] = [
        *[({"evidence": "a.py:3 - x = 1"}, "x = 1"), ({"evidence": "a.py:3 - `x = 1`"}, "x = 1")],
        *[({"evidence": "a.py:3"}, ""), ({"file": "src/a.py", "evidence": "a.py:3 - x = 1"}, "x = 1")],
        ({"file": "b.py", "evidence": "a.py:3 - x = 1"}, "a.py:3 - x = 1"),
        *[({"quote": "  x = 1\n"}, "  x = 1\n"), ({"evidence": ["x = 1", "y = 2"]}, "x = 1\ny = 2")],
        *[({"evidence": {"file": "a.py", "code": "x = 1"}}, "x = 1"), ({"evidence": 5}, "")],
        ({"quote": "x" * 20_000}, "x" * 10_000),
    ]
    found = [only_finding({"title": "x", "severity": "low", **fields}).evidence for fields, _ in rows]
    assert found == [evidence for _, evidence in rows]
    shares = {0.8: 0.8, 1: 1.0, 85: 0.85, "0.5": 0.5, "80%": 0.8, -1: None, 101: None, "high": None}
    assert {stated: only_finding({**ITEM, "confidence": stated}).confidence for stated in shares} == shares
    assert only_finding({**ITEM, "confidence": True}).confidence is None


def test_without_a_title_the_first_line_or_sentence_of_the_words_is_one_and_all_words_are_kept() -> None:
    assert only_finding({"severity": "low", "message": "One. Two."}).title == "One. Two."
    two_lines = only_finding({"severity": "low", "description": "One.\nTwo."})
    assert (two_lines.title, two_lines.body) == ("One.", "One.\nTwo.")
    long = only_finding({"severity": "low", "description": f"{'word ' * 30}ends. Then more."})
    assert (long.title, long.body[-10:]) == (f"{'word ' * 30}ends.", "Then more.")
    finding = only_finding({"severity": "low", "title": "T", "message": "M", "description": "D", "body": "B"})
    assert (finding.title, finding.body) == ("T", "B\n\nM\n\nD")


def test_texts_and_lists_are_capped_and_counted() -> None:
    finding = only_finding({"severity": "low", "title": "t" * 5000, "body": "b" * 50_000, "category": "c" * 5000})
    assert (len(finding.title) < 400, len(finding.body), len(finding.category)) == (True, 20_000, 200)
    assert read({"findings": [], "summary": "s" * 50_000}).summary == "s" * 10_000
    many = [{**ITEM, "line": number + 1} for number in range(MAX_FINDINGS + 5)]
    for answer in (read({"findings": many}), read_review_answer("\n".join(map(json.dumps, many)))):
        assert len(answer.findings) == MAX_FINDINGS
        assert answer.dropped == ("5 more findings than the 1,000 that are read",)
    answer = read({"findings": [ITEM, *[1] * 5000]})
    assert (answer.findings, len(answer.dropped)) == ((FINDING,), 101)
    assert answer.dropped[-1] == "4,900 more findings that could not be read"
    bad = [json.dumps({"title": "x", "severity": f"odd {number}"}) for number in range(300)]
    answer = read_review_answer("\n".join([json.dumps(ITEM), *bad]))
    assert (answer.findings, answer.dropped[200:]) == ((FINDING,), ("400 more reasons like these",))


@each(
    "answer",
    [
        {"findings": ITEM},
        {"name": "report", "arguments": json.dumps({"findings": [ITEM]})},
        {"verdict": "FAIL", "findings": json.dumps([ITEM])},
        [{"file": "a.py", "findings": [{**ITEM, "file": None}]}],
        {"files": [{"path": "a.py", "issues": [{**ITEM, "file": None}]}]},
        {"filename": "a.py", "passed": False, "issues": [{**ITEM, "file": None, "severity": "error"}]},
        {"file": "b.py", "findings": [ITEM]},
    ],
)
def test_an_item_a_string_and_a_file_that_is_named_once_are_understood(answer: object) -> None:
    assert read(answer).findings == (FINDING,)


class TestSeveralAnswers:
    def test_findings_of_all_blocks_and_lines_are_taken_once_each(self) -> None:
        one, other = json.dumps({"findings": [ITEM]}), json.dumps({"findings": [ITEM, {**ITEM, "title": "B"}]})
        lines = f"{json.dumps(ITEM)}\n{json.dumps({**ITEM, 'title': 'B'})}\n"
        for text in (f"```json\n{one}\n```\nand\n```json\n{other}\n```", lines):
            answer = read_review_answer(text)
            assert (titles(answer), answer.problem) == (["It fails", "B"], None)

    def test_what_fits_no_shape_gives_way_to_what_does_and_a_problem_to_no_empty_answer(self) -> None:
        found = json.dumps({"findings": [ITEM]})
        answer = read_review_answer(f'{{"a": 1}} [1] {{b: oops oops}} {found} {{"c": []}}')
        assert (answer.findings, answer.problem) == ((FINDING,), None)
        assert read_review_answer(f'{{"level": "info", "message": "starting"}}\n{EMPTY}') == ReviewAnswer()
        # An example of the form is told of.
        example = '{"findings": [{"file": "...", "severity": "critical|high|medium|low", "title": "..."}]}'
        answer = read_review_answer(f"The form is {example}.\n{found}")
        assert (answer.findings, answer.problem) == ((FINDING,), None)
        assert any("critical|high|medium|low" in reason for reason in answer.dropped)
        answer = read_review_answer(f'{{"verdict": "FAIL", "findings": []}}\n{EMPTY}')
        assert answer.problem == "verdict FAIL without findings"
        assert read_review_answer(f"{EMPTY} That is {'{'} all {{").problem is None
        assert titles(read_review_answer(f"- **Severity:** high\n- **Description:** Bad\n\n{EMPTY}\n")) == ["Bad"]

    @each("cut", ['{"findings": [{"title": "B"', '{"find', '{"title": "B", "seve'])
    def test_an_answer_that_is_cut_off_never_gives_way(self, cut: str) -> None:
        answer = read_review_answer(f"{json.dumps({'findings': [ITEM]})}\n{cut}")
        assert (answer.findings, answer.problem) == ((FINDING,), TRUNCATED_JSON)

    def test_what_was_said_to_a_model_or_before_the_result_is_not_its_answer(self) -> None:
        said = json.dumps({"findings": [ITEM]})
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": EMPTY}]
        lines = [
            {"type": "assistant", "message": {"content": [{"type": "text", "text": said}]}},
            {"type": "result", "is_error": False, "result": EMPTY},
        ]
        for value in ({"messages": messages}, lines):
            assert read(value) == ReviewAnswer()
        assert read_review_answer("\n".join(map(json.dumps, lines))) == ReviewAnswer()

    def test_findings_of_a_run_that_failed_are_not_the_whole_answer(self) -> None:
        lines = [
            {"type": "item.completed", "item": {"type": "agent_message", "text": json.dumps({"findings": [ITEM]})}},
            {"type": "turn.failed", "error": {"message": "stream disconnected"}},
        ]
        answer = read_review_answer("\n".join(map(json.dumps, lines)))
        assert (answer.findings, answer.problem) == ((FINDING,), "the run failed: stream disconnected")

    @pytest.mark.no_cover
    def test_what_was_not_looked_at_or_is_lost_around_an_answer_may_have_been_another(self) -> None:
        answer = read([{"findings": [ITEM]}, *[{"a": {}}] * 10_000])
        assert (answer.findings, answer.dropped) == ((FINDING,), ("invalid json: more than 10,000 values in one",))
        assert read_review_answer('{"first": oops oops, "second": {"findings": []}}').problem is not None


class TestStructured:
    def test_a_good_structured_value_counts_before_the_text(self) -> None:
        other = json.dumps([{**ITEM, "title": "Another"}])
        for value in ({"findings": [ITEM]}, MappingProxyType({"findings": [ITEM]}), json.dumps({"findings": [ITEM]})):
            assert read_review_answer(other, value).findings == (FINDING,)

    @pytest.mark.defect("T8")
    def test_an_empty_one_is_not_clean_beside_a_text_that_tells_of_findings(self) -> None:
        assert read_review_answer(json.dumps([ITEM]), {"findings": []}).findings == (FINDING,)
        assert read_review_answer("A critical bug remains in a.py.", {"findings": []}).problem

    @each("structured", [{}, {"a": 1}, 5, "x", "", [1], True, {"findings": [{"title": "x"}]}, object()])
    def test_one_that_is_no_answer_gives_way_to_the_text(self, structured: object) -> None:
        assert read_review_answer(json.dumps({"findings": [ITEM]}), structured).findings == (FINDING,)
        assert read_review_answer("nothing here", structured).problem is not None

    def test_its_problem_is_told_when_the_text_is_no_better_and_odd_values_do_no_harm(self) -> None:
        assert read_review_answer("nothing", {"verdict": "x", "findings": []}).problem == "invalid verdict: x"
        numbers = {"confidence": float("nan"), "line": float("inf")}
        odd: dict[Any, Any] = {**ITEM, **numbers, "category": object(), 5: 6, "body": None}
        answer = read_review_answer("", {"findings": [odd], "summary": 3})
        assert answer.findings == (ClaimedFinding(severity=Severity.HIGH, title="It fails", file="a.py"),)
        loop: dict[str, Any] = {}
        loop["a"] = [loop]
        assert read_review_answer("", loop).problem is not None


class TestRepaired:
    VALUE = {"findings": [own_item(FINDINGS[2])]}  # noqa: RUF012 - a value
    ITEMS = json.dumps({"findings": [ITEM, {**ITEM, "title": "B"}]})

    # What is mended is in the tests of the JSON reader.
    @each("text", [repr(VALUE), "\ufeff" + dumped(VALUE).replace("0.5", ".5"), json.dumps(json.dumps(VALUE))[1:-1]])
    def test_broken_json_is_mended_and_that_is_told(self, text: str) -> None:
        answer = read_review_answer(text)
        assert answer.findings == JSON_SHAPES["own"].expected(FINDINGS[2:])
        assert (answer.problem, answer.repaired) == (None, True)

    @each(
        ("text", "problem", "dropped"),
        [
            (ITEMS.replace("}]}", "]}"), None, ("invalid json: truncated (finding 2)",)),
            (ITEMS.replace("]", ""), TRUNCATED_JSON, ()),
            (ITEMS.replace("}, {", "}, and {"), None, ("invalid json: stray text at character 104 (finding 2)",)),
        ],
    )
    def test_what_is_missing_or_between_the_items_is_told(
        self, text: str, problem: str | None, dropped: tuple[str, ...]
    ) -> None:
        answer = read_review_answer(text)
        assert answer.findings == (FINDING, replace(FINDING, title="B"))
        assert (answer.problem, answer.dropped) == (problem, dropped)


class TestReasoning:
    @each("tag", ["think", "thinking", "Reasoning", "thought"])
    def test_what_was_thought_is_not_what_was_said(self, tag: str) -> None:
        answer = read_review_answer(f"\n<{tag}>It may be {FOUND}, but no.</{tag}>\n{CLEAN}")
        assert (answer.findings, answer.problem) == ((), None)
        answer = read_review_answer(f"<{tag}>It seems {CLEAN}.</{tag}>\n{FOUND}")
        assert (answer.findings, answer.problem) == ((FINDING,), None)

    @each("text", [f"<think>Is it {CLEAN}", f"<think>{CLEAN}</think>", "<think>hm</think> \n", f"<think>I see {FOUND}"])
    def test_nothing_but_reasoning_is_never_clean_and_what_was_found_in_it_is_kept(self, text: str) -> None:
        answer = read_review_answer(text)
        assert answer.problem == "invalid json: nothing but reasoning"
        assert answer.findings == ((FINDING,) if FOUND in text else ())
        quoted = f"<think>The code has </think>{CLEAN}\n, a trick.</think>{FOUND}"
        assert read_review_answer(quoted).findings == (FINDING,)
