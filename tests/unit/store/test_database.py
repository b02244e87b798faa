"""The database file: made, opened, shared and closed."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import Database
from tests.children import open_files
from tests.rows import rows


class WithoutSharedMemory(Database):
    """The same on a file system that cannot share memory between processes, as SQLite sees it."""

    def _connect(self) -> sqlite3.Connection:
        name = f"{self._path.as_uri()}?vfs=unix-dotfile"
        return sqlite3.connect(name, uri=True, timeout=5, isolation_level=None, check_same_thread=False)


class WithoutSqlitesPatience(Database):
    """The same where SQLite says at once that the file is held by another, as it may do while a file is opened."""

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)


def refuse_shared_memory(path: Path) -> None:
    """Put something into its place that SQLite will not open."""
    Path(f"{path}-shm").symlink_to(path.parent / "missing" / "place")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "codeloupe.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with Database(path) as opened:
        yield opened


def setting(database: Database, name: str) -> object:
    with database.reading() as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def add_claim(database: Database, key: str) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO claims VALUES (?, 'o', 1, 1)", (key,))


def _add_claim_and_be_interrupted(database: Database) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO claims VALUES ('b', 'o', 1, 1)")
        raise KeyboardInterrupt


def claims(database: Database) -> list[str]:
    with database.reading() as connection:
        return [key for (key,) in connection.execute("SELECT key FROM claims ORDER BY key")]


def test_nothing_is_touched_before_the_first_use(path: Path) -> None:
    Database(path).close()
    assert not path.parent.exists()


def test_the_file_and_its_directory_are_for_this_user_only(database: Database, path: Path) -> None:
    previous = os.umask(0)
    try:
        add_claim(database, "k")
    finally:
        os.umask(previous)
    assert mode(path.parent) == 0o700
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert Path(f"{path}-wal").exists()


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    path.chmod(0o664)
    with Database(path) as database:
        add_claim(database, "k")
    assert mode(path) == 0o600


def test_a_directory_that_was_there_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)
    with Database(path) as database:
        add_claim(database, "k")
    assert mode(path.parent) == 0o755


def test_it_is_durable_and_waits_for_others(database: Database) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum", "busy_timeout")
    assert [setting(database, name) for name in names] == ["wal", 2, 1, 2, 15_000]


def test_closing_leaves_one_file_and_no_descriptor(path: Path) -> None:
    before = open_files()
    with Database(path) as database:
        add_claim(database, "k")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    # What an earlier test left may be closed meanwhile.
    assert open_files() <= before


def test_it_opens_again_after_closing(database: Database) -> None:
    add_claim(database, "a")
    database.close()
    database.close()
    add_claim(database, "b")
    assert claims(database) == ["a", "b"]


def test_a_block_that_raises_leaves_nothing(database: Database) -> None:
    add_claim(database, "a")
    with pytest.raises(KeyboardInterrupt):
        _add_claim_and_be_interrupted(database)
    assert claims(database) == ["a"]
    add_claim(database, "c")
    assert claims(database) == ["a", "c"]


def test_what_sqlite_says_about_a_statement_is_an_error_of_ours(database: Database, path: Path) -> None:
    with pytest.raises(StoreError, match="no such table: nowhere") as caught, database.writing() as connection:
        connection.execute("INSERT INTO nowhere VALUES (1)")
    assert str(path) in caught.value.message
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


def test_threads_take_turns(database: Database) -> None:
    def work(name: int) -> None:
        for number in range(20):
            add_claim(database, f"{name}-{number}")
            claims(database)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims(database)) == 160


def test_two_databases_of_one_process_on_one_file_see_each_other(database: Database, path: Path) -> None:
    with Database(path) as other:
        add_claim(database, "a")
        add_claim(other, "b")
        assert claims(database) == claims(other) == ["a", "b"]


def test_a_writer_that_does_not_end_is_waited_for_and_then_named(database: Database, path: Path) -> None:
    add_claim(database, "a")
    with Database(path, busy_timeout_seconds=0.1) as other, database.writing():
        assert claims(other) == ["a"]
        with pytest.raises(StoreError, match="held by another process") as caught:
            add_claim(other, "b")
        assert "try again" in caught.value.hint


@pytest.mark.parametrize("kind", [Database, WithoutSqlitesPatience])
def test_opening_waits_for_one_who_has_the_file_for_himself(path: Path, kind: type[Database]) -> None:
    with Database(path) as database:
        add_claim(database, "a")
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    with kind(path, busy_timeout_seconds=0.1) as impatient, pytest.raises(StoreError, match="held by another"):
        claims(impatient)
    timer = threading.Timer(0.2, holder.close)
    timer.start()
    with kind(path) as patient:
        assert claims(patient) == ["a"]
    timer.join()


def test_a_file_that_was_removed_is_made_anew(database: Database, path: Path) -> None:
    add_claim(database, "old")
    path.unlink()
    assert claims(database) == []
    assert path.exists()


def test_a_file_that_was_moved_away_is_made_anew_and_not_written_to(database: Database, path: Path) -> None:
    add_claim(database, "old")
    path.rename(path.with_name("moved"))
    add_claim(database, "new")
    assert claims(database) == ["new"]


@rows("name", ["with space", "what?vfs=x#y%20", "\udcff\n", "ünïcode", ":memory:"])
def test_any_name_of_a_directory_will_do(tmp_path: Path, name: str) -> None:
    with Database(tmp_path / name / "x.sqlite3") as database:
        add_claim(database, "k")
    assert (tmp_path / name / "x.sqlite3").stat().st_size > 0


def test_a_relative_path_is_settled_when_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Database(Path("x.sqlite3")) as database:
        monkeypatch.chdir("/")
        add_claim(database, "k")
    assert (tmp_path / "x.sqlite3").exists()


class TestWithoutSharedMemory:
    def test_it_works_with_a_rollback_journal_that_is_as_durable(self, path: Path) -> None:
        with WithoutSharedMemory(path) as database:
            add_claim(database, "k")
            assert (setting(database, "journal_mode"), setting(database, "synchronous")) == ("delete", 3)
            assert setting(database, "locking_mode") == "normal"
        with WithoutSharedMemory(path) as database:
            assert claims(database) == ["k"]

    def test_a_file_that_came_from_a_local_disk_is_turned_over(self, path: Path) -> None:
        with Database(path) as local:
            add_claim(local, "k")
        with WithoutSharedMemory(path) as database, WithoutSharedMemory(path) as second:
            assert claims(database) == ["k"]
            assert (setting(database, "journal_mode"), setting(database, "synchronous")) == ("delete", 3)
            add_claim(second, "l")
            assert claims(database) == ["k", "l"]

    def test_a_log_that_was_left_behind_is_not_lost(self, path: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy" / path.name
        copy.parent.mkdir()
        with Database(path) as local:
            add_claim(local, "k")
            for file in path.parent.iterdir():
                (copy.parent / file.name).write_bytes(file.read_bytes())
        Path(f"{copy}-shm").unlink()
        assert Path(f"{copy}-wal").stat().st_size > 0
        with WithoutSharedMemory(copy) as database:
            assert claims(database) == ["k"]

    def test_memory_that_cannot_be_mapped_is_done_without(self, path: Path) -> None:
        path.parent.mkdir()
        refuse_shared_memory(path)
        with Database(path) as database:
            add_claim(database, "k")
            assert (setting(database, "journal_mode"), setting(database, "synchronous")) == ("delete", 3)
            assert claims(database) == ["k"]

    def test_memory_that_can_no_longer_be_mapped_is_done_without(self, path: Path) -> None:
        with Database(path) as database:
            add_claim(database, "k")
        refuse_shared_memory(path)
        with Database(path) as database:
            assert claims(database) == ["k"]
            assert (setting(database, "journal_mode"), setting(database, "synchronous")) == ("delete", 3)

    def test_it_comes_back_to_the_log_on_a_local_disk(self, path: Path) -> None:
        with WithoutSharedMemory(path) as elsewhere:
            add_claim(elsewhere, "k")
        with Database(path) as database:
            assert claims(database) == ["k"]
            assert setting(database, "journal_mode") == "wal"


def test_on_a_shared_file_system_no_log_is_used_and_one_who_still_uses_it_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(path) as before:
        add_claim(before, "k")
    holder = sqlite3.connect(path, check_same_thread=False)
    holder.execute("SELECT count(*) FROM claims").fetchall()
    timer = threading.Timer(0.2, holder.close)
    # A network file system cannot be had in a test.
    monkeypatch.setattr("codeloupe.store.database.may_be_shared", lambda _: True)
    timer.start()
    with Database(path) as database:
        assert claims(database) == ["k"]
        assert (setting(database, "journal_mode"), setting(database, "synchronous")) == ("delete", 3)
    timer.join()


_FORKS = """
import os, sys
from pathlib import Path
from codeloupe.errors import StoreError
from codeloupe.store.database import Database
database = Database(Path(sys.argv[1]))
with database.writing() as connection:
    connection.execute("INSERT INTO claims VALUES ('k', 'o', 1, 1)")
child = os.fork()
if child == 0:
    try:
        with database.reading():
            print("used", flush=True)
    except StoreError as error:
        print(error.message, flush=True)
    database.close()
    os._exit(0)
os.waitpid(child, 0)
with database.reading() as connection:
    print(connection.execute("SELECT key FROM claims").fetchall())
database.close()
"""


def test_a_child_made_by_a_fork_is_refused_and_does_no_harm(path: Path) -> None:
    ended = subprocess.run((sys.executable, "-c", _FORKS, str(path)), capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [
        f"the database {path} was opened before this process was forked",
        "[('k',)]",
    ]
