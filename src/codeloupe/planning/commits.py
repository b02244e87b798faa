"""Secrets in the single commits of a push: a later commit that removes one does not take it out of the history."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.analysers.secrets import search_commits
from codeloupe.config.schema import Settings
from codeloupe.git.commits import read_pushed
from codeloupe.model.change import Change
from codeloupe.model.review import SkipReason
from codeloupe.model.scope import RangeScope, ScopeRequest
from codeloupe.planning.globs import Globs
from codeloupe.planning.prepare import Prepared
from codeloupe.planning.select import left_out


async def with_each_commit(prepared: Prepared, request: ScopeRequest, settings: Settings) -> Prepared:
    """Return the plan with claims about secrets in single commits of a push; a commit that cannot be read is a gap."""
    if not isinstance(request, RangeScope) or not request.commits or prepared.repository is None:
        return prepared
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
