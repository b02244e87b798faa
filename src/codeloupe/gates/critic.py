"""The gate `critic`: an agent that reads what a stage made and answers PASS, REWORK or FAIL.

What it says is read with the tolerance of reviews. An answer that cannot be understood is asked for once more; after
that it is an error, never a PASS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.parse.critique import CritiqueAnswer, read_critique
from codeloupe.engine.parse.reasons import TRUNCATED_JSON
from codeloupe.errors import AgentError, OutputInvalid, PipelineError
from codeloupe.gates.critic_prompt import (
    CRITIC_VERSION,
    CRITIQUE_SCHEMA,
    REPAIR_SCHEMA,
    CriticPrompt,
    critic_prompt,
    repair_prompt,
)
from codeloupe.gates.fencing import new_fence
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, TokenUsage, Usage, spent, usage_of
from codeloupe.model.pipeline import CriticVerdict, Critique
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.model.ports import GateTask

AskCritic = Callable[[GateDefinition, AgentRequest], Awaitable[AgentResult]]
CanRead = Callable[[GateDefinition, GateTask], bool]

_NO_CRITIQUE = "invalid answer: it is no critique"


class _Heard(Struct, frozen=True, kw_only=True):
    """An answer as it was understood, and what it cost."""

    read: CritiqueAnswer
    text: str
    usage: Usage


class CriticGate:
    """Asks an agent through `ask`, which finds the one that the gate names; `can_read` tells whether it has tools."""

    def __init__(self, ask: AskCritic, *, can_read: CanRead) -> None:
        self._ask = ask
        self._can_read = can_read

    async def __call__(self, gate: GateDefinition, task: GateTask) -> Critique:
        """The critique. Raises an AgentError, with the cost of all its calls, or PipelineError for a bad step file."""
        fence = new_fence()
        can_read = self._can_read(gate, task)
        instructions = None if gate.step is None else _instructions(gate.step, task.stage)
        prompt = critic_prompt(task, fence=fence, instructions=instructions, wish=gate.prompt, can_read=can_read)
        question = _request(gate, task, prompt, fence=fence, can_read=can_read)
        first = await self._heard(gate, question)
        if first.read.problem is None:
            return _critique(gate, first.read, first.usage)
        try:
            second = await self._heard(gate, _asked_again(question, first, fence=fence))
        except AgentError as error:
            _add_cost(error, first.usage)
            raise
        both = first.usage.plus(second.usage)
        if second.read.problem is None:
            return _critique(gate, second.read, both)
        raise _not_understood(task, second, both)

    async def _heard(self, gate: GateDefinition, request: AgentRequest) -> _Heard:
        structured = None
        try:
            result = await self._ask(gate, request)
        except OutputInvalid as error:
            text, usage = error.output or error.raw_output, _usage_of_error(error)
            read = read_critique(text)
            if error.cut_off and read.problem is None:
                read = CritiqueAnswer(problem=TRUNCATED_JSON)
        else:
            text, usage, structured = result.output, usage_of(result), result.structured
            read = read_critique(text, structured)
        is_repair = request.output_schema is REPAIR_SCHEMA
        if is_repair and read.problem is None and not _stands_for_a_critique(structured):
            read = CritiqueAnswer(problem=_NO_CRITIQUE)
        return _Heard(read=read, text=text, usage=usage)


def _stands_for_a_critique(structured: object) -> bool:
    """Whether an answer that was said again was a critique: that has to be said in so many words."""
    return isinstance(structured, dict) and structured.get("readable") is True


def _instructions(step: Path, stage: str) -> str:
    try:
        text = step.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise PipelineError(
            f"the critic's instructions {step} cannot be read: {reason}", stage=stage, hint="check the gate's step"
        ) from error
    if not text.strip():
        raise PipelineError(
            f"the critic's instructions {step} are empty", stage=stage, hint="write them, or leave the gate's step out"
        )
    return text


def _request(gate: GateDefinition, task: GateTask, prompt: CriticPrompt, *, fence: str, can_read: bool) -> AgentRequest:
    return AgentRequest(
        system_prompt=prompt.system,
        prompt=prompt.text,
        working_dir=task.workspace,
        model=gate.model,
        permission_mode=PermissionMode.DONT_ASK,
        tools=None if can_read else (),
        timeout_seconds=gate.timeout_seconds,
        output_schema=CRITIQUE_SCHEMA,
        labels={"stage": task.stage, "gate": "critic", "fence": fence, "prompt_version": f"critic {CRITIC_VERSION}"},
    )


def _asked_again(question: AgentRequest, first: _Heard, *, fence: str) -> AgentRequest:
    """To say the answer again; or the question once more where nothing, or not all, was said."""
    problem = first.read.problem or ""
    if not first.text.strip() or problem == TRUNCATED_JSON or problem.startswith("the run failed"):
        # Other words, so that the ledger does not give the same answer again.
        return replace(question, prompt=f"{question.prompt}\n\nKeep the answer short: an earlier one was not whole.")
    prompt = repair_prompt(first.text, problem, fence=fence)
    return replace(question, system_prompt=prompt.system, prompt=prompt.text, tools=(), output_schema=REPAIR_SCHEMA)


def _critique(gate: GateDefinition, read: CritiqueAnswer, usage: Usage) -> Critique:
    verdict, blockers = read.verdict or CriticVerdict.REWORK, read.blockers
    if verdict is CriticVerdict.PASS and read.score is not None and read.score < gate.min_score:
        verdict = CriticVerdict.REWORK
        blockers = (f"it was said to pass, with a score of {read.score}, which is below {gate.min_score}",)
    return Critique(
        verdict=verdict,
        gate=GateKind.CRITIC,
        score=read.score,
        summary=read.summary,
        blockers=blockers,
        fixes=read.fixes,
        confidence=read.confidence,
        usage=usage,
    )


def _not_understood(task: GateTask, heard: _Heard, cost: Usage) -> OutputInvalid:
    error = OutputInvalid(
        f"the critic's word on attempt {task.attempt} of {task.stage} cannot be understood: {heard.read.problem}",
        agent="critic",
        hint="try again, or take another agent or model for the critic",
        output=heard.text,
        attempts=0,
    )
    _add_cost(error, cost)
    return error


def _usage_of_error(error: AgentError) -> Usage:
    return spent(error.attempts, error.cost_usd, error.usage)


def _add_cost(error: AgentError, earlier: Usage) -> None:
    """Let an error tell of what was spent before it, too."""
    own = error.usage if isinstance(error.usage, TokenUsage) else TokenUsage()
    error.usage = TokenUsage(
        input_tokens=own.input_tokens + earlier.input_tokens,
        cached_tokens=own.cached_tokens,
        output_tokens=own.output_tokens + earlier.output_tokens,
    )
    error.attempts += earlier.requests
    if not earlier.unknown_costs:
        error.cost_usd = (error.cost_usd or 0.0) + earlier.cost_usd
