"""What became of findings between two reviews, as text."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.model.finding import Finding
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.reports.history_words import SEVERITY_STYLES, SHORT_ID, moment
from codeloupe.reports.plain_table import Sheet, finished
from codeloupe.reports.wording import place_in_words

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
