"""Text in other encodings than UTF-8, as UTF-8: a reviewer and an analyser see the characters, not their bytes.

An encoding counts where whoever runs the file would believe it too: a byte order mark, a declaration in the first
lines, NULs between ASCII letters. One that would turn readable bytes into other characters is not believed, since code
could hide behind it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD_BYTES = 1024
_DECLARED = re.compile(
    rb"coding[:=][ \t]{0,4}([-\w.]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([-\w.]{1,40})"
    rb"|<meta[^>]{0,200}charset=[\"']?([-\w.]{1,40})|@charset \"([-\w.]{1,40})\"|fileencoding=([-\w.]{1,40})",
    re.IGNORECASE,
)
_PYTHON_SUFFIXES = (".py", ".pyw", ".pyi")
_ASCII = bytes((*range(0x20, 0x7F), *b"\t\n\r"))
# More of it in ASCII than that is no UTF-16, whatever its first two bytes say.
_MOST_ASCII = 0.85
_LEAST_INTERLEAVED = 0.7
_CONTEXT_LINES = 3
_WORD = re.compile(rb"[\t\x20-\x7e]{4,}")
_UTF8 = frozenset(("utf-8", "ascii", "utf-8-sig"))


class Encoding(Struct, frozen=True):
    """How a content is encoded. `keeps_lines` where a line of bytes is a line of text, and ASCII is ASCII."""

    name: str
    keeps_lines: bool
    mark: bytes = b""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.name.upper().removesuffix("-LE").removesuffix("-BE")


def encoding_of(content: bytes, path: str) -> Encoding | None:
    """The encoding of a content that is not UTF-8; None for UTF-8, and where nothing tells which one it is."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return None if _is_ascii_text(content) else Encoding(name, keeps_lines=False, mark=mark)
    if b"\0" in content[:_HEAD_BYTES] and (found := _interleaved(content[:_HEAD_BYTES])):
        without_mark = Encoding(found, keeps_lines=False)
        return None if hides_text(content, without_mark) else without_mark
    return _declared(content, path)


def hides_text(content: bytes, encoding: Encoding, *, least: int = 4) -> bool:
    """Whether who ignores the encoding, and NULs as a shell does, reads words that are not in the decoded text.

    A word has at least so many bytes. Short ones come about by chance where each character is two bytes beyond ASCII.
    """
    if encoding.keeps_lines:
        return False
    decoded = in_utf8(content, encoding)
    if decoded is None:
        return True
    position = 0
    for word in _WORD.finditer(content.replace(b"\0", b"")):
        if len(word[0]) < least:
            continue
        position = decoded.find(word[0], position)
        if position < 0:
            return True
    return False


def in_utf8(content: bytes, encoding: Encoding) -> bytes | None:
    """The content as UTF-8; None when it is not what its encoding says."""
    try:
        return codecs.decode(content.removeprefix(encoding.mark), encoding.name).encode("utf-8")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def with_decoded_lines(file: FileChange, encoding: Encoding) -> FileChange:
    """The same hunks with each row in UTF-8; a row that cannot be decoded stays as it is."""
    return replace(file, hunks=tuple(replace(hunk, body=_decoded_body(hunk.body, encoding)) for hunk in file.hunks))


def with_compared_texts(file: FileChange, old: bytes, new: bytes) -> FileChange:
    """The file with the hunk that leads from one text to the other: all between the first and last changed line."""
    before, after = _lines(old), _lines(new)
    shorter = min(len(before), len(after))
    start = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    room = shorter - start
    same = next((n for n in range(room) if before[-1 - n] != after[-1 - n]), room)
    first = max(0, start - _CONTEXT_LINES)
    behind = min(same, _CONTEXT_LINES)
    rows = [
        *_rows(b" ", before[first:start]),
        *_rows(b"-", before[start : len(before) - same]),
        *_rows(b"+", after[start : len(after) - same]),
        *_rows(b" ", after[len(after) - same : len(after) - same + behind]),
    ]
    deleted, added = len(before) - same - start, len(after) - same - start
    if not deleted and not added:
        return replace(file, hunks=(), counts=None)
    around = start - first + behind
    hunk = Hunk(
        old_start=first + 1 if deleted + around else 0,
        old_lines=deleted + around,
        new_start=first + 1 if added + around else 0,
        new_lines=added + around,
        body=b"".join(rows),
        added=added,
        deleted=deleted,
    )
    return replace(file, hunks=(hunk,), counts=None)


def is_added_whole(file: FileChange) -> bool:
    """Whether there is no old content to compare with."""
    return file.status in (FileStatus.ADDED, FileStatus.TYPE_CHANGED)


def _is_ascii_text(content: bytes) -> bool:
    return len(content.translate(None, _ASCII)) <= len(content) * (1 - _MOST_ASCII)


def _interleaved(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark: ASCII characters with NULs in the places of their upper bytes."""
    for width, names in ((4, ("utf-32-le", "utf-32-be")), (2, ("utf-16-le", "utf-16-be"))):
        count = len(head) // width
        if count < 2:
            continue
        for name, place in zip(names, (0, width - 1), strict=True):
            letters = head[place : count * width : width]
            others = b"".join(head[n : count * width : width] for n in range(width) if n != place)
            is_text = len(letters.translate(None, _ASCII)) <= count * (1 - _LEAST_INTERLEAVED)
            if is_text and others.count(0) >= len(others) * _LEAST_INTERLEAVED and letters.count(0) < count // 4 + 1:
                return name
    return None


def _declared(content: bytes, path: str) -> Encoding | None:
    head = content[:_HEAD_BYTES]
    is_python = PurePosixPath(path.lower()).suffix in _PYTHON_SUFFIXES or (head[:2] == b"#!" and b"python" in head[:80])
    if is_python:
        head = b"\n".join(head.split(b"\n")[:2])
    found = _DECLARED.search(head)
    if found is None:
        return None
    try:
        codec = codecs.lookup(next(group for group in found.groups() if group).decode("ascii"))
    except LookupError:
        return None
    if codec.name in _UTF8 or not codec._is_text_encoding:  # noqa: SLF001 - the only way to ask
        return None
    keeps_lines = _keeps_ascii(codec.name)
    # Only Python itself reads a source in an encoding that gives ASCII another meaning.
    return Encoding(codec.name, keeps_lines=keeps_lines) if keeps_lines or is_python else None


def _keeps_ascii(name: str) -> bool:
    try:
        return (
            codecs.decode(_ASCII, name) == _ASCII.decode("ascii") and codecs.decode(b"+AGE-\\x61", name) == "+AGE-\\x61"
        )
    except ValueError:
        return False


def _decoded_body(body: bytes, encoding: Encoding) -> bytes:
    if body.isascii():
        return body
    return b"\n".join(_decoded_row(row, encoding) for row in body.split(b"\n"))


def _decoded_row(row: bytes, encoding: Encoding) -> bytes:
    if row.isascii():
        return row
    decoded = in_utf8(row[1:], encoding)
    return row if decoded is None or b"\n" in decoded else row[:1] + decoded


def _lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _rows(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line if line.endswith(b"\n") else sign + line + b"\n\\ No newline at end of file\n"
