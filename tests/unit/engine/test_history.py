"""From what a person types to an entry."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.history import changed_policy, find_entry, find_review, judged, judged_sweep
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.model.finding import Severity
from codeloupe.model.history import HistoryQuery, Listing, RepositoryIdentity, ReviewRecord
from codeloupe.model.review import Policy, Verdict
from codeloupe.model.sweep import CommitReview
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


def test_a_beginning_of_several_ids_lists_them_unless_it_is_one_itself(history: SqliteHistory) -> None:
    # Of many some, each on one line.
    scope = record(1).review.scope
    hostile = type(scope)(scope.kind, None, None, "one\ntwo\r\nthree" + "x" * 500)
    for number in range(30):
        history.save(record(0xABCD0100 + number, scope=hostile))
    lines = complaint(history, "abcd").message.split("\n")
    assert (lines[0], len(lines), lines[-1]) == ("'abcd' is the beginning of several ids:", 10, "  and more")
    assert all("one two three" in line and line.startswith("  abcd01") for line in lines[1:-1])
    assert max(map(len, lines)) < 130
    history.save(record(1, review_id="abcd"))
    assert find_entry(history, "abcd", here=here).entry_id == "abcd"


def test_what_names_no_entry_is_told_with_a_way_on(history: SqliteHistory) -> None:
    message = complaint(history, "ffff").message
    assert "no entry of the history begins with 'ffff'" in message
    assert identifier(0xABCD0001)[:12] in message
    assert identifier(0xAAAA0001)[:12] not in message
    for word in ("", "-", "LAST", "xyzw", "ab cd", "%%%%", "abcd*", "a" * 65, "\x1b[31m", "äöüß"):
        assert "is no id of the history" in complaint(history, word).message
    for word in ("a", "abc"):
        assert "at least 4 characters" in complaint(history, word).message


def test_an_empty_history_says_how_to_make_the_first_entry_and_a_sweep_is_not_one_review(empty: SqliteHistory) -> None:
    for word in ("last", "ffff"):
        assert "codeloupe review" in complaint(empty, word).hint
    empty.save_sweep(sweep_record(0xBBBB0001, commit_review(1)))
    with pytest.raises(UsageError, match="is a sweep of 1 commits, not one review"):
        find_review(empty, "bbbb", here=here)
    assert find_review(empty, identifier(1001), here=here).sweep_id == identifier(0xBBBB0001)


def test_what_cannot_be_read_is_passed_over_or_an_error(
    history: SqliteHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = history.list(HistoryQuery()).entries
    problem = ("the entry ffff cannot be read",)
    monkeypatch.setattr(history, "list", lambda _query: Listing(entries[1:], problem))
    assert find_entry(history, "last", here=here) == entries[1]
    for method, word in (("list", "last"), ("matching", "abcd")):
        monkeypatch.setattr(history, method, lambda *_, **_more: Listing((), problem))
        error = complaint(history, word)
        assert (type(error), error.message) == (StoreError, problem[0])


HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
ALL = (named("h", severity=HIGH), named("m", severity=MEDIUM, file="a.py"), named("l", severity=LOW))


def saved(
    *, hidden: int = 0, keeps_hidden: bool = True, min_severity: Severity = LOW, **changes: object
) -> ReviewRecord:
    policy = Policy(fail_on=HIGH, min_severity=min_severity)
    shown, rest = ALL[: len(ALL) - hidden], ALL[len(ALL) - hidden :]
    kept = rest if keeps_hidden else ()
    return record(1, *shown, hidden=kept, hidden_findings=hidden, policy=policy, **changes)


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


def test_another_policy_shows_less_or_more_and_its_own_what_there_was() -> None:
    before = saved(summary="as it was said then", exit_code=1)
    assert judged(before, before.review.policy) is before.review
    review = judged(saved(), Policy(fail_on=HIGH, min_severity=HIGH))
    assert [finding.fingerprint for finding in review.findings] == ["h"]
    assert review.hidden_findings == 2
    assert review.summary.startswith("1 finding (1 high)")
    # What was hidden comes back when it was kept, in the order of the files.
    review = judged(saved(hidden=2, min_severity=HIGH), Policy(fail_on=LOW, min_severity=LOW))
    assert review.findings[0].fingerprint == "m"
    assert sorted(finding.fingerprint for finding in review.findings) == ["h", "l", "m"]
    assert (review.hidden_findings, review.exit_code) == (0, 1)


def test_what_could_decide_and_was_not_kept_is_an_error_and_never_a_pass() -> None:
    before = saved(hidden=2, keeps_hidden=False, min_severity=HIGH)
    with pytest.raises(UsageError, match="2 findings below high were not kept.*fail_on=medium") as caught:
        judged(before, Policy(fail_on=MEDIUM))
    assert "min_severity medium" in caught.value.hint
    assert judged(before, Policy(fail_on=Severity.CRITICAL)).hidden_findings == 2
    assert judged(before, Policy(fail_on=HIGH, min_severity=LOW)).hidden_findings == 2


def test_a_gap_stays_a_gap_unless_it_may_pass() -> None:
    policy = changed_policy(Policy(), fail_on=Severity.CRITICAL, min_severity=None)
    assert policy == Policy(fail_on=Severity.CRITICAL)
    gap = saved(complete=False, exit_code=3)
    assert judged(gap, policy).exit_code == 3
    accepted = judged(gap, changed_policy(policy, pass_when_incomplete=True))
    assert (accepted.exit_code, accepted.complete) == (0, False)
    # What cannot be read makes it incomplete by any policy.
    damaged = replace(saved(), problems=("finding 1 cannot be read",))
    damaged = replace(damaged, review=replace(damaged.review, findings=()))
    for policy in (damaged.review.policy, Policy(fail_on=LOW)):
        review = judged(damaged, policy)
        assert (review.complete, review.exit_code) == (False, 3)
        assert "could not review everything" in review.summary


CLEAN, BLOCKING = commit_review(1), commit_review(2, named("h", severity=HIGH))
FAILED = commit_review(3, review=None, verdict=None, score=None, failure="timeout")


def test_a_sweep_ends_as_it_ended_or_as_it_is_asked() -> None:
    def code(*commits: CommitReview, missing: dict[str, Any] | None = None, **asked: bool) -> int:
        return judged_sweep(sweep_record(1, *commits, **(missing or {})), **asked).exit_code

    assert [code(CLEAN, BLOCKING), code(CLEAN, BLOCKING, strict=True), code(CLEAN, strict=True)] == [0, 1, 0]
    assert [code(FAILED), code(FAILED, pass_when_incomplete=False)] == [0, 3]
    # What is missing of it never passes by itself.
    for missing in ({"finished": False}, {"problems": ("a commit cannot be read",)}):
        for strict in (False, True):
            assert code(CLEAN, missing=missing, strict=strict) == 3
            assert code(CLEAN, missing=missing, strict=strict, pass_when_incomplete=True) == 0
