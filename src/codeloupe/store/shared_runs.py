"""The runs of pipelines in a shared database, so that any machine can go on with them: rows, files and a lock.

The lock of a run is a lease, renewed while its process lives. Every save names the lease in its own transaction: a
process that lost it writes nothing any more. A step that may be sent twice, when a connection is lost, has a name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
from codeloupe.store import runs
from codeloupe.store.interface import Database, persistent
from codeloupe.store.owner import Owner
from codeloupe.store.records import Unreadable, from_json, pack, read_json, replace_file, to_json, unpack
from codeloupe.store.run_files import Changes, RunCopy, remove_unused
from codeloupe.store.runs import Holder, checked_name, not_found
from codeloupe.system.directories import remove_tree

_NOTHING: Mapping[str, bytes] = MappingProxyType({})
_HELD = "SELECT holder, host, since, expires_at > clock_seconds() FROM runs WHERE run_id = ?"
_HOME = "home"
_FETCH_SECONDS = 10.0


class SharedRunStore:
    """The runs in a Postgres database, each with a copy of its files below `root` on this machine.

    A lock that is not renewed for `lease_seconds` is free; one of a process of this machine that has ended, at once.
    `machine` names this one to others, in the place of what the kernel says.
    """

    is_shared = True

    def __init__(
        self, database: Database, root: Path, *, lease_seconds: float = 45.0, machine: str | None = None
    ) -> None:
        self.database = database
        # Two databases may have runs of the same name.
        self._root = root.absolute() / hashlib.sha256(database.name.encode()).hexdigest()[:12]
        self._lease_seconds = lease_seconds
        self._machine = machine
        self._held: dict[str, str] = {}
        self._copies: dict[str, RunCopy] = {}

    @property
    def name(self) -> str:
        """The address without a password."""
        return self.database.name

    @cached_property
    def home(self) -> str:
        """A random name of this state directory, which is made once."""
        file = self._root.parent / _HOME
        with _explained("all", "identify the directory of", file):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                replace_file(made := file.with_name(f".{_HOME}.{secrets.token_hex(8)}"), secrets.token_hex(16).encode())
                with suppress(FileExistsError):
                    os.link(made, file)
                made.unlink()
            return file.read_text(encoding="ascii")

    def create(self, run: RunRecord, files: Mapping[str, bytes] = _NOTHING) -> Path:
        """Store a new run with its files, all or nothing; its directory. Raises StoreError if there is one so named."""
        name, state, save = checked_name(run.run_id), state_of(run), secrets.token_hex(8)
        taken = runs.name_taken(name, self.name)
        if self._last_save(name) is not None:
            raise taken
        self._clear_leftovers()
        self._copies.pop(name, None)
        copy = self._copy(name)
        with self._alone_here(name), _explained(name, "make", copy.directory):
            copy.clear()  # of a run of that name that was removed elsewhere
            runs.write_files(copy.directory, files)
            changes = copy.changes()
            if not self.database.persist(lambda: self._create(name, state, save, copy, changes)):
                raise taken
            copy.saved(changes, save)
        return copy.directory

    def _create(self, name: str, state: bytes, save: str, copy: RunCopy, changes: Changes) -> bool:
        copy.upload(changes)
        with self.database.writing() as connection:
            new = "INSERT INTO runs (run_id, state, save) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            if connection.execute(new, (name, state, save)).rowcount:
                copy.write(connection, changes)
                return True
            row = connection.execute("SELECT save FROM runs WHERE run_id = ?", (name,)).fetchone()
            return row is not None and row[0] == save

    def directory(self, run_id: str) -> Path:
        """Where the copy of a run is on this machine, or would be."""
        self._save_of(run_id)
        return self._copy(run_id).directory

    def fetched(self, run_id: str) -> Path:
        """The copy of a run, brought up to date unless a process of this machine works with it."""
        copy, save = self._copy(run_id), self._save_of(run_id)
        if not copy.is_of(save):
            with suppress(RunBusy), self._alone_here(run_id), _explained(run_id, "fetch", copy.directory):
                copy.bring(save)
        return copy.directory

    def save(self, run: RunRecord, *events: PipelineEvent) -> None:
        """Store new files, then state and journal in one transaction. Raises RunBusy when the lock is another's."""
        name, state = checked_name(run.run_id), state_of(run)
        lines = [(name, pack(to_json(event))) for event in events]
        copy, save = self._copy(name), secrets.token_hex(8)
        with _explained(name, "write", copy.directory):
            changes = copy.changes()
            self.database.persist(lambda: self._save(name, state, save, lines, copy, changes))
            copy.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy.saved(changes, save)

    def _save(
        self, name: str, state: bytes, save: str, events: list[tuple[str, bytes]], copy: RunCopy, changes: Changes
    ) -> None:
        copy.upload(changes)
        ours = self._held.get(name)
        with self.database.writing() as connection:
            done = connection.execute(
                "UPDATE runs SET state = ?, save = ? WHERE run_id = ? AND save <> ? AND holder IS NOT DISTINCT FROM ?",
                (state, save, name, save, ours),
            ).rowcount
            if done:
                copy.write(connection, changes)
                connection.executemany("INSERT INTO run_events (run_id, payload) VALUES (?, ?)", events)
                return
            row = connection.execute("SELECT save, holder, host, since FROM runs WHERE run_id = ?", (name,)).fetchone()
        if row is None:
            raise not_found(name)
        if row[0] != save:  # else it got through, and only its answer was lost
            raise _lost(name, _holder(*row[1:]) if row[1] else None)

    @persistent
    def load(self, run_id: str) -> RunRecord:
        """The last state of a run. Raises StoreError when it is damaged, or was written by a newer codeloupe."""
        rows = self.database.select("SELECT state FROM runs WHERE run_id = ?", (checked_name(run_id),))
        if not rows:
            raise not_found(run_id)
        return self.run_of(run_id, rows[0][0])

    def run_of(self, run_id: str, state: object) -> RunRecord:
        """The run of a stored state. Raises StoreError."""
        try:
            run = runs.run_of(unpack(state))
            if run.run_id != run_id:
                raise Unreadable(f"it belongs to another run, {run.run_id!r}")  # noqa: TRY301 - as what is unreadable
        except Unreadable as error:
            raise runs.unreadable_state(run_id, error, self.name) from error
        return run

    @persistent
    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """What happened, the oldest first, with a note for what cannot be read."""
        self._save_of(run_id)
        rows = self.database.select("SELECT payload FROM run_events WHERE run_id = ? ORDER BY number", (run_id,))
        return runs.events_of(text_of(payload) for (payload,) in rows)

    @persistent
    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """All runs, the newest first, and those that cannot be read, each with the reason."""
        found: list[RunRecord] = []
        problems: dict[str, str] = {}
        for run_id, state in self.database.select("SELECT run_id, state FROM runs ORDER BY run_id"):
            try:
                found.append(self.run_of(run_id, state))
            except StoreError as error:
                problems[run_id] = error.message
        return tuple(sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)), problems

    @persistent
    def matching(self, prefix: str) -> tuple[str, ...]:
        """The ids of runs that begin so, sorted, readable or not."""
        statement = "SELECT run_id FROM runs WHERE starts_with(run_id, ?) ORDER BY run_id"
        return tuple(run_id for (run_id,) in self.database.select(statement, (prefix,)))

    @persistent
    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Leave a person's answer for a run, in the place of an earlier one; the run's process takes it."""
        self._save_of(run_id)
        self.database.change(
            "INSERT INTO run_approvals (run_id, stage, payload) VALUES (?, ?, ?) ON CONFLICT (run_id, stage)"
            " DO UPDATE SET payload = excluded.payload, taken_by = NULL",
            (run_id, stage_key(approval.stage), pack(to_json(approval))),
        )

    def left_approval(self, run_id: str, stage: str) -> Approval | None:
        """Return the answer that was left on a stage, without taking it; None when there is none."""
        statement = "SELECT payload FROM run_approvals WHERE run_id = ? AND stage = ? AND taken_by IS NULL"
        rows = self.database.select(statement, (checked_name(run_id), stage_key(stage)))
        if not rows:
            return None
        return self._read_approval(rows[0][0], run_id, stage)

    def take_approval(self, run_id: str, stage: str) -> Approval | None:
        """The answer that was left on a stage, which is then gone, readable or not; None when there is none."""
        # Marked before it is removed: if the connection is lost in between, it is still ours.
        ours = (checked_name(run_id), stage_key(stage), secrets.token_hex(8))
        taken = self.database.persist(lambda: self._marked(*ours))
        if taken is None:
            return None
        with suppress(StoreError):  # what is marked is nobody else's
            done = "DELETE FROM run_approvals WHERE run_id = ? AND stage = ? AND taken_by = ?"
            self.database.change(done, ours)
        return self._read_approval(taken, run_id, stage)

    def _read_approval(self, payload: bytes, run_id: str, stage: str) -> Approval:
        try:
            return from_json(Approval, read_json(unpack(payload)))
        except Unreadable as error:
            message = f"cannot read the answer on {stage!r} of the run {run_id}: {error}"
            raise StoreError(message, hint="give it again") from error

    def _marked(self, run_id: str, stage: bytes, token: str) -> bytes | None:
        with self.database.writing() as connection:
            row = connection.execute(
                "UPDATE run_approvals SET taken_by = ? WHERE run_id = ? AND stage = ?"
                " AND coalesce(taken_by, ?) = ? RETURNING payload",
                (token, run_id, stage, token, token),
            ).fetchone()
            known = row or connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if known is None:
            raise not_found(run_id)
        return bytes(row[0]) if row else None

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Keep other processes off a run, whose files are then here as they were saved last. Raises RunBusy."""
        with self._taken(run_id):
            copy = self._copies[run_id] = RunCopy(self.database, run_id, self._copy(run_id).directory)
            with _explained(run_id, "fetch", copy.directory):
                self.database.persist(lambda: copy.bring(self._save_of(run_id)))
            yield

    @contextmanager
    def _taken(self, run_id: str) -> Iterator[None]:
        self._save_of(run_id)
        with ExitStack() as held:
            held.enter_context(self._alone_here(run_id, patience_seconds=_FETCH_SECONDS))
            owner = Owner.here()
            ours = str(owner if self._machine is None else replace(owner, machine=self._machine))
            if (other := self.database.persist(lambda: self._take(run_id, ours))) is not None:
                raise runs.busy(run_id, other, is_ours=False)
            self._held[run_id] = ours
            held.callback(self._release, run_id, ours)
            over = threading.Event()
            renewing = threading.Thread(target=self._renew, args=(run_id, ours, over), daemon=True)
            renewing.start()
            # It may wait for a server that is away, and to renew what was released changes nothing.
            held.callback(renewing.join, 5.0)
            held.callback(over.set)
            yield

    def _take(self, run_id: str, ours: str) -> Holder | None:
        """Take the lock; who holds it, if another does."""
        with self.database.writing() as connection:
            row = connection.execute(f"{_HELD} FOR UPDATE", (run_id,)).fetchone()
            if row is None:
                raise not_found(run_id)
            if row[0] != ours and _holds(row):
                return _holder(*row[:3])
            connection.execute(
                "UPDATE runs SET holder = ?, host = ?, since = clock_seconds(), expires_at = clock_seconds() + ?"
                " WHERE run_id = ?",
                (ours, socket.gethostname(), self._lease_seconds, run_id),
            )
        return None

    def _renew(self, run_id: str, ours: str, over: threading.Event) -> None:
        while not over.wait(self._lease_seconds / 3):
            with suppress(StoreError):  # the server may be back in time
                again = "UPDATE runs SET expires_at = clock_seconds() + ? WHERE run_id = ? AND holder = ?"
                if not self.database.change(again, (self._lease_seconds, run_id, ours)):
                    return

    def _release(self, run_id: str, ours: str) -> None:
        del self._held[run_id]
        with suppress(StoreError):  # then it runs out
            free = "UPDATE runs SET holder = NULL, host = NULL, since = NULL WHERE run_id = ? AND holder = ?"
            self.database.change(free, (run_id, ours))

    @contextmanager
    def _alone_here(self, run_id: str, *, patience_seconds: float = 0.0) -> Iterator[None]:
        """Keep other processes of this machine off the copy of a run. Raises RunBusy."""
        deadline = time.monotonic() + patience_seconds
        directory = self._copy(run_id).directory
        with ExitStack() as held:
            with _explained(run_id, "lock", directory):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = runs.open_file(directory / runs.LOCK, os.O_RDWR | os.O_CREAT)
                held.callback(os.close, descriptor)
                while not runs.try_lock(descriptor):
                    other: Holder | None = None
                    with suppress(RunNotFound):  # it is being made, or removed
                        other = self.holder(run_id)
                    # Who only fetches the files does not hold the run, and is soon done.
                    if other is not None or time.monotonic() >= deadline:
                        raise runs.busy(run_id, other or Holder(), is_ours=run_id in self._held)
                    time.sleep(0.05)
            yield

    @persistent
    def holder(self, run_id: str) -> Holder | None:
        """The process that works on a run just now, or None when none does."""
        rows = self.database.select(_HELD, (checked_name(run_id),))
        if not rows:
            raise not_found(run_id)
        return _holder(*rows[0][:3]) if _holds(rows[0]) else None

    def remove(self, run_id: str) -> int:
        """Remove a run, its copy here, and what no other run names; the size of that. Raises RunBusy."""
        with self._taken(checked_name(run_id)):
            size = self.database.persist(lambda: self._remove(run_id))
            with _explained(run_id, "remove the copy of", self._copy(run_id).directory):
                remove_tree(self._copies.pop(run_id).directory)
        return size

    def _remove(self, run_id: str) -> int:
        with self.database.writing() as connection:
            rows = connection.execute("SELECT DISTINCT digest FROM run_files WHERE run_id = ?", (run_id,)).fetchall()
            connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
            return remove_unused(connection, [row[0] for row in rows])

    def _clear_leftovers(self) -> None:
        """Remove the copies of runs that were removed on other machines. Raises nothing: it is tried again."""
        with suppress(OSError, StoreError):
            names = [path.name for path in self._root.iterdir()]
            rows = self.database.select("SELECT run_id FROM runs WHERE run_id = ANY(?)", (names,))
            for name in set(names).difference(row[0] for row in rows):
                with suppress(RunBusy), self._alone_here(name):  # of a run that is being made
                    remove_tree(self._root / name)

    def _copy(self, run_id: str) -> RunCopy:
        directory = self._root / checked_name(run_id)
        return self._copies.setdefault(run_id, RunCopy(self.database, run_id, directory))

    @persistent
    def _last_save(self, run_id: str) -> str | None:
        """What names the last save of a run, None without such a run."""
        rows = self.database.select("SELECT save FROM runs WHERE run_id = ?", (checked_name(run_id),))
        return rows[0][0] if rows else None

    def _save_of(self, run_id: str) -> str:
        if (save := self._last_save(run_id)) is None:
            raise not_found(run_id)
        return save


