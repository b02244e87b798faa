"""The rules of "Reading an answer", a table for each sentence."""

import json
import time
from typing import Any

import pytest

from codeloupe.model.finding import Proof, Severity
from codeloupe.model.pipeline import CriticVerdict, Critique
from codeloupe.model.review import Verdict
from codeloupe.reviewers.answers import (
    EMPTY_OUTPUT,
    MAX_ITEMS,
    RawClaim,
    read_critique,
    read_proofs,
    read_review,
)
from tests.kept import broken_by_kept_inputs

ITEM: dict[str, Any] = {
    "file": "shop/orders.py",
    "line": 12,
    "quote": "total / len(items)",
    "body": "An empty cart divides by zero.",
    "title": "Division by zero",
    "category": "correctness",
    "severity": "high",
}
OTHER = {**ITEM, "title": "Another defect", "severity": "low"}
# The form of requirement V6.
ISSUE: dict[str, Any] = {
    "file_path": "a.py",
    "line_start": 2,
    "line_end": 3,
    "priority": 1,
    "title": "[P1] Wrong sum",
    "body": "It is too high.",
}
REFUTED = {"claim": 1, "reason": "Line 4 returns before.", "proof": "refuted"}
CONFIRMED = {"claim": 2, "reason": "It is reached.", "proof": "confirmed"}
PASS = {"summary": "so", "verdict": "PASS", "score": 80, "blockers": [], "fixes": ["name it"]}
CLEAN = '{"findings": []}'
TEXT = json.dumps({"findings": [ITEM]})
TEN_MB = 10_000_000


def findings(*items: Any, **more: Any) -> dict[str, Any]:
    return {"findings": list(items), **more}


def titles(text: str, structured: Any = None) -> list[str]:
    return [claim.title for claim in read_review(text, structured).claims]


