"""Agent calls put together: from settings to agents, limits, budget and ledger. The composition root of one call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from codeloupe.agents.agent_sdk import AgentSdkAgent
from codeloupe.agents.api import ApiAgent
from codeloupe.agents.budget import RunBudget
from codeloupe.agents.caller import AgentCaller, CallerOptions, ChangedFiles
from codeloupe.agents.claude_cli import ClaudeCliAgent
from codeloupe.agents.codex import CodexAgent
from codeloupe.agents.gemini import GeminiAgent
from codeloupe.config.schema import Settings
from codeloupe.configuring import configure
from codeloupe.errors import CodeloupeError
from codeloupe.git.repository import open_repository
from codeloupe.git.tree_state import changed_between, identity, read_tree_state
from codeloupe.model.agent import AgentRequest, AgentResult, Availability
from codeloupe.model.agent_events import AgentEvent
from codeloupe.ports import Agent, AgentEventSink
from codeloupe.store.content_key import content_key, is_repeatable
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.location import database_path

_MAKERS: Mapping[str, Callable[[Settings], Agent]] = {
    "agent_sdk": lambda wanted: AgentSdkAgent(allow_bypass=wanted.allow_bypass, keep_sessions=wanted.keep_sessions),
    "claude_cli": lambda wanted: ClaudeCliAgent(
        wanted.claude_path, allow_bypass=wanted.allow_bypass, keep_sessions=wanted.keep_sessions
    ),
    "codex": lambda wanted: CodexAgent(
        wanted.codex_path, allow_bypass=wanted.allow_bypass, keep_sessions=wanted.keep_sessions
    ),
    "gemini": lambda wanted: GeminiAgent(wanted.gemini_path, allow_bypass=wanted.allow_bypass),
    "api": lambda wanted: ApiAgent(wanted.api_model, base_url=wanted.api_base_url),
}
AGENT_NAMES = tuple(_MAKERS)


def make_agent(name: str, settings: Settings) -> Agent:
    """The agent of that name, as the settings want it. Raises KeyError for an unknown name."""
    return _MAKERS[name](settings)


def _ignore(_event: AgentEvent) -> None:
    """Take an event and do nothing with it."""


async def run_agent(
    request: AgentRequest,
    *,
    settings: Settings | None = None,
    fresh: bool = False,
    emit: AgentEventSink = _ignore,
) -> AgentResult:
    """Ask the first agent of the settings that can be used, and return its answer.

    The same question about the same files is bought once: a finished call comes from the ledger unless `fresh`.
    Raises an AgentError, whose kind says what happened and whether trying again makes sense, or a StoreError.
    """
    chosen = settings or (await configure(repo=request.working_dir)).settings
    agents = [make_agent(name, chosen) for name in chosen.agents]
    return await _call_agents(request, agents=agents, settings=chosen, fresh=fresh, emit=emit)


async def _call_agents(
    request: AgentRequest, *, agents: Sequence[Agent], settings: Settings, fresh: bool, emit: AgentEventSink
) -> AgentResult:
    """Ask the first of some agents that can be used, with everything that stands around a call. Raises AgentError."""
    options = CallerOptions(
        concurrency=settings.concurrency,
        calls_per_minute=settings.calls_per_minute,
        mask_prompts=settings.mask_prompts,
        fresh=fresh,
        wait_for_quota=settings.wait_for_quota,
    )
    budget = RunBudget(
        clock=time.monotonic,
        max_usd=settings.max_budget_usd,
        max_tokens=settings.max_tokens,
        max_requests=settings.max_requests,
    )
    tree = await _tree_of(request)
    with Database(database_path(os.environ)) as database:
        caller = AgentCaller(
            options,
            budget=budget,
            ledger=SqliteLedger(database),
            key_of=lambda asked, agent: _key(asked, agent, tree),
            watch_files=_watch,
        )
        return await caller.call(request, agent=agents, emit=emit)


async def list_agents(settings: Settings) -> tuple[tuple[str, Availability], ...]:
    """Every known agent, and whether it can be used here. Costs nothing."""
    agents = [make_agent(name, settings) for name in AGENT_NAMES]
    found = await asyncio.gather(*(agent.check() for agent in agents))
    return tuple(zip(AGENT_NAMES, found, strict=True))


def _key(request: AgentRequest, agent: Agent, tree: str | None) -> str | None:
    """No key, so no ledger, for a call that must be made each time, or whose files have no known content."""
    reads_files = agent.limits.tools and request.tools != ()
    if not is_repeatable(request) or (reads_files and tree is None):
        return None
    return content_key(request, agent=agent.name, model=request.model, tree=tree if reads_files else None)


async def _tree_of(request: AgentRequest) -> str | None:
    if request.tools == () or not is_repeatable(request) or not request.working_dir.is_dir():
        return None
    try:
        repository = await open_repository(request.working_dir)
        return identity(await read_tree_state(repository)) + str(
            request.working_dir.resolve().relative_to(repository.root)
        )
    except CodeloupeError:
        return None  # not under git: what the files hold is unknown, so the call is made each time


async def _watch(directory: Path) -> ChangedFiles:
    repository = await open_repository(directory)
    before = await read_tree_state(repository)

    async def changed_files() -> tuple[str, ...]:
        return changed_between(before, await read_tree_state(repository))

    return changed_files
