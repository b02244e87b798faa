"""A change as one unified diff, as `git diff --text` would print it: for programs that read a diff on stdin.

The hunks are git's own bytes. Names are quoted as git quotes them, so that a program that reads git's diffs reads
these, whatever a file is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk

_USUAL_MODE = "100644"
_LETTERS = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def unified_diff(files: Iterable[FileChange]) -> bytes:
    """The diff of some files, in their order; empty for none."""
    return b"".join(piece for file in files for section in _sections(file) for piece in _pieces(section))


def quoted(name: bytes) -> bytes:
    """A name as git writes it: between quotes, with escapes, where a byte of it is special."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    return b'"%s"' % b"".join(_escaped(byte) for byte in name)


def _escaped(byte: int) -> bytes:
    if byte in _LETTERS:
        return b"\\" + _LETTERS[byte].encode()
    return bytes((byte,)) if 0x20 <= byte < 0x7F else b"\\%03o" % byte


def _sections(file: FileChange) -> Iterator[FileChange]:
    """The file itself; one that changed its type is deleted and created again, as git tells it."""
    if file.status is not FileStatus.TYPE_CHANGED:
        yield file
        return
    old, new = (replace(file, counts=None, similarity=None) for _ in range(2))
    yield replace(
        old,
        status=FileStatus.DELETED,
        new_path=None,
        new_mode=None,
        new_blob=None,
        hunks=tuple(hunk for hunk in file.hunks if not hunk.new_lines),
    )
    yield replace(
        new,
        status=FileStatus.ADDED,
        old_path=None,
        old_mode=None,
        old_blob=None,
        hunks=tuple(hunk for hunk in file.hunks if not hunk.old_lines),
    )


def _pieces(file: FileChange) -> Iterator[bytes]:
    old, new = os.fsencode(file.old_path or file.path), os.fsencode(file.new_path or file.path)
    before, after = quoted(b"a/" + old), quoted(b"b/" + new)
    yield b"diff --git %s %s\n" % (before, after)
    for line in _header_lines(file, quoted(old), quoted(new)):
        yield line + b"\n"
    before = before if file.old_path is not None else b"/dev/null"
    after = after if file.new_path is not None else b"/dev/null"
    if file.hunks:
        yield b"--- %s\n+++ %s\n" % (_ended(before), _ended(after))
        for hunk in file.hunks:
            yield _hunk_header(hunk)
            yield hunk.body if hunk.body.endswith(b"\n") else hunk.body + b"\n"
    elif file.binary:
        yield b"Binary files %s and %s differ\n" % (before, after)


def _ended(name: bytes) -> bytes:
    """A name with a space in it ends with a tab, so that its end can be told."""
    return name + b"\t" if b" " in name else name


def _header_lines(file: FileChange, old: bytes, new: bytes) -> Iterator[bytes]:
    old_mode, new_mode = (file.old_mode or "").encode(), (file.new_mode or "").encode()
    match file.status:
        case FileStatus.ADDED:
            yield b"new file mode " + (new_mode or _USUAL_MODE.encode())
        case FileStatus.DELETED:
            yield b"deleted file mode " + (old_mode or _USUAL_MODE.encode())
        case _:
            if old_mode and new_mode and old_mode != new_mode:
                yield b"old mode " + old_mode
                yield b"new mode " + new_mode
    if file.status in (FileStatus.RENAMED, FileStatus.COPIED):
        word = b"rename" if file.status is FileStatus.RENAMED else b"copy"
        if file.similarity is not None:
            yield b"similarity index %d%%" % file.similarity
        yield word + b" from " + old
        yield word + b" to " + new
    if file.old_blob != file.new_blob:
        yield _index_line(file)


def _index_line(file: FileChange) -> bytes:
    known = file.old_blob or file.new_blob or ""
    nothing = "0" * len(known)
    line = f"index {file.old_blob or nothing}..{file.new_blob or nothing}"
    same_mode = file.old_mode is not None and file.old_mode == file.new_mode
    return (f"{line} {file.new_mode}" if same_mode else line).encode("ascii")


def _hunk_header(hunk: Hunk) -> bytes:
    section = f" {hunk.section}".encode("utf-8", "replace") if hunk.section else b""
    old, new = _extent(hunk.old_start, hunk.old_lines), _extent(hunk.new_start, hunk.new_lines)
    return b"@@ -%s +%s @@%s\n" % (old, new, section)


def _extent(start: int, lines: int) -> bytes:
    return b"%d" % start if lines == 1 else b"%d,%d" % (start, lines)
