"""The diff parser: bytes in, files and hunks out.

It reads what git and `diff -u` write, alone or inside of a log or a mail. Hunks are taken by the counts in their
headers, lines end at `\\n` only, and what is not certain is refused: a hunk in the wrong place is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff_headers import GIT_HEADER, read_git_section
from codeloupe.git.diff_names import begins_name_lines
from codeloupe.git.diff_plain import read_binary_note, read_plain_section, read_submodule_note, unshown_change
from codeloupe.git.diff_text import DiffText, Section
from codeloupe.model.change import FileChange, FileStatus

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
