import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe import errors
from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.model.events import Event, UnitFinished, Warned
from codeloupe.model.ports import Agent, AgentEventSink, ReviewerResult
from codeloupe.reviewers.asking import Circuit, CircuitOpen, Failure
from codeloupe.testing import AgentStep, Hang, ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS
from tests.review_factories import answer, make_plan, make_reviewer, named, through
from tests.rows import each

FILES = named(["a.py", "b.py", "c.py"])
MANY = named([f"m{number:02}.py" for number in range(30)])
QUICK = CallerOptions(retry=RetryPolicy(first_delay_seconds=0.001, rate_limit_min_seconds=0.001))


def review(
    root: Path, *agents: ScriptedAgent, files: Mapping[str, str] = MANY, **options: Any
) -> tuple[ReviewerResult, list[Event]]:
    events: list[Event] = []
    reviewing = make_reviewer(*agents, **options).review(make_plan(root, files), events.append)
    return asyncio.run(asyncio.wait_for(reviewing, PATIENCE_SECONDS)), events


def reasons(result: ReviewerResult) -> set[str]:
    return {unit.reason for unit in result.units_failed}


def warnings(events: Sequence[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Warned)]


@each(
    ("error", "calls"),
    [
        # At once, or at the third in a row; one more unit may be under way then.
        (errors.NotLoggedIn, (1, 2)),
        (errors.BudgetExhausted, (1, 2)),
        (errors.InvalidRequest, (3, 4)),
        (errors.Crashed, (3, 4)),
    ],
)
def test_no_further_unit_is_asked_about_after_a_lasting_failure(
    tmp_path: Path, error: type[errors.AgentError], calls: tuple[int, int]
) -> None:
    agent = ScriptedAgent([error("no model", agent="scripted")])
    result, events = review(tmp_path, agent, concurrency=2)
    assert len(agent.requests) in calls
    assert (len(result.units_failed), len(result.errors) < 6) == (30, True)
    assert all("no model" in reason for reason in reasons(result))
    assert any("did not start" in message for message in warnings(events))


def test_three_units_in_a_row_without_an_exact_answer_stop_the_asking(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("hm")])
    result, events = review(tmp_path, agent, concurrency=1)
    assert len(agent.requests) == 6
    assert len(result.units_failed) == 30
    assert "scripted did not start 27 units: 3 calls in a row failed" in "\n".join(warnings(events))


