"""What every ledger must do, whatever keeps it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.model.ports import Ledger
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.memory_ledger import MemoryLedger
from tests.endings import FAR_TOO_LONG_SECONDS
from tests.unit.store.samples import SetClock, result, results

AnyLedger = SqliteLedger | MemoryLedger
Opened = AbstractContextManager[AnyLedger]


@contextmanager
def _sqlite(directory: Path, clock: SetClock) -> Iterator[AnyLedger]:
    with Database(directory / "codeloupe.sqlite3") as database:
        yield SqliteLedger(database, clock=clock)


@contextmanager
def _memory(directory: Path, clock: SetClock) -> Iterator[AnyLedger]:
    yield MemoryLedger(clock=clock)


LEDGERS: dict[str, Callable[[Path, SetClock], Opened]] = {"sqlite": _sqlite, "memory": _memory}


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=list(LEDGERS))
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[AnyLedger]:
    with LEDGERS[request.param](tmp_path, clock) as opened:
        yield opened


def claim(ledger: Ledger, key: str = "k", lease_seconds: float = 60) -> bool:
    """Claim through the port, so that the type checker compares both."""
    return ledger.claim(key, lease_seconds=lease_seconds)


def test_what_was_put_is_got_and_says_where_it_is_from(ledger: AnyLedger) -> None:
    assert ledger.get("k") is None
    ledger.put("k", result("one"))
    assert ledger.get("k") == result("one", from_ledger=True)
    assert ledger.get("another") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(before=results)
def test_every_result_comes_back_exactly(ledger: AnyLedger, before: AgentResult) -> None:
    ledger.put("k", before)
    found = ledger.get("k")
    assert found == replace(before, from_ledger=True)
    assert repr(found) == repr(replace(before, from_ledger=True))


def test_nobody_can_change_what_is_kept(ledger: AnyLedger) -> None:
    shared = {"findings": [1]}
    ledger.put("k", result(structured=shared))
    shared["findings"].append(2)
    for _ in range(2):
        found = ledger.get("k")
        assert found is not None
        assert found.structured == {"findings": [1]}
        found.structured["findings"].append(3)


def test_a_later_result_takes_the_place_of_an_earlier_one(ledger: AnyLedger) -> None:
    ledger.put("k", result("one"))
    ledger.put("k", result("two"))
    assert ledger.get("k") == result("two", from_ledger=True)


def test_a_value_that_is_no_json_is_refused_and_nothing_is_kept(ledger: AnyLedger) -> None:
    assert claim(ledger)
    with pytest.raises(StoreError, match="the result of scripted cannot be stored") as caught:
        ledger.put("k", result(structured={1, 2}))
    assert caught.value.hint
    assert ledger.get("k") is None
    assert ledger.is_claimed("k")


def test_a_key_is_claimed_once_also_by_one_owner(ledger: AnyLedger) -> None:
    assert claim(ledger, "k")
    assert not claim(ledger, "k")
    assert claim(ledger, "another")


def test_a_claim_ends_with_its_lease(ledger: AnyLedger, clock: SetClock) -> None:
    assert claim(ledger, lease_seconds=60)
    clock.now += 59
    assert not claim(ledger)
    assert ledger.is_claimed("k")
    clock.now += 2
    assert not ledger.is_claimed("k")
    assert claim(ledger)


def test_a_renewed_claim_lasts_from_then_on(ledger: AnyLedger, clock: SetClock) -> None:
    assert claim(ledger, lease_seconds=60)
    clock.now += 50
    ledger.renew("k", lease_seconds=60)
    clock.now += 50
    assert not claim(ledger)
    clock.now += 11
    assert claim(ledger)


def test_a_claim_that_ran_out_is_renewed_while_nobody_took_it(ledger: AnyLedger, clock: SetClock) -> None:
    assert claim(ledger, lease_seconds=60)
    clock.now += 100
    ledger.renew("k", lease_seconds=60)
    assert ledger.is_claimed("k")


def test_renewing_what_was_never_claimed_claims_nothing(ledger: AnyLedger) -> None:
    ledger.renew("k", lease_seconds=60)
    assert not ledger.is_claimed("k")


def test_a_released_claim_can_be_had_again(ledger: AnyLedger) -> None:
    assert claim(ledger)
    ledger.release("k")
    assert not ledger.is_claimed("k")
    assert claim(ledger)
    ledger.release("never claimed")


def test_putting_ends_the_claim(ledger: AnyLedger) -> None:
    assert claim(ledger)
    ledger.put("k", result())
    assert not ledger.is_claimed("k")


def test_what_is_finished_can_be_claimed_to_be_bought_anew(ledger: AnyLedger) -> None:
    ledger.put("k", result())
    assert claim(ledger)
    assert ledger.get("k") is not None


def test_what_is_forgotten_is_bought_again(ledger: AnyLedger) -> None:
    ledger.put("k", result())
    assert ledger.forget("k")
    assert not ledger.forget("k")
    assert ledger.get("k") is None
    assert claim(ledger)


@pytest.mark.parametrize("seconds", [0.0, -5.0, float("nan")])
def test_a_lease_that_is_no_time_is_refused(ledger: AnyLedger, seconds: float) -> None:
    with pytest.raises(ValueError, match="a lease lasts some seconds"):
        claim(ledger, lease_seconds=seconds)
    assert not ledger.is_claimed("k")


def test_of_many_threads_one_gets_each_claim(ledger: AnyLedger) -> None:
    got: list[str] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        got.extend(key for key in map(str, range(30)) if claim(ledger, key))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(map(str, range(30)))


class TestWaiting:
    def wait(
        self, ledger: AnyLedger, timeout: float = FAR_TOO_LONG_SECONDS, do: Callable[[], None] | None = None
    ) -> AgentResult | None:
        async def main() -> AgentResult | None:
            if do is not None:
                asyncio.get_running_loop().call_later(0.03, do)
            return await ledger.wait_for("k", poll_seconds=0.01, timeout=timeout)

        return asyncio.run(main())

    def test_the_holders_result_is_awaited(self, ledger: AnyLedger) -> None:
        assert claim(ledger)
        assert self.wait(ledger, do=lambda: ledger.put("k", result())) == result(from_ledger=True)

    def test_what_is_there_already_is_not_waited_for(self, ledger: AnyLedger) -> None:
        ledger.put("k", result())
        assert self.wait(ledger, timeout=0) == result(from_ledger=True)

    def test_it_ends_when_the_holder_gives_up(self, ledger: AnyLedger) -> None:
        assert claim(ledger)
        assert self.wait(ledger, do=lambda: ledger.release("k")) is None
        assert claim(ledger)

    def test_it_ends_when_the_lease_does(self, ledger: AnyLedger, clock: SetClock) -> None:
        assert claim(ledger, lease_seconds=60)
        assert self.wait(ledger, do=lambda: setattr(clock, "now", clock.now + 61)) is None
        assert claim(ledger)

    def test_it_ends_when_the_time_is_up(self, ledger: AnyLedger) -> None:
        assert claim(ledger)
        assert self.wait(ledger, timeout=0.05) is None
        assert ledger.is_claimed("k")

    def test_nobody_is_waited_for_when_nobody_buys(self, ledger: AnyLedger) -> None:
        assert self.wait(ledger, timeout=0) is None

    def test_it_can_be_cancelled(self, ledger: AnyLedger) -> None:
        async def main() -> None:
            waiting = asyncio.create_task(ledger.wait_for("k", poll_seconds=0.01, timeout=60))
            await asyncio.sleep(0.03)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        assert claim(ledger)
        asyncio.run(main())
