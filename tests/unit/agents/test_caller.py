from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions, ChangedFiles
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.errors import (
    AgentError,
    BudgetExhausted,
    CodeloupeError,
    ConnectionFailed,
    Crashed,
    GitFailed,
    InvalidRequest,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    RateLimited,
    TimedOut,
)
from codeloupe.model.agent import (
    AgentEvent,
    AgentFinished,
    AgentLimits,
    AgentRequest,
    AgentResult,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    PermissionMode,
    TokensSpent,
    TurnTaken,
)
from codeloupe.model.ports import Agent, AgentEventSink
from codeloupe.testing.agent import AgentStep, ScriptedAgent
from codeloupe.testing.replies import Delay, Hang, Json, Text
from tests.endings import FAR_TOO_LONG_SECONDS, ends_soon
from tests.unit.agents.call_samples import made_up_token, overloaded, rate_limited, request, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing, virtually

TOKEN = made_up_token()
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}


def caller(options: CallerOptions | None = None, **more: Any) -> AgentCaller:
    return AgentCaller(options or CallerOptions(), timing=virtual_timing(), **more)


async def call(
    agent: Agent | list[Agent], asked: AgentRequest | None = None, *, by: AgentCaller | None = None
) -> tuple[AgentResult, list[AgentEvent]]:
    events: list[AgentEvent] = []
    answer = await (by or caller()).call(asked or request(), agent=agent, emit=events.append)
    return answer, events


def answered(agent: Agent, asked: AgentRequest | None = None) -> AgentResult:
    return run_virtually(call(agent, asked))[0]


def failure(agent: Agent, asked: AgentRequest | None = None) -> AgentError:
    with pytest.raises(AgentError) as caught:
        run_virtually(call(agent, asked))
    return caught.value


class Returning(ScriptedAgent):
    """An agent that returns or raises what it is given, also what no agent should."""

    def __init__(self, outcome: AgentResult | BaseException, **more: Any) -> None:
        super().__init__(**more)
        self.outcome = outcome

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        await asyncio.sleep(0)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Deaf(ScriptedAgent):
    """An agent that does not keep its time."""

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        await asyncio.sleep(1e6)
        raise AssertionError


@pytest.mark.requirement("R1")
def test_a_call_gives_the_answer_and_tells_what_happens() -> None:
    answer, events = run_virtually(call(ScriptedAgent([Text("hello")]), request(labels={"unit": "a.py"})))
    assert (answer.success, answer.output, answer.attempts, answer.notes) == (True, "hello", 1, ())
    assert events == [
        AgentStarted("scripted", None, "a.py"),
        AttemptStarted("scripted", 1, 3),
        TurnTaken("scripted", 1),
        TokensSpent("scripted", 100, 20, 0.0),
        AgentFinished("scripted", success=True, attempts=1, duration_ms=0, cost_usd=0.0),
    ]


def test_a_bad_request_is_refused_before_the_agent_is_asked() -> None:
    agent = ScriptedAgent()
    assert isinstance(failure(agent, request("")), InvalidRequest)
    assert isinstance(failure(agent, request(working_dir=Path("does-not-exist"))), InvalidRequest)
    assert agent.requests == ()


@pytest.mark.defect("P4")
def test_what_an_agent_cannot_do_is_refused_before_it_is_asked() -> None:
    plain = ScriptedAgent([Text("hello")], limits=AgentLimits())
    for fields in ({"max_turns": 2}, {"tools": ("Read",)}, {"resume_session": "abc"}, {"max_budget_usd": 1.0}):
        assert isinstance(failure(plain, request(**fields)), InvalidRequest)
    assert plain.requests == ()


