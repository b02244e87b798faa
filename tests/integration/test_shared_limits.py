"""Limits over real processes and during outages of the server, and the budgets that a runtime counts for."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from codeloupe import AgentRequest, CommitScope, Pipeline, RunOptions, Runtime, Settings
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult, Priority
from codeloupe.store import open_database
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import AgentStep, Json, ScriptedAgent, Text
from tests.endings import comes_to_pass
from tests.limit_worker import Worker
from tests.pipeline_files import write_pipeline
from tests.repository import GitRepository

HELLO = Text("hello")


async def name_of(_repo: Path) -> tuple[str, str]:
    return "r", "r"


def caller_on(database: PostgresDatabase, **options: object) -> AgentCaller:
    limits, given = SharedLimits(database, lease_seconds=0.6), SharedOptions(**options)  # type: ignore[arg-type]
    shared = SharedCalls(limits, given, timing=Timing(), priority=Priority.PERSON, name_of=name_of)
    return AgentCaller(CallerOptions(concurrency=5), shared=shared)


async def ask(caller: AgentCaller, agent: ScriptedAgent) -> AgentResult:
    request = AgentRequest(prompt="p", working_dir=Path(), timeout_seconds=60.0)
    return await caller.call(request, agent=agent, emit=lambda _event: None)


@pytest.mark.defect("M3")
def test_starts_are_paced_over_four_real_processes(postgres_url: str) -> None:
    with PostgresDatabase(postgres_url) as database:
        with database.writing() as connection:
            # The row of a request is deleted at its end, so its start is recorded in another table.
            connection.execute("CREATE TABLE seen (at double precision)")
            connection.execute(
                "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN INSERT INTO seen VALUES (new.started_at); RETURN new; END'"
            )
            connection.execute(
                "CREATE TRIGGER see AFTER INSERT OR UPDATE ON limited_requests FOR EACH ROW"
                " WHEN (new.started_at IS NOT NULL) EXECUTE FUNCTION see()"
            )
        workers = [Worker(postgres_url, calls=15, calls_per_minute=1200, concurrency=40) for _ in range(4)]
        for worker in workers:
            worker.go()
        assert all(worker.end().splitlines() == ["asked"] * 15 + ["done"] for worker in workers)
        starts = [at for (at,) in database.select("SELECT at FROM seen ORDER BY at")]
        assert len(starts) == 60
        assert min(after - before for before, after in pairwise(starts)) >= 0.05 - 1e-6


@pytest.mark.defect("M3")
@pytest.mark.parametrize(("agent", "package"), [("api", "anthropic"), ("agent_sdk", "claude_agent_sdk")])
def test_preparing_an_agent_loads_its_packages(agent: str, package: str, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom codeloupe import AgentRequest, Settings\n"
        "from codeloupe.agents.registry import make_agent\n"
        f"agent = make_agent({agent!r}, Settings(api_model='anthropic:claude-opus-4-8'))\n"
        "loaded = [agent.limits, *sys.modules]\n"
        f"asyncio.run(agent.prepare(AgentRequest(prompt='p', working_dir=Path({str(tmp_path)!r}))))\n"
        f"print({package!r} in loaded, {package!r} in sys.modules)"
    )
    ended = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]


def test_a_killed_worker_releases_its_place_and_money_at_once(postgres_url: str) -> None:
    options: dict[str, Any] = {"concurrency": 2, "monthly_usd": 1.5}
    killed = Worker(postgres_url, "hang", calls=3, **options)
    killed.go()
    killed.reads("asked")
    other = Worker(postgres_url, calls=1, **options)
    other.go()
    with PostgresDatabase(postgres_url) as database:
        waiting = "SELECT count(*) FROM limited_requests WHERE started_at IS NULL"
        assert comes_to_pass(lambda: database.select(waiting) == [(3,)])
        assert killed.end(signal.SIGKILL) == ""
        # The lease would end much later.
        assert other.end().splitlines() == ["asked", "done"]
        assert database.select("SELECT usd, requests, unknown_costs FROM spending WHERE budget = 'all'") == [
            (1.0, 2, 1)
        ]
        assert database.select("SELECT count(*) FROM limited_requests") == [(0,)]


def test_a_budget_over_three_processes_is_exceeded_by_an_answer_of_each(postgres_url: str) -> None:
    workers = [Worker(postgres_url, calls=10, monthly_usd=5.5) for _ in range(3)]
    for worker in workers:
        worker.go()
    reports = [worker.end().splitlines() for worker in workers]
    asked = sum(report.count("asked") for report in reports)
    refused = sum(report.count("refused") for report in reports)
    # Each answer costs a dollar.
    assert 6 <= asked <= 8
    assert asked + refused == 30
    with PostgresDatabase(postgres_url) as database:
        assert database.select("SELECT usd, requests FROM spending WHERE budget = 'all'") == [(asked, asked)]


class TestLostServer:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[PostgresServer]:
        with PostgresServer(tmp_path / "pg", durable=False) as running:
            yield running

    def test_a_call_survives_a_restart_and_its_cost_counts_once(self, server: PostgresServer) -> None:
        def restart(_request: AgentRequest) -> AgentStep:
            server.stop()
            server.start()
            return HELLO

        with PostgresDatabase(server.url) as database:
            answer = asyncio.run(ask(caller_on(database), ScriptedAgent([restart], cost_usd=1.0)))
            assert (answer.output, answer.notes) == ("hello", ())
            spent = database.select("SELECT usd, requests FROM spending WHERE budget = 'all'")
            assert spent == [(1.0, 1)]

    def test_an_answer_during_an_outage_is_used_and_counted_later(self, server: PostgresServer) -> None:
        def lose(_request: AgentRequest) -> AgentStep:
            server.stop()
            return HELLO

        async def calls(database: PostgresDatabase) -> None:
            caller, agent = caller_on(database), ScriptedAgent([lose], cost_usd=1.0)
            answer = await ask(caller, agent)
            assert answer.output == "hello"
            assert "the cost of this call could not be recorded yet" in answer.notes[0]
            with pytest.raises(StoreError, match="the database"):
                await ask(caller, agent)
            assert len(agent.requests) == 1
            server.start()
            rows = "SELECT usd, requests, (SELECT count(*) FROM limited_requests) FROM spending WHERE budget = 'all'"
            # A request that could not be started may have been stored, and is then withdrawn.
            settled = partial(comes_to_pass, lambda: database.select(rows) == [(1.0, 1, 0)])
            assert await asyncio.to_thread(settled)

        with PostgresDatabase(server.url, patience_seconds=0.3) as database:
            asyncio.run(calls(database))


class TestRuntime:
    @pytest.fixture
    def project(self, repository: GitRepository) -> Path:
        repository.commit_files({"a.py": "print(1)\n"})
        repository.commit_files({"a.py": "print(2)\n"})
        repository.git("remote", "add", "origin", "https://ada:secret@example.com/team/code.git")
        return repository.path

    @pytest.fixture
    def agent(self) -> ScriptedAgent:
        def step(asked: AgentRequest) -> AgentStep:
            return HELLO if asked.output_schema is None else Json({"findings": []})

        return ScriptedAgent([step], cost_usd=1.0)

    @pytest.mark.parametrize("is_shared", [True, False])
    def test_reviews_and_calls_count_for_their_repository(
        self, request: pytest.FixtureRequest, project: Path, agent: ScriptedAgent, tmp_path: Path, *, is_shared: bool
    ) -> None:
        url = request.getfixturevalue("postgres_url") if is_shared else None

        async def work(runtime: Runtime) -> None:
            await runtime.review(CommitScope("HEAD"), repo=project)
            await runtime.run_agent(AgentRequest(prompt="p", working_dir=project), fresh=True)

        run_on(url, agent, tmp_path, work)
        assert counted_in(url, tmp_path) == paid_by_all(len(agent.requests))

    def test_pipelines_count_for_their_repository(self, project: Path, agent: ScriptedAgent, tmp_path: Path) -> None:
        pipeline = Pipeline.load(write_pipeline(tmp_path))

        async def work(runtime: Runtime) -> None:
            await runtime.run_pipeline(pipeline, options=RunOptions(repo=project))

        run_on(None, agent, tmp_path, work)
        assert counted_in(None, tmp_path) == paid_by_all(len(agent.requests))


def run_on(url: str | None, agent: ScriptedAgent, directory: Path, work: Callable[[Runtime], Awaitable[None]]) -> None:
    settings = Settings(database=url, team="core", monthly_team_budget_usd=50.0)

    async def main() -> None:
        async with Runtime(settings, agents=[agent], state_directory=directory) as runtime:
            await work(runtime)

    asyncio.run(main())


def counted_in(url: str | None, directory: Path) -> list[tuple[object, ...]]:
    with open_database(url, directory) as database:
        rows = database.select("SELECT budget, label, agent, usd, requests FROM spending ORDER BY budget")
    return [(row[0].partition(":")[0], *row[1:]) for row in rows]


def paid_by_all(requests: int) -> list[tuple[object, ...]]:
    """Return the rows of so many requests, each paid by all three budgets."""
    assert requests
    cost = ("scripted", float(requests), requests)
    return [
        ("all", "all work", *cost),
        ("repository origin", "example.com/team/code", *cost),
        ("team core", "core", *cost),
    ]


def test_without_a_shared_database_a_run_loads_no_limits(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from codeloupe import AgentRequest, Runtime, Settings\nfrom codeloupe.testing import ScriptedAgent\n"
        "async def main():\n"
        f"    async with Runtime(Settings(), agents=[ScriptedAgent()], state_directory={str(tmp_path)!r}) as runtime:\n"
        f"        await runtime.run_agent(AgentRequest(prompt='p', working_dir=Path({str(tmp_path)!r})))\n"
        "asyncio.run(main())\nprint(*sys.modules)"
    )
    loaded = set(
        subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout.split()
    )
    assert "codeloupe.agents.calls.caller" in loaded
    assert loaded.isdisjoint({"psycopg", "codeloupe.store.limits", "codeloupe.store.postgres"})
