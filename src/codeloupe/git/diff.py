"""The diff parser: bytes in, files and hunks out.

It reads what git and `diff -u` write, alone or inside of a log or a mail. Hunks are taken by the counts in their
headers, lines end at `\\n` only, and what is not certain is refused: a hunk in the wrong place is worse than none. A
prefix of a name is recognised by what both names share, so `a/` and `b/`, git's mnemonic letters, the two directories
of a recursive diff and no prefix at all are told apart without being told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_text import DiffText, quoted_length, read_hunks, unquote
from codeloupe.model.change import SUBMODULE_MODE, FileChange, FileStatus, Hunk
from codeloupe.system.regex import regex

# As much as git itself shows.
_LONGEST_SECTION = 80


_ROW = regex(rb"[^\n]*\n|[^\n]+")


_DEFINITION = regex(rb"[-+ ][A-Za-z_$]")


def stretches_of(hunk: Hunk, stretches: Iterable[tuple[int, int]]) -> Iterator[Hunk]:
    """Some stretches of a hunk's rows, in order and without overlap, as hunks with the right numbers."""
    rows, passed = _Rows(hunk), 0
    for start, end in stretches:
        if (start, end) == (0, len(rows.signs)):
            yield hunk
            return
        # The marker of a missing newline belongs to its row.
        first = start - (start > passed and rows.signs[start] == b"\\")
        passed = end + (end < len(rows.signs) and rows.signs[end] == b"\\")
        yield rows.part(first, passed, rows.section_in(max(0, first - 2_000), first) or hunk.section)


class _Rows:
    """The rows of a hunk with the marks that they begin with, of which parts can be made."""

    def __init__(self, hunk: Hunk) -> None:
        self.rows: list[bytes] = _ROW.findall(hunk.body)
        self.signs = [row[:1] for row in self.rows]
        # The numbers of each row on both sides; in git's numbers a side without lines begins before it.
        old, new = hunk.old_start + (not hunk.old_lines), hunk.new_start + (not hunk.new_lines)
        self._old = list(accumulate((sign not in (b"+", b"\\") for sign in self.signs), initial=old))
        self._new = list(accumulate((sign not in (b"-", b"\\") for sign in self.signs), initial=new))

    def section_in(self, start: int, end: int) -> str:
        """The last row at the left margin, as git shows it after a hunk's numbers; empty when there is none."""
        found = (row for row in reversed(self.rows[start:end]) if _DEFINITION.match(row))
        return next(found, b"")[1 : _LONGEST_SECTION + 1].decode("utf-8", "replace").rstrip()

    def part(self, start: int, end: int, section: str) -> Hunk:
        """Some rows as a hunk."""
        (old, old_end), (new, new_end) = ((side[start], side[end]) for side in (self._old, self._new))
        body, signs = b"".join(self.rows[start:end]), self.signs[start:end]
        added, deleted = signs.count(b"+"), signs.count(b"-")
        return Hunk(
            old - (old == old_end), old_end - old, new - (new == new_end), new_end - new, body, section, added, deleted
        )


_GIT_HEADER = b"diff --git "
_NAME_LINES = regex(rb"--- [^\n]*\n\+\+\+ ")
_NO_FILE = b"/dev/null"
_SPACED_DATE = regex(rb" +(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?)$")
_DATE = regex(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.0{1,9})? ([+-]\d{4})")
_NOTABLE = regex(
    rb"\n(?=diff --(?:git|cc|combined) |--- |@@@? -|Binary files? |Files? |Only in |Submodule |\* Unmerged path "
    rb"|Cannot display: |\x1b\[[0-9;]{0,16}m(?:diff --|--- |@@ )"
    rb"|(?i:Content-Transfer-Encoding: {0,9}(?:quoted-printable|base64)))"
)
# Words must follow it: the last removed line of a hunk that counts too few could look the same.
_MAIL_SIGNATURE = regex(rb"-- ?\n(?!diff )[^-+ @\\\n]")
_NO_COLOR = "the text has colour codes in it: make the diff with --no-color"
_IS_COMBINED = (
    "this is a combined diff of a merge, whose lines have no single old side",
    "review the merge against its first parent: git diff MERGE^1 MERGE",
)
# Lines that may begin something which cannot be read, by their beginning in lower case: why not, and what to do.
_REFUSED = {
    b"diff --cc ": _IS_COMBINED,
    b"diff --combined ": _IS_COMBINED,
    b"@@@ -": _IS_COMBINED,
    b"* unmerged path ": ("this file has unresolved conflicts", "resolve and add it, then make the diff again"),
    b"\x1b": ("this line begins with a colour code, so the files cannot be read", _NO_COLOR),
    b"content-": (
        "this mail is coded, so its lines are not those of the diff",
        "save the patch as plain text, as `git format-patch` writes it",
    ),
}

