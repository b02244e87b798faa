"""Commits of a range or a time span, with what each touched, from NUL-separated output."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, islice

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, DiffSyntaxError, GitFailed, RevisionError
from codeloupe.git.changes import RawEntry, parse_raw_numstat, read_change, reconcile
from codeloupe.git.command import DIFF_FLAGS, PATCH_FLAGS, Place, both, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_text import decode_path, unquote
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Repository,
    blob_sizes,
    in_engine,
    merge_base,
    resolve,
    temporary_engine,
)
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Change, Commit, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.scope import CommitScope, PushedRange, PushedRef
from codeloupe.model.sweep import CommitQuery

# NUL ends each field: no author, subject or body can hold one.
_FORMAT = "%H%x00%P%x00%an%x00%ae%x00%at%x00%s%x00%b%x00"
_FIELDS = 7
# git takes a date in which it knows no word for "now", so that a slip of the pen would choose no commit at all.
_DATE_WORD = re.compile(
    r"ago|last|next|yesterday|today|now|never|noon|midnight|tea|at|on|of|am|pm|st|nd|rd|th|t|z"
    r"|zero|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|(sec(ond)?|min(ute)?|hour|day|week|month|year)s?"
    r"|sun(day)?|mon(day)?|tue(s(day)?)?|wed(nesday)?|thu(r(s(day)?)?)?|fri(day)?|sat(urday)?"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(t(ember)?)?|oct(ober)?|nov(ember)?|dec(ember)?",
    re.IGNORECASE,
)


async def list_commits(repository: Repository, query: CommitQuery) -> tuple[Commit, ...]:
    """The commits a query names, newest first; the numbers of a merge are those against its first parent.

    Raises RevisionError for a revision or a date that means nothing, and NotARepository before the first commit.
    """
    limits = tuple(_limits(query))
    since = None if query.since is None else _checked_date(query.since)
    revisions = await _revisions(repository, query.revision)
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place = in_engine(git_dir)
        if since is None:
            return await _log(place, *limits, *_at_most(query), "--end-of-options", *revisions, "--")
        recent = await _since(place, since, *limits, "--end-of-options", *revisions, "--")
        return await _named(place, recent[: query.max_count])


async def list_named_commits(repository: Repository, names: Sequence[str]) -> tuple[Commit, ...]:
    """The commits of these names, in their order."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        return await _named(in_engine(git_dir), [name.encode("ascii") for name in names])


async def _named(place: Place, names: Sequence[bytes]) -> tuple[Commit, ...]:
    return await _log(place, "--no-walk=unsorted", "--stdin", stdin=b"\n".join(names)) if names else ()


async def _log(place: Place, *chosen: str, stdin: bytes = b"") -> tuple[Commit, ...]:
    # A file name may hold anything but NUL, so what begins a record must not be guessable.
    mark = secrets.token_hex(16)
    form = f"--format=tformat:{mark}{_FORMAT}"
    words = ("log", *DIFF_FLAGS, "-z", "--numstat", "--diff-merges=first-parent", "--no-show-signature", form)
    return tuple(_parse(await git(place, *words, *chosen, stdin=stdin), mark.encode("ascii")))


async def _since(place: Place, date: str, *words: str) -> list[bytes]:
    """The names of the commits since a date, the newest first.

    Each is looked at: to git's own limit a commit with an old date, which its author is free to give it, is the end of
    all that lies behind it.
    """
    limit = await git(place, "rev-parse", f"--since={date}")
    first = int(limit.strip().removeprefix(b"--max-age="))
    listed = await git(place, "rev-list", "--timestamp", *words)
    rows = (line.split(b" ", 1) for line in listed.splitlines())
    return [name for seconds, name in rows if int(seconds) >= first]


async def _revisions(repository: Repository, revision: str) -> tuple[str, ...]:
    for separator in ("...", ".."):
        if separator in revision:
            left, right = (part or "HEAD" for part in revision.split(separator, 1))
            start, end = await both(resolve(repository, left), resolve(repository, right))
            return (f"{start}{separator}{end}",)
    return (await resolve(repository, revision),)


