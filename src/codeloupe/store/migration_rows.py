"""Reading and writing the entries of a database for a migration.

An entry is read and written with the rows that belong to it. Large ones are read in pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.interface import Connection, Database
from codeloupe.store.leases import Lease, read_lease
from codeloupe.store.migration_plan import TURN, Kind, Part
from codeloupe.store.row_digest import EntryDigest, RowSums, typed_values
from codeloupe.store.sqlite import SqliteDatabase

PAGE_ROWS = 1000
SMALL_PAGE_ROWS = 64

Name = tuple[Any, ...]


class Entry(NamedTuple):
    """An entry of the source. Entries with a turn are sorted by their first three fields."""

    turn: int
    rank: int
    number: int
    name: Name
    size_bytes: int
    kind: Kind


class Side:
    """A database and its open connection."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self.connection = connection

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of a statement. Raise StoreError, also inside a transaction of the other database."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            if isinstance(self.database, SqliteDatabase):
                raise self.database.explained(error) from error
            raise

    def run_lease(self, run_id: str) -> Lease | None:
        """Return the lease of the process that is working on a run, or None."""
        lease = read_lease(self.connection, run_lease_name(run_id))
        if lease is None or not lease.holds(self.database.clock()):
            return None
        return lease


class Source(Side):
    """The side that is read in one snapshot, which ends with its connection."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Do the same. A retry is not possible, because the snapshot is lost."""
        try:
            return super().rows(sql, values)
        except StoreUnavailable as error:
            raise StoreError(error.message, hint="run the same command again to continue") from error


def run_lease_name(run_id: str) -> str:
    """Return the name of the lease of a run."""
    return f"run {run_id}"


def entry_digests(side: Side, kind: Kind, names: Sequence[Name]) -> dict[Name, EntryDigest]:
    """Return the digests of those entries that the side has."""
    sums: dict[Name, RowSums] = {}
    for name, values in _read(side, kind, names):
        sums[name] = RowSums(kind.tables)
        compared = [value for column, value in zip(kind.columns, values, strict=True) if column in kind.compared]
        sums[name].add_row(kind.name, compared)
    if kind.parts and sums:
        names_of = _handles(side, kind, list(sums))
        for part in kind.parts:
            for page in _pages(side, part, list(names_of)):
                for owner, values in page:
                    sums[names_of[owner]].add_row(part.name, values)
    return {name: its_sums.digest() for name, its_sums in sums.items()}


def _handles(side: Side, kind: Kind, names: Sequence[Name]) -> dict[Any, Name]:
    """Return the names of entries by the value that their rows refer to."""
    select = f"SELECT {comma_list((kind.handle, *kind.table.key))} FROM {kind.name}"  # noqa: S608 - ours
    found: dict[Any, Name] = {}
    for row in side.rows(f"{select} WHERE {_named(kind, names)}", _flat(names)):
        found[row[0]] = tuple(row[1:])
    return found


def _read(side: Side, kind: Kind, names: Sequence[Name]) -> Iterator[tuple[Name, list[Any]]]:
    """Yield the name and the other values of those entries that the side has."""
    key = kind.table.key
    select = f"SELECT {comma_list((*key, *kind.columns))} FROM {kind.name}"  # noqa: S608 - ours
    for row in side.rows(f"{select} WHERE {_named(kind, names)}", _flat(names)):
        yield tuple(row[: len(key)]), typed_values(row[len(key) :], kind.types)


def _named(kind: Kind, names: Sequence[Name]) -> str:
    key = kind.table.key
    rows = ", ".join(f"({marks(key)})" for _ in names)
    return f"({comma_list(key)}) IN (VALUES {rows})"


def _flat(names: Sequence[Name]) -> list[Any]:
    values: list[Any] = []
    for name in names:
        values.extend(name)
    return values


def _pages(side: Side, part: Part, owners: Sequence[Any]) -> Iterator[list[tuple[Any, list[Any]]]]:
    """Yield the rows of a part that belong to these entries, in order, each with its owner."""
    if not owners:
        return
    # A single entry may have large rows. The sizes of several are those of a batch.
    page_rows = PAGE_ROWS
    if len(owners) == 1:
        page_rows = SMALL_PAGE_ROWS
    order = (part.owner_column, *part.order)
    select = (
        f"SELECT {comma_list((*order, *part.columns))} FROM {part.name} WHERE {part.owner_column} IN ({marks(owners)})"  # noqa: S608 - ours
    )
    after = ""
    last: list[Any] = []
    while True:
        rows = side.rows(f"{select}{after} ORDER BY {comma_list(order)} LIMIT {page_rows}", (*owners, *last))
        if rows:
            yield [(row[0], typed_values(row[len(order) :], part.types)) for row in rows]
        if len(rows) < page_rows:
            return
        after = f" AND ({comma_list(order)}) > ({marks(order)})"
        last = list(rows[-1][: len(order)])


