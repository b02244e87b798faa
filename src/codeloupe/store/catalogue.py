"""The tables of a database as its catalogue describes them: columns, keys and references.

The tables that this version knows are those that its schema creates in an empty database. A database whose catalogue
differs from them was changed by another program or version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from codeloupe.errors import StoreError
from codeloupe.store.interface import Connection, Database
from codeloupe.store.schema import SchemaStep
from codeloupe.store.sqlite import upgrade

_TYPES: dict[str, type] = {
    "bigint": int,
    "integer": int,
    "double precision": float,
    "text": str,
    "bytea": bytes,
}
# The record of applied steps, and the tables of the queue, which procrastinate creates and upgrades itself.
_NOT_OURS = re.compile("schema_steps|procrastinate_.*|sqlite_.*")


class Reference(Struct, frozen=True, order=True):
    """A column that refers to a column of another table. With `is_owner`, a row is deleted with that other row."""

    column: str
    table: str
    to_column: str
    is_owner: bool


class Table(Struct, frozen=True):
    """A table. `types` has the type of each column, or its name in the database for a type that we do not use.

    `number` is the column in which the database numbers the rows, or empty. `key` identifies a row in every
    database: the primary key, or the unique columns if the primary key is such a number.
    """

    name: str
    types: Mapping[str, type | str]
    number: str
    key: tuple[str, ...]
    references: tuple[Reference, ...]

    @property
    def owner(self) -> Reference | None:
        """The reference to the row that a row belongs to, or None for a table of entries."""
        for reference in self.references:
            if reference.is_owner:
                return reference
        return None


def known_tables(steps: Sequence[SchemaStep]) -> dict[str, Table]:
    """Return the tables that the steps create, by name."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        upgrade(connection, steps)
        return _sqlite_tables(connection)


def check_tables(database: Database, connection: Connection) -> None:
    """Raise StoreError if the database has a table or column that this version does not know, or lacks one."""
    known = known_tables(database.steps)
    read_tables = _postgres_tables if database.is_shared else _sqlite_tables
    found = read_tables(connection)
    differences: list[str] = []
    for name in sorted(known.keys() | found.keys()):
        if name not in known:
            differences.append(f"the table {name} is unknown")
        elif name not in found:
            differences.append(f"the table {name} is missing")
        else:
            differences += _differences(known[name], found[name])
    if differences:
        message = f"the database {database.name} does not have the tables of this version: {'; '.join(differences)}"
        hint = "use the version of codeloupe that created them, or remove them; nothing was copied"
        raise StoreError(message, hint=hint)


def _differences(known: Table, found: Table) -> list[str]:
    differences: list[str] = []
    for column in sorted(known.types.keys() | found.types.keys()):
        if column not in known.types:
            differences.append(f"the column {column} of the table {known.name} is unknown")
        elif column not in found.types:
            differences.append(f"the column {column} of the table {known.name} is missing")
        elif known.types[column] != found.types[column]:
            differences.append(f"the column {column} of the table {known.name} has another type")
    if not differences and known != found:
        differences.append(f"the table {known.name} has other keys")
    return differences


def _sqlite_tables(connection: Connection | sqlite3.Connection) -> dict[str, Table]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables: dict[str, Table] = {}
    for (name,) in rows:
        if not _NOT_OURS.fullmatch(name):
            tables[name] = _sqlite_table(connection, name)
    return tables


def _sqlite_table(connection: Connection | sqlite3.Connection, name: str) -> Table:
    types: dict[str, type | str] = {}
    primary: dict[int, str] = {}
    number = ""
    for _, column, declared, _, _, place_in_key in connection.execute(f'PRAGMA table_info("{name}")').fetchall():
        types[column] = _type_of(declared)
        if place_in_key:
            primary[place_in_key] = column
            # The schema declares only generated numbers as INTEGER; all other whole numbers are bigint.
            if declared == "INTEGER":
                number = column
    references: list[Reference] = []
    for row in connection.execute(f'PRAGMA foreign_key_list("{name}")').fetchall():
        _, _, table, column, to_column, _, on_delete, _ = row
        references.append(Reference(column, table, to_column, on_delete == "CASCADE"))
    unique: list[tuple[str, ...]] = []
    for _, index, _, origin, _ in connection.execute(f'PRAGMA index_list("{name}")').fetchall():
        if origin == "u":
            columns = connection.execute(f'PRAGMA index_info("{index}")').fetchall()
            unique.append(tuple(column for _, _, column in columns))
    key = tuple(primary[place] for place in sorted(primary))
    return _table(name, types, number=number, primary=key, unique=unique, references=references)


def _postgres_tables(connection: Connection) -> dict[str, Table]:
    columns = connection.execute(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attidentity <> ''"
        " FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"
    ).fetchall()
    types: dict[str, dict[str, type | str]] = {}
    numbers: dict[str, str] = {}
    for table, column, declared, is_generated in columns:
        if not _NOT_OURS.fullmatch(table):
            types.setdefault(table, {})[column] = _type_of(declared)
            if is_generated:
                numbers[table] = column
    constraints = _postgres_constraints(connection)
    tables: dict[str, Table] = {}
    for name, its_types in types.items():
        primary: tuple[str, ...] = ()
        unique: list[tuple[str, ...]] = []
        references: list[Reference] = []
        for kind, its_columns, reference in constraints.get(name, []):
            if kind == "p":
                primary = its_columns
            elif kind == "u":
                unique.append(its_columns)
            elif reference is not None:
                references.append(reference)
        number = numbers.get(name, "")
        tables[name] = _table(name, its_types, number=number, primary=primary, unique=unique, references=references)
    return tables


_Constraint = tuple[str, tuple[str, ...], Reference | None]


def _postgres_constraints(connection: Connection) -> dict[str, list[_Constraint]]:
    """Return the primary keys, unique columns and references of each table."""
    names = "ARRAY(SELECT a.attname::text FROM unnest({keys}) WITH ORDINALITY AS k (number, place)"
    names += " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = {table} AND a.attnum = k.number ORDER BY k.place)"
    rows = connection.execute(
        f"SELECT c.relname, o.contype::text, {names.format(keys='o.conkey', table='o.conrelid')}, f.relname,"  # noqa: S608 - ours
        f" {names.format(keys='o.confkey', table='o.confrelid')}, o.confdeltype::text"
        " FROM pg_catalog.pg_constraint AS o JOIN pg_catalog.pg_class AS c ON c.oid = o.conrelid"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_catalog.pg_class AS f ON f.oid = o.confrelid"
        " WHERE n.nspname = current_schema() AND o.contype IN ('p', 'u', 'f')"
    ).fetchall()
    found: dict[str, list[_Constraint]] = {}
    for table, kind, columns, to_table, to_columns, on_delete in rows:
        reference = None
        if kind == "f":
            reference = Reference(",".join(columns), to_table, ",".join(to_columns), on_delete == "c")
        found.setdefault(table, []).append((kind, tuple(columns), reference))
    return found


def _type_of(declared: str) -> type | str:
    return _TYPES.get(declared.lower(), declared)


def _table(
    name: str,
    types: Mapping[str, type | str],
    *,
    number: str,
    primary: tuple[str, ...],
    unique: Sequence[tuple[str, ...]],
    references: Sequence[Reference],
) -> Table:
    key = primary
    if number and unique:
        key = unique[0]
    return Table(name, dict(types), number, key, tuple(sorted(references)))
