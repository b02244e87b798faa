"""How much memory this process had at its peak."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_bytes() -> int:
    """The peak of the resident set: on Linux of this program alone, elsewhere perhaps also of who started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
