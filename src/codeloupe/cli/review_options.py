"""The options of `codeloupe review`, and what they mean as settings and as context.

Apart from the review itself, so that `--help` and a mistake in the options do not pay for loading it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codeloupe.cli.options import add_color_option, add_repo_option, add_scope_options
from codeloupe.cli.outputs import add_output_options
from codeloupe.cli.parser import Parser
from codeloupe.errors import UsageError
from codeloupe.model.agents import REVIEWER_NAMES

MAX_CONTEXT_BYTES = 200_000
_REVIEWERS = f"auto, {', '.join(REVIEWER_NAMES[:-1])} or {REVIEWER_NAMES[-1]}"


def configure(parser: Parser) -> None:
    """Every option of the verb."""
    add_scope_options(parser)
    add_repo_option(parser)
    _add_reviewing(parser.add_argument_group("how to review"))
    _add_limits(parser.add_argument_group("limits"))
    _add_judging(parser.add_argument_group("judging"))
    _add_showing(parser.add_argument_group("showing"))


def add_asking_options(group: argparse._ArgumentGroup) -> None:
    """Who is asked, and in how small pieces."""
    group.add_argument("--reviewer", metavar="NAME", action="append", help=f"{_REVIEWERS}; or several: A,B")
    group.add_argument("--model", help="the model to ask for")
    group.add_argument(
        "--effort",
        metavar="low|medium|high",
        choices=["low", "medium", "high"],
        help="higher effort finds more and costs more",
    )


def add_spending_options(group: argparse._ArgumentGroup) -> None:
    """How much may be asked and spent."""
    group.add_argument("--concurrency", metavar="N", type=int, help="calls at a time (default: 5)")
    group.add_argument("--max-budget-usd", metavar="USD", type=float, help="stop before the cost exceeds this")
    group.add_argument("--max-tokens", metavar="N", type=int, help="stop before using more tokens")
    group.add_argument("--max-requests", metavar="N", type=int, help="stop before making more calls")
    group.add_argument("--wait-for-quota", action="store_true", help="wait until a quota opens, within --timeout")


def _add_reviewing(group: argparse._ArgumentGroup) -> None:
    add_asking_options(group)
    group.add_argument("--experts", metavar="A,B", help="one review for each checklist, such as security")
    group.add_argument(
        "--passes", metavar="N", type=int, help="review N times; findings seen more than once rank first"
    )
    group.add_argument(
        "--verify", action=argparse.BooleanOptionalAction, help="verify critical and high findings before they count"
    )
    group.add_argument("--lanes", metavar="A,B", help="run agent, offline or both in parallel")
    group.add_argument("--context-file", metavar="FILE", help="what the change is for; - is standard input")


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--timeout", metavar="SECONDS", type=float, help="for each call and each analyser")
    add_spending_options(group)
    ledger = group.add_mutually_exclusive_group()
    ledger.add_argument("--resume", action="store_true", help="continue an interrupted review")
    ledger.add_argument("--fresh", action="store_true", help="ignore saved answers and ask again")
    ledger.add_argument("--since-last", action="store_true", help="only what the last review has not seen")


def _add_judging(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fail-on", metavar="SEVERITY", help="exit 1 at or above this severity (default: high)")
    group.add_argument(
        "--min-severity", metavar="SEVERITY", help="show findings at or above this severity (default: low)"
    )
    group.add_argument(
        "--on-incomplete",
        metavar="fail|pass",
        choices=["fail", "pass"],
        help="exit 3 or 0 if something was not reviewed",
    )
    group.add_argument(
        "--untrusted", action="store_true", help="treat the change as hostile: ignore its settings and guidance"
    )


def _add_showing(group: argparse._ArgumentGroup) -> None:
    add_output_options(group)
    group.add_argument("--preview", action="store_true", help="show what would be reviewed, at no cost")
    add_color_option(group)
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="log to stderr, name skipped files")
    loudness.add_argument("--debug", action="store_true", help="log prompts and answers, without secrets")
    loudness.add_argument("-q", "--quiet", action="store_true", help="print only the result")


def flags_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    timeouts = ("timeout_seconds", "review_timeout_seconds", "agent_sdk_review_timeout")
    same = (
        *("include", "exclude", "fail_on", "min_severity", "on_incomplete", "model", "effort", "experts", "passes"),
        *("verify", "lanes", "concurrency", "max_budget_usd", "max_tokens", "max_requests"),
    )
    return {
        **{key: getattr(arguments, key) for key in same},
        **dict.fromkeys(timeouts, arguments.timeout),
        **_reviewers(arguments.reviewer),
        "untrusted": arguments.untrusted or None,
        "wait_for_quota": arguments.wait_for_quota or None,
    }


def _reviewers(given: list[str] | None) -> dict[str, object]:
    if given is None:
        return {}
    names = [name.strip() for words in given for name in words.split(",") if name.strip()]
    # One reviewer takes the place of the several that a file may name.
    return {"reviewers": names} if len(names) > 1 else {"reviewer_type": names[0] if names else "", "reviewers": []}


def context_of(arguments: argparse.Namespace) -> str:
    """What stands in the context file, or nothing. Raises UsageError for one that cannot be read or is too large."""
    name = arguments.context_file
    if name is None:
        return ""
    if name == "-" and arguments.diff_file == "-":
        raise UsageError("standard input cannot be both the diff and the context", hint="give one of them a file")
    try:
        data = _read(name)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(
            f"cannot read the context file {name}: {reason}", hint="give --context-file a readable file, or -"
        ) from error
    if len(data) > MAX_CONTEXT_BYTES:
        hint = "keep what the change is meant to do, and leave out the rest"
        raise UsageError(f"the context file {name} is larger than {MAX_CONTEXT_BYTES:,} bytes", hint=hint)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the context file {name} is not UTF-8 text (byte {error.start})", hint="convert it to UTF-8"
        ) from error


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(MAX_CONTEXT_BYTES + 1)
    with Path(name).open("rb") as stream:
        return stream.read(MAX_CONTEXT_BYTES + 1)
