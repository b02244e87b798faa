from __future__ import annotations

import contextlib
import itertools
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.program import Failure
from codeloupe.agents.codex.failures import failed
from codeloupe.agents.codex.program import CODEX
from codeloupe.errors import (
    AgentError,
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
)
from codeloupe.model.agent import AgentEvent, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from tests.unit.agents.call_samples import request
from tests.unit.agents.program_captures import NOW, Capture, capture, names

FAILURES: list[tuple[str, type[AgentError], str]] = [
    ("answer_empty", OutputInvalid, "its answer is empty"),
    ("connection_refused", ConnectionFailed, "Connection failed"),
    ("flag_unknown", NotInstalled, "too old"),
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
    ("status_400", InvalidRequest, "(400)"),
    ("status_400_too_long", PromptTooLong, "context window"),
    ("status_401", NotLoggedIn, "(401)"),
    ("status_403", NotLoggedIn, "(403)"),
    ("status_404", InvalidRequest, "(404)"),
    ("status_413", PromptTooLong, "(413)"),
    ("status_429", RateLimited, "(429)"),
    ("status_429_in_stream", RateLimited, "Rate limit reached"),
    ("status_429_quota", NotLoggedIn, "Quota exceeded"),
    ("status_429_retry_after", RateLimited, "(429)"),
    ("status_500", Overloaded, "(500)"),
    ("status_500_in_stream", ConnectionFailed, "stream disconnected"),
    ("status_503", Overloaded, "(503)"),
    ("status_529", Overloaded, "(529)"),
    ("terminated", Crashed, "exit code -15"),
]
ANSWERS = [
    "answer",
    "answer_after_a_retry",
    "command",
    "file_change",
    "model_unknown_to_the_program",
    "schema",
    "schema_violated",
]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["answer"],
}


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(("name", "kind", "words"), FAILURES)
def test_every_failure_of_the_program_has_its_error(name: str, kind: type[AgentError], words: str) -> None:
    run = capture("codex", name)
    with pytest.raises(AgentError) as raised:
        run.replayed()
    error = raised.value
    assert type(error) is kind
    assert words in error.message
    assert error.message.startswith("codex ")
    assert error.hint
    assert error.raw_output == run.stdout
    assert error.session_id in run.stdout


def test_every_recorded_run_is_either_an_answer_or_a_failure_here() -> None:
    assert names("codex") == {name for name, _, _ in FAILURES} | set(ANSWERS)


@pytest.mark.requirement("R7")
def test_an_answer_has_all_that_the_program_tells() -> None:
    events: list[AgentEvent] = []
    run = capture("codex", "answer")
    found = run.replayed(request(model="gpt-6.1-sol"), events)
    assert found == AgentResult(
        success=True,
        output="hello from the stand-in",
        agent="codex",
        session_id=json.loads(run.lines[0])["thread_id"],
        duration_ms=1500,
        num_turns=1,
        usage=TokenUsage(input_tokens=900, cached_tokens=300, output_tokens=40),
        model="gpt-6.1-sol",
        raw_output=run.stdout,
    )
    assert events == [TurnTaken("codex", 1), TokensSpent("codex", 900, 40)]


def test_an_error_that_tells_of_a_retry_is_not_the_end() -> None:
    assert "Reconnecting" in capture("codex", "answer_after_a_retry").stdout
    assert capture("codex", "answer_after_a_retry").replayed().output == "after 429"


def test_a_warning_of_the_program_becomes_a_note() -> None:
    found = capture("codex", "model_unknown_to_the_program").replayed()
    assert [note[:48] for note in found.notes] == ["codex warned: Model metadata for `gpt-5-codex` n"]


def test_commands_and_changed_files_are_told() -> None:
    events: list[AgentEvent] = []
    capture("codex", "command").replayed(events=events)
    assert events[0] == ToolUsed("codex", "shell", "cat 'a.txt'")
    found = capture("codex", "file_change").replayed(events=events)
    assert found.files_changed == ("<work>/new.txt",)
    assert ToolUsed("codex", "apply_patch", "<work>/new.txt") in events


def test_a_null_that_stands_for_what_was_left_out_is_left_out() -> None:
    found = capture("codex", "schema").replayed(request(output_schema=SCHEMA))
    assert json.loads(found.output) == {"answer": 42, "why": None}
    assert found.structured == {"answer": 42}
    assert capture("codex", "schema").replayed().structured is None


