"""Which attempt of a stage is the best, and whether it may be taken without a PASS. Pure.

A gate with a score (a critic, a review) may be outvoted by the best of several attempts; one without (a command, a
person) may not: what it refused is never taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codeloupe.model.pipeline import AttemptRecord, CriticVerdict, Critique
from codeloupe.model.pipeline_definition import GateDefinition


def refused_at(attempt: AttemptRecord) -> int | None:
    """The place of the first gate that did not let an attempt pass, or None."""
    verdicts = (critique.verdict for critique in attempt.critiques)
    return next((place for place, verdict in enumerate(verdicts) if verdict is not CriticVerdict.PASS), None)


def has_failed(attempt: AttemptRecord) -> bool:
    """Whether a gate said FAIL."""
    return any(critique.verdict is CriticVerdict.FAIL for critique in attempt.critiques)


def best(attempts: Iterable[AttemptRecord]) -> AttemptRecord | None:
    """The attempt with the highest score, the later of two alike; one without a score ranks below all others."""
    ranked = sorted(attempts, key=lambda attempt: (-1 if attempt.score is None else attempt.score, attempt.number))
    return ranked[-1] if ranked else None


def takeable(attempts: Iterable[AttemptRecord], gates: Sequence[GateDefinition]) -> AttemptRecord | None:
    """The best attempt that may be taken though not every gate let it pass, as far as its gates have spoken."""
    return best(attempt for attempt in attempts if attempt.tree and _is_good_enough(attempt, gates))


def _is_good_enough(attempt: AttemptRecord, gates: Sequence[GateDefinition]) -> bool:
    # A word beyond the gates is a person's, who did not take it.
    return not any(_is_final(*each) for each in _judged(attempt, gates)) and len(attempt.critiques) <= len(gates)


def final_refusal(attempt: AttemptRecord, gates: Sequence[GateDefinition]) -> Critique:
    """The word for which an attempt, on which something was said, may not be taken; the last one where none did so."""
    final = (critique for critique, gate in _judged(attempt, gates) if _is_final(critique, gate))
    return next(final, attempt.critiques[-1])


def _judged(attempt: AttemptRecord, gates: Sequence[GateDefinition]) -> Iterable[tuple[Critique, GateDefinition]]:
    return zip(attempt.critiques, gates, strict=False)


def _is_final(critique: Critique, gate: GateDefinition) -> bool:
    if critique.verdict is CriticVerdict.REWORK:
        return critique.score is None or critique.score < gate.min_score
    return critique.verdict is CriticVerdict.FAIL


def kept_after_failure(attempts: Sequence[AttemptRecord]) -> AttemptRecord | None:
    """The attempt whose work is kept when a gate said FAIL of one: an earlier, better one, or else that one."""
    failed = next((attempt for attempt in reversed(attempts) if has_failed(attempt)), None)
    if failed is None:
        return best(attempts)
    others = best(attempt for attempt in attempts if attempt.number < failed.number and not has_failed(attempt))
    if others is None or others.score is None:
        return failed
    return others if failed.score is None or others.score > failed.score else failed
