from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.ledger import LedgerCalls
from codeloupe.errors import Crashed, StoreError, TimedOut
from codeloupe.model.agent import AgentResult
from codeloupe.store.database import Database
from codeloupe.store.interface import Ledger
from codeloupe.store.ledger import SqliteLedger
from tests.unit.agents.call_samples import result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing


class Shop:
    """A buyer with a ledger of its own on a shared file, as in another process; what it buys takes a while."""

    def __init__(self, path: Path, *, seconds: float = 1.0, lease_seconds: float = 60.0) -> None:
        self.database = Database(path)
        self.ledger = SqliteLedger(self.database, clock=asyncio.get_running_loop().time)
        self.calls = LedgerCalls(self.ledger, timing=virtual_timing(), lease_seconds=lease_seconds)
        self.seconds = seconds
        self.bought = 0
        self.failures: list[Exception] = []

    async def answer(self) -> AgentResult:
        self.bought += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            raise self.failures.pop()
        return result("an answer")

    async def buy(self, key: str = "key", *, patience_seconds: float = 1000.0, fresh: bool = False) -> AgentResult:
        return await self.calls.answer(
            key, self.answer, agent="scripted", patience_seconds=patience_seconds, fresh=fresh
        )


class Interrupted:
    """A ledger in which something happens while one of its steps is under way."""

    def __init__(self, ledger: Ledger, step: str, interrupt: Callable[[], object]) -> None:
        self._ledger = ledger
        self._step = step
        self._interrupt = interrupt
        self.steps: list[str] = []

    def get(self, key: str) -> AgentResult | None:
        self._at("second get" if "get" in self.steps else "get")
        return self._ledger.get(key)

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        self._at("claim")
        return self._ledger.claim(key, lease_seconds=lease_seconds)

    def renew(self, key: str, *, lease_seconds: float) -> None:
        self._ledger.renew(key, lease_seconds=lease_seconds)

    def put(self, key: str, result: AgentResult) -> None:
        self._at("put")
        self._ledger.put(key, result)

    def release(self, key: str) -> None:
        self._at("release")
        self._ledger.release(key)

    def _at(self, step: str) -> None:
        self.steps.append(step)
        if step == self._step:
            self._interrupt()
            time.sleep(0.02)


def in_shops(*, seconds: float = 1.0, lease_seconds: float = 60.0) -> Callable[[Any], Callable[[Path], None]]:
    """Run a test in virtual time, with two shops on one file, and the folder of that file where it wants it."""

    def decorate(test: Any) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def opened() -> None:
                file = tmp_path / "ledger.db"
                ours, theirs = (Shop(file, seconds=seconds, lease_seconds=lease_seconds) for _ in range(2))
                with ours.database, theirs.database:
                    known = {"ours": ours, "theirs": theirs, "tmp_path": tmp_path}
                    await test(**{name: known[name] for name in inspect.signature(test).parameters})

            run_virtually(opened())

        run.__name__ = test.__name__
        return run

    return decorate


@in_shops()
async def test_an_answer_is_bought_once_and_then_taken_from_the_ledger(ours: Shop, theirs: Shop) -> None:
    answers = await ours.buy(), await ours.buy(), await theirs.buy()
    assert (ours.bought, theirs.bought) == (1, 0)
    assert {answer.output for answer in answers} == {"an answer"}
    assert [answer.from_ledger for answer in answers] == [False, True, True]


@in_shops()
async def test_the_answer_is_stored_before_it_is_returned_and_the_claim_is_over(ours: Shop, theirs: Shop) -> None:
    await ours.buy()
    assert theirs.ledger.get("key") is not None
    assert not theirs.ledger.is_claimed("key")


@in_shops()
async def test_a_purchase_takes_no_more_steps_than_it_needs_and_leaves_no_task_behind(ours: Shop) -> None:
    ledger = Interrupted(ours.ledger, "none", print)
    ours.calls = LedgerCalls(ledger, timing=virtual_timing(), lease_seconds=60.0)
    await ours.buy()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ledger.steps == ["get", "claim", "second get", "put"]


@in_shops()
async def test_calls_for_the_same_in_one_run_buy_it_once(ours: Shop) -> None:
    answers = await asyncio.gather(*(ours.buy() for _ in range(5)), ours.buy("other"))
    assert ours.bought == 2
    assert virtual_clock() == 1.0
    assert [answer.from_ledger for answer in answers] == [False, True, True, True, True, False]


@in_shops(seconds=30.0)
async def test_two_processes_buy_it_once_and_the_second_waits_for_the_first(ours: Shop, theirs: Shop) -> None:
    first = asyncio.create_task(ours.buy())
    await asyncio.sleep(0.2)
    second = await theirs.buy()
    assert (ours.bought, theirs.bought) == (1, 0)
    assert virtual_clock() < 30 + 2.5
    assert ((await first).from_ledger, second.from_ledger) == (False, True)


@in_shops()
async def test_a_failure_is_not_stored_and_the_next_one_buys(ours: Shop, theirs: Shop) -> None:
    ours.failures.append(Crashed("it crashed", agent="scripted"))
    with pytest.raises(Crashed):
        await ours.buy()
    assert theirs.ledger.get("key") is None
    assert not theirs.ledger.is_claimed("key")
    await theirs.buy()
    assert theirs.bought == 1


@in_shops()
async def test_of_two_calls_in_one_run_the_second_buys_when_the_first_failed(ours: Shop) -> None:
    ours.failures.append(Crashed("it crashed", agent="scripted"))
    ended: list[object] = list(await asyncio.gather(ours.buy(), ours.buy(), return_exceptions=True))
    assert ours.bought == 2
    first, second = ended
    assert isinstance(first, Crashed)
    assert isinstance(second, AgentResult)