def test_an_answer_that_is_not_json_has_no_value() -> None:
    found = capture("codex", "schema_violated").replayed(request(output_schema=SCHEMA))
    assert (found.output, found.structured) == ("forty-two", None)


def test_another_session_than_the_one_asked_for_is_no_answer() -> None:
    run = capture("codex", "answer")
    own = json.loads(run.lines[0])["thread_id"]
    assert run.replayed(request(resume_session=own.upper())).session_id == own
    with pytest.raises(InvalidRequest, match="not what was asked"):
        run.replayed(request(resume_session="01a1e194-efef-7572-9e0c-bae4611c8902"))
    with pytest.raises(InvalidRequest, match="not what was asked"):
        run.replayed(request(resume_session=own, fork_session=True))


@pytest.mark.requirement("R12")
@pytest.mark.parametrize("name", sorted(names("codex")))
def test_a_run_that_is_cut_anywhere_is_never_an_answer(name: str) -> None:
    whole = capture("codex", name)
    ends = [len("".join(whole.lines[:count])) for count in range(len(whole.lines))]
    for exit_code, end in itertools.product((0, 1, -9), {*ends, *(end + 20 for end in ends)}):
        cut = Capture("codex", exit_code, whole.cut(end).stdout, "")
        if "turn.completed" in cut.stdout:
            continue
        with pytest.raises(AgentError) as raised:
            cut.replayed()
        assert raised.value.hint


@pytest.mark.requirement("R12")
def test_a_bad_exit_code_after_an_answer_does_not_undo_it() -> None:
    run = capture("codex", "answer")
    assert Capture("codex", 1, run.stdout, "late trouble").replayed().output == "hello from the stand-in"


SENTENCES: list[tuple[str, type[AgentError], float | None]] = [
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


@pytest.mark.parametrize(("text", "kind", "wait"), SENTENCES)
def test_a_sentence_about_a_failure_tells_its_kind(text: str, kind: type[AgentError], wait: float | None) -> None:
    error = failed(Failure(program=CODEX, text=text, asked_model="gpt-9"), stderr="", now=NOW)
    assert type(error) is kind
    assert getattr(error, "retry_after_seconds", None) == wait
    if kind is InvalidRequest:
        assert "gpt-9" in error.hint


def test_the_wait_that_the_service_asks_for_is_taken_from_the_log() -> None:
    with pytest.raises(RateLimited) as raised:
        capture("codex", "status_429_retry_after").replayed()
    assert raised.value.retry_after_seconds == 7
    with pytest.raises(RateLimited) as raised:
        capture("codex", "status_429").replayed()
    assert raised.value.retry_after_seconds is None


def test_only_the_last_reply_of_the_service_counts() -> None:
    line = capture("codex", "status_429_retry_after").stderr
    good = line.replace("429 Too Many Requests", "200 OK")
    error = failed(Failure(program=CODEX, text="stream disconnected before completion"), stderr=line + good, now=NOW)
    assert type(error) is ConnectionFailed
    error = failed(Failure(program=CODEX, text="odd"), stderr=good + line, now=NOW)
    assert type(error) is RateLimited


def test_the_log_of_replies_is_not_repeated_in_an_error() -> None:
    line = capture("codex", "status_429_retry_after").stderr
    with pytest.raises(Crashed) as raised:
        Capture("codex", 101, "", f"{line}out of memory\n").replayed()
    assert raised.value.stderr_tail == "out of memory"


MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["thread.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error", "other"]
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["agent_message", "command_execution", "file_change", "error"])},
    optional=dict.fromkeys(("text", "command", "changes", "message"), MESSAGES),
)


@given(st.lists(st.fixed_dictionaries({"type": KINDS}, optional={"item": MESSAGES | ITEMS, "usage": MESSAGES})))
def test_messages_of_any_shape_end_in_an_answer_or_an_error(messages: list[dict[str, Any]]) -> None:
    stdout = "".join(f"{json.dumps(message)}\n" for message in messages)
    with contextlib.suppress(AgentError):
        assert Capture("codex", 0, stdout, "").replayed().output.strip()


def test_a_time_is_read_in_the_zone_in_which_it_was_told() -> None:
    now = datetime.fromisoformat("2026-11-15T14:30:20+05:00")
    error = failed(Failure(program=CODEX, text="usage limit. Try again at 2:31 PM."), stderr="", now=now)
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds == 40
