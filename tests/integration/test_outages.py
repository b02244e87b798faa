"""A database that cannot store answers for longer than the patience: no paid answer is lost or paid for again."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psycopg
import pytest

from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, DatabaseReachable, DatabaseUnreachable
from codeloupe.model.ports import Agent
from codeloupe.runtime import Runtime
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.ledger import Asked, DatabaseLedger, content_key
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.spool import SpooledLedger, open_spool, spooled_answers
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import ScriptedAgent, Text
from tests.endings import comes_to_pass, ends_soon
from tests.unit.store.history_samples import record
from tests.unit.store.samples import request, result
from tests.warm_program import codeloupe

# The tests wait for the end of the patience, so it is short.
PATIENCE_SECONDS = 0.3
RETRY_SECONDS = 0.05


@pytest.fixture
def server(postgres_data: Path) -> Iterator[PostgresServer]:
    made = PostgresServer(postgres_data, durable=False)
    made.start()
    yield made
    made.stop()


def key_of(asked: AgentRequest, agent: Agent) -> str:
    return content_key(asked, Asked(agent=agent.name, model=None, service=None, trust="trusted"))


class Process:
    """A process of this machine that makes agent calls with a shared database."""

    def __init__(self, url: str, home: Path) -> None:
        self.database = PostgresDatabase(url, patience_seconds=PATIENCE_SECONDS)
        self.ledger = SpooledLedger(DatabaseLedger(self.database), home, retry_seconds=RETRY_SECONDS)
        self.events: list[AgentEvent] = []
        self._folder = Path(__file__).parent
        self._caller = AgentCaller(ledger=self.ledger, key_of=key_of)

    def ask(self, agent: Agent, *prompts: str) -> list[AgentResult]:
        async def ask_all() -> list[AgentResult]:
            answers: list[AgentResult] = []
            for prompt in prompts:
                asked = request(prompt=prompt, tools=(), working_dir=self._folder)
                answers.append(await self._caller.call(asked, agent=agent, emit=self.events.append))
            return answers

        return asyncio.run(ask_all())

    def changes(self) -> list[str]:
        """Return the lines about the database that the user saw."""
        seen = (event for event in self.events if isinstance(event, DatabaseUnreachable | DatabaseReachable))
        return [event.summary for event in seen]

    def stored(self) -> int:
        return int(self.database.select("SELECT count(*) FROM results")[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()
        self.database.close()


def answer_during_outage(server: PostgresServer) -> ScriptedAgent:
    """Return an agent whose server stops while it answers."""

    def stop(_request: AgentRequest) -> Text:
        server.stop()
        return Text("paid for")

    return ScriptedAgent([stop])


@pytest.mark.defect("M2")
def test_an_answer_of_an_outage_is_stored_locally_and_moved_afterwards(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = answer_during_outage(server)
    with Process(server.url, tmp_path) as process:
        (answer,) = process.ask(agent, "a question")
        assert (answer.output, answer.stored) == ("paid for", True)
        assert "stored on this machine" in answer.notes[0]
        (line,) = process.changes()
        assert line.startswith("database unreachable since ")
        assert line.endswith(", 1 answer stored locally")
        # The same process finds it although the database is still unreachable. The next one does not pay again.
        assert process.ask(agent, "a question")[0].from_ledger
        with Process(server.url, tmp_path) as another, pytest.raises(StoreUnavailable):
            another.ask(agent, "a question")
        assert len(agent.requests) == 1
        server.start()
        assert comes_to_pass(lambda: isinstance(process.ledger.last_event, DatabaseReachable))
        assert (process.stored(), process.ledger.spool.count()) == (1, 0)
        assert process.ask(agent, "a question")[0].from_ledger
        assert process.changes()[1:] == ["database reachable again; 1 answer stored"]
    assert len(agent.requests) == 1
    assert [message for message in caplog.messages if message.startswith("database reachable")] == process.changes()[1:]


@pytest.mark.defect("M2")
def test_the_next_process_moves_answers_with_its_first_use(server: PostgresServer, tmp_path: Path) -> None:
    with Process(server.url, tmp_path) as process:
        process.ask(answer_during_outage(server), "a question")
    server.start()
    with process.database:
        assert spooled_answers(process.database, tmp_path) == 1
    with Process(server.url, tmp_path) as later:
        agent = ScriptedAgent([Text("another")])
        assert later.ask(agent, "a question", "another question")[0].output == "paid for"
        assert (later.stored(), later.ledger.spool.count()) == (2, 0)
        assert later.changes() == ["database reachable again; 1 answer stored"]
    assert len(agent.requests) == 1


@pytest.mark.defect("M2")
def test_a_full_disk_of_the_server_costs_no_answer(server: PostgresServer, tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("paid for")])
    with Process(server.url, tmp_path) as process, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION codeloupe.fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END$$"
        )
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON codeloupe.results EXECUTE FUNCTION codeloupe.fail()"
        )
        assert [answer.stored for answer in process.ask(agent, "one", "two", "one")] == [True] * 3
        assert len(agent.requests) == 2
        line = process.changes()[-1]
        assert line.startswith("database cannot store answers since ")
        assert line.endswith(", 2 answers stored locally")
        connection.execute("DROP TRIGGER full_disk ON codeloupe.results")
        assert comes_to_pass(lambda: process.ledger.spool.count() == 0)
        assert process.stored() == 2


@pytest.mark.defect("M2")
def test_after_the_patience_steps_fail_at_once_until_the_server_answers(server: PostgresServer) -> None:
    patience_seconds = 2.0
    with PostgresDatabase(server.url, patience_seconds=patience_seconds) as database:
        history = DatabaseHistory(database)
        for _ in range(2):
            history.save(record(1))
            server.stop()
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                history.save(record(2))
            assert time.monotonic() - began >= patience_seconds
            with ends_soon():
                # With a patience for each of them, this would take 80 s.
                for number in range(40):
                    with pytest.raises(StoreUnavailable):
                        history.save(record(number))
            server.start()


def test_an_answer_that_is_not_json_is_not_spooled(server: PostgresServer, tmp_path: Path) -> None:
    with Process(server.url, tmp_path) as process:
        with pytest.raises(StoreError, match="not valid JSON"):
            process.ledger.put("k", result(structured={1, 2}))
        assert process.ledger.spool.count() == 0
        assert process.changes() == []


def test_the_spool_of_a_database_is_the_same_under_every_address(
    postgres_url: str, other_postgres_url: str, tmp_path: Path
) -> None:
    names: list[str] = []
    for url in (postgres_url, postgres_url.replace("postgresql://", "postgres://"), other_postgres_url):
        with PostgresDatabase(url) as database:
            names.append(open_spool(database, tmp_path).database.name)
    assert names[0] == names[1] != names[2]


def test_spooled_answers_are_shown(server: PostgresServer, tmp_path: Path, home: Path) -> None:
    state = tmp_path / "state"
    with Process(server.url, state) as process:
        process.ask(answer_during_outage(server), "a question")
    server.start()
    environment = {"CODELOUPE_HOME": str(state), "CODELOUPE_DATABASE": server.url}
    shown = codeloupe("store", "show", cwd=tmp_path, environment=environment)
    assert "spool          1 answer on this machine, not in the database yet\n" in shown.stdout
    words = ("store", "migrate", "--from", server.url, "--to", str(tmp_path / "copy.sqlite3"))
    copied = codeloupe(*words, cwd=tmp_path, environment=environment)
    assert copied.exit_code == 0
    assert "1 answer on this machine will be moved to the source when it is used again" in copied.stderr


@pytest.mark.defect("M2")
def test_a_runtime_spools_answers_and_its_successor_pays_nothing(server: PostgresServer, tmp_path: Path) -> None:
    agent = answer_during_outage(server)

    async def ask() -> AgentResult:
        database = PostgresDatabase(server.url, patience_seconds=PATIENCE_SECONDS)
        with database:
            async with Runtime(Settings(), agents=[agent], database=database, state_directory=tmp_path) as runtime:
                return await runtime.run_agent(request(working_dir=tmp_path, tools=()))

    assert not asyncio.run(ask()).from_ledger
    server.start()
    assert asyncio.run(ask()).from_ledger
    assert len(agent.requests) == 1


def test_answers_of_a_known_outage_do_not_wait_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []
    real = DatabaseLedger.put

    def counted(ledger: DatabaseLedger, key: str, result: AgentResult) -> bool:
        if ledger.database is database:
            attempts.append(key)
        return real(ledger, key, result)

    monkeypatch.setattr(DatabaseLedger, "put", counted)
    file = tmp_path / "codeloupe.sqlite3"
    with SqliteDatabase(file, busy_timeout_seconds=0.1) as database:
        ledger = SpooledLedger(DatabaseLedger(database), tmp_path, retry_seconds=3_600.0)
        ledger.open()
        lock = sqlite3.connect(file, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        for number in range(3):
            assert not ledger.put(f"key {number}", AgentResult(success=True, agent="scripted", output="paid for"))
        assert attempts == ["key 0"]
        lock.execute("ROLLBACK")
        lock.close()
        ledger.close()
        assert (DatabaseLedger(database).count(), spooled_answers(database, tmp_path)) == (3, 0)


def test_an_answer_that_a_locked_file_cannot_store_is_stored_beside_it(tmp_path: Path) -> None:
    def locked(_request: AgentRequest) -> Text:
        lock.execute("BEGIN IMMEDIATE")
        return Text("paid for")

    agent = ScriptedAgent([locked])
    file = tmp_path / "codeloupe.sqlite3"

    def ask() -> AgentResult:
        """Ask in a process of its own, as far as the database can tell."""
        with (
            SqliteDatabase(file, busy_timeout_seconds=0.1) as database,
            AgentCalls([agent], state_directory=tmp_path, database=database) as calls,
        ):
            caller = calls.caller(Settings(), key_of=key_of, watch_files=None)
            asked = request(prompt="a question", tools=(), working_dir=tmp_path)
            return asyncio.run(caller.call(asked, agent=agent, emit=lambda _event: None))

    with SqliteDatabase(file) as made:
        made.select("SELECT 1")
    lock = sqlite3.connect(file, isolation_level=None)
    first = ask()
    assert (first.output, first.stored, spooled_answers(made, tmp_path)) == ("paid for", True, 1)
    assert ask().from_ledger
    lock.execute("ROLLBACK")
    lock.close()
    assert ask().from_ledger
    assert (spooled_answers(made, tmp_path), len(agent.requests)) == (0, 1)
    with made:
        assert made.select("SELECT count(*) FROM results") == [(1,)]
