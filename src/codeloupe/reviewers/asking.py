"""Asking agents: one question goes to the agents of a chain until one gives an exact answer.

An agent whose answer is not exact gets the full question once more. If that answer is not exact either, or the agent
cannot answer for any reason except budget or cancellation, the next agent of the chain gets the question. An agent that
cannot be used, or failed three times in a row, is not asked again. Reviews and verifications ask in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.calls import trust_of
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, Usage
from codeloupe.model.events import AgentActivity, Warned
from codeloupe.model.ports import Agent, AskAgent, EventSink, Plan, Transcript
from codeloupe.model.review import Unanswered
from codeloupe.reviewers.answers import INVALID_ANSWER
from codeloupe.reviewers.prompt import PROMPT_VERSION, Prompt, again, new_fence
from codeloupe.system.logs import log_failure

UNEXPECTED_ERROR = "unexpected_error"
# The label of a request whose answer must not come from the ledger.
FRESH = "fresh"
# A service that gave no answer takes no money.
_FREE = (
    errors.InvalidRequest,
    errors.NotInstalled,
    errors.NotLoggedIn,
    errors.RateLimited,
    errors.Overloaded,
    errors.ConnectionFailed,
    errors.PromptTooLong,
)
_MOST_FAILURES_IN_A_ROW = 3
_LONGEST_REASON = 600
# Reading a longer answer takes so long that the event loop should not wait for it.
_LONG_ANSWER = 64 * 1024
_NAMES = {errors.Crashed: "agent crashed", errors.OutputInvalid: "invalid answer", errors.StoreError: "ledger failed"}
_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class Answer(Protocol):
    """The result of reading an answer; `problem` says why it is not exact, and is empty if it is."""

    @property
    def problem(self) -> str:
        """The reason why the answer is not exact."""


_Answer = TypeVar("_Answer", bound=Answer)
MakePrompt = Callable[[bool], Prompt]
"""Makes the question for an agent that can, or cannot, read the reviewed tree."""


class Failure(Struct, frozen=True):
    """Why a call or a unit gave nothing: a short stable word, and the phrase for coverage.

    `unusable`: the agent could not be asked at all.
    """

    kind: str
    reason: str
    unusable: bool = False


_NO_FAILURE = Failure("", "")


class Heard(Struct, Generic[_Answer], frozen=True):
    """One answer as it was read, with its text and who gave it."""

    answer: _Answer
    agent: str
    text: str


class Exchange(Struct, Generic[_Answer], frozen=True, kw_only=True):
    """All answers to one question; `failure` is None if the last one is exact.

    `unanswered` are the agents that gave no exact answer.
    """

    heard: tuple[Heard[_Answer], ...] = ()
    failure: Failure | None = None
    answered_by: str = ""
    model: str | None = None
    unanswered: tuple[Unanswered, ...] = ()
    from_ledger: bool = False
    was_asked: bool = True


class _Turn(Struct, Generic[_Answer], frozen=True):
    """The answers of one agent; `result` is the exact one, or `failure` says why there is none."""

    heard: tuple[Heard[_Answer], ...]
    failure: Failure
    was_asked: bool = True
    result: AgentResult | None = None


class CallOptions(Struct, frozen=True, kw_only=True):
    """How each call is made. The time covers all attempts, but not the wait for a place."""

    model: str | None = None
    timeout_seconds: float = 600.0


class CircuitOpen(Exception):
    """The call was not made, because earlier calls to the same agent failed; `failure` is theirs."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Circuit:
    """Watches the calls to one agent: opens at a failure that lasts, and at three failures in a row.

    An open circuit lets no further call begin, and ends the wait of those that have not begun.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self.has_answered = False
        self._in_a_row = 0
        self._waiting: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Callable[[AgentEvent], None]]:
        """Surround one call, which has to note its events. Raise CircuitOpen if it is not to be made."""
        self._check()
        scope = asyncio.timeout(None)

        def note(event: AgentEvent) -> None:
            if isinstance(event, model.AgentStarted | model.AttemptFailed):
                self._waiting.add(scope)
            elif isinstance(event, model.AttemptStarted):
                self._waiting.discard(scope)

        try:
            async with scope:
                yield note
        except TimeoutError:
            if scope.expired():
                self._check()
            raise
        finally:
            self._waiting.discard(scope)

    def note_answer(self) -> None:
        """Note an exact answer."""
        self.has_answered = True
        self._in_a_row = 0

    def note_failure(self, failure: Failure, *, lasts: bool) -> None:
        """Note a call that failed for good, or an answer that was not exact."""
        self._in_a_row += 1
        if self.failure is not None:
            return
        if lasts:
            self.failure = failure
        elif self._in_a_row >= _MOST_FAILURES_IN_A_ROW:
            reason = f"{self._in_a_row} calls in a row failed, the last one with: {failure.reason}"
            self.failure = Failure(failure.kind, reason)
        if self.failure is not None:
            while self._waiting:
                self._waiting.pop().reschedule(0.0)

    def _check(self) -> None:
        if self.failure is not None:
            raise CircuitOpen(self.failure)


class Asker:
    """Puts the questions about one plan to a chain of agents, in one event loop.

    An agent gets tools for an untrusted change only if it reads nothing outside the reviewed tree. `usage` is the cost
    of all questions so far. `transcript` receives every prompt and raw answer, before secrets are redacted.
    """

    def __init__(
        self,
        ask: AskAgent,
        agents: Sequence[Agent],
        plan: Plan,
        *,
        options: CallOptions,
        transcript: Transcript | None = None,
    ) -> None:
        self._ask = ask
        self._agents = tuple(agents)
        self._plan = plan
        self._options = options
        self._transcript = transcript
        self._warned: set[str] = set()
        self._circuits = {agent.name: Circuit() for agent in agents}
        # Once the budget is exhausted, no agent is asked any more.
        self._exhausted: Failure | None = None
        self.fence = new_fence()
        self.usage = Usage()

    async def exchange(
        self,
        make_prompt: MakePrompt,
        read: Callable[[AgentResult], _Answer],
        *,
        unit: str,
        emit: EventSink,
        labels: dict[str, str] | None = None,
    ) -> Exchange[_Answer]:
        """Ask until an answer is exact. A failure is in the exchange; only cancellation is raised."""
        heard: list[Heard[_Answer]] = []
        failures: dict[str, Failure] = {}
        was_asked = False
        for agent in self._agents:
            prompt = make_prompt(self.can_read_tree(agent))
            self.warn_once(prompt.notes, emit)
            turn = await self._ask_agent(agent, prompt, read, unit=unit, emit=emit, labels=labels or {})
            heard += turn.heard
            was_asked = was_asked or turn.was_asked
            if turn.result is not None:
                return Exchange(
                    heard=tuple(heard),
                    answered_by=agent.name,
                    model=turn.result.model,
                    unanswered=_unanswered(failures),
                    from_ledger=turn.result.from_ledger,
                )
            failures[agent.name] = turn.failure
            if self._exhausted is not None:
                break
        return Exchange(
            heard=tuple(heard),
            failure=self._exhausted or _failure_of_all(failures),
            unanswered=_unanswered(failures),
            was_asked=was_asked,
        )

    async def _ask_agent(
        self,
        agent: Agent,
        prompt: Prompt,
        read: Callable[[AgentResult], _Answer],
        *,
        unit: str,
        emit: EventSink,
        labels: dict[str, str],
    ) -> _Turn[_Answer]:
        """Ask one agent, and once more if its answer is not exact.

        An answer that the ledger had is not the agent's last word: if the second one was stored and is not exact
        either, the agent itself is asked.
        """
        request = self._request(prompt, agent, unit=unit, labels=labels)
        second_request = self._request(again(prompt), agent, unit=unit, labels=labels)
        fresh_request = replace(second_request, labels={**second_request.labels, FRESH: "yes"})
        heard: list[Heard[_Answer]] = []
        failure: Failure | None = None
        was_stored = False
        for question in (request, second_request, fresh_request):
            if question is fresh_request and not was_stored:
                break
            try:
                result = await self._answer(question, agent, emit)
                answer = await _read(read, result)
            except CircuitOpen as stopped:
                # If only the second question was not asked, the first answer is why the unit is incomplete.
                return _Turn(tuple(heard), failure or stopped.failure, was_asked=bool(heard))
            except Exception as error:  # noqa: BLE001 - any error means that this agent did not answer
                was_asked = bool(heard) or not _is_refused(error)
                return _Turn(tuple(heard), self._note_error(error, agent, unit), was_asked=was_asked)
            heard.append(Heard(answer, agent.name, result.output))
            if not answer.problem:
                self._circuits[agent.name].note_answer()
                return _Turn(tuple(heard), _NO_FAILURE, result=result)
            was_stored = result.from_ledger
            failure = Failure(INVALID_ANSWER, shortened(answer.problem))
            warn(f"{agent.name} did not answer exactly about {unit}: {failure.reason}", emit)
        last_failure = failure or _NO_FAILURE
        self._circuits[agent.name].note_failure(last_failure, lasts=False)
        return _Turn(tuple(heard), last_failure)

    def can_read_tree(self, agent: Agent) -> bool:
        """Tell whether an agent may read the reviewed tree."""
        is_safe = self._plan.trusted or agent.limits.confined
        return agent.limits.tools and self._plan.tree is not None and is_safe

    def warn_once(self, notes: Sequence[str], emit: EventSink) -> None:
        """Warn about what many calls have in common, once in a review."""
        for note in notes:
            if note not in self._warned:
                self._warned.add(note)
                warn(note, emit)

    def _request(self, prompt: Prompt, agent: Agent, *, unit: str, labels: dict[str, str]) -> AgentRequest:
        return AgentRequest(
            system_prompt=prompt.system,
            prompt=prompt.text,
            working_dir=self._plan.tree or self._plan.snapshot,
            model=self._options.model,
            permission_mode=model.PermissionMode.DONT_ASK,
            tools=None if self.can_read_tree(agent) else (),
            timeout_seconds=self._options.timeout_seconds,
            output_schema=prompt.schema,
            accept_any_output=True,
            labels={
                "unit": unit,
                "fence": self.fence,
                "prompt_version": PROMPT_VERSION,
                "trust": trust_of(trusted=self._plan.trusted),
                **labels,
            },
        )

    async def _answer(self, request: AgentRequest, agent: Agent, emit: EventSink) -> AgentResult:
        """Return the answer of one agent. Raise what `ask` raises, and CircuitOpen if the call was not made."""
        unit = request.labels["unit"]
        if self._exhausted is not None:
            raise CircuitOpen(self._exhausted)
        attempts: int | None = None
        try:
            async with self._circuits[agent.name].call() as note:
                self._record(f"system prompt of {unit}", request.system_prompt or "")
                self._record(f"prompt of {unit}", request.prompt)

                def listen(event: AgentEvent) -> None:
                    nonlocal attempts
                    note(event)
                    if isinstance(event, model.AgentStarted):
                        attempts = attempts or 0
                    elif isinstance(event, model.AttemptStarted):
                        attempts = (attempts or 0) + 1
                    emit(AgentActivity(unit, event))

                result = await self._ask(request, agent, listen)
        except Exception as error:  # its cost counts, whatever it was
            self.usage = self.usage.plus(_usage_of_failure(error, attempts))
            self._record(f"failure of {unit}", f"{error}\n{getattr(error, 'raw_output', '')}")
            raise
        # Calls run side by side, so the time of a review is measured as a whole.
        self.usage = self.usage.plus(replace(model.usage_of(result), duration_seconds=0.0))
        self._record(f"answer of {unit}", result.raw_output or result.output)
        self.warn_once(result.notes, emit)
        return result

    def _note_error(self, error: Exception, agent: Agent, unit: str) -> Failure:
        failure = failure_of(error)
        log_failure(_log, error, "%s did not answer about %s: %s", agent.name, unit, failure.reason)
        if isinstance(error, errors.BudgetExhausted):
            self._exhausted = self._exhausted or failure
            return failure
        circuit = self._circuits[agent.name]
        # An agent that has answered before may be refused for one request alone.
        is_unusable = failure.unusable and not circuit.has_answered
        circuit.note_failure(failure, lasts=is_unusable or isinstance(error, errors.StoreError))
        return failure

    def _record(self, title: str, text: str) -> None:
        if self._transcript is not None:
            self._transcript(title, text)


def _unanswered(failures: Mapping[str, Failure]) -> tuple[Unanswered, ...]:
    return tuple(Unanswered(agent, failure.reason) for agent, failure in failures.items())


def _failure_of_all(failures: Mapping[str, Failure]) -> Failure:
    """Return the failure of a question that no agent answered.

    It is that of the agents that could be used, because a missing program says nothing about the question; its kind is
    that of the last of them. If none could be used, it is that of all of them, and its kind is that of the first.
    """
    if not failures:
        return Failure("no_agent", "no agent was named")
    usable = {agent: failure for agent, failure in failures.items() if not failure.unusable}
    relevant = usable or failures
    of_each = list(relevant.values())
    if len(of_each) == 1:
        return of_each[0]
    decisive = of_each[-1] if usable else of_each[0]
    reasons = [f"{agent}: {failure.reason}" for agent, failure in relevant.items()]
    return Failure(decisive.kind, shortened("; ".join(reasons)), decisive.unusable)


async def _read(read: Callable[[AgentResult], _Answer], result: AgentResult) -> _Answer:
    if len(result.output) + sum(map(len, result.other_answers)) <= _LONG_ANSWER:
        return read(result)
    return await asyncio.to_thread(read, result)


def _is_refused(error: Exception) -> bool:
    """Tell whether the budget did not even allow a first attempt."""
    return isinstance(error, errors.BudgetExhausted) and error.attempts == 0


def _usage_of_failure(error: Exception, attempts: int | None) -> Usage:
    if isinstance(error, CircuitOpen):
        return Usage(requests=attempts or 0)
    if not isinstance(error, errors.AgentError) or attempts == 0:
        return Usage()
    is_free = isinstance(error, _FREE) and error.cost_usd is None
    return model.spent(error.attempts, 0.0 if is_free else error.cost_usd, error.usage)


def failure_of(error: Exception) -> Failure:
    """Return the failure that an error means. The reason of a timeout is that one word."""
    if isinstance(error, errors.TimedOut):
        return Failure("timeout", "timeout")
    if not isinstance(error, errors.CodeloupeError):
        return Failure(UNEXPECTED_ERROR, shortened(f"unexpected error: {type(error).__name__}: {error}"))
    name = "failed"
    if type(error) in _NAMES:
        name = _NAMES[type(error)]
    elif isinstance(error, errors.AgentError) and type(error) is not errors.AgentError:
        name = re.sub(r"\B(?=[A-Z])", " ", type(error).__name__).lower()
    hint = f" ({error.hint})" if error.hint else ""
    is_unusable = isinstance(error, errors.AgentError) and error.unusable
    return Failure(name.replace(" ", "_"), shortened(f"{name}: {error.message}{hint}"), is_unusable)


def shortened(text: str) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]} ..."


def warn(message: str, emit: EventSink) -> None:
    """Log a warning and emit it."""
    _log.warning("%s", message)
    emit(Warned(message))


async def for_each(items: Sequence[_Item], work: Callable[[_Item], Awaitable[Any]], *, at_once: int) -> None:
    """Do the work for so many items at a time. A cancellation is raised when nothing runs any more."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(worker())
