"""What becomes of a finding from one round of review to the next."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import asdict, replace

from codeloupe.engine.identity import PlacesOfNow, is_touched, with_fingerprints
from codeloupe.engine.lifecycle import Asked, EarlierRounds, Ground, compare, compare_reviews
from codeloupe.engine.rounds import IncrementalReviewer, already_seen, digests, unseen
from codeloupe.engine.verdict import converged
from codeloupe.model.change import FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.model.review import Coverage, FailedUnit, SkippedFile, SkipReason
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.testing import ScriptedAgent
from tests.review_factories import answer, make_reviewer, make_task, named, source
from tests.rows import each
from tests.unit.engine.samples import finding
from tests.unit.store.history_samples import named as saved_finding
from tests.unit.store.history_samples import record

NEW, OPEN, FIXED, REFUTED, DISMISSED, REGRESSED = FindingStatus

LEAK = finding(title="File handle is never closed", evidence="handle = open(path)", line=5)
RACE = finding(title="Race between check and use", evidence="if not exists(path): make(path)", line=9)


def identified(*findings: Finding) -> tuple[Finding, ...]:
    return with_fingerprints(findings)


class Rounds(NamedTuple):
    seen: Sequence[Finding]
    unseen: Sequence[Finding]


def rounds(
    previous: Sequence[Finding], current: Sequence[Finding], *, there: bool = True, fixed: bool = False
) -> Rounds:
    return Rounds(*compare(previous, current, Ground(still_there=lambda _: there, is_fixed=lambda _: fixed)))


def everything(result: Rounds) -> list[Finding]:
    return [*result.seen, *result.unseen]


def became(old: Finding, new: Finding) -> FindingStatus:
    (found,) = rounds(identified(old), identified(new)).seen
    return found.status


class TestFoundAgain:
    def test_it_goes_on_from_what_it_was_and_stays_refuted_until_an_attempt_to_refute_it_fails(self) -> None:
        for now, befores in ((OPEN, (NEW, OPEN, REGRESSED)), (REGRESSED, (FIXED,)), (DISMISSED, (DISMISSED,))):
            assert {became(replace(LEAK, status=before), LEAK) for before in befores} == {now}
        refuted = replace(LEAK, status=REFUTED, verification="the caller closes it")
        (again,) = rounds(identified(refuted), identified(LEAK)).seen
        assert (again.status, again.verification) == (REFUTED, "the caller closes it")
        assert became(refuted, replace(LEAK, verification="no caller closes it")) is OPEN

    def test_what_this_round_sets_aside_stays_so(self) -> None:
        for status in (REFUTED, DISMISSED):
            for before in (NEW, FIXED, OPEN):
                assert became(replace(LEAK, status=before), replace(LEAK, status=status)) is status
            (alone,) = rounds((), identified(replace(LEAK, status=status))).seen
            assert alone.status is status

    def test_it_has_the_words_of_now_and_the_fingerprint_of_before(self) -> None:
        # Neither another place, other words, a longer quote nor another category make it new.
        quote = "prefix = compute_the_whole_prefix(path)\nhandle = open(path)"
        moved = replace(LEAK, line_start=50, line_end=51, category="security", evidence=quote)
        [reworded] = identified(
            replace(moved, title="open() without a context manager", body="Nothing closes the file.")
        )
        [old] = identified(LEAK)
        assert reworded.fingerprint != old.fingerprint
        assert rounds([old], [reworded]).seen == [replace(reworded, fingerprint=old.fingerprint, status=OPEN)]

    def test_in_a_renamed_file_it_is_the_same_and_a_copy_is_new_under_a_name_of_its_own(self) -> None:
        moved = identified(replace(LEAK, file="new.py"))
        assert [found.status for found in everything(rounds(identified(LEAK), moved, there=False))] == [OPEN]
        first = everything(rounds(identified(LEAK), identified(replace(LEAK, file="copy.py"))))
        assert [(found.file, found.status) for found in first] == [("copy.py", NEW), ("a.py", OPEN)]
        assert len({found.fingerprint for found in first}) == 2
        second = everything(rounds(first, identified(replace(LEAK, file="copy.py"))))
        assert [(one.file, one.status, one.fingerprint) for one in second] == [
            (one.file, OPEN, one.fingerprint) for one in first
        ]

    def test_of_two_on_one_line_each_is_known_by_what_it_says(self) -> None:
        code = "resp = requests.get(url)"
        hang = finding(title="No timeout on the request", evidence=code)
        status = finding(title="Status code is not checked", evidence=code)
        before = [replace(one, status=DISMISSED) if "timeout" in one.title else one for one in identified(hang, status)]
        swapped = [
            replace(identified(status)[0], title="Answer is used although its status is not checked"),
            replace(hang, title="Request may hang without a timeout", fingerprint=before[1].fingerprint),
        ]
        assert [found.status for found in rounds(before, swapped).seen] == [OPEN, DISMISSED]

    def test_of_pasted_copies_each_is_the_nearest(self) -> None:
        before = identified(*(replace(LEAK, line_start=line, line_end=line) for line in (10, 100)))
        after = [replace(found, line_start=found.first_line + 3, line_end=found.last_line + 3) for found in before]
        result = rounds(before, [replace(found, fingerprint="") for found in reversed(after)])
        assert {found.line_start: found.fingerprint for found in result.seen} == {
            found.first_line + 3: found.fingerprint for found in before
        }


@each("status", list(FindingStatus))
def test_what_is_not_found_again_is_fixed_only_when_that_is_known_and_what_was_closed_stays_as_it_was(
    status: FindingStatus,
) -> None:
    before = identified(replace(LEAK, status=status))
    for fixed, now in ((False, OPEN), (True, FIXED)):
        result = rounds(before, (), there=False, fixed=fixed)
        assert (result.seen, [one.status for one in result.unseen]) == ([], [now if before[0].is_open else status])


def test_in_a_round_nothing_is_lost_or_taken_for_another_defect_on_its_line() -> None:
    result = rounds(identified(LEAK), identified(RACE))
    assert {found.title: found.status for found in everything(result)} == {LEAK.title: OPEN, RACE.title: NEW}
    assert rounds((), ()) == ([], [])
    other = replace(LEAK, title="Missing encoding", body="UTF-8 files break on Windows.", fingerprint="other")
    assert [one.status for one in everything(rounds(identified(LEAK), [other], fixed=True))] == [NEW, FIXED]
    # Nor is one without a fingerprint.
    assert [found.status for found in rounds([LEAK], [LEAK, RACE]).seen] == [OPEN, NEW]


def test_a_round_has_converged_when_nothing_new_could_block() -> None:
    old, low = identified(LEAK, replace(RACE, severity=Severity.LOW))
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
    before = identified(*(replace(LEAK, title=f"Defect number {number}") for number in range(800)))
    result = rounds(before, before)
    assert ([found.status for found in result.seen], result.unseen) == ([OPEN] * 800, [])


LINE = "value_3 = compute('a.py', 3, 'some text to fill it')"
NOBODY: frozenset[str] = frozenset()


def known(**changes: Any) -> Finding:
    [one] = with_fingerprints([finding(Severity.CRITICAL, line=4, evidence=LINE)])
    return replace(one, reviewer="scripted", **changes)


def settled(
    earlier: EarlierRounds, tmp_path: Path, current: Sequence[Finding] = (), *, unreviewed: frozenset[str] = NOBODY
) -> list[FindingStatus]:
    task = make_task(tmp_path, {"a.py": source("a.py")})
    return [one.status for one in earlier.settle(current, task, unreviewed=unreviewed)[0]]


def asked(tmp_path: Path, *reviewers: str, experts: frozenset[str] | None = None) -> tuple[Asked, ...]:
    files = make_task(tmp_path, {"a.py": source("a.py")}).files
    return (Asked(reviewers=frozenset(reviewers), files=files, experts=experts),)


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
    there = EarlierRounds(findings=(known(),), dismissed={known().fingerprint: None})
    assert settled(there, tmp_path, [known()]) == [DISMISSED]
    dismissed = known(status=DISMISSED)
    assert settled(EarlierRounds(findings=(dismissed,)), tmp_path, [dismissed]) == [OPEN]


def test_one_without_a_place_stays_while_nobody_looks_and_is_never_called_fixed(tmp_path: Path) -> None:
    vague = known(anchored=False)
    assert settled(EarlierRounds(findings=(vague,), asked=()), tmp_path) == [OPEN]
    assert settled(EarlierRounds(findings=(vague,), asked=asked(tmp_path, "scripted")), tmp_path) == []


def defect(name: str, **changes: Any) -> Finding:
    """A finding that is like no other."""
    words = {"a": "apple tree", "b": "broken bridge", "c": "cold coffee", "d": "dull knife"}[name]
    quote = f"{words.replace(' ', '_')}({name!r})"
    return saved_finding(
        name,
        **{"file": f"{name}.py", "title": words, "body": f"the {words}", "evidence": quote, "rule": None, **changes},
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
    back = compared(record(1, defect("a", status=FIXED)), record(2, defect("a"))).regressed
    assert [(one.fingerprint, one.status) for one in back] == [("a", REGRESSED)]
    assert groups(record(1), record(2, defect("a", status=REGRESSED))) == {"regressed": ["a"]}


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
    later = record(2, defect("a", status=FIXED), scope=Scope(ScopeKind.STAGED, None, None, ""))
    assert groups(record(1, defect("a"), defect("b")), later) == {"fixed": ["a"], "unknown": ["b"]}


def test_what_is_set_aside_now_is_not_fixed() -> None:
    suppressed = {"suppression": Suppression(kind=SuppressionKind.INLINE, reason="on purpose")}
    for change in ({"status": REFUTED}, {"status": DISMISSED}, suppressed):
        later = record(2, defect("a", **change), defect("b", **change))
        assert groups(record(1, defect("a")), later) == {"set_aside": ["a"]}


def test_what_was_hidden_and_kept_counts_and_a_review_compared_with_itself_has_nothing_new() -> None:
    earlier = record(1, hidden=(defect("a", severity=Severity.LOW),))
    assert groups(earlier, record(2, defect("a", severity=Severity.HIGH))) == {"still_open": ["a"]}
    one = record(1, defect("a"), defect("b"))
    assert groups(one, one) == {"still_open": ["a", "b"]}


HUNK = Hunk(1, 1, 1, 2, b" a\n+b\n", section="def f", added=1)
FILE = FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(HUNK,))


def reviewed(
    task: ReviewTask, look: tuple[frozenset[str], tuple[Finding, ...]], agent: ScriptedAgent
) -> ReviewerOutcome:
    return asyncio.run(IncrementalReviewer(make_reviewer(agent), *look).review(task, lambda _event: None))


def about(name: str, number: int = 3) -> Finding:
    quote = f"value_{number} = compute('{name}', {number}, 'some text to fill it')"
    return replace(finding(file=name, line=number + 1, evidence=quote), fingerprint=f"{name} {number}")


def test_a_hunk_is_known_wherever_it_is_but_not_with_another_file_mode_section_or_line() -> None:
    moved = replace(FILE, hunks=(replace(HUNK, old_start=90, new_start=95),))
    assert unseen([moved], digests([FILE])) == ()
    others = [
        replace(FILE, old_path="b.py", new_path="b.py"),
        replace(FILE, new_mode="100755"),
        replace(FILE, old_path="was.py", status=FileStatus.RENAMED),
        replace(FILE, hunks=(replace(HUNK, section="def g"),)),
        replace(FILE, hunks=(replace(HUNK, body=b" a\n+c\n"),)),
    ]
    assert unseen(others, digests([FILE])) == tuple(others)
    # The same hunk again is not known by the first.
    again = replace(HUNK, old_start=50, new_start=51)
    [left] = unseen([replace(FILE, hunks=(HUNK, again))], digests([FILE]))
    assert left.hunks == (again,)


def _numbered(file: FileChange) -> set[tuple[str, int | None, int | None, bytes]]:
    return {(line.kind, line.old_number, line.new_number, line.text) for hunk in file.hunks for line in hunk.lines()}


@pytest.mark.defect("V1")
def test_of_a_long_hunk_the_parts_with_new_lines_are_left_with_the_right_numbers() -> None:
    chance = random.Random(7)
    failures: list[object] = []
    for case in range(300):
        rows = [
            chance.choice((b" ", b"+", b"+", b"-"))
            + chance.choice((b"", b"def f():", b"    x = %d" % chance.randrange(9)))
            for _ in range(chance.randrange(1, 160))
        ]
        before = _file_of(rows, ended=case % 3 > 0)
        changed = list(rows)
        places = [chance.randrange(len(rows)) for _ in range(chance.randrange(1, 3))]
        for place in places:
            changed[place] = rows[place][:1] + b"    new_%d = 1" % place
        now = _file_of(changed, ended=case % 3 > 0)
        left, seen = unseen([now], digests([before])), already_seen([now], digests([before]))
        shown, known = (_numbered(left[0]) if left else set()), _numbered(seen[0])
        if any(not any(b"new_%d " % place in line[3] for line in shown) for place in places):
            failures.append((case, "a new line is not shown"))
        if any(b"new_" in line[3] for line in known):
            failures.append((case, "a new line counts as seen"))
        if shown - _numbered(now) or known - _numbered(now):
            failures.append((case, "a line has another number"))
        if shown | known != _numbered(now):
            failures.append((case, "a line is neither"))
        if len(shown) > 40 * len(places) + 20:
            failures.append((case, f"{len(shown)} of {len(rows)} rows are asked about again"))
    assert failures == []


def _file_of(rows: list[bytes], *, ended: bool) -> FileChange:
    """A file with one hunk of some rows; without an end its last row has git's marker behind it."""
    body = b"\n".join(rows) + (b"\n" if ended else b"\n\\ No newline at end of file\n")
    old, new = (sum(row[:1] in signs for row in rows) for signs in ((b" ", b"-"), (b" ", b"+")))
    hunk = Hunk(5 - (not old), old, 7 - (not new), new, body, added=sum(row[:1] == b"+" for row in rows))
    return FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(hunk,))


