"""Which file systems other machines may write to as well."""

from __future__ import annotations

import os
from pathlib import Path

from codeloupe.store.database import may_be_shared
from tests.rows import rows

LINES = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 disk rw",
    "23 22 0:40 / /net rw - nfs4 server:/x rw",
    "24 23 0:41 / /net/local rw master:3 - ext4 disk rw",
    "25 22 0:42 / /with\\040space rw - cifs //server/x rw",
    "26 22 0:43 / /sshfs rw - fuse.sshfs user@server: rw",
    "27 22 0:44 / /twice rw - ext4 disk rw",
    "28 22 0:45 / /twice rw - nfs server:/y rw",
    "29 22 0:46 / /guest rw - 9p share rw",
    "not a line of the usual form",
    "",
    "30 22 - ext4",
]


@rows(
    ("place", "expected"),
    [
        ("/", False),
        ("/somewhere", False),
        ("/net", True),
        ("/net/deep/er", True),
        ("/network", False),
        ("/net/local/x", False),
        ("/with space/x", True),
        ("/sshfs/x", True),
        ("/twice/x", True),
        ("/guest", True),
    ],
)
def test_the_nearest_mount_decides(tmp_path: Path, place: str, expected: bool) -> None:
    (tmp_path / "mounts").write_text("\n".join(LINES))
    assert may_be_shared(Path(place), mounts=tmp_path / "mounts") is expected


def test_a_link_is_followed_to_where_the_file_really_is(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_bytes(
        b"1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / " + os.fsencode(tmp_path / "real") + b" rw - nfs s rw\n"
    )
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert may_be_shared(tmp_path / "link" / "x", mounts=tmp_path / "mounts")


def test_where_no_mounts_are_told_the_disk_counts_as_our_own(tmp_path: Path) -> None:
    assert not may_be_shared(tmp_path, mounts=tmp_path / "missing")
