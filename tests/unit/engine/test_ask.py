from __future__ import annotations

import asyncio

import pytest

from codeloupe.engine.ask import Circuit, CircuitOpen
from codeloupe.errors import BudgetExhausted, CodeloupeError, InvalidRequest, NotLoggedIn, Overloaded, StoreError
from codeloupe.model.agent import AgentEvent, AgentStarted, AttemptFailed, AttemptStarted
from tests.rows import each

STARTED = AgentStarted("scripted", None)
ATTEMPT = AttemptStarted("scripted", 1, 3)
WAITING = AttemptFailed("scripted", 1, "Overloaded", "busy", 9.0)
LOGGED_OUT = NotLoggedIn("no key", agent="scripted", hint="log in")


def is_open(circuit: Circuit) -> bool:
    try:
        circuit.check()
    except CircuitOpen:
        return True
    return False


@each("error", [LOGGED_OUT, StoreError("no database"), BudgetExhausted("spent", agent="scripted")])
def test_a_failure_that_lasts_opens_it_at_once(error: CodeloupeError) -> None:
    circuit = Circuit()
    circuit.note_answer()
    circuit.note_failure(error)
    with pytest.raises(CircuitOpen, match=str(error)):
        circuit.check()


def test_an_invalid_request_may_be_the_fault_of_its_unit_but_two_before_any_answer_are_not() -> None:
    circuit, answered = Circuit(), Circuit()
    answered.note_answer()
    for number in range(2):
        assert (is_open(circuit), number) == (False, number)
        for one in (circuit, answered):
            one.note_failure(InvalidRequest("no such model", agent="scripted"))
    assert (is_open(circuit), is_open(answered)) == (True, False)


@pytest.mark.defect("V3")
def test_three_failures_in_a_row_open_it_and_an_answer_between_does_not_let_it() -> None:
    circuit, lucky = Circuit(), Circuit()
    for number in range(3):
        assert not is_open(circuit)
        for one in (circuit, lucky):
            one.note_failure(Overloaded("busy", agent="scripted"))
        if number == 1:
            lucky.note_answer()
    with pytest.raises(CircuitOpen, match="3 calls in a row failed, the last one with: overloaded: busy"):
        circuit.check()
    assert not is_open(lucky)


@each(
    ("events", "ended"),
    [
        ((), "answered"),
        ((STARTED,), "let go"),
        ((STARTED, ATTEMPT), "answered"),
        ((STARTED, ATTEMPT, WAITING), "let go"),
    ],
)
def test_what_waits_is_let_go_and_what_is_being_bought_goes_on(events: tuple[AgentEvent, ...], ended: str) -> None:
    async def call(circuit: Circuit, *, begun: asyncio.Event, end: asyncio.Event) -> str:
        try:
            async with circuit.call() as note:
                for event in events:
                    note(event)
                begun.set()
                await end.wait()
        except CircuitOpen:
            return "let go"
        return "answered"

    async def scene() -> str:
        circuit, begun, end = Circuit(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(call(circuit, begun=begun, end=end))
        await begun.wait()
        circuit.note_failure(LOGGED_OUT)
        end.set()
        return await running

    assert asyncio.run(scene()) == ended


def test_what_waits_when_the_budget_ends_is_left_to_the_budget() -> None:
    async def scene() -> str:
        circuit = Circuit()
        async with circuit.call() as note:
            note(STARTED)
            circuit.note_failure(BudgetExhausted("spent", agent="scripted"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return "went on"

    assert asyncio.run(scene()) == "went on"


def test_a_cancellation_from_outside_stays_one_even_when_the_circuit_opens_at_the_same_moment() -> None:
    async def call(circuit: Circuit, begun: asyncio.Event) -> None:
        async with circuit.call() as note:
            note(STARTED)
            begun.set()
            await asyncio.Event().wait()

    async def scene() -> None:
        circuit = Circuit()
        begun = asyncio.Event()
        running = asyncio.create_task(call(circuit, begun))
        await begun.wait()
        running.cancel()
        circuit.note_failure(LOGGED_OUT)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scene())


def test_a_timeout_of_the_call_itself_is_not_taken_for_being_let_go() -> None:
    async def scene() -> None:
        async with Circuit().call():
            raise TimeoutError("from inside")

    with pytest.raises(TimeoutError, match="from inside"):
        asyncio.run(scene())
