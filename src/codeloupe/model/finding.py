"""Claims and findings: what reporters say about places in the code, and the defects that these claims add up to."""

from __future__ import annotations

import re
from datetime import date
from enum import Enum, StrEnum

from msgspec import Struct

SuppressionKind = StrEnum("SuppressionKind", "BASELINE INLINE DISMISSAL")


class Suppression(Struct, frozen=True, kw_only=True):
    """One reason why a finding does not count; `entry` is the fingerprint of the baseline's entry.

    `severity` is the highest severity that the finding claimed when it was suppressed.
    """

    kind: SuppressionKind
    reason: str
    owner: str = ""
    expires: date | None = None
    entry: str = ""
    severity: Severity | None = None


class Severity(Enum):
    """How bad a finding is; the value is the priority, so P0 is the worst."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The word used in reports and JSON."""
        return self.name.lower()

    @property
    def priority(self) -> int:
        """The number in P0 to P3."""
        return self.value

    def at_least(self, threshold: Severity) -> bool:
        """Tell whether this is as bad as the threshold, or worse."""
        return self.value <= threshold.value

    def is_worse_than(self, other: Severity) -> bool:
        """Tell whether this is worse than the other severity."""
        return self.value < other.value

    @classmethod
    def parse(cls, text: object) -> Severity:
        """Read any accepted spelling: P0-P3, 0-3, [P1], critical/high/medium/low, error/warning/suggestion/info.

        Raise ValueError for anything else.
        """
        if isinstance(text, Severity):
            return text
        is_word = isinstance(text, (int, str)) and not isinstance(text, bool)
        word = str(text).strip().strip("[]").strip().lower() if is_word else ""
        numbered = re.fullmatch(r"p?\s*([0-3])", word)
        if numbered:
            return cls(int(numbered[1]))
        name = {"error": "high", "warning": "medium", "suggestion": "low", "info": "low"}.get(word, word)
        if name in ("critical", "high", "medium", "low"):
            return cls[name.upper()]
        raise ValueError(f"not a severity: {text!r} (use critical, high, medium, low or P0 to P3)")


# The kind of reporter that makes a claim.
Source = StrEnum("Source", "ANALYSER AGENT EXTERNAL")
# The result of a verification, which tries to refute a claim.
Proof = StrEnum("Proof", "CONFIRMED UNPROVEN REFUTED")
# How a claim ended without being refuted.
ClaimEnd = StrEnum("ClaimEnd", "FIXED SILENCED GONE")
# The state of a finding across reviews. Only the first three are open.
FindingStatus = StrEnum("FindingStatus", "NEW OPEN REGRESSED FIXED SILENCED GONE REFUTED UNPROVEN DISMISSED")
OPEN_STATUSES = frozenset((FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED))


class CodeState(Struct, frozen=True, kw_only=True):
    """Digests of the code that a claim was last reported or verified on; each is empty if it is not known.

    `statements` are the statements that the claim quotes. `names` are those, and each together with the names of the
    definitions around it. `before` and `after` are their neighbours, `function` is the innermost definition around
    them, `file` the whole file, and `change` the whole change under review. `in_change` says whether the change has the
    file.
    """

    statements: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    function: str = ""
    file: str = ""
    change: str = ""
    in_change: bool = False


class Claim(Struct, frozen=True, kw_only=True):
    """The statement of one reporter about one place: severity, words, quoted evidence, proof.

    Lines are those of the new file and start at 1; `evidence` is a verbatim quote of them. A claim that is not
    `anchored` could not be placed in the code: its `evidence` is what the reporter claims to have seen, and it has no
    lines. A claim is `deleted` if its evidence has lines that the change deletes. `seen_by` names each independent look
    that reported it (reviewer, expert, pass). `other_words` are those of reports in the last round that repeat it.
    `replacement` is new code for exactly the quoted lines; `suggestion` is advice. `reason` explains the proof, or why
    there is none. `silenced_by` is the comment that hides an analyser's claim. `names_finding` is the id of an earlier
    finding that the reporter says this is. `rule_title` is the analyser's title of the rule, if the `title` of the
    claim is another for each place.
    """

    reporter: str
    source: Source
    severity: Severity
    title: str
    file: str
    body: str = ""
    category: str = "general"
    line_start: int | None = None
    line_end: int | None = None
    evidence: str = ""
    anchored: bool = True
    deleted: bool = False
    outside_change: bool = False
    rule: str | None = None
    rule_title: str = ""
    expert: str | None = None
    suggestion: str | None = None
    replacement: str | None = None
    seen_by: tuple[str, ...] = ()
    other_words: tuple[str, ...] = ()
    proof: Proof | None = None
    reason: str = ""
    end: ClaimEnd | None = None
    silenced_by: str = ""
    names_finding: str = ""
    commit_sha: str | None = None
    code: CodeState = CodeState()

    @property
    def first_line(self) -> int:
        """The first line, or 0 if it is not known."""
        return self.line_start or 0

    @property
    def last_line(self) -> int:
        """The last line, or 0 if it is not known."""
        return self.line_end or self.first_line

    @property
    def statements(self) -> tuple[str, ...]:
        """The names of its statements, by which a suppression knows them."""
        return self.code.names

    @property
    def is_active(self) -> bool:
        """Tell whether it is not refuted and has not ended."""
        return self.end is None and self.proof is not Proof.REFUTED

    @property
    def verification(self) -> str:
        """The proof and its reason in words; empty if no verification was tried."""
        if self.proof is not None:
            return f"{self.proof.value}: {self.reason}".rstrip(": ")
        return f"could not verify: {self.reason}" if self.reason else ""


