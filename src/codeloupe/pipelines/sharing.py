"""What a run that began in a directory of one machine needs to go on anywhere: its pipeline's files and its trees."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, ConfigError
from codeloupe.git.identity import same_address
from codeloupe.git.repository import Repository, open_repository, origin_url
from codeloupe.git.workspaces import GitWorkspaceStore, keep_borrowed, recorded_commit
from codeloupe.model.pipeline import RunRecord, StageRecord, WorkspaceKind
from codeloupe.pipelines.definition import kept_files, load_kept, load_pipeline
from codeloupe.pipelines.run import MOST_KEPT_BYTES, RunOptions, kept_settings
from codeloupe.planning.settings import configure
from codeloupe.store.interface import RunStore
from codeloupe.store.run_migration import BORROWED_PACK, Prepare, Prepared
from codeloupe.store.runs import write_files
from codeloupe.system.directories import temporary_directory

_HERE = "it can only continue on this machine"


def preparing(target: RunStore) -> Prepare:
    """What makes a run of this machine one of a shared store, as far as that is possible now."""
    return lambda record, directory, before: asyncio.run(_prepared(record, directory, before, target))


async def _prepared(record: RunRecord, directory: Path, before: Path, target: RunStore) -> Prepared:
    """The same run, in its new directory, for which files of another machine may be gone. Raises OSError."""
    remarks = list[str]()
    is_ours = not record.home
    if is_ours:
        record = replace(record, home=target.home, host=socket.gethostname())
    if record.workspace is WorkspaceKind.CHECKOUT:
        return Prepared(record, (f"it works in the checkout {record.repository}: {_HERE}",))
    try:
        write_files(directory, _definition_files(record, directory))
    except ConfigError as error:
        remarks.append(f"{_HERE}, where its pipeline's files are: {error.message}")
    repository: Repository | None = None
    if is_ours and record.workspace is WorkspaceKind.WORKTREE and record.repository is not None:
        with suppress(CodeloupeError):
            repository = await open_repository(record.repository)
            record = replace(record, origin=same_address(await origin_url(repository) or "") or "")
            settings = (await configure(repo=repository.root, environment=os.environ)).settings
            write_files(directory, kept_settings(RunOptions(repo=repository.root), settings))
    if not record.base_tree:
        if record.workspace is WorkspaceKind.WORKTREE:
            remarks.append(f"it has not started yet: {_HERE}")
        return Prepared(record, tuple(remarks))
    try:
        record = replace(record, base_commit=record.base_commit or recorded_commit(directory / "store.git"))
        changed = await _with_trees(record, directory, before, repository)
    except CodeloupeError as error:
        remarks.append(f"{_HERE}: {error.message}")
    else:
        record = changed or record
        if changed is None:
            clone = f"a clone of {record.origin or 'it'} with the commit {record.base_commit}"
            remarks.append(f"its repository is too large to store with the run; another machine needs {clone}")
    return Prepared(record, tuple(remarks))


def _definition_files(record: RunRecord, directory: Path) -> dict[str, bytes]:
    """The files of its pipeline, unless it has kept them before. Raises ConfigError where they are not as they were."""
    with suppress(ConfigError):
        if load_kept(directory, file=record.file).digest == record.digest:
            return {}
    definition = load_pipeline(record.file, agents=None)
    if definition.digest != record.digest:
        raise ConfigError(f"{record.file}, or a file that it names, has changed since the run started")
    return kept_files(definition)


async def _with_trees(
    record: RunRecord, directory: Path, before: Path, repository: Repository | None
) -> RunRecord | None:
    """The run with all its trees kept in its new directory; None when what it began with is too large."""
    lenders = [before / "store.git"]
    is_whole = (before / "store.git" / "whole").exists()
    with temporary_directory(directory.parent) as room:
        if unkept := [stage for stage in record.stages if _has_left_work(stage)]:
            # An answer that was paid for, and whose process died before it looked at what is in the workspace.
            store = GitWorkspaceStore(room / "store.git", source=repository, max_total_bytes=MOST_KEPT_BYTES)
            (room / "store.git").mkdir(mode=0o700)
            lenders.append(room / "store.git")
            for stage in unkept:
                kept = await store.keep(before / "stages" / stage.name / "work")
                last = replace(stage.attempts[-1], left_tree=kept.tree)
                changed = replace(stage, attempts=(*stage.attempts[:-1], last))
                stages = (changed if each.name == stage.name else each for each in record.stages)
                record = replace(record, stages=tuple(stages))
        is_borrowing = record.workspace is WorkspaceKind.WORKTREE and not is_whole
        if not unkept and not is_borrowing:
            return record
        store_directory, trees = directory / "store.git", tuple(_trees(record))
        is_kept = await keep_borrowed(
            store_directory, lenders, trees=trees, max_bytes=MOST_KEPT_BYTES, prefix=BORROWED_PACK
        )
    return record if is_kept else None


def _has_left_work(stage: StageRecord) -> bool:
    last = stage.attempts[-1] if stage.attempts else None
    return last is not None and not last.tree and not last.left_tree


def _trees(record: RunRecord) -> Iterator[str]:
    """Every tree that a run names."""
    for stage in record.stages:
        attempts = (*stage.earlier, *stage.attempts)
        named = [record.base_tree, stage.start_tree, *stage.built_on.values(), *(each.tree for each in stage.failures)]
        yield from filter(None, (*named, *(tree for each in attempts for tree in (each.tree, each.left_tree))))