class Writer:
    """Writes entries of one kind to the target, in a transaction of the caller."""

    def __init__(self, source: Side, target: Side, kind: Kind) -> None:
        self._source = source
        self._target = target
        self._kind = kind
        self._last_turn = 0

    def lock_turns(self) -> None:
        """Let no other transaction assign a turn before this one ends."""
        ((self._last_turn,),) = self._target.rows("UPDATE turns SET last = last RETURNING last")

    def add(self, entries: Sequence[Entry]) -> None:
        """Insert entries. An entry that another process inserted meanwhile is not changed."""
        if not entries:
            return
        kind = self._kind
        columns = [*kind.table.key, *kind.columns]
        insert = f"INSERT INTO {kind.name} ({comma_list(columns)}) VALUES ({marks(columns)}) ON CONFLICT DO NOTHING"  # noqa: S608 - ours
        rows = self._rows(entries)
        if not kind.parts:
            self._target.connection.executemany(insert, rows.values())
            return
        owners: dict[Any, Any] = {}
        for entry in entries:
            inserted = self._target.rows(f"{insert} RETURNING {kind.handle}", rows[entry.name])
            if inserted:
                owners[_handle(entry)] = inserted[0][0]
        self._add_parts(owners)
        if kind.has_turn:
            self._target.connection.execute("UPDATE turns SET last = ?", (self._last_turn,))

    def change(self, entries: Sequence[Entry]) -> None:
        """Replace the contents of entries, which keep their numbers and turns."""
        if not entries:
            return
        kind = self._kind
        columns = [column for column in kind.columns if column != TURN]
        assignments = comma_list([f"{column} = ?" for column in columns])
        where = " AND ".join(f"{column} = ?" for column in kind.table.key)
        update = f"UPDATE {kind.name} SET {assignments} WHERE {where} RETURNING {kind.handle}"  # noqa: S608 - ours
        rows = self._rows(entries)
        owners: dict[Any, Any] = {}
        for entry in entries:
            row = dict(zip([*kind.table.key, *kind.columns], rows[entry.name], strict=True))
            values = [row[column] for column in columns]
            ((owner,),) = self._target.rows(update, (*values, *entry.name))
            owners[_handle(entry)] = owner
            for part in kind.parts:
                delete = f"DELETE FROM {part.name} WHERE {part.owner_column} = ?"  # noqa: S608 - ours
                self._target.connection.execute(delete, (owner,))
        self._add_parts(owners)

    def _rows(self, entries: Sequence[Entry]) -> dict[Name, list[Any]]:
        """Return the rows of entries by name: the columns of the key, then the others. New ones get a turn."""
        kind = self._kind
        rows: dict[Name, list[Any]] = {}
        for name, values in _read(self._source, kind, [entry.name for entry in entries]):
            rows[name] = [*name, *values]
        if kind.has_turn:
            place = len(kind.table.key) + kind.columns.index(TURN)
            for entry in entries:
                self._last_turn = max(self._last_turn + 1, entry.turn)
                rows[entry.name][place] = self._last_turn
        return rows

    def _add_parts(self, owners: Mapping[Any, Any]) -> None:
        """Insert the rows that belong to entries. `owners` has the handle in the target for that in the source."""
        for part in self._kind.parts:
            columns = [part.owner_column, *part.columns]
            insert = f"INSERT INTO {part.name} ({comma_list(columns)}) VALUES ({marks(columns)})"  # noqa: S608 - ours
            for page in _pages(self._source, part, list(owners)):
                self._target.connection.executemany(insert, [(owners[owner], *values) for owner, values in page])


def _handle(entry: Entry) -> Any:
    """Return the value by which the rows of an entry refer to it."""
    if entry.kind.table.number:
        return entry.number
    return entry.name[0]


def comma_list(columns: Sequence[str]) -> str:
    """Return a list of columns for a statement."""
    return ", ".join(columns)


def marks(values: Sequence[object]) -> str:
    """Return a list of placeholders for a statement."""
    return ", ".join("?" * len(values))
