"""The options of `codeloupe publish`. Apart from the verb, so that its help comes at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from codeloupe.cli.options import add_json_option, add_repo_option
from codeloupe.cli.parser import Parser

_EPILOG = """\
The token comes from GITHUB_TOKEN or GH_TOKEN, or from a GitHub App (--app-id, --app-key). No model is asked.
Run it again after each push: one summary, no comment twice, fixed threads are answered and resolved.
To set a finding aside on the pull request, a maintainer replies `dismiss: why`, or reacts with a thumb down.

exit codes:
  0  posted
  2  wrong usage, or rights are missing
  3  could not post, or not everything, or the pull request has newer commits
"""


def configure(parser: Parser) -> None:
    """Add the places to publish at to the parser of `publish`."""
    parser.description = "Post a saved review on a pull request."
    parser.elsewhere["gitlab"] = "`codeloupe review --format gitlab` writes a Code Quality report, which GitLab shows"
    places = parser.add_commands(dest="place")
    github = places.add_parser(
        "github",
        help="post it on a GitHub pull request",
        description="Post a saved review on a pull request of GitHub.",
        epilog=_EPILOG,
    )
    _add_what(github)
    _add_how(github)
    _add_login(github)


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pr",
        metavar="N|URL",
        default="",
        help="the pull request: its number, OWNER/NAME#N, or its page (default: that of the GitHub Actions event)",
    )
    parser.add_argument(
        "--repo-name",
        metavar="OWNER/NAME",
        default="",
        help="its repository (default: that of the event, or of the clone's origin)",
    )
    parser.add_argument(
        "--review",
        metavar="ID|FILE",
        default="last",
        help="a saved review by its id, or a JSON report; - is standard input (default: the last of this repository)",
    )
    add_repo_option(parser)


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="read the pull request and say what would be done")
    parser.add_argument(
        "--max-comments",
        metavar="N",
        type=int,
        default=20,
        help="at most N open threads, the most severe first; the rest is in the summary (default: 20)",
    )
    parser.add_argument(
        "--approve", action="store_true", help="approve when everything was reviewed and nothing blocks"
    )
    parser.add_argument("--request-changes", action="store_true", help="request changes when something blocks")
    parser.add_argument("--no-resolve", action="store_true", help="answer in threads, and leave them as they are")
    parser.add_argument(
        "--status",
        metavar="WHAT",
        choices=["check", "commit", "none"],
        help="check: a check run (Actions and Apps); commit: a commit status; none (default: by the token)",
    )
    add_json_option(parser, "print what was done, as JSON")


def _add_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app-id", metavar="ID", default="", help="log in as this GitHub App (or CODELOUPE_APP_ID)")
    parser.add_argument(
        "--app-key", metavar="FILE", type=Path, help="the App's private key (or CODELOUPE_APP_KEY_FILE)"
    )
