"""Runs in a shared database: who may write, what a copy holds, and that a death or a restart loses nothing."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codeloupe.errors import RunBusy, StoreError, StoreUnavailable
from codeloupe.model.pipeline import Approval, Decision
from codeloupe.store.interface import RunStore
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.records import pack, to_json
from codeloupe.store.run_files import Changes, RunCopy
from codeloupe.store.runs import try_lock
from codeloupe.store.shared_runs import SharedRunStore
from tests.endings import comes_to_pass
from tests.unit.store.run_samples import event, run

NAME = "00000001"
# Opens the runs from a machine of that name.
On = Callable[[str], SharedRunStore]


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    with PostgresDatabase(postgres_url) as opened:
        yield opened


@pytest.fixture
def on(database: PostgresDatabase, tmp_path: Path) -> On:
    return lambda machine: SharedRunStore(database, tmp_path / machine, machine=machine)


def count(database: PostgresDatabase, table: str) -> int:
    ((number,),) = database.select(f"SELECT count(*) FROM {table}")
    return int(number)


def put(store: RunStore, name: str, data: bytes) -> Path:
    file = store.directory(NAME) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


class TestLock:
    def test_a_process_whose_lock_was_taken_over_overwrites_nothing(self, on: On, database: PostgresDatabase) -> None:
        a, b = on("a"), on("b")
        a.create(run(1))
        with a.lock(NAME):
            with (
                pytest.raises(RunBusy, match=f"the run {NAME} is busy: process {os.getpid()} on .* is working on it"),
                b.lock(NAME),
            ):
                pass
            database.change("UPDATE runs SET expires_at = 0")
            with b.lock(NAME):
                b.save(run(1, reason="of b"), event("of b"))
                put(a, "late.md", b"late")
                with pytest.raises(
                    RunBusy, match=f"this process no longer owns the run {NAME}: process .* is working"
                ) as lost:
                    a.save(run(1, reason="of a"), event("of a"))
                assert "nothing was overwritten" in lost.value.hint
        assert (b.load(NAME).reason, [one.message for one in b.journal(NAME)]) == ("of b", ["of b"])
        with b.lock(NAME):
            assert not (b.directory(NAME) / "late.md").exists()

    def test_a_lock_is_renewed_while_it_is_held_and_free_when_it_ran_out(
        self, database: PostgresDatabase, tmp_path: Path
    ) -> None:
        a, b = (SharedRunStore(database, tmp_path / name, lease_seconds=3.0, machine=name) for name in "ab")
        a.create(run(1))

        def ends_at() -> float:
            ((moment,),) = database.select("SELECT expires_at FROM runs")
            return float(moment)

        with a.lock(NAME):
            first = ends_at()
            assert comes_to_pass(lambda: ends_at() > first)
            assert b.holder(NAME) is not None
        assert b.holder(NAME) is None

    def test_those_who_only_fetch_the_files_never_make_a_run_busy(self, on: On) -> None:
        store = on("a")
        descriptor = os.open(store.create(run(1)) / "lock", os.O_RDWR)
        assert try_lock(descriptor)
        fetched = threading.Timer(0.3, os.close, [descriptor])
        fetched.start()
        with store.lock(NAME):
            fetched.join()

    def test_a_lock_of_a_dead_process_of_this_machine_is_free_at_once(
        self, database: PostgresDatabase, tmp_path: Path
    ) -> None:
        store = SharedRunStore(database, tmp_path / "here")
        store.create(run(1))
        holding = (
            "import os, sys; from pathlib import Path; from codeloupe.store.postgres import PostgresDatabase\n"
            "from codeloupe.store.shared_runs import SharedRunStore\n"
            "with SharedRunStore(PostgresDatabase(sys.argv[1]), Path(sys.argv[2])).lock(sys.argv[3]): os._exit(9)\n"
        )
        words = (sys.executable, "-c", holding, database.url, str(tmp_path / "there"), NAME)
        assert subprocess.run(words, check=False).returncode == 9
        assert database.select("SELECT holder IS NOT NULL FROM runs") == [(True,)]
        assert store.holder(NAME) is None
        with store.lock(NAME):
            store.save(run(1, reason="mine"))


class TestFiles:
    def test_a_copy_becomes_what_was_saved_but_for_workspaces(self, on: On) -> None:
        a, b = on("a"), on("b")
        a.create(run(1), {"definition/pipeline.yaml": b"name: x"})
        large = os.urandom(3 * 1024**2 + 17)
        with a.lock(NAME):
            program = put(a, "result/run.sh", b"#!/bin/sh")
            program.chmod(0o755)
            for name, data in {
                "stages/s/attempt-1/output.md": b"said",
                "store.git/objects/pack/pack-1.pack": large,
                "store.git/objects/pack/tmp_pack_x": b"half",
                "store.git/objects/info/alternates": b"/of/a\n",
                "stages/s/work/x.md": b"work",
                "empty": b"",
                ".x.0123456789abcdef": b"temporary",
            }.items():
                put(a, name, data)
            a.save(run(1))
            put(a, "stages/s/attempt-1/output.md", b"said more")
            put(a, "empty", b"").unlink()
            a.save(run(1))
        (b.directory(NAME) / "stages" / "s" / "work").mkdir(parents=True)
        for name in ("stray", "definition/pipeline.yaml", "stages/s/work/old"):
            put(b, name, b"another")
        with b.lock(NAME):
            there = b.directory(NAME)
            kept = {str(each.relative_to(there)): each.read_bytes() for each in there.rglob("*") if each.is_file()}
            assert {name: data for name, data in kept.items() if name not in ("lock", ".copy")} == {
                "definition/pipeline.yaml": b"name: x",
                "result/run.sh": b"#!/bin/sh",
                "stages/s/attempt-1/output.md": b"said more",
                "store.git/objects/pack/pack-1.pack": large,
            }
            assert os.access(there / "result" / "run.sh", os.X_OK)
        # Nobody else has worked on it since: what is in its workspaces counts.
        put(b, "stages/s/work/new", b"new")
        with b.lock(NAME):
            assert (b.directory(NAME) / "stages" / "s" / "work" / "new").exists()

    def test_what_is_damaged_in_the_database_is_noticed(self, on: On, database: PostgresDatabase) -> None:
        on("a").create(run(1), {"x": b"content", "y": b"other"})
        database.change("UPDATE run_chunks SET data = 'c0ntent' WHERE data = 'content'")
        what = f"the file 'x' of the run {NAME} is damaged in the database"
        with pytest.raises(StoreError, match=what), on("b").lock(NAME):
            pass
        database.change("UPDATE run_files SET path = '../../x' WHERE path = 'x'")
        with pytest.raises(StoreError, match="its path is not valid in a run"), on("b").lock(NAME):
            pass

    def test_what_is_alike_is_stored_once_and_goes_with_the_last_run_that_has_it(
        self, on: On, database: PostgresDatabase, tmp_path: Path
    ) -> None:
        store = on("a")
        for number in (1, 2):
            store.create(run(number), {"both": b"alike", "own": b"%d" % number})
        assert count(database, "run_blobs") == 3
        assert store.remove(NAME) == 1
        assert (count(database, "run_blobs"), count(database, "run_chunks"), count(database, "run_files")) == (2, 2, 2)
        with on("b").lock("00000002"):
            assert (on("b").directory("00000002") / "both").read_bytes() == b"alike"
        assert store.remove("00000002") == 6
        assert (count(database, "run_blobs"), count(database, "run_chunks")) == (0, 0)
        # Another machine notices when it has to do with runs again.
        left = tmp_path / "b"
        assert [path.name for path in left.glob("*/*") if path.is_dir()] == ["00000002"]
        on("b").create(run(3))
        assert [path.name for path in left.glob("*/*") if path.is_dir()] == ["00000003"]

    def test_a_large_file_takes_little_memory(self, database: PostgresDatabase, tmp_path: Path) -> None:
        SharedRunStore(database, tmp_path / "a").create(run(1))
        moving = (
            "import resource, sys; from pathlib import Path\n"
            "from codeloupe.store.postgres import PostgresDatabase\n"
            "from codeloupe.store.shared_runs import SharedRunStore\n"
            "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "database, root, run_id = PostgresDatabase(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]\n"
            "for megabytes in (2, 50):\n"
            "    a, b = (SharedRunStore(database, root / name) for name in 'ab')\n"
            "    with a.lock(run_id):\n"
            "        with (a.directory(run_id) / 'large').open('wb') as sink:\n"
            "            for number in range(megabytes): sink.write(number.to_bytes(8, 'big') * 2**17)\n"
            "        a.save(a.load(run_id))\n"
            "    with b.lock(run_id): assert (b.directory(run_id) / 'large').stat().st_size == megabytes * 2**20\n"
            "    if megabytes == 2: before = peak()\n"
            "print(peak() - before)\n"
        )
        words = (sys.executable, "-c", moving, database.url, str(tmp_path), NAME)
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        assert int(done.stdout) < 20 * 1024, "kilobytes more for fifty megabytes than for two"


def test_one_damaged_run_hides_no_other_and_can_be_removed(on: On, database: PostgresDatabase) -> None:
    store = on("a")
    for number in (1, 2, 3):
        store.create(run(number))
    store.save(run(2), event("one"))
    database.change("UPDATE runs SET state = 'jno state' WHERE run_id = '00000002'")
    database.change("UPDATE run_events SET payload = 'x'")
    newer = pack(to_json(run(3, version=99)))
    database.change("UPDATE runs SET state = ? WHERE run_id = '00000003'", (newer,))
    runs, problems = store.list()
    assert [each.run_id for each in runs] == [NAME]
    assert "the state of the run 00000002 is damaged" in problems["00000002"]
    assert "a newer codeloupe wrote it" in problems["00000003"]
    assert "cannot be read" in store.journal("00000002")[0].message
    store.remove("00000002")
    assert store.matching("0000000") == (NAME, "00000003")


def test_content_that_goes_with_another_run_while_it_is_saved_is_sent_again(
    on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, upload = on("a"), RunCopy.upload
    store.create(run(2), {"x": b"alike"})
    store.create(run(1))

    def racing(copy: RunCopy, changes: Changes) -> None:
        upload(copy, changes)
        if "00000002" in store.matching(""):
            on("b").remove("00000002")

    monkeypatch.setattr(RunCopy, "upload", racing)
    with store.lock(NAME):
        put(store, "y", b"alike")
        store.save(run(1))
    with on("c").lock(NAME):
        assert (on("c").directory(NAME) / "y").read_bytes() == b"alike"


@pytest.mark.parametrize("step", ["_create", "_save", "_take", "_marked", "_remove"])
def test_what_got_through_before_the_connection_was_lost_is_done_once(
    on: On, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store, real, lost = on("a"), getattr(SharedRunStore, step), list[str]()

    def cut(self: SharedRunStore, *words: object) -> object:
        outcome = real(self, *words)
        if not lost:
            lost.append(step)
            raise StoreUnavailable("the answer was lost")
        return outcome

    monkeypatch.setattr(SharedRunStore, step, cut)
    store.create(run(1), {"x": b"x"})
    with store.lock(NAME):
        store.save(run(1), event("once"))
        store.put_approval(NAME, Approval(stage="s", decision=Decision.APPROVE))
        assert store.take_approval(NAME, "s") is not None
    assert [each.message for each in store.journal(NAME)] == ["once"]
    store.remove(NAME)
    assert (lost, store.matching("")) == ([step], ())