class Finding(Struct, frozen=True, kw_only=True):
    """One defect: its claims, the most important first, and what follows from them.

    `severity`, `status`, `counts` and `is_pending` are computed by `findings.claims.settled`. A finding `counts` if it
    takes part in the verdict. `is_pending` says that a claim without proof is more severe than the finding without it.
    `comment` is the suppression by a comment in the code as it was first seen; it may not apply any more.
    """

    claims: tuple[Claim, ...]
    severity: Severity
    status: FindingStatus = FindingStatus.NEW
    counts: bool = True
    is_pending: bool = False
    fingerprint: str = ""
    suppression: Suppression | None = None
    comment: Suppression | None = None
    commit_sha: str | None = None

    @property
    def main_claim(self) -> Claim:
        """The claim that gives the finding its place and words."""
        return self.claims[0]

    @property
    def file(self) -> str:
        """The path of the file it is in."""
        return self.main_claim.file

    @property
    def line_start(self) -> int | None:
        """The first line, or None if the claim could not be placed."""
        return self.main_claim.line_start

    @property
    def line_end(self) -> int | None:
        """The last line, or None if the claim could not be placed."""
        return self.main_claim.line_end

    @property
    def first_line(self) -> int:
        """The first line, or 0 if it is not known: for order, never to be shown."""
        return self.main_claim.first_line

    @property
    def last_line(self) -> int:
        """The last line, or 0 if it is not known."""
        return self.main_claim.last_line

    @property
    def evidence(self) -> str:
        """The quoted code."""
        return self.main_claim.evidence

    @property
    def anchored(self) -> bool:
        """Tell whether the quote was found in the code."""
        return self.main_claim.anchored

    @property
    def outside_change(self) -> bool:
        """Tell whether the place is not shown by the diff."""
        return self.main_claim.outside_change

    @property
    def title(self) -> str:
        """The defect in a few words."""
        return self.main_claim.title

    @property
    def body(self) -> str:
        """The explanation."""
        return self.main_claim.body

    @property
    def category(self) -> str:
        """The kind of defect, in the reporter's words."""
        return self.main_claim.category

    @property
    def reviewer(self) -> str:
        """The reporter of the main claim."""
        return self.main_claim.reporter

    @property
    def source(self) -> Source:
        """The kind of that reporter."""
        return self.main_claim.source

    @property
    def expert(self) -> str | None:
        """The checklist that found it."""
        return self.main_claim.expert

    @property
    def rule(self) -> str | None:
        """The analyser's rule, if an analyser reported it."""
        return next((claim.rule for claim in self.claims if claim.rule), None)

    @property
    def suggestion(self) -> str | None:
        """Advice how to fix it."""
        return next((claim.suggestion for claim in self.claims if claim.suggestion), None)

    @property
    def replacement(self) -> str | None:
        """New code for exactly the quoted lines."""
        place = (self.line_start, self.evidence)
        for claim in self.claims:
            if claim.replacement is not None and (claim.line_start, claim.evidence) == place:
                return claim.replacement
        return None

    @property
    def verification(self) -> str:
        """The proofs of its claims in words."""
        return "\n".join(dict.fromkeys(claim.verification for claim in self.claims if claim.verification))

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The names of all looks that reported it."""
        names = (name for claim in self.claims for name in (claim.seen_by or (claim.reporter,)))
        return tuple(sorted(set(names)))

    @property
    def agreement(self) -> int:
        """The number of independent looks that reported it."""
        return len(self.seen_by)

    @property
    def priority(self) -> int:
        """The severity as a number: 0 for critical to 3 for low."""
        return self.severity.priority

    @property
    def is_open(self) -> bool:
        """Tell whether a claim of it counts or is pending, and nothing suppresses it."""
        return self.suppression is None and self.status in OPEN_STATUSES

    @property
    def can_block(self) -> bool:
        """Tell whether it takes part in the verdict."""
        return self.is_open and self.counts

    @property
    def is_confirmed(self) -> bool:
        """Tell whether a verification confirmed one of its claims."""
        return any(claim.proof is Proof.CONFIRMED for claim in self.claims)

    @property
    def claimed_severity(self) -> Severity:
        """The highest severity that any of its claims has, whatever counts."""
        return min((claim.severity for claim in self.claims), key=lambda severity: severity.priority)
