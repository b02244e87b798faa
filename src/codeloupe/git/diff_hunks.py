"""Hunks by their counts. The header decides how long a hunk is, whatever its lines look like.

The usual hunk is never cut into lines: one pattern takes all lines that can belong to it, and counting their
beginnings proves that they do, both at the speed of C. Only where the counts do not fit are its lines walked.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_text import DiffText
from codeloupe.model.change import Hunk

# Ten digits are more lines than a file can have, and keep hostile numbers away from int(). Possessive, so that a
# body of a million lines leaves nothing to go back to. Python 3.11 before 3.11.5 takes a last line without its end
# along (gh-106052), so what was taken is cut behind its last newline.
_HUNK = re.compile(
    rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@([^\n]*)\n"
    rb"((?:[-+ ][^\n]*+\n)*+)"
)
_BODY_WITH_MARKERS = re.compile(rb"(?:[-+ \\][^\n]*+\n)*+")

_PLUS, _MINUS, _SPACE, _NEWLINE = b"+- \n"
_BODY_BYTES = b"+- \n\\"
_MOST_MARKERS = 2

# Which lines cannot come any more once a line of this kind was the last one of its file.
_ENDED_SIDES = {
    _PLUS: (b"\n+", b"\n ", b"\n\n"),
    _MINUS: (b"\n-", b"\n ", b"\n\n"),
    _SPACE: (b"\n+", b"\n-", b"\n ", b"\n\n"),
    _NEWLINE: (b"\n+", b"\n-", b"\n ", b"\n\n"),
}


class _Body(NamedTuple):
    """Where a body ends and what it holds."""

    end: int
    added: int
    deleted: int


def read_hunks(text: DiffText, position: int) -> tuple[tuple[Hunk, ...], int]:
    """All hunks of one file, beginning at the first `@@ ` line, and the position behind the last one.

    Raises DiffSyntaxError when a count does not fit the lines, a hunk is cut off, or hunks overlap.
    """
    hunks: list[Hunk] = []
    old_free = new_free = 0
    while text.data.startswith(b"@@", position) or not hunks:
        hunk, end = _read_hunk(text, position)
        old_first = hunk.old_start if hunk.old_lines else hunk.old_start + 1
        new_first = hunk.new_start if hunk.new_lines else hunk.new_start + 1
        if old_first < old_free or new_first < new_free:
            raise text.refusal(position, "this hunk overlaps the one before it, or hunks are out of order")
        old_free, new_free = old_first + hunk.old_lines, new_first + hunk.new_lines
        hunks.append(hunk)
        position = end
    return tuple(hunks), position


def _read_hunk(text: DiffText, position: int) -> tuple[Hunk, int]:
    match = _HUNK.match(text.data, position)
    if match is None:
        raise text.refusal(position, "expected a hunk header like `@@ -1,4 +1,5 @@`")
    old, old_count, new, new_count, section, body = match.groups()
    old_start, old_lines = int(old), int(old_count) if old_count else 1
    new_start, new_lines = int(new), int(new_count) if new_count else 1
    if (old_lines and not old_start) or (new_lines and not new_start) or not (old_lines or new_lines):
        raise text.refusal(position, "this hunk header gives lines that cannot exist")
    if body and not body.endswith(b"\n"):
        body = body[: body.rfind(b"\n") + 1]
    end, lines = match.start(6) + len(body), body.count(b"\n")
    # So many lines under this header leave only these numbers; counting proves them.
    added, deleted = lines - old_lines, lines - new_lines
    if (
        body.count(b"\n+") + body.startswith(b"+") != added
        or body.count(b"\n-") + body.startswith(b"-") != deleted
        or text.data.startswith(b"\\", end)
    ):
        end, added, deleted = _unusual_body(text, match.start(6), old_lines=old_lines, new_lines=new_lines)
        body = text.data[match.start(6) : end]
    heading = section.removeprefix(b" ").decode("utf-8", "replace")
    return Hunk(old_start, old_lines, new_start, new_lines, body, heading, added, deleted), end


def _unusual_body(text: DiffText, start: int, *, old_lines: int, new_lines: int) -> _Body:
    """A body with markers is still counted as a whole; any other is walked."""
    match = _BODY_WITH_MARKERS.match(text.data, start)
    end = text.data.rfind(b"\n", start - 1, match.end() if match else start) + 1
    added, deleted, context = (text.data.count(kind, start - 1, end) for kind in (b"\n+", b"\n-", b"\n "))
    if added + context == new_lines and deleted + context == old_lines:
        _check_markers(text, start, end=end)
        return _Body(end, added, deleted)
    return _walked_body(text, start, old_lines=old_lines, new_lines=new_lines)


def _walked_body(text: DiffText, start: int, *, old_lines: int, new_lines: int) -> _Body:
    """The body line by line until the counts are used up; an empty line is a context line that lost its space."""
    data, position, added, deleted, context = text.data, start, 0, 0, 0
    while added + context < new_lines or deleted + context < old_lines:
        first = data[position] if position < text.size else 0
        if first == _PLUS:
            added += 1
        elif first == _MINUS:
            deleted += 1
        elif first in (_SPACE, _NEWLINE):
            context += 1
        if first not in _BODY_BYTES or added + context > new_lines or deleted + context > old_lines:
            raise _miscount(text, position, old_lines=old_lines, new_lines=new_lines)
        position = text.line_end(position) + 1
    if data.startswith(b"\\", position):
        position = text.line_end(position) + 1
    _check_markers(text, start, end=position)
    return _Body(position, added, deleted)


def _miscount(text: DiffText, position: int, *, old_lines: int, new_lines: int) -> DiffSyntaxError:
    counts = f"{old_lines} old and {new_lines} new lines, as its header says"
    if position >= text.size:
        return text.refusal(position, f"the hunk is cut off: expected {counts}")
    return text.refusal(position, f"the hunk does not hold {counts}: this line does not fit in")


def _check_markers(text: DiffText, start: int, *, end: int) -> None:
    """Refuse a `\\ No newline at end of file` that does not stand behind the last line of its side."""
    data, markers = text.data, 0
    position = data.find(b"\n\\", start - 1, end)
    while position >= 0:
        markers += 1
        line = data.rfind(b"\n", start - 1, position) + 1
        later = _ENDED_SIDES.get(data[line]) if start <= line <= position else None
        after = text.line_end(position + 1)
        if later is None or markers > _MOST_MARKERS or any(data.find(kind, after, end) >= 0 for kind in later):
            raise text.refusal(position + 1, "this marker does not come after the last line of a file")
        position = data.find(b"\n\\", after, end)
