from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from codeloupe.agents.calls.ledger import LedgerCalls
from codeloupe.errors import Crashed, StoreError, TimedOut
from codeloupe.model.agent import AgentResult
from codeloupe.model.ports import Ledger
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from tests.unit.agents.call_samples import result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing

_Outcome = TypeVar("_Outcome")


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


def in_shops(
    tmp_path: Path,
    run: Callable[[Shop, Shop], Awaitable[_Outcome]],
    *,
    seconds: float = 1.0,
    lease_seconds: float = 60.0,
) -> _Outcome:
    async def opened() -> _Outcome:
        ours, theirs = (Shop(tmp_path / "ledger.db", seconds=seconds, lease_seconds=lease_seconds) for _ in range(2))
        with ours.database, theirs.database:
            return await run(ours, theirs)

    return run_virtually(opened())


def test_an_answer_is_bought_once_and_then_taken_from_the_ledger(tmp_path: Path) -> None:
    async def run(ours: Shop, theirs: Shop) -> tuple[AgentResult, ...]:
        answers = await ours.buy(), await ours.buy(), await theirs.buy()
        assert (ours.bought, theirs.bought) == (1, 0)
        return answers

    answers = in_shops(tmp_path, run)
    assert {answer.output for answer in answers} == {"an answer"}
    assert [answer.from_ledger for answer in answers] == [False, True, True]


def test_the_answer_is_stored_before_it_is_returned_and_the_claim_is_over(tmp_path: Path) -> None:
    async def run(ours: Shop, theirs: Shop) -> None:
        await ours.buy()
        assert theirs.ledger.get("key") is not None
        assert not theirs.ledger.is_claimed("key")

    in_shops(tmp_path, run)


def test_a_purchase_takes_no_more_steps_than_it_needs_and_leaves_no_task_behind(tmp_path: Path) -> None:
    async def run(ours: Shop, _theirs: Shop) -> list[str]:
        ledger = Interrupted(ours.ledger, "none", print)
        ours.calls = LedgerCalls(ledger, timing=virtual_timing(), lease_seconds=60.0)
        await ours.buy()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return ledger.steps

    assert in_shops(tmp_path, run) == ["get", "claim", "second get", "put"]


def test_calls_for_the_same_in_one_run_buy_it_once(tmp_path: Path) -> None:
    async def run(ours: Shop, _theirs: Shop) -> list[AgentResult]:
        answers = await asyncio.gather(*(ours.buy() for _ in range(5)), ours.buy("other"))
        assert ours.bought == 2
        assert virtual_clock() == 1.0
        return answers

    answers = in_shops(tmp_path, run)
    assert [answer.from_ledger for answer in answers] == [False, True, True, True, True, False]


def test_two_processes_buy_it_once_and_the_second_waits_for_the_first(tmp_path: Path) -> None:
    async def run(ours: Shop, theirs: Shop) -> tuple[AgentResult, AgentResult]:
        first = asyncio.create_task(ours.buy())
        await asyncio.sleep(0.2)
        second = await theirs.buy()
        assert (ours.bought, theirs.bought) == (1, 0)
        assert virtual_clock() < 30 + 2.5
        return await first, second

    first, second = in_shops(tmp_path, run, seconds=30.0)
    assert (first.from_ledger, second.from_ledger) == (False, True)


def test_a_failure_is_not_stored_and_the_next_one_buys(tmp_path: Path) -> None:
    async def run(ours: Shop, theirs: Shop) -> None:
        ours.failures.append(Crashed("it crashed", agent="scripted"))
        with pytest.raises(Crashed):
            await ours.buy()
        assert theirs.ledger.get("key") is None
        assert not theirs.ledger.is_claimed("key")
        await theirs.buy()
        assert theirs.bought == 1

    in_shops(tmp_path, run)


def test_of_two_calls_in_one_run_the_second_buys_when_the_first_failed(tmp_path: Path) -> None:
    async def run(ours: Shop, _theirs: Shop) -> list[object]:
        ours.failures.append(Crashed("it crashed", agent="scripted"))
        ended: list[object] = list(await asyncio.gather(ours.buy(), ours.buy(), return_exceptions=True))
        assert ours.bought == 2
        return ended

    first, second = in_shops(tmp_path, run)
    assert isinstance(first, Crashed)
    assert isinstance(second, AgentResult)


