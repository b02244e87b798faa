"""A finding as lines of text: badge and title, place, code, why, how to fix, and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.text import Text

from codeloupe.model.answer import Proof
from codeloupe.model.finding import Finding
from codeloupe.model.severity import Severity
from codeloupe.reports.page import BOLD, DIM, Page, prose
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.source_line import code_lines, source_lines
from codeloupe.reports.standing import short_id

SEVERITY_STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "bold red",
    Severity.MEDIUM: "bold yellow",
    Severity.LOW: "bold bright_blue",
}
_CRITICAL_BADGE = "bold red reverse"
_INDENT = 2
_LABEL_CELLS = 5
_LONGEST_TITLE = 1_000
_LONGEST_PROSE = 6_000
_PROSE_LINES = 40
_LOOKS_NAMED = 4
_SHORTEST_FENCE = 3
# So much of a fingerprint tells findings apart; the verbs that take one take its beginning.
_DIGITS = 12
_HISTORY = {"open": "still open from an earlier review", "regressed": "back after it was fixed"}


def finding_lines(page: Page, finding: Finding) -> list[Text]:
    """One finding in full; every string of it is untrusted and cleaned here."""
    return [
        *_headline(page, finding, style=BOLD),
        *_place(page, finding, note=_origin(page, finding)),
        *source_lines(
            page,
            finding.evidence,
            first_line=finding.line_start if finding.first_line > 0 else None,
            style=SEVERITY_STYLES[finding.severity],
            indent=_INDENT,
        ),
        *_labelled(page, "Why", finding.body, style=BOLD),
        *_fix(page, finding),
        *_verification(page, finding),
    ]


def finding_in_short(page: Page, finding: Finding, *, note: str = "") -> list[Text]:
    """Only what it is and where; `note` says what became of it."""
    return [*_headline(page, finding, style=""), *_place(page, finding, note=note)]


def counts_by_severity(findings: Iterable[Finding]) -> Text:
    """`1 critical, 2 low`: the worst first, each in its colour, steps without findings left out."""
    counts = Counter(finding.severity for finding in findings)
    parts = [Text(f"{counts[step]:,} {step.label}", style=SEVERITY_STYLES[step]) for step in Severity if counts[step]]
    return Text(", ").join(parts)


def _headline(page: Page, finding: Finding, *, style: str) -> list[Text]:
    severity = finding.severity
    word = f"{severity.label.upper()} P{severity.priority}"
    urgent = severity is Severity.CRITICAL
    badge = page.badge(word, _CRITICAL_BADGE) if urgent else Text(word, style=SEVERITY_STYLES[severity])
    title = page.clean(finding.title, longest=_LONGEST_TITLE)
    return page.wrap(Text.assemble(badge, "  ", (title, style)), indent=_INDENT, hang=2)


def _place(page: Page, finding: Finding, *, note: str) -> list[Text]:
    """`path:line`, never wrapped or cut, so that a terminal can open it; the note beside it, or below if too long."""
    place = Text(" " * _INDENT)
    path = page.clean(finding.file)
    place.append(f"{path}:{finding.line_start}" if finding.first_line > 0 else path, style="cyan")
    if finding.last_line > finding.first_line > 0:
        place.append(f" to {finding.line_end}", style=DIM)
    identity = f"id {short_id(finding)}" if finding.fingerprint else ""
    parts = [note, f"fingerprint {finding.fingerprint[:_DIGITS]}" if page.verbose and identity else identity]
    shown = Text(page.clean(f" {page.signs.bullet} ".join(part for part in parts if part)), style=DIM)
    if place.cell_len + 2 + shown.cell_len <= page.measure:
        return [Text.assemble(place, "  ", shown)]
    return [place, *page.wrap(shown, indent=_INDENT)]


def _labelled(page: Page, label: str, text: str, *, style: str) -> list[Text]:
    """Prose beside a label, wrapped under itself; what is endless is cut, and the cut is said."""
    shown = page.clean(text[:_LONGEST_PROSE].strip(), keep_newlines=True, longest=_LONGEST_PROSE)
    if not shown:
        return []
    first = Text(" " * _INDENT)
    first.append(f"{label:<{_LABEL_CELLS}}", style=style)
    lines = page.wrap(prose(shown), indent=_INDENT + _LABEL_CELLS, first=first)
    if len(text) > _LONGEST_PROSE or len(lines) > _PROSE_LINES:
        note = Text(f"{page.signs.more} cut here; the JSON report has it whole", style=DIM)
        lines = [*lines[:_PROSE_LINES], *page.wrap(note, indent=_INDENT + _LABEL_CELLS)]
    return lines


def _fix(page: Page, finding: Finding) -> list[Text]:
    """Advice behind the label, its code as code; then the new code for the quoted lines, each line behind a `+`."""
    fix = fix_of(finding)
    lines: list[Text] = []
    for block, is_code in _blocks(fenced(fix.words[:_LONGEST_PROSE])):
        if is_code:
            lines += code_lines(page, block, sign=" ", style="", indent=_INDENT + _LABEL_CELLS)
        else:
            lines += _labelled(page, "" if lines else "Fix", block, style="bold green")
    if len(fix.words) > _LONGEST_PROSE:
        note = Text(f"{page.signs.more} cut here; the JSON report has it whole", style=DIM)
        lines += page.wrap(note, indent=_INDENT + _LABEL_CELLS)
    if fix.code.strip():
        lines += code_lines(page, fix.code, sign="+", style="green", indent=_INDENT + _LABEL_CELLS)
    if lines and not lines[0].plain.startswith(f"{' ' * _INDENT}Fix"):
        return [Text.assemble(" " * _INDENT, ("Fix", "bold green")), *lines]
    return lines


def _blocks(words: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is code."""
    blocks: list[tuple[str, bool]] = []
    rows: list[str] = []
    fence = ""
    for row in words.split("\n"):
        mark = row.strip()
        opening = mark[: len(mark) - len(mark.lstrip(mark[0]))] if mark[:1] in ("`", "~") else ""
        if (fence and mark == fence) or (not fence and len(opening) >= _SHORTEST_FENCE):
            blocks.append(("\n".join(rows), bool(fence)))
            rows, fence = [], "" if fence else opening
        else:
            rows.append(row)
    blocks.append(("\n".join(rows), bool(fence)))
    return [block for block in blocks if block[0].strip()]


