"""`codeloupe agent`: one call to an agent, and which agents are here. Its options stand in `agent_options`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from codeloupe.cli.agent_options import flags_of, request_of
from codeloupe.cli.agent_progress import AgentProgress
from codeloupe.cli.live_line import choose_mode
from codeloupe.cli.options import is_ascii_only, wrapped
from codeloupe.cli.running import Interrupted, run_to_end, set_up_logging, tell_notes
from codeloupe.cli.writing import write_result
from codeloupe.errors import AgentError, CodeloupeError
from codeloupe.model.agent import AgentResult, Availability, TokenUsage
from codeloupe.runtime import Runtime, run_agent
from codeloupe.runtime import configure as configure_settings
from codeloupe.system.sanitise import json_document, terminal


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
