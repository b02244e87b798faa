"""Every JSON value in a text, whatever is around it: read strictly, and loosely only where that failed.

The loose reader never goes back, and takes nothing that is not in the text. It accepts trailing and missing commas,
comments, other quotes, bare keys and words, Python literals, raw line ends, text between items, and missing brackets
at the end. What it cannot read leaves a flaw on the object that held it. Every look ahead is bounded or covers text
that no other look covers, so reading stays linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct

from codeloupe.system.json_text import MAX_DEPTH, late, parsed, refuse_constant, refuse_unsound, string_end


def words(text: str) -> tuple[str, ...]:
    """The words of a text, to look some up in."""
    return tuple(text.split())


MAX_CHARACTERS = 10 * 1024 * 1024
TRUNCATED = "truncated"
_MAX_KEY_CHARACTERS = 100
_MAX_VALUES = 10_000
_MAX_CONTAINERS = 200_000
_MAX_OTHERS = 100  # Of a key that one object has many times.
_MAX_BLANKS = 40
_MAX_SOUND_MEMBERS = 5
_COST_OF_MEMBERS = 500
_MAX_INNER_CHARACTERS = 20_000
_DANGLING_CHARACTERS = 300
_FENCES = ("```", "~~~")
_QUOTES = "\"'“”‘’"

_QUOTED_KEY = (
    r'"(?:[^"\\\n]|\\.){0,200}"'
    r"|'(?:[^'\\\n]|\\.){0,200}'"
    r'|[“”](?:[^“”"\\\n]|\\.){0,200}[“”"]'
    r"|‘[^‘’\n]{0,200}’"
)
_KEY_TEXT = rf"({_QUOTED_KEY}|[A-Za-z_$][\w$.-]{{0,200}})\s*+:"
_COMMENT_START = r"//|/\*|\#"
_COMMENT = r"(?:(?://|\#)[^\n]{0,300}\n|/\*[^*]{0,300}\*/)"
_OPENER = late(
    rf"""\{{ (?=\s*+(?:{_COMMENT}\s*+)?(?: \}} | {_KEY_TEXT} ))
    | \[ (?=\s*+(?:{_COMMENT}\s*+)?(?: [\[{{\]"'“\d-] | (?:[Tt]rue|[Ff]alse|null|None)\b ))""",
    re.VERBOSE,
)
# A text that ends in the first key of an object.
_DANGLING = late(r"\{\s*+(?:\"[^\"\n]{0,200}+\"?)?\Z")
_KEY = late(_KEY_TEXT)
# A key that lacks a quote or its colon, with a value after it.
_POOR_KEY = late(
    rf"""({_QUOTED_KEY})\s*+(?:=>?|:=)?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)
    | (["'“‘]?[A-Za-z_][\w-]{{0,60}}["'”’]?)\s*+[:=]>?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)""",
    re.VERBOSE,
)
# What may follow a value in an object. Without a comma, a comment must lead to the end or to a key, since code that is
# quoted has comments too. The last alternative is a text that ends in the next key.
_AFTER_MEMBER = late(
    rf"""\s*+(?:
        {_COMMENT}? \s*+ (?: [}}\]] | (?:{_QUOTED_KEY})\s*+: ) | ``` | ~~~ | \Z
        | ,\s*+(?: {_KEY_TEXT} | [}}\]] | {_COMMENT_START} | ``` | ~~~ | (?:["'“][^"'”\n]{{0,200}}["'”]?\s*+)?\Z )
    )""",
    re.VERBOSE,
)
# A text without its first quote, which ends before the next key or the end of the object.
_BARE_TEXT = late(
    rf"""([^\s"'“”‘’{{}}\[\],:][^"'“”‘’{{}}\[\]\n]{{0,500}}+)["'”’](?=\s*+(?:[}}\]]|[,;]\s*+(?:{_QUOTED_KEY})\s*+:|\Z))"""
)
_AFTER_WORD = late(rf"\s*+(?:[,}}\]]|(?:{_QUOTED_KEY})\s*+:|{_COMMENT_START}|```|~~~|\Z)")
_CLOSING = {'"': '["]', "'": "[']", "“": '[“”"]', "”": '[“”"]', "‘": "[‘’']", "’": "[‘’']"}
_CLOSERS = {quote: late(rf"{closing}|\\.?", re.DOTALL) for quote, closing in _CLOSING.items()}
_CLOSERS_ON_LINE = {quote: late(rf"{closing}|\n|\\.?") for quote, closing in _CLOSING.items()}
# Where a string with quotes in it that nobody escaped does not go on: at a fence and at a new document.
_NEW_START = late(r"\n(?:\{|```|~~~)")
# What follows the last value of an object, when that is one in a list or at the end of all.
_AFTER_LAST = late(r"""\s*+\}\s*+(?:,\s*+(?:\{|"[^"\n]{0,60}"\s*+:)|,?\s*+\]|\{|\}|```|~~~|\Z)""")
_AFTER_ALL = late(r"""\s*+(?:```|~~~|,?\s*+(?:["'“][^"'”\n]{0,200}["'”]?\s*+)?\Z)""")
_NEXT_KEY = late(
    rf"""\s*+[,;]?\s*+{_COMMENT}?\s*+(?:
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
_BRACKET = late(r"[{}\[\]]")
_WORD_CHARACTER = late(r"\w")
_NEXT_IN_OBJECT = late(r'[{}\[\],]|"++|\\.|\n[ \t]{0,3}(?:```|~~~)|\n(?=\{)')
_AFTER_STRING = late(r"[\s,:}\]]|\Z")
_ESCAPE = late(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})|\\'|[\\\"]")
_WORD = late(r"[^\s,:{}\[\]\"'“”‘’`]++")
_NUMBER = late(r"[-+]?(?:\d{1,18}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?")
_BLANK = late(r"[\s\ufeff\u200b]*+(?:(//|#)[^\n]*+|(/\*))?")
# JSON whose quotes are escaped, as in a string.
_ESCAPED = late(r'"?(?:```(?:json)?)?(?:\s|\\[nrt]){0,50}[\[{](?:[\s\[{]|\\[nrt]){0,50}\\"')
_LITERALS: dict[str, Any] = {
    "true": True,
    "false": False,
    **dict.fromkeys(("null", "none", "undefined", "nan", "infinity", "-infinity", "+infinity", "inf", "-inf")),
}
# The names that answers have for their fields.
_OUR_KEYS = frozenset(
    words(
        "file file_path filepath filename path location line lines line_start line_end start_line end_line line_number "
        "quote evidence code snippet title headline message description issue problem body details explanation "
        "category severity priority confidence confidence_score suggestion suggested_fix replacement fix "
        "recommendation rule rule_id findings issues verdict summary passed reason proof"
    )
)
_VALUES = json.JSONDecoder()


class FlawedObject(dict[str, Any]):
    """An object of which a part is missing or in doubt. `others` are further values of keys that it has twice."""

    def __init__(self, members: dict[str, Any], flaw: str, others: tuple[tuple[str, Any], ...] = ()) -> None:
        super().__init__(members)
        self.flaw = flaw
        self.others = others


class CutList(list[Any]):
    """A list whose end was not in the text. Its items are whole, save the last, which may be cut itself."""

    flaw = TRUNCATED


class CutText(str):
    """A string whose end was not in the text."""

    __slots__ = ()
    flaw = TRUNCATED


def flaw_of(value: object) -> str:
    """What is wrong with a value itself, or nothing."""
    return value.flaw if isinstance(value, FlawedObject | CutList | CutText) else ""


def other_values(value: object) -> tuple[tuple[str, Any], ...]:
    """What an object has a second time, by name; nothing for any other value."""
    return value.others if isinstance(value, FlawedObject) else ()


class JsonValue(Struct, frozen=True):
    """An object or a list in a text, and where it is.

    `repaired` is on when it is not strict JSON; `truncated` when the text, or its fence, ended before it did. A value
    that was not whole may hold flawed parts (see `flaw_of`).
    """

    value: dict[str, Any] | list[Any]
    start: int
    end: int
    repaired: bool = False
    truncated: bool = False


class JsonScan(Struct, frozen=True, kw_only=True):
    """What a text holds, in its order.

    `stopped` says why the rest of the text was not read; `dangling` is the beginning of an object at the very end of
    the text, too short to be one. `length` is how many characters were read.
    """

    length: int
    values: tuple[JsonValue, ...] = ()
    stopped: str = ""
    dangling: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the text ends in a key, or before one of its values does."""
        return '"' in self.dangling or any(found.truncated for found in self.values)


class _BeyondCap(ValueError):
    """The text nests deeper, or holds more, than anything that is meant to be read."""


def scan_json(text: str) -> JsonScan:
    """The values in a text, in its order, and what of the text was not read.

    No value is within another. An object is known by its first key, of at most 200 characters. Takes linear time and
    never raises.
    """
    stopped = f"longer than {MAX_CHARACTERS:,} characters" if len(text) > MAX_CHARACTERS else ""
    text = text[:MAX_CHARACTERS]
    values: list[JsonValue] = []
    reader = _Reader(text)
    # The error of the strict reader counts the lines before it, so many errors in a long text would take long.
    strict_tries, position = 50, 0
    try:
        while opener := _OPENER.search(text, position):
            start = opener.start()
            if len(values) > _MAX_VALUES:
                stopped = f"more than {_MAX_VALUES:,} values"
                break
            if strict_tries and (found := _strict_value(text, start)):
                values.append(found)
                position = found.end
                continue
            strict_tries = max(strict_tries - 1, 0)
            loose, end = reader.read(start)
            if loose or (reader.truncated and loose is not None):
                # Where strict reading was not tried for the cost of its errors, a short text makes them cheap.
                strict = None if strict_tries else _strict_value(text[start:end], 0)
                value = strict.value if strict else loose
                values.append(JsonValue(value, start, end, repaired=not strict, truncated=reader.truncated))
            position = max(end, start + 1)
    except _BeyondCap as error:
        stopped = str(error)
    dangling = _DANGLING.search(text[position:].rstrip()[-_DANGLING_CHARACTERS:])
    return JsonScan(length=len(text), values=tuple(values), stopped=stopped, dangling=dangling[0] if dangling else "")


def text_outside(text: str, values: Sequence[JsonValue]) -> str:
    """What of a text is outside of the values in it."""
    pieces, position = [], 0
    for found in values:
        pieces.append(text[position : found.start])
        position = found.end
    return "\n".join([*pieces, text[position:]])


def text_in_text(text: str) -> str | None:
    """The content of a text that is one string of JSON, or the inside of one; a CutText where its end is missing."""
    stripped = text.strip()
    is_string = stripped.startswith('"')
    if is_string and len(stripped) > 1 and stripped.endswith('"'):
        try:
            value = parsed(stripped)
        except ValueError:
            pass
        else:
            return value if isinstance(value, str) else None
    if _ESCAPED.match(stripped) is None:
        return None
    return CutText(_decoded(stripped[1:])) if is_string else _decoded(stripped)


def _strict_value(text: str, start: int) -> JsonValue | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
        refuse_unsound(value)
    except (ValueError, RecursionError):
        return None
    return JsonValue(value, start, end)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    first: dict[str, Any] = {}
    others = [pair for pair in pairs if first.setdefault(pair[0], pair) is not pair]
    return FlawedObject({name: pair[1] for name, pair in first.items()}, _duplicate(others[0][0]), tuple(others))


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=refuse_constant)


def _duplicate(key: str) -> str:
    return f"duplicate key: {key[:_MAX_KEY_CHARACTERS]}"


class _Frame(Struct):
    """A container that is still open."""

    value: dict[str, Any] | list[Any]
    key: str | None = None
    flaw: str = ""
    others: tuple[tuple[str, Any], ...] = ()
    has_container: bool = False


class _Reader:
    """Reads values of a text loosely. `truncated` tells of the last one whether the text, or its fence, ended first."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._strings = _Strings(text)
        self._last_comment_end = text.rfind("*/")
        self._stack: list[_Frame] = []
        self._open_lists = self._opened = 0
        self._root: dict[str, Any] | list[Any] | None = None
        self._is_abandoned = self.truncated = False

    def read(self, start: int) -> tuple[dict[str, Any] | list[Any] | None, int]:
        """The value that begins with the bracket at `start`, None where it begins none, and where reading ended."""
        self._open_lists = self._opened = 0
        self._root = None
        self._is_abandoned = self.truncated = False
        position = self._open(start)
        while self._stack:
            position = self._after_blanks(position)
            if position >= len(self._text) or self._text.startswith(_FENCES, position) or self._is_abandoned:
                self.truncated = not self._is_abandoned
                # Close all that is open: the text ended, or what follows belongs to something else.
                while self._stack:
                    frame = self._stack[-1]
                    frame.flaw = TRUNCATED
                    if isinstance(frame.value, list):
                        frame.value = CutList(frame.value)
                    self._close()
                break
            position = self._member(position) if isinstance(self._stack[-1].value, dict) else self._item(position)
        return self._root, position

    def _after_blanks(self, position: int) -> int:
        """The place after blanks and comments."""
        while match := _BLANK.match(self._text, position):
            position = match.end()
            if match[2]:
                if position > self._last_comment_end:
                    return match.start(2)
                position = self._text.find("*/", position) + len("*/")
            elif not match[1]:
                break
        return position

    def _open(self, position: int) -> int:
        if len(self._stack) >= MAX_DEPTH:
            raise _BeyondCap(f"nested more than {MAX_DEPTH} levels deep")
        self._opened += 1
        if self._opened > _MAX_CONTAINERS:
            raise _BeyondCap(f"more than {_MAX_CONTAINERS:,} objects and lists")
        is_list = self._text[position] == "["
        if self._stack:
            self._stack[-1].has_container = True
        self._stack.append(_Frame([] if is_list else {}))
        self._open_lists += is_list
        return position + 1

    def _close(self) -> None:
        frame = self._stack.pop()
        value = frame.value
        if isinstance(value, list):
            self._open_lists -= 1
        elif frame.flaw:
            value = FlawedObject(value, frame.flaw, frame.others)
        if self._stack:
            self._attach(value)
        else:
            self._root = value

    def _attach(self, value: Any) -> None:
        frame = self._stack[-1]
        key = frame.key or ""
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif key not in frame.value:
            frame.value[key] = value
        else:
            frame.flaw = frame.flaw or _duplicate(key)
            frame.others = (*frame.others, (key, value)) if len(frame.others) < _MAX_OTHERS else frame.others

    def _member(self, position: int) -> int:
        text, frame = self._text, self._stack[-1]
        char = text[position]
        if char == "}":
            self._close()
            return position + 1
        if char in ",;":
            return position + 1
        # In an object that is an item of a list and has members, a brace begins the next item.
        is_item = len(self._stack) > 1 and isinstance(self._stack[-2].value, list) and bool(frame.value)
        if char == "]" or (char == "{" and is_item):
            # The brace of the object is missing, so it is not whole.
            frame.flaw = frame.flaw or TRUNCATED
            if not self._open_lists:
                return position + 1
            self._close()
            return position
        if match := _KEY.match(text, position):
            key = match[1]
            frame.key = _decoded(key[1:-1]) if key[0] in _QUOTES else key
        elif (match := _POOR_KEY.match(text, position)) and (match[1] or match[2].strip(_QUOTES).lower() in _OUR_KEYS):
            frame.key = (match[1] or match[2]).strip(_QUOTES)
        else:
            return self._skip_member(position)
        return self._member_value(self._after_blanks(match.end()), frame.value)

    def _member_value(self, position: int, known: Container[str]) -> int:
        text = self._text
        if position >= len(text):
            return position
        if text[position] in "{[":
            return self._open(position)
        if text[position] in _QUOTES:
            value, end, is_clean = self._strings.read(position, known)
            self._attach(value)
            return end if is_clean else self._skip_member(end)
        word = _WORD.match(text, position)
        if word and word.end() < len(text) and _AFTER_WORD.match(text, word.end()):
            self._attach(_meaning(word[0]))
            return word.end()
        if bare := _BARE_TEXT.match(text, position):
            self._attach(bare[1].strip())
            return bare.end()
        return self._skip_member(position)

    def _skip_member(self, position: int) -> int:
        """The next comma or closing bracket of this object, past what cannot be read in it.

        What begins with a brace and has no key at all is prose, and is given up.
        """
        frame = self._stack[-1]
        if len(self._stack) == 1 and frame.key is None:
            self._stack.clear()
            return position
        end = self._member_end(position)
        frame.flaw = frame.flaw or f"unreadable from character {position + 1:,} to {end:,}"
        return end

    def _member_end(self, position: int) -> int:
        text, depth = self._text, 0
        while match := _NEXT_IN_OBJECT.search(text, position):
            char = match[0]
            if char[0] == "\n":
                self._is_abandoned = char == "\n"
                return match.end() - (0 if self._is_abandoned else len("```"))
            if depth == 0 and char in "},]":
                return match.start()
            depth += (char in "{[") - (char in "}]")
            position = match.end()
            # Several quotes in a row are an empty string, or none at all.
            if char == '"':
                end = string_end(text, position)
                # One that ends where no string does was the end of another one.
                position = end if text[end - 1] != '"' or _AFTER_STRING.match(text, end) else position
        return len(text)

    def _item(self, position: int) -> int:
        text, char = self._text, self._text[position]
        if char in ",;":
            return position + 1
        if char in "{[":
            return self._open(position)
        if char == "]":
            self._close()
            return position + 1
        if char == "}":
            if len(self._stack) == self._open_lists:
                return position + 1
            # The bracket of the list is missing, and maybe more.
            self._stack[-1].value = CutList(self._stack[-1].value)
            self._close()
            return position
        if char in _QUOTES:
            start, closer = position + 1, _CLOSERS_ON_LINE[char]
            stop = closer.search(text, start)
            while stop and stop[0][0] == "\\":
                stop = closer.search(text, stop.end())
            if stop is None or stop[0] != "\n":
                self._attach(_decoded(text[start : stop.start()]) if stop else CutText(_decoded(text[start:])))
                return stop.end() if stop else len(text)
        else:
            word = _WORD.match(text, position)
            # What is neither a number nor a literal is stray text.
            if word and word.end() < len(text) and not isinstance(value := _meaning(word[0]), str):
                self._attach(value)
                return word.end()
        return self._skip_stray_text(position)

    def _skip_stray_text(self, position: int) -> int:
        """The next bracket. Words before it stand for an item that is none: they may have been meant as one.

        A list that has held no object or list so far is prose in brackets, and is given up.
        """
        if len(self._stack) == 1 and not self._stack[0].has_container:
            self._stack.clear()
            return position
        bracket = _BRACKET.search(self._text, position)
        end = bracket.start() if bracket else len(self._text)
        if _WORD_CHARACTER.search(self._text, position, end):
            self._attach(FlawedObject({}, f"stray text at character {position + 1:,}"))
        return end


class _Strings:
    """Finds the ends of strings in objects, also of those that hold quotes which nobody escaped.

    `patience` is how many characters may still be looked at for those.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._patience = len(text) // 2 + _MAX_INNER_CHARACTERS

    def read(self, position: int, known: Container[str]) -> tuple[str, int, bool]:
        """The string that begins here, its end, and whether what follows can follow a value.

        Its lines may end; one that does not end is a CutText. A quote ends it only where the next thing fits: models
        forget to escape quotes. Where what follows might as well be quoted code, the string goes on to the next quote
        that surely ends it, if there is one. Where no quote fits, the first one ends it. `known` are the keys that the
        object has already.
        """
        text, closer = self._text, _CLOSERS[self._text[position]]
        start, first, limit = position + 1, -1, len(self._text)
        position = start
        possible = None
        while (match := closer.search(text, position)) and match.start() <= limit:
            position = match.end()
            if match[0][0] == "\\":
                continue
            if self._surely_ends(position, known, is_first=possible is None):
                break
            if possible is None and (end := self._forgotten_end(start, match.start(), known)) is not None:
                return _decoded(text[start:end]), match.start(), True
            if possible is None and _AFTER_MEMBER.match(text, position):
                possible = match
                if self._has_sound_members(position):
                    break
            if first < 0:
                first, limit = match.start(), self._limit(match.start())
        else:
            match = possible
        if first >= 0:
            self._patience -= position - start
            if match and match is not possible and self._holds_key(start, first, match.start(), known):
                match = possible
        return self._string(start, first, match)

    def _string(self, start: int, first: int, end: re.Match[str] | None) -> tuple[str, int, bool]:
        """The string that ends with a match; without one at its first quote, or with the text where it has none."""
        if end is not None:
            return _decoded(self._text[start : end.start()]), end.end(), True
        if first < 0:
            return CutText(_decoded(self._text[start:])), len(self._text), True
        return _decoded(self._text[start:first]), first + 1, bool(_AFTER_WORD.match(self._text, first + 1))

    def _limit(self, position: int) -> int:
        """How far a string may go on after a quote in it."""
        if self._patience <= 0:
            return position
        furthest = min(len(self._text), position + _MAX_INNER_CHARACTERS)
        new_start = _NEW_START.search(self._text, position, furthest)
        return new_start.start() if new_start else furthest

    def _surely_ends(self, position: int, known: Container[str], *, is_first: bool) -> bool:
        """Whether what follows a quote can hardly be code: a key of ours, the end of an item, or of all."""
        if _AFTER_LAST.match(self._text, position) or (is_first and _AFTER_ALL.match(self._text, position)):
            return True
        key = _NEXT_KEY.match(self._text, position)
        return key is not None and _is_ours(key[1] or key[2], known)

    def _holds_key(self, position: int, first: int, end: int, known: Container[str]) -> bool:
        """Whether a string that goes on after its first quote would take in a member of its object.

        What is in braces of its own is code.
        """
        text, depth = self._text, 0
        for found in _INNER_KEY.finditer(text, max(position, first - _MAX_BLANKS), end):
            depth += text.count("{", position, found.start()) - text.count("}", position, found.start())
            position = found.start()
            is_member = found[1] and text[found.end() - 1] == ":"
            if depth <= 0 and (is_member or _is_ours(found[2] or found[3] or "", known)):
                return True
        return False

    def _forgotten_end(self, start: int, position: int, known: Container[str]) -> int | None:
        """Where a string ends whose own quote was forgotten: before the comma or the line end before the next key."""
        key = _REST_OF_KEY.match(self._text, position + 1)
        if key is None or not _is_ours(key[1], known):
            return None
        before = self._text[max(start, position - _MAX_BLANKS) : position]
        bare = before.rstrip()
        if bare.endswith(","):
            return position - len(before) + len(bare) - 1
        return position - len(before) + len(bare) if "\n" in before[len(bare) :] else None

    def _has_sound_members(self, position: int) -> bool:
        """Whether what follows a quote is strict JSON up to the end of the object, or to a key of ours.

        Without patience it is taken for that.
        """
        text = self._text
        if self._patience <= 0:
            return True
        self._patience -= _COST_OF_MEMBERS
        for _ in range(_MAX_SOUND_MEMBERS):
            key = _STRICT_KEY.match(text, position)
            if key is None:
                return False
            if key[1] in _OUR_KEYS:
                return True
            try:
                _, position = _VALUES.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                return False
            if _AFTER_LAST.match(text, position) or _TRAILING_COMMA.match(text, position):
                return True
        return True


def _is_ours(key: str, known: Container[str]) -> bool:
    return key.lower().replace("-", "_") in _OUR_KEYS and key not in known


def _meaning(word: str) -> Any:
    lower = word.lower()
    if lower in _LITERALS:
        return _LITERALS[lower]
    if not _NUMBER.fullmatch(word):
        return word
    number = float(word)
    if not isfinite(number):
        return None
    return int(word) if word.lstrip("+-").isdigit() else number


def _decoded(raw: str) -> str:
    """The text between the quotes of a string, with wrong escapes left as they are."""
    if "\\" not in raw:
        return raw
    value: str = json.loads(f'"{_ESCAPE.sub(_sound_escape, raw)}"', strict=False)
    return value


def _sound_escape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape == "\\'":
        return "'"
    return escape if len(escape) > 1 else f"\\{escape}"
