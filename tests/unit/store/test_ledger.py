"""The ledger in the database: owners, limits and what can be learnt about it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import TokenUsage
from codeloupe.store.database import Database
from codeloupe.store.ledger import Limits, Owner, SqliteLedger
from tests.rows import each
from tests.unit.store.samples import SetClock, result

DAY = 86_400.0
ELSEWHERE = Owner("another machine", 1, "token")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codeloupe.sqlite3"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with Database(path) as opened:
        yield opened


@pytest.fixture
def ledger(database: Database, clock: SetClock) -> SqliteLedger:
    return SqliteLedger(database, clock=clock, limits=None)


@pytest.fixture
def other(path: Path, clock: SetClock) -> Iterator[SqliteLedger]:
    with Database(path) as opened:
        yield SqliteLedger(opened, clock=clock, limits=None, owner=ELSEWHERE)


def keys(database: Database) -> list[str]:
    with database.reading() as connection:
        return [key for (key,) in connection.execute("SELECT key FROM results ORDER BY key")]


class TestOwners:
    def test_only_one_of_two_gets_a_claim(self, ledger: SqliteLedger, other: SqliteLedger) -> None:
        assert ledger.claim("k", lease_seconds=60)
        assert not other.claim("k", lease_seconds=60)
        ledger.release("k")
        assert other.claim("k", lease_seconds=60)

    def test_what_another_finished_since_we_asked_is_not_bought_again(
        self, ledger: SqliteLedger, other: SqliteLedger
    ) -> None:
        assert ledger.get("k") is None
        assert other.claim("k", lease_seconds=60)
        other.put("k", result())
        assert not ledger.claim("k", lease_seconds=60)
        assert ledger.get("k") is not None
        assert ledger.claim("k", lease_seconds=60)

    def test_nobody_ends_or_extends_the_claim_of_another(
        self, ledger: SqliteLedger, other: SqliteLedger, clock: SetClock
    ) -> None:
        assert other.claim("k", lease_seconds=60)
        ledger.release("k")
        ledger.renew("k", lease_seconds=600)
        ledger.put("k", result())
        assert ledger.is_claimed("k")
        clock.now += 61
        assert not ledger.is_claimed("k")

    def test_a_late_result_is_kept_although_the_claim_is_lost(
        self, ledger: SqliteLedger, other: SqliteLedger, clock: SetClock
    ) -> None:
        assert ledger.claim("k", lease_seconds=60)
        clock.now += 61
        assert other.claim("k", lease_seconds=60)
        ledger.put("k", result("late"))
        assert other.get("k") == result("late", from_ledger=True)
        other.put("k", result("later"))
        assert ledger.get("k") == result("later", from_ledger=True)
        assert not ledger.is_claimed("k")

    @pytest.mark.program
    def test_a_claim_of_a_process_that_is_gone_is_had_at_once(self, database: Database, ledger: SqliteLedger) -> None:
        child = subprocess.Popen((sys.executable, "-S", "-c", ""))
        child.wait()
        gone = SqliteLedger(database, owner=replace(Owner.here(), process_id=child.pid))
        assert gone.claim("k", lease_seconds=10**6)
        assert ledger.claim("k", lease_seconds=60) is bool(Owner.here().machine)


class TestWhatIsKept:
    def test_the_columns_tell_about_a_result(self, database: Database, ledger: SqliteLedger, clock: SetClock) -> None:
        ledger.put("k", result("x" * 10_000, agent="codex\udcff", model="m", total_cost_usd=0.25))
        with database.reading() as connection:
            row = connection.execute(
                "SELECT created_at, agent, model, cost_usd, size_bytes, length(payload) FROM results"
            ).fetchone()
        assert row[:4] == (clock.now, "codex\\udcff", "m", 0.25)
        assert row[4] == row[5] < 500

    def test_a_result_is_in_the_file_before_put_returns(self, ledger: SqliteLedger, path: Path) -> None:
        assert ledger.claim("k", lease_seconds=60)
        ledger.put("k", result())
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
            assert reader.execute("SELECT key FROM results").fetchall() == [("k",)]
            assert reader.execute("SELECT key FROM claims").fetchall() == []

    def test_a_value_that_is_no_json_is_refused_and_not_changed_into_something_else(self, ledger: SqliteLedger) -> None:
        circle: list[Any] = []
        circle.append(circle)
        for value in ({1, 2}, object(), b"bytes", TokenUsage(), circle):
            with pytest.raises(StoreError, match="a value in it is no JSON"):
                ledger.put("k", result(structured=value))


def pruned(database: Database, clock: SetClock, **limits: float) -> None:
    """Keep these limits, as the first `put` of a ledger does."""
    last = SqliteLedger(database, clock=clock, limits=Limits(**{"max_age_days": 90.0, "max_bytes": 10**9, **limits}))  # type: ignore[arg-type]  # by name
    last.put("~last", result(""))


class TestLimits:
    def test_what_is_too_old_goes(self, database: Database, ledger: SqliteLedger, clock: SetClock) -> None:
        for age in (100, 91, 89, 0):
            clock.now = 1e9 - age * DAY
            ledger.put(f"{age:03}", result())
        pruned(database, clock)
        assert keys(database) == ["000", "089", "~last"]

    def test_then_the_oldest_until_the_rest_fits(
        self, database: Database, ledger: SqliteLedger, clock: SetClock
    ) -> None:
        for number in (3, 1, 2, 0):
            clock.now = 1e9 - number
            ledger.put(str(number), result(os.urandom(1000).hex()))
        with database.reading() as connection:
            (size_bytes,) = connection.execute("SELECT sum(size_bytes) FROM results").fetchone()
        pruned(database, clock, max_bytes=size_bytes // 2 + 500)
        assert keys(database) == ["0", "1", "~last"]

    def test_more_than_a_batch_goes_and_the_file_gets_smaller(
        self, database: Database, path: Path, clock: SetClock
    ) -> None:
        with database.writing() as connection:
            connection.executemany(
                "INSERT INTO results VALUES (?, ?, 4000, 'a', NULL, NULL, ?)",
                ((f"{number:04}", number, b"x" * 4000) for number in range(2500)),
            )
        database.close()
        before = path.stat().st_size
        pruned(database, clock, max_age_days=10**6, max_bytes=40_500)
        assert keys(database) == [*(f"{number:04}" for number in range(2490, 2500)), "~last"]
        database.close()
        assert path.stat().st_size < before / 20

    def test_old_claims_go_too(self, database: Database, ledger: SqliteLedger, clock: SetClock) -> None:
        assert ledger.claim("old", lease_seconds=60)
        clock.now += 2 * DAY
        assert ledger.claim("new", lease_seconds=60)
        pruned(database, clock)
        with database.reading() as connection:
            assert connection.execute("SELECT key FROM claims").fetchall() == [("new",)]

    def test_the_first_put_keeps_them_and_the_second_does_not_look(self, database: Database, clock: SetClock) -> None:
        before = SqliteLedger(database, clock=lambda: clock.now - 100 * DAY, limits=None)
        ledger = SqliteLedger(database, clock=clock)
        before.put("old", result())
        ledger.put("new", result())
        assert keys(database) == ["new"]
        before.put("old", result())
        ledger.put("newer", result())
        assert keys(database) == ["new", "newer", "old"]

    def test_a_limit_that_cannot_be_kept_now_does_not_cost_the_result(
        self, database: Database, clock: SetClock
    ) -> None:
        SqliteLedger(database, clock=lambda: 1.0, limits=None).put("old", result())
        with database.writing() as connection:
            connection.execute("CREATE TRIGGER stuck BEFORE DELETE ON results BEGIN SELECT raise(ABORT, 'stuck'); END")
        SqliteLedger(database, clock=clock).put("new", result())
        assert keys(database) == ["new", "old"]


HERE = Owner.here()


@each("owner", [HERE, ELSEWHERE, Owner("", 7, ""), Owner("a process 3 token b", 7, "x token y")])
def test_an_owner_is_read_back_from_its_text(owner: Owner) -> None:
    assert Owner.parse(str(owner)) == owner
    for text in ("", "somebody", "m process x token y", "m process -4 token y", "m process ² token y"):
        assert Owner.parse(text) is None


@pytest.mark.program
def test_a_process_is_gone_once_it_ended_where_processes_can_be_told_apart() -> None:
    assert not HERE.is_gone()
    assert not replace(HERE, process_id=1).is_gone()
    child = subprocess.Popen((sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    owner = replace(HERE, process_id=child.pid)
    assert not owner.is_gone()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_gone() is bool(HERE.machine), "before its parent asks how it ended"
    child.wait()
    assert owner.is_gone() is bool(HERE.machine)
    # Of other machines nothing is known.
    for other in (replace(owner, machine="another"), replace(owner, machine=""), replace(HERE, process_id=10**30)):
        assert not other.is_gone()


def test_a_clock_that_was_set_back_does_not_keep_a_claim_for_ever(
    ledger: SqliteLedger, other: SqliteLedger, clock: SetClock
) -> None:
    assert other.claim("k", lease_seconds=60)
    held = []
    for seconds in (-1, -59, -1):
        clock.now += seconds
        held.append(ledger.is_claimed("k"))
    assert held == [True, True, False]
