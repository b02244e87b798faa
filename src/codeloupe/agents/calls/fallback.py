"""The next agent of a chain, where one cannot be used here or has no quota left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from codeloupe.errors import AgentError, InvalidRequest, NotInstalled, NotLoggedIn, RateLimited
from codeloupe.model.agent import AgentResult, FellBack
from codeloupe.model.ports import Agent, AgentEventSink

_UNUSABLE = (NotInstalled, NotLoggedIn, RateLimited)


class Roll:
    """Which agents of a run were found to be missing or logged out before they gave any answer.

    Calls that have another agent to ask need not find that out again, each with a program that is started for it. One
    that has answered is here: if it is refused later, that may be for one request alone.
    """

    def __init__(self) -> None:
        self._answered: set[str] = set()
        self._missing: dict[str, AgentError] = {}

    def check(self, agent: str) -> None:
        """Raises the error again that was met when the agent was asked, if it cannot be used."""
        error = self._missing.get(agent)
        if error is not None:
            raise type(error)(error.message, agent=agent, hint=error.hint, attempts=0) from error

    def note_answer(self, agent: str) -> None:
        """Tell that it answered."""
        self._answered.add(agent)

    def note_failure(self, agent: str, error: AgentError) -> None:
        """Tell that an attempt failed."""
        if isinstance(error, NotInstalled | NotLoggedIn) and agent not in self._answered:
            self._missing[agent] = error


async def with_fallback(
    agents: Sequence[Agent], call: Callable[[Agent], Awaitable[AgentResult]], *, emit: AgentEventSink
) -> AgentResult:
    """The result of the first agent that can be used, with a note for each one before it.

    `call` retries by itself, so that a RateLimited from it means a quota that is not worth waiting for. Every other
    failure than that, a missing program or a missing login is raised at once: another agent would not do better. When
    no agent is left the last error is raised, and its message tells of the others.
    """
    failures: list[AgentError] = []
    for position, agent in enumerate(agents, start=1):
        try:
            result = await call(agent)
        except _UNUSABLE as error:
            failures.append(error)
            if position < len(agents):
                emit(FellBack(agent.name, agents[position].name, error.message))
            continue
        except AgentError as error:
            _tell_story(error, failures)
            raise
        notes = (f"{failure.agent} was not used: {failure.message}" for failure in failures)
        return replace(result, notes=(*notes, *result.notes))
    if not failures:
        raise InvalidRequest("no agent was named, so nothing was asked", agent="none", hint="name at least one agent")
    _tell_story(failures[-1], failures[:-1])
    raise failures[-1]


def _tell_story(error: AgentError, earlier: Sequence[AgentError]) -> None:
    if earlier:
        error.message = f"{error.message} (before it, {'; '.join(map(_with_name, earlier))})"
        error.args = (error.message,)
        hints = dict.fromkeys(failure.hint for failure in (*earlier, error) if failure.hint)
        # One may say what another says too: the same package brings two of the agents.
        said = [hint for hint in hints if not any(hint in other for other in hints if other != hint)]
        error.hint = "; or ".join(said)


def _with_name(failure: AgentError) -> str:
    is_named = failure.message.startswith(failure.agent)
    return failure.message if is_named else f"{failure.agent}: {failure.message}"
