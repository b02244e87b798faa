"""One call with all that is around it: checks, attempts, places, quotas, budget, masking, and a chain of agents."""

import asyncio
import math
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.errors import AgentError, BudgetExhausted, NotInstalled, NotLoggedIn, OutputInvalid, RateLimited
from codeloupe.model.agent import (
    AgentEvent,
    AgentFinished,
    AgentLimits,
    AgentRequest,
    AgentResult,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    FellBack,
    PermissionMode,
    QuotaEnded,
    TokensSpent,
    TokenUsage,
    TurnTaken,
)
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import Agent, AgentEventSink
from codeloupe.testing import AgentStep, Delay, Hang, Json, ScriptedAgent, Text
from tests.rows import each
from tests.unit.agents.samples import made_up_token, overloaded, rate_limited, request, result
from tests.unit.agents.virtual_time import MIDNIGHT, run_virtually, virtual_clock, virtual_timing, virtually

TOKEN = made_up_token()
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}
HELLO = Text("hello")
CUT = errors.ConnectionFailed("the line was cut", agent="scripted")
NO_ROOM = ("Overloaded", "the service has no room")


def caller(*, budget: RunBudget | None = None, chance: float = 0.5, watch: Any = None, **options: Any) -> AgentCaller:
    timing = virtual_timing(chance=lambda: chance)
    return AgentCaller(CallerOptions(**options), budget=budget, watch_files=watch, timing=timing)


def spending(**limits: Any) -> RunBudget:
    return RunBudget(clock=virtual_clock, **limits)


async def call(
    agent: Agent | list[Agent], asked: AgentRequest | None = None, *, by: AgentCaller | None = None
) -> tuple[AgentResult, list[AgentEvent]]:
    events: list[AgentEvent] = []
    answer = await (by or caller()).call(asked or request(), agent=agent, emit=events.append)
    return answer, events


def answered(agent: Agent | list[Agent], asked: AgentRequest | None = None, **options: Any) -> AgentResult:
    return run_virtually(call(agent, asked, by=caller(**options)))[0]


