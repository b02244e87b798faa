"""What the programs print, as the agents read it: recorded runs, and messages of any shape."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.program import Message
from codeloupe.agents.claude.cli import ClaudeCliAgent
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
from codeloupe.model.agent import AgentEvent, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from tests.unit.agents.call_samples import request
from tests.unit.agents.captures import AGENTS, EPOCH_NOW, Capture, capture, claude_run, names

Failures = list[tuple[str, type[AgentError], str]]
CLAUDE_FAILURES: Failures = [
    ("budget", BudgetExhausted, "Reached maximum budget"),
    ("turns", TurnsExhausted, "Reached maximum number of turns (1)"),
    ("schema_violated", OutputInvalid, "/answer: must be integer"),
    ("max_tokens", OutputInvalid, "output token maximum"),
    ("refusal", Refused, "safeguards flagged"),
    ("login_missing", NotLoggedIn, "Not logged in"),
    ("status_400_credit", NotLoggedIn, "Credit balance is too low"),
    ("status_400_too_long", PromptTooLong, "~250000 tokens"),
    ("input_over_window", PromptTooLong, "Prompt is too long"),
    ("input_over_10mb", PromptTooLong, "exceeds 10MB"),
    ("status_429_long", RateLimited, "(429)"),
    ("reply_empty", ConnectionFailed, "empty or malformed"),
    ("reply_garbage", ConnectionFailed, "empty or malformed"),
    ("retry_429_after_1", RateLimited, "rate_limit"),
    ("retry_500", Overloaded, "server_error"),
    ("retry_cut", ConnectionFailed, "the connection was not made, or cut"),
    ("session_unknown", InvalidRequest, "No conversation found"),
    ("session_unknown_streamed", InvalidRequest, "No conversation found"),
    ("bypass_as_root", InvalidRequest, "root/sudo"),
    ("input_empty", Crashed, "Input must be provided"),
    ("interrupted", Crashed, "exit code 0"),
    ("terminated", Crashed, "exit code 143"),
]
CODEX_FAILURES: Failures = [
    ("home_missing", InvalidRequest, "session that is to be resumed"),
    ("input_empty", Crashed, "No prompt provided"),
    ("input_too_long", PromptTooLong, "maximum length of 1048576"),
    ("key_missing", NotLoggedIn, "Missing environment variable"),
    ("max_tokens", OutputInvalid, "cut off"),
    ("not_a_repository", Crashed, "exit code 1"),
    ("refusal", OutputInvalid, "its answer is empty"),
    ("reply_cut", ConnectionFailed, "stream disconnected"),
    ("reply_cut_in_the_middle", ConnectionFailed, "error decoding response body"),
    ("reply_empty", ConnectionFailed, "stream closed"),
    ("reply_garbage", ConnectionFailed, "stream closed"),
    ("session_unknown", InvalidRequest, "no rollout found"),
    ("status_400_too_long", PromptTooLong, "context window"),
    ("status_429_in_stream", RateLimited, "Rate limit reached"),
    ("status_429_quota", NotLoggedIn, "Quota exceeded"),
    ("status_500_in_stream", ConnectionFailed, "stream disconnected"),
    ("terminated", Crashed, "exit code -15"),
]
GEMINI_FAILURES: Failures = [
    ("ended_from_outside", Crashed, "exit code 0"),
    ("input_empty", InvalidRequest, "No input provided"),
    ("key_not_valid", NotLoggedIn, "API key not valid"),
    ("login_missing", NotLoggedIn, "GEMINI_API_KEY"),
    ("not_trusted", NotInstalled, "not running in a trusted directory"),
    ("output_cut", PromptTooLong, "sent nothing"),
    ("refusal", Refused, "blocked due to safety"),
    ("reply_cut", ConnectionFailed, "fetch failed"),
    ("reply_cut_in_the_middle", ConnectionFailed, "terminated"),
    ("reply_empty", ConnectionFailed, "without a finish reason"),
    ("reply_garbage", ConnectionFailed, "Incomplete JSON"),
    ("settings_broken", InvalidRequest, ".gemini/settings.json"),
    ("status_500_in_stream", ConnectionFailed, "without a finish reason"),
    ("turns", TurnsExhausted, "max session turns"),
]
# As every program has them that has such a run.
COMMON_FAILURES: Failures = [
    ("answer_empty", OutputInvalid, "its answer is empty"),
    ("connection_refused", ConnectionFailed, ""),
    ("flag_unknown", NotInstalled, "too old"),
    ("status_400", InvalidRequest, "(400)"),
    ("status_401", NotLoggedIn, "(401)"),
    ("status_403", NotLoggedIn, "(403)"),
    ("status_404", InvalidRequest, "(404)"),
    ("status_413", PromptTooLong, "(413)"),
    ("status_429", RateLimited, "(429)"),
    ("status_429_retry_after", RateLimited, "(429)"),
    ("status_500", Overloaded, "(500)"),
    ("status_503", Overloaded, "(503)"),
    ("status_529", Overloaded, "(529)"),
]
FAILURES = {
    agent: own + [row for row in COMMON_FAILURES if row[0] in names(agent)]
    for agent, own in (("claude", CLAUDE_FAILURES), ("codex", CODEX_FAILURES), ("gemini", GEMINI_FAILURES))
}
ANSWERS = {
    "claude": {"answer", "schema", "schema_as_text", "model_fallback", "denied", "command"},
    "codex": {
        "answer", "answer_after_a_retry", "command", "file_change", "model_unknown_to_the_program", "schema",
        "schema_violated",
    },
    "gemini": {"answer", "max_tokens", "model_routed", "tools"},
}  # fmt: skip
Sentences = list[tuple[str, type[AgentError], float | None]]
CODEX_SENTENCES: Sentences = [
    ("You’ve hit your usage limit. Upgrade to Plus to go on, or try again at 3:45 PM.", RateLimited, 4480.0),
    ("You’ve hit your usage limit. Try again at 2:30 PM.", RateLimited, 0.0),
    ("You’ve hit your usage limit. Try again at 9:00 AM.", RateLimited, 66580.0),
    ("You've hit your usage limit for gpt-6. Try again at Nov 17th, 2026 2:30 PM.", RateLimited, 172780.0),
    ("You've hit your usage limit. Try again at Nov 99th, 2026 2:30 PM.", RateLimited, None),
    ("rate limit exceeded: Please try again in 6m0s.", RateLimited, 360.0),
    ("exceeded retry limit, last status: 429 Too Many Requests", RateLimited, None),
    ("Your workspace is out of credits. Add credits to continue.", NotLoggedIn, None),
    ("Your access token could not be refreshed. Please log out and sign in again.", NotLoggedIn, None),
    ("unexpected status 402 Payment Required: no", NotLoggedIn, None),
    ("Selected model is at capacity. Please try a different model.", Overloaded, None),
    ("unexpected status 502 Bad Gateway: no", Overloaded, None),
    ("workspace routing discovery failed", ConnectionFailed, None),
    ("stream disconnected before completion: idle timeout waiting for SSE", ConnectionFailed, None),
    ("Codex ran out of room in the model's context window.", PromptTooLong, None),
    (
        "stream disconnected before completion: Incomplete response returned, reason: content_filter",
        Refused,
        None,
    ),
    ("The model `gpt-9` does not exist or you do not have access to it.", InvalidRequest, None),
    ("internal error; agent loop died unexpectedly", Crashed, None),
    ("", InvalidRequest, None),
]
GEMINI_SENTENCES: Sentences = [
    ("You exceeded your current quota, please check your plan and billing details.", RateLimited, None),
    ("Resource exhausted. Please retry in 12.5s.", RateLimited, 12.5),
    ("You have exhausted your daily quota on this model.", RateLimited, None),
    ("The model is overloaded. Please try again later.", Overloaded, None),
    ("models/x is not found for API version v1beta", InvalidRequest, None),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", PromptTooLong, None),
    ("Request contains prohibited content.", Refused, None),
    ("getaddrinfo ENOTFOUND example", ConnectionFailed, None),
    ("self-signed certificate in certificate chain", ConnectionFailed, None),
    ("Manual authorization is required but the current session is non-interactive.", NotLoggedIn, None),
    ("something else", Crashed, None),
    ("", Crashed, None),
]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["answer"],
}


def error_of(run: Capture, asked: Any = None) -> AgentError:
    with pytest.raises(AgentError) as raised:
        run.replayed(asked)
    return raised.value


def failed(agent: str, text: str, stderr: str = "") -> AgentError:
    """The error of a run whose last message is about a failure."""
    said = {"message": text}
    last = {"type": "turn.failed", "error": said} if agent == "codex" else {"type": "result", "error": said}
    return error_of(Capture(agent, 0, json.dumps(last), stderr), request(model="gpt-9"))


@pytest.mark.requirement("R10")
@pytest.mark.requirement("R12")
def test_every_failure_of_a_program_has_its_error_which_keeps_what_was_printed_and_the_session() -> None:
    wrong = []
    for agent, (name, kind, words) in ((agent, row) for agent, rows in FAILURES.items() for row in rows):
        run = capture(agent, name)
        error = error_of(run)
        own = AGENTS[agent].program.agent
        is_well = type(error) is kind and words in error.message and error.message.startswith(f"{own} ")
        is_well = is_well and bool(error.hint) and error.agent == own
        if agent != "claude":
            is_well = is_well and error.raw_output == run.stdout and error.session_id in run.stdout
        elif run.stdout and not name.startswith(("input_", "session_")):
            is_well = is_well and error.session_id in run.stdout and bool(json.loads(error.raw_output))
        if not is_well:
            wrong.append((agent, name, error))
    assert wrong == []


def test_every_recorded_run_is_either_an_answer_or_a_failure_here() -> None:
    for agent, rows in FAILURES.items():
        assert names(agent) == {name for name, _, _ in rows} | ANSWERS[agent]


@pytest.mark.requirement("R12")
def test_a_run_that_is_cut_anywhere_is_never_an_answer() -> None:
    wrong: list[tuple[Capture, object]] = []
    for whole in (capture(agent, name) for agent in ("codex", "gemini") for name in sorted(names(agent))):
        ends = [len("".join(whole.lines[:count])) for count in range(len(whole.lines))]
        for exit_code, end in itertools.product((0, 1, 145, -9), {*ends, *(end + 20 for end in ends)}):
            cut = Capture(whole.agent, exit_code, whole.stdout[:end])
            try:
                if "turn.completed" not in cut.stdout:
                    wrong.append((cut, cut.replayed()))
            except AgentError as error:
                if not error.hint:
                    wrong.append((cut, error))
    assert wrong == []


@pytest.mark.requirement("R12")
def test_a_bad_exit_code_after_an_answer_does_not_undo_it() -> None:
    for agent, output in (("claude", "hello from fake"), ("codex", "hello from the stand-in")):
        assert Capture(agent, 1, capture(agent, "answer").stdout, "late trouble").replayed().output == output


@pytest.mark.requirement("R7")
def test_an_answer_has_all_that_the_program_tells() -> None:
    claude = capture("claude", "answer").replayed()
    assert claude == AgentResult(
        success=True,
        output="hello from fake",
        agent="claude_cli",
        session_id="412de245-ea70-4c3c-81b9-dbcad5def073",
        duration_ms=claude.duration_ms,
        num_turns=1,
        total_cost_usd=0.047028,
        usage=TokenUsage(input_tokens=11697, output_tokens=12),
        model="claude-opus-5-5",
        raw_output=claude.raw_output,
    )
    assert claude.duration_ms > 1
    assert json.loads(claude.raw_output) == capture("claude", "answer").result
    usage = TokenUsage(input_tokens=900, cached_tokens=300, output_tokens=40)
    for agent, model, session in (("codex", "gpt-6.1-sol", "thread_id"), ("gemini", "gemini-2.5-flash", "session_id")):
        events: list[AgentEvent] = []
        run = capture(agent, "answer")
        assert run.replayed(request(model="gpt-6.1-sol"), events) == AgentResult(
            success=True,
            output="hello from the stand-in",
            agent=agent,
            session_id=json.loads(run.lines[0])[session],
            duration_ms=1500,
            num_turns=1,
            usage=usage,
            model=model,
            raw_output=run.stdout,
        )
        assert events == [TurnTaken(agent, 1), TokensSpent(agent, 900, 40)]


def test_a_sentence_about_a_failure_tells_its_kind_and_the_wait() -> None:
    wrong = []
    for agent, (text, kind, wait) in (
        *(("codex", row) for row in CODEX_SENTENCES),
        *(("gemini", row) for row in GEMINI_SENTENCES),
    ):
        error = failed(agent, text)
        if type(error) is not kind or getattr(error, "retry_after_seconds", None) != wait:
            wrong.append((agent, text, error))
        if (agent, kind) == ("codex", InvalidRequest) and "gpt-9" not in error.hint:
            wrong.append((agent, text, error))
    assert wrong == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["agent_message", "command_execution", "file_change", "error"])},
    optional=dict.fromkeys(("text", "command", "changes", "message"), VALUES),
)
CHOICES = {
    "claude": {
        "type": ["assistant", "result", "system", "rate_limit_event", "user"],
        "subtype": ["api_retry", "model_fallback", "success", "init"],
    },
    "codex": {
        "type": ["thread.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error", "other"]
    },
    "gemini": {
        "type": ["init", "message", "tool_use", "tool_result", "error", "result", "other"],
        "role": ["user", "assistant"],
        "status": ["success", "error"],
    },
}
FIELDS = {
    "claude": (
        "message", "result", "is_error", "usage", "modelUsage", "errors", "session_id", "api_error_status",
        "terminal_reason", "permission_denials", "rate_limit_info", "error_status", "retry_delay_ms",
        "structured_output",
    ),
    "codex": ("item", "usage", "error", "thread_id"),
    "gemini": ("content", "stats", "error", "parameters", "tool_id", "session_id", "model", "message"),
}  # fmt: skip


@pytest.mark.parametrize("agent", list(AGENTS))
@given(data=st.data())
def test_messages_of_any_shape_end_in_an_answer_or_an_error(agent: str, data: st.DataObject) -> None:
    choices = {name: st.sampled_from(values) for name, values in CHOICES[agent].items()}
    message = st.fixed_dictionaries(choices, optional=dict.fromkeys(FIELDS[agent], VALUES | ITEMS))
    messages: list[dict[str, Any]] = data.draw(st.lists(message, max_size=6))
    stdout = "".join(f"{json.dumps(message)}\n" for message in messages)
    with contextlib.suppress(AgentError):
        assert Capture(agent, 0, stdout).replayed().output.strip()


class TestClaude:
    def test_an_answer_that_does_not_count_is_told_with_its_cost(self) -> None:
        def assistant(*blocks: dict[str, Any], identity: str = "m1", **more: Any) -> dict[str, Any]:
            said = {"id": identity, "model": "claude-opus-5-5", "content": list(blocks)}
            return {"type": "assistant", "message": said, "parent_tool_use_id": None, **more}

        def words(text: str) -> dict[str, Any]:
            return {"type": "text", "text": text}

        def used(tool: str, **given: Any) -> dict[str, Any]:
            return {"type": "tool_use", "name": tool, "input": given}

        cases = (
            ((), ""),
            ((assistant(words("a ")), assistant(words("b")), assistant(words(" c"), identity="m2")), "a b c"),
            ((assistant(words("let me look"), used("Read")), assistant(words("it is"), identity="m2")), "it is"),
            ((assistant(words("now"), used("StructuredOutput", answer="P0")),), '{"answer": "P0"}'),
            ((assistant(words("mine")), assistant(words("a helper's"), parent_tool_use_id="t1")), "mine"),
        )
        for name, (messages, said) in itertools.product(("max_tokens", "schema_violated"), cases):
            recorded = capture("claude", name)
            error = error_of(claude_run(*messages, recorded.result, exit_code=1))
            assert isinstance(error, OutputInvalid)
            assert (error.output, error.cut_off) == (said, name == "max_tokens")
            assert error.cost_usd == recorded.result["total_cost_usd"]
            assert error.usage is not None
            assert error.usage.input_tokens > 0
        turns = error_of(capture("claude", "turns"))
        assert turns.cost_usd == capture("claude", "turns").result["total_cost_usd"] > 0

    def test_a_structured_answer_is_kept_as_a_value_and_as_text_and_prose_has_no_value(self) -> None:
        for change in ({}, {"result": ""}):
            found = claude_run({**capture("claude", "schema").result, **change}).replayed()
            assert found.structured == json.loads(found.output) == {"answer": 42}
        found = capture("claude", "schema_as_text").replayed()
        assert (found.structured, found.output) == (None, "Sorry, here is prose.")

    def test_what_was_denied_is_listed_and_turns_tools_tokens_and_cost_are_told(self) -> None:
        events: list[AgentEvent] = []
        found = capture("claude", "denied").replayed(events=events)
        assert found.permission_denials == ("Write /outside/new.txt", "Read /etc/hostname")
        assert [event for event in events if isinstance(event, ToolUsed)] == [
            ToolUsed("claude_cli", "Write", "/outside/new.txt"),
            ToolUsed("claude_cli", "Read", "/etc/hostname"),
        ]
        assert [event.turn for event in events if isinstance(event, TurnTaken)] == [1, 2, 3]
        spent = [event for event in events if isinstance(event, TokensSpent)]
        assert [event.input_tokens for event in spent] == [100, 200, 300, 300]
        assert spent[-1] == TokensSpent("claude_cli", 300, 60, 0.0024000000000000002)

    def test_a_switch_of_models_is_told_and_without_one_the_first_retry_ends_the_attempt(self) -> None:
        found = capture("claude", "model_fallback").replayed(request(fallback_model="claude-haiku-4-5"))
        assert found.model == "claude-haiku-4-5"
        assert found.notes == ("claude_cli switched from the model claude-opus-5-5 to claude-haiku-4-5: overloaded",)
        assert type(error_of(capture("claude", "model_fallback"))) is Overloaded

    def test_tokens_count_everything_that_was_sent_and_a_resumed_session_costs_its_share(self) -> None:
        def run(*, resumed: bool = False, **fields: Any) -> AgentResult:
            whole = {**capture("claude", "answer").result, "usage": {}, "modelUsage": {}, **fields}
            return claude_run(whole).replayed(request(resume_session="x" if resumed else None))

        by_model = {
            "a": {"inputTokens": 10, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 3, "outputTokens": 2},
            "b": {"inputTokens": 1, "outputTokens": 1},
        }
        plain = {"input_tokens": 7, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 4}
        assert run(modelUsage=by_model).usage == TokenUsage(input_tokens=19, cached_tokens=5, output_tokens=3)
        assert run(usage=plain).usage == TokenUsage(input_tokens=10, cached_tokens=2, output_tokens=4)
        session: dict[str, Any] = {
            "total_cost_usd": 3.0,
            "usage": {"input_tokens": 100, "output_tokens": 20},
            "modelUsage": {"m": {"inputTokens": 300, "outputTokens": 60}},
        }
        share, whole = run(resumed=True, **session), run(**session)
        assert share.total_cost_usd == pytest.approx(1.0)
        assert share.usage == TokenUsage(input_tokens=100, output_tokens=20)
        assert "whole session" in share.notes[0]
        assert (whole.total_cost_usd, whole.usage.input_tokens, whole.notes) == (3.0, 300, ())
        for usage in ({}, {"input_tokens": 900}, "none"):
            assert run(resumed=True, **{**session, "usage": usage}).total_cost_usd == 3.0

    def test_a_wait_that_the_service_asked_for_or_a_quota_that_ended_is_told(self) -> None:
        def retry(delay_ms: int) -> dict[str, Any]:
            return {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": delay_ms}

        def quota(status: str, resets_at: float) -> dict[str, Any]:
            return {"type": "rate_limit_event", "rate_limit_info": {"status": status, "resetsAt": resets_at}}

        refused = capture("claude", "status_429").result
        text = f"Usage limit reached|{EPOCH_NOW + 60:.0f}"
        in_text = {"type": "result", "is_error": True, "terminal_reason": "api_error", "result": text}
        cases: list[tuple[tuple[dict[str, Any], ...], float | None]] = [
            ((retry(1000),), 1),
            ((retry(59_000),), 59),
            ((retry(625),), None),  # the wait of the program itself
            ((quota("rejected", EPOCH_NOW + 3600), refused), 3600),
            ((quota("allowed_warning", EPOCH_NOW + 3600), refused), None),
            ((in_text,), 60),
        ]
        for messages, wait in cases:
            error = error_of(claude_run(*messages))
            assert isinstance(error, RateLimited)
            assert (error.retry_after_seconds, error.retryable) == (wait, True)
        both = error_of(claude_run(quota("rejected", time.time() + 3600), retry(1000)))
        assert isinstance(both, RateLimited)
        assert both.retry_after_seconds == pytest.approx(3600, abs=60)

    def test_an_answer_counts_only_when_all_of_it_is_well(self) -> None:
        cases: list[tuple[dict[str, Any], type[AgentError]]] = [
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
        ]
        wrong = []
        for change, kind in cases:
            error = error_of(claude_run({**capture("claude", "answer").result, **change}))
            if type(error) is not kind:
                wrong.append((change, error))
        assert wrong == []

    def test_an_error_names_the_model_that_was_asked_for_and_is_one_short_line(self) -> None:
        missing = capture("claude", "status_404")
        assert "some-model" in error_of(missing, request(model="some-model")).hint
        assert "default" in error_of(missing).hint
        error = error_of(claude_run({"type": "result", "is_error": True, "result": "a\nb " * 1000}))
        assert "\n" not in error.message
        assert len(error.message) < 700

    @pytest.mark.requirement("R10")
    def test_a_crash_keeps_the_exit_code_and_the_last_words(self) -> None:
        error = error_of(Capture("claude", 134, "", "x" * 9000 + "the end"))
        assert isinstance(error, Crashed)
        assert error.status == 134
        assert error.stderr_tail.endswith("the end")
        assert len(error.stderr_tail) <= 4000

    def test_only_what_the_model_itself_does_is_a_turn_or_a_tool_whose_detail_is_one_short_line(self) -> None:
        used = {"type": "tool_use", "name": "Read", "input": {"file_path": "f"}}
        said = {"id": "m1", "model": "a", "content": [used]}
        schema = {"type": "tool_use", "name": "StructuredOutput", "input": {"answer": 1}}
        details = {"\n  git log\nrm -r /": "git log", "x" * 5000: "x" * 80}
        told = [{"command": text} for text in details] + [{"content": "secret"}, None]
        tools = [{"type": "tool_use", "name": "T", "input": one} for one in told]
        events: list[AgentEvent] = []
        reading = ClaudeCliAgent.reading(ClaudeCliAgent.program, request(), events.append)
        for message in (
            {"type": "assistant", "message": said},
            {"type": "assistant", "message": said},
            {"type": "assistant", "message": {**said, "id": "m2"}, "parent_tool_use_id": "t"},
            {"type": "assistant", "message": {"id": "m3", "model": "<synthetic>", "content": [used]}},
            {"type": "assistant", "message": {"id": "m1", "model": "a", "content": [schema, *tools]}},
        ):
            reading.take(Message(message))
        assert [event for event in events if isinstance(event, TurnTaken)] == [TurnTaken("claude_cli", 1)]
        shown = [event.detail for event in events if isinstance(event, ToolUsed)]
        assert shown == ["f", "f", "f", *details.values(), "", ""]

    def test_a_session_that_is_no_session_is_a_wrong_request_and_not_tried_again(self) -> None:
        # The program's own words, for a name that is no UUID.
        said = (
            "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p"
            ' --resume <session-id|title>. Provided value "mine" is not a UUID and does not match any session title.'
        )
        told = {"type": "result", "is_error": True, "subtype": "error_during_execution", "result": said}
        for run in (claude_run(told), Capture("claude", 1, "", said)):
            error = error_of(run)
            assert isinstance(error, InvalidRequest)
            assert not error.retryable
            assert "does not know the session" in error.message
            assert "leave resume_session out" in error.hint


class TestCodex:
    def test_a_retry_is_not_the_end_and_a_warning_becomes_a_note(self) -> None:
        retried = capture("codex", "answer_after_a_retry")
        assert "Reconnecting" in retried.stdout
        assert retried.replayed().output == "after 429"
        found = capture("codex", "model_unknown_to_the_program").replayed()
        assert [note[:48] for note in found.notes] == ["codex warned: Model metadata for `gpt-5-codex` n"]

    def test_commands_and_changed_files_are_told(self) -> None:
        events: list[AgentEvent] = []
        capture("codex", "command").replayed(events=events)
        assert events[0] == ToolUsed("codex", "shell", "cat 'a.txt'")
        found = capture("codex", "file_change").replayed(events=events)
        assert found.files_changed == ("<work>/new.txt",)
        assert ToolUsed("codex", "apply_patch", "<work>/new.txt") in events

    def test_a_null_that_stands_for_what_was_left_out_is_left_out_and_no_json_has_no_value(self) -> None:
        asked = request(output_schema=SCHEMA)
        found = capture("codex", "schema").replayed(asked)
        assert json.loads(found.output) == {"answer": 42, "why": None}
        assert found.structured == {"answer": 42}
        assert capture("codex", "schema").replayed().structured is None
        found = capture("codex", "schema_violated").replayed(asked)
        assert (found.output, found.structured) == ("forty-two", None)

    def test_another_session_than_the_one_asked_for_is_no_answer(self) -> None:
        run = capture("codex", "answer")
        own = json.loads(run.lines[0])["thread_id"]
        assert run.replayed(request(resume_session=own.upper())).session_id == own
        for asked in (
            request(resume_session="01a1e194-efef-7572-9e0c-bae4611c8902"),
            request(resume_session=own, fork_session=True),
        ):
            assert "not what was asked" in error_of(run, asked).message

    def test_status_and_wait_are_those_of_the_last_reply_in_the_log_which_no_error_repeats(self) -> None:
        line = capture("codex", "status_429_retry_after").stderr
        good = line.replace("429 Too Many Requests", "200 OK")
        for name, wait in (("status_429_retry_after", 7), ("status_429", None)):
            error = error_of(capture("codex", name))
            assert isinstance(error, RateLimited)
            assert error.retry_after_seconds == wait
        for text, log, kind in (
            ("stream disconnected before completion", line + good, ConnectionFailed),
            ("odd", good + line, RateLimited),
        ):
            assert type(failed("codex", text, log)) is kind
        crashed = error_of(Capture("codex", 101, "", f"{line}out of memory\n"))
        assert isinstance(crashed, Crashed)
        assert crashed.stderr_tail == "out of memory"


class TestGemini:
    def test_tools_are_told_and_what_was_said_before_them_is_not_the_answer(self) -> None:
        events: list[AgentEvent] = []
        run = capture("gemini", "tools")
        found = run.replayed(events=events)
        assert "Let me look." in run.stdout
        assert (found.output, found.num_turns) == ("It says ", 3)
        assert [event for event in events if isinstance(event, ToolUsed)] == [
            ToolUsed("gemini", "read_file", "a.txt"),
            ToolUsed("gemini", "write_file", "b.txt"),
        ]
        assert found.permission_denials == ("write_file b.txt",)

    def test_the_model_is_the_one_that_answered_and_thoughts_count_as_output(self) -> None:
        assert capture("gemini", "model_routed").replayed().model == "gemini-3.8-flash"
        run = capture("gemini", "answer")
        more = run.stdout.replace('"total_tokens":940', '"total_tokens":1000')
        assert more != run.stdout
        assert Capture("gemini", 0, more).replayed().usage.output_tokens == 100

    def test_an_invisible_character_of_ours_is_taken_out_of_the_answer(self) -> None:
        run = capture("gemini", "answer")
        for told in ("@\\u2060app", "@\u2060app", "@\\\\u2060app"):
            stdout = run.stdout.replace("hello from the stand-in", told)
            assert Capture("gemini", 0, stdout).replayed().output == "@app"

    def test_a_run_that_sent_nothing_had_too_long_a_prompt(self) -> None:
        lines = capture("gemini", "answer").lines
        for models, kind in (({}, PromptTooLong), ({"gemini-2.5-flash": {"total_tokens": 5}}, OutputInvalid)):
            last = {"type": "result", "status": "success", "stats": {"total_tokens": 0, "models": models}}
            assert type(error_of(Capture("gemini", 0, "".join((*lines[:2], json.dumps(last)))))) is kind

    @pytest.mark.requirement("R12")
    def test_an_exit_code_alone_or_the_status_in_the_stderr_tells_what_it_can(self) -> None:
        kinds = {
            41: NotLoggedIn, 53: TurnsExhausted, 144: InvalidRequest, 145: NotLoggedIn, 173: RateLimited,
            244: Overloaded, 247: Overloaded, 17: Overloaded, 1: Crashed, 3: Crashed, 130: Crashed, 0: Crashed,
        }  # fmt: skip
        assert {code: type(error_of(Capture("gemini", code, ""))) for code in kinds} == kinds
        error = error_of(Capture("gemini", 1, "", capture("gemini", "status_429_retry_after").stderr))
        assert isinstance(error, RateLimited)
        assert error.retry_after_seconds == 7
