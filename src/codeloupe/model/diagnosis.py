"""What `doctor` found."""

from __future__ import annotations

from msgspec import Struct

from codeloupe.model.review import ReviewerInfo


class Check(Struct, frozen=True):
    """One thing that was looked at. `needed` tells whether a review fails without it."""

    group: str
    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True


class Diagnosis(Struct, frozen=True):
    """All checks, and the reviewer that would be chosen."""

    checks: tuple[Check, ...]
    reviewer: ReviewerInfo

    @property
    def healthy(self) -> bool:
        """Whether everything that a review needs is there."""
        return all(check.ok for check in self.checks if check.needed)
