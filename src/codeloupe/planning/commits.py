"""The commits of a push: their ranges, and secrets in single commits.

A later commit that removes a secret does not remove it from the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.analysers.secrets import search_commits
from codeloupe.config.schema import Settings
from codeloupe.git.commits import pushed_ranges, read_pushed
from codeloupe.git.repository import open_repository
from codeloupe.model.change import Change
from codeloupe.model.events import StageStarted
from codeloupe.model.ports import EventSink
from codeloupe.model.review import SkipReason
from codeloupe.model.scope import DefaultScope, PushedRange, PushedRef, RangeScope, ScopeRequest
from codeloupe.planning.globs import Globs
from codeloupe.planning.prepare import Prepared
from codeloupe.planning.select import left_out
from codeloupe.planning.settings import configure


async def with_each_commit(prepared: Prepared, request: ScopeRequest, settings: Settings, emit: EventSink) -> Prepared:
    """Return the plan with claims about secrets in single commits of a push; a commit that cannot be read is a gap."""
    if not isinstance(request, RangeScope) or not request.commits or prepared.repository is None:
        return prepared
    count = len(request.commits)
    emit(StageStarted("searching", f"{count:,} pushed commit{'' if count == 1 else 's'} for secrets"))
    globs = Globs(settings.include, settings.exclude)
    wanted: list[tuple[str, Change]] = []
    failed: list[tuple[str, str]] = []
    for one in await read_pushed(prepared.repository, request.commits):
        if one.change is None:
            failed.append((f"commit {one.commit.sha[:12]}", one.problem))
            continue
        files = tuple(file for file in one.change.files if globs.unwanted(file.path) is None)
        wanted.append((one.commit.sha, replace(one.change, files=files)))
    searched = await search_commits(
        wanted, prepared.selection.files, trusted=prepared.trusted, timeout_seconds=settings.timeout_seconds
    )
    failed += searched.failed
    gaps = [left_out(name, SkipReason.UNREADABLE, why, settings) for name, why in failed]
    selection = replace(prepared.selection, skipped=(*prepared.selection.skipped, *gaps))
    return replace(prepared, selection=selection, beforehand=(*prepared.beforehand, *searched.claims))


async def new_in_push(refs: Sequence[PushedRef], *, remote: str, repo: Path | str = ".") -> tuple[PushedRange, ...]:
    """Return the commits that a push of some refs adds to a remote. Raise RevisionError for an unknown ref."""
    loaded = await configure(DefaultScope(), repo=Path(repo))
    repository = await open_repository(Path(repo))
    return await pushed_ranges(repository, refs, remote=remote, base_branch=loaded.settings.base_branch)
