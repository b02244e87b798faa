"""`codeloupe commits`: review many commits, show what to do with each, return the exit code."""

from __future__ import annotations

import argparse

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, examples, flag, option
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.review import flags_of
from codeloupe.cli.verbs import (
    Interrupted,
    Made,
    Output,
    add_output_options,
    deliver,
    loaded_by,
    note,
    outputs_of,
    run_to_end,
    set_up_logging,
)
from codeloupe.commits.queries import scope_of
from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.model.sweep import CommitQuery, CommitSweep
from codeloupe.planning.settings import configure as settings_for
from codeloupe.reports import SWEEP_FORMATS, Layout, render_sweep
from codeloupe.reports.wording import counted
from codeloupe.runtime import review_commits

DEFAULT_SINCE = "24 hours ago"
_EPILOG = """\
Each commit is reviewed on its own, with the checklist for its kind. A merge is reviewed as one change against its
first parent; with --merges or --author, each commit inside it is reviewed, and the merge only for what it changed
itself. Answers are stored: after an interruption, run the same command again to review only the missing commits.
"""


def configure(parser: Parser) -> None:
    """Add the options of `commits`."""
    parser.epilog = _EPILOG
    # Options of a review that a sweep does not have; the settings of files and variables hold for them.
    absent = ("include", "exclude", "fail_on", "min_severity", "experts", "passes", "lanes")
    parser.set_defaults(**dict.fromkeys(absent))
    which = parser.add_argument_group(f"which commits (default: HEAD, since {DEFAULT_SINCE})")
    option(which, "range", "A..B", "the commits of B that are not in A", nargs="?")
    option(which, "--since", "DATE", "commits after this: '1 hour ago' or 2024-05-31")
    option(which, "--until", "DATE", "commits before this")
    option(which, "--branch", "B", "the commits of this branch")
    option(which, "--author", "A", "by authors whose name or email contains this text")
    option(which, "--max", "N", "only the newest N", type=int)
    flag(which, "--merges", "review the commits inside merges one by one")
    options.add(parser, "--repo")
    how = parser.add_argument_group("how to review")
    options.add(how, *options.ASKING, "--verify", "--on-workers")
    flag(how, "--untrusted", "ignore settings and guidance of the commits")
    limits = parser.add_argument_group("limits")
    option(limits, "--timeout", "SECONDS", "for each call (default: 300)", type=float)
    options.add(limits, *options.SPENDING, "--fresh")
    judging = parser.add_argument_group("judging")
    flag(judging, "--strict", "exit 1 if there is a high or critical finding")
    options.add(judging, "--on-incomplete")
    showing = parser.add_argument_group("showing")
    add_output_options(showing, SWEEP_FORMATS)
    options.add(showing, "--color")
    options.add_loudness(showing, quiet="print only the result")
    examples(
        parser,
        "codeloupe commits                            # the last 24 hours",
        "codeloupe commits --since yesterday --author ada",
        "codeloupe commits v1.0..HEAD --strict        # exit 1 for high findings",
        "codeloupe commits --max 5 --format markdown -o sweep.md",
    )


def query_of(arguments: argparse.Namespace) -> CommitQuery:
    """The commits that the options name. Raises UsageError for options that contradict each other or mean nothing."""
    if arguments.range is not None and arguments.branch is not None:
        raise UsageError("A..B and --branch exclude each other", hint="a range names its branch: A..BRANCH")
    if arguments.range is not None and ".." not in arguments.range:
        hint = f"give A..B, or --branch {arguments.range} for the newest commits of a branch"
        raise UsageError(f"{arguments.range!r} is not a range of commits", hint=hint)
    if arguments.branch is not None and ".." in arguments.branch:
        raise UsageError(f"{arguments.branch!r} is a range, not a branch", hint="give a range without --branch")
    if arguments.max is not None and arguments.max < 1:
        raise UsageError(f"--max is {arguments.max}, and must be at least 1", hint="give 1 or more")
    bounded = (arguments.range, arguments.since, arguments.max) != (None, None, None)
    return CommitQuery(
        revision=arguments.range or arguments.branch or "HEAD",
        since=arguments.since if bounded else DEFAULT_SINCE,
        until=arguments.until,
        author=arguments.author,
        max_count=arguments.max,
        merges=arguments.merges,
    )


def run(arguments: argparse.Namespace) -> int:
    """Review the commits, and write the result where it belongs."""
    set_up_logging(verbose=arguments.verbose)
    query = query_of(arguments)
    outputs = outputs_of(arguments)
    loading = settings_for(scope_of(query), repo=arguments.repo, flags=flags_of(arguments))
    loaded = loaded_by(loading, quiet=arguments.quiet)

    def make() -> Made:
        if arguments.on_workers:
            from codeloupe.cli.jobs import sweep_on_workers

            sweep = sweep_on_workers(query, loaded, arguments)
        else:
            sweep = _sweep(query, loaded.settings, arguments)
        if all(output.path is not None for output in outputs):
            note(sweep.summary, quiet=arguments.quiet)

        def show(output: Output) -> str:
            look = options.look_of(arguments.color, to_file=output.path is not None)
            return render_sweep(sweep, output.format, Layout(**look, verbose=arguments.verbose))

        return sweep.exit_code, show

    return deliver(outputs, make, quiet=arguments.quiet)


def _sweep(query: CommitQuery, settings: Settings, arguments: argparse.Namespace) -> CommitSweep:
    mode = choose_mode(quiet=arguments.quiet, logs=arguments.verbose)
    with ProgressDisplay(mode=mode) as display:
        work = review_commits(
            query,
            repo=arguments.repo,
            settings=settings,
            strict=arguments.strict,
            fresh=arguments.fresh,
            emit=display.emit,
        )
        try:
            sweep = run_to_end(work)
        except KeyboardInterrupt:
            reviewed = display.commits_done - display.commits_failed
            commits = counted(display.commits_total, "commit")
            kept = f"{reviewed:,} of {commits} are stored and not reviewed again"
            raise Interrupted(kept if reviewed else "no commit was finished yet", arguments.command_line) from None
    if not sweep.commits:
        note(f"there are no commits to review: {sweep.description}", quiet=arguments.quiet)
    if not sweep.exit_code and any(commit.verdict is None for commit in sweep.commits):
        note("not every commit was reviewed; on_incomplete lets it pass")
    return sweep
