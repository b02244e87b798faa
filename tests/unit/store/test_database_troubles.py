"""A database that cannot be used: a clear sentence, a way on, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import MIGRATIONS, Database
from codeloupe.store.ledger import SqliteLedger
from tests.rows import rows
from tests.unit.store.samples import result

NO_DATABASES = [b"x", b"\0" * 99, b"n" * 511, b"n" * 512, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 6000]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codeloupe.sqlite3"


def trouble(path: Path) -> StoreError:
    with Database(path, busy_timeout_seconds=0.2) as database, pytest.raises(StoreError) as caught:
        SqliteLedger(database).put("k", result())
    assert str(path.parent) in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return caught.value


def filled(path: Path, count: int = 200) -> None:
    with Database(path) as database:
        ledger = SqliteLedger(database, limits=None)
        with database.writing() as connection:
            connection.executemany(
                "INSERT INTO results VALUES (?, 1e9, 1, 'a', NULL, NULL, ?)",
                ((f"{number:064x}", b"j" + b"x" * 3000) for number in range(count)),
            )
        ledger.put("whole", result())


@rows("content", NO_DATABASES)
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = trouble(path)
    assert "is not a database" in error.message
    assert "move it away" in error.hint
    assert "a new one will be created" in error.hint
    assert path.read_bytes() == content


def test_a_damaged_file_is_told_and_left_as_it_is(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(4).randbytes(3 * 4096))
    before = path.read_bytes()
    error = trouble(path)
    assert "is damaged" in error.message
    assert "move it away" in error.hint
    assert path.read_bytes() == before


def test_a_file_that_was_cut_off_is_told(path: Path) -> None:
    filled(path)
    os.truncate(path, 3 * 4096)
    assert "is damaged" in trouble(path).message


def test_a_newer_schema_is_left_as_it_is(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
        newer.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    error = trouble(path)
    assert f"newer codeloupe (schema 99, this one knows up to {len(MIGRATIONS)})" in error.message
    assert "CODELOUPE_HOME" in error.hint
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE cookies (x)")
    before = path.read_bytes()
    assert "is a database of another program" in trouble(path).message
    assert path.read_bytes() == before


def test_a_directory_in_its_place_is_told(path: Path) -> None:
    path.mkdir()
    assert "is not a file" in trouble(path).message


def test_a_pipe_in_its_place_does_not_hang(path: Path) -> None:
    os.mkfifo(path)
    assert "is not a file" in trouble(path).message


def test_a_link_that_leads_nowhere_is_told(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "x")
    assert "cannot make the database" in trouble(path).message


def test_a_file_in_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("x")
    assert "cannot make the directory" in trouble(tmp_path / "state" / "x.sqlite3").message
    assert "cannot make the directory" in trouble(tmp_path / "state" / "deeper" / "x.sqlite3").message


def test_a_full_disk_is_told_and_what_was_stored_stays(path: Path) -> None:
    with Database(path) as database:
        ledger = SqliteLedger(database, limits=None)
        ledger.put("before", result())
        assert ledger.claim("k", lease_seconds=60)
        with database.reading() as connection:
            connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError, match="no room left") as caught:
            ledger.put("k", result(os.urandom(100_000).hex()))
        assert str(path) in caught.value.message
        assert "make room" in caught.value.hint
        assert ledger.get("before") is not None
        assert ledger.get("k") is None
        assert ledger.is_claimed("k")
        with database.reading() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        ledger.put("k", result())
        assert ledger.get("k") is not None


def test_one_result_that_cannot_be_read_is_told_and_can_be_bought_again(path: Path) -> None:
    with Database(path) as database:
        ledger = SqliteLedger(database)
        ledger.put("k", result())
        with database.writing() as connection:
            connection.execute("UPDATE results SET payload = x'00'")
        with pytest.raises(StoreError, match="the result k in the database .* cannot be read") as caught:
            ledger.get("k")
        assert "fresh=True" in caught.value.hint
        ledger.put("k", result("again"))
        found = ledger.get("k")
        assert found is not None
        assert found.output == "again"


def test_what_is_not_known_is_told_in_sqlites_own_words(path: Path) -> None:
    with Database(path) as database, pytest.raises(StoreError, match="something odd") as caught, database.reading():
        raise sqlite3.ProgrammingError("something odd")
    assert "if this comes again" in caught.value.hint


_BIND = """
import ctypes, os, sys
if os.geteuid() == 0:
    library = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):
        if library.prctl(24, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot give up root's right to overlook permissions")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
_USE = """
import json, resource, signal, sys
from pathlib import Path
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
if len(sys.argv) > 2:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
told = {"stored": []}
with Database(Path(sys.argv[1]), busy_timeout_seconds=0.2) as database:
    ledger = SqliteLedger(database)
    try:
        for number in range(200):
            ledger.put(f"new-{number}", AgentResult(success=True, output=bytes(range(256)).hex() * 8, agent="a"))
            told["stored"].append(f"new-{number}")
    except StoreError as error:
        told |= {"message": error.message, "hint": error.hint}
    try:
        told["readable"] = ledger.get("whole") is not None
    except StoreError:
        told["readable"] = False
print(json.dumps(told))
"""


def in_a_bound_process(path: Path, *arguments: str) -> dict[str, Any]:
    """Use the ledger in a process that permissions bind, even when this one is root."""
    ended = subprocess.run(
        (sys.executable, "-c", _BIND, _USE, str(path), *arguments), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    told = in_a_bound_process(home / "x.sqlite3")
    assert "Permission denied" in told["message"]
    assert "CODELOUPE_HOME" in told["hint"]
    told = in_a_bound_process(home / "deeper" / "x.sqlite3")
    assert "cannot make the directory" in told["message"]


def test_a_database_in_a_directory_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    filled(home / "x.sqlite3")
    before = (home / "x.sqlite3").read_bytes()
    home.chmod(0o500)
    told = in_a_bound_process(home / "x.sqlite3")
    assert "cannot be opened" in told["message"] or "cannot be written" in told["message"]
    assert "CODELOUPE_HOME" in told["hint"]
    home.chmod(0o700)
    assert (home / "x.sqlite3").read_bytes() == before


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_database_that_may_only_be_read_is_still_read(path: Path, journal: str) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    path.chmod(0o400)
    told = in_a_bound_process(path)
    assert "cannot be written" in told["message"]
    assert told["stored"] == []
    assert told["readable"]


def test_a_database_that_may_not_even_be_read_is_told(path: Path) -> None:
    filled(path)
    path.chmod(0)
    told = in_a_bound_process(path)
    assert "cannot be opened" in told["message"]
    assert not told["readable"]


def test_when_the_system_lets_no_file_grow_what_was_stored_stays(path: Path) -> None:
    filled(path)
    told = in_a_bound_process(path, str(path.stat().st_size + 20_000))
    assert str(path) in told["message"]
    assert "disk" in told["hint"]
    assert told["readable"]
    with Database(path) as database:
        ledger = SqliteLedger(database)
        assert ledger.get("whole") is not None
        assert all(ledger.get(key) is not None for key in told["stored"])
        with database.reading() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
