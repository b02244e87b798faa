"""What every store of runs must do, whatever it keeps them in."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageState
from codeloupe.store.interface import RunStore
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.store.shared_runs import SharedRunStore
from tests.unit.store.run_samples import attempt, critique, event, failed_try, run, stage

# Opens a store; a second call opens the same runs.
Opened = Callable[[], RunStore]


@pytest.fixture(params=["directory", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "directory":
        yield lambda: DirectoryRunStore(tmp_path / "runs")
        return
    with PostgresDatabase(request.getfixturevalue("postgres_url")) as database:
        yield lambda: SharedRunStore(database, tmp_path / "runs")


@pytest.fixture
def store(opened: Opened) -> RunStore:
    return opened()


def full_run(number: int = 1) -> RunRecord:
    done = stage("research", StageState.COMPLETED, attempt(1, critique()), chosen=1, start_tree="t")
    waits = stage(
        "write", StageState.AWAITING_APPROVAL, attempt(1), failures=(failed_try(),), wants_approval="gate", reason="?"
    )
    return run(number, done, waits, repository=Path("/somewhere"), reason="a person decides")


class TestStates:
    def test_a_new_run_is_there_with_its_first_state_and_its_name_is_given_once(
        self, store: RunStore, opened: Opened
    ) -> None:
        directory = store.create(full_run())
        assert directory.is_dir()
        assert store.directory("00000001") == directory
        assert opened().load("00000001") == full_run()
        with pytest.raises(StoreError, match="the run 00000001 already exists"):
            store.create(run(1))
        assert store.load("00000001") == full_run()

    @pytest.mark.requirement("S9")
    def test_the_last_state_that_was_saved_is_loaded(self, store: RunStore, opened: Opened) -> None:
        store.create(run(1))
        for state in (StageState.AWAITING_APPROVAL, StageState.RUNNING, StageState.COMPLETED):
            store.save(replace(full_run(), state=state))
            assert opened().load("00000001") == replace(full_run(), state=state)

    def test_a_directory_takes_files_of_the_run(self, store: RunStore) -> None:
        directory = store.create(run(1))
        (directory / "stages" / "write").mkdir(parents=True)
        (directory / "stages" / "write" / "x.md").write_text("x")
        store.save(full_run())
        assert (store.directory("00000001") / "stages" / "write" / "x.md").read_text() == "x"

    def test_an_unknown_run_is_not_found(self, store: RunStore) -> None:
        store.create(run(1))
        uses: tuple[Callable[[str], object], ...] = (
            store.load,
            store.directory,
            store.journal,
            store.holder,
            store.remove,
            lambda name: store.save(run(9, run_id=name)),
            lambda name: store.put_approval(name, Approval(stage="a", decision=Decision.APPROVE)),
            lambda name: store.take_approval(name, "a"),
            lambda name: store.lock(name).__enter__(),
        )
        for use in uses:
            with pytest.raises(RunNotFound, match="there is no run 00000009") as raised:
                use("00000009")
            assert raised.value.hint

    def test_a_name_that_leads_elsewhere_is_none(self, store: RunStore, subtests: pytest.Subtests) -> None:
        store.create(run(1))
        odd = ("", ".", "..", "../x", "a/b", "/etc", "a\0b", "-rf", ".hidden", "a b", "ä", "a" * 101, "a\n", "a/../b")
        for name in odd:
            for use in (store.load, store.directory, store.journal, lambda name: store.create(run(1, run_id=name))):
                with subtests.test(name=name), pytest.raises(RunNotFound, match="is not a valid run name"):
                    use(name)
        for name in ("a", "A1", "20260314-091200-4f2a", "article_3.b", "0" * 32, "a" * 100):
            store.create(run(1, run_id=name))
            assert store.load(name).run_id == name


class TestJournal:
    def test_what_happened_is_told_in_order(self, store: RunStore, opened: Opened) -> None:
        store.create(run(1))
        assert store.journal("00000001") == ()
        first = event("begun", kind="run_started", facts={"stages": 2, "cost": 0.5, "resumed": False, "by": None})
        store.save(run(1), first)
        store.save(run(1))
        store.save(run(1), event("two\nlines \udcff"), event("last", stage="write"))
        told = opened().journal("00000001")
        assert told == (first, event("two\nlines \udcff"), event("last", stage="write"))

    def test_each_run_has_its_own(self, store: RunStore) -> None:
        for number in (1, 2):
            store.create(run(number))
            store.save(run(number), event(f"of {number}"))
        assert [each.message for each in store.journal("00000002")] == ["of 2"]


class TestList:
    def test_no_run_is_no_error_and_the_newest_comes_first(self, store: RunStore) -> None:
        runs, problems = store.list()
        assert (runs, dict(problems)) == ((), {})
        for number in (2, 3, 1):
            store.create(run(number))
        runs, problems = store.list()
        assert [each.run_id for each in runs] == ["00000003", "00000002", "00000001"]
        assert not problems


class TestApprovals:
    def test_a_word_is_taken_once(self, store: RunStore, opened: Opened) -> None:
        store.create(full_run())
        assert store.take_approval("00000001", "write") is None
        word = Approval(stage="write", decision=Decision.RETRY, note="shorter, please \udcff\n")
        opened().put_approval("00000001", word)
        assert store.take_approval("00000001", "research") is None
        assert store.left_approval("00000001", "research") is None
        assert store.left_approval("00000001", "write") == word
        assert store.take_approval("00000001", "write") == word
        assert store.take_approval("00000001", "write") is None
        assert store.left_approval("00000001", "write") is None

    def test_the_last_word_counts(self, store: RunStore) -> None:
        store.create(full_run())
        for decision in Decision:
            store.put_approval("00000001", Approval(stage="write", decision=decision))
        taken = store.take_approval("00000001", "write")
        assert taken is not None
        assert taken.decision is Decision.RETRY

    def test_a_stage_may_have_any_name(self, store: RunStore) -> None:
        store.create(full_run())
        for name in ("../../x", "a/b", "", "\udcff", "Ä" * 300, "nul\0"):
            word = Approval(stage=name, decision=Decision.APPROVE)
            store.put_approval("00000001", word)
            assert store.take_approval("00000001", name) == word

    def test_a_word_is_left_while_another_holds_the_lock(self, store: RunStore, opened: Opened) -> None:
        store.create(full_run())
        with store.lock("00000001"):
            opened().put_approval("00000001", Approval(stage="write", decision=Decision.REJECT))
            assert store.take_approval("00000001", "write") is not None

    def test_of_many_who_ask_one_gets_the_word(self, store: RunStore) -> None:
        store.create(full_run())
        with ThreadPoolExecutor(4) as pool:
            for _ in range(20):
                store.put_approval("00000001", Approval(stage="write", decision=Decision.APPROVE))
                taken = pool.map(store.take_approval, ["00000001"] * 4, ["write"] * 4)
                assert sorted(word is None for word in taken) == [False, True, True, True]


class TestLock:
    def test_one_at_a_time(self, store: RunStore, opened: Opened) -> None:
        store.create(run(1))
        store.create(run(2))
        with store.lock("00000001"), store.lock("00000002"):
            with pytest.raises(RunBusy, match="00000001"), opened().lock("00000001"):
                pass
            assert opened().load("00000001") == run(1)
        with opened().lock("00000001"):
            pass

    def test_it_is_free_after_a_failure_which_comes_through_as_it_is(self, store: RunStore) -> None:
        store.create(run(1))
        for failure in (OSError("disk"), ValueError("value"), KeyError("key")):
            with pytest.raises(type(failure)) as raised, store.lock("00000001"):
                raise failure
            assert raised.value is failure
        with store.lock("00000001"):
            pass
