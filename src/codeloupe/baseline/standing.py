"""How each entry of a baseline stands: by its date, and by what a review told of it. Pure."""

from __future__ import annotations

from datetime import date

from codeloupe.baseline.reviewed import ReviewedFindings
from codeloupe.model.baseline import Baseline, BaselineEntry, EntryStanding, EntryState, told_unused
from codeloupe.model.suppression import SuppressionKind

_GOES = (EntryState.EXPIRED, EntryState.UNUSED)


def standings(baseline: Baseline, reviewed: ReviewedFindings | None, *, today: date) -> tuple[EntryStanding, ...]:
    """Each entry in the order of the file. Without a review, only what has expired is known.

    Which entries are unused the review itself must have told: it alone knew which files it looked at.
    """
    used = frozenset[str]()
    unused: tuple[str, ...] = ()
    if reviewed is not None:
        used = frozenset(
            finding.fingerprint
            for finding in reviewed.findings
            if finding.suppression is not None and finding.suppression.kind is SuppressionKind.BASELINE
        )
        unused = tuple(told_unused(reviewed.errors))

    def state(entry: BaselineEntry) -> EntryState:
        if entry.is_expired(today):
            return EntryState.EXPIRED
        if entry.fingerprint in used:
            return EntryState.USED
        return EntryState.UNUSED if entry.fingerprint.startswith(unused) else EntryState.UNSEEN

    return tuple(EntryStanding(entry, state(entry)) for entry in baseline.entries)


def to_prune(standing: tuple[EntryStanding, ...]) -> tuple[EntryStanding, ...]:
    """The entries that have no use any more."""
    return tuple(each for each in standing if each.state in _GOES)
