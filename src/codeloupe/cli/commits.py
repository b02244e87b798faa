"""`codeloupe commits`: review many commits, show what to do with each, return the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from codeloupe.cli.commits_options import configure, flags_of, query_of
from codeloupe.cli.options import look_of
from codeloupe.cli.progress import ProgressDisplay, ProgressMode, choose_mode
from codeloupe.cli.running import Interrupted, run_to_end, set_up_logging, tell_notes
from codeloupe.cli.tally import Tally
from codeloupe.cli.writing import output_file, write_result
from codeloupe.commits.sweep import scope_of
from codeloupe.config.schema import Settings
from codeloupe.model.events import Event
from codeloupe.model.sweep import CommitQuery, CommitSweep
from codeloupe.reports.wording import counted
from codeloupe.runtime import configure as settings_for
from codeloupe.runtime import review_commits
from codeloupe.system.sanitise import log_line

__all__ = ["configure", "run"]


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
    # Only the module of the format that is asked for is loaded: that of text brings a library along.
    render: Any = getattr(
        import_module(f"codeloupe.reports.sweep_{arguments.output}"), f"render_sweep_{arguments.output}"
    )
    if arguments.output != "text":
        return str(render(sweep))
    look = look_of(arguments.color, to_file=arguments.save is not None)
    return str(render(sweep, width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose))
