"""The state that all agent calls of a runtime share, and their keys in the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.budget import RunBudget, SpendingLimits, Spent
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.registry import make_agent
from codeloupe.config.loading import database_url
from codeloupe.config.schema import Settings
from codeloupe.git.changes import changed_between, identity, read_tree_state
from codeloupe.git.repository import open_repository
from codeloupe.model.agent import AgentRequest, Priority
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import Agent
from codeloupe.store import open_database
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.interface import Database, Ledger
from codeloupe.store.ledger import CALL_VERSION, Asked, DatabaseLedger, content_key, is_repeatable
from codeloupe.store.spending import SpendingCounter
from codeloupe.store.spool import SpooledLedger
from codeloupe.store.sqlite import state_directory

if TYPE_CHECKING:
    from codeloupe.agents.calls.caller import AgentCaller, ChangedFiles, KeyOf, WatchFiles
    from codeloupe.agents.calls.shared import RequestLimits, SharedCalls


async def _watch(directory: Path) -> ChangedFiles:
    repository = await open_repository(directory)
    before = await read_tree_state(repository)

    async def changed_files() -> tuple[str, ...]:
        return changed_between(before, await read_tree_state(repository))

    return changed_files


class AgentCalls(AbstractContextManager["AgentCalls"]):
    """The state that all agent calls of a runtime share, in one event loop: agents, limits, budget and the database.

    `agents` are the caller's own and replace built-in ones of the same name. Limits and budget are those of the first
    call. `database` is a shared one or its URL, and replaces the one of the user's settings; a given database is not
    closed here. Processes share limits through it, and calls with a better `priority` start first. `fresh_since` is
    the time, by the clock of the database, since which stored answers count in fresh calls.
    """

    def __init__(
        self,
        agents: Sequence[Agent] = (),
        *,
        environment: Mapping[str, str] | None = None,
        state_directory: Path | None = None,
        database: Database | str | None = None,
        priority: int = Priority.PERSON,
        timing: Timing | None = None,
        fresh_since: float | None = None,
    ) -> None:
        self.fresh_since = fresh_since
        self.own = MappingProxyType({agent.name: agent for agent in agents})
        self.environment = os.environ if environment is None else environment
        self._state_directory = state_directory
        self._database = database
        self._priority = priority
        self._timing = timing
        self._repo: Path | None = None
        self._names: dict[Path, tuple[str, str]] = {}
        self._caller: AgentCaller | None = None
        self._spooled: SpooledLedger | None = None

    @cached_property
    def state_directory(self) -> Path:
        """The folder of the ledger, the history and the runs of pipelines. Raise StoreError if none is configured."""
        return self._state_directory or state_directory(self.environment)

    @cached_property
    def database(self) -> Database:
        """The file or the server of ledger and history. Raises StoreError and ConfigError."""
        # A directory that the caller names is for this runtime alone.
        is_own = self._state_directory is not None
        given = self._database or (None if is_own else database_url(self.environment))
        return open_database(given, self.state_directory) if given is None or isinstance(given, str) else given

    def opened_history(self) -> AbstractContextManager[DatabaseHistory]:
        """The history, which stays open afterwards. Raises as `state_directory` does."""
        return nullcontext(DatabaseHistory(self.database))

    @property
    def spent(self) -> Spent:
        """The cost of all calls so far."""
        return Spent() if self._caller is None else self._caller.spent

    @property
    def pause_seconds(self) -> float:
        """How long the services of agents have asked to wait; 0 if none has."""
        longest = None if self._caller is None else self._caller.longest_pause()
        return 0.0 if longest is None else longest[1]

    def names(self, settings: Settings) -> tuple[str, ...]:
        """Who is asked, in this order: the caller's own agents, if there are any, else those of the settings."""
        return tuple(self.own) or settings.agents

    def agent(self, name: str, settings: Settings) -> Agent:
        """The agent of that name, as the settings want it. Raises KeyError for an unknown name."""
        return self.own[name] if name in self.own else make_agent(name, settings, environment=self.environment)

    def agent_to_check(self, name: str, settings: Settings) -> Agent:
        """Return the agent of that name as the first request would use it: with `model` if it has none of its own."""
        return self.agent(name, replace(settings, api_model=settings.api_model or settings.model))

    def caller(
        self,
        settings: Settings,
        *,
        fresh: bool = False,
        fresh_since: float | None = None,
        key_of: KeyOf | None = None,
        watch_files: WatchFiles | None = _watch,
        repo: Path | None = None,
        quota_wait: QuotaWait | None = None,
    ) -> AgentCaller:
        """Return a caller under the limits that all calls share. Raise StoreError without a folder for the ledger.

        `key_of` names a call in the ledger; without it nothing is looked up there and nothing is kept. `watch_files`
        says which files a call changed, by git unless something else is given; None for a caller who finds out itself.
        `repo` is the repository whose budget pays; by default it is the one around the directory of each call.
        Without `quota_wait` the setting `wait_for_quota` decides whether a call waits until a quota resets.
        """
        if quota_wait is None:
            quota_wait = QuotaWait.WITHIN_TIMEOUT if settings.wait_for_quota else QuotaWait.NO
        return self._shared(settings).variant(
            key_of=key_of,
            watch_files=watch_files,
            mask_prompts=settings.mask_prompts,
            fresh=fresh,
            fresh_since=fresh_since,
            quota_wait=quota_wait,
            repo=self._repo or repo,
        )

    def part(self, settings: Settings, limits: SpendingLimits, *, repo: Path | None = None) -> AgentCalls:
        """The same for some of the calls, which have limits of their own beside those of all. Raises as `caller`.

        `repo` pays for all of them, also for those that are made for another.
        """
        part = copy(self)
        part._repo = self._repo or repo  # noqa: SLF001 - ours
        part._caller = self._shared(settings).variant(key_of=None, watch_files=None, limits=limits)  # noqa: SLF001 - ours
        return part

    def _shared(self, settings: Settings) -> AgentCaller:
        from codeloupe.agents.calls.caller import AgentCaller, CallerOptions  # noqa: PLC0415 - where agents are asked

        if self._caller is None:
            timing = self._timing or Timing()
            self._caller = AgentCaller(
                CallerOptions(concurrency=settings.concurrency, calls_per_minute=settings.calls_per_minute),
                budget=RunBudget(
                    clock=timing.clock,
                    max_usd=settings.max_budget_usd,
                    max_tokens=settings.max_tokens,
                    max_requests=settings.max_requests,
                ),
                ledger=self._open_ledger(settings),
                timing=self._timing,
                shared=self._shared_calls(settings),
            )
        return self._caller

    def _shared_calls(self, settings: Settings) -> SharedCalls:
        """Return what counts the cost of calls and, in a shared database, limits them."""
        from codeloupe.agents.calls.shared import SharedCalls, SharedOptions  # noqa: PLC0415 - only if agents are asked

        limits: RequestLimits
        if self.database.is_shared:
            from codeloupe.store.limits import SharedLimits  # noqa: PLC0415 - not without a server

            limits = SharedLimits(self.database)
            options = SharedOptions(
                concurrency=settings.shared_concurrency,
                calls_per_minute=settings.shared_calls_per_minute,
                team=settings.team,
                monthly_usd=settings.monthly_budget_usd,
                monthly_team_usd=settings.monthly_team_budget_usd,
                monthly_repository_usd=settings.monthly_repository_budget_usd,
            )
        else:
            limits = SpendingCounter(self.database)
            options = SharedOptions(team=settings.team)
        timing = self._timing or Timing()
        return SharedCalls(limits, options, timing=timing, priority=self._priority, name_of=self._name_of)

    async def _name_of(self, repo: Path) -> tuple[str, str]:
        """Return the key of a repository, which is the same in all its clones, and its name for people."""
        if repo not in self._names:
            from codeloupe.git.identity import find_payer  # noqa: PLC0415 - only if agents are asked

            try:
                self._names[repo] = await find_payer(repo, DatabaseHistory(self.database))
            except errors.CodeloupeError:
                return str(repo), repo.name
        return self._names[repo]

    def _open_ledger(self, settings: Settings) -> Ledger:
        ledger = DatabaseLedger(self.database, max_gb=settings.ledger_max_gb)
        self._spooled = SpooledLedger(ledger, self.state_directory)
        return self._spooled

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. The next use opens it again."""
        if self._caller is not None and self._caller.shared is not None:
            self._caller.shared.close()
        if self._spooled is not None:
            self._spooled.close()
        if "database" in vars(self) and self.database is not self._database:
            self.database.close()


def trust_of(*, trusted: bool) -> str:
    """The part of a key, and the label of a request, that says whose files and settings a question is about."""
    return "trusted" if trusted else "untrusted"


def _call_key(
    request: AgentRequest,
    agent: Agent,
    *,
    trust: str,
    tree: str | None = None,
    with_files: bool = True,
    name: str = "",
    **more: Any,
) -> str | None:
    """The one place where a key is built; None for a call that changes files.

    With `with_files` the key covers the `tree` of an agent that reads files: without one there is no key. The label
    `fence` is the run's random marker, which does not count.
    """
    reads_files = with_files and agent.limits.tools and request.tools != ()
    if not is_repeatable(request) or (reads_files and tree is None):
        return None
    own, service_of = (getattr(agent, attribute, None) for attribute in ("default_model", "service_of"))
    asked = Asked(
        agent=name or agent.name,
        model=request.model if own is None else f"{request.model} {own}",
        service=service_of and service_of(request),
        trust=trust,
    )
    if fence := request.labels.get("fence", ""):

        def plain(text: str | None) -> Any:
            # No request holds a NUL, so no text can be taken for this.
            return text and text.replace(fence, "\0fence\0")

        texts = {key: plain(getattr(request, key)) for key in ("prompt", "system_prompt", "append_system_prompt")}
        context = {plain(title): plain(text) for title, text in request.context.items()}
        request = replace(request, **texts, context=context)
    return content_key(request, asked, tree=tree if reads_files else None, **more)


def review_key(request: AgentRequest, agent: Agent) -> str | None:
    """Return the ledger's key of a reviewing call: the unit, pass and trust; None for a call to make each time."""
    labels = request.labels
    extra = {name: labels[name] for name in labels if name == "pass"}
    version = labels.get("prompt_version", CALL_VERSION)
    return _call_key(request, agent, with_files=False, trust=labels.get("trust", ""), version=version, extra=extra)


