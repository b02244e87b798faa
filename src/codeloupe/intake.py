"""From a request to what a reviewer gets: repository, scope, change, selection, snapshot. Used by app alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path

from codeloupe.engine.selection import (
    HEAD_BYTES,
    FileContent,
    Selection,
    SelectionRules,
    select_by_content,
    select_by_diff,
)
from codeloupe.errors import NotARepository
from codeloupe.git.command import both
from codeloupe.git.diff import parse_diff
from codeloupe.git.engine import private_directory
from codeloupe.git.guidance import read_guidance, read_working_guidance
from codeloupe.git.intent import read_intent
from codeloupe.git.patched import rebuild
from codeloupe.git.reading import read_change
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import Side, Sides, resolve_scope
from codeloupe.git.snapshot import Snapshot, empty_directory, exported, exported_tree, place_of, write_file
from codeloupe.model.change import Change, FileChange, Scope, ScopeKind
from codeloupe.model.material import GuidanceFile, Intent
from codeloupe.model.records import dataclass
from codeloupe.model.review import SkippedFile, SkipReason
from codeloupe.model.scope import DiffScope, FetchedScope, PullRequestScope, ScopeRequest
from codeloupe.ports import ReviewTask


@dataclass(frozen=True, slots=True)
class Intake:
    """A change with its selected files and a directory that holds their new content.

    `without_content` names selected files of which only the diff is known. `tree` is the whole reviewed tree, when it
    was asked for and is known; it may be the same directory as `snapshot`, or the user's own working tree.
    """

    change: Change
    selection: Selection
    snapshot: Path
    without_content: frozenset[str] = frozenset()
    tree: Path | None = None
    intent: Intent = Intent()
    guidance: tuple[GuidanceFile, ...] = ()

    def task(self, *, trusted: bool, timeout_seconds: float) -> ReviewTask:
        """What a reviewer gets of it."""
        return ReviewTask(
            change=self.change,
            files=self.selection.files,
            snapshot=self.snapshot,
            trusted=trusted,
            timeout_seconds=timeout_seconds,
            without_content=self.without_content,
            tree=self.tree,
            intent=self.intent,
            guidance=self.guidance,
        )


@asynccontextmanager
async def at_hand(request: ScopeRequest, repo: Path) -> AsyncIterator[tuple[ScopeRequest, Path]]:
    """The request and where it can be read: a pull request is fetched first, and lives as long as the context.

    Raises as `fetch` does.
    """
    if not isinstance(request, PullRequestScope):
        yield request, repo
        return
    with private_directory() as directory:
        yield await fetch(request, repo=repo, into=directory)


async def fetch(request: PullRequestScope, *, repo: Path, into: Path) -> tuple[FetchedScope, Path]:
    """Fetch a pull request below an empty directory: what to review then, and where. `repo` is where the caller stands.

    Raises UsageError for what the caller can mend and ProcessError when the remote cannot be reached.
    """
    # Loaded with its first use: few reviews are of a pull request.
    fetched = await import_module("codeloupe.git.pull_request").fetch_pull_request(request, repo=repo, into=into)
    return fetched.scope, fetched.repo


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What to take in beside the change, and whether the change may be believed."""

    rules: SelectionRules
    trusted: bool
    tree: bool
    guidance: bool
    context: str


@asynccontextmanager
async def take_in(  # noqa: PLR0913 - each is a choice of its own, by name
    request: ScopeRequest,
    repo: Path,
    *,
    base_branch: str | None,
    rules: SelectionRules,
    trusted: bool = True,
    with_tree: bool = False,
    context: str = "",
    with_guidance: bool = False,
) -> AsyncIterator[Intake]:
    """Read what is to be reviewed; the snapshot and the tree live as long as the context.

    `with_guidance` reads the project's guidance and the author's intent too, `with_tree` gives the whole reviewed tree:
    the user's working tree when that is under review and `trusted`, else a copy. `context` is the caller's own word.
    """
    wanted = _Wanted(rules=rules, trusted=trusted, tree=with_tree, guidance=with_guidance, context=context)
    if isinstance(request, DiffScope):
        async with _from_diff(request, repo, wanted) as intake:
            yield intake
        return
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=base_branch)
    change, intent = await both(read_change(repository, sides), _intent(repository, sides, wanted))
    selection = select_by_diff(change, rules)
    async with AsyncExitStack() as stack:
        snapshot, guidance = await both(
            stack.enter_async_context(_exported(repository, sides, selection, wanted)),
            _guidance(repository, sides, selection, wanted),
        )
        selection = _without_missing(selection, snapshot)
        selection = select_by_content(selection, _contents(selection, snapshot.root), rules)
        tree = _tree(repository, sides, snapshot, wanted) if selection.files else None
        yield Intake(change, selection, snapshot.root, tree=tree, intent=intent, guidance=guidance)


def _tree(repository: Repository, sides: Sides, snapshot: Snapshot, wanted: _Wanted) -> Path | None:
    if not wanted.tree:
        return None
    return repository.root if _is_readable_as_it_is(sides, wanted) else snapshot.root


def _is_readable_as_it_is(sides: Sides, wanted: _Wanted) -> bool:
    """Whether an agent may read the working tree itself. One that is not trusted may hold links that lead out of it."""
    return wanted.trusted and sides.side is Side.WORKING_TREE


def _exported(
    repository: Repository, sides: Sides, selection: Selection, wanted: _Wanted
) -> AbstractAsyncContextManager[Snapshot]:
    """The selected files, or with the whole tree in one go when a copy of that is needed."""
    paths = _existing(selection)
    if wanted.tree and selection.files and not _is_readable_as_it_is(sides, wanted):
        return exported_tree(repository, sides, needed=paths)
    return exported(repository, sides, paths=paths)


async def _intent(repository: Repository, sides: Sides, wanted: _Wanted) -> Intent:
    if not wanted.guidance:
        return Intent(context=wanted.context)
    return await read_intent(repository, sides, context=wanted.context)


async def _guidance(
    repository: Repository, sides: Sides, selection: Selection, wanted: _Wanted
) -> tuple[GuidanceFile, ...]:
    if not wanted.guidance or not selection.files:
        return ()
    paths = [file.path for file in selection.files]
    return await read_guidance(repository, sides, paths, trusted=wanted.trusted)


def _scope_of_diff(request: DiffScope) -> Scope:
    """Nothing to read is no change, and is said: a command that failed before a pipe leaves nothing as well."""
    emptiness = ", which is empty" if request.is_empty else ""
    return Scope(ScopeKind.DIFF_FILE, None, None, f"the diff {request.name}{emptiness}")


@asynccontextmanager
async def _from_diff(request: DiffScope, repo: Path, wanted: _Wanted) -> AsyncIterator[Intake]:
    change = Change(_scope_of_diff(request), parse_diff(request.data))
    selection = select_by_diff(change, wanted.rules)
    try:
        repository: Repository | None = await open_repository(repo)
    except NotARepository:
        repository = None  # a diff can be reviewed anywhere; what is missing is named below
    guidance: tuple[GuidanceFile, ...] = ()
    # Nothing tells which revision a diff belongs to, so one that is not trusted has no base to take guidance from.
    if repository is not None and wanted.guidance and wanted.trusted:
        guidance = await read_working_guidance(repository, [file.path for file in selection.files])
    with empty_directory() as root:
        missing = await _write_rebuilt(repository, selection, root)
        selection = select_by_content(selection, _contents(selection, root), wanted.rules)
        unknown = missing & {file.path for file in selection.files}
        intent = Intent(context=wanted.context)
        yield Intake(change, selection, root, unknown, intent=intent, guidance=guidance)


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
