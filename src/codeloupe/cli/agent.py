"""`codeloupe agent`: one call to an agent, and which agents are here."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_examples, flag, option, sentence
from codeloupe.cli.progress import AgentProgress, choose_mode
from codeloupe.cli.verbs import Interrupted, loaded_by, note, run_to_end, set_up_logging, write_result
from codeloupe.config.kinds import either
from codeloupe.errors import AgentError, CodeloupeError, UsageError
from codeloupe.model.agent import AGENT_NAMES, AgentRequest, AgentResult, PermissionMode, TokenUsage
from codeloupe.reports.json_v1 import json_text
from codeloupe.system.untrusted import terminal

_EXAMPLES = {
    "": ("codeloupe agent list", "codeloupe agent run 'What does src/app.py do?'"),
    "run": (
        "codeloupe agent run 'What does src/app.py do?'",
        "codeloupe agent run --agent codex --prompt-file task.md --json",
        "git log -5 | codeloupe agent run --agent claude_cli --tools none",
    ),
    "list": ("codeloupe agent list", "codeloupe agent list --json"),
}


def configure(parser: Parser) -> None:
    """Add the commands below `agent`."""
    actions = parser.add_commands(dest="action")
    about = "ask an agent and print its answer"
    run_parser = actions.add_parser("run", help=about, description=sentence(about))
    asking = run_parser.add_argument_group("asking")
    option(asking, "prompt", "PROMPT", "what to ask (default: standard input)", nargs="?")
    option(asking, "--prompt-file", "FILE", "read the prompt from a file", type=Path)
    agents = f"{either(AGENT_NAMES)}; may be repeated: the next is used if one is missing"
    option(asking, "--agent", "NAME", agents, action="append")
    options.add(asking, "--model")
    option(asking, "--fallback-model", "MODEL", "the model to use if that one is overloaded")
    option(asking, "--system-prompt", "TEXT", "replace the agent's own")
    option(asking, "--append-system-prompt", "TEXT", "append to the agent's own")
    option(asking, "--context", "FILE", "a file to send with the prompt", action="append", type=Path, default=[])
    option(asking, "--schema", "FILE", "a JSON Schema that the answer must match", type=Path)
    option(asking, "--resume", "SESSION", "continue a stored session")
    flag(asking, "--fork", "with --resume: continue in a copy of the session")
    flag(asking, "--keep-session", "store the session, to continue it later")
    limits = run_parser.add_argument_group("limits")
    option(limits, "--working-dir", "DIR", "where the agent works (default: here)", type=Path, default=Path())
    modes, usual = [mode.value for mode in PermissionMode], PermissionMode.DONT_ASK.value
    about_modes = f"{', '.join(modes)} (default: {usual})"
    option(limits, "--permission-mode", "MODE", about_modes, choices=modes, default=usual)
    option(limits, "--tools", "A,B", "its tools, or none (default: its read-only set)")
    option(limits, "--timeout", "SECONDS", "stop after this time, all attempts together", type=float)
    option(limits, "--idle-timeout", "SECONDS", "stop after this time without output", type=float)
    option(limits, "--max-turns", "N", "stop after N turns", type=int)
    option(limits, "--max-budget-usd", "USD", "stop before the cost exceeds this", type=float)
    options.add(limits, "--wait-for-quota")
    flag(limits, "--fresh", "ignore stored answers and ask again")
    showing = run_parser.add_argument_group("showing")
    option(
        showing, "--label", "NAME=VALUE", "a label for events and logs (may be repeated)", action="append", default=[]
    )
    flag(showing, "--json", "print the whole result as JSON")
    options.add_loudness(showing, quiet="print only the answer")
    about = "show which agents are available"
    options.add(actions.add_parser("list", help=about, description=sentence(about)), "--json")
    add_examples(parser, _EXAMPLES)


def request_of(arguments: argparse.Namespace) -> AgentRequest:
    """What is asked. Its model and its time are settings, see `flags_of`. Raises UsageError for what cannot be read."""
    tools = None
    if arguments.tools is not None:
        names = "" if arguments.tools == "none" else arguments.tools
        tools = tuple(part.strip() for part in names.split(",") if part.strip())
    labels: dict[str, str] = {}
    for text in arguments.label:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} is not a label", hint="write --label NAME=VALUE")
        labels[name] = value
    # A file is called by its name, or by its path where several have the same name.
    times = Counter(path.name for path in arguments.context)
    same = ("working_dir", "fallback_model", "system_prompt", "append_system_prompt", "max_turns", "max_budget_usd")
    return AgentRequest(
        prompt=_prompt(arguments),
        permission_mode=PermissionMode(arguments.permission_mode),
        tools=tools,
        idle_timeout_seconds=arguments.idle_timeout,
        output_schema=_schema(arguments.schema),
        resume_session=arguments.resume,
        fork_session=arguments.fork,
        context={path.name if times[path.name] == 1 else str(path): _read(path) for path in arguments.context},
        labels=labels,
        **{name: getattr(arguments, name) for name in same},
    )


def _prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt is not None and arguments.prompt_file is not None:
        raise UsageError("a prompt and --prompt-file exclude each other", hint="give one of them")
    if arguments.prompt_file is not None:
        return _read(arguments.prompt_file)
    if arguments.prompt is not None:
        return str(arguments.prompt)
    text = "" if sys.stdin.isatty() else _read("-")
    if not text.strip():
        why = "" if sys.stdin.isatty() else ": standard input is empty"
        hint = "give it as an argument, with --prompt-file or on standard input"
        raise UsageError(f"no prompt was given{why}", hint=hint)
    return text


def _read(name: Path | str) -> str:
    what = "standard input" if name == "-" else str(name)
    # More than any agent takes; what has no end, such as /dev/zero, must not be read to it.
    return options.read_text(name, what, 64 * 1024**2)


def _schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        schema = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: not JSON: {error.msg}", hint="give --schema a JSON Schema") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply to be read", hint="give --schema a simpler one") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{path}: a JSON Schema is an object", hint='begin with {"type": "object"}')
    return schema


def flags_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    return {
        "agents": arguments.agent,
        "model": arguments.model,
        "agent_timeout_seconds": arguments.timeout,
        "wait_for_quota": arguments.wait_for_quota or None,
        "keep_sessions": arguments.keep_session or None,
    }


def run(arguments: argparse.Namespace) -> int:
    """Ask an agent, or list them."""
    if arguments.action == "list":
        set_up_logging()
        return _list(as_json=arguments.json)
    set_up_logging(verbose=arguments.verbose)
    try:
        result = _asked(arguments)
    except CodeloupeError as error:
        if arguments.json:
            write_result(json_text(_failed(error)))
        raise
    if arguments.json:
        write_result(json_text({**to_builtins(result), "error_kind": None}))
        return 0
    text = terminal(result.output, keep_newlines=True) if sys.stdout.isatty() else result.output
    write_result(text if text.endswith("\n") else text + "\n")
    for text in result.notes:
        note(text, quiet=arguments.quiet)
    return 0


def _asked(arguments: argparse.Namespace) -> AgentResult:
    from codeloupe.runtime import configure as settings_for
    from codeloupe.runtime import run_agent

    loading = settings_for(repo=arguments.working_dir, flags=flags_of(arguments))
    settings = loaded_by(loading, quiet=arguments.quiet).settings
    request = request_of(arguments)
    with AgentProgress(mode=choose_mode(quiet=arguments.quiet)) as progress:
        try:
            return run_to_end(run_agent(request, settings=settings, fresh=arguments.fresh, emit=progress.emit))
        except KeyboardInterrupt:
            raise Interrupted("the agent was stopped, and no answer was stored", arguments.command_line) from None


def _failed(error: CodeloupeError) -> dict[str, Any]:
    said = f"{error.message} ({error.hint})" if error.hint else error.message
    failed = AgentResult(success=False, output="", agent="", attempts=0, error=said)
    if isinstance(error, AgentError):
        same = {name: getattr(error, name) for name in ("agent", "session_id", "attempts", "raw_output")}
        usage, output = error.usage or TokenUsage(), getattr(error, "output", "")
        failed = replace(failed, output=output, usage=usage, total_cost_usd=error.cost_usd, **same)
    return {**to_builtins(failed), "error_kind": type(error).__name__}


def _list(*, as_json: bool) -> int:
    from codeloupe.reports.page import Page
    from codeloupe.runtime import Runtime
    from codeloupe.runtime import configure as settings_for

    found = run_to_end(Runtime(run_to_end(settings_for()).settings).list_agents())
    if as_json:
        write_result(json_text({"agents": [{"name": name, **to_builtins(agent)} for name, agent in found]}))
        return 0
    good, bad = ("+", "-") if options.is_ascii_only() else ("✔", "·")
    rows = []
    for name, agent in found:
        login = {True: "yes", False: "no", None: "unknown"}[agent.logged_in] if agent.found else ""
        version = terminal(agent.version or "?") if agent.found else "not found"
        model = "none chosen" if agent.lacks_model and agent.found else terminal(agent.default_model or "")
        rows.append((good if agent.usable else bad, name, version, login, model))
    table = Page(width=10_000).table(("", "AGENT", "VERSION", "LOGIN", "MODEL"), rows)
    lines = [line.plain.rstrip() for line in table]
    if missing := [(name, agent.how_to_fix) for name, agent in found if agent.how_to_fix]:
        width = max(len(name) for name, _ in missing)
        lines += ["", "To use them:"]
        lines += [line for name, hint in missing for line in options.wrapped(terminal(hint), f"  {name:<{width}}  ")]
    write_result("\n".join(lines) + "\n")
    return 0
