"""Reading the hunks of one file from a diff. A hunk is as long as the counts in its header say."""

from __future__ import annotations

from codeloupe.git.diff_names import DiffText
from codeloupe.git.hunks import without_repeated
from codeloupe.model.change import Hunk
from codeloupe.system.regex import regex

# Ten digits are more lines than a file can have, and keep hostile numbers away from int(). The body is possessive, so
# that a body of a million lines leaves nothing to go back to. Python 3.11 before 3.11.5 also matches a last line
# without its end (gh-106052), so the body is cut after its last newline.
_HUNK = regex(
    rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@([^\n]*)\n"
    rb"((?:[-+ ][^\n]*+\n)*+)"
)
_BODY = 6
_MARKER = b"\\"
# The sides of a hunk that a line is on.
_SIDES = {b"+": frozenset({"new"}), b"-": frozenset({"old"}), b" ": frozenset({"old", "new"})}


def read_hunks(text: DiffText, position: int) -> tuple[tuple[Hunk, ...], int]:
    """Return the hunks that begin at `position`, at least one, and where they end.

    No line is in two hunks: a hunk loses the unchanged lines that the hunk before it also shows.
    """
    hunk, end = _read_hunk(text, position)
    hunks = [hunk]
    while text.data.startswith(b"@@", end):
        position = end
        written, end = _read_hunk(text, position)
        following = without_repeated(written, hunks[-1])
        if following is None:
            problem = "this hunk changes or contradicts lines of the one before it, or hunks are out of order"
            raise text.refusal(position, problem)
        hunks.append(following)
    return tuple(hunks), end


def _read_hunk(text: DiffText, position: int) -> tuple[Hunk, int]:
    """Return the hunk at `position` and where it ends."""
    match = _HUNK.match(text.data, position)
    if match is None:
        raise text.refusal(position, "expected a hunk header like `@@ -1,4 +1,5 @@`")
    old, old_count, new, new_count, section, body = match.groups()
    old_start = int(old)
    old_lines = int(old_count) if old_count else 1
    new_start = int(new)
    new_lines = int(new_count) if new_count else 1
    is_empty = not old_lines and not new_lines
    if is_empty or (old_lines and not old_start) or (new_lines and not new_start):
        raise text.refusal(position, "this hunk header gives lines that cannot exist")
    start = match.start(_BODY)
    body = body[: body.rfind(b"\n") + 1]
    end = start + len(body)
    # A usual body is never cut into lines. So many lines under this header leave only these numbers of added and
    # deleted lines, and counting the beginnings of lines proves them.
    lines = body.count(b"\n")
    added = lines - old_lines
    deleted = lines - new_lines
    is_usual = (
        body.count(b"\n+") + body.startswith(b"+") == added
        and body.count(b"\n-") + body.startswith(b"-") == deleted
        and not text.data.startswith(_MARKER, end)
    )
    if not is_usual:
        end, added, deleted = _walk_body(text, start, old_lines, new_lines)
        body = text.data[start:end]
    heading = section.removeprefix(b" ").decode("utf-8", "replace")
    return Hunk(old_start, old_lines, new_start, new_lines, body, heading, added, deleted), end


def _walk_body(text: DiffText, start: int, old_lines: int, new_lines: int) -> tuple[int, int, int]:
    """Return where an unusual body ends, and how many lines it adds and deletes.

    Such a body has markers, empty lines that lost their space, or lines that do not fit the header.
    """
    data = text.data
    position = start
    counts = {b"+": 0, b"-": 0, b" ": 0}
    ended: frozenset[str] = frozenset()
    last = b""
    while True:
        is_marker = data.startswith(_MARKER, position)
        old_missing = old_lines - counts[b"-"] - counts[b" "]
        new_missing = new_lines - counts[b"+"] - counts[b" "]
        if not old_missing and not new_missing and not is_marker:
            return position, counts[b"+"], counts[b"-"]
        sign = last
        if not is_marker:
            sign = _sign_of_line(data, position)
            if not _fits(sign, old_missing, new_missing):
                raise _misfit(text, position, f"{old_lines} old and {new_lines} new lines, as its header says")
            counts[sign] += 1
        sides = _SIDES.get(sign, frozenset())
        if not sides or sides & ended:
            problem = "a `\\ No newline` marker here or above does not follow the last line of a file"
            raise text.refusal(position, problem)
        last = sign
        if is_marker:
            ended |= sides
            last = _MARKER
        position = text.line_end(position) + 1


def _sign_of_line(data: bytes, position: int) -> bytes:
    if data.startswith(b"\n", position):
        # An empty line is an unchanged line that lost its space.
        return b" "
    return data[position : position + 1]


def _fits(sign: bytes, old_missing: int, new_missing: int) -> bool:
    if sign == b"+":
        return new_missing > 0
    if sign == b"-":
        return old_missing > 0
    return sign == b" " and old_missing > 0 and new_missing > 0


def _misfit(text: DiffText, position: int, counts: str) -> Exception:
    if position >= len(text.data):
        return text.refusal(position, f"the hunk is truncated: expected {counts}")
    return text.refusal(position, f"the hunk does not have {counts}: unexpected line")
