"""What to say in the threads of ours, and which to resolve or open again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from codeloupe.forges.comment_text import answer_body
from codeloupe.forges.looked_at import LookedAt
from codeloupe.forges.marker import Marker
from codeloupe.forges.own_threads import OwnThread
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.publication import AnswerKind, ThreadAnswer
from codeloupe.reports.wording import why_not_counted

_CLOSING = (AnswerKind.GONE, AnswerKind.ASIDE)


class Subject(Struct, frozen=True):
    """A finding of the review, as it counts now, and the threads about it, the oldest first.

    One that is not shown is below the review's `min_severity`: it is there, and nothing is said about it.
    """

    finding: Finding
    threads: tuple[OwnThread, ...] = ()
    is_shown: bool = True

    @property
    def is_back(self) -> bool:
        """Whether it is open again, and we said last that it is not, or it was fixed by what the review knows."""
        if not self.threads or not self.finding.is_open or not self.is_shown:
            return False
        newest = self.threads[-1]
        told_closed = newest.last_word in _CLOSING
        regressed = self.finding.status is FindingStatus.REGRESSED and newest.thread.is_resolved
        return told_closed or (regressed and newest.last_word is None)

    @property
    def has_open_thread(self) -> bool:
        """Whether a thread about it is open, or will be after this."""
        return self.is_back or any(not own.thread.is_resolved for own in self.threads)


class Answering(Struct, frozen=True, kw_only=True):
    """What is needed to answer. `resolve` tells whether threads may be resolved and opened again."""

    head: str
    marker: Marker
    seen: LookedAt
    resolve: bool


def answers_to(
    threads: Sequence[OwnThread], subjects: Sequence[Subject], *, answering: Answering
) -> tuple[ThreadAnswer, ...]:
    """What there is to say and do, in the order of the threads. What was said before is not said again."""
    about = _about(subjects)
    answers = (_answer(own, about.get(own.thread.thread_id), answering) for own in threads)
    return tuple(answer for answer in answers if answer is not None)


def untold(threads: Sequence[OwnThread], subjects: Sequence[Subject], *, seen: LookedAt) -> tuple[OwnThread, ...]:
    """Open threads of which this review cannot tell whether their finding is gone."""
    about = _about(subjects)
    return tuple(
        own
        for own in threads
        if own.thread.thread_id not in about
        and not own.thread.is_resolved
        and own.dismissed is None
        and own.last_word not in _CLOSING
        and not seen.can_tell(own.thread.path, own.reviewer)
    )


def _about(subjects: Sequence[Subject]) -> Mapping[str, Subject]:
    return {own.thread.thread_id: subject for subject in subjects for own in subject.threads}


def _answer(own: OwnThread, subject: Subject | None, answering: Answering) -> ThreadAnswer | None:
    if own.dismissed is not None:
        # The maintainer's word stands there already.
        return _made(own, AnswerKind.ASIDE, None, answering)
    if subject is None:
        gone = answering.seen.can_tell(own.thread.path, own.reviewer) or own.last_word in _CLOSING
        return _closing(own, AnswerKind.GONE, "", answering) if gone else None
    if subject.finding.is_open:
        back = subject.is_back and own is subject.threads[-1]
        return _made(own, AnswerKind.BACK, _body(own, AnswerKind.BACK, "", answering), answering) if back else None
    if subject.finding.status is FindingStatus.FIXED and subject.finding.suppression is None:
        return _closing(own, AnswerKind.GONE, "", answering)
    return _closing(own, AnswerKind.ASIDE, why_not_counted(subject.finding), answering)


def _closing(own: OwnThread, kind: AnswerKind, why: str, answering: Answering) -> ThreadAnswer | None:
    """Say it, unless it was said, or somebody else closed the thread before us, or opened it again and said why."""
    said = own.last_word in _CLOSING or own.thread.is_resolved
    if own.last_word in _CLOSING and own.was_contradicted:
        return None
    return _made(own, kind, None if said else _body(own, kind, why, answering), answering)


def _made(own: OwnThread, kind: AnswerKind, body: str | None, answering: Answering) -> ThreadAnswer | None:
    wanted = kind is not AnswerKind.BACK
    resolved = wanted if answering.resolve and own.thread.is_resolved is not wanted else None
    if body is None and resolved is None:
        return None
    return ThreadAnswer(
        thread_id=own.thread.thread_id,
        comment_id=own.thread.comments[0].comment_id,
        kind=kind,
        path=own.thread.path,
        body=body,
        resolved=resolved,
    )


def _body(own: OwnThread, kind: AnswerKind, why: str, answering: Answering) -> str:
    return answer_body(kind, own.key, head=answering.head, why=why, marker=answering.marker)


def standing_threads(subjects: Sequence[Subject]) -> Iterator[Subject]:
    """The findings that count and have an open thread."""
    return (subject for subject in subjects if subject.finding.is_open and subject.has_open_thread)