class TestExactReview:
    @pytest.mark.parametrize(
        "text",
        [
            CLEAN,
            f" \n{CLEAN}\n\n",
            f"```json\n{CLEAN}\n```",
            f"```\n{CLEAN}\n```\n",
            f"~~~json\n{CLEAN}\n~~~",
            '{"issues": []}',
            '{"findings": [], "verdict": "PASS"}',
            '{"issues": [], "passed": true}',
            pytest.param("No issues found", marks=pytest.mark.requirement("D9")),
            "No issues found.\n",
        ],
    )
    def test_nothing_but_the_value_or_the_sentence_is_exact(self, text: str) -> None:
        answer = read_review(text)
        assert (answer.problem, answer.is_exact, answer.claims) == ("", True, ())

    @pytest.mark.parametrize(
        "text",
        [
            f"Here it is: {CLEAN}",
            pytest.param(f"{CLEAN}\n\nBut orders.py:12 divides by zero.", marks=pytest.mark.defect("F2")),
            pytest.param(f"A comment says `{CLEAN}`. I did not follow it.", marks=pytest.mark.defect("F1")),
            f"```json\n{CLEAN}\n```\nOne more thing: close() is missing.",
            f"```json\n{CLEAN}\n```\n```json\n{CLEAN}\n```",
            f"{CLEAN}{CLEAN}",
            "No issues found, except that the password is not checked.",
            "No issues found. The tests cover both branches.",
            "```\nNo issues found\n```",
            "LGTM",
            "null",
            "[]",
            '""',
            json.dumps(CLEAN),
            '{"findings": [],}',
            "{'findings': []}",
            '{"findings": [] // none\n}',
            '{"findings": [NaN]}',
            "[" * 100_000,
        ],
    )
    def test_any_other_text_is_not_exact(self, text: str) -> None:
        answer = read_review(text)
        assert answer.problem.startswith("invalid json: ")
        assert not answer.claims

    def test_structured_output_is_exact_whatever_the_text_says(self) -> None:
        assert read_review("I am done.", findings()).is_exact
        assert read_review("", findings(ITEM)).is_exact

    def test_an_answer_of_a_run_that_cannot_be_exact_never_is(self) -> None:
        for text, structured in ((CLEAN, None), ("No issues found", None), ("", findings(ITEM))):
            assert read_review(text, structured, inexact="cut off").problem == "cut off"
        assert read_review(TEXT, inexact="cut off").claims == read_review(TEXT).claims

    def test_other_answers_are_read_for_claims_only(self) -> None:
        beside = (TEXT, "I look at the file.", '{"findings": [{"file": "a.py"}]}', CLEAN)
        for text, structured in ((CLEAN, None), ("", findings())):
            read = read_review(text, structured, other_answers=beside)
            assert read.is_exact
            assert read.claims == read_review(TEXT).claims
            assert len(read.invalid) == 1
        assert read_review(TEXT, other_answers=(TEXT,)) == read_review(TEXT)
        assert not read_review("Nothing yet.", other_answers=(CLEAN,)).is_exact

    @pytest.mark.defect("F7")
    @pytest.mark.parametrize(
        "key",
        ["summary", "notes", "files_reviewed", "coverage", "confidence", "refusal", "potential_issues", "Findings"],
    )
    def test_a_key_that_was_not_asked_for_makes_it_inexact(self, key: str) -> None:
        value = findings(ITEM, **{key: ""})
        for answer in (read_review(json.dumps(value)), read_review("", value)):
            assert answer.problem == f"unknown field: {key}"
            assert len(answer.claims) == 1

    @pytest.mark.defect("F11")
    @pytest.mark.requirement("V8")
    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ({}, "missing field: findings"),
            ({"verdict": "PASS"}, "missing field: findings"),
            ({"findings": {}}, "invalid json: findings is not a list"),
            ({"findings": None}, "invalid json: findings is not a list"),
            ({"findings": "a.py:4 never ends"}, "invalid json: findings is not a list"),
            ({"findings": [], "issues": []}, "invalid json: both findings and issues are given"),
            ({"findings": ["never ends"]}, "invalid json: not an object (finding 1)"),
            (float("nan"), "invalid json: a number is not finite"),
            (CLEAN, "invalid json: not an object"),
        ],
    )
    def test_the_type_decides(self, value: Any, problem: str) -> None:
        assert read_review("", value).problem == problem

    @pytest.mark.requirement("V8")
    @pytest.mark.requirement("C7")
    def test_problems_have_the_words_of_the_requirements(self) -> None:
        assert read_review("").problem == read_review(" \n").problem == EMPTY_OUTPUT == "empty output"
        assert read_review("It is fine.").problem == "invalid json: no JSON found"
        assert read_review(json.dumps(findings(verdict="GOOD"))).problem == "invalid verdict: GOOD"

    def test_a_key_given_twice_makes_it_inexact(self) -> None:
        twice = '{"verdict": "FAIL", "findings": [], "verdict": "PASS"}'
        assert read_review(twice).problem == "invalid json: key given twice: verdict"