_SUBMODULE = regex(rb"Submodule ([^\n]+) ([0-9a-f]{4,64})\.{2,3}([0-9a-f]{4,64})(?: \([a-z ]+\))?:?(?=\n)")
_BINARY = regex(rb"Binary files ([^\n]+) differ(?=\n)")
_BINARY_OF_MERCURIAL = regex(rb"Binary file ([^\n]+) has changed(?=\n)")
_BINARY_OF_SUBVERSION = regex(rb"Cannot display: file marked as a binary type\.?(?=\n)")
_UNSHOWN = regex(rb"Only in [^\n]+: |Files [^\n]+ differ\n|File [^\n]+ while file ")

_EXTENDED = regex(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index) ([^\n]*)\n"
)
_FORMS = {
    "mode": regex(rb"[0-7]{6}"),
    "similarity index": regex(rb"\d{1,3}%"),
    "dissimilarity index": regex(rb"\d{1,3}%"),
    "index": regex(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?"),
}
_BINARY_BLOCK = regex(rb"(?:literal|delta) \d{1,20}\n")
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)


class _Section(NamedTuple):
    """One file of a diff, and the positions where its text begins and ends. `from_git`: with a `diff --git` line."""

    change: FileChange
    start: int
    end: int
    from_git: bool = False


class _Names(NamedTuple):
    """The names of a `---` and a `+++` line, as written but unquoted, and what was after a tab (a date, often)."""

    old: bytes
    new: bytes
    old_date: bytes = b""
    new_date: bytes = b""


def parse_diff(data: bytes) -> tuple[FileChange, ...]:
    """The files of a diff, in its order; none for an empty text.

    The delete and the create section of a file whose type changed become one file. Text around the sections is
    skipped. Raises DiffSyntaxError, which names the line, for a combined diff, for a diff that is cut off or
    contradicts itself, and for a text that is no diff.
    """
    if not data or data.isspace():
        return ()
    sections = list(_read_sections(DiffText(_with_plain_line_ends(data))))
    if not sections:
        hint = "give the output of `git diff`, `git show`, `git format-patch` or `diff -u`"
        raise DiffSyntaxError(
            "line 1: this is no diff: expected a `diff --git` line, or a `---` and a `+++` line, and found neither",
            hint=_NO_COLOR if b"\x1b[" in data else hint,
        )
    files: list[FileChange] = []
    previous: _Section | None = None
    for section in sections:
        old, new = previous.change if previous else section.change, section.change
        adjacent = previous is not None and previous.from_git and section.from_git and previous.end == section.start
        swapped = (old.status, new.status) == (FileStatus.DELETED, FileStatus.ADDED) and old.old_path == new.new_path
        # git deletes a file in one section and creates one of another type in its place in the next.
        if adjacent and swapped and old.old_mode and new.new_mode and old.old_mode[:3] != new.new_mode[:3]:
            files[-1] = replace(
                new,
                old_path=old.old_path,
                status=FileStatus.TYPE_CHANGED,
                old_mode=old.old_mode,
                old_blob=old.old_blob,
                binary=old.binary or new.binary,
                hunks=old.hunks + new.hunks,
            )
            previous = None
        else:
            files.append(new)
            previous = section
    return tuple(files)


