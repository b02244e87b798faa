"""Leases: rights that one process holds until it releases them, dies, or stops renewing them.

The ledger uses them for agent calls and the run store for runs. The functions work in a transaction of the caller: one
of `database.writing(about)`, so that no other transaction about the same lease runs beside it.
"""

from __future__ import annotations

import math
import socket

from msgspec import Struct

from codeloupe.store.interface import Connection
from codeloupe.store.owner import Owner, is_gone

_COLUMNS = "owner, host, since, lease_seconds, expires_at"


class Lease(Struct, frozen=True):
    """A lease as it is stored. Times are those of the database."""

    owner: str
    host: str
    since: float
    lease_seconds: float
    expires_at: float

    def holds(self, now: float) -> bool:
        """Return whether it has not expired, also if the clock was set back, and its process may be alive."""
        is_in_time = self.expires_at - 2 * self.lease_seconds <= now < self.expires_at
        return is_in_time and not is_gone(self.owner)

    @property
    def process_id(self) -> int | None:
        """Return the number of the process, if it is known."""
        owner = Owner.parse(self.owner)
        return None if owner is None else owner.process_id


def check_seconds(seconds: float) -> None:
    """Raise ValueError unless a lease can last that long."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"a lease must last a positive number of seconds, not {seconds!r}")


def read_lease(connection: Connection, name: str) -> Lease | None:
    """Return the lease of that name, expired or not, or None."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM leases WHERE name = ?", (name,)).fetchone()  # noqa: S608 - ours
    return None if row is None else Lease(*row)


def take_lease(connection: Connection, name: str, owner: str, *, now: float, seconds: float) -> Lease | None:
    """Take a lease, or return the one that another owner holds."""
    lease = read_lease(connection, name)
    if lease is not None and lease.owner != owner and lease.holds(now):
        return lease
    connection.execute(
        f"INSERT INTO leases (name, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"  # noqa: S608 - ours
        " owner = excluded.owner, host = excluded.host, since = excluded.since,"
        " lease_seconds = excluded.lease_seconds, expires_at = excluded.expires_at",
        (name, owner, socket.gethostname(), now, seconds, now + seconds),
    )
    return None


def renew_lease(connection: Connection, name: str, owner: str, *, now: float, seconds: float) -> bool:
    """Extend a lease; False if it is no longer the owner's."""
    renewed = connection.execute(
        "UPDATE leases SET lease_seconds = ?, expires_at = ? WHERE name = ? AND owner = ?",
        (seconds, now + seconds, name, owner),
    )
    return renewed.rowcount > 0


def end_lease(connection: Connection, name: str) -> None:
    """Remove a lease, whoever holds it, because its purpose is fulfilled."""
    connection.execute("DELETE FROM leases WHERE name = ?", (name,))


def release_lease(connection: Connection, name: str, owner: str) -> None:
    """End a lease, unless it is another owner's by now."""
    connection.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))


def remove_expired(connection: Connection, *, before: float) -> None:
    """Remove leases that expired before a time."""
    connection.execute("DELETE FROM leases WHERE expires_at < ?", (before,))
