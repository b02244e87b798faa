"""`codeloupe store`: all that is kept is copied to another database and back, whole, once and in its order."""

import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from codeloupe.cli import store
from codeloupe.cli.main import main
from codeloupe.errors import StoreError
from codeloupe.model.history import Dismissal, HistoryQuery, TrendKey
from codeloupe.store import migration
from codeloupe.store.catalogue import EntryKind, entry_kinds
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.interface import Database
from codeloupe.store.leases import take_lease
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.migration import Migrated, counts_of, migrate
from codeloupe.store.migration_rows import Side, read_entries
from codeloupe.store.owner import this_process
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.schema import SchemaStep, schema_steps, stored_tables
from codeloupe.store.spending import Cost, Spending, SpendingRow, add_spending, spent_from
from codeloupe.store.sqlite import SqliteDatabase
from tests.endings import PATIENCE_SECONDS
from tests.postgres import database_of
from tests.postgres_proxy import Proxy, proxy_before
from tests.program import PROGRAM
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.store.history_samples import REPOSITORY, at, commit_review, identifier, named, record, sweep_record
from tests.unit.store.samples import result
from tests.warm_program import codeloupe


def fill(database: Database, reviews: int, findings: int, *, first: int = 1) -> None:
    """Reviews with findings, every tenth with raw outputs, a sweep between them, finished calls and dismissals."""
    history, ledger = DatabaseHistory(database), DatabaseLedger(database)
    for number in range(first, first + reviews):
        odd = {"file": "ä\udcff\0.py", "expert": None} if number % 7 == 0 else {}
        found = (named(f"{number}-{index}", body="x" * 300, **odd) for index in range(findings))
        raw = {"a.py": "said " * 5_000, "b\ud800": ""} if number % 10 == 0 else {}
        history.save(record(number, *found, saved_at=at(days=-number)), raw_outputs=raw)
        if number % 20 == 0:
            history.save_sweep(
                sweep_record(number + 500_000, commit_review(number, named("s")), commit_review(number + 1))
            )
        ledger.put(f"key {number}", result(f"answer {number}", raw_output="x" * 2_000, total_cost_usd=0.1 * number))
    dismissal = Dismissal(fingerprint=f"{first}-1", repository=REPOSITORY, reason="no", who="ada", at=at())
    history.dismiss(dismissal)
    assert ledger.claim("open", lease_seconds=3600)
    spend(database, 12.5)
    add_run(database, "run-1")


def spend(database: Database, usd: float) -> None:
    database.change(
        "INSERT INTO spending (month, budget, agent, source, label, usd, requests, unknown_costs)"
        " VALUES ('2026-11', 'all', 'codex', ?, '', ?, 3, 0)",
        (database.identity, usd),
    )


def add_run(database: Database, run_id: str) -> None:
    """Add a run with two events, an approval and two files, one of which has two chunks."""
    with database.writing() as connection:
        connection.execute("INSERT INTO runs VALUES (?, 'save', ?)", (run_id, b"state"))
        for position in range(2):
            connection.execute("INSERT INTO run_events VALUES (?, ?, ?)", (run_id, position, b"event"))
        connection.execute("INSERT INTO run_approvals VALUES (?, ?, ?, ?)", (run_id, b"stage", 1, b"yes"))
        for name, chunks in ((b"a\xff", [b"1", b"2"]), (b"b", [b"3"])):
            digest = name.rjust(32)
            connection.execute("INSERT INTO blobs VALUES (?, ?, 1e9) ON CONFLICT DO NOTHING", (digest, len(chunks)))
            for position, data in enumerate(chunks):
                insert = "INSERT INTO blob_chunks VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                connection.execute(insert, (digest, position, data))
            connection.execute("INSERT INTO run_files VALUES (?, ?, ?)", (run_id, name, digest))


def told(database: Database) -> object:
    """What a person sees of a database."""
    history = DatabaseHistory(database)
    listed = history.list(HistoryQuery(limit=10_000))
    reviews = [history.get(entry.entry_id) for entry in listed.entries[::50]]
    shown = [(one.review, one.problems) for one in reviews if one is not None]
    return listed, shown, history.dismissals([REPOSITORY]), history.trends([TrendKey.WEEK, TrendKey.EXPERT])


