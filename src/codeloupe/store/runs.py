"""The runs of pipelines in a database, with the same statements on SQLite and Postgres.

A save is one transaction: it checks the lease of the run, and stores state, events and files. A process that lost the
lease writes nothing. The directory of a run on this machine has copies for people and a cache for git, and may be
deleted at any time while no process works on the run.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
from codeloupe.store.blobs import digest_of, lock_blob, put_blob, read_blob, remove_unused_blobs
from codeloupe.store.interface import Connection, Content, Database, persistent, short_identity
from codeloupe.store.leases import Lease, read_lease, release_lease, renew_lease, take_lease
from codeloupe.store.owner import Owner
from codeloupe.store.records import pack, to_json, unpack
from codeloupe.store.run_copies import append_copy, has_copy, write_copy
from codeloupe.store.run_records import (
    Holder,
    answer_replaced,
    approval_bytes,
    busy,
    checked_name,
    checked_path,
    holder_of,
    lost,
    name_taken,
    not_found,
    path_key,
    read_approval,
    read_events,
    read_state,
    stage_key,
    state_text,
)
from codeloupe.system.directories import remove_tree

__all__ = ["RUNS_DIRECTORY", "DatabaseRunStore", "Holder"]

# Below the state directory.
RUNS_DIRECTORY = "pipelines"
# The names of copies in the directory of a run.
STATE = "run.json"
JOURNAL = "journal.jsonl"
# Files of git, which people do not read.
TREES_FOLDER = "trees"
_NO_FILES: Mapping[str, Content] = MappingProxyType({})


class _Save(Struct, frozen=True):
    """One save of a run. `token` names it, so that a save that is sent twice is recognised."""

    run_id: str
    token: str
    state: bytes
    events: tuple[bytes, ...]
    files: Mapping[str, tuple[bytes, Content]]
    removed: tuple[str, ...] = ()
    answered: Approval | None = None


class DatabaseRunStore:
    """The runs in a database, each with a directory below a state directory of this machine.

    A lock that is not renewed for `lease_seconds` is free; the lock of a process that ended on this machine is free at
    once.
    """

    def __init__(self, database: Database, directory: Path, *, lease_seconds: float = 45.0) -> None:
        self.database = database
        self._state_directory = directory.absolute()
        self._host = socket.gethostname()
        self.home = f"{self._host} {self._state_directory}"
        self._lease_seconds = lease_seconds
        self._held: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The file of the database, or its address without a password."""
        return self.database.name

    @cached_property
    def _root(self) -> Path:
        """Return the directory of all runs. Raise StoreError."""
        folder = RUNS_DIRECTORY
        if self.database.is_shared:
            # Two databases may have runs of the same name.
            folder = f"{RUNS_DIRECTORY}-{short_identity(self.database)}"
        return self._state_directory / folder

    def directory(self, run_id: str) -> Path:
        """Return the directory of a run on this machine, which may not exist. Raise RunNotFound."""
        self._check_exists(run_id)
        return self._directory(run_id)

    def _directory(self, run_id: str) -> Path:
        return self._root / checked_name(run_id)

    @persistent
    def _check_exists(self, run_id: str) -> None:
        if not self.database.select("SELECT 1 FROM runs WHERE run_id = ?", (checked_name(run_id),)):
            raise not_found(run_id)

    def create(self, run: RunRecord, files: Mapping[str, Content] = _NO_FILES) -> Path:
        """Store a new run with its files, and return its directory. Raise StoreError if its name is taken."""
        directory = self._directory(run.run_id)
        save = self._new_save(run, (), files)
        is_new = self.database.persist(lambda: self._create(save))
        if not is_new:
            raise name_taken(run.run_id, self.name)
        # The directory may be left from a run of the same name that was removed on another machine.
        remove_tree(directory)
        self.write_copies(run.run_id)
        return directory

    def _create(self, save: _Save) -> bool:
        now = self.database.clock()
        with self.database.writing(_about(save.run_id)) as connection:
            row = connection.execute("SELECT save FROM runs WHERE run_id = ?", (save.run_id,)).fetchone()
            if row is not None:
                # It is ours if it was stored, and only the reply was lost.
                return bool(row[0] == save.token)
            statement = "INSERT INTO runs (run_id, save, state) VALUES (?, ?, ?)"
            connection.execute(statement, (save.run_id, save.token, save.state))
            _put_files(connection, save, now)
        return True

    def save(
        self,
        run: RunRecord,
        *events: PipelineEvent,
        files: Mapping[str, Content | None] = _NO_FILES,
        answered: Approval | None = None,
    ) -> None:
        """Store the state, new events and files in one transaction; a file without a content is removed.

        The same transaction removes the answer that was `answered`, because the state now has its effect. Raise RunBusy
        if the lock is not ours.
        """
        directory = self._directory(run.run_id)
        save = replace(self._new_save(run, events, files), answered=answered)
        self.database.persist(lambda: self._save(save))
        lines = [f"{unpack(event)}\n" for event in save.events]
        append_copy(directory / JOURNAL, _encoded("".join(lines)))
        write_copy(directory / STATE, [_state_copy(save.state)])

    def _new_save(self, run: RunRecord, events: Sequence[PipelineEvent], files: Mapping[str, Content | None]) -> _Save:
        contents: dict[str, tuple[bytes, Content]] = {}
        removed: list[str] = []
        for name, content in files.items():
            if content is None:
                removed.append(name)
                continue
            try:
                contents[checked_path(name, run.run_id)] = (digest_of(content), content)
            except OSError as error:
                message = f"cannot store the file {name} of the run {run.run_id}: {error.strerror or error}"
                raise StoreError(message, hint="check the directory of the run, and resume it") from error
        return _Save(
            run_id=checked_name(run.run_id),
            token=secrets.token_hex(8),
            state=pack(state_text(run)),
            events=tuple(pack(to_json(event)) for event in events),
            files=contents,
            removed=tuple(removed),
        )

    def _save(self, save: _Save) -> None:
        now = self.database.clock()
        with self.database.writing(_about(save.run_id)) as connection:
            row = connection.execute("SELECT save FROM runs WHERE run_id = ?", (save.run_id,)).fetchone()
            if row is None:
                raise not_found(save.run_id)
            if row[0] == save.token:
                # It was stored, and only the reply was lost.
                return
            self._check_lease(connection, save.run_id)
            statement = "UPDATE runs SET save = ?, state = ? WHERE run_id = ?"
            connection.execute(statement, (save.token, save.state, save.run_id))
            _add_events(connection, save)
            _put_files(connection, save, now)
            if save.answered is not None:
                _apply_answer(connection, save.run_id, save.answered)

    def _check_lease(self, connection: Connection, run_id: str) -> None:
        """Raise RunBusy unless the lock is ours. A caller without a lock may save only if no process holds it."""
        lease = read_lease(connection, _about(run_id))
        owner = None if lease is None else lease.owner
        if owner != self._held.get(run_id):
            raise lost(run_id, lease, host=self._host)

    @persistent
    def load(self, run_id: str) -> RunRecord:
        """Return the last state of a run. Raise StoreError if it is damaged or from a newer codeloupe."""
        return read_state(run_id, self._state(run_id), self.name)

    def _state(self, run_id: str) -> bytes:
        rows = self.database.select("SELECT state FROM runs WHERE run_id = ?", (checked_name(run_id),))
        if not rows:
            raise not_found(run_id)
        return bytes(rows[0][0])

    @persistent
    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """Return the events of a run, the oldest first, with a note for each that cannot be read."""
        self._check_exists(run_id)
        rows = self.database.select("SELECT payload FROM run_events WHERE run_id = ? ORDER BY position", (run_id,))
        return read_events(row[0] for row in rows)

    @persistent
    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """Return all runs, the newest first, and the runs that cannot be read, each with the reason."""
        found: list[RunRecord] = []
        problems: dict[str, str] = {}
        for run_id, state in self.database.select("SELECT run_id, state FROM runs ORDER BY run_id"):
            try:
                found.append(read_state(run_id, state, self.name))
            except StoreError as error:
                problems[run_id] = error.message
        found.sort(key=lambda run: (run.started_at, run.run_id), reverse=True)
        return tuple(found), problems

    @persistent
    def matching(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of runs with a prefix, sorted, readable or not."""
        statement = "SELECT run_id FROM runs WHERE substr(run_id, 1, ?) = ? ORDER BY run_id"
        rows = self.database.select(statement, (len(prefix), prefix))
        return tuple(row[0] for row in rows)

    @persistent
    def file_names(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the stored files of a run, sorted."""
        rows = self.database.select("SELECT path FROM run_files WHERE run_id = ? ORDER BY path", (run_id,))
        return tuple(os.fsdecode(row[0]) for row in rows)

    @persistent
    def read_file(self, run_id: str, name: str) -> bytes | None:
        """Return the content of a stored file, or None if the run has no such file."""
        digest = self._digest(run_id, name)
        return None if digest is None else b"".join(read_blob(self.database, digest))

    def _digest(self, run_id: str, name: str) -> bytes | None:
        statement = "SELECT digest FROM run_files WHERE run_id = ? AND path = ?"
        rows = self.database.select(statement, (run_id, path_key(name)))
        return bytes(rows[0][0]) if rows else None

    @persistent
    def copy_file(self, run_id: str, name: str, target: Path) -> None:
        """Write a stored file to a path, chunk by chunk. Raise OSError, and StoreError if it is not stored."""
        digest = self._digest(run_id, name)
        if digest is None:
            raise StoreError(f"the run {run_id} has no file {name!r}", hint="start a new run")
        with target.open("wb") as stream:
            stream.writelines(read_blob(self.database, digest))

    @persistent
    def has_copies(self, run_id: str) -> bool:
        """Return whether the directory of a run has the copies of its last save."""
        return has_copy(self._directory(run_id) / STATE, _state_copy(self._state(run_id)))

    @persistent
    def write_copies(self, run_id: str) -> None:
        """Write all copies for people. A copy that cannot be written is a warning in the log."""
        directory = self._directory(run_id)
        for name in self.file_names(run_id):
            digest = self._digest(run_id, checked_path(name, run_id))
            if digest is not None and not name.startswith(f"{TREES_FOLDER}/"):
                write_copy(directory / name, read_blob(self.database, digest))
        lines = [f"{to_json(event)}\n" for event in self.journal(run_id)]
        write_copy(directory / JOURNAL, [_encoded("".join(lines))])
        # The state is last: it says that all copies are there.
        write_copy(directory / STATE, [_state_copy(self._state(run_id))])

    @persistent
    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Store a person's answer for a run, in the place of an earlier one."""
        self._check_exists(run_id)
        with self.database.writing(_about(run_id)) as connection:
            connection.execute(
                "INSERT INTO run_approvals (run_id, stage, question, payload) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (run_id, stage) DO UPDATE SET question = excluded.question, payload = excluded.payload",
                (run_id, stage_key(approval.stage), approval.question, approval_bytes(approval)),
            )

    @persistent
    def approval(self, run_id: str, stage: str) -> Approval | None:
        """Return the answer on a stage, or None."""
        statement = "SELECT payload FROM run_approvals WHERE run_id = ? AND stage = ?"
        rows = self.database.select(statement, (checked_name(run_id), stage_key(stage)))
        if rows:
            return read_approval(rows[0][0], run_id, stage)
        self._check_exists(run_id)
        return None

    @persistent
    def remove_approval(self, run_id: str, approval: Approval) -> None:
        """Remove an answer, unless another question has been answered in its place."""
        with self.database.writing(_about(checked_name(run_id))) as connection:
            _remove_approval(connection, run_id, approval)

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Hold the right to work on a run; it ends with this process. Raise RunBusy, which names the holder."""
        owner = str(Owner.here())
        other = self.database.persist(lambda: self._take_lock(run_id, owner))
        if other is not None:
            raise busy(run_id, other, host=self._host)
        self._held[run_id] = owner
        over = threading.Event()
        renewing = threading.Thread(target=self._renew_lock, args=(run_id, owner, over), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            over.set()
            # It may be waiting for a server that is unreachable. To renew a lease that was released changes nothing.
            renewing.join(5.0)
            del self._held[run_id]
            self._release_lock(run_id, owner)

    def _take_lock(self, run_id: str, owner: str) -> Lease | None:
        self._check_exists(run_id)
        now = self.database.clock()
        with self.database.writing(_about(run_id)) as connection:
            return take_lease(connection, _about(run_id), owner, now=now, seconds=self._lease_seconds)

    def _renew_lock(self, run_id: str, owner: str, over: threading.Event) -> None:
        is_ours = True
        while is_ours and not over.wait(self._lease_seconds / 3):
            # The server may be reachable again before the lease expires.
            with suppress(StoreError), self.database.writing(_about(run_id)) as connection:
                # Read here, because a long save may have held the transaction up.
                now = self.database.clock()
                is_ours = renew_lease(connection, _about(run_id), owner, now=now, seconds=self._lease_seconds)

    def _release_lock(self, run_id: str, owner: str) -> None:
        # A lease that cannot be released expires.
        with suppress(StoreError), self.database.writing(_about(run_id)) as connection:
            release_lease(connection, _about(run_id), owner)

    @persistent
    def holder(self, run_id: str) -> Holder | None:
        """Return the process that works on a run, or None."""
        self._check_exists(run_id)
        with self.database.reading() as connection:
            lease = read_lease(connection, _about(run_id))
        if lease is None or not lease.holds(self.database.clock()):
            return None
        return holder_of(lease, host=self._host)

    def remove(self, run_id: str) -> int:
        """Remove a run, its directory here, and contents that no other run has; return the freed bytes."""
        with self.lock(run_id):
            size = self.database.persist(lambda: self._remove(run_id))
        self.database.give_back_room()
        directory = self._directory(run_id)
        try:
            remove_tree(directory)
        except OSError as error:
            message = f"the run {run_id} was removed, but not its directory {directory}: {error.strerror or error}"
            raise StoreError(message, hint="remove that directory yourself") from error
        return size

    def _remove(self, run_id: str) -> int:
        with self.database.writing(_about(run_id)) as connection:
            rows = connection.execute("SELECT digest FROM run_files WHERE run_id = ?", (run_id,)).fetchall()
            connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
            return remove_unused_blobs(connection, [bytes(row[0]) for row in rows])


def _about(run_id: str) -> str:
    """Return the name of a run's lease; transactions about it run one at a time."""
    return f"run {run_id}"


def _apply_answer(connection: Connection, run_id: str, answer: Approval) -> None:
    """Remove an answer whose effect is saved. Raise AnswerReplaced if the person has answered again."""
    statement = "SELECT payload FROM run_approvals WHERE run_id = ? AND stage = ?"
    row = connection.execute(statement, (run_id, stage_key(answer.stage))).fetchone()
    if row is None:
        return
    stored = read_approval(row[0], run_id, answer.stage)
    if stored.question == answer.question and stored != answer:
        raise answer_replaced(run_id, answer.stage)
    _remove_approval(connection, run_id, answer)


def _remove_approval(connection: Connection, run_id: str, approval: Approval) -> None:
    statement = "DELETE FROM run_approvals WHERE run_id = ? AND stage = ? AND question = ?"
    connection.execute(statement, (run_id, stage_key(approval.stage), approval.question))


def _add_events(connection: Connection, save: _Save) -> None:
    if not save.events:
        return
    statement = "SELECT coalesce(max(position), 0) FROM run_events WHERE run_id = ?"
    last = connection.execute(statement, (save.run_id,)).fetchone()[0]
    rows = [(save.run_id, last + number, event) for number, event in enumerate(save.events, start=1)]
    connection.executemany("INSERT INTO run_events (run_id, position, payload) VALUES (?, ?, ?)", rows)


def _put_files(connection: Connection, save: _Save, now: float) -> None:
    """Store and remove files of a run, and remove contents that no file has any more."""
    replaced = _stored_digests(connection, save)
    contents = dict(save.files.values())
    # In one order, so that two transactions never wait for each other.
    for digest in sorted({*contents, *replaced}):
        if digest in contents:
            put_blob(connection, digest, contents[digest], now=now)
        else:
            lock_blob(connection, digest)
    for name, (digest, _) in save.files.items():
        connection.execute(
            "INSERT INTO run_files (run_id, path, digest) VALUES (?, ?, ?)"
            " ON CONFLICT (run_id, path) DO UPDATE SET digest = excluded.digest",
            (save.run_id, path_key(name), digest),
        )
    for name in save.removed:
        connection.execute("DELETE FROM run_files WHERE run_id = ? AND path = ?", (save.run_id, path_key(name)))
    remove_unused_blobs(connection, replaced)


def _stored_digests(connection: Connection, save: _Save) -> set[bytes]:
    """Return the contents that files of a save have now."""
    digests: set[bytes] = set()
    for name in (*save.files, *save.removed):
        values = (save.run_id, path_key(name))
        row = connection.execute("SELECT digest FROM run_files WHERE run_id = ? AND path = ?", values).fetchone()
        if row is not None:
            digests.add(bytes(row[0]))
    return digests


def _state_copy(state: bytes) -> bytes:
    return _encoded(f"{unpack(state)}\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
