"""Who reviews: from settings to reviewers and the verifier, with one caller of agents for the whole run.

`auto` takes the first agent of the settings that is here and logged in, and goes offline when there is none. The
offline lane and the external reviewers load with their first use: most runs have neither, and each costs a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.agents.calls.model_choice import same_vendor
from codeloupe.config.schema import Settings
from codeloupe.engine.agent_reviewer import AgentReviewer, AgentReviewOptions
from codeloupe.engine.asking import Transcript
from codeloupe.engine.calls import AgentCalls, review_key
from codeloupe.engine.experts.loading import DEFAULT, load_experts
from codeloupe.engine.merge import merge_findings
from codeloupe.engine.verify import AbsentVerifier, AgentVerifier, VerifyOptions
from codeloupe.errors import ConfigError
from codeloupe.model.agent import AgentRequest, AgentResult, Availability
from codeloupe.model.change import FileChange
from codeloupe.model.expert import Expert
from codeloupe.model.ports import (
    Agent,
    AgentEventSink,
    AskAgent,
    EventSink,
    Reviewer,
    ReviewerOutcome,
    ReviewTask,
    Verifier,
)
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.sweep import CommitCategory
from codeloupe.system.redaction import redact

if TYPE_CHECKING:
    from codeloupe.analysers.interface import Analyser

_ANALYSERS = (
    ("ruff", "RuffAnalyser"),
    ("dataflow.analyser", "DataflowAnalyser"),
    ("ast_grep", "AstGrepAnalyser"),
    ("secrets", "SecretsAnalyser"),
)
# The analyser that runs beside agents too, where something is masked for them.
SECRETS = "detect-secrets"


class Seat(Struct, frozen=True):
    """One reviewer to be: its type, why it was chosen, and the agents behind it, the first of which is asked first.

    `instead` says, for one that reviews offline because no agent can be used, why none can.
    """

    info: ReviewerInfo
    agents: tuple[Agent, ...] = ()
    instead: str = ""

    @property
    def reads_tree(self) -> bool:
        """Whether it may read more than the diff."""
        return any(agent.limits.tools for agent in self.agents) or self.needs_whole_tree

    @property
    def needs_whole_tree(self) -> bool:
        """Whether it is a program of others, of which nobody knows what it reads."""
        return self.info.type in ("command", "cerberus")


async def choose_seats(
    settings: Settings, calls: AgentCalls | None = None, *, needs_agent: bool = False
) -> tuple[Seat, ...]:
    """Who would review under these settings, with the agents of a runtime. Costs nothing; at least one.

    With `needs_agent` the analysers do not take the place of agents that cannot be used: to ask those then fails.
    """
    wanted = settings.reviewers or (settings.reviewer_type,)
    if settings.lanes == ("offline",) and not settings.reviewers:
        wanted = ("offline",)
    seats: list[Seat] = []
    for name in dict.fromkeys(wanted):
        first = next((seat.info.type for seat in seats if seat.agents), None)
        seats.append(await _seat(name, settings, calls or AgentCalls(), first=first, needs_agent=needs_agent))
    if "offline" in settings.lanes and all(seat.info.type != "offline" for seat in seats):
        seats.append(_offline_seat("beside the agent, as configured"))
    return tuple(seats)


async def _seat(name: str, settings: Settings, calls: AgentCalls, *, first: str | None, needs_agent: bool) -> Seat:
    match name:
        case "auto":
            return await _best_seat(settings, calls, first=first, needs_agent=needs_agent)
        case "offline":
            return _offline_seat("as requested")
        case "command" | "cerberus":
            return Seat(ReviewerInfo(type=name, why="as requested"))
        case _:
            return Seat(_info(name, "as requested", settings, first=first), (calls.agent(name, settings),))


async def _best_seat(settings: Settings, calls: AgentCalls, *, first: str | None, needs_agent: bool) -> Seat:
    missing: dict[str, list[str]] = {}
    names = calls.names(settings)
    for position, name in enumerate(names):
        found = await agent_to_check(name, settings, calls).check()
        if found.usable:
            why = "installed and logged in" if found.logged_in else "installed"
            info = _info(name, f"{why}{_passed_over(missing)}", settings, first=first)
            others = (calls.agent(other, settings) for other in names[position + 1 :])
            return Seat(info, (calls.agent(name, settings), *others))
        missing.setdefault(_what_is_missing(found), []).append(name)
    why = f"no agent can be used here: {_in_words(missing)}"
    if needs_agent:
        agents = tuple(calls.agent(name, settings) for name in names)
        return Seat(_info(names[0], why, settings, first=first), agents)
    return replace(_offline_seat(why), instead=_in_words(missing))


def agent_to_check(name: str, settings: Settings, calls: AgentCalls) -> Agent:
    """The agent of that name as it would be asked first: with `model`, where it was told none of its own."""
    return calls.agent(name, replace(settings, api_model=settings.api_model or settings.model))


def _what_is_missing(found: Availability) -> str:
    if not found.found:
        return "not installed"
    return "without a model" if found.lacks_model else "not logged in"


def _in_words(missing: Mapping[str, Sequence[str]]) -> str:
    """`codex and gemini are not installed, api is without a model`."""
    return ", ".join(f"{_listed(names)} {'are' if len(names) > 1 else 'is'} {why}" for why, names in missing.items())


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _passed_over(missing: Mapping[str, Sequence[str]]) -> str:
    return f"; {_in_words(missing)}" if missing else ""


def _offline_seat(why: str) -> Seat:
    names = ", ".join(analyser.name for analyser in default_analysers())
    return Seat(ReviewerInfo(type="offline", why=f"{names}; {why}"))


def _info(name: str, why: str, settings: Settings, *, first: str | None) -> ReviewerInfo:
    """Who sits there. `first` is the first reviewer with an agent, if one sits already: the model was named for it."""
    is_meant = first is None or same_vendor(name, first)
    model = _model(name, settings, settings.model if is_meant else None)
    if settings.model is not None and not is_meant:
        asked = "its own default model" if model is None else model
        why = f"{why}; uses {asked}, since {settings.model} is meant for {first}"
    return ReviewerInfo(type=name, why=why, model=model)


def _model(name: str, settings: Settings, named: str | None) -> str | None:
    if name == "agent_sdk" and settings.agent_sdk_reviewer_model is not None:
        return settings.agent_sdk_reviewer_model
    return settings.api_model if name == "api" and named is None else named


def default_analysers() -> tuple[Analyser, ...]:
    """The analysers of the offline lane."""
    return tuple(_late(f"analysers.{module}", kind)() for module, kind in _ANALYSERS)


def _late(module: str, name: str) -> Any:
    return getattr(import_module(f"codeloupe.{module}"), name)


def experts_of(settings: Settings, names: Sequence[str] | None = None) -> tuple[Expert, ...]:
    """The experts of these names, or of those in the settings, or the default checklist.

    Raises ConfigError for one that nobody knows, and for a definition or a folder that cannot be read.
    """
    folder = Path(settings.experts_folder) if settings.experts_folder else None
    return load_experts(names or settings.experts or (DEFAULT,), own=settings.own_experts, folder=folder)


def commit_experts(
    settings: Settings, usual: Mapping[CommitCategory, tuple[str, ...]]
) -> Mapping[CommitCategory, tuple[Expert, ...]]:
    """Whose checklists a sweep uses for each category: those of the settings, or the usual ones. Raises ConfigError."""
    # The category is what an author says of a commit: one that is called documentation may be anything.
    always = ("general",) if settings.untrusted else ()
    named = {each: settings.commit_experts.get(each.value, usual[each]) for each in CommitCategory}
    return {each: experts_of(settings, tuple(dict.fromkeys((*names, *always)))) for each, names in named.items()}


class Floor(Struct, frozen=True, kw_only=True):
    """Where a run happens: the repository, and what its agent calls share with others.

    `transcript` gets the prompts and raw answers; `session_id` is the caller's own session.
    """

    repo: Path
    calls: AgentCalls = field(default_factory=AgentCalls)
    transcript: Transcript | None = None
    session_id: str | None = None


class Panel:
    """The reviewers of a run on their seats, and who tries to refute what they find."""

    def __init__(self, seats: Sequence[Seat], settings: Settings, caller: AgentCaller | None, *, floor: Floor) -> None:
        self._seats = tuple(seats)
        self._settings = settings
        self._caller = caller
        self._floor = floor

    def reviewers(self, experts: Sequence[Expert] | None = None) -> tuple[Reviewer, ...]:
        """The reviewers: with the experts of the settings, or with others. Raises ConfigError for unknown ones."""
        apart = experts is None and len(self._settings.experts) > 1
        chosen = experts_of(self._settings) if experts is None else tuple(experts)
        return tuple(self._reviewer(seat, chosen, apart=apart) for seat in self._seats)

    def verifier(self) -> Verifier | None:
        """The first agent that can read the code; one that sees no more than the finder did would prove nothing.

        Where agents review and none of them can, one that says so; without any, or when it is not wanted, none.
        """
        blind = [seat.info.type for seat in self._seats if seat.agents]
        if not self._settings.verify or not blind:
            return None
        for seat in self._seats:
            if seat.agents and seat.agents[0].limits.tools:
                return AgentVerifier(
                    self._asking(seat),
                    limits=seat.agents[0].limits,
                    options=VerifyOptions(calls=self._options(seat).calls),
                    transcript=self._floor.transcript,
                )
        return AbsentVerifier(
            f"{' and '.join(blind)} cannot read the code around them; verify: false says it is not wanted"
        )

    def _reviewer(self, seat: Seat, experts: tuple[Expert, ...], *, apart: bool) -> Reviewer:
        if seat.info.type in ("offline", "command", "cerberus"):
            return self._other_reviewer(seat)
        reviewer = AgentReviewer(
            seat.info.type,
            self._asking(seat),
            limits=seat.agents[0].limits,
            info=seat.info,
            options=replace(self._options(seat), experts=experts, apart=apart),
            mask=redact,
            transcript=self._floor.transcript,
        )
        has_analysers = any(other.info.type == "offline" for other in self._seats)
        is_first = seat is next(other for other in self._seats if other.agents)
        return _WithSecrets(reviewer) if is_first and not has_analysers else reviewer

    def _other_reviewer(self, seat: Seat) -> Reviewer:
        """One that asks no agent of ours."""
        settings = self._settings
        reviewer: Reviewer
        if seat.info.type == "offline":
            reviewer = _late("analysers.offline", "OfflineReviewer")(default_analysers(), why=seat.info.why)
        elif seat.info.type == "command":
            reviewer = _late("external.command", "CommandReviewer")(review_command(settings), info=seat.info)
        else:
            place = _late("external.cerberus", "GatePlace")(
                repo=self._floor.repo,
                state_directory=self._floor.calls.state_directory,
                session_id=self._floor.session_id,
            )
            gate = _late("external.cerberus", "CerberusReviewer")
            reviewer = gate(settings.review_gate_path, settings.review_gate_arguments, info=seat.info, place=place)
        return reviewer

    def _options(self, seat: Seat) -> AgentReviewOptions:
        settings = self._settings
        is_sdk = seat.info.type == "agent_sdk"
        return AgentReviewOptions(
            model=seat.info.model,
            effort=settings.effort,
            passes=settings.passes,
            call_timeout_seconds=settings.agent_sdk_review_timeout if is_sdk else settings.review_timeout_seconds,
            instructions=settings.instructions,
            units_at_once=settings.concurrency,
        )

    def _asking(self, seat: Seat) -> AskAgent:
        caller = self._caller
        if caller is None:
            raise AssertionError(f"nobody was hired to call {seat.info.type}")

        async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
            return await caller.call(request, agent=seat.agents, emit=emit)

        return ask


class _WithSecrets:
    """An agent, which sees no secrets, and beside it the analyser that finds those which were masked for it."""

    def __init__(self, agent: Reviewer) -> None:
        self._agent = agent

    @property
    def info(self) -> ReviewerInfo:
        return self._agent.info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        masked = tuple(file for file in task.files if _adds_secrets(file))
        if not masked:
            return await self._agent.review(task, emit)
        analysers = [analyser for analyser in default_analysers() if analyser.name == SECRETS]
        offline = _late("analysers.offline", "OfflineReviewer")(analysers, why="secrets are masked for agents")
        found = await offline.review(replace(task, files=masked), emit)
        outcome = await self._agent.review(task, emit)
        return replace(
            outcome,
            findings=merge_findings([*found.findings, *outcome.findings]),
            units_total=outcome.units_total + len(found.units_failed),
            units_failed=(*outcome.units_failed, *found.units_failed),
            errors=(*outcome.errors, *found.errors),
        )


def _adds_secrets(file: FileChange) -> bool:
    added = b"\n".join(line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
    text = added.decode("utf-8", "replace")
    return redact(text) != text


@contextmanager
def seated(seats: Sequence[Seat], settings: Settings, *, floor: Floor, fresh: bool = False) -> Iterator[Panel]:
    """The reviewers on their seats; limits, budget and ledger are those that all calls share."""
    if not any(seat.agents for seat in seats):
        yield Panel(seats, settings, None, floor=floor)
        return
    yield Panel(seats, settings, floor.calls.caller(settings, fresh=fresh, key_of=review_key), floor=floor)


def review_command(settings: Settings) -> tuple[str, ...]:
    """The program of the reviewer `command`. Raises ConfigError when none is named."""
    if not settings.review_command:
        raise ConfigError(
            "reviewer_type is command, but review_command names none",
            hint="set it in your own configuration file: review_command: [my-reviewer, --json]",
        )
    return settings.review_command
