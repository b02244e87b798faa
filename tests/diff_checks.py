"""Comparing a parsed diff with what git itself says, down to every line of every blob."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codeloupe.model.change import DiffLine, FileChange, FileStatus
from tests.repository import GitRepository

PATCH_OPTIONS = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--text",
    "--full-index",
    "--find-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--diff-algorithm=histogram",
)
LIST_OPTIONS = ("--no-ext-diff", "--find-renames", "--diff-algorithm=histogram", "--no-abbrev", "-z")

_LETTERS = {
    "A": FileStatus.ADDED,
    "M": FileStatus.MODIFIED,
    "D": FileStatus.DELETED,
    "R": FileStatus.RENAMED,
    "C": FileStatus.COPIED,
    "T": FileStatus.TYPE_CHANGED,
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `git diff --raw -z`, with the counts of `--numstat -z` (None: binary)."""

    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str
    letter: str
    old_path: bytes
    new_path: bytes
    counts: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Style:
    """How a diff is asked for: options of the patch alone, and context and options that lists and patch share."""

    patch: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    context: int = 3

    @property
    def settings(self) -> tuple[str, ...]:
        """The context as a setting: the option -U would turn a list into a patch."""
        return ("-c", f"diff.context={self.context}")


AS_THE_PROGRAM = Style()


def patch_of(repository: GitRepository, commits: tuple[str, str], style: Style = AS_THE_PROGRAM) -> bytes:
    """The patch between two commits, made as the program makes it but for the style."""
    return repository.git(*style.settings, "diff", *PATCH_OPTIONS, *style.shared, *style.patch, *commits)


def lists_of(repository: GitRepository, commits: tuple[str, str], style: Style = AS_THE_PROGRAM) -> bytes:
    """The lists of changed files between two commits: raw and numstat, NUL-separated, from one call."""
    return repository.git(*style.settings, "diff", "--raw", "--numstat", *LIST_OPTIONS, *style.shared, *commits)


def patches_of(
    repository: GitRepository, commits: Sequence[tuple[str, str]], style: Style = AS_THE_PROGRAM
) -> list[bytes]:
    """The patches between many pairs of commits, as `patch_of` gives one, from one call of git."""
    words = (f"--unified={style.context}", *PATCH_OPTIONS, *style.shared, *style.patch)
    return _for_each(repository, commits, "--patch", *words)


def many_lists_of(
    repository: GitRepository, commits: Sequence[tuple[str, str]], style: Style = AS_THE_PROGRAM
) -> list[bytes]:
    """The lists of changed files between many pairs of commits, as `lists_of` gives one, from one call of git."""
    return _for_each(repository, commits, "--raw", "--numstat", *LIST_OPTIONS, *style.shared)


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


def listed(lists: bytes) -> list[Listed]:
    """git's own list of changed files, each with its counts."""
    fields = iter(lists.split(b"\0")[:-1])
    entries: list[Listed] = []
    counts: dict[tuple[bytes, bytes], tuple[int, int] | None] = {}
    for field in fields:
        if field.startswith(b":"):
            old_mode, new_mode, old_blob, new_blob, letter = field[1:].decode().split(" ")
            old_path = next(fields)
            new_path = next(fields) if letter[0] in "RC" else old_path
            entries.append(Listed(old_mode, new_mode, old_blob, new_blob, letter[0], old_path, new_path, None))
        else:
            added, deleted, path = field.split(b"\t", 2)
            paths = (path, path) if path else (next(fields), next(fields))
            counts[paths] = None if added == b"-" else (int(added), int(deleted))
    return [dataclasses.replace(entry, counts=counts.pop((entry.old_path, entry.new_path))) for entry in entries]


