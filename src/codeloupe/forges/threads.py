"""The threads of ours on a pull request, and which finding of a review each one is about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from codeloupe.forges.comments import DiffPlaces, answer_body
from codeloupe.forges.marker import (
    Mark,
    Marker,
    MarkKind,
    key_of,
)
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.publication import (
    AnswerKind,
    PullRequest,
    Thread,
    ThreadAnswer,
    ThreadComment,
)
from codeloupe.reports.wording import why_not_counted


def _names(reviewer: str) -> frozenset[str]:
    return frozenset(name for name in reviewer.split("+") if name)


class LookedAt(Struct, frozen=True):
    """What a review saw of a pull request. `why_not` says in words why it can tell of nothing, or is empty."""

    why_not: str
    unseen_files: frozenset[str]
    reviewers: frozenset[str]

    def can_tell(self, path: str, reviewer: str) -> bool:
        """Whether a finding of this file would have been found again, had it still been there."""
        same_eyes = _names(reviewer) <= self.reviewers
        return not self.why_not and path not in self.unseen_files and same_eyes


# Who may have the right to write. It is asked for before it is believed.
_CLOSE = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_LONGEST_ROW = 1_000
_COMMAND = re.compile(r"/codeloupe[ \t]{1,8}dismiss(?:[ \t:,.–—-]{1,8}(?P<reason>.*))?", re.IGNORECASE)
_WORD = re.compile(r"dismiss(?:[.!]?|[ \t]{0,8}[:–—-][ \t]{0,8}(?P<reason>.*))", re.IGNORECASE)


class Dismissed(Struct, frozen=True):
    """Who dismissed, and why; the reason may be empty."""

    who: str
    reason: str


def dismissal_in(body: str) -> str | None:
    """The reason of a reply that dismisses, empty when it gives none; None for any other reply.

    It is `dismiss`, alone or with a reason behind a colon or a dash, or `/codeloupe dismiss` and a reason, at the
    start of the reply. A sentence that has the word in it is none.
    """
    row = body.lstrip().split("\n", 1)[0].strip()[:_LONGEST_ROW]
    found = _COMMAND.fullmatch(row) or _WORD.fullmatch(row)
    return None if found is None else (found["reason"] or "").strip()


def dismissed_by(thread: Thread, maintainers: frozenset[str]) -> Dismissed | None:
    """What a maintainer said of our first comment in this thread, the last word first; None when nobody dismissed."""
    for comment in reversed(thread.comments[1:]):
        reason = dismissal_in(comment.body)
        if reason is not None and _may_dismiss(comment) and comment.author in maintainers:
            return Dismissed(comment.author, reason)
    for who in thread.comments[0].disliked_by if thread.comments else ():
        if who in maintainers:
            return Dismissed(who, "")
    return None


def possible_maintainers(threads: Iterable[Thread]) -> tuple[str, ...]:
    """The people whose rights decide something in these threads, each once; those who replied come first."""
    listed = [thread for thread in threads if thread.comments]
    replied = [
        comment.author
        for thread in listed
        for comment in thread.comments[1:]
        if _may_dismiss(comment) and dismissal_in(comment.body) is not None
    ]
    disliked = [who for thread in listed for who in thread.comments[0].disliked_by]
    return tuple(dict.fromkeys(name for name in (*replied, *disliked) if name))


def _may_dismiss(comment: ThreadComment) -> bool:
    # Also a person under whose token we post: what we write ourselves begins with a mark, never with these words.
    return comment.association in _CLOSE


_ANSWERS = {
    MarkKind.GONE: AnswerKind.GONE,
    MarkKind.ASIDE: AnswerKind.ASIDE,
    MarkKind.BACK: AnswerKind.BACK,
}


class OwnThread(Struct, frozen=True, kw_only=True):
    """A thread that begins with a finding of ours. `reviewer` posted it; `last_word` is what we said in it last.

    `was_contradicted` tells that somebody said something after that.
    """

    thread: Thread
    key: str
    reviewer: str
    last_word: AnswerKind | None
    was_contradicted: bool
    dismissed: Dismissed | None


def own_threads(
    threads: Iterable[Thread], marker: Marker, *, maintainers: frozenset[str] = frozenset()
) -> tuple[OwnThread, ...]:
    """Those whose first comment is by us and bears a mark of ours; all others are nobody's business here."""
    found: list[OwnThread] = []
    for thread in threads:
        mark = _first_mark(thread, marker)
        if mark is not None:
            last_word, was_contradicted = _last_word(thread, mark.key, marker)
            found.append(
                OwnThread(
                    thread=thread,
                    key=mark.key,
                    reviewer=mark.detail,
                    last_word=last_word,
                    was_contradicted=was_contradicted,
                    dismissed=dismissed_by(thread, maintainers),
                )
            )
    return tuple(found)


def with_other_signature(pull_request: PullRequest, marker: Marker) -> int:
    """How many comments under our account bear a mark that was signed with another key."""
    firsts = [
        (thread.comments[0].is_ours, thread.comments[0].body) for thread in pull_request.threads if thread.comments
    ]
    others = [(comment.is_ours, comment.body) for comment in pull_request.comments]
    return sum(is_ours and marker.looks_marked(body) for is_ours, body in (*firsts, *others))


def matched(
    threads: Sequence[OwnThread], findings: Sequence[Finding], *, places: DiffPlaces
) -> dict[int, tuple[OwnThread, ...]]:
    """The threads about each finding, by its index, the oldest first.

    A fingerprint may come back in another file when code was copied. So a thread on another file is taken for a
    finding's only when its own file is not in the diff any more: then it was renamed.
    """
    by_key: defaultdict[str, list[OwnThread]] = defaultdict(list)
    for own in threads:
        by_key[own.key].append(own)
    found: dict[int, tuple[OwnThread, ...]] = {}
    for index, finding in enumerate(findings):
        candidates = by_key.get(key_of(finding), ())
        here = tuple(own for own in candidates if own.thread.path == finding.file)
        moved = tuple(own for own in candidates if own.thread.path not in places)
        if here or moved:
            found[index] = here or moved
    return found


def double_comments(threads: Iterable[OwnThread]) -> tuple[int, ...]:
    """The comments that repeat an older one of ours, which two runs at once may leave. One with an answer stays."""
    said: set[tuple[str, str]] = set()
    doubles: list[int] = []
    for own in sorted(threads, key=lambda each: each.thread.comments[0].comment_id):
        first, *answers = own.thread.comments
        if (own.key, own.thread.path) not in said:
            said.add((own.key, own.thread.path))
        elif not answers and not first.disliked_by:
            doubles.append(first.comment_id)
    return tuple(doubles)


def _first_mark(thread: Thread, marker: Marker) -> Mark | None:
    if not thread.comments or not thread.comments[0].is_ours:
        return None
    mark = marker.read(thread.comments[0].body)
    return mark if mark is not None and mark.kind is MarkKind.FINDING else None


def _last_word(thread: Thread, key: str, marker: Marker) -> tuple[AnswerKind | None, bool]:
    for behind, comment in enumerate(reversed(thread.comments[1:])):
        mark = marker.read(comment.body) if comment.is_ours else None
        if mark is not None and mark.key == key and mark.kind in _ANSWERS:
            return _ANSWERS[mark.kind], behind > 0
    return None, False


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
