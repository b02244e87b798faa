"""From a scope to what the reviewers get: repository, change, selection, snapshot, guidance."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.errors import NotARepository, RevisionError, UsageError
from codeloupe.git import snapshot as snapshots
from codeloupe.git.changes import read_change
from codeloupe.git.command import both
from codeloupe.git.commits import pushed_ranges
from codeloupe.git.diff import parse_diff
from codeloupe.git.guidance import moments_in, read_guidance, read_intent, read_working_guidance
from codeloupe.git.repository import Repository, find_root, open_repository, private_directory, read_blobs
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope, unknown_word
from codeloupe.git.snapshot import Snapshot, place_of
from codeloupe.model import scope as scopes
from codeloupe.model.change import Change, FileChange, FileStatus, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.finding import Claim
from codeloupe.model.ports import Plan
from codeloupe.model.review import NOT_INCLUDED, SkippedFile, SkipReason
from codeloupe.model.scope import DiffScope, FetchedScope, PullRequestScope, ScopeRequest
from codeloupe.planning import select
from codeloupe.planning.contents import encoding_of, shown_whole
from codeloupe.planning.globs import literal_pattern, nearest_path, no_such_files, unmatched
from codeloupe.planning.select import FileContent, Selection, left_out
from codeloupe.planning.settings import configure

# Beyond that a file is too large to be looked into.
_MOST_CONTENT_BYTES = 64 * 1024**2
_Value = TypeVar("_Value")


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
    """The request and where it can be read: a pull request is fetched first, and lives as long as the context."""
    if not isinstance(request, PullRequestScope):
        yield request, repo
        return
    with private_directory() as directory:
        yield await fetch(request, repo=repo, into=directory)


async def fetch(request: PullRequestScope, *, repo: Path, into: Path) -> tuple[FetchedScope, Path]:
    """Fetch a pull request into an empty directory: what to review, and where. Raises UsageError and ProcessError."""
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
    """Read what is to be reviewed under these settings; the snapshot and the tree live as long as the context.

    `with_guidance` reads the project's guidance and the author's intent too, `with_tree` gives the reviewed tree: the
    user's working tree when that is under review and trusted, else a copy, of a very large tree the part around the
    change, unless `whole_tree`. `context` is the caller's own word. With `must_match` an include pattern that fits no
    file of the repository, before or after the change, is a UsageError.
    """
    wanted = settings.include if must_match else ()
    if isinstance(request, DiffScope):
        async with _from_diff(request, repo, settings, with_guidance=with_guidance, wanted=wanted) as prepared:
            yield replace(prepared, intent=Intent(context=context))
        return
    trusted, base_branch = not settings.untrusted, settings.base_branch
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=base_branch)
    change, intent = await both(
        read_change(repository, sides),
        read_intent(repository, sides, context=context) if with_guidance else _known(Intent(context=context)),
    )
    await _check_patterns(change, wanted, repository, sides)
    believed = None if trusted else await believed_base(repository, request, sides, base_branch=base_branch)
    selection = select.select_by_diff(change, settings)
    # An agent may read the working tree itself. One that is not trusted may hold links that lead out of it.
    is_readable = trusted and sides.side is Side.WORKING_TREE
    if with_tree and selection.files and not is_readable:
        exporting = _exported_tree(repository, sides, selection, whole=whole_tree)
    else:
        exporting = snapshots.exported(repository, sides, paths=_existing(selection))
    is_guided = with_guidance and selection.files and (trusted or believed)
    names, of_base = [file.path for file in selection.files], replace(sides, base=believed or sides.base)
    guiding = read_guidance(repository, of_base, names, trusted=trusted) if is_guided else _known(())
    async with AsyncExitStack() as stack:
        snapshot, guidance = await both(stack.enter_async_context(exporting), guiding)
        prepared = await _settled(change, selection, snapshot, settings, repository, guidance)
        tree = (repository.root if is_readable else snapshot.root) if with_tree and prepared.files else None
        yield replace(
            prepared,
            tree=tree,
            intent=intent,
            believed=believed,
            tree_is_partial=tree == snapshot.root and snapshot.is_partial,
            moment_of=moments_in(repository, sides),
        )


async def _known(value: _Value) -> _Value:
    return value


@asynccontextmanager
async def prepare_commit(
    change: Change,
    settings: Settings,
    *,
    repository: Repository,
    engine: Path,
    with_tree: bool = False,
    whole_tree: bool = False,
) -> AsyncIterator[Prepared]:
    """What is to be reviewed of one commit of many, its files straight from git's objects, or its tree as `prepare`."""
    selection = select.select_by_diff(change, settings)
    async with AsyncExitStack() as stack:
        if with_tree:
            sides = Sides(change.scope, change.scope.base or "", Side.COMMIT)
            exporting = _exported_tree(repository, sides, selection, whole=whole_tree)
            snapshot = await stack.enter_async_context(exporting)
        else:
            snapshot = Snapshot(stack.enter_context(snapshots.empty_directory()))
            wanted = {file.path: file.new_blob or "" for file in selection.present if file.path in _existing(selection)}
            blobs = await _blobs(repository, wanted.values(), engine)
            for path, name in wanted.items():
                try:
                    snapshots.write_file(snapshot.root, path, blobs[name])
                except KeyError:
                    snapshot.missing[path] = "its content is not in this repository, or larger than can be read"
                except (OSError, ValueError) as error:
                    snapshot.missing[path] = f"it cannot be written to a directory of ours: {error}"
        prepared = await _settled(change, selection, snapshot, settings, repository)
        tree = snapshot.root if with_tree and prepared.files else None
        yield replace(prepared, tree=tree, tree_is_partial=snapshot.is_partial)


