"""Detect the encoding of a text, and bring files and their hunks to UTF-8.

An encoding counts if the program that runs or shows the file would use it too: a byte order mark, a declaration in the
first lines, or NULs between ASCII letters. An encoding that gives readable bytes another meaning does not count. All
functions are linear in the content.
"""

from __future__ import annotations

import codecs
import re

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, Hunk
from codeloupe.system.regex import regex

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_HEAD_BYTES = 1024
_CONTEXT_LINES = 3
_DECLARED = regex(
    rb"coding[:=][ \t]{0,4}([-\w.]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([-\w.]{1,40})"
    rb"|<meta[^>]{0,200}charset=[\"']?([-\w.]{1,40})|@charset \"([-\w.]{1,40})\"|fileencoding=([-\w.]{1,40})",
    re.IGNORECASE,
)
_ASCII = bytes((*range(0x20, 0x7F), *b"\t\n\r"))
_LINE = regex(rb"[^\n]*\n|[^\n]+")
# A content with this share of ASCII characters is not UTF-16, whatever its first two bytes are.
_ASCII_SHARE = 0.85
# The share of ASCII letters, and of NULs between them, in UTF-16 and UTF-32 without a byte order mark.
_INTERLEAVED_SHARE = 0.7
# Each encoding with the bytes of a character, and the place among them of the byte that holds an ASCII letter.
_INTERLEAVED = (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1))
# An encoding that leaves this as it is keeps the meaning of ASCII: it has no escapes as UTF-7 and unicode_escape have.
_ASCII_WITH_ESCAPES = _ASCII + b"+AGE-\\x61"
_WORD = regex(rb"[\t\x20-\x7e]{4,}")


class Encoding(Struct, frozen=True):
    """The encoding of a content. With `keeps_lines`, each line of bytes is a line of text, and ASCII is ASCII."""

    name: str
    keeps_lines: bool
    mark: bytes = b""


def encoding_of(content: bytes, path: str) -> Encoding | None:
    """Return the encoding of a content, or None if it is UTF-8 or nothing says which encoding it is."""
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            if _is_mostly_ascii(content):
                return None
            return Encoding(name, keeps_lines=False, mark=mark)
    head = content[:_HEAD_BYTES]
    interleaved = _interleaved(head)
    if interleaved is None:
        return _declared(head, path)
    if hides_text(content, interleaved):
        return None
    return interleaved


def _is_mostly_ascii(content: bytes) -> bool:
    other_bytes = len(content.translate(None, _ASCII))
    return other_bytes <= len(content) * (1 - _ASCII_SHARE)


def hides_text(content: bytes, encoding: Encoding, *, least: int = 4) -> bool:
    """Return whether the bytes hold a word of at least `least` characters that the decoded text does not hold.

    A program that ignores the encoding and skips NULs, such as a shell, would read that word.
    """
    if encoding.keeps_lines:
        return False
    decoded = in_utf8(content, encoding)
    if decoded is None:
        return True
    position = 0
    for word in _WORD.findall(content.replace(b"\0", b"")):
        if len(word) >= least:
            position = decoded.find(word, position)
            if position < 0:
                return True
    return False


def in_utf8(content: bytes, encoding: Encoding) -> bytes | None:
    """Return the content as UTF-8, or None if it is not valid in its encoding."""
    try:
        return codecs.decode(content.removeprefix(encoding.mark), encoding.name).encode("utf-8")
    except ValueError:
        return None


def with_decoded_lines(file: FileChange, encoding: Encoding) -> FileChange:
    """Return the file with each row of its hunks in UTF-8. A row that cannot be decoded stays as it is."""
    hunks: list[Hunk] = []
    for hunk in file.hunks:
        rows = [_decoded_row(row, encoding) for row in hunk.body.split(b"\n")]
        hunks.append(replace(hunk, body=b"\n".join(rows)))
    return replace(file, hunks=tuple(hunks))


def _decoded_row(row: bytes, encoding: Encoding) -> bytes:
    if row.isascii():
        return row
    text = in_utf8(row[1:], encoding)
    if text is None or b"\n" in text:
        return row
    sign = row[:1]
    return sign + text


