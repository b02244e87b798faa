"""The flags and settings with which the codex program reads, answers, and does nothing else.

Nothing of the reviewed repository shapes the run: no configuration, hooks, MCP servers, rules, AGENTS.md or skills.
Commands run in the program's own sandbox, without network, without our keys, and in the modes that only read without
a way to write. The program retries nothing by itself.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.program import Places
from codeloupe.agents.calls.schemas import schema_words, strict_schema
from codeloupe.agents.codex.program import CODEX, CodexSettings, link_user_files, private_folder
from codeloupe.agents.codex.skills import skill_files, too_many
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode, full_prompt

LIMITS = AgentLimits(
    max_prompt_characters=1_048_576,
    schema=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    own_tokens=5_000,
)
SHELL = "shell"
"""The one tool that there is: commands in a sandbox."""

_OPENAI = "https://api.openai.com/v1"
_PROVIDER = "codeloupe"
_SANDBOXES = {PermissionMode.ACCEPT_EDITS: "workspace-write", PermissionMode.BYPASS: "danger-full-access"}
# One argument of a program is at most 128 KiB on Linux.
_MAX_ARGUMENT_BYTES = 120_000
_OFF = (
    "analytics",
    "agents",
    "skills.bundled",
    "tools.experimental_request_user_input",
)
_FEATURES_OFF = (
    "apps",
    "enable_request_compression",
    "goals",
    "hooks",
    "image_generation",
    "memories",
    "multi_agent",
    "plugins",
    "shell_snapshot",
    "skill_search",
    "sleep_tool",
    "tool_suggest",
    "unbounded_connection_retries",
    "view_image",
)
_SETTINGS: Mapping[str, Any] = {
    "approval_policy": "never",
    "check_for_update_on_startup": False,
    "history.persistence": "none",
    "include_collaboration_mode_instructions": False,
    "project_doc_max_bytes": 0,
    "project_root_markers": [],
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "shell_environment_policy.inherit": "core",
    "skills.include_instructions": False,
    "web_search": "disabled",
    **{f"{name}.enabled": False for name in _OFF},
    **{f"features.{name}": False for name in _FEATURES_OFF},
}


def arguments(request: AgentRequest, settings: CodexSettings, places: Places) -> tuple[str, ...]:
    """The arguments of `codex` for a request, whose prompt goes by stdin; files for it are written to `places`.

    Raises InvalidRequest.
    """
    flags = ["--json", "--ignore-rules", "--skip-git-repo-check"]
    link_user_files(request, settings, places)
    _write_private_settings(request, places)
    flags += [] if request.model is None else [f"--model={request.model}"]
    flags += _schema_flags(request, places)
    flags += [f"--config={name}={toml(value)}" for name, value in _all_settings(request, settings, places).items()]
    if request.resume_session is None:
        return ("exec", *flags, "-")
    verb = "fork" if request.fork_session else "resume"
    return ("exec", verb, *flags, _session(request.resume_session), "-")


def prompt_input(request: AgentRequest) -> str:
    """What the program reads: the prompt, and in words a schema that it cannot be given."""
    schema = request.output_schema
    tail = "" if schema is None or strict_schema(schema) is not None else schema_words(schema)
    return f"{full_prompt(request)}{tail}"


def refuse_other_tools(request: AgentRequest) -> None:
    """Raises InvalidRequest for a tool that there is not."""
    unknown = [tool for tool in request.tools or () if tool != SHELL]
    if unknown:
        raise InvalidRequest(
            f"codex has one tool, {SHELL}, and knows no {', '.join(unknown)}",
            agent=CODEX.agent,
            hint=f"leave tools out, or give {SHELL} or none",
            attempts=0,
        )


def notes_on(request: AgentRequest) -> tuple[str, ...]:
    """What is to be said of the answer to a request."""
    return ("codex counts the tokens of the whole session that was resumed",) * (request.resume_session is not None)


def toml(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(name)}={toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(toml, value)) + "]"
    # As in JSON, but for the one character that TOML wants to be escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _all_settings(request: AgentRequest, settings: CodexSettings, places: Places) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        **_SETTINGS,
        "sandbox_mode": _SANDBOXES.get(request.permission_mode, "read-only"),
        "model_provider": _PROVIDER,
        f"model_providers.{_PROVIDER}": _provider(settings),
        "projects": _without_trust(request.working_dir),
        **_skills(request),
    }
    if request.tools == ():
        chosen |= {"features.shell_tool": False, "features.unified_exec": False}
    if request.system_prompt is not None:
        chosen["model_instructions_file"] = str(_written(places.root / "system-prompt.md", request.system_prompt))
    return chosen


def _without_trust(working_dir: Path) -> dict[str, Any]:
    """No trust for the directory and for every one above it, of which any may be the project's root.

    Where it may write, the program takes a directory of which it knows nothing for trusted, and starts what the
    configuration in it names.
    """
    start = working_dir.absolute()
    try:
        str(start.resolve()).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"codex cannot be kept from trusting {str(start)!r}: the path is not UTF-8",
            agent=CODEX.agent,
            hint="use another agent, or another directory",
        ) from error
    places = (place for name in (start, start.resolve()) for place in (name, *name.parents))
    return {str(place): {"trust_level": "untrusted"} for place in places}


def _provider(settings: CodexSettings) -> dict[str, Any]:
    """The service. A provider of our own, since the retries of a built-in one cannot be set."""
    common = {"wire_api": "responses", "request_max_retries": 0, "stream_max_retries": 0}
    address = settings.address
    if settings.key_name is None:
        # By this name, and without an address, the program finds the service of the user's subscription.
        own = {"base_url": address} if address else {}
        return {"name": "OpenAI", "requires_openai_auth": True, **own, **common}
    headers = {"OpenAI-Organization": "OPENAI_ORGANIZATION", "OpenAI-Project": "OPENAI_PROJECT"}
    return {
        "name": _PROVIDER,
        "base_url": address or _OPENAI,
        "env_key": settings.key_name,
        "env_http_headers": headers,
        **common,
    }


def _skills(request: AgentRequest) -> dict[str, Any]:
    files = skill_files(request.working_dir, agent=CODEX.agent)
    if not files:
        return {}
    rules = [{"path": str(file), "enabled": False} for file in files]
    if len(toml(rules).encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT_BYTES:
        raise too_many(CODEX.agent, f"there are {len(files):,}")
    return {"skills.config": rules}


def _write_private_settings(request: AgentRequest, places: Places) -> None:
    """Text for the model goes into a file: arguments are seen by every user of the machine."""
    if text := request.append_system_prompt:
        _written(private_folder(places) / "config.toml", f"developer_instructions = {toml(text)}\n")


def _schema_flags(request: AgentRequest, places: Places) -> list[str]:
    schema = None if request.output_schema is None else strict_schema(request.output_schema)
    if schema is None:
        return []
    return [f"--output-schema={_written(places.root / 'schema.json', json.dumps(schema, default=dict))}"]


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def _session(name: str) -> str:
    try:
        return str(uuid.UUID(name))
    except ValueError as error:
        # For any other name the program would begin a new session without a word.
        raise InvalidRequest(
            f"codex cannot resume the session {name!r}: its sessions are named by UUIDs",
            agent=CODEX.agent,
            hint="give the session_id of an earlier result, or leave resume_session out",
        ) from error
