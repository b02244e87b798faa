"""Several answers in one text as one: models draft, correct themselves, and answer file by file."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from codeloupe.engine.parse.finding_item import MAX_FINDINGS, too_many
from codeloupe.engine.parse.reasons import is_lasting
from codeloupe.model.finding import ReviewAnswer

_MAX_DROPPED = 200


def merged(answers: Sequence[ReviewAnswer]) -> ReviewAnswer:
    """All findings, each once, in their order; the last verdict and summary.

    A problem of one answer gives way to findings in another that was understood, and is told in `dropped` then. That an
    answer was cut off, or its run failed, never gives way.
    """
    findings = tuple(dict.fromkeys(finding for answer in answers for finding in answer.findings))
    problems = list(dict.fromkeys(answer.problem for answer in answers if answer.problem))
    understood = any(answer.findings and answer.problem is None for answer in answers)
    standing = [problem for problem in problems if is_lasting(problem)] or ([] if understood else problems)
    problem = standing[0] if standing else None
    told = dict.fromkeys(reason for answer in answers for reason in answer.dropped)
    dropped = [*told, *(reason for reason in problems if reason != problem and reason not in told)]
    return _capped(
        ReviewAnswer(
            findings=findings,
            verdict=next((answer.verdict for answer in reversed(answers) if answer.verdict), None),
            summary=next((answer.summary for answer in reversed(answers) if answer.summary), ""),
            problem=problem,
            dropped=tuple(dropped),
            repaired=any(answer.repaired for answer in answers),
        )
    )


def _capped(answer: ReviewAnswer) -> ReviewAnswer:
    """The answer with no more findings and reasons than anybody reads; what is left out is told."""
    dropped = answer.dropped
    if len(dropped) > _MAX_DROPPED:
        dropped = (*dropped[:_MAX_DROPPED], f"{len(dropped) - _MAX_DROPPED:,} more reasons like these")
    unread = len(answer.findings) - MAX_FINDINGS
    if unread > 0:
        dropped = (*dropped, too_many(unread))
    return replace(answer, findings=answer.findings[:MAX_FINDINGS], dropped=dropped)
