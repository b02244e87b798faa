"""A review of many units through one caller, when money, service, user or login end in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.calls import review_key
from codeloupe.errors import NotLoggedIn, Overloaded, RateLimited
from codeloupe.model.agent import AgentFinished, AgentRequest, AgentStarted
from codeloupe.model.events import AgentActivity, Event, UnitFinished
from codeloupe.model.ports import Plan, ReviewerResult
from codeloupe.model.review import FAILOVER
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.testing import AgentStep, Delay, ScriptedAgent
from tests.review_factories import answer, claim, make_plan, make_reviewer, named, through
from tests.rows import each
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing

UNITS = 100
NAMES = [f"m{number:03}.py" for number in range(UNITS)]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return make_plan(tmp_path_factory.mktemp("load"), named(NAMES))


@dataclass
class Run:
    """What a review told and gave."""

    result: ReviewerResult
    events: list[Event]
    seconds: float

    @property
    def failed(self) -> Counter[str]:
        """How many units failed for each reason, by its first words."""
        return Counter(unit.reason.split(":")[0] for unit in self.result.units_failed)


@dataclass
class Service:
    """Agents that answer about each file with one finding, after a second."""

    cost_usd: float | None = 0.01
    refusal: Callable[[], AgentStep | None] = field(default=lambda: None)

    def agent(self, name: str = "scripted") -> ScriptedAgent:
        return ScriptedAgent([self._step], name=name, cost_usd=self.cost_usd)

    def _step(self, request: AgentRequest) -> AgentStep:
        refused = self.refusal()
        if refused is not None:
            return refused
        [name] = [name for name in NAMES if f"=== {name} " in request.prompt]
        return Delay(1.0, answer(claim(name)))


def make_caller(**more: Any) -> AgentCaller:
    return AgentCaller(timing=virtual_timing(), **more)


async def review(plan: Plan, caller: AgentCaller, *agents: ScriptedAgent, at_once: int = 64) -> Run:
    """Every file is either reviewed, with its claim, or named with a reason."""
    events: list[Event] = []

    reviewer = make_reviewer(*agents, ask=through(caller, *agents), concurrency=at_once)
    result = await reviewer.review(plan, events.append)
    found = {claim.file for claim in result.claims}
    failed = frozenset(file for unit in result.units_failed for file in unit.files)
    assert (result.units_total, sorted((*found, *failed))) == (UNITS, NAMES)
    return Run(result, events, virtual_clock())


def test_a_quiet_run_reviews_everything_and_a_service_that_never_recovers_is_given_up(
    plan: Plan,
) -> None:
    agent = Service(refusal=lambda: Overloaded("no room", agent="scripted")).agent()
    run = run_virtually(review(plan, make_caller(), agent, at_once=5))
    assert sum(run.failed.values()) == UNITS
    assert set(run.failed) == {"overloaded", "3 calls in a row failed, the last one with"}
    assert (len(agent.requests) <= 8 * 3, run.result.usage.cost_usd) == (True, 0)
    agent = Service().agent()
    run = run_virtually(review(plan, make_caller(), agent))
    assert (run.failed, len(agent.requests), run.seconds) == ({}, UNITS, UNITS / 5)
    assert run.result.usage.cost_usd == pytest.approx(UNITS * 0.01)
    ends = Counter(event.unit for event in run.events if isinstance(event, UnitFinished))
    assert (len(ends), set(ends.values())) == (UNITS, {1})
    calls = Counter(type(event.event) for event in run.events if isinstance(event, AgentActivity))
    assert calls[AgentStarted] == calls[AgentFinished] == UNITS


@pytest.mark.requirement("R9")
def test_a_budget_that_ends_in_the_middle_is_kept_and_what_was_found_stays(plan: Plan) -> None:
    async def run() -> tuple[Run, RunBudget]:
        budget = RunBudget(clock=virtual_clock, max_usd=0.1)
        return await review(plan, make_caller(budget=budget), agent), budget

    agent = Service().agent()
    ended, budget = run_virtually(run())
    answered = len(agent.requests)
    assert answered in (10, 11)
    assert ended.failed == {"budget exhausted": UNITS - answered}
    assert budget.spent.usd == pytest.approx(ended.result.usage.cost_usd) == pytest.approx(answered * 0.01)
    assert ended.result.usage.requests == budget.spent.requests == answered
    assert [error.kind for error in ended.result.errors] == ["budget_exhausted"]


@pytest.mark.requirement("R13")
@each("asked", [None, 0.1])
def test_a_storm_of_rate_limits_costs_time_and_no_unit(plan: Plan, asked: float | None) -> None:
    def refusal() -> AgentStep | None:
        if virtual_clock() >= 2.0:
            return None
        return RateLimited("too many requests", agent="scripted", retry_after_seconds=asked)

    agent = Service(refusal=refusal).agent()
    run = run_virtually(review(plan, make_caller(), agent))
    assert run.failed == {}
    assert len(agent.requests) - UNITS <= 12
    assert run.result.usage.requests == len(agent.requests)
    assert run.result.usage.cost_usd == pytest.approx(UNITS * 0.01)
    assert run.seconds < 130


def test_a_review_that_is_cancelled_twice_leaves_nothing_behind_and_is_continued(plan: Plan, tmp_path: Path) -> None:
    ledger = DatabaseLedger(SqliteDatabase(tmp_path / "ledger"))
    agent = Service().agent()

    async def cancelled() -> None:
        caller = make_caller(ledger=ledger, key_of=review_key)
        running = asyncio.ensure_future(review(plan, caller, agent))
        await asyncio.sleep(10.5)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert virtual_clock() == 10.5
        assert agent.running == 0
        assert len(asyncio.all_tasks()) == 1

    async def continued() -> Run:
        return await review(plan, make_caller(ledger=ledger, key_of=review_key), agent)

    run_virtually(cancelled())
    begun = len(agent.requests)
    assert begun == 55
    run = run_virtually(continued())
    assert run.failed == {}
    assert run.result.usage.cached == 50
    assert len(agent.requests) - begun == run.result.usage.requests == 50


class TestAChain:
    def test_one_that_is_logged_out_or_whose_quota_ended_is_not_asked_for_each_unit(self, plan: Plan) -> None:
        for error in (
            NotLoggedIn("it cannot be used", agent="claude_cli"),
            RateLimited("no quota", agent="claude_cli", retry_after_seconds=3600.0),
        ):
            first, second = ScriptedAgent([Delay(0.7, error)], name="claude_cli"), Service().agent("codex")
            run = run_virtually(review(plan, make_caller(), first, second))
            assert run.failed == {}
            assert (len(first.requests), len(second.requests)) == (5, UNITS)
            assert run.result.usage.requests == UNITS + 5
            # One error for all units says who answered and why.
            assert [one.kind for one in run.result.errors] == [FAILOVER]
            assert run.result.errors[0].message.startswith(f"{UNITS} units were answered by codex")
            assert error.message in run.result.errors[0].message
            assert {one.answered_by for one in run.result.units} == {"codex"}
        # When none of it can be used, the review ends at once.
        agents = [
            ScriptedAgent([Delay(0.7, NotLoggedIn("no login", agent=name))], name=name)
            for name in ("claude_cli", "codex")
        ]
        run = run_virtually(review(plan, make_caller(), *agents))
        why = "claude_cli: not logged in: no login; codex: not logged in: no login"
        assert {unit.reason for unit in run.result.units_failed} == {why}
        assert len(run.result.units_failed) == UNITS
        assert [len(agent.requests) for agent in agents] == [5, 5]
        assert run.result.usage.cost_usd == run.result.usage.unknown_costs == 0

    def test_one_that_has_answered_is_asked_again_after_a_refusal(self, plan: Plan) -> None:
        steps = iter(range(UNITS))

        def refusal() -> AgentStep | None:
            return NotLoggedIn("forbidden", agent="claude_cli") if next(steps) == 25 else None

        first, second = Service(refusal=refusal).agent("claude_cli"), Service().agent("codex")
        run = run_virtually(review(plan, make_caller(), first, second))
        assert run.failed == {}
        assert (len(first.requests), len(second.requests)) == (UNITS, 1)
