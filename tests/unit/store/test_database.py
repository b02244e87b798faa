"""The database file: made, opened, shared and closed."""

import os
import pwd
import random
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import (
    MIGRATIONS,
    Database,
    database_path,
    may_be_shared,
    state_directory,
)
from codeloupe.store.ledger import SqliteLedger
from tests.rows import each
from tests.stage_workspaces import run_bound
from tests.unit.store.samples import result


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


def claims(database: Database) -> list[str]:
    with database.reading() as connection:
        return [key for (key,) in connection.execute("SELECT key FROM claims ORDER BY key")]


def test_the_file_and_its_directory_are_for_this_user_only(tmp_path: Path, path: Path) -> None:
    previous = os.umask(0)
    try:
        with Database(path) as database:
            add_claim(database, "k")
            assert {mode(file) for file in path.parent.iterdir()} == {0o600}
            assert Path(f"{path}-wal").exists()
    finally:
        os.umask(previous)
    assert mode(path.parent) == 0o700
    path.chmod(0o664)
    with Database(path) as database:
        assert claims(database) == ["k"]
    assert mode(path) == 0o600


def test_it_is_durable_and_waits_for_others(database: Database) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum", "busy_timeout")
    assert [setting(database, name) for name in names] == ["wal", 3, 1, 2, 15_000]


def test_a_writer_that_does_not_end_is_waited_for_and_then_named(database: Database, path: Path) -> None:
    add_claim(database, "a")
    with Database(path, busy_timeout_seconds=0.1) as other, database.writing():
        assert claims(other) == ["a"]
        with pytest.raises(StoreError, match="held by another process") as caught:
            add_claim(other, "b")
        assert "try again" in caught.value.hint


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


@each("content", [b"x", b"\0" * 99, b"n" * 511, b"n" * 512, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 6000])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
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
    path.parent.mkdir()
    for statement in ("CREATE TABLE cookies (x)", "PRAGMA application_id = 7"):
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(statement)
        before = path.read_bytes()
        assert "is a database of another program" in trouble(path).message
        assert path.read_bytes() == before


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


_USE = """
import sys
from pathlib import Path
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
with Database(Path(sys.argv[1]), busy_timeout_seconds=0.2) as database:
    ledger = SqliteLedger(database)
    try:
        ledger.put("new", AgentResult(success=True, output="", agent="a"))
    except StoreError as error:
        print(error.message, "|", error.hint)
    try:
        print("readable" if ledger.get("whole") is not None else "empty")
    except StoreError:
        print("not readable")
"""


@pytest.mark.program
@each(
    ("folder", "file", "modes", "words", "readable"),
    [
        ("home", "x.sqlite3", (0o500, 0o600), "cannot be", "not readable"),
        ("home", "new.sqlite3", (0o500, 0o600), "Permission denied", "not readable"),
        ("home", "deeper/x.sqlite3", (0o500, 0o600), "cannot make the directory", "not readable"),
        ("home", "x.sqlite3", (0o700, 0o400), "cannot be written", "readable"),
        ("home", "x.sqlite3", (0o700, 0), "cannot be opened", "not readable"),
    ],
)
def test_what_permissions_forbid_is_told(
    tmp_path: Path, folder: str, file: str, modes: tuple[int, int], words: str, readable: str
) -> None:
    home = tmp_path / folder
    filled(home / "x.sqlite3")
    (home / "x.sqlite3").chmod(modes[1])
    home.chmod(modes[0])
    told, state = run_bound(_USE, home / file).splitlines()
    home.chmod(0o700)
    assert words in told
    assert "CODELOUPE_HOME" in told
    assert state == readable


def test_whatever_is_in_its_place_is_told(tmp_path: Path) -> None:
    def place(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name / "codeloupe.sqlite3"

    directory, pipe, link, file, cut = map(place, ("directory", "pipe", "link", "file", "cut"))
    directory.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "missing" / "x")
    file.write_text("x")
    filled(cut)
    os.truncate(cut, 3 * 4096)
    assert "is not a file" in trouble(directory).message
    assert "is not a file" in trouble(pipe).message
    assert "cannot make the database" in trouble(link).message
    assert "cannot make the directory" in trouble(file / "x.sqlite3").message
    assert "cannot make the directory" in trouble(file / "deeper" / "x.sqlite3").message
    assert "is damaged" in trouble(cut).message


@each(
    ("environment", "expected"),
    [
        ({"CODELOUPE_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"CODELOUPE_HOME": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/codeloupe"),
        ({"XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/codeloupe"),
        ({"XDG_STATE_HOME": "in/the/tree", "HOME": "/c"}, "/c/.local/state/codeloupe"),
    ],
)
def test_the_state_directory_is_the_first_that_is_named(environment: dict[str, str], expected: str) -> None:
    assert state_directory(environment) == Path(expected)


def test_a_place_that_is_not_absolute_is_refused_or_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="CODELOUPE_HOME is 'state'") as caught:
        state_directory({"CODELOUPE_HOME": "state"})
    assert "absolute path" in caught.value.hint
    assert database_path({"CODELOUPE_HOME": "/a"}) == Path("/a/codeloupe.sqlite3")
    assert state_directory({}) == Path.home() / ".local" / "state" / "codeloupe"
    monkeypatch.setenv("HOME", "in/the/tree")
    entry = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert state_directory({"HOME": "in/the/tree"}) == entry / ".local" / "state" / "codeloupe"
    # A user number without an entry cannot be had in a test.
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(StoreError, match="no home directory") as caught:
        state_directory({"HOME": "in/the/tree"})
    assert "CODELOUPE_HOME" in caught.value.hint


LINES = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 disk rw",
    "23 22 0:40 / /net rw - nfs4 server:/x rw",
    "24 23 0:41 / /net/local rw master:3 - ext4 disk rw",
    "25 22 0:42 / /with\\040space rw - cifs //server/x rw",
    "26 22 0:43 / /sshfs rw - fuse.sshfs user@server: rw",
    "27 22 0:44 / /twice rw - ext4 disk rw",
    "28 22 0:45 / /twice rw - nfs server:/y rw",
    "not a line of the usual form",
    "30 22 - ext4",
]


def test_the_nearest_mount_decides_whether_other_machines_see_a_place(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("\n".join([*LINES, f"31 22 0:46 / {tmp_path / 'real'} rw - nfs s rw"]))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    shared = ("/net", "/net/deep/er", "/with space/x", "/sshfs/x", "/twice/x", str(tmp_path / "link" / "x"))
    own = ("/", "/somewhere", "/network", "/net/local/x")
    assert [may_be_shared(Path(place), mounts=mounts) for place in shared] == [True] * len(shared)
    assert [may_be_shared(Path(place), mounts=mounts) for place in own] == [False] * len(own)
    assert not may_be_shared(Path("/net"), mounts=tmp_path / "missing")
