"""Trends as a table and a plot of bars, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from codeloupe.model.history import TrendKey, TrendRow, Trends
from codeloupe.reports.history_words import cost_in_words
from codeloupe.reports.plain_table import Cell, Column, Sheet, cells, finished
from codeloupe.reports.wording import dollars, duration

_TITLES = {TrendKey.WEEK: "WEEK OF", TrendKey.EXPERT: "EXPERT", TrendKey.REVIEWER: "REVIEWER"}
_LONGEST_BAR = 60
_WIDEST_KEY = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def render_trends(trends: Sequence[Trends], *, width: int, color: bool, ascii_only: bool) -> str:
    """For each way to tell them: a table of findings, share fixed, cost and time, and bars of findings and cost."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    lines: list[str] = []
    for told in trends:
        lines += ["", *_told(sheet, told)] if lines else _told(sheet, told)
    return finished(lines)


def _told(sheet: Sheet, trends: Trends) -> list[str]:
    columns, rows = _table(sheet, trends)
    return [
        *sheet.table(columns, rows),
        *_plot(sheet, trends),
        *(sheet.clean(problem) for problem in trends.problems),
    ]


def _table(sheet: Sheet, trends: Trends) -> tuple[list[Column], list[list[Cell]]]:
    by_review = trends.by is not TrendKey.EXPERT
    columns = [Column(_TITLES[trends.by], shrinks=True)]
    columns += [Column("REVIEWS", right=True)] if by_review else []
    columns += [Column("FINDINGS", right=True), Column("FIXED", right=True)]
    columns += [Column("COST", right=True), Column("TIME", right=True)] if by_review else []
    return columns, [_row(sheet, row, by_review=by_review) for row in trends.rows]


def _row(sheet: Sheet, row: TrendRow, *, by_review: bool) -> list[Cell]:
    share = row.fixed_share
    found = [Cell(f"{row.findings:,}"), Cell("-" if share is None else f"{share:.0%}")]
    if not by_review:
        return [Cell(sheet.clean(row.key)), *found]
    return [
        Cell(sheet.clean(row.key)),
        Cell(f"{row.reviews or 0:,}"),
        *found,
        Cell(cost_in_words(row.cost_usd or 0.0, row.unknown_costs)),
        Cell(duration(row.duration_seconds or 0.0)),
    ]


def _plot(sheet: Sheet, trends: Trends) -> Iterator[str]:
    """Bars of what was found, the fixed part drawn lighter, and of what it cost where it did."""
    rows = trends.rows
    if any(row.findings for row in rows):
        solid, light = ("#", ".") if sheet.ascii_only else ("█", "░")
        yield ""
        yield sheet.paint(f"findings ({solid} open, {light} fixed)", "dim")
        yield from _bars(sheet, rows, [float(row.findings) for row in rows], [f"{row.findings:,}" for row in rows])
    costs = [row.cost_usd if row.cost_usd is not None and math.isfinite(row.cost_usd) else 0.0 for row in rows]
    if any(costs):
        yield ""
        yield sheet.paint("cost", "dim")
        yield from _bars(sheet, rows, costs, [dollars(cost) for cost in costs], with_fixed=False)


def _bars(
    sheet: Sheet,
    rows: Sequence[TrendRow],
    values: Sequence[float],
    labels: Sequence[str],
    *,
    with_fixed: bool = True,
) -> Iterator[str]:
    keys = [sheet.cut(sheet.clean(row.key), _WIDEST_KEY) for row in rows]
    key_width = max(map(cells, keys))
    room = max(min(sheet.width - key_width - max(map(len, labels)) - 4, _LONGEST_BAR), 8)
    most = max(values) or 1.0
    for key, row, value, label in zip(keys, rows, values, labels, strict=True):
        length = value / most * room
        fixed = (row.fixed_share or 0.0) if with_fixed else 0.0
        bar = _bar(sheet, length, fixed=fixed)
        yield f"{key}{' ' * (key_width - cells(key))}  {bar}{' ' if bar else ''}{label if value else '-'}"


def _bar(sheet: Sheet, length: float, *, fixed: float) -> str:
    """A bar of so many cells; never none at all for what is more than nothing."""
    if sheet.ascii_only:
        whole = round(length) or int(length > 0)
        light = round(whole * fixed)
        return sheet.paint("#" * (whole - light), "cyan") + sheet.paint("." * light, "dim")
    eighths = round(length * 8) or int(length > 0)
    light = round(eighths * fixed / 8)
    solid = eighths - light * 8
    # What is left of an eighth goes to the solid part; with all fixed there is none.
    text = "█" * (solid // 8) + _EIGHTHS[solid % 8].strip() if solid > 0 else ""
    return sheet.paint(text, "cyan") + sheet.paint("░" * light, "dim")