@pytest.mark.defect("V1")
def test_lines_put_in_above_leave_the_rest_of_a_long_hunk_known() -> None:
    rows = [
        b"+def f_%d():" % (n // 7) if n % 7 == 0 else b"+" if n % 7 == 6 else b"+    x_%d = 1" % n for n in range(700)
    ]
    now = _file_of([b"+import os", b"+", *rows], ended=True)
    [left] = unseen([now], digests([_file_of(rows, ended=True)]))
    assert sum(hunk.new_lines for hunk in left.hunks) < 60


def test_what_is_carried_over_keeps_its_state_and_what_is_gone_is_not_carried(tmp_path: Path) -> None:
    task = make_task(tmp_path, named(["a.py", "b.py"]))
    refuted = replace(about("a.py"), status=FindingStatus.REFUTED, verification="refuted: guarded")
    gone = replace(about("a.py", 5), evidence="this_is_not_there_any_more()")
    agent = ScriptedAgent([answer()])
    outcome = reviewed(task, (digests(task.files), (refuted, gone)), agent)
    assert (agent.requests, outcome.findings) == ((), (refuted,))
    # One without a place is carried unless its whole file is asked about.
    vague = replace(about("a.py"), anchored=False)
    assert reviewed(task, (digests(task.files[:1]), (vague,)), agent).findings == (vague,)
    assert reviewed(task, (digests(task.files[1:]), (vague,)), agent).findings == ()


def test_where_an_earlier_finding_is_now(tmp_path: Path) -> None:
    # Lines that are there twice keep their order when they move.
    same = "risky_call(argument)\n"
    task = make_task(tmp_path, {"a.py": same + "\n" * 39 + same})
    old = [replace(finding(line=line, evidence=same.strip()), fingerprint=str(line)) for line in (41, 81)]
    assert [one.line_start for one in PlacesOfNow(task).placed(old)] == [1, 41]
    # A finding in a deleted file is touched by its old lines.
    deleted = FileChange("a.py", None, FileStatus.DELETED, hunks=(Hunk(1, 9, 0, 0, b"-x\n" * 9, deleted=9),))
    assert [is_touched(finding(line=line), [deleted]) for line in (5, 50)] == [True, False]
