import math
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.validation import validate
from codeloupe.errors import AgentError, InvalidRequest, PromptTooLong
from codeloupe.model.agent import AgentLimits, PermissionMode, PromptLimit
from tests.unit.agents.samples import request

ABLE = AgentLimits(schema=True, turns=True, budget=True, resume=True, fork=True, tools=True, writes=True, fallback=True)


def refusal(limits: AgentLimits = ABLE, **fields: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        validate(request(**fields), limits, agent="codex")
    assert caught.value.agent == "codex"
    assert caught.value.hint
    return caught.value


def test_a_good_request_passes() -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"prompt": "/help me, -v, @/etc/hostname, ünïcode 🎉"},
        {"timeout_seconds": 0.5, "idle_timeout_seconds": 10, "max_turns": 1, "max_budget_usd": 0.01},
        {"output_schema": {"type": "object"}},
        {"tools": ()},
        {"tools": ("Read", "Bash(git log:*)", "mcp__server__tool")},
        {"model": "claude-sonnet-4-5", "fallback_model": "openai/gpt-5:high", "resume_session": "0b-1c"},
        {"context": {"Notes": "some text"}, "system_prompt": "Be brief.", "append_system_prompt": "Please."},
        {"permission_mode": PermissionMode.ACCEPT_EDITS},
    ]
    for fields in rows:
        validate(request(**fields), ABLE, agent="codex")
    for asked in (request(), request(output_schema={}), request(tools=())):
        validate(asked, AgentLimits(), agent="codex")


@pytest.mark.requirement("R15")
def test_a_bad_request_is_refused_in_words_before_anything_is_started() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": " \n\t"}, "the prompt is empty"),
        ({"prompt": "a\0b"}, "the prompt has a NUL byte at character 1"),
        ({"system_prompt": "abc\0"}, "the system_prompt has a NUL byte at character 3"),
        ({"prompt": "a\ud800"}, "the prompt has half of a character (a lone surrogate) at character 1"),
        ({"context": {"Notes": "\udc00"}}, "the context 'Notes' has half of a character"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"timeout_seconds": math.inf}, "timeout_seconds is inf"),
        ({"timeout_seconds": math.nan}, "timeout_seconds is nan"),
        ({"idle_timeout_seconds": -1.0}, "idle_timeout_seconds is -1.0"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_budget_usd": 0.0}, "max_budget_usd is 0.0"),
        ({"max_budget_usd": math.inf}, "max_budget_usd is inf"),
        ({"model": "--dangerous"}, "model is '--dangerous'"),
        ({"model": "two words"}, "model is 'two words'"),
        ({"model": ""}, "model is ''"),
        ({"fallback_model": "x\n"}, "fallback_model is 'x\\n'"),
        ({"resume_session": "-s"}, "resume_session is '-s'"),
        ({"tools": ("Read", "-x")}, "'-x' is not the name of a tool"),
        ({"tools": ("Read,Write",)}, "'Read,Write' is not the name of a tool"),
        ({"tools": ("",)}, "'' is not the name of a tool"),
        ({"output_schema": {"type": "objekt"}}, "output_schema is not a valid JSON Schema: at $.type"),
        ({"output_schema": []}, "output_schema is not a valid JSON Schema: it is of type list"),
        ({"prompt": b"x"}, "prompt is \"b'x'\" of type bytes"),
        ({"working_dir": "."}, "working_dir is '.' of type str"),
        ({"timeout_seconds": "30"}, "timeout_seconds is '30' of type str"),
        ({"timeout_seconds": True}, "timeout_seconds is 'True' of type bool"),
        ({"max_turns": 2.5}, "max_turns is '2.5' of type float"),
        ({"permission_mode": "plan"}, "permission_mode is 'plan' of type str"),
        ({"tools": "Read"}, "tools is 'Read' of type str"),
        ({"tools": (1,)}, "tools, context or labels contain something other than text"),
        ({"context": {"a": None}}, "tools, context or labels contain something other than text"),
        ({"labels": {"a": 1}}, "tools, context or labels contain something other than text"),
        ({"labels": ("a",)}, "of type tuple"),
        ({"context": ["a"]}, "context is"),
    ]
    for fields, words in rows:
        error = refusal(**fields)
        assert isinstance(error, InvalidRequest)
        assert "the request to codex cannot be sent: " in error.message
        assert words in error.message, fields


@pytest.mark.requirement("R6")
def test_the_working_directory_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for path, words in (
        (tmp_path / "gone", f"the working directory '{tmp_path / 'gone'}' does not exist"),
        (tmp_path / "file", "is not a directory"),
        (tmp_path / ("x" * 5000), "cannot be read (File name too long)"),
        (Path("a\0b"), "does not exist"),
    ):
        assert words in refusal(working_dir=path).message
    validate(request(working_dir=tmp_path / "link"), ABLE, agent="codex")


@pytest.mark.requirement("R3")
def test_a_prompt_over_the_limit_is_refused_with_both_sizes_its_context_included() -> None:
    for limits, fields, words in (
        (
            AgentLimits(prompt=PromptLimit(characters=1000)),
            {"prompt": "x" * 1001},
            "has 1,001 characters; codex accepts at most",
        ),
        (
            AgentLimits(prompt=PromptLimit(bytes=1000)),
            {"prompt": "é" * 501},
            "has 1,002 bytes; codex accepts at most 1,000",
        ),
        (AgentLimits(prompt=PromptLimit(bytes=10)), {"prompt": "12345", "context": {"abc": "def"}}, "has 18 bytes"),
    ):
        error = refusal(limits, **fields)
        assert isinstance(error, PromptTooLong)
        assert words in error.message
    validate(request("é" * 1000), AgentLimits(prompt=PromptLimit(characters=1000, bytes=2000)), agent="codex")
    validate(request("x" * 2_000_000), AgentLimits(), agent="codex")


@pytest.mark.defect("P4")
def test_what_the_agent_cannot_do_is_refused() -> None:
    fork: dict[str, Any] = {"resume_session": "abc", "fork_session": True}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"max_turns": 3}, "codex cannot limit its turns"),
        ({"max_budget_usd": 3.0}, "codex cannot stop at a cost"),
        ({"resume_session": "abc"}, "codex cannot resume a session"),
        ({"tools": ("Read",)}, "codex has no tools"),
        ({"permission_mode": PermissionMode.ACCEPT_EDITS}, "codex cannot change files"),
        ({"permission_mode": PermissionMode.BYPASS}, "codex cannot change files"),
        ({"fallback_model": "other"}, "codex has no fallback model"),
    ]
    for fields, words in rows:
        error = refusal(AgentLimits(), **fields)
        assert words in error.message
        assert next(iter(fields)) in error.hint
        assert error.attempts == 0
        validate(request(**fields), ABLE, agent="codex")
    assert "cannot fork a session" in refusal(AgentLimits(resume=True), **fork).message
    assert "no session to fork" in refusal(ABLE, fork_session=True).message
    validate(request(**fork), ABLE, agent="codex")
