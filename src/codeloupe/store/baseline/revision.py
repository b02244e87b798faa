"""The baseline that holds for a review: of a trusted change the reviewed tree's own, of any other the base's.

Whoever wrote an untrusted change may have written its baseline too. Of a trusted one, what the user accepts in the
working tree holds at once, also for a commit, a range and the index, which do not have the entry yet.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from codeloupe.config.files import repository_root
from codeloupe.git.command import git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Repository,
    copy_index,
    in_engine,
    list_entries,
    open_repository,
    read_file_at,
    temporary_engine,
)
from codeloupe.model.baseline import BASELINE_NAME, Baseline
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.store.baseline.file import decode_baseline, read_working_file

_REGULAR_MODES = ("100644", "100755")


async def read_baseline(scope: Scope, *, repo: Path, trusted: bool) -> Baseline:
    """The baseline that holds for a resolved scope; an empty one without a file. Raises ConfigError and GitFailed.

    An untrusted diff has no base to take one from. In a commit or an index a symbolic link counts as no file.
    """
    if not trusted:
        return await _of_revision(await open_repository(repo), scope.base) if scope.base else Baseline()
    match scope.kind:
        case ScopeKind.UNCOMMITTED | ScopeKind.BRANCH | ScopeKind.DIFF_FILE:
            return _of_working_tree(repo)
        case ScopeKind.STAGED:
            return _joined(await _of_index(await open_repository(repo)), _of_working_tree(repo))
        case ScopeKind.RANGE | ScopeKind.COMMIT | ScopeKind.PULL_REQUEST:
            known = await _of_revision(await open_repository(repo), scope.head) if scope.head else Baseline()
            return _joined(known, _of_working_tree(repo))


def _of_working_tree(repo: Path) -> Baseline:
    return read_working_file(repository_root(repo)).baseline


def _joined(known: Baseline, working: Baseline) -> Baseline:
    """A tree's baseline with what the working tree has besides; of an entry in both, the working tree's holds."""
    same = {replace(entry, line=0) for entry in known.entries}
    also = tuple(entry for entry in working.entries if replace(entry, line=0) not in same)
    changed = {entry.key for entry in also}
    return replace(known, entries=tuple(entry for entry in known.entries if entry.key not in changed), also=also)


async def _of_revision(repository: Repository, revision: str) -> Baseline:
    content = await read_file_at(repository, revision, BASELINE_NAME)
    return Baseline() if content is None else decode_baseline(f"{revision[:12]}:{BASELINE_NAME}", content).baseline


async def _of_index(repository: Repository) -> Baseline:
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        copy_index(repository.index, git_dir)
        place = in_engine(git_dir)
        for entry in await list_entries(place, None, [BASELINE_NAME]):
            if entry.path == BASELINE_NAME and entry.mode in _REGULAR_MODES:
                content = await git(place, "cat-file", "blob", entry.blob)
                return decode_baseline(f":{BASELINE_NAME}", content).baseline
    return Baseline()
