"""Questions to the agent of one run: how each is put, what it cost, why one failed, and when to stop asking."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.engine.asked import PROMPT_VERSION
from codeloupe.engine.calls import Failure, failure_of
from codeloupe.engine.prompt import Prompt, new_fence
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Usage
from codeloupe.model.change import Hunk
from codeloupe.model.events import AgentActivity, Warned
from codeloupe.model.ports import AskAgent, EventSink, ReviewTask
from codeloupe.system.json_text import scan_json
from codeloupe.system.regex import regex

INVALID_ANSWER = "invalid_answer"
# A service that gave no answer takes no money.
_FREE = (
    *(errors.InvalidRequest, errors.NotInstalled, errors.NotLoggedIn, errors.RateLimited, errors.Overloaded),
    *(errors.ConnectionFailed, errors.PromptTooLong),
)
# Nobody can log in, install a program or mend a database while the others wait.
_LASTING = (errors.BudgetExhausted, errors.NotInstalled, errors.NotLoggedIn, errors.StoreError)

Transcript = Callable[[str, str], None]

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class CircuitOpen(Exception):
    """The call was not made, since those before it failed; `failure` is theirs."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Circuit:
    """Watches the calls of one run, in one event loop: opens at a failure that lasts, and at three failures in a row.

    Then no call is begun any more, and those that wait for their turn are let go. What is being bought goes on.
    """

    def __init__(self) -> None:
        self._failure: Failure | None = None
        self._in_a_row = 0
        self._waiting: set[asyncio.Timeout] = set()

    def check(self) -> None:
        """Raises CircuitOpen when nothing more is to be asked."""
        if self._failure is not None:
            raise CircuitOpen(self._failure)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Callable[[AgentEvent], None]]:
        """Around one call, which has to note its events. Raises CircuitOpen, also for what waited."""
        self.check()
        scope = asyncio.timeout(None)

        def note(event: AgentEvent) -> None:
            if isinstance(event, model.AgentStarted | model.AttemptFailed):
                self._waiting.add(scope)
            elif isinstance(event, model.AttemptStarted):
                self._waiting.discard(scope)

        try:
            async with scope:
                try:
                    yield note
                finally:
                    self._waiting.discard(scope)
        except TimeoutError:
            if scope.expired():
                self.check()
            raise

    def note_answer(self) -> None:
        """Note that a call was answered in a form that could be read."""
        self._in_a_row = 0

    def note_failure(self, error: Exception) -> None:
        """Note that a call failed for good, or that its answer could not be read."""
        self._in_a_row += 1
        lasts = isinstance(error, _LASTING)
        if self._failure is not None or not (lasts or self._in_a_row >= 3):
            return
        self._failure = failure_of(error)
        if not lasts:
            reason = f"{self._in_a_row} calls in a row failed, the last one with: {self._failure.reason}"
            self._failure = replace(self._failure, reason=reason)
        # The budget refuses by itself what waits, and lets through what costs nothing.
        if not isinstance(error, errors.BudgetExhausted):
            while self._waiting:
                self._waiting.pop().reschedule(0.0)


class CallOptions(Struct, frozen=True, kw_only=True):
    """How each call is made. The time covers all attempts, but not the wait for a place."""

    model: str | None = None
    timeout_seconds: float = 600.0


