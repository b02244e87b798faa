"""The diff parser: bytes in, files and hunks out.

It reads what git and `diff -u` write, alone or inside of a log or a mail. Hunks are taken by the counts in their
headers, lines end at `\\n` only, and what is not certain is refused: a hunk in the wrong place is worse than none. A
prefix of a name is recognised by what both names share, so `a/` and `b/`, git's mnemonic letters, the two directories
of a recursive diff and no prefix at all are recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.hunks import without_repeated
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.system.regex import regex

_QUOTED = regex(rb'"(?:[^"\\\n]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"')
_GIT_HEADER = b"diff --git "
_NAME_LINES = regex(rb"--- [^\n]*\n\+\+\+ ")
_NO_FILE = b"/dev/null"
# Where tabs were turned into spaces.
_SPACED_DATE = regex(rb" (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [+-]\d{4})?)$")
# The beginning of 1970, in any time zone, by which diff says that there is no such file.
_NO_DATE = regex(rb"(?:1970-01-01|1969-12-31) \d\d:\d\d:00(?:\.0{1,9})? [+-]\d{4}")
_NOTABLE = regex(
    rb"\n(?=diff --(?:git|cc|combined) |--- |@@@? -|Binary files? |Files? |Only in |Submodule |\* Unmerged path "
    rb"|Cannot display: |\x1b\[[0-9;]{0,16}m(?:diff --|--- |@@ )"
    rb"|(?i:Content-Transfer-Encoding: {0,9}(?:quoted-printable|base64)))"
)
# Words must follow it: the last removed line of a hunk that counts too few could look the same.
_MAIL_SIGNATURE = regex(rb"-- ?\n(?!diff )[^-+ @\\\n]")
_MAKE_AGAIN = "create the diff again, for example with `git diff > change.diff`, and do not edit it"
_NO_COLOR = "the diff contains colour codes: create it with --no-color"
# Lines that begin something which cannot be read: why not, and what to do.
_REFUSED = (
    (
        regex(rb"diff --c|@@@"),
        "this is a combined diff of a merge, whose lines have no single old side",
        "review the merge against its first parent: git diff MERGE^1 MERGE",
    ),
    (regex(rb"\* "), "this file has unresolved conflicts", "resolve and add it, then create the diff again"),
    (regex(rb"\x1b"), "this line begins with a colour code, so the diff cannot be parsed", _NO_COLOR),
    (
        regex(rb"[Cc](?i:ontent-)"),
        "this mail is encoded, so its lines are not the lines of the diff",
        "save the patch as plain text, as `git format-patch` writes it",
    ),
    (regex(rb"@@ -"), "this hunk does not follow the header of a file or another hunk", _MAKE_AGAIN),
    (
        regex(rb"Submodule [^\n]+ [0-9a-f]{4,64}\.{2,3}[0-9a-f]{4,64}(?: \([a-z ]+\))?:?\n"),
        "a submodule changed here and only its log is shown",
        "create the diff with --submodule=short",
    ),
)
# As those, but in the text of a commit they are words like any other.
_UNSHOWN = (
    (
        regex(
            rb"Only in [^\n]+: |(?:Binary f|F)iles [^\n]+ differ\n|File [^\n]+ while file "
            rb"|Binary file [^\n]+ has changed\n|Cannot display: "
        ),
        "a file changed here and the diff does not show how",
        "create the diff with `git diff --no-index old new`, which includes binary files and files on one side only",
    ),
)
_BINARY = regex(rb"Binary files ([^\n]+) differ\n")
_EXTENDED = regex(
    rb"(?:(old mode|new mode|deleted file mode|new file mode) ([0-7]{6})|((?:copy|rename) (?:from|to)) ([^\n]*)"
    rb"|((?:dis)?similarity index) (\d{1,3}%)|(index) ([0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: [0-7]{6})?))\n"
)
_BINARY_BLOCK = regex(rb"(?:literal|delta) \d{1,20}\n")
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
# Ten digits are more lines than a file can have, and keep hostile numbers away from int(). Possessive, so that a
# body of a million lines leaves nothing to go back to. Python 3.11 before 3.11.5 takes a last line without its end
# along (gh-106052), so what was taken is cut after its last newline.
_HUNK = regex(
    rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@([^\n]*)\n"
    rb"((?:[-+ ][^\n]*+\n)*+)"
)
# The sides of a hunk that a line is on.
_SIDES = {b"+": frozenset({"new"}), b"-": frozenset({"old"}), b" ": frozenset({"old", "new"})}


class _Names(NamedTuple):
    """The names of a `---` and a `+++` line, as written but unquoted, and their dates."""

    old: bytes
    new: bytes
    old_date: bytes = b""
    new_date: bytes = b""


class _Text(Struct, frozen=True):
    """The whole diff, read by position."""

    data: bytes

    def line_end(self, position: int) -> int:
        """Where the newline of this line is. Raises DiffSyntaxError when the text ends in the middle of the line."""
        end = self.data.find(b"\n", position)
        if end < 0:
            raise self.refusal(position, "the text ends in the middle of a line, so the diff may be truncated")
        return end

    def refusal(self, position: int, problem: str, *, hint: str = _MAKE_AGAIN) -> DiffSyntaxError:
        """An error that names the line at `position`, what is wrong there, and the line itself."""
        line = self.data[position : position + 60].partition(b"\n")[0].decode("utf-8", "replace")
        where = f"the line is {line!r}" if position < len(self.data) else "the text ends here"
        number = self.data.count(b"\n", 0, position) + 1
        return DiffSyntaxError(f"line {number}: {problem} ({where})", hint=hint)

    def path(self, position: int, name: bytes) -> str:
        """A path inside a repository, decoded. Raises DiffSyntaxError for a name no repository can hold."""
        if here := re.match(rb"(?:\./)+", name):
            name = name[here.end() :]
        if not name or b"\0" in name:
            raise self.refusal(position, "expected the name of a file")
        if name.startswith(b"/") or b".." in name.split(b"/"):
            hint = "create the diff in the root directory of the repository, with relative paths"
            raise self.refusal(position, "the path points outside the repository", hint=hint)
        return decode_path(name)


def unquote(name: bytes) -> bytes | None:
    """The bytes a name means. A name without quotes is itself; None if it is quoted and malformed."""
    if not name.startswith(b'"'):
        return name
    # git's escapes are a part of Python's, and every byte is itself in Latin-1.
    return name[1:-1].decode("unicode_escape").encode("latin-1") if _QUOTED.fullmatch(name) else None


def decode_path(path: bytes) -> str:
    """A path as the model keeps it; bytes that are not UTF-8 survive the way back through `os.fsencode`."""
    return path.decode("utf-8", "surrogateescape")


def parse_diff(data: bytes) -> tuple[FileChange, ...]:
    """The files of a diff, in its order; none for an empty text.

    The delete and the create section of a file whose type changed become one file. Text around the sections is
    skipped. Raises DiffSyntaxError, which names the line, for a combined diff, for a diff that is cut off or
    contradicts itself, and for a text that is no diff.
    """
    if not data or data.isspace():
        return ()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "let git write the file itself: git diff --output=change.diff"
        raise DiffSyntaxError("line 1: the file is encoded as UTF-16, but git writes diffs as plain bytes", hint=hint)
    data = data.removeprefix(b"\xef\xbb\xbf")
    # git ends its own lines with LF; if each line ends with CRLF, a tool has put the CRs in.
    if data.partition(b"\n")[0].endswith(b"\r") and data.count(b"\r\n") == data.count(b"\n"):
        data = data.replace(b"\r\n", b"\n")
    files: list[FileChange] = []
    for new in _read_sections(_Text(data)):
        old = files[-1] if files else new
        swapped = (old.status, new.status) == (FileStatus.DELETED, FileStatus.ADDED) and old.old_path == new.new_path
        # git deletes a file in one section and creates one of another type in its place in the next.
        if swapped and old.old_mode and new.new_mode and old.old_mode[:3] != new.new_mode[:3]:
            kept = {name: getattr(old, name) for name in ("old_path", "old_mode", "old_blob")}
            binary, hunks = old.binary or new.binary, old.hunks + new.hunks
            files[-1] = replace(new, status=FileStatus.TYPE_CHANGED, binary=binary, hunks=hunks, **kept)
        else:
            files.append(new)
    if not files:
        hint = "give the output of `git diff`, `git show`, `git format-patch` or `diff -u`"
        raise DiffSyntaxError(
            "line 1: not a diff: expected a `diff --git` line, or a `---` and a `+++` line",
            hint=_NO_COLOR if b"\x1b[" in data else hint,
        )
    return tuple(files)


def _read_sections(text: _Text) -> Iterator[FileChange]:
    data, position = text.data, 0
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
        change, position = section
        after = position
        while data.startswith(b"\n", after):
            after += 1
        if change.hunks and after < len(data):
            text.line_end(after)
            # A line after a hunk that looks like its own: its header counts too few. The end of a mail is none.
            is_like_one = data.startswith((b"+", b"-", b" ", b"\\"), after) and not _NAME_LINES.match(data, after)
            if is_like_one and not _MAIL_SIGNATURE.match(data, after):
                raise text.refusal(after, "this line exceeds the line counts of the hunk header")
        yield change


def _read_notable(text: _Text, position: int, *, plain: bool) -> tuple[FileChange, int] | None:
    """The section that begins here and its end; None where it is but text. `plain`: no section of git is in it."""
    data = text.data
    if data.startswith(_GIT_HEADER, position):
        return _read_git_section(text, position)
    if _NAME_LINES.match(data, position):
        names, end = _read_names(text, position)
        hunks, end = _read_hunks(text, end)
        change = _plain_change(text, position, names, hunks)
        if (change.old_path is None and change.deleted) or (change.new_path is None and change.added):
            raise text.refusal(position, "the names of this section contradict its hunks")
        return change, end
    for sign, problem, hint in (*_REFUSED, *(_UNSHOWN if plain else ())):
        if sign.match(data, position):
            raise text.refusal(position, problem, hint=hint)
    return None


def _read_names(text: _Text, position: int) -> tuple[_Names, int]:
    if not _NAME_LINES.match(text.data, position):
        raise text.refusal(position, "expected a `---` line and a `+++` line")
    found: list[tuple[bytes, bytes]] = []
    for _ in range(2):
        end = text.line_end(position)
        # git writes a bare tab after a name that has a space; others write a date after it.
        written, tab, date = text.data[position + 4 : end].partition(b"\t")
        if not tab and (spaced := _SPACED_DATE.search(written, max(0, len(written) - 50))):
            written, date = written[: spaced.start()].rstrip(b" "), spaced[1]
        name = unquote(written)
        if name is None or b"\t" in date:
            raise text.refusal(position, "the name in this line is malformed, or followed by more than one tab")
        found.append((name, date))
        position = end + 1
    (old, old_date), (new, new_date) = found
    return _Names(old, new, old_date, new_date), position


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


def _plain_change(text: _Text, position: int, names: _Names, hunks: tuple[Hunk, ...]) -> FileChange:
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
        if _NO_DATE.fullmatch(names.old_date) and not any(hunk.old_lines for hunk in hunks):
            old_path = None
        elif _NO_DATE.fullmatch(names.new_date) and not any(hunk.new_lines for hunk in hunks):
            new_path = None
    return FileChange(old_path, new_path, _status_of(old_path, new_path), hunks=hunks)


def _read_git_section(text: _Text, position: int) -> tuple[FileChange, int]:
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
        hint = "create the diff again, without options that omit lines (-w, --irreversible-delete)"
        raise text.refusal(position, "this section ends before it says what changed in the file", hint=hint)
    return change, end


def _read_header(text: _Text, start: int) -> tuple[dict[str, bytes], int]:
    end = text.line_end(start)
    fields, position = {"names": text.data[start + len(_GIT_HEADER) : end]}, end + 1
    while match := _EXTENDED.match(text.data, position):
        label, value = (group for group in match.groups() if group is not None)
        if label.decode() in fields:
            raise text.refusal(position, "duplicate header line")
        fields[label.decode()] = value
        position = match.end()
    if position < len(text.data):
        text.line_end(position)
    pairs = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
    exclusive = ("new file mode", "deleted file mode", "rename from", "copy from")
    incomplete = any((first in fields) != (second in fields) for first, second in pairs)
    if incomplete or sum(label in fields for label in exclusive) > 1:
        raise text.refusal(start, "the header of this section is incomplete or contradicts itself")
    return fields, position


def _read_content(text: _Text, position: int) -> tuple[_Names | None, tuple[Hunk, ...], bool, int]:
    """What follows the header: the name lines with their hunks, whether it is binary instead, and the end."""
    data = text.data
    if data.startswith(b"--- ", position):
        names, hunks_start = _read_names(text, position)
        hunks, end = _read_hunks(text, hunks_start)
        return names, hunks, False, end
    if note := _BINARY.match(data, position):
        return None, (), True, note.end()
    if not data.startswith(b"GIT binary patch\n", position):
        return None, (), False, position
    # One or two blocks, each of which ends with an empty line.
    position = start = text.line_end(position) + 1
    while match := _BINARY_BLOCK.match(data, position):
        end = data.find(b"\n\n", match.end() - 1)
        # The coded lines hold no space, so a space means that the block ran into something else.
        if end < 0 or data.find(b" ", match.end(), end) >= 0:
            raise text.refusal(
                position, "this binary patch is truncated: expected encoded lines and then an empty line"
            )
        position = end + 2
    if position == start:
        raise text.refusal(position, "expected `literal` or `delta` and a size")
    return None, (), True, position


def _git_change(text: _Text, start: int, fields: Mapping[str, bytes], names: _Names | None) -> FileChange:
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
        hint = "create the diff again with `git diff --src-prefix=a/ --dst-prefix=b/`"
        raise text.refusal(start, "the names in this section contradict each other or are ambiguous", hint=hint)
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
    blobs, _, mode = words.get("index", "..").partition(" ")
    old_blob, new_blob = (blob if blob.strip("0") else None for blob in blobs.split(".."))
    has_old, has_new = status is not FileStatus.ADDED, status is not FileStatus.DELETED
    return FileChange(
        old_path=old_path if has_old else None,
        new_path=new_path if has_new else None,
        status=status,
        old_mode=words.get("old mode") or words.get("deleted file mode") or (mode if has_old and mode else None),
        new_mode=words.get("new mode") or words.get("new file mode") or (mode if has_new and mode else None),
        old_blob=old_blob,
        new_blob=new_blob,
        similarity=int(words["similarity index"][:-1]) if "similarity index" in words else None,
    )


def _git_paths(line: bytes, names: _Names | None) -> tuple[bytes, bytes] | None:
    """The paths of a section without rename or copy lines, by its first and its name lines; None if they disagree."""
    if line.startswith(b'"'):
        quoted = _QUOTED.match(line)
        cut = quoted.end() if quoted else 0
    elif line.endswith(b'"'):
        cut = line.find(b' "')
    elif names and names.new != _NO_FILE:
        cut = len(line) - len(names.new) - 1
    elif names:
        cut = len(names.old)
    else:
        cut = len(line) // 2  # without quotes they are equal after prefixes of one length
    old, new = unquote(line[:cut]), unquote(line[cut + 1 :])
    if line[cut : cut + 1] != b" " or old is None or new is None:
        return None
    if names and (names.old not in (old, _NO_FILE) or names.new not in (new, _NO_FILE)):
        return None
    if (shared := _shared_path(old, new)) is not None:
        return shared, shared
    two_files = names and _NO_FILE not in (names.old, names.new) and old.startswith(b"a/") and new.startswith(b"b/")
    return (old[2:], new[2:]) if two_files else None


def _read_hunks(text: _Text, position: int) -> tuple[tuple[Hunk, ...], int]:
    """Return the hunks that begin at `position`, each line in one hunk only, and where they end."""
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


def _read_hunk(text: _Text, position: int) -> tuple[Hunk, int]:
    """One hunk, as long as its header says. The usual one is never cut into lines: their beginnings are counted."""
    match = _HUNK.match(text.data, position)
    if match is None:
        raise text.refusal(position, "expected a hunk header like `@@ -1,4 +1,5 @@`")
    old, old_count, new, new_count, section, body = match.groups()
    old_start, old_lines = int(old), int(old_count) if old_count else 1
    new_start, new_lines = int(new), int(new_count) if new_count else 1
    if (old_lines and not old_start) or (new_lines and not new_start) or not (old_lines or new_lines):
        raise text.refusal(position, "this hunk header gives lines that cannot exist")
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
        end, added, deleted = _walk_body(text, start, old_lines, new_lines)
        body = text.data[start:end]
    heading = section.removeprefix(b" ").decode("utf-8", "replace")
    return Hunk(old_start, old_lines, new_start, new_lines, body, heading, added, deleted), end


def _walk_body(text: _Text, start: int, old_lines: int, new_lines: int) -> tuple[int, int, int]:
    """Where an unusual body ends, and its added and deleted lines: one with markers, or with lines that do not fit."""
    data, position, last = text.data, start, b""
    added = deleted = context = 0
    ended: frozenset[str] = frozenset()
    while added + context < new_lines or deleted + context < old_lines or data.startswith(b"\\", position):
        # An empty line is a context line that lost its space.
        sign = b" " if data.startswith(b"\n", position) else data[position : position + 1]
        added += sign == b"+"
        deleted += sign == b"-"
        context += sign == b" "
        sides = _SIDES.get(last if sign == b"\\" else sign)
        if sign != b"\\" and (sides is None or added + context > new_lines or deleted + context > old_lines):
            counts = f"{old_lines} old and {new_lines} new lines, as its header says"
            if position >= len(data):
                raise text.refusal(position, f"the hunk is truncated: expected {counts}")
            raise text.refusal(position, f"the hunk does not have {counts}: unexpected line")
        if sides is None or sides & ended:
            raise text.refusal(
                position, "a `\\ No newline` marker here or above does not follow the last line of a file"
            )
        ended |= sides if sign == b"\\" else frozenset()
        last = sign
        position = text.line_end(position) + 1
    return position, added, deleted
