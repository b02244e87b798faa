"""A project's words on how to review, from the revision that may be believed, and whether a change touches them.

Of a trusted change they come from the reviewed tree itself; of any other from its base, since whoever wrote the change
may have written them too. Symbolic links are never followed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from codeloupe.errors import CodeloupeError
from codeloupe.git.command import Place, git, try_git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Entry,
    Repository,
    copy_index,
    in_engine,
    list_entries,
    read_file_at,
    read_head,
    temporary_engine,
)
from codeloupe.git.scopes import Side, Sides
from codeloupe.git.snapshot import place_of, read_regular_files
from codeloupe.model.change import SYMLINK_MODE, Change, GuidanceFile, Intent, Moment, ScopeKind
from codeloupe.model.ports import MomentOf

GUIDANCE_NAMES = ("REVIEW.md", "AGENTS.md", "CLAUDE.md")
# What else tells a review what to do: the configuration, and the list of findings that do not count.
_STEERING_NAMES = frozenset((*GUIDANCE_NAMES, "codeloupe.yaml", "codeloupe.yml", "codeloupe-baseline.yaml"))
_REGULAR_MODES = ("100644", "100755")
# No call is told more than a part of this.
_KEPT_BYTES = 16_000
_MAX_BLOB_BYTES = 1_000_000
# A hostile tree may have any number of folders and files; the outermost are read.
_MAX_FOLDERS = 5_000
_MAX_FILES = 200
_NOT_READ = "[this file could not be read]"
_LINK = "it is a symbolic link, and those are not followed"


async def read_guidance(
    repository: Repository, sides: Sides, paths: Iterable[str], *, trusted: bool
) -> tuple[GuidanceFile, ...]:
    """The guidance at the root and in each folder on the way down to some files, the outermost first.

    A file that is there and cannot be read says so in its text; one that is not read at all says why. Raises
    GitFailed when git cannot read the tree.
    """
    if trusted and sides.side is Side.WORKING_TREE:
        return await read_working_guidance(repository, paths)
    tree = sides.head if trusted else sides.base
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        if tree is None:
            copy_index(repository.index, git_dir)
        found, links = await _read_entries(in_engine(git_dir), tree, _places(paths))
        return _texts(found) + _unused(links)


async def read_working_guidance(repository: Repository, paths: Iterable[str]) -> tuple[GuidanceFile, ...]:
    """As `read_guidance`, from the working tree as it is now."""
    places = _places(paths)
    found = await asyncio.to_thread(
        read_regular_files, repository.root, places, max_bytes=_KEPT_BYTES, max_files=_MAX_FILES
    )
    # A link further up the path leads to other folders, whose guidance speaks of other files.
    links = [name for name in places if name not in found and (repository.root / name).is_symlink()]
    return _texts(found) + _unused(links)


def guidance_changed(change: Change) -> tuple[str, ...]:
    """The files of a change that tell a review what to do, by their names on both sides: an author could steer by them.

    Of an untrusted change none of them was obeyed.
    """
    names = (name for file in change.files for name in (file.old_path, file.new_path) if name is not None)
    return tuple(dict.fromkeys(name for name in names if name.rpartition("/")[2] in _STEERING_NAMES))


def _places(paths: Iterable[str]) -> list[str]:
    """Where guidance for some files may be, the outermost first."""
    folders: dict[str, None] = {"": None}
    for path in paths:
        for folder in _folders_above(path):
            if len(folders) >= _MAX_FOLDERS:
                break
            folders[folder] = None
    ranked = sorted(folders, key=lambda folder: (folder.count("/") + bool(folder), folder))
    return [f"{folder}/{name}" if folder else name for folder in ranked for name in GUIDANCE_NAMES]


def _folders_above(path: str) -> Iterator[str]:
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


async def _read_entries(place: Place, tree: str | None, places: list[str]) -> tuple[dict[str, bytes | None], list[str]]:
    """The first bytes of those that are regular files, and the names of those that are links."""
    # git takes a name that leaves the tree, which only a forged tree has, for a mistake of ours.
    rank = {name: number for number, name in enumerate(places) if place_of(Path(), name) is not None}
    listed = await list_entries(place, tree, list(rank))
    entries = [entry for entry in listed if entry.path in rank and entry.mode in _REGULAR_MODES]
    chosen = sorted(entries, key=lambda entry: rank[entry.path])[:_MAX_FILES]
    blobs = await _read_blobs(place, chosen)
    links = [entry.path for entry in listed if entry.path in rank and entry.mode == SYMLINK_MODE]
    return {entry.path: blobs.get(entry.blob) for entry in chosen}, sorted(links, key=lambda name: rank[name])


async def _read_blobs(place: Place, entries: Iterable[Entry]) -> dict[str, bytes]:
    """The first bytes of each blob that is here and not too large."""
    names = list(dict.fromkeys(entry.blob for entry in entries))
    if not names:
        return {}
    # Asked for first, so that an enormous one is never read.
    sizes = (await git(place, "cat-file", "--batch-check", stdin=_lines(names))).split(b"\n")
    readable = [name for name, facts in zip(names, sizes, strict=False) if _is_readable(facts)]
    output = await git(place, "cat-file", "--batch", stdin=_lines(readable)) if readable else b""
    found: dict[str, bytes] = {}
    position = 0
    for name in readable:
        end = output.index(b"\n", position)
        size = int(output[position:end].rsplit(b" ", 1)[1])
        found[name] = output[end + 1 : end + 1 + min(size, _KEPT_BYTES)]
        position = end + 1 + size + 1
    return found


def _is_readable(facts: bytes) -> bool:
    """Of a line `name type size`, or `name missing`."""
    words = facts.split(b" ")
    return words[1:2] == [b"blob"] and int(words[2]) <= _MAX_BLOB_BYTES


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(name.encode("ascii") + b"\n" for name in names)


def _unused(links: Iterable[str]) -> tuple[GuidanceFile, ...]:
    return tuple(GuidanceFile(name, "", _LINK) for name in links)


def _texts(found: Mapping[str, bytes | None]) -> tuple[GuidanceFile, ...]:
    return tuple(
        GuidanceFile(path, _NOT_READ if content is None else content.decode("utf-8-sig", "replace"))
        for path, content in found.items()
    )


_MAX_COMMITS = 20
_MESSAGE_CHARACTERS = 2_000
# They say who was there, not what the change does.
_TRAILER = re.compile(r"(?:[A-Za-z-]{1,40}-by|cc|change-id|reviewed-on|git-svn-id)\s?:", re.IGNORECASE)


async def read_intent(repository: Repository, sides: Sides, *, context: str = "") -> Intent:
    """The messages of the commits under review, the newest first; none for what is not committed.

    The title is the branch of a branch, the subject of a single commit. Raises GitFailed when git cannot read them.
    """
    scope = sides.scope
    match scope.kind:
        case ScopeKind.BRANCH:
            head = await read_head(repository)
            messages = [] if head.sha is None else await _messages(repository, sides.base, head.sha)
            return Intent(title=head.branch or "", messages=tuple(map(_joined, messages)), context=context)
        case ScopeKind.RANGE | ScopeKind.COMMIT | ScopeKind.PULL_REQUEST if scope.head is not None:
            since = None if scope.kind is ScopeKind.COMMIT else sides.base
            messages = await _messages(repository, since, scope.head)
            if len(messages) == 1:
                subject, body = messages[0]
                return Intent(title=subject, messages=(body,) if body else (), context=context)
            return Intent(messages=tuple(map(_joined, messages)), context=context)
        case _:
            return Intent(context=context)


async def _messages(repository: Repository, since: str | None, until: str) -> list[tuple[str, str]]:
    """Subject and body of each commit; merges are left out, except one that was asked for alone."""
    limits = ("--max-count=1", until) if since is None else (f"--max-count={_MAX_COMMITS}", "--no-merges", until)
    others = () if since is None else (f"^{since}",)
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        words = ("log", "-z", "--no-show-signature", "--no-patch", "--format=tformat:%s%n%n%b")
        output = await git(in_engine(git_dir), *words, *limits, *others, "--")
    records = (record.decode("utf-8", "replace") for record in output.split(b"\0"))
    pairs = (record.partition("\n\n") for record in records if record.strip())
    return [(subject.strip()[:_MESSAGE_CHARACTERS], _without_trailers(body)) for subject, _, body in pairs]


def _without_trailers(body: str) -> str:
    lines = body.strip()[:_MESSAGE_CHARACTERS].split("\n")
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()


def _joined(message: tuple[str, str]) -> str:
    return "\n\n".join(part for part in message if part)


_MOST_BRANCHES = 10
_REMOTE = ("for-each-ref", "--sort=-committerdate", "--format=%(objectname)")


def moments_in(repository: Repository, sides: Sides) -> MomentOf:
    """Tells how far a line of the new side has got. UNKNOWN where git does not say; never raises for that."""

    async def moment_of(file: str, line: bytes) -> Moment:
        if sides.scope.kind is ScopeKind.PULL_REQUEST:
            return Moment.PUSHED
        try:
            return await _moment(repository, sides, file, line)
        except (CodeloupeError, OSError, ValueError):  # it only chooses the words of an advice
            return Moment.UNKNOWN

    return moment_of


async def _moment(repository: Repository, sides: Sides, file: str, line: bytes) -> Moment:
    if sides.side is not Side.COMMIT and not await _holds(repository, "HEAD", file, line):
        return Moment.STAGED if sides.side is Side.INDEX else Moment.UNCOMMITTED
    if sides.head is not None and await _remote_branches(repository, "--count=1", "--contains", sides.head):
        return Moment.PUSHED
    for branch in await _remote_branches(repository, f"--count={_MOST_BRANCHES}"):
        if await _holds(repository, branch, file, line):
            return Moment.PUSHED
    return Moment.COMMITTED


async def _remote_branches(repository: Repository, *words: str) -> list[str]:
    completed = await try_git(repository.place, *_REMOTE, *words, "refs/remotes")
    return completed.stdout.decode("ascii", "replace").split()


async def _holds(repository: Repository, revision: str, file: str, line: bytes) -> bool:
    completed = await try_git(repository.place, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if completed.exit_code != 0:
        return False  # there is no commit yet
    content = await read_file_at(repository, completed.stdout.decode("ascii", "replace").strip(), file)
    return content is not None and line.rstrip(b"\r") in (row.rstrip(b"\r") for row in content.split(b"\n"))
