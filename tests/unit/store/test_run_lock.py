"""The lock of a run, between real processes: one holder, who is named, and who frees it by dying."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codeloupe.errors import RunBusy, RunNotFound
from codeloupe.store import run_lock
from codeloupe.store.run_lock import Holder, holder_of, locked
from codeloupe.store.run_store import DirectoryRunStore
from tests.unit.store.run_samples import run

NAME = "00000001"
_HOLD = """
import subprocess, sys
from pathlib import Path
from codeloupe.store.run_store import DirectoryRunStore

with DirectoryRunStore(Path(sys.argv[1])).lock(sys.argv[2]):
    if sys.argv[3] == "with a child":
        child = subprocess.Popen(("sleep", "60"))
        print(child.pid, flush=True)
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> DirectoryRunStore:
    made = DirectoryRunStore(tmp_path / "runs")
    made.create(run(1))
    return made


@contextmanager
def holding(store: DirectoryRunStore, how: str = "alone") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock; it is gone at the end, whatever happens."""
    child = subprocess.Popen(
        (sys.executable, "-c", _HOLD, str(store.directory(NAME).parent), NAME, how),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def test_the_other_process_is_named_with_its_start(store: DirectoryRunStore) -> None:
    before = datetime.now(UTC)
    with holding(store) as other:
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
    with store.lock(NAME):
        pass


@pytest.mark.requirement("S9")
def test_whoever_is_killed_holds_nothing_any_more(store: DirectoryRunStore) -> None:
    with holding(store) as other:
        assert line(other) == "held"
        other.kill()
        other.wait()
        assert store.holder(NAME) is None
        with store.lock(NAME):
            pass


def test_a_child_that_outlives_the_killed_one_holds_nothing(store: DirectoryRunStore) -> None:
    with holding(store, "with a child") as other:
        orphan = int(line(other))
        assert line(other) == "held"
        other.kill()
        other.wait()
        try:
            with store.lock(NAME):
                os.kill(orphan, 0)
        finally:
            os.kill(orphan, 9)


def test_our_own_process_is_told_as_ours(store: DirectoryRunStore) -> None:
    with store.lock(NAME):
        with pytest.raises(RunBusy, match="this process works on the run 00000001 already"), store.lock(NAME):
            pass
        holder = store.holder(NAME)
        assert holder is not None
        assert holder.process_id == os.getpid()


def test_a_run_that_was_never_locked_is_free(store: DirectoryRunStore) -> None:
    assert store.holder(NAME) is None
    assert not (store.directory(NAME) / "lock").exists()


def test_a_holder_who_cannot_be_understood_is_another_process(
    store: DirectoryRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "_PAUSE_SECONDS", 0.0001)
    odd = ("", "x", "[]", "{}", '{"pid": "7", "since": 3}', '{"pid": 1, "since": "now"}', "[" * 9_999, "\0" * 99)
    with store.lock(NAME):
        for words in odd:
            (store.directory(NAME) / "lock").write_text(words)
            assert store.holder(NAME) == Holder(), words
            with pytest.raises(RunBusy, match="another process is working on it"), store.lock(NAME):
                pass


def test_who_says_nothing_in_the_file_is_waited_for_longer_than_who_works(store: DirectoryRunStore) -> None:
    """Somebody who only looks may be held up while the lock is theirs."""
    with store.lock(NAME):
        pass
    with (store.directory(NAME) / "lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        gone = threading.Timer(0.5, looking.close)
        gone.start()
        with store.lock(NAME):
            pass
        gone.join()


def test_a_lock_names_the_holder_for_people_too(store: DirectoryRunStore) -> None:
    with store.lock(NAME):
        told = json.loads((store.directory(NAME) / "lock").read_text())
    assert told["pid"] == os.getpid()
    assert (store.directory(NAME) / "lock").read_text() == ""


def test_those_who_only_look_never_make_a_run_busy(store: DirectoryRunStore) -> None:
    looking = True

    def look() -> None:
        while looking:
            store.holder(NAME)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(1_000):
            with store.lock(NAME):
                pass
    finally:
        looking = False
        watcher.join()


def test_a_run_that_was_removed_while_one_waited_is_not_found(store: DirectoryRunStore) -> None:
    directory = os.open(store.directory(NAME), os.O_RDONLY)
    try:
        store.remove(NAME)
        with pytest.raises((RunNotFound, FileNotFoundError)), locked(NAME, directory=directory):
            pass
        assert holder_of(directory) is None
    finally:
        os.close(directory)
