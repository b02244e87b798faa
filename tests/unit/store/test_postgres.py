"""What a shared database does that a file does not: it is away, silent, behind a pooler, or meets other processes."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from codeloupe.config.schema import Settings
from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.model.agent import AgentRequest
from codeloupe.model.history import HistoryQuery
from codeloupe.runtime import Runtime
from codeloupe.store import without_password
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.schema import SchemaStep, schema_steps
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.system.process import uninterrupted
from codeloupe.testing import ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS
from tests.postgres_proxy import STARTUP, Proxy, proxy_before
from tests.rows import each
from tests.unit.store.history_samples import commit_review, identifier, named, record, sweep_record
from tests.unit.store.samples import result

pytestmark = pytest.mark.program

NEXT_STEP = SchemaStep("03_next.sql", ("ALTER TABLE reviews ADD COLUMN more text", "CREATE TABLE more (a bigint)"))

# A message of each phase of a transaction that writes.
_PHASES = ((STARTUP, b""), (b"Q", b"BEGIN"), (b"P", b"SELECT"), (b"P", b"INSERT"), (b"Q", b"COMMIT"))
# When the server has begun to write, it also matters whether it has answered.
_MISFORTUNES = [*(("cut", *phase) for phase in _PHASES), *(("cut_after", *phase) for phase in _PHASES[3:])]


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with proxy_before(postgres_url) as made:
        yield made


@each(
    "url, shown",
    [
        ("postgresql://u:geheim@h/x", "postgresql://u@h/x"),
        ("postgresql://u@h/x?sslmode=require&password=geheim", "postgresql://u@h/x?sslmode=require"),
        ("postgresql://u@h/x?pass%77ord=geheim&sslpassword=geheim", "postgresql://u@h/x"),
        ("postgresql://u:gehe@im@h/x", "postgresql://u@h/x"),
        ("postgresql://u:gehe/im?@h/x", "postgresql://u@h/x"),
        ("postgresql://h:5432/x?user=a@b&password=geheim", "postgresql://h@b"),
        ("postgresql://u:%67eheim@[::1]:5432,h2:1/x", "postgresql://u@[::1]:5432,h2:1/x"),
        ("postgresql:///x?host=/run/postgresql&user=u", "postgresql:///x?host=/run/postgresql&user=u"),
        ("postgresql:///?service=team", "postgresql:///?service=team"),
    ],
)
def test_a_url_is_shown_without_whatever_may_be_a_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


class TestLostConnections:
    @each("misfortune, letter, word", _MISFORTUNES)
    def test_a_call_is_claimed_by_one_and_stored_once_wherever_a_connection_is_lost(
        self, postgres_url: str, misfortune: str, letter: bytes, word: bytes
    ) -> None:
        with proxy_before(postgres_url) as proxy, PostgresDatabase(proxy.url) as database:
            ledger, key = DatabaseLedger(database), f"{misfortune} {letter!r} {word!r}"
            database.check()
            for step in ("claim", "put"):
                if letter == STARTUP:
                    database.close()
                proxy.lose(letter, word, misfortune=misfortune)
                if step == "claim":
                    assert ledger.claim(key, lease_seconds=3600)
                    with PostgresDatabase(postgres_url) as another:
                        assert not DatabaseLedger(another).claim(key, lease_seconds=3600)
                else:
                    ledger.put(key, result("paid"))
                assert proxy.met.is_set() or word == b"SELECT"
            proxy.times = 0
            assert database.select("SELECT count(*) FROM results WHERE key = ?", (key,)) == [(1,)]
            assert database.select("SELECT count(*) FROM leases") == [(0,)]

    @each("misfortune, letter, word", _MISFORTUNES)
    def test_a_review_and_a_commit_of_a_sweep_are_saved_once(
        self, postgres_url: str, misfortune: str, letter: bytes, word: bytes
    ) -> None:
        with proxy_before(postgres_url) as proxy, PostgresDatabase(proxy.url) as database:
            history = DatabaseHistory(database)
            database.check()
            for table in ("reviews", "sweeps"):
                database.change(f"DELETE FROM {table}")
            sweep = sweep_record(7)
            saves: list[Callable[[], None]] = [
                lambda: history.save(record(1, named("a"), named("b")), raw_outputs={"u": "said"}),
                lambda: history.add_commit(sweep, commit_review(1, named("c"))),
                lambda: history.add_commit(sweep, commit_review(2)),
            ]
            for save in saves:
                if letter == STARTUP:
                    database.close()
                proxy.lose(letter, word, misfortune=misfortune)
                save()
                assert proxy.met.is_set()
            proxy.times = 0
            assert [entry.commits for entry in history.list(HistoryQuery()).entries] == [2, 0]
            counts = "SELECT (SELECT count(*) FROM findings), (SELECT count(*) FROM sweep_commits)"
            assert database.select(counts) == [(3, 2)]

    def test_what_is_not_there_in_time_is_an_error_and_the_connection_is_not_used_again(self, proxy: Proxy) -> None:
        with PostgresDatabase(proxy.url, silence_seconds=0.3, patience_seconds=0.0) as database:
            database.check()
            for letter, word in ((b"Q", b"BEGIN"), (b"Q", b"INSERT"), (b"Q", b"COMMIT")):
                proxy.lose(letter, word, misfortune="swallow")
                with pytest.raises(StoreUnavailable, match="lost the connection .no response within"):
                    database.check()
                database.check()

    def test_of_a_server_that_is_away_the_waiting_has_one_end_however_deep_it_is(self, proxy: Proxy) -> None:
        with PostgresDatabase(proxy.url, patience_seconds=1.0) as database:
            database.check()
            proxy.lose(b"Q", b"BEGIN", times=1_000)
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="lost the connection"):
                DatabaseLedger(database).put("k", result())
            assert 1.0 <= time.monotonic() - began < PATIENCE_SECONDS
            with pytest.raises(StoreUnavailable):
                database.persist(lambda: database.persist(database.check))
            proxy.times = 0
            database.check()

    def test_who_is_cancelled_does_not_wait_for_a_server_that_is_away(self, proxy: Proxy) -> None:
        async def work(database: PostgresDatabase) -> None:
            task = asyncio.ensure_future(uninterrupted(asyncio.to_thread(DatabaseLedger(database).put, "k", result())))
            await asyncio.to_thread(proxy.met.wait, PATIENCE_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with PostgresDatabase(proxy.url, patience_seconds=3600.0, silence_seconds=3600.0) as database:
            database.check()
            for misfortune in ("cut", "swallow"):
                proxy.lose(b"P", b"INSERT", misfortune=misfortune, times=1_000)
                asyncio.run(work(database))

    def test_a_server_that_restarts_while_an_agent_answers_costs_nothing(
        self, postgres_data: Path, tmp_path: Path
    ) -> None:
        server = PostgresServer(postgres_data, durable=False)
        server.start()

        def restart(_request: AgentRequest) -> Text:
            server.stop()
            server.start()
            return Text("paid for")

        agent = ScriptedAgent([restart])

        async def ask() -> str:
            request = AgentRequest(prompt="look", working_dir=tmp_path, tools=())
            async with Runtime(Settings(database=server.url), agents=[agent]) as runtime:
                return (await runtime.run_agent(request)).output

        try:
            assert [asyncio.run(ask()) for _ in range(2)] == ["paid for"] * 2
            assert len(agent.requests) == 1
        finally:
            server.stop()


class TestSchema:
    def test_a_missing_step_is_applied_once_while_older_processes_continue(self, postgres_url: str) -> None:
        steps = (*schema_steps(), NEXT_STEP)
        with PostgresDatabase(postgres_url) as old:
            DatabaseHistory(old).save(record(1))
            start = threading.Barrier(6)

            def use(_number: int) -> int:
                with PostgresDatabase(postgres_url, steps=steps) as database:
                    start.wait()
                    return database.schema()

            with ThreadPoolExecutor(6) as pool:
                assert list(pool.map(use, range(6))) == [len(steps)] * 6
            DatabaseHistory(old).save(record(2))
            assert len(DatabaseHistory(old).list(HistoryQuery()).entries) == 2
            assert old.select("SELECT more FROM reviews") == [(None,), (None,)]

    def test_a_step_that_fails_changes_nothing_and_is_retried(self, postgres_url: str) -> None:
        failing = SchemaStep("failing.sql", (*NEXT_STEP.statements, "nonsense"))
        with (
            PostgresDatabase(postgres_url, steps=(*schema_steps(), failing)) as database,
            pytest.raises(StoreError, match="syntax error"),
        ):
            database.check()
        with PostgresDatabase(postgres_url, steps=(*schema_steps(), NEXT_STEP)) as database:
            database.check()


class TestSessions:
    def test_what_the_database_and_the_url_set_does_not_disturb(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = postgres_url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for setting in (
                "search_path = public", "default_transaction_isolation = serializable", "bytea_output = escape",
                "standard_conforming_strings = off", "datestyle = 'German'", "timezone = 'Asia/Tokyo'",
            ):  # fmt: skip
                connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        url = f"{postgres_url}&options=-cstatement_timeout%3D60000&application_name=mine"
        with PostgresDatabase(url) as database:
            assert database.select("SELECT current_setting('statement_timeout')") == [("1min",)]
            assert database.select("SELECT current_setting('application_name')") == [("mine",)]
            DatabaseHistory(database).save(record(1, named("ä☃", file="ü\udcff\0.py")))
            found = DatabaseHistory(database).get(identifier(1))
            assert found is not None
            assert found.review.findings[0].file == "ü\udcff\0.py"
            assert abs(database.clock() - time.time()) < PATIENCE_SECONDS

    def test_each_transaction_may_meet_another_session_as_behind_a_pooler(self, postgres_url: str) -> None:
        with PostgresDatabase(postgres_url) as database:
            ledger = DatabaseLedger(database)
            for number in range(8):
                ledger.put(str(number), result())
                with database._lock:
                    for connection in database._idle:
                        connection.execute("DISCARD ALL")
            assert database.select("SELECT count(*) FROM results") == [(8,)]

    def test_after_a_fork_a_database_in_use_is_refused_and_an_unused_one_works(self, postgres_url: str) -> None:
        used, unused = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url)
        with used:
            used.check()
            child = os.fork()
            if not child:
                code = 1
                try:
                    unused.check()
                    unused.close()
                    used.check()
                except StoreError as error:
                    code = 0 if "before this process was forked" in error.message else 2
                finally:
                    used.close()
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            used.check()

    def test_many_threads_share_few_connections_and_none_is_left_in_a_transaction(self, postgres_url: str) -> None:
        insert = "INSERT INTO dismissals VALUES ('r', ?, '')"
        of_ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

        def fail(database: PostgresDatabase, number: int) -> None:
            with database.writing() as session:
                session.execute(insert, (str(number),))
                raise RuntimeError

        with PostgresDatabase(postgres_url, most_connections=3) as database:

            def work(number: int) -> None:
                with pytest.raises(RuntimeError):
                    fail(database, number)
                with pytest.raises(StoreError, match="has unexpected tables"):
                    database.select("SELECT nothing FROM nowhere")
                database.change(insert, (str(number),))

            with ThreadPoolExecutor(12) as pool:
                list(pool.map(work, range(30)))
            assert database.select("SELECT count(*) FROM dismissals") == [(30,)]
            assert database.select(of_ours)[0][0] <= 3
            assert database.select(f"{of_ours} AND state LIKE 'idle in%'") == [(0,)]
