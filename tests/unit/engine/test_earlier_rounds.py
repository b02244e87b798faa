from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.identity import with_fingerprints
from codeloupe.engine.lifecycle import Asked, EarlierRounds, who_saw
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.severity import Severity
from tests.review_factories import make_task, source
from tests.rows import each
from tests.unit.engine.samples import finding

LINE = "value_3 = compute('a.py', 3, 'some text to fill it')"
NOBODY: frozenset[str] = frozenset()


def known(**changes: Any) -> Finding:
    [named] = with_fingerprints([finding(Severity.CRITICAL, line=4, evidence=LINE)])
    return replace(named, reviewer="scripted", **changes)


def settled(
    earlier: EarlierRounds, tmp_path: Path, current: Sequence[Finding] = (), *, unreviewed: frozenset[str] = NOBODY
) -> list[FindingStatus]:
    task = make_task(tmp_path, {"a.py": source("a.py")})
    return [one.status for one in earlier.settle(current, task, unreviewed=unreviewed).findings]


def asked(tmp_path: Path, *reviewers: str, experts: frozenset[str] | None = None) -> tuple[Asked, ...]:
    files = make_task(tmp_path, {"a.py": source("a.py")}).files
    return (Asked(reviewers=frozenset(reviewers), files=files, experts=experts),)


def test_without_earlier_findings_all_are_new(tmp_path: Path) -> None:
    assert settled(EarlierRounds(), tmp_path, [known()]) == [FindingStatus.NEW]


def test_what_is_found_again_is_open_and_what_was_fixed_before_came_back(tmp_path: Path) -> None:
    assert settled(EarlierRounds(findings=(known(),)), tmp_path, [known()]) == [FindingStatus.OPEN]
    back = EarlierRounds(fixed_before=frozenset)
    assert settled(back, tmp_path, [known()]) == [FindingStatus.REGRESSED]


@each(
    ("reviewers", "experts", "unreviewed", "status"),
    [
        (("scripted",), None, NOBODY, FindingStatus.OPEN),
        (("another",), None, NOBODY, FindingStatus.OPEN),
        ((), None, NOBODY, FindingStatus.OPEN),
        (("scripted",), frozenset({"documentation"}), NOBODY, FindingStatus.OPEN),
        (("scripted",), None, frozenset({"a.py"}), FindingStatus.OPEN),
    ],
)
def test_what_is_not_found_again_stays_open_whoever_looked_while_its_code_is_there(
    tmp_path: Path,
    reviewers: tuple[str, ...],
    experts: frozenset[str] | None,
    unreviewed: frozenset[str],
    status: FindingStatus,
) -> None:
    earlier = EarlierRounds(findings=(known(),), asked=asked(tmp_path, *reviewers, experts=experts))
    assert settled(earlier, tmp_path, unreviewed=unreviewed) == [status]


def test_what_nobody_asked_about_is_fixed_when_its_code_is_gone(tmp_path: Path) -> None:
    gone = known(evidence="this_is_not_there_any_more()")
    assert settled(EarlierRounds(findings=(gone,), asked=()), tmp_path) == [FindingStatus.FIXED]


def test_a_file_that_nobody_can_read_is_not_a_fixed_one(tmp_path: Path) -> None:
    elsewhere = known(file="other.py", evidence="other_code_than_that_of_a()")
    assert settled(EarlierRounds(findings=(elsewhere,), asked=()), tmp_path) == [FindingStatus.OPEN]
    tree = tmp_path / "tree"
    tree.mkdir()
    assert settled(EarlierRounds(findings=(elsewhere,), asked=(), tree=tree), tmp_path) == [FindingStatus.FIXED]
    (tree / "other.py").symlink_to("/etc/passwd")
    assert settled(EarlierRounds(findings=(elsewhere,), asked=(), tree=tree), tmp_path) == [FindingStatus.OPEN]


def test_a_refutation_holds_for_unchanged_code_alone(tmp_path: Path) -> None:
    files = make_task(tmp_path, {"a.py": source("a.py")}).files
    refuted = known(status=FindingStatus.REFUTED, verification="refuted: guarded")
    same = EarlierRounds(findings=(refuted,), unchanged=files)
    assert settled(same, tmp_path, [known()]) == [FindingStatus.REFUTED]
    changed = EarlierRounds(findings=(refuted,))
    assert settled(changed, tmp_path, [known()]) == [FindingStatus.OPEN]
    assert settled(changed, tmp_path) == []


def test_a_dismissal_holds_until_it_is_taken_back(tmp_path: Path) -> None:
    one = known()
    there = EarlierRounds(findings=(one,), dismissed=frozenset({one.fingerprint}))
    assert settled(there, tmp_path, [one]) == [FindingStatus.DISMISSED]
    dismissed = replace(one, status=FindingStatus.DISMISSED)
    assert settled(EarlierRounds(findings=(dismissed,)), tmp_path, [dismissed]) == [FindingStatus.OPEN]


def test_one_without_a_place_stays_while_nobody_looks_and_is_never_called_fixed(tmp_path: Path) -> None:
    vague = known(anchored=False)
    assert settled(EarlierRounds(findings=(vague,), asked=()), tmp_path) == [FindingStatus.OPEN]
    assert settled(EarlierRounds(findings=(vague,), asked=asked(tmp_path, "scripted")), tmp_path) == []


def test_who_saw_a_finding_is_told_without_experts_and_passes() -> None:
    seen = replace(known(), seen_by=("api/security#2", "codex", "cerberus/claude"))
    assert who_saw(seen) == {"scripted", "api", "codex", "cerberus"}
