"""What every ledger must do, whatever keeps it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store.interface import Ledger
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.postgres import PostgresDatabase
from tests.postgres import made_database
from tests.rows import each
from tests.unit.store.samples import SetClock, result, results


class OpenLedger(Ledger, Protocol):
    """A ledger that also says whether a key is claimed."""

    def is_claimed(self, key: str) -> bool: ...


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, clock: SetClock) -> Iterator[OpenLedger]:
    with made_database(request) as database:
        yield DatabaseLedger(database, clock=clock)


def claim(ledger: Ledger, key: str = "k", lease_seconds: float = 60) -> bool:
    """Claim through the port, so that the type checker compares both."""
    return ledger.claim(key, lease_seconds=lease_seconds)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(before=results)
def test_every_result_comes_back_exactly(ledger: OpenLedger, before: AgentResult) -> None:
    ledger.put("k", before)
    found = ledger.get("k")
    assert found == replace(before, from_ledger=True)
    assert repr(found) == repr(replace(before, from_ledger=True))


def test_what_was_put_last_is_got_and_nobody_can_change_it(ledger: OpenLedger) -> None:
    assert ledger.get("k") is None
    shared = {"findings": [1]}
    ledger.put("k", result("one"))
    ledger.put("k", result("two", structured=shared))
    shared["findings"].append(2)
    for _ in range(2):
        found = ledger.get("k")
        assert found == result("two", structured={"findings": [1]}, from_ledger=True)
        found.structured["findings"].append(3)
    assert ledger.get("another") is None


def test_a_row_of_the_spool_does_not_replace_a_newer_one(ledger: DatabaseLedger, clock: SetClock) -> None:
    older = ledger.row("k", result("older"))
    clock.now += 1
    ledger.put("k", result("newer"))
    ledger.put_row(older)
    found = ledger.get("k")
    assert found is not None
    assert found.output == "newer"


def test_a_stored_answer_ends_the_claim_of_any_process(ledger: DatabaseLedger) -> None:
    assert claim(ledger)
    DatabaseLedger(ledger.database).put("k", result())
    assert not ledger.is_claimed("k")


def test_a_value_that_is_no_json_is_refused_and_nothing_is_kept(ledger: OpenLedger) -> None:
    assert claim(ledger)
    with pytest.raises(StoreError, match="cannot store the result of scripted") as caught:
        ledger.put("k", result(structured={1, 2}))
    assert caught.value.hint
    assert ledger.get("k") is None
    assert ledger.is_claimed("k")


def test_a_key_is_claimed_once_until_its_lease_ends(ledger: OpenLedger, clock: SetClock) -> None:
    assert claim(ledger, lease_seconds=60)
    assert claim(ledger, "another")
    clock.now += 59
    assert not claim(ledger)
    assert ledger.is_claimed("k")
    clock.now += 2
    assert not ledger.is_claimed("k")
    assert claim(ledger)


def test_a_renewed_claim_lasts_from_then_on_even_if_it_ran_out(ledger: OpenLedger, clock: SetClock) -> None:
    ledger.renew("k", lease_seconds=60)
    assert not ledger.is_claimed("k")
    assert claim(ledger, lease_seconds=60)
    for seconds in (50, 100):
        clock.now += seconds
        ledger.renew("k", lease_seconds=60)
        clock.now += 50
        assert not claim(ledger)
    clock.now += 11
    assert claim(ledger)


def test_releasing_and_putting_end_the_claim_and_what_is_finished_can_be_bought_anew(ledger: OpenLedger) -> None:
    ledger.release("never claimed")
    for end in (ledger.release, lambda key: ledger.put(key, result())):
        assert claim(ledger)
        end("k")
        assert not ledger.is_claimed("k")
    assert claim(ledger)
    assert ledger.get("k") is not None


@each("seconds", [0.0, -5.0, float("nan")])
def test_a_lease_that_is_no_time_is_refused(ledger: OpenLedger, seconds: float) -> None:
    with pytest.raises(ValueError, match="a lease must last a positive number of seconds"):
        claim(ledger, lease_seconds=seconds)
    assert not ledger.is_claimed("k")


def test_of_many_threads_one_gets_each_claim(ledger: OpenLedger) -> None:
    start = threading.Barrier(6)

    def work(_number: int) -> list[int]:
        start.wait()
        return [key for key in range(30) if claim(ledger, str(key))]

    with ThreadPoolExecutor(6) as pool:
        assert sorted(chain(*pool.map(work, range(6)))) == list(range(30))


@pytest.mark.defect("W6")
def test_jobs_within_an_hour_prune_the_ledger_once(postgres_url: str) -> None:
    with PostgresDatabase(postgres_url) as database:
        database.change("CREATE TABLE prunings (pruned bigint)")
        database.change(
            "CREATE FUNCTION count_pruning() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN INSERT INTO codeloupe.prunings VALUES (1); RETURN NULL; END$$"
        )
        database.change(
            "CREATE TRIGGER counted AFTER DELETE ON results FOR EACH STATEMENT EXECUTE FUNCTION count_pruning()"
        )
        for job in range(3):
            ledger = DatabaseLedger(database)
            for answer in range(3):
                ledger.put(f"{job} {answer}", result())
            assert database.select("SELECT count(*) FROM prunings") == [(1,)]