def failure(agent: Agent | list[Agent], asked: AgentRequest | None = None, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        answered(agent, asked, **options)
    return caught.value


class Timed(ScriptedAgent):
    """Notes when it is asked. A result or an error that is given as `outcome` comes in place of its script."""

    def __init__(self, *steps: AgentStep, outcome: AgentResult | BaseException | None = None, **more: Any) -> None:
        super().__init__(steps, **more)
        self.outcome = outcome
        self.times: list[float] = []

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        self.times.append(virtual_clock())
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome or await super().run(request, emit)


@pytest.mark.requirement("R1")
def test_a_call_gives_the_answer_and_reports_what_happens() -> None:
    answer, events = run_virtually(call(ScriptedAgent([HELLO]), request(labels={"unit": "a.py", "fresh": "yes"})))
    assert (answer.success, answer.output, answer.attempts, answer.notes) == (True, "hello", 1, ())
    assert events == [
        AgentStarted("scripted", None, "a.py"),
        AttemptStarted("scripted", 1, 3),
        TurnTaken("scripted", 1),
        TokensSpent("scripted", 100, 20, 0.0),
        AgentFinished("scripted", success=True, attempts=1, duration_ms=0, cost_usd=0.0),
    ]


@pytest.mark.defect("P4")
def test_a_bad_request_and_what_an_agent_cannot_do_are_refused_before_it_is_asked() -> None:
    plain = ScriptedAgent([HELLO], limits=AgentLimits())
    for fields in ({"max_turns": 2}, {"tools": ("Read",)}, {"resume_session": "abc"}, {"max_budget_usd": 1.0}):
        assert isinstance(failure(plain, request(**fields)), errors.InvalidRequest)
    for bad in (request(""), request(working_dir=Path("does-not-exist"))):
        assert isinstance(failure(plain, bad), errors.InvalidRequest)
    assert plain.requests == ()


class TestAttempts:
    @pytest.mark.requirement("R13")
    def test_a_transient_failure_is_tried_three_times_with_growing_waits_and_the_last_one_tells_of_all(self) -> None:
        agent = Timed(overloaded(), CUT, Text("at last"))
        answer, events = run_virtually(call(agent))
        assert (answer.output, answer.attempts, agent.times) == ("at last", 3, [0.0, 1.0, 3.0])
        assert isinstance(events[-1], AgentFinished)
        assert (events[-1].attempts, events[-1].duration_ms) == (3, 3000)
        attempts = [event for event in events if isinstance(event, AttemptStarted | AttemptFailed)]
        assert attempts == [
            AttemptStarted("scripted", 1, 3),
            AttemptFailed("scripted", 1, *NO_ROOM, retry_in_seconds=1.0),
            AttemptStarted("scripted", 2, 3),
            AttemptFailed("scripted", 2, "ConnectionFailed", "the line was cut", retry_in_seconds=2.0),
            AttemptStarted("scripted", 3, 3),
        ]
        last = overloaded()
        last.__cause__ = OSError("reset by peer")
        error = failure(ScriptedAgent([CUT, overloaded(), last]))
        assert (error.attempts, error.__cause__) == (3, last.__cause__)
        assert error.__notes__ == [
            "attempt 1: ConnectionFailed: the line was cut",
            "attempt 2: Overloaded: the service has no room",
            "not retried: it was tried 3 times",
        ]

    @pytest.mark.requirement("R13")
    def test_what_would_fail_again_is_tried_once(self) -> None:
        kinds = (
            NotLoggedIn, NotInstalled, errors.InvalidRequest, OutputInvalid, errors.PromptTooLong, errors.Refused,
            errors.TimedOut, errors.Crashed,
        )  # fmt: skip
        for outcome in (*(kind("no", agent="scripted") for kind in kinds), asyncio.CancelledError()):
            agent = Timed(outcome=outcome)
            with pytest.raises(type(outcome)):
                run_virtually(call(agent))
            assert agent.times == [0.0]
        assert failure(Timed(overloaded()), request(max_attempts=1)).attempts == 1

    @each(
        ("asked", "chance", "times"),
        [
            ([None, None], 0.5, [0, 30, 90]),
            ([None] * 6, 0.5, [0, 30, 90, 210, 450, 750, 1050]),
            ([0.0, 0.0], 0.5, [0, 1, 3]),  # not asked sooner than after our own wait
            ([0.1, 0.1], 0.5, [0, 1, 3]),
            ([45.0], 0.0, [0, 45]),
            ([45.0], 0.999, [0, 57.2]),
            ([300.0], 0.0, [0, 300]),
            *(([nonsense], 0.5, [0, 30]) for nonsense in (-5.0, math.nan, math.inf)),
        ],
    )
    def test_a_rate_limit_is_waited_for_as_asked_or_from_thirty_seconds_on(
        self, asked: list[float | None], chance: float, times: list[float]
    ) -> None:
        agent = Timed(*map(rate_limited, asked), HELLO)
        answered(agent, chance=chance, retry=RetryPolicy(attempts=len(times)))
        assert agent.times == pytest.approx(times, abs=0.1)

    @pytest.mark.requirement("R8")
    def test_one_timeout_covers_all_attempts_and_each_gets_what_is_left(self) -> None:
        agent = Timed(Delay(3.0, overloaded()), HELLO)
        answered(agent, request(timeout_seconds=60.0))
        assert [asked.timeout_seconds for asked in agent.requests] == [60.0, 56.0]
        for steps, seconds, times, kind in (
            ([Delay(7.0, overloaded()), Hang()], 20.0, [0, 8], errors.TimedOut),
            ([Delay(4.0, overloaded())], 11.0, [0, 5], errors.Overloaded),
            ([overloaded()], 1.9, [0], errors.Overloaded),
            ([overloaded(), HELLO], 2.0, [0, 1], None),
        ):
            agent = Timed(*steps)
            if kind is None:
                answered(agent, request(timeout_seconds=seconds))
            else:
                error = failure(agent, request(timeout_seconds=seconds))
                assert (type(error), error.attempts) == (kind, len(times))
            assert (agent.times, agent.running) == (times, 0)

    @virtually
    async def test_an_agent_that_does_not_keep_its_time_is_ended(self) -> None:
        class Deaf(ScriptedAgent):
            async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
                await asyncio.sleep(1e6)
                raise AssertionError

        with pytest.raises(errors.TimedOut, match="did not finish within 20 s"):
            await call(Deaf(), request(timeout_seconds=20.0))
        assert virtual_clock() == pytest.approx(35.0)

    @pytest.mark.requirement("R10")
    def test_what_no_agent_should_do_becomes_one_of_the_family_with_its_cause(self) -> None:
        error = failure(Timed(outcome=KeyError("surprise")))
        assert isinstance(error, errors.Crashed)
        assert "failed unexpectedly: KeyError: 'surprise'" in error.message
        assert isinstance(error.__cause__, KeyError)
        assert error.hint
        error = failure(Timed(outcome=result(success=False, error="it broke", raw_output="raw")))
        assert isinstance(error, errors.Crashed)
        assert ("it broke" in error.message, error.raw_output) == (True, "raw")


class TestAnswers:
    @virtually
    async def test_an_answer_that_does_not_count_is_spent_once_and_its_error_has_the_price(self) -> None:
        budget = spending()
        agent = ScriptedAgent([Json({"line": "x"})], cost_usd=0.25)
        with pytest.raises(OutputInvalid, match=r"at \$.line") as caught:
            await call(agent, request(output_schema=SCHEMA), by=caller(budget=budget))
        assert (budget.spent.usd, budget.spent.requests, budget.spent.unknown_costs) == (0.25, 1, 0)
        error = caught.value
        assert (error.output, error.cost_usd, error.usage.input_tokens) == ('{"line": "x"}', 0.25, 100)

    @pytest.mark.requirement("R12")
    def test_an_empty_answer_is_an_error_that_keeps_the_raw_output(self) -> None:
        for output in ("", " \n"):
            error = failure(Timed(outcome=result(output, raw_output="raw", session_id="s1")))
            assert isinstance(error, OutputInvalid)
            assert error.message == "the answer of scripted is empty"
            assert (error.raw_output, error.session_id) == ("raw", "s1")

    def test_a_text_that_is_the_value_will_do_and_is_noted_where_more_was_promised(self) -> None:
        asked = request(output_schema=SCHEMA)
        assert answered(ScriptedAgent([Json({"line": 3})]), asked).structured == {"line": 3}
        for has_schema in (False, True):
            agent = Timed(outcome=result('```json\n{"line": 4}\n```'), limits=AgentLimits(schema=has_schema))
            answer = answered(agent, asked)
            assert (answer.structured, len(answer.notes)) == ({"line": 4}, has_schema)


class TestAnyOutput:
    """Answers to a request with `accept_any_output`."""

    ASKED: AgentRequest = request(output_schema=SCHEMA, accept_any_output=True)

    def test_an_answer_that_does_not_fit_is_returned_as_it_is(self) -> None:
        for text in ('{"line": "x"}', 'Here: {"line": 4}', "nothing", '{"line": 4}'):
            answer = answered(Timed(outcome=result(text)), self.ASKED)
            assert (answer.output, answer.structured, answer.notes, answer.inexact) == (text, None, (), "")
        value = {"line": "x", "more": [1]}
        assert answered(ScriptedAgent([Json(value)]), self.ASKED).structured == value
        assert answered(ScriptedAgent([Json(value, as_text=True)]), self.ASKED).structured is None

    @virtually
    async def test_an_error_that_carries_the_answer_becomes_a_result_with_its_cost(self) -> None:
        for others in ((), ("what it said before",)):
            usage = TokenUsage(input_tokens=7, output_tokens=2)
            error = OutputInvalid(
                "it was cut off",
                agent="scripted",
                output='[{"line": 1}, {',
                raw_output="raw",
                other_answers=others,
                cost_usd=0.25,
                usage=usage,
                session_id="s1",
            )
            budget = spending()
            asked = replace(self.ASKED, model="m")
            answer, events = await call(ScriptedAgent([error]), asked, by=caller(budget=budget))
            assert (answer.success, answer.output, answer.structured) == (True, '[{"line": 1}, {', None)
            assert (answer.other_answers, answer.raw_output, answer.session_id) == (others, "raw", "s1")
            assert (answer.total_cost_usd, answer.usage, answer.model) == (0.25, usage, "m")
            assert (answer.inexact, answer.notes) == ("it was cut off", ("it was cut off",))
            assert (budget.spent.usd, budget.spent.requests) == (0.25, 1)
            assert [event.success for event in events if isinstance(event, AgentFinished)] == [True]

    def test_an_answer_without_any_text_is_still_an_error(self) -> None:
        for outcome in (result(" "), OutputInvalid("nothing came", agent="scripted", raw_output="a log")):
            assert isinstance(failure(Timed(outcome=outcome), self.ASKED), OutputInvalid)

    def test_a_value_that_is_not_json_makes_the_text_beside_it_inexact(self) -> None:
        answer = answered(Timed(outcome=result('{"line": 4}', structured={"line": math.nan})), self.ASKED)
        assert (answer.output, answer.structured) == ('{"line": 4}', None)
        assert answer.notes == ("the structured answer of scripted was not used: a number is not finite",)
        assert answer.inexact == answer.notes[0]


class TestOneAgentOfAChain:
    """A caller that decides itself which agent gets a question next."""

    @staticmethod
    async def outcome(agent: Agent, chain: list[Agent], *, by: AgentCaller | None = None) -> object:
        try:
            return await (by or caller()).call(
                request(model="claude-opus-5-5"), agent=agent, emit=lambda _event: None, chain=chain
            )
        except AgentError as error:
            return type(error)

    @virtually
    async def test_only_that_agent_is_asked_and_the_model_is_the_first_one_s(self) -> None:
        first = ScriptedAgent([NotInstalled("missing", agent="claude_cli")], name="claude_cli")
        second = ScriptedAgent([HELLO], name="codex")
        assert await self.outcome(first, [first, second]) is NotInstalled
        assert not second.requests
        answer = await self.outcome(second, [first, second])
        assert isinstance(answer, AgentResult)
        assert [asked.model for asked in second.requests] == [None]
        assert "used its own default model, because claude-opus-5-5 was meant for claude_cli" in answer.notes[0]

    @virtually
    async def test_a_missing_agent_is_started_once_unless_it_is_the_last(self) -> None:
        by = caller()
        first, last = (ScriptedAgent([NotInstalled("missing", agent=name)], name=name) for name in ("one", "two"))
        for _ in range(2):
            for agent in (first, last):
                assert await self.outcome(agent, [first, last], by=by) is NotInstalled
        assert (len(first.requests), len(last.requests)) == (1, 2)

    @virtually
    async def test_an_exhausted_budget_and_a_cancellation_are_told_from_other_failures(self) -> None:
        agents: list[Agent] = [ScriptedAgent([Hang()], name="one"), ScriptedAgent([HELLO], name="two")]
        none_left = caller(budget=spending(max_requests=1))
        assert isinstance(await self.outcome(agents[1], agents, by=none_left), AgentResult)
        assert await self.outcome(agents[0], agents, by=none_left) is BudgetExhausted
        task = asyncio.create_task(self.outcome(agents[0], agents))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        crashed = ScriptedAgent([errors.Crashed("it crashed", agent="one")], name="one")
        assert await self.outcome(crashed, [crashed, agents[1]]) is errors.Crashed


@pytest.mark.requirement("R16")
class TestSecrets:
    def test_the_agent_does_not_see_them_unless_masking_is_off_and_the_result_says_so(self) -> None:
        agent = ScriptedAgent([HELLO])
        answer = answered(agent, request(f"look at {TOKEN}", context={"Diff": f"+{TOKEN}"}))
        assert TOKEN not in repr(agent.requests)
        assert answer.notes == ("secrets were masked in the prompt and the context before it was sent",)
        assert answered(agent, request(f"look at {TOKEN}"), mask_prompts=False).notes == ()
        assert agent.requests[1].prompt == f"look at {TOKEN}"

    def test_the_result_the_events_and_errors_do_not_hold_them(self) -> None:
        agent = Timed(outcome=result(f"it is {TOKEN}", raw_output=TOKEN, structured={"a": TOKEN}))
        answer, events = run_virtually(call(agent, request(labels={"unit": TOKEN})))
        assert TOKEN not in repr(answer) + repr(events)
        error = errors.Overloaded(f"it said {TOKEN}", agent="scripted", raw_output=f"raw {TOKEN}")
        error.__cause__ = OSError(f"header {TOKEN}")
        events = []
        with pytest.raises(errors.Overloaded) as caught:
            run_virtually(caller().call(request(), agent=ScriptedAgent([error]), emit=events.append))
        raised = caught.value
        assert TOKEN not in "".join(traceback.format_exception(raised)) + repr(vars(raised)) + repr(events)
        assert raised.message == "it said [redacted]"


class TestBudget:
    @virtually
    async def test_nothing_is_asked_when_it_is_used_up_and_every_attempt_counts(self) -> None:
        agent, by = ScriptedAgent([HELLO], cost_usd=0.6), caller(budget=spending(max_usd=1.0))
        await call(agent, by=by)
        await call(agent, by=by)
        with pytest.raises(BudgetExhausted, match="\\$1.2000 of \\$1.0000"):
            await call(agent, by=by)
        assert len(agent.requests) == 2
        agent = ScriptedAgent([overloaded()])
        with pytest.raises(BudgetExhausted) as caught:
            await call(agent, by=caller(budget=spending(max_requests=2)))
        assert (len(agent.requests), caught.value.attempts) == (2, 2)
        assert "attempt 1: Overloaded: the service has no room" in caught.value.__notes__
        # Nobody waits for a place to learn it.
        began = virtual_clock()
        by = caller(budget=spending(max_requests=1), concurrency=1)
        running = asyncio.create_task(call(ScriptedAgent([Delay(100.0, HELLO)]), by=by))
        await asyncio.sleep(1)
        with pytest.raises(BudgetExhausted) as caught:
            await call(ScriptedAgent(), by=by)
        assert (caught.value.attempts, virtual_clock() - began) == (0, 1)
        await running

    @each(("step", "kind"), [(rate_limited(200), RateLimited), (Hang(), errors.TimedOut)])
    @virtually
    async def test_the_time_of_the_run_bounds_attempts_and_waits(self, step: Any, kind: type[Exception]) -> None:
        agent, by = ScriptedAgent([step]), caller(budget=spending(deadline=40.0))
        with pytest.raises(kind):
            await call(agent, by=by)
        with pytest.raises(BudgetExhausted, match="its time ran out"):
            await call(agent, by=by)
        assert virtual_clock() == pytest.approx(40.0)
        assert [asked.timeout_seconds for asked in agent.requests] == [40.0]

    def test_a_limit_that_the_agent_did_not_hold_is_noted(self) -> None:
        unknown = "scripted does not report its cost, so a budget cannot be enforced"
        over = "the call cost $0.3000, more than the allowed $0.1000"
        for cost, asked, budget, note in (
            (None, request(max_budget_usd=0.1), None, unknown),
            (None, request(), spending(max_usd=5.0), unknown),
            (0.3, request(max_budget_usd=0.1), None, over),
        ):
            agent = Timed(outcome=result(total_cost_usd=cost), limits=AgentLimits(budget=True))
            assert answered(agent, asked, budget=budget).notes == (note,)


class TestPlaces:
    @virtually
    async def test_a_call_that_waits_to_try_again_holds_no_place_and_time_begins_with_the_place(self) -> None:
        by = caller(concurrency=1, retry=RetryPolicy(first_delay_seconds=50.0))
        waiting = asyncio.create_task(call(ScriptedAgent([overloaded(), Text("late")]), by=by))
        await asyncio.sleep(1)
        await call(ScriptedAgent([HELLO]), by=by)
        assert virtual_clock() < 2
        assert (await waiting)[0].output == "late"
        agent, by = ScriptedAgent([Delay(10.0, HELLO)]), caller(concurrency=1)
        asked = (request(f"say {number}", timeout_seconds=15.0) for number in range(5))
        assert len(await asyncio.gather(*(call(agent, one, by=by) for one in asked))) == 5

    @virtually
    async def test_fewer_run_when_the_service_had_no_room_and_more_again_when_it_has(self) -> None:
        seen: list[int] = []

        def answer(_request: AgentRequest) -> Delay[Any]:
            seen.append(agent.running)
            return Delay(1.0, HELLO)

        no_room: list[AgentStep] = [Delay(0.1, overloaded())] * 8
        agent = ScriptedAgent([*no_room, answer])
        by = caller(concurrency=8)
        await asyncio.gather(*(call(agent, request(f"say {number}"), by=by) for number in range(100)))
        assert max(seen[:10]) == 4
        assert 4 < max(seen) <= 8

    @each(
        ("busy_seconds", "words", "end"),
        [
            (500.0, "too little time was left for another attempt", 20.0),
            (18.5, "no time is left for another attempt", 19.5),
        ],
    )
    @virtually
    async def test_one_that_gets_no_place_again_in_time_has_timed_out(
        self, busy_seconds: float, words: str, end: float
    ) -> None:
        by = caller(concurrency=1)
        agent = ScriptedAgent([overloaded(), Delay(busy_seconds, HELLO)])
        first = asyncio.create_task(call(agent, request("first", timeout_seconds=20.0), by=by))
        await asyncio.sleep(1 - 1e-6)
        second = asyncio.create_task(call(agent, request("second"), by=by))
        with pytest.raises(errors.TimedOut, match=words) as caught:
            await first
        assert virtual_clock() == pytest.approx(end, abs=0.01)
        assert (await second)[0].output == "hello"
        assert caught.value.attempts == 1
        assert "attempt 1: Overloaded: the service has no room" in caught.value.__notes__


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
        assert (agent.requests, events) == ((), [])

    @pytest.mark.requirement("R14")
    @each("moment", [0.0, 0.5, 1.5, 20.0, 31.5, 32.5, 90.0, 300.0])
    @virtually
    async def test_a_cancellation_at_any_moment_leaves_nothing_running(self, moment: float) -> None:
        limit = [rate_limited(3 * 3600)] if moment == 300.0 else []
        agent = ScriptedAgent([Delay(1.0, overloaded()), Delay(29.0, overloaded()), *limit, Hang()])
        by = caller(concurrency=1, quota_wait=QuotaWait.WITHIN_TIMEOUT)
        events: list[AgentEvent] = []
        asked = request(timeout_seconds=4 * 3600.0)
        task = asyncio.create_task(by.call(asked, agent=agent, emit=events.append))
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (virtual_clock(), agent.running) == (moment, 0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if not limit:
            assert (await call(ScriptedAgent([HELLO]), by=by))[0].output == "hello"
        if moment:
            assert isinstance(events[-1], AgentFinished)
            assert not events[-1].success


def test_a_call_that_may_write_says_which_files_changed_and_others_are_not_looked_at() -> None:
    watch = AsyncMock(return_value=AsyncMock(return_value=("a.py", "b.py")))
    agent = Timed(outcome=result(files_changed=("b.py", "c.py")), limits=AgentLimits(writes=True))
    writing = request(permission_mode=PermissionMode.ACCEPT_EDITS)
    assert answered(agent, writing, watch=watch).files_changed == ("a.py", "b.py", "c.py")
    answered(agent, request(permission_mode=PermissionMode.PLAN), watch=watch)
    watch.assert_awaited_once_with(Path())
    broken = AsyncMock(side_effect=errors.GitFailed("git failed", program="git", status=1))
    for failed in (broken, AsyncMock(return_value=broken)):
        assert answered(agent, writing, watch=failed).notes == (
            "the changed files could not be determined: git failed",
        )


def quotas(events: list[AgentEvent]) -> list[QuotaEnded]:
    return [event for event in events if isinstance(event, QuotaEnded)]


class TestQuotas:
    @virtually
    async def test_a_long_quota_fails_at_once_and_no_other_call_is_made_while_it_is_closed(self) -> None:
        events: list[AgentEvent] = []
        agent, by = ScriptedAgent([rate_limited(3600), Text("open again")]), caller()
        with pytest.raises(RateLimited) as caught:
            await by.call(request(), agent=agent, emit=events.append)
        opens = "too many requests; it opens again at 2030-01-01 01:00:00 UTC (in 60 minutes)"
        assert (caught.value.message, caught.value.retry_after_seconds, caught.value.attempts) == (opens, 3600, 1)
        assert quotas(events) == [QuotaEnded("scripted", MIDNIGHT + timedelta(hours=1), waiting=False)]
        for _ in range(2):
            with pytest.raises(RateLimited):
                await call(agent, by=by)
        assert (len(agent.requests), virtual_clock()) == (1, 0)
        await asyncio.sleep(3600)
        assert (await call(agent, by=by))[0].output == "open again"

    @virtually
    async def test_it_is_waited_for_when_that_is_wanted_and_other_calls_wait_too(self) -> None:
        agent = Timed(rate_limited(3 * 3600), Delay(1.0, Text("open again")))
        by = caller(quota_wait=QuotaWait.WITHIN_TIMEOUT)
        asked = [request(f"say {number}", timeout_seconds=4 * 3600.0) for number in range(6)]
        (answer, events), *others = await asyncio.gather(*(call(agent, one, by=by) for one in asked))
        assert (answer.output, answer.attempts) == ("open again", 2)
        assert [other.output for other, _ in others] == ["open again"] * 5
        assert all(3590 < again.timeout_seconds <= 3600 for again in agent.requests[-1:]), "the time began anew"
        assert 3 * 3600 <= virtual_clock() <= 3 * 3600 + 8
        assert quotas(events) == [QuotaEnded("scripted", MIDNIGHT + timedelta(hours=3), waiting=True)]

    @virtually
    async def test_when_nobody_says_when_it_opens_it_is_looked_at_every_few_minutes_but_not_for_ever(self) -> None:
        agent = ScriptedAgent([*[rate_limited() for _ in range(6)], Text("open again")])
        answer, events = await call(agent, by=caller(quota_wait=QuotaWait.WITHIN_TIMEOUT))
        assert answer.attempts == 7
        assert quotas(events) == [QuotaEnded("scripted", None, waiting=True)] * 2
        began = virtual_clock()
        with pytest.raises(RateLimited):
            await call(
                ScriptedAgent([rate_limited()]),
                request(timeout_seconds=3600.0),
                by=caller(quota_wait=QuotaWait.WITHIN_TIMEOUT),
            )
        assert 3000 < virtual_clock() - began <= 3600

    @pytest.mark.defect("W7")
    @virtually
    async def test_a_call_that_waits_until_the_reset_has_all_its_time_after_it(self) -> None:
        agent, by = Timed(rate_limited(5 * 3600), Text("open again")), caller(quota_wait=QuotaWait.UNTIL_RESET)
        answer, events = await call(agent, request(timeout_seconds=60.0), by=by)
        assert (answer.output, len(agent.requests)) == ("open again", 2)
        assert 5 * 3600 <= virtual_clock() <= 5 * 3600 + 8
        assert agent.requests[-1].timeout_seconds == 60.0
        assert quotas(events) == [QuotaEnded("scripted", MIDNIGHT + timedelta(hours=5), waiting=True)]

    @pytest.mark.defect("W7")
    @virtually
    async def test_the_deadline_of_the_run_bounds_the_wait_for_a_reset(self) -> None:
        agent = ScriptedAgent([rate_limited(5 * 3600)])
        by = caller(quota_wait=QuotaWait.UNTIL_RESET, budget=spending(deadline=3600.0))
        with pytest.raises(RateLimited):
            await call(agent, request(timeout_seconds=60.0), by=by)
        assert virtual_clock() == 0

    @pytest.mark.defect("L5")
    @each(
        ("asked", "most", "deadline"),
        [(3600, 10, None), (11, 10, None), (None, 10, None), (None, 200, None), (9e6, 9e4, None), (3600, 9e3, 1800)],
    )
    @virtually
    async def test_the_time_of_the_call_covers_the_wait_and_one_that_does_not_fit_is_not_begun(
        self, asked: float | None, most: float, deadline: float | None
    ) -> None:
        events: list[AgentEvent] = []
        agent = ScriptedAgent([rate_limited(asked)])
        by = caller(quota_wait=QuotaWait.WITHIN_TIMEOUT, budget=spending(deadline=deadline))
        with pytest.raises(RateLimited) as caught:
            await by.call(request(timeout_seconds=float(most)), agent=agent, emit=events.append)
        assert virtual_clock() == 0 if asked is not None else virtual_clock() < most
        assert any("not waited for" in note for note in caught.value.__notes__)
        assert asked is None or "opens again at" in caught.value.message
        assert [event.waiting for event in quotas(events)] == [False]

    @pytest.mark.defect("L5")
    @each(("most", "times"), [(1.9, [0]), (3, [0, 1.5]), (10, [0, 5, 7.5]), (300, [0, 30, 90])])
    def test_a_wait_that_nobody_asked_for_is_as_long_as_the_time_of_the_call_allows(
        self, most: float, times: list[float]
    ) -> None:
        assert "does not open again within ten years" in failure(ScriptedAgent([rate_limited(1e300)])).message
        agent = Timed(rate_limited())
        error = failure(agent, request(timeout_seconds=most))
        assert (agent.times, error.attempts) == (times, len(times))
        assert any("not retried: " in note for note in error.__notes__)

    @pytest.mark.defect("L5")
    @virtually
    async def test_a_pause_that_another_call_was_asked_for_is_not_waited_for_beyond_the_time_of_a_call(self) -> None:
        agent, by = ScriptedAgent([rate_limited(200), HELLO]), caller()
        first = asyncio.create_task(call(agent, request(timeout_seconds=600.0), by=by))
        await asyncio.sleep(1)
        with pytest.raises(RateLimited, match="opens again at"):
            await call(agent, request("other", timeout_seconds=10.0), by=by)
        assert virtual_clock() == 1
        assert (await first)[0].output == "hello"


MISSING = NotInstalled("the package is not here", agent="agent_sdk", hint="pip install it")
LOGGED_OUT = NotLoggedIn("no key is set", agent="agent_sdk", hint="set a key")


def chain(*steps: AgentStep) -> list[Agent]:
    names = ("agent_sdk", "codex", "gemini")
    return [ScriptedAgent([step], name=name) for name, step in zip(names, steps, strict=False)]


class TestChains:
    def test_the_next_agent_takes_over_where_one_is_missing_or_limited_and_the_result_says_so(self) -> None:
        secret = answered(chain(NotLoggedIn(f"bad key {TOKEN}", agent="agent_sdk"), HELLO))
        assert secret.notes == ("agent_sdk was not used: bad key [redacted]",)
        for error in (MISSING, LOGGED_OUT, rate_limited(7200)):
            agents = chain(error, result("from the second", notes=("a note of its own",)))
            answer, events = run_virtually(call(agents, by=caller(quota_wait=QuotaWait.WITHIN_TIMEOUT)))
            assert (answer.output, answer.agent) == ("from the second", "codex")
            fallen = [event for event in events if isinstance(event, FellBack)]
            assert fallen == [FellBack("agent_sdk", "codex", fallen[0].reason)]
            assert fallen[0].reason.startswith(error.message)
            assert answer.notes == (f"{error.agent} was not used: {fallen[0].reason}", "a note of its own")
            assert isinstance(events[-1], AgentFinished)
            assert (events[-1].agent, events[-1].success, events[-1].duration_ms) == ("codex", True, 0)
        for other in (errors.OutputInvalid("no", agent="agent_sdk"), errors.Crashed("it crashed", agent="agent_sdk")):
            agents = chain(other, result())
            assert type(failure(agents)) is type(other)
            assert isinstance(agents[1], ScriptedAgent)
            assert agents[1].requests == ()

    @each(
        ("steps", "message", "hint"),
        [
            (
                [MISSING, LOGGED_OUT, NotLoggedIn("gemini: no login", agent="gemini", hint="log in")],
                "no agent can be used: agent_sdk: the package is not here; agent_sdk: no key is set; gemini: no login",
                "pip install it; or set a key; or log in",
            ),
            (
                [
                    NotInstalled("agent_sdk is not here", agent="agent_sdk", hint="pip install a"),
                    NotInstalled("codex is not here", agent="codex", hint="npm install b, or pip install a"),
                ],
                "no agent can be used: agent_sdk is not here; codex is not here",
                "npm install b, or pip install a",
            ),
            (
                [LOGGED_OUT, errors.Crashed("codex crashed", agent="codex")],
                "no agent answered: agent_sdk: no key is set; codex crashed",
                "set a key",
            ),
            ([MISSING], "the package is not here", "pip install it"),
            ([], "no agent was named, so no call was made", "name at least one agent"),
        ],
    )
    @pytest.mark.defect("A8")
    def test_the_error_of_a_chain_names_every_agent_in_order(
        self, steps: list[AgentStep], message: str, hint: str
    ) -> None:
        error = failure(chain(*steps))
        assert (error.message, str(error), error.hint) == (message, message, hint)

    @pytest.mark.defect("A8")
    def test_the_kind_is_that_of_the_last_usable_agent_else_the_first(self) -> None:
        crashed = errors.Crashed("it crashed", agent="codex")
        without_model = errors.InvalidRequest("no model", agent="codex", unusable=True)
        for steps, kind in (
            ([LOGGED_OUT, MISSING], NotLoggedIn),
            ([MISSING, LOGGED_OUT], NotInstalled),
            ([rate_limited(7200), MISSING], RateLimited),
            ([rate_limited(7200), crashed], errors.Crashed),
            ([MISSING, crashed], errors.Crashed),
            ([LOGGED_OUT, without_model], NotLoggedIn),
        ):
            assert type(failure(chain(*steps))) is kind, steps
        assert answered(chain(without_model, result("from the second"))).output == "from the second"

    def test_only_an_agent_of_the_same_vendor_is_asked_for_the_model_too(self) -> None:
        def second_of(first: str, second: str, asked: AgentRequest) -> tuple[AgentRequest, tuple[str, ...]]:
            agents = [
                ScriptedAgent([NotInstalled("not here", agent=first)], name=first),
                ScriptedAgent([result()], name=second),
            ]
            answer = answered([*agents], asked)
            assert agents[0].requests[0].model == asked.model
            return agents[1].requests[0], answer.notes[1:]

        asked = request(model="opus", fallback_model="haiku")
        for first, second in (("agent_sdk", "claude_cli"), ("claude_cli", "agent_sdk")):
            reached, notes = second_of(first, second, asked)
            assert (reached.model, reached.fallback_model, notes) == ("opus", "haiku", ())
        for first, second in (("agent_sdk", "codex"), ("codex", "claude_cli"), ("claude_cli", "api"), ("api", "codex")):
            reached, notes = second_of(first, second, asked)
            assert (reached.model, reached.fallback_model) == (None, None)
            words = "used its own default model, because opus or haiku was meant for"
            assert notes == (f"{second} {words} {first}",)
        assert second_of("agent_sdk", "codex", request())[1] == ()
