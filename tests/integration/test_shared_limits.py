"""Limits over real processes and through a server that goes away, and what a runtime counts for whom."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codeloupe import AgentRequest, CommitScope, Pipeline, RunOptions, Runtime, Settings
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult, Priority
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import AgentStep, Json, ScriptedAgent, Text
from tests.endings import comes_to_pass
from tests.pipeline_files import write_pipeline
from tests.repository import GitRepository
from tests.unit.agents.samples import most_in

HELLO = Text("hello")
# A worker: `url`, what it shares, and how many calls it makes. It says when it is ready and when it is asked.
WORKER = """
import asyncio, sys
from pathlib import Path
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions
from codeloupe.model.agent import AgentRequest, Priority
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.testing import Delay, Hang, ScriptedAgent, Text

def step(request):
    print("asked", flush=True)
    return Hang() if request.prompt == "hang" else Delay(0.05, Text("hello"))

async def main(url, options, prompt, calls):
    async def name_of(repo):
        return "r", "r"
    limits = SharedLimits(PostgresDatabase(url), window_seconds=1.5, lease_seconds=300.0)
    shared = SharedCalls(limits, options, timing=Timing(), priority=Priority.PERSON, name_of=name_of)
    caller = AgentCaller(CallerOptions(concurrency=10), shared=shared)
    request = AgentRequest(prompt=prompt, working_dir=Path(), timeout_seconds=120.0)
    agent = ScriptedAgent([step], cost_usd=1.0)
    ready = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("ready", flush=True)
    await ready
    await asyncio.gather(*(caller.call(request, agent=agent, emit=lambda event: None) for _ in range(calls)))
    print("done", flush=True)