def _exported_tree(
    repository: Repository, sides: Sides, selection: Selection, *, whole: bool
) -> AbstractAsyncContextManager[Snapshot]:
    near = None if whole else snapshots.near_to(selection.files)
    return snapshots.exported_tree(repository, sides, needed=_existing(selection), nearness=near)


@asynccontextmanager
async def _from_diff(
    request: DiffScope, repo: Path, settings: Settings, *, with_guidance: bool, wanted: Sequence[str]
) -> AsyncIterator[Prepared]:
    # That there is nothing to read is said: a command that failed before a pipe leaves nothing as well.
    emptiness = ", which is empty" if request.is_empty else ""
    scope = Scope(ScopeKind.DIFF_FILE, None, None, f"the diff {request.name}{emptiness}")
    change = Change(scope, parse_diff(request.data))
    selection = select.select_by_diff(change, settings)
    try:
        repository: Repository | None = await open_repository(repo)
    except NotARepository:
        repository = None  # a diff can be reviewed anywhere; what is missing is named below
    guidance: tuple[GuidanceFile, ...] = ()
    # Nothing says which revision a diff belongs to, so one that is not trusted has no base to take guidance from.
    if repository is not None and with_guidance and not settings.untrusted:
        guidance = await read_working_guidance(repository, [file.path for file in selection.files])
    await _check_patterns(change, wanted, repository, None)
    existing = _existing(selection)
    times = Counter(file.new_path for file in selection.present)
    # Several diffs of one file in a row (a log) would have to be applied one after the other.
    single = [file for file in selection.present if file.new_path in existing and times[file.new_path] == 1]
    with snapshots.empty_directory() as root:
        # Only what can be known for certain is written.
        missing = existing - await snapshots.write_rebuilt(repository, single, root)
        prepared = await _settled(change, selection, Snapshot(root), settings, repository, guidance)
        known = frozenset(missing & {file.path for file in prepared.files})
        yield replace(prepared, without_content=known, place=repo)


def _existing(selection: Selection) -> set[str]:
    """Selected files that are there after the change and are files."""
    return {file.new_path for file in selection.present if file.new_path is not None and not file.is_submodule}


async def _check_patterns(
    change: Change, patterns: Sequence[str], repository: Repository | None, sides: Sides | None
) -> None:
    """Raise UsageError for an include pattern that fits nothing at all: a typo must not look like a clean review."""
    changed = {name for file in change.files for name in (file.old_path, file.new_path) if name}
    changed |= {name.rstrip("/") for name in (*dict(change.unreadable), *change.nested_repositories)}
    wrong = unmatched(patterns, changed)
    if wrong and repository is not None:
        changed |= set(await snapshots.list_files(repository, sides))
        wrong = unmatched(wrong, changed)
    if wrong:
        raise no_such_files(wrong[0], sorted(changed))


