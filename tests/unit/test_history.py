"""From what a person types to an entry."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.findings.verdict import conclude
from codeloupe.git.identity import find_identity
from codeloupe.history import (
    Answers,
    Saved,
    changed_policy,
    find_entry,
    find_review,
    judged,
    judged_sweep,
    keeping_sweep,
    opened_history,
    store_review,
)
from codeloupe.model.events import Event, Warned
from codeloupe.model.finding import Finding, Proof, Severity, Source
from codeloupe.model.history import Here, HistoryQuery, Listing, RepositoryIdentity, ReviewRecord
from codeloupe.model.ports import EventSink
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, Verdict
from codeloupe.model.sweep import CommitReview
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.sqlite import SqliteDatabase, database_path
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reports.examples import review
from tests.unit.store.history_samples import WORK_TREE, commit_review, identifier, named, record, sweep_record

HERE = Here(WORK_TREE, "shop")
ELSEWHERE = Here("tree:elsewhere", "elsewhere")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[DatabaseHistory]:
    with SqliteDatabase(tmp_path / "history") as database:
        yield DatabaseHistory(database)


@pytest.fixture
def history(empty: DatabaseHistory) -> DatabaseHistory:
    empty.save(record(0xABCD0001))
    empty.save(record(0xABCD0002))
    empty.save(record(0xAAAA0001, work_tree="tree:other"))
    return empty


def complaint(history: DatabaseHistory, word: str) -> CodeloupeError:
    with pytest.raises(CodeloupeError) as caught:
        find_entry(history, word, here=HERE)
    assert caught.value.hint
    return caught.value


def test_an_id_and_any_beginning_of_it_that_is_its_own_are_found_without_a_repository(history: DatabaseHistory) -> None:
    whole = identifier(0xABCD0001)
    for word in (whole, whole[:8], whole[:12].upper(), f" {whole} "):
        assert find_entry(history, word, here=ELSEWHERE).entry_id == whole
        assert find_review(history, word, here=ELSEWHERE).review.review_id == whole
    assert find_entry(history, "aaaa", here=ELSEWHERE).entry_id == identifier(0xAAAA0001)


def test_last_is_the_newest_of_this_work_tree(history: DatabaseHistory) -> None:
    assert find_entry(history, "last", here=HERE).entry_id == identifier(0xABCD0002)
    assert find_review(history, "last", here=HERE).review.review_id == identifier(0xABCD0002)
    history.save_sweep(sweep_record(0xABCD0003, commit_review(1)))
    assert find_entry(history, "last", here=HERE).entry_id == identifier(0xABCD0003)
    assert find_review(history, "last", here=HERE).review.review_id == identifier(0xABCD0002)


def test_a_beginning_of_several_ids_lists_them_unless_it_is_one_itself(history: DatabaseHistory) -> None:
    # Of many some, each on one line.
    scope = record(1).review.scope
    hostile = type(scope)(scope.kind, None, None, "one\ntwo\r\nthree" + "x" * 500)
    for number in range(30):
        history.save(record(0xABCD0100 + number, scope=hostile))
    lines = complaint(history, "abcd").message.split("\n")
    assert (lines[0], len(lines), lines[-1]) == ("'abcd' matches several ids:", 10, "  and more")
    assert all("one two three" in line and line.startswith("  abcd01") for line in lines[1:-1])
    assert max(map(len, lines)) < 130
    history.save(record(1, review_id="abcd"))
    assert find_entry(history, "abcd", here=HERE).entry_id == "abcd"


def test_what_names_no_entry_is_told_with_a_way_on(history: DatabaseHistory) -> None:
    message = complaint(history, "ffff").message
    assert "no entry of the history begins with 'ffff'" in message
    assert identifier(0xABCD0001)[:12] in message
    assert identifier(0xAAAA0001)[:12] not in message
    for word in ("", "-", "LAST", "xyzw", "ab cd", "%%%%", "abcd*", "a" * 65, "\x1b[31m", "äöüß"):
        assert "is not an id of the history" in complaint(history, word).message
    for word in ("a", "abc"):
        assert "at least 4 characters" in complaint(history, word).message


def test_an_empty_history_says_how_to_make_the_first_entry_and_a_sweep_is_not_one_review(
    empty: DatabaseHistory,
) -> None:
    for word in ("last", "ffff"):
        assert "codeloupe review" in complaint(empty, word).hint
    empty.save_sweep(sweep_record(0xBBBB0001, commit_review(1)))
    with pytest.raises(UsageError, match="is a sweep of 1 commits, not one review"):
        find_review(empty, "bbbb", here=HERE)
    assert find_review(empty, identifier(1001), here=HERE).sweep_id == identifier(0xBBBB0001)


def test_what_cannot_be_read_is_passed_over_or_an_error(
    history: DatabaseHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = history.list(HistoryQuery()).entries
    problem = ("the entry ffff cannot be read",)
    monkeypatch.setattr(history, "list", lambda _query: Listing(entries[1:], problem))
    assert find_entry(history, "last", here=HERE) == entries[1]
    for method, word in (("list", "last"), ("matching", "abcd")):
        monkeypatch.setattr(history, method, lambda *_, **_more: Listing((), problem))
        error = complaint(history, word)
        assert (type(error), error.message) == (StoreError, problem[0])


HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
ALL = (named("h", severity=HIGH), named("m", severity=MEDIUM, file="a.py"), named("l", severity=LOW))


def saved(*, hidden: int = 0, min_severity: Severity = LOW, **changes: object) -> ReviewRecord:
    policy = Policy(fail_on=HIGH, min_severity=min_severity)
    shown, rest = ALL[: len(ALL) - hidden], ALL[len(ALL) - hidden :]
    return record(1, *shown, hidden=rest, hidden_findings=hidden, policy=policy, **changes)


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


def test_a_gap_stays_a_gap_unless_it_may_pass() -> None:
    policy = changed_policy(Policy(), fail_on=Severity.CRITICAL, min_severity=None)
    assert policy == Policy(fail_on=Severity.CRITICAL)
    gap = saved(coverage=Coverage(files_total=1, units_failed=(FailedUnit("u", (), "timeout"),)))
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


def of_agent(severity: Severity, proof: Proof | None = None) -> Finding:
    return named("f", severity=severity, source=Source.AGENT, rule=None, proof=proof)


@each(
    ("finding", "before", "after", "ended"),
    [
        # An agent's claim that needed no proof then is pending if it needs one now.
        (of_agent(MEDIUM), HIGH, MEDIUM, (3, Verdict.INCOMPLETE)),
        # It needed proof then, and was not verified; now it counts as it was made.
        (of_agent(MEDIUM), MEDIUM, HIGH, (0, Verdict.NEEDS_WORK)),
        (of_agent(MEDIUM, Proof.UNPROVEN), MEDIUM, HIGH, (0, Verdict.NEEDS_WORK)),
        (of_agent(MEDIUM, Proof.CONFIRMED), HIGH, MEDIUM, (1, Verdict.NEEDS_WORK)),
        (of_agent(MEDIUM, Proof.REFUTED), HIGH, MEDIUM, (0, Verdict.PASS)),
        (of_agent(HIGH, Proof.UNPROVEN), HIGH, MEDIUM, (0, Verdict.NEEDS_WORK)),
        (of_agent(HIGH), HIGH, Severity.CRITICAL, (3, Verdict.INCOMPLETE)),
        # An analyser's claim needs no proof under any policy.
        (named("f", severity=MEDIUM), HIGH, MEDIUM, (1, Verdict.NEEDS_WORK)),
    ],
)
def test_another_policy_decides_again_which_claims_need_proof(
    finding: Finding, before: Severity, after: Severity, ended: tuple[int, Verdict]
) -> None:
    first = conclude(review(finding, policy=Policy(fail_on=before)))
    stored_review = replace(record(1), review=first)
    assert judged(stored_review, first.policy) is first
    again = judged(stored_review, Policy(fail_on=after))
    assert (again.exit_code, again.verdict) == ended
    assert again.complete is (ended[0] != 3)
    assert [error.kind for error in again.errors] == (["pending_claim"] if ended[0] == 3 else [])


def test_findings_that_since_last_omitted_are_judged_by_the_new_policy() -> None:
    omitted = named("o", severity=MEDIUM)
    passing = conclude(review(omitted=(omitted,)))
    assert (passing.exit_code, passing.verdict, passing.complete) == (0, Verdict.NEEDS_WORK, True)
    again = judged(replace(record(1), review=passing), Policy(fail_on=MEDIUM))
    assert (again.exit_code, again.verdict, again.complete) == (3, Verdict.INCOMPLETE, False)
    assert [error.kind for error in again.errors] == ["left_open"]
    # The other way round, and beside a pending claim, nothing is forgotten.
    both = conclude(review(of_agent(MEDIUM), omitted=(omitted,), policy=Policy(fail_on=MEDIUM)))
    assert [error.kind for error in both.errors] == ["pending_claim", "left_open"]
    assert judged(replace(record(1), review=both), Policy(fail_on=HIGH)).exit_code == 0
    grave = replace(both, omitted=(named("o", severity=HIGH),))
    assert judged(replace(record(1), review=grave), Policy(fail_on=HIGH)).exit_code == 3


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


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    return repository


@pytest.fixture
def opened() -> Iterator[DatabaseHistory]:
    with opened_history() as now:
        yield now


def made() -> Review:
    return review(named("f"), review_id=identifier(1))


async def stored(whole: Review, saved: Saved, emit: EventSink = lambda _event: None) -> Review:
    return await store_review(whole, saved, opened=opened_history, emit=emit)


def identity(opened: DatabaseHistory, path: Path) -> RepositoryIdentity:
    return asyncio.run(find_identity(path, opened))


def test_a_review_is_kept_with_all_that_a_later_look_needs_and_without_secrets(
    shop: GitRepository, opened: DatabaseHistory, tmp_path: Path
) -> None:
    before = datetime.now(UTC)
    secret = "sk-" + "ant-" + "x" * 40
    whole = replace(made(), hidden_findings=1, hidden=(named("h"),), omitted=(named("o"),))
    record: dict[str, Any] = {"prompt_version": "7", "terms": "t", "seen": ("a", "b")}
    saved = Saved(repo=shop.path, raw_outputs={"a.py": f"the key is {secret}!"}, **record)
    assert asyncio.run(stored(whole, saved)) == whole
    found = opened.get(identifier(1))
    assert found is not None
    assert found == ReviewRecord(
        review=whole,
        saved_at=found.saved_at,
        repository=identity(opened, shop.path).names[0],
        work_tree=opened.work_tree_of(shop.path),
        repository_label="repository",
        branch="main",
        tool_version=__version__,
        head=shop.git("rev-parse", "HEAD").decode().strip(),
        turn=found.turn,
        **record,
    )
    assert before <= found.saved_at <= before + timedelta(minutes=1)
    assert opened.raw_outputs(identifier(1)) == {"a.py": "the key is [redacted]!"}
    assert secret.encode() not in database_path(os.environ).read_bytes()
    # Also outside of a repository.
    asyncio.run(stored(made(), Saved(repo=tmp_path)))
    elsewhere = opened.last(opened.work_tree_of(tmp_path))
    assert elsewhere is not None
    assert (elsewhere.review.review_id, elsewhere.branch) == (identifier(1), None)


def broken_database() -> Path:
    path = database_path(os.environ)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else entirely" * 100)
    return path


class TestWhenItCannotBeKept:
    def warned(self, repo: Path, whole: Review | None = None) -> str:
        """Keep a review and give back what was warned of; the review is as it was but for the error."""
        events: list[Event] = []
        kept = asyncio.run(stored(whole or made(), Saved(repo=repo), emit=events.append))
        assert replace(kept, errors=()) == (whole or made())
        (error,) = kept.errors
        assert (error.kind, events) == ("history", [Warned(error.message)])
        assert error.message.startswith("the review is not in the history: ")
        return error.message

    def test_a_database_that_is_none_is_a_warning(self, shop: GitRepository) -> None:
        path = broken_database()
        assert "is not a database" in self.warned(shop.path)
        assert path.read_bytes() == b"something else entirely" * 100

    def test_a_place_that_cannot_be_made_and_what_is_gone_are_warnings(
        self, shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "cannot save" in self.warned(shop.path, replace(made(), exit_code=object()))
        assert "is not a directory" in self.warned(tmp_path / "gone")
        with monkeypatch.context() as patched:
            patched.setenv("PATH", str(shop.path))
            assert "git is not on the PATH" in self.warned(shop.path)
        (tmp_path / "file").touch()
        monkeypatch.setenv("CODELOUPE_HOME", str(tmp_path / "file" / "below"))
        assert "cannot create the database" in self.warned(shop.path)

    def test_a_listener_that_fails_does_not_cost_the_review_either(self, tmp_path: Path) -> None:
        def listener(_event: Event) -> None:
            raise RuntimeError("the display is gone")

        kept = asyncio.run(stored(made(), Saved(repo=tmp_path / "gone"), emit=listener))
        assert [error.kind for error in kept.errors] == ["history"]


class TestSweeps:
    def known(self, opened: DatabaseHistory) -> tuple[bool, int]:
        found = opened.get_sweep(identifier(9))
        assert found is not None
        return found.finished, len(found.sweep.commits)

    def test_what_was_finished_is_there_before_the_end(self, shop: GitRepository, opened: DatabaseHistory) -> None:
        whole = sweep_record(9, commit_review(2), commit_review(1)).sweep

        async def sweep() -> None:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path, prompt_version="7") as keeper:
                for number in (1, 2):
                    await keeper.keep_commit(commit_review(number))
                    assert self.known(opened) == (False, number)
                await keeper.finish(whole)
                assert keeper.problem == ""

        asyncio.run(sweep())
        found = opened.get_sweep(identifier(9))
        assert found is not None
        assert (found.finished, found.sweep) == (True, whole)
        assert (found.branch, found.prompt_version, found.tool_version) == ("main", "7", __version__)
        (entry,) = opened.list(HistoryQuery(repositories=identity(opened, shop.path).names)).entries
        assert (entry.entry_id, entry.commits) == (identifier(9), 2)

    def test_a_sweep_that_cannot_be_kept_warns_once_and_goes_on(self, shop: GitRepository, tmp_path: Path) -> None:
        broken_database()

        async def sweep(repo: Path, emit: Callable[[Event], None]) -> str:
            async with keeping_sweep(sweep_record(9).sweep, repo=repo, emit=emit) as keeper:
                for number in range(5):
                    await keeper.keep_commit(commit_review(number))
                await keeper.finish(sweep_record(9).sweep)
                return keeper.problem

        for repo in (shop.path, tmp_path / "gone"):
            events: list[Event] = []
            problem = asyncio.run(sweep(repo, events.append))
            assert events == [Warned(problem)]
            assert problem.startswith("the sweep is not in the history: ")

    def test_a_database_that_another_holds_does_not_hold_up_the_event_loop(
        self, shop: GitRepository, opened: DatabaseHistory
    ) -> None:
        opened.list(HistoryQuery())
        other = sqlite3.connect(database_path(os.environ), isolation_level=None)

        async def sweep() -> None:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path) as keeper:
                other.execute("BEGIN IMMEDIATE")
                saving = asyncio.create_task(keeper.keep_commit(commit_review(1)))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                assert not saving.done()
                other.execute("ROLLBACK")
                await saving
                assert keeper.problem == ""

        with contextlib.closing(other):
            asyncio.run(sweep())
        assert self.known(opened) == (False, 1)


def test_answers_and_failures_are_kept_and_prompts_are_not() -> None:
    heard: list[tuple[str, str]] = []
    answers = Answers(lambda title, text: heard.append((title, text)))
    said = [
        ("prompt of a", "look at this"),
        ("answer of a", "not JSON"),
        ("answer of a", "{}"),
        ("failure of b", "timeout"),
    ]
    for title, text in said:
        answers(title, text)
    assert (answers.texts, heard) == ({"answer of a": "not JSON\n\n{}", "failure of b": "timeout"}, said)
    # Endless ones do not fill the history.
    answers = Answers()
    for number in range(30):
        answers(f"answer of {number}", "x" * 5_000_000)
    assert [len(text) for text in answers.texts.values()] == [1_000_000] * 20
