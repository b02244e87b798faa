"""Processor time by /proc: of a program with the processes that it started, and of the whole machine."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def program_seconds(process_id: int) -> float:
    """Return the CPU seconds of a process and its children, of those too that have ended."""
    ticks = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            # The name of the program is in parentheses, and may contain blanks.
            fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(place.name) == process_id:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == process_id:
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICKS_A_SECOND


def machine_seconds() -> float:
    """Return the CPU seconds that the machine has worked, of all its cores."""
    user, nice, system, _idle, _waiting, *interrupts = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts))) / _TICKS_A_SECOND
