"""Findings that a maintainer set aside on the pull request: by a reply, or by a thumb down."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from codeloupe.model.publication import Thread, ThreadComment

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
