"""The process module against real children: deadlines, cancellation, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codeloupe.errors import ProcessError, ProcessTimedOut
from codeloupe.system.process import run
from tests.children import (
    MEBIBYTE,
    assert_all_gone,
    assert_no_child_left,
    command,
    held_files,
    recorded_pids,
    run_now,
    shell,
    until_recorded,
)
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, comes_to_pass, ends_soon, timed_out
from tests.rows import each


class TestDeadline:
    def test_a_timeout_ends_the_grandchild_that_holds_the_output_too(self, tmp_path: Path) -> None:
        script = "echo $$ >parent.pid; sleep 1000 & echo $! >child.pid; sleep 1000"
        error = timed_out(
            ProcessTimedOut,
            lambda seconds: run_now(shell(script, tmp_path, timeout_seconds=seconds)),
            ready=lambda _: len(recorded_pids(tmp_path)) == 2,
        )
        assert error.message.startswith("sh did not finish")
        assert error.retryable
        assert error.hint
        assert_all_gone(recorded_pids(tmp_path))

    def test_a_leader_that_ended_early_does_not_save_its_group(self, tmp_path: Path) -> None:
        timed_out(
            ProcessTimedOut,
            lambda seconds: run_now(shell("sleep 1000 & echo $! >child.pid", tmp_path, timeout_seconds=seconds)),
            ready=lambda _: bool(recorded_pids(tmp_path)),
        )
        assert_all_gone(recorded_pids(tmp_path))

    def test_a_background_process_does_not_outlive_a_good_run(self, tmp_path: Path) -> None:
        completed = run_now(shell("sleep 1000 >/dev/null 2>&1 & echo $! >child.pid", tmp_path))
        assert completed.exit_code == 0
        assert len(recorded_pids(tmp_path)) == 1
        assert_all_gone(recorded_pids(tmp_path))

    def test_a_child_that_ignores_the_polite_signal_is_killed_after_the_grace(self, tmp_path: Path) -> None:
        script = "trap '' TERM; echo $$ >sh.pid; while :; do sleep 0.05; done"
        waited: list[float] = []

        def stubborn(seconds: float) -> None:
            started = time.monotonic()
            try:
                run_now(shell(script, tmp_path, timeout_seconds=seconds))
            finally:
                waited.append(time.monotonic() - started - seconds)

        timed_out(ProcessTimedOut, stubborn, ready=lambda _: bool(recorded_pids(tmp_path)))
        assert 2 <= waited[-1] < PATIENCE_SECONDS
        assert_all_gone(recorded_pids(tmp_path))

    @pytest.mark.usefixtures("long_grace")
    def test_a_child_may_tidy_up_at_the_polite_signal(self, tmp_path: Path) -> None:
        script = "trap 'rm lock; exit' TERM; touch lock; echo $$ >sh.pid; while :; do sleep 0.05; done"
        timed_out(
            ProcessTimedOut,
            lambda seconds: run_now(shell(script, tmp_path, timeout_seconds=seconds)),
            ready=lambda _: bool(recorded_pids(tmp_path)),
        )
        assert not (tmp_path / "lock").exists()


class TestCancellation:
    def test_cancelled_after_any_turn_of_the_loop_nothing_is_left(self, tmp_path: Path) -> None:
        async def scenario(place: Path, turns: int) -> None:
            task = asyncio.create_task(run(shell("echo $$ >sh.pid; sleep 1000 & echo $! >s.pid; wait", place)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        for turns in range(12):
            place = tmp_path / str(turns)
            place.mkdir()
            asyncio.run(scenario(place, turns))
            assert_all_gone(recorded_pids(place))
            assert_no_child_left()

    @pytest.mark.requirement("C8")
    def test_cancelled_in_mid_run_the_whole_group_is_gone(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            script = "echo $$ >parent.pid; sleep 1000 & echo $! >child.pid; wait"
            task = asyncio.create_task(run(shell(script, tmp_path, timeout_seconds=FAR_TOO_LONG_SECONDS)))
            await until_recorded(tmp_path, 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError), ends_soon():
                await task

        asyncio.run(scenario())
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    @pytest.mark.usefixtures("short_grace")
    @each("cancellations", [2, 50])
    def test_further_cancellations_during_the_clean_up_leave_nothing(self, tmp_path: Path, cancellations: int) -> None:
        async def scenario() -> None:
            script = "trap '' TERM; echo $$ >sh.pid; while :; do sleep 0.05; done"
            task = asyncio.create_task(run(shell(script, tmp_path)))
            await until_recorded(tmp_path, 1)
            for _ in range(cancellations):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert_no_child_left()

        asyncio.run(scenario())
        assert_all_gone(recorded_pids(tmp_path))

    @pytest.mark.usefixtures("long_grace")
    def test_however_often_it_is_cancelled_the_child_may_tidy_up(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            script = "trap 'sleep 0.3; rm lock; exit' TERM; touch lock; echo $$ >sh.pid; while :; do sleep 0.05; done"
            task = asyncio.create_task(run(shell(script, tmp_path)))
            await until_recorded(tmp_path, 1)
            for _ in range(5):
                task.cancel()
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(scenario())
        assert not (tmp_path / "lock").exists()

    def test_cancelled_before_it_began_no_child_is_started(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            task = asyncio.create_task(run(shell("echo $$ >sh.pid", tmp_path)))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(scenario())
        assert list(tmp_path.iterdir()) == []

    def test_an_outer_timeout_stays_a_timeout(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with asyncio.timeout(0.1):
                await run(command("sleep", "30", cwd=tmp_path))

        with pytest.raises(TimeoutError):
            asyncio.run(scenario())
        assert_no_child_left()

    def test_two_interrupts_end_even_a_stubborn_child(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "from codeloupe.system import process\n"
            "process._TERMINATE_GRACE_SECONDS = 300.0\n"
            "script = \"trap 'touch asked' TERM; echo $$ >sh.pid; while :; do sleep 0.05; done\"\n"
            "asyncio.run(run(Command(argv=('sh', '-c', script), cwd=Path(sys.argv[1]), timeout_seconds=60,\n"
            "    environment=inherited_environment(), max_output_bytes=1)))"
        )
        with subprocess.Popen((sys.executable, "-c", program, str(tmp_path)), stderr=subprocess.PIPE) as ours:
            asyncio.run(until_recorded(tmp_path, 1))
            ours.send_signal(signal.SIGINT)
            # The first one has come through when the child was asked to end; only the second ends the long wait for it.
            assert comes_to_pass((tmp_path / "asked").exists)
            ours.send_signal(signal.SIGINT)
            _, words = ours.communicate(timeout=PATIENCE_SECONDS)
        assert ours.returncode == -signal.SIGINT
        assert b"never retrieved" not in words
        assert_all_gone(recorded_pids(tmp_path))


class TestLeaks:
    def test_many_runs_leave_no_file_open_and_no_warning(self, tmp_path: Path) -> None:
        async def batch(count: int) -> None:
            for _ in range(count // 4):
                await asyncio.gather(*(run(command("true", cwd=tmp_path, stdin=b"x")) for _ in range(4)))

        async def scenario() -> frozenset[object]:
            await batch(4)
            before = held_files()
            await batch(40)
            return held_files() - before

        left_open = asyncio.run(scenario(), debug=True)
        gc.collect()
        assert left_open == frozenset()

    def test_runs_that_go_wrong_leave_no_file_open(self, tmp_path: Path) -> None:
        async def go_wrong() -> None:
            wrong = (
                command("no-such-program", cwd=tmp_path),
                command("sleep", "9", cwd=tmp_path, timeout_seconds=0.01, stdin=b"x" * MEBIBYTE),
                shell("exec yes", tmp_path, max_output_bytes=1),
                command("a\0", cwd=tmp_path),
            )
            for what in wrong:
                with pytest.raises(ProcessError):
                    await run(what)

        async def scenario() -> frozenset[object]:
            await go_wrong()
            before = held_files()
            for _ in range(2):
                await go_wrong()
            return held_files() - before

        left_open = asyncio.run(scenario())
        gc.collect()
        assert left_open == frozenset()

    def test_a_stranger_that_holds_every_pipe_costs_no_open_file(self, tmp_path: Path) -> None:
        stray = "import os, time; os.setsid(); open('stray.pid', 'w').write(str(os.getpid())); time.sleep(30)"
        script = f"exec 3<&0; '{sys.executable}' -I -S -c \"{stray}\" 0<&3 & wait"

        left_open: list[frozenset[object]] = []

        async def scenario(seconds: float) -> None:
            before = held_files()
            try:
                await run(shell(script, tmp_path, timeout_seconds=seconds, stdin=b"x" * MEBIBYTE))
            finally:
                left_open.append(held_files() - before)

        try:
            timed_out(
                ProcessTimedOut,
                lambda seconds: asyncio.run(scenario(seconds)),
                ready=lambda _: bool(recorded_pids(tmp_path)),
            )
        finally:
            for pid in recorded_pids(tmp_path):
                os.kill(pid, signal.SIGKILL)
        assert left_open[-1] == frozenset()
