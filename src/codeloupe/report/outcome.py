"""What a review comes to, in one word and one sentence: the same in every format."""

from __future__ import annotations

from enum import StrEnum

from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass
from codeloupe.model.review import Review, SkipReason, Verdict
from codeloupe.report.wording import counted


class Tone(StrEnum):
    """How a verdict is to be felt: green, yellow or red."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The word a person remembers, its tone, and the sentence behind it."""

    word: str
    tone: Tone
    why: str


def outcome_of(review: Review) -> Outcome:
    """What to tell: a review with gaps is never a pass, and what does not block is not told as blocking."""
    blocking = sum(blocks(review, finding) for finding in review.findings)
    threshold = f"at or above fail_on={review.policy.fail_on.label}"
    if blocking:
        why = f"{counted(blocking, 'finding', 'findings')} {threshold}"
        return Outcome(
            _word(review), Tone.BAD, why if review.complete else f"{why}; and not everything could be reviewed"
        )
    if review.exit_code == 1:
        hidden = f"findings {threshold} are hidden by min_severity={review.policy.min_severity.label}"
        return Outcome(_word(review), Tone.BAD, hidden)
    if not review.complete:
        accepted = "; accepted, since on_incomplete is pass" if review.policy.pass_when_incomplete else ""
        return Outcome("INCOMPLETE", Tone.CAUTION, f"could not review everything; nothing blocking found{accepted}")
    if review.verdict is not Verdict.PASS:
        why = f"findings to look at, none {threshold}, so nothing is blocked"
        return Outcome(_word(review), Tone.CAUTION, why)
    return Outcome("PASS", Tone.GOOD, _why_passed(review))


def blocks(review: Review, finding: Finding) -> bool:
    """Whether this finding is one that makes the review fail."""
    return finding.can_block and finding.severity.at_least(review.policy.fail_on)


def nothing_to_review(review: Review) -> bool:
    """Whether the change was empty, and nothing went wrong in seeing that."""
    return review.complete and not review.findings and not review.coverage.files_total and not review.errors


def _word(review: Review) -> str:
    return "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"


def _why_passed(review: Review) -> str:
    if nothing_to_review(review):
        return "no changes to review"
    if not review.coverage.files_reviewed:
        reasons = {skip.reason for skip in review.coverage.skipped}
        if reasons == {SkipReason.NOTHING_TO_READ}:
            return "no line of any file was changed, so there was nothing to read"
        return "no file of this change was reviewed"
    if review.findings:
        return "nothing found that counts against the change"
    if review.hidden_findings:
        return f"nothing found at or above min_severity={review.policy.min_severity.label}"
    return "nothing found"
