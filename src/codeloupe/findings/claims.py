"""Compute a finding from its claims: its severity, its status, and whether it counts.

| claim | counts |
|---|---|
| of an analyser or external reviewer | as made |
| of an agent, below the proof threshold | as made |
| confirmed | as made |
| unproven | at most one step below the proof threshold; not at all if that threshold is low |
| refuted, fixed, silenced or gone | not |
| pending: not verified yet, or confirmed but unanchored | not |
| without `verify` | as made |
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from codeloupe.model.finding import (
    OPEN_STATUSES,
    Claim,
    ClaimEnd,
    Finding,
    FindingStatus,
    Proof,
    Severity,
    Source,
    SuppressionKind,
)
from codeloupe.model.review import Policy

# The status of a finding without an open claim: the first of these that one of its claims has.
_STATUS_BY_END = {
    ClaimEnd.FIXED: FindingStatus.FIXED,
    ClaimEnd.SILENCED: FindingStatus.SILENCED,
    ClaimEnd.GONE: FindingStatus.GONE,
}


def needs_proof(claim: Claim, policy: Policy) -> bool:
    """Tell whether a claim counts only with proof: an agent's, at or above the proof threshold."""
    is_severe = claim.severity.at_least(policy.proof_threshold)
    return claim.source is Source.AGENT and is_severe and policy.verify


def is_pending(claim: Claim, policy: Policy) -> bool:
    """Tell whether a claim waits for a verification, or was confirmed without a place in the code."""
    if claim.end is not None or not needs_proof(claim, policy):
        return False
    if claim.proof is Proof.CONFIRMED:
        return not claim.anchored
    return claim.proof is None


def counted_severity(claim: Claim, policy: Policy) -> Severity | None:
    """Return the severity with which a claim counts, or None if it does not count."""
    if claim.end is not None or claim.proof is Proof.REFUTED or is_pending(claim, policy):
        return None
    if claim.proof is Proof.UNPROVEN and needs_proof(claim, policy):
        threshold = policy.proof_threshold
        if threshold is Severity.LOW:
            return None
        return Severity(threshold.value + 1)
    return claim.severity


def settled(finding: Finding, policy: Policy) -> Finding:
    """Return the finding with severity and status computed from its claims.

    The status of an open finding says where it comes from (new, open, regressed) and stays as it is. A closed finding
    is open again if one of its claims counts or is pending now, as under a policy with another threshold.
    """
    counted = [severity for claim in finding.claims if (severity := counted_severity(claim, policy)) is not None]
    pending = [claim.severity for claim in finding.claims if is_pending(claim, policy)]
    claimed = [claim.severity for claim in finding.claims]
    worst_counted = worst(counted)
    worst_pending = worst(pending)
    severity = worst_counted or worst_pending or worst(claimed) or Severity.LOW
    is_more_severe = worst_pending is not None and (worst_counted is None or worst_pending.is_worse_than(worst_counted))
    status = finding.status
    if finding.suppression is not None and finding.suppression.kind is SuppressionKind.DISMISSAL:
        status = FindingStatus.DISMISSED
    elif not counted and not pending:
        status = _closed_status(finding.claims)
    elif status not in OPEN_STATUSES:
        status = FindingStatus.OPEN
    return replace(finding, severity=severity, status=status, counts=bool(counted), is_pending=is_more_severe)


def worst(severities: Iterable[Severity]) -> Severity | None:
    """Return the worst severity, or None if there is none."""
    return min(severities, key=lambda severity: severity.value, default=None)


def _closed_status(claims: Iterable[Claim]) -> FindingStatus:
    ends = {claim.end for claim in claims}
    for end, status in _STATUS_BY_END.items():
        if end in ends:
            return status
    proofs = {claim.proof for claim in claims}
    return FindingStatus.UNPROVEN if Proof.UNPROVEN in proofs else FindingStatus.REFUTED


def with_main_claim_first(finding: Finding, policy: Policy) -> Finding:
    """Return the finding with the claim first that gives it its place and words.

    Claims that count come before pending ones and these before all others; then the worse, anchored ones, analysers.
    """

    def rank(claim: Claim) -> tuple[int, int, bool, bool, str, str]:
        severity = counted_severity(claim, policy)
        if severity is not None:
            group = 0
        elif is_pending(claim, policy):
            group = 1
        else:
            group = 2
        value = (severity or claim.severity).value
        return group, value, not claim.anchored, claim.source is not Source.ANALYSER, claim.reporter, claim.title

    return replace(finding, claims=tuple(sorted(finding.claims, key=rank)))
