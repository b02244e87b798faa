from __future__ import annotations

from datetime import date

from msgspec.structs import replace

from codeloupe.model.baseline import Baseline, BaselineEntry, EntryState, Suppression, SuppressionKind
from codeloupe.model.finding import FindingStatus
from codeloupe.model.review import ReviewError
from codeloupe.store.baseline_findings import ReviewedFindings, standings, to_prune
from tests.rows import rows
from tests.unit.store.baseline.baseline_samples import ONE, TODAY, TWO, entry, finding

THREE = "33333333cccc22223333444455556666"
USED = Suppression(kind=SuppressionKind.BASELINE, reason="x")
INLINE = Suppression(kind=SuppressionKind.INLINE, reason="x")


def states(*entries: BaselineEntry, reviewed: ReviewedFindings | None = None) -> list[EntryState]:
    return [each.state for each in standings(Baseline(entries), reviewed, today=TODAY)]


def test_without_a_review_only_what_has_expired_is_known() -> None:
    entries = entry(expires=date(2030, 6, 14)), entry(TWO, expires=TODAY), entry(THREE)
    assert states(*entries) == [EntryState.EXPIRED, EntryState.UNSEEN, EntryState.UNSEEN]


def test_a_review_tells_what_is_used_and_what_is_not() -> None:
    unused = ReviewError(
        "baseline_unused", f"x: 1 entry fits nothing in a.py any more: {entry(TWO, line=7).in_short()}; y"
    )
    reviewed = ReviewedFindings("it", (finding(ONE, suppression=USED), finding(THREE, suppression=INLINE)), (unused,))
    found = states(entry(ONE), entry(TWO), entry(THREE), reviewed=reviewed)
    assert found == [EntryState.USED, EntryState.UNUSED, EntryState.UNSEEN]


def test_an_entry_that_was_added_after_the_review_is_used_if_its_finding_is_still_there() -> None:
    reviewed = ReviewedFindings("it", (finding(ONE), replace(finding(TWO), status=FindingStatus.FIXED)))
    assert states(entry(ONE), entry(TWO), reviewed=reviewed) == [EntryState.USED, EntryState.UNSEEN]


@rows("kind", ["baseline_expired", "not_reviewed"])
def test_other_words_of_a_review_make_nothing_unused(kind: str) -> None:
    told = ReviewError(kind, f"x: {entry(TWO, line=7).in_short()}")
    assert states(entry(TWO), reviewed=ReviewedFindings("it", (), (told,))) == [EntryState.UNSEEN]


def test_what_has_expired_or_is_unused_is_pruned() -> None:
    told = ReviewError("baseline_unused", entry(TWO, line=7).in_short())
    baseline = Baseline((entry(ONE), entry(TWO), entry(THREE, expires=date(2000, 1, 1))))
    gone = to_prune(standings(baseline, ReviewedFindings("it", (), (told,)), today=TODAY))
    assert [each.entry.fingerprint for each in gone] == [TWO, THREE]
