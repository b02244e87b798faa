"""What became of the findings from one saved review to another."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from codeloupe.engine import lifecycle
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import Comparison, ReviewRecord

# As in `lookup`.
if TYPE_CHECKING:
    from codeloupe.store.interface import History


def compare(history: History, earlier: ReviewRecord, later: ReviewRecord) -> Comparison:
    """New, still open, fixed, back, set aside, or not known. What was hidden counts too, where it was kept.

    A finding is back when it is open now, was not open in the earlier review, and was seen open before that one, or
    was told as fixed in it.
    """
    before = [finding for finding in earlier.findings if finding.is_open or finding.status is FindingStatus.FIXED]
    now = [finding for finding in later.findings if finding.status is not FindingStatus.FIXED]
    # The trees of saved reviews are gone: what is not seen again is judged below, by what the later one looked at.
    rounds = lifecycle.compare(before, now, lifecycle.Ground(still_there=lambda _: False, is_fixed=lambda _: True))
    was_open = {finding.fingerprint for finding in before if finding.is_open}
    back = _seen_open_before(history, earlier, rounds.having(FindingStatus.NEW))
    groups: defaultdict[str, list[Finding]] = defaultdict(list)
    for told, finding in zip(now, rounds.seen, strict=True):
        if not finding.is_open:
            # One that was never open and is set aside at once is no news.
            groups["set_aside" if finding.fingerprint in was_open else ""].append(finding)
        elif finding.status is FindingStatus.NEW:
            is_back = finding.fingerprint in back or told.status is FindingStatus.REGRESSED
            groups["regressed" if is_back else "new"].append(finding)
        else:
            groups["regressed" if finding.status is FindingStatus.REGRESSED else "still_open"].append(finding)
    surely_fixed = {finding.fingerprint for finding in later.findings if finding.status is FindingStatus.FIXED}
    unseen_files = _not_reviewed(later) if _is_same_change(earlier, later) else None
    for finding in rounds.unseen:
        if finding.fingerprint in was_open:
            looked = unseen_files is not None and finding.file not in unseen_files
            groups["fixed" if looked or finding.fingerprint in surely_fixed else "unknown"].append(finding)
    groups.pop("", None)
    return Comparison(**{name: tuple(findings) for name, findings in groups.items()})


def _seen_open_before(history: History, earlier: ReviewRecord, findings: tuple[Finding, ...]) -> frozenset[str]:
    fingerprints = [finding.fingerprint for finding in findings]
    return frozenset(
        sighting.fingerprint
        for sighting in history.findings_of(fingerprints, repositories=(earlier.repository,))
        if sighting.is_open and sighting.turn < earlier.turn
    )


def _is_same_change(earlier: ReviewRecord, later: ReviewRecord) -> bool:
    """Whether the later review looked at what the earlier did: else what is not seen again may still be there.

    A branch or a pull request stays the same change when it grows or is rebased; anything else must begin where the
    other began.
    """
    before, now = earlier.review.scope, later.review.scope
    if before.kind is not now.kind:
        return False
    grows = now.kind in (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
    return earlier.branch == later.branch if grows else before.base == now.base


def _not_reviewed(record: ReviewRecord) -> frozenset[str]:
    coverage = record.review.coverage
    skipped = {skip.file for skip in coverage.skipped}
    return frozenset(skipped.union(*(failed.files for failed in coverage.units_failed)))
