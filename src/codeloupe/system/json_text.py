"""JSON in text that a model wrote: read strictly, and loosely only where that failed.

The loose reader never goes back, and takes nothing that is not in the text. It accepts trailing and missing commas,
comments, other quotes, bare keys and words, Python literals, raw line ends, text between items, and missing brackets
at the end. What it cannot read leaves a flaw on the object that held it. Every look ahead is bounded or covers text
that no other look covers, so reading stays linear; sizes and depths are capped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct

from codeloupe.system.regex import regex

MAX_TEXT_CHARACTERS = 4 * 1024 * 1024
MAX_CHARACTERS = 10 * 1024 * 1024
MAX_DEPTH = 100
TRUNCATED = "truncated"
FENCES = ("```", "~~~")


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
_OPENER = regex(
    rf"""\{{ (?=\s*+(?:{_COMMENT}\s*+)?(?: \}} | {_KEY_TEXT} ))
    | \[ (?=\s*+(?:{_COMMENT}\s*+)?(?: [\[{{\]"'“\d-] | (?:[Tt]rue|[Ff]alse|null|None)\b ))""",
    re.VERBOSE,
)
# A text that ends in the first key of an object.
_DANGLING = regex(r"\{\s*+(?:\"[^\"\n]{0,200}+\"?)?\Z")
_KEY = regex(_KEY_TEXT)
# A key that lacks a quote or its colon, with a value after it.
_POOR_KEY = regex(
    rf"""({_QUOTED_KEY})\s*+(?:=>?|:=)?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)
    | (["'“‘]?[A-Za-z_][\w-]{{0,60}}["'”’]?)\s*+[:=]>?\s*+(?=["'“‘{{\[\d-]|true\b|false\b|null\b)""",
    re.VERBOSE,
)
# What may follow a value in an object. Without a comma, a comment must lead to the end or to a key, since code that is
# quoted has comments too. The last alternative is a text that ends in the next key.
_AFTER_MEMBER = regex(
    rf"""\s*+(?:
        {_COMMENT}? \s*+ (?: [}}\]] | (?:{_QUOTED_KEY})\s*+: ) | ``` | ~~~ | \Z
        | ,\s*+(?: {_KEY_TEXT} | [}}\]] | {_COMMENT_START} | ``` | ~~~ | (?:["'“][^"'”\n]{{0,200}}["'”]?\s*+)?\Z )
    )""",
    re.VERBOSE,
)
# A text without its first quote, which ends before the next key or the end of the object.
_BARE_TEXT = regex(
    rf"""([^\s"'“”‘’{{}}\[\],:][^"'“”‘’{{}}\[\]\n]{{0,500}}+)["'”’](?=\s*+(?:[}}\]]|[,;]\s*+(?:{_QUOTED_KEY})\s*+:|\Z))"""
)
_AFTER_WORD = regex(rf"\s*+(?:[,}}\]]|(?:{_QUOTED_KEY})\s*+:|{_COMMENT_START}|```|~~~|\Z)")
_CLOSING = {'"': '["]', "'": "[']", "“": '[“”"]', "”": '[“”"]', "‘": "[‘’']", "’": "[‘’']"}
_CLOSERS = {quote: regex(rf"{closing}|\\.?", re.DOTALL) for quote, closing in _CLOSING.items()}
_CLOSERS_ON_LINE = {quote: regex(rf"{closing}|\n|\\.?") for quote, closing in _CLOSING.items()}
# Where a string with quotes in it that nobody escaped does not go on: at a fence and at a new document.
_NEW_START = regex(r"\n(?:\{|```|~~~)")
# What follows the last value of an object, when that is one in a list or at the end of all.
_AFTER_LAST = regex(r"""\s*+\}\s*+(?:,\s*+(?:\{|"[^"\n]{0,60}"\s*+:)|,?\s*+\]|\{|\}|```|~~~|\Z)""")
_AFTER_ALL = regex(r"""\s*+(?:```|~~~|,?\s*+(?:["'“][^"'”\n]{0,200}["'”]?\s*+)?\Z)""")
_NEXT_KEY = regex(
    rf"""\s*+[,;]?\s*+{_COMMENT}?\s*+(?:
        ["'“‘]([A-Za-z][\w-]{{0,40}})(?:["'”’]\s*+(?:[:=]|(?=["'“‘\[{{\d]))|\s*+:\s*+["'“‘])
        | ([A-Za-z][\w-]{{0,40}})["'”’]\s*+: )""",
    re.VERBOSE,
)
# A key between two quotes of one string: then it is two strings.
_INNER_KEY = regex(
    r"""[,;\n]\s*+(?:(["'“‘])([^"'“”‘’\n]{0,60})["'”’]\s*+(?::|=|(?=["'“‘]))|["'“‘]?([A-Za-z][\w-]{0,40})["'”’]?\s*+:)"""
)
_BRACKET = regex(r"[{}\[\]]")
_WORD_CHARACTER = regex(r"\w")
_NEXT_IN_OBJECT = regex(r'[{}\[\],]|"++|\\.|\n[ \t]{0,3}(?:```|~~~)|\n(?=\{)')
_AFTER_STRING = regex(r"[\s,:}\]]|\Z")
_ESCAPE = regex(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})|\\'|[\\\"]")
_WORD = regex(r"[^\s,:{}\[\]\"'“”‘’`]++")
_NUMBER = regex(r"[-+]?(?:\d{1,18}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?")
_BLANK = regex(r"[\s\ufeff\u200b]*+(?:(//|#)[^\n]*+|(/\*))?")
# JSON whose quotes are escaped, as in a string.
_ESCAPED = regex(r'"?(?:```(?:json)?)?(?:\s|\\[nrt]){0,50}[\[{](?:[\s\[{]|\\[nrt]){0,50}\\"')
_REASONING = regex(r"[\s\ufeff]*+<(think|thinking|thoughts?|reasoning)>", re.IGNORECASE)
_LITERALS: dict[str, Any] = {
    **dict.fromkeys(["null", "none", "undefined", "nan", "infinity", "-infinity", "+infinity", "inf", "-inf"]),
    "true": True,
    "false": False,
}
# The names that answers have for their fields.
_OUR_KEY = regex(
    "file|file_path|filepath|filename|path|location|line|lines|line_start|line_end|start_line|end_line|line_number|quote"
    "|evidence|code|snippet|title|headline|message|description|issue|problem|body|details|explanation|category|severity"
    "|priority|confidence|confidence_score|suggestion|suggested_fix|replacement|fix|recommendation|rule|rule_id"
    "|findings|issues|verdict|summary|passed|reason|proof"
)
_NOTHING = object()


class FlawedObject(dict[str, Any]):
    """An object of which a part is missing or in doubt. `others` are further values of keys that it has twice."""

    def __init__(self, members: Mapping[str, Any], flaw: str, others: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(members)
        self.flaw = flaw
        self.others = list(others)

    def add(self, key: str, value: Any) -> None:
        """Add a member, which is another value of its key where that is there already."""
        if key in self:
            self.flaw = self.flaw or f"duplicate key: {key[:100]}"
            self.others.append((key, value))
        else:
            self[key] = value


class CutList(list[Any]):
    """A list whose end was not in the text. Its items are whole, save the last, which may be cut itself."""

    flaw = TRUNCATED


class CutText(str):
    """A string whose end was not in the text."""

    __slots__ = ()
    flaw = TRUNCATED


def flaw_of(*values: object) -> str:
    """What is wrong with the first of some values that has a flaw of its own, or nothing."""
    return next((one.flaw for one in values if isinstance(one, FlawedObject | CutList | CutText) and one.flaw), "")


def other_values(value: object) -> Sequence[tuple[str, Any]]:
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
    the text, too short to be one. `length` is how many characters were read, `outside` what is around the values.
    """

    length: int
    values: tuple[JsonValue, ...]
    stopped: str
    dangling: str
    outside: str


class _BeyondCap(ValueError):
    """The text nests deeper, or holds more, than anything that is meant to be read."""


class _NoJson(Exception):
    """What began with a bracket is prose."""


def candidates(text: str) -> Iterator[str]:
    """What may be the one JSON value of a text: all of it, then the values in it, longest first. Raises ValueError."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MAX_TEXT_CHARACTERS:,}")
    yield text
    scan = scan_json(text)
    if scan.stopped.startswith("nested"):
        raise ValueError(f"it is {scan.stopped}")
    sound = [found for found in scan.values if not found.repaired]
    for found in sorted(sound, key=lambda found: found.start - found.end)[:1000]:
        yield text[found.start : found.end]


def parsed(text: str) -> Any:
    """Strict JSON: no NaN, no key twice, no endless nesting. Raises ValueError."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it holds no JSON that can be read ({error.msg} at character {error.pos:,})") from error
    refuse_unsound(value)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = _object(pairs)
    if others := other_values(value):
        raise ValueError(f"the key {others[0][0][:100]!r} occurs more than once in one object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    flawed = FlawedObject({}, "")
    for name, item in pairs:
        flawed.add(name, item)
    return flawed


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)


def refuse_unsound(value: Any) -> None:
    """Raise ValueError for a value that is nested deeper than the cap or holds a number that is not finite."""
    level, depth = [value], 0
    while level:
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            raise ValueError("it holds a number that is not finite")
        containers = [item for item in level if isinstance(item, dict | list)]
        depth += bool(containers)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        level = [part for item in containers for part in (item.values() if isinstance(item, dict) else item)]


def after_reasoning(text: str) -> str | None:
    """The text after the reasoning it begins with (all of it without any); None where nothing comes after it.

    Drafts are in what a model thought aloud, and a draft is not the answer. The first closing tag counts, so that none
    which is quoted later can hide what was said.
    """
    position, lowered = 0, ""
    while opening := _REASONING.match(text, position):
        lowered = lowered or text.lower()
        closing = f"</{opening[1].lower()}>"
        end = lowered.find(closing, opening.end())
        if end < 0:
            return None
        position = end + len(closing)
    return text[position:] if not position or text[position:].strip().strip("\ufeff") else None


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


def scan_json(text: str) -> JsonScan:
    """The values in a text, in its order, and what of the text was not read.

    No value is within another. An object is known by its first key, of at most 200 characters. Takes linear time and
    never raises.
    """
    stopped = f"longer than {MAX_CHARACTERS:,} characters" if len(text) > MAX_CHARACTERS else ""
    whole = text
    text = text[:MAX_CHARACTERS]
    values: list[JsonValue] = []
    reader = _Reader(text)
    # The error of the strict reader counts the lines before it, so many errors in a long text would take long.
    strict_tries, position = 50, 0
    try:
        while opener := _OPENER.search(text, position):
            start = opener.start()
            if len(values) > 10_000:
                stopped = "more than 10,000 values"
                break
            found = _strict_value(text, start) if strict_tries else None
            if found is None:
                strict_tries = max(strict_tries - 1, 0)
                value = reader.read(start)
                end, position = reader.at, max(reader.at, start + 1)
                if not value and (value is None or not reader.truncated):
                    continue
                # Where strict reading was not tried for the cost of its errors, a short text makes them cheap.
                strict = None if strict_tries else _strict_value(text[start:end], 0)
                value = strict.value if strict else value
                found = JsonValue(value, start, end, repaired=not strict, truncated=reader.truncated)
            values.append(found)
            position = found.end
    except _BeyondCap as error:
        stopped = str(error)
    dangling = _DANGLING.search(text[position:].rstrip()[-300:])
    ends = [0, *(found.end for found in values)]
    outside = [whole[end : found.start] for end, found in zip(ends, values, strict=False)]
    return JsonScan(
        length=len(text),
        values=tuple(values),
        stopped=stopped,
        dangling=dangling[0] if dangling else "",
        outside="\n".join([*outside, whole[ends[-1] :]]),
    )


def _strict_value(text: str, start: int) -> JsonValue | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
        refuse_unsound(value)
    except (ValueError, RecursionError):
        return None
    return JsonValue(value, start, end)


class _Reader:
    """Reads values of a text loosely. `at` is where it is, `truncated` whether text or fence ended before the value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_comment_end = text.rfind("*/")
        # How many characters may still be looked at for the ends of strings with quotes in them.
        self._patience = len(text) // 2 + 20_000

    def read(self, start: int) -> dict[str, Any] | list[Any] | None:
        """The value that begins with the bracket at `start`; None where it begins none."""
        self.at, self._opened, self._depth, self._lists = start, 0, 0, 0
        self._is_abandoned = self.truncated = False
        try:
            return self._container()
        except _NoJson:
            return None

    def _container(self, *, in_list: bool = False) -> dict[str, Any] | list[Any]:
        if self._depth >= MAX_DEPTH:
            raise _BeyondCap(f"nested more than {MAX_DEPTH} levels deep")
        self._opened += 1
        if self._opened > 200_000:
            raise _BeyondCap("more than 200,000 objects and lists")
        is_list = self._text[self.at] == "["
        self.at += 1
        self._depth += 1
        self._lists += is_list
        found = self._list() if is_list else self._object(in_list=in_list)
        self._depth -= 1
        self._lists -= is_list
        return found

    def _goes_on(self) -> bool:
        """Whether more follows after blanks; else all that is open ends: with the text, or before something else."""
        self._skip_blanks()
        ends = self.at >= len(self._text) or self._text.startswith(FENCES, self.at)
        self.truncated = self.truncated or (ends and not self._is_abandoned)
        return not ends and not self._is_abandoned

    def _skip_blanks(self) -> None:
        """Go on after blanks and comments."""
        while match := _BLANK.match(self._text, self.at):
            self.at = match.end()
            if match[2]:
                if self.at > self._last_comment_end:
                    self.at = match.start(2)
                    break
                self.at = self._text.find("*/", self.at) + len("*/")
            elif not match[1]:
                break

    def _object(self, *, in_list: bool) -> dict[str, Any]:
        members = FlawedObject({}, "")
        while self._goes_on():
            char = self._text[self.at]
            # In an object that is an item of a list and has members, a brace begins the next item.
            lacks_brace = char == "]" or (char == "{" and in_list and bool(members))
            if lacks_brace:
                members.flaw = members.flaw or TRUNCATED
            if char == "}" or (lacks_brace and self._lists):
                self.at += char == "}"
                return members if members.flaw else dict(members)
            if lacks_brace or char in ",;":
                self.at += 1
            else:
                self._member(members)
        members.flaw = TRUNCATED
        return members

    def _member(self, members: FlawedObject) -> None:
        """Add the member that begins here, or go on after what cannot be read."""
        key, is_sound = "", False
        if match := _KEY.match(self._text, self.at):
            key = _decoded(match[1][1:-1]) if match[1][0] in _QUOTES else match[1]
        elif match := _POOR_KEY.match(self._text, self.at):
            key = (match[1] or match[2]).strip(_QUOTES)
            match = match if match[1] or _OUR_KEY.fullmatch(key.lower()) else None
        if match:
            self.at = match.end()
            self._skip_blanks()
            value, is_sound = self._value(members)
            if value is not _NOTHING:
                members.add(key, value)
        if not is_sound:
            start = self.at
            self._skip_member()
            members.flaw = members.flaw or f"unreadable from character {start + 1:,} to {self.at:,}"

    def _value(self, known: Container[str]) -> tuple[Any, bool]:
        """The value of a member, and whether the next member can follow it."""
        text = self._text
        if self.at >= len(text):
            return _NOTHING, True
        if text[self.at] in "{[":
            return self._container(), True
        if text[self.at] in _QUOTES:
            return self._string(known)
        word = _WORD.match(text, self.at)
        if word and word.end() < len(text) and _AFTER_WORD.match(text, word.end()):
            self.at = word.end()
            return _meaning(word[0]), True
        if bare := _BARE_TEXT.match(text, self.at):
            self.at = bare.end()
            return bare[1].strip(), True
        return _NOTHING, False

    def _skip_member(self) -> None:
        """Go to the next comma or closing bracket of this object, past what cannot be read in it."""
        text, depth = self._text, 0
        while match := _NEXT_IN_OBJECT.search(text, self.at):
            char = match[0]
            if char[0] == "\n":
                self._is_abandoned = char == "\n"
                self.at = match.end() - (0 if self._is_abandoned else len("```"))
                return
            if depth == 0 and char in "},]":
                self.at = match.start()
                return
            depth += (char in "{[") - (char in "}]")
            self.at = match.end()
            # Several quotes in a row are an empty string, or none at all.
            if char == '"':
                # A string of JSON holds no line end, so a stray quote in prose spoils at most its own line.
                stop = self._stop_on_line(char, self.at)
                end = stop.end() if stop else len(text)
                # One that ends where no string does was the end of another one.
                self.at = end if text[end - 1] != '"' or _AFTER_STRING.match(text, end) else self.at
        self.at = len(text)

    def _stop_on_line(self, quote: str, position: int) -> re.Match[str] | None:
        """The end of a string, or of its line."""
        stop = _CLOSERS_ON_LINE[quote].search(self._text, position)
        while stop and stop[0][0] == "\\":
            stop = _CLOSERS_ON_LINE[quote].search(self._text, stop.end())
        return stop

    def _list(self) -> list[Any]:
        text, items = self._text, list[Any]()
        has_container = False
        while self._goes_on():
            char = text[self.at]
            if char in "{[":
                has_container = True
                items.append(self._container(in_list=True))
            elif char == "]":
                self.at += 1
                return items
            elif char == "}" and self._depth > self._lists:
                # The bracket of the list is missing, and maybe more.
                break
            elif char in ",;}":
                self.at += 1
            elif (value := self._plain_item()) is not _NOTHING:
                items.append(value)
            elif self._depth == 1 and not has_container:
                # A list that has held no object or list so far is prose in brackets.
                raise _NoJson
            else:
                start, bracket = self.at, _BRACKET.search(text, self.at)
                self.at = bracket.start() if bracket else len(text)
                # Words before it count as an item that is none: they may have been meant as one.
                if _WORD_CHARACTER.search(text, start, self.at):
                    items.append(FlawedObject({}, f"stray text at character {start + 1:,}"))
        return CutList(items)

    def _plain_item(self) -> Any:
        """The string, number or literal in a list."""
        text, start = self._text, self.at + 1
        if text[self.at] in _QUOTES:
            stop = self._stop_on_line(text[self.at], start)
            if stop and stop[0] == "\n":
                return _NOTHING
            self.at = stop.end() if stop else len(text)
            return _decoded(text[start : stop.start()]) if stop else CutText(_decoded(text[start:]))
        word = _WORD.match(text, self.at)
        # What is neither a number nor a literal is stray text.
        if word and word.end() < len(text) and not isinstance(value := _meaning(word[0]), str):
            self.at = word.end()
            return value
        return _NOTHING

    def _string(self, known: Container[str]) -> tuple[str, bool]:
        """The string that begins here, and whether what follows can follow; `known` are earlier keys."""
        text, closer = self._text, _CLOSERS[self._text[self.at]]
        start = position = self.at + 1
        first, limit, possible = -1, len(text), None
        while (match := closer.search(text, position)) and match.start() <= limit:
            position = match.end()
            if match[0][0] == "\\":
                continue
            if self._surely_ends(position, known, is_first=possible is None):
                break
            if possible is None and _AFTER_MEMBER.match(text, position):
                possible = match
            if first < 0:
                first = match.start()
                # How far a string may go on after a quote in it.
                limit = min(len(text), first + 20_000) if self._patience > 0 else first
                new_start = _NEW_START.search(text, first, limit)
                limit = new_start.start() if new_start else limit
        else:
            match = possible
        if first >= 0:
            self._patience -= position - start
            if match and match is not possible and self._holds_key(start, first, match.start(), known):
                match = possible
        if match is None and first < 0:
            self.at = len(text)
            return CutText(_decoded(text[start:])), True
        end, self.at = match.span() if match else (first, first + 1)
        return _decoded(text[start:end]), match is not None or bool(_AFTER_WORD.match(text, self.at))

    def _surely_ends(self, position: int, known: Container[str], *, is_first: bool) -> bool:
        """Whether what follows a quote can hardly be code: a key of ours, the end of an item, or of all."""
        if _AFTER_LAST.match(self._text, position) or (is_first and _AFTER_ALL.match(self._text, position)):
            return True
        key = _NEXT_KEY.match(self._text, position)
        return key is not None and _is_ours(key[1] or key[2], known)

    def _holds_key(self, position: int, first: int, end: int, known: Container[str]) -> bool:
        """Whether a string that goes on after its first quote would take in a member; braces of its own are code."""
        text, depth = self._text, 0
        for found in _INNER_KEY.finditer(text, max(position, first - 40), end):
            depth += text.count("{", position, found.start()) - text.count("}", position, found.start())
            position = found.start()
            is_member = found[1] and text[found.end() - 1] == ":"
            if depth <= 0 and (is_member or _is_ours(found[2] or found[3] or "", known)):
                return True
        return False


def _is_ours(key: str, known: Container[str]) -> bool:
    return key not in known and _OUR_KEY.fullmatch(key.lower().replace("-", "_")) is not None


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
    return "'" if match[0] == "\\'" else match[0] if len(match[0]) > 1 else f"\\{match[0]}"
