"""What became of findings from one saved review to another."""

import tempfile
from pathlib import Path
from typing import Any

from codeloupe.engine.lifecycle import compare_reviews
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.model.review import Coverage, FailedUnit, SkippedFile, SkipReason
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from tests.rows import each
from tests.unit.store.history_samples import named, record


def defect(name: str, **changes: Any) -> Finding:
    """A finding that is like no other."""
    words = {"a": "apple tree", "b": "broken bridge", "c": "cold coffee", "d": "dull knife"}[name]
    quote = f"{words.replace(' ', '_')}({name!r})"
    return named(
        name,
        **{"file": f"{name}.py", "title": words, "body": f"the {words}", "evidence": quote, "rule": None, **changes},
    )


def compared(earlier: ReviewRecord, later: ReviewRecord, *before: ReviewRecord) -> Comparison:
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder, "history")) as database:
        history = SqliteHistory(database)
        for saved in (*before, earlier, later):
            history.save(saved)
        first, second = (history.get(one.review.review_id) for one in (earlier, later))
        assert first is not None
        assert second is not None
        return compare_reviews(history, first, second)


def names(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.fingerprint for finding in findings]


def test_new_still_open_and_fixed() -> None:
    before = defect("b", title="Division by zero for an empty list")
    moved = defect("b", line_start=99, line_end=99, title="ZeroDivisionError when there are none", body="other words")
    found = compared(record(1, defect("a"), before), record(2, moved, defect("c")))
    assert (names(found.new), names(found.fixed)) == (["c"], ["a"])
    assert [(finding.line_start, finding.title) for finding in found.still_open] == [(99, moved.title)]
    assert found.regressed == found.unknown == found.set_aside == ()


def test_what_is_back() -> None:
    # What was seen before the earlier one, but not in another repository.
    found = compared(record(2), record(3, defect("a"), defect("b")), record(1, defect("a")))
    assert (names(found.regressed), names(found.new)) == (["a"], ["b"])
    elsewhere = record(1, defect("a"), repository="root:other")
    assert names(compared(record(2), record(3, defect("a")), elsewhere).new) == ["a"]
    # What the earlier one told as fixed, and what the later one knows to be back.
    found = compared(record(1, defect("a", status=FindingStatus.FIXED)), record(2, defect("a")))
    assert [(one.fingerprint, one.status) for one in found.regressed] == [("a", FindingStatus.REGRESSED)]
    found = compared(record(1), record(2, defect("a", status=FindingStatus.REGRESSED)))
    assert names(found.regressed) == ["a"]


def test_what_the_later_one_did_not_look_at_is_not_known() -> None:
    failed = Coverage(units_failed=(FailedUnit("a.py (security)", ("x.py", "a.py"), "timeout"),))
    for coverage in (failed, Coverage(skipped=(SkippedFile("a.py", SkipReason.EXCLUDED),))):
        found = compared(record(1, defect("a"), defect("b")), record(2, coverage=coverage))
        assert (names(found.unknown), names(found.fixed)) == (["a"], ["b"])


BASE, OTHER = "a" * 40, "c" * 40


@each(
    ("earlier", "later", "comparable"),
    [
        (("branch", BASE, "topic"), ("branch", OTHER, "topic"), True),
        (("branch", BASE, "topic"), ("branch", BASE, "other"), False),
        (("branch", BASE, "topic"), ("staged", BASE, "topic"), False),
        (("uncommitted", BASE, "topic"), ("uncommitted", BASE, "topic"), True),
        (("uncommitted", BASE, "topic"), ("uncommitted", OTHER, "topic"), False),
        (("commit", BASE, None), ("commit", OTHER, None), False),
        (("range", BASE, None), ("range", BASE, None), True),
    ],
)
def test_a_review_of_another_change_fixes_nothing(
    earlier: tuple[str, str, str], later: tuple[str, str, str], comparable: bool
) -> None:
    one, other = (
        record(number, *found, scope=Scope(ScopeKind(kind), base, None, ""), branch=branch)
        for number, found, (kind, base, branch) in ((1, [defect("a")], earlier), (2, [], later))
    )
    found = compared(one, other)
    assert names(found.fixed if comparable else found.unknown) == ["a"]
    assert names(found.unknown if comparable else found.fixed) == []


def test_what_the_later_one_tells_as_fixed_is_fixed_wherever_it_looked() -> None:
    scope = Scope(ScopeKind.STAGED, None, None, "")
    later = record(2, defect("a", status=FindingStatus.FIXED), scope=scope)
    found = compared(record(1, defect("a"), defect("b")), later)
    assert (names(found.fixed), names(found.unknown)) == (["a"], ["b"])


def test_what_is_set_aside_now_is_not_fixed() -> None:
    suppressed = {"suppression": Suppression(kind=SuppressionKind.INLINE, reason="on purpose")}
    for change in ({"status": FindingStatus.REFUTED}, {"status": FindingStatus.DISMISSED}, suppressed):
        found = compared(record(1, defect("a")), record(2, defect("a", **change), defect("b", **change)))
        assert found == Comparison(set_aside=found.set_aside)
        assert names(found.set_aside) == ["a"]


def test_what_was_hidden_and_kept_counts_and_a_review_compared_with_itself_has_nothing_new() -> None:
    earlier = record(1, hidden=(defect("a", severity=Severity.LOW),))
    assert names(compared(earlier, record(2, defect("a", severity=Severity.HIGH))).still_open) == ["a"]
    one = record(1, defect("a"), defect("b"))
    found = compared(one, one)
    assert names(found.still_open) == ["a", "b"]
    assert found == Comparison(still_open=found.still_open)
