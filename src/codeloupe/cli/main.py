"""The entry point: finds the verb, loads its module, and is the one boundary where errors become exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from codeloupe import __version__
from codeloupe.cli import boundary
from codeloupe.cli.parser import Parser, sentence
from codeloupe.errors import CodeloupeError, hints_for_the_program


class Verb(NamedTuple):
    """A verb's module and its line in the help; the module loads only when the verb is used.

    The module has `configure`, which adds the verb's options, and `run`. A verb whose `run` needs much to be loaded
    has `configure` in a module of its own, `options`, so that its help and mistakes in its options come at once.
    """

    module: str
    help: str
    options: str = ""


VERBS = {
    "review": Verb(
        "codeloupe.cli.review", "review a change and give a verdict", options="codeloupe.cli.review_options"
    ),
    "commits": Verb(
        "codeloupe.cli.commits",
        "review many commits, each by itself: leave, fix or revert",
        options="codeloupe.cli.commits_options",
    ),
    "agent": Verb(
        "codeloupe.cli.agent", "ask a coding agent, or list the available ones", options="codeloupe.cli.agent_options"
    ),
    "pipeline": Verb(
        "codeloupe.cli.pipeline",
        "run stages of agents with gates between them",
        options="codeloupe.cli.pipeline_options",
    ),
    "history": Verb(
        "codeloupe.cli.history",
        "show, compare and re-judge saved reviews",
        options="codeloupe.cli.history_options",
    ),
    "baseline": Verb(
        "codeloupe.cli.baseline",
        "maintain the list of known findings that do not count",
        options="codeloupe.cli.baseline_options",
    ),
    "publish": Verb(
        "codeloupe.cli.publish", "post a saved review on a pull request", options="codeloupe.cli.publish_options"
    ),
    "hook": Verb("codeloupe.cli.hook", "review what a commit or a push adds, from a git hook"),
    "demo": Verb("codeloupe.cli.demo", "review a small faulty change, to see what it looks like"),
    "doctor": Verb("codeloupe.cli.doctor", "show what is installed, what is missing and who would review"),
    "config": Verb("codeloupe.cli.config", "write, show and check the configuration"),
    "completion": Verb("codeloupe.cli.completion", "print a completion script for a shell"),
    "version": Verb("codeloupe.cli.version", "print the version"),
}

_DESCRIPTION = "Puts a code change under a magnifying glass: anchored findings and a verdict that can be trusted."
_EPILOG = """\
first steps:
  codeloupe demo                  see a review of a small faulty change
  codeloupe review                this branch and what is uncommitted
  codeloupe review --staged       what the next commit would contain

exit codes:
  0    passed, and everything was reviewed
  1    findings at or above fail_on
  2    wrong usage or configuration
  3    could not review everything, and found nothing blocking
  4    internal error
  130  interrupted
"""
INTERRUPTED = boundary.INTERRUPTED
_OBJECTS_BETWEEN_COLLECTIONS = 20_000


def build_parser(verbs: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the options of the named verbs only, since each verb's module costs time to load."""
    parser = Parser(prog="codeloupe", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"codeloupe {__version__}")
    commands = parser.add_commands(dest="verb", required=False)
    for name, verb in VERBS.items():
        command = commands.add_parser(name, help=verb.help, description=sentence(verb.help))
        if name in verbs:
            import_module(verb.options or verb.module).configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves. As the program, without `argv`, end with it."""
    if argv is not None:
        return _run(list(argv))
    boundary.open_standard_streams()
    # To load a verb makes tens of thousands of objects, and hardly any garbage that it would pay to look for.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        exit_code = _run(sys.argv[1:])
    except SystemExit as end:  # of argparse, when it has shown the help or what is wrong with the words
        if not isinstance(end.code, int):
            raise
        exit_code = end.code
    exit_code = boundary.settle_output(exit_code)
    _leave(exit_code)
    return exit_code


def _run(words: list[str]) -> int:
    with hints_for_the_program():
        return _run_to_exit_code(words)


def _run_to_exit_code(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except CodeloupeError as error:
        return boundary.report(error)
    except KeyboardInterrupt as stopped:
        return boundary.report_interruption(stopped)
    except BrokenPipeError:
        return boundary.reader_is_gone()
    except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes exit code 4 and a log file
        return boundary.report_crash(error, words)


def _dispatch(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser([verb])
    if verb and verb not in VERBS:
        raise boundary.unknown_command(verb, list(VERBS))
    arguments = parser.parse_args(words)
    arguments.command_line = words
    if arguments.verb is None:
        parser.print_help()
        return 0
    return int(import_module(VERBS[arguments.verb].module).run(arguments))


def _leave(exit_code: int) -> None:
    """End the process at once: to take the interpreter apart takes longer than many a command, and serves nobody.

    What was registered for the exit is done before, and what was written is flushed. Comes back when a thread is
    left or the output cannot be flushed: then the interpreter's own way out is the right one.
    """
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does it; coverage and logging rely on it
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return
    os._exit(exit_code)
