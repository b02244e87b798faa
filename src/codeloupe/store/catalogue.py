"""The tables and columns of a database, as its catalogue lists them, and those that this version knows.

The tables that this version knows are those that its schema creates in an empty database. A database with another table
or column was changed by another program or version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from codeloupe.errors import StoreError
from codeloupe.store.interface import Connection, Database
from codeloupe.store.schema import SchemaStep, stored_tables
from codeloupe.store.sqlite import upgrade

_TYPES: dict[str, type] = {"bigint": int, "integer": int, "double precision": float, "text": str, "bytea": bytes}
# The record of applied steps, and the tables of the queue, which procrastinate creates and upgrades itself.
_NOT_OURS = re.compile("schema_steps|procrastinate_.*|sqlite_.*")
# The columns of the key come first, in its order.
_SQLITE_COLUMNS = """
    SELECT t.name, c.name, c.type, c.pk FROM sqlite_master AS t JOIN pragma_table_xinfo(t.name) AS c
    WHERE t.type = 'table' ORDER BY t.name, c.pk = 0, c.pk, c.cid
"""
_SQLITE_REFERENCES = """
    SELECT t.name, r."from", r."table", r."to", r.on_delete = 'CASCADE'
    FROM sqlite_master AS t JOIN pragma_foreign_key_list(t.name) AS r WHERE t.type = 'table'
"""
_POSTGRES_COLUMNS = """
    SELECT t.relname, c.attname FROM pg_catalog.pg_class AS t
    JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_catalog.pg_attribute AS c ON c.attrelid = t.oid
    WHERE n.nspname = current_schema() AND t.relkind IN ('r', 'p') AND c.attnum > 0 AND NOT c.attisdropped
"""


class Reference(Struct, frozen=True):
    """A column that refers to a column of a table of entries."""

    column: str
    table: str
    to_column: str


class Table(Struct, frozen=True):
    """A table. `types` has the type of each column, those of the key first.

    `references` are to rows that must exist; a row is not deleted with them.
    """

    name: str
    types: Mapping[str, type]
    key: tuple[str, ...]
    references: tuple[Reference, ...]


class EntryKind(Struct, frozen=True):
    """A table of entries, and the tables of the rows that belong to an entry and are deleted with it.

    The key of such a row begins with the key of its entry.
    """

    table: Table
    parts: tuple[Table, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table of entries, then the others."""
        return (self.table, *self.parts)


def entry_kinds(steps: Sequence[SchemaStep]) -> tuple[EntryKind, ...]:
    """Return the entries of the tables that are copied. An entry comes after those that it refers to."""
    with closing(_new_database(steps)) as connection:
        columns = connection.execute(_SQLITE_COLUMNS).fetchall()
        references = connection.execute(_SQLITE_REFERENCES).fetchall()
    tables: dict[str, Table] = {}
    owners: dict[str, str] = {}
    for name in stored_tables(steps):
        types: dict[str, type] = {}
        key: list[str] = []
        for table, column, declared, place_in_key in columns:
            if table == name:
                types[column] = _TYPES[declared.lower()]
            if table == name and place_in_key:
                key.append(column)
        others: list[Reference] = []
        for table, column, to_table, to_column, is_owner in references:
            if table == name and is_owner:
                owners[name] = to_table
            elif table == name:
                others.append(Reference(column, to_table, to_column))
        tables[name] = Table(name, types, tuple(key), tuple(others))
    kinds: list[EntryKind] = []
    for name, table in tables.items():
        if name not in owners:
            parts = [tables[part] for part, owner in owners.items() if owner == name]
            kinds.append(EntryKind(table, tuple(parts)))
    return tuple(kinds)


def check_tables(database: Database, connection: Connection) -> None:
    """Raise StoreError if the database has a table or column that this version does not know, or lacks one."""
    with closing(_new_database(database.steps)) as created:
        known = _columns(created.execute(_SQLITE_COLUMNS).fetchall())
    statement = _POSTGRES_COLUMNS if database.is_shared else _SQLITE_COLUMNS
    found = _columns(connection.execute(statement).fetchall())
    differences = [f"{name} is unknown" for name in sorted(found - known)]
    differences += [f"{name} is missing" for name in sorted(known - found)]
    if differences:
        message = f"the database {database.name} does not have the tables of this version: {'; '.join(differences)}"
        hint = "use the version of codeloupe that created them, or remove them; nothing was copied"
        raise StoreError(message, hint=hint)


def _new_database(steps: Sequence[SchemaStep]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    upgrade(connection, steps)
    return connection


def _columns(rows: Sequence[Sequence[str]]) -> set[str]:
    """Return our tables and their columns in words, from rows that begin with both names."""
    names: set[str] = set()
    for table, column, *_ in rows:
        if not _NOT_OURS.fullmatch(table):
            names.add(f"the table {table}")
            names.add(f"the column {column} of the table {table}")
    return names
