from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.agents.calls.timing import Timing
from codeloupe.engine import agent_reviewer
from codeloupe.engine.agent_reviewer import AgentReviewer
from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.calls import review_key
from codeloupe.errors import (
    AgentError,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    RateLimited,
    StoreError,
)
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.ports import AgentEventSink, ReviewerOutcome, ReviewTask
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.testing import AgentStep, Delay, Hang, ScriptedAgent
from tests.review_factories import added, answer, by_file, claim, make_reviewer, make_task, named, through

FILES = named(["a.py", "b.py", "c.py"])
MANY = named([f"m{number:02}.py" for number in range(30)])
QUICK = CallerOptions(retry=RetryPolicy(first_delay_seconds=0.001, rate_limit_min_seconds=0.001))


def review(reviewer: AgentReviewer, task: ReviewTask) -> tuple[ReviewerOutcome, list[Event]]:
    events: list[Event] = []
    return asyncio.run(asyncio.wait_for(reviewer.review(task, events.append), 30)), events


def reasons(outcome: ReviewerOutcome) -> dict[str, str]:
    """Why each failed file failed."""
    return {file: unit.reason for unit in outcome.units_failed for file in unit.files}


def warnings(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, Warned))


def once(first: AgentStep, then: AgentStep) -> list[AgentStep]:
    return [first, then]


def test_rate_limited_once_costs_a_wait_and_no_unit(tmp_path: Path) -> None:
    limited = RateLimited("slow down", agent="scripted")
    agent = ScriptedAgent(once(limited, answer()))
    outcome, _ = review(make_reviewer(through(AgentCaller(QUICK), agent)), make_task(tmp_path, FILES))
    assert (outcome.units_failed, outcome.errors) == ((), ())
    assert outcome.usage.requests == 4


def test_rate_limited_for_ever_is_named(tmp_path: Path) -> None:
    agent = ScriptedAgent([RateLimited("slow down", agent="scripted")])
    outcome, events = review(make_reviewer(through(AgentCaller(QUICK), agent)), make_task(tmp_path, FILES))
    assert all(reason.startswith("rate limited: slow down") for reason in reasons(outcome).values())
    assert len(outcome.units_failed) == 3
    lane = next(event for event in events if isinstance(event, LaneFinished))
    assert lane.failure is not None


def test_a_budget_of_one_request_reviews_one_unit_and_lists_the_rest(tmp_path: Path) -> None:
    agent = ScriptedAgent([by_file({name: answer(claim(name)) for name in MANY}, otherwise=answer())])
    caller = AgentCaller(QUICK, budget=RunBudget(clock=Timing().clock, max_requests=1))
    outcome, events = review(make_reviewer(through(caller, agent), units_at_once=8), make_task(tmp_path, MANY))
    assert len(agent.requests) == 1
    assert len(outcome.findings) == 1
    assert outcome.units_total == 30
    assert len(outcome.units_failed) == 29
    assert all(reason.startswith("budget exhausted") for reason in reasons(outcome).values())
    assert len(outcome.unreviewed) == 29
    assert "did not start" in warnings(events)
    assert len(outcome.errors) < 12


@pytest.mark.parametrize(
    "error",
    [NotLoggedIn("no key", agent="scripted", hint="set it"), InvalidRequest("no such model", agent="scripted")],
    ids=["logged out", "no such model"],
)
def test_what_no_further_call_can_mend_is_not_asked_again_and_again(tmp_path: Path, error: AgentError) -> None:
    agent = ScriptedAgent([Delay(0.01, error)])
    caller = AgentCaller(CallerOptions(concurrency=2))
    outcome, _ = review(make_reviewer(through(caller, agent)), make_task(tmp_path, MANY))
    assert len(agent.requests) <= 4
    assert len(outcome.units_failed) == 30
    assert all(error.message in reason for reason in reasons(outcome).values())
    assert agent.running == 0


def test_a_program_that_is_not_there_was_not_called(tmp_path: Path) -> None:
    agent = ScriptedAgent([NotInstalled("there is no program", agent="scripted", hint="install it")])
    outcome, _ = review(make_reviewer(through(AgentCaller(QUICK), agent)), make_task(tmp_path, FILES))
    assert len(outcome.units_failed) == 3
    assert (outcome.usage.requests, outcome.usage.cost_usd, outcome.usage.unknown_costs) == (0, 0.0, 0)


