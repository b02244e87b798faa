"""The history as tables of text and as JSON: what is in it, one sweep, comparisons, trends, and what was removed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.history import (
    Comparison,
    EntryKind,
    HistoryEntry,
    Listing,
    Removed,
    ReviewRecord,
    SeverityCounts,
    SweepOutline,
    TrendKey,
    TrendRow,
    Trends,
)
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.plain_table import Cell, Column, Sheet, cells, columns, finished
from codeloupe.reports.wording import counted, dollars, duration, place_in_words

SHORT_ID = 8
_MOST_COMPARED = 200
_SEVERITY_STYLES = dict(zip(Severity, ("red", "red", "yellow", "blue"), strict=True))
_CAUTION = dict.fromkeys(("NEEDS WORK", "INCOMPLETE", "FIX"), "yellow")
_VERDICT_STYLES = {"PASS": "green", "LEAVE": "green", "SWEEP": "", **_CAUTION}
_TREND_TITLES = {TrendKey.WEEK: "WEEK OF", TrendKey.EXPERT: "EXPERT", TrendKey.REVIEWER: "REVIEWER"}


def moment(at: datetime) -> str:
    """A moment in the reader's own time zone: `2026-03-14 09:12`."""
    try:
        local = at.astimezone()
    except OverflowError:  # the first and the last day of the calendar have no other time zone
        local = at
    return local.replace(tzinfo=None).isoformat(" ", "minutes")


def short_ids(ids: list[str]) -> dict[str, str]:
    """Each id cut to as many characters as tell them all apart, at least eight."""
    length = SHORT_ID
    while length < max(map(len, ids), default=0) and len({name[:length] for name in ids}) < len(set(ids)):
        length += 4
    return {name: name[:length] for name in ids}


def cost_in_words(cost_usd: float, unknown_costs: int) -> str:
    """`$0.31`; with a plus when calls did not report theirs, and `?` when none did."""
    if not unknown_costs:
        return dollars(cost_usd)
    return f"{dollars(cost_usd)}+" if cost_usd else "?"


def outcome(entry: HistoryEntry) -> str:
    """The word for an entry. What was not wholly reviewed is never a pass."""
    word = "SWEEP" if entry.kind is EntryKind.SWEEP else (entry.verdict or "?").replace("_", " ")
    if entry.complete:
        return word
    blocked = entry.kind is EntryKind.REVIEW and entry.exit_code == 1
    return f"{word}, incomplete" if blocked else "INCOMPLETE"


def _counts(counts: SeverityCounts) -> str:
    return ", ".join(f"{counts.of(step):,} {step.label}" for step in Severity if counts.of(step)) or "none"


def render_list(listing: Listing, *, width: int, color: bool, ascii_only: bool, with_repository: bool = False) -> str:
    """The entries, the newest first, and what could not be read."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    ids = short_ids([entry.entry_id for entry in listing.entries])
    rows = []
    for entry in listing.entries:
        scope, word, found = entry.description or entry.scope, outcome(entry), _counts(entry.counts)
        if entry.kind is EntryKind.SWEEP:
            scope = f"{counted(entry.commits, 'commit', 'commits')}: {scope}"
        row = [
            Cell(sheet.clean(ids[entry.entry_id]), "cyan"),
            Cell(moment(entry.saved_at)),
            Cell(sheet.clean(entry.repository_label)),
            Cell(sheet.clean(scope)),
            Cell(sheet.clean(word), _VERDICT_STYLES.get(word, "red")),
            Cell(found, "" if found != "none" else "dim"),
            Cell(cost_in_words(entry.cost_usd, entry.unknown_costs)),
        ]
        rows.append(row if with_repository else row[:2] + row[3:])
    titles = f"ID WHEN {'REPOSITORY ' if with_repository else ''}SCOPE VERDICT FINDINGS COST"
    lines = sheet.table(columns(titles, right="COST", shrinks="SCOPE", drops="COST"), rows) if rows else []
    return finished([*lines, *map(sheet.clean, listing.problems)])


def render_outline(outline: SweepOutline, *, width: int, color: bool, ascii_only: bool) -> str:
    """A sweep: what it was, each commit with the review that was made of it, and the summary."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    record, sweep = outline.record, outline.record.sweep
    ids = short_ids([entry.entry_id for entry in outline.reviews if entry is not None])
    rows = []
    for commit, entry in zip(sweep.commits, outline.reviews, strict=True):
        verdict = "INCOMPLETE" if commit.verdict is None else commit.verdict.value
        failure = Cell(sheet.cut(sheet.clean(commit.failure), 40), "dim")
        rows.append(
            [
                Cell(sheet.clean(commit.commit.sha[:10]), "cyan"),
                Cell(sheet.clean(ids[entry.entry_id]) if entry else "-"),
                Cell(verdict, _VERDICT_STYLES.get(verdict, "red")),
                Cell("-" if commit.score is None else f"{commit.score:.2f}"),
                Cell(_counts(entry.counts)) if entry else failure,
                Cell(sheet.clean(commit.commit.subject)),
            ]
        )
    titles = columns("COMMIT REVIEW VERDICT SCORE FINDINGS SUBJECT", right="SCORE", shrinks="SUBJECT")
    score = "" if sweep.score is None else f", score {sweep.score:.2f}"
    summary = sweep.summary if record.finished else f"not finished: {counted(len(rows), 'commit', 'commits')} so far"
    about = f"{sweep.sweep_id}, {moment(record.saved_at)}: {sweep.description}"
    return finished(
        [
            f"{sheet.paint('Sweep', 'bold')} {sheet.clean(about)}",
            "",
            *([*sheet.table(titles, rows), ""] if rows else []),
            f"{sheet.clean(summary)}{score}",
            *map(sheet.clean, record.problems),
        ]
    )


