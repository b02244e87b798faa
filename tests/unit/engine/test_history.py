"""From what a person types to an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.history import changed_policy, find_entry, find_review, judged, judged_sweep
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.history import HistoryQuery, Listing, RepositoryIdentity, ReviewRecord
from codeloupe.model.review import Policy, Verdict
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from tests.rows import each
from tests.unit.store.history_samples import REPOSITORY, commit_review, identifier, named, record, sweep_record

IDENTITY = RepositoryIdentity((REPOSITORY, "path:x"), "shop")


def here() -> RepositoryIdentity:
    return IDENTITY


def nowhere() -> RepositoryIdentity:
    raise AssertionError("an id needs no repository")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[SqliteHistory]:
    with Database(tmp_path / "history") as database:
        yield SqliteHistory(database)


@pytest.fixture
def history(empty: SqliteHistory) -> SqliteHistory:
    empty.save(record(0xABCD0001))
    empty.save(record(0xABCD0002))
    empty.save(record(0xAAAA0001, repository="root:other"))
    return empty


def complaint(history: SqliteHistory, word: str) -> CodeloupeError:
    with pytest.raises(CodeloupeError) as caught:
        find_entry(history, word, here=here)
    assert caught.value.hint
    return caught.value


def test_an_id_and_any_beginning_of_it_that_is_its_own_are_found_without_a_repository(history: SqliteHistory) -> None:
    whole = identifier(0xABCD0001)
    for word in (whole, whole[:8], whole[:12].upper(), f" {whole} "):
        assert find_entry(history, word, here=nowhere).entry_id == whole
        assert find_review(history, word, here=nowhere).review.review_id == whole
    assert find_entry(history, "aaaa", here=nowhere).entry_id == identifier(0xAAAA0001)


def test_last_is_the_newest_of_this_repository(history: SqliteHistory) -> None:
    assert find_entry(history, "last", here=here).entry_id == identifier(0xABCD0002)
    assert find_review(history, "last", here=here).review.review_id == identifier(0xABCD0002)
    history.save_sweep(sweep_record(0xABCD0003, commit_review(1)))
    assert find_entry(history, "last", here=here).entry_id == identifier(0xABCD0003)
    assert find_review(history, "last", here=here).review.review_id == identifier(0xABCD0002)


def test_a_beginning_of_several_ids_lists_them(history: SqliteHistory) -> None:
    error = complaint(history, "abcd")
    assert isinstance(error, UsageError)
    assert "'abcd' is the beginning of several ids" in error.message
    assert identifier(0xABCD0001)[:12] in error.message
    assert identifier(0xABCD0002)[:12] in error.message


def test_an_id_that_is_the_beginning_of_another_is_found(history: SqliteHistory) -> None:
    short = record(1, review_id="abcd")
    history.save(short)
    assert find_entry(history, "abcd", here=here).entry_id == "abcd"


def test_of_many_that_begin_alike_some_are_listed(empty: SqliteHistory) -> None:
    history = empty
    for number in range(30):
        history.save(record(0xABCD0000 + number))
    message = complaint(history, "abcd").message
    assert message.count("\n") == 9
    assert message.endswith("and more")


def test_an_unknown_id_lists_the_newest_of_this_repository(history: SqliteHistory) -> None:
    message = complaint(history, "ffff").message
    assert "no entry of the history begins with 'ffff'" in message
    assert identifier(0xABCD0001)[:12] in message
    assert identifier(0xAAAA0001)[:12] not in message


def test_an_empty_history_says_how_to_make_the_first_entry(empty: SqliteHistory) -> None:
    for word in ("last", "ffff"):
        assert "codeloupe review" in complaint(empty, word).hint


@each("word", ["", "-", "LAST", "xyzw", "ab cd", "%%%%", "abcd*", "a" * 65, "\x1b[31m", "äöüß"])
def test_a_word_that_is_no_id_is_told_so(history: SqliteHistory, word: str) -> None:
    assert "is no id of the history" in complaint(history, word).message


@each("word", ["a", "abc"])
def test_a_beginning_that_is_too_short_is_told_so(history: SqliteHistory, word: str) -> None:
    assert "at least 4 characters" in complaint(history, word).message


def test_a_sweep_is_not_one_review(history: SqliteHistory) -> None:
    history.save_sweep(sweep_record(0xBBBB0001, commit_review(1)))
    with pytest.raises(UsageError, match="is a sweep of 1 commits, not one review"):
        find_review(history, "bbbb", here=here)
    assert find_review(history, identifier(1001), here=here).sweep_id == identifier(0xBBBB0001)


def test_an_entry_that_cannot_be_read_is_an_error_in_words(
    empty: SqliteHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = empty
    monkeypatch.setattr(history, "matching", lambda *_, **_more: Listing((), ("the entry abcd cannot be read",)))
    error = complaint(history, "abcd")
    assert isinstance(error, StoreError)
    assert error.message == "the entry abcd cannot be read"


def test_the_last_that_can_be_read_is_the_last(history: SqliteHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = history.list(HistoryQuery()).entries
    monkeypatch.setattr(history, "list", lambda _query: Listing(entries[1:], ("the entry ffff cannot be read",)))
    assert find_entry(history, "last", here=here) == entries[1]
    monkeypatch.setattr(history, "list", lambda _query: Listing((), ("the entry ffff cannot be read",)))
    assert isinstance(complaint(history, "last"), StoreError)


def test_a_description_that_spans_lines_stays_on_its_own(history: SqliteHistory) -> None:
    scope = record(1).review.scope
    hostile = record(0xABCD0009, scope=type(scope)(scope.kind, None, None, "one\ntwo\r\nthree" + "x" * 500))
    history.save(hostile)
    assert "one two three" in complaint(history, "abcd").message
    assert max(map(len, complaint(history, "abcd").message.split("\n"))) < 130


HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
ALL = (named("h", severity=HIGH), named("m", severity=MEDIUM, file="a.py"), named("l", severity=LOW))


def saved(
    *, hidden: int = 0, keeps_hidden: bool = True, min_severity: Severity = LOW, **changes: object
) -> ReviewRecord:
    policy = Policy(fail_on=HIGH, min_severity=min_severity)
    shown, rest = ALL[: len(ALL) - hidden], ALL[len(ALL) - hidden :]
    kept = rest if keeps_hidden else ()
    return record(1, *shown, hidden=kept, hidden_findings=hidden, policy=policy, **changes)


def test_by_its_own_policy_it_is_as_it_was() -> None:
    before = saved(summary="as it was said then", exit_code=1)
    assert judged(before, before.review.policy) is before.review


@each(
    ("fail_on", "findings", "exit_code", "verdict"),
    [
        (Severity.CRITICAL, ALL, 0, Verdict.FAIL),
        (HIGH, ALL, 1, Verdict.FAIL),
        (HIGH, ALL[1:], 0, Verdict.NEEDS_WORK),
        (MEDIUM, ALL[1:], 1, Verdict.NEEDS_WORK),
        (LOW, ALL[2:], 1, Verdict.NEEDS_WORK),
        (LOW, (), 0, Verdict.PASS),
    ],
)
def test_another_limit_gives_another_exit_code(
    fail_on: Severity, findings: tuple[object, ...], exit_code: int, verdict: Verdict
) -> None:
    before = saved()
    before = replace(before, review=replace(before.review, findings=findings, policy=Policy(min_severity=HIGH)))
    review = judged(before, Policy(fail_on=fail_on))
    assert (review.exit_code, review.verdict, review.policy.fail_on) == (exit_code, verdict, fail_on)
    assert review.passed is (exit_code == 0)


def test_less_is_shown_and_counted_as_hidden() -> None:
    review = judged(saved(), Policy(fail_on=HIGH, min_severity=HIGH))
    assert [finding.fingerprint for finding in review.findings] == ["h"]
    assert review.hidden_findings == 2
    assert review.summary.startswith("1 finding (1 high)")


def test_what_was_hidden_comes_back_when_it_was_kept() -> None:
    review = judged(saved(hidden=2, min_severity=HIGH), Policy(fail_on=LOW, min_severity=LOW))
    assert sorted(finding.fingerprint for finding in review.findings) == ["h", "l", "m"]
    assert review.findings[0].fingerprint == "m"  # in the order of the files
    assert (review.hidden_findings, review.exit_code) == (0, 1)


def test_what_could_decide_and_was_not_kept_is_an_error_and_never_a_pass() -> None:
    before = saved(hidden=2, keeps_hidden=False, min_severity=HIGH)
    with pytest.raises(UsageError, match="2 findings below high were not kept.*fail_on=medium") as caught:
        judged(before, Policy(fail_on=MEDIUM))
    assert "min_severity medium" in caught.value.hint
    assert judged(before, Policy(fail_on=Severity.CRITICAL)).hidden_findings == 2
    assert judged(before, Policy(fail_on=HIGH, min_severity=LOW)).hidden_findings == 2


def test_a_gap_stays_a_gap_unless_it_may_pass() -> None:
    gap = saved(complete=False, exit_code=3)
    assert judged(gap, Policy(fail_on=Severity.CRITICAL)).exit_code == 3
    accepted = judged(gap, Policy(fail_on=Severity.CRITICAL, pass_when_incomplete=True))
    assert (accepted.exit_code, accepted.complete) == (0, False)


def test_what_cannot_be_read_makes_it_incomplete_by_any_policy() -> None:
    damaged = replace(saved(), problems=("finding 1 cannot be read",))
    damaged = replace(damaged, review=replace(damaged.review, findings=()))
    for policy in (damaged.review.policy, Policy(fail_on=LOW)):
        review = judged(damaged, policy)
        assert (review.complete, review.exit_code) == (False, 3)
        assert "could not review everything" in review.summary


def test_what_was_refuted_does_not_block_by_any_policy() -> None:
    refuted = record(1, named("h", severity=Severity.CRITICAL, status=FindingStatus.REFUTED))
    assert judged(refuted, Policy(fail_on=LOW)).exit_code == 0


def test_only_what_is_given_is_changed() -> None:
    policy = Policy(fail_on=MEDIUM, min_severity=HIGH, pass_when_incomplete=True)
    assert changed_policy(policy) == policy
    assert changed_policy(policy, fail_on=LOW) == replace(policy, fail_on=LOW)
    assert changed_policy(policy, min_severity=LOW) == replace(policy, min_severity=LOW)
    assert changed_policy(policy, pass_when_incomplete=False) == replace(policy, pass_when_incomplete=False)


class TestSweep:
    CLEAN = commit_review(1)
    GRAVE = commit_review(2, named("h", severity=HIGH))

    def test_it_ends_as_it_ended_and_strictly_by_its_findings(self) -> None:
        saved = sweep_record(1, self.CLEAN, self.GRAVE)
        assert judged_sweep(saved).exit_code == 0
        assert judged_sweep(saved, strict=True).exit_code == 1
        assert judged_sweep(sweep_record(1, self.CLEAN), strict=True).exit_code == 0

    @each("change", [{"finished": False}, {"problems": ("a commit cannot be read",)}])
    @each("strict", [False, True])
    def test_what_is_missing_of_it_never_passes_by_itself(self, change: dict[str, Any], *, strict: bool) -> None:
        saved = sweep_record(1, self.CLEAN, **change)
        assert judged_sweep(saved, strict=strict).exit_code == 3
        assert judged_sweep(saved, strict=strict, pass_when_incomplete=True).exit_code == 0

    def test_a_commit_that_could_not_be_reviewed_is_as_it_was_judged_or_as_it_is_asked(self) -> None:
        failed = commit_review(3, review=None, verdict=None, score=None, failure="timeout")
        passed = sweep_record(1, failed)
        assert judged_sweep(passed).exit_code == 0
        assert judged_sweep(passed, pass_when_incomplete=False).exit_code == 3
