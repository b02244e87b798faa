"""The review as Markdown: verdict, coverage, a table of findings, then each finding with its code.

For a file, a job summary or a comment. Everything a reviewer or a repository wrote passes the sanitiser for Markdown,
and a page stays below what GitHub takes: a megabyte for a job summary, 65,536 characters for a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import PurePosixPath

from msgspec import Struct

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import (
    Standing,
    Tone,
    check_name,
    counted,
    counts_in_words,
    duration,
    errors_beside_gaps,
    gaps_of,
    origin_of,
    outcome_of,
    place_in_words,
    reviewer_in_words,
    spent_in_words,
    standing_so,
    why_not_counted,
)
from codeloupe.system.untrusted import code_span, markdown_cell, markdown_code, markdown_line, markdown_prose

SEVERITY_SIGNS = {Severity.CRITICAL: "🟥", Severity.HIGH: "🟧", Severity.MEDIUM: "🟨", Severity.LOW: "🟦"}
_LONGEST_TITLE = 300
_LONGEST_PATH = 1_000
_LONGEST_PROSE = 6_000
_LONGEST_NOTE = 600
_LONGEST_CODE_LINE = 500
_MOST_CODE_LINES = 20
_MOST_FIX_LINES = 60
_LANGUAGES = {
    ".bash": "bash",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".h": "c",
    ".hpp": "cpp",
    ".html": "html",
    ".java": "java",
    ".js": "javascript",
    ".json": "json",
    ".jsx": "jsx",
    ".kt": "kotlin",
    ".lua": "lua",
    ".php": "php",
    ".py": "python",
    ".rb": "ruby",
    ".rs": "rust",
    ".scala": "scala",
    ".sh": "bash",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "tsx",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def finding_row(finding: Finding) -> str:
    """`| severity | title | place |`."""
    place = code_span(place_in_words(finding)[:_LONGEST_PATH]).replace("|", "\\|")
    return f"| {_severity(finding)} | {title_line(finding, in_cell=True)} | {place} |"


def finding_block(finding: Finding) -> str:
    """Title, place, code, why, fix, verification, and where it comes from."""
    lines = f" to {finding.last_line}" if finding.anchored and finding.last_line > finding.first_line > 0 else ""
    parts = [
        f"### {_severity(finding)}: {title_line(finding)}",
        f"{code_span(place_in_words(finding)[:_LONGEST_PATH])}{lines}",
        _code(finding),
        markdown_prose(finding.body, longest=_LONGEST_PROSE),
        fix_block(finding),
        labelled("Verification", finding.verification.strip(": \n")),
        " · ".join(markdown_line(part, longest=_LONGEST_NOTE) for part in origin_of(finding)),
    ]
    return "\n\n".join(part for part in parts if part)


def short_item(finding: Finding) -> str:
    """One item of a list: what, where, and why it does not count."""
    why = markdown_line(why_not_counted(finding), longest=_LONGEST_NOTE)
    return (
        f"- {_severity(finding)}: {title_line(finding)} — {code_span(place_in_words(finding)[:_LONGEST_PATH])} — {why}"
    )


def title_line(finding: Finding, *, in_cell: bool = False) -> str:
    """The title as one line of Markdown, or the name of the check."""
    show = markdown_cell if in_cell else markdown_line
    return show(finding.title, longest=_LONGEST_TITLE) or check_name(finding)


def labelled(label: str, text: str) -> str:
    """Prose behind a label, which stands above it when the prose begins with a block of code."""
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
    return f"{words or '**Fix:**'}\n\n{_code_block(fix.code, finding.file, most=_MOST_FIX_LINES)}"


def _severity(finding: Finding) -> str:
    return f"{SEVERITY_SIGNS[finding.severity]} {finding.severity.label} P{finding.severity.priority}"


def _code(finding: Finding) -> str:
    if not finding.evidence.strip():
        return ""
    return _code_block(finding.evidence, finding.file, most=_MOST_CODE_LINES)


def _code_block(code: str, path: str, *, most: int) -> str:
    rows = code.rstrip("\n").split("\n")
    shown = [row if len(row) <= _LONGEST_CODE_LINE else f"{row[:_LONGEST_CODE_LINE]}…" for row in rows]
    rest = len(rows) - most
    more = [f"… {rest:,} more lines"] if rest > 0 else []
    language = _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")
    return markdown_code("\n".join([*shown[:most], *more]), language=language)


class Room(Struct, frozen=True, kw_only=True):
    """So many items at most, of so many bytes together."""

    items: int
    size_bytes: int


def fitted(items: Iterable[str], room: Room) -> list[str]:
    """The first of some items, as many as there is room for. None is cut: the first that does not fit ends the list."""
    shown: list[str] = []
    left = room.size_bytes
    for item in islice(items, room.items):
        left -= len(item.encode("utf-8")) + 2
        if left < 0:
            break
        shown.append(item)
    return shown


_SIGNS = {Tone.GOOD: "✅", Tone.CAUTION: "⚠️", Tone.BAD: "❌"}
_LONGEST_LINE = 600


def summary_block(review: Review) -> str:
    """The verdict and why, then findings, coverage, reviewer, cost and time, each on its line."""
    outcome = outcome_of(review)
    coverage = review.coverage
    spent = spent_in_words(review.usage)
    rows = [
        ("Findings", counts_in_words(review)),
        ("Coverage", f"{coverage.files_reviewed:,} of {counted(coverage.files_total, 'file', 'files')} reviewed"),
        ("Reviewed", markdown_line(review.scope.description, longest=_LONGEST_LINE)),
        ("Reviewer", markdown_line(reviewer_in_words(review.reviewer), longest=_LONGEST_LINE)),
        ("Spent", spent),
        ("Time", duration(review.usage.duration_seconds)),
    ]
    listed = "\n".join(f"- {label}: {value}" for label, value in rows if value)
    return f"## {_SIGNS[outcome.tone]} codeloupe: {outcome.word}\n\n{_sentence(outcome.why)}\n\n{listed}"


def not_reviewed(review: Review, room: Room) -> str:
    """The gaps of an incomplete review, what else went wrong, and the files left out on purpose."""
    gaps = [markdown_line(gap.in_words(), longest=_LONGEST_LINE) for gap in gaps_of(review)]
    problems = [
        markdown_line(f"{error.kind}: {error.message}", longest=_LONGEST_LINE) for error in errors_beside_gaps(review)
    ]
    left_out = [
        f"{code_span(skip.file[:_LONGEST_PATH])}: {markdown_line(skip.in_words(), longest=_LONGEST_LINE)}"
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    sections = [
        _listed("## Could not be reviewed", gaps, room),
        _listed("## Problems", problems, room),
        _listed("## Left out", left_out, room),
    ]
    return "\n\n".join(section for section in sections if section)


def _listed(title: str, items: Sequence[str], room: Room) -> str:
    if not items:
        return ""
    shown = [f"- {item}" for item in fitted(items, room)]
    rest = len(items) - len(shown)
    return "\n".join([title, "", *shown, *([f"- and {rest:,} more"] if rest else [])])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


_TABLE_HEAD = "| severity | finding | where |\n|---|---|---|\n"
_TABLE = Room(items=200, size_bytes=80_000)
_BLOCKS = Room(items=200, size_bytes=500_000)
_UNPLACED = Room(items=50, size_bytes=80_000)
_CLOSED = Room(items=100, size_bytes=40_000)
_LISTS = Room(items=50, size_bytes=30_000)


def render_markdown(review: Review) -> str:
    """The whole report. What is more than a page can hold is counted, and said to be left out."""
    opened = standing_so(review.findings, Standing.OPEN)
    unplaced = standing_so(review.findings, Standing.UNPLACED)
    note = "\n\nThese could not be placed in the code, so no line is known."
    parts = [
        summary_block(review),
        _table(opened, _TABLE),
        not_reviewed(review, _LISTS),
        _section("## Findings\n\n", opened, finding_block, room=_BLOCKS, between="\n\n"),
        _section(f"## Without a place{note}\n\n", unplaced, finding_block, room=_UNPLACED, between="\n\n"),
        _closed("Refuted", standing_so(review.findings, Standing.REFUTED)),
        _closed("Set aside", standing_so(review.findings, Standing.SET_ASIDE)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(findings: Sequence[Finding], room: Room) -> str:
    return _section(_TABLE_HEAD, findings, finding_row, room=room, between="\n")


def _closed(title: str, findings: Sequence[Finding]) -> str:
    return _section(f"## {title}\n\nThese do not count.\n\n", findings, short_item, room=_CLOSED, between="\n")


def _section(
    head: str, findings: Sequence[Finding], show: Callable[[Finding], str], *, room: Room, between: str
) -> str:
    """Findings under a head, as many as there is room for; nothing without any."""
    if not findings:
        return ""
    shown = fitted(map(show, findings), room)
    rest = len(findings) - len(shown)
    body = head + between.join(shown)
    return f"{body}\n\nand {rest:,} more; the JSON report has them all" if rest else body
