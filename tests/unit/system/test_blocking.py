"""A child without an event loop: the same answers and errors as with one, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import run_blocking
from tests.children import MEBIBYTE, assert_all_gone, command, recorded_pids, run_now, shell
from tests.endings import timed_out


@pytest.mark.parametrize(
    "script", ["echo out; echo err >&2; exit 3", "kill -SEGV $$", "cat", r"printf 'bad \377 byte' >&2", "exec >&- 2>&-"]
)
def test_what_comes_back_is_what_an_event_loop_would_bring(script: str, tmp_path: Path) -> None:
    what = shell(script, tmp_path, stdin=b"in" * 100_000)
    completed = run_blocking(what)
    assert replace(completed, seconds=0.0) == replace(run_now(what), seconds=0.0)


def test_a_program_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound, match="cannot start nothing-like-this"):
        run_blocking(command("nothing-like-this", cwd=tmp_path))


def test_a_child_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = "sleep 1000 & echo $! > a.pid; echo $$ > b.pid; wait"
    timed_out(
        ProcessTimedOut,
        lambda seconds: run_blocking(shell(script, tmp_path, timeout_seconds=seconds)),
        ready=lambda _: len(recorded_pids(tmp_path)) == 2,
    )
    assert_all_gone(recorded_pids(tmp_path))


def test_too_much_output_is_refused(tmp_path: Path) -> None:
    loud = replace(shell("head -c 2000000 /dev/zero", tmp_path), max_output_bytes=MEBIBYTE)
    with pytest.raises(OutputTooLarge):
        run_blocking(loud)


def test_an_interruption_ends_the_child(tmp_path: Path) -> None:
    def interrupt() -> None:
        while not recorded_pids(tmp_path):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        # It has its number only when its input has ended, and so when it is waited for.
        run_blocking(shell("cat; echo $$ > a.pid; exec sleep 1000", tmp_path))
    assert_all_gone(recorded_pids(tmp_path))


def test_an_interruption_in_the_middle_of_a_start_leaves_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            (tmp_path / "a.pid").write_text(str(self.pid))
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_blocking(shell("exec sleep 1000", tmp_path))
    assert_all_gone(recorded_pids(tmp_path))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