def render_comparison(
    comparison: Comparison, earlier: ReviewRecord, later: ReviewRecord, *, width: int, color: bool, ascii_only: bool
) -> str:
    """Both reviews, then the findings by what became of them, the worst first."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    sections = [
        ("Regressed", ", back after it was gone", comparison.regressed),
        ("New", "", comparison.new),
        ("Still open", "", comparison.still_open),
        ("Fixed", "", comparison.fixed),
        ("Set aside", ", refuted, dismissed or suppressed since", comparison.set_aside),
        ("Unknown", ", not looked at again in the later review", comparison.unknown),
    ]
    lines = []
    for word, record in (("from", earlier), ("to", later)):
        review, branch = record.review, f" on {record.branch}" if record.branch else ""
        text = f"{review.review_id[:SHORT_ID]}  {moment(record.saved_at)}{branch}  {review.scope.description}"
        lines.append(f"{sheet.paint(f'{word:<5}', 'dim')}{sheet.cut(sheet.clean(text), sheet.width - 5)}")
    for title, note, findings in sections:
        if findings:
            lines += ["", sheet.paint(title, "bold") + sheet.paint(f"  {len(findings):,}{note}", "dim")]
            lines += _compared(sheet, findings)
    totals = ", ".join(f"{len(findings):,} {title.lower()}" for title, _, findings in sections if findings)
    problems = map(sheet.clean, [*earlier.problems, *later.problems])
    return finished([*lines, "", totals or "No open findings in either.", *problems])


def _compared(sheet: Sheet, findings: Sequence[Finding]) -> Iterator[str]:
    ordered = sorted(findings, key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
    for finding in ordered[:_MOST_COMPARED]:
        severity = sheet.paint(f"{finding.severity.label:<8}", _SEVERITY_STYLES[finding.severity])
        yield f"  {severity}  {sheet.cut(sheet.clean(finding.title), max(sheet.width - 12, 20))}"
        yield f"            {sheet.paint(sheet.clean(place_in_words(finding)), 'cyan')}"
    if len(ordered) > _MOST_COMPARED:
        yield f"  and {len(ordered) - _MOST_COMPARED:,} more; --json has them all"


def render_trends(trends: Sequence[Trends], *, width: int, color: bool, ascii_only: bool) -> str:
    """For each grouping: a table of findings, share fixed, cost and time, and bars of findings and cost."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    lines: list[str] = []
    for each in trends:
        by_review = each.by is not TrendKey.EXPERT
        titles = "REVIEWS FINDINGS FIXED COST TIME" if by_review else "FINDINGS FIXED"
        rows = []
        for row in each.rows:
            fixed = "-" if row.fixed_share is None else f"{row.fixed_share:.0%}"
            texts = [f"{row.findings:,}", fixed]
            if by_review:
                cost = cost_in_words(row.cost_usd or 0.0, row.unknown_costs)
                texts = [f"{row.reviews or 0:,}", *texts, cost, duration(row.duration_seconds or 0.0)]
            rows.append([Cell(sheet.clean(row.key)), *map(Cell, texts)])
        lines += [""] if lines else []
        shape = [Column(_TREND_TITLES[each.by], shrinks=True), *columns(titles, right=titles)]
        lines += [*sheet.table(shape, rows), *_plot(sheet, each), *map(sheet.clean, each.problems)]
    return finished(lines)


