"""One suite for every agent: the real programs and packages, before a model server that does what it is told."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe import errors
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.agents.calls.schemas import check_output
from codeloupe.model.agent import AttemptFailed, PermissionMode, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.testing import Cut, Delay, Empty, Garbage, Hang, Json, MaxTokens, Refusal, Reply, Stall, Status, Text
from tests.agent_factories import AGENTS, AgentFactory, asked_for, assert_nothing_runs_in, every_agent, on_stage
from tests.endings import FAR_TOO_LONG_SECONDS, ends_soon

# A program that takes seconds to start when nothing else runs takes many when the machine is busy.
pytestmark = pytest.mark.timeout(400)
START_SECONDS = 90.0
PROJECT = Path(__file__).parents[2]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def check_error(factory: AgentFactory, error: errors.AgentError, kind: type[errors.AgentError]) -> None:
    assert type(error) is kind
    assert (error.agent, error.retryable) == (factory.name, kind.retryable)
    assert factory.name in error.message
    assert error.hint


def check_answer(factory: AgentFactory, work: Path, start: str) -> None:
    """The first attempt meets a rate limit; the second sends all that was asked, as text, and its answer is whole."""
    secret = work.parent / "secret.txt"
    secret.write_text("the-secret-of-the-file")
    (work / "inside.txt").write_text("the-text-of-the-other-file")
    asked = asked_for(
        work,
        f"{start} this. Grüße, 你好 🙂 – see @/etc/hostname, @{secret} and @inside.txt",
        model=factory.model,
        append_system_prompt="Be kind to the reader.",
        context={"The diff": "+ added 🚀"},
    )
    answer = Text("Hello 🙂", usage=TokenUsage(input_tokens=70, output_tokens=9))
    caller = AgentCaller(CallerOptions(retry=RetryPolicy(attempts=2, rate_limit_min_seconds=0.1)))
    with on_stage(factory, Status(429, retry_after=1), answer) as stage:
        result = asyncio.run(caller.call(asked, agent=stage, emit=stage.events.append))
        expected = (factory.as_sent(asked.prompt), "The diff", "+ added 🚀", "Be kind to the reader.")
        assert all(map(stage.sent, expected))
        assert not any(map(stage.sent, ("the-secret-of-the-file", "the-text-of-the-other-file")))
        assert (stage.calls, result.attempts) == (2, 2)
    (error,) = stage.failures
    assert isinstance(error, errors.RateLimited)
    check_error(factory, error, errors.RateLimited)
    assert error.retry_after_seconds == 1
    assert [event.error for event in stage.events if isinstance(event, AttemptFailed)] == ["RateLimited"]
    assert (result.success, result.output, result.agent, result.error) == (True, "Hello 🙂", factory.name, None)
    assert result.usage == TokenUsage(input_tokens=70, output_tokens=9)
    assert (result.model, result.num_turns) == (factory.model, 1)
    assert result.duration_ms > 0
    assert bool(result.session_id) is factory.tells_session
    assert (result.total_cost_usd is not None) is factory.tells_cost
    assert TurnTaken(factory.name, 1) in stage.events
    assert [event for event in stage.events if isinstance(event, TokensSpent)][-1].input_tokens == 70
    assert not (work / "marker").exists()
    assert_nothing_runs_in(work)


@pytest.mark.requirement("R1")
@pytest.mark.requirement("R3")
@pytest.mark.requirement("R5")
@pytest.mark.requirement("R7")
@pytest.mark.requirement("R10")
@pytest.mark.requirement("R13")
@pytest.mark.requirement("R16")
@every_agent(cases=[("/compact",)])
def test_the_second_attempt_sends_everything_as_text_and_its_answer_is_whole(
    factory: AgentFactory, work: Path, start: str
) -> None:
    check_answer(factory, work, start)


@pytest.mark.soak
@every_agent(cases=[("--help",), ("!touch marker;",)])
def test_a_prompt_is_text_whatever_else_it_looks_like(factory: AgentFactory, work: Path, start: str) -> None:
    check_answer(factory, work, start)


@pytest.mark.requirement("R3")
@every_agent()
def test_a_prompt_of_2_mb_is_sent_whole_or_refused_in_words_and_a_schema_is_answered_with_a_value(
    factory: AgentFactory, work: Path
) -> None:
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", **SCHEMA}
    prompt = "".join(f"line {number:07} of a long prompt\n" for number in range(68_000))[:2_000_000]
    answer: Reply = Delay(5.0, Json({"answer": 42})) if factory.repeats_prompt else Json({"answer": 42})
    with on_stage(factory, answer) as stage:
        most = stage.agent.limits.prompt.characters or len(prompt)
        if most < len(prompt):
            with pytest.raises(errors.PromptTooLong, match="2,000,000"):
                stage.answer(asked_for(work, prompt))
            assert stage.calls == 0
        assert stage.answer(asked_for(work, prompt[:most], output_schema=named)).structured == {"answer": 42}
        assert stage.sent(prompt[:most].strip())


@pytest.mark.defect("F1")
@every_agent()
def test_json_that_prose_quotes_is_not_a_structured_answer(factory: AgentFactory, work: Path) -> None:
    prose = 'The comment says {"answer": 42}, which is wrong.'
    asked = asked_for(work, output_schema=SCHEMA, accept_any_output=True)
    with on_stage(factory, Text(prose)) as stage:
        result = asyncio.run(AgentCaller().call(asked, agent=stage, emit=stage.events.append))
    assert (result.output, result.structured, result.other_answers) == (prose, None, ())
    assert bool(result.inexact) is not factory.tells_cut_off
    with pytest.raises(errors.OutputInvalid, match="text around the JSON"):
        check_output(result, SCHEMA)


@pytest.mark.soak
@every_agent()
def test_a_schema_that_is_not_kept_is_an_error_with_the_answer_and_its_price(factory: AgentFactory, work: Path) -> None:
    with on_stage(factory, Json({"answer": "forty-two"})) as stage, pytest.raises(errors.OutputInvalid) as raised:
        stage.answer(asked_for(work, output_schema=SCHEMA))
    error = raised.value
    assert error.raw_output
    assert (error.output, error.retryable) == ('{"answer": "forty-two"}', False)
    assert error.usage.input_tokens > 0
    assert (error.cost_usd is not None) is factory.tells_cost
    assert_nothing_runs_in(work)


@pytest.mark.requirement("R11")
@every_agent()
def test_the_check_finds_what_is_here_and_a_missing_login_is_told_with_what_to_set(
    factory: AgentFactory, work: Path
) -> None:
    with on_stage(factory) as stage:
        availability, limits = asyncio.run(stage.agent.check()), stage.agent.limits
        assert stage.server.requests == ()
    assert availability.usable
    assert availability.version
    assert availability.how_to_fix == ""
    assert stage.agent.name == factory.name
    assert (limits.turns, limits.budget) == (factory.keeps_turns, factory.keeps_budget)
    assert (limits.writes, limits.confined) == (factory.write is not None, factory.search is not None)
    with on_stage(factory, Text("never"), logged_in=False) as stage:
        with pytest.raises(errors.NotLoggedIn) as raised:
            stage.answer(asked_for(work))
        assert factory.key in raised.value.hint
        assert stage.calls == 0
        assert asyncio.run(stage.agent.check()).logged_in is False


FAILURES: list[tuple[Reply, type[errors.AgentError]]] = [
    (Status(401), errors.NotLoggedIn),
    (Cut(), errors.ConnectionFailed),
]
OTHER_FAILURES: list[tuple[Reply, type[errors.AgentError]]] = [
    (Status(404), errors.InvalidRequest),
    (Status(500), errors.Overloaded),
    (Status(529), errors.Overloaded),
    (Garbage(), errors.ConnectionFailed),
    (Empty(), errors.ConnectionFailed),
]


def check_failure(factory: AgentFactory, work: Path, reply: Reply, kind: type[errors.AgentError]) -> None:
    with on_stage(factory, reply) as stage, pytest.raises(errors.AgentError) as raised:
        stage.answer(asked_for(work, model=factory.model))
    check_error(factory, raised.value, kind)
    if kind.retryable:
        assert stage.calls == 1
    assert_nothing_runs_in(work)


@pytest.mark.requirement("R10")
@every_agent(cases=FAILURES)
def test_a_failure_that_does_not_end_is_told_as_what_it_is(
    factory: AgentFactory, work: Path, reply: Reply, kind: type[errors.AgentError]
) -> None:
    check_failure(factory, work, reply, kind)


@pytest.mark.soak
@every_agent(cases=OTHER_FAILURES)
def test_other_failures_are_told_as_what_they_are(
    factory: AgentFactory, work: Path, reply: Reply, kind: type[errors.AgentError]
) -> None:
    check_failure(factory, work, reply, kind)


@pytest.mark.defect("A4")
@every_agent()
def test_every_agent_reports_a_refusal_of_its_service(factory: AgentFactory, work: Path) -> None:
    for schema in (None, {"type": "object", "properties": {"findings": {"type": "string"}}, "required": ["findings"]}):
        with on_stage(factory, Refusal()) as stage, pytest.raises(errors.Refused, match="got a refusal from the model"):
            stage.answer(asked_for(work, model=factory.model, output_schema=schema))


@pytest.mark.soak
@every_agent(able=lambda factory: factory.tells_cut_off)
def test_an_answer_that_is_cut_off_is_reported_as_such(factory: AgentFactory, work: Path) -> None:
    with on_stage(factory, MaxTokens()) as stage, pytest.raises(errors.OutputInvalid) as raised:
        stage.answer(asked_for(work, model=factory.model))
    assert "was cut off" in raised.value.message
    assert raised.value.output.startswith(MaxTokens().text)
    accepting = asked_for(work, model=factory.model, accept_any_output=True)
    with on_stage(factory, MaxTokens()) as stage:
        result = asyncio.run(AgentCaller().call(accepting, agent=stage, emit=stage.events.append))
    assert "was cut off" in result.inexact
    assert result.output.startswith(MaxTokens().text)


@pytest.mark.requirement("R8")
@every_agent(
    cases=[(Hang(), {"timeout_seconds": 2.0}), (Stall("A beginning"), {"idle_timeout_seconds": 2.0})], at_once=5
)
def test_an_agent_that_hangs_is_ended_in_time(
    factory: AgentFactory, work: Path, reply: Reply, limits: dict[str, Any]
) -> None:
    with on_stage(factory, reply) as stage:
        with pytest.raises(errors.TimedOut, match="2 s") as raised, ends_soon():
            stage.answer(asked_for(work, **limits))
        assert stage.calls <= 1
    assert not raised.value.retryable
    assert_nothing_runs_in(work)


@pytest.mark.requirement("R1")
@pytest.mark.requirement("R14")
@every_agent()
def test_a_cancellation_is_raised_as_it_came_and_leaves_nothing_however_often_it_comes(
    factory: AgentFactory, work: Path
) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(stage.ask(asked_for(work, timeout_seconds=FAR_TOO_LONG_SECONDS)))
        assert await asyncio.to_thread(stage.server.wait_for, 1, timeout_seconds=START_SECONDS)
        for _ in range(3):
            task.cancel("enough")
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError), ends_soon():
            await task
        assert_nothing_runs_in(work)

    with on_stage(factory, Hang()) as stage:
        asyncio.run(cancelled())


@every_agent()
def test_a_cancellation_before_the_start_leaves_nothing(factory: AgentFactory, work: Path) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(stage.ask(asked_for(work)))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    with on_stage(factory, Hang()) as stage:
        asyncio.run(cancelled())
        assert stage.calls == 0
    assert_nothing_runs_in(work)


@pytest.mark.requirement("R9")
@every_agent(able=lambda factory: factory.keeps_turns)
def test_limits_of_turns_and_money_hold(factory: AgentFactory, work: Path) -> None:
    assert factory.read is not None
    (work / "a.txt").write_text("one\n")
    with on_stage(factory, factory.read(work / "a.txt")) as stage:
        with pytest.raises(errors.TurnsExhausted):
            stage.answer(asked_for(work, max_turns=2))
        assert stage.calls == 2
    assert len([event for event in stage.events if isinstance(event, ToolUsed)]) == 2
    if factory.keeps_budget:
        dear = Text("Hello.", usage=TokenUsage(input_tokens=2_000_000, output_tokens=100_000))
        with on_stage(factory, dear) as stage, pytest.raises(errors.BudgetExhausted):
            stage.answer(asked_for(work, max_budget_usd=0.01))
        assert stage.calls == 1


@pytest.mark.requirement("R6")
@every_agent(
    cases=[
        ({"working_dir": Path("/nowhere/at/all")}, "does not exist"),
        ({"prompt": "a NUL \0 byte"}, "NUL"),
        ({"prompt": "half \ud83d of it"}, "half of a character"),
        ({"prompt": "  \n"}, "empty"),
        ({"max_turns": 0}, "max_turns"),
        ({"output_schema": {"type": "nonsense"}}, "output_schema"),
        ({"permission_mode": PermissionMode.BYPASS}, "bypass"),
    ]
)
def test_a_request_that_cannot_be_sent_is_refused_in_words_before_the_start(
    factory: AgentFactory, work: Path, changes: dict[str, Any], words: str
) -> None:
    with on_stage(factory, Text("never")) as stage, pytest.raises(errors.InvalidRequest, match=words) as raised:
        stage.answer(asked_for(work, **changes))
    assert stage.server.requests == ()
    assert raised.value.hint


@pytest.mark.requirement("R4")
@every_agent(able=lambda factory: factory.write)
def test_only_an_agent_that_was_allowed_to_write_writes_and_a_confined_one_reads_nothing_outside_its_directory(
    factory: AgentFactory, work: Path
) -> None:
    assert factory.read is not None
    assert factory.write is not None
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("the-text-outside\n")
    (work / "inside.txt").write_text("the-text-inside\n")
    (work / "link.txt").symlink_to(outside / "a.txt")
    (work / "folder").symlink_to(outside)
    files = (outside / "a.txt", Path("../outside/a.txt"), work / "link.txt", work / "folder" / "a.txt")
    reads = map(factory.read, (work / "inside.txt", *files))
    looks = (*reads, factory.search(outside), factory.search(work)) if factory.search else ()
    writes = (factory.write(work / "new.txt", "written"), Text("Done."))
    with on_stage(factory, *looks, *writes) as stage:
        # Where the program would have to ask first, the tool can be named all the same.
        tools = ("Read", "Grep", "Write") if writes[0].name == "Write" else None
        result = stage.answer(asked_for(work, model=factory.model if looks else None, tools=tools))
        assert (result.output, stage.calls) == ("Done.", len(looks) + 2)
        assert stage.sent("the-text-inside") is bool(looks)
        assert not stage.sent("the-text-outside")
    assert not (work / "new.txt").exists()
    if factory.tells_denials:
        *unread, unwritten = result.permission_denials
        assert [denial.split()[0] for denial in unread] == [look.name for look in looks[1:-1]]
        assert unwritten == f"{writes[0].name} {str(work / 'new.txt')[:80]}"
    with on_stage(factory, *writes) as stage:
        stage.answer(asked_for(work, permission_mode=PermissionMode.ACCEPT_EDITS))
    assert (work / "new.txt").read_text() == "written"


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.agent_factories import AGENTS, asked_for, environment

async def main():
    agents = [factory.make(sys.argv[1], environment(factory)) for factory in AGENTS]
    asked = asked_for(Path(sys.argv[2]), timeout_seconds=300)
    await asyncio.gather(*(agent.run(asked, print) for agent in agents))

asyncio.run(main())
"""


def test_when_we_are_killed_the_programs_die_too(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # One server is that of all agents.
    with on_stage(AGENTS[0], Hang()) as stage:
        command = (sys.executable, "-c", KILLED, stage.server.url, str(work))
        # Who is killed cannot tidy up.
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(command, cwd=PROJECT, env=environment) as process:
            assert stage.server.wait_for(len(AGENTS), timeout_seconds=START_SECONDS)
            process.kill()
        assert_nothing_runs_in(work)
