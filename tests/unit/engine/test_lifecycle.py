"""What becomes of a finding from one round of review to the next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.identity import with_fingerprints
from codeloupe.engine.lifecycle import Asked, EarlierRounds, Ground, Rounds, compare, who_saw
from codeloupe.engine.verdict import converged
from codeloupe.model.finding import Finding, FindingStatus, Severity
from tests.review_factories import make_task, source
from tests.rows import each
from tests.unit.engine.samples import finding

NEW, OPEN, FIXED, REFUTED, DISMISSED, REGRESSED = FindingStatus

LEAK = finding(title="File handle is never closed", evidence="handle = open(path)", line=5)
RACE = finding(title="Race between check and use", evidence="if not exists(path): make(path)", line=9)


def named(*findings: Finding) -> tuple[Finding, ...]:
    return with_fingerprints(findings)


def rounds(
    previous: Sequence[Finding], current: Sequence[Finding], *, there: bool = True, fixed: bool = False
) -> Rounds:
    return compare(previous, current, Ground(still_there=lambda _: there, is_fixed=lambda _: fixed))


def everything(result: Rounds) -> tuple[Finding, ...]:
    return result.seen + result.unseen


def became(old: Finding, new: Finding) -> FindingStatus:
    (found,) = rounds(named(old), named(new)).seen
    return found.status


class TestFoundAgain:
    def test_it_goes_on_from_what_it_was_and_stays_refuted_until_an_attempt_to_refute_it_fails(self) -> None:
        for now, befores in ((OPEN, (NEW, OPEN, REGRESSED)), (REGRESSED, (FIXED,)), (DISMISSED, (DISMISSED,))):
            assert {became(replace(LEAK, status=before), LEAK) for before in befores} == {now}
        refuted = replace(LEAK, status=REFUTED, verification="the caller closes it")
        (again,) = rounds(named(refuted), named(LEAK)).seen
        assert (again.status, again.verification) == (REFUTED, "the caller closes it")
        assert became(refuted, replace(LEAK, verification="no caller closes it")) is OPEN

    def test_what_this_round_sets_aside_stays_so(self) -> None:
        for status in (REFUTED, DISMISSED):
            for before in (NEW, FIXED, OPEN):
                assert became(replace(LEAK, status=before), replace(LEAK, status=status)) is status
            (alone,) = rounds((), named(replace(LEAK, status=status))).seen
            assert alone.status is status

    def test_it_has_the_words_of_now_and_the_fingerprint_of_before(self) -> None:
        # Neither another place, other words, a longer quote nor another category make it new.
        quote = "prefix = compute_the_whole_prefix(path)\nhandle = open(path)"
        moved = replace(LEAK, line_start=50, line_end=51, category="security", evidence=quote)
        [reworded] = named(replace(moved, title="open() without a context manager", body="Nothing closes the file."))
        [old] = named(LEAK)
        assert reworded.fingerprint != old.fingerprint
        assert rounds([old], [reworded]).seen == (replace(reworded, fingerprint=old.fingerprint, status=OPEN),)

    def test_in_a_renamed_file_it_is_the_same_and_a_copy_is_new_under_a_name_of_its_own(self) -> None:
        moved = named(replace(LEAK, file="new.py"))
        assert [found.status for found in everything(rounds(named(LEAK), moved, there=False))] == [OPEN]
        first = everything(rounds(named(LEAK), named(replace(LEAK, file="copy.py"))))
        assert [(found.file, found.status) for found in first] == [("copy.py", NEW), ("a.py", OPEN)]
        assert len({found.fingerprint for found in first}) == 2
        second = everything(rounds(first, named(replace(LEAK, file="copy.py"))))
        assert [(one.file, one.status, one.fingerprint) for one in second] == [
            (one.file, OPEN, one.fingerprint) for one in first
        ]

    def test_of_two_on_one_line_each_is_known_by_what_it_says(self) -> None:
        code = "resp = requests.get(url)"
        hang = finding(title="No timeout on the request", evidence=code)
        status = finding(title="Status code is not checked", evidence=code)
        before = [replace(one, status=DISMISSED) if "timeout" in one.title else one for one in named(hang, status)]
        swapped = [
            replace(named(status)[0], title="Answer is used although its status is not checked"),
            replace(hang, title="Request may hang without a timeout", fingerprint=before[1].fingerprint),
        ]
        assert [found.status for found in rounds(before, swapped).seen] == [OPEN, DISMISSED]

    def test_of_pasted_copies_each_is_the_nearest(self) -> None:
        before = named(*(replace(LEAK, line_start=line, line_end=line) for line in (10, 100)))
        after = [replace(found, line_start=found.first_line + 3, line_end=found.last_line + 3) for found in before]
        result = rounds(before, [replace(found, fingerprint="") for found in reversed(after)])
        assert {found.line_start: found.fingerprint for found in result.seen} == {
            found.first_line + 3: found.fingerprint for found in before
        }


@each("status", list(FindingStatus))
def test_what_is_not_found_again_is_fixed_only_when_that_is_known_and_what_was_closed_stays_as_it_was(
    status: FindingStatus,
) -> None:
    before = named(replace(LEAK, status=status))
    for fixed, now in ((False, OPEN), (True, FIXED)):
        result = rounds(before, (), there=False, fixed=fixed)
        assert (result.seen, [one.status for one in result.unseen]) == ((), [now if before[0].is_open else status])


def test_in_a_round_nothing_is_lost_or_taken_for_another_defect_on_its_line() -> None:
    result = rounds(named(LEAK), named(RACE))
    assert {found.title: found.status for found in everything(result)} == {LEAK.title: OPEN, RACE.title: NEW}
    assert rounds((), ()) == Rounds()
    other = replace(LEAK, title="Missing encoding", body="UTF-8 files break on Windows.", fingerprint="other")
    assert [one.status for one in everything(rounds(named(LEAK), [other], fixed=True))] == [NEW, FIXED]
    # Nor is one without a fingerprint.
    assert [found.status for found in rounds([LEAK], [LEAK, RACE]).seen] == [OPEN, NEW]


def test_a_round_has_converged_when_nothing_new_could_block() -> None:
    old, low = named(LEAK, replace(RACE, severity=Severity.LOW))
    for before, now in (
        ([old], [old]),
        ([old], [old, low]),
        ([], [replace(old, anchored=False)]),
        ([], [replace(old, status=REFUTED)]),
        ([old], []),
    ):
        assert converged(rounds(before, now).seen, Severity.HIGH)
    assert not converged(rounds([old], [old, low]).seen, Severity.LOW)
    assert not converged(rounds((), [old]).seen, Severity.HIGH)
    assert not converged(rounds([replace(old, status=FIXED)], [old]).seen, Severity.HIGH)


@pytest.mark.no_cover  # counting lines would take several times as long as running them
def test_a_long_history_on_one_line_takes_no_long_time() -> None:
    before = named(*(replace(LEAK, title=f"Defect number {number}") for number in range(800)))
    result = rounds(before, before)
    assert ([found.status for found in result.seen], result.unseen) == ([OPEN] * 800, ())


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


def test_what_is_found_is_new_or_open_or_was_fixed_before_and_came_back(tmp_path: Path) -> None:
    assert settled(EarlierRounds(), tmp_path, [known()]) == [NEW]
    assert settled(EarlierRounds(findings=(known(),)), tmp_path, [known()]) == [OPEN]
    assert settled(EarlierRounds(fixed_before=frozenset), tmp_path, [known()]) == [REGRESSED]


def test_what_is_not_found_again_stays_open_whoever_looked_while_its_code_is_there(tmp_path: Path) -> None:
    for reviewers, experts, unreviewed in (
        (["scripted"], None, NOBODY),
        (["another"], None, NOBODY),
        ([], None, NOBODY),
        (["scripted"], frozenset({"documentation"}), NOBODY),
        (["scripted"], None, frozenset({"a.py"})),
    ):
        earlier = EarlierRounds(findings=(known(),), asked=asked(tmp_path, *reviewers, experts=experts))
        assert settled(earlier, tmp_path, unreviewed=unreviewed) == [OPEN]
    # What nobody asked about is fixed when its code is gone.
    gone = known(evidence="this_is_not_there_any_more()")
    assert settled(EarlierRounds(findings=(gone,), asked=()), tmp_path) == [FIXED]


def test_a_file_that_nobody_can_read_is_not_a_fixed_one(tmp_path: Path) -> None:
    elsewhere = known(file="other.py", evidence="other_code_than_that_of_a()")
    assert settled(EarlierRounds(findings=(elsewhere,), asked=()), tmp_path) == [OPEN]
    tree = tmp_path / "tree"
    tree.mkdir()
    assert settled(EarlierRounds(findings=(elsewhere,), asked=(), tree=tree), tmp_path) == [FIXED]
    (tree / "other.py").symlink_to("/etc/passwd")
    assert settled(EarlierRounds(findings=(elsewhere,), asked=(), tree=tree), tmp_path) == [OPEN]


def test_a_refutation_holds_for_unchanged_code_alone_and_a_dismissal_until_it_is_taken_back(tmp_path: Path) -> None:
    files = make_task(tmp_path, {"a.py": source("a.py")}).files
    refuted = known(status=REFUTED, verification="refuted: guarded")
    changed = EarlierRounds(findings=(refuted,))
    assert settled(replace(changed, unchanged=files), tmp_path, [known()]) == [REFUTED]
    assert (settled(changed, tmp_path, [known()]), settled(changed, tmp_path)) == ([OPEN], [])
    there = EarlierRounds(findings=(known(),), dismissed=frozenset({known().fingerprint}))
    assert settled(there, tmp_path, [known()]) == [DISMISSED]
    dismissed = known(status=DISMISSED)
    assert settled(EarlierRounds(findings=(dismissed,)), tmp_path, [dismissed]) == [OPEN]


def test_one_without_a_place_stays_while_nobody_looks_and_is_never_called_fixed(tmp_path: Path) -> None:
    vague = known(anchored=False)
    assert settled(EarlierRounds(findings=(vague,), asked=()), tmp_path) == [OPEN]
    assert settled(EarlierRounds(findings=(vague,), asked=asked(tmp_path, "scripted")), tmp_path) == []


def test_who_saw_a_finding_is_told_without_experts_and_passes() -> None:
    seen = replace(known(), seen_by=("api/security#2", "codex", "cerberus/claude"))
    assert who_saw(seen) == {"scripted", "api", "codex", "cerberus"}
