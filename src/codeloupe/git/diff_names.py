"""The text of a diff by position, and the names of files in it.

Both names of a section decide which prefix they have: `a/` and `b/`, git's mnemonic letters, the two directories of a
recursive diff, and no prefix at all are recognised by the part that both names share.
"""

from __future__ import annotations

from msgspec import Struct

from codeloupe.errors import DiffSyntaxError
from codeloupe.system.regex import regex

NO_FILE = b"/dev/null"
NAME_LINES = regex(rb"--- [^\n]*\n\+\+\+ ")
_MAKE_AGAIN = "create the diff again, for example with `git diff > change.diff`, and do not edit it"
_SHOWN_BYTES = 60
_QUOTED = regex(rb'"(?:[^"\\\n]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"')
_HERE = regex(rb"(?:\./)+")
# A date after a name, in a diff whose tabs became spaces.
_SPACED_DATE = regex(rb" (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?)$")
_LONGEST_DATE = 50


class DiffText(Struct, frozen=True):
    """The whole diff, read by position."""

    data: bytes

    def line_end(self, position: int) -> int:
        """Return the position of this line's newline. Raise DiffSyntaxError if the text ends before it."""
        end = self.data.find(b"\n", position)
        if end < 0:
            raise self.refusal(position, "the text ends in the middle of a line, so the diff may be truncated")
        return end

    def refusal(self, position: int, problem: str, *, hint: str = _MAKE_AGAIN) -> DiffSyntaxError:
        """Return an error with the number and the text of the line at `position`, and the problem there."""
        line = self.data[position : position + _SHOWN_BYTES].partition(b"\n")[0].decode("utf-8", "replace")
        where = f"the line is {line!r}"
        if position >= len(self.data):
            where = "the text ends here"
        number = self.data.count(b"\n", 0, position) + 1
        return DiffSyntaxError(f"line {number}: {problem} ({where})", hint=hint)

    def path(self, position: int, name: bytes) -> str:
        """Return a path inside a repository, decoded. Raise DiffSyntaxError for a name that no repository can have."""
        here = _HERE.match(name)
        if here:
            name = name[here.end() :]
        if not name or b"\0" in name:
            raise self.refusal(position, "expected the name of a file")
        if name.startswith(b"/") or b".." in name.split(b"/"):
            hint = "create the diff in the root directory of the repository, with relative paths"
            raise self.refusal(position, "the path points outside the repository", hint=hint)
        return decode_path(name)


class NameLines(Struct, frozen=True):
    """The names of a `---` and a `+++` line, with their prefixes but without quotes, and their dates."""

    old: bytes
    new: bytes
    old_date: bytes
    new_date: bytes


def unquote(name: bytes) -> bytes | None:
    """Return the bytes of a name. A name without quotes is returned as it is; None if it is quoted and malformed."""
    if not name.startswith(b'"'):
        return name
    if not _QUOTED.fullmatch(name):
        return None
    # git's escapes are a part of Python's, and every byte is itself in Latin-1.
    return name[1:-1].decode("unicode_escape").encode("latin-1")


def decode_path(path: bytes) -> str:
    """Return a path as the model keeps it. `os.fsencode` returns the same bytes, also if they are not UTF-8."""
    return path.decode("utf-8", "surrogateescape")


def read_name_lines(text: DiffText, position: int) -> tuple[NameLines, int]:
    """Return the names of the two lines at `position`, and where the lines end."""
    if not NAME_LINES.match(text.data, position):
        raise text.refusal(position, "expected a `---` line and a `+++` line")
    old, old_date, position = _read_name_line(text, position)
    new, new_date, position = _read_name_line(text, position)
    return NameLines(old, new, old_date, new_date), position


def _read_name_line(text: DiffText, position: int) -> tuple[bytes, bytes, int]:
    """Return the name and the date of one line, and where the line ends."""
    end = text.line_end(position)
    # git writes a bare tab after a name that has a space; other programs write a date after it.
    written, tab, date = text.data[position + len(b"--- ") : end].partition(b"\t")
    if not tab:
        spaced = _SPACED_DATE.search(written, max(0, len(written) - _LONGEST_DATE))
        if spaced:
            written = written[: spaced.start()].rstrip(b" ")
            date = spaced[1]
    name = unquote(written)
    if name is None or b"\t" in date:
        raise text.refusal(position, "the name in this line is malformed, or followed by more than one tab")
    return name, date, end + 1


def shared_path(old: bytes, new: bytes) -> bytes | None:
    """Return the path of both names: the same name twice, or the same below one leading directory each."""
    if old == new:
        return old
    old_rest = old.partition(b"/")[2]
    new_rest = new.partition(b"/")[2]
    if old_rest and old_rest == new_rest:
        return old_rest
    return None


def git_paths(header: bytes, names: NameLines | None) -> tuple[bytes, bytes] | None:
    """Return the paths of a section without rename or copy lines; None if its lines disagree.

    `header` is the first line after `diff --git`: two names with a space between them.
    """
    cut = _end_of_first_name(header, names)
    old = unquote(header[:cut])
    new = unquote(header[cut + 1 :])
    if header[cut : cut + 1] != b" " or old is None or new is None:
        return None
    if names is not None and (names.old not in (old, NO_FILE) or names.new not in (new, NO_FILE)):
        return None
    shared = shared_path(old, new)
    if shared is not None:
        return shared, shared
    # Two files that `git diff --no-index` or `git diff BLOB BLOB` compares have different names.
    has_both = names is not None and NO_FILE not in (names.old, names.new)
    if has_both and old.startswith(b"a/") and new.startswith(b"b/"):
        return old[2:], new[2:]
    return None


def _end_of_first_name(header: bytes, names: NameLines | None) -> int:
    if header.startswith(b'"'):
        quoted = _QUOTED.match(header)
        return quoted.end() if quoted else 0
    if header.endswith(b'"'):
        return header.find(b' "')
    if names is None:
        # Without quotes the names are equal after prefixes of the same length.
        return len(header) // 2
    if names.new == NO_FILE:
        return len(names.old)
    return len(header) - len(names.new) - 1
