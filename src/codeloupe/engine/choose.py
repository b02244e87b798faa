"""Who reviews: from settings to the reviewers of a run, and to who tries to refute what they find.

A kind of reviewer loads when it is made, as agents do in their registry: an offline review needs none of what asks
agents, which is a fifth of its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.calls import AgentCalls, review_key
from codeloupe.errors import ConfigError
from codeloupe.model import ports
from codeloupe.model.agent import same_vendor
from codeloupe.model.change import Expert, FileChange
from codeloupe.model.ports import Agent, Reviewer
from codeloupe.model.review import ReviewerInfo
from codeloupe.system.redaction import redact

if TYPE_CHECKING:
    from codeloupe.analysers.interface import Analyser

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
    """A reviewer before it is made; its first agent is asked first. `instead` says why it is no agent, if it is not."""

    info: ReviewerInfo
    agents: tuple[Agent, ...] = ()
    instead: str = ""

    @property
    def needs_whole_tree(self) -> bool:
        """Whether it is a program of others, of which nobody knows what it reads."""
        return self.info.type in ("command", "cerberus")

    @property
    def reads_tree(self) -> bool:
        """Whether it may read more than the diff."""
        return any(agent.limits.tools for agent in self.agents) or self.needs_whole_tree


async def choose_reviewers(
    settings: Settings, calls: AgentCalls | None = None, *, needs_agent: bool = False
) -> tuple[ChosenReviewer, ...]:
    """Who would review, at least one; with `needs_agent` agents that cannot be used stay, and to ask them fails."""
    calls = calls or AgentCalls()
    wanted = settings.reviewers or (settings.reviewer_type,)
    if settings.lanes == ("offline",) and not settings.reviewers:
        wanted = ("offline",)
    chosen: list[ChosenReviewer] = []
    for name in dict.fromkeys(wanted):
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
        chosen.append(_offline("beside the agent, as configured"))
    return tuple(chosen)


async def _best(settings: Settings, calls: AgentCalls, *, first: str | None, needs_agent: bool) -> ChosenReviewer:
    missing: dict[str, list[str]] = {}
    names = calls.names(settings)
    agents = tuple(calls.agent(name, settings) for name in names)
    listed = ""
    for position, name in enumerate(names):
        found = await calls.agent_to_check(name, settings).check()
        if found.usable:
            why = "; ".join(filter(None, ("installed and logged in" if found.logged_in else "installed", listed)))
            return ChosenReviewer(_info(name, why, settings, first=first), agents[position:])
        lacks = "without a model" if found.lacks_model else "not logged in"
        missing.setdefault(lacks if found.found else "not installed", []).append(name)
        # Such as `codex and gemini are not installed, api is without a model`.
        listed = ", ".join(
            f"{', '.join(others)} and {last} are {why}" if others else f"{last} is {why}"
            for why, (*others, last) in missing.items()
        )
    why = f"no agent can be used here: {listed}"
    if needs_agent:
        return ChosenReviewer(_info(names[0], why, settings, first=first), agents)
    return replace(_offline(why), instead=listed)


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
        why = f"{why}; uses {model or 'its own default model'}, since {settings.model} is meant for {first}"
    return ReviewerInfo(type=name, why=why, model=model)


def experts_of(settings: Settings, names: Sequence[str] | None = None) -> tuple[Expert, ...]:
    """The experts of these names, or of those in the settings, or the default ones. Raises as `load_experts` does."""
    from codeloupe.engine.experts import DEFAULT, load_experts

    folder = Path(settings.experts_folder) if settings.experts_folder else None
    return load_experts(names or settings.experts or (DEFAULT,), own=settings.own_experts, folder=folder)


def review_command(settings: Settings) -> tuple[str, ...]:
    """The program of the reviewer `command`. Raises ConfigError when none is named."""
    if not settings.review_command:
        hint = "set it in your own configuration file: review_command: [my-reviewer, --json]"
        raise ConfigError("reviewer_type is command, but review_command names none", hint=hint)
    return settings.review_command


class Reviewers(Struct):
    """Makes the chosen reviewers of a run, and who tries to refute what they find. `session_id` is the caller's own."""

    chosen: Sequence[ChosenReviewer]
    settings: Settings
    calls: AgentCalls
    repo: Path
    fresh: bool = False
    transcript: ports.Transcript | None = None
    session_id: str | None = None

    @property
    def have_agents(self) -> bool:
        """Whether an agent is among them."""
        return any(one.agents for one in self.chosen)

    def make(self, experts: Sequence[Expert] | None = None) -> tuple[Reviewer, ...]:
        """The reviewers: with the experts of the settings, or with others.

        Raises ConfigError for unknown ones, and StoreError when agents review and there is no place for the ledger.
        """
        apart = experts is None and len(self.settings.experts) > 1
        checklists = tuple(experts or ())
        if experts is None and (self.have_agents or self.settings.experts):
            checklists = experts_of(self.settings)
        return tuple(self._reviewer(one, checklists, apart=apart) for one in self.chosen)

    def verifier(self) -> ports.Verifier | None:
        """The first agent that can read the code, or what says that none can; None where no agent should."""
        agents = [one for one in self.chosen if one.agents]
        if not self.settings.verify or not agents:
            return None
        from codeloupe.engine.verify import AbsentVerifier, AgentVerifier

        for one in agents:
            if one.agents[0].limits.tools:
                return AgentVerifier(**self._asking(one))
        names = " and ".join(one.info.type for one in agents)
        return AbsentVerifier(f"{names} cannot read the code around them; verify: false says it is not wanted")

    def _reviewer(self, one: ChosenReviewer, experts: tuple[Expert, ...], *, apart: bool) -> Reviewer:
        settings = self.settings
        match one.info.type:
            case "offline":
                return _Analysers(one.info)
            case "command":
                from codeloupe.engine.external import CommandReviewer

                return CommandReviewer(review_command(settings), info=one.info)
            case "cerberus":
                from codeloupe.engine.external import CerberusReviewer

                state = self.calls.state_directory
                return CerberusReviewer(settings, self.repo, state, info=one.info, session_id=self.session_id)
        from codeloupe.engine.ask import AgentReviewer

        asking = self._asking(one)
        reviewer = AgentReviewer(**asking, info=one.info, settings=settings, experts=experts, apart=apart)
        has_analysers = any(other.info.type == "offline" for other in self.chosen)
        is_first = one is next(other for other in self.chosen if other.agents)
        return _WithSecrets(reviewer) if is_first and not has_analysers else reviewer

    def _asking(self, one: ChosenReviewer) -> dict[str, Any]:
        """How a reviewer or a verifier asks the agent, by the names of their parameters."""
        from codeloupe.engine.ask import CallOptions

        settings, is_sdk = self.settings, one.info.type == "agent_sdk"
        caller = self.calls.caller(settings, fresh=self.fresh, key_of=review_key, repo=self.repo)
        seconds = settings.agent_sdk_review_timeout if is_sdk else settings.review_timeout_seconds
        return {
            "ask": lambda request, emit: caller.call(request, agent=one.agents, emit=emit),
            "limits": one.agents[0].limits,
            "calls": CallOptions(model=one.info.model, timeout_seconds=seconds),
            "transcript": self.transcript,
        }


