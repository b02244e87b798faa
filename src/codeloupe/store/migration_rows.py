"""Reading, comparing and writing the entries of a database for a migration.

An entry is a row of a table with the rows of other tables that belong to it. All rows are read in pages, so that memory
does not grow with an entry. Values are never converted: a value is damaged if it does not have the type of its column,
or if a database could not store it unchanged. SQLite does not check this, not even for keys.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.catalogue import EntryKind, Table
from codeloupe.store.interface import Connection, Database
from codeloupe.store.records import storable

# The size of a batch of entries. A larger entry has its own batch.
_BATCH_ENTRIES = 200
_BATCH_BYTES = 8_000_000
# The rows of several entries are small, because their sum is limited. A single entry may have large rows.
_PAGE_ROWS = 1000
_LARGE_PAGE_ROWS = 64
_SIZE = "size_bytes"
# The time at which a database stored a row. Copies are not compared by it.
_NOT_COMPARED = "created_at"
# The requests that a row of spending counts. Only one database adds to a row, so of two copies, one is newer.
_REQUESTS = "requests"

Row = tuple[Any, ...]
# The key of an entry.
Key = tuple[Any, ...]


class Entry(Struct, frozen=True):
    """The digest of an entry, the requests that it counts, and which of its values is damaged, or an empty text."""

    digest: bytes
    requests: int
    damage: str

    def is_newer(self, other: Entry) -> bool:
        """Return whether this copy of an entry counts more requests than another one."""
        return not self.damage and self.requests > other.requests


class Side:
    """A database and a connection to it."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self.connection = connection

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a statement."""
        return self.connection.execute(statement, values).fetchall()

    def count(self, table: str, condition: str = "1 = 1", values: Iterable[object] = ()) -> int:
        """Return the number of rows for which a condition holds."""
        ((count,),) = self.rows(f"SELECT count(*) FROM {table} WHERE {condition}", tuple(values))  # noqa: S608 - ours
        return int(count)

    def batch(self, kind: EntryKind, after: Row) -> tuple[list[Key], Row]:
        """Return the names of the next entries, as many as a batch may have, and the place of the last one."""
        size = "0"
        if _SIZE in kind.table.types:
            size = f"CAST({_SIZE} AS BIGINT)"
        elif kind.parts:
            # The size is not known, so each entry has its own batch.
            size = str(_BATCH_BYTES)
        place = ["rowid"]
        if self.database.is_shared:
            # Postgres has no row ids, but its keys are never damaged, so they can be compared.
            place = list(kind.table.key)
        statement = f"SELECT {size}, {_list(place)}, {_list(kind.table.key)} FROM {kind.table.name}"  # noqa: S608 - ours
        if after:
            statement += f" WHERE ({_list(place)}) > ({_marks(after)})"
        names: list[Key] = []
        batch_bytes = 0
        for size_bytes, *values in self.rows(f"{statement} ORDER BY {_list(place)} LIMIT {_BATCH_ENTRIES}", after):
            batch_bytes += size_bytes
            if names and batch_bytes > _BATCH_BYTES:
                break
            after = tuple(values[: len(place)])
            names.append(tuple(values[len(place) :]))
        return names, after

    def pages(self, kind: EntryKind, table: Table, names: Sequence[Key]) -> Iterator[list[Row]]:
        """Yield the rows of a table that belong to some entries, in the order of its key."""
        select = f"SELECT {_list(table.types)} FROM {table.name} WHERE {_belongs_to(kind, table, names)}"  # noqa: S608 - ours
        most = _PAGE_ROWS
        if len(names) == 1:
            most = _LARGE_PAGE_ROWS
        after = ""
        last: Row = ()
        while True:
            rows = self.rows(f"{select}{after} ORDER BY {_list(table.key)} LIMIT {most}", (*_flat(names), *last))
            yield rows
            if len(rows) < most:
                return
            key = table.key
            if key_damage(table, rows[-1]):
                # The next rows cannot be found by this key. They are not needed, because their entry is damaged.
                key = key[: len(kind.table.key)]
            after = f" AND ({_list(key)}) > ({_marks(key)})"
            last = rows[-1][: len(key)]

    def count_lost_rows(self, kind: EntryKind, part: Table) -> int:
        """Return the number of rows of a table that belong to no entry."""
        owner = kind.table.name
        same_key = [f"{owner}.{column} = {part.name}.{column}" for column in kind.table.key]
        entry = f"SELECT 1 FROM {owner} WHERE {' AND '.join(same_key)}"  # noqa: S608 - ours
        return self.count(part.name, f"NOT EXISTS ({entry})")


class Source(Side):
    """The side that is read in one snapshot, which ends with its connection."""

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a statement. Raise StoreError, also inside a transaction of the target."""
        try:
            return super().rows(statement, values)
        except sqlite3.Error as error:
            hint = "check the file, and run the same command again to continue"
            raise StoreError(f"the database {self.database.name} could not be read ({error})", hint=hint) from error
        except StoreUnavailable as error:
            # A retry is not possible, because the snapshot is lost.
            raise StoreError(error.message, hint="run the same command again to continue") from error


