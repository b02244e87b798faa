from __future__ import annotations

from codeloupe.model.pipeline import AttemptRecord, CriticVerdict, Critique, RecoveryStep
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.pipeline.choosing import best, kept_after_failure, refused_at, takeable

PASS, REWORK, FAIL = CriticVerdict.PASS, CriticVerdict.REWORK, CriticVerdict.FAIL
CRITIC = GateDefinition(kind=GateKind.CRITIC)
COMMAND = GateDefinition(kind=GateKind.COMMAND)


def attempt(number: int, *words: tuple[CriticVerdict, int | None], tree: str = "t") -> AttemptRecord:
    critiques = tuple(Critique(verdict=verdict, gate=GateKind.CRITIC, score=score) for verdict, score in words)
    return AttemptRecord(number=number, step=RecoveryStep.FIRST, tree=tree, critiques=critiques)


def number(chosen: AttemptRecord | None) -> int | None:
    return None if chosen is None else chosen.number


def test_the_highest_score_is_the_best_and_the_later_of_two_alike() -> None:
    attempts = [attempt(1, (REWORK, 50)), attempt(2, (REWORK, 70)), attempt(3, (REWORK, 60))]
    assert number(best(attempts)) == 2
    assert number(best([*attempts, attempt(4, (REWORK, 70))])) == 4
    assert number(best([attempt(1, (REWORK, 0)), attempt(2)])) == 1
    assert best([]) is None


def test_the_score_of_an_attempt_is_the_lowest_that_a_gate_gave_it() -> None:
    assert number(best([attempt(1, (PASS, 90), (REWORK, 45)), attempt(2, (REWORK, 46))])) == 2


def test_what_is_below_the_least_score_is_not_taken() -> None:
    low = [attempt(1, (REWORK, 20)), attempt(2, (REWORK, 30)), attempt(3, (REWORK, 39))]
    assert takeable(low, [CRITIC]) is None
    assert number(takeable([*low, attempt(4, (REWORK, 40))], [CRITIC])) == 4


def test_what_a_gate_without_a_score_refused_is_never_taken() -> None:
    assert takeable([attempt(1, (PASS, 90), (REWORK, None))], [CRITIC, COMMAND]) is None
    assert takeable([attempt(1, (REWORK, None))], [COMMAND]) is None


def test_what_a_person_or_a_gate_refused_for_good_is_never_taken() -> None:
    assert takeable([attempt(1, (FAIL, 90))], [CRITIC]) is None
    assert takeable([attempt(1, (REWORK, 90), (REWORK, 90))], [CRITIC]) is None


def test_what_was_not_kept_is_never_taken() -> None:
    assert takeable([attempt(1, (REWORK, 90), tree="")], [CRITIC]) is None


def test_the_first_gate_that_refused_is_found() -> None:
    assert refused_at(attempt(1)) is None
    assert refused_at(attempt(1, (PASS, None), (REWORK, 1), (FAIL, 1))) == 1


def test_after_a_failure_the_better_earlier_attempt_is_kept() -> None:
    assert number(kept_after_failure([attempt(1, (REWORK, 60)), attempt(2, (FAIL, 10))])) == 1
    assert number(kept_after_failure([attempt(1, (REWORK, 10)), attempt(2, (FAIL, 60))])) == 2
    assert number(kept_after_failure([attempt(1, (REWORK, 10)), attempt(2, (FAIL, None))])) == 1
    assert number(kept_after_failure([attempt(1, (FAIL, 10))])) == 1
    assert number(kept_after_failure([attempt(1, (REWORK, None)), attempt(2, (FAIL, None))])) == 2
