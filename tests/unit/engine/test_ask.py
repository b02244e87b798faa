from __future__ import annotations

import asyncio

import pytest

from codeloupe.engine.ask import Circuit, CircuitOpen
from codeloupe.errors import BudgetExhausted, CodeloupeError, NotLoggedIn, Overloaded, StoreError
from codeloupe.model.agent import AgentEvent, AgentStarted, AttemptFailed, AttemptStarted
from tests.rows import each

STARTED = AgentStarted("scripted", None)
ATTEMPT = AttemptStarted("scripted", 1, 3)
WAITING = AttemptFailed("scripted", 1, "Overloaded", "busy", 9.0)
LOGGED_OUT = NotLoggedIn("no key", agent="scripted", hint="log in")
SPENT = BudgetExhausted("spent", agent="scripted")


def is_open(circuit: Circuit) -> bool:
    try:
        circuit.check()
    except CircuitOpen:
        return True
    return False


@each("error", [LOGGED_OUT, StoreError("no database"), SPENT])
def test_a_failure_that_lasts_opens_it_at_once(error: CodeloupeError) -> None:
    circuit = Circuit()
    circuit.note_answer()
    circuit.note_failure(error)
    with pytest.raises(CircuitOpen, match=str(error)):
        circuit.check()


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
    ("events", "error", "ended"),
    [
        ((), LOGGED_OUT, "answered"),
        ((STARTED,), LOGGED_OUT, "let go"),
        ((STARTED,), SPENT, "answered"),  # the budget refuses what waits by itself
        ((STARTED, ATTEMPT), LOGGED_OUT, "answered"),
        ((STARTED, ATTEMPT, WAITING), LOGGED_OUT, "let go"),
    ],
)
def test_what_waits_is_let_go_and_what_is_being_bought_goes_on(
    events: tuple[AgentEvent, ...], error: CodeloupeError, ended: str
) -> None:
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
        circuit.note_failure(error)
        end.set()
        return await running

    assert asyncio.run(scene()) == ended
