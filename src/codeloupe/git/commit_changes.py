"""The changes of many commits, each against its first parent, with two git processes for a batch of them."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import CodeloupeError
from codeloupe.git.blob_contents import blob_sizes
from codeloupe.git.command import DIFF_FLAGS, PATCH_FLAGS, Place, both, git
from codeloupe.git.diff import parse_diff
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, temporary_engine
from codeloupe.git.merge_changes import only_own, parse_combined
from codeloupe.git.raw import RawEntry, parse_raw_numstat, reconcile
from codeloupe.git.reading import read_change
from codeloupe.git.repository import Repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Change, Scope, ScopeKind
from codeloupe.model.commit import Commit
from codeloupe.model.scope import CommitScope

_LOG = ("log", "--no-walk=unsorted", "--stdin", "--no-show-signature")
_AGAINST_FIRST_PARENT = ("--diff-merges=first-parent",)
_LINES_IN_BATCH = 50_000
_COMMITS_IN_BATCH = 50
_BINARY_BYTES_IN_BATCH = 16 * 1024**2


class CommitChange(Struct, frozen=True):
    """A commit with its change; `change` is None when it cannot be read, and `problem` says why."""

    commit: Commit
    change: Change | None
    problem: str = ""


async def read_commit_changes(
    repository: Repository, commits: Sequence[Commit], *, merges: bool = False
) -> AsyncGenerator[CommitChange]:
    """Each commit with its change, in order: the one that `read_change` gives for the commit alone.

    With `merges` the change of a merge is only what it changed itself, and its numbers are those of that. A commit
    that cannot be read takes nothing from the others. While some commits are in use the next ones are being read.
    """
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        reader = _Reader(repository, in_engine(git_dir), _edge(repository), merges=merges)
        left = _batches(commits)
        reading = deque(asyncio.create_task(reader.read(batch)) for batch in islice(left, 1))
        try:
            while reading:
                changes = await reading[0]
                reading.extend(asyncio.create_task(reader.read(batch)) for batch in islice(left, 1))
                for read in changes:
                    yield read
                del reading[0]
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


def _edge(repository: Repository) -> frozenset[str]:
    """The commits of a shallow clone whose parents are not here: to git each of them adds every file."""
    if not repository.shallow:
        return frozenset()
    return frozenset(repository.sources.shallow.read_text(encoding="ascii", errors="replace").split())


def _batches(commits: Sequence[Commit]) -> Iterator[list[Commit]]:
    batch: list[Commit] = []
    lines = 0
    for commit in commits:
        size = commit.insertions + commit.deletions
        if batch and (lines + size > _LINES_IN_BATCH or len(batch) == _COMMITS_IN_BATCH):
            yield batch
            batch, lines = [], 0
        batch.append(commit)
        lines += size
    if batch:
        yield batch


class _Reader(Struct, frozen=True):
    """Reads batches of commits through one engine."""

    repository: Repository
    place: Place
    edge: frozenset[str]
    merges: bool

    async def read(self, batch: Sequence[Commit]) -> list[CommitChange]:
        """The commits with their changes. Raises nothing of git's: what cannot be read says so."""
        readable = [commit for commit in batch if commit.sha not in self.edge]
        try:
            changes = await self._together(readable) if readable else {}
        except CodeloupeError:
            changes = {}  # one of them is broken or too large to be shown whole: which one is found out one by one
        return [await self._finished(commit, changes.get(commit.sha)) for commit in batch]

    async def _together(self, commits: Sequence[Commit]) -> dict[str, Change]:
        """The changes of those that can be read at once. What git takes for binary is of any size as text."""
        lists, patches = await both(self._lists(commits), self._patches(commits, as_text=False))
        entries = {sha: parse_raw_numstat(listed) for sha, listed in lists.items()}
        binary = [commit for commit in commits if any(entry.added is None for entry in entries.get(commit.sha, ()))]
        small = await self._small(binary, entries)
        patches = {sha: patch for sha, patch in patches.items() if sha not in {commit.sha for commit in binary}}
        patches |= await self._patches(small, as_text=True) if small else {}
        return {
            commit.sha: Change(_scope(commit), reconcile(parse_diff(patches[commit.sha]), entries[commit.sha]))
            for commit in commits
            if commit.sha in patches and commit.sha in entries
        }

    async def _lists(self, commits: Sequence[Commit]) -> dict[str, bytes]:
        return await self._log(commits, *_AGAINST_FIRST_PARENT, *DIFF_FLAGS, "--raw", "--numstat", "-z", "--no-abbrev")

    async def _patches(self, commits: Sequence[Commit], *, as_text: bool) -> dict[str, bytes]:
        flags = PATCH_FLAGS if as_text else tuple(flag for flag in PATCH_FLAGS if flag != "--text")
        return await self._log(commits, *_AGAINST_FIRST_PARENT, *flags)

    async def _log(self, commits: Sequence[Commit], *words: str) -> dict[str, bytes]:
        # A diff may hold any text, so what parts the commits must not be guessable.
        mark = secrets.token_hex(16)
        names = "".join(f"{commit.sha}\n" for commit in commits).encode("ascii")
        output = await git(self.place, *_LOG, *words, f"--format=tformat:{mark}%H", stdin=names)
        return _parted(output, mark)

    async def _small(self, commits: Sequence[Commit], entries: Mapping[str, Sequence[RawEntry]]) -> list[Commit]:
        """Those whose binary files are small enough, all together, to be shown as text."""
        blobs = {commit.sha: _binary_blobs(entries[commit.sha]) for commit in commits}
        sizes = await blob_sizes(self.place, [blob for names in blobs.values() for blob in names])
        small: list[Commit] = []
        total = 0
        for commit in commits:
            size = sum(sizes.get(blob, _BINARY_BYTES_IN_BATCH + 1) for blob in blobs[commit.sha])
            if total + size <= _BINARY_BYTES_IN_BATCH:
                small.append(commit)
                total += size
        return small

    async def _finished(self, commit: Commit, change: Change | None) -> CommitChange:
        """The commit with its change, which is read alone when no batch could give it."""
        try:
            if change is None:
                sides = await resolve_scope(self.repository, CommitScope(commit.sha), base_branch=None)
                change = await read_change(self.repository, sides)
            if self.merges and len(commit.parents) > 1:
                return await self._own(commit, change)
        except CodeloupeError as error:
            words = f"{error.message} ({error.hint})" if error.hint else error.message
            # Of what cannot be read, no numbers are known.
            return CommitChange(replace(commit, files=(), insertions=0, deletions=0), None, words)
        return CommitChange(commit, change)

    async def _own(self, commit: Commit, change: Change) -> CommitChange:
        """What a merge changed itself: where it is like none of its parents."""
        words = (*DIFF_FLAGS, "--diff-merges=dense-combined", "--patch", "--unified=0")
        combined = await self._log([commit], *words)
        own = only_own(change, parse_combined(combined.get(commit.sha, b"")))
        numbered = replace(
            commit,
            files=tuple(file.path for file in own.files),
            # As git counts, to which what is binary has no lines.
            insertions=sum(file.added for file in own.files if not file.binary),
            deletions=sum(file.deleted for file in own.files if not file.binary),
        )
        return CommitChange(numbered, own)


def _binary_blobs(entries: Sequence[RawEntry]) -> list[str]:
    blobs = (blob for entry in entries if entry.added is None for blob in (entry.old_blob, entry.new_blob))
    return [blob for blob in blobs if blob.strip("0")]


def _parted(output: bytes, mark: str) -> dict[str, bytes]:
    """What git printed for each commit. Its name ends with a NUL under `-z`, and with a line end otherwise."""
    parts: dict[str, bytes] = {}
    for record in output.split(mark.encode("ascii"))[1:]:
        end = next((index for index, byte in enumerate(record) if byte in b"\0\n"), len(record))
        parts[record[:end].decode("ascii")] = record[end + 1 :].lstrip(b"\n").removeprefix(b"\0")
    return parts


def _scope(commit: Commit) -> Scope:
    parent = commit.parents[0] if commit.parents else None
    several = "commit" if len(commit.parents) == 1 else "merge (against its first parent)"
    return Scope(
        ScopeKind.COMMIT, parent, commit.sha, f"{several if commit.parents else 'root commit'} {commit.sha[:12]}"
    )
