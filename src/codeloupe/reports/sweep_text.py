"""A sweep as text: who reviewed, each commit with its verdict and what was found, the plan, and the summary."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text

from codeloupe.model.finding import Finding
from codeloupe.model.sweep import CommitReview, CommitSweep, CommitVerdict
from codeloupe.reports.finding_text import counts_by_severity, finding_in_short, finding_lines
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, print_lines
from codeloupe.reports.source_line import code_lines
from codeloupe.reports.sweep_words import (
    NOTHING,
    SHORT_SHA,
    ending_in_words,
    findings_of,
    note_on_coverage,
    score_in_words,
    size_in_words,
    time_in_words,
    verdict_in_words,
    why_not_counted,
)
from codeloupe.reports.wording import duration, reviewer_in_words, spent_in_words

_BLANK = Text("")
_INDENT = 2
_LABEL_CELLS = 10
_PHASE_CELLS = 10
_VERDICT_CELLS = max(map(len, CommitVerdict))
_LONGEST_SUBJECT = 500
_STYLES = {
    CommitVerdict.LEAVE: "bold green",
    CommitVerdict.FIX: "bold yellow",
    CommitVerdict.REVERT: "bold red",
    None: "bold yellow",
}
_PHASE_STYLES = {"red": "bold red", "green": "bold green", "refactor": "bold cyan"}


def render_sweep_text(
    sweep: CommitSweep, *, width: int, color: bool, verbose: bool = False, ascii_only: bool = False
) -> str:
    """The report for a person, in lines of at most `width` cells; only `path:line` and the summary may be longer.

    Without `color` there is no escape sequence in it; with `ascii_only` no character outside ASCII.
    """
    page = Page(width=max(width, NARROWEST), color=color, verbose=verbose, ascii_only=ascii_only)
    return print_lines(page, [*_opening(page, sweep), *_commits(page, sweep.commits), *_closing(page, sweep)])


def _opening(page: Page, sweep: CommitSweep) -> list[Text]:
    who: list[Text] = []
    if sweep.reviewer is not None:
        name, colon, rest = page.clean(reviewer_in_words(sweep.reviewer)).partition(":")
        who = page.wrap(Text.assemble((name, BOLD), colon, rest))
    return [*who, *page.wrap(Text(page.clean(sweep.description), style=DIM))]


def _commits(page: Page, commits: Sequence[CommitReview]) -> list[Text]:
    """Commits without findings close together, the others with room around them."""
    cells = max((len(_standing(commit)) for commit in commits), default=0)
    lines: list[Text] = []
    roomy = True
    for commit in commits:
        details = _details(page, commit)
        if roomy or details:
            lines.append(_BLANK)
        lines += [*_headline(page, commit, cells), *_about(page, commit), *details]
        roomy = bool(details)
    return lines


def _standing(reviewed: CommitReview) -> str:
    if reviewed.verdict is None:
        return verdict_in_words(reviewed)
    return f"{reviewed.verdict.value:<{_VERDICT_CELLS}}  {score_in_words(reviewed.score)}"


def _headline(page: Page, reviewed: CommitReview, cells: int) -> list[Text]:
    commit = reviewed.commit
    subject = page.clean(commit.subject, longest=_LONGEST_SUBJECT)
    line = Text.assemble(
        (f"{_standing(reviewed):<{cells}}", _STYLES[reviewed.verdict]),
        "  ",
        (commit.sha[:SHORT_SHA], "cyan"),
        "  ",
        (subject, BOLD),
    )
    return page.wrap(line, hang=_INDENT)


def _about(page: Page, reviewed: CommitReview) -> list[Text]:
    commit = reviewed.commit
    parts = [
        commit.author,
        time_in_words(commit),
        reviewed.category.value,
        ", ".join(reviewed.experts),
        size_in_words(commit),
        note_on_coverage(reviewed),
    ]
    told = f" {page.signs.bullet} ".join(page.clean(part) for part in parts if part)
    return page.wrap(Text(told, style=DIM), indent=_INDENT)


def _details(page: Page, reviewed: CommitReview) -> list[Text]:
    """Why it could not be reviewed, what was found, and what to do about it; nothing for a clean commit."""
    findings = sorted(findings_of(reviewed), key=lambda one: (one.severity.priority, one.file, one.first_line))
    counting = [finding for finding in findings if finding.can_block]
    others = [finding for finding in findings if not finding.can_block]
    sections = [
        _failure(page, reviewed),
        *(finding_lines(page, _bare(finding)) for finding in counting),
        *(
            finding_in_short(page, _bare(finding), note=f"not counted: {why_not_counted(finding)}")
            for finding in others
        ),
        _plan(page, reviewed),
    ]
    return [line for section in sections if section for line in (_BLANK, *section)]


def _bare(finding: Finding) -> Finding:
    """Without its commit, under which it stands."""
    return replace(finding, commit_sha=None)


def _failure(page: Page, reviewed: CommitReview) -> list[Text]:
    if not reviewed.failure:
        return []
    sign = Text.assemble(" " * _INDENT, (page.signs.gap, "bold yellow"), " ")
    return page.wrap(Text(page.clean(reviewed.failure)), indent=_INDENT + 2, first=sign)


def _plan(page: Page, reviewed: CommitReview) -> list[Text]:
    if not reviewed.plan:
        return []
    lines = [Text(f"{' ' * _INDENT}Plan, test first", style=BOLD)]
    for step in reviewed.plan:
        first = Text.assemble(" " * _INDENT, (f"{step.phase:<{_PHASE_CELLS}}", _PHASE_STYLES.get(step.phase, BOLD)))
        if page.measure >= 2 * NARROWEST:
            lines += page.wrap(Text(page.clean(step.text)), indent=_INDENT + _PHASE_CELLS, first=first)
        else:
            lines += [first, *page.wrap(Text(page.clean(step.text)), indent=_INDENT)]
        if step.code:
            lines += code_lines(page, step.code, sign="+", style="green", indent=_INDENT + _PHASE_CELLS)
    return lines


def _closing(page: Page, sweep: CommitSweep) -> list[Text]:
    style = "red" if sweep.exit_code == 1 else "yellow" if sweep.exit_code or _has_gaps(sweep) else "green"
    findings = [finding for commit in sweep.commits for finding in findings_of(commit) if finding.can_block]
    counts = counts_by_severity(findings)
    ending = ending_in_words(sweep)
    rows = [
        ("Score", Text(score_in_words(sweep.score))),
        ("Findings", counts if counts.plain else Text("none")),
        ("Spent", Text(spent_in_words(sweep.usage))),
        ("Time", Text(duration(sweep.usage.duration_seconds))),
    ]
    return [
        _BLANK,
        *([] if sweep.commits else [*page.wrap(Text(NOTHING)), _BLANK]),
        Text(page.signs.heavy_rule * page.measure, style=style),
        # In one piece, whatever the width: it is what one looks for in a log.
        Text(page.clean(sweep.summary), style=BOLD),
        *(page.wrap(Text(page.clean(f"{ending[:1].upper()}{ending[1:]}."), style=style)) if ending else []),
        *(line for label, value in rows if value.plain for line in _row(page, label, value)),
    ]


def _has_gaps(sweep: CommitSweep) -> bool:
    return any(commit.verdict is None for commit in sweep.commits)


def _row(page: Page, label: str, value: Text) -> list[Text]:
    return page.wrap(value, indent=_LABEL_CELLS, first=Text(f"{label:<{_LABEL_CELLS}}", style=DIM))
