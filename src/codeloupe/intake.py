"""From a request to what a reviewer gets: repository, scope, change, selection, snapshot. Used by app alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from codeloupe.errors import NotARepository
from codeloupe.git.diff import parse_diff
from codeloupe.git.patched import rebuild
from codeloupe.git.reading import read_change
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import Snapshot, empty_directory, exported, place_of, write_file
from codeloupe.model.change import Change, FileChange, Scope, ScopeKind
from codeloupe.model.review import SkippedFile, SkipReason
from codeloupe.model.scope import DiffScope, ScopeRequest
from codeloupe.review.selection import (
    HEAD_BYTES,
    FileContent,
    Selection,
    SelectionRules,
    select_by_content,
    select_by_diff,
)


@dataclass(frozen=True, slots=True)
class Intake:
    """A change with its selected files and a directory that holds their new content.

    `without_content` names selected files of which only the diff is known.
    """

    change: Change
    selection: Selection
    snapshot: Path
    without_content: frozenset[str] = frozenset()


@asynccontextmanager
async def take_in(
    request: ScopeRequest, repo: Path, *, base_branch: str | None, rules: SelectionRules
) -> AsyncIterator[Intake]:
    """Read what is to be reviewed; the snapshot lives as long as the context."""
    if isinstance(request, DiffScope):
        async with _from_diff(request, repo, rules) as intake:
            yield intake
        return
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=base_branch)
    change = await read_change(repository, sides)
    selection = select_by_diff(change, rules)
    async with exported(repository, sides, paths=_existing(selection)) as snapshot:
        selection = _without_missing(selection, snapshot)
        yield Intake(change, select_by_content(selection, _contents(selection, snapshot.root), rules), snapshot.root)


@asynccontextmanager
async def _from_diff(request: DiffScope, repo: Path, rules: SelectionRules) -> AsyncIterator[Intake]:
    scope = Scope(ScopeKind.DIFF_FILE, None, None, f"the diff {request.name}")
    change = Change(scope, parse_diff(request.data))
    selection = select_by_diff(change, rules)
    try:
        repository: Repository | None = await open_repository(repo)
    except NotARepository:
        repository = None  # a diff can be reviewed anywhere; what is missing is named below
    with empty_directory() as root:
        missing = await _write_rebuilt(repository, selection, root)
        selection = select_by_content(selection, _contents(selection, root), rules)
        yield Intake(change, selection, root, missing & {file.path for file in selection.files})


async def _write_rebuilt(repository: Repository | None, selection: Selection, root: Path) -> frozenset[str]:
    """Write each file whose new content can be known for certain; returns the others."""
    existing = _existing(selection)
    times = Counter(file.new_path for file in selection.files)
    # Several diffs of one file in a row (a log) would have to be applied one after the other.
    single = [file for file in selection.files if file.new_path in existing and times[file.new_path] == 1]
    contents = await rebuild(repository, single)
    written = {
        file.path
        for file, content in zip(single, contents, strict=True)
        if content is not None and _could_write(root, file.path, content)
    }
    return frozenset(existing - written)


def _could_write(root: Path, name: str, content: bytes) -> bool:
    try:
        write_file(root, name, content)
    except (OSError, ValueError):  # a path that leaves the tree, or is file and folder at once, has no content here
        return False
    return True


def _existing(selection: Selection) -> set[str]:
    """Selected files that are there after the change and are files."""
    return {file.new_path for file in selection.files if file.new_path is not None and not file.is_submodule}


def _without_missing(selection: Selection, snapshot: Snapshot) -> Selection:
    gone = tuple(SkippedFile(name, SkipReason.UNREADABLE, why) for name, why in snapshot.missing.items())
    kept = tuple(file for file in selection.files if file.path not in snapshot.missing)
    return Selection(kept, selection.skipped + gone)


def _contents(selection: Selection, root: Path) -> dict[str, FileContent]:
    return {file.path: content for file in selection.files if (content := _content(root, file)) is not None}


def _content(root: Path, file: FileChange) -> FileContent | None:
    path = place_of(root, file.path)
    if file.new_path is None or path is None or not path.is_file():
        return None
    with path.open("rb") as stream:
        return FileContent(path.stat().st_size, stream.read(HEAD_BYTES))
