from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.agents.calls.program import Failure
from codeloupe.agents.claude.cli import CLAUDE_CLI
from codeloupe.agents.claude.output import (
    Progress,
    Told,
    answer_in,
    ended_without_result,
    error_in,
    spent_in,
    tool_detail,
)
from codeloupe.errors import (
    AgentError,
    BudgetExhausted,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Refused,
    TurnsExhausted,
)
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from tests.unit.agents.claude_captures import FOLDER, Capture, capture, unheard

TOLD = Told(program=CLAUDE_CLI, asked_model="some-model", session_id="told-before")
NOW = 1_700_000_000.0

FAILURES: list[tuple[str, type[AgentError], str]] = [
    ("budget", BudgetExhausted, "Reached maximum budget"),
    ("turns", TurnsExhausted, "Reached maximum number of turns (1)"),
    ("schema_violated", OutputInvalid, "/answer: must be integer"),
    ("answer_empty", OutputInvalid, "its answer is empty"),
    ("max_tokens", OutputInvalid, "output token maximum"),
    ("refusal", Refused, "safeguards flagged"),
    ("login_missing", NotLoggedIn, "Not logged in"),
    ("status_401", NotLoggedIn, "(401)"),
    ("status_403", NotLoggedIn, "(403)"),
    ("status_400_credit", NotLoggedIn, "Credit balance is too low"),
    ("status_400_too_long", PromptTooLong, "~250000 tokens"),
    ("status_413", PromptTooLong, "(413)"),
    ("input_over_window", PromptTooLong, "Prompt is too long"),
    ("input_over_10mb", PromptTooLong, "exceeds 10MB"),
    ("status_404", InvalidRequest, "issue with the selected model"),
    ("status_429", RateLimited, "(429)"),
    ("status_429_long", RateLimited, "(429)"),
    ("status_500", Overloaded, "(500)"),
    ("status_529", Overloaded, "(529)"),
    ("connection_refused", ConnectionFailed, "ECONNREFUSED"),
    ("reply_empty", ConnectionFailed, "empty or malformed"),
    ("reply_garbage", ConnectionFailed, "empty or malformed"),
    ("retry_429_after_1", RateLimited, "rate_limit"),
    ("retry_500", Overloaded, "server_error"),
    ("retry_cut", ConnectionFailed, "the connection was not made, or cut"),
    ("session_unknown", InvalidRequest, "No conversation found"),
    ("session_unknown_streamed", InvalidRequest, "No conversation found"),
    ("bypass_as_root", InvalidRequest, "root/sudo"),
    ("flag_unknown", NotInstalled, "unknown option"),
    ("input_empty", Crashed, "Input must be provided"),
    ("interrupted", Crashed, "exit code 0"),
    ("terminated", Crashed, "exit code 143"),
]
ANSWERS = ["answer", "schema", "schema_as_text", "model_fallback", "denied", "command"]


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(("name", "kind", "words"), FAILURES)
def test_every_failure_of_the_program_has_its_error(name: str, kind: type[AgentError], words: str) -> None:
    with pytest.raises(AgentError) as raised:
        capture(name).replayed()
    assert type(raised.value) is kind
    assert words in raised.value.message
    assert raised.value.message.startswith("claude_cli ")
    assert raised.value.hint
    assert raised.value.agent == "claude_cli"


def test_every_recorded_run_is_either_an_answer_or_a_failure_here() -> None:
    recorded = {file.stem for file in (FOLDER / "claude").glob("*.json")}
    assert recorded == {name for name, _, _ in FAILURES} | set(ANSWERS)


@pytest.mark.requirement("R12")
@pytest.mark.parametrize("name", [name for name, _, _ in FAILURES if not name.startswith(("input_", "session_"))])
def test_an_error_keeps_what_was_printed_and_the_session(name: str) -> None:
    run = capture(name)
    with pytest.raises(AgentError) as raised:
        run.replayed()
    if run.stdout:
        assert raised.value.session_id in run.stdout
        assert json.loads(raised.value.raw_output)