class TestClaims:
    def test_a_claim_is_renewed_while_the_call_runs(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> None:
            buying = asyncio.create_task(ours.buy())
            for _ in range(20):
                await asyncio.sleep(7)
                assert theirs.ledger.is_claimed("key")
            await buying
            await asyncio.sleep(7)
            assert not theirs.ledger.is_claimed("key")

        in_shops(tmp_path, run, seconds=145.0, lease_seconds=10.0)

    def test_a_claim_that_was_left_is_taken_over_when_its_lease_ends(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> float:
            theirs.ledger.claim("key", lease_seconds=60.0)
            await ours.buy()
            assert ours.bought == 1
            return virtual_clock()

        assert 61 <= in_shops(tmp_path, run) <= 64

    def test_waiting_for_another_process_has_an_end(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> TimedOut:
            theirs.ledger.claim("key", lease_seconds=10_000.0)
            with pytest.raises(TimedOut) as caught:
                await ours.buy(patience_seconds=300)
            assert 300 <= virtual_clock() <= 303
            assert theirs.ledger.is_claimed("key")
            return caught.value

        error = in_shops(tmp_path, run)
        assert "somebody else is asking scripted the same, and did not end within 5 minutes" in error.message
        assert error.hint

    @pytest.mark.parametrize("step", ["get", "claim", "second get", "put"])
    def test_a_cancellation_in_the_middle_of_a_step_gives_the_claim_back(self, tmp_path: Path, step: str) -> None:
        async def run(ours: Shop, theirs: Shop) -> bool:
            loop = asyncio.get_running_loop()

            def cancel_twice() -> None:
                buying.cancel()
                loop.call_later(0, buying.cancel)

            ours.calls = LedgerCalls(
                Interrupted(ours.ledger, step, lambda: loop.call_soon_threadsafe(cancel_twice)),
                timing=virtual_timing(),
                lease_seconds=60.0,
            )
            buying = asyncio.create_task(ours.buy())
            with pytest.raises(asyncio.CancelledError):
                await buying
            assert not theirs.ledger.is_claimed("key")
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return theirs.ledger.get("key") is not None

        # What was paid for is kept, even when nobody wants it any more.
        assert in_shops(tmp_path, run) == (step == "put")

    def test_a_cancellation_during_the_call_gives_the_claim_back_and_stores_nothing(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> None:
            buying = asyncio.create_task(ours.buy())
            await asyncio.sleep(100)
            assert theirs.ledger.is_claimed("key")
            buying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await buying
            assert not theirs.ledger.is_claimed("key")
            assert theirs.ledger.get("key") is None
            assert asyncio.all_tasks() == {asyncio.current_task()}

        in_shops(tmp_path, run, seconds=500.0)

    def test_a_cancelled_waiter_does_not_end_the_claim_of_another_run_with_the_same_ledger(
        self, tmp_path: Path
    ) -> None:
        async def run(ours: Shop, theirs: Shop) -> None:
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

        in_shops(tmp_path, run, seconds=50.0)

    def test_a_cancelled_waiter_does_not_end_the_claim_of_another(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> None:
            theirs.ledger.claim("key", lease_seconds=500.0)
            buying = asyncio.create_task(ours.buy())
            await asyncio.sleep(20)
            buying.cancel()
            await asyncio.gather(buying, return_exceptions=True)
            assert ours.ledger.is_claimed("key")

        in_shops(tmp_path, run)


class TestFresh:
    def test_it_is_bought_again_and_replaces_what_was_stored(self, tmp_path: Path) -> None:
        async def run(ours: Shop, theirs: Shop) -> AgentResult:
            theirs.ledger.put("key", result("an old answer"))
            answer = await ours.buy(fresh=True)
            kept = theirs.ledger.get("key")
            assert kept is not None
            assert kept.output == "an answer"
            return answer

        assert not in_shops(tmp_path, run).from_ledger


class TestTroubleWithTheStore:
    def test_an_unreadable_ledger_is_told_before_anything_is_bought(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.db").write_text("this is no database, and long enough to be taken for one" * 100)

        async def run(ours: Shop, _theirs: Shop) -> None:
            with pytest.raises(StoreError):
                await ours.buy()
            assert ours.bought == 0

        in_shops(tmp_path, run)

    def test_an_answer_that_cannot_be_stored_is_used_all_the_same_and_says_so(self, tmp_path: Path) -> None:
        async def run(ours: Shop, _theirs: Shop) -> AgentResult:
            unstorable = result("paid for", structured={1, 2, 3})

            async def buy() -> AgentResult:
                return unstorable

            answer = await ours.calls.answer("key", buy, agent="scripted", patience_seconds=1.0)
            assert not ours.ledger.is_claimed("key")
            return answer

        answer = in_shops(tmp_path, run)
        assert answer.output == "paid for"
        assert "could not be stored in the ledger" in answer.notes[0]

    def test_a_claim_that_cannot_be_renewed_does_not_end_the_call(self, tmp_path: Path) -> None:
        async def run(ours: Shop, _theirs: Shop) -> AgentResult:
            buying = asyncio.create_task(ours.buy())
            await asyncio.sleep(20)
            ours.database.close()
            (tmp_path / "ledger.db").rename(tmp_path / "moved.db")
            (tmp_path / "ledger.db").mkdir()
            return await buying

        answer = in_shops(tmp_path, run, seconds=200.0)
        assert answer.output == "an answer"
        assert "could not be stored in the ledger" in answer.notes[0]