@pytest.mark.requirement("V7")
class TestVerdict:
    @pytest.mark.parametrize(
        ("severities", "stated", "is_exact"),
        [
            ((), "PASS", True),
            ((), "NEEDS_WORK", False),
            ((), "FAIL", False),
            (("low",), "NEEDS_WORK", True),
            (("medium",), "FAIL", False),
            (("high",), "FAIL", True),
            (("low", "critical"), "FAIL", True),
            (("critical",), "PASS", True),
            (("high",), "NEEDS_WORK", True),
        ],
    )
    def test_only_one_that_is_worse_than_the_list_makes_it_inexact(
        self, severities: tuple[str, ...], stated: str, is_exact: bool
    ) -> None:
        items = [{**ITEM, "severity": severity} for severity in severities]
        answer = read_review(json.dumps(findings(*items, verdict=stated)))
        assert answer.is_exact is is_exact
        if is_exact:
            assert answer.verdict is Verdict(stated)
        else:
            assert answer.problem.startswith(f"invalid verdict: {stated}, but the findings give ")

    @pytest.mark.parametrize("stated", ["GOOD", "", None, 1, ["PASS"], "INCOMPLETE"])
    def test_any_other_word_is_invalid(self, stated: object) -> None:
        assert read_review("", findings(verdict=stated)).problem.startswith("invalid verdict: ")

    def test_passed_is_compared_with_an_empty_list(self) -> None:
        assert not read_review('{"passed": false, "issues": []}').is_exact
        assert not read_review('{"passed": false, "issues": [], "verdict": "PASS"}').is_exact
        assert read_review(json.dumps({"passed": False, "issues": [OTHER]})).is_exact
        assert read_review(json.dumps({"passed": True, "issues": [ITEM]})).is_exact
        assert read_review('{"passed": "no", "issues": []}').problem == "invalid passed: no"

    @pytest.mark.requirement("V6")
    def test_it_is_required_only_with_file_path_and_priority(self) -> None:
        assert read_review(json.dumps(findings(ISSUE))).problem == "missing field: verdict"
        assert read_review(json.dumps(findings(ISSUE, verdict="FAIL"))).is_exact
        assert read_review(json.dumps(findings(ITEM))).is_exact


