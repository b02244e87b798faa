"""The new content of files of which only a diff is known, rebuilt from what the repository still has.

A diff made elsewhere names blobs. When the old blob (or the file at HEAD) is here and every context and deleted
line of the diff agrees with it, applying the hunks gives the new content exactly; an added file is all in the diff.
What cannot be rebuilt for certain is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.git.command import Place, try_git
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, object_name, temporary_engine
from codeloupe.git.repository import Repository
from codeloupe.git.snapshot import write_file
from codeloupe.model.change import FileChange, FileStatus


async def rebuild(repository: Repository | None, files: Sequence[FileChange]) -> list[bytes | None]:
    """The whole new content of each file, or None where it cannot be known."""
    contents = [_from_diff_alone(file) for file in files]
    if repository is None or None not in contents:
        return contents
    head = await try_git(repository.place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    top = head.stdout.decode("ascii").strip()
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        for old_names in ([_old_blob(file) for file in files], [_old_path(top, file) for file in files]):
            asked = [name if known is None else "" for name, known in zip(old_names, contents, strict=True)]
            blobs = await _read_blobs(in_engine(git_dir), asked)
            for number, name in enumerate(asked):
                if name in blobs:
                    content = _from_old(blobs[name], files[number])
                    contents[number] = _checked(content, files[number], repository.sources.object_format)
    return contents


async def write_rebuilt(repository: Repository | None, files: Sequence[FileChange], root: Path) -> frozenset[str]:
    """Write each file whose new content can be known below `root`; returns the paths of those that were written."""
    contents = await rebuild(repository, files)
    return frozenset(
        file.path
        for file, content in zip(files, contents, strict=True)
        if content is not None and _could_write(root, file.path, content)
    )


def _could_write(root: Path, name: str, content: bytes) -> bool:
    try:
        write_file(root, name, content)
    except (OSError, ValueError):  # a path that leaves the tree, or is file and folder at once, has no content here
        return False
    return True


def _from_diff_alone(file: FileChange) -> bytes | None:
    if file.status not in (FileStatus.ADDED, FileStatus.TYPE_CHANGED) or _is_unshown(file):
        return None
    # A type change deletes the one file whole and adds the other whole.
    return apply_hunks(b"", replace(file, hunks=tuple(hunk for hunk in file.hunks if not hunk.old_lines)))


def _from_old(old: bytes, file: FileChange) -> bytes | None:
    return None if _is_unshown(file) else apply_hunks(old, file)


def _is_unshown(file: FileChange) -> bool:
    """Whether the diff only says that a binary file differs."""
    return file.binary and not file.hunks


def _checked(content: bytes | None, file: FileChange, object_format: str) -> bytes | None:
    """Content only if it is what the diff says it leads to: lines that the diff does not show may be others."""
    if content is None or file.new_blob is None:
        return content
    return content if object_name("blob", content, object_format).startswith(file.new_blob) else None


def _old_blob(file: FileChange) -> str:
    return file.old_blob if file.old_blob and file.old_blob.strip("0") else ""


def _old_path(top: str, file: FileChange) -> str:
    return f"{top}:{file.old_path}" if top and file.old_path else ""


async def _read_blobs(place: Place, names: Iterable[str]) -> dict[str, bytes]:
    """Those of some blobs that are here."""
    # They are handed over line by line.
    wanted = [name for name in dict.fromkeys(names) if name and "\n" not in name]
    if not wanted:
        return {}
    lines = b"".join(os.fsencode(name) + b"\n" for name in wanted)
    completed = await try_git(place, "cat-file", "--batch", stdin=lines)
    return _parse_batch(completed.stdout, wanted) if completed.exit_code == 0 else {}


def _parse_batch(output: bytes, names: list[str]) -> dict[str, bytes]:
    """Read, for each name, the line `name type size`, the content and a line end; or a line that says it is missing."""
    found: dict[str, bytes] = {}
    position = 0
    for name in names:
        end = output.index(b"\n", position)
        facts = output[position:end].rsplit(b" ", 2)
        position = end + 1
        if facts[-1].isdigit():
            size = int(facts[-1])
            if facts[-2] == b"blob":
                found[name] = output[position : position + size]
            position += size + 1
    return found


def apply_hunks(old: bytes, file: FileChange) -> bytes | None:
    """The old content with the hunks applied, or None when it is not what they were made from."""
    source = _lines(old)
    result: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        if not position <= start <= len(source):
            return None
        result += source[position:start]
        position = start
        for line in hunk.lines():
            text = line.text + b"\n" if line.ends_with_newline else line.text
            if line.kind != "added":
                if position >= len(source) or source[position] != text:
                    return None
                position += 1
            if line.kind != "deleted":
                result.append(text)
    result += source[position:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        return None
    return b"".join(result)


def _lines(content: bytes) -> list[bytes]:
    """The lines with their ends; only LF ends a line."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
