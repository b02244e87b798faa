"""An agent without a program, for tests of everything that is built around an agent call."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Literal, TypeAlias

from msgspec.structs import asdict, replace

from codeloupe import errors
from codeloupe.errors import AgentError
from codeloupe.model.agent import (
    AgentLimits,
    AgentRequest,
    AgentResult,
    Availability,
    TokensSpent,
    TokenUsage,
    ToolUsed,
    TurnTaken,
)
from codeloupe.model.ports import AgentEventSink
from codeloupe.testing.replies import Delay, Hang, Json, Script, Text, ToolUse
from codeloupe.testing.timing import instant_timing

AgentStep: TypeAlias = (
    "Text | Json | ToolUse | Hang | Delay[AgentStep] | AgentResult | AgentError | Callable[[AgentRequest], AgentStep]"
)


_EVERYTHING = AgentLimits(
    schema=True, turns=True, budget=True, resume=True, fork=True, tools=True, writes=True, fallback=True
)
_READY = Availability(found=True, version="scripted", logged_in=True, default_model="scripted")


class ScriptedAgent:
    """Answers by a script, and records what it is asked.

    Steps: `Text` and `Json` answer, `ToolUse` takes a turn and goes on with the next step, `Delay` waits first,
    `Hang` never answers, an AgentResult is returned as it is but for the agent's name, an AgentError is raised (a
    copy of it each time), and a function of the request gives any of these. When the steps are used up, the last one
    repeats, or with `then="error"` the call fails as Crashed.

    A request with an `output_schema` needs a `Json` step, whose value is taken as it is; `Text` fails as
    OutputInvalid, or is the answer with `accept_any_output`. Limits of turns, money and time are kept. Every turn
    costs `cost_usd`; with None the cost is not known. For one event loop at a time. `running` calls are under way now,
    at most `max_seen` were.

    The waits between attempts (retries, rate limits, quotas) take no time; `Runtime(timing=Timing())` makes them real.
    A `Delay` is always real, because the call is under way meanwhile.
    """

    def __init__(
        self,
        script: Iterable[AgentStep] = (),
        *,
        name: str = "scripted",
        then: Literal["repeat", "error"] = "repeat",
        limits: AgentLimits = _EVERYTHING,
        availability: Availability = _READY,
        cost_usd: float | None = 0.0,
    ) -> None:
        self.name = name
        last: AgentStep = Text("This is the scripted agent.")
        if then == "error":
            last = errors.Crashed("the script of the agent has no step left", agent=name, hint="Give it more steps.")
        self._script = Script[AgentStep](script, last=last, repeats=then == "repeat")
        self.limits = limits
        self._availability = availability
        self._cost_usd = cost_usd
        self._requests: list[AgentRequest] = []
        self.timing = instant_timing()
        self.running = self.max_seen = 0

    @property
    def requests(self) -> tuple[AgentRequest, ...]:
        """What it was asked so far."""
        return tuple(self._requests)

    def extend(self, *steps: AgentStep) -> None:
        """Add steps to the end of the script."""
        self._script.steps.extend(steps)

    async def check(self) -> Availability:
        """What it was given; usable unless it was given another one."""
        return self._availability

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Take steps until one of them is an answer or a failure. Raises an AgentError."""
        # A cancellation that came before the call began takes effect here.
        await asyncio.sleep(0)
        self._requests.append(request)
        # It says nothing while it waits, so the limit of silence bounds the whole call.
        seconds = min(request.timeout_seconds, request.idle_timeout_seconds or math.inf)
        began = time.monotonic()
        self.running += 1
        self.max_seen = max(self.max_seen, self.running)
        try:
            async with asyncio.timeout(seconds):
                result = await self._play(request, emit)
        except TimeoutError as error:
            message = f"{self.name} gave no answer within {round(seconds, 2):g} s"
            raise errors.TimedOut(message, agent=self.name, hint="Allow more time.") from error
        finally:
            self.running -= 1
        return replace(result, agent=self.name, duration_ms=round((time.monotonic() - began) * 1000))

    async def _play(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        session_id, used = f"{self.name}-{len(self._requests)}", TokenUsage()
        for turn in itertools.count(1):
            # A script that repeats a tool for ever can still be cancelled here.
            await asyncio.sleep(0)
            step = await self._next_step(request)
            if isinstance(step, AgentResult):
                return step
            more = step.usage or TokenUsage(input_tokens=100, output_tokens=20)
            used = TokenUsage(**{name: count + getattr(more, name) for name, count in asdict(used).items()})
            cost = None if self._cost_usd is None else self._cost_usd * turn
            emit(TurnTaken(self.name, turn))
            emit(TokensSpent(self.name, used.input_tokens, used.output_tokens, cost))
            allowed = request.max_budget_usd
            if cost is not None and allowed is not None and cost > allowed:
                message = f"{self.name} spent {cost:g} of the {allowed:g} USD it may"
                raise errors.BudgetExhausted(message, agent=self.name, hint="Allow more, or ask for less.")
            if not isinstance(step, ToolUse):
                # The session that was resumed, unless a fork of it was asked for.
                session = (None if request.fork_session else request.resume_session) or session_id
                return self._answer(step, request, session_id=session, num_turns=turn, total_cost_usd=cost, usage=used)
            emit(ToolUsed(self.name, step.name))
            if request.max_turns is not None and turn >= request.max_turns:
                message = f"{self.name} used all its {turn} turns without an answer"
                raise errors.TurnsExhausted(message, agent=self.name, hint="Allow more turns.")
        raise AssertionError("turns do not end")

    async def _next_step(self, request: AgentRequest) -> Text | Json | ToolUse | AgentResult:
        """The next step that is a turn or a result. Raises the AgentError that the script demands."""
        step = self._script.next_step()
        while True:
            match step:
                case Text() | Json() | ToolUse() | AgentResult():
                    return step
                case AgentError():
                    # A copy, since an exception that is raised twice carries the traces of both.
                    raise copy(step) from step.__cause__
                case Delay():
                    await asyncio.sleep(step.seconds)
                    step = step.then
                case Hang():
                    await asyncio.Event().wait()
                case _ if callable(step):
                    step = step(request)
                case _:
                    raise TypeError(f"a scripted agent cannot use {step!r} as a step")

    def _answer(self, step: Text | Json, request: AgentRequest, **spent: Any) -> AgentResult:
        text = step.text if isinstance(step, Text) else json.dumps(step.value)
        structured = None
        if request.output_schema is not None and isinstance(step, Json) and not step.as_text:
            structured = step.value
        elif request.output_schema is not None and not request.accept_any_output:
            message = f"{self.name} answered with text, but the schema requires a value"
            hint = "Give the script a Json step."
            raise errors.OutputInvalid(message, agent=self.name, raw_output=text, hint=hint)
        return AgentResult(
            success=True,
            output=text,
            agent=self.name,
            structured=structured,
            model=request.model or "scripted",
            raw_output=text,
            **spent,
        )
