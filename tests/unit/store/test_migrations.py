"""Numbered steps from any earlier schema to the present one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from codeloupe.store.database import APPLICATION_ID, MIGRATIONS, Database, is_foreign, migrate, schema_version
from codeloupe.store.ledger import SqliteLedger
from tests.rows import rows
from tests.unit.store.samples import result

STEPS = (
    ("CREATE TABLE first (x)", "INSERT INTO first VALUES (1)"),
    ("ALTER TABLE first ADD COLUMN y DEFAULT 7",),
    ("CREATE TABLE second AS SELECT x, y FROM first",),
)


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path / "x.sqlite3")) as opened:
        yield opened


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_every_earlier_version_is_brought_to_the_present_one(connection: sqlite3.Connection, version: int) -> None:
    migrate(connection, STEPS[:version])
    assert schema_version(connection) == version
    migrate(connection, STEPS)
    assert schema_version(connection) == len(STEPS)
    assert connection.execute("SELECT x, y FROM second").fetchall() == [(1, 7)]


def test_a_step_that_fails_leaves_no_trace_and_those_before_it_stay(connection: sqlite3.Connection) -> None:
    broken = (STEPS[0], ("CREATE TABLE half (x)", "INSERT INTO nowhere VALUES (1)"), STEPS[2])
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, broken)
    assert not connection.in_transaction
    assert schema_version(connection) == 1
    assert [name for name, _ in schema(connection)] == ["first"]
    migrate(connection, STEPS)
    assert schema_version(connection) == len(STEPS)


def test_a_version_from_the_future_is_left_alone(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 99")
    migrate(connection, STEPS)
    assert schema_version(connection) == 99
    assert schema(connection) == []


@rows("version", range(len(MIGRATIONS) + 1))
def test_a_database_of_every_released_version_opens_and_works(tmp_path: Path, version: int) -> None:
    path = tmp_path / "x.sqlite3"
    with closing(connect(path)) as older:
        migrate(older, MIGRATIONS[:version])
    with Database(path) as database:
        ledger = SqliteLedger(database)
        assert ledger.claim("k", lease_seconds=5)
        ledger.put("k", result())
        found = ledger.get("k")
        assert found is not None
        assert found.output == "answer"
        with database.reading() as connection:
            assert schema_version(connection) == len(MIGRATIONS)
            reached = schema(connection)
    with closing(connect(tmp_path / "fresh.sqlite3")) as fresh:
        migrate(fresh)
        assert schema(fresh) == reached


def test_results_of_the_first_version_are_found_by_the_present_one(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    with closing(connect(path)) as first:
        migrate(first, MIGRATIONS[:1])
        payload = b'j{"success":true,"output":"kept","agent":"codex"}'
        first.execute("INSERT INTO results VALUES ('k', 1e9, 49, 'codex', NULL, 0.5, ?)", (payload,))
    with Database(path) as database:
        found = SqliteLedger(database).get("k")
    assert found is not None
    assert (found.output, found.agent) == ("kept", "codex")


def test_a_file_says_whose_it_is(connection: sqlite3.Connection) -> None:
    assert not is_foreign(connection)
    migrate(connection)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert not is_foreign(connection)
    connection.execute("PRAGMA application_id = 7")
    assert is_foreign(connection)


def test_tables_without_our_mark_are_foreign(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE cookies (x)")
    assert is_foreign(connection)
