"""The options of `codeloupe agent`, and the request and the settings that they stand for.

Apart from the calls themselves, so that `--help` and a mistake in the options do not pay for loading those.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codeloupe.cli.options import add_json_option
from codeloupe.cli.parser import Parser
from codeloupe.errors import UsageError
from codeloupe.model.agent import AgentRequest, PermissionMode
from codeloupe.model.agents import AGENT_NAMES

# More than any agent takes; what has no end, such as /dev/zero, must not be read to it.
_MOST_BYTES = 64 * 1024**2


def configure(parser: Parser) -> None:
    """The verbs below `agent`."""
    actions = parser.add_commands(dest="action")
    run_parser = actions.add_parser("run", help="ask an agent", description="Ask an agent and print its answer.")
    _configure_run(run_parser)
    listing = actions.add_parser(
        "list", help="show which agents are available", description="Show which agents are here."
    )
    add_json_option(listing)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    asking = parser.add_argument_group("asking")
    asking.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to ask; without it, standard input is read")
    asking.add_argument("--prompt-file", metavar="FILE", type=Path, help="read the prompt from a file")
    asking.add_argument(
        "--agent",
        metavar="NAME",
        action="append",
        help=f"{', '.join(AGENT_NAMES[:-1])} or {AGENT_NAMES[-1]}; may be repeated:"
        " the next one is used if one is missing",
    )
    asking.add_argument("--model", help="the model to ask for")
    asking.add_argument("--fallback-model", metavar="MODEL", help="the model to ask when that one is overloaded")
    asking.add_argument("--system-prompt", metavar="TEXT", help="used instead of the agent's own")
    asking.add_argument("--append-system-prompt", metavar="TEXT", help="appended to the agent's own")
    asking.add_argument(
        "--context", metavar="FILE", action="append", type=Path, default=[], help="a file to send along"
    )
    asking.add_argument("--schema", metavar="FILE", type=Path, help="a JSON Schema that the answer must fit")
    asking.add_argument("--resume", metavar="SESSION", help="continue an earlier session that was kept")
    asking.add_argument(
        "--fork", action="store_true", help="with --resume: continue in a new session, and keep the old one"
    )
    asking.add_argument("--keep-session", action="store_true", help="keep the session, to continue it later")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--working-dir", metavar="DIR", type=Path, default=Path(), help="where the agent works")
    limits.add_argument(
        "--permission-mode",
        metavar="MODE",
        choices=[mode.value for mode in PermissionMode],
        default=PermissionMode.DONT_ASK.value,
        help=f"{', '.join(mode.value for mode in PermissionMode)} (default: {PermissionMode.DONT_ASK.value})",
    )
    limits.add_argument("--tools", metavar="A,B", help="its tools; none for no tools (default: its read-only set)")
    limits.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="stop after this time, for all attempts together"
    )
    limits.add_argument("--idle-timeout", metavar="SECONDS", type=float, help="stop it after this long without output")
    limits.add_argument("--max-turns", metavar="N", type=int, help="how many turns it may take")
    limits.add_argument("--max-budget-usd", metavar="USD", type=float, help="how much it may cost")
    limits.add_argument("--wait-for-quota", action="store_true", help="wait until a quota opens, within --timeout")
    limits.add_argument("--fresh", action="store_true", help="ask again even if the same was asked before")
    showing = parser.add_argument_group("showing")
    showing.add_argument("--label", metavar="NAME=VALUE", action="append", default=[], help="for events and logs")
    showing.add_argument("--json", action="store_true", help="the whole result, for programs")
    loudness = showing.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="log to stderr")
    loudness.add_argument("-q", "--quiet", action="store_true", help="print only the answer")


def request_of(arguments: argparse.Namespace) -> AgentRequest:
    """What is asked. Its model and its time are settings, see `flags_of`. Raises UsageError for what cannot be read."""
    return AgentRequest(
        prompt=_prompt(arguments),
        working_dir=arguments.working_dir,
        fallback_model=arguments.fallback_model,
        system_prompt=arguments.system_prompt,
        append_system_prompt=arguments.append_system_prompt,
        permission_mode=PermissionMode(arguments.permission_mode),
        tools=_tools(arguments.tools),
        idle_timeout_seconds=arguments.idle_timeout,
        max_turns=arguments.max_turns,
        max_budget_usd=arguments.max_budget_usd,
        output_schema=_schema(arguments.schema),
        resume_session=arguments.resume,
        fork_session=arguments.fork,
        context=_context(arguments.context),
        labels=dict(_label(text) for text in arguments.label),
    )


def _prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt is not None and arguments.prompt_file is not None:
        raise UsageError("a prompt and --prompt-file exclude each other", hint="give one of them")
    if arguments.prompt_file is not None:
        return _read_text(arguments.prompt_file)
    if arguments.prompt is not None:
        return str(arguments.prompt)
    if sys.stdin.isatty():
        raise UsageError("there is no prompt", hint="give it as an argument, with --prompt-file or on standard input")
    text = _decoded(sys.stdin.buffer.read(_MOST_BYTES + 1), "standard input")
    if not text.strip():
        raise UsageError("there is no prompt: standard input is empty", hint="give it as an argument: agent run PROMPT")
    return text


def _context(paths: Sequence[Path]) -> dict[str, str]:
    """The text of each file by its name, or by its path where several have the same name."""
    times = Counter(path.name for path in paths)
    return {path.name if times[path.name] == 1 else str(path): _read_text(path) for path in paths}


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decoded(file.read(_MOST_BYTES + 1), str(path))
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read {path}: {reason}", hint="give a readable file") from error


def _decoded(data: bytes, name: str) -> str:
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{name} has more than {_MOST_BYTES:,} bytes", hint="send less at once")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", hint="convert it to UTF-8") from error


def _schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        schema = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: not JSON: {error.msg}", hint="give --schema a JSON Schema") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply to be read", hint="give --schema a simpler one") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{path}: a JSON Schema is an object", hint='begin with {"type": "object"}')
    return schema


def _tools(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(part.strip() for part in text.split(",") if part.strip())


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not a label", hint="write --label NAME=VALUE")
    return name, value


def flags_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    return {
        "agents": arguments.agent,
        "model": arguments.model,
        "agent_timeout_seconds": arguments.timeout,
        "wait_for_quota": arguments.wait_for_quota or None,
        "keep_sessions": arguments.keep_session or None,
    }
