"""What a review comes to, in one word and one sentence: the same in every format."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Finding
from codeloupe.model.review import NOT_INCLUDED, Review, SkipReason, Verdict
from codeloupe.reports.wording import counted

NOTHING = "Nothing to review"
_PATTERNS_NAMED = 3


class Tone(StrEnum):
    """How a verdict is to be felt: green, yellow or red."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


class Outcome(Struct, frozen=True):
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
        return Outcome("INCOMPLETE", Tone.CAUTION, f"{_why_incomplete(review, threshold)}{accepted}")
    if review.verdict is not Verdict.PASS:
        why = f"findings to look at, none {threshold}, so nothing is blocked"
        return Outcome(_word(review), Tone.CAUTION, why)
    if review.nothing_to_review:
        return Outcome(NOTHING, Tone.GOOD if not review.coverage.files_total else Tone.CAUTION, _why_nothing(review))
    return Outcome("PASS", Tone.GOOD, _why_passed(review))


def _why_incomplete(review: Review, threshold: str) -> str:
    missing = "could not review everything; nothing blocking found"
    claims = len(review.unsettled)
    if not claims:
        return missing
    told = f"{counted(claims, 'claim', 'claims')} {threshold} could be neither placed in the code nor refuted"
    return told if review.coverage.complete else f"{told}; {missing}"


def blocks(review: Review, finding: Finding) -> bool:
    """Whether this finding is one that makes the review fail."""
    return finding.can_block and finding.severity.at_least(review.policy.fail_on)


def _word(review: Review) -> str:
    return "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"


def _why_nothing(review: Review) -> str:
    skipped = review.coverage.skipped
    if not skipped:
        return "no changes"
    files = counted(len(skipped), "file", "files")
    if all(skip.reason is SkipReason.EXCLUDED for skip in skipped):
        if all(skip.detail == NOT_INCLUDED for skip in skipped):
            return f"no include pattern or path matches a changed file ({files} changed)"
        patterns = sorted({skip.detail for skip in skipped} - {NOT_INCLUDED})
        return f"the exclude patterns leave out every changed file ({files}, {', '.join(patterns[:_PATTERNS_NAMED])})"
    counts = Counter(skip.reason.value for skip in skipped)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    return f"every changed file is left out ({kinds})"


def _why_passed(review: Review) -> str:
    if not review.coverage.files_reviewed:
        return "no line of any file was changed, so there was nothing to read"
    if review.findings:
        return "nothing found that counts against the change"
    if review.hidden_findings:
        return f"nothing found at or above min_severity={review.policy.min_severity.label}"
    return "nothing found"
