"""The keys of an entry of the baseline: how the text of each is read, and what is said when it cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import NamedTuple

from codeloupe.model.finding import Severity

LONGEST_TEXT = 4_096
NEEDED = ("fingerprint", "reason")
_FINGERPRINT = re.compile(r"[0-9a-f]{6,64}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Field(NamedTuple):
    """A key: how its text is read, which raises ValueError, what a message expects there, and what to do about it."""

    read: Callable[[str], object]
    expected: str
    hint: str


def parse_date(text: str) -> date:
    """A day as YYYY-MM-DD. Raises ValueError."""
    if not _DATE.fullmatch(text.strip()):
        raise ValueError("not a date")
    return date.fromisoformat(text.strip())


def parse_reason(text: str) -> str:
    """A reason, which has at least one letter or digit. Raises ValueError."""
    if len(text) > LONGEST_TEXT or not any(character.isalnum() for character in text):
        raise ValueError("not a reason")
    return text.strip()


def _fingerprint(text: str) -> str:
    if not _FINGERPRINT.fullmatch(text.strip().lower()):
        raise ValueError("not a fingerprint")
    return text.strip().lower()


_ANY = Field(str, "a text", "put it in quotes")
FIELDS: Mapping[str, Field] = {
    "fingerprint": Field(_fingerprint, "the fingerprint of a finding", "`codeloupe baseline add` writes entries"),
    "file": _ANY,
    "title": _ANY,
    "body": _ANY,
    "evidence": _ANY,
    "rule": _ANY,
    "severity": Field(Severity.parse, "critical, high, medium or low", "leave it out to cover any severity"),
    "reason": Field(parse_reason, "why this finding does not count", "say it in a few words"),
    "owner": _ANY,
    "expires": Field(parse_date, "a date such as 2030-12-31", "write it as YYYY-MM-DD"),
}
