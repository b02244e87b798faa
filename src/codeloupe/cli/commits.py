"""`codeloupe commits`: review many commits, show what to do with each, return the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from codeloupe.cli.options import add_color_option, add_repo_option, look_of
from codeloupe.cli.output import output_file, set_up_logging, write_result
from codeloupe.cli.progress import ProgressDisplay, ProgressMode, Tally, choose_mode
from codeloupe.cli.review import add_asking_options, add_spending_options
from codeloupe.cli.review import flags_of as review_flags_of
from codeloupe.cli.running import Interrupted, run_to_end, tell_notes
from codeloupe.commits.sweep import scope_of
from codeloupe.config.schema import Settings
from codeloupe.engine.settings import configure as settings_for
from codeloupe.errors import UsageError
from codeloupe.model.events import Event
from codeloupe.model.sweep import CommitQuery, CommitSweep
from codeloupe.reports import SWEEP_FORMATS, Layout, render_sweep
from codeloupe.reports.wording import counted
from codeloupe.runtime import review_commits
from codeloupe.system.untrusted import log_line

DEFAULT_SINCE = "24 hours ago"
_EPILOG = """\
Each commit is reviewed on its own, with the checklist for its kind. A merge is reviewed as one change against its
first parent; with --merges or --author, each commit that it brought in is reviewed, and the merge only for what it
changed itself. Answers are kept: after an interruption, run the same command again to review only the missing commits.
"""
# Options of a review that a sweep does not have; the settings of files and variables hold for them.
_NOT_HERE = ("include", "exclude", "fail_on", "min_severity", "experts", "passes", "lanes")


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of the verb."""
    parser.epilog = _EPILOG
    parser.set_defaults(**dict.fromkeys(_NOT_HERE))
    _add_choosing(parser.add_argument_group(f"which commits (default: of HEAD, since {DEFAULT_SINCE})"))
    add_repo_option(parser)
    _add_reviewing(parser.add_argument_group("how to review"))
    _add_limits(parser.add_argument_group("limits"))
    _add_judging(parser.add_argument_group("judging"))
    _add_showing(parser.add_argument_group("showing"))


def _add_choosing(group: argparse._ArgumentGroup) -> None:
    group.add_argument("range", nargs="?", metavar="A..B", help="the commits of B that are not in A")
    group.add_argument("--since", metavar="DATE", help="from then on, such as '1 hour ago' or 2024-05-31")
    group.add_argument("--until", metavar="DATE", help="up to then")
    group.add_argument("--branch", metavar="B", help="of this branch")
    group.add_argument("--author", metavar="A", help="by authors whose name or email contains this text")
    group.add_argument("--max", metavar="N", type=int, help="at most the newest N")
    group.add_argument("--merges", action="store_true", help="review the commits inside merges one by one")


def _add_reviewing(group: argparse._ArgumentGroup) -> None:
    add_asking_options(group)
    group.add_argument(
        "--verify", action=argparse.BooleanOptionalAction, help="verify critical and high findings before they count"
    )
    group.add_argument(
        "--untrusted", action="store_true", help="treat the commits as hostile: ignore their settings and guidance"
    )


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--timeout", metavar="SECONDS", type=float, help="for each call (default: 300)")
    add_spending_options(group)
    group.add_argument("--fresh", action="store_true", help="ignore saved answers and ask again")


def _add_judging(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--strict", action="store_true", help="exit 1 if there is a high or critical finding")
    group.add_argument(
        "--on-incomplete",
        metavar="fail|pass",
        choices=["fail", "pass"],
        help="exit 3 or 0 if something was not reviewed",
    )


def _add_showing(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--output",
        "--format",
        metavar="FORMAT",
        choices=SWEEP_FORMATS,
        default="text",
        help=f"{', '.join(SWEEP_FORMATS)} (default: text)",
    )
    group.add_argument("--save", "-o", metavar="FILE", type=Path, help="write the result to a file")
    add_color_option(group)
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="log to stderr")
    loudness.add_argument("-q", "--quiet", action="store_true", help="print only the result")


