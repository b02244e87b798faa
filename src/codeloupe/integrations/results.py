"""What orchestrators get, and how it is made of a review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review, Verdict, claim_in_words

_NAMED_REASONS = 5
_PRIORITY = re.compile(r"\s{0,8}\[\s{0,8}P[0-3]\s{0,8}\]\s*", re.IGNORECASE)
_UNPLACED = "(The code that this speaks of was not found in the reviewed files.)"


class ReviewIssue(Struct, frozen=True, kw_only=True):
    """One issue of a `ReviewResult`. `priority` is 0 to 3, and the title begins with it, as in `[P1] …`."""

    file: str
    line_start: int | None
    line_end: int | None
    priority: int
    title: str
    body: str
    reviewer: str


class ReviewResult(Struct, frozen=True, kw_only=True):
    """Whether a change may go on. `parse_error` says what could not be reviewed, and is None when everything was.

    `passed` follows `fail_on`; `verdict` is that of the review, the worst of several, and INCOMPLETE when none ended.
    `fatal_error` tells that trying again makes no sense. `review_log_path` is the JSON report of the review; of
    several commits, a list of their reports.
    """

    passed: bool
    verdict: Verdict = Verdict.PASS
    issues: tuple[ReviewIssue, ...] = ()
    parse_error: str | None = None
    fatal_error: bool = False
    review_log_path: Path | None = None


class WorkdirIssue(Struct, frozen=True, kw_only=True):
    """One issue of a `WorkdirReviewResult`."""

    file: str
    line: int | None
    severity: Literal["error", "warning", "suggestion"]
    message: str
    suggestion: str | None = None


class WorkdirReviewResult(Struct, frozen=True, kw_only=True):
    """Whether a work directory may go on. `raw_output` is what a reviewer printed that could not be read, or empty."""

    passed: bool
    summary: str
    issues: tuple[WorkdirIssue, ...] = ()
    raw_output: str = ""


def reasons_of(review: Review) -> list[str]:
    """Why a part of the change was not reviewed, each reason once; none when everything was."""
    failed = (unit.reason for unit in review.coverage.units_failed)
    gaps = (f"{skip.file}: {skip.in_words()}" for skip in review.coverage.skipped if skip.is_gap)
    claims = (f"{claim.file or '?'}: {claim_in_words(claim)}" for claim in review.unsettled)
    found = list(dict.fromkeys((*failed, *gaps, *claims)))
    return found or ([] if review.complete else ["not everything was reviewed"])


_FROM_WORST = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NEEDS_WORK, Verdict.PASS)


def worst_verdict(reviews: Sequence[Review], *, ended: bool) -> Verdict:
    """The worst verdict of some reviews; at best INCOMPLETE unless all of them ended."""
    verdicts = {review.verdict for review in reviews} | ({Verdict.PASS} if ended else {Verdict.INCOMPLETE})
    return next(verdict for verdict in _FROM_WORST if verdict in verdicts)


def joined(reasons: Sequence[str]) -> str:
    """The first few reasons in one line, and how many more there are."""
    more = len(reasons) - _NAMED_REASONS
    return "; ".join(reasons[:_NAMED_REASONS]) + (f"; and {more} more" if more > 0 else "")


def issue_of(finding: Finding) -> ReviewIssue:
    """A finding as an issue with a priority."""
    priority = finding.severity.priority
    return ReviewIssue(
        file=finding.file,
        line_start=finding.line_start,
        line_end=finding.line_end,
        priority=priority,
        title=f"[P{priority}] {_plain_title(finding)}",
        body=_body(finding),
        reviewer=finding.reviewer,
    )


def workdir_issue_of(finding: Finding) -> WorkdirIssue:
    """A finding as an issue with one of three severities."""
    title, body = _plain_title(finding), _body(finding)
    return WorkdirIssue(
        file=finding.file,
        line=finding.line_start,
        severity=_word(finding.severity),
        message=f"{title}: {body}" if body and body != title else title,
        suggestion=finding.suggestion,
    )


def counting(review: Review) -> Iterator[Finding]:
    """The findings that are open, those in a known place first."""
    still_open = [finding for finding in review.findings if finding.is_open]
    yield from (finding for finding in still_open if finding.anchored)
    yield from (finding for finding in still_open if not finding.anchored)


def _word(severity: Severity) -> Literal["error", "warning", "suggestion"]:
    if severity.at_least(Severity.HIGH):
        return "error"
    return "warning" if severity is Severity.MEDIUM else "suggestion"


def _plain_title(finding: Finding) -> str:
    """The title without a priority of the reviewer's own, which need not be the one that counts."""
    stated = _PRIORITY.match(finding.title)
    return finding.title[stated.end() :] if stated else finding.title


def _body(finding: Finding) -> str:
    return finding.body if finding.anchored else f"{finding.body}\n\n{_UNPLACED}".strip()
