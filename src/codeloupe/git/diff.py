"""The diff parser: bytes in, files and hunks out.

It reads the diffs of git and of `diff -u`, alone or inside a log or a mail. Lines end at `\\n` only. A diff that is not
certain is refused, because a hunk in the wrong place is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from re import Pattern

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_hunks import read_hunks
from codeloupe.git.diff_names import (
    NAME_LINES,
    NO_FILE,
    DiffText,
    NameLines,
    git_paths,
    read_name_lines,
    shared_path,
    unquote,
)
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.system.regex import regex

_GIT_HEADER = b"diff --git "
# The beginning of 1970 in any time zone: `diff` gives this date to a file that does not exist.
_NO_DATE = regex(rb"(?:1970-01-01|1969-12-31) \d\d:\d\d:00(?:\.0{1,9})? [+-]\d{4}")
_NOTABLE = regex(
    rb"\n(?=diff --(?:git|cc|combined) |--- |@@@? -|Binary files? |Files? |Only in |Submodule |\* Unmerged path "
    rb"|Cannot display: |\x1b\[[0-9;]{0,16}m(?:diff --|--- |@@ )"
    rb"|(?i:Content-Transfer-Encoding: {0,9}(?:quoted-printable|base64)))"
)
# Words must follow it: the last removed line of a hunk that counts too few could look the same.
_MAIL_SIGNATURE = regex(rb"-- ?\n(?!diff )[^-+ @\\\n]")
_NO_COLOR = "the diff contains colour codes: create it with --no-color"
_BINARY = regex(rb"Binary files ([^\n]+) differ\n")
_BINARY_PATCH = b"GIT binary patch\n"
_BINARY_BLOCK = regex(rb"(?:literal|delta) \d{1,20}\n")
_EXTENDED = regex(
    rb"(?:(old mode|new mode|deleted file mode|new file mode) ([0-7]{6})|((?:copy|rename) (?:from|to)) ([^\n]*)"
    rb"|((?:dis)?similarity index) (\d{1,3}%)|(index) ([0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: [0-7]{6})?))\n"
)
_PAIRS = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
_EXCLUSIVE = ("new file mode", "deleted file mode", "rename from", "copy from")
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)


class _Refused(Struct, frozen=True):
    """The start of a line that begins something unreadable, the problem with it, and a hint."""

    start: Pattern[bytes]
    problem: str
    hint: str = ""


_REFUSED = (
    _Refused(
        regex(rb"diff --c|@@@"),
        "this is a combined diff of a merge, whose lines have no single old side",
        "review the merge against its first parent: git diff MERGE^1 MERGE",
    ),
    _Refused(regex(rb"\* "), "this file has unresolved conflicts", "resolve and add it, then create the diff again"),
    _Refused(regex(rb"\x1b"), "this line begins with a colour code, so the diff cannot be parsed", _NO_COLOR),
    _Refused(
        regex(rb"[Cc](?i:ontent-)"),
        "this mail is encoded, so its lines are not the lines of the diff",
        "save the patch as plain text, as `git format-patch` writes it",
    ),
    _Refused(regex(rb"@@ -"), "this hunk does not follow the header of a file or another hunk"),
    _Refused(
        regex(rb"Submodule [^\n]+ [0-9a-f]{4,64}\.{2,3}[0-9a-f]{4,64}(?: \([a-z ]+\))?:?\n"),
        "a submodule changed here and only its log is shown",
        "create the diff with --submodule=short",
    ),
)
# In a diff of git such lines belong to the message of a commit.
_REFUSED_IN_PLAIN_DIFF = _Refused(
    regex(
        rb"Only in [^\n]+: |(?:Binary f|F)iles [^\n]+ differ\n|File [^\n]+ while file "
        rb"|Binary file [^\n]+ has changed\n|Cannot display: "
    ),
    "a file changed here and the diff does not show how",
    "create the diff with `git diff --no-index old new`, which includes binary files and files on one side only",
)


class _Content(Struct, frozen=True):
    """The part of a git section after its header: name lines with hunks, a binary note or patch, or nothing."""

    end: int
    names: NameLines | None = None
    hunks: tuple[Hunk, ...] = ()
    is_binary: bool = False


def parse_diff(data: bytes) -> tuple[FileChange, ...]:
    """Return the files of a diff, in its order; none for an empty text.

    The delete and the create section of a file whose type changed become one file. Text around the sections is
    skipped. Raise DiffSyntaxError, which names the line, for a combined diff, for a diff that is truncated or
    contradicts itself, and for a text that is not a diff.
    """
    if not data or data.isspace():
        return ()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "let git write the file itself: git diff --output=change.diff"
        raise DiffSyntaxError("line 1: the file is encoded as UTF-16, but git writes diffs as plain bytes", hint=hint)
    data = data.removeprefix(b"\xef\xbb\xbf")
    # git ends its own lines with LF. If every line ends with CRLF, another program added the CRs.
    if data.partition(b"\n")[0].endswith(b"\r") and data.count(b"\r\n") == data.count(b"\n"):
        data = data.replace(b"\r\n", b"\n")
    files: list[FileChange] = []
    for file in _read_sections(DiffText(data)):
        if files and _is_type_change(files[-1], file):
            files[-1] = _with_new_type(files[-1], file)
        else:
            files.append(file)
    if not files:
        hint = "give the output of `git diff`, `git show`, `git format-patch` or `diff -u`"
        if b"\x1b[" in data:
            hint = _NO_COLOR
        problem = "line 1: not a diff: expected a `diff --git` line, or a `---` and a `+++` line"
        raise DiffSyntaxError(problem, hint=hint)
    return tuple(files)


def _is_type_change(old: FileChange, new: FileChange) -> bool:
    """Return whether git deletes a file in one section and creates one of another type in its place in the next."""
    if old.status is not FileStatus.DELETED or new.status is not FileStatus.ADDED or old.old_path != new.new_path:
        return False
    return bool(old.old_mode and new.new_mode and old.old_mode[:3] != new.new_mode[:3])


def _with_new_type(old: FileChange, new: FileChange) -> FileChange:
    return replace(
        new,
        status=FileStatus.TYPE_CHANGED,
        old_path=old.old_path,
        old_mode=old.old_mode,
        old_blob=old.old_blob,
        binary=old.binary or new.binary,
        hunks=old.hunks + new.hunks,
    )


def _read_sections(text: DiffText) -> Iterator[FileChange]:
    data = text.data
    is_plain = not data.startswith(_GIT_HEADER) and b"\n" + _GIT_HEADER not in data
    position = _next_notable(data, 0)
    while position is not None:
        section = _read_notable(text, position, is_plain=is_plain)
        if section is None:
            position = _next_notable(data, position + 1)
            continue
        change, end = section
        if change.hunks:
            _check_after_hunks(text, end)
        yield change
        position = _next_notable(data, end)


def _next_notable(data: bytes, position: int) -> int | None:
    """Return where the next line begins that may begin a section, from the start of a line or the middle of one."""
    if position == 0:
        # A notable line follows a newline, which the first line does not have.
        if _NOTABLE.match(b"\n" + data[:60]):
            return 0
        position = 1
    found = _NOTABLE.search(data, position - 1)
    if found is None:
        return None
    return found.end()


def _check_after_hunks(text: DiffText, position: int) -> None:
    """Refuse a line after the last hunk that looks like its next one: the header then counts too few lines."""
    data = text.data
    while data.startswith(b"\n", position):
        position += 1
    if position >= len(data):
        return
    text.line_end(position)
    looks_like_a_row = data.startswith((b"+", b"-", b" ", b"\\"), position)
    if not looks_like_a_row or NAME_LINES.match(data, position) or _MAIL_SIGNATURE.match(data, position):
        return
    raise text.refusal(position, "this line exceeds the line counts of the hunk header")


def _read_notable(text: DiffText, position: int, *, is_plain: bool) -> tuple[FileChange, int] | None:
    """Return the section at `position` and its end, or None if the line is only text around sections.

    `is_plain` says that the diff has no section of git.
    """
    data = text.data
    if data.startswith(_GIT_HEADER, position):
        return _read_git_section(text, position)
    if NAME_LINES.match(data, position):
        return _read_plain_section(text, position)
    refused = list(_REFUSED)
    if is_plain:
        refused.append(_REFUSED_IN_PLAIN_DIFF)
    for entry in refused:
        if entry.start.match(data, position):
            if entry.hint:
                raise text.refusal(position, entry.problem, hint=entry.hint)
            raise text.refusal(position, entry.problem)
    return None


def _read_plain_section(text: DiffText, position: int) -> tuple[FileChange, int]:
    """Return the file of a section that begins with its name lines, and where the section ends."""
    names, hunks_start = read_name_lines(text, position)
    hunks, end = read_hunks(text, hunks_start)
    old_path, new_path = _plain_paths(text, position, names, hunks)
    change = FileChange(old_path, new_path, _status_of(old_path, new_path), hunks=hunks)
    if (old_path is None and change.deleted) or (new_path is None and change.added):
        raise text.refusal(position, "the names of this section contradict its hunks")
    return change, end


def _plain_paths(
    text: DiffText, position: int, names: NameLines, hunks: tuple[Hunk, ...]
) -> tuple[str | None, str | None]:
    if names.old == NO_FILE and names.new == NO_FILE:
        raise text.refusal(position, "this section names no file")
    # If the other side has no name to compare with, only the usual prefix is removed.
    if names.old == NO_FILE:
        return None, text.path(position, names.new.removeprefix(b"b/"))
    if names.new == NO_FILE:
        return text.path(position, names.old.removeprefix(b"a/")), None
    shared = shared_path(names.old, names.new)
    old_path = text.path(position, shared or names.old)
    new_path = text.path(position, shared or names.new)
    if _NO_DATE.fullmatch(names.old_date) and not any(hunk.old_lines for hunk in hunks):
        return None, new_path
    if _NO_DATE.fullmatch(names.new_date) and not any(hunk.new_lines for hunk in hunks):
        return old_path, None
    return old_path, new_path


def _status_of(old_path: str | None, new_path: str | None) -> FileStatus:
    if old_path is None:
        return FileStatus.ADDED
    if new_path is None:
        return FileStatus.DELETED
    if old_path == new_path:
        return FileStatus.MODIFIED
    return FileStatus.RENAMED


def _read_git_section(text: DiffText, position: int) -> tuple[FileChange, int]:
    """Return the file of the section whose `diff --git` line is at `position`, and where the section ends."""
    fields, header_end = _read_header(text, position)
    content = _read_content(text, header_end)
    change = _git_change(text, position, fields, content.names)
    change = replace(change, binary=content.is_binary, hunks=content.hunks)
    if _contradicts(change, content.names):
        raise text.refusal(position, "the header of this section contradicts its hunks")
    if not change.hunks and not change.binary and not _may_be_bare(change, fields):
        hint = "create the diff again, without options that omit lines (-w, --irreversible-delete)"
        raise text.refusal(position, "this section ends before it says what changed in the file", hint=hint)
    return change, content.end


def _contradicts(change: FileChange, names: NameLines | None) -> bool:
    is_added = change.status is FileStatus.ADDED
    is_deleted = change.status is FileStatus.DELETED
    if names is not None and ((names.old == NO_FILE) != is_added or (names.new == NO_FILE) != is_deleted):
        return True
    if is_added:
        return any(hunk.old_lines for hunk in change.hunks)
    if is_deleted:
        return any(hunk.new_lines for hunk in change.hunks)
    return False


def _may_be_bare(change: FileChange, fields: Mapping[str, bytes]) -> bool:
    """Return whether a file may have no hunks: it is empty, or only its mode or its name changed."""
    if "index" not in fields:
        return change.similarity in (None, 100) and len(fields) > 1
    if change.status not in (FileStatus.ADDED, FileStatus.DELETED):
        return False
    blobs = [blob for blob in (change.old_blob, change.new_blob) if blob]
    return all(_is_empty_blob(blob) for blob in blobs)


def _is_empty_blob(name: str) -> bool:
    """Return whether the name of a blob, which may be abbreviated, is that of the empty one."""
    return any(empty.startswith(name) for empty in _EMPTY_BLOBS)


def _read_header(text: DiffText, start: int) -> tuple[dict[str, bytes], int]:
    """Return the header lines of a section by their labels, the two names under `names`, and where the header ends."""
    end = text.line_end(start)
    fields = {"names": text.data[start + len(_GIT_HEADER) : end]}
    position = end + 1
    match = _EXTENDED.match(text.data, position)
    while match:
        label, value = (group for group in match.groups() if group is not None)
        if label.decode() in fields:
            raise text.refusal(position, "duplicate header line")
        fields[label.decode()] = value
        position = match.end()
        match = _EXTENDED.match(text.data, position)
    if position < len(text.data):
        text.line_end(position)
    is_incomplete = any((first in fields) != (second in fields) for first, second in _PAIRS)
    if is_incomplete or sum(label in fields for label in _EXCLUSIVE) > 1:
        raise text.refusal(start, "the header of this section is incomplete or contradicts itself")
    return fields, position


def _read_content(text: DiffText, position: int) -> _Content:
    data = text.data
    if data.startswith(b"--- ", position):
        names, hunks_start = read_name_lines(text, position)
        hunks, end = read_hunks(text, hunks_start)
        return _Content(end, names, hunks)
    note = _BINARY.match(data, position)
    if note:
        return _Content(note.end(), is_binary=True)
    if data.startswith(_BINARY_PATCH, position):
        return _Content(_end_of_binary_patch(text, position + len(_BINARY_PATCH)), is_binary=True)
    return _Content(position)


def _end_of_binary_patch(text: DiffText, start: int) -> int:
    """Return the end of the blocks at `start`. Each of them ends with an empty line."""
    data = text.data
    position = start
    match = _BINARY_BLOCK.match(data, position)
    while match:
        end = data.find(b"\n\n", match.end() - 1)
        # Encoded lines have no space, so a space means that the block ran into something else.
        if end < 0 or data.find(b" ", match.end(), end) >= 0:
            problem = "this binary patch is truncated: expected encoded lines and then an empty line"
            raise text.refusal(position, problem)
        position = end + 2
        match = _BINARY_BLOCK.match(data, position)
    if position == start:
        raise text.refusal(position, "expected `literal` or `delta` and a size")
    return position


def _git_change(text: DiffText, start: int, fields: Mapping[str, bytes], names: NameLines | None) -> FileChange:
    """Return the file of a git section, without its content."""
    old_path, new_path = _stated_paths(text, start, fields, names)
    status = _stated_status(fields, names) or _status_of(old_path, new_path)
    words = {label: value.decode("ascii", "replace") for label, value in fields.items() if label != "names"}
    blobs, _, mode = words.get("index", "..").partition(" ")
    old_blob, _, new_blob = blobs.partition("..")
    old_mode = words.get("old mode") or words.get("deleted file mode") or mode
    new_mode = words.get("new mode") or words.get("new file mode") or mode
    similarity = words.get("similarity index")
    change = FileChange(
        old_path=old_path,
        new_path=new_path,
        status=status,
        old_mode=old_mode or None,
        new_mode=new_mode or None,
        old_blob=_known_blob(old_blob),
        new_blob=_known_blob(new_blob),
        similarity=int(similarity.removesuffix("%")) if similarity else None,
    )
    if status is FileStatus.ADDED:
        return replace(change, old_path=None, old_mode=words.get("old mode") or words.get("deleted file mode"))
    if status is FileStatus.DELETED:
        return replace(change, new_path=None, new_mode=words.get("new mode") or words.get("new file mode"))
    return change


def _known_blob(name: str) -> str | None:
    """Return the name of a blob, or None for the zeros that git writes if there is no blob."""
    return name if name.strip("0") else None


def _stated_paths(text: DiffText, start: int, fields: Mapping[str, bytes], names: NameLines | None) -> tuple[str, str]:
    """Return the paths by the rename or copy lines, otherwise by the first line and the name lines."""
    if "rename from" in fields:
        paths = _moved_paths(fields["rename from"], fields["rename to"], names)
    elif "copy from" in fields:
        paths = _moved_paths(fields["copy from"], fields["copy to"], names)
    else:
        paths = git_paths(fields["names"], names)
    if paths is None:
        hint = "create the diff again with `git diff --src-prefix=a/ --dst-prefix=b/`"
        raise text.refusal(start, "the names in this section contradict each other or are ambiguous", hint=hint)
    old, new = paths
    return text.path(start, old), text.path(start, new)


def _moved_paths(written_old: bytes, written_new: bytes, names: NameLines | None) -> tuple[bytes, bytes] | None:
    """Return the paths of rename or copy lines; None if the name lines disagree."""
    old = unquote(written_old)
    new = unquote(written_new)
    if not old or not new:
        return None
    if names is not None and not (names.old.endswith(old) and names.new.endswith(new)):
        return None
    return old, new


def _stated_status(fields: Mapping[str, bytes], names: NameLines | None) -> FileStatus | None:
    """Return the status that the header or the name lines state, or None if they do not."""
    if "rename from" in fields:
        return FileStatus.RENAMED
    if "copy from" in fields:
        return FileStatus.COPIED
    if "new file mode" in fields or (names is not None and names.old == NO_FILE):
        return FileStatus.ADDED
    if "deleted file mode" in fields or (names is not None and names.new == NO_FILE):
        return FileStatus.DELETED
    return None