@in_shops(seconds=145.0, lease_seconds=10.0)
async def test_a_claim_is_renewed_while_the_call_runs(ours: Shop, theirs: Shop) -> None:
    buying = asyncio.create_task(ours.buy())
    for _ in range(20):
        await asyncio.sleep(7)
        assert theirs.ledger.is_claimed("key")
    await buying
    await asyncio.sleep(7)
    assert not theirs.ledger.is_claimed("key")


@in_shops()
async def test_a_claim_that_was_left_is_taken_over_when_its_lease_ends(ours: Shop, theirs: Shop) -> None:
    theirs.ledger.claim("key", lease_seconds=60.0)
    await ours.buy()
    assert ours.bought == 1
    assert 61 <= virtual_clock() <= 64


@in_shops()
async def test_waiting_for_another_process_has_an_end(ours: Shop, theirs: Shop) -> None:
    theirs.ledger.claim("key", lease_seconds=10_000.0)
    with pytest.raises(TimedOut) as caught:
        await ours.buy(patience_seconds=300)
    assert 300 <= virtual_clock() <= 303
    assert theirs.ledger.is_claimed("key")
    error = caught.value
    assert "somebody else is asking scripted the same, and did not end within 5 minutes" in error.message
    assert error.hint


@pytest.mark.parametrize("step", ["get", "claim", "second get", "put"])
def test_a_cancellation_in_the_middle_of_a_step_gives_the_claim_back(tmp_path: Path, step: str) -> None:
    @in_shops()
    async def run(ours: Shop, theirs: Shop) -> None:
        loop = asyncio.get_running_loop()

        def cancel_twice() -> None:
            buying.cancel()
            loop.call_later(0, buying.cancel)

        ledger = Interrupted(ours.ledger, step, lambda: loop.call_soon_threadsafe(cancel_twice))
        ours.calls = LedgerCalls(ledger, timing=virtual_timing(), lease_seconds=60.0)
        buying = asyncio.create_task(ours.buy())
        with pytest.raises(asyncio.CancelledError):
            await buying
        assert not theirs.ledger.is_claimed("key")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        # What was paid for is kept, even when nobody wants it any more.
        assert (theirs.ledger.get("key") is not None) == (step == "put")

    run(tmp_path)


@in_shops(seconds=500.0)
async def test_a_cancellation_during_the_call_gives_the_claim_back_and_stores_nothing(ours: Shop, theirs: Shop) -> None:
    buying = asyncio.create_task(ours.buy())
    await asyncio.sleep(100)
    assert theirs.ledger.is_claimed("key")
    buying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await buying
    assert not theirs.ledger.is_claimed("key")
    assert theirs.ledger.get("key") is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_shops(seconds=50.0)
async def test_a_cancelled_waiter_does_not_end_the_claim_of_another_run_with_the_same_ledger(
    ours: Shop, theirs: Shop
) -> None:
    buying = asyncio.create_task(ours.buy())
    other = LedgerCalls(ours.ledger, timing=virtual_timing(), lease_seconds=60.0)
    await asyncio.sleep(1)
    waiting = asyncio.create_task(other.answer("key", ours.answer, agent="scripted", patience_seconds=1000.0))
    await asyncio.sleep(5)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert theirs.ledger.is_claimed("key")
    await buying
    assert ours.bought == 1


@in_shops()
async def test_a_cancelled_waiter_does_not_end_the_claim_of_another(ours: Shop, theirs: Shop) -> None:
    theirs.ledger.claim("key", lease_seconds=500.0)
    buying = asyncio.create_task(ours.buy())
    await asyncio.sleep(20)
    buying.cancel()
    await asyncio.gather(buying, return_exceptions=True)
    assert ours.ledger.is_claimed("key")


@in_shops()
async def test_it_is_bought_again_and_replaces_what_was_stored(ours: Shop, theirs: Shop) -> None:
    theirs.ledger.put("key", result("an old answer"))
    answer = await ours.buy(fresh=True)
    kept = theirs.ledger.get("key")
    assert kept is not None
    assert kept.output == "an answer"
    assert not answer.from_ledger


@in_shops()
async def test_an_unreadable_ledger_is_told_before_anything_is_bought(ours: Shop, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("this is no database, and long enough to be taken for one" * 100)
    with pytest.raises(StoreError):
        await ours.buy()
    assert ours.bought == 0


@in_shops()
async def test_an_answer_that_cannot_be_stored_is_used_all_the_same_and_says_so(ours: Shop) -> None:
    unstorable = result("paid for", structured={1, 2, 3})

    async def buy() -> AgentResult:
        return unstorable

    answer = await ours.calls.answer("key", buy, agent="scripted", patience_seconds=1.0)
    assert not ours.ledger.is_claimed("key")
    assert answer.output == "paid for"
    assert "could not be stored in the ledger" in answer.notes[0]


@in_shops(seconds=200.0)
async def test_a_claim_that_cannot_be_renewed_does_not_end_the_call(ours: Shop, tmp_path: Path) -> None:
    buying = asyncio.create_task(ours.buy())
    await asyncio.sleep(20)
    ours.database.close()
    (tmp_path / "ledger.db").rename(tmp_path / "moved.db")
    (tmp_path / "ledger.db").mkdir()
    answer = await buying
    assert answer.output == "an answer"
    assert "could not be stored in the ledger" in answer.notes[0]
