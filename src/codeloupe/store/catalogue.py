"""The tables and columns of a database, as its catalogue lists them, and those that this version knows.

The tables that this version knows are those that its schema creates in an empty database. A database with another table
or column was changed by another program or version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from codeloupe.errors import StoreError
from codeloupe.store.interface import Connection, Database
from codeloupe.store.schema import SchemaStep, stored_tables
from codeloupe.store.sqlite import upgrade

_TYPES: dict[str, type] = {"bigint": int, "integer": int, "double precision": float, "text": str, "bytea": bytes}
# The record of applied steps, and the tables of the queue, which procrastinate creates and upgrades itself.
_NOT_OURS = re.compile("schema_steps|procrastinate_.*|sqlite_.*")
_SQLITE_COLUMNS = """
    SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_xinfo(t.name) AS c WHERE t.type = 'table'
"""
# The columns of the key come first, in its order.
_TABLE = "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY pk = 0, pk, cid"
_REFERENCES = 'SELECT "from", "table", "to", on_delete FROM pragma_foreign_key_list(?)'
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
    entries: list[Table] = []
    parts: dict[str, list[Table]] = {}
    with closing(_new_database(steps)) as connection:
        for name in stored_tables(steps):
            table, owner = _read_table(connection, name)
            if owner:
                parts.setdefault(owner, []).append(table)
            else:
                entries.append(table)
    return tuple(EntryKind(table, tuple(parts.get(table.name, ()))) for table in entries)


def _read_table(connection: sqlite3.Connection, name: str) -> tuple[Table, str]:
    """Return a table, and the name of the table whose rows its rows belong to, or an empty text."""
    columns = connection.execute(_TABLE, (name,)).fetchall()
    types = {column: _TYPES[declared.lower()] for column, declared, _ in columns}
    key = tuple(column for column, _, place_in_key in columns if place_in_key)
    owner = ""
    references: list[Reference] = []
    for column, to_table, to_column, on_delete in connection.execute(_REFERENCES, (name,)).fetchall():
        if on_delete == "CASCADE":
            owner = to_table
        else:
            references.append(Reference(column, to_table, to_column))
    return Table(name, types, key, tuple(references)), owner


def check_tables(database: Database, connection: Connection) -> None:
    """Raise StoreError if the database has a table or column that this version does not know, or lacks one."""
    with closing(_new_database(database.steps)) as created:
        known = _in_words(created.execute(_SQLITE_COLUMNS).fetchall())
    statement = _POSTGRES_COLUMNS if database.is_shared else _SQLITE_COLUMNS
    found = _in_words(connection.execute(statement).fetchall())
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


def _in_words(columns: Iterable[tuple[str, str]]) -> set[str]:
    """Return our tables and their columns in words."""
    names: set[str] = set()
    for table, column in columns:
        if not _NOT_OURS.fullmatch(table):
            names.add(f"the table {table}")
            names.add(f"the column {column} of the table {table}")
    return names
