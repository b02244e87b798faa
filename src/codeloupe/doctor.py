"""What `doctor` and `config check` look at: git, analysers, agents, publishing, state, and what the settings name."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from codeloupe import __version__
from codeloupe.analysers.interface import Analyser
from codeloupe.commits.sweep import commit_experts
from codeloupe.config.files import repository_root
from codeloupe.config.schema import Settings
from codeloupe.engine.calls import AgentCalls
from codeloupe.engine.choose import choose_reviewers, default_analysers, experts_of, review_command
from codeloupe.engine.globs import no_such_files, unmatched
from codeloupe.engine.reviewer import joined_info
from codeloupe.errors import CodeloupeError, ConfigError, NotARepository, StoreError, UsageError, install_command
from codeloupe.git.command import JOINING_VERSION, MINIMUM_VERSION, WANTED_VERSION, git_version
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.git.snapshot import list_files, list_head_files
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.baseline import BASELINE_NAME
from codeloupe.model.ports import Agent
from codeloupe.model.review import Check, Diagnosis
from codeloupe.store.baseline import read_working_file
from codeloupe.store.database import DATABASE_NAME, Database
from codeloupe.store.runs import RUNS_DIRECTORY

_PUBLISHING_PACKAGE = "gidgethub"
# Another review may be writing just now.
_PATIENCE_SECONDS = 2.0


async def diagnose(settings: Settings, calls: AgentCalls, *, repo: Path) -> Diagnosis:
    """What is here, what is missing, and who would review. A check that fails is a result, not an error."""
    chosen = await choose_reviewers(settings, calls)
    needed = frozenset(one.info.type for one in chosen if one.agents)
    agents = [calls.agent_to_check(name, settings) for name in AGENT_NAMES]
    checks = await asyncio.gather(
        _check_git(),
        _check_repository(repo, settings.base_branch),
        *(_check_analyser(analyser) for analyser in default_analysers()),
        *(_check_agent(agent, needed=agent.name in needed) for agent in agents),
    )
    is_here = find_spec(_PUBLISHING_PACKAGE) is not None
    publishing = Check(
        "publishing",
        "github",
        ok=is_here,
        detail="ready for `codeloupe publish github`" if is_here else "not installed",
        hint="" if is_here else install_command("github"),
        needed=False,
    )
    version = Check("codeloupe", "codeloupe", ok=True, detail=__version__)
    return Diagnosis(
        (version, _check_state(calls.state_directory), *checks, publishing), joined_info([one.info for one in chosen])
    )


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
        if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            return False
        try:
            # Permissions do not tell: a file system may be full, or take none.
            Path(tempfile.mkdtemp(prefix=".codeloupe-doctor-", dir=place)).rmdir()
        except OSError:
            return False
        return True
    return False


async def _check_git() -> Check:
    try:
        text = await git_version()
    except CodeloupeError as error:
        return Check("git", "git", ok=False, detail=error.message, hint=error.hint)
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    joins = "" if version >= JOINING_VERSION else ", too old for pipelines with parallel stages"
    ok = version >= MINIMUM_VERSION
    return Check("git", "git", ok=ok, detail=text + joins, hint="" if ok else f"install {WANTED_VERSION}")


async def _check_repository(repo: Path, base_branch: str | None) -> Check:
    try:
        repository = await open_repository(repo)
        base = await find_base_branch(repository, base_branch)
    except CodeloupeError as error:
        return Check("git", "repository", ok=False, detail=error.message, hint=error.hint, needed=False)
    detail = f"{repository.root}, {f'base branch {base.name}' if base else 'no base branch found'}"
    hint = "" if base else "give --base REF, or set base_branch in codeloupe.yaml"
    return Check("git", "repository", ok=base is not None, detail=detail, hint=hint, needed=False)


async def _check_analyser(analyser: Analyser) -> Check:
    try:
        return Check("analysers", analyser.name, ok=True, detail=await analyser.version())
    except CodeloupeError as error:
        return Check("analysers", analyser.name, ok=False, detail=error.message, hint=error.hint)


async def _check_agent(agent: Agent, *, needed: bool) -> Check:
    found = await agent.check()
    login = {True: "logged in", False: "not logged in", None: "login unknown"}[found.logged_in]
    state = "no model chosen" if found.lacks_model else login
    detail = f"{found.version or 'version unknown'}, {state}" if found.found else "not installed"
    hint = "" if found.usable and found.logged_in else found.how_to_fix
    return Check("agents", agent.name, ok=found.usable, detail=detail, hint=hint, needed=needed)


async def check_settings(settings: Settings, *, repo: Path | None) -> None:
    """Raises ConfigError, which lists all that a run under these settings would stumble over.

    With a `repo` that includes what the settings mean there: its base branch, its files, and its baseline.
    """
    checks: dict[str, Callable[[], object]] = {
        "experts": lambda: experts_of(settings),
        "commit_experts": lambda: commit_experts(settings),
        "own_experts": lambda: experts_of(settings, tuple(settings.own_experts)),
    }
    if "command" in (*settings.reviewers, settings.reviewer_type):
        checks["review_command"] = lambda: review_command(settings)
    if repo is not None:
        checks[BASELINE_NAME] = lambda: read_working_file(repository_root(repo))
    found: dict[str, str] = {}

    def note(key: str, error: UsageError) -> None:
        found[error.message if key in error.message else f"{key}: {error.message}"] = error.hint

    for key, check in checks.items():
        try:
            check()
        except UsageError as error:
            note(key, error)
    for key, named in (("base_branch", settings.base_branch), ("include", settings.include)):
        try:
            if repo is not None and named:
                await _check_there(repo, named)
        except UsageError as error:
            note(key, error)
    if found:
        raise ConfigError("\n".join(found), hint="; ".join(dict.fromkeys(hint for hint in found.values() if hint)))


async def _check_there(repo: Path, named: str | tuple[str, ...]) -> None:
    """Raises UsageError for a base branch, or an include pattern, of which there is nothing in the repository."""
    try:
        repository = await open_repository(repo)
        if isinstance(named, str):
            await find_base_branch(repository, named)
            return
    except NotARepository:
        return  # there is nothing yet that could be compared
    names = [*await list_files(repository, None), *await list_head_files(repository)]
    for pattern in unmatched(named, names):
        raise no_such_files(pattern, names, where="")
