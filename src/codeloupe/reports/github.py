"""Workflow annotations of GitHub Actions: what blocks is an error, what does not is a warning or a notice.

GitHub shows ten of each level for a step and drops the rest, so the worst come first, and the last notice tells the
verdict and what was left out. What counts for nothing (refuted, suppressed, dismissed, fixed) is only counted there. A
finding without a place is a notice without a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.replacement import fix_of
from codeloupe.reports.wording import (
    Standing,
    blocks,
    check_name,
    counts_in_words,
    errors_beside_gaps,
    gaps_of,
    outcome_of,
    standing_so,
)
from codeloupe.system.untrusted import command, is_inside

_MOST = 10
# The closing notice is one of the ten.
_ROOM = {"error": _MOST, "warning": _MOST, "notice": _MOST - 1}


def render_github(review: Review) -> str:
    """The review as lines for a workflow's log; never empty, as the last one tells the verdict."""
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for level, line in _annotations(review):
        counts[level] += 1
        if counts[level] <= _ROOM[level]:
            lines.append(line)
    outcome = outcome_of(review)
    words = f"{outcome.why}. Findings: {counts_in_words(review)}."
    left_out = [
        f"{counts[level] - room:,} more of level {level}" for level, room in _ROOM.items() if counts[level] > room
    ]
    if left_out:
        words += f" GitHub shows {_MOST} of a level; not shown: {', '.join(left_out)}. Another format has them all."
    lines.append(_line("notice", f"codeloupe: {outcome.word}", words))
    return "".join(f"{line}\n" for line in lines)


def _annotations(review: Review) -> Iterator[tuple[str, str]]:
    """The level and the line of each, the worst first: gaps, findings that block, other findings, problems."""
    if gaps := gaps_of(review):
        # All in one, so that they cannot push findings out.
        reasons = [gap.in_words() for gap in gaps[:20]]
        more = [f"and {len(gaps) - 20:,} more"] if len(gaps) > 20 else []
        level = "warning" if review.passed else "error"
        yield level, _line(level, "codeloupe could not review everything", "\n".join([*reasons, *more]))
    opened = standing_so(review.findings, Standing.OPEN)
    for finding in sorted(opened, key=lambda finding: not blocks(review, finding)):
        level = "error" if blocks(review, finding) else "notice" if finding.severity is Severity.LOW else "warning"
        yield level, _finding(finding, level)
    for finding in standing_so(review.findings, Standing.UNPLACED):
        level = "warning" if finding.is_unsettled(review.policy.fail_on) else "notice"
        yield level, _finding(finding, level)
    for error in errors_beside_gaps(review):
        yield "warning", _line("warning", f"codeloupe: {error.kind}", error.message)


def _finding(finding: Finding, level: str) -> str:
    fix = fix_of(finding)
    parts = [part for part in (fix.words.strip("\n"), fix.code) if part.strip()]
    advice = "\n".join(["", f"Fix: {parts[0]}", *parts[1:]]) if fix.words.strip() else "\n".join(["", "Fix:", *parts])
    title = " ".join(finding.title.split()) or check_name(finding)
    place = {"file": finding.file if is_inside(finding.file) else ""}
    note = " This could not be placed in the code."
    if finding.first_line > 0:
        place |= {"line": str(finding.first_line), "endLine": str(max(finding.first_line, finding.last_line))}
        note = ""
    message = f"{finding.body or title}{note}{advice if parts else ''}"
    return _line(level, f"{finding.severity.label} P{finding.severity.priority}: {title}"[:200], message, **place)


def _line(level: str, title: str, message: str, **place: str) -> str:
    properties = {name: value for name, value in {**place, "title": title}.items() if value}
    return command(level, properties, message, longest=4_000)
