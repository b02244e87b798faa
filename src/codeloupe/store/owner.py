"""Who holds a lease or a permit: a process, named so that others on the same machine notice its end at once."""

from __future__ import annotations

import os
import re
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Self

from msgspec import Struct


class Owner(Struct, frozen=True):
    """One holder. `machine` names a table of process numbers, or is empty if the system has no name for it."""

    machine: str
    process_id: int
    token: str

    @classmethod
    def here(cls) -> Self:
        """Return a new owner in this process."""
        return cls(_machine(), os.getpid(), secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that `str` wrote, or None for any other text."""
        found = re.fullmatch(r"(.*) process ([0-9]+) token (.*?)", text, re.DOTALL)
        return cls(found[1], int(found[2]), found[3]) if found else None

    def __str__(self) -> str:
        return f"{self.machine} process {self.process_id} token {self.token}"

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended; False if that cannot be known from here."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.process_id, 0)
            status = Path(f"/proc/{self.process_id}/stat").read_bytes()
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        # A process whose parent has not read its exit status keeps its number. The name before the state may contain
        # anything, brackets and blanks too.
        return status.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def this_process() -> Owner:
    """Return the one owner of this process."""
    return _owner_of(os.getpid())


@lru_cache(maxsize=1)
def _owner_of(_process_id: int) -> Owner:
    # By process id, because a forked child must not act as its parent.
    return Owner.here()


def is_gone(owner: str) -> bool:
    """Return whether the text of an owner names a process of this machine that has ended."""
    known = Owner.parse(owner)
    return known is not None and known.is_gone()


def _machine() -> str:
    # Two containers may have one host name and each a process 7: only the kernel's own names tell them apart.
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return ""