class TestItems:
    def test_every_field_is_read(self) -> None:
        [claim] = read_review("", findings({**ITEM, "line_end": 14, "id": "f-1"})).claims
        assert claim == RawClaim(
            severity=Severity.HIGH,
            title="Division by zero",
            body="An empty cart divides by zero.",
            file="shop/orders.py",
            line_start=12,
            line_end=14,
            quote="total / len(items)",
            category="correctness",
            finding_id="f-1",
        )

    @pytest.mark.requirement("V6")
    def test_names_of_requirement_v6_are_aliases_and_the_tag_is_removed(self) -> None:
        [claim] = read_review("", findings(ISSUE, verdict="FAIL")).claims
        assert (claim.file, claim.line_start, claim.line_end) == ("a.py", 2, 3)
        assert (claim.severity, claim.title, claim.body) == (Severity.HIGH, "Wrong sum", "It is too high.")

    @pytest.mark.requirement("C2")
    def test_names_of_requirement_c2_are_aliases(self) -> None:
        issue = {"file": "a.py", "line": 3, "severity": "warning", "message": "Never ends.", "suggestion": "add one"}
        [claim] = read_review("", {"passed": False, "issues": [issue]}).claims
        assert (claim.severity, claim.title, claim.suggestion) == (Severity.MEDIUM, "Never ends.", "add one")

    @pytest.mark.requirement("D4")
    def test_evidence_that_is_a_place_is_the_place(self) -> None:
        item = {"severity": "low", "category": "style", "description": "Unused.", "evidence": "src/a.py:7"}
        [claim] = read_review("", findings(item)).claims
        assert (claim.file, claim.line_start, claim.quote, claim.title) == ("src/a.py", 7, "", "Unused.")
        [claim] = read_review("", findings({**item, "file": "b.py", "evidence": "x = 1"})).claims
        assert (claim.file, claim.line_start, claim.quote) == ("b.py", None, "x = 1")

    @pytest.mark.parametrize(
        ("words", "title", "body"),
        [
            ({"body": "First.\nSecond."}, "First.", "Second."),
            ({"title": "T", "body": "B", "description": "D"}, "T", "B\n\nD"),
            ({"message": "x" * 200}, f"{'x' * 120} ...", "x" * 200),
            ({"title": "[P9] T"}, "[P9] T", ""),
            ({"title": "Compare [P1] with T"}, "Compare [P1] with T", ""),
        ],
    )
    def test_a_title_is_the_first_line_of_the_words_if_there_is_none(
        self, words: dict[str, str], title: str, body: str
    ) -> None:
        [claim] = read_review("", findings({"severity": "low", **words})).claims
        assert (claim.title, claim.body) == (title, body)

    @pytest.mark.parametrize(
        ("stated", "severity"),
        [
            ({"severity": "P0"}, Severity.CRITICAL),
            ({"priority": 3}, Severity.LOW),
            ({"severity": "low", "priority": 1}, Severity.HIGH),
            ({"title": "[P2] T"}, Severity.MEDIUM),
            ({"title": "[P0] T", "severity": "low"}, Severity.LOW),
        ],
    )
    def test_the_worse_severity_counts_and_a_tag_counts_only_alone(
        self, stated: dict[str, Any], severity: Severity
    ) -> None:
        [claim] = read_review("", findings({"title": "T", **stated}, verdict="PASS")).claims
        assert claim.severity is severity

    @pytest.mark.requirement("V8")
    @pytest.mark.parametrize(
        ("item", "problem"),
        [
            ({**ITEM, "severity": None}, "missing field: severity"),
            ({**ISSUE, "priority": None, "title": "T"}, "missing field: priority"),
            ({**ITEM, "severity": "terrible"}, "invalid severity: terrible"),
            ({**ITEM, "severity": 7}, "invalid severity: 7"),
            ({**ITEM, "severity": True}, "invalid severity: True"),
            ({**ITEM, "title": "", "body": " "}, "missing field: title"),
            ({}, "missing field: title"),
            (None, "invalid json: not an object"),
        ],
    )
    def test_one_without_words_or_severity_is_listed_and_makes_the_answer_inexact(
        self, item: Any, problem: str
    ) -> None:
        answer = read_review("", findings(OTHER, item, verdict="PASS"))
        assert answer.problem == f"{problem} (finding 2)"
        assert answer.invalid == (answer.problem,)
        assert [claim.title for claim in answer.claims] == ["Another defect"]

    def test_an_invalid_item_is_named_before_a_verdict_that_it_may_explain(self) -> None:
        answer = read_review("", findings({**ISSUE, "priority": 7}, verdict="FAIL"))
        assert answer.problem == "invalid severity: 7 (finding 1)"

    def test_an_unknown_plain_value_is_ignored_and_a_list_or_object_makes_the_answer_inexact(self) -> None:
        assert read_review("", findings({**ITEM, "confidence": 0.5, "cwe": "CWE-369", "seen": None})).is_exact
        for value in ([], ["b.py:3 as well"], {"also": "b.py"}):
            answer = read_review("", findings({**ITEM, "others": value}))
            assert answer.problem == "invalid json: others is not a plain value (finding 1)"
            assert len(answer.claims) == 1

    @pytest.mark.parametrize("line", [None, 0, -4, "twelve", 1.5, True, 10**12, "9" * 5000])
    def test_a_line_that_is_not_a_line_is_not_known(self, line: object) -> None:
        [claim] = read_review("", findings({**ITEM, "line": line})).claims
        assert claim.line_start is None

    def test_a_line_may_be_a_text_or_follow_the_path(self) -> None:
        for place in ({"line": "12"}, {"line": None, "file": "shop/orders.py:12"}):
            [claim] = read_review("", findings({**ITEM, **place})).claims
            assert (claim.file, claim.line_start) == ("shop/orders.py", 12)


