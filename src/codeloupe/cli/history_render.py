"""`codeloupe history render`: a saved review or sweep in any format, judged by another policy if asked, at no cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from codeloupe.cli.commits_options import FORMATS as SWEEP_FORMATS
from codeloupe.cli.history_place import here, tell_problems
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import output_file, write_result
from codeloupe.engine.history import LAST, SHORT_ID, changed_policy, find_entry, find_review, judged, judged_sweep
from codeloupe.errors import UsageError
from codeloupe.model.history import EntryKind, ReviewRecord
from codeloupe.model.review import Policy
from codeloupe.model.severity import Severity
from codeloupe.model.sweep import CommitSweep
from codeloupe.reports.formats import FORMATS, Layout
from codeloupe.store.history import SqliteHistory


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Render the review, or the sweep, where it belongs; the exit code is that of the policy it is judged by."""
    entry = None if arguments.id == LAST else find_entry(history, arguments.id, here=here(history, arguments))
    if entry is not None and entry.kind is EntryKind.SWEEP:
        return _render_sweep(history, entry.entry_id, arguments)
    render = FORMATS.get(arguments.format)
    if render is None:
        raise UsageError(f"{arguments.format!r} is not a format", hint=f"the formats are {', '.join(FORMATS)}")
    record = find_review(history, arguments.id, here=here(history, arguments))
    review = judged(record, _policy(record, arguments))
    tell_problems(record)
    look = look_of(arguments.color, to_file=arguments.output is not None)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    _write(lambda: render(review, layout), arguments)
    if not review.complete and review.passed:
        print("codeloupe: not everything was reviewed; on_incomplete lets it pass", file=sys.stderr)
    return review.exit_code


def _render_sweep(history: SqliteHistory, sweep_id: str, arguments: argparse.Namespace) -> int:
    if arguments.format not in SWEEP_FORMATS:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, and {arguments.format!r} is not a format for one",
            hint=f"the formats are {', '.join(SWEEP_FORMATS)}; a review of one of its commits has all others",
        )
    fail_on = _severity(arguments.fail_on, "--fail-on")
    if fail_on not in (None, Severity.HIGH) or arguments.min_severity is not None:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, which is judged by --fail-on high, or not at all",
            hint="name the review of one of its commits: `codeloupe history show` has them",
        )
    record = history.get_sweep(sweep_id)
    if record is None:
        raise UsageError(f"the sweep {sweep_id} was removed just now", hint="`codeloupe history list` shows the others")
    tell_problems(record)
    passes = None if arguments.on_incomplete is None else arguments.on_incomplete == "pass"
    sweep = judged_sweep(record, strict=fail_on is not None, pass_when_incomplete=passes)
    _write(lambda: _sweep_text(sweep, arguments), arguments)
    return sweep.exit_code


def _sweep_text(sweep: CommitSweep, arguments: argparse.Namespace) -> str:
    # As for the verb `commits`: only the module of the format that is asked for is loaded.
    module = import_module(f"codeloupe.reports.sweep_{arguments.format}")
    render: Any = getattr(module, f"render_sweep_{arguments.format}")
    if arguments.format != "text":
        return str(render(sweep))
    look = look_of(arguments.color, to_file=arguments.output is not None)
    return str(render(sweep, width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose))


def _write(render: Callable[[], str], arguments: argparse.Namespace) -> None:
    """To the file that is named, which is opened first, or to standard output."""
    with ExitStack() as opened:
        pieces = opened.enter_context(output_file(arguments.output)) if arguments.output else []
        text = render()
        pieces.append(text)
    if arguments.output is None:
        write_result(text, holds_commands=arguments.format == "github")
    else:
        print(f"wrote {arguments.output}", file=sys.stderr)


def _policy(record: ReviewRecord, arguments: argparse.Namespace) -> Policy:
    return changed_policy(
        record.review.policy,
        fail_on=_severity(arguments.fail_on, "--fail-on"),
        min_severity=_severity(arguments.min_severity, "--min-severity"),
        pass_when_incomplete=None if arguments.on_incomplete is None else arguments.on_incomplete == "pass",
    )


def _severity(word: str | None, option: str) -> Severity | None:
    if word is None:
        return None
    try:
        return Severity.parse(word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="use critical, high, medium, low or P0 to P3") from error
