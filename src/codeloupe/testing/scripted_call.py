"""One call of the scripted agent: steps are taken until one of them is an answer or a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from codeloupe.errors import AgentError, BudgetExhausted, OutputInvalid, TurnsExhausted
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink
from codeloupe.testing.replies import Delay, Hang, Json, Text, ToolUse
from codeloupe.testing.script import Script

AgentStep: TypeAlias = (
    "Text | Json | ToolUse | Hang | Delay[AgentStep] | AgentResult | AgentError | Callable[[AgentRequest], AgentStep]"
)
_USAGE = TokenUsage(input_tokens=100, output_tokens=20)


class ScriptedCall(Struct, kw_only=True):
    """A call under way, and what it has used so far. `cost_usd` is what each turn costs."""

    agent: str
    session_id: str
    request: AgentRequest
    emit: AgentEventSink
    script: Script[AgentStep]
    cost_usd: float | None
    turns: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)

    async def play(self) -> AgentResult:
        """Take steps of the script until the call ends. Raises the AgentError that the script or a limit demands."""
        step = self.script.next_step()
        while True:
            match step:
                case Text() | Json():
                    return self._answer(step)
                case AgentResult():
                    return step
                case AgentError():
                    raise _fresh(step)
                case ToolUse():
                    await self._use_tool(step)
                    step = self.script.next_step()
                case Delay():
                    await asyncio.sleep(step.seconds)
                    step = step.then
                case Hang():
                    await asyncio.Event().wait()
                case _ if callable(step):
                    step = step(self.request)
                case _:
                    raise TypeError(f"a scripted agent was given {step!r} for a step")

    async def _use_tool(self, step: ToolUse) -> None:
        # A script that repeats a tool for ever can still be cancelled here.
        await asyncio.sleep(0)
        self._take_turn(step.usage)
        self.emit(ToolUsed(self.agent, step.name))
        if self.request.max_turns is not None and self.turns >= self.request.max_turns:
            raise TurnsExhausted(
                f"{self.agent} used all its {self.turns} turns without an answer",
                agent=self.agent,
                hint="Allow more turns.",
            )

    def _answer(self, step: Text | Json) -> AgentResult:
        self._take_turn(step.usage)
        text = step.text if isinstance(step, Text) else json.dumps(step.value)
        is_structured = isinstance(step, Json) and not step.as_text
        if self.request.output_schema is not None and not is_structured:
            raise OutputInvalid(
                f"{self.agent} answered in text where a value for a schema was asked for",
                agent=self.agent,
                raw_output=text,
                hint="Give the script a Json step.",
            )
        return AgentResult(
            success=True,
            output=text,
            agent=self.agent,
            structured=step.value if isinstance(step, Json) and self.request.output_schema is not None else None,
            session_id=self._session(),
            num_turns=self.turns,
            total_cost_usd=self._cost_so_far(),
            usage=self.usage,
            model=self.request.model or "scripted",
            raw_output=text,
        )

    def _session(self) -> str:
        """The session that was resumed, unless a fork of it was asked for."""
        resumed = None if self.request.fork_session else self.request.resume_session
        return resumed or self.session_id

    def _take_turn(self, usage: TokenUsage | None) -> None:
        more = usage or _USAGE
        self.turns += 1
        self.usage = TokenUsage(
            input_tokens=self.usage.input_tokens + more.input_tokens,
            cached_tokens=self.usage.cached_tokens + more.cached_tokens,
            output_tokens=self.usage.output_tokens + more.output_tokens,
        )
        cost, allowed = self._cost_so_far(), self.request.max_budget_usd
        self.emit(TurnTaken(self.agent, self.turns))
        self.emit(TokensSpent(self.agent, self.usage.input_tokens, self.usage.output_tokens, cost))
        if cost is not None and allowed is not None and cost > allowed:
            raise BudgetExhausted(
                f"{self.agent} spent {cost:g} of the {allowed:g} USD it may",
                agent=self.agent,
                hint="Allow more, or ask for less.",
            )

    def _cost_so_far(self) -> float | None:
        return None if self.cost_usd is None else self.cost_usd * self.turns


def _fresh(error: AgentError) -> AgentError:
    """A copy, since an exception that is raised twice carries the traces of both."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
