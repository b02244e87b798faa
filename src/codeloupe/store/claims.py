"""Who is buying a call just now, and whether that claim still holds."""

from __future__ import annotations

import math
import os
import secrets
from pathlib import Path
from typing import Self

from msgspec import Struct

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESS_NAMESPACE = Path("/proc/self/ns/pid")


class Owner(Struct, frozen=True):
    """One user of a ledger. `machine` names a table of process numbers, or is empty where none can be told apart."""

    machine: str
    process_id: int
    token: str

    @classmethod
    def here(cls) -> Self:
        """A new owner in this process."""
        return cls(_machine(), os.getpid(), secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner that `str` made the text of, or None when it is from nobody we know."""
        machine, _, rest = text.rpartition(" process ")
        number, _, token = rest.partition(" token ")
        return cls(machine, int(number), token) if number.isdecimal() and number.isascii() else None

    def __str__(self) -> str:
        return f"{self.machine} process {self.process_id} token {self.token}"

    def is_gone(self) -> bool:
        """Whether the process is known to have ended; False when that cannot be known from here."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.process_id, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            return False
        return _is_dead(self.process_id)


class Claim(Struct, frozen=True):
    """A claim as it is stored; times are seconds of the wall clock."""

    owner: str
    lease_seconds: float
    expires_at: float

    @classmethod
    def until(cls, now: float, *, owner: Owner, lease_seconds: float) -> Self:
        """A claim for so many seconds from now. Raises ValueError when that is no time at all, or for ever."""
        if not (math.isfinite(lease_seconds) and lease_seconds > 0):
            raise ValueError(f"a lease lasts some seconds, not {lease_seconds!r}")
        return cls(str(owner), lease_seconds, now + lease_seconds)

    def holds(self, now: float) -> bool:
        """Whether it has not run out and its owner is not known to be gone.

        A clock that was set back, or ran ahead when the claim was made, keeps it alive for two leases at most.
        """
        begun_latest = self.expires_at - 2 * self.lease_seconds
        if not begun_latest <= now < self.expires_at:
            return False
        owner = Owner.parse(self.owner)
        return owner is None or not owner.is_gone()


def _is_dead(process_id: int) -> bool:
    """Whether a process has ended and only its number is kept, for a parent that has not asked how it ended."""
    try:
        told = Path(f"/proc/{process_id}/stat").read_bytes()
    except OSError:
        return False
    # The name before the state may hold anything, brackets and blanks too.
    return told.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _machine() -> str:
    # Two containers may have one host name and each a process 7: only the kernel's own names tell them apart.
    try:
        return f"{_BOOT.read_text('ascii').strip()} {_PROCESS_NAMESPACE.readlink()}"
    except (OSError, ValueError):
        return ""