class TestAttempts:
    @pytest.mark.requirement("R13")
    def test_a_transient_failure_is_tried_again_and_told(self) -> None:
        agent = ScriptedAgent([overloaded(), ConnectionFailed("cut", agent="scripted"), Text("at last")])
        answer, events = run_virtually(call(agent))
        assert (answer.output, answer.attempts) == ("at last", 3)
        assert [type(event) for event in events[:5]] == [
            AgentStarted,
            AttemptStarted,
            AttemptFailed,
            AttemptStarted,
            AttemptFailed,
        ]
        assert isinstance(events[-1], AgentFinished)
        assert (events[-1].attempts, events[-1].duration_ms) == (3, 3000)

    @pytest.mark.requirement("R8")
    def test_each_attempt_gets_the_time_that_is_left(self) -> None:
        agent = ScriptedAgent([Delay(3.0, overloaded()), Text("hello")])
        answered(agent, request(timeout_seconds=60.0))
        assert [asked.timeout_seconds for asked in agent.requests] == [60.0, 56.0]

    @pytest.mark.requirement("R8")
    @virtually
    async def test_the_timeout_covers_all_attempts(self) -> None:
        agent = ScriptedAgent([Delay(7.0, overloaded()), Hang()])
        with pytest.raises(TimedOut) as caught:
            await call(agent, request(timeout_seconds=20.0))
        assert caught.value.attempts == 2
        assert agent.running == 0
        assert virtual_clock() == pytest.approx(20.0)

    @virtually
    async def test_an_agent_that_does_not_keep_its_time_is_ended(self) -> None:
        with pytest.raises(TimedOut) as caught:
            await call(Deaf(), request(timeout_seconds=20.0))
        assert virtual_clock() == pytest.approx(35.0)
        assert "did not end by itself in 20 s" in caught.value.message

    @virtually
    async def test_the_time_begins_with_the_place_and_not_with_the_queue(self) -> None:
        agent = ScriptedAgent([Delay(10.0, Text("hello"))])
        by = caller(CallerOptions(concurrency=1))
        asked = [request(f"say {number}", timeout_seconds=15.0) for number in range(5)]
        assert [
            answer.output
            for answer in [answer for answer, _ in await asyncio.gather(*(call(agent, one, by=by) for one in asked))]
        ] == ["hello"] * 5

    @pytest.mark.requirement("R10")
    def test_what_no_agent_should_raise_becomes_one_of_the_family_with_its_cause(self) -> None:
        error = failure(Returning(KeyError("surprise")))
        assert isinstance(error, Crashed)
        assert "not known: KeyError: 'surprise'" in error.message
        assert isinstance(error.__cause__, KeyError)
        assert error.hint

    @pytest.mark.requirement("R10")
    def test_a_result_that_says_it_failed_is_a_failure(self) -> None:
        error = failure(Returning(result(success=False, error="it broke", raw_output="raw")))
        assert isinstance(error, Crashed)
        assert "it broke" in error.message
        assert error.raw_output == "raw"


class TestAnswers:
    @virtually
    async def test_an_answer_that_does_not_count_is_spent_once_and_its_error_tells_the_price(self) -> None:
        budget = RunBudget(clock=virtual_clock)
        agent = ScriptedAgent([Json({"line": "x"})], cost_usd=0.25)
        with pytest.raises(OutputInvalid) as caught:
            await call(agent, request(output_schema=SCHEMA), by=caller(budget=budget))
        assert (budget.spent.usd, budget.spent.requests, budget.spent.unknown_costs) == (0.25, 1, 0)
        error = caught.value
        assert (error.output, error.cost_usd, error.usage.input_tokens) == ('{"line": "x"}', 0.25, 100)

    @pytest.mark.requirement("R12")
    def test_an_empty_answer_is_an_error_in_words_that_keeps_the_raw_output(self, subtests: pytest.Subtests) -> None:
        for output in ["", " \n"]:
            with subtests.test(str(output)[:80]):
                error = failure(Returning(result(output, raw_output="raw", session_id="s1")))
                assert isinstance(error, OutputInvalid)
                assert error.message == "the answer of scripted is empty"
                assert (error.raw_output, error.session_id) == ("raw", "s1")

    def test_a_structured_answer_is_checked_by_us(self) -> None:
        assert answered(ScriptedAgent([Json({"line": 3})]), request(output_schema=SCHEMA)).structured == {"line": 3}
        error = failure(ScriptedAgent([Json({"line": "x"})]), request(output_schema=SCHEMA))
        assert isinstance(error, OutputInvalid)
        assert "at $.line" in error.message

    def test_an_answer_in_text_is_read_and_noted_where_more_was_promised(self, subtests: pytest.Subtests) -> None:
        rows: list[tuple[bool, int]] = [(False, 0), (True, 1)]
        for has_schema, notes in rows:
            with subtests.test(str((has_schema, notes))[:80]):
                agent = Returning(result('Here: {"line": 4}'), limits=AgentLimits(schema=has_schema))
                answer = answered(agent, request(output_schema=SCHEMA))
                assert answer.structured == {"line": 4}
                assert len(answer.notes) == notes

    def test_a_large_answer_is_checked_too(self) -> None:
        answer = answered(Returning(result("x" * 100_000 + '{"line": 4}')), request(output_schema=SCHEMA))
        assert answer.structured == {"line": 4}


