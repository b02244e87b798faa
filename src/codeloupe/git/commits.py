"""Commits: which ones a query, a range or a push names, and what each of them changes."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, groupby

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, DiffSyntaxError, GitFailed, RevisionError
from codeloupe.git.changes import CHANGE_FLAGS, parse_list, read_change, reconcile
from codeloupe.git.command import DIFF_FLAGS, Place, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_names import decode_path, unquote
from codeloupe.git.repository import Repository, list_refs, merge_base, reading, resolve, resolve_all
from codeloupe.git.revisions import USUAL_NAMES
from codeloupe.git.scopes import commit_scope, resolve_scope, shallow_edge
from codeloupe.model.change import Change, Commit, FileChange, FileStatus
from codeloupe.model.scope import CommitScope, PushedRange, PushedRef
from codeloupe.model.sweep import CommitQuery
from codeloupe.system.regex import regex

_LINES_IN_BATCH = 50_000
_COMBINED_FILE = regex(rb"diff --(?:cc|combined) (.*)")
_COMBINED_HUNK = regex(rb"@@@+ [-0-9, ]{1,2000}\+(\d{1,20})(?:,(\d{1,20}))? @@@")
# git takes a date in which it knows no word for "now", so that a slip of the pen would choose no commit at all.
_DATE_WORD = regex(
    r"ago|last|next|yesterday|today|now|never|noon|midnight|tea|at|on|of|am|pm|st|nd|rd|th|t|z"
    r"|zero|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|(sec(ond)?|min(ute)?|hour|day|week|month|year)s?"
    r"|sun(day)?|mon(day)?|tue(s(day)?)?|wed(nesday)?|thu(r(s(day)?)?)?|fri(day)?|sat(urday)?"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(t(ember)?)?|oct(ober)?|nov(ember)?|dec(ember)?",
    re.IGNORECASE,
)


# Lines of the new file, the first and the last; None means the whole file.
OwnPart = tuple[tuple[int, int], ...] | None


class CommitChange(Struct, frozen=True):
    """A commit with its change; `change` is None when it cannot be read, and `problem` says why."""

    commit: Commit
    change: Change | None
    problem: str = ""


async def list_commits(repository: Repository, query: CommitQuery) -> tuple[Commit, ...]:
    """The commits a query names, newest first. Raises RevisionError, and NotARepository before the first commit."""
    limits = [] if query.looks_into_merges else ["--first-parent"]
    limits += [] if query.until is None else [f"--until={_checked_date(query.until)}"]
    limits += [] if query.author is None else ["--fixed-strings", f"--author={query.author}"]
    since = None if query.since is None else _checked_date(query.since)
    separator = next((sign for sign in ("...", "..") if sign in query.revision), None)
    ends = [part or "HEAD" for part in query.revision.split(separator, 1)] if separator else [query.revision]
    revision = (separator or "").join(await resolve_all(repository, ends))
    async with reading(repository) as place:
        if since is None:
            limits += [] if query.max_count is None else [f"--max-count={query.max_count}"]
            return await _log(place, *limits, "--end-of-options", revision, "--")
        # Each commit is looked at: to git's own limit a commit with an old date, which its author is free to give it,
        # is the end of all that comes after it.
        limit = await git(place, "rev-parse", f"--since={since}")
        first = int(limit.strip().removeprefix(b"--max-age="))
        listed = await git(place, "rev-list", "--timestamp", *limits, "--end-of-options", revision, "--")
        rows = (line.split(b" ", 1) for line in listed.splitlines())
        return await _named(place, [name for seconds, name in rows if int(seconds) >= first][: query.max_count])


async def _named(place: Place, names: Sequence[bytes]) -> tuple[Commit, ...]:
    return await _log(place, "--no-walk=unsorted", "--stdin", stdin=b"\n".join(names)) if names else ()


async def _log(place: Place, *chosen: str, stdin: bytes = b"") -> tuple[Commit, ...]:
    # NUL ends each field: no author, subject or body can hold one.
    form = "%H%x00%P%x00%an%x00%ae%x00%at%x00%s%x00%b%x00"
    words = (*DIFF_FLAGS, "-z", "--numstat", "--diff-merges=first-parent")
    return tuple(map(_commit, await _records(place, form, *words, *chosen, stdin=stdin)))


async def _records(place: Place, form: str, *words: str, stdin: bytes) -> list[bytes]:
    # A file name or a diff may hold any text, so what begins a record must not be guessable.
    mark = secrets.token_hex(16)
    log = ("log", "--no-show-signature", f"--format=tformat:{mark}{form}")
    return (await git(place, *log, *words, stdin=stdin)).split(mark.encode("ascii"))[1:]


def _checked_date(text: str) -> str:
    words = re.findall(r"[^\W\d_]+", text)
    # Capitals alone are the name of a time zone.
    unknown = [word for word in words if not _DATE_WORD.fullmatch(word) and not (word.isupper() and len(word) <= 4)]
    if unknown or not re.search(r"\w", text) or "\0" in text:
        hint = "give one such as 2024-05-31, '2 days ago', yesterday or 'last monday'"
        raise RevisionError(f"{text!r} is not a date that git understands", hint=hint)
    return text


def _commit(record: bytes) -> Commit:
    fields = record.split(b"\0", 7)
    if len(fields) != 8:
        raise GitFailed("cannot parse a record of git log", program="git", status=0)
    author, email, subject, body = (fields[index].decode("utf-8", "replace") for index in (2, 3, 5, 6))
    # A commit may state any number, or none; what no calendar holds becomes the nearest moment that one does.
    last = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    insertions = deletions = 0
    files: list[str] = []
    numbers = iter(fields[7].split(b"\0"))
    for entry in filter(None, (number.lstrip(b"\n") for number in numbers)):
        added, removed, path = entry.split(b"\t", 2)
        if not path:
            next(numbers)  # the old name of a rename
            path = next(numbers)
        insertions += int(added) if added != b"-" else 0
        deletions += int(removed) if removed != b"-" else 0
        files.append(os.fsdecode(path))
    return Commit(
        sha=fields[0].decode("ascii"),
        parents=tuple(fields[1].decode("ascii").split()),
        author=author,
        email=email,
        time=datetime.fromtimestamp(min(int(fields[4] or 0), last), tz=UTC),
        subject=subject,
        body=body.rstrip("\n"),
        files=tuple(files),
        insertions=insertions,
        deletions=deletions,
    )


async def read_commit_changes(
    repository: Repository, commits: Sequence[Commit], *, merges: bool = False
) -> AsyncGenerator[CommitChange]:
    """Each commit with its change, in order: the one that `read_change` gives for the commit alone.

    With `merges` the change of a merge is only what it changed itself, and its numbers are those of that. A commit
    that cannot be read takes nothing from the others. While some commits are in use the next ones are being read.
    """
    # So many lines, or fifty commits, at once.
    totals = accumulate(commit.insertions + commit.deletions + _LINES_IN_BATCH // 50 for commit in commits)
    numbered = groupby(zip(commits, totals, strict=True), lambda pair: pair[1] // _LINES_IN_BATCH)
    batches = [[commit for commit, _ in batch] for _, batch in numbered]
    async with reading(repository) as place:
        reader = _Reader(repository, place, shallow_edge(repository), merges=merges)
        following: asyncio.Task[list[CommitChange]] | None = None
        try:
            for batch in [*batches, []]:
                current, following = following, asyncio.create_task(reader.read(batch))
                for read in await current if current else ():
                    yield read
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)


class _Reader(Struct, frozen=True):
    """Reads batches of commits through one engine. Of those on the `edge` of a shallow clone the parent is not here."""

    repository: Repository
    place: Place
    edge: frozenset[str]
    merges: bool

    async def read(self, batch: Sequence[Commit]) -> list[CommitChange]:
        """The commits with their changes. Raises nothing of git's: what cannot be read says so."""
        try:
            changes = await self._together([commit for commit in batch if commit.sha not in self.edge])
        except CodeloupeError:
            changes = {}  # one of them is broken or too large to be shown whole: which one is found out one by one
        return [await self._finished(commit, changes.get(commit.sha)) for commit in batch]

    async def _together(self, commits: Sequence[Commit]) -> dict[str, Change]:
        """The changes of those that can be read at once: what git takes for binary is of any size as text."""
        words = ("--diff-merges=first-parent", *CHANGE_FLAGS)
        output = await self._log(commits, *(word for word in words if word != "--text"))
        changes: dict[str, Change] = {}
        for commit in commits:
            files, patch = parse_list(output[commit.sha])
            if not any(file.binary for file in files):
                scope = commit_scope(commit.sha, commit.parents)
                changes[commit.sha] = Change(scope, reconcile(parse_diff(patch), files))
        return changes

    async def _log(self, commits: Sequence[Commit], *words: str) -> dict[str, bytes]:
        """What git prints for each commit. Its name ends with a NUL under `-z`, and with a line end otherwise."""
        if not commits:
            return {}
        names = "".join(f"{commit.sha}\n" for commit in commits).encode("ascii")
        records = await _records(self.place, "%H", "--no-walk=unsorted", "--stdin", *words, stdin=names)
        end = len(commits[0].sha)
        return {record[:end].decode("ascii"): record[end + 1 :].lstrip(b"\n").removeprefix(b"\0") for record in records}

    async def _finished(self, commit: Commit, change: Change | None) -> CommitChange:
        try:
            if change is None:
                sides = await resolve_scope(self.repository, CommitScope(commit.sha), base_branch=None)
                change = await read_change(self.repository, sides)
            if not self.merges or len(commit.parents) < 2:
                return CommitChange(commit, change)
            # What a merge changed itself: where it is like none of its parents.
            combined = await self._log([commit], *DIFF_FLAGS, "--diff-merges=dense-combined", "--patch", "--unified=0")
            own = only_own(change, parse_combined(combined.get(commit.sha, b"")))
        except CodeloupeError as error:
            words = f"{error.message} ({error.hint})" if error.hint else error.message
            # Of what cannot be read, no numbers are known.
            return CommitChange(replace(commit, files=(), insertions=0, deletions=0), None, words)
        numbered = replace(
            commit,
            files=tuple(file.path for file in own.files),
            # As git counts, to which what is binary has no lines.
            insertions=sum(file.added for file in own.files if not file.binary),
            deletions=sum(file.deleted for file in own.files if not file.binary),
        )
        return CommitChange(numbered, own)