def query_of(arguments: argparse.Namespace) -> CommitQuery:
    """The commits that the options name. Raises UsageError for options that contradict each other or mean nothing."""
    if arguments.range is not None and arguments.branch is not None:
        raise UsageError("A..B and --branch exclude each other", hint="a range names its branch: A..BRANCH")
    if arguments.range is not None and ".." not in arguments.range:
        raise UsageError(
            f"{arguments.range!r} is no range of commits",
            hint=f"give A..B, or --branch {arguments.range} for the newest commits of a branch",
        )
    if arguments.branch is not None and ".." in arguments.branch:
        raise UsageError(f"{arguments.branch!r} is no branch but a range", hint="give a range without --branch")
    if arguments.max is not None and arguments.max < 1:
        raise UsageError(f"--max {arguments.max} leaves no commit", hint="give a number from 1 on")
    bounded = (arguments.range, arguments.since, arguments.max) != (None, None, None)
    return CommitQuery(
        revision=arguments.range or arguments.branch or "HEAD",
        since=arguments.since if bounded else DEFAULT_SINCE,
        until=arguments.until,
        author=arguments.author,
        max_count=arguments.max,
        merges=arguments.merges,
    )


def flags_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    return review_flags_of(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Review the commits, and write the result where it belongs."""
    set_up_logging(verbose=arguments.verbose)
    query = query_of(arguments)
    loaded = run_to_end(settings_for(scope_of(query), repo=arguments.repo, flags=flags_of(arguments)))
    settings = tell_notes(loaded, quiet=arguments.quiet).settings
    with ExitStack() as opened:
        pieces = opened.enter_context(output_file(arguments.save)) if arguments.save else []
        sweep = _sweep(query, settings, arguments)
        text = _render(sweep, arguments)
        pieces.append(text)
    if arguments.save is None:
        write_result(text)
    elif not arguments.quiet:
        print(f"codeloupe: {log_line(sweep.summary)}\nwrote {arguments.save}", file=sys.stderr)
    return sweep.exit_code


def _sweep(query: CommitQuery, settings: Settings, arguments: argparse.Namespace) -> CommitSweep:
    tally = Tally()  # of our own, since a display that shows nothing counts nothing
    with ProgressDisplay(stream=sys.stderr, mode=_mode(arguments)) as display:

        def emit(event: Event) -> None:
            tally.take(event)
            display.emit(event)

        try:
            sweep = run_to_end(
                review_commits(
                    query,
                    repo=arguments.repo,
                    settings=settings,
                    strict=arguments.strict,
                    fresh=arguments.fresh,
                    emit=emit,
                )
            )
        except KeyboardInterrupt:
            raise Interrupted(_kept(tally), arguments.command_line) from None
    if not sweep.commits and not arguments.quiet:
        print(f"codeloupe: there are no commits to review: {log_line(sweep.description)}", file=sys.stderr)
    if not sweep.exit_code and any(commit.verdict is None for commit in sweep.commits):
        print("codeloupe: not every commit was reviewed; on_incomplete lets it pass", file=sys.stderr)
    return sweep


def _kept(tally: Tally) -> str:
    reviewed = tally.commits_done - tally.commits_failed
    if not reviewed:
        return "no commit was finished yet"
    return f"{reviewed:,} of {counted(tally.commits_total, 'commit', 'commits')} are kept and not reviewed again"


def _mode(arguments: argparse.Namespace) -> ProgressMode:
    mode = choose_mode(quiet=arguments.quiet, stream=sys.stderr, environment=os.environ)
    # A log writes to the same terminal, and would tear a line that is redrawn.
    return ProgressMode.PLAIN if arguments.verbose and mode is ProgressMode.LIVE else mode


def _render(sweep: CommitSweep, arguments: argparse.Namespace) -> str:
    look = look_of(arguments.color, to_file=arguments.save is not None)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    return render_sweep(sweep, arguments.output, layout)
