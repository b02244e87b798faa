"""What all verbs do: run a coroutine, say something on stderr, and write a result, whole or not at all."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.cli.boundary import unwritten
from codeloupe.cli.parser import option
from codeloupe.config.loading import LoadedSettings
from codeloupe.errors import OutputError, UsageError
from codeloupe.reports import FORMATS, SWEEP_FORMATS
from codeloupe.reports.wording import counted
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import for_ci_log, log_line, terminal, without_log_commands

# GitHub, GitLab and most others set the first; Azure Pipelines and TeamCity only their own.
_SIGNS_OF_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


@contextmanager
def output_file(path: Path) -> Iterator[list[str]]:
    """Collect text and put it in place as one whole file at the end; a half-written file is never left.

    The target is tried before anything runs, so that no work is lost. A pipe or device such as /dev/stdout is written
    to as it is. Raises OutputError. What fails while the text is made is not about the file, and is left as it is.
    """
    pieces: list[str] = []
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        raise OutputError(f"cannot write the result to {path}: it is a directory", hint="give the name of a file")
    temporary: Path | None = None
    try:
        with _explained(path):
            exists = os.path.exists(path)  # noqa: PTH110 - as above
            if exists and not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not exists or path.is_file():
                # The name of the target is tried too: it may be longer than that of the file beside it.
                with suppress(FileNotFoundError):
                    path.lstat()
                descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
                os.close(descriptor)
                temporary = Path(name)
        yield pieces
        with _explained(path):
            with (temporary or path).open("w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
                sink.writelines(pieces)
            if temporary is not None:
                umask = os.umask(0)
                os.umask(umask)
                temporary.chmod(0o666 & ~umask)
                temporary.replace(path)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        hint = "give a path in a folder that you can write to"
        raise OutputError(f"cannot write the result to {path}: {reason}", hint=hint) from error


def write_result(text: str, *, holds_commands: bool = False) -> None:
    """Write a result to stdout as UTF-8; in CI without commands but those that it `holds`. Raises OutputError."""
    if not holds_commands and any(os.environ.get(name) for name in _SIGNS_OF_CI):
        text = for_ci_log(text)
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error


class Output(Struct, frozen=True):
    """A format, and the file for it; None is standard output."""

    format: str
    path: Path | None = None


# The exit code, and what renders the result.
Made = tuple[int, Callable[[Output], str]]


def add_output_options(group: argparse._ArgumentGroup, formats: Sequence[str] = FORMATS) -> None:
    """Add `--format`, `--json` and `-o`, which may be repeated."""
    about = f"{', '.join(formats)} (default: text; may be repeated)"
    option(group, "--format", "FORMAT", about, choices=formats, action=_Add, dest="outputs", default=())
    option(group, "--json", None, "short for --format json", action=_Add, dest="outputs", nargs=0, const="json")
    about = "write the preceding format to this file"
    option(group, "-o --output", "FILE", about, type=output_path, action=_Add, dest="outputs")


# This name means standard output, as in other programs.
STANDARD_OUTPUT = Path("-")


def output_path(word: str) -> Path:
    """Return the file for a result. Raise ArgumentTypeError for the name of a format, as other programs take it."""
    if word in {*FORMATS, *SWEEP_FORMATS}:
        raise argparse.ArgumentTypeError(f"{word!r} is a format: give --format {word}, or ./{word} for a file")
    return Path(word)


class _Add(argparse.Action):
    """Add a format, or the file of the format before it."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        if not isinstance(value, Path):
            namespace.outputs = (*namespace.outputs, Output(self.const or value))
            return
        if value == STANDARD_OUTPUT:
            namespace.outputs = namespace.outputs or (Output("text"),)
            return
        *others, last = namespace.outputs or (Output("text"),)
        if last.path is not None:
            raise argparse.ArgumentError(self, "each file needs its own --format, such as --format sarif -o a.sarif")
        namespace.outputs = (*others, replace(last, path=value))