def _with_plain_line_ends(data: bytes) -> bytes:
    """The diff as it was made: without the mark, and without the CRs, that a tool put in on its way here."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DiffSyntaxError(
            "line 1: this text is UTF-16, and a diff is bytes as git wrote them",
            hint="let git write the file itself: git diff --output=change.diff",
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    first_end = data.find(b"\n")
    # git ends its own lines with LF; if each line ends with CRLF, a tool has put the CRs in.
    if data[max(first_end - 1, 0) : first_end] == b"\r" and data.count(b"\r\n") == data.count(b"\n"):
        return data.replace(b"\r\n", b"\n")
    return data


def _read_sections(text: DiffText) -> Iterator[_Section]:
    data, position = text.data, 0
    previous: _Section | None = None
    plain = b"\n" + _GIT_HEADER not in data and not data.startswith(_GIT_HEADER)
    # What is notable follows a line end; the beginning gets one.
    found = _NOTABLE.match(b"\n" + data[:60])
    while found or (found := _NOTABLE.search(data, max(position - 1, 0))):
        position = found.end() if found.string is data else 0
        found = None
        section = _read_notable(text, position, plain=plain)
        if section is None:
            position += 1
            continue
        change = section.change
        # Name lines that belong to a git section above, but are parted from it by a line nobody knows.
        orphaned = previous is not None and previous.from_git and not previous.change.hunks and not section.from_git
        if previous is not None and orphaned and change.hunks and change.path == previous.change.path:
            raise text.refusal(previous.end, "expected a header line that git writes")
        if change.hunks:
            _refuse_uncounted_lines(text, section.end)
        yield section
        previous, position = section, section.end


def _read_notable(text: DiffText, position: int, *, plain: bool) -> _Section | None:
    """The section that begins here, or None where it is but text. `plain`: no section of git is in the whole text."""
    data = text.data
    if data.startswith(_GIT_HEADER, position):
        return _read_git_section(text, position)
    if _NAME_LINES.match(data, position):
        return _read_plain_section(text, position)
    sign = next((sign for sign in _REFUSED if data[position : position + len(sign)].lower() == sign), None)
    if sign is not None:
        raise text.refusal(position, _REFUSED[sign][0], hint=_REFUSED[sign][1])
    if data.startswith(b"@@ -", position):
        raise text.refusal(position, "this hunk does not follow the header of a file or another hunk")
    if plain and _UNSHOWN.match(data, position):
        raise text.refusal(
            position,
            "a file changed here and the diff does not show how",
            hint="make the diff with `diff -ruN old new`, which shows files that are on one side only",
        )
    return (_read_binary_note(text, position) if plain else None) or _read_submodule_note(text, position)


def _refuse_uncounted_lines(text: DiffText, position: int) -> None:
    """Refuse a line after a hunk that looks like its own: its header counts too few. Parts of a mail are none."""
    data = text.data
    while data.startswith(b"\n", position):
        position += 1
    if position >= text.size:
        return
    end = text.line_end(position)
    if not data.startswith((b"+", b"-", b" ", b"\\"), position) or _NAME_LINES.match(data, position):
        return
    is_mail = _MAIL_SIGNATURE.match(data, position) or data[position:end].removesuffix(b"--") in text.mail_boundaries
    if not is_mail:
        raise text.refusal(position, "this line comes after the last one that the hunk header counts")


def _read_names(text: DiffText, position: int) -> tuple[_Names, int]:
    """The two name lines at `position`, and the position after them. Raises DiffSyntaxError on anything else."""
    if not _NAME_LINES.match(text.data, position):
        raise text.refusal(position, "expected a `---` line and a `+++` line")
    middle = text.line_end(position) + 1
    end = text.line_end(middle) + 1
    old, old_date = _read_name(text, position, line=text.data[position + 4 : middle - 1])
    new, new_date = _read_name(text, middle, line=text.data[middle + 4 : end - 1])
    return _Names(old, new, old_date, new_date), end


def _read_name(text: DiffText, position: int, *, line: bytes) -> tuple[bytes, bytes]:
    """A name and what is after its tab. git writes a bare tab after a name that has a space."""
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


def _shared_path(old: bytes, new: bytes) -> bytes | None:
    """The path both names stand for: the same name twice, or the same below one leading directory each."""
    if old == new:
        return old
    old_rest, new_rest = old.partition(b"/")[2], new.partition(b"/")[2]
    return old_rest if old_rest and old_rest == new_rest else None


def _status_of(old_path: str | None, new_path: str | None) -> FileStatus:
    if old_path is None:
        return FileStatus.ADDED
    if new_path is None:
        return FileStatus.DELETED
    return FileStatus.MODIFIED if old_path == new_path else FileStatus.RENAMED


def _read_plain_section(text: DiffText, position: int) -> _Section:
    names, end = _read_names(text, position)
    old, new = _SPACED_DATE.search(names.old), _SPACED_DATE.search(names.new)
    if old and new and not names.old_date and not names.new_date:
        # Tabs were turned into spaces on the way.
        names = _Names(names.old[: old.start()], names.new[: new.start()], old[1], new[1])
    hunks, end = read_hunks(text, end)
    change = _plain_change(text, position, names=names, hunks=hunks)
    if (change.old_path is None and change.deleted) or (change.new_path is None and change.added):
        raise text.refusal(position, "the names of this section contradict its hunks")
    return _Section(change, position, end)


def _plain_change(
    text: DiffText, position: int, *, names: _Names, hunks: tuple[Hunk, ...] = (), binary: bool = False
) -> FileChange:
    old_path: str | None
    new_path: str | None
    if names.old == _NO_FILE and names.new == _NO_FILE:
        raise text.refusal(position, "this section names no file")
    # Where the other side has no name to compare with, only the prefix everybody knows is taken off.
    if names.old == _NO_FILE:
        old_path, new_path = None, text.path(position, names.new.removeprefix(b"b/"))
    elif names.new == _NO_FILE:
        old_path, new_path = text.path(position, names.old.removeprefix(b"a/")), None
    else:
        shared = _shared_path(names.old, names.new)
        old_path, new_path = text.path(position, shared or names.old), text.path(position, shared or names.new)
        if _tells_of_no_file(names.old_date) and not any(hunk.old_lines for hunk in hunks):
            old_path = None
        elif _tells_of_no_file(names.new_date) and not any(hunk.new_lines for hunk in hunks):
            new_path = None
    return FileChange(old_path, new_path, _status_of(old_path, new_path), binary=binary, hunks=hunks)


def _tells_of_no_file(date: bytes) -> bool:
    """Whether there was no such file: diff says so by the beginning of 1970, Subversion by words."""
    if match := _DATE.fullmatch(date):
        with suppress(ValueError):
            return datetime.fromisoformat(f"{match[1].decode()}{match[2].decode()}").timestamp() == 0
    return date in (b"(nonexistent)", b"(revision 0)")


def _read_submodule_note(text: DiffText, position: int) -> _Section | None:
    """A `Submodule path old..new` note, which git writes in place of a section under `diff.submodule=log`."""
    match = _SUBMODULE.match(text.data, position)
    if match is None:
        return None
    path = text.path(position, match[1])
    old_blob, new_blob = (blob.decode("ascii") if blob.strip(b"0") else None for blob in match.group(2, 3))
    old_path, new_path = path if old_blob else None, path if new_blob else None
    old_mode, new_mode = (SUBMODULE_MODE if blob else None for blob in (old_blob, new_blob))
    change = FileChange(old_path, new_path, _status_of(old_path, new_path), old_mode, new_mode, old_blob, new_blob)
    return _Section(change, position, match.end() + 1)


def _read_binary_note(text: DiffText, position: int) -> _Section | None:
    """What a plain diff says of a binary file that changed. Raises DiffSyntaxError if its name is not certain."""
    data = text.data
    if match := _BINARY.match(data, position):
        names = _split_at_and(match[1])
        if names is None:
            raise text.refusal(position, "the two names in this line cannot be told apart")
    elif match := _BINARY_OF_MERCURIAL.match(data, position):
        names = _Names(match[1], match[1])
    elif match := _BINARY_OF_SUBVERSION.match(data, position):
        # Subversion writes the name two lines above, over a line of `=`.
        line, ruler = [b"", b"", *data[max(0, position - 5_000) : position].split(b"\n")][-3:-1]
        if not line.startswith(b"Index: ") or ruler.strip(b"="):
            raise text.refusal(position, "this line does not say which file it is about")
        names = _Names(line.removeprefix(b"Index: "), line.removeprefix(b"Index: "))
    else:
        return None
    return _Section(_plain_change(text, position, names=names, binary=True), position, match.end() + 1)


def _split_at_and(line: bytes) -> _Names | None:
    """Both names: cut at the only ` and `, or in the middle if the same name is on both sides of it."""
    count = line.count(b" and ")
    cut = line.find(b" and ") if count == 1 else (len(line) - 5) // 2
    old, new = line[:cut], line[cut + 5 :]
    if line[cut : cut + 5] != b" and " or (count > 1 and _shared_path(old, new) is None):
        return None
    # Bazaar writes a date after each name, as in a `---` line.
    names = unquote(old.partition(b"\t")[0]), unquote(new.partition(b"\t")[0])
    return None if names[0] is None or names[1] is None else _Names(names[0], names[1])


def _read_git_section(text: DiffText, position: int) -> _Section:
    """The section whose `diff --git` line is at `position`: header lines, then hunks, a binary note, or nothing."""
    fields, end = _read_header(text, position)
    names, hunks, binary, end = _read_content(text, end)
    change = replace(_git_change(text, position, fields, names), binary=binary, hunks=hunks)
    added, deleted = change.status is FileStatus.ADDED, change.status is FileStatus.DELETED
    if (
        (names and ((names.old == _NO_FILE) != added or (names.new == _NO_FILE) != deleted))
        or (added and any(hunk.old_lines for hunk in hunks))
        or (deleted and any(hunk.new_lines for hunk in hunks))
    ):
        raise text.refusal(position, "the header of this section contradicts its hunks")
    # Without hunks: an empty file came or went, only the mode or only the name changed.
    blobs = [blob for blob in (change.old_blob, change.new_blob) if blob]
    if "index" in fields:
        is_bare = (added or deleted) and all(any(empty.startswith(blob) for empty in _EMPTY_BLOBS) for blob in blobs)
    else:
        is_bare = change.similarity in (None, 100) and len(fields) > 1
    if not hunks and not binary and not is_bare:
        raise text.refusal(
            position,
            "this section ends before it says what changed in the file",
            hint="make the diff again, without options that leave lines out (-w, --irreversible-delete)",
        )
    return _Section(change, position, end, from_git=True)


def _read_header(text: DiffText, start: int) -> tuple[dict[str, bytes], int]:
    """What the header lines say, by their labels, with the names of the `diff --git` line, and where they end."""
    end = text.line_end(start)
    fields = {"names": text.data[start + len(_GIT_HEADER) : end]}
    if fields["names"].endswith(b"\r"):
        raise text.refusal(
            start,
            "this line ends in CRLF and others do not",
            hint="convert the whole diff to one kind of line end, or make it again with `git diff > change.diff`",
        )
    position = end + 1
    while match := _EXTENDED.match(text.data, position):
        label, value = match[1].decode("ascii"), match[2]
        form = _FORMS.get("mode" if label.endswith(" mode") else label)
        if label in fields or (form is not None and form.fullmatch(value) is None):
            raise text.refusal(position, "this header line is malformed or is given twice")
        fields[label] = value
        position = match.end()
    if position < text.size:
        text.line_end(position)
    pairs = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
    exclusive = ("new file mode", "deleted file mode", "rename from", "copy from")
    incomplete = any((first in fields) != (second in fields) for first, second in pairs)
    if incomplete or sum(label in fields for label in exclusive) > 1:
        raise text.refusal(start, "the header of this section is incomplete or contradicts itself")
    return fields, position


def _read_content(text: DiffText, position: int) -> tuple[_Names | None, tuple[Hunk, ...], bool, int]:
    """What follows the header: the name lines with their hunks, whether it is binary instead, and the end."""
    data = text.data
    if data.startswith(b"--- ", position):
        names, hunks_start = _read_names(text, position)
        hunks, end = read_hunks(text, hunks_start)
        return names, hunks, False, end
    if data.startswith((b"Binary files ", b"Binary file "), position):
        end = text.line_end(position)
        if data.endswith((b" differ", b" has changed"), position, end):  # git's words, and Mercurial's
            return None, (), True, end + 1
    if not data.startswith(b"GIT binary patch\n", position):
        return None, (), False, position
    # One or two blocks, each of which ends with an empty line.
    position = start = text.line_end(position) + 1
    while match := _BINARY_BLOCK.match(data, position):
        end = data.find(b"\n\n", match.end() - 1)
        # The coded lines hold no space, so a space means that the block ran into something else.
        if end < 0 or data.find(b" ", match.end(), end) >= 0:
            raise text.refusal(position, "this binary patch is cut off: expected coded lines and then an empty line")
        position = end + 2
    if position == start:
        raise text.refusal(position, "expected `literal` or `delta` and a size")
    return None, (), True, position


def _git_change(text: DiffText, start: int, fields: Mapping[str, bytes], names: _Names | None) -> FileChange:
    move = next((kind for kind in ("rename", "copy") if f"{kind} from" in fields), None)
    stated: tuple[bytes | None, bytes | None]
    if move is None:
        stated = _git_paths(fields["names"], names) or (None, None)
    else:
        stated = unquote(fields[f"{move} from"]), unquote(fields[f"{move} to"])
    old, new = stated
    # The rename or copy lines give the paths, unless the name lines say otherwise.
    differs = move and names and old and new and not (names.old.endswith(old) and names.new.endswith(new))
    if old is None or new is None or differs:
        raise text.refusal(
            start,
            "the names in this section contradict each other or cannot be told apart",
            hint="make the diff again with `git diff --src-prefix=a/ --dst-prefix=b/`",
        )
    old_path, new_path = text.path(start, old), text.path(start, new)
    if move is not None:
        status = FileStatus.RENAMED if move == "rename" else FileStatus.COPIED
    elif "new file mode" in fields or (names and names.old == _NO_FILE):
        status = FileStatus.ADDED
    elif "deleted file mode" in fields or (names and names.new == _NO_FILE):
        status = FileStatus.DELETED
    else:
        status = _status_of(old_path, new_path)
    words = {label: value.decode("ascii", "replace") for label, value in fields.items() if label != "names"}
    index = _FORMS["index"].fullmatch(fields.get("index", b""))
    blobs = [blob.decode("ascii") if blob.strip(b"0") else None for blob in index.group(1, 2)] if index else [None] * 2
    mode = index[3].decode("ascii") if index and index[3] else None
    has_old, has_new = status is not FileStatus.ADDED, status is not FileStatus.DELETED
    return FileChange(
        old_path=old_path if has_old else None,
        new_path=new_path if has_new else None,
        status=status,
        old_mode=words.get("old mode") or words.get("deleted file mode") or (mode if has_old else None),
        new_mode=words.get("new mode") or words.get("new file mode") or (mode if has_new else None),
        old_blob=blobs[0],
        new_blob=blobs[1],
        similarity=int(words["similarity index"][:-1]) if "similarity index" in words else None,
    )


def _git_paths(line: bytes, names: _Names | None) -> tuple[bytes, bytes] | None:
    """The paths of a section without rename or copy lines, by its first and its name lines; None if they disagree."""
    written = _split_names(line)
    if written is None and names is not None:
        # Where the prefixes differ in length, one of the names is known from its own line.
        if names.new != _NO_FILE and line.endswith(b" " + names.new):
            written = line[: -len(names.new) - 1], names.new
        elif names.old != _NO_FILE and line.startswith(names.old + b" "):
            written = names.old, line[len(names.old) + 1 :]
    if written is None or (
        names and (names.old not in (written[0], _NO_FILE) or names.new not in (written[1], _NO_FILE))
    ):
        return None
    old, new = written
    shared = _shared_path(old, new)
    if shared is not None:
        return shared, shared
    two_files = names and _NO_FILE not in (names.old, names.new) and old.startswith(b"a/") and new.startswith(b"b/")
    return (old[2:], new[2:]) if two_files else None


def _split_names(line: bytes) -> tuple[bytes, bytes] | None:
    """Both names of a `diff --git` line. Unquoted, they are equal after prefixes of one length: cut in the middle."""
    is_quoted = line.startswith(b'"') or line.endswith(b'"')
    cut = line.find(b' "') if is_quoted else len(line) // 2
    if line.startswith(b'"'):
        cut = quoted_length(line) or 0
    if line[cut : cut + 1] != b" ":
        return None
    old, new = unquote(line[:cut]), unquote(line[cut + 1 :])
    if old is None or new is None or (not is_quoted and _shared_path(old, new) is None):
        return None
    return old, new
