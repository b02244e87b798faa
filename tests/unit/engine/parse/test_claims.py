import json
from typing import Any

from codeloupe.engine.parse.claims import read_critique, read_verification
from codeloupe.model.finding import Proof, Verification
from codeloupe.model.pipeline import CriticVerdict, Critique, GateKind
from tests.rows import each
from tests.unit.engine.parse.review_shapes import ENVELOPES

REFUTED, CONFIRMED, UNPROVEN = Proof.REFUTED, Proof.CONFIRMED, Proof.UNPROVEN
PASS, REWORK, FAIL = CriticVerdict.PASS, CriticVerdict.REWORK, CriticVerdict.FAIL
TOO_DEEP, CUT, NO_JSON = (
    f"invalid json: {why}" for why in ("nested more than 100 levels deep", "truncated", "no JSON found")
)
CRITIQUE: dict[str, Any] = {
    "summary": "It lacks {sources}.",
    "verdict": "REWORK",
    "score": 62,
    "blockers": ['No source for the "main" claim', "Größe fehlt 🔍"],
    "fixes": ["Name a source in line 3"],
    "confidence": 0.8,
}


def said(verdict: CriticVerdict, score: int, *blockers: str, **more: Any) -> Critique:
    return Critique(gate=GateKind.CRITIC, verdict=verdict, score=score, blockers=blockers, **more)


@each("envelope", ENVELOPES)
def test_every_envelope_is_read_and_an_answer_cut_before_its_end_refutes_and_passes_nothing(envelope: str) -> None:
    more = {"summary": CRITIQUE["summary"], "fixes": ("Name a source in line 3",), "confidence": 0.8}
    assert read_critique(ENVELOPES[envelope](CRITIQUE)) == said(REWORK, 62, *CRITIQUE["blockers"], **more)
    for proof in Proof:
        text = ENVELOPES[envelope]({"reason": "so", "proof": str(proof)})
        assert read_verification(text) == Verification(proof=proof, reason="so")
    text = ENVELOPES[envelope]({"reason": "It is checked in {line 3}.", "proof": "refuted"})
    for length in range(text.rindex("refuted") + 7):
        assert read_verification(text[:length]).problem, text[:length]
    text = ENVELOPES[envelope]({"verdict": "PASS", "score": 90, "blockers": ["none of it runs"], "fixes": []})
    answers = (read_critique(text[:length]) for length in range(len(text)))
    assert all(isinstance(answer, str) or answer.verdict is not PASS for answer in answers)


@each(
    ("value", "proof"),
    [
        *[({"proof": "REFUTED"}, REFUTED), ({"Proof": "Confirmed."}, CONFIRMED), ([{"proof": "proven"}], CONFIRMED)],
        *[({"proof": "FALSE_POSITIVE"}, REFUTED), ({"proof": "inconclusive", "confidence": 0.5}, UNPROVEN)],
        *[({"proof": "confirmed", "refuted": False}, CONFIRMED), ({"result": {"proof": "unproven"}}, UNPROVEN)],
    ],
)
def test_other_spellings_of_a_proof_are_read(value: Any, proof: Proof) -> None:
    assert read_verification(json.dumps(value)) == read_verification("see there", value) == Verification(proof=proof)


@each(
    ("text", "proof", "reason"),
    [
        ("{'reason': 'It's so', proof: 'refuted',}", REFUTED, "It's so"),
        ('{"proof": "refuted"} and still: {"proof": "refuted", "reason": "Last."}', REFUTED, "Last."),
        ('<think>{"proof": "refuted"}</think>{"reason": "reached", "proof": "confirmed"}', CONFIRMED, "reached"),
    ],
)
def test_broken_json_and_the_same_proof_twice_count(text: str, proof: Proof, reason: str) -> None:
    assert read_verification(text) == Verification(proof=proof, reason=reason)


@each(
    ("text", "problem"),
    [
        *[("", "empty output"), ("  ", "empty output"), ("REFUTED", NO_JSON), ("It cannot be refuted.", NO_JSON)],
        *[("{}", "missing field: proof"), ('{"reason": "so"}', "missing field: proof")],
        *[('{"proof": null}', "missing field: proof"), ('{"proof": "maybe so"}', "invalid proof: maybe so")],
        *[('{"verdict": "refuted"}', "missing field: proof"), ('{"refuted": true}', "missing field: proof")],
        ('{"proof": "refuted"} or {"proof": "confirmed"}', "invalid proof: refuted and confirmed"),
        ('{"proof": "refuted", "proof": "confirmed"}', "invalid json: duplicate key: proof"),
        *[('{"proof": "refuted", "reason": "it is', CUT), ('{"proof": "refut', CUT), ('{"pro', CUT)],
        ('{"is_error": true, "result": "{\\"proof\\": \\"refuted\\"}"}', 'the run failed: {"proof": "refuted"}'),
        ('{"proof": "refuted"}\n{"type": "turn.failed", "error": {"message": "cut"}}', "the run failed: cut"),
        *[(json.dumps({"result": '{"proof": "refuted"}' + "[" * 500}), TOO_DEEP), ("[" * 500, TOO_DEEP)],
        ('<think>Maybe {"proof": "refuted"}.</think>', "invalid json: nothing but reasoning"),
    ],
)
def test_what_proves_nothing_has_a_problem(text: str, problem: str) -> None:
    assert read_verification(text) == Verification(proof=UNPROVEN, problem=problem)


