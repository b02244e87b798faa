"""The review as Markdown: verdict, coverage, a table of findings, then each finding with its code.

For a file, a job summary or a comment. Everything a reviewer or a repository wrote passes the sanitiser for Markdown,
and a page stays below what GitHub takes: a megabyte for a job summary, 65,536 characters for a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeVar

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports import wording
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import Standing
from codeloupe.system.untrusted import code_span, markdown_cell, markdown_code, markdown_line, markdown_prose

_Item = TypeVar("_Item")
# So many items at most, of so many bytes together.
Room = tuple[int, int]
SEVERITY_SIGNS = dict(zip(Severity, "🟥🟧🟨🟦", strict=True))
_VERDICT_SIGNS = {wording.Tone.GOOD: "✅", wording.Tone.CAUTION: "⚠️", wording.Tone.BAD: "❌"}
TABLE_HEAD = "| severity | finding | where |\n|---|---|---|\n"
_LONGEST_PATH = 1_000
_LONGEST_PROSE = 6_000
_LONGEST_NOTE = 600


def finding_row(finding: Finding) -> str:
    """`| severity | title | place |`."""
    place = code_span(wording.place_text(finding)[:_LONGEST_PATH]).replace("|", "\\|")
    return f"| {_severity(finding)} | {title_line(finding, in_cell=True)} | {place} |"


def finding_block(finding: Finding) -> str:
    """Title, place, code, why, fix, verification, and where it comes from."""
    lines = f" to {finding.last_line}" if finding.anchored and finding.last_line > finding.first_line > 0 else ""
    parts = [
        f"### {_severity(finding)}: {title_line(finding)}",
        f"{code_span(wording.place_text(finding)[:_LONGEST_PATH])}{lines}",
        _code_block(finding.evidence, finding.file, most=20) if finding.evidence.strip() else "",
        markdown_prose(finding.body, longest=_LONGEST_PROSE),
        fix_block(finding),
        proof_block(finding),
        origin_line(finding),
    ]
    return "\n\n".join(filter(None, parts))


def proof_block(finding: Finding) -> str:
    """Return what was verified, each further claim, and why the finding needs a person; empty without any of these."""
    claims = [f"- {markdown_line(claim, longest=_LONGEST_NOTE)}" for claim in wording.further_claims(finding)]
    parts = [
        labelled("Verification", wording.proof_text(finding)),
        "\n".join(["**Further claims:**\n", *claims]) if claims else "",
        labelled("Needs a person", wording.why_pending(finding)),
    ]
    return "\n\n".join(filter(None, parts))


def origin_line(finding: Finding) -> str:
    """Where a finding comes from, as one line of Markdown."""
    return " · ".join(markdown_line(part, longest=_LONGEST_NOTE) for part in wording.origin_of(finding))


def title_line(finding: Finding, *, in_cell: bool = False) -> str:
    """The title as one line of Markdown, or the name of the check."""
    show = markdown_cell if in_cell else markdown_line
    return show(finding.title, longest=300) or wording.check_name(finding)


def labelled(label: str, text: str) -> str:
    """Prose after a label, which is above it when the prose begins with a block of code."""
    prose = markdown_prose(text, longest=_LONGEST_PROSE)
    if not prose:
        return ""
    return f"**{label}:**\n\n{prose}" if prose[0] in "`-*" or prose[:1].isdigit() else f"**{label}:** {prose}"


def fix_block(finding: Finding) -> str:
    """The advice, then the new code for the quoted lines; nothing without either."""
    fix = fix_of(finding)
    words = labelled("Fix", fenced(fix.words))
    if not fix.code.strip():
        return words
    return f"{words or '**Fix:**'}\n\n{_code_block(fix.code, finding.file, most=60)}"


def _severity(finding: Finding) -> str:
    return f"{SEVERITY_SIGNS[finding.severity]} {finding.severity.label} P{finding.severity.priority}"


def _code_block(code: str, path: str, *, most: int) -> str:
    rows = code.rstrip("\n").split("\n")
    shown = [row if len(row) <= 500 else f"{row[:500]}…" for row in rows[:most]]
    more = [f"… {len(rows) - most:,} more lines"] if len(rows) > most else []
    language = wording.word_table("languages").get(PurePosixPath(path).suffix.lower(), "")
    return markdown_code("\n".join([*shown, *more]), language=language)


def summary_block(review: Review) -> str:
    """The verdict and why, then findings, coverage, reviewer, cost and time, each on its line."""
    outcome = wording.outcome_of(review)
    rows = {
        "Findings": wording.counts_text(review),
        "Coverage": wording.files_reviewed(review),
        "Reviewed": markdown_line(review.scope.description, longest=_LONGEST_NOTE),
        "Reviewer": markdown_line(wording.reviewer_text(review.reviewer), longest=_LONGEST_NOTE),
        "Spent": wording.spent_text(review.usage),
        "Time": wording.duration(review.usage.duration_seconds),
    }
    listed = "\n".join(f"- {label}: {value}" for label, value in rows.items() if value)
    why = f"{outcome.why[:1].upper()}{outcome.why[1:]}."
    return f"## {_VERDICT_SIGNS[outcome.tone]} codeloupe: {outcome.word}\n\n{why}\n\n{listed}"


def not_reviewed(review: Review, room: Room) -> str:
    """Return the gaps of an incomplete review, other problems, notes, failovers, and the files that were skipped."""
    lists = {
        "Could not be reviewed": [("", gap.describe()) for gap in wording.gaps_of(review)],
        "Problems": [("", problem) for problem in wording.problems_of(review)],
        "Notes": [("", note) for note in wording.notes_of(review)],
        "Failover": [
            (f"{code_span(failover.name[:_LONGEST_PATH])}: ", ": ".join(filter(None, (failover.listed, failover.why))))
            for failover in wording.failovers_of(review)
        ],
        "Left out": [(f"{code_span(skip.file[:_LONGEST_PATH])}: ", skip.describe()) for skip in review.left_out],
    }
    sections = []
    for title, items in lists.items():
        if items:
            shown = _fitted((name + markdown_line(why, longest=_LONGEST_NOTE) for name, why in items), room)
            rest = [f"and {len(items) - len(shown):,} more"] if len(items) > len(shown) else []
            sections.append("\n- ".join([f"## {title}\n", *shown, *rest]))
    return "\n\n".join(sections)


def section(
    head: str, items: Sequence[_Item], show: Callable[[_Item], str], room: Room, *, between: str, whole: str = ""
) -> str:
    """Items under a head, as many as there is room for, and who has all of them; nothing without any."""
    if not items:
        return ""
    shown = _fitted(map(show, items), room)
    rest = len(items) - len(shown)
    more = f"\n\nand {rest:,} more; {whole or 'the JSON report'} has them all" if rest else ""
    return f"{head}{between.join(shown)}{more}"


def _fitted(items: Iterable[str], room: Room) -> list[str]:
    """The first of some items, as many as there is room for. None is cut: the first that does not fit ends the list."""
    shown: list[str] = []
    most, left = room
    for item in islice(items, most):
        left -= len(item.encode("utf-8")) + 2
        if left < 0:
            break
        shown.append(item)
    return shown


def _closed_item(finding: Finding) -> str:
    place = code_span(wording.place_text(finding)[:_LONGEST_PATH])
    why = markdown_line(wording.why_not_counted(finding), longest=_LONGEST_NOTE)
    return f"- {_severity(finding)}: {title_line(finding)} — {place} — {why}"


def render_markdown(review: Review) -> str:
    """The whole report. What is more than a page can hold is counted, and said to be left out."""
    groups = wording.by_standing(review.findings)
    opened = groups[Standing.OPEN]
    person = "## Needs a person\n\nThe review cannot pass before a person has decided about these.\n\n"
    parts = [
        summary_block(review),
        section(TABLE_HEAD, opened, finding_row, (200, 80_000), between="\n"),
        section(person, groups[Standing.PENDING], finding_block, (50, 80_000), between="\n\n"),
        not_reviewed(review, (50, 30_000)),
        section("## Findings\n\n", opened, finding_block, (200, 500_000), between="\n\n"),
    ]
    closed = {
        "Unproven": groups[Standing.UNPROVEN],
        "Refuted": groups[Standing.REFUTED],
        "Set aside": groups[Standing.SET_ASIDE],
    }
    for title, findings in closed.items():
        head = f"## {title}\n\nThese do not count.\n\n"
        parts.append(section(head, findings, _closed_item, (100, 40_000), between="\n"))
    return "\n\n".join(filter(None, parts)) + "\n"
