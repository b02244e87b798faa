"""Which review a verb of the baseline is about: a saved one, or a report in a file."""

from __future__ import annotations

import argparse

from codeloupe.cli.history_place import here
from codeloupe.engine.history import LAST, SHORT_ID, find_entry, find_review, opened_history, review_of
from codeloupe.errors import StoreError, UsageError
from codeloupe.model.history import EntryKind, ReviewRecord
from codeloupe.store.baseline.reviewed import ReviewedFindings, findings_of, findings_of_sweep, read_report


def reviewed_by(arguments: argparse.Namespace) -> ReviewedFindings:
    """What the review or the sweep that is asked for found, or the newest. Raises UsageError and StoreError."""
    if arguments.report is not None:
        return read_report(arguments.report)
    with opened_history() as history:
        entry = find_entry(history, arguments.review or LAST, here=here(history, arguments))
        swept = history.get_sweep(entry.entry_id) if entry.kind is EntryKind.SWEEP else None
        if swept is not None:
            return findings_of_sweep(swept.sweep, name=f"sweep {entry.entry_id[:SHORT_ID]}")
        return _of_review(review_of(history, entry))


def reviewed_if_any(arguments: argparse.Namespace) -> tuple[ReviewedFindings | None, str]:
    """What the review that is asked for found, or the last; and why there is none. Raises for one that is named.

    Not a sweep: in commits of the past nothing shows that an entry is not needed any more.
    """
    if arguments.report is not None:
        return read_report(arguments.report), ""
    try:
        with opened_history() as history:
            return _of_review(find_review(history, arguments.review or LAST, here=here(history, arguments))), ""
    except (UsageError, StoreError) as error:
        if arguments.review is not None:
            raise
        return None, error.message


def _of_review(record: ReviewRecord) -> ReviewedFindings:
    return findings_of(record.review, name=f"review {record.review.review_id[:SHORT_ID]}")
