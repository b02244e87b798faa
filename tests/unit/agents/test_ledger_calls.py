"""A call that was paid for is not bought again, whoever else wants the same, and whatever happens meanwhile."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.ledger import LedgerCalls
from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import Crashed, NotInstalled, OutputInvalid, StoreError, TimedOut
from codeloupe.model.agent import AgentEvent, AgentFinished, AgentRequest, AgentResult, PermissionMode
from codeloupe.model.ports import Agent
from codeloupe.store.interface import Ledger
from codeloupe.store.ledger import Asked, DatabaseLedger, content_key, is_repeatable
from codeloupe.store.spending import SpendingCounter
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase
from codeloupe.testing import AgentStep, Delay, Hang, Json, ScriptedAgent, Text
from tests.rows import each
from tests.unit.agents.samples import made_up_token, overloaded, request, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing

SCHEMA = {"type": "object", "required": ["line"]}


def key_of(asked: AgentRequest, agent: Agent) -> str | None:
    if not is_repeatable(asked):
        return None
    return content_key(asked, Asked(agent=agent.name, model=asked.model, service=None, trust="trusted"))


class Run:
    """One run of the program, with a ledger on a shared file; what it buys by `buy` takes a while."""

    def __init__(self, path: Path, *, seconds: float = 1.0, lease_seconds: float = 60.0, fresh: bool = False) -> None:
        self.database = SqliteDatabase(path)
        self.ledger = DatabaseLedger(self.database, clock=asyncio.get_running_loop().time)
        self.calls = LedgerCalls(self.ledger, lease_seconds=lease_seconds)
        self.seconds = seconds
        self.bought = 0
        self.failures: list[Exception] = []
        self.budget = RunBudget(clock=virtual_clock)
        self.events: list[AgentEvent] = []
        options = CallerOptions(fresh=fresh, lease_seconds=lease_seconds)
        self.caller = AgentCaller(
            options, budget=self.budget, ledger=self.ledger, key_of=key_of, timing=virtual_timing()
        )

    async def answer(self) -> AgentResult:
        self.bought += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            raise self.failures.pop()
        return result("an answer")

    async def buy(self, key: str = "key", *, patience_seconds: float = 1000.0) -> AgentResult:
        return await self.calls.answer(
            key, self.answer, is_answered=lambda: False, agent="scripted", patience_seconds=patience_seconds
        )

    async def ask(self, agent: Agent | list[Agent], asked: AgentRequest | None = None) -> AgentResult:
        """The same by a whole call."""
        return await self.caller.call(asked or request(), agent=agent, emit=self.events.append)

    def is_claimed(self, asked: AgentRequest | str = "key") -> bool:
        key = asked if isinstance(asked, str) else key_of(asked, ScriptedAgent())
        return key is not None and self.ledger.is_claimed(key)


class Interrupted:
    """A ledger in which something happens while one of its steps is under way."""

    def __init__(self, ledger: Ledger, step: str = "", interrupt: Callable[[], object] = print) -> None:
        self._ledger = ledger
        self._step = step
        self._interrupt = interrupt
        self.steps: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            self.steps.append("second get" if name == "get" and "get" in self.steps else name)
            if self.steps[-1] == self._step:
                self._interrupt()
                time.sleep(0.02)
            return getattr(self._ledger, name)(*given, **named)

        return run


def interrupted(run: Run, *more: Any) -> Any:
    """Let a run go through a ledger that is interrupted."""
    ledger: Any = Interrupted(run.ledger, *more)
    run.calls = LedgerCalls(ledger, lease_seconds=60.0)
    return ledger


def in_runs(**options: Any) -> Callable[[Any], Callable[[Path], None]]:
    """Run a test in virtual time, with two runs on one ledger, and its folder where the test wants it."""

    def decorate(test: Any) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def opened() -> None:
                ours, theirs = (Run(tmp_path / "ledger.db", **options) for _ in range(2))
                with ours.database, theirs.database:
                    known = {"ours": ours, "theirs": theirs, "tmp_path": tmp_path}
                    await test(**{name: known[name] for name in inspect.signature(test).parameters})

            run_virtually(opened())

        run.__name__ = test.__name__
        return run

    return decorate


@in_runs()
async def test_the_second_run_takes_what_the_first_bought(ours: Run, theirs: Run) -> None:
    agent = ScriptedAgent([Text("hello")], cost_usd=0.2)
    bought, kept = await ours.ask(agent), await theirs.ask(agent)
    assert (bought.output, bought.from_ledger) == ("hello", False)
    assert (kept.output, kept.from_ledger) == ("hello", True)
    assert (kept.total_cost_usd, kept.original_cost_usd) == (0.0, 0.2)
    assert (len(agent.requests), theirs.budget.spent.requests) == (1, 0)
    ended = theirs.events[-1]
    assert isinstance(ended, AgentFinished)
    assert (ended.success, ended.from_ledger, ended.cost_usd) == (True, True, 0.0)


@in_runs(fresh=True)
async def test_fresh_buys_again_and_keeps_the_new_answer(ours: Run, theirs: Run) -> None:
    agent = ScriptedAgent([Text("old"), Text("new")])
    assert [(await run.ask(agent)).output for run in (ours, theirs)] == ["old", "new"]
    caller = AgentCaller(ledger=theirs.ledger, key_of=key_of, timing=virtual_timing())
    kept = await caller.call(request(), agent=agent, emit=print)
    assert (kept.output, kept.from_ledger) == ("new", True)


@in_runs()
async def test_a_purchase_takes_no_more_steps_than_it_needs_and_calls_for_the_same_buy_it_once(
    ours: Run, theirs: Run
) -> None:
    ledger = interrupted(ours)
    await ours.buy("first")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ledger.steps == ["get", "claim", "second get", "put"]
    assert theirs.ledger.get("first") is not None
    assert not theirs.is_claimed("first")
    answers = await asyncio.gather(*(ours.buy() for _ in range(5)), ours.buy("other"))
    assert (ours.bought, virtual_clock()) == (3, 2.0)
    assert [answer.from_ledger for answer in answers] == [False, True, True, True, True, False]


@in_runs(seconds=145.0, lease_seconds=10.0)
async def test_two_processes_buy_it_once_and_the_claim_is_renewed_meanwhile(ours: Run, theirs: Run) -> None:
    first = asyncio.create_task(ours.buy())
    await asyncio.sleep(0.2)
    second = asyncio.create_task(theirs.buy())
    for _ in range(20):
        await asyncio.sleep(7)
        assert theirs.is_claimed()
    assert ((await first).from_ledger, (await second).from_ledger) == (False, True)
    assert (ours.bought, theirs.bought) == (1, 0)
    assert virtual_clock() < 145 + 2.5
    assert not theirs.is_claimed()


@in_runs()
async def test_a_failure_is_not_stored_and_the_next_one_buys(ours: Run, theirs: Run) -> None:
    ours.failures.append(Crashed("it crashed", agent="scripted"))
    first, second = await asyncio.gather(ours.buy(), ours.buy(), return_exceptions=True)
    assert isinstance(first, Crashed)
    assert isinstance(second, AgentResult)
    asked = request(output_schema=SCHEMA)
    for step, kind in ((Crashed("it crashed", agent="scripted"), Crashed), (Json({"no": "line"}), OutputInvalid)):
        with pytest.raises(kind):
            await ours.ask(ScriptedAgent([step]), asked)
        assert not theirs.is_claimed(asked)
    assert (await theirs.ask(ScriptedAgent([Json({"line": 1})]), asked)).structured == {"line": 1}


@pytest.mark.defect("M1")
@in_runs()
async def test_every_answer_that_the_caller_accepts_is_stored(ours: Run, theirs: Run) -> None:
    cut = OutputInvalid("it was cut off", agent="scripted", output="[{", other_answers=("x",), cost_usd=0.2)
    steps: list[AgentStep] = [Json({"line": 1, "verdict": "x"}), Text('Here: {"line": 1}'), cut]
    for number, step in enumerate(steps):
        asked = request(f"Question {number}", output_schema=SCHEMA, accept_any_output=True)
        bought = await ours.ask(ScriptedAgent([step]), asked)
        kept = await theirs.ask(ScriptedAgent(then="error"), asked)
        assert (bought.stored, bought.from_ledger) == (True, False)
        assert (kept.stored, kept.from_ledger) == (True, True)
        assert (kept.output, kept.structured) == (bought.output, bought.structured)
        assert kept.inexact == bought.inexact == ("it was cut off" if step is cut else "")
        assert kept.other_answers == bought.other_answers == (("x",) if step is cut else ())
        assert kept.original_cost_usd == bought.total_cost_usd


@in_runs()
async def test_an_unchecked_answer_is_not_given_to_a_caller_that_wants_a_checked_one(ours: Run, theirs: Run) -> None:
    asked = request(output_schema=SCHEMA)
    await ours.ask(ScriptedAgent([Json({"no": "line"})]), replace(asked, accept_any_output=True))
    answer = await theirs.ask(ScriptedAgent([Json({"line": 1})]), asked)
    assert (answer.structured, answer.from_ledger) == ({"line": 1}, False)


@in_runs()
async def test_a_claim_that_was_left_is_taken_over_when_its_lease_ends_and_waiting_for_one_has_an_end(
    ours: Run, theirs: Run
) -> None:
    theirs.ledger.claim("key", lease_seconds=60.0)
    await ours.buy()
    assert ours.bought == 1
    assert 61 <= virtual_clock() <= 64
    began = virtual_clock()
    theirs.ledger.claim("other", lease_seconds=10_000.0)
    words = "another process is making the same call to scripted and did not finish within 5 minutes"
    with pytest.raises(TimedOut, match=words) as told:
        await ours.buy("other", patience_seconds=300)
    assert 300 <= virtual_clock() - began <= 303
    assert theirs.is_claimed("other")
    assert told.value.hint


@pytest.mark.parametrize("step", ["get", "claim", "second get", "put"])
def test_a_cancellation_in_the_middle_of_a_step_gives_the_claim_back(tmp_path: Path, step: str) -> None:
    @in_runs()
    async def run(ours: Run, theirs: Run) -> None:
        loop = asyncio.get_running_loop()

        def cancel_twice() -> None:
            buying.cancel()
            loop.call_later(0, buying.cancel)

        interrupted(ours, step, lambda: loop.call_soon_threadsafe(cancel_twice))
        buying = asyncio.create_task(ours.buy())
        with pytest.raises(asyncio.CancelledError):
            await buying
        assert not theirs.is_claimed()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        # What was paid for is kept, even when nobody wants it any more.
        assert (theirs.ledger.get("key") is not None) == (step == "put")

    run(tmp_path)


@pytest.mark.requirement("R14")
@in_runs(lease_seconds=10.0)
async def test_a_cancellation_during_the_call_gives_the_claim_back_and_stores_nothing(ours: Run, theirs: Run) -> None:
    for moment in (0.5, 3.0, 100.0):
        asked = request(f"wait for {moment}")
        agent = ScriptedAgent([Delay(1.0, overloaded()), Hang()])
        task = asyncio.create_task(ours.ask(agent, asked))
        await asyncio.sleep(moment)
        assert theirs.is_claimed(asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not theirs.is_claimed(asked)
        assert (agent.running, asyncio.all_tasks()) == (0, {asyncio.current_task()})
        assert not (await theirs.ask(ScriptedAgent([Text("hello")]), asked)).from_ledger


@in_runs(seconds=50.0)
async def test_a_cancelled_waiter_does_not_end_the_claim_of_another(ours: Run, theirs: Run) -> None:
    buying = asyncio.create_task(ours.buy())
    # One in another process, and one in another run with the same ledger.
    same = LedgerCalls(ours.ledger, lease_seconds=60.0)
    await asyncio.sleep(1)
    waiting = [
        asyncio.create_task(theirs.buy()),
        asyncio.create_task(
            same.answer("key", ours.answer, is_answered=lambda: False, agent="scripted", patience_seconds=1000.0)
        ),
    ]
    await asyncio.sleep(5)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert theirs.is_claimed()
    await buying
    assert (ours.bought, theirs.bought) == (1, 0)


@in_runs()
async def test_an_unreadable_ledger_is_an_error_before_anything_is_bought(ours: Run, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("this is no database, and long enough to be taken for one" * 100)
    with pytest.raises(StoreError):
        await ours.buy()
    assert ours.bought == 0


@in_runs(seconds=200.0)
async def test_an_answer_that_cannot_be_stored_or_claimed_on_is_used_all_the_same_and_says_so(
    ours: Run, tmp_path: Path
) -> None:
    async def buy() -> AgentResult:
        return result("paid for", structured={1, 2, 3})

    answer = await ours.calls.answer("other", buy, is_answered=lambda: True, agent="scripted", patience_seconds=1.0)
    assert not ours.is_claimed("other")
    assert (answer.output, answer.stored) == ("paid for", False)
    assert "could not be stored in the ledger" in answer.notes[0]
    buying = asyncio.create_task(ours.buy())
    await asyncio.sleep(20)
    ours.database.close()
    (tmp_path / "ledger.db").rename(tmp_path / "moved.db")
    (tmp_path / "ledger.db").mkdir()
    answer = await buying
    assert (answer.output, answer.stored) == ("an answer", False)
    assert "could not be stored in the ledger" in answer.notes[0]


@in_runs()
async def test_what_is_stored_holds_no_secret_and_the_key_is_that_of_what_was_sent(
    ours: Run, theirs: Run, tmp_path: Path
) -> None:
    token, other = made_up_token("a"), made_up_token("b")
    agent = ScriptedAgent([result(f"it is {token}", raw_output=f"raw {token}")])
    await ours.ask(agent, request(f"look at {token}"))
    kept = await theirs.ask(agent, request(f"look at {other}"))
    assert (kept.from_ledger, kept.output) == (True, "it is [redacted]")
    assert kept.notes == ("secrets were masked in the prompt before it was sent",)
    assert not any(token.encode() in file.read_bytes() for file in tmp_path.iterdir())


@in_runs()
async def test_a_call_that_must_be_made_each_time_is_neither_stored_nor_claimed(ours: Run, theirs: Run) -> None:
    for asked in (request(permission_mode=PermissionMode.ACCEPT_EDITS), request(resume_session="s1")):
        agent = ScriptedAgent([Text("hello")])
        await ours.ask(agent, asked)
        await theirs.ask(agent, asked)
        assert len(agent.requests) == 2


@in_runs()
async def test_a_chain_looks_for_each_agent_in_the_ledger_under_what_that_one_was_asked(ours: Run, theirs: Run) -> None:
    missing = ScriptedAgent([NotInstalled("not here", agent="agent_sdk")], name="agent_sdk")
    silent = ScriptedAgent([Crashed("never asked", agent="codex")], name="codex")
    # The model was meant for the first agent alone.
    bought = await ours.ask([missing, ScriptedAgent([Text("hello")], name="codex")], request(model="opus"))
    kept = await theirs.ask([silent, missing])
    assert (kept.output, kept.from_ledger, kept.notes) == ("hello", True, ())
    assert bought.notes != ()
    assert silent.requests == ()


@pytest.mark.program
def test_a_fresh_call_that_is_continued_does_not_pay_for_its_own_answer_again(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("old"), Text("new"), Text("never")])

    async def ask(**options: Any) -> str:
        with AgentCalls([agent], state_directory=tmp_path) as calls:
            caller = calls.caller(Settings(), key_of=lambda _request, _agent: "key", **options)
            request = AgentRequest(prompt="Say hello.", working_dir=tmp_path, tools=())
            return (await caller.call(request, agent=agent, emit=lambda _event: None)).output

    assert asyncio.run(ask()) == "old"
    with SqliteDatabase(tmp_path / DATABASE_NAME) as database:
        asked_at = database.clock()
    # The answer of before the request does not count; the one that the first attempt has stored does.
    assert [asyncio.run(ask(fresh=True, fresh_since=asked_at)) for _ in range(2)] == ["new", "new"]
    assert asyncio.run(ask(fresh=True)) == "never"


@pytest.mark.program
@each("fresh", [False, True])
def test_nothing_is_paid_for_if_no_answer_can_be_stored(tmp_path: Path, fresh: bool) -> None:
    agent = ScriptedAgent([Text("paid for")])
    (tmp_path / "file").touch()
    with AgentCalls([agent], state_directory=tmp_path / "file") as calls:
        caller = calls.caller(Settings(), key_of=key_of, watch_files=None, fresh=fresh)
        with pytest.raises(StoreError, match="cannot create the database"):
            asyncio.run(caller.call(request(), agent=agent, emit=print))
    assert agent.requests == ()


@pytest.mark.program
def test_an_answer_that_has_arrived_is_stored_although_the_call_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = ScriptedAgent([Text("paid for")])
    may_end = threading.Event()
    end = SpendingCounter.end

    async def ask(calls: AgentCalls) -> AgentResult:
        caller = calls.caller(Settings(), key_of=key_of, watch_files=None)
        return await caller.call(request(), agent=agent, emit=print)

    async def cancelled(calls: AgentCalls) -> None:
        loop = asyncio.get_running_loop()
        is_ending = asyncio.Event()

        def slow_end(counter: SpendingCounter, *given: Any) -> None:
            loop.call_soon_threadsafe(is_ending.set)
            may_end.wait()
            end(counter, *given)

        monkeypatch.setattr(SpendingCounter, "end", slow_end)
        asking = asyncio.create_task(ask(calls))
        # The answer has arrived, and its cost is recorded before it is stored.
        await is_ending.wait()
        asking.cancel("stop")
        loop.call_later(0.1, may_end.set)
        with pytest.raises(asyncio.CancelledError, match="stop"):
            await asking

    with AgentCalls([agent], state_directory=tmp_path) as calls:
        asyncio.run(cancelled(calls))
    monkeypatch.setattr(SpendingCounter, "end", end)
    with AgentCalls([agent], state_directory=tmp_path) as calls:
        again = asyncio.run(ask(calls))
    assert (again.output, again.from_ledger, len(agent.requests)) == ("paid for", True, 1)
