"""The tokens of JSON as models really write them: loose keys, strings, words and comments.

Every look ahead is bounded or covers text that no other look covers, so reading stays linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from math import isfinite
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.flaws import CutText
from codeloupe.engine.parse.patterns import late

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
# A key that lacks a quote or its colon, with a value behind it.
_POOR_KEY = late(
    rf"""({_QUOTED_KEY})\s*+(?:=>?|:=)?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)
    | (["'“‘]?[A-Za-z_][\w-]{{0,60}}["'”’]?)\s*+[:=]>?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)""",
    re.VERBOSE,
)
_COMMENTS = r"(?:(?://|\#)[^\n]{0,300}\n|/\*[^*]{0,300}\*/)"
# What may stand behind a value in an object. Without a comma, a comment must lead to the end or to a key, since code
# that is quoted has comments too. The last alternative is a text that ends in the next key.
_BEHIND_MEMBER = late(
    rf"""\s*+(?:
        {_COMMENTS}? \s*+ (?: [}}\]] | (?:{_QUOTED_KEY})\s*+: ) | ``` | ~~~ | \Z
        | ,\s*+(?: {KEY} | [}}\]] | {_COMMENT} | ``` | ~~~ | (?:["'“][^"'”\n]{{0,200}}["'”]?\s*+)?\Z )
    )""",
    re.VERBOSE,
)
_BARE_TEXT = late(
    rf"""([^\s"'“”‘’{{}}\[\],:][^"'“”‘’{{}}\[\]\n]{{0,500}}+)["'”’](?=\s*+(?:[}}\]]|[,;]\s*+(?:{_QUOTED_KEY})\s*+:|\Z))"""
)
_BEHIND_WORD = late(rf"\s*+(?:[,}}\]]|(?:{_QUOTED_KEY})\s*+:|{_COMMENT}|```|~~~|\Z)")
_CLOSING = {'"': '["]', "'": "[']", "“": '[“”"]', "”": '[“”"]', "‘": "[‘’']", "’": "[‘’']"}
_CLOSERS = {quote: late(rf"{closing}|\\.?", re.DOTALL) for quote, closing in _CLOSING.items()}
_CLOSERS_ON_LINE = {quote: late(rf"{closing}|\n|\\.?") for quote, closing in _CLOSING.items()}
# Where a string with quotes in it that nobody escaped does not go on: at a fence and at a new document.
_NEW_START = late(r"\n(?:\{|```|~~~)")
_MAX_BLANKS = 40
_MAX_SOUND_MEMBERS = 5
_COST_OF_MEMBERS = 500
# What stands behind the last value of an object, when that is one in a list or at the end of all.
_BEHIND_LAST = late(r"""\s*+\}\s*+(?:,\s*+(?:\{|"[^"\n]{0,60}"\s*+:)|,?\s*+\]|\{|\}|```|~~~|\Z)""")
_BEHIND_ALL = late(r"""\s*+(?:```|~~~|,?\s*+(?:["'“][^"'”\n]{0,200}["'”]?\s*+)?\Z)""")
_NEXT_KEY = late(
    rf"""\s*+[,;]?\s*+{_COMMENTS}?\s*+(?:
        ["'“‘]([A-Za-z][\w-]{{0,40}})(?:["'”’]\s*+(?:[:=]|(?=["'“‘\[{{\d]))|\s*+:\s*+["'“‘])
        | ([A-Za-z][\w-]{{0,40}})["'”’]\s*+: )""",
    re.VERBOSE,
)
# A key between two quotes of one string: then it is two strings.
_INNER_KEY = late(
    r"""[,;\n]\s*+(?:(["'“‘])([^"'“”‘’\n]{0,60})["'”’]\s*+(?::|=|(?=["'“‘]))|["'“‘]?([A-Za-z][\w-]{0,40})["'”’]?\s*+:)"""
)
_REST_OF_KEY = late(r"([A-Za-z][\w-]{0,40})[\"'”’]\s*+:")
_STRICT_KEY = late(r'\s*+,?\s*+"((?:[^"\\\n]|\\.){0,200})"\s*+:\s*+')
_TRAILING_COMMA = late(r"\s*+,\s*+\}")
_VALUES = json.JSONDecoder()
# The names that answers have for their fields.
OUR_KEYS = frozenset(
    (
        *("file", "file_path", "filepath", "filename", "path", "location", "line", "lines", "line_start", "line_end"),
        *("start_line", "end_line", "line_number", "quote", "evidence", "code", "snippet", "title", "headline"),
        *("message", "description", "issue", "problem", "body", "details", "explanation", "category", "severity"),
        *("priority", "confidence", "confidence_score", "suggestion", "suggested_fix", "replacement", "fix"),
        *("recommendation", "rule", "rule_id", "findings", "issues", "verdict", "summary", "passed", "reason", "proof"),
    )
)
_MAX_INNER_CHARACTERS = 20_000
_ESCAPE = late(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})|\\'|[\\\"]")
_WORD = late(r"[^\s,:{}\[\]\"'“”‘’`]++")
_NUMBER = late(r"[-+]?(?:\d{1,18}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?")
_BLANK = late(r"[\s\ufeff\u200b]*+(?:(//|#)[^\n]*+|(/\*))?")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NOT_NUMBERS = {"nan", "infinity", "-infinity", "+infinity", "inf", "-inf"}


