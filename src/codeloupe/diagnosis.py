"""What `doctor` looks at: git, the analysers, the agents, and what a review here would use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from codeloupe import __version__
from codeloupe.agents.detection import AGENT_PROGRAMS, FoundAgent, find_agent_program, find_agent_sdk
from codeloupe.analysers.interface import Analyser
from codeloupe.errors import CodeloupeError
from codeloupe.git.command import MINIMUM_VERSION, git_version
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.model.diagnosis import Check, Diagnosis
from codeloupe.model.review import ReviewerInfo


async def diagnose(
    analysers: Sequence[Analyser], reviewer: ReviewerInfo, *, repo: Path, base_branch: str | None
) -> Diagnosis:
    """Run every check at the same time. A check that fails is a result, not an error."""
    here = await asyncio.gather(
        _check_git(),
        _check_repository(repo, base_branch),
        *(_check_analyser(analyser) for analyser in analysers),
        *(_check_agent(name) for name in AGENT_PROGRAMS),
    )
    version = Check("codeloupe", "codeloupe", ok=True, detail=__version__)
    return Diagnosis((version, *here, _agent_check(find_agent_sdk())), reviewer)


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


async def _check_agent(name: str) -> Check:
    return _agent_check(await find_agent_program(name))


def _agent_check(agent: FoundAgent) -> Check:
    found = agent.version is not None
    return Check(
        "agents",
        agent.name,
        ok=found,
        detail=agent.version or agent.problem,
        hint="" if found else agent.install,
        needed=False,
    )
