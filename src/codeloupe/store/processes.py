"""The processes that share a database: each has one row, which it renews while it holds permits or works on jobs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from msgspec import Struct

from codeloupe.store.interface import Connection, Database, persistent
from codeloupe.store.owner import Owner, is_gone, this_process

LEASE_SECONDS = 30.0
# The row of a process that cannot be checked from here is removed when it has not been renewed for so long.
_FORGOTTEN_SECONDS = 3600.0


class WorkerRecord(Struct, frozen=True):
    """A worker as others see it. Times are seconds since 1970, by the clock of the database."""

    owner: str
    host: str
    queues: tuple[str, ...]
    slots: int
    started_at: float
    seen_at: float
    is_alive: bool

    @property
    def process_id(self) -> int | None:
        """Return the number of the process on its host, if it is known."""
        known = Owner.parse(self.owner)
        return None if known is None else known.process_id


class Processes:
    """The row of this process, and those of others. Methods raise StoreError."""

    def __init__(self, database: Database, *, owner: Owner | None = None, lease_seconds: float = LEASE_SECONDS) -> None:
        self.database = database
        self.owner = owner or this_process()
        self.lease_seconds = lease_seconds

    @property
    def host(self) -> str:
        """Return the name of this process for people."""
        return _host()

    @persistent
    def renew(self) -> None:
        """Let others know that this process is alive."""
        with self.database.writing() as connection:
            self.renew_in(connection)

    def renew_in(self, connection: Connection) -> None:
        """Do the same in a transaction of the caller."""
        now = self.database.clock()
        connection.execute(
            "INSERT INTO processes (owner, host, queues, slots, started_at, seen_at, expires_at)"
            " VALUES (?, ?, '', 0, ?, ?, ?)"
            " ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at, expires_at = excluded.expires_at",
            (str(self.owner), _host(), now, now, now + self.lease_seconds),
        )

    @persistent
    def register_worker(self, queues: Sequence[str], slots: int) -> None:
        """Let others know that this process works on jobs of these queues, so many at a time."""
        now = self.database.clock()
        self.database.change(
            "INSERT INTO processes (owner, host, queues, slots, started_at, seen_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET queues = excluded.queues,"
            " slots = excluded.slots, seen_at = excluded.seen_at, expires_at = excluded.expires_at",
            (str(self.owner), _host(), ",".join(queues), slots, now, now, now + self.lease_seconds),
        )

    @persistent
    def workers(self) -> tuple[WorkerRecord, ...]:
        """Return all workers, those that started first at the front."""
        now = self.database.clock()
        rows = self.database.select(
            "SELECT owner, host, queues, slots, started_at, seen_at, expires_at FROM processes WHERE slots > 0"
            " ORDER BY started_at, owner"
        )
        found: list[WorkerRecord] = []
        for owner, host, queues, slots, started_at, seen_at, expires_at in rows:
            is_alive = self._is_alive(owner, expires_at, now)
            found.append(WorkerRecord(owner, host, tuple(queues.split(",")), slots, started_at, seen_at, is_alive))
        return tuple(found)

    @persistent
    def remove_dead_workers(self) -> None:
        """Remove the rows of workers whose process has ended, or was not heard of for long."""
        with self.database.writing() as connection:
            for owner in self.dead_in(connection):
                connection.execute("DELETE FROM processes WHERE owner = ? AND slots > 0", (owner,))

    def dead_in(self, connection: Connection) -> list[str]:
        """Return the owners of rows whose process has ended, or was not heard of for long."""
        now = self.database.clock()
        rows = connection.execute("SELECT owner, expires_at FROM processes WHERE owner <> ?", (str(self.owner),))
        dead: list[str] = []
        for owner, expires_at in rows.fetchall():
            if is_gone(owner) or expires_at < now - _FORGOTTEN_SECONDS:
                dead.append(owner)
        return dead

    def _is_alive(self, owner: str, expires_at: float, now: float) -> bool:
        # While the server was down, no process could renew its row.
        could_renew_until = max(expires_at, self.database.up_since + self.lease_seconds)
        return now < could_renew_until and not is_gone(owner)


def _host() -> str:
    return f"{socket.gethostname()} process {os.getpid()}"
