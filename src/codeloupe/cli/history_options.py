"""The options of `codeloupe history`. Apart from the verb, so that its help comes at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from codeloupe.cli.options import add_color_option, add_json_option, add_repo_option
from codeloupe.cli.parser import Parser, sentence

_ID = "an id, the beginning of one (4 characters or more), or `last`"


def configure(parser: Parser) -> None:
    """Add the verbs below `history` to its parser."""
    parser.description = "Show, compare and re-judge saved reviews; see trends."
    verbs = parser.add_commands(dest="action")
    for name, (add_options, about) in _VERBS.items():
        add_options(verbs.add_parser(name, help=about, description=sentence(about)))


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (default: 20)")
    parser.add_argument("--branch", metavar="NAME", help="only reviews made on this branch")
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", default="last", help=f"{_ID} (default: last)")
    parser.add_argument("--raw", action="store_true", help="what the agents printed, unit by unit")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every skipped file and fingerprint")
    add_repo_option(parser)
    add_color_option(parser)


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_ID)
    # The formats are known to the verb alone: to ask for them here would load what renders them.
    parser.add_argument(
        "--format",
        default="text",
        metavar="FORMAT",
        help="text, json, sarif, markdown, html and others; a wrong one names them all",
    )
    parser.add_argument("--fail-on", metavar="SEVERITY", help="exit 1 from this severity on (default: as reviewed)")
    parser.add_argument("--min-severity", metavar="SEVERITY", help="show from this severity on (default: as reviewed)")
    parser.add_argument(
        "--on-incomplete",
        metavar="fail|pass",
        choices=["fail", "pass"],
        help="exit 3 or 0 if something was not reviewed (default: as reviewed)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the result to a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every skipped file and fingerprint")
    add_repo_option(parser)
    add_color_option(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("earlier", metavar="A", help=f"the earlier review: {_ID}")
    parser.add_argument("later", metavar="B", nargs="?", default="last", help="the later one (default: last)")
    add_repo_option(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_trends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        metavar="WHAT",
        choices=["week", "expert", "reviewer"],
        action="append",
        help="week, expert or reviewer (default: all three)",
    )
    parser.add_argument("--weeks", metavar="N", type=int, default=12, help="the last N weeks (default: 12)")
    _add_where(parser)
    add_json_option(parser)
    add_color_option(parser)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", metavar="AGE", help="what is older than this: 90d, 12w, 6m, 1y")
    parser.add_argument("--keep", metavar="N", type=int, help="never the newest N; alone: all but the newest N")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_where(parser)
    add_json_option(parser)


def _add_dismiss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fingerprint", metavar="FINGERPRINT", nargs="?", help="the finding's, or its beginning (default: list them)"
    )
    parser.add_argument("--reason", metavar="TEXT", help="why it is no defect; must be given")
    parser.add_argument("--undo", action="store_true", help="let it count again")
    add_repo_option(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    add_repo_option(parser)
    parser.add_argument("--all-repositories", action="store_true", help="of every repository, not of this one alone")


_VERBS = {
    "list": (_add_list, "what is saved, the newest first"),
    "show": (_add_show, "one saved review, or the commits of a sweep"),
    "render": (_add_render, "a saved review in any format, judged by another policy if asked"),
    "compare": (_add_compare, "what is new, still open, fixed or back between two reviews"),
    "trends": (_add_trends, "findings, share fixed, cost and time, as a table and a plot"),
    "dismiss": (_add_dismiss, "dismiss a finding so that it no longer counts, or list dismissed ones"),
    "prune": (_add_prune, "remove old entries"),
}