def counts_in(printed: str) -> list[str]:
    return re.findall(r"^\w+ +[\d,]+$", printed, re.MULTILINE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a little of everything."""
    with SqliteDatabase(tmp_path / "one" / "codeloupe.sqlite3") as database:
        fill(database, 22, 5)
    return database.path


# The target already has one of the 24 reviews.
ALL_OF_THE_FILE = "22 finished calls, 23 reviews, 1 sweep, 1 dismissal, 1 spending record, 2 file contents, 1 run"


def moved(source: object, target: object, *more: str, cwd: Path) -> str:
    ended = codeloupe("store", "migrate", "--from", str(source), "--to", str(target), *more, cwd=cwd)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("reviews", "findings"), [(60, 50), pytest.param(1_000, 100, marks=(pytest.mark.soak, pytest.mark.timeout(1_800)))]
)
def test_all_goes_to_a_server_and_back_and_is_the_same(
    postgres_url: str, tmp_path: Path, reviews: int, findings: int
) -> None:
    with SqliteDatabase(tmp_path / "one.sqlite3") as one:
        fill(one, reviews, findings)
        seen, counts = told(one), counts_of(one)
    there = moved(one.path, postgres_url, cwd=tmp_path)
    back = moved(postgres_url, tmp_path / "two.sqlite3", "--quiet", cwd=tmp_path)
    assert f"Copied: {reviews} finished calls, " in there.replace(",000", "000")
    assert "Verified" in there
    assert counts_in(there) == counts_in(back)
    assert len(counts_in(there)) == len(stored_tables(schema_steps()))
    with (
        SqliteDatabase(tmp_path / "one.sqlite3") as one,
        PostgresDatabase(postgres_url) as server,
        SqliteDatabase(tmp_path / "two.sqlite3") as two,
    ):
        for database in (server, two):
            assert counts_of(database) == counts
            assert told(database) == seen
            again = migrate(one, database)
            assert (again.is_verified, sum(again.copied.values())) == (True, 0)
            # The claim stays behind, and what is saved next comes after all that was copied.
            assert database.select("SELECT count(*) FROM leases") == [(0,)]
            DatabaseHistory(database).save(record(9_999))
            assert DatabaseHistory(database).list(HistoryQuery(limit=1)).entries[0].entry_id == identifier(9_999)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_the_target_has_stays_and_a_difference_is_told(
    kind: str, file: Path, postgres_url: str, tmp_path: Path
) -> None:
    target: Database = PostgresDatabase(postgres_url) if kind == "postgres" else SqliteDatabase(tmp_path / "b.sqlite3")
    place = postgres_url if kind == "postgres" else str(tmp_path / "b.sqlite3")
    with target, SqliteDatabase(file) as source:
        history = DatabaseHistory(target)
        history.save(record(700, named("own")))
        history.save(record(3, named("theirs")))
        words = ("store", "migrate", "--from", str(file.parent), "--to", place)
        before = codeloupe(*words, "--dry-run", cwd=tmp_path)
        assert (before.exit_code, "Nothing was changed." in before.stdout) == (3, True)
        assert f"not verified: 1 entry is different in the target: review {identifier(3)}" in before.stderr
        assert "Already in the target" not in before.stdout
        assert f"Would copy: {ALL_OF_THE_FILE}." in before.stdout
        assert len(history.list(HistoryQuery(limit=100)).entries) == 2
        first = codeloupe(*words, cwd=tmp_path)
        assert first.exit_code == 3
        assert f"not verified: 1 entry is different in the target: review {identifier(3)}" in first.stderr
        assert "--replace" in first.stderr
        assert f"Copied: {ALL_OF_THE_FILE}." in first.stdout
        # In the order of saving, and those of the target were saved last.
        order = [entry.entry_id for entry in history.list(HistoryQuery(limit=100)).entries]
        copied = [entry.entry_id for entry in DatabaseHistory(source).list(HistoryQuery(limit=100)).entries]
        assert order == [identifier(3), identifier(700), *(one for one in copied if one != identifier(3))]
        assert [one.review_id for one in history.findings_of(["theirs"])] == [identifier(3)]
        again = moved(file, place, "--replace", cwd=tmp_path)
        assert "Replaced: 1 review." in again
        order = [entry.entry_id for entry in history.list(HistoryQuery(limit=100)).entries]
        assert order == [identifier(700), *copied]
        assert history.findings_of(["theirs"]) == ()
        assert "Copied: nothing." in moved(file, place, cwd=tmp_path)


# In the middle of an entry, and between a batch and the next.
@each("letter, word, spared", [(b"P", b"INSERT INTO findings", 20), (b"Q", b"COMMIT", 3)])
def test_after_a_kill_the_same_command_goes_on(
    file: Path, postgres_url: str, tmp_path: Path, letter: bytes, word: bytes, spared: int
) -> None:
    with PostgresDatabase(postgres_url) as target, SqliteDatabase(file) as source:
        for table in ("reviews", "sweeps", "results", "dismissals", "spending", "runs", "blobs"):
            target.change(f"DELETE FROM {table}")
        with proxy_before(postgres_url) as proxy:
            proxy.lose(letter, word, misfortune="swallow", spared=spared)
            _killed_at(proxy, file, tmp_path)
        assert told(target) != told(source)
        assert migrate(source, target).is_verified
        assert (told(target), counts_of(target)) == (told(source), counts_of(source))


def _killed_at(proxy: Proxy, file: Path, cwd: Path) -> None:
    words = (str(PROGRAM), "store", "migrate", "--quiet", "--from", str(file), "--to", proxy.url)
    program = subprocess.Popen(words, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert proxy.met.wait(PATIENCE_SECONDS)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()


@pytest.mark.soak
@pytest.mark.parametrize("back", [False, True])
def test_killed_again_and_again_at_any_moment_it_comes_to_its_end(
    postgres_url: str, tmp_path: Path, *, back: bool
) -> None:
    chance = random.Random()
    source: Database = SqliteDatabase(tmp_path / "a.sqlite3")
    target: Database = PostgresDatabase(postgres_url)
    if back:
        source, target = PostgresDatabase(postgres_url), SqliteDatabase(tmp_path / "a.sqlite3")
    with source, target:
        fill(source, 300, 50)
        places = [one.url if isinstance(one, PostgresDatabase) else one.name for one in (source, target)]
        words = (str(PROGRAM), "store", "migrate", "--quiet", "--from", places[0], "--to", places[1])
        for _ in range(15):
            program = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.6, 2.5))
            program.kill()
            program.wait()
        assert migrate(source, target).is_verified
        assert (told(target), counts_of(target)) == (told(source), counts_of(source))


def test_a_connection_that_is_lost_is_made_again_and_a_source_that_is_lost_says_what_to_do(
    file: Path, postgres_url: str, tmp_path: Path
) -> None:
    with proxy_before(postgres_url) as proxy:
        proxy.lose(b"Q", b"COMMIT", misfortune="cut_after", spared=4)
        moved(file, proxy.url, cwd=tmp_path)
        assert proxy.met.is_set()
        proxy.lose(b"P", b"FROM findings", spared=1)
        words = ("store", "migrate", "--from", proxy.url, "--to", str(tmp_path / "two.sqlite3"))
        ended = codeloupe(*words, cwd=tmp_path)
        assert (ended.exit_code, "lost the connection" in ended.stderr) == (3, True)
        assert "hint: run the same command again to continue" in ended.stderr
    moved(postgres_url, tmp_path / "two.sqlite3", cwd=tmp_path)


@pytest.mark.parametrize("back", [False, True])
def test_others_may_use_both_sides_meanwhile(file: Path, postgres_url: str, *, back: bool) -> None:
    with (
        SqliteDatabase(file) as one,
        PostgresDatabase(postgres_url) as two,
        SqliteDatabase(file) as beside_one,
        PostgresDatabase(postgres_url) as beside_two,
    ):
        source, target, at_source, at_target = (
            (two, one, beside_two, beside_one) if back else (one, two, beside_one, beside_two)
        )
        if back:
            fill(source, 5, 3, first=100)
        numbers = iter(range(2_000, 3_000))

        def save(_done: int, _total: int) -> None:
            # Other connections, as another process has them.
            number = next(numbers)
            DatabaseHistory(at_source).save(record(number, named("new at the source")))
            DatabaseHistory(at_target).save(record(number + 5_000, named("new at the target")))

        assert migrate(source, target, report=save).is_verified
        number = next(numbers)
        history = DatabaseHistory(target)
        assert history.get(identifier(2_000)) is None, "what came after the start is copied the next time"
        assert len(history.findings_of(["new at the target"])) == number - 2_000
        done = migrate(source, target)
        assert (done.is_verified, done.copied["reviews"]) == (True, number - 2_000)


def test_an_interruption_says_that_it_can_go_on(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "migrate", interrupted)
    words = ["store", "migrate", "--from", str(file), "--to", "postgresql://u:geheim@h/x"]
    assert main(words) == 130
    said = capsys.readouterr().err
    assert "interrupted; copied entries are kept; run the same command again to continue" in said
    assert "geheim" not in said


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("statement", "column"),
    [
        ("UPDATE reviews SET saved_at = 'yesterday' WHERE review_id = ?", "saved_at of the table reviews"),
        ("UPDATE reviews SET unknown_costs = 0.5 WHERE review_id = ?", "unknown_costs of the table reviews"),
        ("UPDATE findings SET severity = x'00ff' WHERE review_id = ?", "severity of the table findings"),
        ("UPDATE findings SET payload = 'text' WHERE review_id = ?", "payload of the table findings"),
        ("UPDATE findings SET file = CAST(x'ff' AS TEXT) WHERE review_id = ?", "file of the table findings"),
        ("UPDATE findings SET file = 'a' || char(0) WHERE review_id = ?", "file of the table findings"),
        ("UPDATE reviews SET cost_usd = 9e999 WHERE review_id = ?", "cost_usd of the table reviews"),
    ],
)
def test_an_entry_with_a_value_of_another_type_is_named_and_not_copied(
    file: Path, tmp_path: Path, postgres_url: str, kind: str, statement: str, column: str
) -> None:
    target: Database = PostgresDatabase(postgres_url) if kind == "postgres" else SqliteDatabase(tmp_path / "b.sqlite3")
    with target, SqliteDatabase(file) as source:
        source.change(statement, (identifier(4),))
        reason = f"a value in the column {column} does not have its type"
        for _ in range(2):
            done = migrate(source, target, replace=True)
            assert done.skipped == (f"review {identifier(4)}, because {reason}",)
            assert (done.different, done.is_verified) == ((), False)
        assert target.select("SELECT count(*) FROM reviews") == [(23,)]


@pytest.mark.parametrize(
    ("damaged", "shown"),
    [
        ("NULL", "None"),
        ("CAST(key AS BLOB)", b"key 1".hex()),
        ("CAST(x'ff' AS TEXT)", "ff"),
        ("CAST(x'006b' AS TEXT)", "\0k"),
    ],
)
def test_a_damaged_key_is_named_and_all_other_entries_are_copied(
    file: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, damaged: str, shown: str
) -> None:
    from codeloupe.store import migration_rows  # noqa: PLC0415 - to make its batches small

    monkeypatch.setattr(migration_rows, "_BATCH_ENTRIES", 1)
    with SqliteDatabase(file) as source, PostgresDatabase(postgres_url) as target:
        source.change(f"UPDATE results SET key = {damaged} WHERE key = 'key 1'")
        done = migrate(source, target)
        reason = "a value in the column key of the table results does not have its type"
        assert done.skipped == (f"result {shown}, because {reason}",)
        assert target.select("SELECT count(*) FROM results") == [(21,)]


@pytest.mark.parametrize("damaged", ["CAST(position AS BLOB)", "9e999", "'text'"])
def test_a_damaged_key_of_a_part_damages_only_its_entry(
    file: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    from codeloupe.store import migration_rows  # noqa: PLC0415 - to make its pages small

    monkeypatch.setattr(migration_rows, "_PAGE_ROWS", 1)
    with SqliteDatabase(file) as source, PostgresDatabase(postgres_url) as target:
        source.change(
            f"UPDATE findings SET position = {damaged} WHERE review_id = ? AND position = 1", (identifier(4),)
        )
        done = migrate(source, target)
        reason = "a value in the column position of the table findings does not have its type"
        assert done.skipped == (f"review {identifier(4)}, because {reason}",)
        assert target.select("SELECT count(*) FROM reviews") == [(23,)]


def test_rows_without_their_owner_are_counted_and_not_copied(file: Path, postgres_url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        # Other programs do not check references unless they are told to.
        connection.execute("DELETE FROM reviews WHERE review_id = ?", (identifier(4),))
        connection.execute("DELETE FROM blobs WHERE digest = ?", (b"b".rjust(32),))
    ended = codeloupe("store", "migrate", "--from", str(file), "--to", postgres_url, cwd=tmp_path)
    assert ended.exit_code == 3
    assert "Not copied: rows of the table findings (5), because no entry has their key." in ended.stdout
    assert "Not copied: rows of the table blob_chunks (1), because no entry has their key." in ended.stdout
    lacking = "Not copied: run run-1, because the table blobs does not have a row that it refers to."
    assert lacking in ended.stdout
    assert "not verified: 3 entries were not copied" in ended.stderr


def test_an_entry_that_is_larger_than_a_batch_is_copied_in_pages(
    file: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from codeloupe.store import migration_rows  # noqa: PLC0415 - to make its batches small

    monkeypatch.setattr(migration_rows, "_BATCH_BYTES", 1)
    monkeypatch.setattr(migration_rows, "_PAGE_ROWS", 3)
    monkeypatch.setattr(migration_rows, "_LARGE_PAGE_ROWS", 2)
    with SqliteDatabase(file) as source, PostgresDatabase(postgres_url) as target:
        done: Migrated = migrate(source, target)
        assert done.is_verified
        assert (told(target), counts_of(target)) == (told(source), counts_of(source))


@pytest.mark.defect("M4")
def test_spending_is_copied_from_server_to_server(postgres_url: str, other_postgres_url: str, tmp_path: Path) -> None:
    with PostgresDatabase(postgres_url) as source, PostgresDatabase(other_postgres_url) as target:
        spend(source, 12.5)
        assert "Copied: 1 spending record." in moved(postgres_url, other_postgres_url, cwd=tmp_path)
        assert target.select("SELECT * FROM spending") == source.select("SELECT * FROM spending")
        target.change("UPDATE spending SET usd = 99")
        assert migrate(source, target).different == (f"spending 2026-11 all codex {source.identity}",)
        assert target.select("SELECT usd FROM spending") == [(99.0,)]


def test_spending_of_several_databases_adds_up_and_counts_once(postgres_url: str, tmp_path: Path) -> None:
    with (
        SqliteDatabase(tmp_path / "one.sqlite3") as one,
        SqliteDatabase(tmp_path / "two.sqlite3") as two,
        PostgresDatabase(postgres_url) as team,
    ):
        for database, usd in ((one, 1.0), (two, 2.0), (team, 4.0)):
            with database.writing() as connection:
                cost = Cost(usd, requests=1)
                add_spending(connection, "2026-11", "codex", budgets=[("all", "")], cost=cost)
        for source in (one, two, one, two):
            assert migrate(source, team).is_verified
        with team.reading() as connection:
            assert spent_from(connection, "2026-11", ["all"]) == {"all": Cost(7.0, requests=3)}
        assert Spending(team).rows("2026-11") == (SpendingRow("all", "", "codex", Cost(7.0, requests=3)),)
        assert Spending(team).months() == {"2026-11": Cost(7.0, requests=3)}
        with one.writing() as connection:
            add_spending(connection, "2026-11", "codex", budgets=[("all", "")], cost=Cost(0.5, requests=1))
        assert migrate(one, team).different == (f"spending 2026-11 all codex {one.identity}",)
        assert migrate(one, team, replace=True).is_verified
        assert Spending(team).months() == {"2026-11": Cost(7.5, requests=4)}
        # The way back does not count anything twice either.
        assert migrate(team, one).is_verified
        assert Spending(one).months() == {"2026-11": Cost(7.5, requests=4)}
        assert one.identity != team.identity


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_spending_is_never_replaced_by_a_row_with_fewer_requests(kind: str, postgres_url: str, tmp_path: Path) -> None:
    team: Database = PostgresDatabase(postgres_url) if kind == "postgres" else SqliteDatabase(tmp_path / "team.sqlite3")
    with SqliteDatabase(tmp_path / "one.sqlite3") as one, SqliteDatabase(tmp_path / "old.sqlite3") as old, team:
        spend_once(one)
        for target in (old, team):
            assert migrate(one, target).is_verified
        spend_once(one)
        spend_once(team)
        # The database that a row comes from has its newest copy.
        back = migrate(team, one, replace=True)
        assert (back.is_verified, back.newer["spending"], back.copied["spending"]) == (True, 1, 1)
        assert Spending(one).months() == {"2026-11": Cost(3.0, requests=3)}
        assert migrate(one, team, replace=True).replaced["spending"] == 1
        # Two other databases have copies of different ages.
        for replace in (False, True):
            assert migrate(old, team, replace=replace).is_verified
        assert Spending(team).months() == {"2026-11": Cost(3.0, requests=3)}


def spend_once(database: Database) -> None:
    with database.writing() as connection:
        cost = Cost(1.0, requests=1)
        add_spending(connection, "2026-11", "codex", budgets=[("all", "")], cost=cost)


@pytest.mark.parametrize("replace", [False, True])
def test_an_entry_that_is_stored_during_the_copy_is_not_changed(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replace: bool
) -> None:
    with SqliteDatabase(tmp_path / "one.sqlite3") as source, PostgresDatabase(postgres_url) as target:
        DatabaseHistory(source).save(record(1, named("a"), named("b")))
        DatabaseHistory(source).save(record(2, named("c")))

        def read_then_save(*arguments: Any) -> dict[Any, Any]:
            # Another process saves between the comparison and the copy.
            monkeypatch.undo()
            found = read_entries(*arguments)
            with PostgresDatabase(postgres_url) as beside:
                DatabaseHistory(beside).save(record(1, named("newer")))
            return found

        def read(side: Side, kind: EntryKind, keys: Any) -> dict[Any, Any]:
            if side.database is target and kind.table.name == "reviews":
                return read_then_save(side, kind, keys)
            return read_entries(side, kind, keys)

        monkeypatch.setattr(migration, "read_entries", read)
        done = migrate(source, target, replace=replace)
        assert (done.different, done.copied["reviews"]) == ((f"review {identifier(1)}",), 1)
        findings = target.select("SELECT fingerprint FROM findings ORDER BY fingerprint")
        assert len(findings) == 2
        assert DatabaseHistory(target).findings_of(["newer"])


def test_a_clone_finds_its_reviews_in_the_shared_database(
    repository: GitRepository, postgres_url: str, tmp_path: Path
) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    home = {"CODELOUPE_HOME": str(tmp_path / "home")}
    words = ("review", "--uncommitted", "--reviewer", "offline", "--format", "json")
    review_id = codeloupe(*words, cwd=repository.path, environment=home).json()["review_id"]
    moved(tmp_path / "home", postgres_url, cwd=tmp_path)
    shared = {**home, "CODELOUPE_DATABASE": postgres_url}
    listed = codeloupe("history", "list", "--json", cwd=repository.path, environment=shared).json()["entries"]
    assert [entry["id"] for entry in listed] == [review_id]


@pytest.mark.defect("M4")
@each(
    "statement, problem",
    [
        ("ALTER TABLE spending ADD COLUMN currency text", "the column currency of the table spending is unknown"),
        ("ALTER TABLE spending RENAME COLUMN usd TO eur", "the column eur of the table spending is unknown"),
        ("ALTER TABLE leases ADD COLUMN note text", "the column note of the table leases is unknown"),
        ("CREATE TABLE more (a bigint)", "the table more is unknown"),
        ("DROP TABLE spending", "the table spending is missing"),
    ],
)
@pytest.mark.parametrize("changed", ["source", "target"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_unknown_tables_and_columns_are_refused_before_anything_is_copied(
    postgres_server: str, tmp_path: Path, statement: str, problem: str, changed: str, kind: str
) -> None:
    with ExitStack() as stack:
        file: Database = stack.enter_context(SqliteDatabase(tmp_path / "codeloupe.sqlite3"))
        url = stack.enter_context(database_of(postgres_server))
        server: Database = stack.enter_context(PostgresDatabase(url))
        altered, other = (file, server) if kind == "sqlite" else (server, file)
        source, target = (altered, other) if changed == "source" else (other, altered)
        DatabaseLedger(source).put("k", result())
        altered.change(statement)
        with pytest.raises(StoreError, match=problem) as caught:
            migrate(source, target)
        assert altered.name in caught.value.message
        assert "nothing was copied" in caught.value.hint
        assert target.select("SELECT count(*) FROM results") == [(0,)]


@pytest.mark.parametrize("changed", ["source", "target"])
def test_a_value_of_a_column_of_another_type_is_never_equal(postgres_url: str, tmp_path: Path, changed: str) -> None:
    with SqliteDatabase(tmp_path / "codeloupe.sqlite3") as file, PostgresDatabase(postgres_url) as server:
        source, target = (server, file) if changed == "source" else (file, server)
        spend(source, 12.5)
        server.change("ALTER TABLE spending ALTER COLUMN usd TYPE numeric")
        name = f"spending 2026-11 all codex {source.identity}"
        done = migrate(source, target)
        if changed == "source":
            reason = "a value in the column usd of the table spending does not have its type"
            assert done.skipped == (f"{name}, because {reason}",)
        else:
            assert done.different == (name,)
        assert not done.is_verified


def test_tables_of_a_later_schema_are_copied_without_new_code(postgres_url: str, tmp_path: Path) -> None:
    remarks_table = (
        'CREATE TABLE remarks (topic text COLLATE "C" NOT NULL REFERENCES topics (topic) ON DELETE CASCADE,'
        " position bigint NOT NULL, remark bytea, PRIMARY KEY (topic, position))"
    )
    step = SchemaStep(
        "03_stored.sql",
        (
            'CREATE TABLE topics (topic text COLLATE "C" PRIMARY KEY, weight double precision)',
            remarks_table,
            "ALTER TABLE reviews ADD COLUMN topic text",
        ),
    )
    steps = (*schema_steps(), step)
    path = tmp_path / "codeloupe.sqlite3"
    with SqliteDatabase(path, steps=steps) as source, PostgresDatabase(postgres_url, steps=steps) as target:
        DatabaseHistory(source).save(record(1, named("a")))
        source.change("UPDATE reviews SET topic = 'locks'")
        source.change("INSERT INTO topics VALUES ('locks', 0.5)")
        for position, remark in enumerate((b"one", b"two")):
            source.change("INSERT INTO remarks VALUES ('locks', ?, ?)", (position, remark))
        assert migrate(source, target).is_verified
        assert target.select("SELECT topic FROM reviews") == [("locks",)]
        assert target.select("SELECT topic, remark FROM remarks ORDER BY position") == [
            ("locks", b"one"),
            ("locks", b"two"),
        ]


def test_every_table_of_entries_has_a_noun() -> None:
    assert list(store._NOUNS) == [kind.table.name for kind in entry_kinds(schema_steps())]


def test_the_key_of_a_row_begins_with_the_key_of_its_owner() -> None:
    for kind in entry_kinds(schema_steps()):
        for part in kind.parts:
            assert part.key[: len(kind.table.key)] == kind.table.key
            assert len(part.key) > len(kind.table.key)


@pytest.mark.parametrize("busy", ["source", "target"])
def test_a_run_in_use_is_not_copied_and_is_named(postgres_url: str, tmp_path: Path, busy: str) -> None:
    with SqliteDatabase(tmp_path / "one.sqlite3") as source, PostgresDatabase(postgres_url) as target:
        for run_id in ("run-1", "run-2"):
            add_run(source, run_id)
            if busy == "target":
                add_run(target, run_id)
                target.change("UPDATE runs SET state = ?", (b"other",))
        side: Database = source if busy == "source" else target
        take_run(side, "run-1")
        words = ("store", "migrate", "--from", str(source.path), "--to", postgres_url, "--replace")
        first = codeloupe(*words, cwd=tmp_path)
        assert first.exit_code == 3
        host = socket.gethostname()
        assert f"Not copied: run run-1, because process {os.getpid()} on {host} is working on it." in first.stdout
        assert "not verified: 1 entry was not copied" in first.stderr
        copied = target.select("SELECT run_id FROM runs WHERE state = ?", (b"state",))
        assert copied == [("run-2",)]
        side.change("DELETE FROM leases")
        assert "Verified" in moved(source.path, postgres_url, "--replace", cwd=tmp_path)
        assert counts_of(target) == counts_of(source)


def take_run(database: Database, run_id: str) -> None:
    with database.writing() as connection:
        owner = str(this_process())
        assert take_lease(connection, f"run {run_id}", owner, now=database.clock(), seconds=3600) is None


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_contents_stay_that_no_run_uses(kind: str, postgres_url: str, tmp_path: Path) -> None:
    target: Database = PostgresDatabase(postgres_url) if kind == "postgres" else SqliteDatabase(tmp_path / "b.sqlite3")
    with SqliteDatabase(tmp_path / "one.sqlite3") as source, target:
        add_run(source, "run-1")
        with target.writing() as connection:
            connection.execute("INSERT INTO runs VALUES ('run-1', 'save', ?)", (b"other",))
            connection.execute("INSERT INTO blobs VALUES (?, 0, 1e9)", (b"old",))
            connection.execute("INSERT INTO run_files VALUES ('run-1', ?, ?)", (b"a", b"old"))
        assert migrate(source, target).different == ("run run-1",)
        assert target.select("SELECT digest FROM blobs") == [(b"old",)]
        assert migrate(source, target, replace=True).is_verified
        assert counts_of(target) == counts_of(source)


def test_a_dry_run_leaves_an_empty_file_empty(file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite3"
    empty.touch()
    assert "Would copy: 22 finished calls" in moved(file, empty, "--dry-run", cwd=tmp_path)
    assert empty.stat().st_size == 0


@each(
    "place, created",
    [
        ("folder", "folder/codeloupe.sqlite3"),
        ("new/folder.d/", "new/folder.d/codeloupe.sqlite3"),
        ("new/b.sqlite3", "new/b.sqlite3"),
    ],
)
def test_a_new_place_is_a_folder_unless_it_has_the_suffix(file: Path, tmp_path: Path, place: str, created: str) -> None:
    assert f"to    {tmp_path / created}\n" in moved(file, f"{tmp_path}/{place}", cwd=tmp_path)
    assert (tmp_path / created).is_file()


def test_contents_that_both_sides_have_are_equal_whenever_they_were_stored(postgres_url: str, tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "one.sqlite3") as source, PostgresDatabase(postgres_url) as target:
        for database in (source, target):
            add_run(database, "run-1")
        target.change("UPDATE blobs SET created_at = 7")
        done = migrate(source, target)
        assert done.is_verified
        assert (sum(done.copied.values()), done.equal["blobs"]) == (0, 2)


def test_jobs_that_are_not_copied_are_counted(postgres_url: str, tmp_path: Path) -> None:
    with PostgresDatabase(postgres_url) as source:
        for state in ("waiting", "running", "done"):
            source.change(
                "INSERT INTO jobs (queue, priority, rank, tenant, repository, request, state, owner, host, attempts,"
                " failures, deaths, asked_at, progress, reason)"
                " VALUES ('q', 0, 0, '', '', ?, ?, '', '', 0, 0, 0, 0, ?, '')",
                (b"", state, b""),
            )
    printed = moved(postgres_url, tmp_path / "two.sqlite3", cwd=tmp_path)
    assert "Jobs are not copied; the source has 2 that have not finished." in printed


class TestUsage:
    def test_what_is_used_here_is_shown(self, file: Path, postgres_url: str, tmp_path: Path) -> None:
        for place, words in ((str(file), ()), (postgres_url, ()), ("", (str(file.parent),))):
            environment = {"CODELOUPE_HOME": str(file.parent)}
            environment |= {"CODELOUPE_DATABASE": place} if place.startswith("postgres") else {}
            shown = codeloupe("store", "show", *words, cwd=tmp_path, environment=environment)
            assert shown.exit_code == 0
            assert re.search(rf"^place +{re.escape(place.partition('?')[0])}", shown.stdout)
            assert re.search(r"^schema +\d\nsize +[\d.,]+ .?B\nresults +\d+\n", shown.stdout, re.MULTILINE)
            assert "at most 1 GB of finished calls (ledger_max_gb), none older than 90 days" in shown.stdout
        nothing = codeloupe("store", "show", cwd=tmp_path, environment={"CODELOUPE_HOME": str(tmp_path / "none")})
        assert (nothing.exit_code, "nothing is stored yet" in nothing.stdout) == (0, True)
        assert not (tmp_path / "none").exists()

    def test_without_places_it_goes_from_this_machine_to_the_database_of_the_settings(
        self, file: Path, postgres_url: str, tmp_path: Path
    ) -> None:
        environment = {"CODELOUPE_HOME": str(file.parent), "CODELOUPE_DATABASE": postgres_url}
        ended = codeloupe("store", "migrate", cwd=tmp_path, environment=environment)
        assert ended.exit_code == 0
        assert f"from  {file}\nto    {postgres_url}" in ended.stdout
        assert "codeloupe: 22 of 52 entries done\n" in ended.stderr
        assert "codeloupe: 52 of 52 entries done\n" in ended.stderr

    @each(
        "words, exit_code, said",
        [
            ([], 2, "no target to copy to"),
            (["--from", "a", "--to", "b"], 2, "a: no such database"),
            (["--from", "empty", "--to", "b"], 2, "empty: no such database"),
            (["--from", "FILE", "--to", "FILE"], 2, "is both source and target"),
            (["--from", "FILE", "--to", "link"], 2, "is both source and target"),
            (["--from", "URL", "--to", "URL"], 2, "is both source and target"),
            (["--from", "mysql://u:geheim@h/x", "--to", "b"], 2, "this URL is not supported"),
            (["--from", "EMPTY_URL", "--to", "b"], 2, "this database contains no data of codeloupe"),
            (["--from", "text", "--to", "b"], 3, "text is not a database"),
            (["--from", "FILE", "--to", "text"], 3, "text is not a database"),
            (["--from", "FILE", "--to", "postgresql://u:geheim@127.0.0.1:1/x"], 3, "cannot be reached"),
        ],
    )
    def test_wrong_usage_is_a_sentence(
        self, file: Path, postgres_url: str, tmp_path: Path, words: list[str], exit_code: int, said: str
    ) -> None:
        (tmp_path / "empty").touch()
        (tmp_path / "text").write_text("no database " * 100)
        (tmp_path / "link").symlink_to(file)
        without = re.sub("@/[^?]*", "@/postgres", postgres_url)
        places = {"FILE": str(file), "URL": postgres_url, "EMPTY_URL": without}
        ended = codeloupe("store", "migrate", *(places.get(word, word) for word in words), cwd=tmp_path,
                          environment={"CODELOUPE_HOME": str(file.parent)})  # fmt: skip
        assert (ended.exit_code, said in ended.stderr, "hint: " in ended.stderr) == (exit_code, True, True), ended
        assert "geheim" not in f"{ended}"
        assert sorted(one.name for one in tmp_path.iterdir()) == ["empty", "link", "text"]
