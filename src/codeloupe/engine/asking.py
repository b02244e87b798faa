"""One question to the agent of a run: how it is put, what it cost, and what was said in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.circuit import Circuit, CircuitOpen
from codeloupe.engine.prompt import PROMPT_VERSION, Prompt
from codeloupe.errors import (
    AgentError,
    ConnectionFailed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from codeloupe.model.agent import (
    AgentEvent,
    AgentLimits,
    AgentRequest,
    AgentResult,
    PermissionMode,
    Usage,
    spent,
    usage_of,
)
from codeloupe.model.events import AgentActivity, Warned
from codeloupe.model.ports import AskAgent, EventSink, ReviewTask

# Gets a title and a text: prompts as they were before secrets were masked in them, and raw answers. What takes them
# must redact them before they are written anywhere.
Transcript = Callable[[str, str], None]

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")
# A service that gave no answer takes no money.
_FREE = (InvalidRequest, NotInstalled, NotLoggedIn, RateLimited, Overloaded, ConnectionFailed, PromptTooLong)


class CallOptions(Struct, frozen=True, kw_only=True):
    """How each call is made. The time covers all attempts, but not the wait for a place."""

    model: str | None = None
    fallback_model: str | None = None
    timeout_seconds: float = 600.0
    idle_timeout_seconds: float | None = None
    max_turns: int | None = None


class Desk(Struct, frozen=True, kw_only=True):
    """What all questions about one task have in common."""

    task: ReviewTask
    limits: AgentLimits
    calls: CallOptions
    fence: str

    def request(
        self, prompt: Prompt, *, unit: str, schema: Mapping[str, Any], without_tools: bool = False
    ) -> AgentRequest:
        """The question as an agent takes it. `unit` names it for people."""
        may_read = can_read_tree(self.limits, self.task) and not without_tools
        return AgentRequest(
            system_prompt=prompt.system,
            prompt=prompt.text,
            working_dir=self.task.tree or self.task.snapshot,
            model=self.calls.model,
            fallback_model=self.calls.fallback_model,
            permission_mode=PermissionMode.DONT_ASK,
            tools=None if may_read else (),
            timeout_seconds=self.calls.timeout_seconds,
            idle_timeout_seconds=self.calls.idle_timeout_seconds,
            max_turns=self.calls.max_turns if self.limits.turns else None,
            output_schema=schema,
            labels={
                "unit": unit,
                "fence": self.fence,
                "prompt_version": PROMPT_VERSION,
                "trust": "trusted" if self.task.trusted else "untrusted",
            },
        )


def can_read_tree(limits: AgentLimits, task: ReviewTask) -> bool:
    """Whether an agent gets tools: an untrusted change only one that reads nothing outside the reviewed tree."""
    return limits.tools and task.tree is not None and (task.trusted or limits.confined)


class Asker:
    """Puts the questions of one run, in one event loop.

    `usage` is what they cost so far, `models` are those that answered, each once, in the order of their first answers.
    """

    def __init__(self, ask: AskAgent, *, transcript: Transcript | None = None) -> None:
        self._ask = ask
        self._transcript = transcript
        self._notes: set[str] = set()
        self.circuit = Circuit()
        self.usage = Usage()
        self.models: dict[str, None] = {}

    async def answer(self, request: AgentRequest, emit: EventSink) -> AgentResult:
        """The answer. Raises what `ask` raises, and CircuitOpen when it was not put."""
        unit = request.labels["unit"]
        self._record(f"system prompt of {unit}", request.system_prompt or "")
        self._record(f"prompt of {unit}", request.prompt)
        attempts: int | None = None
        try:
            async with self.circuit.call() as call:

                def listen(event: AgentEvent) -> None:
                    nonlocal attempts
                    call.note(event)
                    attempts = call.attempts
                    emit(AgentActivity(unit, event))

                result = await self._ask(request, listen)
        except Exception as error:  # whatever it was, what it cost is told
            self.usage = self.usage.plus(_usage_of_failure(error, attempts))
            self._record(f"failure of {unit}", f"{error}\n{getattr(error, 'raw_output', '')}")
            self._note_model(getattr(error, "model", None))
            raise
        # Calls run side by side: the time of a review is measured as a whole.
        self.usage = self.usage.plus(replace(usage_of(result), duration_seconds=0.0))
        self._record(f"answer of {unit}", result.raw_output or result.output)
        self._note_model(result.model)
        self.warn_once(result.notes, emit)
        return result

    def _note_model(self, model: str | None) -> None:
        if model:
            self.models[model] = None

    def warn_once(self, notes: Sequence[str], emit: EventSink) -> None:
        """Tell what many calls may have to tell, once in a run."""
        for note in notes:
            if note not in self._notes:
                self._notes.add(note)
                warn(note, emit)

    def _record(self, title: str, text: str) -> None:
        if self._transcript is not None:
            self._transcript(title, text)


def warn(message: str, emit: EventSink) -> None:
    """Tell the log and the event sink of something that degrades the review."""
    _log.warning("%s", message)
    emit(Warned(message))


async def for_each(items: Sequence[_Item], work: Callable[[_Item], Awaitable[None]], *, at_once: int) -> None:
    """Do the work for all items, for so many at a time: the rest costs nothing before its turn.

    A cancellation, or an error of `work`, is raised when nothing runs any more.
    """
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(worker())


def _usage_of_failure(error: Exception, attempts: int | None) -> Usage:
    """What a failed call cost."""
    if isinstance(error, CircuitOpen):
        return Usage(requests=attempts or 0)
    if not isinstance(error, AgentError) or attempts == 0:
        return Usage()
    free = isinstance(error, _FREE) and error.cost_usd is None
    return spent(error.attempts, 0.0 if free else error.cost_usd, error.usage)
