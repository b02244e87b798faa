"""What a review could not look at, as a list that every format can show."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from codeloupe.model.review import Review, ReviewError, claim_in_words


class GapKind(StrEnum):
    """What is missing: the place of a grave claim, a piece of work, a file, or something that nobody named."""

    CLAIM = "unplaced-claim"
    UNIT = "unit-failed"
    FILE = "file-not-reviewed"
    UNKNOWN = "incomplete"


class Gap(Struct, frozen=True):
    """One thing that should have been reviewed and was not; `files` are those it concerns, as far as is known."""

    kind: GapKind
    name: str
    reason: str
    files: tuple[str, ...] = ()

    def in_words(self) -> str:
        """`name: reason`; only one of them where they are the same or one is missing."""
        return ": ".join(dict.fromkeys(part for part in (self.name, self.reason) if part)) or "not reviewed"


_UNNAMED = Gap(GapKind.UNKNOWN, "the review", "not everything could be reviewed")


def gaps_of(review: Review) -> tuple[Gap, ...]:
    """Everything that makes the review incomplete, claims for a person first; an incomplete one has at least one."""
    coverage = review.coverage
    claims = [
        Gap(GapKind.CLAIM, claim.file or "?", claim_in_words(claim), (claim.file,) if claim.file else ())
        for claim in review.unsettled
    ]
    units = [Gap(GapKind.UNIT, failed.unit, failed.reason, failed.files) for failed in coverage.units_failed]
    files = [Gap(GapKind.FILE, skip.file, skip.in_words(), (skip.file,)) for skip in coverage.skipped if skip.is_gap]
    known = (*claims, *units, *files)
    return known if known or review.complete else (_UNNAMED,)


def errors_beside_gaps(review: Review) -> tuple[ReviewError, ...]:
    """What else went wrong: errors that no gap tells already. One that does ends with the gap's reason."""
    told = tuple({reason for gap in gaps_of(review) for reason in (gap.reason, gap.in_words()) if reason})
    return tuple(error for error in review.errors if not error.message.endswith(told))