def outputs_of(arguments: argparse.Namespace) -> tuple[Output, ...]:
    """What was asked for; text on standard output when nothing was. Raises UsageError for two in one place."""
    outputs: tuple[Output, ...] = arguments.outputs or (Output("text"),)
    if len({output.path for output in outputs}) < len(outputs):
        hint = "give each its own file: --format sarif -o a.sarif"
        raise UsageError("two formats would be written to the same place", hint=hint)
    return outputs


def deliver(outputs: Sequence[Output], make: Callable[[], Made], *, quiet: bool = False) -> int:
    """Open every file, then make the result, then write each format: no work is done for what cannot be written."""
    with ExitStack() as opened:
        sinks = [(one, opened.enter_context(output_file(one.path)) if one.path else []) for one in outputs]
        exit_code, render = make()
        for output, pieces in sinks:
            pieces.append(render(output))
    for output, pieces in sinks:
        if output.path is None:
            write_result("".join(pieces), holds_commands=output.format == "github")
        elif not quiet:
            print(f"wrote {output.path}", file=sys.stderr)
    return exit_code


def size_of(count: int) -> str:
    """A number of bytes as people read it."""
    if count < 1000:
        return counted(count, "byte")
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"


def set_up_logging(*, verbose: bool = False, debug: bool = False) -> None:
    """Log to stderr when asked; with `debug` also prompts, answers and stack traces. Otherwise records go nowhere."""
    logger = logging.getLogger("codeloupe")
    if not verbose and not debug:
        logger.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter(has_traces=debug))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


class _SafeFormatter(logging.Formatter):
    """Log lines without secrets and without control characters."""

    def __init__(self, *, has_traces: bool) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._has_traces = has_traces

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name of the base class
        """Return the stack trace; nothing if traces are not wanted."""
        return super().formatException(ei) if self._has_traces else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, or a record with a stack trace or of level DEBUG with all lines but the first indented.

        No indented line looks like a record of its own.
        """
        text = redact(super().format(record))
        has_trace = self._has_traces and record.exc_info is not None
        if record.levelno > logging.DEBUG and not has_trace:
            return log_line(text)
        return without_log_commands(terminal(text, keep_newlines=True).replace("\n", "\n    "))


_Result = TypeVar("_Result")


class Interrupted(KeyboardInterrupt):
    """Somebody stopped a command; says what is kept of it, and which command goes on."""

    def __init__(self, kept: str, words: Sequence[str], *more: str) -> None:
        """`words` are those that the command was called with, its verb first; `more` options belong to them as well."""
        # Right after the verb, since what follows a `--` is no option.
        again = [words[0], *(word for word in more if word not in words), *words[1:]]
        command = shlex.join(("codeloupe", *(word for word in again if word != "--fresh")))
        same = "the same command" if len(command) > 200 else f"`{command}`"
        super().__init__(f"{kept}; {same} continues")


def note(text: str, *, quiet: bool = False) -> None:
    """Say something on stderr, in one line."""
    if not quiet:
        print(f"codeloupe: {log_line(text)}", file=sys.stderr, flush=True)


def loaded_by(work: Coroutine[Any, Any, LoadedSettings], *, quiet: bool = False) -> LoadedSettings:
    """Load settings, and say on stderr what is to be known of them."""
    loaded = run_to_end(work)
    for text in loaded.notes:
        note(text, quiet=quiet)
    return loaded


def run_to_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine. Ctrl-C, SIGTERM and a terminal that is closed cancel it and raise KeyboardInterrupt.

    So its children and temporary directories are gone. Where SIGINT is ignored, as in a job that a script put into the
    background, SIGTERM still ends it; a SIGHUP that is ignored, as by nohup, stays so.
    """
    import asyncio

    task: asyncio.Task[Any] | None = None
    is_terminated = False

    async def noted() -> _Result:
        nonlocal task
        task = asyncio.current_task()
        return await work

    def terminate(*_: object) -> None:
        nonlocal is_terminated
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
        elif task is None:
            raise KeyboardInterrupt
        else:
            is_terminated = True
            task.get_loop().call_soon_threadsafe(task.cancel)

    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, terminate) for number in {signal.SIGTERM, *ends}}
    try:
        return asyncio.run(noted())
    except asyncio.CancelledError:
        raise (KeyboardInterrupt if is_terminated else asyncio.CancelledError) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
