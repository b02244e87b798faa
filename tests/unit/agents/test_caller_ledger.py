"""A call that was paid for is not bought again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.errors import Crashed, OutputInvalid
from codeloupe.model.agent import AgentEvent, AgentFinished, AgentRequest, PermissionMode
from codeloupe.model.ports import Agent
from codeloupe.store.database import Database
from codeloupe.store.ledger import Asked, SqliteLedger, content_key, is_repeatable
from codeloupe.testing.agent import ScriptedAgent
from codeloupe.testing.replies import Delay, Hang, Json, Text
from tests.unit.agents.call_samples import made_up_token, overloaded, request, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing

SCHEMA = {"type": "object", "required": ["line"]}


def key_of(asked: AgentRequest, agent: Agent) -> str | None:
    if not is_repeatable(asked):
        return None
    return content_key(asked, Asked(agent=agent.name, model=asked.model, service=None, trust="trusted"))


class Run:
    """One run of the program, with a ledger on a shared file."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.database = Database(path)
        self.ledger = SqliteLedger(self.database, clock=asyncio.get_running_loop().time)
        self.budget = RunBudget(clock=virtual_clock)
        self.events: list[AgentEvent] = []
        self.caller = AgentCaller(
            CallerOptions(**options), budget=self.budget, ledger=self.ledger, key_of=key_of, timing=virtual_timing()
        )

    async def ask(self, agent: Agent | list[Agent], asked: AgentRequest | None = None) -> Any:
        return await self.caller.call(asked or request(), agent=agent, emit=self.events.append)

    def is_claimed(self, asked: AgentRequest | None = None) -> bool:
        key = key_of(asked or request(), ScriptedAgent())
        return key is not None and self.ledger.is_claimed(key)


def in_runs(**options: Any) -> Callable[[Any], Callable[[Path], None]]:
    """Run a test in virtual time, with two runs on one ledger, and its folder where the test wants it."""

    def decorate(test: Any) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def opened() -> None:
                first, second = (Run(tmp_path / "ledger.db", **options) for _ in range(2))
                with first.database, second.database:
                    known = {"first": first, "second": second, "tmp_path": tmp_path}
                    await test(**{name: known[name] for name in inspect.signature(test).parameters})

            run_virtually(opened())

        run.__name__ = test.__name__
        return run

    return decorate


@in_runs()
async def test_the_second_run_takes_what_the_first_bought(first: Run, second: Run) -> None:
    agent = ScriptedAgent([Text("hello")], cost_usd=0.2)
    bought, kept = await first.ask(agent), await second.ask(agent)
    assert (bought.output, bought.from_ledger) == ("hello", False)
    assert (kept.output, kept.from_ledger) == ("hello", True)
    assert (kept.total_cost_usd, kept.original_cost_usd) == (0.0, 0.2)
    assert len(agent.requests) == 1
    assert second.budget.spent.requests == 0
    ended = second.events[-1]
    assert isinstance(ended, AgentFinished)
    assert (ended.success, ended.from_ledger, ended.cost_usd) == (True, True, 0.0)


@in_runs(fresh=True)
async def test_fresh_buys_again_and_keeps_the_new_answer(first: Run, second: Run) -> None:
    agent = ScriptedAgent([Text("old"), Text("new")])
    assert (await first.ask(agent)).output == "old"
    assert (await second.ask(agent)).output == "new"
    second.caller = AgentCaller(ledger=second.ledger, key_of=key_of, timing=virtual_timing())
    kept = await second.ask(agent)
    assert (kept.output, kept.from_ledger) == ("new", True)


@in_runs(lease_seconds=30.0)
async def test_the_same_call_of_two_runs_at_a_time_is_bought_once(first: Run, second: Run) -> None:
    agent = ScriptedAgent([Delay(500.0, Text("hello"))])
    calls = [run.ask(agent) for run in (first, first, second, second)]
    answers = list(await asyncio.gather(*calls))
    assert len(agent.requests) == 1
    assert [answer.output for answer in answers] == ["hello"] * 4
    assert sum(answer.from_ledger for answer in answers) == 3


@in_runs()
async def test_a_failed_call_is_not_stored_and_its_claim_is_given_back(first: Run, second: Run) -> None:
    asked = request(output_schema=SCHEMA)
    cases: list[tuple[Any, type[Exception]]] = [
        (Crashed("it crashed", agent="scripted"), Crashed),
        (Json({"no": "line"}), OutputInvalid),
    ]
    for step, kind in cases:
        with pytest.raises(kind):
            await first.ask(ScriptedAgent([step]), asked)
        assert not second.is_claimed(asked)


@in_runs()
async def test_what_is_stored_holds_no_secret_and_the_key_is_that_of_what_was_sent(
    first: Run, second: Run, tmp_path: Path
) -> None:
    token, other = made_up_token("a"), made_up_token("b")
    agent = ScriptedAgent([result(f"it is {token}", raw_output=f"raw {token}")])
    await first.ask(agent, request(f"look at {token}"))
    kept = await second.ask(agent, request(f"look at {other}"))
    assert kept.from_ledger
    assert kept.output == "it is [redacted]"
    assert kept.notes == ("secrets were masked in the prompt before it was sent",)
    assert not any(token.encode() in file.read_bytes() for file in tmp_path.iterdir())


@in_runs()
async def test_a_call_that_must_be_made_each_time_is_neither_stored_nor_claimed(first: Run, second: Run) -> None:
    for asked in (request(permission_mode=PermissionMode.ACCEPT_EDITS), request(resume_session="s1")):
        agent = ScriptedAgent([Text("hello")])
        await first.ask(agent, asked)
        await second.ask(agent, asked)
        assert len(agent.requests) == 2


@pytest.mark.requirement("R14")
@in_runs(lease_seconds=10.0)
async def test_a_cancellation_gives_the_claim_back(first: Run, second: Run) -> None:
    for moment in (0.5, 3.0, 100.0):
        asked = request(f"wait for {moment}")
        agent = ScriptedAgent([Delay(1.0, overloaded()), Hang()])
        task = asyncio.create_task(first.ask(agent, asked))
        await asyncio.sleep(moment)
        assert second.is_claimed(asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not second.is_claimed(asked)
        assert agent.running == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await second.ask(ScriptedAgent([Text("hello")]), asked)).output == "hello"


@in_runs()
async def test_a_chain_looks_for_each_agent_in_the_ledger(first: Run, second: Run) -> None:
    crash = Crashed("never asked", agent="codex")
    missing = ScriptedAgent(name="agent_sdk")
    answering, silent = ScriptedAgent([Text("hello")], name="codex"), ScriptedAgent([crash], name="codex")
    await first.ask([answering])
    kept = await second.ask([silent, missing])
    assert (kept.output, kept.from_ledger) == ("hello", True)
    assert silent.requests == missing.requests == ()
