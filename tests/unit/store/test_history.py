"""The history in SQLite: what a damaged row costs, what is read for what, and what a failure leaves behind."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.history import Dismissal, HistoryQuery, PruneRule, TrendKey
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.records import pack, unpack
from codeloupe.store.sqlite import SqliteDatabase
from tests.rows import each
from tests.unit.store.history_samples import (
    REPOSITORY,
    WORK_TREE,
    at,
    commit_review,
    identifier,
    named,
    record,
    sweep_record,
)

HERE = HistoryQuery(repositories=(REPOSITORY,))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "codeloupe.sqlite3") as opened:
        yield opened


@pytest.fixture
def history(database: SqliteDatabase) -> DatabaseHistory:
    return DatabaseHistory(database)


def change(database: SqliteDatabase, statement: str, *values: Any) -> None:
    assert database.change(statement, values) > 0


class TestDamage:
    @each("damage", [b"", b"garbage", "text", 7, b'j{"form":1,"value":{}}'])
    def test_an_entry_that_cannot_be_read_costs_that_entry_in_words(
        self, history: DatabaseHistory, database: SqliteDatabase, damage: object
    ) -> None:
        for number in (1, 2, 3):
            history.save(record(number))
        change(database, "UPDATE reviews SET entry = ? WHERE review_id = ?", damage, identifier(2))
        found = history.list(HERE)
        assert [entry.entry_id for entry in found.entries] == [identifier(3), identifier(1)]
        (problem,) = found.problems
        assert problem.startswith(f"the entry {identifier(2)} cannot be read: ")

    def test_numbers_that_are_none_do_not_end_the_counting(
        self, history: DatabaseHistory, database: SqliteDatabase
    ) -> None:
        history.save(record(1, named("f")))
        change(database, "UPDATE reviews SET saved_at = 'x', cost_usd = 'y', size_bytes = 'z'")
        assert len(history.list(HERE).entries) == 1
        assert history.trends([TrendKey.WEEK])[0].rows[0].cost_usd == 0
        for moment in (1e300, -1e300):
            change(database, "UPDATE reviews SET saved_at = ?", moment)
            assert len(history.trends([TrendKey.WEEK])[0].rows) == 1
        assert history.prune(PruneRule(keep_last=0)).reviews == 1

    def test_a_review_of_a_newer_version_is_told_and_the_last_that_can_be_read_is_the_last(
        self, history: DatabaseHistory, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in (1, 2):
            history.save(record(number))
        ((payload,),) = database.select("SELECT payload FROM reviews WHERE review_id = ?", (identifier(2),))
        newer = pack(json.dumps({**json.loads(unpack(payload)), "form": 99}))
        change(database, "UPDATE reviews SET payload = ? WHERE review_id = ?", newer, identifier(2))
        with pytest.raises(
            StoreError, match=f"{identifier(2)}.*another version of codeloupe wrote it .format 99"
        ) as caught:
            history.get(identifier(2))
        assert caught.value.hint
        older = history.get(identifier(1))
        assert older is not None
        assert replace(older, turn=0) == record(1)
        with caplog.at_level(logging.WARNING):
            assert history.last(WORK_TREE) == older
        assert identifier(2) in caplog.text

    def test_a_sweep_is_read_without_the_commits_and_reviews_that_cannot_be(
        self, history: DatabaseHistory, database: SqliteDatabase
    ) -> None:
        history.save_sweep(sweep_record(9, *(commit_review(number) for number in (1, 2, 3, 4))))
        change(database, "UPDATE sweep_commits SET payload = x'00' WHERE position = 0")
        change(database, "DELETE FROM reviews WHERE review_id = ?", identifier(1002))
        change(database, "UPDATE reviews SET payload = x'00', entry = x'00' WHERE review_id = ?", identifier(1003))
        found, outline = history.get_sweep(identifier(9)), history.outline(identifier(9))
        assert found is not None
        assert outline is not None
        for its in (found, outline.record):
            assert [commit.commit.subject[-1] for commit in its.sweep.commits] == ["2", "3", "4"]
            assert len(its.problems) == 3
        assert [commit.reviewed for commit in found.sweep.commits] == [False, False, True]
        assert [entry is not None for entry in outline.reviews] == [False, False, True]

    def test_what_cannot_be_read_of_the_small_tables_is_logged_and_left_out(
        self, history: DatabaseHistory, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        history.dismiss(Dismissal(fingerprint="f", repository=REPOSITORY, reason="", who="", at=at()))
        history.save(record(1, named("f")))
        change(database, "UPDATE dismissals SET payload = x'00'")
        change(database, "UPDATE findings SET status = 'postponed'")
        with caplog.at_level(logging.WARNING):
            assert history.dismissals((REPOSITORY,)) == ()
            assert history.findings_of(["f"]) == ()
        assert "the dismissal of f cannot be read" in caplog.text
        assert f"cannot read a finding of review {identifier(1)} in the history" in caplog.text


class TestReading:
    def test_lists_trends_and_sightings_read_no_payload(
        self, history: DatabaseHistory, database: SqliteDatabase
    ) -> None:
        for number in (1, 2):
            history.save(record(number, named("f")))
        history.save_sweep(sweep_record(3, commit_review(1, named("g"))))
        change(database, "UPDATE reviews SET payload = x'00'")
        change(database, "UPDATE findings SET payload = x'00'")
        change(database, "UPDATE sweeps SET payload = x'00'")
        listing = history.list(HERE)
        assert (len(listing.entries), listing.problems) == (3, ())
        assert [row.findings for row in history.trends([TrendKey.REVIEWER])[0].rows] == [2]
        assert len(history.findings_of(["f"])) == 2
        assert history.prune(PruneRule(keep_last=0), dry_run=True).findings == 3

    @each(
        ("ask", "index"),
        [
            (lambda history: history.list(HistoryQuery(work_tree=WORK_TREE)), "reviews_of_work_tree"),
            (lambda history: history.list(HistoryQuery(work_tree=WORK_TREE)), "sweeps_of_work_tree"),
            (lambda history: history.list(HERE), "reviews_of_repository"),
            (lambda history: history.list(HERE), "sweeps_of_repository"),
            (lambda history: history.list(HistoryQuery()), "reviews_in_order"),
            (lambda history: history.matching("abcd"), "sqlite_autoindex_reviews_1"),
            (lambda history: history.get(identifier(1)), "sqlite_autoindex_findings_1"),
            (lambda history: history.findings_of(["a", "b"]), "findings_by_fingerprint"),
            (lambda history: history.trends([TrendKey.WEEK]), "COVERING INDEX findings_for_trends"),
            (lambda history: history.last(WORK_TREE), "reviews_of_work_tree"),
            (lambda history: history.raw_outputs(identifier(1)), "sqlite_autoindex_raw_outputs_1"),
        ],
    )
    def test_an_index_is_there_for_what_is_asked(
        self, history: DatabaseHistory, database: SqliteDatabase, ask: Any, index: str
    ) -> None:
        history.save(record(1, named("f")))
        statements: list[str] = []
        with database.reading() as connection:
            connection.set_trace_callback(statements.append)
        ask(history)
        with database.reading() as connection:
            connection.set_trace_callback(None)
            plans = [connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in statements]
        assert index in str(plans)
        assert "SCAN findings" not in str(plans)


class TestWriting:
    def test_a_failure_in_the_middle_leaves_what_was_there(
        self, history: DatabaseHistory, database: SqliteDatabase
    ) -> None:
        history.save(record(1, named("a")), raw_outputs={"u": "one"})
        # A real failure behind the first rows: the table of the last ones is not as it should be.
        database.change("ALTER TABLE raw_outputs RENAME TO elsewhere")
        with pytest.raises(StoreError, match="raw_outputs"):
            history.save(record(1, named("b"), named("c")), raw_outputs={"u": "two"})
        database.change("ALTER TABLE elsewhere RENAME TO raw_outputs")
        found = history.get(identifier(1))
        assert found is not None
        assert replace(found, turn=0) == record(1, named("a"))
        assert history.raw_outputs(identifier(1)) == {"u": "one"}

    def test_a_sweep_is_saved_whole_or_not_at_all(
        self, history: DatabaseHistory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_arguments: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(DatabaseHistory, "_write_review", interrupted)
        with pytest.raises(KeyboardInterrupt):
            history.save_sweep(sweep_record(9, commit_review(1), commit_review(2)))
        assert history.list(HERE).entries == ()
        assert history.get_sweep(identifier(9)) is None

    def test_pruning_gives_the_room_back(self, history: DatabaseHistory, database: SqliteDatabase) -> None:
        for number in range(1, 21):
            history.save(record(number, *(named(f"{number} {n}", body="x" * 900) for n in range(50))))
        before = history.file_bytes()
        removed = history.prune(PruneRule(keep_last=2))
        assert removed.size_bytes > 200_000
        assert history.file_bytes() < before - removed.size_bytes / 2
        assert database.select("PRAGMA integrity_check") == [("ok",)]
        assert database.select("PRAGMA foreign_key_check") == []

    def test_a_name_for_a_place_is_remembered(self, history: DatabaseHistory) -> None:
        assert history.commit_of(b"/a\xff") is None
        for commit in ("a" * 40, "b" * 40):
            history.remember_commit(b"/a\xff", commit)
            assert history.commit_of(b"/a\xff") == commit


def test_what_cannot_be_read_of_a_record_is_told(history: DatabaseHistory, database: SqliteDatabase) -> None:
    history.save(record(1, named("a"), named("b"), named("c"), named("d")), raw_outputs={"a": "b"})
    history.save_sweep(sweep_record(9))
    change(database, "UPDATE findings SET payload = x'6a7b7d' WHERE fingerprint = 'b'")
    change(database, "DELETE FROM findings WHERE fingerprint = 'd'")
    change(database, "UPDATE sweeps SET payload = x'00'")
    change(database, "UPDATE raw_outputs SET output = x'00'")
    found = history.get(identifier(1))
    assert found is not None
    assert [finding.fingerprint for finding in found.review.findings] == ["a", "c"]
    first, second = found.problems
    assert first.startswith(f"finding 2 of review {identifier(1)} cannot be read: ")
    assert second == f"review {identifier(1)} had 4 findings, but only 3 are left"
    for read in (history.get_sweep, history.outline):
        with pytest.raises(StoreError, match=f"cannot read the sweep {identifier(9)} in the database"):
            read(identifier(9))
    with pytest.raises(StoreError, match="raw output"):
        history.raw_outputs(identifier(1))
