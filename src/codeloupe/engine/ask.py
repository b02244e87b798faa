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

from codeloupe.engine.prompt import PROMPT_VERSION, Prompt
from codeloupe.engine.prompt_material import new_fence
from codeloupe.errors import (
    AgentError,
    BudgetExhausted,
    Cancelled,
    CodeloupeError,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Refused,
    StoreError,
    TimedOut,
    TurnsExhausted,
)
from codeloupe.model.agent import (
    AgentEvent,
    AgentLimits,
    AgentRequest,
    AgentResult,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    PermissionMode,
    Usage,
    spent,
    usage_of,
)
from codeloupe.model.change import Hunk
from codeloupe.model.events import AgentActivity, Warned
from codeloupe.model.ports import AskAgent, EventSink, ReviewTask
from codeloupe.system.json_text import scan_json

INVALID_ANSWER = "invalid_answer"
NOT_VERIFIED = "not_verified"
UNEXPECTED_ERROR = "unexpected_error"
_LONGEST_REASON = 600
_NAMES: Mapping[type[CodeloupeError], str] = {
    BudgetExhausted: "budget exhausted",
    Cancelled: "cancelled",
    ConnectionFailed: "connection failed",
    Crashed: "agent crashed",
    InvalidRequest: "invalid request",
    NotInstalled: "not installed",
    NotLoggedIn: "not logged in",
    OutputInvalid: "invalid answer",
    Overloaded: "overloaded",
    PromptTooLong: "prompt too long",
    RateLimited: "rate limited",
    Refused: "refused",
    StoreError: "ledger failed",
    TurnsExhausted: "turns exhausted",
}
# A service that gave no answer takes no money.
_FREE = (InvalidRequest, NotInstalled, NotLoggedIn, RateLimited, Overloaded, ConnectionFailed, PromptTooLong)
# Nobody can log in, install a program or mend a database while the others wait.
_LASTING = (BudgetExhausted, NotInstalled, NotLoggedIn, StoreError)
# One may be the fault of its unit, such as a prompt that a service refuses; two without any answer are not.
_INVALID_REQUESTS = 2
_FAILURES_IN_A_ROW = 3

# Gets a title and a text: prompts as they were before secrets were masked in them, and raw answers. What takes them
# must redact them before they are written anywhere.
Transcript = Callable[[str, str], None]

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class Failure(Struct, frozen=True):
    """Why a call gave nothing: `kind` is a short stable word for errors, `reason` the phrase for coverage.

    `files` are those of the unit that it is about; none when it is about all of them.
    """

    kind: str
    reason: str
    files: tuple[str, ...] = ()


def failure_of(error: Exception) -> Failure:
    """The failure that an error means. The reason of a timeout is that one word."""
    if isinstance(error, TimedOut):
        return Failure("timeout", "timeout")
    if not isinstance(error, CodeloupeError):
        return Failure(UNEXPECTED_ERROR, shortened(f"unexpected error: {type(error).__name__}: {error}"))
    name = next((name for kind, name in _NAMES.items() if isinstance(error, kind)), "failed")
    hint = f" ({error.hint})" if error.hint else ""
    return Failure(name.replace(" ", "_"), shortened(f"{name}: {error.message}{hint}"))