class LooseText:
    """A text to read loosely.

    `patience` is how many characters may still be looked at to find the ends of strings that hold quotes which nobody
    escaped.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.patience = len(text) // 2 + _MAX_INNER_CHARACTERS
        self.last_comment_end = text.rfind("*/")

    def spend(self, characters: int) -> None:
        """Take so much from the patience."""
        self.patience -= characters


class Token(Struct, frozen=True):
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


def poor_key_at(text: str, position: int) -> Token | None:
    """The key of a member that lacks a quote or its colon, and where its value begins, or None."""
    match = _POOR_KEY.match(text, position)
    if match is None:
        return None
    name = (match[1] or match[2]).strip(QUOTES)
    return Token(name, match.end()) if name.lower() in OUR_KEYS or match[1] else None


def bare_text_at(text: str, position: int) -> Token | None:
    """A text without its first quote, which ends before the next key or the end of the object, or None."""
    match = _BARE_TEXT.match(text, position)
    return Token(match[1].strip(), match.end()) if match else None


def string_in_object(source: LooseText, position: int, known: Container[str] = ()) -> Token:
    """The string that begins here; its lines may end. One that does not end is a CutText.

    A quote ends it only where the next thing fits: models forget to escape quotes. Where what follows might as well be
    quoted code, the string goes on to the next quote that surely ends it, if there is one. Where no quote fits, the
    first one ends it and the token is not clean. `known` are the keys that the object has already.
    """
    text, closer = source.text, _CLOSERS[source.text[position]]
    start, first, limit = position + 1, -1, len(text)
    position = start
    possible = None
    while (match := closer.search(text, position)) and match.start() <= limit:
        position = match.end()
        if match[0][0] == "\\":
            continue
        if _surely_ends(text, position, known, is_first=possible is None):
            break
        if possible is None and (end := _forgotten_end(text, start, match.start(), known)) is not None:
            return Token(decoded(text[start:end]), match.start())
        if possible is None and _BEHIND_MEMBER.match(text, position):
            possible = match
            if _has_sound_members(source, position):
                break
        if first < 0:
            first, limit = match.start(), _inner_limit(source, match.start())
    else:
        match = possible
    if match is not possible and first >= 0 and _holds_key(text, (start, first, match), known):
        match = possible
    source.spend(position - start if first >= 0 else 0)
    return _string(text, start, first, match)


def _string(text: str, start: int, first: int, match: re.Match[str] | None) -> Token:
    """The string that ends with a match; without one at its first quote, or with the text where it has none."""
    if match is not None:
        return Token(decoded(text[start : match.start()]), match.end())
    if first < 0:
        return Token(CutText(decoded(text[start:])), len(text))
    return Token(decoded(text[start:first]), first + 1, clean=bool(_BEHIND_WORD.match(text, first + 1)))


def _surely_ends(text: str, position: int, known: Container[str], *, is_first: bool) -> bool:
    """Whether what stands behind a quote can hardly be code: a key of ours, the end of an item, or of all."""
    if _BEHIND_LAST.match(text, position) or (is_first and _BEHIND_ALL.match(text, position)):
        return True
    key = _NEXT_KEY.match(text, position)
    return key is not None and _is_ours(key[1] or key[2], known)


def _holds_key(text: str, span: tuple[int, int, re.Match[str] | None], known: Container[str]) -> bool:
    """Whether a string that goes on behind its first quote would take in a member of its object.

    What stands in braces of its own is code.
    """
    position, first, closing = span
    if closing is None:
        return False
    depth = 0
    for found in _INNER_KEY.finditer(text, max(position, first - _MAX_BLANKS), closing.start()):
        depth += text.count("{", position, found.start()) - text.count("}", position, found.start())
        position = found.start()
        is_member = found[1] and text[found.end() - 1] == ":"
        if depth <= 0 and (is_member or _is_ours(found[2] or found[3] or "", known)):
            return True
    return False


def _is_ours(key: str, known: Container[str]) -> bool:
    return key.lower().replace("-", "_") in OUR_KEYS and key not in known


def _forgotten_end(text: str, start: int, position: int, known: Container[str]) -> int | None:
    """Where a string ends whose own quote was forgotten: before the comma or the line end in front of the next key."""
    key = _REST_OF_KEY.match(text, position + 1)
    if key is None or not _is_ours(key[1], known):
        return None
    before = text[max(start, position - _MAX_BLANKS) : position]
    bare = before.rstrip()
    if bare.endswith(","):
        return position - len(before) + len(bare) - 1
    return position - len(before) + len(bare) if "\n" in before[len(bare) :] else None


def _has_sound_members(source: LooseText, position: int) -> bool:
    """Whether what stands behind a quote is strict JSON up to the end of the object, or to a key of ours.

    Without patience it is taken for that.
    """
    text = source.text
    if source.patience <= 0:
        return True
    source.spend(_COST_OF_MEMBERS)
    for _ in range(_MAX_SOUND_MEMBERS):
        key = _STRICT_KEY.match(text, position)
        if key is None:
            return False
        if key[1] in OUR_KEYS:
            return True
        try:
            _, position = _VALUES.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            return False
        if _BEHIND_LAST.match(text, position) or _TRAILING_COMMA.match(text, position):
            return True
    return True


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