def parse_combined(output: bytes) -> dict[str, OwnPart]:
    """The files of a combined diff without context, each with its places. Raises DiffSyntaxError for what is none."""
    parts: dict[str, list[tuple[int, int]]] = {}
    places: list[tuple[int, int]] | None = None
    for line in output.split(b"\n"):
        if line.startswith(b"diff --") and (found := _COMBINED_FILE.fullmatch(line)) is not None:
            name = unquote(found[1])
            if name is None:
                raise DiffSyntaxError(f"cannot parse a file name in git's combined diff of a merge: {found[1][:80]!r}")
            places = parts[decode_path(name)] = []
        elif line.startswith(b"@@@"):
            hunk = _COMBINED_HUNK.match(line)
            if hunk is None or places is None:
                raise DiffSyntaxError(f"cannot parse git's combined diff of a merge: {line[:80]!r}")
            first, count = int(hunk[1]), int(hunk[2]) if hunk[2] else 1
            places.append((first, first + max(count, 1)))
    return {path: tuple(sorted(found)) or None for path, found in parts.items()}


def only_own(change: Change, parts: Mapping[str, OwnPart]) -> Change:
    """Of a merge's change against its first parent, the files and hunks at the places where it is like no parent."""
    files: list[FileChange] = []
    for file in change.files:
        places = parts.get(file.path)
        whole = places is None or file.status in (FileStatus.ADDED, FileStatus.DELETED, FileStatus.TYPE_CHANGED)
        starts = [first for first, _ in places or ()]
        ends = list(accumulate((last for _, last in places or ()), max))
        befores = [bisect_right(starts, hunk.new_start + hunk.new_lines) for hunk in file.hunks]
        pairs = zip(file.hunks, befores, strict=True)
        hunks = tuple(hunk for hunk, before in pairs if before and ends[before - 1] >= hunk.new_start)
        if file.path in parts:
            # Where the two diffs do not agree on the place, rather all of it than nothing.
            files.append(file if whole or not hunks else replace(file, hunks=hunks))
    unreadable = tuple((name, why) for name, why in change.unreadable if name in parts)
    return replace(change, files=tuple(files), unreadable=unreadable)


