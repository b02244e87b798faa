"""Copies the runs of pipelines from one store to another: again after a kill, and beside what is there.

A run is state, journal, answers that wait, and files. It is copied while no process works on it, and is in the target
whole or not at all. What only one machine has, such as workspaces, stays there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError, StoreUnavailable
from codeloupe.model.pipeline import Approval, RunRecord
from codeloupe.store.interface import Connection, RunStore
from codeloupe.store.migration import Migrated, TableCheck, canonical
from codeloupe.store.records import (
    Unreadable,
    flush_directory,
    from_json,
    pack,
    read_json,
    replace_file,
    to_json,
    unpack,
)
from codeloupe.store.run_files import CHUNK_BYTES, RunCopy, StoredFile, read_file, remove_unused, scan
from codeloupe.store.runs import (
    APPROVALS,
    JOURNAL,
    STATE,
    DirectoryRunStore,
    Holder,
    approval_file,
    line_of,
    not_found,
    open_file,
    state_of,
)
from codeloupe.store.runs import read_file as read_stored
from codeloupe.store.shared_runs import SharedRunStore, stage_key, text_of
from codeloupe.store.shared_runs import state_of as packed_state
from codeloupe.system.directories import temporary_directory
from codeloupe.system.regex import regex

# What a shared run has besides, so that it can go on elsewhere; `shared` is how packs for that are called.
BORROWED_PACK = "shared"
_ADDED = regex(rf"definition/.*|store\.git/(?:whole|objects/pack/{BORROWED_PACK}-.*)")
_PAGE_ROWS = 500
_LATER = "run the same command again when it has finished"


class Prepared(Struct, frozen=True):
    """A run as a shared store is to have it; `remarks` say what it cannot do elsewhere, and why."""

    record: RunRecord
    remarks: tuple[str, ...] = ()


# Adds to a run's new directory what another machine needs; the second directory is the one that it had so far.
Prepare = Callable[[RunRecord, Path, Path], Prepared]


class _Image(Struct, frozen=True):
    """What a run is. `digest` is of state, journal and answers; `last` is the last line of the journal."""

    record: RunRecord
    digest: bytes
    lines: int
    approvals: tuple[Approval, ...]
    files: Mapping[str, StoredFile]
    last: int = 0


class _Left(StoreError):
    """A run that is not copied; the message says why."""


class _Target(Struct, frozen=True):
    """How a run was found in the target: None for one that is not there, or cannot be read. `mark` names its save."""

    image: _Image | None
    mark: tuple[str, ...] | None


class _Parcel(Struct, frozen=True):
    """A run on its way: `fill` writes its files to a directory, and `lines` are its journal, as often as wanted."""

    image: _Image
    fill: Callable[[Path], RunRecord]
    lines: Callable[[], Iterator[str]]


def migrate_runs(
    source: RunStore,
    target: RunStore,
    *,
    room: Path,
    prepare: Prepare,
    replace: bool = False,
    dry_run: bool = False,
    tell: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> Migrated:
    """Copy all runs, then compare both sides. Files on their way are below `room`. Raises StoreError.

    `tell` hears what is done, how much of it and of how much. A run that a process works on, or that is damaged, is
    `left`, with the reason.
    """
    reading, writing = _side(source, room), _side(target, room)
    counts: tuple[Counter[str], Counter[str], Counter[str]] = (Counter(), Counter(), Counter())
    left: dict[str, str] = {}
    remarks: list[str] = []
    names = source.matching("")
    copying = _Copying(reading, writing, prepare, replace=replace, dry_run=dry_run)
    for done, run_id in enumerate(names, 1):
        try:
            place, said = copying.copy(run_id)
        except _Left as error:
            left[run_id] = error.message
        except RunNotFound:  # removed meanwhile
            pass
        else:
            counts[place]["runs"] += 1
            remarks += (f"run {run_id}: {words}" for words in said)
        tell("copied", done, len(names))
    shown = tuple(f"run {run_id}: {why}" for run_id, why in left.items())
    if dry_run:
        return Migrated(*counts, left=shown, remarks=tuple(remarks))
    checks, different = _compared(reading, writing, names, lambda done: tell("verified", done, len(names)))
    different = tuple(f"run {run_id}" for run_id in different if run_id not in left)
    return Migrated(*counts, different=different, checks=checks, left=shown, remarks=tuple(remarks))


class _Copying:
    """Copies runs one by one."""

    def __init__(self, source: _Side, target: _Side, prepare: Prepare, *, replace: bool, dry_run: bool) -> None:
        self._source, self._target, self._prepare = source, target, prepare
        self._replace, self._dry_run = replace, dry_run
        # Nothing is made for the sake of a look.
        self._is_there = not dry_run or not isinstance(target, _Shared) or target.store.database.is_made()

    def copy(self, run_id: str) -> tuple[int, tuple[str, ...]]:
        """0 for a run that is new in the target, 1 for one that is replaced, 2 for one that stays, and remarks."""
        source = self._source
        with _readable():
            holder = source.store.holder(run_id)
        there = self._found(run_id)
        if holder is not None:
            try:
                if self._is_equal(source.image(run_id), there):
                    return 2, ()
            except StoreUnavailable:
                raise
            except StoreError:  # what is being written cannot always be read
                pass
            raise _being_worked_on(holder)
        try:
            with ExitStack() as held:
                with _readable():
                    if not self._dry_run:
                        held.enter_context(source.alone(run_id))
                    image = source.image(run_id)
                return self._put(image, there)
        except RunBusy as error:
            raise _Left(error.message, hint=_LATER) from error

    def _put(self, image: _Image, there: _Target) -> tuple[int, tuple[str, ...]]:
        source, target, run_id = self._source, self._target, image.record.run_id
        if self._is_equal(image, there) or (there.mark is not None and not self._replace):
            return 2, ()
        if there.mark is not None and (holder := target.store.holder(run_id)) is not None:
            raise _being_worked_on(holder, where=" in the target")
        place = 0 if there.mark is None else 1
        if self._dry_run:
            return place, ()
        remarks: tuple[str, ...] = ()

        def fill(directory: Path) -> RunRecord:
            nonlocal remarks
            with _readable():
                source.fill(image, directory)
            record = image.record
            if target.store.is_shared and not source.store.is_shared:
                prepared = self._prepare(record, directory, source.store.directory(run_id))
                record, remarks = prepared.record, prepared.remarks
            elif source.store.is_shared and not target.store.is_shared and record.home == source.store.home:
                # Back where its paths mean something.
                record = replace(record, home="", host="")
            return record

        parcel = _Parcel(image, fill, lambda: _counted(source.lines(image), image))
        is_put = target.put(parcel, there.mark)
        return (place, remarks) if is_put else (2, ())

    def _found(self, run_id: str) -> _Target:
        mark = self._target.mark(run_id) if self._is_there else None
        try:
            return _Target(self._target.image(run_id) if mark is not None else None, mark)
        except StoreUnavailable:
            raise
        except (StoreError, RunNotFound):
            return _Target(None, mark)

    def _is_equal(self, image: _Image, there: _Target) -> bool:
        if there.image is None or image.digest != there.image.digest:
            return False
        ours, theirs = _both_files((self._source, image), (self._target, there.image))
        return _facts(ours) == _facts(theirs)


class _Directories:
    """Runs that are directories of this machine."""

    def __init__(self, store: DirectoryRunStore) -> None:
        self.store = store

    def alone(self, run_id: str) -> AbstractContextManager[None]:
        """Keep off the run what would change it while it is copied."""
        return self.store.lock(run_id)

    def image(self, run_id: str) -> _Image:
        """What a run is now."""
        record, directory = self.store.load(run_id), self.store.directory(run_id)
        with _explained(run_id, directory):
            answers = (directory / APPROVALS).glob("[!.]*.json")
            approvals = [from_json(Approval, read_json(read_stored(file))) for file in answers]
            files = {
                path: read_file(directory / path, facts)
                for path, facts in scan(directory)
                if path not in (STATE, JOURNAL) and not path.startswith(f"{APPROVALS}/")
            }
            return _image(record, self._lines(directory), approvals, files)

    def mark(self, run_id: str) -> tuple[str, ...] | None:
        """What names the last save, as far as that can be known; None when the run is not there."""
        return (run_id,) if os.path.lexists(Path(self.store.name) / run_id) else None

    def lines(self, image: _Image) -> Iterator[str]:
        """The journal, also what cannot be read in it."""
        directory = self.store.directory(image.record.run_id)
        with _explained(image.record.run_id, directory):
            yield from self._lines(directory)

    @staticmethod
    def _lines(directory: Path) -> Iterator[str]:
        if not os.path.lexists(directory / JOURNAL):
            return
        with os.fdopen(open_file(directory / JOURNAL, os.O_RDONLY), "rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):  # else it was never written
                    try:
                        yield line[:-1].decode("utf-8", "surrogatepass")
                    except UnicodeDecodeError:
                        yield line[:-1].decode("utf-8", "backslashreplace")

    def fill(self, image: _Image, directory: Path) -> None:
        """Write the files of a run to a directory."""
        origin = self.store.directory(image.record.run_id)
        with _explained(image.record.run_id, origin):
            for path, file in image.files.items():
                place, digest = directory / path, hashlib.sha256()
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with (origin / path).open("rb") as stream, place.open("xb") as sink:
                    while data := stream.read(CHUNK_BYTES):
                        digest.update(data)
                        sink.write(data)
                if digest.digest() != file.digest:
                    raise StoreError(f"the file {path!r} changed while it was copied", hint=_LATER)
                place.chmod(file.mode)

    def put(self, parcel: _Parcel, known: tuple[str, ...] | None) -> bool:
        """Store a run whole, in the place of that with the mark `known`; False if that was changed meanwhile."""

        def filled(made: Path) -> None:
            record, image = parcel.fill(made), parcel.image
            with (made / JOURNAL).open("xb") as sink:
                for line in parcel.lines():
                    sink.write(line.encode("utf-8", "surrogatepass") + b"\n")
            (made / JOURNAL).chmod(0o600)
            if image.approvals:
                (made / APPROVALS).mkdir(0o700)
            for approval in image.approvals:
                replace_file(approval_file(made, approval.stage), line_of(approval))
            _flush(made)
            replace_file(made / STATE, state_of(record))

        self.store.place(parcel.image.record.run_id, filled, instead=known is not None)
        return True


class _Shared:
    """Runs in a shared database. What was saved of a run is one snapshot, so that nobody has to be kept off it."""

    def __init__(self, store: SharedRunStore, room: Path) -> None:
        self.store, self._room = store, room
        self._database = store.database

    def alone(self, _run_id: str) -> AbstractContextManager[None]:
        """Nothing to do, as said above."""
        return nullcontext()

    def image(self, run_id: str) -> _Image:
        """What a run is now."""
        return self._database.persist(lambda: self._image(run_id))

    def _image(self, run_id: str) -> _Image:
        with self._database.snapshot() as connection:
            row = connection.execute("SELECT state FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if row is None:
                raise not_found(run_id)
            record = self.store.run_of(run_id, row[0])
            rows = connection.execute(
                "SELECT payload FROM run_approvals WHERE run_id = ? AND taken_by IS NULL", (run_id,)
            ).fetchall()
            last = connection.execute("SELECT max(number) FROM run_events WHERE run_id = ?", (run_id,)).fetchone()[0]

            def select(statement: str, values: Sequence[object]) -> list[tuple[object, ...]]:
                return connection.execute(statement, values).fetchall()

            try:
                approvals = [from_json(Approval, read_json(unpack(payload))) for (payload,) in rows]
            except Unreadable as error:
                message = f"an answer for the run {run_id} is damaged: {error}"
                raise StoreError(message, hint="give it again") from error
            files = RunCopy(self._database, run_id, self._room).listed(select)
            return _image(record, self._lines(run_id, last or 0, select), approvals, files, last=last or 0)

    def mark(self, run_id: str) -> tuple[str, ...] | None:
        """What names the last save, as far as that can be known; None when the run is not there."""
        statement = "SELECT save, coalesce(holder, '') FROM runs WHERE run_id = ?"
        rows = self._database.persist(lambda: self._database.select(statement, (run_id,)))
        return tuple(rows[0]) if rows else None

    def lines(self, image: _Image) -> Iterator[str]:
        """The journal, also what cannot be read in it."""

        def select(statement: str, values: Sequence[object]) -> list[tuple[object, ...]]:
            return self._database.persist(lambda: self._database.select(statement, values))

        return self._lines(image.record.run_id, image.last, select)

    @staticmethod
    def _lines(
        run_id: str, last: int, select: Callable[[str, Sequence[object]], list[tuple[object, ...]]]
    ) -> Iterator[str]:
        statement = "SELECT number, payload FROM run_events WHERE run_id = ? AND number > ? AND number <= ?"
        number: object = -1
        while rows := select(f"{statement} ORDER BY number LIMIT {_PAGE_ROWS}", (run_id, number, last)):
            for number, payload in rows:  # noqa: B007 - the last one is where the next page begins
                # A damaged one may hold what would be the end of a line in a file.
                yield text_of(payload).replace("\n", "\\n")

    def fill(self, image: _Image, directory: Path) -> None:
        """Write the files of a run to a directory."""
        with _explained(image.record.run_id, directory):
            copy = RunCopy(self._database, image.record.run_id, directory)
            self._database.persist(lambda: copy.fetch(image.files))

    def put(self, parcel: _Parcel, known: tuple[str, ...] | None) -> bool:
        """Store a run whole, in the place of that with the mark `known`; False if that was changed meanwhile."""
        image, save = parcel.image, secrets.token_hex(8)
        run_id = image.record.run_id
        with _explained(run_id, self._room):
            self._room.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary_directory(self._room) as directory:
                state = packed_state(parcel.fill(directory))
                copy = RunCopy(self._database, run_id, directory)
                changes = copy.changes()

                def step() -> bool:
                    copy.upload(changes)
                    with self._database.writing() as connection:
                        before = _begun(connection, run_id, state, save, known)
                        if isinstance(before, bool):
                            return before
                        copy.write(connection, changes)
                        if before:
                            remove_unused(connection, before)
                        events = ((run_id, pack(line)) for line in parcel.lines())
                        connection.executemany("INSERT INTO run_events (run_id, payload) VALUES (?, ?)", events)
                        answers = [(run_id, stage_key(each.stage), pack(to_json(each))) for each in image.approvals]
                        new = "INSERT INTO run_approvals (run_id, stage, payload) VALUES (?, ?, ?)"
                        connection.executemany(new, answers)
                        return True

                return self._database.persist(step)


def _begun(
    connection: Connection, run_id: str, state: bytes, save: str, known: tuple[str, ...] | None
) -> list[bytes] | bool:
    """Write the row of a run, and remove what belonged to the one before, whose contents are returned.

    True when that was done already, and only the answer lost; False when another process has changed the run.
    """
    found = "SELECT save, coalesce(holder, '') FROM runs WHERE run_id = ? FOR UPDATE"
    row = connection.execute(found, (run_id,)).fetchone()
    if row is not None and row[0] == save:
        return True
    if (None if row is None else tuple(row)) != known:
        return False
    if row is None:
        new = "INSERT INTO runs (run_id, state, save) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        return [] if connection.execute(new, (run_id, state, save)).rowcount else False
    connection.execute("UPDATE runs SET state = ?, save = ?, holder = NULL WHERE run_id = ?", (state, save, run_id))
    rows = connection.execute("DELETE FROM run_files WHERE run_id = ? RETURNING digest", (run_id,)).fetchall()
    for table in ("run_events", "run_approvals"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - ours
    return [row[0] for row in rows]


_Side = _Directories | _Shared


def _side(store: RunStore, room: Path) -> _Side:
    if isinstance(store, SharedRunStore):
        return _Shared(store, room)
    if isinstance(store, DirectoryRunStore):
        return _Directories(store)
    raise TypeError(f"runs cannot be copied from or to a {type(store).__name__}")


def _image(
    record: RunRecord,
    lines: Iterator[str],
    approvals: Sequence[Approval],
    files: Mapping[str, StoredFile],
    *,
    last: int = 0,
) -> _Image:
    """What a run is, however it is stored. Where its paths mean something differs from place to place."""
    stages = tuple(
        replace(stage, attempts=tuple(replace(attempt, left_tree="") for attempt in stage.attempts))
        for stage in record.stages
    )
    plain = replace(record, stages=stages, home="", host="", origin="", base_commit="")
    digest, count = hashlib.sha256(canonical([to_json(plain)])), 0
    for line in lines:
        digest.update(canonical([line]))
        count += 1
    answers = tuple(sorted(approvals, key=lambda each: each.stage))
    digest.update(canonical([count, *map(to_json, answers)]))
    return _Image(record, digest.digest(), count, answers, files, last)


def _counted(lines: Iterator[str], image: _Image) -> Iterator[str]:
    """The lines of a journal. Raises StoreError when they are no longer those of the image."""
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007 - for what comes after the last
        yield line
    if count != image.lines:
        raise _Left("its journal changed while it was copied", hint=_LATER)


def _both_files(one: tuple[_Side, _Image], other: tuple[_Side, _Image]) -> tuple[Mapping[str, StoredFile], ...]:
    """The files of a run on both sides, without those that only a shared run has to have."""
    kept: list[Mapping[str, StoredFile]] = []
    for (side, image), (beside, with_it) in ((one, other), (other, one)):
        is_more = side.store.is_shared and not beside.store.is_shared
        kept.append(
            {
                path: file
                for path, file in image.files.items()
                if not (is_more and path not in with_it.files and _ADDED.fullmatch(path))
            }
        )
    return tuple(kept)


def _facts(files: Mapping[str, StoredFile]) -> bytes:
    """The digest of what files are."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(canonical([path, files[path].digest, files[path].mode]))
    return digest.digest()