class StageKeys:
    """The ledger's keys of the reading calls of a pipeline: each covers what the agent can read."""

    def __init__(self, called: Callable[[Agent], str], *, trust: str) -> None:
        self._trust = trust
        self._known: dict[Path, tuple[str, str]] = {}
        self._called = called

    def tell(self, workspace: Path, tree: str, *, calls: str) -> None:
        """Remember that a workspace contains a tree, and `calls`, which tells a repeated call from the earlier ones."""
        self._known[workspace] = (tree, calls)

    def key_of(self, request: AgentRequest, agent: Agent) -> str | None:
        """The key, or None for a call that changes files, or on files whose content is not known."""
        tree, calls = self._known.get(request.working_dir, (None, ""))
        version, extra = request.labels.get("prompt_version", f"stage {CALL_VERSION}"), {"calls": calls}
        name = self._called(agent)
        return _call_key(request, agent, tree=tree, trust=self._trust, name=name, version=version, extra=extra)


async def agent_key(request: AgentRequest, *, trust: str) -> KeyOf:
    """What names single calls in the ledger: with the files below the working directory, as they are now."""
    tree: str | None = None
    # A path that cannot even be looked at, for its length or a right that lacks, is refused with the request.
    is_there = os.path.isdir(request.working_dir)  # noqa: PTH112 - Path.is_dir raises for such a path
    if request.tools != () and is_repeatable(request) and is_there:
        # What is not under git has unknown files, so the call is made each time.
        with suppress(errors.CodeloupeError):
            repository = await open_repository(request.working_dir)
            below = request.working_dir.resolve().relative_to(repository.root)
            tree = identity(await read_tree_state(repository)) + str(below)
    # No label of a caller's own is a fence of ours.
    return lambda one, agent: _call_key(replace(one, labels={}), agent, tree=tree, trust=trust)
