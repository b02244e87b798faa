"""The list of what is in the history, and one sweep with its commits, as tables of text."""

from __future__ import annotations

from codeloupe.model.history import EntryKind, HistoryEntry, Listing, SweepOutline
from codeloupe.model.sweep import CommitReview
from codeloupe.reports.history_words import (
    cost_in_words,
    counts_in_words,
    moment,
    outcome_cell,
    short_ids,
    verdict_style,
)
from codeloupe.reports.plain_table import Cell, Column, Sheet, finished
from codeloupe.reports.wording import counted

_COLUMNS = (
    Column("ID"),
    Column("WHEN"),
    Column("SCOPE", shrinks=True),
    Column("VERDICT"),
    Column("FINDINGS"),
    Column("COST", right=True, drops=True),
)
_COMMIT_COLUMNS = (
    Column("COMMIT"),
    Column("REVIEW"),
    Column("VERDICT"),
    Column("SCORE", right=True),
    Column("FINDINGS"),
    Column("SUBJECT", shrinks=True),
)
_SHORT_SHA = 10


def render_list(listing: Listing, *, width: int, color: bool, ascii_only: bool, with_repository: bool = False) -> str:
    """The entries, the newest first, and in words what could not be read."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    ids = short_ids([entry.entry_id for entry in listing.entries])
    columns = [*_COLUMNS[:2], Column("REPOSITORY"), *_COLUMNS[2:]] if with_repository else list(_COLUMNS)
    rows = [_row(sheet, entry, ids[entry.entry_id], with_repository=with_repository) for entry in listing.entries]
    lines = sheet.table(columns, rows) if rows else []
    return finished([*lines, *(sheet.clean(problem) for problem in listing.problems)])


def _row(sheet: Sheet, entry: HistoryEntry, short: str, *, with_repository: bool) -> list[Cell]:
    scope = entry.description or entry.scope
    if entry.kind is EntryKind.SWEEP:
        scope = f"{counted(entry.commits, 'commit', 'commits')}: {scope}"
    found = counts_in_words(entry.counts)
    return [
        Cell(sheet.clean(short), "cyan"),
        Cell(moment(entry.saved_at)),
        *([Cell(sheet.clean(entry.repository_label))] if with_repository else []),
        Cell(sheet.clean(scope)),
        outcome_cell(sheet, entry),
        Cell(found, "" if found != "none" else "dim"),
        Cell(cost_in_words(entry.cost_usd, entry.unknown_costs)),
    ]


def render_sweep(outline: SweepOutline, *, width: int, color: bool, ascii_only: bool) -> str:
    """A sweep: what it was, each commit with the review that was made of it, and the summary."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    record = outline.record
    sweep = record.sweep
    ids = short_ids([entry.entry_id for entry in outline.reviews if entry is not None])
    rows = [
        _commit_row(sheet, commit, entry, ids) for commit, entry in zip(sweep.commits, outline.reviews, strict=True)
    ]
    score = "" if sweep.score is None else f", score {sweep.score:.2f}"
    summary = sweep.summary if record.finished else f"not finished: {counted(len(rows), 'commit', 'commits')} so far"
    when = moment(record.saved_at)
    return finished(
        [
            f"{sheet.paint('Sweep', 'bold')} {sheet.clean(f'{sweep.sweep_id}, {when}: {sweep.description}')}",
            "",
            *(sheet.table(_COMMIT_COLUMNS, rows) if rows else []),
            *([""] if rows else []),
            f"{sheet.clean(summary)}{score}",
            *(sheet.clean(problem) for problem in record.problems),
        ]
    )


def _commit_row(sheet: Sheet, commit: CommitReview, entry: HistoryEntry | None, ids: dict[str, str]) -> list[Cell]:
    verdict = "INCOMPLETE" if commit.verdict is None else commit.verdict.value
    found = Cell(counts_in_words(entry.counts)) if entry else Cell(sheet.cut(sheet.clean(commit.failure), 40), "dim")
    return [
        Cell(sheet.clean(commit.commit.sha[:_SHORT_SHA]), "cyan"),
        Cell(sheet.clean(ids[entry.entry_id]) if entry else "-"),
        Cell(verdict, verdict_style(verdict)),
        Cell("-" if commit.score is None else f"{commit.score:.2f}"),
        found,
        Cell(sheet.clean(commit.commit.subject)),
    ]
