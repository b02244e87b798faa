"""`codeloupe review`: review a change, show the result, return the exit code. Its options are in `review_options`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from codeloupe import runtime
from codeloupe.cli.options import add_color_option, add_repo_option, add_scope_options, look_of, scope_of
from codeloupe.cli.output import Output, add_output_options, deliver, outputs_of, set_up_logging
from codeloupe.cli.parser import Parser
from codeloupe.cli.progress import ProgressDisplay, ProgressMode, Tally, choose_mode
from codeloupe.cli.running import Interrupted, run_to_end, tell_notes
from codeloupe.config.loading import LoadedSettings, OriginKind
from codeloupe.engine.prepare import fetch, patterns_of
from codeloupe.errors import UsageError
from codeloupe.git.repository import private_directory
from codeloupe.model.agent import Usage
from codeloupe.model.change import Change
from codeloupe.model.events import ChangeRead, Event
from codeloupe.model.review import Review
from codeloupe.model.scope import DiffScope, PullRequestScope, ScopeRequest
from codeloupe.reports import PREVIEW_FORMATS, Layout, ShownDiff, render, render_preview
from codeloupe.reports.wording import counted
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import log_line

MAX_CONTEXT_BYTES = 200_000
_REVIEWERS = "auto, agent_sdk, claude_cli, codex, gemini, api, cerberus, command or offline"


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


class _Reviewed(NamedTuple):
    """The outcome, and the change it is about, where it came so far."""

    review: Review
    change: Change | None


def run(arguments: argparse.Namespace) -> int:
    """Review or preview, and write the result where it belongs."""
    set_up_logging(verbose=arguments.verbose, debug=arguments.debug)
    context = context_of(arguments)
    outputs = outputs_of(arguments)
    if arguments.preview and any(output.format not in PREVIEW_FORMATS for output in outputs):
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
            return lambda output: render_preview(preview, output.format, _layout(output, arguments))
        review, change = _review(scope, loaded, context, arguments)
        ended.append(review.exit_code)
        saved_in = _saved_in(scope, arguments, here=here) if settings.keep_history else None
        after = partial(_layout, arguments=arguments, change=change, saved_in=saved_in, untrusted=settings.untrusted)
        return lambda output: render(review, output.format, after(output))

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
    output: Output,
    arguments: argparse.Namespace,
    *,
    change: Change | None = None,
    saved_in: str | None = None,
    untrusted: bool = False,
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