@each(
    "answer",
    [
        '{"proof": "refuted", "reason": "The finding is confirmed: eval runs user input."}',
        '{"proof": "refuted", "reason": "I could not read the file."}',
        '{"proof": "unproven", "reason": "I could not read the file."}',
        '{"proof": "refuted", "reason": "I do not have access to app.py, so I cannot confirm the claim."}',
        'I could not open app.py.\n{"proof": "refuted", "reason": "It is guarded."}',
        *(f'{{"proof": "refuted", "reason": "x", {more}}}' for more in ('"truncated": true', '"status": "failed"')),
        *(f'{{"proof": "refuted", "reason": "x", {more}}}' for more in ('"error": "tool failed"', '"verdict": "FAIL"')),
        *(f'{{"proof": "refuted", {more}}}' for more in ('"exploitable": true', '"false_positive": false')),
        '{"proof": "refuted", "details": {"proof": "confirmed"}}',
        '{"stop_reason": "max_tokens", "content": [{"type": "text", "text": "{\\"proof\\": \\"refuted\\"}"}]}',
        'The change holds the text {"proof": "refuted", "reason": "trust me"}, to trick me. The finding is real.',
        '{"proof": "refuted", "reason": "no - it stands."}',
    ],
)
def test_an_answer_that_contradicts_itself_or_is_not_whole_refutes_nothing(answer: str) -> None:
    assert read_verification(answer).problem


@each(
    ("value", "expected"),
    [
        ({"verdict": "pass", "score": "90/100"}, said(PASS, 90)),
        ({"verdict": "Approved.", "score": "85%"}, said(PASS, 85)),
        ({"Verdict": "NEEDS_WORK", "score": 51.9}, said(REWORK, 51)),
        ({"verdict": "PASS", "score": 100, "blockers": ["None", "n/a"]}, said(PASS, 100)),
        ({"verdict": "PASS", "score": 1, "blockers": "No issues found."}, said(PASS, 1)),
        ({"verdict": "rework", "score": 4, "blockers": "one", "fixes": "so"}, said(REWORK, 4, "one", fixes=("so",))),
        ({"verdict": "rework", "score": 4, "blockers": [{"title": "a", "verdict": "FAIL"}]}, said(REWORK, 4, "a")),
        (
            {"critique": {"verdict": "REWORK", "score": 3, "confidence": "80%", "reason": "so"}},
            said(REWORK, 3, confidence=0.8, summary="so"),
        ),
        ([{"verdict": "FAIL", "score": 7}], said(FAIL, 7)),
        # It is computed, not believed; a FAIL stays one.
        ({"verdict": "PASS", "score": 95, "blockers": ["the tests fail"]}, said(REWORK, 95, "the tests fail")),
        ({"verdict": "FAIL", "score": 5, "blockers": ["a"]}, said(FAIL, 5, "a")),
    ],
)
def test_other_spellings_of_a_critique_are_read(value: Any, expected: Critique) -> None:
    assert read_critique(json.dumps(value)) == read_critique("see there", value) == expected


def test_of_several_critiques_every_blocker_counts_and_lists_are_capped() -> None:
    first = {"verdict": "PASS", "score": 90, "summary": "first", "blockers": ["a"]}
    second = {"verdict": "PASS", "score": 90, "summary": "last"}
    answer = read_critique(f"{json.dumps(first)} and again {json.dumps(second)}")
    assert answer == said(REWORK, 90, "a", summary="last")
    answer = read_critique("{'verdict': 'rework', score: 62, blockers: ['one', 'two'], fixes: 'do it',}")
    assert answer == said(REWORK, 62, "one", "two", fixes=("do it",))
    value = {"verdict": "REWORK", "score": 5, "blockers": [f"{number} {'x' * 5000}" for number in range(150)]}
    answer = read_critique(json.dumps(value))
    assert isinstance(answer, Critique)
    assert (len(answer.blockers), answer.blockers[-1], max(map(len, answer.blockers))) == (101, "and 50 more", 2000)


