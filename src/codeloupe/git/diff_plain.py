"""Changes without a `diff --git` line: plain unified diffs, and the notes that stand between sections."""

from __future__ import annotations

import re

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_hunks import read_hunks
from codeloupe.git.diff_names import (
    NO_FILE,
    NamePair,
    read_name_lines,
    shared_path,
    tells_of_no_file,
    without_spaced_dates,
)
from codeloupe.git.diff_text import DiffText, Section
from codeloupe.git.quoting import unquote
from codeloupe.model.change import SUBMODULE_MODE, FileChange, FileStatus, Hunk

_SUBMODULE = re.compile(rb"Submodule ([^\n]+) ([0-9a-f]{4,64})\.{2,3}([0-9a-f]{4,64})(?: \([a-z ]+\))?:?(?=\n)")
_BINARY = re.compile(rb"Binary files ([^\n]+) differ(?=\n)")
_BINARY_OF_MERCURIAL = re.compile(rb"Binary file ([^\n]+) has changed(?=\n)")
_BINARY_OF_SUBVERSION = re.compile(rb"Cannot display: file marked as a binary type\.?(?=\n)")
_SUBVERSION_NAME = b"Index: "
_UNSHOWN = re.compile(rb"Only in [^\n]+: |Files [^\n]+ differ\n|File [^\n]+ while file ")
_AND = b" and "


def read_plain_section(text: DiffText, position: int) -> Section:
    """The section whose `---` line is at `position`; counts alone say where its hunks end.

    Raises DiffSyntaxError if it is malformed or cut off.
    """
    pair, end = read_name_lines(text, position)
    pair = without_spaced_dates(pair)
    hunks, end = read_hunks(text, end)
    change = _named(text, position, pair=pair, hunks=hunks)
    if (change.old_path is None and change.deleted) or (change.new_path is None and change.added):
        raise text.refusal(position, "the names of this section contradict its hunks")
    return Section(change, position, end, from_git=False)


def _named(
    text: DiffText, position: int, *, pair: NamePair, hunks: tuple[Hunk, ...] = (), binary: bool = False
) -> FileChange:
    if pair.old == NO_FILE and pair.new == NO_FILE:
        raise text.refusal(position, "this section names no file")
    if NO_FILE in (pair.old, pair.new):
        # The other side has no name to compare with, so only the prefix everybody knows is taken off.
        is_new = pair.old == NO_FILE
        path = text.path(position, pair.new.removeprefix(b"b/") if is_new else pair.old.removeprefix(b"a/"))
        old_path, new_path = (None, path) if is_new else (path, None)
    else:
        old_path, new_path = _two_paths(text, position, pair=pair)
        if tells_of_no_file(pair.old_date) and not any(hunk.old_lines for hunk in hunks):
            old_path = None
        elif tells_of_no_file(pair.new_date) and not any(hunk.new_lines for hunk in hunks):
            new_path = None
    return FileChange(old_path, new_path, _status(old_path, new_path), binary=binary, hunks=hunks)


def _two_paths(text: DiffText, position: int, *, pair: NamePair) -> tuple[str | None, str | None]:
    shared = shared_path(pair.old, pair.new)
    old, new = (shared, shared) if shared else (pair.old, pair.new)
    return text.path(position, old), text.path(position, new)


def _status(old_path: str | None, new_path: str | None) -> FileStatus:
    if old_path is None:
        return FileStatus.ADDED
    if new_path is None:
        return FileStatus.DELETED
    return FileStatus.MODIFIED if old_path == new_path else FileStatus.RENAMED


def read_submodule_note(text: DiffText, position: int) -> Section | None:
    """A `Submodule path old..new` note, which git writes in place of a section under `diff.submodule=log`."""
    match = _SUBMODULE.match(text.data, position)
    if match is None:
        return None
    path = text.path(position, match[1])
    old_blob, new_blob = (None if not blob.strip(b"0") else blob.decode("ascii") for blob in match.group(2, 3))
    old_path, new_path = path if old_blob else None, path if new_blob else None
    change = FileChange(
        old_path=old_path,
        new_path=new_path,
        status=_status(old_path, new_path),
        old_mode=SUBMODULE_MODE if old_blob else None,
        new_mode=SUBMODULE_MODE if new_blob else None,
        old_blob=old_blob,
        new_blob=new_blob,
    )
    return Section(change, position, match.end() + 1, from_git=False)


def read_binary_note(text: DiffText, position: int) -> Section | None:
    """What a plain diff says of a binary file that changed. Raises DiffSyntaxError if its name is not certain."""
    if match := _BINARY.match(text.data, position):
        pair = _split_at_and(match[1])
        if pair is None:
            raise text.refusal(position, "the two names in this line cannot be told apart")
    elif match := _BINARY_OF_MERCURIAL.match(text.data, position):
        pair = NamePair(match[1], match[1])
    elif match := _BINARY_OF_SUBVERSION.match(text.data, position):
        name = _name_above(text, position)
        pair = NamePair(name, name)
    else:
        return None
    change = _named(text, position, pair=pair, binary=True)
    return Section(change, position, match.end() + 1, from_git=False)


def _name_above(text: DiffText, position: int) -> bytes:
    """The name that Subversion writes two lines above its note, over a line of `=`."""
    ruler = text.data.rfind(b"\n", 0, max(position - 1, 0)) + 1
    start = text.data.rfind(b"\n", 0, max(ruler - 1, 0)) + 1
    line = text.data[start : ruler - 1]
    if not line.startswith(_SUBVERSION_NAME) or text.data[ruler : position - 1].strip(b"="):
        raise text.refusal(position, "this line does not say which file it is about")
    return line.removeprefix(_SUBVERSION_NAME)


def _split_at_and(names: bytes) -> NamePair | None:
    """Both names: cut at the only ` and `, or in the middle if the same name stands on both sides of it."""
    middle = (len(names) - len(_AND)) // 2
    if names.count(_AND) == 1:
        old, _, new = names.partition(_AND)
    elif names[middle : middle + len(_AND)] == _AND:
        old, new = names[:middle], names[middle + len(_AND) :]
        if shared_path(old, new) is None:
            return None
    else:
        return None
    # Bazaar writes a date behind each name, as in a `---` line.
    unquoted_old, unquoted_new = unquote(old.partition(b"\t")[0]), unquote(new.partition(b"\t")[0])
    if unquoted_old is None or unquoted_new is None:
        return None
    return NamePair(unquoted_old, unquoted_new)


def unshown_change(text: DiffText, position: int) -> DiffSyntaxError | None:
    """A refusal, if a recursive diff says here that something changed and does not show what."""
    if _UNSHOWN.match(text.data, position) is None:
        return None
    return text.refusal(
        position,
        "a file changed here and the diff does not show how",
        hint="make the diff with `diff -ruN old new`, which shows files that are on one side only",
    )
