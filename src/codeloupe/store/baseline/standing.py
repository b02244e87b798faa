"""How each entry of a baseline stands: by its date, and by what a review told of it. Pure."""

from __future__ import annotations

from datetime import date

from codeloupe.model.baseline import Baseline, BaselineEntry, EntryStanding, EntryState, told_unused
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.suppression import SuppressionKind
from codeloupe.store.baseline.reviewed import ReviewedFindings

_GOES = (EntryState.EXPIRED, EntryState.UNUSED)
_COUNTING = (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED)


def standings(baseline: Baseline, reviewed: ReviewedFindings | None, *, today: date) -> tuple[EntryStanding, ...]:
    """Each entry in the order of the file. Without a review, only what has expired is known.

    Which entries are unused the review itself must have told: it alone knew which files it looked at.
    """
    used = frozenset[str]()
    unused: tuple[str, ...] = ()
    if reviewed is not None:
        useful = [finding for finding in reviewed.findings if _has_use_for_an_entry(finding)]
        used = frozenset(finding.fingerprint for finding in useful).union(
            finding.suppression.entry for finding in useful if finding.suppression
        )
        unused = tuple(told_unused(reviewed.errors))

    def state(entry: BaselineEntry) -> EntryState:
        if entry.is_expired(today):
            return EntryState.EXPIRED
        if entry.fingerprint in used:
            return EntryState.USED
        return EntryState.UNUSED if entry.fingerprint.startswith(unused) else EntryState.UNSEEN

    return tuple(EntryStanding(entry, state(entry)) for entry in baseline.entries)


def _has_use_for_an_entry(finding: Finding) -> bool:
    """Whether an entry set it aside, or would: one that was added after the review is used by the next."""
    if finding.suppression is not None:
        return finding.suppression.kind is SuppressionKind.BASELINE
    return finding.status in _COUNTING


def to_prune(standing: tuple[EntryStanding, ...]) -> tuple[EntryStanding, ...]:
    """The entries that have no use any more."""
    return tuple(each for each in standing if each.state in _GOES)
