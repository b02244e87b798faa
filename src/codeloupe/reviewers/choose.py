"""Who reviews: from settings to the reviewers and the verifier of a review, which all run at the same time.

A kind of reviewer loads when it is made, as agents do in their registry: an offline review needs none of the modules
that ask agents.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.calls import AgentCalls, review_key
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError, ConfigError
from codeloupe.model.agent import AgentRequest, AgentResult, same_vendor
from codeloupe.model.change import FileChange
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import (
    AGENTS,
    Agent,
    AgentEventSink,
    AskAgent,
    EventSink,
    Plan,
    Reviewer,
    ReviewerResult,
    Transcript,
    Verifier,
)
from codeloupe.model.review import FailedUnit, Level, ReviewerInfo, ReviewError
from codeloupe.system.logs import log_failure
from codeloupe.system.redaction import redact

if TYPE_CHECKING:
    from codeloupe.analysers.interface import Analyser
    from codeloupe.reviewers.asking import CallOptions

_OFFLINE = "only the analysers reviewed this change; `codeloupe doctor` shows how to set up an agent"
_log = logging.getLogger(__name__)
# The analyser that runs beside agents too, where something is masked for them.
SECRETS = "detect-secrets"
ANALYSERS = ("ruff", "dataflow", "ast-grep", SECRETS)


def default_analysers() -> tuple[Analyser, ...]:
    """The analysers of an offline review, which are named in `ANALYSERS`."""
    from codeloupe.analysers.ast_grep import AstGrepAnalyser
    from codeloupe.analysers.dataflow.analyser import DataflowAnalyser
    from codeloupe.analysers.ruff import RuffAnalyser
    from codeloupe.analysers.secrets import SecretsAnalyser

    return RuffAnalyser(), DataflowAnalyser(), AstGrepAnalyser(), SecretsAnalyser()


class ChosenReviewer(Struct, frozen=True):
    """A reviewer before it is made; its first agent is asked first.

    `replaces_agent`: no agent can be used, so the analysers review instead; `info.why` says why.
    """

    info: ReviewerInfo
    agents: tuple[Agent, ...] = ()
    replaces_agent: bool = False

    @property
    def needs_whole_tree(self) -> bool:
        """Tell whether it is an external program, which may read any file."""
        return self.info.type in ("command", "cerberus")

    @property
    def reads_tree(self) -> bool:
        """Whether it may read more than the diff."""
        return any(agent.limits.tools for agent in self.agents) or self.needs_whole_tree


def named_reviewers(settings: Settings) -> tuple[str, ...]:
    """Return the reviewers that the settings name."""
    if settings.lanes == ("offline",):
        return ("offline",)
    return tuple(dict.fromkeys(settings.reviewers or (settings.reviewer_type,)))


async def choose_reviewers(
    settings: Settings, calls: AgentCalls | None = None, *, needs_agent: bool = False
) -> tuple[ChosenReviewer, ...]:
    """Who would review, at least one; with `needs_agent` agents that cannot be used stay, and to ask them fails."""
    calls = calls or AgentCalls()
    chosen: list[ChosenReviewer] = []
    for name in named_reviewers(settings):
        # The model was named for the first reviewer with an agent.
        first = next((one.info.type for one in chosen if one.agents), None)
        match name:
            case "auto":
                one = await _best(settings, calls, first=first, needs_agent=needs_agent)
            case "offline":
                one = _offline("as requested")
            case "command" | "cerberus":
                one = ChosenReviewer(ReviewerInfo(type=name, why="as requested"))
            case _:
                agent = calls.agent(name, settings)
                one = ChosenReviewer(_info(name, "as requested", settings, first=first), (agent,))
        chosen.append(one)
    if "offline" in settings.lanes and all(one.info.type != "offline" for one in chosen):
        chosen.append(_offline("next to the agent, as configured"))
    return tuple(chosen)


async def _best(settings: Settings, calls: AgentCalls, *, first: str | None, needs_agent: bool) -> ChosenReviewer:
    """Return the first agent that can be used, with those after it; without one the analysers."""
    problems: dict[str, str] = {}
    names = calls.names(settings)
    agents = tuple(calls.agent(name, settings) for name in names)
    for position, name in enumerate(names):
        found = await calls.agent_to_check(name, settings).check()
        if found.usable:
            why = "installed and logged in" if found.logged_in else "installed"
            if problems:
                why = f"{why}; {_listed(problems)}"
            return ChosenReviewer(_info(name, why, settings, first=first), agents[position:])
        problems[name] = found.problem
    why = f"no agent can be used here: {_listed(problems)}"
    if needs_agent:
        return ChosenReviewer(_info(names[0], why, settings, first=first), agents)
    return replace(_offline(why), replaces_agent=True)


def _listed(problems: Mapping[str, str]) -> str:
    """Return why agents cannot be used, in order: `codex and gemini are not installed, api is without a model`."""
    phrases: list[str] = []
    for problem, group in groupby(problems, key=problems.__getitem__):
        *others, last = group
        phrases.append(f"{', '.join(others)} and {last} are {problem}" if others else f"{last} is {problem}")
    return ", ".join(phrases)


def _offline(why: str) -> ChosenReviewer:
    return ChosenReviewer(ReviewerInfo(type="offline", why=f"{', '.join(ANALYSERS)}; {why}"))


def _info(name: str, why: str, settings: Settings, *, first: str | None) -> ReviewerInfo:
    is_meant = first is None or same_vendor(name, first)
    model = settings.model if is_meant else None
    if name == "agent_sdk":
        model = settings.agent_sdk_reviewer_model or model
    elif name == "api":
        model = model or settings.api_model
    if settings.model is not None and not is_meant:
        why = f"{why}; uses {model or 'its own default model'}, because {settings.model} is meant for {first}"
    return ReviewerInfo(type=name, why=why, model=model)


def review_command(settings: Settings) -> tuple[str, ...]:
    """The program of the reviewer `command`. Raises ConfigError when none is named."""
    if not settings.review_command:
        hint = "set it in your own configuration file: review_command: [my-reviewer, --json]"
        raise ConfigError("reviewer_type is command, but review_command is not set", hint=hint)
    return settings.review_command


class Team(Struct):
    """Makes and runs the chosen reviewers of a review; `session_id` is the caller's own, for a review gate.

    Without `quota_wait` the settings decide whether a call waits until a quota resets.
    """

    chosen: Sequence[ChosenReviewer]
    settings: Settings
    calls: AgentCalls
    repo: Path
    fresh: bool = False
    transcript: Transcript | None = None
    session_id: str | None = None
    quota_wait: QuotaWait | None = None

    @property
    def has_agents(self) -> bool:
        """Tell whether an agent is among the reviewers."""
        return any(one.agents for one in self.chosen)

    @property
    def agents(self) -> list[str]:
        """The agents that are asked first, with their models."""
        return [f"{one.info.type} {one.info.model}" for one in self.chosen if one.agents]

    def remarks(self, plan: Plan) -> Iterator[ReviewError]:
        """Yield what a reader of the verdict should know about who reviewed."""
        for one in self.chosen:
            if one.replaces_agent and plan.change.files:
                yield ReviewError("no_agent", _OFFLINE, level=Level.NOTE)

    @property
    def own_tokens(self) -> int:
        """About how many tokens the agents add to each call."""
        return max((one.agents[0].limits.own_tokens for one in self.chosen if one.agents), default=0)

    @property
    def asks_experts_apart(self) -> bool:
        """Tell whether each expert gets units of its own: if several are named."""
        return len(self.settings.experts) > 1

    def reviewers(self) -> tuple[Reviewer, ...]:
        """Return the reviewers. Raise ConfigError for wrong settings, StoreError if there is no place for a ledger."""
        return tuple(self._reviewer(one) for one in self.chosen)

    def verifier(self) -> Verifier | None:
        """Return the first agent reviewer's agents as verifier; None if no agent is asked or `verify` is off."""
        first = next((one for one in self.chosen if one.agents), None)
        if first is None or not self.settings.verify:
            return None
        from codeloupe.reviewers.verify import AgentVerifier

        return AgentVerifier(
            ask=self._ask(first), agents=first.agents, options=self._options(first), transcript=self.transcript
        )

    def _reviewer(self, one: ChosenReviewer) -> Reviewer:
        match one.info.type:
            case "offline":
                return _Analysers(one.info)
            case "command":
                from codeloupe.reviewers.command import CommandReviewer

                command = review_command(self.settings)
                return CommandReviewer(command, info=one.info, output_format=self.settings.review_command_format)
            case "cerberus":
                from codeloupe.reviewers.review_gate import CerberusReviewer

                state = self.calls.state_directory
                return CerberusReviewer(self.settings, self.repo, state, info=one.info, session_id=self.session_id)
        from codeloupe.reviewers.agent import AgentReviewer

        reviewer = AgentReviewer(
            ask=self._ask(one),
            agents=one.agents,
            info=one.info,
            settings=self.settings,
            options=self._options(one),
            apart=self.asks_experts_apart,
            transcript=self.transcript,
        )
        has_analysers = any(other.info.type == "offline" for other in self.chosen)
        is_first = one is next(other for other in self.chosen if other.agents)
        # Secrets are masked for agents, so the analyser that finds them runs beside the first one.
        return _WithSecrets(reviewer) if is_first and not has_analysers else reviewer

    def _ask(self, one: ChosenReviewer) -> AskAgent:
        """Return the function that puts a question to one of a reviewer's agents."""
        make = partial(self.calls.caller, self.settings, key_of=review_key, repo=self.repo, quota_wait=self.quota_wait)
        # A question that is repeated, because its answer was not exact, must not get the same answer again.
        caller = make(fresh=self.fresh, fresh_since=self.calls.fresh_since)
        fresh_caller = make(fresh=True)
        from codeloupe.reviewers.asking import FRESH

        async def ask(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
            chosen = fresh_caller if FRESH in request.labels else caller
            return await chosen.call(request, agent=agent, chain=one.agents, emit=emit)

        return ask

    def _options(self, one: ChosenReviewer) -> CallOptions:
        from codeloupe.reviewers.asking import CallOptions

        seconds = self.settings.review_timeout_seconds
        if one.info.type == "agent_sdk":
            seconds = self.settings.agent_sdk_review_timeout
        return CallOptions(model=one.info.model, timeout_seconds=seconds)


async def review_together(reviewers: Sequence[Reviewer], plan: Plan, emit: EventSink) -> list[ReviewerResult]:
    """Let all reviewers review the plan at the same time; a reviewer that fails makes the review incomplete."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_result_of(reviewer, plan, emit)) for reviewer in reviewers]
    return [one.result() for one in running]


def guarded(emit: EventSink | None) -> EventSink:
    """Return a sink that passes a warning on once, and that a failing listener cannot stop."""
    warned: set[str] = set()

    def pass_on(event: Event) -> None:
        if isinstance(event, Warned):
            if event.message in warned:
                return
            warned.add(event.message)
        try:
            if emit is not None:
                emit(event)
        except Exception as error:  # noqa: BLE001 - a listener may fail at anything, and the review continues
            log_failure(_log, error, "an event of the review could not be shown")

    return pass_on


async def _result_of(reviewer: Reviewer, plan: Plan, emit: EventSink) -> ReviewerResult:
    started = time.monotonic()
    name = reviewer.info.type
    try:
        return await reviewer.review(plan, emit)
    except Exception as error:  # noqa: BLE001 - any error means that this reviewer failed
        log_failure(_log, error, "the reviewer %s failed: %s", name, error)
        reason = f"unexpected error: {type(error).__name__}: {error}"
        if isinstance(error, CodeloupeError):
            reason = error.message
    files = tuple(dict.fromkeys(file.path for file in plan.files))
    emit(LaneFinished(name, 0, time.monotonic() - started, reason))
    is_agent = name not in ("offline", "command", "cerberus")
    return ReviewerResult(
        completed={AGENTS: frozenset()} if is_agent else {},
        units_total=1,
        units_failed=(FailedUnit(name, files, reason),),
        errors=(ReviewError("reviewer_failed", f"{name} could not review: {reason}"),),
    )


class _Analysers(Struct):
    """The analysers, which load when there is something to review, and are the same for all commits of a sweep."""

    info: ReviewerInfo
    made: Reviewer | None = None

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        from codeloupe.analysers.offline import OfflineReviewer

        if self.made is None:
            self.made = OfflineReviewer(default_analysers(), why=self.info.why)
        return await self.made.review(plan, emit)


class _WithSecrets(Struct, frozen=True):
    """An agent reviewer, and after it the analyser that finds the secrets which are masked for agents."""

    reviewer: Reviewer

    @property
    def info(self) -> ReviewerInfo:
        return self.reviewer.info

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        result = await self.reviewer.review(plan, emit)
        known = {finding.file for finding in plan.known if finding.reviewer == SECRETS}
        searched = tuple(file for file in plan.files if file.path in known or _has_secret(file))
        if not searched:
            return result
        from codeloupe.analysers.offline import OfflineReviewer
        from codeloupe.analysers.secrets import SecretsAnalyser

        offline = OfflineReviewer([SecretsAnalyser()], why="secrets are masked for agents")
        found = await offline.review(replace(plan, files=searched), emit)
        return replace(
            result,
            claims=(*found.claims, *result.claims),
            completed={**result.completed, SECRETS: found.completed[SECRETS]},
            units_total=result.units_total + len(found.units_failed),
            units_failed=(*result.units_failed, *found.units_failed),
            errors=(*result.errors, *found.errors),
        )


def _has_secret(file: FileChange) -> bool:
    lines = [line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added"]
    text = b"\n".join(lines).decode("utf-8", "replace")
    return redact(text) != text
