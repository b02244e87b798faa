"""Copies all that one database keeps into another, of either kind: again after a kill, and beside what is there.

An entry is copied whole, with all that belongs to it, in one transaction. One that the target has already is compared
by its digest; a different one is left as it is, unless it is to be replaced. The source is read in one snapshot, and
both sides in small batches, however large they are.

Leases of the ledger are not copied: they belong to processes that run. Nor are the places of repositories, which are
those of one machine. `run_migration` copies the runs of pipelines.
"""

from __future__ import annotations

import hashlib
import heapq
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.interface import Connection, Database
from codeloupe.store.sqlite import SqliteDatabase

_Columns = Mapping[str, type]
_Name = tuple[str, ...]
# How much is read at a time; an entry that is larger is read in pages.
_BATCH_ENTRIES = 200
_BATCH_BYTES = 8_000_000
_PAGE_ROWS = 500


class _Part(Struct, frozen=True):
    """A table whose rows belong to the entries of another; `owner` is the column that says to which."""

    table: str
    owner: str
    columns: _Columns
    order: tuple[str, ...] = ("position", "number")
    page_rows: int = _PAGE_ROWS


class _Kind(Struct, frozen=True):
    """A table of entries. Those with a `number` have parts, and a turn, which is the order in which they were saved."""

    table: str
    key: tuple[str, ...]
    columns: _Columns
    parts: tuple[_Part, ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether its entries have a turn."""
        return bool(self.parts)


_FINDING = {"position": int, "hidden": int, "is_open": int, "fingerprint": str, "severity": int, "status": str}
_FINDING |= {"file": str, "expert": str, "reviewer": str, "category": str, "payload": bytes}
_FINDINGS = _Part("findings", "review", _FINDING)
_RAW_OUTPUTS = _Part("raw_outputs", "review", {"unit": bytes, "output": bytes}, order=("number",), page_rows=16)
_COMMITS = _Part("sweep_commits", "sweep", {"position": int, "sha": str, "review_id": str, "payload": bytes})
_PLACE = {"saved_at": float, "repository": str, "work_tree": str, "branch": str}
_ENCODED = {"size_bytes": int, "entry": bytes, "payload": bytes}
_SPENT = {"cost_usd": float, "unknown_costs": int, "duration_seconds": float}
_RESULT = {"created_at": float, "size_bytes": int, "agent": str, "model": str, "cost_usd": float, "payload": bytes}
_REVIEW = {"sweep_id": str, **_PLACE, "scope": str, "reviewer": str, **_SPENT, **_ENCODED}
# What is copied.
KINDS = (
    _Kind("results", ("key",), _RESULT),
    _Kind("dismissals", ("repository", "fingerprint"), {"payload": bytes}),
    _Kind("reviews", ("review_id",), _REVIEW, (_FINDINGS, _RAW_OUTPUTS)),
    _Kind("sweeps", ("sweep_id",), {**_PLACE, **_ENCODED}, (_COMMITS,)),
)


class TableCheck(Struct, frozen=True):
    """The rows of a table on both sides, of the entries that the source has, and what they amount to."""

    table: str
    source_rows: int
    target_rows: int
    source_digest: str
    target_digest: str

    @property
    def is_equal(self) -> bool:
        """Whether both sides hold the same."""
        return (self.source_rows, self.source_digest) == (self.target_rows, self.target_digest)


class Migrated(Struct, frozen=True):
    """What came of it, by table of entries. `different` are left as they are in the target, or missing there.

    `left` are those that could not be copied, with the reason; `remarks` are about those that were.
    """

    copied: Mapping[str, int]
    replaced: Mapping[str, int]
    there: Mapping[str, int]
    different: tuple[str, ...] = ()
    checks: tuple[TableCheck, ...] = ()
    left: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_verified(self) -> bool:
        """Whether the target has all that the source has."""
        is_whole = not self.different and not self.left
        return bool(self.checks) and is_whole and all(check.is_equal for check in self.checks)

    def plus(self, other: Migrated) -> Migrated:
        """Both together, of different tables."""
        return Migrated(
            {**self.copied, **other.copied},
            {**self.replaced, **other.replaced},
            {**self.there, **other.there},
            *((*getattr(self, name), *getattr(other, name)) for name in self.__struct_fields__[3:]),
        )


class _Entry(NamedTuple):
    """One entry of the source, in the order in which they are compared."""

    turn: int
    rank: int
    number: int
    name: _Name
    size_bytes: int
    kind: _Kind


class _Side(NamedTuple):
    """A database and its open connection."""

    database: Database
    connection: Connection

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of one statement. Raises StoreError, also inside of a transaction of another database."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            if isinstance(self.database, SqliteDatabase):
                raise self.database.explained(error) from error
            raise


class _Source(_Side):
    """The side that is read in one snapshot, which does not outlive its connection."""

    __slots__ = ()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """As above. What would pass by itself cannot here."""
        try:
            return super().rows(sql, values)
        except StoreUnavailable as error:
            raise StoreError(error.message, hint="run the same command again to continue") from error


def migrate(
    source: Database,
    target: Database,
    *,
    replace: bool = False,
    dry_run: bool = False,
    tell: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> Migrated:
    """Copy, then compare both sides. `tell` hears what is done, how much of it and of how much. Raises StoreError."""
    counts: tuple[Counter[str], Counter[str], Counter[str]] = (Counter(), Counter(), Counter())
    with source.snapshot() as connection:
        reading = _Source(source, connection)
        total, done = sum(reading.rows(f"SELECT count(*) FROM {kind.table}")[0][0] for kind in KINDS), 0  # noqa: S608 - ours
        is_there = not dry_run or target.is_made()
        for batch in _batches(_in_order(reading)):
            known = _digests(reading, batch[0].kind, [entry.name for entry in batch])

            def step(batch: list[_Entry] = batch, known: Mapping[_Name, _Digest] = known) -> tuple[int, int]:
                return _copy(reading, target, batch, known, replace=replace, dry_run=dry_run)

            new, changed = target.persist(step) if is_there else (len(batch), 0)
            table = batch[0].kind.table
            for counter, number in zip(counts, (new, changed, len(batch) - new - changed), strict=True):
                counter[table] += number
            done += len(batch)
            tell("copied", done, total)
        if dry_run:
            return Migrated(*counts)
        return _verified(reading, target, Migrated(*counts), lambda done: tell("verified", done, total))


def counts_of(database: Database) -> dict[str, int]:
    """How many rows each table has that is copied. Raises StoreError."""
    tables = [table for kind in KINDS for table in (kind.table, *(part.table for part in kind.parts))]
    with database.snapshot() as connection:
        side = _Side(database, connection)
        return {table: side.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables}  # noqa: S608 - ours


def _in_order(source: _Side) -> Iterator[_Entry]:
    """Every entry: those with a turn by that, so that they are saved in the same order again."""
    plain, ordered = ([kind for kind in KINDS if kind.is_ordered is wanted] for wanted in (False, True))
    for kind in plain:
        yield from _entries(source, kind, kind.key)
    # Reviews come before the sweep to which they belong: no list shows one whose reviews are missing.
    yield from heapq.merge(*(_entries(source, kind, ("turn", "number")) for kind in ordered), key=lambda one: one[:3])


def _entries(source: _Side, kind: _Kind, order: tuple[str, ...]) -> Iterator[_Entry]:
    columns = ["turn", "number"] if kind.is_ordered else ["0", "0"]
    # How large a sweep is with all its commits is not known, so that it is a batch by itself.
    size = {"results": "size_bytes", "reviews": "size_bytes", "dismissals": "0"}.get(kind.table, str(_BATCH_BYTES))
    select = f"SELECT {', '.join((*columns, size, *kind.key, *order))} FROM {kind.table}"  # noqa: S608 - words of ours
    after, last = "", list[object]()
    while rows := source.rows(f"{select}{after} ORDER BY {', '.join(order)} LIMIT ?", (*last, _PAGE_ROWS)):
        for turn, number, bytes_, *names in rows:
            yield _Entry(turn, KINDS.index(kind), number, tuple(names[: len(kind.key)]), bytes_, kind)
        last = list(rows[-1][-len(order) :])
        after = f" WHERE ({', '.join(order)}) > ({_marks(order)})"


def _batches(entries: Iterator[_Entry]) -> Iterator[list[_Entry]]:
    """Entries of one kind, a few at a time."""
    for _, those in groupby(entries, key=attrgetter("rank")):
        batch, size = list[_Entry](), 0
        for entry in those:
            if batch and (len(batch) >= _BATCH_ENTRIES or size + entry.size_bytes > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(entry)
            size += entry.size_bytes
        yield batch


class _Digest(NamedTuple):
    """What an entry is: the SHA-256 of its rows, and how many these are, in its own table and in each of its parts."""

    digests: tuple[bytes, ...]
    rows: tuple[int, ...]


def _digests(side: _Side, kind: _Kind, names: Sequence[_Name]) -> dict[_Name, _Digest]:
    """The digests of those of the entries that are there."""
    found = {name: (number, values) for name, number, values in _read(side, kind, names)}
    sums = {
        name: [hashlib.sha256(canonical(values)), *(hashlib.sha256() for _ in kind.parts)]
        for name, (_, values) in found.items()
    }
    rows = {name: [1, *(0 for _ in kind.parts)] for name in found}
    names_of = {number: name for name, (number, _) in found.items()}
    for place, part in enumerate(kind.parts, 1):
        for page in _pages(side, part, list(names_of)):
            for owner, values in page:
                sums[names_of[owner]][place].update(canonical(values))
                rows[names_of[owner]][place] += 1
    return {name: _Digest(tuple(one.digest() for one in sums[name]), tuple(rows[name])) for name in found}


def _read(side: _Side, kind: _Kind, names: Sequence[_Name]) -> Iterator[tuple[_Name, int, list[Any]]]:
    """The rows of entries that are there: name, number and values."""
    number = "number" if kind.is_ordered else "0"
    rows = side.rows(
        f"SELECT {', '.join((*kind.key, number, *kind.columns))} FROM {kind.table}"  # noqa: S608 - words of ours
        f" WHERE ({', '.join(kind.key)}) IN (VALUES {', '.join([f'({_marks(kind.key)})'] * len(names))})",
        [part for name in names for part in name],
    )
    for row in rows:
        key, (number_of, *values) = tuple(row[: len(kind.key)]), row[len(kind.key) :]
        yield key, number_of, _typed(kind.columns, values)


def _pages(side: _Side, part: _Part, numbers: Sequence[int]) -> Iterator[list[tuple[int, list[Any]]]]:
    """The rows of a part of some entries, in order; of a single entry, which may be large, some at a time."""
    if not numbers:
        return
    order = ", ".join(part.order)
    select = f"SELECT {', '.join((*part.order, part.owner, *part.columns))} FROM {part.table}"  # noqa: S608 - words of ours
    where, after, last = f" WHERE {part.owner} IN ({_marks(numbers)})", "", list[object]()
    limit = f" LIMIT {part.page_rows}" if len(numbers) == 1 else ""
    while rows := side.rows(f"{select}{where}{after} ORDER BY {part.owner}, {order}{limit}", (*numbers, *last)):
        ends = len(part.order)
        yield [(row[ends], _typed(part.columns, row[ends + 1 :])) for row in rows]
        if not limit or len(rows) < part.page_rows:
            return
        after, last = f" AND ({order}) > ({_marks(part.order)})", list(rows[-1][:ends])


def _copy(
    source: _Side,
    target: Database,
    batch: Sequence[_Entry],
    known: Mapping[_Name, _Digest],
    *,
    replace: bool,
    dry_run: bool,
) -> tuple[int, int]:
    """Write what the target lacks, and with `replace` what it has otherwise; how many of each. May be run twice."""
    kind = batch[0].kind

    def missing(side: _Side) -> tuple[list[_Entry], list[_Entry]]:
        there = _digests(side, kind, [entry.name for entry in batch])
        different = [entry for entry in batch if entry.name in there and there[entry.name] != known[entry.name]]
        return [entry for entry in batch if entry.name not in there], different if replace else []

    # What is there already locks nobody out.
    with target.snapshot() as connection:
        new, changed = missing(_Side(target, connection))
    if dry_run or not (new or changed):
        return len(new), len(changed)
    with target.writing() as connection:
        turn = connection.last_turn() if kind.is_ordered else 0
        new, changed = missing(_Side(target, connection))
        turns: dict[_Name, int] = {}
        for entry in new:
            turn = turns[entry.name] = max(turn + 1, entry.turn)
        for entry in changed:
            turns[entry.name] = _remove(connection, entry)
        _write(source, connection, kind, turns)
        if kind.is_ordered and new:
            connection.give_turns_above(turn)
    return len(new), len(changed)


def _remove(connection: Connection, entry: _Entry) -> int:
    """Remove an entry with its parts; the turn that it had."""
    where = " AND ".join(f"{column} = ?" for column in entry.kind.key)
    turn = "turn" if entry.kind.is_ordered else "0"
    statement = f"DELETE FROM {entry.kind.table} WHERE {where} RETURNING {turn}"  # noqa: S608 - words of ours
    return int(connection.execute(statement, entry.name).fetchone()[0])


def _write(source: _Side, connection: Connection, kind: _Kind, turns: Mapping[_Name, int]) -> None:
    """Write entries with their parts, each at its turn."""
    columns = (*kind.key, *kind.columns, *(("turn",) if kind.is_ordered else ()))
    insert = f"INSERT INTO {kind.table} ({', '.join(columns)}) VALUES ({_marks(columns)})"  # noqa: S608 - words of ours
    found = {name: (number, values) for name, number, values in _read(source, kind, list(turns))}
    if not kind.is_ordered:
        # Another process may have stored the same meanwhile: then it has done our work.
        rows = ((*name, *found[name][1]) for name in turns)
        connection.executemany(f"{insert} ON CONFLICT DO NOTHING", rows)
        return
    numbers: dict[int, int] = {}
    for name, turn in turns.items():
        number, values = found[name]
        (numbers[number],) = connection.execute(f"{insert} RETURNING number", (*name, *values, turn)).fetchone()
    for part in kind.parts:
        columns = (part.owner, *part.columns)
        insert = f"INSERT INTO {part.table} ({', '.join(columns)}) VALUES ({_marks(columns)})"  # noqa: S608 - words of ours
        for page in _pages(source, part, list(numbers)):
            connection.executemany(insert, ((numbers[owner], *values) for owner, values in page))


def _verified(source: _Side, target: Database, so_far: Migrated, tell: Callable[[int], None]) -> Migrated:
    """Compare every entry of the source with that of the target, in the order of their names."""
    checks: list[TableCheck] = []
    different: list[str] = []
    done = 0
    for kind in KINDS:
        tables = (kind.table, *(part.table for part in kind.parts))
        sums = [(hashlib.sha256(), hashlib.sha256()) for _ in tables]
        rows = [Counter[int]() for _ in tables]
        for batch in _batches(_entries(source, kind, kind.key)):
            names = [entry.name for entry in batch]

            def read(kind: _Kind = kind, names: list[_Name] = names) -> dict[_Name, _Digest]:
                with target.snapshot() as connection:
                    return _digests(_Side(target, connection), kind, names)

            sides = _digests(source, kind, names), target.persist(read)
            for name in names:
                if sides[0][name] != sides[1].get(name):
                    different.append(f"{kind.table.rstrip('s')} {' '.join(name)}")
                for side, digests in enumerate(sides):
                    for place, digest in enumerate(digests[name].digests if name in digests else ()):
                        sums[place][side].update(canonical(name) + digest)
                        rows[place][side] += digests[name].rows[place]
            done += len(batch)
            tell(done)
        for table, (of_source, of_target), both in zip(tables, sums, rows, strict=True):
            checks.append(TableCheck(table, both[0], both[1], of_source.hexdigest(), of_target.hexdigest()))
    counts = (so_far.copied, so_far.replaced, so_far.there)
    return Migrated(*counts, different=tuple(different), checks=tuple(checks))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _typed(columns: _Columns, values: Sequence[Any]) -> list[Any]:
    """A row as both databases can hold it. SQLite takes any value anywhere: a damaged one becomes one of its type."""
    return [_plain(value, kind) for value, kind in zip(values, columns.values(), strict=True)]


def _plain(value: Any, kind: type) -> Any:
    if isinstance(value, str) and kind is str:
        return value.replace("\0", "\\x00")
    if value is None or (isinstance(value, kind) and kind is not float):
        return value
    if kind is bytes:
        return str(value).encode()
    if kind is str:
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    with suppress(TypeError, ValueError, OverflowError):
        # SQLite knows no negative zero.
        return kind(value) + kind(0)
    return kind(0)


def canonical(values: Sequence[Any]) -> bytes:
    """Values as bytes in which none can run into the next."""
    pieces: list[bytes] = []
    for value in values:
        match value:
            case None:
                kind, data = b"n", b""
            case float():
                kind, data = b"f", struct.pack(">d", value)
            case int():
                kind, data = b"i", b"%d" % value
            case str():
                kind, data = b"s", value.encode("utf-8", "backslashreplace")
            case _:
                kind, data = b"b", value
        pieces += (kind, b"%d:" % len(data), data)
    return b"".join(pieces)
