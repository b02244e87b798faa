"""Copying the contents of a database to another one, of either kind.

The schema says what is copied. An entry is a row of a table without an owner, with the rows that belong to it. It is
copied in one transaction. An entry that the target already has is compared by its digest, and a different one is not
changed unless the caller asks for it. After a kill, the next migration continues.

The source is read in one snapshot, and both sides in batches, so that memory does not grow with the database. Tables of
running processes are not copied.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.catalogue import check_tables
from codeloupe.store.interface import Connection, Database
from codeloupe.store.leases import Lease, read_lease
from codeloupe.store.migration_plan import TURN, Kind, Part, plan
from codeloupe.store.row_digest import EntryDigest, RowSums, typed_values
from codeloupe.store.schema import stored_tables
from codeloupe.store.sqlite import SqliteDatabase

# The size of a batch; a larger entry is a batch by itself, and is read in small pages.
_BATCH_ENTRIES = 200
_BATCH_BYTES = 8_000_000
_PAGE_ROWS = 1000
_SMALL_PAGE_ROWS = 64

_Name = tuple[Any, ...]
Report = Callable[[str, int, int], None]


class TableCheck(Struct, frozen=True):
    """The rows of a table on both sides, among the entries of the source, and their digests."""

    table: str
    source_rows: int
    target_rows: int
    source_digest: str
    target_digest: str

    @property
    def is_equal(self) -> bool:
        """Whether both sides are the same."""
        return self.source_rows == self.target_rows and self.source_digest == self.target_digest


class Migrated(Struct, frozen=True):
    """The result of a migration: the number of entries by table, and the check of both sides.

    `different` are entries that the target has with other contents, or does not have. `skipped` are runs that were not
    copied, each with the reason. `notes` are for the user.
    """

    copied: Mapping[str, int]
    replaced: Mapping[str, int]
    existing: Mapping[str, int]
    different: tuple[str, ...] = ()
    checks: tuple[TableCheck, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_verified(self) -> bool:
        """Whether the target has everything that the source has."""
        if self.different or self.skipped or not self.checks:
            return False
        return all(check.is_equal for check in self.checks)


def migrate(
    source: Database,
    target: Database,
    *,
    replace: bool = False,
    dry_run: bool = False,
    report: Report = lambda _verb, _done, _total: None,
) -> Migrated:
    """Copy all entries, then compare both sides. Raise StoreError.

    `report` is called with the verb, the number of entries that are done, and their total.
    """
    has_target = not dry_run or target.is_made()
    with source.snapshot() as connection:
        check_tables(source, connection)
        if has_target:
            with target.snapshot() as other:
                check_tables(target, other)
        migration = _Migration(_Source(source, connection), target, replace=replace, report=report)
        if dry_run:
            return migration.preview(has_target=has_target)
        return migration.run()


def counts_of(database: Database) -> dict[str, int]:
    """Return the number of rows of each table that is copied. Raise StoreError."""
    counts: dict[str, int] = {}
    with database.snapshot() as connection:
        for table in stored_tables(database.steps):
            counts[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - ours
    return counts


class _Entry(NamedTuple):
    """An entry of the source. Entries with a turn are sorted by their first three fields."""

    turn: int
    rank: int
    number: int
    name: _Name
    size_bytes: int
    kind: Kind


class _Side:
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


class _Source(_Side):
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


class _Migration:
    """One migration, from the snapshot of a source."""

    def __init__(self, source: _Source, target: Database, *, replace: bool, report: Report) -> None:
        self._source = source
        self._target = target
        self._replace = replace
        self._report = report
        self._kinds = plan(source.database.steps)
        self._copied: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        self._existing: Counter[str] = Counter()
        self._skipped: dict[_Name, str] = {}
        self._total = sum(self._count(kind) for kind in self._kinds)

    def _count(self, kind: Kind) -> int:
        return int(self._source.rows(f"SELECT count(*) FROM {kind.name}")[0][0])  # noqa: S608 - ours

    def preview(self, *, has_target: bool) -> Migrated:
        """Return what would be copied. Without a target, that is everything."""
        for batch in self._batches_in_order():
            if not has_target:
                self._copied[batch[0].kind.name] += len(batch)
                continue
            digests = self._source_digests(batch)
            new, changed = self._target.persist(partial(self._compare, batch, digests))
            self._add(batch, len(new), len(changed))
        return self._result()

    def run(self) -> Migrated:
        """Copy every batch, and verify the result."""
        done = 0
        for batch in self._batches_in_order():
            digests = self._source_digests(batch)
            new, changed = self._target.persist(partial(self._copy, batch, digests))
            self._add(batch, new, changed)
            done += len(batch)
            self._report("copied", done, self._total)
        checks, different = self._verify()
        return self._result(checks, different)

    def _add(self, batch: Sequence[_Entry], new: int, changed: int) -> None:
        table = batch[0].kind.name
        self._copied[table] += new
        self._replaced[table] += changed
        self._existing[table] += len(batch) - new - changed

    def _result(self, checks: Sequence[TableCheck] = (), different: Sequence[str] = ()) -> Migrated:
        return Migrated(
            copied=self._copied,
            replaced=self._replaced,
            existing=self._existing,
            different=tuple(different),
            checks=tuple(checks),
            skipped=tuple(self._skipped.values()),
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        ((jobs,),) = self._source.rows("SELECT count(*) FROM jobs WHERE state IN ('waiting', 'running')")
        if not jobs:
            return ()
        return (f"Jobs are not copied; the source has {jobs:,} that have not finished",)

    def _batches_in_order(self) -> Iterator[list[_Entry]]:
        """Yield all entries in the order of the schema; those with a turn in the order of their turns."""
        ordered = [kind for kind in self._kinds if kind.has_turn]
        for kind in self._kinds:
            if not kind.has_turn:
                yield from self._batches(self._entries(kind, kind.table.key))
            elif kind is ordered[0]:
                streams = [self._entries(each, (TURN, each.table.number)) for each in ordered]
                yield from self._batches(heapq.merge(*streams, key=lambda entry: entry[:3]))

    def _entries(self, kind: Kind, order: tuple[str, ...]) -> Iterator[_Entry]:
        turn = TURN if kind.has_turn else "0"
        number = kind.table.number or "0"
        size = kind.size_column or "0"
        key = kind.table.key
        select = f"SELECT {_list((turn, number, size, *key, *order))} FROM {kind.name}"  # noqa: S608 - ours
        after = ""
        last: list[Any] = []
        while True:
            rows = self._source.rows(f"{select}{after} ORDER BY {_list(order)} LIMIT ?", (*last, _PAGE_ROWS))
            for row in rows:
                name = tuple(row[3 : 3 + len(key)])
                entry = _Entry(int(row[0]), self._kinds.index(kind), int(row[1]), name, int(row[2]), kind)
                if not self._is_skipped(entry):
                    yield entry
            if len(rows) < _PAGE_ROWS:
                return
            after = f" WHERE ({_list(order)}) > ({_marks(order)})"
            last = list(rows[-1][-len(order) :])

    def _is_skipped(self, entry: _Entry) -> bool:
        """Return whether an entry is a run that a process is working on. The run is then named in the result."""
        if not entry.kind.is_run:
            return False
        if entry.name not in self._skipped:
            lease = self._source.run_lease(entry.name[0])
            if lease is not None:
                self._skip_run(entry, lease)
        return entry.name in self._skipped

    def _skip_run(self, entry: _Entry, lease: Lease) -> None:
        process = f"process {lease.process_id} on {lease.host}"
        self._skipped[entry.name] = f"run {entry.name[0]}, because {process} is working on it"

    def _batches(self, entries: Iterator[_Entry]) -> Iterator[list[_Entry]]:
        """Yield entries of one kind, a few at a time."""
        batch: list[_Entry] = []
        size = 0
        for entry in entries:
            if batch and not _fits(batch, size, entry):
                yield batch
                batch = []
                size = 0
            batch.append(entry)
            size += entry.size_bytes
        if batch:
            yield batch

    def _source_digests(self, batch: Sequence[_Entry]) -> dict[_Name, EntryDigest]:
        return _digests(self._source, batch[0].kind, [entry.name for entry in batch])

    def _compare(
        self, batch: Sequence[_Entry], digests: Mapping[_Name, EntryDigest]
    ) -> tuple[list[_Entry], list[_Entry]]:
        with self._target.snapshot() as connection:
            return self._to_write(_Side(self._target, connection), batch, digests)

    def _to_write(
        self, target: _Side, batch: Sequence[_Entry], digests: Mapping[_Name, EntryDigest]
    ) -> tuple[list[_Entry], list[_Entry]]:
        """Return the entries that the target does not have, and those that are to be replaced there."""
        found = _digests(target, batch[0].kind, [entry.name for entry in batch])
        new: list[_Entry] = []
        changed: list[_Entry] = []
        for entry in batch:
            if entry.name not in found:
                new.append(entry)
            elif self._replace and found[entry.name] != digests[entry.name]:
                changed.append(entry)
        return new, changed

    def _copy(self, batch: Sequence[_Entry], digests: Mapping[_Name, EntryDigest]) -> tuple[int, int]:
        """Write a batch and return how many entries are new, and how many were replaced. It can be repeated."""
        # Most batches of a repeated migration need no transaction that writes.
        new, changed = self._compare(batch, digests)
        if not new and not changed:
            return 0, 0
        kind = batch[0].kind
        about = ""
        if kind.is_run:
            # No process can begin to work on the run meanwhile. A run is a batch by itself.
            about = run_lease_name(batch[0].name[0])
        with self._target.writing(about) as connection:
            target = _Side(self._target, connection)
            writer = _Writer(self._source, target, kind)
            if kind.has_turn:
                writer.lock_turns()
            new, changed = self._to_write(target, batch, digests)
            if kind.is_run and changed:
                lease = target.run_lease(batch[0].name[0])
                if lease is not None:
                    self._skip_run(batch[0], lease)
                    return 0, 0
            writer.add(new)
            writer.change(changed)
        return len(new), len(changed)

    def _verify(self) -> tuple[list[TableCheck], list[str]]:
        """Compare every entry of the source with that of the target."""
        checks: list[TableCheck] = []
        different: list[str] = []
        done = 0
        for kind in self._kinds:
            source_sums = RowSums(kind.tables)
            target_sums = RowSums(kind.tables)
            for batch in self._batches(self._entries(kind, kind.table.key)):
                names = [entry.name for entry in batch]
                source = _digests(self._source, kind, names)
                target = self._target.persist(partial(self._target_digests, kind, names))
                for name in names:
                    source_sums.add(name, source.get(name))
                    target_sums.add(name, target.get(name))
                    if source[name] != target.get(name):
                        different.append(_shown(kind, name))
                done += len(batch)
                self._report("verified", done, self._total)
            for table in kind.tables:
                source_rows, source_digest = source_sums.total(table)
                target_rows, target_digest = target_sums.total(table)
                checks.append(TableCheck(table, source_rows, target_rows, source_digest, target_digest))
        return checks, different

    def _target_digests(self, kind: Kind, names: Sequence[_Name]) -> dict[_Name, EntryDigest]:
        with self._target.snapshot() as connection:
            return _digests(_Side(self._target, connection), kind, names)


class _Writer:
    """Writes entries of one kind to the target, in a transaction of the caller."""

    def __init__(self, source: _Side, target: _Side, kind: Kind) -> None:
        self._source = source
        self._target = target
        self._kind = kind
        self._last_turn = 0

    def lock_turns(self) -> None:
        """Let no other transaction assign a turn before this one ends."""
        ((self._last_turn,),) = self._target.rows("UPDATE turns SET last = last RETURNING last")

    def add(self, entries: Sequence[_Entry]) -> None:
        """Insert entries. An entry that another process inserted meanwhile is not changed."""
        if not entries:
            return
        kind = self._kind
        columns = [*kind.table.key, *kind.columns]
        insert = f"INSERT INTO {kind.name} ({_list(columns)}) VALUES ({_marks(columns)}) ON CONFLICT DO NOTHING"  # noqa: S608 - ours
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

    def change(self, entries: Sequence[_Entry]) -> None:
        """Replace the contents of entries, which keep their numbers and turns."""
        if not entries:
            return
        kind = self._kind
        columns = [column for column in kind.columns if column != TURN]
        assignments = _list([f"{column} = ?" for column in columns])
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

    def _rows(self, entries: Sequence[_Entry]) -> dict[_Name, list[Any]]:
        """Return the rows of entries by name: the columns of the key, then the others. New ones get a turn."""
        kind = self._kind
        rows: dict[_Name, list[Any]] = {}
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
            insert = f"INSERT INTO {part.name} ({_list(columns)}) VALUES ({_marks(columns)})"  # noqa: S608 - ours
            for page in _pages(self._source, part, list(owners)):
                self._target.connection.executemany(insert, [(owners[owner], *values) for owner, values in page])


def _handle(entry: _Entry) -> Any:
    """Return the value by which the rows of an entry refer to it."""
    if entry.kind.table.number:
        return entry.number
    return entry.name[0]


def _fits(batch: Sequence[_Entry], size_bytes: int, entry: _Entry) -> bool:
    if entry.kind is not batch[0].kind or entry.kind.is_alone:
        return False
    return len(batch) < _BATCH_ENTRIES and size_bytes + entry.size_bytes <= _BATCH_BYTES


def _digests(side: _Side, kind: Kind, names: Sequence[_Name]) -> dict[_Name, EntryDigest]:
    """Return the digests of those entries that the side has."""
    sums: dict[_Name, RowSums] = {}
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


def _handles(side: _Side, kind: Kind, names: Sequence[_Name]) -> dict[Any, _Name]:
    """Return the names of entries by the value that their rows refer to."""
    select = f"SELECT {_list((kind.handle, *kind.table.key))} FROM {kind.name}"  # noqa: S608 - ours
    found: dict[Any, _Name] = {}
    for row in side.rows(f"{select} WHERE {_named(kind, names)}", _flat(names)):
        found[row[0]] = tuple(row[1:])
    return found


def _read(side: _Side, kind: Kind, names: Sequence[_Name]) -> Iterator[tuple[_Name, list[Any]]]:
    """Yield the name and the other values of those entries that the side has."""
    key = kind.table.key
    select = f"SELECT {_list((*key, *kind.columns))} FROM {kind.name}"  # noqa: S608 - ours
    for row in side.rows(f"{select} WHERE {_named(kind, names)}", _flat(names)):
        yield tuple(row[: len(key)]), typed_values(row[len(key) :], kind.types)


def _named(kind: Kind, names: Sequence[_Name]) -> str:
    key = kind.table.key
    rows = ", ".join(f"({_marks(key)})" for _ in names)
    return f"({_list(key)}) IN (VALUES {rows})"


def _flat(names: Sequence[_Name]) -> list[Any]:
    values: list[Any] = []
    for name in names:
        values.extend(name)
    return values


def _pages(side: _Side, part: Part, owners: Sequence[Any]) -> Iterator[list[tuple[Any, list[Any]]]]:
    """Yield the rows of a part that belong to these entries, in order, each with its owner."""
    if not owners:
        return
    # A single entry may have large rows. The sizes of several are those of a batch.
    page_rows = _PAGE_ROWS
    if len(owners) == 1:
        page_rows = _SMALL_PAGE_ROWS
    order = (part.owner_column, *part.order)
    select = f"SELECT {_list((*order, *part.columns))} FROM {part.name} WHERE {part.owner_column} IN ({_marks(owners)})"  # noqa: S608 - ours
    after = ""
    last: list[Any] = []
    while True:
        rows = side.rows(f"{select}{after} ORDER BY {_list(order)} LIMIT {page_rows}", (*owners, *last))
        if rows:
            yield [(row[0], typed_values(row[len(order) :], part.types)) for row in rows]
        if len(rows) < page_rows:
            return
        after = f" AND ({_list(order)}) > ({_marks(order)})"
        last = list(rows[-1][: len(order)])


def _shown(kind: Kind, name: _Name) -> str:
    words = [kind.name.rstrip("s")]
    for value in name:
        if isinstance(value, bytes):
            words.append(value.hex())
        else:
            words.append(str(value))
    return " ".join(words)


def _list(columns: Sequence[str]) -> str:
    return ", ".join(columns)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