async def _settled(
    change: Change,
    selection: Selection,
    snapshot: Snapshot,
    settings: Settings,
    repository: Repository | None,
    guidance: Sequence[GuidanceFile] = (),
) -> Prepared:
    """Decide by content what is reviewed, as UTF-8, also in the snapshot; and read lock files."""
    root, missing = snapshot.root, snapshot.missing
    gone = tuple(left_out(name, SkipReason.UNREADABLE, why, settings) for name, why in missing.items())
    locks = tuple(file for file in selection.lock_files if file.path not in missing)
    whole = to_be_read(selection.files, settings)
    # Of those nothing is known yet, as of one that git takes for binary.
    files = tuple(
        replace(file, binary=True) if file.path in whole else file
        for file in selection.files
        if file.path not in missing
    )
    contents = {file.path: known for file in files if (known := _content(root, file)) is not None}
    selection = select.select_by_content(Selection(files, selection.skipped + gone, locks), contents, settings, whole)
    # Text becomes UTF-8, also below `root`; of what is to be read whole all lines are added ones.
    wholes = {path: content.whole for path, content in contents.items() if content.whole is not None}
    olds = (file.old_blob for file in selection.files if file.path in wholes and file.old_path)
    blobs = await _blobs(repository, olds)
    results: list[FileChange] = []
    for file in selection.files:
        text = wholes.get(file.path)
        is_text = text is not None and not file.is_symlink
        decoded = select.decoded_file(file, blobs.get(file.old_blob or ""), text or b"") if is_text else None
        if decoded is not None and (place := place_of(root, file.path)) is not None:
            place.write_bytes(decoded[1])
        in_text, text = decoded or (file, text or b"")
        results.append(shown_whole(in_text, text) if file.path in whole else in_text)
    with_files = replace(selection, files=tuple(results))
    selection, found, unread = await _with_lock_files(with_files, settings, root, repository)
    return Prepared(
        change=change,
        files=selection.files,
        lock_files=selection.lock_files,
        selection=selection,
        place=repository.root if repository is not None else root,
        snapshot=root,
        trusted=not settings.untrusted,
        timeout_seconds=settings.timeout_seconds,
        guidance=tuple(one for one in guidance if not one.unused),
        unused_guidance=tuple(one for one in guidance if one.unused),
        beforehand=found,
        unread_locks=unread,
        repository=repository,
    )


async def _blobs(
    repository: Repository | None, names: Iterable[str | None], engine: Path | None = None
) -> dict[str, bytes]:
    wanted = [name for name in dict.fromkeys(names) if name]
    if repository is None or not wanted:
        return {}
    return await read_blobs(repository, wanted, max_bytes=2 * _MOST_CONTENT_BYTES, engine=engine)


def _content(root: Path, file: FileChange) -> FileContent | None:
    path = place_of(root, file.path)
    if file.new_path is None or path is None or not path.is_file():
        return None
    with path.open("rb") as stream:
        size, head = path.stat().st_size, stream.read(select.HEAD_BYTES)
        is_needed = file.binary or encoding_of(head, file.path) is not None
        whole = head + stream.read(_MOST_CONTENT_BYTES) if is_needed and size <= _MOST_CONTENT_BYTES else None
    return FileContent(size, head, whole)


async def _with_lock_files(
    selection: Selection, settings: Settings, root: Path, repository: Repository | None
) -> tuple[Selection, tuple[Claim, ...], frozenset[str]]:
    """Read the lock files; one that cannot be read is left out with the reason."""
    pinned = [f for f in selection.files if f.path.endswith(".txt") and any(b"--hash=" in h.body for h in f.hunks)]
    files = (*selection.lock_files, *pinned)
    if not files:
        return selection, (), frozenset()
    blobs = await _blobs(repository, (file.old_blob for file in files))
    places = ((file.path, place_of(root, file.path) if file.new_path else None) for file in files)
    news = {path: place.read_bytes() if place and place.is_file() else None for path, place in places}
    from codeloupe.analysers.lock_files import review_lock_files  # noqa: PLC0415 - few changes have one to read

    found, unread = review_lock_files(files, blobs, news)
    locks = tuple(file for file in selection.lock_files if file.path not in unread)
    # Of requirements the reviewers see the lines themselves, so nothing is missing there.
    names = {file.path for file in selection.lock_files}
    unread_locks = ((name, why) for name, why in unread.items() if name in names)
    skipped = tuple(left_out(name, SkipReason.LOCK_FILE, why, settings) for name, why in unread_locks)
    return replace(selection, lock_files=locks, skipped=selection.skipped + skipped), found, frozenset(unread)


