"""The tables of procrastinate, which delivers jobs to workers: created and upgraded with its own SQL files.

On an empty database, procrastinate's whole schema is applied; afterwards, each of its migrations that is missing. The
names of the migrations are in the table `queue_migrations`. A database whose queue has a migration that the installed
procrastinate does not know is refused, with both versions named.
"""

from __future__ import annotations

import re
from pathlib import Path

import procrastinate
from msgspec import Struct
from procrastinate.schema import SchemaManager

from codeloupe.errors import StoreError
from codeloupe.store.interface import Connection
from codeloupe.store.postgres import SCHEMA, PostgresDatabase
from codeloupe.store.postgres_connection import Session

_CREATED_FUNCTION = re.compile(r"^CREATE FUNCTION (\w+)", re.MULTILINE)


class QueueState(Struct, frozen=True, kw_only=True):
    """The queue in a database, compared with the installed procrastinate.

    `missing` and `unknown` are names of migrations: those to be applied, and those of a newer procrastinate.
    """

    is_created: bool
    applied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    missing_functions: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Return the version of procrastinate that the newest migration came with."""
        return _version_of(self.applied)


def read_queue_state(connection: Connection) -> QueueState:
    """Return the state of the queue. Raise StoreError."""
    if not _has_tables(connection):
        return QueueState(is_created=False)
    rows = connection.execute("SELECT name FROM queue_migrations ORDER BY name").fetchall()
    applied = tuple(name for (name,) in rows)
    known = tuple(file.name for file in _migration_files())
    return QueueState(
        is_created=True,
        applied=applied,
        missing=tuple(name for name in known if name not in applied),
        unknown=tuple(name for name in applied if name not in known),
        missing_functions=_missing_functions(connection),
    )


def prepare_queue(database: PostgresDatabase) -> None:
    """Create or upgrade the queue. Processes that do so at the same time wait for each other. Raise StoreError."""
    with database.snapshot() as connection:
        state = read_queue_state(connection)
    if not state.is_created or state.missing:
        with database.writing("queue schema") as session:
            # Another process may have changed it before this one got the lock.
            state = read_queue_state(session)
            _check_version(state, database.name)
            _apply(session, state)
            state = read_queue_state(session)
    _check_version(state, database.name)
    if state.missing_functions:
        functions = ", ".join(state.missing_functions)
        raise StoreError(
            f"the queue in the database {database.name} is damaged: it lacks {functions}",
            hint="restore the schema `codeloupe` from a backup, or use another database",
        )


def installed_version() -> str:
    """Return the version of the installed procrastinate."""
    return procrastinate.__version__


def _check_version(state: QueueState, name: str) -> None:
    if state.is_created and not state.applied:
        hint = f"find out who created them in the schema `{SCHEMA}`, or use another database"
        raise StoreError(f"the database {name} has tables of a queue that codeloupe did not create", hint=hint)
    if state.unknown:
        raise StoreError(
            f"the queue in the database {name} was upgraded for procrastinate {state.version}; this machine has"
            f" procrastinate {installed_version()}, whose newest migration is of"
            f" {_version_of([file.name for file in _migration_files()])}",
            hint=f"install procrastinate {state.version} or newer; the database was not changed",
        )


def _apply(session: Session, state: QueueState) -> None:
    """Apply the schema, or the missing migrations in their order, in the transaction of the session."""
    files = _migration_files()
    if state.is_created:
        applied = [file for file in files if file.name in state.missing]
        for file in applied:
            session.run_script(file.read_text("utf-8"))
    else:
        applied = files
        session.run_script(SchemaManager.get_schema())
    session.executemany("INSERT INTO queue_migrations (name) VALUES (?)", [(file.name,) for file in applied])


def _migration_files() -> list[Path]:
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


def _has_tables(connection: Connection) -> bool:
    # The catalogue itself is searched. Functions such as to_regclass may answer from a cache of the session, which a
    # process that has just waited for another one to create the tables still has.
    (count,) = connection.execute(
        "SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ? AND c.relname = 'procrastinate_jobs'",
        (SCHEMA,),
    ).fetchone()
    return bool(count)


def _missing_functions(connection: Connection) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT p.proname FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace"
        " WHERE n.nspname = ?",
        (SCHEMA,),
    ).fetchall()
    found = {name for (name,) in rows}
    wanted = dict.fromkeys(_CREATED_FUNCTION.findall(SchemaManager.get_schema()))
    return tuple(name for name in wanted if name not in found)


def _version_of(names: tuple[str, ...] | list[str]) -> str:
    """Return the version in the name of the newest migration: 3.4.0 for `03.04.00_01_add_a_function.sql`."""
    if not names:
        return "unknown"
    digits = max(names).partition("_")[0].split(".")
    return ".".join(part.lstrip("0") or "0" for part in digits)
