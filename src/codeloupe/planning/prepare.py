"""From a scope to a plan without units: read the change, select its files, and export what the reviewers read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.errors import NotARepository
from codeloupe.git import snapshot as snapshots
from codeloupe.git.changes import read_change
from codeloupe.git.command import both
from codeloupe.git.diff import parse_diff
from codeloupe.git.guidance import guidance_changed, moments_in, read_guidance, read_intent, read_working_guidance
from codeloupe.git.objects import ObjectReader
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope
from codeloupe.git.snapshot import Snapshot
from codeloupe.model.change import Change, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.finding import Claim
from codeloupe.model.ports import Plan
from codeloupe.model.review import NOT_INCLUDED, Level, ReviewError, SkippedFile, SkipReason
from codeloupe.model.scope import DiffScope, FetchedScope, PullRequestScope, ScopeRequest
from codeloupe.planning.globs import check_patterns
from codeloupe.planning.reading import Objects, read_selected
from codeloupe.planning.select import Selection, select_by_diff
from codeloupe.system.directories import numbered_folder, temporary_folder
from codeloupe.system.process import uninterrupted


class Prepared(Plan, frozen=True, kw_only=True):
    """A plan without units, and what else is known about its change.

    `place` is where it was prepared. `beforehand` are claims about lock files and single commits. `believed`
    is the commit whose guidance and baseline apply to an untrusted change. `repository` is None for a diff outside of
    one. `unread_locks` are the lock files and pinned requirements that could not be read.
    """

    selection: Selection
    place: Path
    unused_guidance: tuple[GuidanceFile, ...] = ()
    beforehand: tuple[Claim, ...] = ()
    unread_locks: frozenset[str] = frozenset()
    believed: str | None = None
    repository: Repository | None = None


@asynccontextmanager
async def fetched(request: ScopeRequest, repo: Path) -> AsyncIterator[tuple[ScopeRequest, Path]]:
    """Yield the request and where it can be read. A pull request is fetched, and removed after the context."""
    if not isinstance(request, PullRequestScope):
        yield request, repo
        return
    async with temporary_folder() as directory:
        yield await fetch(request, repo=repo, into=directory)


async def fetch(request: PullRequestScope, *, repo: Path, into: Path) -> tuple[FetchedScope, Path]:
    """Fetch a pull request into an empty directory. Raise UsageError and ProcessError."""
    from codeloupe.git.pull_request import fetch_pull_request  # noqa: PLC0415 - few reviews are of one

    return await fetch_pull_request(request, repo=repo, into=into)


@asynccontextmanager
async def prepare(  # noqa: PLR0913 - each is a choice of its own, by name
    request: ScopeRequest,
    repo: Path,
    settings: Settings,
    *,
    with_tree: bool = False,
    whole_tree: bool = False,
    with_guidance: bool = False,
    context: str = "",
    must_match: bool = False,
) -> AsyncIterator[Prepared]:
    """Read a change and yield its plan. The snapshot and the tree are removed after the context.

    `with_tree` gives the reviewed tree: the user's working tree if that is under review and trusted, otherwise a copy.
    The copy of a very large tree has only the files around the change, unless `whole_tree`. `with_guidance` reads the
    project's guidance and the author's intent. `context` comes from the caller. With `must_match`, an include pattern
    that matches no file of the repository, before or after the change, raises UsageError.
    """
    patterns = settings.include if must_match else ()
    if isinstance(request, DiffScope):
        async with _from_diff(request, repo, settings, with_guidance=with_guidance, patterns=patterns) as prepared:
            yield replace(prepared, intent=Intent(context=context))
        return
    trusted = not settings.untrusted
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=settings.base_branch)
    change, intent = await both(
        read_change(repository, sides), _intent(repository, sides, context, is_wanted=with_guidance)
    )
    await check_patterns(change, patterns, repository, sides)
    believed: str | None = None
    if not trusted:
        believed = await believed_base(repository, request, sides, base_branch=settings.base_branch)
    selection = select_by_diff(change, settings)
    # An agent may read the working tree itself, unless it is untrusted: then links may lead out of it.
    uses_working_tree = trusted and sides.side is Side.WORKING_TREE
    if with_tree and selection.files and not uses_working_tree:
        exporting = _exported_tree(repository, sides, selection, whole=whole_tree)
    else:
        exporting = snapshots.exported(repository, sides, paths=selection.existing)
    has_guidance = with_guidance and bool(selection.files) and (trusted or bool(believed))
    guiding = _guidance(
        repository, replace(sides, base=believed or sides.base), selection, trusted=trusted, is_wanted=has_guidance
    )
    async with AsyncExitStack() as stack:
        snapshot, guidance = await both(stack.enter_async_context(exporting), guiding)
        prepared = await _prepared(change, selection, snapshot, settings, Objects(repository))
        tree: Path | None = None
        if with_tree and prepared.files:
            tree = repository.root if uses_working_tree else snapshot.root
        yield replace(
            prepared,
            guidance=tuple(one for one in guidance if not one.unused),
            unused_guidance=tuple(one for one in guidance if one.unused),
            tree=tree,
            intent=intent,
            believed=believed,
            tree_is_partial=tree == snapshot.root and snapshot.is_partial,
            moment_of=moments_in(repository, sides),
        )


async def _intent(repository: Repository, sides: Sides, context: str, *, is_wanted: bool) -> Intent:
    if not is_wanted:
        return Intent(context=context)
    return await read_intent(repository, sides, context=context)


async def _guidance(
    repository: Repository, sides: Sides, selection: Selection, *, trusted: bool, is_wanted: bool
) -> tuple[GuidanceFile, ...]:
    if not is_wanted:
        return ()
    return await read_guidance(repository, sides, [file.path for file in selection.files], trusted=trusted)


class CommitSource(Struct, frozen=True):
    """The place that all commits of a sweep are read from and written to.

    `folder` is a directory of ours. It holds a folder for each commit that is being reviewed.
    """

    repository: Repository
    objects: ObjectReader
    folder: Path


@asynccontextmanager
async def prepare_commit(
    change: Change,
    settings: Settings,
    source: CommitSource,
    *,
    with_tree: bool = False,
    whole_tree: bool = False,
) -> AsyncIterator[Prepared]:
    """Yield the plan of one commit of many. Its files come from git's objects, or its tree is that of `prepare`."""
    selection = select_by_diff(change, settings)
    repository = source.repository
    async with AsyncExitStack() as stack:
        if with_tree:
            sides = Sides(change.scope, change.scope.base or "", Side.COMMIT)
            exporting = _exported_tree(repository, sides, selection, whole=whole_tree)
            snapshot = await stack.enter_async_context(exporting)
        else:
            snapshot = await stack.enter_async_context(_written_commit(selection, source))
        objects = Objects(repository, source.objects)
        prepared = await _prepared(change, selection, snapshot, settings, objects)
        tree = snapshot.root if with_tree and prepared.files else None
        yield replace(prepared, tree=tree, tree_is_partial=snapshot.is_partial)


