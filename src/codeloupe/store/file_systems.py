"""Which file systems more than one machine may write to."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_SHARED = frozenset(
    b"9p afs beegfs ceph cifs coda gpfs lustre nfs nfs4 orangefs panfs pvfs2 smb3 smbfs vboxsf virtiofs".split()
)


def may_be_shared(path: Path, *, mounts: Path = _MOUNTS) -> bool:
    """Whether the directory may be seen by other machines too: a network, host-to-guest or user-space file system.

    False where the system does not tell its mounts (anything but Linux).
    """
    try:
        lines = mounts.read_bytes().split(b"\n")
        place = os.fsencode(path.resolve())
    except OSError:
        return False
    kind = _kind_of_mount(place, lines)
    return kind in _SHARED or kind.startswith(b"fuse")


def _kind_of_mount(place: bytes, lines: list[bytes]) -> bytes:
    """The type of the mount with the longest path above a place; of two on one point, the later lies on top."""
    best, kind = b"", b""
    for line in lines:
        mount, _, rest = line.partition(b" - ")
        words = mount.split()
        if len(words) < 5:
            continue
        point = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 8) & 0xFF]), words[4])
        if len(point) >= len(best) and _is_below(place, point):
            best, kind = point, rest.split(b" ", 1)[0]
    return kind


def _is_below(place: bytes, point: bytes) -> bool:
    return place == point or place.startswith(point.rstrip(b"/") + b"/")
