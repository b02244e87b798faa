"""The diff parser: bytes in, files and hunks out.

It reads what git and `diff -u` write, alone or inside of a log or a mail. Hunks are taken by the counts in their
headers, lines end at `\n` only, and what is not certain is refused: a hunk in the wrong place is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_text import (
    NO_FILE,
    DiffText,
    NamePair,
    Section,
    begins_name_lines,
    git_paths,
    read_hunks,
    read_name_lines,
    shared_path,
    tells_of_no_file,
    unquote,
    without_spaced_dates,
)
from codeloupe.model.change import SUBMODULE_MODE, FileChange, FileStatus, Hunk

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
    return FileChange(old_path, new_path, _diff_plain_status(old_path, new_path), binary=binary, hunks=hunks)


def _two_paths(text: DiffText, position: int, *, pair: NamePair) -> tuple[str | None, str | None]:
    shared = shared_path(pair.old, pair.new)
    old, new = (shared, shared) if shared else (pair.old, pair.new)
    return text.path(position, old), text.path(position, new)


def _diff_plain_status(old_path: str | None, new_path: str | None) -> FileStatus:
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
        status=_diff_plain_status(old_path, new_path),
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


_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NOTABLE = re.compile(
    rb"\n(?=diff --(?:git|cc|combined) |--- |@@@? -|Binary files? |Files? |Only in |Submodule |\* Unmerged path "
    rb"|Cannot display: |\x1b\[[0-9;]{0,16}m(?:diff --|--- |@@ )"
    rb"|(?i:Content-Transfer-Encoding: {0,9}(?:quoted-printable|base64)))"
)
_CODED_MAIL = re.compile(rb"Content-", re.IGNORECASE)
_LONGEST_NOTABLE = 60
# Words must follow it: the last removed line of a hunk that counts too few could look the same.
_MAIL_SIGNATURE = re.compile(rb"-- ?\n(?!diff )[^-+ @\\\n]")
_COMBINED = (b"diff --cc ", b"diff --combined ", b"@@@ -")
_NO_COLOR = "the text has colour codes in it: make the diff with --no-color"


def parse_diff(data: bytes) -> tuple[FileChange, ...]:
    """The files of a diff, in its order; none for an empty text.

    The delete and the create section of a file whose type changed become one file. Text around the sections is
    skipped. Raises DiffSyntaxError, which names the line, for a combined diff, for a diff that is cut off or
    contradicts itself, and for a text that is no diff.
    """
    if not data or data.isspace():
        return ()
    text = DiffText(_with_plain_line_ends(data))
    sections = list(_read_sections(text))
    if not sections:
        raise _no_diff(data)
    return tuple(_merge_type_changes(sections))


def _with_plain_line_ends(data: bytes) -> bytes:
    """The diff as it was made: without the mark, and without the CRs, that a tool put in on its way here."""
    if data.startswith(_UTF16_MARKS):
        raise DiffSyntaxError(
            "line 1: this text is UTF-16, and a diff is bytes as git wrote them",
            hint="let git write the file itself: git diff --output=change.diff",
        )
    data = data.removeprefix(_UTF8_MARK)
    first_end = data.find(b"\n")
    # git ends its own lines with LF; if each line ends with CRLF, a tool has put the CRs in.
    if data[max(first_end - 1, 0) : first_end] == b"\r" and data.count(b"\r\n") == data.count(b"\n"):
        return data.replace(b"\r\n", b"\n")
    return data


def _no_diff(data: bytes) -> DiffSyntaxError:
    hint = "give the output of `git diff`, `git show`, `git format-patch` or `diff -u`"
    if b"\x1b[" in data:
        hint = _NO_COLOR
    message = "line 1: this is no diff: expected a `diff --git` line, or a `---` and a `+++` line, and found neither"
    return DiffSyntaxError(message, hint=hint)


def _read_sections(text: DiffText) -> Iterator[Section]:
    position: int | None = _next_notable(text, 0)
    previous: Section | None = None
    plain = b"\n" + GIT_HEADER not in text.data and not text.data.startswith(GIT_HEADER)
    while position is not None:
        section = _read_notable(text, position, plain=plain)
        if section is None:
            position = _next_notable(text, position + 1)
            continue
        if previous is not None:
            _refuse_split_section(text, section, previous=previous)
        if section.change.hunks:
            _refuse_uncounted_lines(text, section.end)
        yield section
        previous = section
        position = _next_notable(text, section.end)


def _next_notable(text: DiffText, position: int) -> int | None:
    """The next line at or behind `position` that may begin something."""
    if position == 0 and _NOTABLE.match(b"\n" + text.data[:_LONGEST_NOTABLE]):
        return 0
    match = _NOTABLE.search(text.data, max(position - 1, 0))
    return match.end() if match else None


def _read_notable(text: DiffText, position: int, *, plain: bool) -> Section | None:
    """The section that begins here, or None where it is but text. `plain`: no section of git is in the whole text."""
    data = text.data
    if data.startswith(GIT_HEADER, position):
        return read_git_section(text, position)
    if data.startswith(_COMBINED, position):
        raise text.refusal(
            position,
            "this is a combined diff of a merge, whose lines have no single old side",
            hint="review the merge against its first parent: git diff MERGE^1 MERGE",
        )
    if data.startswith(b"@@ -", position):
        raise text.refusal(position, "this hunk does not follow the header of a file or another hunk")
    if data.startswith(b"* Unmerged path ", position):
        raise text.refusal(
            position, "this file has unresolved conflicts", hint="resolve and add it, then make the diff again"
        )
    if data.startswith(b"\x1b", position):
        raise text.refusal(position, "this line begins with a colour code, so the files cannot be read", hint=_NO_COLOR)
    if _CODED_MAIL.match(data, position):
        raise text.refusal(
            position,
            "this mail is coded, so its lines are not those of the diff",
            hint="save the patch as plain text, as `git format-patch` writes it",
        )
    if begins_name_lines(text, position):
        return read_plain_section(text, position)
    if plain and (unshown := unshown_change(text, position)):
        raise unshown
    return (read_binary_note(text, position) if plain else None) or read_submodule_note(text, position)


def _refuse_uncounted_lines(text: DiffText, position: int) -> None:
    """Refuse a line behind a hunk that looks like its own: its header counts too few, and it would be lost.

    So is a line without an end, which may be the beginning of another header.
    """
    while text.data.startswith(b"\n", position):
        position += 1
    if position < text.size:
        text.line_end(position)
    looks_counted = text.data.startswith((b"+", b"-", b" ", b"\\"), position)
    if looks_counted and not begins_name_lines(text, position) and not _ends_mail(text, position):
        raise text.refusal(position, "this line comes after the last one that the hunk header counts")


def _ends_mail(text: DiffText, position: int) -> bool:
    """Whether a mail's signature begins here, or the line stands here by which its parts are told apart."""
    if _MAIL_SIGNATURE.match(text.data, position):
        return True
    return text.data[position : text.line_end(position)].removesuffix(b"--") in text.mail_boundaries