class TestSecrets:
    @pytest.mark.requirement("R16")
    def test_the_agent_does_not_see_them_and_the_result_says_so(self) -> None:
        agent = ScriptedAgent([Text("hello")])
        answer = answered(agent, request(f"look at {TOKEN}", context={"Diff": f"+{TOKEN}"}))
        assert TOKEN not in repr(agent.requests)
        assert answer.notes == ("secrets were masked in the prompt and the context before it was sent",)

    def test_masking_what_is_sent_can_be_switched_off(self) -> None:
        agent = ScriptedAgent([Text("hello")])
        by = caller(CallerOptions(mask_prompts=False))
        answer, _ = run_virtually(call(agent, request(f"look at {TOKEN}"), by=by))
        assert agent.requests[0].prompt == f"look at {TOKEN}"
        assert answer.notes == ()

    @pytest.mark.requirement("R16")
    def test_the_result_and_the_events_do_not_hold_them(self) -> None:
        agent = Returning(result(f"it is {TOKEN}", raw_output=TOKEN, structured={"a": TOKEN}))
        answer, events = run_virtually(call(agent, request(labels={"unit": TOKEN})))
        assert TOKEN not in repr(answer) + repr(events)

    @pytest.mark.requirement("R16")
    @virtually
    async def test_errors_and_what_led_to_them_do_not_hold_them(self) -> None:
        error = Overloaded(f"it said {TOKEN}", agent="scripted", raw_output=f"raw {TOKEN}")
        error.__cause__ = OSError(f"header {TOKEN}")
        events: list[AgentEvent] = []
        with pytest.raises(Overloaded) as caught:
            await caller().call(request(), agent=ScriptedAgent([error]), emit=events.append)
        raised = caught.value
        assert TOKEN not in "".join(traceback.format_exception(raised)) + repr(vars(raised)) + repr(events)
        assert raised.message == "it said [redacted]"


class TestBudget:
    @virtually
    async def test_nothing_is_asked_when_it_is_used_up(self) -> None:
        agent = ScriptedAgent([Text("hello")], cost_usd=0.6)
        by = caller(budget=RunBudget(clock=virtual_clock, max_usd=1.0))
        await call(agent, by=by)
        await call(agent, by=by)
        with pytest.raises(BudgetExhausted, match="\\$1.2000 of \\$1.0000"):
            await call(agent, by=by)
        assert len(agent.requests) == 2

    @virtually
    async def test_every_attempt_counts_as_a_request(self) -> None:
        agent = ScriptedAgent([overloaded()])
        with pytest.raises(BudgetExhausted) as caught:
            await call(agent, by=caller(budget=RunBudget(clock=virtual_clock, max_requests=2)))
        assert len(agent.requests) == 2
        error = caught.value
        assert error.attempts == 2
        assert "attempt 1: Overloaded: the service has no room" in error.__notes__

    @virtually
    async def test_when_it_is_used_up_nobody_waits_for_a_place_to_learn_it(self) -> None:
        by = caller(CallerOptions(concurrency=1), budget=RunBudget(clock=virtual_clock, max_requests=1))
        running = asyncio.create_task(call(ScriptedAgent([Delay(100.0, Text("hello"))]), by=by))
        await asyncio.sleep(1)
        with pytest.raises(BudgetExhausted) as caught:
            await call(ScriptedAgent(), by=by)
        assert caught.value.attempts == 0
        ended = virtual_clock()
        await running
        assert ended == 1

    @virtually
    async def test_waiting_for_a_place_ends_with_the_time_of_the_run(self) -> None:
        by = caller(budget=RunBudget(clock=virtual_clock, deadline=40.0))
        with pytest.raises(RateLimited):
            await call(ScriptedAgent([rate_limited(200)]), by=by)
        with pytest.raises(BudgetExhausted, match="the time of the run ended"):
            await call(ScriptedAgent(), by=by)
        assert virtual_clock() == pytest.approx(40.0)

    @virtually
    async def test_the_time_of_the_run_bounds_each_attempt(self) -> None:
        agent = ScriptedAgent([Hang()])
        by = caller(budget=RunBudget(clock=virtual_clock, deadline=40.0))
        with pytest.raises(TimedOut):
            await call(agent, by=by)
        assert virtual_clock() == pytest.approx(40.0)
        with pytest.raises(BudgetExhausted):
            await call(agent, by=by)
        assert [asked.timeout_seconds for asked in list(agent.requests)] == [40.0]

    def test_a_limit_that_the_agent_did_not_hold_is_told(self, subtests: pytest.Subtests) -> None:
        rows: list[tuple[float | None, dict[str, Any], str]] = [
            (None, {"max_budget_usd": 0.1}, "scripted does not report what it costs"),
            (0.3, {"max_budget_usd": 0.1}, "the call cost $0.3000, more than the $0.1000 that were allowed"),
        ]
        for cost, fields, words in rows:
            with subtests.test(str((cost, fields, words))[:80]):
                agent = Returning(result(total_cost_usd=cost), limits=AgentLimits(budget=True))
                notes = answered(agent, request(**fields)).notes
                assert any(words in note for note in notes)

    @virtually
    async def test_a_cost_that_nobody_tells_is_noted_where_the_run_has_a_limit_of_money(self) -> None:
        by = caller(budget=RunBudget(clock=virtual_clock, max_usd=5.0))
        answer, _ = await call(ScriptedAgent([Text("hello")], cost_usd=None), by=by)
        assert answer.notes == ("scripted does not report what it costs, so a budget cannot be enforced",)


