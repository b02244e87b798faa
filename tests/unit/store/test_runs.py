"""Runs on disk: exact, private, whole, locked by one, and never led astray by what lies in their directories."""

import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageState
from codeloupe.store.records import Unreadable, from_json, read_json
from codeloupe.store.runs import VERSION, DirectoryRunStore, line_of, run_of
from tests.rows import each
from tests.unit.store.history_samples import any_of
from tests.unit.store.run_samples import START, attempt, critique, event, failed_try, run, stage

NAME = "00000001"
ANSWER = Approval(stage="write", decision=Decision.APPROVE)
_HOLD = """
import subprocess, sys
from pathlib import Path
from codeloupe.store.runs import DirectoryRunStore

with DirectoryRunStore(Path(sys.argv[1])).lock(sys.argv[2]):
    if sys.argv[3] == "with a child":
        child = subprocess.Popen(("sleep", "60"))
        print(child.pid, flush=True)
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pipelines"


@pytest.fixture
def store(root: Path) -> DirectoryRunStore:
    return DirectoryRunStore(root)


@pytest.fixture
def made(store: DirectoryRunStore) -> Path:
    return store.create(run(1))


def full(*_: object, **__: object) -> int:
    """A full disk, which cannot be had in a test."""
    raise OSError(28, "No space left on device")


def document(**changes: Any) -> bytes:
    """A run as it is written, with some keys changed."""
    before = run(1, stage("write", StageState.GATING, attempt(1, critique()), failures=(failed_try(),)))
    return json.dumps({**json.loads(line_of(before)), **changes}).encode()


def place(path: Path, kind: str, target: Path) -> None:
    """Put something there that is no file of ours."""
    if kind.endswith("link"):
        path.symlink_to(target)
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("a file")


class TestJson:
    @pytest.mark.requirement("S9")
    @settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow], max_examples=25)
    @given(before=any_of(RunRecord))
    def test_any_run_comes_back_exactly(self, before: RunRecord) -> None:
        known = replace(before, version=VERSION)
        after = run_of(line_of(known))
        # An int in the place of a bool is equal, but is written in another way.
        assert (after, line_of(after)) == (known, line_of(known))

    @given(event=any_of(PipelineEvent), answer=any_of(Approval))
    def test_any_event_and_answer_come_back_exactly_in_one_line(self, event: PipelineEvent, answer: Approval) -> None:
        assert from_json(PipelineEvent, read_json(line_of(event))) == event
        assert from_json(Approval, read_json(line_of(answer))) == answer
        assert line_of(event).count(b"\n") == 1
        assert line_of(event).endswith(b"\n")

    def test_what_is_written_is_plain_json_that_an_older_version_may_have_written(self) -> None:
        elsewhere = datetime(2026, 3, 14, 11, 12, 0, 5, tzinfo=timezone(timedelta(hours=2)))
        written = json.loads(line_of(run(1, started_at=elsewhere)))
        assert (written["version"], written["started_at"]) == (1, "2026-03-14T11:12:00.000005+02:00")
        assert (written["inputs"], written["file"]) == ({"topic": "otters"}, "/pipelines/article.yaml")
        older = {**json.loads(document()), "colour": "red"}
        del older["reason"], older["stages"][0]["attempts"], older["inputs"]
        read = run_of(json.dumps(older).encode())
        assert (read.reason, read.stages[0].attempts, dict(read.inputs)) == ("", (), {})

    @each(
        ("changed", "words"),
        [
            (
                {"version": VERSION + 1, "stages": "in another form"},
                f"a newer codeloupe wrote it .version {VERSION + 1}",
            ),
            *(({"version": odd}, "no version") for odd in (None, "1", True, 0, 1.0)),
            ({"run_id": 7}, r"\$.run_id"),
            ({"state": "asleep"}, r"'asleep' - at `\$.state`"),
            ({"stages": [{}]}, r"`name` - at `\$.stages\[0\]`"),
            ({"started_at": "2026-03-14T09:12:00"}, r"timezone component - at `\$.started_at`"),
        ],
    )
    def test_what_is_no_state_of_this_version_is_refused_with_its_place(self, changed: Any, words: str) -> None:
        with pytest.raises(Unreadable, match=words):
            run_of(document(**changed))
        whole = document()
        for data in (*(whole[:cut] for cut in range(0, 1200, 97)), b"null", b"[" * 99_999, b'{"version":1}'):
            with pytest.raises(Unreadable):
                run_of(data)

    def test_what_is_no_data_is_not_written(self, store: DirectoryRunStore, made: Path) -> None:
        for record in (run(1, inputs={"a": object()}), run(1, reason=10**5000)):
            with pytest.raises(StoreError, match=f"cannot write the state of the run {NAME}"):
                store.save(record)
        assert store.load(NAME) == run(1)


class TestFiles:
    def test_everything_is_for_this_user_alone_and_no_temporary_file_is_left(
        self, store: DirectoryRunStore, made: Path, root: Path
    ) -> None:
        for _ in range(3):
            store.save(run(1), event("x"))
        store.put_approval(NAME, ANSWER)
        store.take_approval(NAME, "write")
        with store.lock(NAME):
            pass
        assert [path.name for path in root.iterdir()] == [NAME]
        assert {path.name for path in made.rglob("*")} == {"run.json", "journal.jsonl", "approvals", "lock"}
        for path in (root.parent, root, *root.rglob("*")):
            expected = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.lstat().st_mode) == expected, path

    def test_what_a_crash_left_is_gone_with_the_next_run_or_lock(self, store: DirectoryRunStore, root: Path) -> None:
        made = store.create(run(1))
        for next_step in (lambda: store.create(run(2)), lambda: store.remove("00000002")):
            for name in (".removed-x-1", ".new-x-1", ".new-x-2"):
                (root / name / "stages").mkdir(parents=True, exist_ok=True)
                (root / name / "stages" / "large").write_text("…")
            os.utime(root / ".new-x-1", (0, 0))
            (root / ".removed-link").unlink(missing_ok=True)
            (root / ".removed-link").symlink_to(made)
            next_step()
            left = {path.name for path in root.iterdir() if path.name.startswith(".")}
            assert left == {".new-x-2", ".removed-link"}, "one that is being made just now, and what is none of ours"
        (made / ".run.json.0123456789abcdef").write_text('{"version"')
        assert store.load(NAME) == run(1)
        with store.lock(NAME):
            assert [path.name for path in made.iterdir() if path.name.startswith(".")] == []

    def test_a_full_disk_leaves_nothing_or_the_state_before(
        self, store: DirectoryRunStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=f"cannot create the run {NAME}: No space left on device") as raised:
                store.create(run(1))
        assert "free disk space" in raised.value.hint
        assert list(root.iterdir()) == []
        made = store.create(run(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match="No space left"):
                store.save(run(1, state=StageState.FAILED))
        assert store.load(NAME) == run(1)
        assert [path.name for path in made.iterdir()] == ["run.json"]


class TestJournal:
    def test_a_torn_last_line_is_left_out_and_gone_after_the_next_event(
        self, store: DirectoryRunStore, made: Path
    ) -> None:
        for torn in (b"x", b"\0" * 200_000, b'{"at"' * 50_000):
            (made / "journal.jsonl").write_bytes(torn)
            assert store.journal(NAME) == ()
            store.save(run(1), event("first"))
            assert store.journal(NAME) == (event("first"),)
        with (made / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"at":"2026-03-14T09:12:00+00:00","ki')
        assert store.journal(NAME) == (event("first"),)
        store.save(run(1), event("second"))
        assert store.journal(NAME) == (event("first"), event("second"))

    def test_a_damaged_line_in_the_middle_is_a_note_and_hides_no_other(
        self, store: DirectoryRunStore, made: Path
    ) -> None:
        store.save(run(1), event("first"))
        with (made / "journal.jsonl").open("ab") as journal:
            journal.write(b"\xff\xfe\n\n")
        store.save(run(1), event("last"))
        first, second, third, last = store.journal(NAME)
        assert (first.message, last.message) == ("first", "last")
        assert second.kind == third.kind == "note"
        assert second.message.startswith("line 2 of the journal cannot be read: ")
        assert (second.at, third.message[:6]) == (START, "line 3")


class TestHostileDirectories:
    def test_what_is_no_file_is_refused(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path, subtests: pytest.Subtests
    ) -> None:
        uses: dict[str, Callable[[], object]] = {
            "run.json": lambda: store.load(NAME),
            "journal.jsonl": lambda: store.save(run(1), event("x")),
            "lock": lambda: store.lock(NAME).__enter__(),
        }
        state = (made / "run.json").read_bytes()
        for name, use in uses.items():
            for kind in ("link", "dangling link", "directory", "pipe"):
                target = tmp_path / f"{name} {kind}"
                if kind == "link":
                    target.write_bytes(state)
                (made / name).unlink(missing_ok=True)
                place(made / name, kind, target)
                with subtests.test(name=name, kind=kind):
                    with pytest.raises(StoreError, match=f"{name} is not a regular file") as raised:
                        use()
                    assert not isinstance(raised.value, RunNotFound)
                    assert raised.value.hint
                    assert target.exists() == (kind == "link")
                (made / name).rmdir() if kind == "directory" else (made / name).unlink()
                (made / "run.json").write_bytes(state)

    def test_a_run_or_its_approvals_that_are_no_directory_are_refused(
        self, store: DirectoryRunStore, made: Path, root: Path, tmp_path: Path
    ) -> None:
        place(root / "other", "link", made)
        for use in (store.load, store.directory, store.remove, lambda name: store.put_approval(name, ANSWER)):
            with pytest.raises(StoreError, match="the run other: it is not a directory"):
                use("other")
        (tmp_path / "outside").mkdir()
        (made / "approvals").symlink_to(tmp_path / "outside")
        with pytest.raises(StoreError, match="it is not a directory"):
            store.put_approval(NAME, ANSWER)
        with pytest.raises(StoreError, match="it is not a directory"):
            store.take_approval(NAME, "write")
        assert list((tmp_path / "outside").iterdir()) == []

    def test_an_answer_that_cannot_be_read_is_told_once_and_is_never_a_yes(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path, subtests: pytest.Subtests
    ) -> None:
        for kind in ("link", "directory", "pipe", "garbage", "of another stage"):
            store.put_approval(NAME, ANSWER)
            [file] = [path for path in (made / "approvals").iterdir() if not path.name.startswith(".")]
            whole = file.read_text()
            file.unlink()
            (tmp_path / "yes").write_text(whole)
            if kind == "garbage":
                file.write_text(whole[:10])
            elif kind == "of another stage":
                file.write_text(whole.replace("write", "other"))
            else:
                place(file, kind, tmp_path / "yes")
            with subtests.test(kind=kind):
                with pytest.raises(StoreError, match="the answer on 'write'"):
                    store.take_approval(NAME, "write")
                assert store.take_approval(NAME, "write") is None
                assert (tmp_path / "yes").read_text() == whole

    def test_an_endless_file_is_refused_without_being_read(self, store: DirectoryRunStore, made: Path) -> None:
        uses: dict[str, Callable[[str], object]] = {"run.json": store.load, "journal.jsonl": store.journal}
        for name, use in uses.items():
            with (made / name).open("wb") as file:
                file.truncate(1024**4)  # a hole, which takes no room
            with pytest.raises(StoreError, match=r"has 1,099,511,627,776 bytes, more than the limit of [\d,]+"):
                use(NAME)


class TestList:
    @pytest.mark.requirement("S9")
    def test_one_bad_run_hides_no_other(self, store: DirectoryRunStore, root: Path, tmp_path: Path) -> None:
        for number in range(1, 10):
            store.create(run(number))
        state = [root / f"{number:08x}" / "run.json" for number in range(10)]
        state[1].write_bytes(state[1].read_bytes()[:200])
        state[2].write_bytes(b"")
        state[3].write_text(json.dumps({**json.loads(state[3].read_text()), "version": 2}))
        state[4].unlink()
        state[5].write_bytes(state[6].read_bytes())
        state[7].unlink()
        state[7].symlink_to(state[8])
        (root / "a file").write_text("x")
        (root / "empty").mkdir()
        (root / ".hidden").mkdir()
        (root / "link").symlink_to(state[8].parent)
        runs, problems = store.list()
        assert [each.run_id for each in runs] == ["00000009", "00000008", "00000006"]
        words = {
            "00000001": "is damaged: it is truncated, or not JSON",
            "00000002": "is damaged",
            "00000003": "a newer codeloupe wrote it",
            "00000004": "has no state",
            "00000005": "contains the state of another run, '00000006'",
            "00000007": "run.json is not a regular file",
            "a file": "is not a valid run name",
            "empty": "the run empty has no state",
            "link": "it is not a directory",
        }
        assert problems.keys() == words.keys()
        assert [name for name, part in words.items() if part not in problems[name]] == []

    def test_runs_are_found_by_the_beginning_of_their_names(self, store: DirectoryRunStore, root: Path) -> None:
        for name in ("article-1", "article-2", "build-1"):
            store.create(run(1, run_id=name))
        (root / "article-3").mkdir()
        (root / "article 4").mkdir()
        assert store.matching("article") == ("article-1", "article-2", "article-3")
        assert store.matching("b") == ("build-1",)
        assert store.matching("../") == store.matching("x") == ()
        assert DirectoryRunStore(root / "nowhere").matching("a") == ()
        (root / "file").write_text("x")
        with pytest.raises(StoreError, match="cannot list the runs in .*: Not a directory"):
            DirectoryRunStore(root / "file").list()


class TestRemoval:
    def test_a_run_is_gone_with_all_its_files_and_says_how_much_that_was(
        self, store: DirectoryRunStore, root: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("precious")
        made = store.create(run(1, stage("a", StageState.RUNNING, attempt(1))))
        state_bytes = (made / "run.json").stat().st_size
        work = made / "stages" / "a" / "work"
        work.mkdir(parents=True)
        (work / "big").write_bytes(b"x" * 5_000)
        (work / "link").symlink_to(outside)
        os.mkfifo(work / "pipe")
        locked = made / "stages" / "cache" / "locked"
        locked.mkdir(parents=True)
        (locked / "file").write_text("x")
        locked.chmod(0o500)
        locked.parent.chmod(0o000)
        freed = store.remove(NAME)
        assert 0 <= freed - 5_000 - state_bytes < 300  # a link has the bytes of its target's name
        assert list(root.iterdir()) == []
        assert (outside / "precious").read_text() == "precious"
        store.create(replace(run(1), reason="again"))
        assert store.load(NAME).reason == "again"

    def test_a_damaged_run_can_be_removed_one_that_is_worked_on_or_unknown_cannot(
        self, store: DirectoryRunStore, made: Path, root: Path
    ) -> None:
        with store.lock(NAME), pytest.raises(RunBusy):
            DirectoryRunStore(root).remove(NAME)
        (made / "run.json").write_text("{")
        with pytest.raises(StoreError, match=f"state of the run {NAME} is damaged") as raised:
            store.load(NAME)
        assert "pipeline remove" in raised.value.hint
        assert store.remove(NAME) == 1
        for name in (NAME, ".."):
            with pytest.raises(RunNotFound):
                store.remove(name)


@contextmanager
def child_of(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process; it is gone at the end, whatever happens."""
    child = subprocess.Popen(
        (sys.executable, "-c", script, *map(str, arguments)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


class TestLock:
    @pytest.mark.program
    def test_the_other_process_is_named_with_its_start(self, store: DirectoryRunStore, made: Path) -> None:
        before = datetime.now(UTC)
        assert store.holder(NAME) is None
        with child_of(_HOLD, made.parent, NAME, "alone") as other:
            assert line(other) == "held"
            holder = store.holder(NAME)
            assert holder is not None
            assert holder.process_id == other.pid
            assert holder.since is not None
            assert before <= holder.since <= datetime.now(UTC)
            with pytest.raises(RunBusy) as raised, store.lock(NAME):
                pass
            assert raised.value.message.startswith(f"the run {NAME} is busy: process {other.pid} (since 20")
            assert raised.value.exit_code == 2
            assert f"pipeline status {NAME} --follow" in raised.value.hint
            other.communicate("\n")
        assert store.holder(NAME) is None

    @pytest.mark.program
    @pytest.mark.requirement("S9")
    def test_whoever_is_killed_holds_nothing_any_more_nor_does_its_child(
        self, store: DirectoryRunStore, made: Path
    ) -> None:
        with child_of(_HOLD, made.parent, NAME, "with a child") as other:
            orphan = int(line(other))
            assert line(other) == "held"
            other.kill()
            other.wait()
            try:
                assert store.holder(NAME) is None
                with store.lock(NAME):
                    os.kill(orphan, 0)
            finally:
                os.kill(orphan, 9)

    def test_those_who_only_look_never_make_a_run_busy(self, store: DirectoryRunStore, made: Path) -> None:
        with store.lock(NAME):
            pass
        with (made / "lock").open("rb") as looking:
            # One who looks may be held up while the lock is theirs.
            fcntl.flock(looking, fcntl.LOCK_SH)
            gone = threading.Timer(0.5, looking.close)
            gone.start()
            with store.lock(NAME):
                pass
            gone.join()

    def test_a_run_that_was_removed_while_one_waited_is_not_found(self, store: DirectoryRunStore, made: Path) -> None:
        with store.lock(NAME):
            waiting = threading.Timer(0.2, lambda: made.rename(made.with_name("aside")))
            waiting.start()
            waiting.join()
        with pytest.raises(RunNotFound), store.lock(NAME):
            pass


# Loads everything once; then each line of its input makes a process that saves until it is killed.
_WORKER = """
import os, sys
from pathlib import Path
from codeloupe.model.pipeline import StageState
from codeloupe.store.runs import DirectoryRunStore
from tests.unit.store.run_samples import attempt, critique, event, run, stage

store = DirectoryRunStore(Path(sys.argv[1]))

def say(line):
    os.write(1, f"{line}\\n".encode())  # whole or not at all, whenever it is killed

for first in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        say("killed")
        continue
    say(f"process {os.getpid()}")
    with store.lock("00000001"):
        for number in range(int(first), 10**9):
            # Ever another size, so that an old state cannot pass for a new one.
            attempts = (attempt(each, critique(summary="s" * 500)) for each in range(number % 7))
            state = run(1, stage("write", StageState.RUNNING, *attempts), reason=str(number))
            say(f"saves {number}")
            store.save(state, event(str(number), facts={"n": number}))
            say(f"saved {number}")
"""
ROUNDS = 12


def killed_at_some_moment(worker: subprocess.Popen[str], first: int, chance: random.Random) -> list[str]:
    """Let it save on from a number, and kill it some lines and an instant later; all that it had printed."""
    assert worker.stdin is not None
    worker.stdin.write(f"{first}\n")
    worker.stdin.flush()
    process = int(line(worker).removeprefix("process "))
    printed = list[str]()
    for _ in range(chance.randrange(2, 12)):
        printed.append(line(worker))
        assert printed[-1].startswith("save"), "it ended by itself"
    time.sleep(chance.uniform(0, 0.005))
    os.kill(process, signal.SIGKILL)
    while (words := line(worker)) != "killed":
        assert words, "it ended by itself"
        printed.append(words)
    return printed


def last(printed: list[str], word: str, default: int) -> int:
    return max((int(words.split()[1]) for words in printed if words.startswith(f"{word} ")), default=default)


@pytest.mark.program
@pytest.mark.requirement("S9")
def test_after_any_kill_the_last_state_that_was_saved_is_there_or_the_one_under_way(tmp_path: Path) -> None:
    chance = random.Random(6)
    store = DirectoryRunStore(tmp_path)
    store.create(run(1, reason="0"))
    told, interrupted = 0, set[int]()
    with child_of(_WORKER, tmp_path) as worker:
        for _ in range(ROUNDS):
            printed = killed_at_some_moment(worker, told + 1, chance)
            saved, begun = last(printed, "saved", told), last(printed, "saves", told)
            loaded = store.load("00000001")
            assert int(loaded.reason) in (saved, begun)
            numbers = [int(each.message) for each in store.journal("00000001")]
            # The state is written first: of what a kill cut off, at most the event may be missing.
            assert numbers == sorted(set(numbers))
            assert set(range(1, saved + 1)) - set(numbers) <= interrupted
            assert not set(numbers) - set(range(1, begun + 1))
            interrupted.add(begun)
            told = begun
            with store.lock("00000001"):
                store.save(loaded)
    assert told > ROUNDS  # it was killed at work, and not before it
    assert [path.name for path in store.directory("00000001").iterdir() if path.name.startswith(".")] == []
