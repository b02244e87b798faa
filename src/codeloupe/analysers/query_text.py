"""Whether a text that ruff takes for a query put together from parts is harmless: nothing from outside can be in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST_ROWS = 20
_LONGEST_ROW = 400
# What is raised, printed or logged is read by a person, and by no database.
_TOLD = re.compile(
    r"\s*(?:raise\b|print\(|assert\b|warnings\.warn\(|[\w.]{0,60}log(?:ger|ging)?\.(?:debug|info|warning|error|exception)\()"
)
_RUNS = re.compile(r"execute|query|cursor", re.IGNORECASE)
_F_STRING = re.compile(r"\b[rR]?[fF][rR]?[\"']")
_HOLE = re.compile(r"\{([^{}]*)\}")
_CONSTANT = re.compile(r"(?:\w{1,60}\.)?[A-Z][A-Z0-9_]*")
# As many marks as there are values: `','.join('?' for _ in ids)`, `', '.join(["%s"] * len(ids))`.
_MARKS = re.compile(
    r"""["'], ?["']\.join\([(\[]?["'](?:\?|%s)["']\]?(?: ?\* ?len\([\w.]+\)| for \w+ in [\w.()]+)\)?\)?"""
)
_PLACEHOLDER = re.compile(r"%s|%\(\w{1,60}\)s")
_OTHER_JOINING = re.compile(r"\.format\(|[\"') ] ?[+%] ?[\w\"'(]")


def is_harmless_query(rows: Sequence[str]) -> bool:
    """Whether the rows hold a message, or a query whose every variable part is a constant or a mark for a value."""
    if not 0 < len(rows) <= _MOST_ROWS or max(map(len, rows)) > _LONGEST_ROW:
        return False
    text = "\n".join(rows)
    if _TOLD.match(rows[0]):
        return _RUNS.search(text) is None
    bare = _MARKS.sub("MARKS", text)
    if bare != text and _F_STRING.search(bare) is None:
        return not _joins_otherwise(bare.replace("% MARKS", ""))
    holes = _HOLE.findall(bare)
    return bool(holes) and all(map(_CONSTANT.fullmatch, holes)) and not _joins_otherwise(bare)


def _joins_otherwise(text: str) -> bool:
    return _OTHER_JOINING.search(_PLACEHOLDER.sub("?", text)) is not None
