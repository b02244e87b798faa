"""The list of runs as a table of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from codeloupe.model.pipeline import RunRecord, StageState
from codeloupe.reports.history import moment
from codeloupe.reports.pipeline_words import STYLES, run_seconds, spent_on, state_in_words, took
from codeloupe.reports.plain_table import Cell, Column, Sheet, finished

_COLUMNS = (
    Column("RUN"),
    # The name of a run begins with it.
    Column("STARTED", drops=True),
    Column("PIPELINE", shrinks=True),
    Column("STATE"),
    Column("STAGES", right=True),
    Column("COST", right=True, drops=True),
    Column("TIME", right=True, drops=True),
)


def render_runs(
    runs: Sequence[RunRecord],
    problems: Mapping[str, str],
    *,
    width: int,
    color: bool,
    ascii_only: bool,
    now: datetime | None = None,
) -> str:
    """The runs in the order in which they come, and in words what cannot be read."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    rows = [_row(sheet, run, now or datetime.now(UTC)) for run in runs]
    lines = sheet.table(_COLUMNS, rows) if rows else []
    return finished([*lines, *(sheet.clean(problems[name]) for name in sorted(problems))])


def _row(sheet: Sheet, run: RunRecord, now: datetime) -> list[Cell]:
    done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
    return [
        Cell(sheet.clean(run.run_id), "cyan"),
        Cell(moment(run.started_at)),
        Cell(sheet.clean(run.pipeline)),
        Cell(state_in_words(run.state), STYLES[run.state]),
        Cell(f"{done}/{len(run.stages)}"),
        Cell(spent_on(run.usage).removeprefix("cost ") or "-"),
        Cell(took(run_seconds(run, now))),
    ]
