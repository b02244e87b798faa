"""A sweep as text: who reviewed, each commit with its verdict and what was found, the plan, and the summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent

from msgspec.structs import replace
from rich.text import Text

from codeloupe.model.change import Commit
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Verdict
from codeloupe.model.sweep import CommitReview, CommitSweep, CommitVerdict
from codeloupe.reports.closing import counts_by_severity
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, print_lines
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.text import code_lines, finding_in_short, finding_lines
from codeloupe.reports.wording import counted, duration, place_in_words, reviewer_in_words, spent_in_words, worst_first
from codeloupe.system.untrusted import (
    code_span,
    markdown_cell,
    markdown_code,
    markdown_line,
    markdown_prose,
    without_log_commands,
)

SHORT_SHA = 10
INCOMPLETE = Verdict.INCOMPLETE.value
NOTHING = "There are no commits to review."
_CAUSES = {FindingStatus.REFUTED: "refuted"}


def verdict_in_words(commit: CommitReview) -> str:
    """`LEAVE`, `FIX`, `REVERT`, or `INCOMPLETE` for one that could not be reviewed."""
    return INCOMPLETE if commit.verdict is None else commit.verdict.value


def score_in_words(score: float | None) -> str:
    """`0.85`, or a dash where there is none."""
    return "-" if score is None else f"{score:.2f}"


def lines_in_words(commit: Commit) -> str:
    """`+12 -3`."""
    return f"+{commit.insertions:,} -{commit.deletions:,}"


def size_in_words(commit: Commit) -> str:
    """`+12 -3 in 2 files`."""
    return f"{lines_in_words(commit)} in {counted(len(commit.files), 'file', 'files')}"


def note_on_coverage(reviewed: CommitReview) -> str:
    """That nothing was looked at, since there was nothing to look at; empty for any other commit."""
    coverage = reviewed.review.coverage if reviewed.review is not None else None
    if coverage is None or reviewed.failure or coverage.files_reviewed:
        return ""
    return "none reviewed" if coverage.files_total else "no changes"


def time_in_words(commit: Commit) -> str:
    """`2024-05-31 12:30 UTC`."""
    return f"{commit.time:%Y-%m-%d %H:%M} UTC"


def findings_of(commit: CommitReview) -> tuple[Finding, ...]:
    """What was found, also by a review that is not complete."""
    return commit.review.findings if commit.review is not None else ()


def description_of(finding: Finding) -> str:
    """The defect in one text: what it is, and why."""
    return "\n\n".join(part for part in (finding.title.strip(), finding.body.strip()) if part)


def evidence_of(finding: Finding) -> str:
    """Where it is: `file:line`."""
    return place_in_words(finding)


def expert_of(finding: Finding) -> str:
    """Who found it: the expert, or the reviewer that has none, such as an analyser."""
    return finding.expert or finding.reviewer


def why_not_counted(finding: Finding) -> str:
    """Why a finding costs its commit nothing; empty for one that counts."""
    if finding.can_block:
        return ""
    if finding.is_open:
        return "could not be placed in the code"
    if finding.suppression is not None:
        return f"suppressed: {finding.suppression.reason}"
    return finding.verification or _CAUSES.get(finding.status, finding.status.value)


def ending_in_words(sweep: CommitSweep) -> str:
    """What the exit code says."""
    match sweep.exit_code:
        case 1:
            return "there are findings of high or above, and --strict fails on them"
        case 3:
            return "not every commit could be reviewed"
        case _ if any(commit.verdict is None for commit in sweep.commits):
            return "not every commit could be reviewed; accepted, since on_incomplete is pass"
        case _:
            return ""


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
        yield _sweep_markdown_row(commit)
    for commit in sweep.commits:
        if commit.failure or findings_of(commit):
            yield from _section(commit)


def _sweep_markdown_row(reviewed: CommitReview) -> str:
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
