"""The bytes of a diff under reading: lines by position, names as git quotes them, and hunks by their counts.

The header decides how long a hunk is. The usual hunk is never cut into lines: one pattern takes all lines that can
belong to it, and counting their beginnings proves that they do. Only where the counts do not fit are its lines walked.
"""

from __future__ import annotations

import re

from codeloupe.errors import DiffSyntaxError
from codeloupe.model.change import Hunk
from codeloupe.system.regex import regex

_EXCERPT_BYTES = 60
_BOUNDARY = regex(rb'boundary="([^"\n]{1,70})"')
_MAKE_AGAIN = "make the diff again, for example with `git diff > change.diff`, and do not edit it"
_QUOTED = regex(rb'"(?:[^"\\\n]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"')
# Ten digits are more lines than a file can have, and keep hostile numbers away from int(). Possessive, so that a
# body of a million lines leaves nothing to go back to. Python 3.11 before 3.11.5 takes a last line without its end
# along (gh-106052), so what was taken is cut behind its last newline.
_HUNK = regex(
    rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@([^\n]*)\n"
    rb"((?:[-+ ][^\n]*+\n)*+)"
)
_BODY_WITH_MARKERS = regex(rb"(?:[-+ \\][^\n]*+\n)*+")
_MOST_MARKERS = 2
# Which lines cannot come any more once a line of this kind was the last one of its file.
_BOTH_SIDES = (b"\n+", b"\n-", b"\n ", b"\n\n")
_ENDED_SIDES = {
    ord("+"): (b"\n+", b"\n ", b"\n\n"),
    ord("-"): (b"\n-", b"\n ", b"\n\n"),
    ord(" "): _BOTH_SIDES,
    ord("\n"): _BOTH_SIDES,
}


def quoted_length(text: bytes) -> int | None:
    """How many bytes the quoted name at the start of `text` takes, quotes included; None if there is none."""
    match = _QUOTED.match(text)
    return match.end() if match else None


def unquote(name: bytes) -> bytes | None:
    """The bytes a name stands for. A name without quotes is itself; None if it is quoted and malformed."""
    if not name.startswith(b'"'):
        return name
    # git's escapes are a part of Python's, and every byte is itself in Latin-1.
    return name[1:-1].decode("unicode_escape").encode("latin-1") if _QUOTED.fullmatch(name) else None


def decode_path(path: bytes) -> str:
    """A path as the model keeps it; bytes that are not UTF-8 survive the way back through `os.fsencode`."""
    return path.decode("utf-8", "surrogateescape")


class DiffText:
    """The whole text, read by position."""

    __slots__ = ("_boundaries", "data", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self._boundaries: frozenset[bytes] | None = None

    @property
    def mail_boundaries(self) -> frozenset[bytes]:
        """The lines that part the mails in the text, where it has mails of several parts; looked for once."""
        if self._boundaries is None:
            self._boundaries = frozenset(b"--" + name for name in _BOUNDARY.findall(self.data))
        return self._boundaries

    def line_end(self, position: int) -> int:
        """Where the newline of this line is. Raises DiffSyntaxError when the text ends in the middle of the line."""
        end = self.data.find(b"\n", position)
        if end < 0:
            raise self.refusal(position, "the text ends in the middle of a line, so the diff may be cut off")
        return end

    def refusal(self, position: int, problem: str, *, hint: str = _MAKE_AGAIN) -> DiffSyntaxError:
        """An error that names the line at `position`, what is wrong there, and the line itself."""
        number = self.data.count(b"\n", 0, position) + 1
        if position >= self.size:
            return DiffSyntaxError(f"line {number}: {problem} (the text ends here)", hint=hint)
        end = self.data.find(b"\n", position, position + _EXCERPT_BYTES)
        line = self.data[position : position + _EXCERPT_BYTES if end < 0 else end].decode("utf-8", "replace")
        cut = "..." if end < 0 and position + _EXCERPT_BYTES < self.size else ""
        return DiffSyntaxError(f"line {number}: {problem} (the line is {line!r}{cut})", hint=hint)

    def path(self, position: int, name: bytes) -> str:
        """A path inside a repository, decoded. Raises DiffSyntaxError for a name no repository can hold."""
        if here := re.match(rb"(?:\./)+", name):
            name = name[here.end() :]
        if not name or b"\0" in name:
            raise self.refusal(position, "expected the name of a file")
        if name.startswith(b"/") or b".." in name.split(b"/"):
            raise self.refusal(
                position,
                "the name of the file leads out of the repository",
                hint="make the diff in the root directory of the repository, with relative names",
            )
        return decode_path(name)


def read_hunks(text: DiffText, position: int) -> tuple[tuple[Hunk, ...], int]:
    """All hunks of one file, and the position after the last one. Raises DiffSyntaxError where a count does not fit."""
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
    start, lines = match.start(6), body.count(b"\n")
    end = start + len(body)
    # So many lines under this header leave only these numbers; counting proves them.
    added, deleted = lines - old_lines, lines - new_lines
    if (
        body.count(b"\n+") + body.startswith(b"+") != added
        or body.count(b"\n-") + body.startswith(b"-") != deleted
        or text.data.startswith(b"\\", end)
    ):
        end, added, deleted = _unusual_body(text, start, old_lines=old_lines, new_lines=new_lines)
        body = text.data[start:end]
        _check_markers(text, start, end=end)
    heading = section.removeprefix(b" ").decode("utf-8", "replace")
    return Hunk(old_start, old_lines, new_start, new_lines, body, heading, added, deleted), end


def _unusual_body(text: DiffText, start: int, *, old_lines: int, new_lines: int) -> tuple[int, int, int]:
    """Where a body ends, and its added and deleted lines: one with markers is counted as a whole, any other walked."""
    data, position = text.data, start
    match = _BODY_WITH_MARKERS.match(data, start)
    end = data.rfind(b"\n", start - 1, match.end() if match else start) + 1
    added, deleted, context = (data.count(kind, start - 1, end) for kind in (b"\n+", b"\n-", b"\n "))
    if added + context == new_lines and deleted + context == old_lines:
        return end, added, deleted
    added = deleted = context = 0
    while added + context < new_lines or deleted + context < old_lines:
        first = data[position : position + 1]
        added += first == b"+"
        deleted += first == b"-"
        # An empty line is a context line that lost its space.
        context += first in (b" ", b"\n")
        if (
            first not in (b"+", b"-", b" ", b"\n", b"\\")
            or added + context > new_lines
            or deleted + context > old_lines
        ):
            counts = f"{old_lines} old and {new_lines} new lines, as its header says"
            if position >= text.size:
                raise text.refusal(position, f"the hunk is cut off: expected {counts}")
            raise text.refusal(position, f"the hunk does not hold {counts}: this line does not fit in")
        position = text.line_end(position) + 1
    if data.startswith(b"\\", position):
        position = text.line_end(position) + 1
    return position, added, deleted


def _check_markers(text: DiffText, start: int, *, end: int) -> None:
    """Refuse a `\\ No newline at end of file` that does not come after the last line of its side."""
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
