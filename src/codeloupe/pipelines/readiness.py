"""Checks that the agents of a run can be used, before the run starts or resumes and anything is spent.

A call needs one usable agent of its chain. A run without one would stop at its first call, with no work that a person
could approve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model.agent import Availability
from codeloupe.model.pipeline import (
    ENDED_STATES,
    Approval,
    Decision,
    GateDefinition,
    GateKind,
    PipelineDefinition,
    RunRecord,
    StageDefinition,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.context import RunAgents
from codeloupe.pipelines.recovery import Action, next_action, reopened, tried_again
from codeloupe.reviewers.choose import choose_reviewers

_HINT = "install one of them, log in to it, or use another agent; `codeloupe doctor` lists the usable ones"


class _Need(Struct, frozen=True):
    """One usable agent of these names, for a purpose such as `the stage write`."""

    purpose: str
    agents: tuple[str, ...]
    model: str | None


async def require_agents(
    agents: RunAgents, definition: PipelineDefinition, run: RunRecord, answers: Mapping[str, Approval], *, refusal: str
) -> None:
    """Raise UsageError, once for all, if a call that the run will make has no usable agent.

    `answers` are those that people left for stages of the run. `refusal` begins the message, which names each agent
    that could be used and why it cannot.
    """
    checks: dict[tuple[str, str | None], Availability] = {}
    problems: dict[str, str] = {}
    purposes: dict[str, list[str]] = {}
    for need in await _needs(agents, definition, run, answers):
        found: dict[str, Availability] = {}
        for name in need.agents:
            key = (name, need.model)
            if key not in checks:
                checks[key] = await agents.availability(name, need.model)
            found[name] = checks[key]
            if found[name].usable:
                break
        if any(each.usable for each in found.values()):
            continue
        for name, availability in found.items():
            problems[name] = _problem(availability)
            purposes.setdefault(name, []).append(need.purpose)
    if problems:
        lines = [f"{name}, for {', '.join(purposes[name])}: {problem}" for name, problem in problems.items()]
        raise UsageError("\n  ".join((f"{refusal}: these agents cannot be used", *lines)), hint=_HINT)


def _problem(found: Availability) -> str:
    if not found.found:
        problem = "not installed"
    elif found.lacks_model:
        problem = "no model chosen"
    else:
        problem = "not logged in"
    return f"{problem} ({found.how_to_fix})" if found.how_to_fix else problem


async def _needs(
    agents: RunAgents, definition: PipelineDefinition, run: RunRecord, answers: Mapping[str, Approval]
) -> list[_Need]:
    needs: list[_Need] = []
    is_reviewed = False
    for stage in definition.stages:
        action = _next_action(stage, run.stage(stage.name), answers.get(stage.name))
        if action is None or action.do not in ("execute", "keep", "judge"):
            continue
        if action.do == "execute":
            needs.append(_Need(f"the stage {stage.name}", agents.names(stage.agent), stage.model))
        gates = stage.gates[action.gate :]
        needs += _critics(agents, stage, gates)
        is_reviewed = is_reviewed or any(gate.kind is GateKind.REVIEW for gate in gates)
    if is_reviewed:
        for reviewer in await choose_reviewers(agents.settings, agents.calls):
            if reviewer.agents:
                names = tuple(agent.name for agent in reviewer.agents)
                needs.append(_Need("review gates", names, agents.settings.model))
    return needs


def _next_action(stage: StageDefinition, record: StageRecord, answer: Approval | None) -> Action | None:
    """Return what is done next with a stage; None if it is finished, or if a person decides first."""
    if answer is not None and answer.decision is Decision.RETRY:
        if record.wants_approval == "gate":
            return Action("execute", len(record.attempts) + 1)
        begun = reopened(record, "") if record.state is StageState.COMPLETED else record
        return next_action(stage, tried_again(begun, ""))
    if record.state in ENDED_STATES or record.state is StageState.AWAITING_APPROVAL:
        return None
    return next_action(stage, record)


def _critics(agents: RunAgents, stage: StageDefinition, gates: tuple[GateDefinition, ...]) -> Iterator[_Need]:
    for gate in gates:
        if gate.kind is not GateKind.CRITIC:
            continue
        model = gate.model
        if model is None and gate.agent in (None, stage.agent):
            model = stage.model
        yield _Need(f"the critic of {stage.name}", agents.names(gate.agent or stage.agent), model)
