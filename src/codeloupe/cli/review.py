"""`codeloupe review`: review a change, show the result, return the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from codeloupe import app
from codeloupe.cli.options import add_repo_option, add_scope_options, look_of, scope_of
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.cli.running import output_file, run_to_end, set_up_logging, write_result
from codeloupe.config.schema import Settings
from codeloupe.model.preview import Preview
from codeloupe.model.review import Review
from codeloupe.model.scope import ScopeRequest
from codeloupe.report.json_v1 import render_json
from codeloupe.report.preview import render_preview_json, render_preview_text
from codeloupe.report.text import render_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of the verb."""
    add_scope_options(parser)
    add_repo_option(parser)
    judging = parser.add_argument_group("judging")
    judging.add_argument("--fail-on", metavar="SEVERITY", help="exit 1 from this severity on (default: high)")
    judging.add_argument("--min-severity", metavar="SEVERITY", help="show from this severity on (default: low)")
    judging.add_argument(
        "--on-incomplete", choices=["fail", "pass"], help="exit 3 or 0 when not everything was reviewed"
    )
    judging.add_argument("--reviewer", metavar="TYPE", help="auto or offline (default: auto)")
    judging.add_argument("--untrusted", action="store_true", help="the change is a stranger's: believe nothing it says")
    judging.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="end an analyser after this time (default: 300)"
    )
    showing = parser.add_argument_group("showing")
    showing.add_argument("--format", choices=["text", "json"], default="text", help="how to show the result")
    showing.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the result to a file")
    showing.add_argument("--preview", action="store_true", help="show what would be reviewed, and review nothing")
    showing.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour the text")
    loudness = showing.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="log to stderr, and name every skipped file")
    loudness.add_argument("-q", "--quiet", action="store_true", help="nothing but the result")


def run(arguments: argparse.Namespace) -> int:
    """Review or preview, and write the result where it belongs."""
    set_up_logging(verbose=arguments.verbose)
    scope = scope_of(arguments)
    settings = run_to_end(app.configure(scope, repo=arguments.repo, flags=_flags(arguments))).settings
    with ExitStack() as opened:
        pieces = opened.enter_context(output_file(arguments.output)) if arguments.output else []
        if arguments.preview:
            preview = run_to_end(app.preview(scope, repo=arguments.repo, settings=settings))
            text, exit_code = _render_preview(preview, arguments), 0
        else:
            review = _review(scope, settings, arguments)
            text, exit_code = _render(review, arguments), review.exit_code
        pieces.append(text)
    _deliver(text, arguments)
    return exit_code


def _review(scope: ScopeRequest, settings: Settings, arguments: argparse.Namespace) -> Review:
    mode = choose_mode(quiet=arguments.quiet, stream=sys.stderr, environment=os.environ)
    with ProgressDisplay(stream=sys.stderr, mode=mode) as display:
        review = run_to_end(app.review(scope, repo=arguments.repo, settings=settings, emit=display.emit))
    if not review.complete and review.passed:
        print("codeloupe: not everything was reviewed; on_incomplete lets it pass", file=sys.stderr)
    return review


def _render(review: Review, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        return render_json(review)
    look = look_of(arguments.color, to_file=arguments.output is not None)
    return render_text(
        review, width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose
    )


def _render_preview(preview: Preview, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        return render_preview_json(preview)
    look = look_of(arguments.color, to_file=arguments.output is not None)
    return render_preview_text(preview, width=look.width, color=look.color, ascii_only=look.ascii_only)


def _deliver(text: str, arguments: argparse.Namespace) -> None:
    if arguments.output is None:
        write_result(text)
    elif not arguments.quiet:
        print(f"wrote {arguments.output}", file=sys.stderr)


def _flags(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    return {
        "include": arguments.include,
        "exclude": arguments.exclude,
        "fail_on": arguments.fail_on,
        "min_severity": arguments.min_severity,
        "on_incomplete": arguments.on_incomplete,
        "reviewer_type": arguments.reviewer,
        "timeout_seconds": arguments.timeout,
        "untrusted": arguments.untrusted or None,
    }
