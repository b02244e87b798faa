"""Where a claimed defect is said to be: file and lines, from fields or from a text such as `file.py:12 - x = 1`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.fields import Fields
from codeloupe.engine.parse.patterns import late

_MAX_PATH_CHARACTERS = 4096
_MAX_EVIDENCE_CHARACTERS = 10_000
_FILE_NAMES = ("file", "file_path", "filepath", "path", "filename", "file_name", "absolute_file_path", "relative_path")
_LOCATION_NAMES = ("code_location", "location", "position", "place")
_START_NAMES = (
    "line_start",
    "start_line",
    "line",
    "lines",
    "line_number",
    "line_numbers",
    "line_range",
    "range",
    "start",
)
_END_NAMES = ("line_end", "end_line", "end")
_QUOTE_NAMES = ("quote", "evidence", "code", "snippet", "code_snippet", "existing_code")
_NUMBERS = late(
    r"\s*(?:[Ll]ines?\s{0,3})?[Ll]?(\d{1,9})(?::\d{1,9})?(?:\s{0,3}(?:-|–|to|\.\.|,)\s{0,3}[Ll]?(\d{1,9}))?\s*"
)
_PATH_AND_LINE = late(
    r"\s*+`?((?:[A-Za-z]:)?[^\s:`]{1,1024}):L?(\d{1,9})(?:[-–]L?(\d{1,9})|:\d{1,9})?`?(?:\s*+(?:[-–—:|]\s++|\Z)|(?=\s))"
)


class ClaimedPlace(Struct, frozen=True):
    """A place as it was stated, and the quote that goes with it."""

    file: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    quote: str = ""


def place_of(fields: Fields) -> ClaimedPlace:
    """The place that an item names."""
    location = fields.object(*_LOCATION_NAMES, "evidence")
    sources = [fields, location] if location else [fields]
    written = _written_place(fields.text(*_LOCATION_NAMES, most=_MAX_EVIDENCE_CHARACTERS))
    quoted = _written_place(_quote(sources))
    file = next((path for source in sources if (path := _path(source))), None) or written.file
    if file is not None and (joined := _PATH_AND_LINE.fullmatch(file)):
        written, file = _place_in(joined, ""), joined[1]
    start, end = next((lines for source in sources if (lines := _lines(source))[0]), (None, None))
    if start is None:
        start, end = written.line_start, written.line_end
    if quoted.file is not None and (file is None or _same_file(file, quoted.file)):
        if start is None:
            start, end = quoted.line_start, quoted.line_end
        return ClaimedPlace(file or quoted.file, start, end, quoted.quote)
    return ClaimedPlace(file, start, end, _quote(sources))


def _path(fields: Fields) -> str | None:
    path = fields.text(*_FILE_NAMES, most=_MAX_PATH_CHARACTERS + 1).strip()
    return path if 0 < len(path) <= _MAX_PATH_CHARACTERS else None


def _quote(sources: Sequence[Fields]) -> str:
    for source in sources:
        if text := source.text(*_QUOTE_NAMES, most=_MAX_EVIDENCE_CHARACTERS):
            return text
        listed = source.get(*_QUOTE_NAMES)
        if isinstance(listed, list) and listed and all(isinstance(line, str) for line in listed):
            return "\n".join(listed)[:_MAX_EVIDENCE_CHARACTERS]
    return ""


def _lines(fields: Fields) -> tuple[int | None, int | None]:
    start, end = span(fields.get(*_START_NAMES))
    last, _ = span(fields.get(*_END_NAMES))
    start, end = (start, last or end) if start else (last, None)
    return start, end if start and end and end >= start else None


def span(value: Any) -> tuple[int | None, int | None]:
    """The first and the last line in 12, "12", "L12-L15", [12, 15] or {"start": 12, "end": 15}; None for unknown."""
    if isinstance(value, Mapping):
        fields = Fields(value)
        return _line(fields.get("start", "start_line", "line")), _line(fields.get("end", "end_line"))
    if isinstance(value, list):
        return (_line(value[0]), _line(value[-1]) if len(value) > 1 else None) if value else (None, None)
    if isinstance(value, str) and (match := _NUMBERS.fullmatch(value[:100])):
        return _line(int(match[1])), _line(int(match[2])) if match[2] else None
    return _line(value), None


def _line(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value < 10**9 else None


def _written_place(text: str) -> ClaimedPlace:
    match = _PATH_AND_LINE.match(text)
    return _place_in(match, text[match.end() :]) if match else ClaimedPlace()


def _place_in(match: re.Match[str], rest: str) -> ClaimedPlace:
    quote = rest.strip()
    if quote in "-–—:|":
        quote = ""
    if len(quote) > 1 and quote[0] == quote[-1] == "`" and quote.count("`") == 2:
        quote = quote[1:-1]
    start, end = _line(int(match[2])), _line(int(match[3])) if match[3] else None
    return ClaimedPlace(match[1], start, end if start and end and end >= start else None, quote)


def written_place(text: str) -> ClaimedPlace:
    """The place that a text begins with, and what follows as its quote; without a file, where none is named."""
    return _written_place(text[:_MAX_EVIDENCE_CHARACTERS])


def _same_file(one: str, other: str) -> bool:
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