def _verification(page: Page, finding: Finding) -> list[Text]:
    """What the attempt to refute it showed."""
    confirmed = finding.verification.startswith(Proof.CONFIRMED)
    sign, style = (page.signs.passed, "bold green") if confirmed else ("?", "bold yellow")
    return _labelled(page, sign, finding.verification.rstrip(": "), style=style)


def _origin(page: Page, finding: Finding) -> str:
    seen = _agreement(finding)
    # Who saw it names the reviewer too.
    reviewer = "" if seen and finding.seen_by else finding.reviewer
    parts = [finding.category, finding.rule or "", reviewer, finding.expert or "", seen]
    if finding.outside_change:
        parts.append("outside the change")
    parts.append(_HISTORY.get(finding.status.value, ""))
    if finding.confidence is not None:
        parts.append(f"confidence {finding.confidence:.0%}")
    if finding.commit_sha:
        parts.append(f"commit {finding.commit_sha[:10]}")
    return f" {page.signs.bullet} ".join(dict.fromkeys(part for part in parts if part))


def _agreement(finding: Finding) -> str:
    if finding.agreement <= 1:
        return ""
    if not finding.seen_by:
        return f"seen {finding.agreement} times"
    named = ", ".join(finding.seen_by[:_LOOKS_NAMED])
    rest = len(finding.seen_by) - _LOOKS_NAMED
    return f"seen by {named}{f' and {rest:,} more' if rest > 0 else ''}"
