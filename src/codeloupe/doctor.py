"""What `doctor` and `config validate` look at: git, analysers, agents, publishing, state, settings."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.calls import AgentCalls
from codeloupe.commits.categories import commit_experts
from codeloupe.config.files import repository_root
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError, ConfigError, NotARepository, StoreError, UsageError, install_command
from codeloupe.findings.verdict import joined_info
from codeloupe.git.command import MINIMUM_VERSION, git_version
from codeloupe.git.repository import find_base_branch, open_repository
from codeloupe.git.snapshot import list_files, list_head_files
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.baseline import BASELINE_NAME
from codeloupe.model.ports import Agent
from codeloupe.model.review import Check, Diagnosis
from codeloupe.planning.experts import experts_of
from codeloupe.planning.globs import no_such_files, unmatched
from codeloupe.reviewers.choose import choose_reviewers, default_analysers, review_command
from codeloupe.store.baseline import read_working_file
from codeloupe.store.runs import RUNS_DIRECTORY
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase


async def diagnose(settings: Settings, calls: AgentCalls, *, repo: Path) -> Diagnosis:
    """What is here, what is missing, and who would review. A check that fails is a result, not an error."""
    chosen = await choose_reviewers(settings, calls)
    needed = frozenset(one.info.type for one in chosen if one.agents)
    agents = [calls.agent_to_check(name, settings) for name in AGENT_NAMES]
    checks = await asyncio.gather(
        _check("git", "git", _git(), needed=True),
        _check("git", "repository", _repository(repo, settings.base_branch), needed=False),
        *(_check("analysers", one.name, one.version(), needed=True) for one in default_analysers()),
        *(_check("agents", one.name, _agent(one), needed=one.name in needed) for one in agents),
    )
    version = Check("codeloupe", "codeloupe", ok=True, detail=__version__)
    github = Check("publishing", "github", ok=True, detail="ready for `codeloupe publish github`", needed=False)
    if find_spec("gidgethub") is None:
        github = replace(github, ok=False, detail="not installed", hint=install_command("github"))
    about = joined_info([one.info for one in chosen])
    return Diagnosis((version, _check_state(calls), *_check_queue(calls), *checks, github), about)


async def _check(group: str, name: str, look: Awaitable[str | tuple[bool, str, str]], *, needed: bool) -> Check:
    """Whether something can be used, what it is, and a hint; an error is such an answer too."""
    try:
        found = await look
        ok, detail, hint = (True, found, "") if isinstance(found, str) else found
    except CodeloupeError as error:
        ok, detail, hint = False, error.message, error.hint
    return Check(group, name, ok=ok, detail=detail, hint=hint, needed=needed)


async def _git() -> tuple[bool, str, str]:
    text = await git_version()
    ok = tuple(int(part) for part in re.findall(r"\d+", text)[:2]) >= MINIMUM_VERSION
    return ok, text, "" if ok else f"install git {'.'.join(map(str, MINIMUM_VERSION))} or newer"


async def _repository(repo: Path, base_branch: str | None) -> tuple[bool, str, str]:
    repository = await open_repository(repo)
    if (base := await find_base_branch(repository, base_branch)) is not None:
        return True, f"{repository.root}, base branch {base.name}", ""
    return False, f"{repository.root}, no base branch found", "give --base REF, or set base_branch in codeloupe.yaml"


async def _agent(agent: Agent) -> tuple[bool, str, str]:
    found = await agent.check()
    state = found.problem
    if found.usable:
        state = "logged in" if found.logged_in else "login unknown"
    detail = f"{found.version or 'version unknown'}, {state}" if found.found else state
    return found.usable, detail, "" if found.usable and found.logged_in else found.how_to_fix


def _check_state(calls: AgentCalls) -> Check:
    """Check that history, ledger and runs can be stored; an existing database is opened and checked."""
    directory = calls.state_directory
    try:
        shared = calls.database
        if shared.is_shared:
            shared.check()
            return Check("codeloupe", "state", ok=True, detail=f"{shared.name}, and {directory} for files")
    except (StoreError, ConfigError) as error:
        return Check("codeloupe", "state", ok=False, detail=error.message, hint=error.hint)
    detail, hint, database = str(directory), "", directory / DATABASE_NAME
    if not _is_writable(directory) or not _is_writable(directory / RUNS_DIRECTORY):
        detail, hint = f"cannot write to {directory}", "set CODELOUPE_HOME to a writable directory"
    elif os.path.lexists(database):
        try:
            # Another review may be writing just now.
            with SqliteDatabase(database, busy_timeout_seconds=2.0) as opened:
                opened.check()
        except StoreError as error:
            detail, hint = error.message, error.hint
    return Check("codeloupe", "state", ok=not hint, detail=detail, hint=hint)


def _check_queue(calls: AgentCalls) -> tuple[Check, ...]:
    """Check the queue of a shared database, which the first worker or client creates. Nothing is changed."""
    try:
        shared = calls.database
        if not shared.is_shared:
            return ()
        # procrastinate belongs to the extra `server`, without which there is no shared database.
        from codeloupe.store.queue_schema import installed_version, read_queue_state  # noqa: PLC0415 - an extra

        with shared.snapshot() as connection:
            state = read_queue_state(connection)
    except (StoreError, ConfigError):
        return ()  # The check of the state says so.
    installed = f"procrastinate {installed_version()}"
    if not state.is_created:
        return (Check("codeloupe", "queue", ok=True, detail=f"not created yet, {installed}"),)
    detail = f"{installed}, tables of {state.version}"
    hint = ""
    if state.unknown:
        detail = f"{detail}, which this version does not know"
        hint = f"install procrastinate {state.version} or newer"
    elif state.missing_functions and not state.missing:
        detail = f"{detail}, without the functions {', '.join(state.missing_functions)}"
        hint = "restore the schema `codeloupe` from a backup, or use another database"
    elif state.missing:
        detail = f"{detail}; the next worker or client upgrades them ({len(state.missing)} migrations)"
    return (Check("codeloupe", "queue", ok=not hint, detail=detail, hint=hint),)


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in it, or it itself where it is not there yet."""
    try:
        # Permissions do not tell: a file system may be full, or take none.
        Path(tempfile.mkdtemp(prefix=".codeloupe-doctor-", dir=folder)).rmdir()
    except FileNotFoundError:
        return not os.path.lexists(folder) and _is_writable(folder.parent)
    except (OSError, ValueError):  # also a name that no file can have, or one below a file
        return False
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


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
        if settings.base_branch:
            checks["base_branch"] = lambda: _repository(repo, settings.base_branch)
        if settings.include:
            checks["include"] = lambda: _check_include(repo, settings.include)
    found: dict[str, str] = {}
    for key, check in checks.items():
        try:
            done = check()
            if isinstance(done, Awaitable):
                await done
        except NotARepository:
            continue  # there is nothing yet that could be compared
        except UsageError as error:
            found[error.message if key in error.message else f"{key}: {error.message}"] = error.hint
    if found:
        raise ConfigError("\n".join(found), hint="; ".join(dict.fromkeys(hint for hint in found.values() if hint)))


async def _check_include(repo: Path, patterns: tuple[str, ...]) -> None:
    repository = await open_repository(repo)
    names = [*await list_files(repository, None), *await list_head_files(repository)]
    for pattern in unmatched(patterns, names):
        raise no_such_files(pattern, names, where="")