def _refuse_split_section(text: DiffText, section: Section, *, previous: Section) -> None:
    """Refuse name lines that belong to a git section above, but are parted from it by a line nobody knows."""
    orphaned = previous.from_git and not previous.change.hunks and not section.from_git
    if orphaned and section.change.hunks and section.change.path == previous.change.path:
        raise text.refusal(previous.end, "expected a header line that git writes")


def _merge_type_changes(sections: list[Section]) -> Iterator[FileChange]:
    """One file for each pair of sections in which git deletes a file and creates one of another type in its place."""
    waiting: Section | None = None
    for section in sections:
        if waiting is not None and _is_type_change(waiting, section):
            yield _merged(waiting.change, section.change)
            waiting = None
            continue
        if waiting is not None:
            yield waiting.change
        waiting = section
    if waiting is not None:
        yield waiting.change


def _is_type_change(first: Section, second: Section) -> bool:
    old, new = first.change, second.change
    return (
        first.from_git
        and second.from_git
        and first.end == second.start
        and (old.status, new.status) == (FileStatus.DELETED, FileStatus.ADDED)
        and old.old_path == new.new_path
        and old.old_mode is not None
        and new.new_mode is not None
        and old.old_mode[:3] != new.new_mode[:3]
    )


def _merged(old: FileChange, new: FileChange) -> FileChange:
    return replace(
        new,
        old_path=old.old_path,
        status=FileStatus.TYPE_CHANGED,
        old_mode=old.old_mode,
        old_blob=old.old_blob,
        binary=old.binary or new.binary,
        hunks=old.hunks + new.hunks,
    )