def assistant(*blocks: dict[str, Any], identity: str = "m1", **more: Any) -> dict[str, Any]:
    said = {"id": identity, "model": "claude-opus-5-5", "content": list(blocks)}
    return {"type": "assistant", "message": said, "parent_tool_use_id": None, **more}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def used(tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": tool, "input": given}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((), ""),
        ((assistant(words("a ")), assistant(words("b")), assistant(words(" c"), identity="m2")), "a b c"),
        ((assistant(words("let me look"), used("Read")), assistant(words("it is"), identity="m2")), "it is"),
        ((assistant(words("now"), used("StructuredOutput", answer="P0")),), '{"answer": "P0"}'),
        ((assistant(words("mine")), assistant(words("a helper's"), parent_tool_use_id="t1")), "mine"),
    ],
    ids=["nothing", "continued", "after a tool", "a value", "by another"],
)
@pytest.mark.parametrize("name", ["max_tokens", "schema_violated"])
def test_an_answer_that_does_not_count_is_told_with_its_cost(
    name: str, messages: tuple[dict[str, Any], ...], said: str
) -> None:
    recorded = capture(name)
    stdout = "\n".join(json.dumps(message) for message in (*messages, recorded.result))
    with pytest.raises(OutputInvalid) as raised:
        Capture(1, stdout, "").replayed()
    assert raised.value.output == said
    assert raised.value.cut_off is (name == "max_tokens")
    assert raised.value.cost_usd == recorded.result["total_cost_usd"]
    assert raised.value.usage.input_tokens > 0


def test_what_a_call_without_an_answer_cost_is_told_too() -> None:
    with pytest.raises(TurnsExhausted) as raised:
        capture("turns").replayed()
    assert raised.value.cost_usd == capture("turns").result["total_cost_usd"] > 0
    assert raised.value.usage.output_tokens > 0


@pytest.mark.requirement("R7")
def test_an_answer_has_all_that_the_program_tells() -> None:
    found = capture("answer").replayed()
    assert found == AgentResult(
        success=True,
        output="hello from fake",
        agent="claude_cli",
        session_id="412de245-ea70-4c3c-81b9-dbcad5def073",
        duration_ms=found.duration_ms,
        num_turns=1,
        total_cost_usd=0.047028,
        usage=TokenUsage(input_tokens=11697, output_tokens=12),
        model="claude-opus-5-5",
        raw_output=found.raw_output,
    )
    assert found.duration_ms > 1
    assert json.loads(found.raw_output) == capture("answer").result


def test_a_structured_answer_is_kept_as_a_value_and_as_text() -> None:
    found = capture("schema").replayed()
    assert found.structured == {"answer": 42}
    assert json.loads(found.output) == {"answer": 42}


def test_a_schema_that_was_answered_in_prose_gives_the_prose_and_no_value() -> None:
    found = capture("schema_as_text").replayed()
    assert (found.structured, found.output) == (None, "Sorry, here is prose.")


def test_a_structured_answer_without_text_is_an_answer() -> None:
    bare = {**capture("schema").result, "result": ""}
    assert json.loads(answer_in(bare, TOLD, duration_ms=1, now=NOW).output) == {"answer": 42}


def test_what_was_denied_is_listed_with_what_it_was_for() -> None:
    assert capture("denied").replayed().permission_denials == ("Write /outside/new.txt", "Read /etc/hostname")


def test_a_switch_of_models_is_told_and_the_model_that_answered_is_named() -> None:
    request = AgentRequest(prompt="x", working_dir=Path(), fallback_model="claude-haiku-4-5")
    found = capture("model_fallback").replayed(request)
    assert found.model == "claude-haiku-4-5"
    assert found.notes == ("claude_cli switched from the model claude-opus-5-5 to claude-haiku-4-5: overloaded",)


def test_without_a_model_to_fall_back_to_the_first_retry_ends_the_attempt() -> None:
    with pytest.raises(Overloaded):
        capture("model_fallback").replayed()


def test_tokens_count_everything_that_was_sent_and_what_was_cached_apart() -> None:
    by_model = {
        "a": {"inputTokens": 10, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 3, "outputTokens": 2},
        "b": {"inputTokens": 1, "outputTokens": 1},
    }
    assert spent_in({"modelUsage": by_model}, resumed=False).usage == TokenUsage(
        input_tokens=19, cached_tokens=5, output_tokens=3
    )
    plain = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 4}
    assert spent_in({"usage": plain}, resumed=False).usage == TokenUsage(
        input_tokens=10, cached_tokens=2, output_tokens=4
    )


