"""Writing a unified diff as `git diff --text` prints it: git's own hunks, with names quoted as git quotes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk

# Bytes that git writes as a backslash and a character. It writes other special bytes as three octal digits.
_ESCAPES = dict(zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True))
_NO_FILE = b"/dev/null"


def unified_diff(files: Iterable[FileChange]) -> bytes:
    """Return the diff of some files."""
    pieces: list[bytes] = []
    for file in files:
        for section in _sections(file):
            pieces.extend(_header(section))
            pieces.extend(_content(section))
    return b"".join(pieces)


def _sections(file: FileChange) -> Iterator[FileChange]:
    """Yield the file itself. A file that changed its type is deleted and created again, as in git's diffs."""
    if file.status is not FileStatus.TYPE_CHANGED:
        yield file
        return
    bare = replace(file, counts=None, similarity=None)
    old_hunks = tuple(hunk for hunk in file.hunks if not hunk.new_lines)
    yield replace(bare, status=FileStatus.DELETED, new_path=None, new_mode=None, new_blob=None, hunks=old_hunks)
    new_hunks = tuple(hunk for hunk in file.hunks if not hunk.old_lines)
    yield replace(bare, status=FileStatus.ADDED, old_path=None, old_mode=None, old_blob=None, hunks=new_hunks)


def _header(file: FileChange) -> Iterator[bytes]:
    yield b"diff --git %s %s\n" % (_old_name(file), _new_name(file))
    yield from _mode_lines(file)
    if file.status in (FileStatus.RENAMED, FileStatus.COPIED):
        yield from _rename_lines(file)
    if file.old_blob != file.new_blob:
        yield _index_line(file)


def _mode_lines(file: FileChange) -> Iterator[bytes]:
    old_mode = (file.old_mode or "100644").encode()
    new_mode = (file.new_mode or "100644").encode()
    if file.status is FileStatus.ADDED:
        yield b"new file mode %s\n" % new_mode
    elif file.status is FileStatus.DELETED:
        yield b"deleted file mode %s\n" % old_mode
    elif file.old_mode and file.new_mode and old_mode != new_mode:
        yield b"old mode %s\nnew mode %s\n" % (old_mode, new_mode)


def _rename_lines(file: FileChange) -> Iterator[bytes]:
    word = b"copy"
    if file.status is FileStatus.RENAMED:
        word = b"rename"
    if file.similarity is not None:
        yield b"similarity index %d%%\n" % file.similarity
    old = os.fsencode(file.old_path or file.path)
    new = os.fsencode(file.new_path or file.path)
    yield b"%s from %s\n%s to %s\n" % (word, _quoted(old), word, _quoted(new))


def _index_line(file: FileChange) -> bytes:
    nothing = "0" * len(file.old_blob or file.new_blob or "")
    mode = ""
    if file.old_mode is not None and file.old_mode == file.new_mode:
        mode = f" {file.new_mode}"
    return f"index {file.old_blob or nothing}..{file.new_blob or nothing}{mode}\n".encode("ascii")


def _content(file: FileChange) -> Iterator[bytes]:
    old = _NO_FILE if file.old_path is None else _old_name(file)
    new = _NO_FILE if file.new_path is None else _new_name(file)
    if file.hunks:
        yield b"--- %s\n+++ %s\n" % (_with_end(old), _with_end(new))
    elif file.binary:
        yield b"Binary files %s and %s differ\n" % (old, new)
    for hunk in file.hunks:
        yield _hunk_line(hunk)
        yield hunk.body
        if not hunk.body.endswith(b"\n"):
            yield b"\n"


def _hunk_line(hunk: Hunk) -> bytes:
    old = _extent(hunk.old_start, hunk.old_lines)
    new = _extent(hunk.new_start, hunk.new_lines)
    section = b""
    if hunk.section:
        section = f" {hunk.section}".encode("utf-8", "replace")
    return b"@@ -%s +%s @@%s\n" % (old, new, section)


def _extent(start: int, lines: int) -> bytes:
    if lines == 1:
        return b"%d" % start
    return b"%d,%d" % (start, lines)


def _old_name(file: FileChange) -> bytes:
    return _quoted(b"a/" + os.fsencode(file.old_path or file.path))


def _new_name(file: FileChange) -> bytes:
    return _quoted(b"b/" + os.fsencode(file.new_path or file.path))


def _with_end(name: bytes) -> bytes:
    """Return a name, followed by a tab if it contains a space, so that its end is known."""
    return name + b"\t" if b" " in name else name


def _quoted(name: bytes) -> bytes:
    """Return a name between quotes and with escapes if a byte of it is special, and any other name as it is."""
    escaped = bytearray()
    for byte in name:
        if byte in _ESCAPES:
            escaped += b"\\%c" % _ESCAPES[byte]
        elif 0x20 <= byte < 0x7F:
            escaped.append(byte)
        else:
            escaped += b"\\%03o" % byte
    if escaped == name:
        return name
    return b'"%s"' % bytes(escaped)