def test_a_ledger_that_cannot_be_read_stops_the_buying(tmp_path: Path) -> None:
    calls = 0

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise StoreError("the database is broken", hint="mend it")

    outcome, _ = review(make_reviewer(ask, units_at_once=4), make_task(tmp_path, MANY))
    assert calls <= 4
    assert set(reasons(outcome).values()) == {"ledger failed: the database is broken (mend it)"}
    assert len(outcome.units_failed) == 30


@pytest.mark.requirement("V9")
def test_an_unexpected_error_fails_its_unit_alone_with_a_stack_trace_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        if "=== a.py " in request.prompt:
            raise RuntimeError("nobody thought of this")
        return AgentResult(success=True, output="{}", agent="scripted", structured={"findings": []})

    outcome, _ = review(make_reviewer(ask), make_task(tmp_path, FILES))
    assert reasons(outcome) == {"a.py": "unexpected error: RuntimeError: nobody thought of this"}
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.WARNING)


@pytest.mark.requirement("V9")
def test_a_crash_of_a_vendors_library_keeps_its_message_and_its_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = ScriptedAgent([Crashed("the SDK failed: boom", agent="scripted")])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert reasons(outcome) == {"a.py": "agent crashed: the SDK failed: boom"}
    assert any(record.exc_info for record in caplog.records)


def test_a_service_that_only_fails_is_left_alone_after_a_while(tmp_path: Path) -> None:
    agent = ScriptedAgent([Crashed("boom", agent="scripted")])
    outcome, _ = review(make_reviewer(agent, units_at_once=2), make_task(tmp_path, MANY))
    # The third failure in a row opens the circuit; one more unit may be under way then.
    assert 3 <= len(agent.requests) <= 4
    assert len(outcome.units_failed) == 30


def test_a_claim_that_breaks_the_search_for_its_place_costs_that_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Anchorer):
        def place(self, claim: ClaimedFinding, origin: Origin, *, unit_files: Sequence[str] = ()) -> Finding:
            if claim.title == "bad":
                raise ValueError("cannot be placed")
            return super().place(claim, origin, unit_files=unit_files)

    monkeypatch.setattr(agent_reviewer, "Anchorer", Broken)
    agent = ScriptedAgent([answer(claim("a.py", title="bad"), claim("a.py", 9))])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(outcome.findings) == 1
    assert "cannot be placed" in outcome.errors[0].message


@pytest.mark.parametrize("calls", [0, 1])
def test_a_cancellation_is_raised_at_once_with_nothing_left_running(tmp_path: Path, calls: int) -> None:
    task = make_task(tmp_path, MANY)
    agent = ScriptedAgent([Hang()])

    async def scene() -> set[asyncio.Task[object]]:
        reviewer = make_reviewer(through(AgentCaller(QUICK), agent))
        running = asyncio.create_task(reviewer.review(task, lambda _event: None))
        await asyncio.sleep(0)
        while agent.running < calls:  # noqa: ASYNC110 - the agent has no event for it
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(scene()) == set()
    assert agent.running == 0


def test_what_was_bought_before_an_end_is_not_bought_again(tmp_path: Path) -> None:
    """Each run has a marker of its own in its prompts, and the units are the same ones all the same."""
    task = make_task(tmp_path, MANY)
    agent = ScriptedAgent([by_file({name: answer(claim(name)) for name in MANY}, otherwise=answer())])

    def run(most: int | None) -> ReviewerOutcome:
        with Database(tmp_path / "ledger.db") as database:
            budget = RunBudget(clock=Timing().clock, max_requests=most)
            caller = AgentCaller(QUICK, budget=budget, ledger=SqliteLedger(database), key_of=review_key)
            outcome, _ = review(make_reviewer(through(caller, agent)), task)
            return outcome

    first, second, third = run(7), run(None), run(None)
    assert (first.usage.requests, len(first.units_failed)) == (7, 23)
    assert (second.usage.requests, second.usage.cached, second.units_failed) == (23, 7, ())
    assert (third.usage.requests, third.usage.cached) == (0, 30)
    assert len(agent.requests) == 30
    assert third.findings == second.findings
    assert len(third.findings) == 30


@pytest.mark.no_cover
def test_hundreds_of_units_are_never_held_at_once(tmp_path: Path) -> None:
    files = tuple(added(name, text) for name, text in named([f"f{number}.py" for number in range(400)]).items())
    task = replace(make_task(tmp_path, {}), files=files)
    held = most = 0

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0)
        held -= 1
        return AgentResult(success=True, output="{}", agent="scripted", structured={"findings": []})

    outcome, _ = review(make_reviewer(ask, units_at_once=16), task)
    assert outcome.units_total >= 400
    assert outcome.units_failed == ()
    assert 1 < most <= 16
