"""What `doctor` looks at: git, the analysers, the agents, and what a review here would use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from codeloupe import __version__
from codeloupe.analysers.interface import Analyser
from codeloupe.errors import CodeloupeError
from codeloupe.git.command import MINIMUM_VERSION, git_version
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.model.diagnosis import Check, Diagnosis
from codeloupe.model.review import ReviewerInfo
from codeloupe.ports import Agent


async def diagnose(
    analysers: Sequence[Analyser],
    agents: Sequence[Agent],
    reviewer: ReviewerInfo,
    *,
    repo: Path,
    base_branch: str | None,
) -> Diagnosis:
    """Run every check at the same time. A check that fails is a result, not an error."""
    checks = await asyncio.gather(
        _check_git(),
        _check_repository(repo, base_branch),
        *(_check_analyser(analyser) for analyser in analysers),
        *(_check_agent(agent) for agent in agents),
    )
    version = Check("codeloupe", "codeloupe", ok=True, detail=__version__)
    return Diagnosis((version, *checks), reviewer)


async def _check_git() -> Check:
    try:
        text = await git_version()
    except CodeloupeError as error:
        return Check("git", "git", ok=False, detail=error.message, hint=error.hint)
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    wanted = ".".join(map(str, MINIMUM_VERSION))
    ok = numbers >= MINIMUM_VERSION
    return Check("git", "git", ok=ok, detail=text, hint="" if ok else f"install git {wanted} or newer")


async def _check_repository(repo: Path, base_branch: str | None) -> Check:
    try:
        repository = await open_repository(repo)
        base = await find_base_branch(repository, base_branch)
    except CodeloupeError as error:
        return Check("git", "repository", ok=False, detail=error.message, hint=error.hint, needed=False)
    found = f"base branch {base.name}" if base else "no base branch found"
    hint = "" if base else "give --base REF, or set base_branch in codeloupe.yaml"
    return Check(
        "git", "repository", ok=base is not None, detail=f"{repository.root}, {found}", hint=hint, needed=False
    )


async def _check_analyser(analyser: Analyser) -> Check:
    try:
        return Check("analysers", analyser.name, ok=True, detail=await analyser.version())
    except CodeloupeError as error:
        return Check("analysers", analyser.name, ok=False, detail=error.message, hint=error.hint)


async def _check_agent(agent: Agent) -> Check:
    found = await agent.check()
    login = {True: "logged in", False: "not logged in", None: "login unknown"}[found.logged_in]
    detail = f"{found.version or 'version unknown'}, {login}" if found.found else "not installed"
    hint = "" if found.usable and found.logged_in else found.how_to_fix
    return Check("agents", agent.name, ok=found.usable, detail=detail, hint=hint, needed=False)
