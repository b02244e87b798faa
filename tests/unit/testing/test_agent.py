import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeloupe import errors
from codeloupe.model.agent import (
    AgentEvent,
    AgentRequest,
    AgentResult,
    Availability,
    TokensSpent,
    TokenUsage,
    ToolUsed,
    TurnTaken,
)
from codeloupe.model.ports import Agent
from codeloupe.testing import AgentStep, Delay, Hang, Json, ScriptedAgent, Text, ToolUse
from tests.endings import FAR_TOO_LONG_SECONDS, ends_soon
from tests.unit.agents.samples import unheard

SCHEMA = {"type": "object"}


def make(**fields: Any) -> AgentRequest:
    return AgentRequest(**{"prompt": "hello", "working_dir": Path(), **fields})


def run(agent: ScriptedAgent, request: AgentRequest) -> AgentResult:
    return asyncio.run(agent.run(request, unheard))


def test_it_is_an_agent_that_can_be_missing_or_logged_out() -> None:
    agent: Agent = ScriptedAgent(name="other")
    assert (agent.name, agent.limits.schema) == ("other", True)
    assert asyncio.run(agent.check()).usable
    absent = ScriptedAgent(availability=Availability(found=False, how_to_fix="install it"))
    assert not asyncio.run(absent.check()).usable


@pytest.mark.requirement("R17")
def test_it_answers_in_order_and_records_what_it_was_asked_and_an_end_can_be_an_error() -> None:
    agent = ScriptedAgent([Text("one"), Text("two")])
    requests = [make(prompt=str(number), model="m") for number in range(3)]
    results = [run(agent, request) for request in requests]
    assert [result.output for result in results] == ["one", "two", "two"]
    assert agent.requests == tuple(requests)
    first = results[0]
    assert (first.success, first.agent, first.model, first.session_id) == (True, "scripted", "m", "scripted-1")
    assert (first.num_turns, first.total_cost_usd, first.error) == (1, 0.0, None)
    assert first.usage == TokenUsage(input_tokens=100, output_tokens=20)
    ending = ScriptedAgent([Text("one")], then="error")
    ending.extend(Text("two"))
    assert [run(ending, make()).output for _ in range(2)] == ["one", "two"]
    with pytest.raises(errors.Crashed, match="no step left"):
        run(ending, make())


def test_a_value_is_structured_where_a_schema_was_asked_for_and_prose_is_invalid_there() -> None:
    agent = ScriptedAgent([Json({"a": 1})])
    with_schema, without = run(agent, make(output_schema=SCHEMA)), run(agent, make())
    assert (with_schema.structured, with_schema.output) == ({"a": 1}, '{"a": 1}')
    assert (without.structured, without.output) == (None, '{"a": 1}')
    for step in (Text("prose"), Json("prose", as_text=True)):
        with pytest.raises(errors.OutputInvalid) as caught:
            run(ScriptedAgent([step]), make(output_schema=SCHEMA))
        assert "prose" in caught.value.raw_output


def test_a_result_is_returned_as_it_was_made_under_the_name_of_the_agent_and_a_session_goes_on() -> None:
    made = AgentResult(success=True, output="made", agent="", model="x", permission_denials=("Bash",))
    result = run(ScriptedAgent([made], name="codex"), make())
    assert (result.output, result.agent, result.permission_denials) == ("made", "codex", ("Bash",))
    for forks, session in ((False, "earlier"), (True, "scripted-1")):
        assert run(ScriptedAgent(), make(resume_session="earlier", fork_session=forks)).session_id == session


def test_a_failure_is_raised_anew_each_time_with_all_it_carries() -> None:
    cause = OSError("why")
    failure = errors.RateLimited("slow down", agent="scripted", retry_after_seconds=3.0, hint="Wait.")
    failure.__cause__ = cause
    agent = ScriptedAgent([failure])
    caught: list[errors.RateLimited] = []
    for _ in range(2):
        with pytest.raises(errors.RateLimited, match="slow down") as info:
            run(agent, make())
        caught.append(info.value)
    assert caught[0] is not caught[1] is not failure
    assert failure.__traceback__ is None
    assert [(error.retry_after_seconds, error.hint, error.__cause__) for error in caught] == [(3.0, "Wait.", cause)] * 2


def test_a_function_sees_the_request_and_makes_an_answer_or_a_failure() -> None:
    def step(request: AgentRequest) -> AgentStep:
        return errors.NotLoggedIn(f"no key for {request.model}", agent="x") if request.model else Text(request.prompt)

    assert run(ScriptedAgent([step]), make()).output == "hello"
    with pytest.raises(errors.NotLoggedIn, match="no key for m"):
        run(ScriptedAgent([step]), make(model="m"))
    script: list[AgentStep] = ["hello"]  # type: ignore[list-item]  # the mistake under test
    with pytest.raises(TypeError, match="'hello'"):
        run(ScriptedAgent(script), make())


def test_events_tell_of_turns_tools_and_tokens() -> None:
    usage = TokenUsage(input_tokens=7, cached_tokens=2, output_tokens=1)
    agent = ScriptedAgent([ToolUse("Read", {"file_path": "a"}, usage=usage), Text("done", usage=usage)], cost_usd=0.25)
    events: list[AgentEvent] = []
    result = asyncio.run(agent.run(make(), events.append))
    assert events == [
        TurnTaken("scripted", 1),
        TokensSpent("scripted", 7, 1, 0.25),
        ToolUsed("scripted", "Read"),
        TurnTaken("scripted", 2),
        TokensSpent("scripted", 14, 2, 0.5),
    ]
    assert (result.num_turns, result.total_cost_usd) == (2, 0.5)
    assert result.usage == TokenUsage(input_tokens=14, cached_tokens=4, output_tokens=2)


def test_the_limits_of_turns_and_money_are_kept_and_an_unknown_cost_breaks_none() -> None:
    with pytest.raises(errors.TurnsExhausted, match="3 turns"):
        run(ScriptedAgent([ToolUse("Read")]), make(max_turns=3))
    with pytest.raises(errors.BudgetExhausted):
        run(ScriptedAgent([Text("x")], cost_usd=2.0), make(max_budget_usd=1.0))
    assert run(ScriptedAgent([Text("x")], cost_usd=None), make(max_budget_usd=1.0)).total_cost_usd is None


def test_a_silence_ends_at_the_deadline() -> None:
    for limit in ("timeout_seconds", "idle_timeout_seconds"):
        steps: list[AgentStep] = [Hang(), Delay(FAR_TOO_LONG_SECONDS, Text("late")), ToolUse("again and again")]
        for step in steps:
            agent = ScriptedAgent([step])
            with pytest.raises(errors.TimedOut, match="0.05 s"), ends_soon():
                run(agent, make(**{limit: 0.05}))
            assert agent.running == 0


def test_calls_wait_side_by_side_and_the_most_at_once_are_counted() -> None:
    agent = ScriptedAgent([Delay(0.1, Text("done"))])

    async def ten() -> list[AgentResult]:
        return await asyncio.gather(*(agent.run(make(), unheard) for _ in range(10)))

    results = asyncio.run(ten())
    assert (agent.max_seen, agent.running) == (10, 0)
    assert all(result.duration_ms >= 95 for result in results)


@pytest.mark.requirement("R1")
def test_a_cancellation_before_the_entry_starts_nothing() -> None:
    agent = ScriptedAgent()

    async def cancelled() -> None:
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        await agent.run(make(), unheard)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert agent.requests == ()
