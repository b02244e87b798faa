"""The bytes of a diff under reading: where lines end, and how to point at one of them in a refusal."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from codeloupe.errors import DiffSyntaxError
from codeloupe.model.change import FileChange, Hunk

_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"')
_ESCAPE = re.compile(rb'\\([abfnrtv"\\]|[0-3][0-7]{2})')
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b'"': b'"',
    b"\\": b"\\",
}


def quoted_length(text: bytes) -> int | None:
    """How many bytes the quoted name at the start of `text` takes, quotes included; None if there is none."""
    match = _QUOTED.match(text)
    return match.end() if match else None


def unquote(name: bytes) -> bytes | None:
    """The bytes a name stands for. A name without quotes is itself; None if it is quoted and malformed."""
    if not name.startswith(b'"'):
        return name
    if quoted_length(name) != len(name):
        return None
    return _ESCAPE.sub(_unescape, name[1:-1])


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return _LETTERS[escape] if escape in _LETTERS else bytes((int(escape, 8),))


def decode_path(path: bytes) -> str:
    """A path as the model keeps it; bytes that are not UTF-8 survive the way back through `os.fsencode`."""
    return path.decode("utf-8", "surrogateescape")


_EXCERPT_BYTES = 60
_BOUNDARY = re.compile(rb'boundary="([^"\n]{1,70})"')
_HERE = re.compile(rb"(?:\./)+")
_MAKE_AGAIN = "make the diff again, for example with `git diff > change.diff`, and do not edit it"


class Section(Struct, frozen=True):
    """One file of a diff, and the positions where its text begins and ends.

    `from_git` is true for a section with a `diff --git` line.
    """

    change: FileChange
    start: int
    end: int
    from_git: bool


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
        return DiffSyntaxError(f"line {number}: {problem} (the line is {self._excerpt(position)})", hint=hint)

    def path(self, position: int, name: bytes) -> str:
        """A path inside a repository, decoded. Raises DiffSyntaxError for a name no repository can hold."""
        if here := _HERE.match(name):
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

    def _excerpt(self, position: int) -> str:
        end = self.data.find(b"\n", position, position + _EXCERPT_BYTES)
        cut = end < 0 and position + _EXCERPT_BYTES < self.size
        line = self.data[position : position + _EXCERPT_BYTES if end < 0 else end].decode("utf-8", "replace")
        return repr(line) + ("..." if cut else "")


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


NO_FILE = b"/dev/null"
_NO_FILE_WORDS = (b"(nonexistent)", b"(revision 0)")

_SPACED_DATE = re.compile(rb" +(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?)$")
_DATE = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.0{1,9})? ([+-]\d{4})")


class NamePair(Struct, frozen=True):
    """The names of a `---` and a `+++` line, as written but unquoted, and what stood behind a tab (a date, often)."""

    old: bytes
    new: bytes
    old_date: bytes = b""
    new_date: bytes = b""


def begins_name_lines(text: DiffText, position: int) -> bool:
    """Whether a `---` line begins here and a `+++` line follows it."""
    if not text.data.startswith(b"--- ", position):
        return False
    end = text.data.find(b"\n", position)
    return end >= 0 and text.data.startswith(b"+++ ", end + 1)


def read_name_lines(text: DiffText, position: int) -> tuple[NamePair, int]:
    """The two name lines at `position`, and the position behind them. Raises DiffSyntaxError on anything else."""
    if not begins_name_lines(text, position):
        raise text.refusal(position, "expected a `---` line and a `+++` line")
    middle = text.line_end(position) + 1
    end = text.line_end(middle) + 1
    old, old_date = _read_name(text, position, line=text.data[position + 4 : middle - 1])
    new, new_date = _read_name(text, middle, line=text.data[middle + 4 : end - 1])
    return NamePair(old, new, old_date, new_date), end


def _read_name(text: DiffText, position: int, *, line: bytes) -> tuple[bytes, bytes]:
    """A name and what stands behind its tab. git writes a bare tab behind a name that has a space."""
    if line.startswith(b'"'):
        length = quoted_length(line) or 0
        name, rest = unquote(line[:length]), line[length:]
        if not length or name is None or (rest and not rest.startswith(b"\t")):
            raise text.refusal(position, "this quoted name is malformed")
        return name, rest[1:]
    name, _, rest = line.partition(b"\t")
    if b"\t" in rest:
        raise text.refusal(position, "there is more than one tab in this line, so the name of the file is not certain")
    return name, rest


def without_spaced_dates(pair: NamePair) -> NamePair:
    """The pair of a plain diff whose tabs were turned into spaces on the way."""
    old, new = _SPACED_DATE.search(pair.old), _SPACED_DATE.search(pair.new)
    if not old or not new or pair.old_date or pair.new_date:
        return pair
    return NamePair(pair.old[: old.start()], pair.new[: new.start()], old[1], new[1])


def tells_of_no_file(date: bytes) -> bool:
    """Whether there was no such file: diff says so by the beginning of 1970, Subversion by words."""
    if date in _NO_FILE_WORDS:
        return True
    match = _DATE.fullmatch(date)
    if match is None:
        return False
    try:
        moment = datetime.strptime(f"{match[1].decode()} {match[2].decode()}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return False
    return moment.timestamp() == 0


def shared_path(old: bytes, new: bytes) -> bytes | None:
    """The path both names stand for: the same name twice, or the same below one leading directory each."""
    if old == new:
        return old
    old_rest, new_rest = old.partition(b"/")[2], new.partition(b"/")[2]
    return old_rest if old_rest and old_rest == new_rest else None


def git_paths(names: bytes, pair: NamePair | None) -> tuple[bytes, bytes] | None:
    """The old and the new path of a section without rename or copy lines, from its first line and its name lines.

    They differ only where two files were compared outside of a repository. None when the names contradict each
    other or cannot be told apart.
    """
    written = _split_names(names) or (_split_by_name_lines(names, pair) if pair else None)
    if written is None:
        return None
    old, new = written
    if pair and (pair.old not in (old, NO_FILE) or pair.new not in (new, NO_FILE)):
        return None
    shared = shared_path(old, new)
    if shared is not None:
        return shared, shared
    two_files = pair and NO_FILE not in (pair.old, pair.new) and old.startswith(b"a/") and new.startswith(b"b/")
    return (old[2:], new[2:]) if two_files else None


def _split_names(names: bytes) -> tuple[bytes, bytes] | None:
    """Both names of a `diff --git` line. Unquoted, they are equal behind prefixes of one length: cut in the middle."""
    is_quoted = names.startswith(b'"') or names.endswith(b'"')
    if names.startswith(b'"'):
        cut = quoted_length(names) or 0
    elif is_quoted:
        cut = names.find(b' "')
    else:
        cut = len(names) // 2
    if names[cut : cut + 1] != b" ":
        return None
    old, new = unquote(names[:cut]), unquote(names[cut + 1 :])
    if old is None or new is None or (not is_quoted and shared_path(old, new) is None):
        return None
    return old, new


def _split_by_name_lines(names: bytes, pair: NamePair) -> tuple[bytes, bytes] | None:
    """Both names where the prefixes differ in length: one of them is known from its own line."""
    if pair.new != NO_FILE and names.endswith(b" " + pair.new):
        return names[: -len(pair.new) - 1], pair.new
    if pair.old != NO_FILE and names.startswith(pair.old + b" "):
        return pair.old, names[len(pair.old) + 1 :]
    return None