@asynccontextmanager
async def _written_commit(selection: Selection, source: CommitSource) -> AsyncIterator[Snapshot]:
    """Write the selected files of a commit to a folder of their own, and note those that cannot be written."""
    existing = selection.existing
    names = {file.path: file.new_blob or "" for file in selection.present if file.path in existing}
    blobs = await Objects(source.repository, source.objects).read(names.values())
    async with numbered_folder(source.folder) as root:
        yield Snapshot(root, await uninterrupted(asyncio.to_thread(_write_files, root, names, blobs)))


def _write_files(root: Path, names: Mapping[str, str], blobs: Mapping[str, bytes]) -> dict[str, str]:
    """Write the files with these blobs to a directory, and return those that cannot be written, with the reason."""
    missing: dict[str, str] = {}
    for path, name in names.items():
        if name not in blobs:
            missing[path] = "its content is missing from this repository, or too large to read"
            continue
        try:
            snapshots.write_file(root, path, blobs[name])
        except (OSError, ValueError) as error:
            missing[path] = f"it cannot be written to a temporary directory: {error}"
    return missing


def _exported_tree(
    repository: Repository, sides: Sides, selection: Selection, *, whole: bool
) -> AbstractAsyncContextManager[Snapshot]:
    near = None if whole else snapshots.near_to(selection.files)
    return snapshots.exported_tree(repository, sides, needed=selection.existing, nearness=near)


