"""Marks in comments that only we can have made, so that what is ours on a pull request is known."""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model import Confidential
from codeloupe.model.finding import Finding
from codeloupe.system.regex import regex

_PREFIX = "<!-- codeloupe:1 "
_DIGITS = 32
_LETTERS = "0-9A-Za-z._+-"
_MARK = regex(rf"{_PREFIX}([a-z]{{1,16}}) ([{_LETTERS}]{{1,128}}) ([{_LETTERS}]{{1,128}}) ([0-9a-f]{{{_DIGITS}}}) -->")
_FINGERPRINT = regex(rf"[{_LETTERS}]{{8,128}}")


class MarkKind(StrEnum):
    """What a mark is on."""

    SUMMARY = "summary"
    REVIEW = "review"
    FINDING = "finding"
    GONE = "gone"
    ASIDE = "aside"
    BACK = "back"


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
    is_secret: bool

    @classmethod
    def from_secret(cls, secret: str) -> SigningKey:
        """Raises UsageError for a secret that is too short to be one."""
        if len(secret.strip()) < 16:
            raise UsageError(
                "the signing key has fewer than 16 characters",
                hint="give a long random text, such as that of `openssl rand -hex 32`",
            )
        return cls(hashlib.sha256(b"codeloupe publish\0" + secret.strip().encode()).digest(), is_secret=True)

    @classmethod
    def public(cls) -> SigningKey:
        """The one that anybody can make."""
        return cls(hashlib.sha256(b"codeloupe publish, without a secret").digest(), is_secret=False)


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
