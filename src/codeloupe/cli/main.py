"""The entry point: finds the verb, loads its module, and is the one boundary where errors become exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TextIO

from codeloupe import __version__
from codeloupe.cli.parser import Parser, sentence
from codeloupe.errors import CodeloupeError, hints_for_the_program


class Verb(Protocol):
    """What a verb's module has."""

    def configure(self, parser: Parser) -> None:
        """Add the verb's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do what is asked for, and return the exit code."""


VERBS = {
    "review": "review a change and give a verdict",
    "commits": "review many commits, each by itself: leave, fix or revert",
    "agent": "ask a coding agent, or list the available ones",
    "pipeline": "run stages of agents with gates between them",
    "history": "show, compare and re-judge saved reviews",
    "baseline": "maintain the list of known findings that do not count",
    "publish": "post a saved review on a pull request",
    "hook": "review what a commit or a push adds, from a git hook",
    "demo": "review a small faulty change, to see what it looks like",
    "doctor": "show what is installed, what is missing and who would review",
    "config": "write, show and check the configuration",
    "completion": "print a completion script for a shell",
    "version": "print the version",
}


def load_verb(name: str) -> Verb:  # noqa: C901, PLR0911, PLR0912 - one case a verb
    """The module of a verb, which loads only when the verb is used."""
    match name:
        case "review":
            from codeloupe.cli import review

            return review
        case "commits":
            from codeloupe.cli import commits

            return commits
        case "agent":
            from codeloupe.cli import agent

            return agent
        case "pipeline":
            from codeloupe.cli import pipeline

            return pipeline
        case "history":
            from codeloupe.cli import history

            return history
        case "baseline":
            from codeloupe.cli import baseline

            return baseline
        case "publish":
            from codeloupe.cli import publish

            return publish
        case "hook":
            from codeloupe.cli import hook

            return hook
        case "demo":
            from codeloupe.cli import demo

            return demo
        case "doctor":
            from codeloupe.cli import doctor

            return doctor
        case "config":
            from codeloupe.cli import config

            return config
        case "completion":
            return _Completion()
        case _:
            return _Version()


class _Version:
    def configure(self, parser: Parser) -> None:
        """It has no options."""

    def run(self, _arguments: argparse.Namespace) -> int:
        print(f"codeloupe {__version__}")
        return 0


class _Completion:
    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "shell",
            metavar="SHELL",
            choices=["bash", "zsh", "tcsh"],
            help='bash, zsh or tcsh; for bash: eval "$(codeloupe completion bash)"',
        )

    def run(self, arguments: argparse.Namespace) -> int:
        import shtab

        print(shtab.complete(build_parser(list(VERBS)), shell=arguments.shell))
        return 0


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
_OBJECTS_BETWEEN_COLLECTIONS = 20_000


def build_parser(verbs: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the options of the named verbs only, since each verb's module costs time to load."""
    parser = Parser(prog="codeloupe", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"codeloupe {__version__}")
    commands = parser.add_commands(dest="verb", required=False)
    for name, purpose in VERBS.items():
        command = commands.add_parser(name, help=purpose, description=sentence(purpose))
        if name in verbs:
            load_verb(name).configure(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves. As the program, without `argv`, end with it."""
    if argv is not None:
        return _run(list(argv))
    _open_standard_streams()
    # To load a verb makes tens of thousands of objects, and hardly any garbage that it would pay to look for.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        exit_code = _run(sys.argv[1:])
    except SystemExit as end:  # of argparse, when it has shown the help or what is wrong with the words
        if not isinstance(end.code, int):
            raise
        exit_code = end.code
    try:
        sys.stdout.flush()
    except ValueError:  # it was closed meanwhile, by whoever used us from within
        pass
    except OSError as error:
        from codeloupe.cli import boundary

        exit_code = boundary.unsettled_output(error)
    _leave(exit_code)
    return exit_code


def _run(words: list[str]) -> int:
    with hints_for_the_program():
        return _run_to_exit_code(words)


def _run_to_exit_code(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: whatever it is becomes an exit code
        from codeloupe.cli import boundary

        match error:
            case CodeloupeError():
                return boundary.report(error)
            case KeyboardInterrupt():
                return boundary.report_interruption(error)
            case BrokenPipeError():
                return boundary.reader_is_gone()
            case _:
                return boundary.report_crash(error, words)


def _dispatch(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser([verb])
    if verb and verb not in VERBS:
        from codeloupe.cli import boundary

        raise boundary.unknown_command(verb, list(VERBS))
    arguments = parser.parse_args(words)
    arguments.command_line = words
    if arguments.verb is None:
        parser.print_help()
        return 0
    return load_verb(arguments.verb).run(arguments)


def _open_standard_streams() -> None:
    """Open those of the three streams that we were started without (`>&-`), on nothing.

    Otherwise the next file that is opened, such as the database, would get the number of one, and be written to.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_RDONLY if number == 0 else os.O_WRONLY
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    sys.stderr = _Forgiving(sys.stderr)


class _Forgiving(io.TextIOWrapper):
    """Standard error on a full disk: nobody can be told, and that must not change how a command ends."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)
        # One that nobody holds any more would close the buffer that is now ours.
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


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
