"""The options of `codeloupe baseline`. Apart from the verb, so that its help comes at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from codeloupe.cli.options import add_color_option, add_json_option, add_repo_option
from codeloupe.cli.parser import Parser, sentence

_EPILOG = """\
The baseline is the file codeloupe-baseline.yaml at the root of the repository; commit it. A finding listed in it is
still shown, as suppressed, but does not count. For an untrusted change the base branch's file is used.

A comment in the code does the same for one place, on the line or above it, and needs a reason too:
  # codeloupe: ignore[security] the table's name is a constant
"""


def configure(parser: Parser) -> None:
    """Add the verbs below `baseline` to its parser."""
    parser.description = "Maintain the list of known findings that do not count."
    parser.epilog = _EPILOG
    verbs = parser.add_commands(dest="action")
    for name, (add_options, about) in _VERBS.items():
        add_options(verbs.add_parser(name, help=about, description=sentence(about)))


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fingerprint",
        nargs="*",
        metavar="FINGERPRINT",
        help="a finding, by 6 or more characters of its fingerprint, or by its place (a.py:12)",
    )
    parser.add_argument("--all", action="store_true", help="every finding of the review that counts")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why they do not count")
    parser.add_argument("--owner", metavar="NAME", default="", help="who answers for it")
    parser.add_argument("--expires", metavar="DATE", help="the last day on which it holds, as YYYY-MM-DD")
    _add_where(parser, what="a saved review or sweep")


def _add_list(parser: argparse.ArgumentParser) -> None:
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_where(parser)
    add_json_option(parser)


def _add_where(parser: argparse.ArgumentParser, *, what: str = "a saved review") -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--review", metavar="ID", help=f"{what}, as `codeloupe history list` has it (default: the last)"
    )
    source.add_argument("--from", metavar="FILE", dest="report", type=Path, help="a JSON report instead; - is stdin")
    add_repo_option(parser)


_VERBS = {
    "add": (_add_add, "add findings of a review to the baseline"),
    "list": (_add_list, "show the entries, with the expired and unused ones marked"),
    "prune": (_add_prune, "remove the entries that have expired or are unused"),
}
