"""Checks that the agents of a run can be used, before the run starts or resumes and anything is spent.

A call needs one usable agent of its chain. A run without one would stop at its first call, with no work that a person
could approve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model.agent import Availability
from codeloupe.model.pipeline import (
    ENDED_STATES,
    Approval,
    Decision,
    GateKind,
    PipelineDefinition,
    RunRecord,
    StageDefinition,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.agents import RunAgents
from codeloupe.pipelines.recovery import Action, next_action, reopened, tried_again
from codeloupe.reviewers.choose import choose_reviewers

_HINT = "install one of them, log in to it, or use another agent; `codeloupe doctor` lists the usable ones"


class Need(Struct, frozen=True, kw_only=True):
    """One usable agent of these names, for a purpose such as `the stage write`.

    `gate` is the position of the critic's gate, None for the stage's own call. Review gates share one need without a
    stage.
    """

    purpose: str
    agents: tuple[str, ...]
    model: str | None
    stage: str = ""
    gate: int | None = None


class Readiness(Struct, frozen=True, kw_only=True):
    """The agent that would answer a need, empty if there is none, and the problem of each agent before it."""

    need: Need
    usable: str = ""
    problems: Mapping[str, str]


async def require_agents(
    agents: RunAgents, definition: PipelineDefinition, run: RunRecord, answers: Mapping[str, Approval], *, refusal: str
) -> None:
    """Raise UsageError, once for all, if a call that the run will make has no usable agent.

    `answers` are those that people left for stages of the run. `refusal` begins the message, which names each agent
    that could be used and why it cannot.
    """
    lines = describe_unusable(await check_agents(agents, definition, run, answers))
    if lines:
        raise UsageError("\n  ".join((f"{refusal}: these agents cannot be used", *lines)), hint=_HINT)


async def check_agents(
    agents: RunAgents, definition: PipelineDefinition, run: RunRecord, answers: Mapping[str, Approval]
) -> list[Readiness]:
    """Return which agent would make each call that the run will make. Each agent is checked once, at no cost."""
    checks: dict[tuple[str, str | None], Availability] = {}
    found: list[Readiness] = []
    for need in await _needs(agents, definition, run, answers):
        problems: dict[str, str] = {}
        usable = ""
        for name in need.agents:
            key = (name, need.model)
            if key not in checks:
                checks[key] = await agents.availability(name, need.model)
            if checks[key].usable:
                usable = name
                break
            problems[name] = _problem(checks[key])
        found.append(Readiness(need=need, usable=usable, problems=problems))
    return found


def describe_unusable(checks: Iterable[Readiness]) -> list[str]:
    """Return a line for each agent that a call needs and that cannot be used."""
    problems: dict[str, str] = {}
    purposes: dict[str, list[str]] = {}
    for check in checks:
        if check.usable:
            continue
        for name, problem in check.problems.items():
            problems[name] = problem
            purposes.setdefault(name, []).append(check.need.purpose)
    return [f"{name}, for {', '.join(purposes[name])}: {problem}" for name, problem in problems.items()]


def _problem(found: Availability) -> str:
    if found.how_to_fix:
        return f"{found.problem} ({found.how_to_fix})"
    return found.problem


async def _needs(
    agents: RunAgents, definition: PipelineDefinition, run: RunRecord, answers: Mapping[str, Approval]
) -> list[Need]:
    needs: list[Need] = []
    is_reviewed = False
    for stage in definition.stages:
        action = _next_action(stage, run.stage(stage.name), answers.get(stage.name))
        if action is None or action.do not in ("execute", "keep", "judge"):
            continue
        if action.do == "execute":
            names = agents.names(stage.agent)
            needs.append(Need(purpose=f"the stage {stage.name}", agents=names, model=stage.model, stage=stage.name))
        needs += _critics(agents, stage, first=action.gate)
        is_reviewed = is_reviewed or any(gate.kind is GateKind.REVIEW for gate in stage.gates[action.gate :])
    if is_reviewed:
        for reviewer in await choose_reviewers(agents.settings, agents.calls, needs_agent=True):
            if reviewer.agents:
                names = tuple(agent.name for agent in reviewer.agents)
                needs.append(Need(purpose="review gates", agents=names, model=agents.settings.model))
    return needs


def _next_action(stage: StageDefinition, record: StageRecord, answer: Approval | None) -> Action | None:
    """Return what is done next with a stage; None if it is finished, or if a person decides first."""
    if answer is not None and answer.decision is Decision.RETRY:
        if record.wants_approval == "gate":
            return Action("execute", len(record.attempts) + 1)
        begun = reopened(record, "") if record.state is StageState.COMPLETED else record
        return next_action(stage, tried_again(begun, answer.note))
    if record.state in ENDED_STATES or record.state is StageState.AWAITING_APPROVAL:
        return None
    return next_action(stage, record)


def _critics(agents: RunAgents, stage: StageDefinition, *, first: int) -> Iterator[Need]:
    for position, gate in enumerate(stage.gates):
        if position < first or gate.kind is not GateKind.CRITIC:
            continue
        model = gate.model
        if model is None and gate.agent in (None, stage.agent):
            model = stage.model
        names = agents.names(gate.agent or stage.agent)
        purpose = f"the critic of {stage.name}"
        yield Need(purpose=purpose, agents=names, model=model, stage=stage.name, gate=position)
