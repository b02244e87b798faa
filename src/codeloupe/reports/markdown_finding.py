"""A finding in Markdown: as a row of the table, as a block with its code, or as one item."""

from __future__ import annotations

from pathlib import PurePosixPath

from codeloupe.model.finding import Finding
from codeloupe.model.severity import Severity
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.standing import check_name, origin_of, why_not_counted
from codeloupe.reports.wording import place_in_words
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