def _limits(query: CommitQuery) -> Iterator[str]:
    if not query.looks_into_merges:
        yield "--first-parent"
    if query.until is not None:
        yield f"--until={_checked_date(query.until)}"
    if query.author is not None:
        yield from ("--fixed-strings", f"--author={query.author}")


def _at_most(query: CommitQuery) -> tuple[str, ...]:
    return () if query.max_count is None else (f"--max-count={query.max_count}",)


def _checked_date(text: str) -> str:
    words = re.findall(r"[^\W\d_]+", text)
    # Capitals alone are the name of a time zone.
    unknown = [word for word in words if not _DATE_WORD.fullmatch(word) and not (word.isupper() and len(word) <= 4)]
    if unknown or not re.search(r"\w", text) or "\0" in text:
        raise RevisionError(
            f"{text!r} is not a date that git understands",
            hint="give one such as 2024-05-31, '2 days ago', yesterday or 'last monday'",
        )
    return text


def _parse(output: bytes, mark: bytes) -> Iterator[Commit]:
    for record in output.split(mark)[1:]:
        fields = record.split(b"\0", _FIELDS)
        if len(fields) != _FIELDS + 1:
            raise GitFailed("git log gave a record that cannot be read", program="git", exit_code=0)
        sha, parents, author, email, time, subject, body, stats = fields
        insertions, deletions, files = _read_numstat(stats)
        yield Commit(
            sha=sha.decode("ascii"),
            parents=tuple(parents.decode("ascii").split()),
            author=_text(author),
            email=_text(email),
            time=_moment(time),
            subject=_text(subject),
            body=_text(body).rstrip("\n"),
            files=files,
            insertions=insertions,
            deletions=deletions,
        )


def _moment(seconds: bytes) -> datetime:
    """A commit may state any number, or none; what no calendar holds becomes the nearest moment that one does."""
    last = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    return datetime.fromtimestamp(min(int(seconds or 0), last), tz=UTC)


def _read_numstat(data: bytes) -> tuple[int, int, tuple[str, ...]]:
    insertions = deletions = 0
    files: list[str] = []
    fields = iter(data.split(b"\0"))
    for field in fields:
        entry = field.lstrip(b"\n")
        if not entry:
            continue
        added, removed, path = entry.split(b"\t", 2)
        if not path:
            next(fields)  # the old name of a rename
            path = next(fields)
        insertions += int(added) if added != b"-" else 0
        deletions += int(removed) if removed != b"-" else 0
        files.append(os.fsdecode(path))
    return insertions, deletions, tuple(files)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# Lines of the new file, the first and the last; None stands for the whole file.
OwnPart = tuple[tuple[int, int], ...] | None

_FILE = re.compile(rb"diff --(?:cc|combined) (.*)")
_HUNK = re.compile(rb"@@@+ [-0-9, ]{1,2000}\+(\d{1,20})(?:,(\d{1,20}))? @@@")


def parse_combined(output: bytes) -> dict[str, OwnPart]:
    """The files of a combined diff without context, each with its places. Raises DiffSyntaxError for what is none.

    Every line of content begins with a blank, a plus or a minus, so that none can be taken for a header.
    """
    parts: dict[str, list[tuple[int, int]]] = {}
    places: list[tuple[int, int]] | None = None
    for line in output.split(b"\n"):
        if line.startswith(b"diff --") and (found := _FILE.fullmatch(line)) is not None:
            places = parts[_path(found[1])] = []
        elif line.startswith(b"@@@"):
            hunk = _HUNK.match(line)
            if hunk is None or places is None:
                raise DiffSyntaxError(f"git's combined diff of a merge cannot be read: {line[:80]!r}")
            first, count = int(hunk[1]), int(hunk[2]) if hunk[2] else 1
            places.append((first, first + max(count, 1)))
    return {path: tuple(sorted(found)) or None for path, found in parts.items()}


def _path(name: bytes) -> str:
    raw = unquote(name)
    if raw is None:
        raise DiffSyntaxError(
            f"git's combined diff of a merge names a file in a way that cannot be read: {name[:80]!r}"
        )
    return decode_path(raw)