class TestInexactReview:
    @pytest.mark.requirement("C6")
    @pytest.mark.parametrize(
        "text",
        [
            f"I read it.\n\n{TEXT}",
            f"{TEXT}\n\nThe rest is fine.",
            f"So:\n```json\n{TEXT}\n```\nDone.",
            f"So:\n```\n{TEXT}\n```",
            f"One item: {json.dumps(ITEM)}",
            f"A list: [{json.dumps(ITEM)}]",
        ],
    )
    def test_json_in_text_is_found(self, text: str) -> None:
        assert titles(text) == ["Division by zero"]
        assert not read_review(text).is_exact

    def test_several_values_add_up_and_equal_items_are_one(self) -> None:
        assert titles(f"{TEXT}\n{json.dumps(findings(OTHER, ITEM))}") == ["Division by zero", "Another defect"]
        assert titles(f"{TEXT}\n{CLEAN}") == ["Division by zero"]

    def test_claims_in_the_text_beside_structured_output_are_accepted(self) -> None:
        answer = read_review(f"Also: {TEXT}", findings(OTHER))
        assert [claim.title for claim in answer.claims] == ["Another defect", "Division by zero"]
        assert answer.is_exact
        assert titles(TEXT, {"error": "no"}) == ["Division by zero"]

    def test_invalid_items_beside_structured_output_are_listed_and_it_stays_exact(self) -> None:
        text = json.dumps(findings(ITEM, {**OTHER, "severity": "awful"}))
        answer = read_review(f"Also: {text}", findings(OTHER))
        assert (answer.is_exact, answer.invalid) == (True, ("invalid severity: awful (finding 2)",))
        assert [claim.title for claim in answer.claims] == ["Another defect", "Division by zero"]
        # A text that repeats the structured output adds nothing.
        value = findings(ITEM, {})
        assert read_review(json.dumps(value), value) == read_review("", value)

    def test_the_complete_items_of_a_truncated_list_are_accepted(self) -> None:
        text = json.dumps(findings(ITEM, OTHER))
        answer = read_review(text[: text.index("Another")])
        assert [claim.title for claim in answer.claims] == ["Division by zero"]
        assert answer.problem == "invalid json: the JSON is cut off"

    def test_the_items_that_parse_are_read_from_a_list_that_does_not(self) -> None:
        assert titles(f'{{"findings": [{json.dumps(ITEM)}, {{"title": "a" "b"}}]}}') == ["Division by zero"]
        assert titles(str(findings(ITEM))) == []

    @pytest.mark.parametrize(
        "text",
        [
            "The index must be in [0, 10).\n```json\n{}\n```",
            'The 3" label: {}',
            'd["key is missing: {}',
            "items[ -1 and [1, 2 are wrong: {}",
            '{{"review": {}}}',
            "[{}]",
            '{{"a": [1, {{"b": {}}}]}}',
        ],
    )
    def test_a_list_of_findings_is_found_wherever_it_is_in_the_text(self, text: str) -> None:
        value = json.dumps(findings(ITEM))
        assert titles(text.replace("{{", "{").replace("}}", "}").replace("{}", value)) == ["Division by zero"]

    @pytest.mark.requirement("D4")
    def test_a_result_field_that_holds_json_is_read(self) -> None:
        assert titles(json.dumps({"result": json.dumps(findings(ITEM))})) == ["Division by zero"]

    @pytest.mark.requirement("D5")
    def test_an_item_whose_evidence_is_its_place_is_read_outside_of_a_list(self) -> None:
        item = {"severity": "critical", "category": "security", "description": "Injection", "evidence": "a.py:2"}
        (claim,) = read_review(f"Here: {json.dumps([item])}").claims
        assert (claim.file, claim.line_start, claim.title) == ("a.py", 2, "Injection")

    @pytest.mark.requirement("D4")
    def test_lines_of_the_list_format_are_accepted(self) -> None:
        lines = "- HIGH correctness: short read (see above) (src/io.c:204)\n  - p3 dead code: unused (a b.py:1)\n"
        first, second = read_review(lines).claims
        assert (first.severity, first.category, first.title) == (Severity.HIGH, "correctness", "short read (see above)")
        assert (first.file, first.line_start) == ("src/io.c", 204)
        assert (second.severity, second.category, second.file) == (Severity.LOW, "dead code", "a b.py")
        assert read_review(lines).problem == "invalid json: no JSON found"

    @pytest.mark.parametrize(
        "line",
        [
            "- HIGH correctness: none",
            "- HIGH: no category (a.py:1)",
            "- Terrible style: a word that is not a severity (a.py:1)",
            "- HIGH style: no line (a.py)",
            "- HIGH style:  (a.py:1)",
            "HIGH style: no dash (a.py:1)",
        ],
    )
    def test_other_lines_are_not_claims(self, line: str) -> None:
        assert titles(line) == []

    def test_an_object_without_a_file_outside_a_list_is_not_a_claim(self) -> None:
        assert titles('API error: {"severity": "error", "message": "Overloaded"}') == []


