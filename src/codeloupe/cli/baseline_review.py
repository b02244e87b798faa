"""Which review a verb of the baseline is about: a saved one, or a report in a file."""

from __future__ import annotations

import argparse

from codeloupe.baseline.reviewed import ReviewedFindings, findings_of, read_report
from codeloupe.cli.history_place import here
from codeloupe.errors import StoreError, UsageError
from codeloupe.historian.lookup import LAST, SHORT_ID, find_review
from codeloupe.historian.opening import opened_history


def reviewed_by(arguments: argparse.Namespace) -> ReviewedFindings:
    """What the review that is asked for found. Raises UsageError when there is none and StoreError."""
    if arguments.report is not None:
        return read_report(arguments.report)
    with opened_history() as history:
        record = find_review(history, arguments.review or LAST, here=here(history, arguments))
    return findings_of(record.review, name=f"review {record.review.review_id[:SHORT_ID]}")


def reviewed_if_any(arguments: argparse.Namespace) -> tuple[ReviewedFindings | None, str]:
    """As `reviewed_by`; but the last review may not be there, and then it is said why. Raises for one that is named."""
    try:
        return reviewed_by(arguments), ""
    except (UsageError, StoreError) as error:
        if arguments.report is not None or arguments.review is not None:
            raise
        return None, error.message
