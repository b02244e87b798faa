"""The entry point: finds the verb, loads its module, and is the one boundary where errors become exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from codeloupe import UNSUPPORTED_SYSTEM, __version__
from codeloupe.cli import habits
from codeloupe.cli.parser import Parser, either, examples, option, sentence, with_our_command
from codeloupe.errors import hints_for_the_program

VERBS = {
    "review": "review a change and give a verdict",
    "commits": "review many commits, each on its own",
    "agent": "ask a coding agent, or list the available ones",
    "pipeline": "run agents in stages, with gates between them",
    "serve": "run a database and workers for a team on this machine",
    "worker": "run jobs from a shared database",
    "workers": "list the workers of a shared database",
    "jobs": "list, watch, cancel and retry jobs on workers",
    "spending": "show the cost of agent calls, against the budgets",
    "history": "show, compare and re-evaluate stored reviews",
    "baseline": "list, add and remove findings that are accepted",
    "store": "show where data is stored, or copy it to another database",
    "publish": "post a stored review on a pull request",
    "hook": "install git hooks, and review a commit or a push",
    "demo": "review a small change that contains bugs",
    "doctor": "check the installation, and show which reviewer would be used",
    "config": "write, show and check settings",
    "completion": "print a completion script for a shell",
    "version": "print the version",
}
_DESCRIPTION = "Review code changes: findings with their exact location, and a verdict."
_EPILOG = """\
examples:
  codeloupe demo                  # review a small change that contains bugs
  codeloupe review                # your branch plus uncommitted changes
  codeloupe review --staged       # the staged changes
  codeloupe help review           # options for a command

exit codes:
  0    passed, and everything was reviewed
  1    findings at or above fail_on
  2    usage or configuration error
  3    incomplete: something was not reviewed,
       and there are no blocking findings
  4    internal error
  130  interrupted
"""


def _load(verb: str) -> tuple[Callable[[Parser], None], Callable[[argparse.Namespace], int]]:  # noqa: C901, PLR0912 - one case a verb
    """Return the functions that configure and run a verb. Its module is loaded only if the verb is used."""
    match verb:
        case "review":
            from codeloupe.cli.review import configure, run
        case "commits":
            from codeloupe.cli.commits import configure, run
        case "agent":
            from codeloupe.cli.agent import configure, run
        case "pipeline":
            from codeloupe.cli.pipeline import configure, run
        case "serve":
            from codeloupe.cli.serve import configure, run
        case "worker":
            from codeloupe.cli.worker import configure, run
        case "workers":
            from codeloupe.cli.workers import configure, run
        case "jobs":
            from codeloupe.cli.jobs import configure, run
        case "spending":
            from codeloupe.cli.spending import configure, run
        case "history":
            from codeloupe.cli.history import configure, run
        case "baseline":
            from codeloupe.cli.baseline import configure, run
        case "store":
            from codeloupe.cli.store import configure, run
        case "publish":
            from codeloupe.cli.publish import configure, run
        case "hook":
            from codeloupe.cli.hook import configure, run
        case "demo":
            from codeloupe.cli.demo import configure, run
        case "doctor":
            from codeloupe.cli.doctor import configure, run
        case _:
            from codeloupe.cli.config import configure, run
    return configure, run


def _print_about_us(arguments: argparse.Namespace) -> int:
    text = f"codeloupe {__version__}"
    if arguments.verb == "completion":
        import shtab

        text = shtab.complete(build_parser(list(VERBS)), shell=arguments.shell)
    print(text)
    return 0


def build_parser(verbs: Sequence[str]) -> Parser:
    """Return the parser, with the options of the named verbs only, because each verb's module costs time to load."""
    parser = Parser(prog="codeloupe", description=_DESCRIPTION, epilog=_EPILOG)
    parser.command_hint = _command_hint
    parser.option_hint = _option_hint
    version = f"codeloupe {__version__}"
    option(parser, "-V --version", None, "print the version and exit", action="version", version=version)
    commands = parser.add_commands(dest="verb", required=False)
    for name, purpose in VERBS.items():
        command = commands.add_parser(name, help=purpose, description=sentence(purpose))
        if name == "completion":
            option(command, "shell", "SHELL", "bash, zsh or tcsh", choices=["bash", "zsh", "tcsh"])
            examples(command, 'eval "$(codeloupe completion bash)"', "codeloupe completion zsh > ~/.zfunc/_codeloupe")
        if name == "version":
            examples(command, "codeloupe version")
        if name in ("completion", "version"):
            command.set_defaults(do=_print_about_us)
        elif name in verbs:
            configure, do = _load(name)
            command.set_defaults(do=do)
            configure(command)
    return parser


def _command_hint(word: str) -> str:
    """Return the commands of this name below another one, or `review` for a path or a range."""
    if ".." in word or os.path.lexists(word):
        return f"did you mean `codeloupe review {word}`?"
    found: list[str] = []
    meant = habits.COMMANDS["*"].get(word, word)
    for name, command in build_parser(list(VERBS)).commands().items():
        if meant in command.commands():
            found.append(f"`codeloupe {name} {meant}`")
    return f"did you mean {either(found)}?" if found else ""


def _option_hint(name: str) -> str:
    """Return where an option belongs that was given before the command."""
    review = build_parser(["review"]).commands()["review"]
    if not review.understands(name):
        return ""
    return f"options follow the command: `codeloupe review {name}`"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves. As the program, without `argv`, end with it."""
    if sys.platform == "win32":
        print(UNSUPPORTED_SYSTEM, file=sys.stderr)
        return 2
    if argv is not None:
        return _run(list(argv))
    _open_standard_streams()
    # To load a verb makes tens of thousands of objects, and hardly any garbage that it would pay to look for.
    gc.set_threshold(200_000)
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

        unwritten = error if isinstance(error, BrokenPipeError) else boundary.unwritten(error)
        exit_code = boundary.exit_code_of(unwritten, sys.argv[1:])
    _leave(exit_code)
    return exit_code


def _run(words: list[str]) -> int:
    with hints_for_the_program():
        try:
            words = with_our_command(words, VERBS, "")
            verb = next((word for word in words if not word.startswith("-")), "")
            parser = build_parser([verb])
            arguments = parser.parse_args(words)
            arguments.command_line = words
            if arguments.verb is not None:
                return int(arguments.do(arguments))
            parser.print_help()
            return 0
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: whatever it is becomes an exit code
            from codeloupe.cli import boundary

            return boundary.exit_code_of(error, words)


def _open_standard_streams() -> None:
    """Open those of the three streams that we were started without (`>&-`), on nothing."""
    # Otherwise the next file that is opened, such as the database, would get the number of one, and be written to.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if number else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    sys.stderr = _Forgiving(sys.stderr)


class _Forgiving(io.TextIOWrapper):
    """A stream that takes what is written to it even when its disk is full, its reader has left or it is closed."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)
        # One that nobody holds any more would close the buffer that is now ours.
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            super().flush()


def _leave(exit_code: int) -> None:
    """End the process at once: to take the interpreter apart takes longer than many a command, and serves nobody."""
    # What was registered for the exit is done before, and what was written is flushed. Comes back when a thread is
    # left or the output cannot be flushed: then the interpreter's own way out is the right one.
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does it; coverage and logging rely on it
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return
    os._exit(exit_code)
