"""Rules that hold for runs in SQLite and in Postgres alike."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError, StoreUnavailable
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageState
from codeloupe.store import open_database, runs
from codeloupe.store.interface import Connection, Database
from codeloupe.store.records import pack, to_json
from codeloupe.store.runs import DatabaseRunStore
from tests.endings import comes_to_pass
from tests.unit.store.run_samples import attempt, critique, event, failed_try, run, stage

NAME = "00000001"
# Opens a store with another connection; a second call opens the same runs.
Opened = Callable[[], DatabaseRunStore]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(url: str | None, tmp_path: Path) -> Iterator[Database]:
    with open_database(url, tmp_path) as opened:
        yield opened


@pytest.fixture
def opened(database: Database, tmp_path: Path) -> Opened:
    return lambda: DatabaseRunStore(database, tmp_path)


@pytest.fixture
def store(opened: Opened) -> DatabaseRunStore:
    return opened()


def full_run(number: int = 1) -> RunRecord:
    done = stage("research", StageState.COMPLETED, attempt(1, critique()), chosen=1, start_tree="t")
    waits = stage(
        "write", StageState.AWAITING_APPROVAL, attempt(1), failures=(failed_try(),), wants_approval="gate", reason="?"
    )
    return run(number, done, waits, repository=Path("/somewhere"), reason="a person decides")


class TestStates:
    def test_a_new_run_is_there_with_its_first_state_and_its_name_is_given_once(
        self, store: DatabaseRunStore, opened: Opened
    ) -> None:
        directory = store.create(full_run())
        assert directory.is_dir()
        assert store.directory("00000001") == directory
        assert opened().load("00000001") == full_run()
        with pytest.raises(StoreError, match="the run 00000001 already exists"):
            store.create(run(1))
        assert store.load("00000001") == full_run()

    @pytest.mark.requirement("S9")
    def test_the_last_state_that_was_saved_is_loaded(self, store: DatabaseRunStore, opened: Opened) -> None:
        store.create(run(1))
        for state in (StageState.AWAITING_APPROVAL, StageState.RUNNING, StageState.COMPLETED):
            store.save(replace(full_run(), state=state))
            assert opened().load("00000001") == replace(full_run(), state=state)

    def test_an_unknown_run_is_not_found(self, store: DatabaseRunStore) -> None:
        store.create(run(1))
        uses: tuple[Callable[[str], object], ...] = (
            store.load,
            store.directory,
            store.journal,
            store.holder,
            store.remove,
            lambda name: store.save(run(9, run_id=name)),
            lambda name: store.put_approval(name, Approval(stage="a", decision=Decision.APPROVE)),
            lambda name: store.approval(name, "a"),
            lambda name: store.lock(name).__enter__(),
        )
        for use in uses:
            with pytest.raises(RunNotFound, match="there is no run 00000009") as raised:
                use("00000009")
            assert raised.value.hint

    def test_a_name_that_leads_elsewhere_is_none(self, store: DatabaseRunStore, subtests: pytest.Subtests) -> None:
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
    def test_what_happened_is_told_in_order(self, store: DatabaseRunStore, opened: Opened) -> None:
        store.create(run(1))
        assert store.journal("00000001") == ()
        first = event("begun", kind="run_started", facts={"stages": 2, "cost": 0.5, "resumed": False, "by": None})
        store.save(run(1), first)
        store.save(run(1))
        store.save(run(1), event("two\nlines \udcff"), event("last", stage="write"))
        told = opened().journal("00000001")
        assert told == (first, event("two\nlines \udcff"), event("last", stage="write"))

    def test_each_run_has_its_own(self, store: DatabaseRunStore) -> None:
        for number in (1, 2):
            store.create(run(number))
            store.save(run(number), event(f"of {number}"))
        assert [each.message for each in store.journal("00000002")] == ["of 2"]


class TestList:
    def test_no_run_is_no_error_and_the_newest_comes_first(self, store: DatabaseRunStore) -> None:
        runs, problems = store.list()
        assert (runs, dict(problems)) == ((), {})
        for number in (2, 3, 1):
            store.create(run(number))
        runs, problems = store.list()
        assert [each.run_id for each in runs] == ["00000003", "00000002", "00000001"]
        assert not problems


class TestApprovals:
    def test_an_answer_is_stored_until_a_save_has_its_effect(self, store: DatabaseRunStore, opened: Opened) -> None:
        store.create(full_run())
        assert store.approval("00000001", "write") is None
        answer = Approval(stage="write", decision=Decision.RETRY, note="shorter, please \udcff\n", question=2)
        opened().put_approval("00000001", answer)
        assert store.approval("00000001", "research") is None
        assert store.approval("00000001", "write") == answer
        with store.lock("00000001"):
            store.save(full_run())
            assert store.approval("00000001", "write") == answer
            store.save(full_run(), answered=answer)
        assert store.approval("00000001", "write") is None

    def test_an_answer_to_another_question_is_not_removed(self, store: DatabaseRunStore) -> None:
        store.create(full_run())
        first = Approval(stage="write", decision=Decision.APPROVE, question=1)
        second = replace(first, question=2)
        store.put_approval("00000001", second)
        with store.lock("00000001"):
            store.save(full_run(), answered=first)
        store.remove_approval("00000001", first)
        assert store.approval("00000001", "write") == second
        store.remove_approval("00000001", second)
        assert store.approval("00000001", "write") is None

    def test_the_last_answer_counts(self, store: DatabaseRunStore) -> None:
        store.create(full_run())
        for decision in Decision:
            store.put_approval("00000001", Approval(stage="write", decision=decision))
        answer = store.approval("00000001", "write")
        assert answer is not None
        assert answer.decision is Decision.RETRY

    def test_a_stage_may_have_any_name(self, store: DatabaseRunStore) -> None:
        store.create(full_run())
        for name in ("../../x", "a/b", "", "\udcff", "Ä" * 300, "nul\0"):
            answer = Approval(stage=name, decision=Decision.APPROVE)
            store.put_approval("00000001", answer)
            assert store.approval("00000001", name) == answer
            store.remove_approval("00000001", answer)
            assert store.approval("00000001", name) is None

    def test_an_answer_is_stored_while_another_process_holds_the_lock(
        self, store: DatabaseRunStore, opened: Opened
    ) -> None:
        store.create(full_run())
        with store.lock("00000001"):
            opened().put_approval("00000001", Approval(stage="write", decision=Decision.REJECT))
            assert store.approval("00000001", "write") is not None


class TestLock:
    def test_one_at_a_time(self, store: DatabaseRunStore, opened: Opened) -> None:
        store.create(run(1))
        store.create(run(2))
        with store.lock("00000001"), store.lock("00000002"):
            with pytest.raises(RunBusy, match="00000001"), opened().lock("00000001"):
                pass
            assert opened().load("00000001") == run(1)
        with opened().lock("00000001"):
            pass

    def test_it_is_free_after_a_failure_which_comes_through_as_it_is(self, store: DatabaseRunStore) -> None:
        store.create(run(1))
        for failure in (OSError("disk"), ValueError("value"), KeyError("key")):
            with pytest.raises(type(failure)) as raised, store.lock("00000001"):
                raise failure
            assert raised.value is failure
        with store.lock("00000001"):
            pass

    def test_a_process_that_lost_its_lock_writes_nothing(
        self, store: DatabaseRunStore, opened: Opened, database: Database
    ) -> None:
        store.create(run(1))
        other = opened()
        with store.lock(NAME):
            database.change("UPDATE leases SET expires_at = 0")
            with other.lock(NAME):
                other.save(run(1, reason="of the other"), event("of the other"))
                with pytest.raises(RunBusy, match=f"this process no longer owns the run {NAME}") as lost:
                    store.save(run(1, reason="late"), event("late"), files={"late.md": b"late"})
                assert "nothing was overwritten" in lost.value.hint
        assert store.load(NAME).reason == "of the other"
        assert [each.message for each in store.journal(NAME)] == ["of the other"]
        assert store.file_names(NAME) == ()

    def test_a_lock_on_another_machine_is_busy_until_it_expires(
        self, store: DatabaseRunStore, database: Database
    ) -> None:
        store.create(run(1))
        expires = database.clock() + 30.0
        database.change(
            "INSERT INTO leases (name, owner, host, since, lease_seconds, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
            (f"run {NAME}", "there process 7 token x", "there", expires - 45.0, 45.0, expires),
        )
        with pytest.raises(RunBusy, match="is busy: process 7 on there"), store.lock(NAME):
            pass
        assert store.holder(NAME) is not None
        database.change("UPDATE leases SET expires_at = ?", (expires - 40.0,))
        assert store.holder(NAME) is None
        with store.lock(NAME):
            pass

    def test_a_lock_is_renewed_while_it_is_held(self, database: Database, tmp_path: Path) -> None:
        store = DatabaseRunStore(database, tmp_path, lease_seconds=3.0)
        store.create(run(1))

        def expiry() -> float:
            return float(database.select("SELECT expires_at FROM leases")[0][0])

        with store.lock(NAME):
            first = expiry()
            assert comes_to_pass(lambda: expiry() > first)
        assert database.select("SELECT name FROM leases") == []

    def test_a_lock_that_a_long_save_delays_is_renewed_from_the_end_of_the_save(
        self, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DatabaseRunStore(database, tmp_path, lease_seconds=0.3)
        store.create(run(1))
        renewed: list[float] = []

        def record(_connection: Connection, _name: str, _owner: str, *, now: float, **_values: float) -> bool:
            renewed.append(now)
            return True

        monkeypatch.setattr(runs, "renew_lease", record)
        with store.lock(NAME):
            with database.writing(f"run {NAME}"):
                before = len(renewed)
                # The thread that renews the lock begins to wait.
                time.sleep(0.5)
                saved_at = database.clock()
            assert comes_to_pass(lambda: len(renewed) > before)
        assert min(renewed[before:]) >= saved_at

    def test_the_lock_of_a_dead_process_of_this_machine_is_free_at_once(
        self, store: DatabaseRunStore, database: Database, url: str | None, tmp_path: Path
    ) -> None:
        store.create(run(1))
        dying = (
            "import os, sys; from pathlib import Path; from codeloupe.store import open_database, open_run_store\n"
            "url, directory = sys.argv[1] or None, Path(sys.argv[2])\n"
            "with open_run_store(open_database(url, directory), directory).lock(sys.argv[3]): os._exit(9)\n"
        )
        words = (sys.executable, "-c", dying, url or "", str(tmp_path), NAME)
        assert subprocess.run(words, check=False).returncode == 9
        assert len(database.select("SELECT name FROM leases")) == 1
        assert store.holder(NAME) is None
        with store.lock(NAME):
            store.save(run(1, reason="mine"))


class TestFiles:
    def test_a_file_is_stored_with_the_state_that_names_it(self, store: DatabaseRunStore, opened: Opened) -> None:
        store.create(run(1), {"definition/pipeline.yaml": b"name: x"})
        with store.lock(NAME):
            store.save(run(1), files={"output.md": b"first", "empty": b""})
            store.save(run(1), files={"output.md": b"second"})
        assert opened().file_names(NAME) == ("definition/pipeline.yaml", "empty", "output.md")
        assert opened().read_file(NAME, "output.md") == b"second"
        assert opened().read_file(NAME, "empty") == b""
        assert opened().read_file(NAME, "other.md") is None

    def test_a_file_without_a_content_is_removed_with_the_save(
        self, store: DatabaseRunStore, database: Database
    ) -> None:
        store.create(run(1))
        with store.lock(NAME):
            store.save(run(1), files={"old.md": b"old", "other.md": b"other"})
            store.save(run(1), files={"old.md": None, "never.md": None, "new.md": b"new"})
        assert store.file_names(NAME) == ("new.md", "other.md")
        assert database.select("SELECT count(*) FROM blobs") == [(2,)]

    def test_nothing_is_read_back_from_the_directory(self, store: DatabaseRunStore) -> None:
        directory = store.create(run(1), {"output.md": b"stored"})
        (directory / "output.md").write_text("edited")
        (directory / "run.json").write_text("edited")
        assert store.read_file(NAME, "output.md") == b"stored"
        assert store.load(NAME) == run(1)

    def test_copies_for_people_are_written_again_if_they_are_missing(self, store: DatabaseRunStore) -> None:
        directory = store.create(run(1), {"stages/a/output.md": b"stored", "trees/x.pack": b"for git"})
        with store.lock(NAME):
            store.save(run(1, reason="saved"), event("one"))
        assert store.has_copies(NAME)
        for path in ("run.json", "journal.jsonl", "stages/a/output.md"):
            (directory / path).unlink()
        assert not store.has_copies(NAME)
        store.write_copies(NAME)
        assert store.has_copies(NAME)
        assert (directory / "stages" / "a" / "output.md").read_bytes() == b"stored"
        assert '"saved"' in (directory / "run.json").read_text()
        assert '"one"' in (directory / "journal.jsonl").read_text()
        assert not (directory / "trees").exists()

    def test_a_copy_that_cannot_be_written_does_not_fail_the_save(
        self, store: DatabaseRunStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        directory = store.create(run(1))
        (directory / "run.json").unlink()
        (directory / "run.json").mkdir()
        with store.lock(NAME):
            store.save(run(1, reason="saved"))
        assert store.load(NAME).reason == "saved"
        assert "cannot write the copy" in caplog.text

    def test_a_content_is_stored_once_and_removed_with_its_last_run(
        self, store: DatabaseRunStore, database: Database
    ) -> None:
        for number in (1, 2):
            store.create(run(number), {"both": b"alike", "own": b"%d" % number})
        assert database.select("SELECT count(*) FROM blobs") == [(3,)]
        assert store.remove(NAME) == 1
        assert store.read_file("00000002", "both") == b"alike"
        with store.lock("00000002"):
            store.save(run(2), files={"both": b"replaced"})
        assert database.select("SELECT count(*) FROM blobs") == [(2,)]
        assert store.remove("00000002") == len(b"replaced") + 1
        assert database.select("SELECT count(*) FROM blobs") == [(0,)]
        assert database.select("SELECT count(*) FROM blob_chunks") == [(0,)]

    def test_a_large_file_is_stored_and_fetched_in_chunks(
        self, store: DatabaseRunStore, database: Database, tmp_path: Path
    ) -> None:
        large = tmp_path / "large"
        large.write_bytes(os.urandom(3 * 1024**2 + 17))
        store.create(run(1), {"trees/x.pack": large})
        assert database.select("SELECT count(*) FROM blob_chunks") == [(4,)]
        store.copy_file(NAME, "trees/x.pack", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == large.read_bytes()

    def test_a_damaged_content_is_noticed(self, store: DatabaseRunStore, database: Database) -> None:
        store.create(run(1), {"x": b"content"})
        database.change("UPDATE blob_chunks SET data = ?", (b"c0ntent",))
        with pytest.raises(StoreError, match="does not match its checksum"):
            store.read_file(NAME, "x")

    def test_a_stored_path_never_leads_out_of_the_directory(
        self, store: DatabaseRunStore, database: Database, tmp_path: Path
    ) -> None:
        store.create(run(1), {"x": b"content"})
        database.change("UPDATE run_files SET path = ?", (b"../../../x",))
        with pytest.raises(StoreError, match="its path is not valid in a run"):
            store.write_copies(NAME)
        assert not list(tmp_path.parent.glob("x"))

    def test_a_run_that_is_saved_while_another_with_the_same_content_is_removed_has_it(
        self, store: DatabaseRunStore, opened: Opened
    ) -> None:
        with ThreadPoolExecutor(2) as pool:
            for number in range(2, 12):
                store.create(run(1))
                store.create(run(number), {"x": b"alike"})
                with store.lock(NAME):
                    removing = pool.submit(opened().remove, run(number).run_id)
                    store.save(run(1), files={"y": b"alike"})
                    removing.result()
                assert store.read_file(NAME, "y") == b"alike"
                store.remove(NAME)


def test_a_damaged_run_hides_no_other_and_can_be_removed(store: DatabaseRunStore, database: Database) -> None:
    for number in (1, 2, 3):
        store.create(run(number))
    store.save(run(2), event("one"))
    database.change("UPDATE runs SET state = ? WHERE run_id = ?", (b"jno state", "00000002"))
    database.change("UPDATE run_events SET payload = ?", (b"x",))
    newer = pack(to_json(run(3, version=99)))
    database.change("UPDATE runs SET state = ? WHERE run_id = ?", (newer, "00000003"))
    runs, problems = store.list()
    assert [each.run_id for each in runs] == [NAME]
    assert "the state of the run 00000002 is damaged" in problems["00000002"]
    assert "a newer codeloupe wrote it" in problems["00000003"]
    assert "cannot be read" in store.journal("00000002")[0].message
    store.remove("00000002")
    assert store.matching("0000000") == (NAME, "00000003")


@pytest.mark.parametrize("step", ["_create", "_save", "_take_lock", "_remove"])
def test_a_step_whose_reply_was_lost_is_done_once(
    database: Database, store: DatabaseRunStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real = getattr(DatabaseRunStore, step)
    lost: list[str] = []

    def cut(self: DatabaseRunStore, *words: object) -> object:
        outcome = real(self, *words)
        if not lost:
            lost.append(step)
            raise StoreUnavailable("the reply was lost")
        return outcome

    def persist(work: Callable[[], object]) -> object:
        try:
            return work()
        except StoreUnavailable:
            return work()

    monkeypatch.setattr(DatabaseRunStore, step, cut)
    monkeypatch.setattr(database, "persist", persist)
    store.create(run(1), {"x": b"x"})
    with store.lock(NAME):
        answer = Approval(stage="s", decision=Decision.APPROVE)
        store.put_approval(NAME, answer)
        store.save(run(1), event("once"), answered=answer)
        assert store.approval(NAME, "s") is None
    assert [each.message for each in store.journal(NAME)] == ["once"]
    store.remove(NAME)
    assert (lost, store.matching("")) == ([step], ())
