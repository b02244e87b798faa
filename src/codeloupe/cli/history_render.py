"""`codeloupe history render`: a saved review in any format, judged by another policy if asked, at no cost."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from codeloupe.cli.history_place import here
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import output_file, write_result
from codeloupe.errors import UsageError
from codeloupe.historian.judging import changed_policy, judged
from codeloupe.historian.lookup import find_review
from codeloupe.model.history import ReviewRecord
from codeloupe.model.review import Policy
from codeloupe.model.severity import Severity
from codeloupe.report.formats import FORMATS, Layout
from codeloupe.report.sanitise import terminal
from codeloupe.store.history import SqliteHistory


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Render the review where it belongs; the exit code is that of the policy it is judged by."""
    render = FORMATS.get(arguments.format)
    if render is None:
        raise UsageError(f"{arguments.format!r} is not a format", hint=f"the formats are {', '.join(FORMATS)}")
    record = find_review(history, arguments.id, here=here(history, arguments))
    review = judged(record, _policy(record, arguments))
    tell_problems(record)
    look = look_of(arguments.color, to_file=arguments.output is not None)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    with ExitStack() as opened:
        pieces = opened.enter_context(output_file(arguments.output)) if arguments.output else []
        text = render(review, layout)
        pieces.append(text)
    if arguments.output is None:
        write_result(text)
    else:
        print(f"wrote {arguments.output}", file=sys.stderr)
    if not review.complete and review.passed:
        print("codeloupe: not everything was reviewed; on_incomplete lets it pass", file=sys.stderr)
    return review.exit_code


def tell_problems(record: ReviewRecord) -> None:
    """Say on stderr what of a record cannot be read."""
    for problem in record.problems:
        print(f"codeloupe: {terminal(problem)}", file=sys.stderr)


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