def shortened(text: str) -> str:
    """One line of bearable length: a message may hold what a program printed, or a whole answer."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]} ..."


class CircuitOpen(Exception):
    """The call was not made, since those before it failed; `failure` is theirs."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Circuit:
    """Watches the calls of one run, in one event loop.

    It opens at a failure that lasts, at the second invalid request before any answer, and at three failures in a row.
    Then no call is begun any more, and those that wait for their turn are let go. What is being bought goes on.
    """

    def __init__(self) -> None:
        self._failure: Failure | None = None
        self._answers = 0
        self._invalid_requests = 0
        self._in_a_row = 0
        self._calls: set[_Call] = set()

    def check(self) -> None:
        """Raises CircuitOpen when nothing more is to be asked."""
        if self._failure is not None:
            raise CircuitOpen(self._failure)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[_Call]:
        """Around one call, which has to note its events. Raises CircuitOpen, also for what waited."""
        self.check()
        scope = asyncio.timeout(None)
        call = _Call(scope)
        try:
            async with scope:
                self._calls.add(call)
                try:
                    yield call
                finally:
                    self._calls.discard(call)
        except TimeoutError:
            if scope.expired():
                self.check()
            raise

    def note_answer(self) -> None:
        """Note that a call was answered in a form that could be read."""
        self._answers += 1
        self._in_a_row = 0

    def note_failure(self, error: Exception) -> None:
        """Note that a call failed for good, or that its answer could not be read."""
        self._in_a_row += 1
        self._invalid_requests += isinstance(error, InvalidRequest)
        lasts, often = isinstance(error, _LASTING), self._in_a_row >= _FAILURES_IN_A_ROW
        refused = not self._answers and self._invalid_requests >= _INVALID_REQUESTS
        if self._failure is not None or not (lasts or often or refused):
            return
        self._failure = failure_of(error)
        if often and not lasts:
            reason = f"{self._in_a_row} calls in a row failed, the last one with: {self._failure.reason}"
            self._failure = replace(self._failure, reason=reason)
        # The budget refuses by itself what waits, and lets through what costs nothing.
        if not isinstance(error, BudgetExhausted):
            for call in list(self._calls):
                call.let_go_if_waiting()


class _Call:
    """One call under way. It waits until an attempt begins, and again between two attempts."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._waits = False
        self.attempts: int | None = None

    def note(self, event: AgentEvent) -> None:
        """Note what happened in it; `attempts` counts from then on."""
        match event:
            case AgentStarted():
                self._waits, self.attempts = True, self.attempts or 0
            case AttemptStarted():
                self._waits, self.attempts = False, (self.attempts or 0) + 1
            case AttemptFailed():
                self._waits = True

    def let_go_if_waiting(self) -> None:
        """End it unless something is being bought."""
        if self._waits:
            self._waits = False
            self._scope.reschedule(0.0)


class CallOptions(Struct, frozen=True, kw_only=True):
    """How each call is made. The time covers all attempts, but not the wait for a place."""

    model: str | None = None
    fallback_model: str | None = None
    timeout_seconds: float = 600.0
    idle_timeout_seconds: float | None = None
    max_turns: int | None = None


class Asker:
    """Puts the questions about one task to an agent with these limits, in one event loop.

    `fence` is the marker of the run. `can_read_tree` says whether the agent gets tools: for an untrusted change only
    one that reads nothing outside the reviewed tree. `usage` is what the questions cost so far, `models` are those that
    answered, each once, in the order of their first answers.
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
        self._limits = limits
        self._calls = calls
        self._transcript = transcript
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
            fallback_model=self._calls.fallback_model,
            permission_mode=PermissionMode.DONT_ASK,
            tools=None if self.can_read_tree and not without_tools else (),
            timeout_seconds=self._calls.timeout_seconds,
            idle_timeout_seconds=self._calls.idle_timeout_seconds,
            max_turns=self._calls.max_turns if self._limits.turns else None,
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
            async with self.circuit.call() as call:

                def listen(event: AgentEvent) -> None:
                    nonlocal attempts
                    call.note(event)
                    attempts = call.attempts
                    emit(AgentActivity(unit, event))

                result = await self._ask(request, listen)
        except Exception as error:  # whatever it was, what it cost counts
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
        """Warn of what many calls may have to say, once in a run."""
        for note in notes:
            if note not in self._notes:
                self._notes.add(note)
                warn(note, emit)

    def _record(self, title: str, text: str) -> None:
        if self._transcript is not None:
            self._transcript(title, text)


def _usage_of_failure(error: Exception, attempts: int | None) -> Usage:
    """What a failed call cost."""
    if isinstance(error, CircuitOpen):
        return Usage(requests=attempts or 0)
    if not isinstance(error, AgentError) or attempts == 0:
        return Usage()
    free = isinstance(error, _FREE) and error.cost_usd is None
    return spent(error.attempts, 0.0 if free else error.cost_usd, error.usage)


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


QUOTED_ANSWER = "invalid answer: it is part of the change itself"
ECHOED_QUESTION = "invalid answer: it repeats the question"
_SHORTEST_LINE_OF_A_QUESTION = 80
_WORDS = re.compile(r"\b(?!json\b)\w", re.IGNORECASE)


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
    return any(line in answer for line in lines if len(line) >= _SHORTEST_LINE_OF_A_QUESTION)
