"""What somebody probably meant by a word that codeloupe does not know."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_LONGEST_GUESSED_CHARACTERS = 60
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_SYNONYMS = {"files": "include", "ignore": "exclude", "paths": "include", "threshold": "fail_on"}


def closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that `word` most resembles: another spelling of it, its beginning, or a misspelling; or None.

    `failOn`, `fail-on` and `FAIL ON` are spellings of `fail_on`; `timeout` is the beginning of `timeout_seconds`.
    """
    if len(word) > _LONGEST_GUESSED_CHARACTERS:
        return None
    plain = _SEPARATORS.sub("_", _HUMP.sub("_", word).lower()).strip("_")
    if plain in known:
        return plain
    begun = [candidate for candidate in known if plain and candidate.startswith(f"{plain}_")]
    if len(begun) == 1:
        return begun[0]
    near = difflib.get_close_matches(plain, known, n=1, cutoff=cutoff)
    return near[0] if near else None


def closest_key(key: str, known: Sequence[str]) -> str | None:
    """`closest`, which also knows what other programs call some of our keys."""
    synonym = _SYNONYMS.get(key.lower())
    return synonym if synonym in known else closest(key, known)
