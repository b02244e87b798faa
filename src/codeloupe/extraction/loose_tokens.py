"""The tokens of JSON as models really write them: loose keys, strings, words and comments.

Every look ahead is bounded or covers text that no other look covers, so reading stays linear.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from codeloupe.extraction.flaws import CutText
from codeloupe.extraction.patterns import late
from codeloupe.model.records import dataclass

FENCES = ("```", "~~~")
QUOTES = "\"'“”‘’"

_QUOTED_KEY = (
    r'"(?:[^"\\\n]|\\.){0,200}"'
    r"|'(?:[^'\\\n]|\\.){0,200}'"
    r'|[“”](?:[^“”"\\\n]|\\.){0,200}[“”"]'
    r"|‘[^‘’\n]{0,200}’"
)
_BARE_KEY = r"[A-Za-z_$][\w$.-]{0,200}"
_COMMENT = r"//|/\*|\#"
KEY = rf"({_QUOTED_KEY}|{_BARE_KEY})\s*+:"
_KEY = late(KEY)
_COMMENTS = r"(?:(?://|\#)[^\n]{0,300}\n|/\*[^*]{0,300}\*/)"
# What may stand behind a value in an object. Without a comma, a comment must lead to the end or to a key, since code
# that is quoted has comments too. The last alternative is a text that ends in the next key.
_BEHIND_MEMBER = late(
    rf"""\s*+(?:
        {_COMMENTS}? \s*+ (?: [}}\]] | (?:{_QUOTED_KEY})\s*+: ) | ``` | ~~~ | \Z
        | ,\s*+(?: {KEY} | [}}\]] | {_COMMENT} | ``` | ~~~ | (?:["'“][^"'”\n]{{0,200}})?\Z )
    )""",
    re.VERBOSE,
)
_BEHIND_WORD = late(rf"\s*+(?:[,}}\]]|(?:{_QUOTED_KEY})\s*+:|{_COMMENT}|```|~~~|\Z)")
_CLOSING = {'"': '["]', "'": "[']", "“": '[“”"]', "”": '[“”"]', "‘": "[‘’']", "’": "[‘’']"}
_CLOSERS = {quote: late(rf"{closing}|\\.?", re.DOTALL) for quote, closing in _CLOSING.items()}
_CLOSERS_ON_LINE = {quote: late(rf"{closing}|\n|\\.?") for quote, closing in _CLOSING.items()}
# Where a string with quotes in it that nobody escaped does not go on: at a fence, at a new document, and at what looks
# like a further member or item, for then it may be another quote that is missing.
_NEW_START = late(r"\n(?:\{|```|~~~)|[\"'”’]\s{0,3}(?::\s{0,3}[\"'“‘\[{\d]|,\s{0,3}[\"'“‘])")
_MAX_INNER_CHARACTERS = 20_000
_ESCAPE = late(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})|\\'|[\\\"]")
_WORD = late(r"[^\s,:{}\[\]\"'“”‘’`]++")
_NUMBER = late(r"[-+]?(?:\d{1,18}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?")
_BLANK = late(r"[\s\ufeff\u200b]*+(?:(//|#)[^\n]*+|(/\*))?")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NOT_NUMBERS = {"nan", "infinity", "-infinity", "+infinity", "inf", "-inf"}


class LooseText:
    """A text to read loosely.

    `patience` is how often it is still tried to find the end of a string that holds quotes nobody escaped.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.patience = 50
        self.last_comment_end = text.rfind("*/")


@dataclass(frozen=True, slots=True)
class Token:
    """A value and where it ends. `clean` is off where what follows cannot follow a value."""

    value: Any
    end: int
    clean: bool = True


def blank_end(source: LooseText, position: int) -> int:
    """The place behind blanks and comments."""
    while match := _BLANK.match(source.text, position):
        position = match.end()
        if match[2]:
            if position > source.last_comment_end:
                return match.start(2)
            position = source.text.find("*/", position) + len("*/")
        elif not match[1]:
            break
    return position


def key_at(text: str, position: int) -> Token | None:
    """The key of a member and the place behind its colon, or None."""
    match = _KEY.match(text, position)
    if match is None:
        return None
    key = match[1]
    return Token(decoded(key[1:-1]) if key[0] in QUOTES else key, match.end())


def string_in_object(source: LooseText, position: int) -> Token:
    """The string that begins here; its lines may end. One that does not end is a CutText.

    A quote ends it only where the next thing fits: models forget to escape quotes. Where no quote fits, the first one
    ends it and the token is not clean.
    """
    text, closer = source.text, _CLOSERS[source.text[position]]
    start, first, limit = position + 1, -1, len(text)
    position = start
    while (match := closer.search(text, position)) and match.start() <= limit:
        position = match.end()
        if match[0][0] == "\\":
            continue
        if _BEHIND_MEMBER.match(text, position):
            return Token(decoded(text[start : match.start()]), position)
        if first < 0:
            first, limit = match.start(), _inner_limit(source, match.start())
    if first < 0:
        return Token(CutText(decoded(text[start:])), len(text))
    source.patience -= 1
    return Token(decoded(text[start:first]), first + 1, clean=bool(_BEHIND_WORD.match(text, first + 1)))


def _inner_limit(source: LooseText, position: int) -> int:
    """How far a string may go on behind a quote in it."""
    if source.patience <= 0:
        return position
    furthest = min(len(source.text), position + _MAX_INNER_CHARACTERS)
    new_start = _NEW_START.search(source.text, position, furthest)
    return new_start.start() if new_start else furthest


def string_in_list(text: str, position: int) -> Token | None:
    """The string that begins here and ends at the first quote on its line, or None."""
    start, closer = position + 1, _CLOSERS_ON_LINE[text[position]]
    position = start
    while match := closer.search(text, position):
        position = match.end()
        if match[0] == "\n":
            return None
        if match[0][0] != "\\":
            return Token(decoded(text[start : match.start()]), position)
    return Token(CutText(decoded(text[start:])), len(text))


def word_at(text: str, position: int) -> Token | None:
    """A number, a literal or a bare word with what fits behind it, or None. None, too, for a word that may be cut."""
    match = _WORD.match(text, position)
    if match is None or match.end() == len(text) or not _BEHIND_WORD.match(text, match.end()):
        return None
    return Token(_meaning(match[0]), match.end())


def plain_value_at(text: str, position: int) -> Token | None:
    """A number or a literal, or None: what else stands in a list is stray text."""
    match = _WORD.match(text, position)
    if match is None or match.end() == len(text) or isinstance(value := _meaning(match[0]), str):
        return None
    return Token(value, match.end())


def _meaning(word: str) -> Any:
    lower = word.lower()
    if lower in _LITERALS:
        return _LITERALS[lower]
    if lower in _NOT_NUMBERS:
        return None
    if _NUMBER.fullmatch(word):
        number = float(word)
        if not isfinite(number):
            return None
        return int(word) if word.lstrip("+-").isdigit() else number
    return word


def decoded(raw: str) -> str:
    """The text between the quotes of a string, with wrong escapes left as they stand."""
    if "\\" not in raw:
        return raw
    value: str = json.loads(f'"{_ESCAPE.sub(_sound_escape, raw)}"', strict=False)
    return value


def _sound_escape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape == "\\'":
        return "'"
    return escape if len(escape) > 1 else f"\\{escape}"
