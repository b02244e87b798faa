"""A database that cannot be used is moved out of the way, whole, and only when asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.setting_aside import set_aside
from tests.unit.store.samples import result

_HOLD = """
import sys
from pathlib import Path
from codeloupe.store.database import Database
with Database(Path(sys.argv[1])) as database:
    with database.reading() as connection:
        connection.execute("SELECT count(*) FROM results").fetchall()
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codeloupe.sqlite3"


def test_a_broken_file_is_kept_under_another_name_and_a_new_one_is_made(path: Path) -> None:
    path.write_bytes(b"broken" * 1000)
    with Database(path) as database:
        ledger = SqliteLedger(database)
        with pytest.raises(StoreError):
            ledger.get("k")
        aside = database.set_aside()
        assert aside.name.startswith("codeloupe.sqlite3.set-aside-")
        assert aside.read_bytes() == b"broken" * 1000
        ledger.put("k", result())
        assert ledger.get("k") is not None


def test_what_was_set_aside_can_still_be_read_with_all_that_was_in_its_log(path: Path, tmp_path: Path) -> None:
    left = tmp_path / "left" / path.name
    left.parent.mkdir()
    with Database(path) as database:
        SqliteLedger(database).put("k", result())
        for suffix in ("", "-wal"):
            Path(f"{left}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    aside = set_aside(left)
    assert sorted(file.name for file in left.parent.iterdir()) == [aside.name, f"{aside.name}-wal"]
    with Database(aside) as kept:
        assert SqliteLedger(kept).get("k") is not None


def test_two_in_one_second_do_not_overwrite_each_other(path: Path) -> None:
    names = set()
    for content in (b"one", b"two", b"three"):
        path.write_bytes(content)
        names.add(set_aside(path))
    assert {name.read_bytes() for name in names} == {b"one", b"two", b"three"}


def test_a_directory_in_its_place_is_moved_too(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()
    with Database(path) as database:
        aside = database.set_aside()
        assert (aside / "inside").exists()
        SqliteLedger(database).put("k", result())
    assert path.is_file()


def test_a_database_that_another_process_has_open_stays(path: Path) -> None:
    with subprocess.Popen(
        (sys.executable, "-c", _HOLD, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with Database(path) as database, pytest.raises(StoreError, match="in use by another process") as caught:
            database.set_aside()
        assert "end that codeloupe" in caught.value.hint
        assert path.exists()
        holder.stdin.close()
    assert holder.returncode == 0
    assert Database(path).set_aside().exists()


def test_nothing_there_is_told(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot set aside .*: No such file"):
        Database(path).set_aside()
    assert list(path.parent.iterdir()) == []
