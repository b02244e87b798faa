"""Whether a request can be sent to an agent at all, before anything is started or paid for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.failures import TOO_LONG
from codeloupe.agents.calls.schemas import SchemaError, check_schema
from codeloupe.errors import InvalidRequest, PromptTooLong
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode, full_prompt
from codeloupe.system.regex import regex

# These become arguments of programs: none may look like a flag, and a comma would make two tools of one.
_TOOL = regex(r"[A-Za-z_][^,\x00-\x1f\x7f]{0,199}")
_NAME = regex(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]{0,199}")
_TEXT_OR_NONE = ("model", "fallback_model", "system_prompt", "append_system_prompt", "resume_session")
_TYPES: Mapping[str, Any] = {
    "prompt": str,
    "working_dir": Path,
    **dict.fromkeys(_TEXT_OR_NONE, str | None),
    "permission_mode": PermissionMode,
    "tools": tuple | None,
    "timeout_seconds": int | float,
    **dict.fromkeys(("idle_timeout_seconds", "max_budget_usd"), int | float | None),
    **dict.fromkeys(("max_attempts", "max_turns"), int | None),
    **dict.fromkeys(("fork_session", "accept_any_output"), bool),
    **dict.fromkeys(("context", "labels"), Mapping),
}
_Problems = Iterator[tuple[str, str]]


def validate(request: AgentRequest, limits: AgentLimits, *, agent: str) -> None:
    """Raises InvalidRequest, or PromptTooLong with both sizes, for a request that cannot be sent as it is."""
    _refuse(chain(_types(request), _texts(request), _values(request), _abilities(request, limits, agent)), agent)
    refuse_length(full_prompt(request), limits, agent=agent)


def validate_types(request: AgentRequest, *, agent: str) -> None:
    """Raises InvalidRequest for a request with a field of a wrong type, before anything is made of its fields."""
    _refuse(_types(request), agent)


def refuse_length(
    prompt: str, limits: AgentLimits, *, agent: str, what: str = "the prompt, its context included,"
) -> None:
    """Raise PromptTooLong, with the size and the limit, for a prompt that the agent does not accept."""
    sizes = (
        (len(prompt), limits.prompt.characters, "characters"),
        (len(prompt.encode()), limits.prompt.bytes, "bytes"),
    )
    for size, most, unit in sizes:
        if most is not None and size > most:
            message = f"{what} has {size:,} {unit}; {agent} accepts at most {most:,}"
            raise PromptTooLong(message, agent=agent, hint=TOO_LONG.hint, attempts=0)


def _refuse(problems: _Problems, agent: str) -> None:
    for problem, hint in problems:
        message = f"the request to {agent} cannot be sent: {problem}"
        raise InvalidRequest(message, agent=agent, hint=hint, attempts=0)


def _types(request: AgentRequest) -> _Problems:
    given: object = request
    if not isinstance(given, AgentRequest):
        hint = "give codeloupe.AgentRequest(prompt=..., working_dir=...)"
        yield f"it is {str(given)[:80]!r} of type {type(given).__name__}", hint
    for name, kind in _TYPES.items():
        value: object = getattr(request, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            words = getattr(kind, "__name__", str(kind)).replace(" | None", "")
            yield f"{name} is {str(value)[:80]!r} of type {type(value).__name__}", f"give a {words}"
    pairs: tuple[tuple[object, object], ...] = (*request.context.items(), *request.labels.items())
    parts: tuple[object, ...] = (*(request.tools or ()), *(part for pair in pairs for part in pair))
    if not all(isinstance(part, str) for part in parts):
        yield "tools, context or labels contain something other than text", "use only strings"


def _texts(request: AgentRequest) -> _Problems:
    if not request.prompt.strip():
        yield "the prompt is empty", "give a prompt"
    texts = [(name, getattr(request, name) or "") for name in ("prompt", "system_prompt", "append_system_prompt")]
    for title, text in request.context.items():
        texts += [("title of a context", title), (f"context {title[:80]!r}", text)]
    for name, text in texts:
        if "\0" in text:
            yield f"the {name} has a NUL byte at character {text.index(chr(0)):,}", "remove it or write it as an escape"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            words = f"the {name} has half of a character (a lone surrogate) at character {error.start:,}"
            yield f"{words}, which cannot be encoded", "decode the text with errors='replace'"
    try:
        if request.output_schema is not None:
            check_schema(request.output_schema)
    except SchemaError as error:
        yield f"output_schema is not a valid JSON Schema: {error}", "fix the schema, or remove it"


def _values(request: AgentRequest) -> _Problems:
    for name in ("model", "fallback_model", "resume_session"):
        named: str | None = getattr(request, name)
        if named is not None and not _NAME.fullmatch(named):
            yield f"{name} is {named[:80]!r}", "a name has no spaces, does not begin with '-' and is at most 200 long"
    for tool in request.tools or ():
        if not _TOOL.fullmatch(tool):
            hint = "name tools as the agent does, such as Read or Bash(git log:*)"
            yield f"{tool[:80]!r} is not the name of a tool", hint
    for name in ("timeout_seconds", "idle_timeout_seconds", "max_attempts", "max_turns", "max_budget_usd"):
        value: float | None = getattr(request, name)
        if value is not None and not 0 < value < math.inf:
            yield f"{name} is {value!r}", "give a finite number above zero"
    what = ""
    try:
        # As an absolute path, since the one that this process works in may have been removed.
        if not request.working_dir.absolute().is_dir():
            what = "is not a directory" if request.working_dir.exists() else "does not exist"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    if what:
        yield f"the working directory {str(request.working_dir)!r} {what}", "give the path of an existing directory"


def _abilities(request: AgentRequest, limits: AgentLimits, agent: str) -> _Problems:
    """What was asked that the agent cannot do: dropped silently, it would cost money for another answer than asked."""
    mode = request.permission_mode
    asked = (
        (request.max_turns is not None, limits.turns, "max_turns", "cannot limit its turns"),
        (request.max_budget_usd is not None, limits.budget, "max_budget_usd", "cannot stop at a cost"),
        (request.resume_session is not None, limits.resume, "resume_session", "cannot resume a session"),
        (request.fork_session, limits.fork, "fork_session", "cannot fork a session"),
        (bool(request.tools), limits.tools, "tools", "has no tools"),
        (mode.may_write, limits.writes, "permission_mode", f"cannot change files, as {mode.value} lets it"),
        (request.fallback_model is not None, limits.fallback, "fallback_model", "has no fallback model"),
    )
    for is_asked, is_able, name, words in asked:
        if is_asked and not is_able:
            yield f"{agent} {words}", f"remove {name}, or use another agent"
    if request.fork_session and request.resume_session is None:
        yield "there is no session to fork", "name the session in resume_session, or remove fork_session"
