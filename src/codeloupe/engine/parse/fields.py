"""The fields of an object that a model wrote: found under any of their names, taken only when they are of use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_MAX_NAME_CHARACTERS = 64
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"\s*(\d{1,3}(?:\.\d{1,20})?|\.\d{1,20})\s*(%?)\s*")
# Letters of other scripts that look like those of ours.
_LOOK_ALIKES = dict(
    zip(
        (
            0x430,
            0x435,
            0x43E,
            0x440,
            0x441,
            0x445,
            0x443,
            0x456,
            0x455,
            0x458,
            0x501,
            0x4BB,
            0x4CF,
            0x3BD,
            0x3BF,
            0x3B9,
            0x3B1,
            0x3B5,
            0x3C1,
            0x3BA,
        ),
        "aeopcxyisjdhlvoiaepk",
        strict=True,
    )
)


class Fields:
    """An object by names in one spelling: `filePath`, `File-Path` and `file path` are `file_path`."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members: dict[str, Any] = {}
        for name, value in members.items():
            self._members.setdefault(plain_name(name), value)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def get(self, *names: str) -> Any:
        """The first value under these names that is not null, or None."""
        return next((value for name in names if (value := self._members.get(name)) is not None), None)

    def has_any(self, names: Iterable[str]) -> bool:
        """Whether one of these names is there, with whatever value."""
        return any(name in self._members for name in names)

    def text(self, *names: str, most: int) -> str:
        """The first text under these names that is not blank, cut at `most` characters; nothing if there is none."""
        for name in names:
            value = self._members.get(name)
            if isinstance(value, str) and value.strip():
                return value[:most]
        return ""

    def object(self, *names: str) -> Fields | None:
        """The first object under these names, or None."""
        for name in names:
            value = self._members.get(name)
            if isinstance(value, Mapping):
                return Fields(value)
        return None


def folded(text: str) -> str:
    """A text as it is read by people: wide letters as plain ones, and without characters that are not seen."""
    if text.isascii():
        return text
    return "".join(letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) != "Cf")


@lru_cache(maxsize=1024)
def _plain_name(name: str) -> str:
    if not name.isascii():
        name = folded(name).translate(_LOOK_ALIKES)
    return _WORD_START.sub("_", name.strip()).replace("-", "_").replace(" ", "_").lower()


def plain_name(name: object) -> str:
    """A name in the one spelling."""
    return _plain_name(name[:_MAX_NAME_CHARACTERS]) if isinstance(name, str) else ""


def share(value: object) -> float | None:
    """A confidence between 0 and 1. What is above 1 is taken for percent; what is no such number is None."""
    is_percent = False
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value[:_MAX_NAME_CHARACTERS])
        if match is None:
            return None
        value, is_percent = float(match[1]), bool(match[2])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    number = value / 100 if is_percent or value > 1 else float(value)
    return number if number <= 1 else None