@asynccontextmanager
async def _from_diff(
    request: DiffScope, repo: Path, settings: Settings, *, with_guidance: bool, patterns: Sequence[str]
) -> AsyncIterator[Prepared]:
    """Yield the plan of a diff. Outside of a repository, only the lines in the diff itself are known."""
    label = f"the diff {request.name}"
    if request.is_empty:
        # A command that failed before a pipe leaves an empty diff, so the label says it.
        label += ", which is empty"
    change = Change(Scope(ScopeKind.DIFF_FILE, None, None, label), parse_diff(request.data))
    selection = select_by_diff(change, settings)
    try:
        repository: Repository | None = await open_repository(repo)
    except NotARepository:
        repository = None
    guidance: tuple[GuidanceFile, ...] = ()
    # The revision that a diff belongs to is unknown, so an untrusted one has no base to take guidance from.
    if repository is not None and with_guidance and not settings.untrusted:
        guidance = await read_working_guidance(repository, [file.path for file in selection.files])
    await check_patterns(change, patterns, repository, None)
    existing = selection.existing
    times = Counter(file.new_path for file in selection.present)
    # Several diffs of one file in a row, as in a log, would have to be applied one after the other.
    single = [file for file in selection.present if file.new_path in existing and times[file.new_path] == 1]
    async with temporary_folder() as root:
        missing = existing - await snapshots.write_rebuilt(repository, single, root)
        prepared = await _prepared(change, selection, Snapshot(root), settings, Objects(repository))
        yield replace(
            prepared,
            guidance=tuple(one for one in guidance if not one.unused),
            unused_guidance=tuple(one for one in guidance if one.unused),
            without_content=frozenset(missing & {file.path for file in prepared.files}),
            place=repo,
        )


async def _prepared(
    change: Change, selection: Selection, snapshot: Snapshot, settings: Settings, objects: Objects
) -> Prepared:
    """Return the plan after the selected files were read."""
    repository = objects.repository
    read = await read_selected(selection, snapshot, settings, objects)
    return Prepared(
        change=change,
        files=read.selection.files,
        lock_files=read.selection.lock_files,
        selection=read.selection,
        place=snapshot.root if repository is None else repository.root,
        snapshot=snapshot.root,
        trusted=not settings.untrusted,
        timeout_seconds=settings.timeout_seconds,
        beforehand=read.claims,
        unread_locks=read.unread_locks,
        repository=repository,
    )


def with_gaps_if_nothing_is_left(prepared: Prepared, own_patterns: frozenset[str]) -> Prepared:
    """Return the plan; if an untrusted one has no file left, the files that the caller did not exclude are gaps."""
    if prepared.trusted or prepared.selection.present:
        return prepared
    skipped: list[SkippedFile] = []
    for skip in prepared.selection.skipped:
        pattern = "include" if skip.detail == NOT_INCLUDED else "exclude"
        is_gap = skip.reason is SkipReason.EXCLUDED and pattern not in own_patterns
        skipped.append(replace(skip, accepted=False) if is_gap else skip)
    return replace(prepared, selection=replace(prepared.selection, skipped=tuple(skipped)))


def remarks_of(plan: Prepared, request: ScopeRequest) -> Iterator[ReviewError]:
    """Yield remarks for the reader of the verdict: an assumed base, edited guidance, and unused guidance."""
    if isinstance(request, FetchedScope) and request.assumed_base:
        what = f"the remote does not say which branch this pull request targets, so {request.assumed_base} was assumed"
        yield ReviewError("assumed_base", f"{what}; give --base to compare with another", level=Level.NOTE)
    changed = guidance_changed(plan.change)
    if not plan.trusted and changed:
        message = f"the change edits {', '.join(changed)}; the base's version was used for this review"
        yield ReviewError("rules_changed", message, level=Level.NOTE)
    for one in plan.unused_guidance:
        message = f"the guidance in {one.path} was not used: {one.unused}"
        yield ReviewError("guidance_unused", message, level=Level.NOTE)
