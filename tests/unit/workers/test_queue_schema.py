"""The tables of procrastinate: created once by processes that start together, upgraded, and checked by `doctor`."""

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from codeloupe.errors import StoreError
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.queue_schema import QueueState, installed_version, prepare_queue, read_queue_state
from tests.postgres import admin_url_of

pytestmark = pytest.mark.program
_NEXT = "99.01.00_01_add_a_table.sql"
_ROUNDS = 12
_PROCESSES = 4


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(postgres_url) as opened:
        yield opened


@contextmanager
def next_version(folder: Path) -> Iterator[None]:
    """Install the migrations of an invented next version of procrastinate while the block runs."""
    migrations = folder / "migrations"
    shutil.copytree(SchemaManager.get_migrations_path(), migrations)
    (migrations / _NEXT).write_text("CREATE TABLE procrastinate_next (share text DEFAULT '50 % of ?');\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchemaManager, "get_migrations_path", staticmethod(lambda: str(migrations)))
        yield


def state_of(database: PostgresDatabase) -> QueueState:
    with database.snapshot() as connection:
        return read_queue_state(connection)


def test_the_queue_is_created_with_all_migrations_of_procrastinate(database: PostgresDatabase) -> None:
    assert not state_of(database).is_created
    prepare_queue(database)
    state = state_of(database)
    assert (state.is_created, state.missing, state.unknown, state.missing_functions) == (True, (), (), ())
    assert len(state.applied) == len(list(Path(SchemaManager.get_migrations_path()).glob("*.sql")))
    prepare_queue(database)


@pytest.mark.defect("W4")
def test_the_queue_of_an_older_procrastinate_is_upgraded(database: PostgresDatabase) -> None:
    files = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    for file in files:
        if file.name < "03.04":
            with database.writing() as session:
                session.run_script(file.read_text("utf-8"))
                session.execute("INSERT INTO queue_migrations (name) VALUES (?)", (file.name,))
    state = state_of(database)
    assert (state.version, len(state.missing)) == ("3.3.0", 2)
    assert "procrastinate_retry_job_v2" in state.missing_functions
    prepare_queue(database)
    assert (state_of(database).missing, state_of(database).missing_functions) == ((), ())


@pytest.mark.defect("W4")
def test_a_newer_procrastinate_upgrades_the_queue_and_an_older_is_refused(
    database: PostgresDatabase, tmp_path: Path
) -> None:
    prepare_queue(database)
    with next_version(tmp_path):
        prepare_queue(database)
        assert database.select("SELECT count(*) FROM procrastinate_next") == [(0,)]
    with pytest.raises(StoreError) as refused:
        prepare_queue(database)
    assert "upgraded for procrastinate 99.1.0" in refused.value.message
    assert f"this machine has procrastinate {installed_version()}" in refused.value.message
    assert state_of(database).unknown == (_NEXT,)


@pytest.mark.defect("W4")
def test_missing_functions_are_named(database: PostgresDatabase) -> None:
    prepare_queue(database)
    database.change("DROP FUNCTION procrastinate_fetch_job_v2")
    assert state_of(database).missing_functions == ("procrastinate_fetch_job_v2",)
    with pytest.raises(StoreError, match="it lacks procrastinate_fetch_job_v2"):
        prepare_queue(database)


@pytest.mark.defect("W2")
def test_processes_that_meet_an_empty_database_together_create_one_queue(postgres_server: str) -> None:
    server = admin_url_of(postgres_server)
    context = multiprocessing.get_context("fork")
    failures: list[Any] = []
    for number in range(_ROUNDS):
        name = f"first_start_{number}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER codeloupe".encode())
        url = postgres_server.replace("@/codeloupe?", f"@/{name}?")
        barrier = context.Barrier(_PROCESSES)
        processes = [context.Process(target=_start, args=(url, barrier)) for _ in range(_PROCESSES)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        failures += [process.exitcode for process in processes if process.exitcode]
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    assert failures == []


def _start(url: str, barrier: Any) -> None:
    barrier.wait()
    with PostgresDatabase(url) as database:
        prepare_queue(database)
