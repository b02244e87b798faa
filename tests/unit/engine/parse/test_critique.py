from __future__ import annotations

import json
from typing import Any

from codeloupe.engine.parse.claims import CritiqueAnswer, read_critique
from codeloupe.model.pipeline import CriticVerdict
from tests.rows import each
from tests.unit.engine.parse.review_shapes import ENVELOPES

PASS, REWORK, FAIL = CriticVerdict.PASS, CriticVerdict.REWORK, CriticVerdict.FAIL
VALUE = {
    "summary": "It lacks {sources}.",
    "verdict": "REWORK",
    "score": 62,
    "blockers": ['No source for the "main" claim', "Größe fehlt 🔍"],
    "fixes": ["Name a source in line 3"],
    "confidence": 0.8,
}
ANSWER = CritiqueAnswer(
    verdict=REWORK,
    score=62,
    summary="It lacks {sources}.",
    blockers=('No source for the "main" claim', "Größe fehlt 🔍"),
    fixes=("Name a source in line 3",),
    confidence=0.8,
)


@each("envelope", ENVELOPES)
def test_a_critique_is_read_from_every_envelope(envelope: str) -> None:
    assert read_critique(ENVELOPES[envelope](VALUE)) == ANSWER


@each(
    ("value", "expected"),
    [
        ({"verdict": "pass", "score": "90/100"}, CritiqueAnswer(verdict=PASS, score=90)),
        ({"verdict": "Approved.", "score": "85%"}, CritiqueAnswer(verdict=PASS, score=85)),
        ({"decision": "NEEDS_WORK", "score": 51.9}, CritiqueAnswer(verdict=REWORK, score=51)),
        ({"Verdict": "FAIL", "qualityScore": 0}, CritiqueAnswer(verdict=FAIL, score=0)),
        ({"verdict": "PASS", "score": 100, "blockers": None}, CritiqueAnswer(verdict=PASS, score=100)),
        ({"verdict": "PASS", "score": 100, "blockers": ["None", "n/a"]}, CritiqueAnswer(verdict=PASS, score=100)),
        ({"verdict": "PASS", "score": 1, "blockers": "No issues found."}, CritiqueAnswer(verdict=PASS, score=1)),
        (
            {"verdict": "rework", "score": 40, "blockers": "one", "fix": "do it"},
            CritiqueAnswer(verdict=REWORK, score=40, blockers=("one",), fixes=("do it",)),
        ),
        (
            {"verdict": "rework", "score": 40, "blockers": [{"title": "one", "verdict": "FAIL"}]},
            CritiqueAnswer(verdict=REWORK, score=40, blockers=("one",)),
        ),
        (
            {"critique": {"verdict": "REWORK", "score": 3, "confidence": "80%", "reason": "so"}},
            CritiqueAnswer(verdict=REWORK, score=3, confidence=0.8, summary="so"),
        ),
        ([{"verdict": "FAIL", "score": 7}], CritiqueAnswer(verdict=FAIL, score=7)),
    ],
)
def test_other_spellings_are_read(value: Any, expected: CritiqueAnswer) -> None:
    assert read_critique(json.dumps(value)) == expected
    assert read_critique("see there", value) == expected


@each(
    "text",
    [
        "**Verdict:** REWORK\n**Score:** 62/100\n\n**Blockers:**\n- one\n- two\n\n**Fixes:**\n1. do it\n",
        "I looked at it.\n\n## Verdict: rework\nScore: 62\nBlockers:\n* one\n* two\nFixes: do it",
    ],
)
def test_labelled_lines_are_read(text: str) -> None:
    expected = CritiqueAnswer(verdict=REWORK, score=62, blockers=("one", "two"), fixes=("do it",))
    assert read_critique(text) == expected


def test_a_pass_beside_blockers_is_rework_because_it_is_computed() -> None:
    answer = read_critique(json.dumps({"verdict": "PASS", "score": 95, "blockers": ["the tests fail"]}))
    assert (answer.verdict, answer.score, answer.blockers) == (REWORK, 95, ("the tests fail",))


def test_a_fail_stays_one_whatever_blockers_it_has() -> None:
    assert read_critique('{"verdict": "FAIL", "score": 5, "blockers": ["a"]}').verdict is FAIL


