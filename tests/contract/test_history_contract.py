"""What every history must do, whatever keeps it."""

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import Usage
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.history import (
    Dismissal,
    EntryKind,
    HistoryQuery,
    PruneRule,
    ReviewRecord,
    SeverityCounts,
    SweepRecord,
    TrendKey,
)
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.sweep import CommitSweep
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.interface import History
from tests.postgres import made_database
from tests.unit.store.history_samples import (
    REPOSITORY,
    WORK_TREE,
    any_review,
    any_sweep,
    at,
    commit_review,
    identifier,
    named,
    record,
    sweep_record,
)

HERE = (REPOSITORY,)


@pytest.fixture(params=["sqlite", "postgres"])
def history(request: pytest.FixtureRequest) -> Iterator[History]:
    with made_database(request) as database:
        yield DatabaseHistory(database)


def listed(history: History, **query: object) -> list[str]:
    found = history.list(HistoryQuery(**{"repositories": HERE, **query}))  # type: ignore[arg-type]  # by name
    assert found.problems == ()
    return [entry.entry_id for entry in found.entries]


class TestReviews:
    def test_what_was_saved_is_got_whole(self, history: History) -> None:
        hidden = (named("f3", severity=Severity.LOW),)
        saved = record(1, named("f1"), named("f2"), hidden=hidden, hidden_findings=1, terms="t", seen=("b", "a"))
        history.save(saved)
        found = history.get(identifier(1))
        assert found is not None
        assert replace(found, turn=0) == saved
        assert history.get(identifier(2)) is None

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
    @given(before=any_review)
    @pytest.mark.requirement("C11")
    def test_any_review_comes_back_exactly(self, history: History, before: Review) -> None:
        history.save(record(review=before))
        found = history.get(before.review_id)
        assert found is not None
        assert found.problems == ()
        assert found.review == before
        assert repr(found.review) == repr(before)

    def test_a_review_saved_again_takes_the_place_of_the_first(self, history: History) -> None:
        history.save(record(1, named("f1"), named("f2")), raw_outputs={"a.py": "said"})
        history.save(record(1, named("f9")))
        found = history.get(identifier(1))
        assert found is not None
        assert [finding.fingerprint for finding in found.review.findings] == ["f9"]
        assert listed(history) == [identifier(1)]
        assert history.raw_outputs(identifier(1)) == {"a.py": "said"}
        assert history.findings_of(["f1"]) == ()

    def test_raw_outputs_come_back_by_unit(self, history: History) -> None:
        outputs = {"a.py (security)": "x" * 5000, "b\udcff.py": '{"findings": []}\ud800', "": ""}
        history.save(record(1), raw_outputs=outputs)
        assert history.raw_outputs(identifier(1)) == outputs
        assert history.raw_outputs(identifier(2)) == {}

    def test_what_cannot_be_written_is_refused_and_nothing_is_saved(self, history: History) -> None:
        odd = record(1, named("f1", rule=object()))
        with pytest.raises(StoreError, match=f"cannot save the review {identifier(1)}") as caught:
            history.save(odd)
        assert caught.value.hint
        assert listed(history) == []

    def test_a_review_of_a_sweep_that_is_not_saved_is_refused(self, history: History) -> None:
        with pytest.raises(StoreError, match="before its sweep"):
            history.save(record(1, sweep_id=identifier(9)))
        assert history.get(identifier(1)) is None