def _plot(sheet: Sheet, trends: Trends) -> Iterator[str]:
    rows = trends.rows
    if any(row.findings for row in rows):
        solid, light = ("#", ".") if sheet.ascii_only else ("█", "░")
        yield from ("", sheet.paint(f"findings ({solid} open, {light} fixed)", "dim"))
        fixed = [row.fixed_share or 0.0 for row in rows]
        yield from _bars(
            sheet, rows, [float(row.findings) for row in rows], [f"{row.findings:,}" for row in rows], fixed
        )
    costs = [row.cost_usd if row.cost_usd is not None and math.isfinite(row.cost_usd) else 0.0 for row in rows]
    if any(costs):
        yield from ("", sheet.paint("cost", "dim"))
        yield from _bars(sheet, rows, costs, [dollars(cost) for cost in costs], [0.0] * len(rows))


def _bars(
    sheet: Sheet, rows: Sequence[TrendRow], values: Sequence[float], labels: Sequence[str], fixed: Sequence[float]
) -> Iterator[str]:
    keys = [sheet.cut(sheet.clean(row.key), 24) for row in rows]
    key_width = max(map(cells, keys))
    room = max(min(sheet.width - key_width - max(map(len, labels)) - 4, 60), 8)
    for key, value, label, share in zip(keys, values, labels, fixed, strict=True):
        bar = _bar(sheet, value / (max(values) or 1.0) * room, fixed=share)
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
    text = "█" * (solid // 8) + " ▏▎▍▌▋▊▉"[solid % 8].strip() if solid > 0 else ""
    return sheet.paint(text, "cyan") + sheet.paint("░" * light, "dim")


def list_json(listing: Listing) -> str:
    """The entries of a list."""
    entries = [
        {
            "id": entry.entry_id,
            **fields_of(entry, "kind saved_at"),
            "repository": entry.repository_label,
            "branch": entry.branch,
            "scope": {"kind": entry.scope, "description": entry.description},
            **fields_of(entry, "verdict complete exit_code summary"),
            "findings": {step.label: entry.counts.of(step) for step in Severity},
            **fields_of(entry, "set_aside commits reviewer cost_usd unknown_costs duration_seconds"),
        }
        for entry in listing.entries
    ]
    return json_text({"schema_version": 1, "entries": entries, "problems": listing.problems})


def comparison_json(comparison: Comparison, earlier: ReviewRecord, later: ReviewRecord) -> str:
    """What became of findings from one review to another."""
    shown = "fingerprint file line_start line_end severity category title expert reviewer status"
    groups = asdict(comparison).items()
    return json_text(
        {
            "schema_version": 1,
            "from": _review_data(earlier),
            "to": _review_data(later),
            **{name: [fields_of(finding, shown) for finding in findings] for name, findings in groups},
            "problems": [*earlier.problems, *later.problems],
        }
    )


def _review_data(record: ReviewRecord) -> dict[str, Any]:
    scope = fields_of(record.review.scope, "kind description")
    return {"id": record.review.review_id, **fields_of(record, "saved_at branch"), "scope": scope}


def trends_json(trends: Sequence[Trends]) -> str:
    """Trends, by each key that was asked for; null where something is not known."""
    shown = "key reviews findings fixed fixed_share cost_usd unknown_costs duration_seconds"
    rows = {each.by.value: [fields_of(row, shown) for row in each.rows] for each in trends}
    problems = sorted({problem for each in trends for problem in each.problems})
    return json_text({"schema_version": 1, "trends": rows, "problems": problems})


def removed_json(removed: Removed, *, dry_run: bool, freed_bytes: int) -> str:
    """What was removed, or would be."""
    counts = fields_of(removed, "reviews sweeps findings size_bytes")
    return json_text({"schema_version": 1, "dry_run": dry_run, **counts, "freed_bytes": freed_bytes})
