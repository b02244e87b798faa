"""Copying the contents of a database to another one, of either kind.

The schema says what is copied. An entry is a row of a table without an owner, with the rows that belong to it. It is
copied in one transaction. An entry that the target already has is compared by its digest, and a different one is not
changed unless the caller asks for it. After a kill, the next migration continues.

The source is read in one snapshot, and both sides in batches, so that memory does not grow with the database. Tables of
running processes are not copied.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from codeloupe.store.catalogue import check_tables
from codeloupe.store.interface import Database
from codeloupe.store.leases import Lease
from codeloupe.store.migration_plan import TURN, Kind, plan
from codeloupe.store.migration_rows import (
    PAGE_ROWS,
    Entry,
    Name,
    Side,
    Source,
    Writer,
    comma_list,
    entry_digests,
    marks,
    run_lease_name,
)
from codeloupe.store.row_digest import EntryDigest, RowSums
from codeloupe.store.schema import stored_tables

# The size of a batch. A larger entry has its own batch.
_BATCH_ENTRIES = 200
_BATCH_BYTES = 8_000_000

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
        """Return whether both sides are the same."""
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
        """Return whether the target has everything that the source has."""
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
        migration = _Migration(Source(source, connection), target, replace=replace, report=report)
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


class _Migration:
    """One migration, from the snapshot of a source."""

    def __init__(self, source: Source, target: Database, *, replace: bool, report: Report) -> None:
        self._source = source
        self._target = target
        self._replace = replace
        self._report = report
        self._kinds = plan(source.database.steps)
        self._copied: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        self._existing: Counter[str] = Counter()
        self._skipped: dict[Name, str] = {}
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

    def _add(self, batch: Sequence[Entry], new: int, changed: int) -> None:
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

    def _batches_in_order(self) -> Iterator[list[Entry]]:
        """Yield all entries in the order of the schema; those with a turn in the order of their turns."""
        ordered = [kind for kind in self._kinds if kind.has_turn]
        for kind in self._kinds:
            if not kind.has_turn:
                yield from self._batches(self._entries(kind, kind.table.key))
            elif kind is ordered[0]:
                streams = [self._entries(each, (TURN, each.table.number)) for each in ordered]
                yield from self._batches(heapq.merge(*streams, key=lambda entry: entry[:3]))

    def _entries(self, kind: Kind, order: tuple[str, ...]) -> Iterator[Entry]:
        turn = TURN if kind.has_turn else "0"
        number = kind.table.number or "0"
        size = kind.size_column or "0"
        key = kind.table.key
        select = f"SELECT {comma_list((turn, number, size, *key, *order))} FROM {kind.name}"  # noqa: S608 - ours
        after = ""
        last: list[Any] = []
        while True:
            rows = self._source.rows(f"{select}{after} ORDER BY {comma_list(order)} LIMIT ?", (*last, PAGE_ROWS))
            for row in rows:
                name = tuple(row[3 : 3 + len(key)])
                entry = Entry(int(row[0]), self._kinds.index(kind), int(row[1]), name, int(row[2]), kind)
                if not self._is_skipped(entry):
                    yield entry
            if len(rows) < PAGE_ROWS:
                return
            after = f" WHERE ({comma_list(order)}) > ({marks(order)})"
            last = list(rows[-1][-len(order) :])

    def _is_skipped(self, entry: Entry) -> bool:
        """Return whether an entry is a run that a process is working on. The run is then named in the result."""
        if not entry.kind.is_run:
            return False
        if entry.name not in self._skipped:
            lease = self._source.run_lease(entry.name[0])
            if lease is not None:
                self._skip_run(entry, lease)
        return entry.name in self._skipped

    def _skip_run(self, entry: Entry, lease: Lease) -> None:
        process = f"process {lease.process_id} on {lease.host}"
        self._skipped[entry.name] = f"run {entry.name[0]}, because {process} is working on it"

    def _batches(self, entries: Iterator[Entry]) -> Iterator[list[Entry]]:
        """Yield entries of one kind, a few at a time."""
        batch: list[Entry] = []
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

    def _source_digests(self, batch: Sequence[Entry]) -> dict[Name, EntryDigest]:
        return entry_digests(self._source, batch[0].kind, [entry.name for entry in batch])

    def _compare(self, batch: Sequence[Entry], digests: Mapping[Name, EntryDigest]) -> tuple[list[Entry], list[Entry]]:
        with self._target.snapshot() as connection:
            return self._to_write(Side(self._target, connection), batch, digests)

    def _to_write(
        self, target: Side, batch: Sequence[Entry], digests: Mapping[Name, EntryDigest]
    ) -> tuple[list[Entry], list[Entry]]:
        """Return the entries that the target does not have, and those that are to be replaced there."""
        found = entry_digests(target, batch[0].kind, [entry.name for entry in batch])
        new: list[Entry] = []
        changed: list[Entry] = []
        for entry in batch:
            if entry.name not in found:
                new.append(entry)
            elif self._replace and found[entry.name] != digests[entry.name]:
                changed.append(entry)
        return new, changed

    def _copy(self, batch: Sequence[Entry], digests: Mapping[Name, EntryDigest]) -> tuple[int, int]:
        """Write a batch and return how many entries are new, and how many were replaced. It can be repeated."""
        # Most batches of a repeated migration need no transaction that writes.
        new, changed = self._compare(batch, digests)
        if not new and not changed:
            return 0, 0
        kind = batch[0].kind
        about = ""
        if kind.is_run:
            # No process can begin to work on the run meanwhile. A run has its own batch.
            about = run_lease_name(batch[0].name[0])
        with self._target.writing(about) as connection:
            target = Side(self._target, connection)
            writer = Writer(self._source, target, kind)
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
                source = entry_digests(self._source, kind, names)
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

    def _target_digests(self, kind: Kind, names: Sequence[Name]) -> dict[Name, EntryDigest]:
        with self._target.snapshot() as connection:
            return entry_digests(Side(self._target, connection), kind, names)


def _fits(batch: Sequence[Entry], size_bytes: int, entry: Entry) -> bool:
    if entry.kind is not batch[0].kind or entry.kind.is_alone:
        return False
    return len(batch) < _BATCH_ENTRIES and size_bytes + entry.size_bytes <= _BATCH_BYTES


def _shown(kind: Kind, name: Name) -> str:
    words = [kind.name.rstrip("s")]
    for value in name:
        if isinstance(value, bytes):
            words.append(value.hex())
        else:
            words.append(str(value))
    return " ".join(words)
