"""The flags with which the claude program reads, answers, and does nothing else.

Nothing of the reviewed repository shapes the run: no settings, hooks, MCP servers, CLAUDE.md, slash commands or file
mentions. The file tools stay inside the working directory. Nobody is there to be asked, so what would have to be
asked is denied.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.environment import Places
from codeloupe.agents.claude.environment import ClaudeSettings, keeps_session
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode

# By experiment: a window of a million tokens is taken to be full at a little over 2.9 million characters, and more
# than 10 MB of input is refused whatever the model.
LIMITS = AgentLimits(
    max_prompt_bytes=10_000_000,
    max_prompt_characters=2_800_000,
    schema=True,
    turns=True,
    budget=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    fallback=True,
    confined=True,
    own_tokens=2_300,
)
READ_ONLY_TOOLS = ("Read", "Grep", "Glob")
_WRITING_TOOLS = ("Edit", "Write")
_ALL_TOOLS = (*READ_ONLY_TOOLS, *_WRITING_TOOLS, "Bash")
# One argument of a program is at most 128 KiB on Linux.
_MAX_SCHEMA_BYTES = 120_000


class ToolChoice(Struct, frozen=True):
    """The tools that exist for the model, and rules such as `Bash(git log:*)` for what is allowed without asking."""

    names: tuple[str, ...]
    rules: tuple[str, ...]


def tools_for(request: AgentRequest) -> ToolChoice:
    """The tools of a request; without any named, those that its permission mode makes sense of."""
    if request.tools is None:
        by_default = {
            PermissionMode.ACCEPT_EDITS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS),
            PermissionMode.BYPASS: _ALL_TOOLS,
        }
        return ToolChoice(by_default.get(request.permission_mode, READ_ONLY_TOOLS), ())
    names = dict.fromkeys(tool.partition("(")[0] for tool in request.tools)
    return ToolChoice(tuple(names), tuple(tool for tool in request.tools if "(" in tool))


def schema_of(request: AgentRequest) -> dict[str, Any] | None:
    """The schema as the program takes it: without the draft's name, since it knows no other than its own."""
    if request.output_schema is None:
        return None
    return {name: value for name, value in request.output_schema.items() if name != "$schema"}


def schema_text(request: AgentRequest, *, agent: str) -> str | None:
    """The schema as one argument. Raises InvalidRequest when it is too large for one."""
    schema = schema_of(request)
    if schema is None:
        return None
    text = json.dumps(schema, default=dict)
    if len(text) > _MAX_SCHEMA_BYTES:
        raise InvalidRequest(
            f"the schema has {len(text):,} bytes; {agent} takes at most {_MAX_SCHEMA_BYTES:,}",
            agent=agent,
            hint="use a smaller schema",
        )
    return text


def safe_flags(request: AgentRequest, settings: ClaudeSettings) -> dict[str, str | None]:
    """The flags that the Agent SDK has no option for; the CLI gets them too. None stands for a flag without a value."""
    flags: dict[str, str | None] = {"permission-prompts": "none", "disable-slash-commands": None}
    if request.permission_mode is not PermissionMode.BYPASS:
        flags["restricted"] = None
    if not keeps_session(request, settings):
        flags["no-session-persistence"] = None
    return flags


def cli_arguments(request: AgentRequest, settings: ClaudeSettings, places: Places, *, agent: str) -> tuple[str, ...]:
    """The arguments of `claude` for a request; its prompt goes by stdin. Raises InvalidRequest.

    Each value is bound to its flag by "=", so that none can be taken for another flag or swallow one.
    """
    tools = tools_for(request)
    flags: dict[str, str | None] = {
        "print": None,
        "verbose": None,
        "output-format": "stream-json",
        "setting-sources": "",
        "strict-mcp-config": None,
        "tools": ",".join(tools.names),
        **({"allowed-tools": ",".join(tools.rules)} if tools.rules else {}),
        "permission-mode": request.permission_mode.value,
        **safe_flags(request, settings),
        **prompt_files(request, places.root),
        **_wishes(request, agent=agent),
    }
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())


def _wishes(request: AgentRequest, *, agent: str) -> dict[str, str | None]:
    given = {
        "model": request.model,
        "fallback-model": request.fallback_model,
        "max-turns": None if request.max_turns is None else str(request.max_turns),
        "max-budget-usd": None if request.max_budget_usd is None else str(request.max_budget_usd),
        "json-schema": schema_text(request, agent=agent),
        "resume": request.resume_session,
    }
    flags: dict[str, str | None] = {name: value for name, value in given.items() if value is not None}
    if request.resume_session is not None and request.fork_session:
        flags["fork-session"] = None
    # With the pieces of an answer as signs of life, silence means that nothing happens.
    return flags if request.idle_timeout_seconds is None else {**flags, "include-partial-messages": None}


def prompt_files(request: AgentRequest, folder: Path) -> dict[str, str]:
    """System prompts as files: they can be longer than an argument, and arguments are seen by every user."""
    texts = {"system-prompt-file": request.system_prompt, "append-system-prompt-file": request.append_system_prompt}
    flags = {}
    for flag, text in texts.items():
        if text is not None:
            file = folder / f"{flag}.txt"
            file.write_text(text, encoding="utf-8")
            flags[flag] = str(file)
    return flags


def prompt_input(prompt: str) -> str:
    """The prompt as the program takes it for text: one that begins with a slash would be a command of its own."""
    return f"The request:\n{prompt}" if prompt.lstrip()[:1] in ("/", "-") else prompt
