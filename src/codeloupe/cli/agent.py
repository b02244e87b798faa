"""`codeloupe agent`: one call to an agent, and which agents are here. Its options stand in `agent_options`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from msgspec import to_builtins
from msgspec.structs import replace

from codeloupe.cli.options import add_json_option, is_ascii_only, wrapped
from codeloupe.cli.output import set_up_logging, write_result
from codeloupe.cli.parser import Parser
from codeloupe.cli.progress import LiveLine, ProgressMode, choose_mode, in_words
from codeloupe.cli.running import Interrupted, run_to_end, tell_notes
from codeloupe.engine.settings import configure as configure_settings
from codeloupe.errors import AgentError, CodeloupeError, UsageError
from codeloupe.model.agent import (
    AgentEvent,
    AgentRequest,
    AgentResult,
    AttemptFailed,
    Availability,
    FellBack,
    PermissionMode,
    QuotaEnded,
    TokensSpent,
    TokenUsage,
    ToolUsed,
    TurnTaken,
)
from codeloupe.reports.wording import duration
from codeloupe.runtime import Runtime, run_agent
from codeloupe.system.untrusted import json_document, log_line, terminal

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
        help="agent_sdk, claude_cli, codex, gemini or api; may be repeated: the next one is used if one is missing",
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


# What happens often is only for the live line; as plain lines it would fill a log.
_FLEETING = (TurnTaken, ToolUsed, TokensSpent)


class AgentProgress:
    """A sink for the events of one agent call: `with AgentProgress(stream=…, mode=…) as progress: … progress.emit`."""

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, clock=clock)
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._agent = ""
        self._doing = "starting"
        self._spent = ""

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def emit(self, event: AgentEvent) -> None:
        """Take an event. Cheap; never raises."""
        if self._mode is ProgressMode.SILENT:
            return
        self._agent = event.to_agent if isinstance(event, FellBack) else event.agent
        if isinstance(event, TokensSpent):
            self._spent = in_words(event)
        else:
            self._doing = in_words(event)
        # A last failure is told by the agent that takes over, or as the outcome of the call.
        if isinstance(event, AttemptFailed) and event.retry_in_seconds is None:
            return
        stays = isinstance(event, (AttemptFailed, QuotaEnded, FellBack))
        if stays or (self._mode is ProgressMode.PLAIN and not isinstance(event, _FLEETING)):
            self._line.print(f"codeloupe: {log_line(self._agent)}: {in_words(event)}")

    def status(self) -> str:
        """What the live line says: the agent, what it does, what it spent, the time so far."""
        elapsed = duration(self._clock() - self._started)
        return "  ".join(part for part in (self._agent, self._doing, self._spent, elapsed) if part)


def run(arguments: argparse.Namespace) -> int:
    """Run or list."""
    if arguments.action == "list":
        set_up_logging(verbose=False)
        return _list(as_json=arguments.json)
    set_up_logging(verbose=arguments.verbose)
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        result = _asked(arguments)
    except CodeloupeError as error:
        if arguments.json:
            write_result(_as_json(_failed(error)))
        raise
    if arguments.json:
        write_result(_as_json({**to_builtins(result), "error_kind": None}))
    else:
        write_result(_as_text(result))
        for note in () if arguments.quiet else result.notes:
            print(f"codeloupe: {terminal(note)}", file=sys.stderr)
    return 0


def _asked(arguments: argparse.Namespace) -> AgentResult:
    loaded = run_to_end(configure_settings(repo=arguments.working_dir, flags=flags_of(arguments)))
    settings = tell_notes(loaded, quiet=arguments.quiet).settings
    request = request_of(arguments)
    mode = choose_mode(quiet=arguments.quiet, stream=sys.stderr, environment=os.environ)
    with AgentProgress(stream=sys.stderr, mode=mode) as progress:
        try:
            return run_to_end(run_agent(request, settings=settings, fresh=arguments.fresh, emit=progress.emit))
        except KeyboardInterrupt:
            raise Interrupted("the agent is gone, and nothing of its answer is kept", arguments.command_line) from None


def _as_text(result: AgentResult) -> str:
    text = terminal(result.output, keep_newlines=True) if sys.stdout.isatty() else result.output
    return text if text.endswith("\n") else text + "\n"


def _as_json(document: dict[str, Any]) -> str:
    return json_document(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _failed(error: CodeloupeError) -> dict[str, Any]:
    failed = AgentResult(
        success=False,
        output="",
        agent="",
        attempts=0,
        error=f"{error.message} ({error.hint})" if error.hint else error.message,
    )
    if isinstance(error, AgentError):
        failed = replace(
            failed,
            output=getattr(error, "output", ""),
            agent=error.agent,
            session_id=error.session_id,
            total_cost_usd=error.cost_usd,
            usage=error.usage or TokenUsage(),
            attempts=error.attempts,
            raw_output=error.raw_output,
        )
    return {**to_builtins(failed), "error_kind": type(error).__name__}


def _list(*, as_json: bool) -> int:
    settings = run_to_end(configure_settings()).settings
    found = run_to_end(Runtime(settings).list_agents())
    if as_json:
        write_result(_as_json({"agents": [{"name": name, **to_builtins(agent)} for name, agent in found]}))
        return 0
    rows = [("", "AGENT", "VERSION", "LOGIN", "MODEL"), *(_row(name, agent) for name, agent in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if missing := [(name, agent.how_to_fix) for name, agent in found if agent.how_to_fix]:
        width = max(len(name) for name, _ in missing)
        lines += ["", "To use them:"]
        lines += [line for name, hint in missing for line in wrapped(terminal(hint), f"  {name.ljust(width)}  ")]
    write_result("\n".join(lines) + "\n")
    return 0


def _row(name: str, agent: Availability) -> tuple[str, str, str, str, str]:
    good, bad = ("+", "-") if is_ascii_only() else ("✔", "·")
    login = {True: "yes", False: "no", None: "unknown"}[agent.logged_in] if agent.found else ""
    version = terminal(agent.version or "?") if agent.found else "not found"
    model = "none chosen" if agent.lacks_model and agent.found else terminal(agent.default_model or "")
    return (good if agent.usable else bad, name, version, login, model)