def test_a_resumed_session_costs_what_this_run_took_of_its_total() -> None:
    result = {
        "total_cost_usd": 3.0,
        "usage": {"input_tokens": 100, "output_tokens": 20},
        "modelUsage": {"m": {"inputTokens": 300, "outputTokens": 60}},
    }
    spent = spent_in(result, resumed=True)
    assert spent.cost_usd == pytest.approx(1.0)
    assert spent.usage == TokenUsage(input_tokens=100, output_tokens=20)
    assert "whole session" in spent.notes("claude_cli")[0]
    whole = spent_in(result, resumed=False)
    assert (whole.cost_usd, whole.usage.input_tokens, whole.notes("claude_cli")) == (3.0, 300, ())


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 900}, "none"])
def test_a_share_that_cannot_be_reckoned_is_the_whole(usage: object) -> None:
    result = {"total_cost_usd": 3.0, "usage": usage, "modelUsage": {"m": {"inputTokens": 300}}}
    assert spent_in(result, resumed=True).cost_usd == 3.0


@pytest.mark.parametrize("seconds", [1, 59])
def test_a_wait_that_the_service_asked_for_is_told(seconds: int) -> None:
    with pytest.raises(RateLimited) as raised:
        _take({"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": seconds * 1000})
    assert raised.value.retry_after_seconds == seconds
    assert raised.value.retryable


def test_the_wait_of_the_program_itself_is_none_of_the_service() -> None:
    with pytest.raises(RateLimited) as raised:
        _take({"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 625})
    assert raised.value.retry_after_seconds is None


def test_a_quota_that_ended_tells_when_it_opens_again() -> None:
    info = {"status": "rejected", "resetsAt": NOW + 3600}
    progress = Progress(AgentRequest(prompt="x", working_dir=Path()), program=CLAUDE_CLI, emit=unheard)
    progress.take({"type": "rate_limit_event", "rate_limit_info": info})
    error = error_in(capture("status_429").result, progress.told(), now=NOW)
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 3600


def test_a_quota_that_ended_outweighs_the_wait_of_one_request() -> None:
    with pytest.raises(RateLimited) as raised:
        _take(
            {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": time.time() + 3600}},
            {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 1000},
        )
    assert raised.value.retry_after_seconds == pytest.approx(3600, abs=60)


def test_a_quota_with_room_left_is_no_limit() -> None:
    progress = Progress(AgentRequest(prompt="x", working_dir=Path()), program=CLAUDE_CLI, emit=unheard)
    progress.take({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "resetsAt": NOW}})
    assert progress.told().quota_opens_at is None


def test_a_moment_in_the_text_of_a_limit_is_understood() -> None:
    told = {"is_error": True, "terminal_reason": "api_error", "result": f"Usage limit reached|{NOW + 60:.0f}"}
    error = error_in(told, TOLD, now=NOW)
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 60


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"is_error": None}, Crashed),
        ({"is_error": "false"}, Crashed),
        ({"terminal_reason": "aborted_streaming"}, Crashed),
        ({"result": None}, OutputInvalid),
        ({"result": " \n"}, OutputInvalid),
        ({"result": 7}, OutputInvalid),
        ({"is_error": True, "terminal_reason": "api_error"}, ConnectionFailed),
        ({"is_error": True, "api_error_status": 400}, InvalidRequest),
        ({"is_error": True, "api_error_status": 408}, ConnectionFailed),
        ({"is_error": True, "api_error_status": 503}, Overloaded),
        ({"is_error": True, "terminal_reason": None, "subtype": "error_max_turns"}, TurnsExhausted),
    ],
)
def test_an_answer_counts_only_when_all_of_it_is_well(change: dict[str, Any], kind: type[AgentError]) -> None:
    with pytest.raises(AgentError) as raised:
        answer_in({**capture("answer").result, **change}, TOLD, duration_ms=1, now=NOW)
    assert type(raised.value) is kind


def test_a_wrong_request_names_the_model_that_was_asked_for() -> None:
    error = error_in(capture("status_404").result, TOLD, now=NOW)
    assert "some-model" in error.hint
    assert "default" in error_in(capture("status_404").result, replace(TOLD, asked_model=None), now=NOW).hint


