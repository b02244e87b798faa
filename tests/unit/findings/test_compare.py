"""Two stored reviews compared."""

import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from codeloupe.findings.compare import compare_reviews
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity, Source, Suppression, SuppressionKind
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.model.review import Coverage, FailedUnit, SkippedFile, SkipReason
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.sqlite import SqliteDatabase
from tests.rows import each
from tests.unit.store.history_samples import named as saved_finding
from tests.unit.store.history_samples import record


def defect(name: str, **changes: Any) -> Finding:
    """A finding that is like no other."""
    words = {"a": "apple tree", "b": "broken bridge", "c": "cold coffee", "d": "dull knife"}[name]
    quote = f"{words.replace(' ', '_')}({name!r})"
    return saved_finding(
        name,
        **{
            "source": Source.AGENT,
            "file": f"{name}.py",
            "title": words,
            "body": f"the {words}",
            "evidence": quote,
            "rule": None,
            **changes,
        },
    )


def compared(earlier: ReviewRecord, later: ReviewRecord, *before: ReviewRecord) -> Comparison:
    with tempfile.TemporaryDirectory() as folder, SqliteDatabase(Path(folder, "history")) as database:
        history = DatabaseHistory(database)
        for saved in (*before, earlier, later):
            history.save(saved)
        first, second = (history.get(one.review.review_id) for one in (earlier, later))
        assert first is not None
        assert second is not None
        return compare_reviews(history, first, second)


def groups(earlier: ReviewRecord, later: ReviewRecord, *before: ReviewRecord) -> dict[str, list[str]]:
    """The fingerprints in each group of a comparison that has some."""
    found = asdict(compared(earlier, later, *before))
    return {name: [finding.fingerprint for finding in group] for name, group in found.items() if group}


def test_new_still_open_and_fixed() -> None:
    before = defect("b", title="Division by zero for an empty list")
    moved = defect("b", line_start=99, line_end=99, title="ZeroDivisionError when there are none", body="other words")
    records = record(1, defect("a"), before), record(2, moved, defect("c"))
    assert groups(*records) == {"new": ["c"], "still_open": ["b"], "fixed": ["a"]}
    assert [(finding.line_start, finding.title) for finding in compared(*records).still_open] == [(99, moved.title)]


def test_what_is_back() -> None:
    # What was seen before the earlier one, but not in another repository.
    found = groups(record(2), record(3, defect("a"), defect("b")), record(1, defect("a")))
    assert found == {"regressed": ["a"], "new": ["b"]}
    elsewhere = record(1, defect("a"), repository="root:other")
    assert groups(record(2), record(3, defect("a")), elsewhere) == {"new": ["a"]}
    # What the earlier one told as fixed, and what the later one knows to be back.
    back = compared(record(1, defect("a", status=FindingStatus.FIXED)), record(2, defect("a"))).regressed
    assert [(one.fingerprint, one.status) for one in back] == [("a", FindingStatus.NEW)]
    assert groups(record(1), record(2, defect("a", status=FindingStatus.REGRESSED))) == {"regressed": ["a"]}


def test_what_the_later_one_did_not_look_at_is_not_known() -> None:
    failed = Coverage(units_failed=(FailedUnit("a.py (security)", ("x.py", "a.py"), "timeout"),))
    for coverage in (failed, Coverage(skipped=(SkippedFile("a.py", SkipReason.EXCLUDED),))):
        found = groups(record(1, defect("a"), defect("b")), record(2, coverage=coverage))
        assert found == {"unknown": ["a"], "fixed": ["b"]}


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
    assert groups(one, other) == {"fixed" if comparable else "unknown": ["a"]}


def test_what_the_later_one_tells_as_fixed_is_fixed_wherever_it_looked() -> None:
    later = record(2, defect("a", status=FindingStatus.FIXED), scope=Scope(ScopeKind.STAGED, None, None, ""))
    assert groups(record(1, defect("a"), defect("b")), later) == {"fixed": ["a"], "unknown": ["b"]}


def test_what_is_set_aside_now_is_not_fixed() -> None:
    suppressed = {"suppression": Suppression(kind=SuppressionKind.INLINE, reason="on purpose")}
    for change in ({"status": FindingStatus.REFUTED}, {"status": FindingStatus.DISMISSED}, suppressed):
        later = record(2, defect("a", **change), defect("b", **change))
        assert groups(record(1, defect("a")), later) == {"set_aside": ["a"]}


def test_what_was_hidden_and_kept_counts_and_a_review_compared_with_itself_has_nothing_new() -> None:
    earlier = record(1, hidden=(defect("a", severity=Severity.LOW),))
    assert groups(earlier, record(2, defect("a", severity=Severity.HIGH))) == {"still_open": ["a"]}
    one = record(1, defect("a"), defect("b"))
    assert groups(one, one) == {"still_open": ["a", "b"]}