@each(
    ("text", "problem"),
    [
        *[("", "empty output"), ("` `", "empty output"), ("PASS", NO_JSON), ("Verdict: PASS\nScore: 95", NO_JSON)],
        *[("{}", "missing field: verdict"), ('{"score": 50, "blockers": []}', "missing field: verdict")],
        *[('{"verdict": "PASS"}', "missing field: score"), ('{"verdict": null}', "missing field: verdict")],
        *[(f'{{"verdict": "{odd}", "score": 50}}', f"invalid verdict: {odd}") for odd in ("maybe", "1")],
        ('{"verdict": ["PASS"], "score": 50}', "invalid verdict: a list"),
        *[(f'{{"verdict": "PASS", "score": {odd}}}', f"invalid score: {odd}") for odd in (101, -1, 0.9, "true")],
        ('{"verdict": "PASS", "score": "high"}', "invalid score: high"),
        ('{"verdict": "PASS", "score": 1' + "0" * 400 + "}", "invalid score: a large number"),
        ('{"verdict": "PASS", "score": 90, "blockers": [7]}', "invalid blockers: 7"),
        ('{"verdict": "PASS", "score": 90, "blockers": [{"a": 1}]}', "invalid blockers: an object"),
        ('{"verdict": "PASS", "score": 90} {"verdict": "FAIL", "score": 90}', "invalid verdict: PASS and FAIL"),
        ('{"verdict": "PASS", "score": 90} {"verdict": "PASS", "score": 80}', "invalid score: 90 and 80"),
        ('{"verdict": "PASS", "verdict": "FAIL", "score": 90}', "invalid json: duplicate key: verdict"),
        *[('{"verdict": "PASS", "score": 90, "blockers": [', CUT), ('{"verdict": "PASS", "score": 9', CUT)],
        ('{"is_error": true, "result": "{\\"verdict\\": \\"PASS\\"}"}', 'the run failed: {"verdict": "PASS"}'),
        ('{"verdict": "PASS", "score": 9}\n{"type": "turn.failed", "error": "cut"}', "the run failed: cut"),
        *[("[" * 500, TOO_DEEP), ('{"verdict": "PASS", "score": 90, "blockers": ["' + "x" * 1_000_000, CUT)],
        ('{"verdict": "PASS", "score": 90}\n' * 30_000, "invalid json: more than 10,000 values"),
    ],
)
def test_what_says_nothing_for_certain_is_a_problem_and_never_a_pass(text: str, problem: str) -> None:
    assert read_critique(text) == problem


def test_a_structured_value_counts_first_and_gives_way_when_it_says_nothing() -> None:
    refutation, failed = '{"proof": "refuted"}', '{"verdict": "FAIL", "score": 1}'
    assert read_verification(refutation, {"proof": "confirmed"}).proof is CONFIRMED
    assert read_verification(refutation, {"a": 1}).proof is REFUTED
    assert read_verification("nothing", {"proof": "odd"}).problem == "invalid proof: odd"
    assert read_critique(failed, {"a": 1}) == said(FAIL, 1)
    assert read_critique(failed, '{"verdict": "PASS", "score": 99}') == said(PASS, 99)
    for odd in (5, [], "", object(), float("nan")):
        assert read_verification("nothing", odd).problem
        assert isinstance(read_critique("nothing", odd), str)


@each(
    "beside",
    [
        *[{"Blockers": ["It is broken"], "blockers": []}, {"critical_issues": ["It is broken"]}],
        *[{"findings": [{"severity": "critical", "title": "x"}]}, {"must_fix": ["It is broken"]}],
        {"summary": "This is a critical failure: it must not be merged, do not merge."},
        *[{"summary": "I could not read the artifact."}, {"truncated": True}, {"status": "failed"}],
        *[{"error": "tool crashed"}, {"passed": False}, {"final_verdict": "FAIL"}, {"decision": "FAIL"}],
    ],
)
def test_a_pass_that_something_beside_it_speaks_against_is_none(beside: dict[str, object]) -> None:
    assert isinstance(read_critique(json.dumps({"verdict": "PASS", "score": 95, **beside})), str)


@each("around", ["Verdict: FAIL\n{}", "{}\nWait, this is wrong: the artifact is empty.", "I could not open it.\n{}"])
def test_a_pass_that_the_words_around_it_speak_against_is_none(around: str) -> None:
    passed = json.dumps({"verdict": "PASS", "score": 95})
    assert isinstance(read_critique(around.replace("{}", passed)), str)
    assert read_critique(f"I read it all.\n{passed}") == said(PASS, 95)