class Asker:
    """Puts the questions about one task to an agent with these limits, in one event loop.

    It gets tools, for an untrusted change only when it reads nothing outside the reviewed tree. `usage` is what the
    questions cost so far, `models` are those that answered, in the order of their first answers. `transcript` gets
    prompts as they were before secrets were masked in them, and raw answers: it must redact them before it writes them.
    """

    def __init__(
        self,
        ask: AskAgent,
        task: ReviewTask,
        *,
        limits: AgentLimits,
        calls: CallOptions,
        transcript: Transcript | None = None,
    ) -> None:
        self._ask = ask
        self._calls = calls
        self._record = transcript or (lambda _title, _text: None)
        self._notes: set[str] = set()
        self.task = task
        self.fence = new_fence()
        self.can_read_tree = limits.tools and task.tree is not None and (task.trusted or limits.confined)
        self.circuit = Circuit()
        self.usage = Usage()
        self.models: dict[str, None] = {}

    def request(
        self, prompt: Prompt, *, unit: str, schema: Mapping[str, Any], without_tools: bool = False
    ) -> AgentRequest:
        """The question as an agent takes it. `unit` names it for people."""
        return AgentRequest(
            system_prompt=prompt.system,
            prompt=prompt.text,
            working_dir=self.task.tree or self.task.snapshot,
            model=self._calls.model,
            permission_mode=model.PermissionMode.DONT_ASK,
            tools=None if self.can_read_tree and not without_tools else (),
            timeout_seconds=self._calls.timeout_seconds,
            output_schema=schema,
            labels={
                "unit": unit,
                "fence": self.fence,
                "prompt_version": PROMPT_VERSION,
                "trust": "trusted" if self.task.trusted else "untrusted",
            },
        )

    async def answer(self, request: AgentRequest, emit: EventSink) -> AgentResult:
        """The answer. Raises what `ask` raises, and CircuitOpen when it was not put."""
        unit = request.labels["unit"]
        self._record(f"system prompt of {unit}", request.system_prompt or "")
        self._record(f"prompt of {unit}", request.prompt)
        attempts: int | None = None
        try:
            async with self.circuit.call() as note:

                def listen(event: AgentEvent) -> None:
                    nonlocal attempts
                    note(event)
                    if isinstance(event, model.AgentStarted | model.AttemptStarted):
                        attempts = (attempts or 0) + isinstance(event, model.AttemptStarted)
                    emit(AgentActivity(unit, event))

                result = await self._ask(request, listen)
        except Exception as error:  # whatever it was, what it cost counts
            self.usage = self.usage.plus(_usage_of_failure(error, attempts))
            self._record(f"failure of {unit}", f"{error}\n{getattr(error, 'raw_output', '')}")
            self.models |= dict.fromkeys(filter(None, [getattr(error, "model", None)]))
            raise
        # Calls run side by side: the time of a review is measured as a whole.
        self.usage = self.usage.plus(replace(model.usage_of(result), duration_seconds=0.0))
        self._record(f"answer of {unit}", result.raw_output or result.output)
        self.models |= dict.fromkeys(filter(None, [result.model]))
        self.warn_once(result.notes, emit)
        return result

    def warn_once(self, notes: Sequence[str], emit: EventSink) -> None:
        """Warn of what many calls may have to say, once in a run."""
        for note in notes:
            if note not in self._notes:
                self._notes.add(note)
                warn(note, emit)


def _usage_of_failure(error: Exception, attempts: int | None) -> Usage:
    if isinstance(error, CircuitOpen):
        return Usage(requests=attempts or 0)
    if not isinstance(error, errors.AgentError) or attempts == 0:
        return Usage()
    free = isinstance(error, _FREE) and error.cost_usd is None
    return model.spent(error.attempts, 0.0 if free else error.cost_usd, error.usage)


def warn(message: str, emit: EventSink) -> None:
    """Tell the log and the event sink of something that degrades the review."""
    _log.warning("%s", message)
    emit(Warned(message))


async def for_each(items: Sequence[_Item], work: Callable[[_Item], Awaitable[None]], *, at_once: int) -> None:
    """Do the work for so many items at a time. A cancellation or an error is raised when nothing runs any more."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(worker())


QUOTED_ANSWER = "invalid answer: it is part of the change itself"
ECHOED_QUESTION = "invalid answer: it repeats the question"
_WORDS = regex(r"\b(?!json\b)\w", re.IGNORECASE)


def is_quoted(answer: str, hunks: Iterable[Hunk], *, beside: bytes = b"") -> bool:
    """Whether a text with words around its JSON has no JSON but what is in some hunks, or in a text beside them.

    A change may hold `{"findings": []}` in the hope that whoever describes it is taken to say so.
    """
    values = scan_json(answer).values
    position, around = 0, []
    for found in values:
        around.append(answer[position : found.start])
        position = found.end
    if not values or not _WORDS.search(" ".join((*around, answer[position:]))):
        return False
    rows = (row[1:] for hunk in hunks for row in hunk.body.split(b"\n"))
    change = "".join(b"\n".join((*rows, beside)).decode("utf-8", "replace").split())
    given = ["".join(answer[found.start : found.end].split()) for found in values if found.value]
    return bool(given) and all(text in change for text in given)


def is_echo(answer: str, question: str) -> bool:
    """Whether a text repeats a long line of the question, which says what an answer without findings looks like."""
    lines = (line.strip() for line in question.split("\n"))
    return any(line in answer for line in lines if len(line) >= 80)