def test_a_broken_ledger_stops_the_asking(tmp_path: Path) -> None:
    asked = 0

    async def ask(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise errors.StoreError("the database is broken", hint="restore it")

    result, _ = review(tmp_path, ScriptedAgent(), ask=ask, concurrency=4)
    assert (asked <= 4, len(result.units_failed)) == (True, 30)
    assert reasons(result) == {"ledger failed: the database is broken (restore it)"}


def test_a_program_that_is_not_installed_was_not_called(tmp_path: Path) -> None:
    agent = ScriptedAgent([errors.NotInstalled("there is no program", agent="scripted", hint="install it")])
    usage = review(tmp_path, agent, files=FILES, ask=through(AgentCaller(QUICK), agent))[0].usage
    assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (0, 0.0, 0)


def test_an_exhausted_budget_is_one_error_for_all_units_that_were_not_started(tmp_path: Path) -> None:
    first, second = (ScriptedAgent([answer()], name=name) for name in ("codex", "gemini"))
    caller = AgentCaller(QUICK, budget=RunBudget(clock=Timing().clock, max_requests=4))
    result, events = review(tmp_path, first, second, ask=through(caller, first, second), concurrency=8)
    # The next agent would spend from the same budget.
    assert (len(first.requests), len(second.requests)) == (4, 0)
    assert len(result.units_failed) == 26
    assert [error.kind for error in result.errors] == ["budget_exhausted"]
    assert result.errors[0].message.startswith("codex did not start 26 units: budget exhausted")
    assert result.errors[0].message in warnings(events)
    assert len([event for event in events if isinstance(event, UnitFinished)]) == 4
    assert result.usage.requests == 4


@each(
    ("first", "second", "kind", "reason"),
    [
        (errors.TimedOut, errors.NotInstalled, "timeout", "timeout"),
        (errors.NotLoggedIn, errors.TimedOut, "timeout", "timeout"),
        (errors.TimedOut, errors.Crashed, "agent_crashed", "codex: timeout; gemini: agent crashed: no answer"),
        (
            errors.NotInstalled,
            errors.NotLoggedIn,
            "not_installed",
            "codex: not installed: no answer; gemini: not logged in: no answer",
        ),
    ],
)
def test_a_unit_fails_as_the_agents_did_that_could_be_used(
    tmp_path: Path, first: type[errors.AgentError], second: type[errors.AgentError], kind: str, reason: str
) -> None:
    agents = [
        ScriptedAgent([error("no answer", agent=name)], name=name)
        for name, error in (("codex", first), ("gemini", second))
    ]
    result, _ = review(tmp_path, *agents, files=named(["a.py"]))
    assert reasons(result) == {reason}
    assert [error.kind for error in result.errors] == [kind]
    assert [one.agent for one in result.units[0].unanswered] == ["codex", "gemini"]


def test_each_agent_has_a_circuit_of_its_own(tmp_path: Path) -> None:
    first = ScriptedAgent([errors.Crashed("boom", agent="codex")], name="codex")
    second = ScriptedAgent([answer()], name="gemini")
    result, _ = review(tmp_path, first, second, concurrency=1)
    assert (len(first.requests), len(second.requests)) == (3, 30)
    assert result.units_failed == ()
    assert "3 calls in a row failed" in result.units[-1].unanswered[0].reason


def test_a_cancellation_ends_all_calls_and_goes_to_no_other_agent(tmp_path: Path) -> None:
    all_are_asked = asyncio.Event()

    def hang(_request: AgentRequest) -> AgentStep:
        if first.running == len(FILES):
            all_are_asked.set()
        return Hang()

    first, second = ScriptedAgent([hang], name="codex"), ScriptedAgent([answer()], name="gemini")

    async def scene() -> None:
        plan = make_plan(tmp_path, FILES)
        running = asyncio.ensure_future(make_reviewer(first, second).review(plan, lambda _event: None))
        await asyncio.wait_for(all_are_asked.wait(), PATIENCE_SECONDS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (first.running, len(second.requests), len(asyncio.all_tasks())) == (0, 0, 1)

    asyncio.run(scene())


STARTED = model.AgentStarted("scripted", None)
ATTEMPT = model.AttemptStarted("scripted", 1, 3)
WAITING = model.AttemptFailed("scripted", 1, "Overloaded", "busy", 9.0)
BUSY = Failure("overloaded", "overloaded: busy")


def is_open(circuit: Circuit) -> bool:
    return circuit.failure is not None


@pytest.mark.defect("V3")
def test_three_failures_in_a_row_open_a_circuit_unless_an_answer_is_between() -> None:
    circuit, lucky = Circuit(), Circuit()
    for number in range(3):
        assert not is_open(circuit)
        for one in (circuit, lucky):
            one.note_failure(BUSY, lasts=False)
        if number == 1:
            lucky.note_answer()
    assert circuit.failure == Failure("overloaded", "3 calls in a row failed, the last one with: overloaded: busy")
    assert not is_open(lucky)


@each(
    ("events", "ended"),
    [
        ((), "answered"),
        ((STARTED,), "released"),
        ((STARTED, ATTEMPT), "answered"),
        ((STARTED, ATTEMPT, WAITING), "released"),
    ],
)
def test_an_open_circuit_releases_calls_that_wait_and_not_those_that_run(
    events: tuple[AgentEvent, ...], ended: str
) -> None:
    async def call(circuit: Circuit, *, begun: asyncio.Event, end: asyncio.Event) -> str:
        try:
            async with circuit.call() as note:
                for event in events:
                    note(event)
                begun.set()
                await end.wait()
        except CircuitOpen:
            return "released"
        return "answered"

    async def scene() -> str:
        circuit, begun, end = Circuit(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(call(circuit, begun=begun, end=end))
        await begun.wait()
        circuit.note_failure(BUSY, lasts=True)
        end.set()
        return await running

    assert asyncio.run(scene()) == ended
