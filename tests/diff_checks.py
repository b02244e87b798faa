"""Comparing a parsed diff with what git itself says, down to every line of every blob."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codeloupe.git.changes import parse_list, read_change, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import SUBMODULE_MODE, Change, FileChange, FileStatus
from codeloupe.model.scope import ScopeRequest
from tests.repository import GitRepository

_SHARED = ("--no-ext-diff", "--find-renames", "--diff-algorithm=histogram")
_PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")
PATCH_OPTIONS = (*_SHARED, "--no-textconv", "--no-color", "--text", "--full-index", *_PREFIXES)
LIST_OPTIONS = (*_SHARED, "--raw", "--numstat", "--no-abbrev", "-z")


@dataclass(frozen=True, slots=True)
class Style:
    """How a diff is asked for: options of the patch alone, options that lists and patch share, and the context."""

    patch: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    context: int = 3


AS_THE_PROGRAM = Style()


def patch_of(repository: GitRepository, commits: tuple[str, str], style: Style = AS_THE_PROGRAM) -> bytes:
    """The patch between two commits, made as the program makes it but for the style."""
    return patches_of(repository, [commits], style)[0]


def lists_of(repository: GitRepository, commits: tuple[str, str], style: Style = AS_THE_PROGRAM) -> bytes:
    """The list of changed files between two commits."""
    return many_lists_of(repository, [commits], style)[0]


def patches_of(
    repository: GitRepository, commits: Sequence[tuple[str, str]], style: Style = AS_THE_PROGRAM
) -> list[bytes]:
    """The patches between many pairs of commits, from one call of git."""
    words = ("--patch", f"--unified={style.context}", *PATCH_OPTIONS, *style.shared, *style.patch)
    return _for_each(repository, commits, *words)


def many_lists_of(
    repository: GitRepository, commits: Sequence[tuple[str, str]], style: Style = AS_THE_PROGRAM
) -> list[bytes]:
    """The lists of changed files between many pairs of commits, from one call of git."""
    return _for_each(repository, commits, *LIST_OPTIONS, *style.shared)


def _for_each(repository: GitRepository, commits: Sequence[tuple[str, str]], *options: str) -> list[bytes]:
    names = repository.git("rev-parse", *(f"{commit}^{{tree}}" for pair in commits for commit in pair)).split()
    headers = [b"%b %b\n" % pair for pair in zip(names[::2], names[1::2], strict=True)]
    output = repository.git("diff-tree", "--stdin", "-r", *options, stdin=b"".join(headers))
    starts = [0]
    for header in headers[1:]:
        starts.append(output.index(header, starts[-1] + len(header)))
    return [
        output[start + len(header) : end]
        for start, header, end in zip(starts, headers, [*starts[1:], len(output)], strict=True)
    ]


def read_scope(path: Path, request: ScopeRequest) -> Change:
    """The change that is asked for, read as the program reads it."""

    async def go() -> Change:
        repository = await open_repository(path)
        return await read_change(repository, await resolve_scope(repository, request, base_branch=None))

    return asyncio.run(go())


def check_change(patch: bytes, lists: bytes, blobs: GitRepository | Mapping[str, bytes]) -> tuple[FileChange, ...]:
    """Read a patch and git's list: both agree, and every line has the number and the bytes it has in the blobs."""
    parsed, listed = parse_diff(patch), parse_list(lists)[0]
    files = reconcile(parsed, listed)
    assert [file.hunks for file in files] == [file.hunks for file in parsed]
    names = {blob for file in listed for blob in (file.old_blob, file.new_blob) if blob}
    submodules = {file.old_blob for file in listed if file.old_mode == SUBMODULE_MODE}
    submodules |= {file.new_blob for file in listed if file.new_mode == SUBMODULE_MODE}
    wanted = sorted(names - submodules)
    read = read_blobs(blobs, wanted) if isinstance(blobs, GitRepository) else [blobs[name] for name in wanted]
    contents: dict[str | None, bytes] = dict(zip(wanted, read, strict=True))
    contents |= {name: f"Subproject commit {name}\n".encode() for name in submodules} | {None: b""}
    for file, shown, entry in zip(files, parsed, listed, strict=True):
        assert shown.old_mode in (entry.old_mode, None)
        assert shown.new_mode in (entry.new_mode, None)
        assert (file.old_blob, file.new_blob, file.binary) == (entry.old_blob, entry.new_blob, entry.binary)
        assert file.binary or (file.added, file.deleted) == (entry.added, entry.deleted)
        check_file(shown, contents[entry.old_blob], contents[entry.new_blob])
    return files


def check_file(file: FileChange, old: bytes, new: bytes) -> None:
    """Compare the hunks of one file with its old and its new content, which they must make of each other."""
    old_lines, new_lines = _lines_of(old), _lines_of(new)
    result: list[tuple[bytes, bool]] = []
    taken = 0
    for hunk in file.hunks:
        lines = list(hunk.lines())
        assert sum(line.kind == "added" for line in lines) == hunk.added
        assert sum(line.kind == "deleted" for line in lines) == hunk.deleted
        assert sum(line.old_number is not None for line in lines) == hunk.old_lines
        assert sum(line.new_number is not None for line in lines) == hunk.new_lines
        for line in lines:
            for number, blob in ((line.old_number, old_lines), (line.new_number, new_lines)):
                assert number is None or blob[number - 1] == (line.text, line.ends_with_newline)
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        result += old_lines[taken:start]
        result += [(line.text, line.ends_with_newline) for line in lines if line.kind != "deleted"]
        taken = start + hunk.old_lines
    if file.status is FileStatus.TYPE_CHANGED:
        assert sum(hunk.deleted for hunk in file.hunks) == len(old_lines)
        assert sum(hunk.added for hunk in file.hunks) == len(new_lines)
    elif old != new:
        assert result + old_lines[taken:] == new_lines


def _lines_of(content: bytes) -> list[tuple[bytes, bool]]:
    lines = content.split(b"\n")
    last = lines.pop()
    return [(line, True) for line in lines] + ([(last, False)] if last else [])


def read_blobs(repository: GitRepository, blobs: Sequence[str]) -> list[bytes]:
    """The content of many blobs with one call of git."""
    output = repository.git("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs).encode())
    contents = []
    position = 0
    for _ in blobs:
        end = output.index(b"\n", position)
        size = int(output[position:end].split(b" ")[2])
        contents.append(output[end + 1 : end + 1 + size])
        position = end + size + 2
    return contents
