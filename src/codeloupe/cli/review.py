"""`codeloupe review`: review a change, show the result, return the exit code. Its options are in `review_options`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from codeloupe import runtime
from codeloupe.cli.options import look_of, scope_of
from codeloupe.cli.outputs import Output, deliver, outputs_of
from codeloupe.cli.progress import ProgressDisplay, ProgressMode, choose_mode
from codeloupe.cli.review_options import configure, context_of, flags_of
from codeloupe.cli.running import Interrupted, run_to_end, set_up_logging, tell_notes
from codeloupe.cli.tally import Tally
from codeloupe.config.provenance import LoadedSettings, OriginKind
from codeloupe.engine.prepare import fetch, patterns_of
from codeloupe.errors import UsageError
from codeloupe.git.engine import private_directory
from codeloupe.model.change import Change
from codeloupe.model.events import ChangeRead, Event
from codeloupe.model.preview import Preview
from codeloupe.model.review import Review
from codeloupe.model.scope import DiffScope, PullRequestScope, ScopeRequest
from codeloupe.model.usage import Usage
from codeloupe.reports.formats import FORMATS, Layout
from codeloupe.reports.shown_diff import ShownDiff
from codeloupe.reports.wording import counted
from codeloupe.system.redaction import redact
from codeloupe.system.sanitise import log_line

__all__ = ["configure", "run"]

_PREVIEW_FORMATS = ("text", "json")


class _Reviewed(NamedTuple):
    """The outcome, and the change it is about, where it came so far."""

    review: Review
    change: Change | None


def run(arguments: argparse.Namespace) -> int:
    """Review or preview, and write the result where it belongs."""
    set_up_logging(verbose=arguments.verbose, debug=arguments.debug)
    context = context_of(arguments)
    outputs = outputs_of(arguments)
    if arguments.preview and any(output.format not in _PREVIEW_FORMATS for output in outputs):
        raise UsageError("a preview is text or JSON", hint="leave --preview out, or take --format json")
    here = arguments.repo
    with _at_hand(scope_of(arguments), arguments) as scope:
        return _run(scope, context, outputs, arguments, here=here)


@contextmanager
def _at_hand(scope: ScopeRequest, arguments: argparse.Namespace) -> Iterator[ScopeRequest]:
    """What to review; a pull request is fetched into a repository of its own, which is then the one to work in."""
    if isinstance(scope, DiffScope) and scope.is_empty and not arguments.quiet:
        print(f"codeloupe: the diff {log_line(scope.name)} is empty: there is nothing to review", file=sys.stderr)
    if not isinstance(scope, PullRequestScope):
        yield scope
        return
    if not arguments.quiet:
        print(f"codeloupe: fetching pull request {log_line(scope.name)}", file=sys.stderr, flush=True)
    with private_directory() as directory:
        fetched, arguments.repo = run_to_end(fetch(scope, repo=arguments.repo, into=directory))
        yield fetched


def _run(
    scope: ScopeRequest, context: str, outputs: tuple[Output, ...], arguments: argparse.Namespace, *, here: Path
) -> int:
    flags = flags_of(arguments)
    if arguments.guessed or arguments.paths:
        if arguments.include:
            raise UsageError("paths and --include exclude each other", hint="give the paths as patterns to --include")
        named = run_to_end(patterns_of(arguments.guessed, arguments.paths, scope, repo=here))
        flags["include"] = named or None
    loaded = tell_notes(run_to_end(runtime.configure(scope, repo=arguments.repo, flags=flags)), quiet=arguments.quiet)
    if loaded.origins["untrusted"].kind is OriginKind.SITUATION and not arguments.quiet:
        why = log_line(str(loaded.origins["untrusted"]))
        print(f"codeloupe: the change is not trusted, {why}: settings and guidance come from the base", file=sys.stderr)
    settings = loaded.settings
    ended: list[int] = []

    def make() -> Callable[[Output], str]:
        if arguments.preview:
            preview = run_to_end(runtime.preview(scope, repo=arguments.repo, settings=settings))
            ended.append(0)
            return lambda output: _render_preview(preview, output, arguments)
        review, change = _review(scope, loaded, context, arguments)
        ended.append(review.exit_code)
        saved_in = _saved_in(scope, arguments, here=here) if settings.keep_history else None
        after = partial(_layout, arguments=arguments, change=change, saved_in=saved_in, untrusted=settings.untrusted)
        return lambda output: FORMATS[output.format](review, after(output))

    deliver(outputs, make, quiet=arguments.quiet)
    return ended[0]


def _review(scope: ScopeRequest, loaded: LoadedSettings, context: str, arguments: argparse.Namespace) -> _Reviewed:
    seen: list[Change] = []
    settings = loaded.settings
    own = (key for key in ("include", "exclude") if loaded.origins[key].kind is OriginKind.FLAG)
    tally = Tally()  # of our own, since a display that shows nothing counts nothing
    with ProgressDisplay(stream=sys.stderr, mode=_mode(arguments)) as display:

        def emit(event: Event) -> None:
            if isinstance(event, ChangeRead):
                seen.append(event.change)
            tally.take(event)
            display.emit(event)

        work = runtime.review(
            scope,
            repo=arguments.repo,
            settings=settings,
            emit=emit,
            context=context,
            fresh=arguments.fresh,
            since_last=arguments.since_last,
            transcript=_log_transcript if arguments.debug else None,
            own_patterns=frozenset(own),
        )
        try:
            review = run_to_end(work)
        except KeyboardInterrupt:
            raise Interrupted(_kept(tally), arguments.command_line, "--resume") from None
    if not review.complete and review.passed:
        print("codeloupe: not everything was reviewed; on_incomplete lets it pass", file=sys.stderr)
    if arguments.resume and not arguments.quiet:
        print(f"codeloupe: {_resumed(review.usage)}", file=sys.stderr)
    return _Reviewed(review, seen[0] if seen else None)


def _kept(tally: Tally) -> str:
    answered = tally.units_done - tally.units_failed
    if not answered:
        return "nothing was answered yet"
    return f"{answered:,} of {counted(tally.units_planned, 'answer', 'answers')} are kept and not asked for again"


def _log_transcript(title: str, text: str) -> None:
    # The log of `--debug` redacts what passes through it.
    logging.getLogger("codeloupe.transcript").debug("%s:\n%s", title, text)


def _mode(arguments: argparse.Namespace) -> ProgressMode:
    mode = choose_mode(quiet=arguments.quiet, stream=sys.stderr, environment=os.environ)
    # A log writes to the same terminal, and would tear a line that is redrawn.
    logs = arguments.verbose or arguments.debug
    return ProgressMode.PLAIN if logs and mode is ProgressMode.LIVE else mode


def _resumed(usage: Usage) -> str:
    asked = usage.requests + usage.cached
    if not asked:
        return "no agent call was needed"
    if not usage.cached:
        return "nothing of this review was in the ledger, so everything was asked again"
    return f"resumed: {usage.cached:,} of {counted(asked, 'answer', 'answers')} came from the ledger"


def _saved_in(scope: ScopeRequest, arguments: argparse.Namespace, *, here: Path) -> str | None:
    """The repository in whose history the review is, as a command names it; None where no command would find it."""
    is_fetched = arguments.repo != here
    if isinstance(scope, DiffScope) or is_fetched:
        return None
    return "" if here == Path() else str(here)


def _layout(
    output: Output, *, arguments: argparse.Namespace, change: Change | None, saved_in: str | None, untrusted: bool
) -> Layout:
    look = look_of(arguments.color, to_file=output.path is not None)
    return Layout(
        width=look.width,
        color=look.color,
        ascii_only=look.ascii_only,
        verbose=arguments.verbose,
        saved_in=saved_in,
        untrusted=untrusted,
        diff=None if change is None else ShownDiff({file.path: file for file in change.files}, redact),
    )


def _render_preview(preview: Preview, output: Output, arguments: argparse.Namespace) -> str:
    if output.format == "json":
        return str(_report("preview").render_preview_json(preview))
    look = look_of(arguments.color, to_file=output.path is not None)
    text = _report("preview_text").render_preview_text(
        preview, width=look.width, color=look.color, ascii_only=look.ascii_only
    )
    return str(text)


def _report(name: str) -> Any:
    """The module of a report: only the one that is asked for is loaded, since text brings a library along."""
    return import_module(f"codeloupe.reports.{name}")