class _Analysers(Struct):
    """The analysers, which load when there is something to review, and are the same for all commits of a sweep."""

    info: ReviewerInfo
    made: Reviewer | None = None

    async def review(self, task: ports.ReviewTask, emit: ports.EventSink) -> ports.ReviewerOutcome:
        from codeloupe.analysers.offline import OfflineReviewer

        self.made = self.made or OfflineReviewer(default_analysers(), why=self.info.why)
        return await self.made.review(task, emit)


class _WithSecrets(Struct, frozen=True):
    """An agent, which sees no secrets, and beside it the analyser that finds those which were masked for it."""

    reviewer: Reviewer

    @property
    def info(self) -> ReviewerInfo:
        return self.reviewer.info

    async def review(self, task: ports.ReviewTask, emit: ports.EventSink) -> ports.ReviewerOutcome:
        def added(file: FileChange) -> str:
            lines = (line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
            return b"\n".join(lines).decode("utf-8", "replace")

        masked = tuple(file for file in task.files if redact(text := added(file)) != text)
        if not masked:
            return await self.reviewer.review(task, emit)
        from codeloupe.analysers.offline import OfflineReviewer
        from codeloupe.analysers.secrets import SecretsAnalyser
        from codeloupe.engine.merge import merge_findings

        offline = OfflineReviewer([SecretsAnalyser()], why="secrets are masked for agents")
        found = await offline.review(replace(task, files=masked), emit)
        outcome = await self.reviewer.review(task, emit)
        return replace(
            outcome,
            findings=merge_findings([*found.findings, *outcome.findings]),
            units_total=outcome.units_total + len(found.units_failed),
            units_failed=(*outcome.units_failed, *found.units_failed),
            errors=(*outcome.errors, *found.errors),
        )
