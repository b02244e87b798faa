"""Many calls at once, from one to a hundred: the time that they take against that of calls that cost nothing else."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.table import BenchRow
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.calls import review_key
from codeloupe.model.agent import AgentEvent, AgentRequest
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.testing import Delay, ScriptedAgent, Text

_AT_A_TIME = (1, 10, 30, 100)
_ROUNDS = 8
_CALL_SECONDS = 1.0
_LIMIT = 1.15


def rows() -> Iterator[BenchRow]:
    """The same number of rounds at each width, so that the ideal is always the same."""
    ideal = _ROUNDS * _CALL_SECONDS
    for at_a_time in _AT_A_TIME:
        used, started = time.process_time(), time.monotonic()
        asyncio.run(_call_all(at_a_time))
        seconds, cpu = time.monotonic() - started, time.process_time() - used
        calls = at_a_time * _ROUNDS
        detail = (
            f"{seconds:.2f} s / {ideal:g} s, {calls / seconds:.1f} calls a second, {cpu / calls * 1000:.1f} ms each"
        )
        name = f"{calls} calls of {_CALL_SECONDS:g} s, {at_a_time} at a time / ideal"
        yield BenchRow(name, detail, seconds / ideal, _LIMIT)


async def _call_all(at_a_time: int) -> None:
    agent = ScriptedAgent([Delay(_CALL_SECONDS, Text("done"))])
    with tempfile.TemporaryDirectory() as directory, SqliteDatabase(Path(directory) / "ledger.sqlite3") as database:
        caller = AgentCaller(
            CallerOptions(concurrency=at_a_time),
            ledger=DatabaseLedger(database),
            key_of=review_key,
        )
        work = Path(directory)
        requests = [
            AgentRequest(prompt=f"Question {number}", working_dir=work) for number in range(at_a_time * _ROUNDS)
        ]
        await asyncio.gather(*(caller.call(request, agent=agent, emit=_ignore) for request in requests))
    if agent.max_seen != at_a_time:
        raise RuntimeError(f"{agent.max_seen} calls were under way at once instead of {at_a_time}")


def _ignore(_event: AgentEvent) -> None:
    """Take an event and do nothing with it."""