def only_own(change: Change, parts: Mapping[str, OwnPart]) -> Change:
    """Of a merge's change against its first parent, the files and hunks at those places."""
    return replace(
        change,
        files=tuple(_own(file, parts[file.path]) for file in change.files if file.path in parts),
        unreadable=tuple((name, why) for name, why in change.unreadable if name in parts),
    )


def _own(file: FileChange, places: OwnPart) -> FileChange:
    if places is None or file.status in (FileStatus.ADDED, FileStatus.DELETED, FileStatus.TYPE_CHANGED):
        return file
    starts = [first for first, _ in places]
    ends = list(accumulate((last for _, last in places), max))

    def is_own(hunk: Hunk) -> bool:
        before = bisect_right(starts, hunk.new_start + hunk.new_lines)
        return before > 0 and ends[before - 1] >= hunk.new_start

    hunks = tuple(hunk for hunk in file.hunks if is_own(hunk))
    # Where the two diffs do not agree on the place, rather all of it than nothing.
    return replace(file, hunks=hunks) if hunks else file


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


_USUAL_BASES = ("main", "master", "develop")


async def pushed_ranges(
    repository: Repository, refs: Sequence[PushedRef], *, remote: str, base_branch: str | None
) -> tuple[PushedRange, ...]:
    """For each ref the commits that the remote does not have yet. Raises RevisionError for a ref that is not here."""
    told = {f"refs/remotes/{remote}/{ref.remote_name.removeprefix('refs/heads/')}": ref.remote for ref in refs}
    names = _USUAL_BASES if base_branch is None else (base_branch.removeprefix(f"{remote}/"),)
    known = await _tracked(repository, [f"refs/remotes/{remote}/{name}" for name in ("HEAD", *names)], told)
    return tuple([await _range_of(repository, ref, known) for ref in refs])


async def _tracked(repository: Repository, names: Sequence[str], told: Mapping[str, str | None]) -> list[str]:
    """The commits of those remote-tracking branches that exist, but for the ones that the remote has told otherwise."""
    form = "--format=%(objectname) %(refname) %(symref)"
    listed = await git(repository.place, "for-each-ref", form, *names)
    rows = [row.split() for row in listed.decode("utf-8", "replace").splitlines()]
    # A pattern of for-each-ref names whole folders too.
    found = {row[1]: (row[-1], row[0]) for row in rows if row[1] in names}
    return list(dict.fromkeys(found[name][1] for name in names if name in found and found[name][0] not in told))


async def _range_of(repository: Repository, ref: PushedRef, tracked: Sequence[str]) -> PushedRange:
    if ref.local is None:
        return PushedRange(ref.name, None, "it is deleted at the remote")
    head = await resolve(repository, ref.local)
    told = [await resolve(repository, ref.remote)] if ref.remote and await _is_here(repository, ref.remote) else []
    listed = await git(repository.place, "rev-list", head, "--not", *told, *tracked, "--")
    commits = tuple(listed.decode("ascii").split())
    if not commits:
        return PushedRange(ref.name, None, "the remote has this commit")
    return PushedRange(ref.name, f"{await _start(repository, head, [*told, *tracked])}..{head}", commits=commits)


async def _start(repository: Repository, head: str, known: Sequence[str]) -> str:
    """Where to compare from: the point at which the pushed commits left what the remote has; else nothing at all."""
    for one in known:
        try:
            return await merge_base(repository, one, head)
        except RevisionError:  # histories that have nothing in common
            continue
    return "0" * len(head)


async def _is_here(repository: Repository, sha: str) -> bool:
    return (await try_git(repository.place, "cat-file", "-e", f"{sha}^{{commit}}")).exit_code == 0


async def read_pushed(repository: Repository, commits: Sequence[str]) -> list[CommitChange]:
    """What each commit changes, the oldest first; of a merge, what it is like none of its parents in."""
    listed = await list_named_commits(repository, commits[::-1])
    return [read async for read in read_commit_changes(repository, listed, merges=True)]
