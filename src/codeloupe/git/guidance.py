"""What is known about a change besides its lines: the project's guidance, the author's intent, how far it has got."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from codeloupe.errors import CodeloupeError
from codeloupe.git.command import git, try_git
from codeloupe.git.objects import opened_objects
from codeloupe.git.repository import Repository, list_entries, read_file_at, read_head, reading
from codeloupe.git.scopes import Side, Sides
from codeloupe.git.snapshot import place_of, read_regular_files
from codeloupe.model.change import SYMLINK_MODE, Change, GuidanceFile, Intent, Moment, ScopeKind
from codeloupe.model.ports import MomentOf
from codeloupe.system.regex import regex

GUIDANCE_NAMES = ("REVIEW.md", "AGENTS.md", "CLAUDE.md")
# What else tells a review what to do: the configuration, and the list of findings that do not count.
_STEERING_NAMES = frozenset((*GUIDANCE_NAMES, "codeloupe.yaml", "codeloupe.yml", "codeloupe-baseline.yaml"))
# No call gets more than a part of this.
_KEPT_BYTES = 16_000
# A hostile tree may have any number of folders and files; the outermost are read.
_MAX_FOLDERS = 5_000
_MAX_FILES = 200
_MESSAGE_CHARACTERS = 2_000
# They say who was there, not what the change does.
_TRAILER = regex(r"(?:[A-Za-z-]{1,40}-by|cc|change-id|reviewed-on|git-svn-id)\s?:", re.IGNORECASE)


async def read_guidance(
    repository: Repository, sides: Sides, paths: Iterable[str], *, trusted: bool
) -> tuple[GuidanceFile, ...]:
    """The guidance at the root and in each folder on the way down to some files, the outermost first."""
    # Whoever wrote an untrusted change may have written its guidance too: then the base's holds.
    if trusted and sides.side is Side.WORKING_TREE:
        return await read_working_guidance(repository, paths)
    tree = sides.head if trusted else sides.base
    async with reading(repository, index=tree is None) as place:
        # git takes a name that leaves the tree, which only a forged tree has, for a mistake of ours.
        names = [name for name in _places(paths) if place_of(Path(), name) is not None]
        there = {entry.path: entry for entry in await list_entries(place, tree, names)}
        listed = [there[name] for name in names if name in there]
        chosen = [entry for entry in listed if entry.mode != SYMLINK_MODE][:_MAX_FILES]
        names = [entry.blob for entry in chosen]
        async with opened_objects(place) as objects:
            blobs = await objects.read_fitting(names, max_bytes=20_000_000)
    found = {entry.path: blobs[entry.blob][:_KEPT_BYTES] if entry.blob in blobs else None for entry in chosen}
    return _files(found, [entry.path for entry in listed if entry.mode == SYMLINK_MODE])


async def read_working_guidance(repository: Repository, paths: Iterable[str]) -> tuple[GuidanceFile, ...]:
    """As `read_guidance`, from the working tree as it is now."""
    places = _places(paths)
    limits = {"max_bytes": _KEPT_BYTES, "max_files": _MAX_FILES}
    found = await asyncio.to_thread(read_regular_files, repository.root, places, **limits)
    # A link further up the path leads to other folders, whose guidance speaks of other files.
    return _files(found, [name for name in places if name not in found and (repository.root / name).is_symlink()])


def _files(found: Mapping[str, bytes | None], links: Iterable[str]) -> tuple[GuidanceFile, ...]:
    texts = {path: b"[this file could not be read]" if content is None else content for path, content in found.items()}
    read = (GuidanceFile(path, content.decode("utf-8-sig", "replace")) for path, content in texts.items())
    return (*read, *(GuidanceFile(name, "", "symbolic links are not followed") for name in links))


def guidance_changed(change: Change) -> tuple[str, ...]:
    """The files of a change that tell a review what to do, by their names on both sides: by them an author steers."""
    names = (name for file in change.files for name in (file.old_path, file.new_path) if name is not None)
    return tuple(dict.fromkeys(name for name in names if name.rpartition("/")[2] in _STEERING_NAMES))


def _places(paths: Iterable[str]) -> list[str]:
    folders = {""}
    for path in paths:
        end = path.find("/")
        while end >= 0 and len(folders) < _MAX_FOLDERS:
            folders.add(path[:end])
            end = path.find("/", end + 1)
    ranked = sorted(folders, key=lambda folder: (folder.count("/") + bool(folder), folder))
    return [f"{folder}/{name}" if folder else name for folder in ranked for name in GUIDANCE_NAMES]


async def read_intent(repository: Repository, sides: Sides, *, context: str = "") -> Intent:
    """The messages of the commits under review, the newest first; the title is a branch or a commit's subject."""
    scope, messages, title = sides.scope, list[tuple[str, str]](), ""
    if scope.kind is ScopeKind.BRANCH:
        head = await read_head(repository)
        title = head.branch or ""
        messages = [] if head.sha is None else await _messages(repository, sides.base, head.sha)
    elif scope.head is not None and scope.kind in (ScopeKind.RANGE, ScopeKind.COMMIT, ScopeKind.PULL_REQUEST):
        messages = await _messages(repository, None if scope.kind is ScopeKind.COMMIT else sides.base, scope.head)
        if len(messages) == 1:
            title, messages = messages[0][0], [("", messages[0][1])]
    texts = ("\n\n".join(filter(None, message)) for message in messages)
    return Intent(title=title, messages=tuple(filter(None, texts)), context=context)


async def _messages(repository: Repository, since: str | None, until: str) -> list[tuple[str, str]]:
    limits = ("--max-count=1",) if since is None else ("--max-count=20", "--no-merges", f"^{since}")
    async with reading(repository) as place:
        words = ("log", "-z", "--no-show-signature", "--no-patch", "--format=tformat:%s%n%n%b")
        output = await git(place, *words, *limits, until, "--")
    messages: list[tuple[str, str]] = []
    for record in output.decode("utf-8", "replace").split("\0"):
        if record.strip():
            subject, _, body = record.partition("\n\n")
            lines = body.strip()[:_MESSAGE_CHARACTERS].split("\n")
            kept = "\n".join(line for line in lines if not _TRAILER.match(line)).strip()
            messages.append((subject.strip()[:_MESSAGE_CHARACTERS], kept))
    return messages


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
    async def holds(commit: str) -> bool:
        content = await read_file_at(repository, commit, file)
        return content is not None and line.rstrip(b"\r") in (row.rstrip(b"\r") for row in content.split(b"\n"))

    async def remote_branches(*words: str) -> list[str]:
        form = ("for-each-ref", "--sort=-committerdate", "--format=%(objectname)")
        found = await try_git(repository.place, *form, *words, "refs/remotes")
        return found.stdout.decode("ascii", "replace").split()

    if sides.side is not Side.COMMIT:
        head = (await read_head(repository)).sha
        if head is None or not await holds(head):
            return Moment.STAGED if sides.side is Side.INDEX else Moment.UNCOMMITTED
    if sides.head is not None and await remote_branches("--count=1", "--contains", sides.head):
        return Moment.PUSHED
    for branch in await remote_branches("--count=10"):
        if await holds(branch):
            return Moment.PUSHED
    return Moment.COMMITTED