class TestPlaces:
    @virtually
    async def test_a_call_that_waits_to_try_again_holds_no_place(self) -> None:
        policy = RetryPolicy(first_delay_seconds=50.0)
        by = caller(CallerOptions(concurrency=1, retry=policy))
        waiting = asyncio.create_task(call(ScriptedAgent([overloaded(), Text("late")]), by=by))
        await asyncio.sleep(1)
        await call(ScriptedAgent([Text("hello")]), by=by)
        ended = virtual_clock()
        answer, _ = await waiting
        assert answer.output == "late"
        assert ended < 2

    @virtually
    async def test_fewer_run_when_the_service_had_no_room_and_more_again_when_it_has(self) -> None:
        seen: list[int] = []

        def answer(_request: AgentRequest) -> Delay[Any]:
            seen.append(agent.running)
            return Delay(1.0, Text("hello"))

        no_room: list[AgentStep] = [Delay(0.1, overloaded())] * 8
        agent = ScriptedAgent([*no_room, answer])
        by = caller(CallerOptions(concurrency=8))
        await asyncio.gather(*(call(agent, request(f"say {number}"), by=by) for number in range(100)))
        assert max(seen[:10]) == 4
        assert 4 < max(seen) <= 8

    @pytest.mark.parametrize(
        ("busy_seconds", "words", "end"),
        [(500.0, "no place for another attempt", 20.0), (18.5, "no time is left for another attempt", 19.5)],
    )
    @virtually
    async def test_one_that_gets_no_place_again_in_time_has_timed_out(
        self, busy_seconds: float, words: str, end: float
    ) -> None:
        by = caller(CallerOptions(concurrency=1))
        agent = ScriptedAgent([overloaded(), Delay(busy_seconds, Text("hello"))])
        first = asyncio.create_task(call(agent, request("first", timeout_seconds=20.0), by=by))
        await asyncio.sleep(0.1)
        await asyncio.sleep(0.9 - 1e-6)
        second = asyncio.create_task(call(agent, request("second"), by=by))
        with pytest.raises(TimedOut) as caught:
            await first
        assert virtual_clock() == pytest.approx(end, abs=0.01)
        assert (await second)[0].output == "hello"
        error = caught.value
        assert words in error.message
        assert error.attempts == 1
        assert "attempt 1: Overloaded: the service has no room" in error.__notes__


