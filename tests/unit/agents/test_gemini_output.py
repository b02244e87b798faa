from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.agents.calls.program import Failure
from codeloupe.agents.gemini.failures import failed
from codeloupe.agents.gemini.program import GEMINI
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
    TurnsExhausted,
)
from codeloupe.model.agent import AgentEvent, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from tests.unit.agents.program_captures import Capture, capture, names

FAILURES: list[tuple[str, type[AgentError], str]] = [
    ("answer_empty", OutputInvalid, "its answer is empty"),
    ("connection_refused", ConnectionFailed, "fetch failed"),
    ("ended_from_outside", Crashed, "exit code 0"),
    ("flag_unknown", NotInstalled, "too old"),
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
    ("status_400", InvalidRequest, "(400)"),
    ("status_401", NotLoggedIn, "(401)"),
    ("status_403", NotLoggedIn, "(403)"),
    ("status_404", InvalidRequest, "(404)"),
    ("status_413", PromptTooLong, "(413)"),
    ("status_429", RateLimited, "(429)"),
    ("status_429_retry_after", RateLimited, "(429)"),
    ("status_500", Overloaded, "(500)"),
    ("status_500_in_stream", ConnectionFailed, "without a finish reason"),
    ("status_503", Overloaded, "(503)"),
    ("status_529", Overloaded, "(529)"),
    ("turns", TurnsExhausted, "max session turns"),
]
ANSWERS = ["answer", "max_tokens", "model_routed", "tools"]


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(("name", "kind", "words"), FAILURES)
def test_every_failure_of_the_program_has_its_error(name: str, kind: type[AgentError], words: str) -> None:
    run = capture("gemini", name)
    with pytest.raises(AgentError) as raised:
        run.replayed()
    error = raised.value
    assert type(error) is kind
    assert words in error.message
    assert error.message.startswith("gemini ")
    assert error.hint
    assert error.raw_output == run.stdout
    assert error.session_id in run.stdout


def test_every_recorded_run_is_either_an_answer_or_a_failure_here() -> None:
    assert names("gemini") == {name for name, _, _ in FAILURES} | set(ANSWERS)


@pytest.mark.requirement("R7")
def test_an_answer_has_all_that_the_program_tells() -> None:
    events: list[AgentEvent] = []
    run = capture("gemini", "answer")
    found = run.replayed(events=events)
    assert found == AgentResult(
        success=True,
        output="hello from the stand-in",
        agent="gemini",
        session_id=json.loads(run.lines[0])["session_id"],
        duration_ms=1500,
        num_turns=1,
        usage=TokenUsage(input_tokens=900, cached_tokens=300, output_tokens=40),
        model="gemini-2.5-flash",
        raw_output=run.stdout,
    )
    assert events == [TurnTaken("gemini", 1), TokensSpent("gemini", 900, 40)]


def test_tools_are_told_and_what_was_said_before_them_is_not_the_answer() -> None:
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


def test_the_model_is_the_one_that_answered_and_not_the_one_that_chose_it() -> None:
    assert capture("gemini", "model_routed").replayed().model == "gemini-3.8-flash"


def test_thoughts_count_as_output() -> None:
    run = capture("gemini", "answer")
    more = run.stdout.replace('"total_tokens":940', '"total_tokens":1000')
    assert more != run.stdout
    assert Capture("gemini", 0, more, "").replayed().usage.output_tokens == 100


def test_an_invisible_character_of_ours_is_taken_out_of_the_answer() -> None:
    run = capture("gemini", "answer")
    for told in ("@\\u2060app", "@\u2060app", "@\\\\u2060app"):
        stdout = run.stdout.replace("hello from the stand-in", told)
        assert Capture("gemini", 0, stdout, "").replayed().output == "@app"


def test_a_run_that_sent_nothing_had_too_long_a_prompt() -> None:
    lines = capture("gemini", "answer").lines
    last = {"type": "result", "status": "success", "stats": {"total_tokens": 0, "models": {}}}
    with pytest.raises(PromptTooLong, match="sent nothing"):
        Capture("gemini", 0, "".join((*lines[:2], json.dumps(last))), "").replayed()
    last["stats"] = {"models": {"gemini-2.5-flash": {"total_tokens": 5}}}
    with pytest.raises(OutputInvalid, match="empty"):
        Capture("gemini", 0, "".join((*lines[:2], json.dumps(last))), "").replayed()


@pytest.mark.requirement("R12")
@pytest.mark.parametrize("name", sorted(names("gemini")))
def test_a_run_that_is_cut_anywhere_is_never_an_answer(name: str) -> None:
    whole = capture("gemini", name)
    ends = [len("".join(whole.lines[:count])) for count in range(len(whole.lines))]
    for exit_code, end in itertools.product((0, 1, 145, -9), {*ends, *(end + 20 for end in ends)}):
        with pytest.raises(AgentError) as raised:
            Capture("gemini", exit_code, whole.cut(end).stdout, "").replayed()
        assert raised.value.hint


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        (41, NotLoggedIn),
        (53, TurnsExhausted),
        (144, InvalidRequest),
        (145, NotLoggedIn),
        (173, RateLimited),
        (244, Overloaded),
        (247, Overloaded),
        (17, Overloaded),
        (1, Crashed),
        (3, Crashed),
        (130, Crashed),
        (0, Crashed),
    ],
)
def test_an_exit_code_alone_tells_what_it_can(exit_code: int, kind: type[AgentError]) -> None:
    with pytest.raises(AgentError) as raised:
        Capture("gemini", exit_code, "", "").replayed()
    assert type(raised.value) is kind


def test_the_status_in_the_stderr_tells_where_the_result_was_lost() -> None:
    run = capture("gemini", "status_429_retry_after")
    with pytest.raises(RateLimited) as raised:
        Capture("gemini", 1, "", run.stderr).replayed()
    assert raised.value.retry_after_seconds == 7


SENTENCES: list[tuple[str, type[AgentError], float | None]] = [
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


@pytest.mark.parametrize(("text", "kind", "wait"), SENTENCES)
def test_a_sentence_about_a_failure_tells_its_kind(text: str, kind: type[AgentError], wait: float | None) -> None:
    error = failed(Failure(program=GEMINI, text=text), exit_code=0, stderr="")
    assert type(error) is kind
    assert getattr(error, "retry_after_seconds", None) == wait


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(["init", "message", "tool_use", "tool_result", "error", "result", "other"])
FIELDS = ("content", "stats", "error", "parameters", "tool_id", "session_id", "model", "message")
MESSAGES = st.fixed_dictionaries(
    {"type": KINDS, "role": st.sampled_from(["user", "assistant"]), "status": st.sampled_from(["success", "error"])},
    optional=dict.fromkeys(FIELDS, VALUES),
)


@given(st.lists(MESSAGES, max_size=6))
def test_messages_of_any_shape_end_in_an_answer_or_an_error(messages: list[dict[str, Any]]) -> None:
    stdout = "".join(f"{json.dumps(message)}\n" for message in messages)
    with contextlib.suppress(AgentError):
        assert Capture("gemini", 0, stdout, "").replayed().output.strip()
