"""Marks in comments that only we can have made, the threads that begin with one, and who dismissed what they say."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model import Confidential
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, Thread
from codeloupe.system.regex import regex

# Who may have the right to write. It is asked for before it is believed.
_CLOSE = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_COMMAND = regex(r"/codeloupe[ \t]{1,8}dismiss(?:[ \t:,.–—-]{1,8}(?P<reason>.*))?", re.IGNORECASE)
_WORD = regex(r"dismiss(?:[.!]?|[ \t]{0,8}[:–—-][ \t]{0,8}(?P<reason>.*))", re.IGNORECASE)
_PREFIX = "<!-- codeloupe:1 "
_DIGITS = 32
_LETTERS = "0-9A-Za-z._+-"
_MARK = regex(rf"{_PREFIX}([a-z]{{1,16}}) ([{_LETTERS}]{{1,128}}) ([{_LETTERS}]{{1,128}}) ([0-9a-f]{{{_DIGITS}}}) -->")
_FINGERPRINT = regex(rf"[{_LETTERS}]{{8,128}}")


# What a mark is on.
MarkKind = StrEnum("MarkKind", "SUMMARY REVIEW FINDING GONE ASIDE BACK")


class Mark(Struct, frozen=True):
    """What a comment is about: a finding's key, or a commit; `detail` says more, `-` is nothing."""

    kind: MarkKind
    key: str
    detail: str = "-"


class SigningKey(Confidential, frozen=True):
    """What marks are signed with.

    Made from a secret, nobody else can make a mark, also no other program that posts under the same account. Without
    one it is made from public facts: then a mark tells only that a comment belongs to this pull request, and that it
    is ours is known by its author alone.
    """

    material: bytes

    @classmethod
    def from_secret(cls, secret: str) -> SigningKey:
        """Raises UsageError for a secret that is too short to be one."""
        if len(secret.strip()) < 16:
            what = "the signing key has fewer than 16 characters"
            raise UsageError(what, hint="use a long random string, such as the output of `openssl rand -hex 32`")
        return cls(hashlib.sha256(b"codeloupe publish\0" + secret.strip().encode()).digest())

    @classmethod
    def public(cls) -> SigningKey:
        """The one that anybody can make."""
        return cls(hashlib.sha256(b"codeloupe publish, without a secret").digest())


class Marker(Struct, frozen=True):
    """Makes and reads the marks of one pull request. The repository goes by its number, which outlives its name."""

    key: SigningKey
    repository_id: int
    number: int

    def line(self, mark: Mark) -> str:
        """The first line of a comment."""
        return f"{_PREFIX}{mark.kind.value} {mark.key} {mark.detail} {self._signature(mark)} -->"

    def read(self, body: str) -> Mark | None:
        """The mark on a comment, or None when it has none of ours."""
        found = _MARK.fullmatch(body[:400].split("\n", 1)[0].rstrip())
        if found is None or found[1] not in MarkKind.__members__.values():
            return None
        mark = Mark(MarkKind(found[1]), found[2], found[3])
        return mark if hmac.compare_digest(self._signature(mark), found[4]) else None

    def looks_marked(self, body: str) -> bool:
        """Whether there is a mark that another key may have signed."""
        return body.startswith(_PREFIX) and self.read(body) is None

    def _signature(self, mark: Mark) -> str:
        parts = (str(self.repository_id), str(self.number), mark.kind.value, mark.key, mark.detail)
        return hmac.new(self.key.material, "\0".join(parts).encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def key_of(finding: Finding) -> str:
    """The name under which a finding is known on the pull request: its fingerprint, or a digest in place of one."""
    if _FINGERPRINT.fullmatch(finding.fingerprint):
        return finding.fingerprint
    parts = (finding.fingerprint, finding.file, finding.category, finding.title, finding.evidence)
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"x{hashlib.sha256(text).hexdigest()[:_DIGITS]}"


def word_of(text: str) -> str:
    """A text as one word of a mark."""
    return re.sub(rf"[^{_LETTERS}]", "_", text[:100]) or "-"


class OwnThread(Struct, frozen=True, kw_only=True):
    """A thread that begins with a finding of ours. `reviewer` posted it; `last_word` is what we said in it last.

    `was_contradicted` means that somebody said something after that. `dismissed` has who dismissed it, and why.
    """

    thread: Thread
    key: str
    reviewer: str
    last_word: AnswerKind | None
    was_contradicted: bool
    dismissed: tuple[str, str] | None

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
        marks = [marker.read(comment.body) if comment.is_ours else None for comment in thread.comments]
        if not marks or (mark := marks[0]) is None or mark.kind is not MarkKind.FINDING:
            continue
        last_word, was_contradicted = None, False
        for after, reply in enumerate(reversed(marks[1:])):
            if reply is not None and reply.key == mark.key and reply.kind.value in AnswerKind.__members__.values():
                last_word, was_contradicted = AnswerKind(reply.kind.value), after > 0
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


def _replies(thread: Thread) -> list[tuple[str, str]]:
    """Who replied to dismiss and may have the right to, with the reason, the oldest first."""
    # Also of a person under whose token we post: what we write ourselves begins with a mark, never with these words.
    close = [comment for comment in thread.comments[1:] if comment.association in _CLOSE]
    return [(each.author, reason) for each in close if (reason := dismissal_in(each.body)) is not None]


def dismissed_by(thread: Thread, maintainers: frozenset[str]) -> tuple[str, str] | None:
    """Which maintainer dismissed our first comment, and why; the last reply counts, then a thumb down."""
    disliked = [(who, "") for first in thread.comments[:1] for who in first.disliked_by]
    return next((each for each in [*reversed(_replies(thread)), *disliked] if each[0] in maintainers), None)


def possible_maintainers(threads: Iterable[Thread]) -> tuple[str, ...]:
    """The people whose rights decide something in these threads, each once; those who replied come first."""
    listed = list(threads)
    replied = [who for thread in listed for who, _ in _replies(thread)]
    disliked = [who for thread in listed for first in thread.comments[:1] for who in first.disliked_by]
    return tuple(dict.fromkeys(filter(None, (*replied, *disliked))))
