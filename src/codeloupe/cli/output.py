"""Writing a result: whole files put in place at the end, or standard output."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.cli.boundary import unwritten
from codeloupe.errors import OutputError, UsageError
from codeloupe.reports import FORMATS
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import for_ci_log, log_line, terminal, without_log_commands

_LONGEST_HINT = 40
# GitHub, GitLab and most others set the first; Azure Pipelines and TeamCity only their own.
_SIGNS_OF_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[list[str]]:
    """Collect text and put it in place as one whole file at the end; a half-written file is never left.

    The target is tried before anything runs, so that no work is lost. Raises OutputError in words. What fails while
    the text is made is not about the file, and is left as it is.
    """
    if _is_special(path):
        yield from _device(path)
        return
    pieces: list[str] = []
    temporary = _beside(path)
    try:
        yield pieces
        try:
            _put_in_place(temporary, path, pieces)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # not there yet, or a place of which `_beside` tells why it cannot be used
        return False


def _beside(path: Path) -> Path:
    """An empty file in the folder of the target, under a name of its own."""
    try:
        if path.name and path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # The name of the target is tried too: it may be longer than that of the file beside it.
        with contextlib.suppress(FileNotFoundError):
            path.lstat()
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:_LONGEST_HINT]}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    os.close(descriptor)
    return Path(name)


def _put_in_place(temporary: Path, path: Path, pieces: list[str]) -> None:
    with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
        sink.writelines(pieces)
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)
    temporary.replace(path)


def _device(path: Path) -> Iterator[list[str]]:
    """A directory is refused; a pipe or device such as /dev/stdout is written to as it is."""
    if path.is_dir():
        raise OutputError(f"cannot write the result to {path}: it is a directory", hint="give the name of a file")
    pieces: list[str] = []
    yield pieces
    try:
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
            sink.writelines(pieces)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    reason = (error.strerror or "unknown error").lower()
    return OutputError(
        f"cannot write the result to {path}: {reason}", hint="give a path in a folder that you can write to"
    )


def write_result(text: str, *, holds_commands: bool = False) -> None:
    """Write a finished result to stdout as UTF-8, whatever the locale. Raises OutputError, or that nobody reads.

    In CI nothing in it is a command to the CI system, unless it `holds_commands` that are ours.
    """
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


def add_output_options(group: argparse._ArgumentGroup) -> None:
    """`--format` and `-o`, which may be repeated."""
    group.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        action=_AddFormat,
        dest="outputs",
        default=(),
        help=f"{', '.join(FORMATS)}; may be repeated",
    )
    group.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        action=_AddFile,
        dest="outputs",
        help="write the preceding format to this file",
    )


def outputs_of(arguments: argparse.Namespace) -> tuple[Output, ...]:
    """What was asked for; text on standard output when nothing was. Raises UsageError for two in one place."""
    outputs: tuple[Output, ...] = arguments.outputs or (Output("text"),)
    places = [output.path for output in outputs]
    if len(set(places)) < len(places):
        raise UsageError(
            "two formats would be written to the same place", hint="give each its own file: --format sarif -o a.sarif"
        )
    return outputs


def deliver(outputs: Sequence[Output], make: Callable[[], Callable[[Output], str]], *, quiet: bool) -> None:
    """Open every file, then make the result, then write each format: no work is done for what cannot be written."""
    with ExitStack() as opened:
        sinks = [(one, opened.enter_context(output_file(one.path)) if one.path else []) for one in outputs]
        render = make()
        for output, pieces in sinks:
            pieces.append(render(output))
    for output, pieces in sinks:
        if output.path is None:
            write_result("".join(pieces), holds_commands=output.format == "github")
        elif not quiet:
            print(f"wrote {output.path}", file=sys.stderr)


class _AddFormat(argparse.Action):
    def __call__(self, _parser: Any, namespace: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        namespace.outputs = (*namespace.outputs, Output(value))


class _AddFile(argparse.Action):
    def __call__(self, _parser: Any, namespace: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        *others, last = namespace.outputs or (Output("text"),)
        if last.path is not None:
            raise argparse.ArgumentError(self, "each file needs a --format before it")
        namespace.outputs = (*others, replace(last, path=value))


def set_up_logging(*, verbose: bool, debug: bool = False) -> None:
    """Log to stderr when asked, with `debug` also what is sent to agents and what they answer.

    Without either the library's records go nowhere, since events tell the same.
    """
    logger = logging.getLogger("codeloupe")
    if not verbose and not debug:
        logger.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


class _SafeFormatter(logging.Formatter):
    """Log lines without secrets and without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text that is safe on a terminal and in a CI log.

        It is one line, but for a debug record: there each line behind the first is set in, so that none looks like
        a record of its own.
        """
        text = redact(super().format(record))
        if record.levelno > logging.DEBUG:
            return log_line(text)
        return without_log_commands(terminal(text, keep_newlines=True).replace("\n", "\n    "))