def with_gaps_if_nothing_is_left(prepared: Prepared, own_patterns: frozenset[str]) -> Prepared:
    """Return the plan; if an untrusted one has no file left, the files that the caller did not exclude are gaps."""
    if prepared.trusted or prepared.selection.present:
        return prepared
    skipped: list[SkippedFile] = []
    for skip in prepared.selection.skipped:
        pattern = "include" if skip.detail == NOT_INCLUDED else "exclude"
        if skip.reason is SkipReason.EXCLUDED and pattern not in own_patterns:
            skip = replace(skip, accepted=False)  # noqa: PLW2901 - the same file, as a gap
        skipped.append(skip)
    return replace(prepared, selection=replace(prepared.selection, skipped=tuple(skipped)))


def with_and_without_lines(files: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], tuple[SkippedFile, ...]]:
    """Files with changed lines, and those without: they belong to the change, and there is nothing in them to read."""
    bare = [file for file in files if file.is_bare]
    read = tuple(file for file in files if not file.is_bare)
    return read, tuple(SkippedFile(file.path, SkipReason.NOTHING_TO_READ, _what_happened(file)) for file in bare)


def _what_happened(file: FileChange) -> str:
    if file.status in (FileStatus.ADDED, FileStatus.DELETED):
        return f"{file.status.value}, an empty file"
    changed_mode = file.old_mode and file.new_mode and file.old_mode != file.new_mode
    mode = f"its mode is {file.new_mode} instead of {file.old_mode}" if changed_mode else ""
    moved = f"{file.status.value} from {file.old_path}" if file.old_path != file.new_path else ""
    return ", ".join(part for part in (moved, mode) if part) or "no line of it is changed"


def to_be_read(files: Sequence[FileChange], settings: Settings) -> frozenset[str]:
    """Which moved, copied and newly executable files to read whole: a stranger makes code of a text by its name."""
    if not settings.untrusted:
        return frozenset()
    there = (file for file in files if file.old_path and file.new_path and not file.is_submodule)
    return frozenset(
        file.path
        for file in there
        if file.old_path != file.new_path or (file.new_mode != file.old_mode and file.new_mode in (None, "100755"))
    )


async def patterns_of(
    words: Sequence[str], paths: Sequence[str], scope: ScopeRequest, *, repo: Path
) -> tuple[str, ...]:
    """The include patterns for files and folders that are named relative to `repo`; `paths` are certainly such.

    Raises UsageError for a word that is no file of the working tree or of HEAD, and for one outside of the repository.
    """
    if not words and not paths:
        return ()
    is_elsewhere = isinstance(scope, DiffScope | FetchedScope)
    try:
        root = find_root(repo)
    except NotARepository:
        if not is_elsewhere:
            raise
        root = repo.resolve()
    inside: list[str] = []
    for word in (*words, *paths):
        # Not resolved further: a link in the repository is a file of its own.
        path = os.path.normpath(os.path.join(repo.resolve(), word))  # noqa: PTH118 - Path has no such normalisation
        relative = os.path.relpath(path, root)
        if relative == ".." or relative.startswith("../"):
            raise UsageError(f"{word!r} is outside of the repository {root}", hint="give a path inside of it")
        inside.append("" if relative == "." else relative)
    unsure = {name for name in inside[: len(words)] if name and not os.path.lexists(root / name)}
    if unsure and not is_elsewhere:
        repository = await open_repository(repo)
        sides = None
        # Both sides of what is reviewed, so that a deleted file can be named; they need not be known yet.
        with suppress(RevisionError, NotARepository):
            sides = await resolve_scope(repository, scope, base_branch=None)
        known = await snapshots.list_files(repository, sides) + await snapshots.list_head_files(repository)
        for word, name in zip(words, inside, strict=False):
            if name in unsure and not any(file == name or file.startswith(f"{name}/") for file in known):
                raise await unknown_word(repository, word, nearest_path(name, known))
    # The whole repository is no narrowing.
    return () if "" in inside else tuple(map(literal_pattern, inside))


async def new_in_push(
    refs: Sequence[scopes.PushedRef], *, remote: str, repo: Path | str = "."
) -> tuple[scopes.PushedRange, ...]:
    """What a push of these refs would bring to a remote. Raises RevisionError for a ref that is not here."""
    base = (await configure(scopes.DefaultScope(), repo=Path(repo))).settings.base_branch
    return await pushed_ranges(await open_repository(Path(repo)), refs, remote=remote, base_branch=base)