asyncio.run(main(sys.argv[1], SharedOptions(**eval(sys.argv[2])), sys.argv[3], int(sys.argv[4])))
"""


class Worker:
    """A process that makes calls when it is let go."""

    def __init__(self, url: str, prompt: str = "work", calls: int = 1, **options: object) -> None:
        words = (sys.executable, "-c", WORKER, url, repr(options), prompt, str(calls))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reads(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def go(self) -> None:
        self.reads("ready")
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self, how: signal.Signals | None = None) -> str:
        if how is not None:
            self.process.send_signal(how)
        return self.process.communicate(timeout=120)[0]


async def name_of(_repo: Path) -> tuple[str, str]:
    return "r", "r"


def caller_on(database: PostgresDatabase, **options: object) -> AgentCaller:
    limits, given = SharedLimits(database, lease_seconds=0.6), SharedOptions(**options)  # type: ignore[arg-type]
    shared = SharedCalls(limits, given, timing=Timing(), priority=Priority.PERSON, name_of=name_of)
    return AgentCaller(CallerOptions(concurrency=5), shared=shared)


async def ask(caller: AgentCaller, agent: ScriptedAgent) -> AgentResult:
    request = AgentRequest(prompt="p", working_dir=Path(), timeout_seconds=60.0)
    return await caller.call(request, agent=agent, emit=lambda _event: None)


def test_a_rate_holds_over_four_real_processes(postgres_url: str) -> None:
    with PostgresDatabase(postgres_url) as database:
        with database.writing() as connection:
            # Old starts are removed, so that they are written down elsewhere, with the server's own time.
            connection.execute("CREATE TABLE seen (at double precision)")
            connection.execute(
                "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN INSERT INTO seen VALUES (new.at); RETURN new; END'"
            )
            connection.execute("CREATE TRIGGER see AFTER INSERT ON limit_starts FOR EACH ROW EXECUTE FUNCTION see()")
        workers = [Worker(postgres_url, calls=15, calls_per_minute=20, concurrency=12) for _ in range(4)]
        for worker in workers:
            worker.go()
        assert all(worker.end().splitlines() == ["asked"] * 15 + ["done"] for worker in workers)
        starts = [at for (at,) in database.select("SELECT at FROM seen")]
        assert len(starts) == 60
        assert most_in(starts, 1.5) == 20


def test_a_worker_that_is_killed_gives_place_and_money_back_at_once(postgres_url: str) -> None:
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
        # Long before the lease ends.
        assert other.end().splitlines() == ["asked", "done"]
        assert database.select("SELECT usd, requests, unknown_costs FROM spending WHERE budget = 'all'") == [
            (1.0, 2, 1)
        ]
        assert database.select("SELECT count(*) FROM limited_requests") == [(0,)]


class TestLostServer:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[PostgresServer]:
        with PostgresServer(tmp_path / "pg", durable=False) as running:
            yield running

    def test_a_call_outlasts_a_restart_and_what_it_cost_is_counted_once(self, server: PostgresServer) -> None:
        def restart(_request: AgentRequest) -> AgentStep:
            server.stop()
            server.start()
            return HELLO

        with PostgresDatabase(server.url) as database:
            answer = asyncio.run(ask(caller_on(database), ScriptedAgent([restart], cost_usd=1.0)))
            assert (answer.output, answer.notes) == ("hello", ())
            spent = database.select("SELECT usd, requests FROM spending WHERE budget = 'all'")
            assert spent == [(1.0, 1)]

    def test_nothing_is_asked_without_its_limit_and_an_answer_is_kept_and_counted_when_the_server_is_back(
        self, server: PostgresServer
    ) -> None:
        def lose(_request: AgentRequest) -> AgentStep:
            server.stop()
            return HELLO

        async def calls(database: PostgresDatabase) -> None:
            caller, agent = caller_on(database), ScriptedAgent([lose], cost_usd=1.0)
            answer = await ask(caller, agent)
            assert answer.output == "hello"
            assert "the cost of this call could not be recorded in the monthly budget" in answer.notes[0]
            with pytest.raises(StoreError, match="the database"):
                await ask(caller, agent)
            assert len(agent.requests) == 1
            server.start()
            rows = "SELECT usd, requests, (SELECT count(*) FROM limited_requests) FROM spending WHERE budget = 'all'"
            # A request that could not be started can have been written down, and is then taken back.
            settled = partial(comes_to_pass, lambda: database.select(rows) == [(1.0, 1, 0)])
            assert await asyncio.to_thread(settled)

        with PostgresDatabase(server.url, patience_seconds=0.3) as database:
            asyncio.run(calls(database))


class TestRuntime:
    def test_reviews_pipelines_and_calls_are_paid_by_their_repository(
        self, postgres_url: str, repository: GitRepository, tmp_path: Path
    ) -> None:
        repository.commit_files({"a.py": "print(1)\n"})
        repository.commit_files({"a.py": "print(2)\n"})
        repository.git("remote", "add", "origin", "https://example.com/team/code.git")
        pipeline = write_pipeline(tmp_path)
        agent = ScriptedAgent(
            [lambda asked: HELLO if asked.output_schema is None else Json({"findings": []})], cost_usd=1.0
        )
        settings = Settings(database=postgres_url, team="core", monthly_team_budget_usd=50.0)

        async def work() -> None:
            async with Runtime(settings, agents=[agent], priority=Priority.SWEEP, state_directory=tmp_path) as runtime:
                await runtime.review(CommitScope("HEAD"), repo=repository.path)
                await runtime.run_agent(AgentRequest(prompt="p", working_dir=repository.path), fresh=True)
                await runtime.run_pipeline(Pipeline.load(pipeline), options=RunOptions(repo=repository.path))

        asyncio.run(work())
        made = len(agent.requests)
        with PostgresDatabase(postgres_url) as database:
            rows = database.select("SELECT budget, usd, requests FROM spending ORDER BY budget")
        assert made >= 3
        assert [row[0].partition(":")[0] for row in rows] == ["all", "repository origin", "team core"]
        assert {row[1:] for row in rows} == {(float(made), made)}


def test_without_a_shared_database_a_run_loads_nothing_of_it(tmp_path: Path) -> None:
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
    parts = {"psycopg", "codeloupe.agents.calls.shared", "codeloupe.model.limits", "codeloupe.store.limits"}
    assert "codeloupe.agents.calls.caller" in loaded
    assert loaded.isdisjoint({*parts, "codeloupe.store.postgres", "codeloupe.git.identity"})
