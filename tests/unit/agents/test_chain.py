"""A chain of agents: who answers when one cannot, and which model each is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe.agents.calls.caller import AgentCaller, with_fallback
from codeloupe.agents.calls.retry import Unusable
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled, NotLoggedIn
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, FellBack
from codeloupe.model.ports import Agent
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.testing.agent import AgentStep, ScriptedAgent
from tests.unit.agents.call_samples import overloaded, rate_limited, request, result

MISSING = NotInstalled("the package is not here", agent="agent_sdk", hint="pip install it")
LOGGED_OUT = NotLoggedIn("no key is set", agent="agent_sdk", hint="set a key")


def chain(*steps: AgentStep) -> list[ScriptedAgent]:
    names = ("agent_sdk", "codex", "gemini")
    return [ScriptedAgent([step], name=name) for name, step in zip(names, steps, strict=False)]


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


def test_the_next_one_takes_over_where_one_is_missing_or_limited_and_the_result_says_so() -> None:
    for error in (MISSING, LOGGED_OUT, rate_limited(7200), rate_limited()):
        answer, fallen = ask(chain(error, result("from the second", notes=("a note of its own",))))
        assert (answer.output, answer.agent) == ("from the second", "codex")
        assert answer.notes == (f"{error.agent} was not used: {error.message}", "a note of its own")
        assert fallen == [FellBack("agent_sdk", "codex", error.message)]
    for other in (overloaded(), Crashed("it crashed", agent="agent_sdk")):
        agents = chain(other, result())
        assert type(failure(agents)) is type(other)
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
    sdk = NotInstalled("agent_sdk is not here", agent="agent_sdk", hint="pip install a")
    cli = NotInstalled("claude_cli is not here", agent="claude_cli", hint="npm install b, or pip install a")
    error = failure(chain(sdk, cli))
    assert error.message == "claude_cli is not here (before it, agent_sdk is not here)"
    assert error.hint == "npm install b, or pip install a"
    error = failure(chain(LOGGED_OUT, Crashed("codex crashed", agent="codex")))
    assert isinstance(error, Crashed)
    assert error.message == "codex crashed (before it, agent_sdk: no key is set)"


def test_one_agent_alone_fails_with_its_own_words_and_none_is_refused() -> None:
    alone = NotInstalled("the package is not here", agent="agent_sdk")
    assert failure(chain(alone)).message == "the package is not here"
    error = failure([])
    assert isinstance(error, InvalidRequest)
    assert error.hint


def test_an_agent_that_is_missing_is_told_again_without_an_attempt_until_it_has_answered() -> None:
    for error in (MISSING, LOGGED_OUT):
        unusable = Unusable()
        unusable.note("agent_sdk", error)
        with pytest.raises(type(error)) as caught:
            unusable.check("agent_sdk")
        assert (caught.value.message, caught.value.hint, caught.value.attempts) == (error.message, error.hint, 0)
        assert caught.value.__cause__ is error
        unusable.check("codex")
    unusable = Unusable()
    for other in (overloaded(), rate_limited(), Crashed("it broke", agent="agent_sdk")):
        unusable.note("agent_sdk", other)
    unusable.check("agent_sdk")
    unusable.note("agent_sdk")
    unusable.note("agent_sdk", LOGGED_OUT)
    unusable.check("agent_sdk")


def second_of(first: str, second: str, asked: AgentRequest) -> tuple[AgentRequest, tuple[str, ...]]:
    """What reached the second agent of a chain whose first one is not here, and the notes."""
    missing = ScriptedAgent([NotInstalled("not here", agent=first)], name=first)
    agents = [missing, ScriptedAgent([result()], name=second)]
    answer = asyncio.run(AgentCaller().call(asked, agent=agents, emit=lambda _event: None))
    assert agents[0].requests[0].model == asked.model
    assert answer.notes[0] == f"{first} was not used: not here"
    return agents[1].requests[0], answer.notes[1:]


def test_only_an_agent_of_the_same_vendor_is_asked_for_the_model_too() -> None:
    asked = request(model="opus", fallback_model="haiku")
    for first, second in (("agent_sdk", "claude_cli"), ("claude_cli", "agent_sdk")):
        reached, notes = second_of(first, second, asked)
        assert (reached.model, reached.fallback_model, notes) == ("opus", "haiku", ())
    for first, second in (
        ("agent_sdk", "codex"),
        ("claude_cli", "gemini"),
        ("codex", "claude_cli"),
        ("claude_cli", "api"),
        ("api", "codex"),
    ):
        reached, notes = second_of(first, second, asked)
        assert (reached.model, reached.fallback_model) == (None, None)
        words = "was asked for its own default model, not for opus or haiku, which was meant for"
        assert notes == (f"{second} {words} {first}",)
    assert second_of("agent_sdk", "codex", request())[1] == ()


def test_the_answer_is_kept_under_what_was_asked_and_without_the_note(tmp_path: Path) -> None:
    keys: list[tuple[str | None, str]] = []
    ledger = SqliteLedger(Database(tmp_path / "ledger"))

    def key_of(asked: AgentRequest, agent: Agent) -> str:
        keys.append((asked.model, agent.name))
        return f"{agent.name} {asked.model}"

    caller = AgentCaller(ledger=ledger, key_of=key_of)
    missing = ScriptedAgent([NotInstalled("not here", agent="agent_sdk")], name="agent_sdk")
    agents = [missing, ScriptedAgent([result()], name="codex")]
    asyncio.run(caller.call(request(model="opus"), agent=agents, emit=lambda _event: None))
    assert keys == [("opus", "agent_sdk"), (None, "codex")]
    kept = ledger.get("codex None")
    assert kept is not None
    assert kept.notes == ()
