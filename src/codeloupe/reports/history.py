"""The history as tables of text and as JSON: what is in it, one sweep, comparisons, trends, and what was removed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Unpack

from msgspec.structs import asdict

from codeloupe.model.finding import Severity
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
from codeloupe.reports import Look
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.page import Page, Piece, Text, cells
from codeloupe.reports.wording import SEVERITY_STYLES, counted, dollars, duration, place_text

SHORT_ID = 8
_MOST_COMPARED = 200
_CAUTION = dict.fromkeys(("NEEDS WORK", "INCOMPLETE", "FIX"), "bold yellow")
_VERDICT_STYLES = {"PASS": "bold green", "LEAVE": "bold green", "SWEEP": "", **_CAUTION}
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


def cost_text(cost_usd: float, unknown_costs: int) -> str:
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


def _verdict(word: str) -> Piece:
    return word, _VERDICT_STYLES.get(word, "bold red")


def render_list(listing: Listing, *, with_repository: bool = False, **look: Unpack[Look]) -> str:
    """The entries, the newest first, and what could not be read."""
    page = Page(**look)
    ids = short_ids([entry.entry_id for entry in listing.entries])
    rows: list[list[str | Piece]] = []
    for entry in listing.entries:
        scope, found = entry.description or entry.scope, _counts(entry.counts)
        if entry.kind is EntryKind.SWEEP:
            scope = f"{counted(entry.commits, 'commit')}: {scope}"
        rows.append(
            [
                (page.line(ids[entry.entry_id]), "cyan"),
                moment(entry.saved_at),
                *([page.line(entry.repository_label)] if with_repository else []),
                page.line(scope),
                _verdict(page.line(outcome(entry))),
                (found, "" if found != "none" else "dim"),
                cost_text(entry.cost_usd, entry.unknown_costs),
            ]
        )
    titles = f"ID WHEN {'REPOSITORY ' if with_repository else ''}SCOPE VERDICT FINDINGS COST"
    lines = page.table(titles.split(), rows, right="COST", shrinks="SCOPE", drops="COST") if rows else []
    return page.printed([*lines, *map(page.line, listing.problems)])


def render_outline(outline: SweepOutline, **look: Unpack[Look]) -> str:
    """A sweep: what it was, each commit with the review that was made of it, and the summary."""
    page = Page(**look)
    record, sweep = outline.record, outline.record.sweep
    ids = short_ids([entry.entry_id for entry in outline.reviews if entry is not None])
    rows: list[list[str | Piece]] = [
        [
            (page.line(commit.commit.sha[:10]), "cyan"),
            page.line(ids[entry.entry_id]) if entry else "-",
            _verdict("INCOMPLETE" if commit.verdict is None else commit.verdict.value),
            "-" if commit.score is None else f"{commit.score:.2f}",
            _counts(entry.counts) if entry else (page.cut(page.line(commit.failure), 40), "dim"),
            page.line(commit.commit.subject),
        ]
        for commit, entry in zip(sweep.commits, outline.reviews, strict=True)
    ]
    titles = "COMMIT REVIEW VERDICT SCORE FINDINGS SUBJECT".split()  # noqa: SIM905
    table = [*page.table(titles, rows, right="SCORE", shrinks="SUBJECT"), Text()] if rows else []
    score = "" if sweep.score is None else f", score {sweep.score:.2f}"
    summary = sweep.summary if record.finished else f"not finished: {counted(len(rows), 'commit')} so far"
    about = f" {page.line(f'{sweep.sweep_id}, {moment(record.saved_at)}: {sweep.description}')}"
    closing = [f"{page.line(summary)}{score}", *map(page.line, record.problems)]
    return page.printed([Text(("Sweep", "bold"), about), "", *table, *closing])


def render_comparison(comparison: Comparison, earlier: ReviewRecord, later: ReviewRecord, **look: Unpack[Look]) -> str:
    """Both reviews, then the findings by what became of them, the worst first."""
    page = Page(**look)
    sections = [
        ("Regressed", ", back after it was gone", comparison.regressed),
        ("New", "", comparison.new),
        ("Still open", "", comparison.still_open),
        ("Fixed", "", comparison.fixed),
        ("Set aside", ", refuted, dismissed or suppressed since", comparison.set_aside),
        ("Unknown", ", not checked in the later review", comparison.unknown),
    ]
    lines: list[Text | str] = []
    for word, record in (("from", earlier), ("to", later)):
        review, branch = record.review, f" on {record.branch}" if record.branch else ""
        text = f"{review.review_id[:SHORT_ID]}  {moment(record.saved_at)}{branch}  {review.scope.description}"
        lines.append(Text((f"{word:<5}", "dim"), page.cut(page.line(text), page.width - 5)))
    for title, note, findings in sections:
        if findings:
            lines += ["", Text((title, "bold"), (f"  {len(findings):,}{note}", "dim"))]
        ordered = sorted(findings, key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
        for finding in ordered[:_MOST_COMPARED]:
            severity = (f"{finding.severity.label:<8}", SEVERITY_STYLES[finding.severity])
            lines.append(Text("  ", severity, "  ", page.cut(page.line(finding.title), max(page.width - 12, 20))))
            lines.append(Text(" " * 12, (page.line(place_text(finding)), "cyan")))
        if len(findings) > _MOST_COMPARED:
            lines.append(f"  and {len(findings) - _MOST_COMPARED:,} more; --json has them all")
    totals = ", ".join(f"{len(findings):,} {title.lower()}" for title, _, findings in sections if findings)
    problems = map(page.line, [*earlier.problems, *later.problems])
    return page.printed([*lines, "", totals or "No open findings in either.", *problems])


def render_trends(trends: Sequence[Trends], **look: Unpack[Look]) -> str:
    """For each grouping: a table of findings, share fixed, cost and time, and bars of findings and cost."""
    page = Page(**look)
    lines: list[Text | str] = []
    for each in trends:
        titles = (
            ["FINDINGS", "FIXED"] if each.by is TrendKey.EXPERT else ["REVIEWS", "FINDINGS", "FIXED", "COST", "TIME"]
        )
        rows = []
        for row in each.rows:
            texts = {
                "REVIEWS": f"{row.reviews or 0:,}",
                "FINDINGS": f"{row.findings:,}",
                "FIXED": "-" if row.fixed_share is None else f"{row.fixed_share:.0%}",
                "COST": cost_text(row.cost_usd or 0.0, row.unknown_costs),
                "TIME": duration(row.duration_seconds or 0.0),
            }
            rows.append([page.line(row.key), *(texts[title] for title in titles)])
        lines += [""] if lines else []
        key = _TREND_TITLES[each.by]
        lines += page.table([key, *titles], rows, right=" ".join(titles), shrinks=key)
        lines += [*_plot(page, each.rows), *map(page.line, each.problems)]
    return page.printed(lines)


def _plot(page: Page, rows: Sequence[TrendRow]) -> Iterator[Text | str]:
    solid, light = ("#", ".") if page.ascii_only else ("█", "░")
    costs = [row.cost_usd if row.cost_usd is not None and math.isfinite(row.cost_usd) else 0.0 for row in rows]
    plots = {
        f"findings ({solid} open, {light} fixed)": [(float(row.findings), f"{row.findings:,}") for row in rows],
        "cost": [(cost, dollars(cost)) for cost in costs],
    }
    keys = [page.cut(page.line(row.key), 24) for row in rows]
    key_width = max(map(cells, keys), default=0)
    for title, values in plots.items():
        most = max((value for value, _ in values), default=0.0)
        if most <= 0:
            continue
        yield from ("", Text((title, "dim")))
        room = max(min(page.width - key_width - max(len(label) for _, label in values) - 4, 60), 8)
        for key, (value, label), row in zip(keys, values, rows, strict=True):
            bar = _bar(page, value / most * room, fixed=0.0 if title == "cost" else row.fixed_share or 0.0)
            gap = " " if bar.plain else ""
            yield Text(f"{key}{' ' * (key_width - cells(key))}  ", bar, f"{gap}{label if value else '-'}")


def _bar(page: Page, length: float, *, fixed: float) -> Text:
    """A bar of so many cells; never none at all for what is more than nothing."""
    if page.ascii_only:
        whole = round(length) or int(length > 0)
        light = round(whole * fixed)
        return Text(("#" * (whole - light), "cyan"), ("." * light, "dim"))
    eighths = round(length * 8) or int(length > 0)
    light = round(eighths * fixed / 8)
    solid = eighths - light * 8
    # What is left of an eighth goes to the solid part; with all fixed there is none.
    text = "█" * (solid // 8) + " ▏▎▍▌▋▊▉"[solid % 8].strip() if solid > 0 else ""
    return Text((text, "cyan"), ("░" * light, "dim"))


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
