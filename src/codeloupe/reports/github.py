"""Workflow annotations of GitHub Actions: what blocks is an error, what does not is a warning or a notice.

GitHub shows ten of each level for a step and drops the rest, so the worst come first, and the last notice tells the
verdict and what was left out. What counts for nothing (refuted, suppressed, dismissed, fixed) is only counted there. A
finding without a place is a notice without a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.replacement import fix_of
from codeloupe.reports.wording import (
    Gap,
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
_LONGEST_TITLE = 200
_LONGEST_MESSAGE = 4_000
_GAPS_TOLD = 20

Level = Literal["error", "warning", "notice"]
# The closing notice is one of the ten.
_ROOM: dict[Level, int] = {"error": _MOST, "warning": _MOST, "notice": _MOST - 1}


class _Annotation(Struct, frozen=True, kw_only=True):
    level: Level
    title: str
    message: str
    file: str = ""
    line: int = 0
    end_line: int = 0


def render_github(review: Review) -> str:
    """The review as lines for a workflow's log; never empty, as the last one tells the verdict."""
    shown: list[_Annotation] = []
    counts: Counter[Level] = Counter()
    for annotation in _annotations(review):
        counts[annotation.level] += 1
        if counts[annotation.level] <= _ROOM[annotation.level]:
            shown.append(annotation)
    left_out = {level: counts[level] - room for level, room in _ROOM.items() if counts[level] > room}
    return "".join(f"{line}\n" for line in [*map(_line, shown), _closing(review, left_out)])


def _annotations(review: Review) -> Iterable[_Annotation]:
    """The worst first: gaps, findings that block, other findings, those without a place, problems."""
    gaps = gaps_of(review)
    if gaps:
        yield _gap_annotation(review, gaps)
    opened = standing_so(review.findings, Standing.OPEN)
    for finding in sorted(opened, key=lambda finding: not blocks(review, finding)):
        yield _finding(finding, _level(review, finding))
    for finding in standing_so(review.findings, Standing.UNPLACED):
        yield _finding(finding, "warning" if finding.is_unsettled(review.policy.fail_on) else "notice")
    for error in errors_beside_gaps(review):
        yield _Annotation(level="warning", title=f"codeloupe: {error.kind}", message=error.message)


def _level(review: Review, finding: Finding) -> Level:
    if blocks(review, finding):
        return "error"
    return "notice" if finding.severity is Severity.LOW else "warning"


def _finding(finding: Finding, level: Level) -> _Annotation:
    placed = finding.first_line > 0
    place = "" if placed else " This could not be placed in the code."
    fix = fix_of(finding)
    parts = [part for part in (fix.words.strip("\n"), fix.code) if part.strip()]
    advice = "\n".join(["", f"Fix: {parts[0]}", *parts[1:]]) if fix.words.strip() else "\n".join(["", "Fix:", *parts])
    title = " ".join(finding.title.split()) or check_name(finding)
    return _Annotation(
        level=level,
        title=f"{finding.severity.label} P{finding.severity.priority}: {title}"[:_LONGEST_TITLE],
        message=f"{finding.body or title}{place}{advice if parts else ''}",
        file=finding.file if is_inside(finding.file) else "",
        line=finding.first_line if placed else 0,
        end_line=max(finding.first_line, finding.last_line) if placed else 0,
    )


def _gap_annotation(review: Review, gaps: tuple[Gap, ...]) -> _Annotation:
    """All gaps in one, so that they cannot push findings out."""
    told = [gap.in_words() for gap in gaps[:_GAPS_TOLD]]
    more = f"and {len(gaps) - len(told):,} more" if len(gaps) > len(told) else ""
    return _Annotation(
        level="warning" if review.passed else "error",
        title="codeloupe could not review everything",
        message="\n".join([*told, *([more] if more else [])]),
    )


def _closing(review: Review, left_out: dict[Level, int]) -> str:
    outcome = outcome_of(review)
    words = [f"{outcome.why}. Findings: {counts_in_words(review)}."]
    if left_out:
        counts = ", ".join(f"{count:,} more of level {level}" for level, count in left_out.items())
        words.append(f"GitHub shows {_MOST} of a level; not shown: {counts}. Another format has them all.")
    return _line(_Annotation(level="notice", title=f"codeloupe: {outcome.word}", message=" ".join(words)))


def _line(annotation: _Annotation) -> str:
    properties = {
        "file": annotation.file,
        "line": str(annotation.line or ""),
        "endLine": str(annotation.end_line or ""),
        "title": annotation.title,
    }
    told = {name: value for name, value in properties.items() if value}
    return command(annotation.level, told, annotation.message, longest=_LONGEST_MESSAGE)
