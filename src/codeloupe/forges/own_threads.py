"""The threads of ours on a pull request, and which finding of a review each one is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from codeloupe.forges.diff_places import DiffPlaces
from codeloupe.forges.dismissal import Dismissed, dismissed_by
from codeloupe.forges.marker import Mark, Marker, MarkKind, key_of
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, PullRequest, Thread

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
