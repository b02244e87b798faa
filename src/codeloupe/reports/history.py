"""The list of what is in the history, and one sweep with its commits, as tables of text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import fields

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
from codeloupe.model.sweep import CommitReview
from codeloupe.reports.plain_table import Cell, Column, Sheet, cells, finished
from codeloupe.reports.wording import counted, dollars, duration, place_in_words
from codeloupe.system.untrusted import json_document

SEVERITY_STYLES = {Severity.CRITICAL: "red", Severity.HIGH: "red", Severity.MEDIUM: "yellow", Severity.LOW: "blue"}
SHORT_ID = 8
_BLOCKED = 1
_STYLES = {"PASS": "green", "LEAVE": "green", "NEEDS WORK": "yellow", "INCOMPLETE": "yellow", "FIX": "yellow"}


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


def counts_in_words(counts: SeverityCounts) -> str:
    """`1 critical, 2 low`; `none` when there is nothing."""
    parts = [f"{counts.of(step):,} {step.label}" for step in Severity if counts.of(step)]
    return ", ".join(parts) or "none"


def cost_in_words(cost_usd: float, unknown_costs: int) -> str:
    """`$0.31`; with a plus when calls did not tell theirs, and `?` when none did."""
    if not unknown_costs:
        return dollars(cost_usd)
    return f"{dollars(cost_usd)}+" if cost_usd else "?"


def outcome(entry: HistoryEntry) -> str:
    """The word for an entry. What was not wholly reviewed is never a pass."""
    if entry.kind is EntryKind.SWEEP:
        return "SWEEP" if entry.complete else "INCOMPLETE"
    if not entry.complete:
        return "INCOMPLETE" if entry.exit_code != _BLOCKED else f"{_word(entry.verdict)}, incomplete"
    return _word(entry.verdict)


def outcome_cell(sheet: Sheet, entry: HistoryEntry) -> Cell:
    """The word in its colour."""
    word = outcome(entry)
    return Cell(sheet.clean(word), "" if word == "SWEEP" else _STYLES.get(word, "red"))


def verdict_style(word: str) -> str:
    """The colour of a verdict."""
    return _STYLES.get(word, "red")


def _word(verdict: str | None) -> str:
    return (verdict or "?").replace("_", " ")


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


def render_outline(outline: SweepOutline, *, width: int, color: bool, ascii_only: bool) -> str:
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


_SHOWN = 200


def render_comparison(
    comparison: Comparison,
    earlier: ReviewRecord,
    later: ReviewRecord,
    *,
    width: int,
    color: bool,
    ascii_only: bool,
) -> str:
    """Both reviews, then the findings by what became of them, the worst first."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    sections = [
        ("Regressed", "back after it was gone", comparison.regressed),
        ("New", "", comparison.new),
        ("Still open", "", comparison.still_open),
        ("Fixed", "", comparison.fixed),
        ("Set aside", "refuted, dismissed or suppressed since", comparison.set_aside),
        ("Unknown", "not looked at again in the later review", comparison.unknown),
    ]
    lines = [_review(sheet, "from", earlier), _review(sheet, "to", later)]
    for title, note, findings in sections:
        if findings:
            lines += ["", *_section(sheet, title, note, findings)]
    totals = ", ".join(f"{len(findings):,} {title.lower()}" for title, _, findings in sections if findings)
    problems = [*earlier.problems, *later.problems]
    return finished([*lines, "", totals or "No open findings in either.", *map(sheet.clean, problems)])


def _review(sheet: Sheet, word: str, record: ReviewRecord) -> str:
    review = record.review
    branch = f" on {record.branch}" if record.branch else ""
    text = f"{review.review_id[:SHORT_ID]}  {moment(record.saved_at)}{branch}  {review.scope.description}"
    return f"{sheet.paint(f'{word:<5}', 'dim')}{sheet.cut(sheet.clean(text), sheet.width - 5)}"