class TestLists:
    def test_the_newest_come_first_and_only_so_many(self, history: History) -> None:
        for number in (1, 2, 3):
            history.save(record(number, saved_at=at(days=max(2, number))))  # of two at one moment the later comes first
        assert listed(history) == [identifier(3), identifier(2), identifier(1)]
        assert listed(history, limit=2) == [identifier(3), identifier(2)]

    @pytest.mark.defect("V10")
    def test_the_order_is_that_of_saving_whatever_the_clock_said(self, history: History) -> None:
        history.save(record(1, named("f1")))
        history.save(record(2, named("f1", status=FindingStatus.FIXED), saved_at=at(days=9_000)))
        history.save_sweep(sweep_record(8, commit_review(5)))
        history.save(record(3, named("f1")))
        assert listed(history) == [identifier(3), identifier(8), identifier(2), identifier(1)]
        assert _id(history.last(WORK_TREE)) == identifier(3)
        assert [one.review_id for one in history.findings_of(["f1"])] == [identifier(1), identifier(2), identifier(3)]
        (by_reviewer,) = history.trends([TrendKey.REVIEWER])
        assert [row.fixed for row in by_reviewer.rows] == [0]
        history.prune(PruneRule(keep_last=2))
        assert listed(history) == [identifier(3), identifier(8)]

    def test_the_order_is_that_of_saving_when_the_clock_of_the_database_goes_back(
        self, history: DatabaseHistory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = iter((2e9, 1e9, 1e9))
        monkeypatch.setattr(history.database, "clock", lambda: next(seconds))
        for number in (1, 2):
            history.save(record(number))
        history.save_sweep(sweep_record(3))
        assert listed(history) == [identifier(3), identifier(2), identifier(1)]

    def test_a_repository_is_found_by_any_of_its_names_and_no_other_is(self, history: History) -> None:
        history.save(record(1))
        history.save(record(2, repository="path:x"))
        history.save(record(3, repository="root:other"))
        assert listed(history, repositories=(REPOSITORY, "path:x")) == [identifier(2), identifier(1)]
        assert listed(history, repositories=None) == [identifier(3), identifier(2), identifier(1)]
        assert listed(history, repositories=()) == []

    def test_a_branch_can_be_asked_for(self, history: History) -> None:
        for number, branch in enumerate(("topic", "ma\udcffn", None), 1):
            history.save(record(number, branch=branch))
        assert [listed(history, branch=branch) for branch in ("topic", "ma\udcffn")] == [
            [identifier(1)],
            [identifier(2)],
        ]

    def test_an_entry_tells_what_a_list_shows(self, history: History) -> None:
        findings = (
            named("a", severity=Severity.CRITICAL),
            named("b", severity=Severity.LOW),
            named("c", severity=Severity.LOW),
            named("d", status=FindingStatus.REFUTED),
            named("e", counts=False, is_pending=True),
            named("f", severity=Severity.MEDIUM, anchored=False),
        )
        history.save(record(1, *findings, complete=False, exit_code=3, usage=Usage(cost_usd=0.5, unknown_costs=2)))
        (entry,) = history.list(HistoryQuery(repositories=HERE)).entries
        assert entry.kind is EntryKind.REVIEW
        assert entry.saved_at == at(days=1)
        assert (entry.repository_label, entry.branch, entry.scope) == ("shop", "topic", "branch")
        assert entry.description == "topic against main"
        assert (entry.verdict, entry.complete, entry.exit_code) == ("FAIL", False, 3)
        assert entry.counts == SeverityCounts(critical=1, medium=1, low=2)
        assert [entry.counts.of(step) for step in Severity] == [1, 0, 1, 2]
        assert entry.set_aside == 2
        assert (entry.reviewer, entry.cost_usd, entry.unknown_costs) == ("offline", 0.5, 2)

    def test_entries_are_found_by_the_beginning_of_their_id(self, history: History) -> None:
        history.save(record(0xABCD0001))
        history.save(record(0xABCD0002))
        history.save(record(0xABCE0001))
        history.save_sweep(sweep_record(0xABCD0003, commit_review(1)))

        def found(prefix: str, limit: int = 10) -> set[str]:
            return {entry.entry_id for entry in history.matching(prefix, limit=limit).entries}

        assert found("abcd") == {identifier(number) for number in (0xABCD0001, 0xABCD0002, 0xABCD0003)}
        assert found("abce") == {identifier(0xABCE0001)}
        assert found(identifier(0xABCD0002)) == {identifier(0xABCD0002)}
        assert found(identifier(1001)) == {identifier(1001)}
        assert found("ffff") == set()
        assert found("abc_") == found("abc%") == found("abc*") == set()
        assert len(found("abc", limit=2)) == 2


class TestLast:
    @pytest.mark.defect("E6")
    def test_the_newest_review_of_a_work_tree_is_the_last(self, history: History) -> None:
        assert history.last(WORK_TREE) is None
        for number in (1, 2, 3):
            history.save(record(number, work_tree=("tree:other" if number == 3 else WORK_TREE)))
        assert _id(history.last(WORK_TREE)) == identifier(2)
        assert _id(history.last("tree:other")) == identifier(3)
        history.save_sweep(sweep_record(5, commit_review(1)))
        assert _id(history.last(WORK_TREE)) == identifier(2), "a review of a sweep is not the last"
        assert history.last("tree:elsewhere") is None

    def test_the_commits_that_repositories_go_by_are_known(self, history: History) -> None:
        assert list(history.known_commits()) == []
        for number, repository in enumerate(("commit:a", "origin:b", "commit:c", "commit:a", "commit:e"), start=1):
            history.save(record(number, repository=repository))
        history.save_sweep(sweep_record(7, commit_review(11), repository="commit:d"))
        assert sorted(history.known_commits()) == ["a", "c", "d", "e"]

    @pytest.mark.defect("E15")
    def test_reviews_before_the_last_are_counted_back(self, history: History) -> None:
        for number in (1, 2, 3):
            history.save(record(number))
            history.save(record(number + 10, work_tree="tree:other"))
        found = [history.last(WORK_TREE, back=back) for back in range(4)]
        assert [one and one.review.review_id for one in found] == [*map(identifier, (3, 2, 1)), None]

    @pytest.mark.defect("E6")
    def test_a_work_tree_has_its_own_list_trends_and_pruning(self, history: History) -> None:
        for number in (1, 2):
            history.save(record(number))
            history.save(record(number + 10, work_tree="tree:other"))
        history.save_sweep(sweep_record(5, commit_review(1), work_tree="tree:other"))
        assert listed(history, work_tree=WORK_TREE) == [identifier(2), identifier(1)]
        assert listed(history, work_tree="tree:other") == [identifier(5), identifier(12), identifier(11)]
        assert len(listed(history)) == 5
        (trends,) = history.trends([TrendKey.REVIEWER], work_tree=WORK_TREE)
        assert [row.reviews for row in trends.rows] == [2]
        assert history.prune(PruneRule(keep_last=0, work_tree=WORK_TREE)).reviews == 2
        assert len(listed(history)) == 3


def _id(found: ReviewRecord | None) -> str | None:
    return None if found is None else found.review.review_id


class TestSweeps:
    def test_a_sweep_is_one_entry_and_comes_back_whole(self, history: History) -> None:
        saved = sweep_record(
            7,
            commit_review(1, named("a"), named("b", severity=Severity.LOW)),
            commit_review(2, review=None, verdict=None, score=None, failure="timeout"),
            commit_review(3),
        )
        history.save_sweep(saved)
        (entry,) = history.list(HistoryQuery(repositories=HERE)).entries
        assert (entry.entry_id, entry.kind, entry.commits) == (identifier(7), EntryKind.SWEEP, 3)
        assert entry.counts == SeverityCounts(high=1, low=1)
        assert (entry.verdict, entry.complete, entry.summary) == (None, False, "3 commits reviewed")
        assert (entry.cost_usd, entry.duration_seconds) == (1.5, 30.0)
        assert history.get_sweep(identifier(7)) == saved
        assert history.get_sweep(identifier(8)) is None
        its = history.get(identifier(1001))
        assert its is not None
        assert (its.sweep_id, its.branch, its.review) == (identifier(7), "main", saved.sweep.commits[0].review)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large], max_examples=20)
    @given(before=any_sweep)
    def test_any_sweep_comes_back_exactly(self, history: History, before: CommitSweep) -> None:
        reviews = [commit.review.review_id for commit in before.commits if commit.review is not None]
        commits = [commit.commit.sha for commit in before.commits]
        # A sweep has no commit and no review twice.
        if len(set(reviews)) < len(reviews) or len(set(commits)) < len(commits):
            return
        history.save_sweep(sweep_record(1, sweep=before))
        found = history.get_sweep(before.sweep_id)
        assert found is not None
        assert (found.sweep, found.problems) == (before, ())

    def test_what_agents_printed_for_a_commit_stays_when_its_sweep_is_saved_whole(self, history: History) -> None:
        # Too odd to be packed into nothing.
        said = {"a.py": "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(200))}
        review_id = identifier(1001)
        history.add_commit(sweep_record(7), commit_review(1), raw_outputs=said)
        assert history.raw_outputs(review_id) == said
        everything = PruneRule(keep_last=0)
        size_bytes = history.prune(everything, dry_run=True).size_bytes
        history.save_sweep(sweep_record(7, commit_review(1)))
        assert history.raw_outputs(review_id) == said
        assert history.prune(everything, dry_run=True).size_bytes == pytest.approx(size_bytes, rel=0.2)
        history.prune(everything)
        assert history.raw_outputs(review_id) == {}

    def test_a_sweep_that_goes_on_is_there_commit_by_commit(self, history: History) -> None:
        going = sweep_record(7)
        history.add_commit(going, commit_review(1, named("a")))
        history.add_commit(going, commit_review(2))
        (entry,) = history.list(HistoryQuery(repositories=HERE)).entries
        assert (entry.commits, entry.complete, entry.summary) == (2, False, "not finished")
        assert (entry.counts, entry.cost_usd) == (SeverityCounts(high=1), 1.0)
        found = history.get_sweep(identifier(7))
        assert found is not None
        assert not found.finished
        assert found.sweep.commits == (commit_review(1, named("a")), commit_review(2))
        done = sweep_record(7, commit_review(2), commit_review(1, named("a")), commit_review(3))
        history.save_sweep(done)
        assert history.get_sweep(identifier(7)) == done
        (entry,) = history.list(HistoryQuery(repositories=HERE)).entries
        assert (entry.commits, entry.complete, entry.counts) == (3, True, SeverityCounts(high=1))

    def test_an_outline_has_the_commits_and_the_entries_of_their_reviews(self, history: History) -> None:
        commits = (commit_review(1, named("a")), commit_review(2, review=None, failure="timeout"))
        history.save_sweep(sweep_record(7, *commits))
        outline = history.outline(identifier(7))
        assert outline is not None
        assert outline.record.sweep.commits == tuple(replace(commit, review=None) for commit in commits)
        first, second = outline.reviews
        assert first is not None
        assert (first.entry_id, first.counts) == (identifier(1001), SeverityCounts(high=1))
        assert second is None
        assert history.outline(identifier(8)) is None

    def test_the_header_that_a_commit_is_added_with_says_what_it_belongs_to(self, history: History) -> None:
        history.add_commit(sweep_record(7, commit_review(8), commit_review(9)), commit_review(1))
        found = history.get_sweep(identifier(7))
        assert isinstance(found, SweepRecord)
        assert [commit.commit.sha for commit in found.sweep.commits] == [f"{1:040x}"]


class TestFindings:
    def test_a_finding_is_followed_through_the_reviews(self, history: History) -> None:
        history.save(record(1, named("f1", file="a\udcff.py"), named("f2")))
        history.save(record(2, named("f1", status=FindingStatus.FIXED)))
        history.save(record(3, hidden=(named("f1", severity=Severity.LOW),)))
        seen = history.findings_of(["f1", "f7"])
        assert [(s.fingerprint, s.review_id, s.status, s.is_open) for s in seen] == [
            ("f1", identifier(1), FindingStatus.NEW, True),
            ("f1", identifier(2), FindingStatus.FIXED, False),
            ("f1", identifier(3), FindingStatus.NEW, True),
        ]
        assert [s.saved_at for s in seen] == [at(days=1), at(days=2), at(days=3)]
        assert seen[2].severity is Severity.LOW

    def test_a_repository_and_thousands_at_once_can_be_asked_for(self, history: History) -> None:
        names = [f"f{number}" for number in range(3000)]
        history.save(record(1, *(named(name) for name in names)))
        history.save(record(2, named("f1"), repository="root:other"))
        assert [s.review_id for s in history.findings_of(["f1"], repositories=HERE)] == [identifier(1)]
        assert len(history.findings_of(["f1"])) == 2
        assert history.findings_of([]) == ()
        assert len(history.findings_of(names)) == 3001


class TestDismissals:
    def test_the_last_word_on_a_finding_counts(self, history: History) -> None:
        first = Dismissal(fingerprint="f1", repository=REPOSITORY, reason="on purpose", who="ada", at=at(days=1))
        second = replace(first, reason="tests only \ud800", at=at(days=3))
        other = replace(first, fingerprint="f2", at=at(days=2))
        for each in (first, second, other, replace(first, repository="root:other")):
            history.dismiss(each)
        assert history.dismissals(HERE) == (other, second)
        assert history.dismissals(("path:x",)) == ()

    def test_one_can_be_taken_back(self, history: History) -> None:
        history.dismiss(Dismissal(fingerprint="f1", repository=REPOSITORY, reason="", who="", at=at()))
        assert history.take_back("f1", repositories=("path:x", REPOSITORY))
        assert not history.take_back("f1", repositories=HERE)
        assert history.dismissals(HERE) == ()


class TestTrends:
    @pytest.fixture
    def lived(self, history: History) -> History:
        """Two weeks and a pause: three findings in the first, of which one was fixed and one came back."""
        codex = ReviewerInfo("codex", "as requested")
        history.save(record(1, named("f1"), named("f2"), named("f3", expert="tests"), named("r", status=REFUTED)))
        history.save(record(2, named("f1", status=FIXED), named("f2", status=FIXED), named("f3", status=OPEN)))
        history.save(record(21, named("f2"), named("f4", expert=None), reviewer=codex))
        history.save(record(22, named("f1"), repository="root:other", usage=Usage(unknown_costs=3)))
        return history

    @pytest.mark.requirement("C11")
    def test_by_week(self, lived: History) -> None:
        rows = lived.trends([TrendKey.WEEK], repositories=HERE)[0].rows
        assert [(row.key, row.findings, row.fixed, row.reviews) for row in rows] == [
            ("2026-03-02", 3, 1, 2),
            ("2026-03-09", 0, 0, 0),
            ("2026-03-16", 0, 0, 0),
            ("2026-03-23", 1, 0, 1),
        ]
        assert (rows[0].cost_usd, rows[0].duration_seconds) == (0.5, 20.0)
        assert rows[0].fixed_share == pytest.approx(1 / 3)
        assert rows[1].fixed_share is None

    def test_by_reviewer_and_by_expert_who_shares_its_reviews_with_others(self, lived: History) -> None:
        rows = lived.trends([TrendKey.EXPERT], repositories=HERE)[0].rows
        assert [(row.key, row.findings, row.fixed) for row in rows] == [
            ("security", 2, 1),
            ("(no expert)", 1, 0),
            ("tests", 1, 0),
        ]
        assert all(row.cost_usd is None and row.reviews is None for row in rows)
        rows = lived.trends([TrendKey.REVIEWER], repositories=HERE)[0].rows
        assert [(row.key, row.reviews, row.findings, row.fixed) for row in rows] == [
            ("offline", 2, 3, 1),
            ("codex", 1, 1, 0),
        ]
        # A finding of two repositories is two.
        rows = lived.trends([TrendKey.REVIEWER])[0].rows
        assert [(row.key, row.findings, row.unknown_costs) for row in rows] == [("offline", 4, 3), ("codex", 1, 0)]

    def test_without_reviews_there_are_no_rows(self, history: History) -> None:
        assert [(told.by, told.rows) for told in history.trends(list(TrendKey))] == [(key, ()) for key in TrendKey]

    def test_a_clock_that_was_wrong_by_decades_does_not_fill_the_screen(self, history: History) -> None:
        for number, weeks in ((1, -2_500), (2, 0)):
            history.save(record(number, saved_at=at(weeks=weeks)))
        assert [row.reviews for row in history.trends([TrendKey.WEEK])[0].rows] == [1, 1]

    def test_hidden_findings_and_what_was_never_open_do_not_count(self, history: History) -> None:
        history.save(record(1, named("f2", status=FIXED), hidden=(named("f1"),)))
        assert [row.findings for row in history.trends([TrendKey.WEEK])[0].rows] == [0]


REFUTED, FIXED, OPEN = FindingStatus.REFUTED, FindingStatus.FIXED, FindingStatus.OPEN


class TestPruning:
    @pytest.fixture
    def full(self, history: History) -> History:
        for number in range(1, 6):
            history.save(record(number, named("a"), named("b")), raw_outputs={"u": "x" * 3000})
        history.save_sweep(sweep_record(6, commit_review(1, named("c")), commit_review(2)))
        history.save(record(7, repository="root:other"))
        return history

    def test_what_is_older_goes(self, full: History) -> None:
        removed = full.prune(PruneRule(older_than=at(days=4)))
        assert (removed.reviews, removed.sweeps, removed.findings) == (3, 0, 6)
        assert removed.size_bytes > 0
        assert listed(full, repositories=None) == [identifier(number) for number in (7, 6, 5, 4)]
        assert full.get(identifier(1)) is None
        assert full.raw_outputs(identifier(1)) == {}
        assert len(full.findings_of(["a"])) == 2

    def test_all_but_the_newest_go_and_these_stay_however_old(self, full: History) -> None:
        full.prune(PruneRule(keep_last=3, repositories=HERE))
        assert listed(full, repositories=None) == [identifier(number) for number in (7, 6, 5, 4)]
        full.prune(PruneRule(older_than=at(days=100), keep_last=2))
        assert listed(full, repositories=None) == [identifier(7), identifier(6)]
        full.prune(PruneRule(keep_last=0))
        assert listed(full, repositories=None) == []
        assert full.get(identifier(1001)) is None
        assert full.findings_of(["a", "b", "c"]) == ()

    def test_a_sweep_goes_with_its_reviews(self, full: History) -> None:
        removed = full.prune(PruneRule(older_than=at(days=6.5), keep_last=0))
        assert (removed.reviews, removed.sweeps, removed.findings) == (7, 1, 11)
        assert full.get_sweep(identifier(6)) is None
        assert full.get(identifier(1001)) is None

    def test_the_oldest_go_until_the_rest_fits(self, full: History) -> None:
        everything = full.prune(PruneRule(max_bytes=0), dry_run=True).size_bytes
        one = full.prune(PruneRule(older_than=at(days=1.5)), dry_run=True).size_bytes
        full.prune(PruneRule(max_bytes=everything - one))
        assert listed(full, repositories=None) == [identifier(number) for number in (7, 6, 5, 4, 3, 2)]
        full.prune(PruneRule(max_bytes=0, keep_last=1, older_than=at()))
        assert listed(full, repositories=None) == [identifier(7)]

    def test_a_dry_run_and_a_rule_that_says_nothing_remove_nothing(self, full: History) -> None:
        assert full.prune(PruneRule(keep_last=0), dry_run=True).reviews == 8
        assert full.prune(PruneRule()).reviews == 0
        assert listed(full, repositories=None) == [identifier(number) for number in range(7, 0, -1)]
