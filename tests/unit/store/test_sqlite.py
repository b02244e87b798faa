"""The database file: made, opened, shared and closed."""

import os
import pwd
import random
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.schema import SchemaStep, schema_steps
from codeloupe.store.sqlite import SqliteDatabase, database_path, may_be_shared, state_directory, upgrade
from tests.rows import each
from tests.stage_workspaces import run_bound
from tests.unit.store.samples import result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "codeloupe.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(path) as opened:
        yield opened


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def add_claim(database: SqliteDatabase, key: str) -> None:
    database.change("INSERT INTO leases VALUES (?, 'o', 'h', 1, 1, 1)", (key,))


def claims(database: SqliteDatabase) -> list[str]:
    return [key for (key,) in database.select("SELECT name FROM leases ORDER BY name")]


def test_the_file_and_its_directory_are_for_this_user_only(tmp_path: Path, path: Path) -> None:
    previous = os.umask(0)
    try:
        with SqliteDatabase(path) as database:
            add_claim(database, "k")
            assert {mode(file) for file in path.parent.iterdir()} == {0o600}
            assert Path(f"{path}-wal").exists()
    finally:
        os.umask(previous)
    assert mode(path.parent) == 0o700
    path.chmod(0o664)
    with SqliteDatabase(path) as database:
        assert claims(database) == ["k"]
    assert mode(path) == 0o600


def test_it_is_durable_and_waits_for_others(database: SqliteDatabase) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum", "busy_timeout")
    settings = [database.select(f"PRAGMA {name}") for name in names]
    assert settings == [[("wal",)], [(3,)], [(1,)], [(2,)], [(15_000,)]]


def test_a_writer_that_does_not_end_is_waited_for_and_then_named(database: SqliteDatabase, path: Path) -> None:
    add_claim(database, "a")
    with SqliteDatabase(path, busy_timeout_seconds=0.1) as other, database.writing():
        assert claims(other) == ["a"]
        with pytest.raises(StoreError, match="locked by another process") as caught:
            add_claim(other, "b")
        assert "retry" in caught.value.hint


def trouble(path: Path) -> StoreError:
    with SqliteDatabase(path, busy_timeout_seconds=0.2) as database, pytest.raises(StoreError) as caught:
        DatabaseLedger(database).put("k", result())
    assert str(path.parent) in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return caught.value


def filled(path: Path, count: int = 200) -> None:
    with SqliteDatabase(path) as database:
        ledger = DatabaseLedger(database, max_age_days=10**6)
        with database.writing() as connection:
            connection.executemany(
                "INSERT INTO results VALUES (?, 1e9, 1, 'a', NULL, NULL, ?)",
                ((f"{number:064x}", b"j" + b"x" * 3000) for number in range(count)),
            )
        ledger.put("whole", result())


def damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(4).randbytes(3 * 4096))


def changed(*statements: str) -> Callable[[Path], None]:
    """What another program, or another version, made of the file."""

    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as other, other:
            for statement in statements:
                other.execute(statement)

    return change


NEWER = f"newer codeloupe (schema 99; this version supports up to {len(schema_steps())})"
MOVE_IT = "move it away, with the files next to it whose names begin the same; a new one will be created"
NO_DATABASE = (b"x", b"\0" * 99, b"n" * 511, b"n" * 512, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 6000)


@each(
    ("is_ours", "change", "message", "hint"),
    [
        *((False, partial(Path.write_bytes, data=data), "is not a database", MOVE_IT) for data in NO_DATABASE),
        (True, damaged, "is damaged", MOVE_IT),
        (True, changed("PRAGMA user_version = 99", "PRAGMA journal_mode = DELETE"), NEWER, "CODELOUPE_HOME"),
        (False, changed("CREATE TABLE cookies (x)"), "belongs to another program", "CODELOUPE_HOME"),
        (False, changed("PRAGMA application_id = 7"), "belongs to another program", "CODELOUPE_HOME"),
    ],
)
def test_what_is_no_database_of_ours_is_told_and_left_as_it_is(
    tmp_path: Path, is_ours: bool, change: Callable[[Path], None], message: str, hint: str
) -> None:
    path = tmp_path / "codeloupe.sqlite3"
    if is_ours:
        filled(path)
    change(path)
    before = path.read_bytes()
    error = trouble(path)
    assert message in error.message
    assert hint in error.hint
    assert path.read_bytes() == before


