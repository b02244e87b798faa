"""Sections that git made: a `diff --git` line, extended header lines, then hunks, a binary note, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from codeloupe.git.diff_hunks import read_hunks
from codeloupe.git.diff_names import NO_FILE, NamePair, git_paths, read_name_lines
from codeloupe.git.diff_text import DiffText, Section
from codeloupe.git.quoting import unquote
from codeloupe.model.change import FileChange, FileStatus, Hunk

GIT_HEADER = b"diff --git "

_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index) ([^\n]*)\n"
)
_FORMS = {
    "mode": re.compile(rb"[0-7]{6}"),
    "similarity index": re.compile(rb"\d{1,3}%"),
    "dissimilarity index": re.compile(rb"\d{1,3}%"),
    "index": re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?"),
}
_PAIRED = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
_EXCLUSIVE = ("new file mode", "deleted file mode", "rename from", "copy from")
_BINARY_BLOCK = re.compile(rb"(?:literal|delta) \d{1,20}\n")
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_UNFINISHED_HINT = "make the diff again, without options that leave lines out (-w, --irreversible-delete)"


class _Header(Struct, frozen=True):
    """The `diff --git` line and what the extended header lines say."""

    start: int
    names: bytes
    fields: Mapping[str, bytes]

    @property
    def moves(self) -> bool:
        return "rename from" in self.fields or "copy from" in self.fields

    def text_of(self, label: str) -> str | None:
        value = self.fields.get(label)
        return None if value is None else value.decode("ascii", "replace")


class _Content(Struct, frozen=True):
    """What follows the header."""

    end: int
    pair: NamePair | None = None
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False


def read_git_section(text: DiffText, position: int) -> Section:
    """The section whose `diff --git` line is at `position`. Raises DiffSyntaxError if it is malformed or unfinished."""
    header, end = _read_header(text, position)
    content = _read_content(text, end)
    status = _status(text, header, pair=content.pair)
    change = _build(text, header, content=content, status=status)
    _check(text, header, content=content, change=change)
    return Section(change, position, content.end, from_git=True)


def _read_header(text: DiffText, position: int) -> tuple[_Header, int]:
    end = text.line_end(position)
    names = text.data[position + len(GIT_HEADER) : end]
    if names.endswith(b"\r"):
        raise text.refusal(
            position,
            "this line ends in CRLF and others do not",
            hint="convert the whole diff to one kind of line end, or make it again with `git diff > change.diff`",
        )
    fields: dict[str, bytes] = {}
    start, position = position, end + 1
    while match := _EXTENDED.match(text.data, position):
        label, value = match[1].decode("ascii"), match[2]
        form = _FORMS.get("mode" if label.endswith(" mode") else label)
        if label in fields or (form is not None and form.fullmatch(value) is None):
            raise text.refusal(position, "this header line is malformed or is given twice")
        fields[label] = value
        position = match.end()
    if position < text.size:
        text.line_end(position)
    return _Header(start, names, fields), position


def _read_content(text: DiffText, position: int) -> _Content:
    data = text.data
    if data.startswith(b"--- ", position):
        pair, hunks_start = read_name_lines(text, position)
        hunks, end = read_hunks(text, hunks_start)
        return _Content(end, pair, hunks)
    if data.startswith((b"Binary files ", b"Binary file "), position):
        end = text.line_end(position)
        if data.endswith((b" differ", b" has changed"), position, end):  # git's words, and Mercurial's
            return _Content(end + 1, binary=True)
    if data.startswith(b"GIT binary patch\n", position):
        return _Content(_binary_patch_end(text, text.line_end(position) + 1), binary=True)
    return _Content(position)


def _binary_patch_end(text: DiffText, position: int) -> int:
    """Behind the one or two blocks of a binary patch, each of which ends with an empty line."""
    start = position
    while match := _BINARY_BLOCK.match(text.data, position):
        end = text.data.find(b"\n\n", match.end() - 1)
        # The coded lines hold no space, so a space means that the block ran into something else.
        if end < 0 or text.data.find(b" ", match.end(), end) >= 0:
            raise text.refusal(position, "this binary patch is cut off: expected coded lines and then an empty line")
        position = end + 2
    if position == start:
        raise text.refusal(position, "expected `literal` or `delta` and a size")
    return position


def _status(text: DiffText, header: _Header, *, pair: NamePair | None) -> FileStatus:
    fields = header.fields
    incomplete = any((first in fields) != (second in fields) for first, second in _PAIRED)
    if incomplete or sum(label in fields for label in _EXCLUSIVE) > 1:
        raise text.refusal(header.start, "the header of this section is incomplete or contradicts itself")
    if "rename from" in fields:
        return FileStatus.RENAMED
    if "copy from" in fields:
        return FileStatus.COPIED
    if "new file mode" in fields or (pair and pair.old == NO_FILE):
        return FileStatus.ADDED
    if "deleted file mode" in fields or (pair and pair.new == NO_FILE):
        return FileStatus.DELETED
    return FileStatus.MODIFIED


def _build(text: DiffText, header: _Header, *, content: _Content, status: FileStatus) -> FileChange:
    old_path, new_path = _paths(text, header, pair=content.pair)
    if status is FileStatus.MODIFIED and old_path != new_path:
        status = FileStatus.RENAMED
    old_blob, new_blob, mode = _index(header)
    similarity = header.text_of("similarity index")
    has_old, has_new = status is not FileStatus.ADDED, status is not FileStatus.DELETED
    return FileChange(
        old_path=old_path if has_old else None,
        new_path=new_path if has_new else None,
        status=status,
        old_mode=header.text_of("old mode") or header.text_of("deleted file mode") or (mode if has_old else None),
        new_mode=header.text_of("new mode") or header.text_of("new file mode") or (mode if has_new else None),
        old_blob=old_blob,
        new_blob=new_blob,
        similarity=int(similarity[:-1]) if similarity else None,
        binary=content.binary,
        hunks=content.hunks,
    )


def _index(header: _Header) -> tuple[str | None, str | None, str | None]:
    """The old and the new blob (None for the null object) and the mode of the `index` line."""
    match = _FORMS["index"].fullmatch(header.fields.get("index", b""))
    if match is None:
        return None, None, None
    old_blob, new_blob = (blob.decode("ascii") if blob.strip(b"0") else None for blob in match.group(1, 2))
    return old_blob, new_blob, match[3].decode("ascii") if match[3] else None


def _paths(text: DiffText, header: _Header, *, pair: NamePair | None) -> tuple[str, str]:
    stated = _stated_paths(header, pair) if header.moves else git_paths(header.names, pair)
    if stated is None:
        raise text.refusal(
            header.start,
            "the names in this section contradict each other or cannot be told apart",
            hint="make the diff again with `git diff --src-prefix=a/ --dst-prefix=b/`",
        )
    old, new = stated
    return text.path(header.start, old), text.path(header.start, new)


def _stated_paths(header: _Header, pair: NamePair | None) -> tuple[bytes, bytes] | None:
    """The paths that the rename or copy lines give, unless the name lines say otherwise."""
    kind = "rename" if "rename from" in header.fields else "copy"
    old, new = unquote(header.fields[f"{kind} from"]), unquote(header.fields[f"{kind} to"])
    if old is None or new is None or (pair and not (pair.old.endswith(old) and pair.new.endswith(new))):
        return None
    return old, new


def _check(text: DiffText, header: _Header, *, content: _Content, change: FileChange) -> None:
    """Refuse a section whose parts contradict each other, and one that ends before it said what changed."""
    pair, hunks = content.pair, content.hunks
    added, deleted = change.status is FileStatus.ADDED, change.status is FileStatus.DELETED
    if (
        (pair and ((pair.old == NO_FILE) != added or (pair.new == NO_FILE) != deleted))
        or (added and any(hunk.old_lines for hunk in hunks))
        or (deleted and any(hunk.new_lines for hunk in hunks))
    ):
        raise text.refusal(header.start, "the header of this section contradicts its hunks")
    if not hunks and not content.binary and not _may_be_without_hunks(header, change):
        raise text.refusal(
            header.start, "this section ends before it says what changed in the file", hint=_UNFINISHED_HINT
        )


def _may_be_without_hunks(header: _Header, change: FileChange) -> bool:
    """An empty file came or went, only the mode or only the name changed."""
    if "index" in header.fields:
        known = [blob for blob in (change.old_blob, change.new_blob) if blob]
        one_sided = change.status in (FileStatus.ADDED, FileStatus.DELETED)
        return one_sided and all(_is_empty_blob(blob) for blob in known)
    if change.similarity not in (None, 100):
        return False
    return bool(header.fields)


def _is_empty_blob(blob: str) -> bool:
    return any(empty.startswith(blob) for empty in _EMPTY_BLOBS)