class TestCancellation:
    @pytest.mark.requirement("R1")
    def test_a_call_that_was_cancelled_before_it_began_asks_nothing(self) -> None:
        agent, events = ScriptedAgent(), list[AgentEvent]()

        async def cancelled_already() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await caller().call(request(), agent=agent, emit=events.append)

        with pytest.raises(asyncio.CancelledError):
            run_virtually(cancelled_already())
        assert agent.requests == ()
        assert events == []

    @pytest.mark.requirement("R14")
    @pytest.mark.parametrize("moment", [0.0, 0.5, 1.5, 20.0, 31.5, 32.5, 90.0])
    @virtually
    async def test_a_cancellation_at_any_moment_leaves_nothing_running(self, moment: float) -> None:
        agent = ScriptedAgent([Delay(1.0, overloaded()), Delay(29.0, overloaded()), Hang()])
        by = caller(CallerOptions(concurrency=1))
        events: list[AgentEvent] = []
        task = asyncio.create_task(by.call(request(), agent=agent, emit=events.append))
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert virtual_clock() == moment
        assert agent.running == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await call(ScriptedAgent([Text("hello")]), by=by))[0].output == "hello"
        if moment:
            assert isinstance(events[-1], AgentFinished)
            assert not events[-1].success

    def test_in_real_time_nobody_waits_for_the_answers(self) -> None:
        async def run() -> list[Any]:
            agent = ScriptedAgent([Delay(FAR_TOO_LONG_SECONDS, Text("too late"))])
            by = AgentCaller(CallerOptions(concurrency=3))
            calls = [asyncio.create_task(call(agent, request(f"say {number}"), by=by)) for number in range(6)]
            while agent.running < 3:  # noqa: ASYNC110 - the agent has no event for this
                await asyncio.sleep(0)
            for one in calls:
                one.cancel()
            with ends_soon():
                ended = await asyncio.gather(*calls, return_exceptions=True)
            assert agent.running == 0
            return ended

        ended = asyncio.run(run())
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)

    @virtually
    async def test_one_cancelled_call_does_not_touch_the_others(self) -> None:
        agent = ScriptedAgent([Delay(5.0, Text("hello"))])
        by = caller(CallerOptions(concurrency=2))
        tasks = [asyncio.create_task(call(agent, request(f"say {number}"), by=by)) for number in range(4)]
        await asyncio.sleep(2)
        tasks[0].cancel()
        tasks[2].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(end, asyncio.CancelledError) for end in ended] == [True, False, True, False]


class TestChangedFiles:
    WRITING = PermissionMode.ACCEPT_EDITS

    @staticmethod
    def watched(changed: tuple[str, ...] | CodeloupeError, *, early: bool = False) -> tuple[AgentCaller, list[Path]]:
        looked: list[Path] = []

        async def watch(directory: Path) -> ChangedFiles:
            looked.append(directory)
            if early and isinstance(changed, CodeloupeError):
                raise changed

            async def tell() -> tuple[str, ...]:
                if isinstance(changed, CodeloupeError):
                    raise changed
                return changed

            return tell

        return caller(watch_files=watch), looked

    def test_a_call_that_may_write_tells_which_files_changed(self) -> None:
        by, looked = self.watched(("a.py", "b.py"))
        agent = Returning(result(files_changed=("b.py", "c.py")), limits=AgentLimits(writes=True))
        answer, _ = run_virtually(call(agent, request(permission_mode=self.WRITING), by=by))
        assert answer.files_changed == ("a.py", "b.py", "c.py")
        assert looked == [Path()]

    def test_one_that_may_not_is_not_looked_at(self) -> None:
        by, looked = self.watched(("a.py",))
        agent = ScriptedAgent([Text("hello")], limits=AgentLimits(writes=True))
        answer, _ = run_virtually(call(agent, request(permission_mode=PermissionMode.PLAN), by=by))
        assert answer.files_changed == ()
        assert looked == []

    def test_when_that_cannot_be_known_the_answer_is_kept_and_says_so(self, subtests: pytest.Subtests) -> None:
        for early in [True, False]:
            with subtests.test(str(early)[:80]):
                by, _ = self.watched(GitFailed("git failed", program="git", exit_code=1), early=early)
                agent = ScriptedAgent([Text("hello")])
                answer, _ = run_virtually(call(agent, request(permission_mode=self.WRITING), by=by))
                assert answer.output == "hello"
                assert answer.notes == ("which files changed is not known: git failed",)


class TestChains:
    def test_the_next_agent_takes_over_and_secrets_stay_out_of_the_story(self) -> None:
        first = ScriptedAgent([NotLoggedIn(f"bad key {TOKEN}", agent="first")], name="first")
        answer, events = run_virtually(call([first, ScriptedAgent([Text("hello")], name="second")]))
        assert (answer.agent, answer.notes) == ("second", ("first was not used: bad key [redacted]",))
        names = [type(event).__name__ for event in events]
        assert names.count("AgentStarted") == names.count("AgentFinished") == names.count("FellBack") == 1
        assert isinstance(events[-1], AgentFinished)
        assert (events[-1].agent, events[-1].success) == ("second", True)