def _compared(
    source: _Side, target: _Side, names: Sequence[str], tell: Callable[[int], None]
) -> tuple[tuple[TableCheck, ...], tuple[str, ...]]:
    """What both sides hold now of the runs of the source that can be read, and which of these differ."""
    sums = [[hashlib.sha256(), hashlib.sha256()] for _ in range(2)]
    rows = [[0, 0], [0, 0]]
    different: list[str] = []
    for done, run_id in enumerate(names, 1):
        images: list[_Image | None] = []
        for side in (source, target):
            try:
                images.append(side.image(run_id))
            except StoreUnavailable:
                raise
            except (StoreError, RunNotFound):
                images.append(None)
        ours, theirs = images
        if ours is not None:
            files: Sequence[Mapping[str, StoredFile]] = (ours.files, {})
            if theirs is not None:
                files = _both_files((source, ours), (target, theirs))
            for number, image in enumerate(images):
                if image is not None:
                    sums[0][number].update(canonical([run_id, image.digest]))
                    sums[1][number].update(canonical([run_id, _facts(files[number])]))
                    rows[0][number] += 1
                    rows[1][number] += len(files[number])
            if theirs is None or ours.digest != theirs.digest or _facts(files[0]) != _facts(files[1]):
                different.append(run_id)
        tell(done)
    checks = tuple(
        TableCheck(table, rows[number][0], rows[number][1], *(each.hexdigest() for each in sums[number]))
        for number, table in enumerate(("runs", "run_files"))
    )
    return checks, tuple(different)


def _being_worked_on(holder: Holder, where: str = "") -> _Left:
    return _Left(f"{holder} is working on it{where}", hint=_LATER)


@contextmanager
def _readable() -> Iterator[None]:
    """Whatever is wrong with the run of the source in the block does not stop the others."""
    try:
        yield
    except (StoreUnavailable, _Left):
        raise
    except StoreError as error:
        raise _Left(error.message, hint=error.hint) from error


@contextmanager
def _explained(run_id: str, place: Path) -> Iterator[None]:
    """Whatever fails on this machine's disk in the block becomes a StoreError."""
    try:
        yield
    except (OSError, Unreadable) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        hint = "check that path, its permissions and the free disk space"
        raise StoreError(f"cannot copy the run {run_id}: {reason} ({place})", hint=hint) from error


def _flush(directory: Path) -> None:
    """Make sure that all files below a directory are on the disk. Raises OSError."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with Path(folder, name).open("rb") as stream:
                os.fsync(stream.fileno())
        flush_directory(Path(folder))
