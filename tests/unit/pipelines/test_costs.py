"""What all calls of a stage or gate spent is what the run records, whatever ended them."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls import retry
from codeloupe.agents.calls.budget import Spent
from codeloupe.agents.calls.schemas import check_output
from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import (
    AgentError,
    BudgetExhausted,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    OutputInvalid,
    RateLimited,
    StoreError,
)
from codeloupe.model.agent import AgentRequest, AgentResult, Usage
from codeloupe.model.pipeline import RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store
from codeloupe.store.spool import SpooledLedger
from codeloupe.testing import Hang, Json, ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, options, resume, write_pipeline, writing
from tests.rows import each

pytestmark = pytest.mark.program

PRICE = 0.5
INEXACT = Text("I am not sure about this change.")


class Reviewed:
    """A run of one stage with a review gate, whose reviewer gives these answers."""

    def __init__(self, folder: Path, *answers: AgentStep, **gate: Any) -> None:
        self.state = folder / "state"
        self.left = list(answers)
        self.unanswered: list[int] = []
        self.has_hung = asyncio.Event()
        self.agent = ScriptedAgent([self._step], cost_usd=PRICE)
        stage = {"name": "write", "gate": {"kind": "review", **gate}, "artifacts": {"patterns": ["*.py"]}}
        self.pipeline = Pipeline.load(write_pipeline(folder / "p", stage))
        self.options = RunOptions(
            settings=Settings(verify=False),
            agent="scripted",
            state_directory=self.state,
            repo=folder,
            wait_for_approval=False,
        )

    def _step(self, request: AgentRequest) -> AgentStep:
        if "stage" in request.labels:
            return writing({"a.py": "x = 1\n"})(request)
        self.unanswered.append(self.record().stage("write").unanswered)
        answer = self.left.pop(0)
        if isinstance(answer, Hang):
            self.has_hung.set()
        return answer

    def record(self) -> RunRecord:
        return open_run_store(self.state).load("r")

    async def run(self) -> RunRecord:
        with AgentCalls([self.agent], state_directory=self.state) as calls:
            return await self.pipeline.run(options=self.options, run_id="r", calls=calls)

    def assert_counted(self, *, unknown: int) -> None:
        """Every request counts once: with its price, or with an unknown cost."""
        usage = self.record().usage
        known = len(self.agent.requests) - unknown
        assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (known + unknown, known * PRICE, unknown)


def test_the_cost_of_an_incomplete_review_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, INEXACT)
    stage = asyncio.run(reviewed.run()).stage("write")
    assert (stage.state, stage.attempts[0].critiques) == (S.AWAITING_APPROVAL, ())
    assert "is incomplete, so the gate did not pass" in stage.reason
    assert len(reviewed.agent.requests) == 3
    reviewed.assert_counted(unknown=0)


def test_the_cost_of_a_review_that_reaches_its_time_limit_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, Hang(), timeout=5)
    stage = asyncio.run(reviewed.run()).stage("write")
    assert "did not finish within 5 s" in stage.reason
    assert len(reviewed.agent.requests) == 3
    reviewed.assert_counted(unknown=1)


def test_the_cost_of_an_interrupted_review_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, Hang())

    async def interrupted() -> None:
        running = asyncio.create_task(reviewed.run())
        await reviewed.has_hung.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    assert reviewed.record().state is S.INTERRUPTED
    reviewed.assert_counted(unknown=1)
    # A process that is killed leaves the requests that it has sent in the record.
    assert reviewed.unanswered == [1, 2]


def test_the_cost_of_a_review_with_a_verdict_counts_once(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, Json({"findings": []}))
    record = asyncio.run(reviewed.run())
    assert (record.state, record.stage("write").lost) == (S.COMPLETED, Usage())
    reviewed.assert_counted(unknown=0)


def spent_by(folder: Path, cast: Cast, *agents: ScriptedAgent, **stage: Any) -> tuple[Ran, Spent]:
    """Run one stage with the agents, by default that of the cast; return the run and what its calls spent."""
    pipeline = Pipeline.load(write_pipeline(folder / "p", {"name": "write", **stage}))
    more: dict[str, Any] = {"agent": None, "agents": {}} if agents else {}
    with AgentCalls(agents, state_directory=folder / "state") as calls:
        given = options(cast, folder / "state", **more)
        record = asyncio.run(pipeline.run(options=given, run_id="r", calls=calls))
        return Ran(record, folder / "state"), calls.spent


def assert_same(ran: Ran, spent: Spent, *, requests: int, usd: float, unknown: int = 0) -> None:
    """The run and all calls counted the same."""
    usage = ran.record.usage
    assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (requests, usd, unknown)
    assert replace(usage, duration_seconds=0.0) == spent.usage


@each("cost_usd", [0.75, None])
def test_the_cost_of_an_agent_that_the_next_replaced_counts(tmp_path: Path, cost_usd: float | None) -> None:
    full = failing(RateLimited, retry_after_seconds=4000.0, cost_usd=cost_usd)
    first = ScriptedAgent([full], name="first")
    second = ScriptedAgent([Text("done")], name="second", cost_usd=PRICE)
    ran, spent = spent_by(tmp_path, Cast({}), first, second)
    assert ran.record.state is S.COMPLETED
    # A service that refused took no money.
    assert_same(ran, spent, requests=2, usd=PRICE + (cost_usd or 0.0))


@each("error", [Crashed, ConnectionFailed])
def test_the_cost_of_a_failed_try_before_a_good_one_counts(tmp_path: Path, error: type[AgentError]) -> None:
    cast = Cast({"write": [failing(error, cost_usd=0.25, retryable=True), Text("done")]}, cost_usd=PRICE)
    ran, spent = spent_by(tmp_path, cast)
    assert ran.record.state is S.COMPLETED
    assert_same(ran, spent, requests=2, usd=0.75)


def test_a_result_without_success_counts_with_its_cost(tmp_path: Path) -> None:
    failed = AgentResult(success=False, error="no", output="", agent="scripted", total_cost_usd=0.25)
    ran, spent = spent_by(tmp_path, Cast({"write": [failed]}), retries=0)
    assert ran.record.state is S.AWAITING_APPROVAL
    assert_same(ran, spent, requests=1, usd=0.25)


def test_an_agent_that_stopped_at_its_limit_counts_with_the_limit(tmp_path: Path) -> None:
    cast = Cast({"write": [failing(BudgetExhausted)]})
    ran, spent = spent_by(tmp_path, cast, budget=0.25)
    assert_same(ran, spent, requests=1, usd=0.25)


UNPRICED = AgentResult(success=True, output="looks fine", agent="scripted", total_cost_usd=None)


@each(
    ("answers", "usd", "unknown"),
    [
        ([INEXACT, INEXACT], 2 * PRICE, 0),
        ([INEXACT, critique("PASS", 100)], 2 * PRICE, 0),
        ([UNPRICED, failing(InvalidRequest, cost_usd=0.25)], 0.25, 1),
        ([OutputInvalid("odd", agent="scripted", output="?", cost_usd=0.25)], 0.5, 0),
        ([INEXACT, failing(RateLimited, retry_after_seconds=4000.0)], PRICE, 0),
    ],
)
def test_both_calls_of_a_critic_count_whatever_ended_them(
    tmp_path: Path, answers: list[AgentStep], usd: float, unknown: int
) -> None:
    cast = Cast({"write": [Text("done")]}, {"write": answers}, cost_usd=PRICE)
    ran, spent = spent_by(tmp_path, cast, gate="critic")
    assert_same(ran, spent, requests=3, usd=PRICE + usd, unknown=unknown)


def test_the_first_call_of_a_critic_counts_if_the_ledger_fails_before_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = Cast({"write": [Text("done")]}, {"write": [INEXACT]}, cost_usd=PRICE)
    real = SpooledLedger.get

    def get(ledger: SpooledLedger, key: str, *, since: float = 0.0) -> AgentResult | None:
        if "critic of write" in cast.calls:
            raise StoreError("the ledger is damaged", hint="remove it")
        return real(ledger, key, since=since)

    monkeypatch.setattr(SpooledLedger, "get", get)
    ran, spent = spent_by(tmp_path, cast, gate="critic")
    assert "the ledger is damaged" in ran.record.reason
    assert_same(ran, spent, requests=2, usd=2 * PRICE)


async def cancelled(
    folder: Path,
    cast: Cast,
    is_time: Callable[[], bool],
    *,
    then: Callable[[], None] = lambda: None,
    **stage: Any,
) -> Ran:
    """Run one stage, and cancel the run as soon as it is time."""
    pipeline = Pipeline.load(write_pipeline(folder / "p", {"name": "write", **stage}))
    running = asyncio.create_task(pipeline.run(options=options(cast, folder / "state"), run_id="r"))
    while not is_time():
        assert not running.done()
        await asyncio.sleep(0)
    running.cancel()
    for _ in range(100):  # every task that waits has heard of it
        await asyncio.sleep(0)
    then()
    with pytest.raises(asyncio.CancelledError):
        await running
    return Ran(open_run_store(folder / "state").load("r"), folder / "state")


@each("is_gate", [False, True])
def test_a_cancelled_request_is_unknown_and_the_one_before_keeps_its_cost(tmp_path: Path, is_gate: bool) -> None:
    steps: list[AgentStep] = [failing(Crashed, cost_usd=0.25, retryable=True), Hang()]
    cast = Cast({"write": [Text("done")]}, {"write": steps}) if is_gate else Cast({"write": steps})
    stage: dict[str, Any] = {"gate": "critic"} if is_gate else {}
    wanted = 3 if is_gate else 2
    ran = asyncio.run(cancelled(tmp_path, cast, lambda: len(cast.calls) == wanted, **stage))
    usage = ran.record.usage
    assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (wanted, 0.25, 1)
    assert ran.record.stage("write").unanswered == 0


def test_an_answer_is_saved_although_the_run_is_cancelled_while_it_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = threading.Event()
    may_end = threading.Event()

    def checked(result: AgentResult, schema: Mapping[str, Any]) -> AgentResult:
        checking.set()
        may_end.wait()
        return check_output(result, schema)

    monkeypatch.setattr(retry, "check_output", checked)
    cast = Cast({"write": [Json({"done": True})]}, cost_usd=PRICE)
    stage = {"output_schema": {"type": "object"}}
    ran = asyncio.run(cancelled(tmp_path, cast, checking.is_set, then=may_end.set, **stage))
    assert len(ran.record.stage("write").attempts) == 1
    again = resume(ran, cast)
    assert (again.record.state, cast.calls, again.record.usage.cost_usd) == (S.COMPLETED, ["write"], PRICE)