@contextmanager
def exact_texts(connection: Connection) -> Iterator[None]:
    """Let SQLite return a text that is not valid UTF-8 as bytes, instead of escaping it."""
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    escaping = connection.text_factory
    connection.text_factory = _text_or_bytes
    try:
        yield
    finally:
        connection.text_factory = escaping


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def read_entries(side: Side, kind: EntryKind, names: Sequence[Key]) -> dict[Key, Entry]:
    """Return those entries that the side has."""
    found: dict[Key, _Rows] = {}
    for table in kind.tables:
        for page in side.pages(kind, table, names):
            for row in page:
                name = row[: len(kind.table.key)]
                if table is kind.table:
                    found[name] = _Rows()
                if name in found:
                    found[name].add(table, row)
    return {name: rows.entry() for name, rows in found.items()}


class _Rows:
    """The rows of an entry that were read so far."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._requests = 0
        self._damage = ""

    def add(self, table: Table, row: Row) -> None:
        self._digest.update(_as_bytes(table.name))
        for (column, kind), value in zip(table.types.items(), row, strict=True):
            if value is not None and not _is_sound(value, kind):
                self._damage = _damage(table, column)
            elif column == _REQUESTS:
                self._requests = value
            if column != _NOT_COMPARED:
                self._digest.update(_as_bytes(value))

    def entry(self) -> Entry:
        return Entry(self._digest.digest(), self._requests, self._damage)


def key_damage(table: Table, values: Row) -> str:
    """Return which column of a key is damaged, or an empty text. Values after those of the key do not count."""
    for column, value in zip(table.key, values, strict=False):
        if not _is_sound(value, table.types[column]):
            return _damage(table, column)
    return ""


def _damage(table: Table, column: str) -> str:
    return f"a value in the column {column} of the table {table.name} does not have its type"


def _is_sound(value: object, kind: type) -> bool:
    """Return whether a value has a type, and our statements do not change it."""
    return type(value) is kind and storable(value) == value


def _as_bytes(value: object) -> bytes:
    """Return a value as bytes, so that different values have different bytes."""
    data = str(value).encode()
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, float):
        data = struct.pack(">d", value)
    return b"%b %d %b" % (type(value).__name__.encode(), len(data), data)


def missing_row(source: Source, target: Side, kind: EntryKind, name: Key) -> str:
    """Return which table of the target lacks a row that an entry refers to, or an empty text."""
    for table in kind.tables:
        for reference in table.references:
            place = list(table.types).index(reference.column)
            for page in source.pages(kind, table, [name]):
                values = {row[place] for row in page} - {None}
                condition = f"{reference.to_column} IN ({_marks(values)})"
                if values and target.count(reference.table, condition, values) < len(values):
                    return f"the table {reference.table} does not have a row that it refers to"
    return ""


def insert_entries(source: Source, target: Side, kind: EntryKind, names: Sequence[Key]) -> None:
    """Write entries of the source that the target does not have. One that was stored meanwhile is not changed."""
    insert = f"{_insert(kind.table)} ON CONFLICT DO NOTHING"
    inserted: list[Key] = []
    for page in source.pages(kind, kind.table, names):
        for row in page:
            changed = target.connection.execute(insert, row).rowcount
            if changed:
                inserted.append(row[: len(kind.table.key)])
    if not inserted:
        return
    for part in kind.parts:
        for page in source.pages(kind, part, inserted):
            target.connection.executemany(_insert(part), page)


def replace_entries(source: Source, target: Side, kind: EntryKind, names: Sequence[Key]) -> None:
    """Write entries of the source in the place of those of the target, except in the place of a newer one."""
    table = kind.table
    assignments = [f"{column} = excluded.{column}" for column in table.types if column not in table.key]
    upsert = f"{_insert(table)} ON CONFLICT ({_list(table.key)}) DO UPDATE SET {_list(assignments)}"
    if _REQUESTS in table.types:
        upsert += f" WHERE {table.name}.{_REQUESTS} <= excluded.{_REQUESTS}"
    for page in source.pages(kind, table, names):
        target.connection.executemany(upsert, page)
    for part in kind.parts:
        delete = f"DELETE FROM {part.name} WHERE {_belongs_to(kind, part, names)}"  # noqa: S608 - ours
        target.connection.execute(delete, _flat(names))
        for page in source.pages(kind, part, names):
            target.connection.executemany(_insert(part), page)


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({_list(table.types)}) VALUES ({_marks(table.types)})"  # noqa: S608 - ours


def _belongs_to(kind: EntryKind, table: Table, names: Sequence[Key]) -> str:
    """Return the condition that a row of a table belongs to one of some entries."""
    owner = table.key[: len(kind.table.key)]
    rows = [f"({_marks(owner)})" for _ in names]
    return f"({_list(owner)}) IN (VALUES {_list(rows)})"


def _flat(names: Iterable[Key]) -> list[object]:
    return [value for name in names for value in name]


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


def _marks(values: Collection[object]) -> str:
    return _list("?" * len(values))
