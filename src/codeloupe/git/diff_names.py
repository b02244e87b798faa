"""Which file a section speaks of: the names in `diff --git`, `---` and `+++` lines, without their prefixes.

A prefix is recognised by what both names share, so `a/` and `b/`, git's mnemonic letters, the two directories of a
recursive diff and no prefix at all are told apart without being told. What stays ambiguous is given up.
"""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from codeloupe.git.diff_text import DiffText
from codeloupe.git.quoting import quoted_length, unquote

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
