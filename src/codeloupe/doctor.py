"""What `doctor` looks at: git, the analysers, the agents, publishing, and what a review here would use."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from codeloupe import __version__
from codeloupe.analysers.interface import Analyser
from codeloupe.errors import CodeloupeError, StoreError, install_command
from codeloupe.git.command import MINIMUM_VERSION, git_version
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.model.diagnosis import Check, Diagnosis
from codeloupe.model.ports import Agent
from codeloupe.model.review import ReviewerInfo
from codeloupe.store.database import Database
from codeloupe.store.location import DATABASE_NAME
from codeloupe.store.run_store import RUNS_DIRECTORY

_PUBLISHING_PACKAGE = "gidgethub"
# Another review may be writing just now.
_PATIENCE_SECONDS = 2.0


class DiagnosisPlace(NamedTuple):
    """Where to look: the repository, the base branch that was named for it, and the folder of what is kept."""

    repo: Path
    base_branch: str | None
    state_directory: Path


async def diagnose(
    analysers: Sequence[Analyser],
    agents: Sequence[Agent],
    reviewer: ReviewerInfo,
    *,
    needed_agents: frozenset[str],
    place: DiagnosisPlace,
) -> Diagnosis:
    """Run every check at the same time. A check that fails is a result, not an error."""
    checks = await asyncio.gather(
        _check_git(),
        _check_repository(place.repo, place.base_branch),
        *(_check_analyser(analyser) for analyser in analysers),
        *(_check_agent(agent, needed=agent.name in needed_agents) for agent in agents),
    )
    version = Check("codeloupe", "codeloupe", ok=True, detail=__version__)
    return Diagnosis((version, _check_state(place.state_directory), *checks, _check_publishing()), reviewer)


def _check_state(directory: Path) -> Check:
    """Whether history, ledger and runs can be kept. Nothing that stays is made here: a first review makes the folder.

    A database that is there is opened, as a review opens it, and looked through.
    """
    detail, hint = str(directory), ""
    database = directory / DATABASE_NAME
    if not _is_writable(directory) or not _is_writable(directory / RUNS_DIRECTORY):
        detail, hint = f"{directory} cannot be written to", "set CODELOUPE_HOME to a folder that you may write to"
    elif os.path.lexists(database):
        try:
            with Database(database, busy_timeout_seconds=_PATIENCE_SECONDS) as opened:
                opened.check()
        except StoreError as error:
            detail, hint = error.message, error.hint
    return Check("codeloupe", "state", ok=not hint, detail=detail, hint=hint)


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in it, or it itself where it is not there yet."""
    for place in (folder, *folder.parents):
        try:
            place.lstat()
        except FileNotFoundError:
            continue
        except (OSError, ValueError):  # a name that no file can have, or one below a file
            return False
        return place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK) and _can_be_added_to(place)
    return False


def _can_be_added_to(folder: Path) -> bool:
    """Whether a folder can be made there. Permissions do not tell: a file system may be full, or take none."""
    try:
        Path(tempfile.mkdtemp(prefix=".codeloupe-doctor-", dir=folder)).rmdir()
    except OSError:
        return False
    return True


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


def _check_publishing() -> Check:
    is_here = find_spec(_PUBLISHING_PACKAGE) is not None
    detail = "ready for `codeloupe publish github`" if is_here else "not installed"
    hint = "" if is_here else install_command("github")
    return Check("publishing", "github", ok=is_here, detail=detail, hint=hint, needed=False)


async def _check_agent(agent: Agent, *, needed: bool) -> Check:
    found = await agent.check()
    login = {True: "logged in", False: "not logged in", None: "login unknown"}[found.logged_in]
    state = "no model chosen" if found.lacks_model else login
    detail = f"{found.version or 'version unknown'}, {state}" if found.found else "not installed"
    hint = "" if found.usable and found.logged_in else found.how_to_fix
    return Check("agents", agent.name, ok=found.usable, detail=detail, hint=hint, needed=needed)