@each(
    ("text", "problem"),
    [
        ("", "empty output"),
        ("` `", "empty output"),
        ("It is very good. PASS", "invalid json: no JSON found"),
        ("PASS", "invalid json: no JSON found"),
        ("Verdict: PASS", "missing field: score"),
        ("Verdict: PASS\nScore: 95\nBlockers:", "invalid json: truncated"),
        ("Verdict: PASS\nScore: 95\nVerdict: FAIL", "invalid verdict: it is given more than once"),
        ("{}", "missing field: verdict"),
        ('{"score": 50, "blockers": []}', "missing field: verdict"),
        ('{"verdict": "PASS"}', "missing field: score"),
        ('{"verdict": null, "score": 50}', "missing field: verdict"),
        ('{"verdict": "maybe", "score": 50}', "invalid verdict: maybe"),
        ('{"verdict": 1, "score": 50}', "invalid verdict: 1"),
        ('{"verdict": ["PASS"], "score": 50}', "invalid verdict: a list"),
        ('{"verdict": "PASS", "score": 101}', "invalid score: 101"),
        ('{"verdict": "PASS", "score": -1}', "invalid score: -1"),
        ('{"verdict": "PASS", "score": 0.9}', "invalid score: 0.9"),
        ('{"verdict": "PASS", "score": true}', "invalid score: true"),
        ('{"verdict": "PASS", "score": "high"}', "invalid score: high"),
        ('{"verdict": "PASS", "score": 1' + "0" * 400 + "}", "invalid score: a large number"),
        ('{"verdict": "PASS", "score": 90, "blockers": [7]}', "invalid blockers: 7"),
        ('{"verdict": "PASS", "score": 90, "blockers": [{"a": 1}]}', "invalid blockers: an object"),
        ('{"verdict": "PASS", "score": 90, "fixes": [null]}', "invalid fixes: null"),
        ('{"verdict": "PASS", "decision": "FAIL", "score": 90}', "invalid verdict: PASS and FAIL"),
        ('{"verdict": "PASS", "score": 90, "rating": 80}', "invalid score: 90 and 80"),
        (
            '{"verdict": "PASS", "score": 90} or {"verdict": "FAIL", "score": 90}',
            "invalid verdict: PASS and FAIL",
        ),
        ('{"verdict": "PASS", "score": 90} or {"verdict": "PASS", "score": 80}', "invalid score: 90 and 80"),
        ('{"verdict": "PASS", "verdict": "FAIL", "score": 9}', "invalid json: duplicate key: verdict"),
        ('{"verdict": "PASS", "score": 90, "blockers": [', "invalid json: truncated"),
        ('{"verdict": "PASS", "score": 9', "invalid json: truncated"),
        ('{"verd', "invalid json: truncated"),
        ('{"is_error": true, "result": "{\\"verdict\\": \\"PASS\\"}"}', 'the run failed: {"verdict": "PASS"}'),
        (
            '{"verdict": "PASS", "score": 90}\n{"type": "turn.failed", "error": {"message": "cut"}}',
            "the run failed: cut",
        ),
        ("[" * 500, "invalid json: nested more than 100 levels deep"),
    ],
)
def test_what_says_nothing_for_certain_is_a_problem_and_never_a_pass(text: str, problem: str) -> None:
    assert read_critique(text) == CritiqueAnswer(problem=problem)


@each("envelope", ["bare", "fence", "string", "claude", "gemini"])
def test_an_answer_cut_anywhere_before_its_end_passes_nothing(envelope: str) -> None:
    passing = {"verdict": "PASS", "score": 90, "summary": "s", "blockers": ["none of it runs"], "fixes": []}
    text = ENVELOPES[envelope](passing)
    for length in range(len(text)):
        assert read_critique(text[:length]).verdict is not PASS


def test_the_same_words_twice_are_no_contradiction_and_every_blocker_counts() -> None:
    first = {"verdict": "PASS", "score": 90, "summary": "first", "blockers": ["a"]}
    second = {"verdict": "PASS", "score": 90, "summary": "last"}
    answer = read_critique(f"{json.dumps(first)} and again {json.dumps(second)}")
    assert (answer.verdict, answer.summary, answer.blockers) == (REWORK, "last", ("a",))


def test_a_structured_value_counts_first_and_gives_way_when_it_says_nothing() -> None:
    text = json.dumps({"verdict": "FAIL", "score": 1})
    assert read_critique(text, {"verdict": "PASS", "score": 99}).verdict is PASS
    assert read_critique(text, {"a": 1}).verdict is FAIL
    assert read_critique("nothing", {"verdict": "odd"}).problem == "invalid verdict: odd"
    assert read_critique(text, '{"verdict": "PASS", "score": 99}').verdict is PASS
    for odd in (5, [], "", object(), float("nan")):
        assert read_critique("nothing", odd).problem is not None


def test_broken_json_is_mended() -> None:
    assert read_critique("{'verdict': 'PASS', score: 88,}") == CritiqueAnswer(verdict=PASS, score=88)


def test_lists_and_texts_are_capped_and_say_so() -> None:
    value = {"verdict": "REWORK", "score": 5, "blockers": [f"{number} {'x' * 5000}" for number in range(150)]}
    answer = read_critique(json.dumps(value))
    assert len(answer.blockers) == 101
    assert answer.blockers[-1] == "and 50 more"
    assert max(map(len, answer.blockers)) <= 2000


@each(
    "text",
    [
        "Verdict: " * (1_000_000 // 9),
        "Verdict: x\n- " * (1_000_000 // 13),
        '{"verdict": ' * (1_000_000 // 12),
        '{"verdict": "PASS", "score": 90, "blockers": ["' + "x" * 1_000_000,
        " " * 1_000_000 + "-",
    ],
)
def test_a_megabyte_without_an_answer_is_none(text: str) -> None:
    answer = read_critique(text)
    assert answer.verdict is None
    assert answer.problem


def test_a_megabyte_of_answers_is_no_answer() -> None:
    text = '{"verdict": "PASS", "score": 90}\n' * (1_000_000 // 33)
    assert (read_critique(text).problem or "").startswith("invalid json: more than")


@each(
    "beside",
    [
        {"Blockers": ["It is broken"], "blockers": []},
        {"critical_issues": ["It is broken"]},
        {"findings": [{"severity": "critical", "title": "x"}]},
        {"must_fix": ["It is broken"]},
        {"summary": "This is a critical failure: it must not be merged, do not merge."},
        {"summary": "I could not read the artifact."},
        {"truncated": True},
        {"status": "failed"},
        {"error": "tool crashed"},
        {"passed": False},
        {"final_verdict": "FAIL"},
    ],
)
def test_a_pass_that_something_beside_it_speaks_against_is_none(beside: dict[str, object]) -> None:
    assert read_critique(json.dumps({"verdict": "PASS", "score": 95, **beside})).problem


@each("around", ["Verdict: FAIL\n{}", "{}\nWait, this is wrong: the artifact is empty.", "I could not open it.\n{}"])
def test_a_pass_that_the_words_around_it_speak_against_is_none(around: str) -> None:
    passed = json.dumps({"verdict": "PASS", "score": 95})
    assert read_critique(around.replace("{}", passed)).problem
    assert read_critique(f"I read it all.\n{passed}").problem is None
