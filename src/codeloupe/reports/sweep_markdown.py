"""A sweep as Markdown: a table of all commits, then what was found, with a plan. Nothing in it acts."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from codeloupe.model.finding import Finding
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.standing import worst_first
from codeloupe.reports.sweep_words import (
    NOTHING,
    SHORT_SHA,
    ending_in_words,
    evidence_of,
    expert_of,
    findings_of,
    lines_in_words,
    note_on_coverage,
    score_in_words,
    size_in_words,
    time_in_words,
    verdict_in_words,
    why_not_counted,
)
from codeloupe.reports.wording import duration, reviewer_in_words, spent_in_words
from codeloupe.system.untrusted import (
    code_span,
    markdown_cell,
    markdown_code,
    markdown_line,
    markdown_prose,
    without_log_commands,
)

_LONGEST_CELL = 200
_LONGEST_LINE = 1_000
_LONGEST_TEXT = 6_000
_QUOTE_LINES = 12
_COLUMNS = ("Commit", "Verdict", "Score", "Category", "Experts", "Lines", "Files", "Author", "Time", "Subject")


def render_sweep_markdown(sweep: CommitSweep) -> str:
    """The sweep as Markdown of the kind that forges show."""
    # It may be printed to the log of a CI system, which obeys lines of certain forms wherever they stand.
    return without_log_commands("\n".join(_document(sweep)) + "\n")


def _document(sweep: CommitSweep) -> Iterator[str]:
    yield "# Commit review"
    yield ""
    yield f"**{markdown_line(sweep.summary, longest=_LONGEST_LINE)}**"
    yield ""
    ending = ending_in_words(sweep)
    score = "" if sweep.score is None else f"Score {sweep.score:.2f}. "
    yield f"{score}{ending[:1].upper()}{ending[1:]}".rstrip() + ("." if ending else "")
    yield ""
    yield f"{markdown_line(sweep.description, longest=_LONGEST_LINE)}  "
    if sweep.reviewer is not None:
        yield f"{markdown_line(reviewer_in_words(sweep.reviewer), longest=_LONGEST_LINE)}  "
    spent = spent_in_words(sweep.usage)
    yield markdown_line(", ".join(filter(None, (spent, duration(sweep.usage.duration_seconds)))), longest=_LONGEST_LINE)
    yield ""
    if not sweep.commits:
        yield NOTHING
        return
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{'---|' * len(_COLUMNS)}"
    for commit in sweep.commits:
        yield _row(commit)
    for commit in sweep.commits:
        if commit.failure or findings_of(commit):
            yield from _section(commit)


def _row(reviewed: CommitReview) -> str:
    commit = reviewed.commit
    cells = (
        code_span(commit.sha[:SHORT_SHA]),
        f"**{verdict_in_words(reviewed)}**",
        score_in_words(reviewed.score),
        reviewed.category.value.replace("_", "\\_"),
        _cell(", ".join(reviewed.experts)),
        lines_in_words(commit),
        ", ".join(filter(None, (f"{len(commit.files):,}", note_on_coverage(reviewed)))),
        _cell(commit.author),
        time_in_words(commit),
        _cell(commit.subject),
    )
    return f"| {' | '.join(cell or ' ' for cell in cells)} |"


def _cell(text: str) -> str:
    return markdown_cell(text, longest=_LONGEST_CELL)


def _section(reviewed: CommitReview) -> Iterator[str]:
    commit = reviewed.commit
    score = "" if reviewed.score is None else f" {reviewed.score:.2f}"
    yield ""
    yield f"## {verdict_in_words(reviewed)}{score} {code_span(commit.sha[:SHORT_SHA])}"
    yield ""
    yield f"{markdown_line(commit.subject, longest=_LONGEST_LINE)}  "
    yield markdown_line(
        f"{commit.author}, {time_in_words(commit)}, {reviewed.category.value}, {size_in_words(commit)}",
        longest=_LONGEST_LINE,
    )
    if reviewed.failure:
        yield ""
        yield f"Could not be reviewed: {markdown_line(reviewed.failure, longest=_LONGEST_LINE)}"
    for finding in worst_first(findings_of(reviewed)):
        yield from _finding(finding)
    if reviewed.plan:
        yield ""
        yield "Plan, test first:"
        yield ""
        for number, step in enumerate(reviewed.plan, start=1):
            yield f"{number}. **{step.phase}**: {markdown_line(step.text, longest=_LONGEST_LINE)}"
            if step.code:
                yield ""
                yield indent(markdown_code(step.code[:_LONGEST_TEXT]), "   ")
                yield ""


def _finding(finding: Finding) -> Iterator[str]:
    severity = finding.severity
    title = markdown_line(finding.title, longest=_LONGEST_LINE)
    yield ""
    yield f"### {severity.label.upper()} P{severity.priority}: {title}"
    yield ""
    about = " · ".join(
        filter(
            None, (code_span(evidence_of(finding)), _cell(finding.category), _cell(expert_of(finding)), _note(finding))
        )
    )
    yield about
    if finding.evidence.strip():
        lines = finding.evidence.rstrip("\n")[:_LONGEST_TEXT].split("\n")
        cut = ["…"] if len(lines) > _QUOTE_LINES else []
        yield ""
        yield markdown_code("\n".join([*lines[:_QUOTE_LINES], *cut]))
    if finding.body.strip():
        yield ""
        yield markdown_prose(finding.body, longest=_LONGEST_TEXT)
    fix = fix_of(finding)
    parts = (
        markdown_prose(fenced(fix.words), longest=_LONGEST_TEXT),
        markdown_code(fix.code[:_LONGEST_TEXT]) if fix.code.strip() else "",
    )
    if any(parts):
        yield ""
        yield "**Fix**"
    for part in filter(None, parts):
        yield ""
        yield part
    if finding.verification:
        yield ""
        yield f"**Verified**: {markdown_line(finding.verification, longest=_LONGEST_LINE)}"


def _note(finding: Finding) -> str:
    why = why_not_counted(finding)
    return f"not counted: {_cell(why)}" if why else ""
