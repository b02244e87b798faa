"""The options of `codeloupe pipeline`. Apart from the verbs, so that help and mistakes in the options come at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from codeloupe.cli.options import add_color_option, add_json_option, add_repo_option
from codeloupe.cli.parser import Parser, sentence

_RUN = "a run's id, the beginning of one, or `last`"
_EPILOG = """\
exit codes:
  0    completed
  1    a gate or a person failed it
  2    wrong usage, or a mistake in the file
  3    waiting for a person, or could not continue
  130  interrupted; `resume` continues
"""


def configure(parser: Parser) -> None:
    """Add the verbs below `pipeline` to its parser."""
    parser.description = (
        "Run stages of agents with gates between them; look at runs, approve or reject their work, resume them."
    )
    parser.epilog = _EPILOG
    verbs = parser.add_commands(dest="action")
    for name, (add_options, about) in _VERBS.items():
        add_options(verbs.add_parser(name, help=about, description=sentence(about)))


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the pipeline's YAML file")
    parser.add_argument(
        "--input", metavar="NAME=VALUE", action="append", default=[], help="an input of the pipeline (may be repeated)"
    )
    add_repo_option(parser)
    parser.set_defaults(accept_changes=False)
    _add_running(parser)


def _add_resume(parser: argparse.ArgumentParser) -> None:
    _add_run_name(parser)
    parser.add_argument("--retry", metavar="STAGE", help="run a stage again that is waiting, failed or completed")
    parser.add_argument("--note", metavar="TEXT", default="", help="with --retry: feedback for its next attempt")
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="continue although the pipeline's files have changed since the run began",
    )
    _add_running(parser)


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="NAME", help="the agent of stages that name none")
    parser.add_argument("--model", metavar="NAME", help="the model of stages that name none")
    parser.add_argument("--no-wait", action="store_true", help="stop where a person has to decide, without asking")
    add_json_option(parser, "the final state for programs, on standard output")
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="log to stderr, and show every attempt in full")
    loudness.add_argument("-q", "--quiet", action="store_true", help="print only the final state")
    add_color_option(parser)


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", default="last", help=f"{_RUN} (default: last)")
    parser.add_argument(
        "--follow", action="store_true", help="follow the run until it stops, and exit with its exit code"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every attempt in full, with its artifacts")
    add_json_option(parser)
    add_color_option(parser)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (default: 20)")
    add_json_option(parser)
    add_color_option(parser)


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a pipeline's YAML file")
    add_json_option(parser)


def _add_answer(parser: argparse.ArgumentParser) -> None:
    _add_run_name(parser)
    parser.add_argument("stage", metavar="STAGE", help="the stage that is waiting")
    parser.add_argument("--note", metavar="TEXT", default="", help="why; it is kept with the run")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run here, unless another process is working on it"
    )
    # What --resume needs besides, as `resume` has it by default.
    parser.set_defaults(agent=None, model=None, no_wait=False, verbose=False, quiet=False, accept_changes=False)
    add_json_option(parser, "with --resume: the final state for programs")
    add_color_option(parser)


def _add_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        nargs="?",
        metavar="OF",
        choices=["file", "status", "list"],
        default="file",
        help="file (default): a pipeline's file; status, list: what `status --json` and `list --json` print",
    )


def _add_remove(parser: argparse.ArgumentParser) -> None:
    _add_run_name(parser)


def _add_run_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)


_VERBS = {
    "run": (_add_run, "run a pipeline"),
    "resume": (_add_resume, "continue a run that was interrupted, or was waiting for an answer"),
    "status": (_add_status, "show one run as a tree"),
    "list": (_add_list, "show all runs, the newest first"),
    "validate": (_add_validate, "check pipeline files, at no cost"),
    "approve": (_add_answer, "approve the work of a stage that is waiting for a person"),
    "reject": (_add_answer, "reject the work of a stage that is waiting for a person"),
    "schema": (_add_schema, "print the JSON Schema of a pipeline's file"),
    "remove": (_add_remove, "remove a run with all its files"),
}