class TestProofs:
    def test_proofs_are_in_the_order_of_the_claims(self) -> None:
        fix = {"suggestion": "Return 0.", "replacement": "return 0"}
        read = read_proofs("", {"proofs": [{**CONFIRMED, **fix}, REFUTED]}, claims=2)
        assert [proof.proof for proof in read.proofs] == [Proof.REFUTED, Proof.CONFIRMED]
        assert (read.proofs[1].suggestion, read.proofs[1].replacement) == ("Return 0.", "return 0")
        assert (read.proofs[0].reason, read.problem) == ("Line 4 returns before.", "")
        text = json.dumps({"proofs": [{**REFUTED, "suggestion": "", "replacement": None}]})
        assert read_proofs(f"```json\n{text}\n```", claims=1).proofs == read.proofs[:1]

    @pytest.mark.parametrize(
        ("proofs", "problem"),
        [
            (None, "missing field: proofs"),
            ({"1": "refuted"}, "invalid proofs: {'1': 'refuted'}"),
            ([], "missing field: proof (claim 1)"),
            ([REFUTED, REFUTED], "invalid proof: claim 1 has more than one"),
            ([REFUTED, CONFIRMED], "invalid claim: 2"),
            ([{**REFUTED, "claim": "1"}], "invalid claim: 1"),
            ([{**REFUTED, "claim": True}], "invalid claim: True"),
            ([{**REFUTED, "claim": None}], "missing field: claim"),
            ([{**REFUTED, "reason": " "}], "missing field: reason (claim 1)"),
            ([{**REFUTED, "proof": "probably"}], "invalid proof: probably"),
            ([{**REFUTED, "proof": None}], "missing field: proof"),
            ([{**REFUTED, "caveat": "not on Windows"}], "unknown field: caveat"),
            ([{**REFUTED, "suggestion": "Check it anyway."}], "invalid proof: refuted, but with a fix (claim 1)"),
            ([{**REFUTED, "suggestion": ["a"]}], "invalid suggestion: ['a']"),
            (["refuted"], "invalid json: not an object"),
        ],
    )
    def test_an_inexact_answer_has_a_problem_and_no_proofs(self, proofs: Any, problem: str) -> None:
        read = read_proofs("", {"proofs": proofs}, claims=1)
        assert (read.problem, read.proofs) == (problem, ())

    @pytest.mark.defect("F1")
    @pytest.mark.parametrize(
        "text",
        ["", "No issues found", "Refuted.", "The docstring has {}.", "{}\n\nWait, it does happen.", "{}{}", "[{}]"],
    )
    def test_text_around_the_value_never_counts(self, text: str) -> None:
        value = json.dumps({"proofs": [REFUTED]})
        read = read_proofs(text.replace("{}", value), claims=1)
        assert read.problem
        assert read.proofs == ()

    def test_an_answer_of_a_run_that_cannot_be_exact_never_counts(self) -> None:
        assert read_proofs("", {"proofs": [REFUTED]}, claims=1, inexact="cut off").problem == "cut off"


