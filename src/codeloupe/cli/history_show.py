"""`codeloupe history show`: one saved review, the commits of a sweep, or what the agents printed."""

from __future__ import annotations

import argparse

from codeloupe.cli.history_place import here, laid_out, tell_problems
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import write_result
from codeloupe.engine.history import SHORT_ID, find_entry, judged, review_of
from codeloupe.errors import UsageError
from codeloupe.model.history import EntryKind, ReviewRecord
from codeloupe.reports.formats import FORMATS, Layout
from codeloupe.reports.history_list import render_sweep
from codeloupe.reports.history_words import moment
from codeloupe.store.history import SqliteHistory
from codeloupe.system.sanitise import terminal, without_log_commands


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show what the id names; the exit code says nothing about the verdict."""
    entry = find_entry(history, arguments.id, here=here(history, arguments))
    if entry.kind is EntryKind.SWEEP:
        return _show_sweep(history, entry.entry_id, arguments)
    if arguments.raw:
        write_result(_raw(history, entry.entry_id))
        return 0
    record = review_of(history, entry)
    tell_problems(record)
    look = look_of(arguments.color)
    layout = Layout(width=look.width, color=look.color, ascii_only=look.ascii_only, verbose=arguments.verbose)
    # By its own policy: what cannot be read of it makes it incomplete.
    write_result(_about(record) + FORMATS["text"](judged(record, record.review.policy), layout))
    return 0


def _show_sweep(history: SqliteHistory, sweep_id: str, arguments: argparse.Namespace) -> int:
    if arguments.raw:
        raise UsageError(
            f"{sweep_id[:SHORT_ID]} is a sweep, and raw output belongs to a review", hint="name the review of a commit"
        )
    outline = history.outline(sweep_id)
    if outline is None:
        raise UsageError(
            f"the sweep {sweep_id} was removed just now", hint="`codeloupe history list` shows what is left"
        )
    write_result(render_sweep(outline, **laid_out(look_of(arguments.color))))
    return 0


def _about(record: ReviewRecord) -> str:
    parts = [
        f"Review {record.review.review_id}",
        f"saved {moment(record.saved_at)}",
        f"on branch {record.branch}" if record.branch else "",
        f"by codeloupe {record.tool_version}" if record.tool_version else "",
        f"part of sweep {record.sweep_id[:SHORT_ID]}" if record.sweep_id else "",
    ]
    return terminal(", ".join(part for part in parts if part)) + "\n"


def _raw(history: SqliteHistory, review_id: str) -> str:
    outputs = history.raw_outputs(review_id)
    if not outputs:
        return "No raw output was saved with this review.\n"
    sections = (f"=== {terminal(unit)}\n{terminal(text, keep_newlines=True)}\n" for unit, text in outputs.items())
    return without_log_commands("\n".join(sections))
