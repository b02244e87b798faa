"""`codeloupe review`: review a change, show the result, return the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codeloupe.cli import options, verbs
from codeloupe.cli.parser import Parser, examples, flag, option
from codeloupe.cli.progress import ProgressDisplay, choose_mode
from codeloupe.config.loading import LoadedSettings, OriginKind
from codeloupe.errors import CodeloupeError, UsageError
from codeloupe.model.change import Change
from codeloupe.model.review import Review
from codeloupe.model.scope import DiffScope, PullRequestScope, ScopeRequest
from codeloupe.reports import PREVIEW_FORMATS, Layout, ShownDiff, render, render_preview
from codeloupe.reports.wording import counted
from codeloupe.system.redaction import redact


def configure(parser: Parser) -> None:
    """Add the options of `review`."""
    options.add_scope(parser)
    options.add(parser, "--repo")
    how = parser.add_argument_group("how to review")
    options.add(how, *options.ASKING)
    option(how, "--experts", "A,B", "review with these experts, such as security")
    option(how, "--passes", "N", "review N times; repeated findings rank first", type=int)
    options.add(how, "--verify")
    option(how, "--lanes", "A,B", "agent, offline or both, in parallel")
    option(how, "--context-file", "FILE", "the purpose of the change; - is standard input")
    limits = parser.add_argument_group("limits")
    option(limits, "--timeout", "SECONDS", "for each call and each analyser", type=float)
    options.add(limits, *options.SPENDING)
    options.add(how, "--on-workers")
    ledger = limits.add_mutually_exclusive_group()
    flag(ledger, "--resume", "continue an interrupted review")
    options.add(ledger, "--fresh")
    flag(ledger, "--since-last", "report only what is new since the last review")
    judging = parser.add_argument_group("judging")
    option(judging, "--fail-on", "SEVERITY", "exit 1 at or above this severity (default: high)")
    option(judging, "--min-severity", "SEVERITY", "show findings at or above this (default: low)")
    options.add(judging, "--on-incomplete")
    flag(judging, "--untrusted", "ignore settings and guidance of the change itself")
    showing = parser.add_argument_group("showing")
    verbs.add_output_options(showing)
    flag(showing, "--preview", "show what would be reviewed, at no cost")
    options.add(showing, "--color")
    options.add_loudness(
        showing,
        verbose="log to stderr, name skipped files",
        debug="log prompts and answers, without secrets",
        quiet="print only the result",
    )
    examples(
        parser,
        "codeloupe review                        # your branch plus uncommitted changes",
        "codeloupe review --staged               # the staged changes",
        "codeloupe review main...HEAD            # the commits on this branch",
        "codeloupe review --commit HEAD src/     # the last commit, in one folder",
        "codeloupe review --pr 12 --preview      # what would be reviewed, at no cost",
        "codeloupe review --reviewer offline --format sarif -o review.sarif",
    )


def flags_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that are settings too; None means not given."""
    timeouts = ("timeout_seconds", "review_timeout_seconds", "agent_sdk_review_timeout")
    same = (
        *("include", "exclude", "fail_on", "min_severity", "on_incomplete", "model", "effort", "experts", "passes"),
        *("verify", "lanes", "concurrency", "max_budget_usd", "max_tokens", "max_requests"),
    )
    flags = {key: getattr(arguments, key) for key in same} | dict.fromkeys(timeouts, arguments.timeout)
    flags |= {"untrusted": arguments.untrusted or None, "wait_for_quota": arguments.wait_for_quota or None}
    if arguments.reviewer is not None:
        names = [name.strip() for words in arguments.reviewer for name in words.split(",") if name.strip()]
        names = list(dict.fromkeys(names))
        # One reviewer takes the place of the several that a file may name.
        flags["reviewers"] = names if len(names) > 1 else []
        if len(names) <= 1:
            flags["reviewer_type"] = names[0] if names else ""
    return flags


def context_of(arguments: argparse.Namespace) -> str:
    """What is in the context file, or nothing. Raises UsageError for one that cannot be read or is too large."""
    name = arguments.context_file
    if name is None:
        return ""
    if name == "-" and arguments.diff_file == "-":
        raise UsageError("standard input cannot be both the diff and the context", hint="give one of them a file")
    return options.read_text(name, f"the context file {name}", 200_000)


