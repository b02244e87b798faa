"""Agent calls put together: from settings to agents, limits, budget and ledger. The composition root of one call.

The modules of an agent load with its first use, so that of a chain only those that are asked cost a start.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from codeloupe.agents.budget import RunBudget, Spent
from codeloupe.agents.caller import AgentCaller, CallerOptions, ChangedFiles, KeyOf, WatchFiles
from codeloupe.agents.validation import validate_types
from codeloupe.config.schema import Settings
from codeloupe.configuring import configure
from codeloupe.errors import CodeloupeError
from codeloupe.git.repository import open_repository
from codeloupe.git.tree_state import changed_between, identity, read_tree_state
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability
from codeloupe.model.agent_events import AgentEvent
from codeloupe.model.usage import Usage
from codeloupe.ports import Agent, AgentEventSink
from codeloupe.store.content_key import CALL_VERSION, Asked, content_key, is_repeatable
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.location import DATABASE_NAME, database_path


class _Recipe(NamedTuple):
    """Where the class of an agent is, and what it is made with."""

    module: str
    kind: str
    options: Callable[[Settings], Mapping[str, object]]


def _freedoms(wanted: Settings) -> dict[str, object]:
    return {"allow_bypass": wanted.allow_bypass, "keep_sessions": wanted.keep_sessions}


_RECIPES: Mapping[str, _Recipe] = {
    "agent_sdk": _Recipe("codeloupe.agents.agent_sdk", "AgentSdkAgent", _freedoms),
    "claude_cli": _Recipe(
        "codeloupe.agents.claude_cli",
        "ClaudeCliAgent",
        lambda wanted: {"program": wanted.claude_path, **_freedoms(wanted)},
    ),
    "codex": _Recipe(
        "codeloupe.agents.codex", "CodexAgent", lambda wanted: {"program": wanted.codex_path, **_freedoms(wanted)}
    ),
    "gemini": _Recipe(
        "codeloupe.agents.gemini",
        "GeminiAgent",
        lambda wanted: {"program": wanted.gemini_path, **_freedoms(wanted)},
    ),
    "api": _Recipe(
        "codeloupe.agents.api",
        "ApiAgent",
        lambda wanted: {"model": wanted.api_model, "base_url": wanted.api_base_url},
    ),
}
AGENT_NAMES = tuple(_RECIPES)
# No request holds a NUL, so no text can be taken for this.
_SOME_FENCE = "\0fence\0"


class _LateAgent:
    """An agent whose modules load when more than its name is asked for."""

    def __init__(self, name: str, recipe: _Recipe, settings: Settings) -> None:
        self.name = name
        self._recipe = recipe
        self._settings = settings

    @cached_property
    def _agent(self) -> Agent:
        agent: Agent = getattr(import_module(self._recipe.module), self._recipe.kind)(
            **self._recipe.options(self._settings)
        )
        return agent

    @property
    def limits(self) -> AgentLimits:
        return self._agent.limits

    @property
    def default_model(self) -> str | None:
        """The model that it asks when a request names none, where it is known."""
        return getattr(self._agent, "default_model", None)

    def service_of(self, request: AgentRequest) -> str | None:
        """Where it would ask, where that is known."""
        return _service(request, self._agent)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        return await self._agent.run(request, emit)

    async def check(self) -> Availability:
        return await self._agent.check()


def make_agent(name: str, settings: Settings) -> Agent:
    """The agent of that name, as the settings want it. Raises KeyError for an unknown name."""
    return _LateAgent(name, _RECIPES[name], settings)


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
    validate_types(request, agent="any agent")
    chosen = settings or (await configure(repo=request.working_dir)).settings
    agents = [make_agent(name, chosen) for name in chosen.agents]
    tree = await _tree_of(request)

    def key_of(asked: AgentRequest, agent: Agent) -> str | None:
        return _key(asked, agent, tree, trust=trust_of(trusted=not chosen.untrusted))

    with agent_caller(chosen, fresh=fresh, key_of=key_of) as caller:
        return await caller.call(request, agent=agents, emit=emit)


async def _watch(directory: Path) -> ChangedFiles:
    repository = await open_repository(directory)
    before = await read_tree_state(repository)

    async def changed_files() -> tuple[str, ...]:
        return changed_between(before, await read_tree_state(repository))

    return changed_files


@contextmanager
def agent_caller(
    settings: Settings,
    *,
    fresh: bool = False,
    key_of: KeyOf | None = None,
    watch_files: WatchFiles | None = _watch,
    state_directory: Path | None = None,
    used: Usage = Usage(),
) -> Iterator[AgentCaller]:
    """What makes the agent calls of one run, with its limits, its budget and the ledger.

    `key_of` names a call in the ledger; without it nothing is looked up there and nothing is kept. `watch_files` tells
    which files a call changed, by git unless something else is given; None for a caller who finds out by itself. The
    ledger is the user's, or the one in `state_directory`. `used` is what the run has used before.
    """
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
        spent=Spent(used.cost_usd, used.input_tokens + used.output_tokens, used.requests, used.unknown_costs),
    )
    path = database_path(os.environ) if state_directory is None else state_directory / DATABASE_NAME
    with Database(path) as database:
        yield AgentCaller(options, budget=budget, ledger=SqliteLedger(database), key_of=key_of, watch_files=watch_files)


async def list_agents(settings: Settings) -> tuple[tuple[str, Availability], ...]:
    """Every known agent, and whether it can be used here. Costs nothing."""
    agents = [make_agent(name, settings) for name in AGENT_NAMES]
    found = await asyncio.gather(*(agent.check() for agent in agents))
    return tuple(zip(AGENT_NAMES, found, strict=True))


def review_key(request: AgentRequest, agent: Agent) -> str | None:
    """The ledger's key of a reviewing call: the same for the same unit, whatever else changed in the tree.

    Of the labels, `fence` is the run's random marker, which does not count wherever it stands in the text;
    `prompt_version`, `pass` and `trust` do count. None for a call that must be made each time.
    """
    if not is_repeatable(request):
        return None
    labels = request.labels
    return content_key(
        _without_fence(request, labels.get("fence", "")),
        who_is_asked(request, agent, trust=labels.get("trust", "")),
        version=labels.get("prompt_version", CALL_VERSION),
        extra={"pass": labels["pass"]} if "pass" in labels else {},
    )


def _without_fence(request: AgentRequest, fence: str) -> AgentRequest:
    if not fence:
        return request

    def plain(text: str) -> str:
        return text.replace(fence, _SOME_FENCE)

    return replace(
        request,
        prompt=plain(request.prompt),
        system_prompt=request.system_prompt and plain(request.system_prompt),
        append_system_prompt=request.append_system_prompt and plain(request.append_system_prompt),
        context={plain(title): plain(text) for title, text in request.context.items()},
    )


def _key(request: AgentRequest, agent: Agent, tree: str | None, *, trust: str) -> str | None:
    """No key, so no ledger, for a call that must be made each time, or whose files have no known content."""
    reads_files = agent.limits.tools and request.tools != ()
    if not is_repeatable(request) or (reads_files and tree is None):
        return None
    return content_key(request, who_is_asked(request, agent, trust=trust), tree=tree if reads_files else None)


def who_is_asked(request: AgentRequest, agent: Agent, *, trust: str, name: str = "") -> Asked:
    """Who will answer, as far as that is known before: a request may leave it to the agent, which may have a `name`."""
    own: str | None = getattr(agent, "default_model", None)
    model = request.model if own is None else f"{request.model} {own}"
    return Asked(agent=name or agent.name, model=model, service=_service(request, agent), trust=trust)


def trust_of(*, trusted: bool) -> str:
    """The part of a key, and the label of a request, that names whose files and settings are behind a question."""
    return "trusted" if trusted else "untrusted"


def _service(request: AgentRequest, agent: Agent) -> str | None:
    service_of = getattr(agent, "service_of", None)
    return None if service_of is None else service_of(request)


async def _tree_of(request: AgentRequest) -> str | None:
    # A path that cannot even be looked at, for its length or a right that lacks, is refused in words with the request.
    is_there = os.path.isdir(request.working_dir)  # noqa: PTH112 - Path.is_dir raises for such a path
    if request.tools == () or not is_repeatable(request) or not is_there:
        return None
    try:
        repository = await open_repository(request.working_dir)
        return identity(await read_tree_state(repository)) + str(
            request.working_dir.resolve().relative_to(repository.root)
        )
    except CodeloupeError:
        return None  # not under git: what the files hold is unknown, so the call is made each time
