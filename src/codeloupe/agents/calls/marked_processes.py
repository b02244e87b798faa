"""Processes that carry a mark in their environment, and their end.

For programs that a vendor's package starts, so that we are not told their process numbers. What a program starts
inherits the mark, in whatever session it is. Only Linux shows another process's environment: elsewhere none is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

MARK = "CODELOUPE_CALL"
_PROCESSES = Path("/proc")


def signal_marked(token: str, number: signal.Signals) -> int:
    """Send a signal to every process of ours with this mark; how many there were."""
    mark = f"{MARK}={token}".encode()
    found = 0
    for entry in _PROCESSES.glob("[0-9]*"):
        # It may end, or not be ours, at any moment.
        with contextlib.suppress(OSError):
            found += _signal_if_marked(entry, mark, number)
    return found


def _signal_if_marked(entry: Path, mark: bytes, number: signal.Signals) -> bool:
    if mark not in (entry / "environ").read_bytes().split(b"\0"):
        return False
    # Held by its file, the number cannot pass to a stranger; so the mark is looked at again.
    process = os.pidfd_open(int(entry.name))
    try:
        is_marked = mark in (entry / "environ").read_bytes().split(b"\0")
        if is_marked:
            signal.pidfd_send_signal(process, number)
        return is_marked
    finally:
        os.close(process)