def check_list(files: Sequence[FileChange], entries: Sequence[Listed]) -> None:
    """Names, status, modes, blobs and counts are git's."""
    assert [_encoded(file.path) for file in files] == [entry.new_path for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        assert file.status is _LETTERS[entry.letter]
        assert file.old_path is None or _encoded(file.old_path) == entry.old_path
        assert (file.old_path is None) == (file.status is FileStatus.ADDED)
        assert (file.new_path is None) == (file.status is FileStatus.DELETED)
        for ours, gits in ((file.old_mode, entry.old_mode), (file.new_mode, entry.new_mode)):
            assert ours in (gits, None)
        for ours, gits in ((file.old_blob, entry.old_blob), (file.new_blob, entry.new_blob)):
            assert ours is None or gits.startswith(ours)
        # numstat compares the contents of a type change; the patch alone does not, and `check_file` looks at it.
        if entry.counts is not None and entry.letter != "T":
            assert (file.added, file.deleted) == entry.counts


def check_lines(
    blobs: GitRepository | Mapping[str, bytes], files: Sequence[FileChange], entries: Sequence[Listed]
) -> None:
    """Every line has the number and the bytes it has in the blobs, and the hunks turn the old blob into the new one.

    The blobs are read from a repository, or given by their names.
    """
    contents = _contents(blobs, entries)
    for file, entry in zip(files, entries, strict=True):
        check_file(file, contents[entry.old_mode, entry.old_blob], contents[entry.new_mode, entry.new_blob])


def check_file(file: FileChange, old: bytes, new: bytes) -> None:
    """Compare the hunks of one file with its old and its new content."""
    old_lines, new_lines = _lines_of(old), _lines_of(new)
    for hunk in file.hunks:
        lines = list(hunk.lines())
        assert sum(line.kind == "added" for line in lines) == hunk.added
        assert sum(line.kind == "deleted" for line in lines) == hunk.deleted
        assert sum(line.old_number is not None for line in lines) == hunk.old_lines
        assert sum(line.new_number is not None for line in lines) == hunk.new_lines
        for line in lines:
            for number, blob in ((line.old_number, old_lines), (line.new_number, new_lines)):
                assert number is None or blob[number - 1] == (line.text, line.ends_with_newline)
    if file.status is FileStatus.TYPE_CHANGED:
        assert sum(hunk.deleted for hunk in file.hunks) == len(old_lines)
        assert sum(hunk.added for hunk in file.hunks) == len(new_lines)
    elif old != new:
        assert _applied(old_lines, file) == new_lines


def _lines_of(content: bytes) -> list[tuple[bytes, bool]]:
    lines = content.split(b"\n")
    last = lines.pop()
    return [(line, True) for line in lines] + ([(last, False)] if last else [])


def _applied(old_lines: Sequence[tuple[bytes, bool]], file: FileChange) -> list[tuple[bytes, bool]]:
    result: list[tuple[bytes, bool]] = []
    taken = 0
    for hunk in file.hunks:
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        result += old_lines[taken:start]
        result += _new_side(hunk.lines())
        taken = start + hunk.old_lines
    return result + list(old_lines[taken:])


def _new_side(lines: Iterable[DiffLine]) -> list[tuple[bytes, bool]]:
    return [(line.text, line.ends_with_newline) for line in lines if line.kind != "deleted"]


def _contents(known: GitRepository | Mapping[str, bytes], entries: Sequence[Listed]) -> dict[tuple[str, str], bytes]:
    """What each side holds, by mode and blob: a submodule holds the line that git shows for it."""
    contents = {("000000", "0" * 40): b""}
    blobs = set()
    for entry in entries:
        for mode, blob in ((entry.old_mode, entry.old_blob), (entry.new_mode, entry.new_blob)):
            if mode == "160000":
                contents[mode, blob] = f"Subproject commit {blob}\n".encode()
            elif blob.strip("0"):
                blobs.add((mode, blob))
    names = [blob for _, blob in blobs]
    read = read_blobs(known, names) if isinstance(known, GitRepository) else [known[name] for name in names]
    contents.update(zip(blobs, read, strict=True))
    return contents


def read_blobs(repository: GitRepository, blobs: Sequence[str]) -> list[bytes]:
    """The content of many blobs with one call of git."""
    output = repository.git("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs).encode())
    contents = []
    position = 0
    for blob in blobs:
        end = output.index(b"\n", position)
        name, kind, size = output[position:end].decode().split(" ")
        assert (name, kind) == (blob, "blob")
        contents.append(output[end + 1 : end + 1 + int(size)])
        position = end + int(size) + 2
    return contents


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
