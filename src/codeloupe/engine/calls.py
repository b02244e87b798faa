"""Agent calls put together: from settings to agents, and what all calls of a runtime share.

The modules of an agent load with its first use, so that of a chain only those that are asked cost a start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from msgspec.structs import replace

from codeloupe.agents.calls.budget import RunBudget, SpendingLimits, Spent
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions, ChangedFiles, KeyOf, WatchFiles
from codeloupe.agents.calls.timing import Timing
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError
from codeloupe.git.repository import open_repository
from codeloupe.git.tree_state import changed_between, identity, read_tree_state
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, DefaultSeconds
from codeloupe.model.ports import Agent, AgentEventSink
from codeloupe.store.content_key import CALL_VERSION, Asked, content_key, is_repeatable
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.location import DATABASE_NAME, state_directory


class _Recipe(NamedTuple):
    """Where the class of an agent is, and what it is made with."""

    module: str
    kind: str
    options: Callable[[Settings], Mapping[str, object]]


def _freedoms(wanted: Settings) -> dict[str, object]:
    return {"allow_bypass": wanted.allow_bypass, "keep_sessions": wanted.keep_sessions}


_RECIPES: Mapping[str, _Recipe] = {
    "agent_sdk": _Recipe("codeloupe.agents.claude.sdk_agent", "AgentSdkAgent", _freedoms),
    "claude_cli": _Recipe(
        "codeloupe.agents.claude.cli_agent",
        "ClaudeCliAgent",
        lambda wanted: {"program": wanted.claude_path, **_freedoms(wanted)},
    ),
    "codex": _Recipe(
        "codeloupe.agents.codex.agent",
        "CodexAgent",
        lambda wanted: {"program": wanted.codex_path, **_freedoms(wanted)},
    ),
    "gemini": _Recipe(
        "codeloupe.agents.gemini.agent",
        "GeminiAgent",
        lambda wanted: {"program": wanted.gemini_path, **_freedoms(wanted)},
    ),
    "api": _Recipe(
        "codeloupe.agents.api.agent",
        "ApiAgent",
        lambda wanted: {"model": wanted.api_model, "base_url": wanted.api_base_url},
    ),
}
AGENT_NAMES = tuple(_RECIPES)
# No request holds a NUL, so no text can be taken for this.
_SOME_FENCE = "\0fence\0"


class _LateAgent:
    """An agent whose modules load when more than its name is asked for."""

    def __init__(self, name: str, recipe: _Recipe, settings: Settings, environment: Mapping[str, str] | None) -> None:
        self.name = name
        self._recipe = recipe
        self._settings = settings
        self._environment = environment

    @cached_property
    def _agent(self) -> Agent:
        agent: Agent = getattr(import_module(self._recipe.module), self._recipe.kind)(
            environment=self._environment, **self._recipe.options(self._settings)
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


def make_agent(name: str, settings: Settings, *, environment: Mapping[str, str] | None = None) -> Agent:
    """The agent of that name, as the settings want it. Raises KeyError for an unknown name.

    Its program or service gets what it needs of `environment`, or of this process's own.
    """
    return _LateAgent(name, _RECIPES[name], settings, environment)


def effective_request(request: AgentRequest, settings: Settings) -> AgentRequest:
    """The request with what the settings say where it says nothing: its model, and its time."""
    is_open = isinstance(request.timeout_seconds, DefaultSeconds)
    return replace(
        request,
        model=request.model or settings.model,
        timeout_seconds=settings.agent_timeout_seconds if is_open else request.timeout_seconds,
        # The caller's own, which may change while the call waits.
        output_schema=deepcopy(request.output_schema),
    )


async def run_agent(
    request: AgentRequest, *, settings: Settings, calls: AgentCalls, fresh: bool, emit: AgentEventSink
) -> AgentResult:
    """The answer of the first agent that can be used. Raises as `codeloupe.run_agent` does."""
    asked = effective_request(request, settings)
    agents = [calls.agent(name, settings) for name in calls.names(settings)]
    tree = await _tree_of(asked)

    def key_of(one: AgentRequest, agent: Agent) -> str | None:
        return _key(one, agent, tree, trust=trust_of(trusted=not settings.untrusted))

    return await calls.caller(settings, fresh=fresh, key_of=key_of).call(asked, agent=agents, emit=emit)


async def _watch(directory: Path) -> ChangedFiles:
    repository = await open_repository(directory)
    before = await read_tree_state(repository)

    async def changed_files() -> tuple[str, ...]:
        return changed_between(before, await read_tree_state(repository))

    return changed_files


class AgentCalls:
    """What all agent calls of a runtime share, in one event loop: agents, limits, budget and the one database.

    `agents` are the caller's own, by their names: one that has the name of a built-in one takes its place. Limits and
    budget are those of the settings with which the first call is made. The database is touched with its first use.
    """

    def __init__(
        self,
        agents: Sequence[Agent] = (),
        *,
        environment: Mapping[str, str] | None = None,
        state_directory: Path | None = None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self.own = MappingProxyType({agent.name: agent for agent in agents})
        self.environment = environment
        self._state_directory = state_directory
        self._timing = timing
        self._caller: AgentCaller | None = None

    @cached_property
    def state_directory(self) -> Path:
        """Where the ledger, the history and the runs of pipelines are. Raises StoreError when nothing names a place."""
        if self._state_directory is not None:
            return self._state_directory
        return state_directory(os.environ if self.environment is None else self.environment)

    @cached_property
    def database(self) -> Database:
        """The file of ledger and history. Raises as `state_directory` does."""
        return Database(self.state_directory / DATABASE_NAME)

    @property
    def spent(self) -> Spent:
        """What all calls have taken so far."""
        return Spent() if self._caller is None else self._caller.spent

    @contextmanager
    def opened_history(self) -> Iterator[SqliteHistory]:
        """The history, which stays open afterwards. Raises as `state_directory` does."""
        yield SqliteHistory(self.database)

    def names(self, settings: Settings) -> tuple[str, ...]:
        """Who is asked, in this order: the caller's own agents, if there are any, else those of the settings."""
        return tuple(self.own) or settings.agents

    def agent(self, name: str, settings: Settings) -> Agent:
        """The agent of that name, as the settings want it. Raises KeyError for an unknown name."""
        own = self.own.get(name)
        return make_agent(name, settings, environment=self.environment) if own is None else own

    def caller(
        self,
        settings: Settings,
        *,
        fresh: bool = False,
        key_of: KeyOf | None = None,
        watch_files: WatchFiles | None = _watch,
    ) -> AgentCaller:
        """What makes agent calls under the limits that all calls share.

        `key_of` names a call in the ledger; without it nothing is looked up there and nothing is kept. `watch_files`
        tells which files a call changed, by git unless something else is given; None for a caller who finds out by
        itself. Raises StoreError when there is no place for the ledger.
        """
        return self._shared(settings).variant(
            key_of=key_of,
            watch_files=watch_files,
            mask_prompts=settings.mask_prompts,
            fresh=fresh,
            wait_for_quota=settings.wait_for_quota,
        )

    def part(self, settings: Settings, limits: SpendingLimits) -> AgentCalls:
        """The same for some of the calls, which have limits of their own beside those of all. Raises as `caller`."""
        part = copy(self)
        part._caller = self._shared(settings).variant(key_of=None, watch_files=None, limits=limits)  # noqa: SLF001 - ours
        return part

    def _shared(self, settings: Settings) -> AgentCaller:
        if self._caller is not None:
            return self._caller
        options = CallerOptions(concurrency=settings.concurrency, calls_per_minute=settings.calls_per_minute)
        budget = RunBudget(
            clock=self._timing.clock,
            max_usd=settings.max_budget_usd,
            max_tokens=settings.max_tokens,
            max_requests=settings.max_requests,
        )
        ledger = SqliteLedger(self.database)
        self._caller = AgentCaller(options, budget=budget, ledger=ledger, timing=self._timing)
        return self._caller

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; the next use opens it again."""
        if "database" in vars(self):
            self.database.close()


async def list_agents(settings: Settings, calls: AgentCalls) -> tuple[tuple[str, Availability], ...]:
    """Every built-in agent, and whether it can be used here. Costs nothing."""
    agents = [calls.agent(name, settings) for name in AGENT_NAMES]
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


class StageKeys:
    """The ledger's keys of the reading calls of a pipeline: each covers what the agent can read."""

    def __init__(self, called: Callable[[Agent], str] = attrgetter("name"), *, trust: str) -> None:
        self._trust = trust
        self._known: dict[Path, tuple[str, int]] = {}
        self._called = called

    def tell(self, workspace: Path, tree: str, failures: int) -> None:
        """A workspace holds this tree now; so many calls on it have failed, and the next must not be one of them."""
        self._known[workspace] = (tree, failures)

    def key_of(self, request: AgentRequest, agent: Agent) -> str | None:
        """The key, or None for a call that changes files, or on files whose content is not known."""
        reads_files = agent.limits.tools and request.tools != ()
        tree, failures = self._known.get(request.working_dir, (None, 0))
        if not is_repeatable(request) or (reads_files and tree is None):
            return None
        return content_key(
            _without_fence(request, request.labels.get("fence", "")),
            who_is_asked(request, agent, trust=self._trust, name=self._called(agent)),
            version=request.labels.get("prompt_version", f"stage {CALL_VERSION}"),
            tree=tree if reads_files else None,
            extra={"failures": str(failures)},
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
