"""What words say: that nothing was found, that there is a serious defect, or that not everything was said."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codeloupe.system.regex import regex

_MAX_CHARACTERS = 20_000
_EDGES = "\"'`~*_#>-–—•✅👍🎉✔\ufe0f\ufeff \t\r\n"
_COLOUR = regex(r"\x1b\[[0-9;]{0,20}m")
# The words and patterns of this room, which says what each of them means.
WORDING: dict[str, Any] = tomllib.loads(Path(__file__).with_name("wording.toml").read_text(encoding="utf-8"))


def _texts(section: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in WORDING[section].items():
        text = value if isinstance(value, str) else f"(?:{'|'.join(value)})"
        for above, meaning in texts.items():
            text = text.replace(f"<{above}>", meaning)
        texts[name] = text
    return texts


_PATTERNS = {name: regex(text, re.IGNORECASE | re.MULTILINE) for name, text in _texts("patterns").items()}
NAMES = {name: tuple(text.split()) for name, text in WORDING["names"].items()}
WORDS = {name: frozenset(text.split()) for name, text in _texts("words").items()}
NOTHING = WORDS["nothing"] | {""}


def folded(text: str) -> str:
    """A text as it is read by people: wide letters as plain ones, and without characters that are not seen."""
    if text.isascii():
        return text
    return "".join(letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) != "Cf")


def says_clean(text: str) -> bool:
    """Whether each sentence says that nothing was found, or praises, and at least one does the former."""
    if len(text) > 500:
        return False
    clean = []
    for part in re.split(r"[.!\n]", text.replace("’", "'")):
        words = " ".join(part.strip(_EDGES).lower().split())
        words = words[label.end() :] if (label := _PATTERNS["label"].match(words)) else words
        if words:
            clean.append(bool(_PATTERNS["clean"].fullmatch(words)))
            if not clean[-1] and not _PATTERNS["praise"].fullmatch(words):
                return False
    return any(clean)


def is_alarming(text: str) -> bool:
    """Whether a sentence describes a serious defect, or forbids to merge, and does not deny it."""
    clauses = _telling("alarm", _plain(text))
    return any(not denied or _PATTERNS["orders"].search(clause) for clause, denied in clauses)


def is_doubtful(text: str) -> bool:
    """Whether a text beside an empty list of findings may tell of a defect, or of something that was not read."""
    plain, well = _plain(text), _PATTERNS["reassurance"]
    return bool(_PATTERNS["mark"].search(plain)) or any(
        not denied and not well.search(clause) for clause, denied in _telling("doubt", plain)
    )


def _plain(text: str) -> str:
    return _PATTERNS["none_below"].sub(": ", _COLOUR.sub("", folded(text[:_MAX_CHARACTERS]).replace("’", "'")))


def _telling(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """Each clause with words of a pattern, and whether all of them in it are denied."""
    words = _PATTERNS[name]
    for clause in _PATTERNS["clause_end"].split(text) if words.search(text) else ():
        if spans := [match.span() for match in words.finditer(clause)]:
            before = _PATTERNS["denial"].search(clause)
            after = max((match.start() for match in _PATTERNS["denial_after"].finditer(clause)), default=-1)
            first = before.start() if before else len(clause)
            yield clause, all(first < start or end <= after for start, end in spans)


def is_reassuring(text: str) -> bool:
    """Whether a text says that something is well, or not there."""
    return any(_PATTERNS[name].search(text[:_MAX_CHARACTERS]) for name in ("denial", "reassurance"))


def upholds(text: str) -> bool:
    """Whether a text that is meant to refute a finding says that the finding is right, or that nobody could look."""
    return is_unfinished(text) or any(not denied for _, denied in _telling("upheld", _plain(text)))


def is_unfinished(text: str) -> bool:
    """Whether a text says that the answer, or the review, is not whole."""
    return bool(_PATTERNS["unfinished"].search(text[:_MAX_CHARACTERS]))
