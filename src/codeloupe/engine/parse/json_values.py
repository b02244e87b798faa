"""Every JSON value in a text, whatever stands around it: read strictly, and loosely only where that failed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from codeloupe.engine.parse.flaws import FlawedObject, duplicate_key
from codeloupe.engine.parse.json_text import refuse_constant, refuse_unsound
from codeloupe.engine.parse.loose_json import BeyondCap, read_loosely
from codeloupe.engine.parse.loose_tokens import KEY, LooseText
from codeloupe.engine.parse.patterns import late

MAX_CHARACTERS = 10 * 1024 * 1024
_MAX_VALUES = 10_000
_COMMENT = r"(?:(?://|\#)[^\n]{0,300}\n|/\*[^*]{0,300}\*/)\s*+"
_OPENER = late(
    rf"""\{{ (?=\s*+(?:{_COMMENT})?(?: \}} | {KEY} ))
    | \[ (?=\s*+(?:{_COMMENT})?(?: [\[{{\]"'“\d-] | (?:[Tt]rue|[Ff]alse|null|None)\b ))""",
    re.VERBOSE,
)
# A text that ends in the first key of an object.
_DANGLING = late(r"\{\s*+(?:\"[^\"\n]{0,200}+\"?)?\Z")
_DANGLING_CHARACTERS = 300


class JsonValue(Struct, frozen=True):
    """An object or a list in a text, and where it stands.

    `repaired` is on when it is not strict JSON; `truncated` when the text, or its fence, ended before it did. A value
    that was not whole may hold flawed parts (see `flaws`).
    """

    value: dict[str, Any] | list[Any]
    start: int
    end: int
    repaired: bool = False
    truncated: bool = False


class JsonScan(Struct, frozen=True, kw_only=True):
    """What a text holds, in its order.

    `stopped` says why the rest of the text was not looked at; `dangling` is the beginning of an object at the very end
    of the text, too short to be one. `length` is how many characters were looked at.
    """

    length: int
    values: tuple[JsonValue, ...] = ()
    stopped: str = ""
    dangling: str = ""


def scan_json(text: str) -> JsonScan:
    """The values in a text, in its order, and what of the text was not looked at.

    No value stands within another. An object is known by its first key, of at most 200 characters. Takes linear time
    and never raises.
    """
    return _Scanner(text[:MAX_CHARACTERS], is_cut=len(text) > MAX_CHARACTERS).scan()


def text_outside(text: str, values: Sequence[JsonValue]) -> str:
    """What of a text stands outside of the values in it."""
    pieces, position = [], 0
    for found in values:
        pieces.append(text[position : found.start])
        position = found.end
    return "\n".join([*pieces, text[position:]])


class _Scanner(Struct):
    text: str
    is_cut: bool
    values: list[JsonValue] = field(default_factory=list)
    source: LooseText | None = None
    # The error of the strict reader counts the lines before it, so many errors in a long text would take long.
    strict_tries: int = 50

    def scan(self) -> JsonScan:
        stopped = f"longer than {MAX_CHARACTERS:,} characters" if self.is_cut else ""
        position = 0
        try:
            while opener := _OPENER.search(self.text, position):
                position = self._read(opener.start())
                if len(self.values) > _MAX_VALUES:
                    stopped = f"more than {_MAX_VALUES:,} values"
                    break
        except BeyondCap as error:
            stopped = str(error)
        rest = self.text[position:].rstrip()[-_DANGLING_CHARACTERS:]
        dangling = _DANGLING.search(rest)
        return JsonScan(
            length=len(self.text),
            values=tuple(self.values),
            stopped=stopped,
            dangling=dangling[0] if dangling else "",
        )

    def _read(self, start: int) -> int:
        """Take the value that begins here, if one does; where to look on. Raises BeyondCap."""
        strict = _strict_value(self.text, start) if self.strict_tries else None
        if strict is not None:
            self.values.append(strict)
            return strict.end
        self.strict_tries = max(self.strict_tries - 1, 0)
        if self.source is None:
            self.source = LooseText(self.text)
        loose = read_loosely(self.source, start)
        if loose.value or (loose.truncated and loose.value is not None):
            # Where strict reading was not tried for the cost of its errors, a short text makes them cheap.
            strict = None if self.strict_tries else _strict_value(self.text[start : loose.end], 0)
            value = strict.value if strict else loose.value
            self.values.append(JsonValue(value, start, loose.end, repaired=not strict, truncated=loose.truncated))
        return max(loose.end, start + 1)


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
    others = []
    for name, part in pairs:
        if name in first:
            others.append((name, part))
        else:
            first[name] = part
    return FlawedObject(first, duplicate_key(others[0][0]), tuple(others))


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=refuse_constant)
