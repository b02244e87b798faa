"""`codeloupe history compare`: what is new, still open, fixed or back between two saved reviews."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.history_place import here, laid_out
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import write_result
from codeloupe.engine.history import find_review
from codeloupe.engine.lifecycle import compare_reviews
from codeloupe.reports.history_compare import render_comparison
from codeloupe.reports.history_json import comparison_json
from codeloupe.store.history import SqliteHistory


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show what became of the findings."""
    place = here(history, arguments)
    earlier = find_review(history, arguments.earlier, here=place)
    later = find_review(history, arguments.later, here=place)
    if earlier.review.review_id == later.review.review_id:
        print("codeloupe: both are the same review; `codeloupe history list` shows earlier ones", file=sys.stderr)
    comparison = compare_reviews(history, earlier, later)
    if arguments.json:
        write_result(comparison_json(comparison, earlier, later))
    else:
        write_result(render_comparison(comparison, earlier, later, **laid_out(look_of(arguments.color))))
    return 0
