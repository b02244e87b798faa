"""Agent calls under limits that many processes share: whole callers on both databases, most of them in virtual time."""

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Limiter
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions, SharedPlace, account_of
from codeloupe.agents.claude.cli import ClaudeCliAgent
from codeloupe.agents.registry import make_agent
from codeloupe.config.schema import Settings
from codeloupe.errors import AgentError, BudgetExhausted, RateLimited, TimedOut
from codeloupe.model.agent import AgentRequest, AgentResult, Priority
from codeloupe.model.limits import LimitedRequest
from codeloupe.store.interface import Database
from codeloupe.store.limits import SharedLimits
from codeloupe.store.owner import Owner
from codeloupe.testing import AgentStep, Delay, Hang, ScriptedAgent, Text
from tests.postgres import made_database
from tests.unit.agents.samples import made_up_token, most_in, overloaded, rate_limited, request, result, unheard
from tests.unit.agents.virtual_time import MIDNIGHT, run_virtually, virtual_clock, virtual_timing, virtually

pytestmark = pytest.mark.program
HELLO = Text("hello")
SPREADS = ("even", "rarely dear", "cheap first")


class Fleet:
    """The callers of several processes, in one event loop."""

    def __init__(self, database: Database, **options: Any) -> None:
        self.database = database
        self.options = options
        self.limits: list[SharedLimits] = []
        self.starts: list[float] = []
        self.asked: list[str] = []

    def worker(
        self,
        priority: Priority = Priority.PERSON,
        *,
        concurrency: int = 5,
        repository: str = "r",
        process: int | None = None,
        **limits: Any,
    ) -> AgentCaller:
        """Return the caller of a new runtime, in a process of its own unless one is given."""
        loop = asyncio.get_running_loop()
        self.database.clock = lambda: MIDNIGHT.timestamp() + loop.time()  # type: ignore[method-assign]
        owner = Owner("elsewhere", len(self.limits) + 1 if process is None else process, "t")
        shared = SharedLimits(self.database, owner=owner)
        self.limits.append(shared)

        async def name_of(_repo: Path) -> tuple[str, str]:
            return repository, repository

        timing, options = virtual_timing(chance=random.Random(1).random), SharedOptions(**{**self.options, **limits})
        calls = SharedCalls(shared, options, timing=timing, priority=priority, name_of=name_of)
        return AgentCaller(CallerOptions(concurrency=concurrency), timing=timing, shared=calls)

    def agent(self, *steps: AgentStep, seconds: float = 1.0, chance: random.Random | None = None) -> ScriptedAgent:
        """Return an agent that records its requests and answers after a while, at first by these steps."""
        left = list(steps)

        def step(asked: AgentRequest) -> AgentStep:
            self.starts.append(virtual_clock())
            self.asked.append(asked.prompt)
            if left:
                return left.pop(0)
            return Delay(seconds if chance is None else chance.uniform(0.2, 2 * seconds), HELLO)

        return ScriptedAgent([step])

    def spent(self) -> dict[str, tuple[float, int, int]]:
        rows = self.database.select("SELECT budget, usd, requests, unknown_costs FROM spending")
        return {row[0]: tuple(row[1:]) for row in rows}

    def is_empty(self) -> bool:
        """Return whether no request runs or waits."""
        return self.database.select("SELECT count(*) FROM limited_requests") == [(0,)]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with made_database(request) as opened:
        yield opened


async def ask(caller: AgentCaller, agent: ScriptedAgent, **fields: Any) -> AgentResult:
    return await caller.call(request(**fields), agent=agent, emit=unheard)


def limited(name: str) -> LimitedRequest:
    budgets = SharedOptions().budgets("r", "r")
    return LimitedRequest(id=name, agent="scripted", account="a", priority=0, budgets=budgets, concurrency=1)


def shared_place(calls: SharedCalls, name: str) -> SharedPlace:
    return SharedPlace(calls, limited(name), Limiter("scripted", concurrency=5, timing=calls.timing).place())