def _section(sheet: Sheet, title: str, note: str, findings: Sequence[Finding]) -> list[str]:
    ordered = sorted(findings, key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
    heading = sheet.paint(title, "bold") + sheet.paint(f"  {len(findings):,}{f', {note}' if note else ''}", "dim")
    lines = [line for finding in ordered[:_SHOWN] for line in _finding(sheet, finding)]
    rest = len(ordered) - _SHOWN
    return [heading, *lines, *([f"  and {rest:,} more; --json has them all"] if rest > 0 else [])]


def _finding(sheet: Sheet, finding: Finding) -> list[str]:
    severity = f"{finding.severity.label:<8}"
    title = sheet.cut(sheet.clean(finding.title), max(sheet.width - 12, 20))
    return [
        f"  {sheet.paint(severity, SEVERITY_STYLES[finding.severity])}  {title}",
        f"            {sheet.paint(sheet.clean(place_in_words(finding)), 'cyan')}",
    ]


def list_json(listing: Listing) -> str:
    """The entries of a list."""
    return _document({"entries": [_entry(entry) for entry in listing.entries], "problems": list(listing.problems)})


def comparison_json(comparison: Comparison, earlier: ReviewRecord, later: ReviewRecord) -> str:
    """What became of findings from one review to another."""
    groups = {field.name: getattr(comparison, field.name) for field in fields(comparison)}
    return _document(
        {
            "from": _history_json_review(earlier),
            "to": _history_json_review(later),
            **{name: [_history_json_finding(finding) for finding in findings] for name, findings in groups.items()},
            "problems": [*earlier.problems, *later.problems],
        }
    )


def trends_json(trends: Sequence[Trends]) -> str:
    """Trends, by each key that was asked for; null where something cannot be told apart."""
    return _document(
        {
            "trends": {
                told.by.value: [
                    {
                        "key": row.key,
                        "reviews": row.reviews,
                        "findings": row.findings,
                        "fixed": row.fixed,
                        "fixed_share": row.fixed_share,
                        "cost_usd": _finite(row.cost_usd),
                        "unknown_costs": row.unknown_costs,
                        "duration_seconds": _finite(row.duration_seconds),
                    }
                    for row in told.rows
                ]
                for told in trends
            },
            "problems": sorted({problem for told in trends for problem in told.problems}),
        }
    )


def removed_json(removed: Removed, *, dry_run: bool, freed_bytes: int) -> str:
    """What was removed, or would be."""
    return _document(
        {
            "dry_run": dry_run,
            "reviews": removed.reviews,
            "sweeps": removed.sweeps,
            "findings": removed.findings,
            "size_bytes": removed.size_bytes,
            "freed_bytes": freed_bytes,
        }
    )


def _document(content: dict[str, Any]) -> str:
    text = json.dumps({"schema_version": 1, **content}, indent=2, ensure_ascii=False, allow_nan=False)
    return json_document(text) + "\n"


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "id": entry.entry_id,
        "kind": entry.kind.value,
        "saved_at": _moment(entry.saved_at),
        "repository": entry.repository_label,
        "branch": entry.branch,
        "scope": {"kind": entry.scope, "description": entry.description},
        "verdict": entry.verdict,
        "complete": entry.complete,
        "exit_code": entry.exit_code,
        "summary": entry.summary,
        "findings": {step.label: entry.counts.of(step) for step in Severity},
        "set_aside": entry.set_aside,
        "commits": entry.commits,
        "reviewer": entry.reviewer,
        "cost_usd": _finite(entry.cost_usd),
        "unknown_costs": entry.unknown_costs,
        "duration_seconds": _finite(entry.duration_seconds),
    }


def _history_json_review(record: ReviewRecord) -> dict[str, Any]:
    return {
        "id": record.review.review_id,
        "saved_at": _moment(record.saved_at),
        "branch": record.branch,
        "scope": {"kind": record.review.scope.kind.value, "description": record.review.scope.description},
    }


def _history_json_finding(finding: Finding) -> dict[str, Any]:
    return {
        "fingerprint": finding.fingerprint,
        "file": finding.file,
        "line_start": finding.line_start,
        "line_end": finding.line_end,
        "severity": finding.severity.label,
        "category": finding.category,
        "title": finding.title,
        "expert": finding.expert,
        "reviewer": finding.reviewer,
        "status": finding.status.value,
    }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _finite(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None


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
    return columns, [_history_trends_row(sheet, row, by_review=by_review) for row in trends.rows]


def _history_trends_row(sheet: Sheet, row: TrendRow, *, by_review: bool) -> list[Cell]:
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
