"""Copying the contents of a database to another one, of either kind.

The schema says what is copied. An entry is a row of a table without an owner, with the rows that belong to it. Its key
is the same in every database. Entries are copied in batches, each in one transaction, and compared with the source when
they are written. An entry that the target already has in another form is not changed unless the caller asks for it.
A row of spending is never replaced by one that counts fewer requests. After a kill, the next migration continues.

The source is read in one snapshot, and both sides in batches, so that memory does not grow with the database. Tables of
running processes are not copied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial

from msgspec import Struct

from codeloupe.store.blobs import remove_unused_blobs, unused_blobs
from codeloupe.store.catalogue import EntryKind, check_tables, entry_kinds
from codeloupe.store.interface import Database
from codeloupe.store.leases import read_lease
from codeloupe.store.migration_rows import (
    Entry,
    Key,
    Side,
    Source,
    exact_texts,
    insert_entries,
    key_damage,
    missing_row,
    read_entries,
    replace_entries,
)
from codeloupe.store.schema import stored_tables

_RUNS = "runs"
_CONTENTS_AT_ONCE = 100

Report = Callable[[int, int], None]


class _Outcome(Enum):
    """What was done with an entry, or how that of the target compares with it."""

    COPIED = auto()
    REPLACED = auto()
    EQUAL = auto()
    NEWER = auto()
    DIFFERENT = auto()


class Migrated(Struct, frozen=True):
    """The result of a migration: the number of entries by table, and the number of all rows in the source.

    `equal` are entries that the target already had, and `newer` rows of spending of which the target has a newer copy.
    `different` are entries that the target has with other contents. `skipped` are entries and rows that were not
    copied, each with the reason. `notes` are for the user.
    """

    copied: Mapping[str, int]
    replaced: Mapping[str, int]
    equal: Mapping[str, int]
    newer: Mapping[str, int]
    different: tuple[str, ...]
    skipped: tuple[str, ...]
    rows: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def is_verified(self) -> bool:
        """Return whether the target has an equal or newer copy of everything that the source has."""
        return not self.different and not self.skipped


def migrate(
    source: Database,
    target: Database,
    *,
    replace: bool = False,
    dry_run: bool = False,
    report: Report = lambda _done, _total: None,
) -> Migrated:
    """Copy all entries and compare both sides. Raise StoreError.

    `report` is called with the number of entries that are done, and their total.
    """
    has_target = not dry_run or target.is_made()
    with source.snapshot() as connection, exact_texts(connection):
        check_tables(source, connection)
        if has_target:
            with target.snapshot() as other:
                check_tables(target, other)
        migration = _Migration(Source(source, connection), target, replace=replace, dry_run=dry_run)
        return migration.run(report, has_target=has_target)


def counts_of(database: Database) -> dict[str, int]:
    """Return the number of rows of each table that is copied. Raise StoreError."""
    with database.snapshot() as connection:
        side = Side(database, connection)
        return {table: side.count(table) for table in stored_tables(database.steps)}


class _Migration:
    """One migration, from the snapshot of a source."""

    def __init__(self, source: Source, target: Database, *, replace: bool, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._replace = replace
        self._dry_run = dry_run
        self._counts: defaultdict[_Outcome, Counter[str]] = defaultdict(Counter)
        self._different: list[str] = []
        self._skipped: list[str] = []
        self._removals: list[str] = []

    def run(self, report: Report, *, has_target: bool) -> Migrated:
        """Copy and compare every batch. Without a target, only count what would be copied."""
        kinds = entry_kinds(self._source.database.steps)
        total = sum(self._source.count(kind.table.name) for kind in kinds)
        done = 0
        rows: dict[str, int] = {}
        for kind in kinds:
            names, last = self._source.batch(kind, ())
            while names:
                entries = self._read(kind, names)
                outcomes = self._outcomes(entries, {})
                if has_target and entries:
                    outcomes = self._target.persist(partial(self._copy, kind, entries))
                self._count(kind, outcomes)
                done += len(names)
                report(done, total)
                names, last = self._source.batch(kind, last)
            for table in kind.tables:
                rows[table.name] = self._source.count(table.name)
            self._name_lost_rows(kind)
        if not self._dry_run:
            self._remove_unused_contents()
        return Migrated(
            copied=self._counts[_Outcome.COPIED],
            replaced=self._counts[_Outcome.REPLACED],
            equal=self._counts[_Outcome.EQUAL],
            newer=self._counts[_Outcome.NEWER],
            different=tuple(self._different),
            skipped=tuple(self._skipped),
            rows=rows,
            notes=self._notes(),
        )

    def _read(self, kind: EntryKind, names: Sequence[Key]) -> dict[Key, Entry]:
        """Return the entries of a batch that can be copied."""
        sound: list[Key] = []
        for name in names:
            damage = key_damage(kind.table, name)
            if damage:
                self._skip(kind, name, damage)
            else:
                sound.append(name)
        if not sound:
            return {}
        entries = read_entries(self._source, kind, sound)
        for name, entry in list(entries.items()):
            reason = entry.damage or _working_process(self._source, kind, name)
            if reason:
                self._skip(kind, name, reason)
                del entries[name]
        return entries

    def _skip(self, kind: EntryKind, name: Key, reason: str) -> None:
        self._skipped.append(f"{_shown(kind, name)}, because {reason}")

    def _copy(self, kind: EntryKind, entries: Mapping[Key, Entry]) -> dict[Key, _Outcome | str]:
        """Write the entries of a batch that the target lacks. In a dry run, compare them only. It can be repeated.

        Return what was done with each entry, or the reason why it was not copied.
        """
        if self._dry_run:
            opened = self._target.snapshot()
        elif kind.table.name == _RUNS:
            # No process can begin to work on the run meanwhile. A run has its own batch.
            opened = self._target.writing("".join(map(_lease_name, entries)))
        else:
            opened = self._target.writing()
        with opened as connection, exact_texts(connection):
            target = Side(self._target, connection)
            found = read_entries(target, kind, list(entries))
            outcomes = self._outcomes(entries, found)
            for name in _with_outcome(outcomes, _Outcome.COPIED, _Outcome.REPLACED):
                outcomes[name] = _working_process(target, kind, name) or outcomes[name]
            if not self._dry_run:
                self._write(target, kind, entries, outcomes)
        return outcomes

    def _outcomes(self, entries: Mapping[Key, Entry], found: Mapping[Key, Entry]) -> dict[Key, _Outcome | str]:
        """Return what is to be done with each entry, given those that the target has."""
        outcomes: dict[Key, _Outcome | str] = {}
        for name, entry in entries.items():
            if name not in found:
                outcomes[name] = _Outcome.COPIED
                continue
            outcome = _compared(entry, found[name])
            if outcome is _Outcome.DIFFERENT and self._replace:
                outcome = _Outcome.REPLACED
            outcomes[name] = outcome
        return outcomes

    def _write(
        self, target: Side, kind: EntryKind, entries: Mapping[Key, Entry], outcomes: dict[Key, _Outcome | str]
    ) -> None:
        """Write the entries that are to be copied or replaced, and compare them with the source."""
        for name in _with_outcome(outcomes, _Outcome.COPIED, _Outcome.REPLACED):
            outcomes[name] = missing_row(self._source, target, kind, name) or outcomes[name]
        copied = _with_outcome(outcomes, _Outcome.COPIED)
        if copied:
            insert_entries(self._source, target, kind, copied)
        replaced = _with_outcome(outcomes, _Outcome.REPLACED)
        if replaced:
            replace_entries(self._source, target, kind, replaced)
        written = [*copied, *replaced]
        if not written:
            return
        found = read_entries(target, kind, written)
        for name in written:
            if name not in found:
                outcomes[name] = _Outcome.DIFFERENT
                continue
            outcome = _compared(entries[name], found[name])
            if outcome is not _Outcome.EQUAL:
                outcomes[name] = outcome

    def _count(self, kind: EntryKind, outcomes: Mapping[Key, _Outcome | str]) -> None:
        for name, outcome in outcomes.items():
            if isinstance(outcome, str):
                self._skip(kind, name, outcome)
                continue
            self._counts[outcome][kind.table.name] += 1
            if outcome is _Outcome.DIFFERENT:
                self._different.append(_shown(kind, name))

    def _remove_unused_contents(self) -> None:
        """Remove from the target the contents of runs that were replaced or not copied."""
        removed = self._target.persist(self._remove_some_contents)
        total = removed
        while removed:
            removed = self._target.persist(self._remove_some_contents)
            total += removed
        if total:
            self._removals.append(f"Removed {total:,} file contents that no run of the target uses")

    def _remove_some_contents(self) -> int:
        with self._target.writing() as connection:
            digests = unused_blobs(connection, _CONTENTS_AT_ONCE)
            remove_unused_blobs(connection, digests)
        return len(digests)

    def _name_lost_rows(self, kind: EntryKind) -> None:
        for part in kind.parts:
            rows = self._source.count_lost_rows(kind, part)
            if rows:
                self._skipped.append(f"rows of the table {part.name} ({rows:,}), because no entry has their key")

    def _notes(self) -> tuple[str, ...]:
        jobs = self._source.count("jobs", "state IN ('waiting', 'running')")
        if not jobs:
            return tuple(self._removals)
        return (*self._removals, f"Jobs are not copied; the source has {jobs:,} that have not finished")


def _compared(entry: Entry, found: Entry) -> _Outcome:
    """Return how an entry of the target compares with that of the source."""
    if found == entry:
        return _Outcome.EQUAL
    if found.is_newer(entry):
        return _Outcome.NEWER
    return _Outcome.DIFFERENT


def _with_outcome(outcomes: Mapping[Key, _Outcome | str], *wanted: _Outcome) -> list[Key]:
    return [name for name, outcome in outcomes.items() if outcome in wanted]


def _lease_name(name: Key) -> str:
    return f"run {name[0]}"


def _working_process(side: Side, kind: EntryKind, name: Key) -> str:
    """Return which process is working on an entry that is a run, or an empty text."""
    if kind.table.name != _RUNS:
        return ""
    lease = read_lease(side.connection, _lease_name(name))
    if lease is None or not lease.holds(side.database.clock()):
        return ""
    return f"process {lease.process_id} on {lease.host} is working on it"


def _shown(kind: EntryKind, name: Key) -> str:
    words = [kind.table.name.rstrip("s")]
    for value in name:
        if isinstance(value, bytes):
            words.append(value.hex())
        else:
            words.append(str(value))
    return " ".join(words)
