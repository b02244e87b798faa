"""The options of `codeloupe baseline`. Apart from the verb, so that its help comes at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from codeloupe.cli.options import add_repo_option

_EPILOG = """\
The baseline is the file codeloupe-baseline.yaml at the root of the repository; commit it. A finding that it holds is
still shown, as suppressed, and does not count. Of an untrusted change the base's file is taken.

A comment in the code does the same for one place, on the line or above it, and needs a reason too:
  # codeloupe: ignore[security] the table's name is a constant
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs below `baseline` to its parser."""
    parser.description = "Keep the list of findings that are known and do not count."
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="action", metavar="add|list|prune", required=True)
    _add_add(verbs.add_parser("add", help="findings of a review become known ones"))
    _add_list(verbs.add_parser("list", help="show the entries, the expired and unused ones marked"))
    _add_prune(verbs.add_parser("prune", help="remove the entries that have expired or are unused"))


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
    _add_where(parser)


def _add_list(parser: argparse.ArgumentParser) -> None:
    _add_where(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour the text")


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_where(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_where(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--review", metavar="ID", help="a saved review, as `codeloupe history list` has it (default: the last)"
    )
    source.add_argument("--from", metavar="FILE", dest="report", type=Path, help="a JSON report instead; - is stdin")
    add_repo_option(parser)