class TestRate:
    @virtually
    @pytest.mark.defect("M3")
    async def test_sixty_requests_a_minute_are_paced_over_four_workers(self, database: Database) -> None:
        fleet, chance = Fleet(database, calls_per_minute=60), random.Random(7)
        workers = [fleet.worker(concurrency=20) for _ in range(4)]
        agent = fleet.agent(seconds=15.0, chance=chance)
        calls = []
        # A burst of each worker, then groups of all sizes. There is always more to do than the rate allows.
        for number in range(280):
            calls.append(asyncio.create_task(ask(workers[number % 4], agent)))
            if number > 120 and number % 20 == 0:
                await asyncio.sleep(chance.uniform(0, 10))
        await asyncio.gather(*calls)
        gaps = [after - before for before, after in pairwise(fleet.starts)]
        assert min(gaps) >= 1.0 - 1e-3
        for minute in range(4):
            begun = sum(60 * minute <= start < 60 * minute + 60 for start in fleet.starts)
            assert begun >= 59, (minute, begun)
        assert len(fleet.starts) == 280
        assert fleet.is_empty()

    @virtually
    async def test_each_attempt_counts(self, database: Database) -> None:
        caller = Fleet(database, calls_per_minute=2).worker()
        agent = ScriptedAgent([rate_limited(1), HELLO])
        await ask(caller, agent)
        await ask(caller, agent)
        assert virtual_clock() == pytest.approx(60.0, abs=0.1)

    @virtually
    @pytest.mark.defect("M3")
    async def test_an_agent_loads_its_packages_before_its_request_counts(self, database: Database) -> None:
        fleet = Fleet(database, calls_per_minute=60)

        class SlowAgent(ScriptedAgent):
            async def prepare(self, _request: AgentRequest) -> None:
                assert fleet.is_empty()
                await asyncio.sleep(20.0)
                raise RuntimeError("a failure is reported by the call itself, if it lasts")

        def step(_request: AgentRequest) -> AgentStep:
            fleet.starts.append(virtual_clock())
            return HELLO

        callers = [fleet.worker() for _ in range(3)]
        await asyncio.gather(*(ask(caller, SlowAgent([step])) for caller in callers))
        assert fleet.starts == pytest.approx([20.0, 21.0, 22.0], abs=0.1)