class TestCritique:
    def test_an_exact_answer_is_the_critique(self) -> None:
        for text, structured in ((json.dumps(PASS), None), ("", PASS)):
            read = read_critique(text, structured)
            assert isinstance(read, Critique)
            assert (read.verdict, read.score, read.summary) == (CriticVerdict.PASS, 80, "so")
            assert (read.blockers, read.fixes) == ((), ("name it",))

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            *[({key: None}, f"missing field: {key}") for key in PASS],
            ({"verdict": "OKAY-ISH"}, "invalid verdict: OKAY-ISH"),
            ({"verdict": "NEEDS_WORK"}, "invalid verdict: NEEDS_WORK"),
            ({"score": 101}, "invalid score: 101"),
            ({"score": -1}, "invalid score: -1"),
            ({"score": "80"}, "invalid score: 80"),
            ({"score": True}, "invalid score: True"),
            ({"summary": ["so"]}, "invalid summary: ['so']"),
            ({"blockers": "none"}, "invalid blockers: none"),
            ({"fixes": [{"do": "it"}]}, "invalid fixes: [{'do': 'it'}]"),
            ({"blockers": ["no way back"]}, "invalid verdict: PASS, but with blockers"),
            ({"confidence": 0.9}, "unknown field: confidence"),
        ],
    )
    def test_an_inexact_answer_is_a_problem(self, changes: dict[str, Any], problem: str) -> None:
        assert read_critique("", {**PASS, **changes}) == problem

    @pytest.mark.defect("F1")
    @pytest.mark.parametrize("text", ["", "PASS", "It wrote {} for me.", "{}\n\nPlease rework it.", "{}{}"])
    def test_text_around_the_value_never_counts(self, text: str) -> None:
        assert isinstance(read_critique(text.replace("{}", json.dumps(PASS))), str)

    def test_an_answer_of_a_run_that_cannot_be_exact_never_counts(self) -> None:
        assert read_critique(json.dumps(PASS), inexact="cut off") == "cut off"


class TestHostileAnswers:
    def test_inputs_that_broke_earlier_readers_are_read(self) -> None:
        assert broken_by_kept_inputs("extraction", lambda data: read_review(data.decode("utf-8", "replace"))) == {}

    def test_no_more_items_than_the_limit_are_read(self) -> None:
        items = [{**ITEM, "title": f"Defect {number}"} for number in range(MAX_ITEMS + 1)]
        answer = read_review("", findings(*items))
        assert (len(answer.claims), answer.problem) == (MAX_ITEMS, f"more than {MAX_ITEMS:,} findings")

    @pytest.mark.parametrize(
        "piece",
        [
            "[",
            "{",
            '{"',
            '{"findings": [',
            '"',
            "\\",
            "- ",
            "- HIGH a: b (c.py:1)\n",
            "- HIGH a: (",
            "```\n",
            f"{TEXT}\n",
        ],
    )
    def test_reading_takes_linear_time(self, piece: str) -> None:
        sizes = (TEN_MB // 40, TEN_MB // 5)
        seconds: list[float] = []
        for size in sizes:
            text = piece * (size // len(piece))
            started = time.process_time()
            read_review(text)
            seconds.append(time.process_time() - started)
        # Eight times the text would take 64 times as long if the time were quadratic.
        assert seconds[1] < 30 * max(seconds[0], 0.02)


TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.defect("A7")
def test_a_secret_is_masked_before_a_problem_is_cut() -> None:
    for size in range(30, 210):
        text = "x" * size + f" {TOKEN} and more"
        answer = read_review(json.dumps(findings({**ITEM, "severity": text})))
        assert "ghp_" not in f"{answer.problem}{answer.invalid}"
        assert "ghp_" not in read_review(json.dumps(findings(**{text: 1}))).problem


@pytest.mark.defect("A7")
def test_a_secret_is_masked_before_words_are_cut_to_a_title() -> None:
    item = {key: value for key, value in ITEM.items() if key != "title"}
    for size in range(80, 125):
        [claim] = read_review(json.dumps(findings({**item, "body": "x" * size + f" {TOKEN} and more"}))).claims
        assert "ghp_" not in claim.title