def with_compared_texts(file: FileChange, old: bytes, new: bytes) -> FileChange:
    """Return the file with one hunk between two texts, from the first to the last changed line."""
    before = _LINE.findall(old)
    after = _LINE.findall(new)
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    same_at_end = 0
    while same_at_end < shorter - start and before[-1 - same_at_end] == after[-1 - same_at_end]:
        same_at_end += 1
    deleted = before[start : len(before) - same_at_end]
    added = after[start : len(after) - same_at_end]
    if not deleted and not added:
        return _with_rows(file, [], first=0)
    first = max(0, start - _CONTEXT_LINES)
    following = after[len(after) - same_at_end :][:_CONTEXT_LINES]
    rows = [b" " + line for line in before[first:start]]
    rows += [b"-" + line for line in deleted]
    rows += [b"+" + line for line in added]
    rows += [b" " + line for line in following]
    return _with_rows(file, rows, first=first + 1)


def shown_whole(file: FileChange, text: bytes) -> FileChange:
    """Return the file with every line of its new text as an added line, and its deleted lines in their places."""
    added = [b"+" + line for line in _LINE.findall(text)]
    rows: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        # git numbers a hunk without new lines by the line before it.
        lines_before = hunk.new_start
        if hunk.new_lines:
            lines_before -= 1
        rows += added[position:lines_before]
        position = max(position, lines_before)
        for line in hunk.lines():
            if line.new_number is None:
                rows.append(b"-" + line.text + b"\n")
            else:
                rows += added[position : line.new_number]
                position = max(position, line.new_number)
    rows += added[position:]
    return _with_rows(file, rows, first=1)


def _with_rows(file: FileChange, rows: list[bytes], *, first: int) -> FileChange:
    """Return the file as text with one hunk of these rows, the first of which is line `first`."""
    if not rows:
        return replace(file, binary=False, hunks=(), counts=None)
    added = sum(row.startswith(b"+") for row in rows)
    deleted = sum(row.startswith(b"-") for row in rows)
    old_lines = len(rows) - added
    new_lines = len(rows) - deleted
    parts: list[bytes] = []
    for row in rows:
        parts.append(row)
        if not row.endswith(b"\n"):
            parts.append(b"\n\\ No newline at end of file\n")
    hunk = Hunk(
        old_start=first if old_lines else 0,
        old_lines=old_lines,
        new_start=first if new_lines else 0,
        new_lines=new_lines,
        body=b"".join(parts),
        added=added,
        deleted=deleted,
    )
    return replace(file, binary=False, hunks=(hunk,), counts=None)


def _interleaved(head: bytes) -> Encoding | None:
    """Detect UTF-16 or UTF-32 without a mark: ASCII characters with NULs in the places of their upper bytes."""
    for name, width, place in _INTERLEAVED:
        count = len(head) // width
        if count <= 1:
            continue
        whole = head[: count * width]
        letters = whole[place::width]
        upper_bytes = b"".join(whole[number::width] for number in range(width) if number != place)
        not_ascii = len(letters.translate(None, _ASCII))
        is_ascii = not_ascii <= count * (1 - _INTERLEAVED_SHARE)
        has_nuls = upper_bytes.count(0) >= len(upper_bytes) * _INTERLEAVED_SHARE
        if is_ascii and has_nuls and letters.count(0) < count // 4 + 1:
            return Encoding(name, keeps_lines=False)
    return None


def _declared(head: bytes, path: str) -> Encoding | None:
    """Return the encoding that the first lines of a text declare."""
    has_python_name = path.lower().endswith((".py", ".pyw", ".pyi"))
    is_python = has_python_name or (head.startswith(b"#!") and b"python" in head[:80])
    if is_python:
        # Python looks for a declaration only there.
        head = b"\n".join(head.split(b"\n")[:2])
    found = _DECLARED.search(head)
    if found is None:
        return None
    declared = next(group for group in found.groups() if group)
    try:
        name = codecs.lookup(declared.decode("ascii")).name
    except LookupError:
        return None
    if name in ("utf-8", "ascii", "utf-8-sig") or not _is_text_encoding(name):
        return None
    decoded = in_utf8(_ASCII_WITH_ESCAPES, Encoding(name, keeps_lines=False))
    keeps_lines = decoded == _ASCII_WITH_ESCAPES
    # Only Python itself reads a source in an encoding that gives ASCII another meaning.
    if not keeps_lines and not is_python:
        return None
    return Encoding(name, keeps_lines=keeps_lines)


def _is_text_encoding(name: str) -> bool:
    """Return whether a codec decodes bytes to text, unlike `rot13` and `hex`."""
    try:
        b"a".decode(name)
    except LookupError:
        return False
    except ValueError:
        # It is a text encoding in which this byte alone is not valid, such as UTF-16.
        return True
    return True
