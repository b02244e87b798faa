"""Creating and upgrading our schema in a Postgres database, by processes that start at the same time too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from codeloupe.errors import StoreError
from codeloupe.store.schema import SchemaStep, refuse_newer_schema

SCHEMA = "codeloupe"
OLDEST_SERVER = 130000
# The lock under which the schema is created or upgraded; any number that no other program uses.
_UPGRADE_LOCK = 0x636C6F75

_Connection = psycopg.Connection[tuple[Any, ...]]


def check_server(connection: _Connection, name: str) -> None:
    """Raise StoreError if the server is too old, or if the database cannot store every text."""
    encoding = connection.info.parameter_status("server_encoding")
    version = connection.info.server_version
    if encoding != "UTF8":
        problem = f"has the encoding {encoding}"
    elif version < OLDEST_SERVER:
        problem = f"is Postgres {version // 10_000}"
    else:
        return
    hint = "use a database of Postgres 13 or newer with the encoding UTF8: `createdb -E UTF8 -T template0 NAME`"
    raise StoreError(f"the database {name} {problem}", hint=hint)


def upgrade(connection: _Connection, steps: Sequence[SchemaStep], *, name: str) -> None:
    """Apply the missing steps. Raise StoreError for a schema that is newer than the steps, without a change."""
    applied = applied_steps(connection)
    if applied < len(steps):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
            # Another process may have applied them while this one waited for the lock.
            applied = applied_steps(connection)
            _apply(connection, steps, applied=applied)
    refuse_newer_schema(applied, steps, name=name, hint="use the newer codeloupe; the database was not changed")


def applied_steps(connection: _Connection) -> int:
    """Return how many steps of the schema were applied."""
    # The catalogue itself is searched. Functions such as to_regclass may answer from a cache of the session, which a
    # process that has just waited for another one to create the tables still has.
    found = _number(
        connection,
        "SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'schema_steps'",
        SCHEMA,
    )
    if not found:
        return 0
    return _number(connection, f"SELECT coalesce(max(step), 0) FROM {SCHEMA}.schema_steps")  # noqa: S608 - ours


def _apply(connection: _Connection, steps: Sequence[SchemaStep], *, applied: int) -> None:
    if applied == 0:
        _create_schema(connection)
    connection.execute(f"SET LOCAL search_path TO {SCHEMA}".encode())
    for number, step in enumerate(steps[applied:], start=applied + 1):
        for statement in step.statements:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO schema_steps (step) VALUES (%s)", (number,))


def _create_schema(connection: _Connection) -> None:
    # CREATE SCHEMA IF NOT EXISTS needs the right to create a schema, which the owner of an existing one may lack.
    if not _number(connection, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s", SCHEMA):
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    create = f"CREATE TABLE {SCHEMA}.schema_steps (step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
    connection.execute(create.encode())


def _number(connection: _Connection, statement: str, *values: object) -> int:
    row = connection.execute(statement.encode(), values or None).fetchone()
    if row is None:
        return 0
    return int(row[0])
