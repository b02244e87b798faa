"""266 answers that were written before the reader and without knowledge of it.

`says_defect` means that an answer must not pass for clean: it names a defect, or it is not an answer. A wrong green is
such an answer that completes a review without a claim, refutes every claim, or passes a critic's gate.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from codeloupe.model.finding import Proof
from codeloupe.model.pipeline import CriticVerdict, GateDefinition, GateKind
from codeloupe.reviewers.answers import read_critique, read_proofs, read_review

CASES: list[dict[str, Any]] = json.loads(Path("tests/data/answers.json").read_text(encoding="utf-8"))
# Cases whose label the rules cannot follow, each with the reason.
EXCEPTIONS = {
    "ver-contra-01": "the reason says in prose that the claim is right, but the proof is `refuted`; a word of the "
    "asked form decides, and no rule reads prose",
}
# A critic's PASS below the score of its gate is REWORK.
MIN_SCORE = GateDefinition(kind=GateKind.CRITIC).min_score
# Cases of the groups `valid` and `fenced` that cost a second call, each with the reason.
NOT_AS_ASKED = {
    "rev-valid-08": "`summary` was not asked for",
    "rev-valid-09": "`summary` was not asked for",
    "rev-valid-10": "lines of a list are not the JSON value",
    "rev-fenced-06": "text before the fence",
    "rev-fenced-07": "text after the fence",
    "rev-fenced-08": "`summary` was not asked for",
    "rev-fenced-09": "the fence is not closed",
    "rev-fenced-10": "the sentence is in a fence",
}


def text_of(case: dict[str, Any]) -> str:
    parts = case.get("text_parts", [[case.get("text", ""), 1]])
    return "".join(text * times for text, times in parts)


def read(case: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether the answer of a case is exact, and whether it is green."""
    text = text_of(case)
    structured = case.get("structured")
    match case["kind"]:
        case "review":
            review = read_review(text, structured)
            return review.is_exact, review.is_exact and not review.claims
        case "verification":
            verification = read_proofs(text, structured, claims=case["asked"])
            is_exact = not verification.problem
            refuted = [proof.proof is Proof.REFUTED for proof in verification.proofs]
            return is_exact, is_exact and all(refuted)
        case _:
            critique = read_critique(text, structured)
            if isinstance(critique, str):
                return False, False
            passes = critique.verdict is CriticVerdict.PASS and (critique.score or 0) >= MIN_SCORE
            return True, passes


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[bool, bool]]:
    return {case["id"]: read(case) for case in CASES}


@pytest.mark.defect("F1")
@pytest.mark.defect("F2")
def test_no_answer_that_says_a_defect_is_green(results: dict[str, tuple[bool, bool]]) -> None:
    wrong = {case["id"] for case in CASES if case["says_defect"] and results[case["id"]][1]}
    assert wrong == set(EXCEPTIONS)


def test_answers_as_asked_cost_no_second_call(results: dict[str, tuple[bool, bool]]) -> None:
    groups = ("valid", "fenced")
    inexact = {case["id"] for case in CASES if case["group"] in groups and not results[case["id"]][0]}
    assert inexact == set(NOT_AS_ASKED)


def test_second_calls_by_group(results: dict[str, tuple[bool, bool]]) -> None:
    cases = Counter(case["group"] for case in CASES)
    second_calls = Counter(case["group"] for case in CASES if not results[case["id"]][0])
    for group, count in cases.items():
        print(f"{group}: {second_calls[group]} of {count} answers cost a second call")  # noqa: T201 - shown by -s
    assert sum(cases.values()) == 266
    # No answer of these groups is as asked.
    for group in ("prose_around", "truncated", "broken", "refusals", "lgtm", "bullets", "unknown_keys", "empty"):
        assert second_calls[group] == cases[group]
