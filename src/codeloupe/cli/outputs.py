"""Where a result goes: one format or several, each to standard output or to a file of its own.

`--format sarif -o a.sarif --format html -o a.html`: a file belongs to the format before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.cli.writing import output_file, write_result
from codeloupe.errors import UsageError
from codeloupe.reports.format_names import FORMAT_NAMES


class Output(Struct, frozen=True):
    """A format, and the file for it; None is standard output."""

    format: str
    path: Path | None = None


def add_output_options(group: argparse._ArgumentGroup) -> None:
    """`--format` and `-o`, which may be repeated."""
    group.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMAT_NAMES,
        action=_AddFormat,
        dest="outputs",
        default=(),
        help=f"{', '.join(FORMAT_NAMES)}; may be repeated",
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
