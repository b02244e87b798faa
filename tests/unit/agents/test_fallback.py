from __future__ import annotations

import asyncio

import pytest

from codeloupe.agents.calls.fallback import Roll, with_fallback
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled, NotLoggedIn
from codeloupe.model.agent import AgentEvent, AgentResult, FellBack
from codeloupe.model.ports import Agent
from codeloupe.testing.agent import ScriptedAgent
from codeloupe.testing.scripted_call import AgentStep
from tests.unit.agents.call_samples import overloaded, rate_limited, request, result

MISSING = NotInstalled("the package is not here", agent="agent_sdk", hint="pip install it")
LOGGED_OUT = NotLoggedIn("no key is set", agent="agent_sdk", hint="set a key")


def chain(*steps: AgentStep) -> list[ScriptedAgent]:
    return [
        ScriptedAgent([step], name=name) for name, step in zip(("agent_sdk", "codex", "gemini"), steps, strict=False)
    ]


def ask(agents: list[ScriptedAgent]) -> tuple[AgentResult, list[AgentEvent]]:
    events: list[AgentEvent] = []

    async def call(agent: Agent) -> AgentResult:
        return await agent.run(request(), events.append)

    answer = asyncio.run(with_fallback(agents, call, emit=events.append))
    return answer, [event for event in events if isinstance(event, FellBack)]


def failure(agents: list[ScriptedAgent]) -> AgentError:
    with pytest.raises(AgentError) as caught:
        ask(agents)
    return caught.value


def test_the_first_agent_answers_when_it_can() -> None:
    agents = chain(result("from the first"), result("from the second"))
    answer, fallen = ask(agents)
    assert (answer.output, answer.agent, answer.notes) == ("from the first", "agent_sdk", ())
    assert fallen == []
    assert agents[1].requests == ()


@pytest.mark.parametrize("error", [MISSING, LOGGED_OUT, rate_limited(7200), rate_limited()])
def test_the_next_one_takes_over_and_the_result_says_so(error: AgentError) -> None:
    answer, fallen = ask(chain(error, result("from the second", notes=("a note of its own",))))
    assert (answer.output, answer.agent) == ("from the second", "codex")
    assert answer.notes == (f"{error.agent} was not used: {error.message}", "a note of its own")
    assert fallen == [FellBack("agent_sdk", "codex", error.message)]


@pytest.mark.parametrize("error", [overloaded(), Crashed("it crashed", agent="agent_sdk")])
def test_any_other_failure_is_not_taken_to_the_next(error: AgentError) -> None:
    agents = chain(error, result())
    assert type(failure(agents)) is type(error)
    assert agents[1].requests == ()


def test_when_all_fail_the_last_error_tells_of_the_others() -> None:
    codex = NotLoggedIn("codex has no login", agent="codex", hint="run codex login")
    error = failure(chain(MISSING, rate_limited(7200), codex))
    assert isinstance(error, NotLoggedIn)
    assert str(error) == error.message
    assert error.message == (
        "codex has no login (before it, agent_sdk: the package is not here; scripted: too many requests)"
    )
    assert error.hint == "pip install it; or run codex login"


def test_what_several_say_is_said_once() -> None:
    sdk = NotInstalled("agent_sdk is not here", agent="agent_sdk", hint="pip install a")
    cli = NotInstalled("claude_cli is not here", agent="claude_cli", hint="npm install b, or pip install a")
    error = failure(chain(sdk, cli))
    assert error.message == "claude_cli is not here (before it, agent_sdk is not here)"
    assert error.hint == "npm install b, or pip install a"


def test_a_failure_after_a_fallback_tells_of_it_too() -> None:
    error = failure(chain(MISSING, Crashed("codex crashed", agent="codex")))
    assert isinstance(error, Crashed)
    assert error.message == "codex crashed (before it, agent_sdk: the package is not here)"


def test_one_agent_alone_fails_with_its_own_words() -> None:
    assert failure(chain(MISSING)).message == "the package is not here"


def test_a_chain_without_agents_is_refused() -> None:
    error = failure([])
    assert isinstance(error, InvalidRequest)
    assert error.hint


class TestRoll:
    @pytest.mark.parametrize("error", [MISSING, LOGGED_OUT])
    def test_an_agent_that_is_missing_is_told_again_without_an_attempt(self, error: AgentError) -> None:
        roll = Roll()
        roll.note_failure("agent_sdk", error)
        with pytest.raises(type(error)) as caught:
            roll.check("agent_sdk")
        assert (caught.value.message, caught.value.hint, caught.value.attempts) == (error.message, error.hint, 0)
        assert caught.value.__cause__ is error
        roll.check("codex")

    @pytest.mark.parametrize("error", [overloaded(), rate_limited(), Crashed("it broke", agent="agent_sdk")])
    def test_other_failures_do_not_last(self, error: AgentError) -> None:
        roll = Roll()
        roll.note_failure("agent_sdk", error)
        roll.check("agent_sdk")

    def test_one_that_has_answered_is_here_whatever_comes_later(self) -> None:
        roll = Roll()
        roll.note_answer("agent_sdk")
        roll.note_failure("agent_sdk", LOGGED_OUT)
        roll.check("agent_sdk")