@pytest.mark.defect("W1")
class TestNoStall:
    """A free place or free money is used within 2 seconds, in any order of events."""

    @virtually
    async def test_a_request_with_an_early_turn_may_ask_late(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        calls = fleet.worker().shared
        assert calls is not None
        running, early, late = (shared_place(calls, name) for name in ("running", "early", "late"))
        async with late:
            async with early:
                async with running:
                    await running.take()
                    # The database has given the early request its turn, but its answer is slow to arrive.
                    fleet.limits[0].start([limited("early")])
                    late_turn = asyncio.create_task(late.take())
                    await asyncio.sleep(2.0)
                    early_turn = asyncio.create_task(early.take())
                    await asyncio.sleep(2.0)
                async with asyncio.timeout(2.0):
                    await early_turn
            async with asyncio.timeout(2.0):
                await late_turn

    @virtually
    async def test_a_free_place_is_used_at_once_with_fifty_waiting(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        first = asyncio.create_task(ask(fleet.worker(), fleet.agent(seconds=100.0)))
        await asyncio.sleep(1.0)
        workers = [fleet.worker(concurrency=25) for _ in range(2)]
        agent = fleet.agent(seconds=0.1)
        waiting = [asyncio.create_task(ask(workers[number % 2], agent)) for number in range(50)]
        await asyncio.gather(first, *waiting)
        assert fleet.starts[1] - 100.0 < 2.0
        assert max(after - before for before, after in pairwise(fleet.starts[1:])) < 2.0

    @virtually
    async def test_free_money_is_used_at_once_with_fifty_waiting(self, database: Database) -> None:
        fleet = Fleet(database, monthly_usd=500.0)
        first = asyncio.create_task(ask(fleet.worker(), fleet.agent(seconds=100.0)))
        await asyncio.sleep(1.0)
        caller = fleet.worker(concurrency=50)
        agent = fleet.agent(seconds=0.1)
        waiting = [asyncio.create_task(ask(caller, agent)) for _ in range(50)]
        await asyncio.gather(first, *waiting)
        assert fleet.starts[1] - 100.0 < 2.0

    @virtually
    async def test_a_cancelled_request_stops_no_other(self, database: Database) -> None:
        fleet, chance = Fleet(database, concurrency=2), random.Random(5)
        workers = [fleet.worker(concurrency=20, process=number % 2) for number in range(4)]
        agent = fleet.agent(seconds=0.5, chance=chance)
        calls = [asyncio.create_task(ask(workers[number % 4], agent)) for number in range(60)]
        cancelled = set[asyncio.Task[AgentResult]]()
        for call in chance.sample(calls, 30):
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            if not call.done():
                call.cancel()
                cancelled.add(call)
        async with asyncio.timeout(120.0):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for call, outcome in zip(calls, outcomes, strict=True):
            assert isinstance(outcome, AgentResult) or call in cancelled
        assert len(cancelled) > 10
        assert fleet.is_empty()

    @virtually
    async def test_two_repositories_take_turns_at_one_account(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        agent = fleet.agent()
        one, other = (fleet.worker(repository=name, process=1) for name in ("one", "other"))
        calls = []
        for name in "abcdef":
            caller = one if name in "ace" else other
            calls.append(asyncio.create_task(ask(caller, agent, prompt=name)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*calls)
        assert "".join(fleet.asked) == "abcdef"
        assert fleet.starts[-1] < 12.0

    @virtually
    async def test_a_blocked_repository_lets_another_one_pass(self, database: Database) -> None:
        fleet = Fleet(database, monthly_repository_usd=1.0, concurrency=5)
        # The price at this account is known, so that only the money of the repository is scarce.
        await ask(fleet.worker(repository="before"), ScriptedAgent([HELLO], cost_usd=0.6))
        fleet.starts.clear()
        blocked, free = (fleet.worker(repository=name, process=1) for name in ("blocked", "free"))
        slow = asyncio.create_task(ask(blocked, ScriptedAgent([Delay(100.0, HELLO)], cost_usd=0.6)))
        await asyncio.sleep(1.0)
        later = asyncio.create_task(ask(blocked, fleet.agent()))
        await asyncio.sleep(1.0)
        await ask(free, fleet.agent())
        assert fleet.starts == [pytest.approx(2.0, abs=0.1)]
        await asyncio.gather(slow, later)
        assert fleet.starts[1] == pytest.approx(100.0, abs=2.0)


class TestPolling:
    @virtually
    async def test_a_runtime_asks_the_database_a_few_times_a_second(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        caller = fleet.worker()
        looks = count()
        start = fleet.limits[0].start

        def counted(wanted: Sequence[LimitedRequest]) -> object:
            next(looks)
            return start(wanted)

        fleet.limits[0].start = counted  # type: ignore[method-assign, assignment]
        agent = fleet.agent(seconds=60.0)
        await asyncio.gather(*(ask(caller, agent) for _ in range(5)))
        # For all five together, in 240 seconds.
        assert next(looks) < 320
        assert fleet.starts == pytest.approx([0, 60, 120, 180, 240], abs=2.0)


class TestTurns:
    @virtually
    async def test_requests_start_by_priority_and_then_by_turn(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        agent = fleet.agent()
        calls = []
        for priority, names in ((Priority.SWEEP, "abc"), (Priority.PULL_REQUEST, "de"), (Priority.PERSON, "fg")):
            workers = [fleet.worker(priority) for _ in range(2)]
            for number, name in enumerate(names):
                calls.append(asyncio.create_task(ask(workers[number % 2], agent, prompt=name)))
                await asyncio.sleep(0.01)
        await asyncio.gather(*calls)
        assert "".join(fleet.asked) == "afgdebc"

    @virtually
    async def test_the_first_wait_for_a_place_does_not_use_the_timeout(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        one, other = fleet.worker(), fleet.worker()
        first = asyncio.create_task(ask(one, fleet.agent(seconds=100.0)))
        await asyncio.sleep(0.01)
        answer = await ask(other, fleet.agent(seconds=5.0), timeout_seconds=10.0)
        assert virtual_clock() == pytest.approx(105, abs=1.1)
        assert answer.output == "hello"
        await first
        agent = fleet.agent(overloaded())
        again = asyncio.create_task(ask(one, agent, timeout_seconds=10.0))
        await asyncio.sleep(0.01)
        long = asyncio.create_task(ask(other, fleet.agent(seconds=100.0)))
        with pytest.raises(TimedOut, match="too little time was left for another attempt"):
            await again
        await long
        assert fleet.is_empty()

    @virtually
    async def test_a_cancelled_request_ends_and_counts_only_if_it_was_sent(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=1)
        caller = fleet.worker()
        running = asyncio.create_task(ask(caller, ScriptedAgent([Hang()])))
        await asyncio.sleep(1)
        waiting = asyncio.create_task(ask(caller, fleet.agent()))
        await asyncio.sleep(1)
        for task in (waiting, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (fleet.is_empty(), fleet.starts, fleet.spent()["all"]) == (True, [], (0.0, 1, 1))

    @virtually
    async def test_one_row_keeps_all_permits_of_a_process(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=5)
        caller, other = fleet.worker(), fleet.worker()
        calls = [asyncio.create_task(ask(caller, fleet.agent(seconds=300.0))) for _ in range(5)]
        await asyncio.sleep(0.01)
        await ask(other, fleet.agent())
        # Each permit was valid for ten leases.
        assert fleet.starts[-1] == pytest.approx(300, abs=1.1)
        await asyncio.gather(*calls)
        ended = database.select("SELECT max(expires_at) FROM processes")[0][0]
        await asyncio.sleep(100)
        assert database.select("SELECT max(expires_at) FROM processes")[0][0] == ended


class TestRefusal:
    @virtually
    async def test_a_refusal_slows_all_workers_until_successes_raise_the_limit(self, database: Database) -> None:
        fleet = Fleet(database, concurrency=8)
        one, other = fleet.worker(), fleet.worker(concurrency=20)
        met = asyncio.create_task(ask(one, fleet.agent(rate_limited(20))))
        await asyncio.sleep(0.5)
        agent = fleet.agent()
        calls = [asyncio.create_task(ask(other, agent)) for _ in range(60)]
        await asyncio.sleep(15)
        assert len(fleet.starts) == 1
        await met
        await asyncio.gather(*calls)
        assert min(fleet.starts[1:]) >= 20
        assert most_in([start for start in fleet.starts if start < 21.9], 0.9) == 4
        assert most_in(fleet.starts[-10:], 0.9) > 4
        assert agent.max_seen <= 8

    @virtually
    async def test_a_used_up_quota_applies_to_all_workers(self, database: Database) -> None:
        fleet = Fleet(database)
        one, other = fleet.worker(), fleet.worker()
        for caller, agent in ((one, fleet.agent(rate_limited(7200))), (other, fleet.agent())):
            with pytest.raises(RateLimited, match="it opens again at 2030-01-01 02:00:00 UTC"):
                await ask(caller, agent)
        assert (len(fleet.starts), fleet.is_empty()) == (1, True)


class TestMoney:
    @pytest.mark.parametrize("spread", SPREADS)
    def test_a_budget_is_exceeded_by_one_answer_of_each_worker_at_most(self, database: Database, spread: str) -> None:
        self._spend_months(database, spread, range(1))

    @pytest.mark.soak
    @pytest.mark.timeout(1800)
    @pytest.mark.parametrize("spread", SPREADS)
    def test_a_budget_is_never_exceeded_by_more_for_any_seed(self, database: Database, spread: str) -> None:
        self._spend_months(database, spread, range(100, 115))

    def _spend_months(self, database: Database, spread: str, seeds: Iterable[int]) -> None:
        for seed in seeds:
            for table in ("spending", "limit_accounts"):
                database.change(f"DELETE FROM {table}")
            chance = random.Random(f"{spread} {seed}")
            run_virtually(self._spend(Fleet(database, monthly_usd=chance.uniform(2.0, 15.0)), chance, spread))

    async def _spend(self, fleet: Fleet, chance: random.Random, spread: str) -> None:
        answers = list[float]()

        def step(_request: object) -> AgentStep:
            usd = chance.uniform(0.0, 1.0)
            if spread == "rarely dear":
                usd = chance.choice([0.01] * 9 + [1.0])
            elif spread == "cheap first":
                usd = min(1.0, 0.02 * (len(answers) + 1))
            answers.append(usd)
            return Delay(chance.uniform(0.5, 5.0), result(total_cost_usd=usd))

        workers = [fleet.worker() for _ in range(4)]
        agent = ScriptedAgent([step])
        outcomes = await asyncio.gather(
            *(ask(workers[number % 4], agent) for number in range(80)), return_exceptions=True
        )
        limit = fleet.options["monthly_usd"]
        spent, requests, _ = fleet.spent()["all"]
        assert spent == pytest.approx(sum(answers))
        assert spent <= limit + 4 * 1.0, (spent, limit)
        refused = [one for one in outcomes if isinstance(one, BudgetExhausted)]
        assert len(refused) + requests == 80
        assert not refused or spent >= limit
        assert fleet.is_empty()

    @virtually
    async def test_the_reservation_of_a_dead_worker_ends_with_its_lease(self, database: Database) -> None:
        fleet = Fleet(database, monthly_usd=1.0)
        caller, dead = fleet.worker(), fleet.worker()
        shared = dead.shared
        assert shared is not None
        agent = fleet.agent()
        place = dead.limiter(agent).place()
        lost = await shared.request(request(), agent, place=place, repo=None, budget=dead.budget, reads=False)
        await lost.take()
        await ask(caller, agent)
        assert fleet.starts == [pytest.approx(30.0, abs=1.1)]

    @virtually
    async def test_a_repository_and_a_team_have_budgets_of_their_own(self, database: Database) -> None:
        fleet = Fleet(database, monthly_usd=100.0, team="core", monthly_team_usd=3.0, monthly_repository_usd=2.0)
        one, other = fleet.worker(repository="one"), fleet.worker(repository="other")
        agent = ScriptedAgent([HELLO], cost_usd=1.0)
        for _ in range(2):
            await ask(one, agent)
        with pytest.raises(BudgetExhausted, match="the budget of the repository one for 2030-01"):
            await ask(one, agent)
        await ask(other, agent)
        with pytest.raises(BudgetExhausted, match="the budget of the team core for 2030-01") as caught:
            await ask(other, agent)
        assert "raise monthly_team_budget_usd" in caught.value.hint
        assert one.spent.requests == 2
        await ask(fleet.worker(repository="other", team="web"), agent)
        assert fleet.spent() == {
            "all": (4.0, 4, 0),
            "repository one": (2.0, 2, 0),
            "repository other": (2.0, 2, 0),
            "team core": (3.0, 3, 0),
            "team web": (1.0, 1, 0),
        }

    @virtually
    async def test_unknown_costs_are_counted_and_reported(self, database: Database) -> None:
        fleet = Fleet(database, monthly_usd=5.0)
        caller = fleet.worker()
        agent = ScriptedAgent([Delay(1.0, HELLO)], cost_usd=None)
        answers = await asyncio.gather(*(ask(caller, agent) for _ in range(7)))
        assert fleet.spent()["all"] == (0.0, 7, 7)
        assert "does not report its cost" in answers[0].notes[0]
        # Requests of an agent without a price run at once after some answers.
        assert agent.max_seen > 1
        with pytest.raises(AgentError):
            await ask(caller, ScriptedAgent([rate_limited(4000)]))
        assert fleet.spent()["all"] == (0.0, 8, 7)


def test_an_account_is_named_by_key_and_address_and_reveals_neither() -> None:
    keys = [made_up_token(letter) for letter in "ab"]
    environments: list[dict[str, str]] = [{}, *({"ANTHROPIC_API_KEY": key} for key in keys)]
    environments.append({"ANTHROPIC_API_KEY": keys[0], "ANTHROPIC_BASE_URL": "https://example.com"})
    names = [account_of(ClaudeCliAgent(environment=each), request()) for each in environments]
    api = [{"OPENAI_API_KEY": key} for key in keys]
    settings = Settings(api_model="openai:gpt-5")
    names += [account_of(make_agent("api", settings, environment=each), request()) for each in api]
    names.append(account_of(ScriptedAgent(), request()))
    assert len(set(names)) == 7
    assert all(key not in name for key in keys for name in names)
    assert account_of(ClaudeCliAgent(environment=environments[1]), request(prompt="other")) == names[1]
