"""The threads of ours on a pull request: which finding each is about, what was said in it, and who dismissed it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from codeloupe.forges.marker import Marker, MarkKind
from codeloupe.model.publication import AnswerKind, Thread, ThreadComment
from codeloupe.system.regex import regex

# Who may have the right to write. It is asked for before it is believed.
_CLOSE = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_COMMAND = regex(r"/codeloupe[ \t]{1,8}dismiss(?:[ \t:,.–—-]{1,8}(?P<reason>.*))?", re.IGNORECASE)
_WORD = regex(r"dismiss(?:[.!]?|[ \t]{0,8}[:–—-][ \t]{0,8}(?P<reason>.*))", re.IGNORECASE)
_ANSWERS = {MarkKind.GONE: AnswerKind.GONE, MarkKind.ASIDE: AnswerKind.ASIDE, MarkKind.BACK: AnswerKind.BACK}


class Dismissed(Struct, frozen=True):
    """Who dismissed, and why; the reason may be empty."""

    who: str
    reason: str


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

    @property
    def is_said_closed(self) -> bool:
        """Whether we said last that its finding is gone or does not count."""
        return self.last_word in (AnswerKind.GONE, AnswerKind.ASIDE)


def own_threads(
    threads: Iterable[Thread], marker: Marker, *, maintainers: frozenset[str] = frozenset()
) -> tuple[OwnThread, ...]:
    """Those whose first comment is by us and bears a mark of ours; all others are nobody's business here."""
    found: list[OwnThread] = []
    for thread in threads:
        first = thread.comments[0] if thread.comments else None
        mark = marker.read(first.body) if first is not None and first.is_ours else None
        if mark is None or mark.kind is not MarkKind.FINDING:
            continue
        last_word, was_contradicted = None, False
        for after, comment in enumerate(reversed(thread.comments[1:])):
            reply = marker.read(comment.body) if comment.is_ours else None
            if reply is not None and reply.key == mark.key and reply.kind in _ANSWERS:
                last_word, was_contradicted = _ANSWERS[reply.kind], after > 0
                break
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


def dismissal_in(body: str) -> str | None:
    """The reason of a reply that dismisses, empty when it gives none; None for any other reply.

    It is `dismiss`, alone or with a reason after a colon or a dash, or `/codeloupe dismiss` and a reason, at the
    start of the reply. A sentence that has the word in it is none.
    """
    row = body.lstrip().split("\n", 1)[0].strip()[:1_000]
    found = _COMMAND.fullmatch(row) or _WORD.fullmatch(row)
    return None if found is None else (found["reason"] or "").strip()


def _dismissals(thread: Thread) -> list[tuple[ThreadComment, str]]:
    """The replies that dismiss, of people who may have the right to, with their reasons."""
    # Also of a person under whose token we post: what we write ourselves begins with a mark, never with these words.
    close = [comment for comment in thread.comments[1:] if comment.association in _CLOSE]
    return [(comment, reason) for comment in close if (reason := dismissal_in(comment.body)) is not None]


def dismissed_by(thread: Thread, maintainers: frozenset[str]) -> Dismissed | None:
    """What a maintainer said of our first comment in this thread, the last word first; None when nobody dismissed."""
    for comment, reason in reversed(_dismissals(thread)):
        if comment.author in maintainers:
            return Dismissed(comment.author, reason)
    disliked = thread.comments[0].disliked_by if thread.comments else ()
    return next((Dismissed(who, "") for who in disliked if who in maintainers), None)


def possible_maintainers(threads: Iterable[Thread]) -> tuple[str, ...]:
    """The people whose rights decide something in these threads, each once; those who replied come first."""
    listed = [thread for thread in threads if thread.comments]
    replied = [comment.author for thread in listed for comment, _ in _dismissals(thread)]
    disliked = [who for thread in listed for who in thread.comments[0].disliked_by]
    return tuple(dict.fromkeys(filter(None, (*replied, *disliked))))