async def pushed_ranges(
    repository: Repository, refs: Sequence[PushedRef], *, remote: str, base_branch: str | None
) -> tuple[PushedRange, ...]:
    """For each ref the commits that the remote does not have yet. Raises RevisionError for a ref that is not here."""
    pushed = {f"refs/remotes/{remote}/{ref.remote_name.removeprefix('refs/heads/')}" for ref in refs}
    bases = USUAL_NAMES if base_branch is None else (base_branch.removeprefix(f"{remote}/"),)
    names = [f"refs/remotes/{remote}/{name}" for name in ("HEAD", *bases)]
    # What the remote has just said of itself counts instead of what was noted of it; other refs may be long gone there.
    known = [sha for name, sha in await list_refs(repository, names) if name not in pushed]
    return tuple([await _range_of(repository, ref, list(dict.fromkeys(known))) for ref in refs])


async def _range_of(repository: Repository, ref: PushedRef, tracked: Sequence[str]) -> PushedRange:
    if ref.local is None:
        return PushedRange(ref.name, None, "this push deletes it")
    head = await resolve(repository, ref.local)
    known = list(tracked)
    if ref.remote and (await try_git(repository.place, "cat-file", "-e", f"{ref.remote}^{{commit}}")).exit_code == 0:
        known.insert(0, await resolve(repository, ref.remote))
    listed = await git(repository.place, "rev-list", head, "--not", *known, "--")
    commits = tuple(listed.decode("ascii").split())
    if not commits:
        return PushedRange(ref.name, None, "the remote already has this commit")
    # Compared from the point at which the pushed commits left what the remote has; else from nothing at all.
    start = "0" * len(head)
    for one in known:
        try:
            start = await merge_base(repository, one, head)
            break
        except RevisionError:  # histories that have nothing in common
            continue
    return PushedRange(ref.name, f"{start}..{head}", commits=commits)


async def read_pushed(repository: Repository, commits: Sequence[str]) -> list[CommitChange]:
    """What each commit changes, the oldest first; of a merge, what it is like none of its parents in."""
    async with reading(repository) as place:
        listed = await _named(place, [name.encode("ascii") for name in reversed(commits)])
    return [read async for read in read_commit_changes(repository, listed, merges=True)]
