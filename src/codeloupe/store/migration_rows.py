"""Reading, comparing and writing the entries of a database for a migration.

An entry is a row of a table with the rows of other tables that belong to it. All rows are read in pages, so that memory
does not grow with an entry. Values are never converted: a value that does not have the type of its column is damage.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.catalogue import EntryKind, Table
from codeloupe.store.interface import Connection, Database

_PAGE_ROWS = 64
_LIST_ROWS = 1000
# The time at which a database stored a row. Copies are not compared by it.
_NOT_COMPARED = "created_at"

Row = tuple[Any, ...]
# The key of an entry.
Name = tuple[Any, ...]


class Entry(Struct, frozen=True):
    """The rows of an entry: their digest and number in each of its tables, and what is wrong with them, or nothing."""

    digests: tuple[bytes, ...]
    rows: tuple[int, ...]
    damage: str = ""


class Side:
    """A database and a connection to it, which reads texts exactly."""

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

    def names(self, kind: EntryKind, size: str) -> Iterator[tuple[Name, int]]:
        """Yield the names of all entries in their order, each with its size, which is an SQL expression."""
        key = kind.table.key
        select = f"SELECT {_list(key)}, CAST({size} AS BIGINT) FROM {kind.table.name} WHERE 1 = 1"  # noqa: S608 - ours
        for page in self._pages(select, key, (), page_rows=_LIST_ROWS):
            for *name, size_bytes in page:
                yield tuple(name), size_bytes

    def pages(self, kind: EntryKind, table: Table, names: Sequence[Name]) -> Iterator[list[Row]]:
        """Yield the rows of a table that belong to some entries, in the order of its key."""
        select = f"SELECT {_list(table.types)} FROM {table.name} WHERE {_belongs_to(kind, table, names)}"  # noqa: S608 - ours
        yield from self._pages(select, table.key, _flat(names), page_rows=_PAGE_ROWS)

    def _pages(
        self, select: str, key: Sequence[str], values: Sequence[object], *, page_rows: int
    ) -> Iterator[list[Row]]:
        """Yield the rows of a statement that ends with a condition. Its first columns are the key."""
        after = ""
        last: Row = ()
        while True:
            rows = self.rows(f"{select}{after} ORDER BY {_list(key)} LIMIT {page_rows}", (*values, *last))
            yield rows
            if len(rows) < page_rows:
                return
            after = f" AND ({_list(key)}) > ({_list('?' * len(key))})"
            last = rows[-1][: len(key)]


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


def read_entries(side: Side, kind: EntryKind, names: Sequence[Name]) -> dict[Name, Entry]:
    """Return those entries that the side has."""
    found: dict[Name, _Sums] = {}
    for table in kind.tables:
        for page in side.pages(kind, table, names):
            for row in page:
                name = row[: len(kind.table.key)]
                if table is kind.table:
                    found[name] = _Sums(kind)
                if name in found:
                    found[name].add(table, row)
    return {name: sums.entry() for name, sums in found.items()}


class _Sums:
    """The sums over the rows of an entry that were read so far."""

    def __init__(self, kind: EntryKind) -> None:
        self._digests = {table.name: hashlib.sha256() for table in kind.tables}
        self._rows = dict.fromkeys(self._digests, 0)
        self._damage = ""

    def add(self, table: Table, row: Row) -> None:
        self._rows[table.name] += 1
        digest = self._digests[table.name]
        for (column, kind), value in zip(table.types.items(), row, strict=True):
            if not _has_type(value, kind):
                self._damage = f"a value in the column {column} of the table {table.name} does not have its type"
            if column != _NOT_COMPARED:
                digest.update(as_bytes(value))

    def entry(self) -> Entry:
        digests = tuple(digest.digest() for digest in self._digests.values())
        return Entry(digests, tuple(self._rows.values()), self._damage)


def _has_type(value: object, kind: type) -> bool:
    if isinstance(value, str):
        # Postgres cannot store NUL, and our statements escape it.
        return kind is str and "\0" not in value
    return value is None or type(value) is kind


def as_bytes(value: object) -> bytes:
    """Return a value as bytes, so that different values have different bytes."""
    match value:
        case None:
            kind = b"n"
            data = b""
        case float():
            kind = b"f"
            data = struct.pack(">d", value)
        case str():
            kind = b"s"
            data = value.encode()
        case bytes():
            kind = b"b"
            data = value
        case _:
            kind = b"o"
            data = str(value).encode()
    return b"%b%d:%b" % (kind, len(data), data)


def missing_table(source: Source, target: Side, kind: EntryKind, name: Name) -> str:
    """Return the table of the target that lacks a row that an entry refers to, or an empty text."""
    for table in kind.tables:
        for reference in table.references:
            place = list(table.types).index(reference.column)
            for page in source.pages(kind, table, [name]):
                values = {row[place] for row in page}
                marks = _list("?" * len(values))
                if values and target.count(reference.table, f"{reference.to_column} IN ({marks})", values) < len(
                    values
                ):
                    return reference.table
    return ""


def write_entries(source: Side, target: Side, kind: EntryKind, names: Sequence[Name]) -> None:
    """Write entries of the source in the place of those of the target, in a transaction of the caller."""
    table = kind.table
    assignments = [f"{column} = excluded.{column}" for column in table.types if column not in table.key]
    upsert = f"{_insert(table)} ON CONFLICT ({_list(table.key)}) DO UPDATE SET {_list(assignments)}"
    for page in source.pages(kind, table, names):
        target.connection.executemany(upsert, page)
    for part in kind.parts:
        delete = f"DELETE FROM {part.name} WHERE {_belongs_to(kind, part, names)}"  # noqa: S608 - ours
        target.connection.execute(delete, _flat(names))
        for page in source.pages(kind, part, names):
            target.connection.executemany(_insert(part), page)


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({_list(table.types)}) VALUES ({_list('?' * len(table.types))})"  # noqa: S608 - ours


def _belongs_to(kind: EntryKind, table: Table, names: Sequence[Name]) -> str:
    """Return the condition that a row of a table belongs to one of some entries."""
    owner = table.key[: len(kind.table.key)]
    rows = [f"({_list('?' * len(owner))})" for _ in names]
    return f"({_list(owner)}) IN (VALUES {_list(rows)})"


def _flat(names: Sequence[Name]) -> list[object]:
    values: list[object] = []
    for name in names:
        values.extend(name)
    return values


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)
