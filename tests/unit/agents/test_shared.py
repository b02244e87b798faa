"""Agent calls under limits that many processes share: whole callers on a real server, most of them in virtual time."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions
from codeloupe.model.agent import AgentResult, Priority
from codeloupe.store.ledger import Owner
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.testing import AgentStep, Delay, ScriptedAgent, Text
from tests.unit.agents.samples import rate_limited, request, unheard
from tests.unit.agents.virtual_time import MIDNIGHT, virtual_clock, virtual_timing, virtually

pytestmark = pytest.mark.program
HELLO = Text("hello")


class Fleet:
    """Callers as many processes have them, each with its own owner, in one event loop."""

    def __init__(self, database: PostgresDatabase, **options: Any) -> None:
        self.database = database
        self.options = options
        self.limits: list[SharedLimits] = []
        self.starts: list[float] = []

    def worker(
        self, priority: Priority = Priority.PERSON, *, concurrency: int = 5, repository: str = "r", **limits: Any
    ) -> AgentCaller:
        loop = asyncio.get_running_loop()
        owner = Owner("elsewhere", len(self.limits) + 1, "t")
        shared = SharedLimits(self.database, owner=owner, clock=lambda: MIDNIGHT.timestamp() + loop.time())
        self.limits.append(shared)

        async def name_of(_repo: Path) -> tuple[str, str]:
            return repository, repository

        timing, options = virtual_timing(chance=random.Random(1).random), SharedOptions(**{**self.options, **limits})
        calls = SharedCalls(shared, options, timing=timing, priority=priority, name_of=name_of)
        return AgentCaller(CallerOptions(concurrency=concurrency), timing=timing, shared=calls)

    def agent(self, seconds: float = 1.0, *, chance: random.Random | None = None) -> ScriptedAgent:
        """One that says when it was asked, and answers after a while."""

        def step(_request: object) -> AgentStep:
            self.starts.append(virtual_clock())
            return Delay(seconds if chance is None else chance.uniform(0.2, 2 * seconds), HELLO)

        return ScriptedAgent([step])


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(postgres_url) as opened:
        yield opened


async def ask(caller: AgentCaller, agent: ScriptedAgent, **fields: Any) -> AgentResult:
    return await caller.call(request(**fields), agent=agent, emit=unheard)


def most_in(starts: list[float], seconds: float) -> int:
    """The most starts in any time of that length."""
    ordered, first, most = sorted(starts), 0, 0
    for position, start in enumerate(ordered):
        while start - ordered[first] >= seconds:
            first += 1
        most = max(most, position - first + 1)
    return most


class TestRate:
    @virtually
    async def test_sixty_requests_a_minute_hold_over_four_workers_and_are_used(
        self, database: PostgresDatabase
    ) -> None:
        fleet, chance = Fleet(database, calls_per_minute=60), random.Random(7)
        workers = [fleet.worker(concurrency=20) for _ in range(4)]
        agent = fleet.agent(15.0, chance=chance)
        calls = []
        # A burst of each worker, then others of all sizes; there is always more to do than may be done.
        for number in range(280):
            calls.append(asyncio.create_task(ask(workers[number % 4], agent)))
            if number > 120 and number % 20 == 0:
                await asyncio.sleep(chance.uniform(0, 10))
        await asyncio.gather(*calls)
        assert most_in(fleet.starts, 60.0) <= 60
        for minute in range(4):
            begun = sum(60 * minute <= start < 60 * minute + 60 for start in fleet.starts)
            assert begun >= 57, (minute, begun)
        assert len(fleet.starts) == 280
        assert database.select("SELECT count(*) FROM limited_requests") == [(0,)]

    @virtually
    async def test_an_attempt_that_is_made_again_counts_too(self, database: PostgresDatabase) -> None:
        caller = Fleet(database, calls_per_minute=2).worker()
        agent = ScriptedAgent([rate_limited(1), HELLO])
        await ask(caller, agent)
        await ask(caller, agent)
        assert virtual_clock() == pytest.approx(60.5, abs=0.1)