def state_of(run: RunRecord) -> bytes:
    """A state as it is stored. Raises StoreError."""
    try:
        return pack(to_json(run))
    except ValueError as error:
        message = f"cannot write the state of the run {run.run_id}: {error}"
        raise StoreError(message, hint="this is a bug; please report it") from error


def text_of(payload: object) -> str:
    """A stored text; what cannot be unpacked is no JSON either."""
    try:
        return unpack(payload)
    except Unreadable:
        return ""


def stage_key(stage: str) -> bytes:
    """The name of a stage, which may hold anything, as it is stored."""
    return stage.encode("utf-8", "surrogatepass")


def _holds(row: tuple[str | None, str, float, bool]) -> bool:
    """Whether a lock has not run out, and its process may be alive."""
    holder, _, _, is_in_time = row
    known = Owner.parse(holder) if holder else None
    return bool(holder) and is_in_time and (known is None or not known.is_gone())


def _holder(holder: str, host: str | None, since: float | None) -> Holder:
    known = Owner.parse(holder)
    moment = None if since is None else datetime.fromtimestamp(since, UTC)
    return Holder(known.process_id if known else None, moment, host or "")


def _lost(run_id: str, other: Holder | None) -> RunBusy:
    who = f"{other} is working on it" if other else "another process took it over"
    hint = f"nothing was overwritten; `codeloupe pipeline status {run_id}` shows its progress"
    return RunBusy(f"this process no longer owns the run {run_id}: {who}", hint=hint)


@contextmanager
def _explained(run_id: str, doing: str, place: Path) -> Iterator[None]:
    """Whatever fails on this machine's disk in the block becomes a StoreError."""
    try:
        yield
    except (OSError, Unreadable) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        hint = "check that path, its permissions and the free disk space"
        raise StoreError(f"cannot {doing} the run {run_id}: {reason} ({place})", hint=hint) from error
