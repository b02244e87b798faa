"""What a reviewing agent answered, before its claims are checked against the code."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.severity import Severity

_PRIORITIES = re.compile(r"(?:\s{0,8}(?:\[\s{0,8}P[0-3]\s{0,8}\]|\(P[0-3]\)|P[0-3]:)){1,4}\s{0,8}(?=\S)", re.IGNORECASE)


class ClaimedFinding(Struct, frozen=True, kw_only=True):
    """A defect as a model or an external program claims it: nothing in it is believed yet.

    `replacement` is offered as the new code of the quoted lines.
    """

    severity: Severity
    title: str
    body: str = ""
    file: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    category: str = ""
    evidence: str = ""
    suggestion: str | None = None
    replacement: str | None = None
    confidence: float | None = None
    reviewer: str | None = None
    rule: str | None = None

    @property
    def plain_title(self) -> str:
        """The title without a priority before it, such as `[P2]`: reports tell the one that counts themselves."""
        stated = _PRIORITIES.match(self.title)
        return self.title[stated.end() :] if stated else self.title


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    """The findings that could be read for certain.

    `problem` is None when the whole answer was understood; otherwise a named reason (`missing field: X`,
    `invalid verdict: X`, `invalid json: …`, `empty output`), and the answer must not count as a whole review.
    `dropped` tells of single items that could not be read; `repaired` that broken JSON was mended.
    """

    findings: tuple[ClaimedFinding, ...] = ()
    verdict: str | None = None
    summary: str = ""
    problem: str | None = None
    dropped: tuple[str, ...] = ()
    repaired: bool = False

    @property
    def lost(self) -> str | None:
        """Why the findings do not tell how bad it is, or None.

        One that could not be read may be the gravest, and those that could be may yet be refuted or suppressed.
        """
        return self.dropped[0] if self.dropped else None


class Proof(StrEnum):
    """What an attempt to refute a finding showed."""

    CONFIRMED = "confirmed"
    UNPROVEN = "unproven"
    REFUTED = "refuted"


class Verification(Struct, frozen=True, kw_only=True):
    """The answer to a verification: `problem` as in ReviewAnswer; then `proof` is UNPROVEN and says nothing."""

    proof: Proof
    reason: str = ""
    problem: str | None = None