def test_long_and_many_lined_words_of_the_program_are_shortened_to_one_line() -> None:
    error = error_in({"is_error": True, "result": "a\nb " * 1000}, TOLD, now=NOW)
    assert "\n" not in error.message
    assert len(error.message) < 700


@pytest.mark.requirement("R10")
def test_a_crash_keeps_the_exit_code_and_the_last_words() -> None:
    error = ended_without_result(Failure(program=CLAUDE_CLI), exit_code=134, stderr="x" * 9000 + "the end")
    assert isinstance(error, Crashed)
    assert error.status == 134
    assert error.stderr_tail.endswith("the end")
    assert len(error.stderr_tail) <= 4000


def test_a_run_tells_turns_tools_tokens_and_cost() -> None:
    events: list[AgentEvent] = []
    capture("denied").replayed(events=events)
    assert [event for event in events if isinstance(event, ToolUsed)] == [
        ToolUsed("claude_cli", "Write", "/outside/new.txt"),
        ToolUsed("claude_cli", "Read", "/etc/hostname"),
    ]
    assert [event.turn for event in events if isinstance(event, TurnTaken)] == [1, 2, 3]
    spent = [event for event in events if isinstance(event, TokensSpent)]
    assert [event.input_tokens for event in spent] == [100, 200, 300, 300]
    assert spent[-1] == TokensSpent("claude_cli", 300, 60, 0.0024000000000000002)


def test_parts_of_one_message_are_one_turn_and_a_helper_of_the_agent_takes_none() -> None:
    said = {"id": "m1", "model": "a", "content": [{"type": "tool_use", "name": "Read", "input": {"file_path": "f"}}]}
    events = _take(
        {"type": "assistant", "message": said},
        {"type": "assistant", "message": said},
        {"type": "assistant", "message": {**said, "id": "m2"}, "parent_tool_use_id": "t"},
    )
    assert [event for event in events if isinstance(event, TurnTaken)] == [TurnTaken("claude_cli", 1)]
    assert len([event for event in events if isinstance(event, ToolUsed)]) == 3


def test_a_message_that_the_program_made_up_is_no_turn() -> None:
    assert _take({"type": "assistant", "message": {"id": "m1", "model": "<synthetic>", "content": []}}) == []


def test_the_tool_for_the_schema_is_no_tool_that_is_told() -> None:
    events: list[AgentEvent] = []
    schema = {"type": "tool_use", "name": "StructuredOutput", "input": {"answer": 1}}
    events = _take({"type": "assistant", "message": {"id": "m", "model": "a", "content": [schema]}})
    assert not [event for event in events if isinstance(event, ToolUsed)]


def test_what_a_tool_is_used_on_is_one_short_line() -> None:
    assert tool_detail({"command": "\n  git log\nrm -r /"}) == "git log"
    assert len(tool_detail({"pattern": "x" * 5000})) == 80
    assert tool_detail({"content": "secret"}) == ""
    assert tool_detail(None) == ""


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_NAMES = [
    "message", "result", "is_error", "usage", "modelUsage", "errors", "session_id", "api_error_status",
    "terminal_reason", "permission_denials", "rate_limit_info", "error_status", "retry_delay_ms", "structured_output",
]  # fmt: skip
_TYPES = st.sampled_from(["assistant", "result", "system", "rate_limit_event", "user"])
_SUBTYPES = st.sampled_from(["api_retry", "model_fallback", "success", "init"])


@given(st.dictionaries(st.sampled_from(_NAMES), _JSON, max_size=5), _TYPES, _SUBTYPES)
def test_no_shape_of_a_message_breaks_the_reader(message: dict[str, Any], kind: str, subtype: str) -> None:
    message |= {"type": kind, "subtype": subtype}
    progress = Progress(AgentRequest(prompt="x", working_dir=Path()), program=CLAUDE_CLI, emit=unheard)
    with contextlib.suppress(AgentError):
        progress.take(message)
        assert answer_in(message, progress.told(), duration_ms=1, now=NOW).output.strip()


def _take(*messages: dict[str, Any]) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    progress = Progress(AgentRequest(prompt="x", working_dir=Path()), program=CLAUDE_CLI, emit=events.append)
    for message in messages:
        progress.take(message)
    return events