def run(arguments: argparse.Namespace) -> int:
    """Review or preview, and write the result where it belongs."""
    verbs.set_up_logging(verbose=arguments.verbose, debug=arguments.debug)
    context = context_of(arguments)
    outputs = verbs.outputs_of(arguments)
    if arguments.preview and any(output.format not in PREVIEW_FORMATS for output in outputs):
        raise UsageError("a preview is text or JSON", hint="remove --preview, or use --format json")
    if arguments.on_workers:
        from codeloupe.cli.jobs import review_on_workers

        return verbs.deliver(outputs, lambda: review_on_workers(arguments, context, _layout), quiet=arguments.quiet)
    here = arguments.repo
    with _at_hand(options.scope_of(arguments), arguments) as scope:
        loaded = _settings(scope, arguments, here=here)

        def make() -> verbs.Made:
            if arguments.preview:
                from codeloupe import runtime

                preview = verbs.run_to_end(runtime.preview(scope, repo=arguments.repo, settings=loaded.settings))
                return 0, lambda output: render_preview(preview, output.format, _layout(output, arguments))
            # A pull request is reviewed in another repository, but belongs to the one of the command.
            work_tree = "" if arguments.repo == here else _work_tree(here)
            review, change = _review(scope, loaded, context, arguments, work_tree=work_tree)
            # The text report names the commands itself.
            if review.hint and all(output.format != "text" for output in outputs):
                verbs.note(f"no changes to review; {review.hint}", quiet=arguments.quiet)
            # The repository as a command names it; no command would find what was fetched, or came as a diff.
            is_kept = loaded.settings.keep_history and not isinstance(scope, DiffScope) and arguments.repo == here
            more = {
                "saved_in": ("" if here == Path() else str(here)) if is_kept else None,
                "untrusted": loaded.settings.untrusted,
                "diff": change and ShownDiff({file.path: file for file in change.files}, redact),
            }
            return review.exit_code, lambda output: render(review, output.format, _layout(output, arguments, **more))

        return verbs.deliver(outputs, make, quiet=arguments.quiet)


@contextmanager
def _at_hand(scope: ScopeRequest, arguments: argparse.Namespace) -> Iterator[ScopeRequest]:
    """What to review; a pull request is fetched into a repository of its own, which is then the one to work in."""
    if isinstance(scope, DiffScope) and scope.is_empty:
        verbs.note(f"the diff {scope.name} is empty: there is nothing to review", quiet=arguments.quiet)
    if not isinstance(scope, PullRequestScope):
        yield scope
        return
    from codeloupe.git.repository import private_directory
    from codeloupe.planning.prepare import fetch

    verbs.note(f"fetching pull request {scope.name}", quiet=arguments.quiet)
    with private_directory() as directory:
        fetched, arguments.repo = verbs.run_to_end(fetch(scope, repo=arguments.repo, into=directory))
        yield fetched


def _settings(scope: ScopeRequest, arguments: argparse.Namespace, *, here: Path) -> LoadedSettings:
    from codeloupe import runtime
    from codeloupe.planning.globs import patterns_of

    flags = flags_of(arguments)
    if arguments.guessed or arguments.paths:
        if arguments.include:
            raise UsageError("paths and --include exclude each other", hint="give the paths as patterns to --include")
        named = verbs.run_to_end(patterns_of(arguments.guessed, arguments.paths, scope, repo=here))
        flags["include"] = named or None
    loaded = verbs.loaded_by(runtime.configure(scope, repo=arguments.repo, flags=flags), quiet=arguments.quiet)
    origin = loaded.origins["untrusted"]
    if origin.kind is OriginKind.SITUATION:
        why = f"the change is not trusted, {origin}: settings and guidance come from the base"
        verbs.note(why, quiet=arguments.quiet)
    return loaded


def _work_tree(here: Path) -> str:
    """Return the history's name of the working tree in which the command runs, or an empty text without a history."""
    from codeloupe.history import locate, opened_history

    with suppress(CodeloupeError), opened_history() as history:
        return locate(history, here).work_tree
    return ""


def _review(
    scope: ScopeRequest, loaded: LoadedSettings, context: str, arguments: argparse.Namespace, *, work_tree: str
) -> tuple[Review, Change | None]:
    """Review, and return the outcome with the change it is about, if that could be read."""
    from codeloupe import runtime

    own = (key for key in ("include", "exclude") if loaded.origins[key].kind is OriginKind.FLAG)
    mode = choose_mode(quiet=arguments.quiet, logs=arguments.verbose or arguments.debug)
    with ProgressDisplay(mode=mode) as display:
        work = runtime.review(
            scope,
            repo=arguments.repo,
            settings=loaded.settings,
            emit=display.emit,
            context=context,
            fresh=arguments.fresh,
            since_last=arguments.since_last,
            own_patterns=frozenset(own),
            work_tree=work_tree,
        )
        try:
            review = verbs.run_to_end(work)
        except KeyboardInterrupt:
            stored = display.answers_stored
            what = "no answer is stored yet"
            if stored:
                what = f"{counted(stored, 'answer is', 'answers are')} stored and will not be requested again"
            raise verbs.Interrupted(what, arguments.command_line, "--resume") from None
    if not review.complete and review.passed:
        verbs.note("not everything was reviewed; on_incomplete lets it pass")
    if arguments.resume:
        asked, cached = review.usage.requests + review.usage.cached, review.usage.cached
        said = "no answer of this review was in the ledger, so every call was made again"
        if cached:
            said = f"resumed: {cached:,} of {counted(asked, 'answer')} came from the ledger"
        verbs.note(said if asked else "no agent call was needed", quiet=arguments.quiet)
    return review, display.change


def _layout(output: verbs.Output, arguments: argparse.Namespace, **more: object) -> Layout:
    look = options.look_of(arguments.color, to_file=output.path is not None)
    return Layout(**look, verbose=arguments.verbose, **more)  # type: ignore[arg-type]  # fields of Layout
