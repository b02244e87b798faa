"""A request as options of the Agent SDK, and the SDK's messages as the program prints them."""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct, field

from codeloupe.agents.calls.environment import Places
from codeloupe.agents.calls.marked_processes import MARK
from codeloupe.agents.claude.environment import ClaudeSettings, claude_environment
from codeloupe.agents.claude.flags import prompt_files, safe_flags, schema_of, schema_text, tools_for
from codeloupe.model.agent import AgentRequest

_LAUNCHER = Path(__file__).with_name("claude_launcher.sh")
_STDERR_LINES = 100
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# The SDK sets the first ones itself, and takes the last one out: to blank it would put it back.
_LEFT_TO_THE_SDK = {"PWD", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDECODE"}
# Without this the SDK sends an empty system prompt; with it the program's own, as the CLI does.
_DEFAULT_PROMPT = {"type": "preset", "preset": "claude_code"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SdkCall(Struct, frozen=True, kw_only=True):
    """One call through the SDK: what is started, the mark by which it is found, and its last words."""

    program: str
    agent: str
    places: Places
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES))


def sdk_options(sdk: ModuleType, request: AgentRequest, settings: ClaudeSettings, call: SdkCall) -> Any:
    """The SDK's options for a request. Raises InvalidRequest for a schema that is too large."""
    tools = tools_for(request)
    has_schema = schema_text(request, agent=call.agent) is not None
    files = prompt_files(request, call.places.root)
    system_prompt = files.pop("system-prompt-file", None)
    start = how_to_start(claude_environment(request, settings, call.places), call)
    return sdk.ClaudeAgentOptions(
        cli_path=start.program,
        cwd=request.working_dir,
        env=start.variables,
        setting_sources=[],
        strict_mcp_config=True,
        tools=list(tools.names),
        allowed_tools=list(tools.rules),
        permission_mode=request.permission_mode.value,
        extra_args={**safe_flags(request, settings), **files},
        system_prompt={"type": "file", "path": system_prompt} if system_prompt else _DEFAULT_PROMPT,
        verbatim_prompts=True,
        model=request.model,
        fallback_model=request.fallback_model,
        max_turns=request.max_turns,
        max_budget_usd=request.max_budget_usd,
        output_format={"type": "json_schema", "schema": _plain(schema_of(request))} if has_schema else None,
        resume=request.resume_session,
        fork_session=request.fork_session and request.resume_session is not None,
        # With the pieces of an answer as signs of life, silence means that nothing happens.
        include_partial_messages=request.idle_timeout_seconds is not None,
        max_buffer_size=_MAX_MESSAGE_BYTES,
        stderr=call.stderr.append,
    )


class Start(Struct, frozen=True):
    """What the SDK is to start, and the variables that it is to set."""

    program: str
    variables: dict[str, str]


def how_to_start(environment: Mapping[str, str], call: SdkCall, *, launcher: Path = _LAUNCHER) -> Start:
    """A start in which the program sees this environment only, by the launcher where that can be run.

    Without it, variables that must not pass are blank, and the program outlives us when we are killed.
    """
    unwanted = os.environ.keys() - environment.keys() - _LEFT_TO_THE_SDK
    variables = {**dict.fromkeys(unwanted, ""), **environment, MARK: call.token}
    if not os.access(launcher, os.X_OK):
        return Start(call.program, variables)
    removed = " ".join(f"-u {name}" for name in sorted(unwanted) if _PLAIN_NAME.fullmatch(name))
    return Start(str(launcher), {**variables, "CODELOUPE_PROGRAM": call.program, "CODELOUPE_UNSET": removed})


def _plain(value: Any) -> Any:
    """A schema as plain dictionaries and lists: the SDK writes nothing else as JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def as_printed(sdk: ModuleType, message: Any) -> Mapping[str, Any]:
    """A message of the SDK in the form in which the program printed it."""
    if isinstance(message, sdk.SystemMessage):
        return {"type": "system", **message.data}
    if isinstance(message, sdk.ResultMessage):
        return {"type": "result", **_without_none(asdict(message)), "modelUsage": message.model_usage}
    if isinstance(message, sdk.AssistantMessage):
        return _printed_turn(sdk, message)
    if isinstance(message, sdk.RateLimitEvent):
        return {"type": "rate_limit_event", "rate_limit_info": message.rate_limit_info.raw}
    return {}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _printed_turn(sdk: ModuleType, message: Any) -> Mapping[str, Any]:
    return {
        "type": "assistant",
        "session_id": message.session_id,
        "parent_tool_use_id": message.parent_tool_use_id,
        "message": {
            "id": message.message_id,
            "model": message.model,
            "usage": message.usage,
            "content": [_printed_block(sdk, block) for block in message.content],
        },
    }


def _printed_block(sdk: ModuleType, block: Any) -> Mapping[str, Any]:
    if isinstance(block, sdk.ToolUseBlock):
        return {"type": "tool_use", "name": block.name, "input": block.input}
    if isinstance(block, sdk.TextBlock):
        return {"type": "text", "text": block.text}
    return {}
