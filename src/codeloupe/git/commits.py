"""Commits of a range or a time span, with what each touched, from NUL-separated output."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from codeloupe.errors import GitFailed, RevisionError
from codeloupe.git.command import DIFF_FLAGS, Place, both, git
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, temporary_engine
from codeloupe.git.repository import Repository, resolve
from codeloupe.model.commit import Commit
from codeloupe.model.sweep import CommitQuery

__all__ = ["CommitQuery", "list_commits", "list_named_commits"]

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