NEXT_STEP = SchemaStep("03_next.sql", ("ALTER TABLE results ADD COLUMN next text", "CREATE TABLE next (a bigint)"))


@each("number", range(len(schema_steps()) + 1))
def test_a_step_that_fails_changes_nothing_and_is_retried(tmp_path: Path, number: int) -> None:
    steps = (*schema_steps(), NEXT_STEP)
    failing = SchemaStep("failing.sql", (*steps[number].statements, "DROP TABLE nowhere"))
    with closing(sqlite3.connect(tmp_path / "x.sqlite3", isolation_level=None)) as connection:
        upgrade(connection, steps[:number])
        before = list(connection.iterdump())
        with pytest.raises(sqlite3.OperationalError, match="no such table: nowhere"):
            upgrade(connection, (*steps[:number], failing))
        assert list(connection.iterdump()) == before
        upgrade(connection, steps)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(steps),)


def test_an_upgrade_keeps_stored_results(path: Path) -> None:
    with SqliteDatabase(path) as database:
        DatabaseLedger(database).put("k", result("kept"))
    with SqliteDatabase(path, steps=(*schema_steps(), NEXT_STEP)) as database:
        assert DatabaseLedger(database).get("k") == result("kept", from_ledger=True)
        assert database.select("SELECT next FROM results") == [(None,)]


def test_a_full_disk_is_told_and_what_was_stored_stays(path: Path) -> None:
    with SqliteDatabase(path) as database:
        ledger = DatabaseLedger(database, max_age_days=10**6)
        ledger.put("before", result())
        assert ledger.claim("k", lease_seconds=60)
        database.select("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError, match="the disk is full") as caught:
            ledger.put("k", result(os.urandom(100_000).hex()))
        assert str(path) in caught.value.message
        assert "free some disk space" in caught.value.hint
        assert ledger.get("before") is not None
        assert ledger.get("k") is None
        assert ledger.is_claimed("k")
        database.select("PRAGMA max_page_count = 1000000")
        ledger.put("k", result())
        assert ledger.get("k") is not None


def test_one_result_that_cannot_be_read_is_told_and_can_be_bought_again(database: SqliteDatabase) -> None:
    ledger = DatabaseLedger(database)
    ledger.put("k", result())
    database.change("UPDATE results SET payload = x'00'")
    with pytest.raises(StoreError, match="cannot read the result k in the database") as caught:
        ledger.get("k")
    assert "fresh=True" in caught.value.hint
    ledger.put("k", result("again"))
    assert ledger.get("k") == result("again", from_ledger=True)


_USE = """
import sys
from pathlib import Path
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.store.ledger import DatabaseLedger
with SqliteDatabase(Path(sys.argv[1]), busy_timeout_seconds=0.2) as database:
    ledger = DatabaseLedger(database)
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
    ("file", "modes", "words", "readable"),
    [
        ("x.sqlite3", (0o500, 0o600), "cannot be", "not readable"),
        ("new.sqlite3", (0o500, 0o600), "Permission denied", "not readable"),
        ("deeper/x.sqlite3", (0o500, 0o600), "cannot create the database", "not readable"),
        ("x.sqlite3", (0o700, 0o400), "cannot be written", "readable"),
        ("x.sqlite3", (0o700, 0), "cannot be opened", "not readable"),
    ],
)
def test_what_permissions_forbid_is_told(
    tmp_path: Path, file: str, modes: tuple[int, int], words: str, readable: str
) -> None:
    home = tmp_path / "home"
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
    assert "cannot create the database" in trouble(link).message
    assert "cannot create the database" in trouble(file / "x.sqlite3").message
    assert "cannot create the database" in trouble(file / "deeper" / "x.sqlite3").message
    assert "is damaged" in trouble(cut).message


def test_the_state_directory_is_the_first_that_is_named_and_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    for own, state, expected in (
        ("/a", "/b", "/a"),
        ("", "/b", "/b/codeloupe"),
        ("", "", "/c/.local/state/codeloupe"),
        ("", "in/the/tree", "/c/.local/state/codeloupe"),
    ):
        named = {"CODELOUPE_HOME": own, "XDG_STATE_HOME": state, "HOME": "/c"}
        assert state_directory(named) == Path(expected)
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
