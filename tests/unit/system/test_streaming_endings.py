"""Streams against real programs: deadlines, silence, cancellation, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ProcessError, ProcessTimedOut
from codeloupe.system import streaming
from codeloupe.system.guardian import GRACE_SECONDS, LAST_WAIT_SECONDS
from codeloupe.system.process import Completed
from codeloupe.system.streaming import END_SECONDS, StreamTimedOut, stream
from tests.children import (
    MEBIBYTE,
    assert_all_gone,
    assert_no_child_left,
    changed_guardian,
    command,
    held_files,
    python,
    recorded_pids,
    shell,
    until_recorded,
)
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, before_its_limit, comes_to_pass, ends_soon, timed_out
from tests.rows import each

STUBBORN = "trap '' TERM; echo $$ >stubborn.pid; while :; do sleep 0.05; done"
# Forked twice, in a session of its own, without any variable of ours, and deaf to the polite signal.
DAEMON = (
    "import os, signal, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    if os.fork() == 0:\n"
    "        open('daemon.pid', 'w').write(str(os.getpid()))\n"
    "        os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "while not os.path.exists('daemon.pid') or not open('daemon.pid').read():\n"
    "    time.sleep(0.005)\n"
)


def now(work: Coroutine[Any, Any, Completed]) -> Completed:
    return asyncio.run(work)


class TestDeadline:
    def test_what_was_written_before_a_timeout_is_on_the_error(self, tmp_path: Path) -> None:
        script = 'echo \'{"session_id": "s-1"}\'; echo warning >&2; printf half; exec sleep 1000'
        error = timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(shell(script, tmp_path, timeout_seconds=seconds))),
            ready=lambda error: error.stdout.endswith(b"half"),
        )
        assert error.message.startswith("sh did not finish")
        assert error.stdout == b'{"session_id": "s-1"}\nhalf'
        assert error.stderr == "warning\n"
        assert not error.silent
        assert error.retryable
        assert error.hint
        assert isinstance(error, ProcessTimedOut)
        assert_no_child_left()

    @pytest.mark.usefixtures("long_grace")
    def test_what_is_written_at_the_polite_signal_is_on_the_error_too(self, tmp_path: Path) -> None:
        script = "trap 'echo bye; exit' TERM; echo $$ >sh.pid; while :; do sleep 0.05; done"
        error = timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(shell(script, tmp_path, timeout_seconds=seconds))),
            ready=lambda _: bool(recorded_pids(tmp_path)),
        )
        assert error.stdout == b"bye\n"

    def test_a_program_that_ignores_the_polite_signal_is_killed_after_the_grace(self, tmp_path: Path) -> None:
        waited: list[float] = []

        def stubborn(seconds: float) -> None:
            started = time.monotonic()
            try:
                now(stream(shell(STUBBORN, tmp_path, timeout_seconds=seconds)))
            finally:
                waited.append(time.monotonic() - started - seconds)

        timed_out(StreamTimedOut, stubborn, ready=lambda _: bool(recorded_pids(tmp_path)))
        assert GRACE_SECONDS <= waited[-1] < PATIENCE_SECONDS
        assert_all_gone(recorded_pids(tmp_path))

    @pytest.mark.usefixtures("long_grace")
    def test_the_polite_signal_comes_once(self, tmp_path: Path) -> None:
        # It goes on for ten rounds after it was asked.
        rounds = "until test $left = 0; do sleep 0.05; test $left = always || left=$((left - 1)); done"
        script = f"left=always; trap 'echo asked; left=10' TERM; echo $$ >sh.pid; {rounds}"
        error = timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(shell(script, tmp_path, timeout_seconds=seconds))),
            ready=lambda _: bool(recorded_pids(tmp_path)),
        )
        assert error.stdout == b"asked\n"

    def test_we_wait_longer_than_a_supervisor_takes(self) -> None:
        assert END_SECONDS > GRACE_SECONDS + LAST_WAIT_SECONDS + 1


class TestSilence:
    def test_a_program_that_writes_nothing_for_too_long_is_ended(self, tmp_path: Path) -> None:
        script = "echo first; exec sleep 1000"
        error = timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(shell(script, tmp_path), idle_timeout_seconds=seconds)),
            ready=lambda error: bool(error.stdout),
            words=r"sh wrote nothing for \d+(\.\d)? s and was ended",
        )
        assert error.silent
        assert error.stdout == b"first\n"
        assert "silence" in error.hint
        assert_no_child_left()

    @each("output", [1, 2])
    def test_every_byte_on_either_output_starts_the_silence_anew(self, tmp_path: Path, output: int) -> None:
        def heard(silence_seconds: float) -> Completed:
            pause = f"time.sleep({silence_seconds / 4})"
            script = f"import os, time\nfor _ in range(6): {pause}; os.write({output}, b'x')"
            completed = now(stream(python(script, tmp_path), idle_timeout_seconds=silence_seconds))
            assert completed.seconds > silence_seconds
            return completed

        completed = before_its_limit(StreamTimedOut, heard)
        assert completed.exit_code == 0
        assert len(completed.stdout) + len(completed.stderr) == 6


class TestDescendants:
    @pytest.mark.usefixtures("short_grace")
    def test_a_timeout_ends_the_group_with_a_stubborn_leader(self, tmp_path: Path) -> None:
        script = f"sleep 1000 & echo $! >child.pid; {STUBBORN}"
        timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(shell(script, tmp_path, timeout_seconds=seconds))),
            ready=lambda _: len(recorded_pids(tmp_path)) == 2,
        )
        assert_all_gone(recorded_pids(tmp_path))

    @pytest.mark.usefixtures("short_grace")
    def test_a_timeout_ends_a_daemon_that_hides_and_will_not_hear(self, tmp_path: Path) -> None:
        timed_out(
            StreamTimedOut,
            lambda seconds: now(stream(python(f"{DAEMON}time.sleep(1000)", tmp_path, timeout_seconds=seconds))),
            ready=lambda _: len(recorded_pids(tmp_path)) == 1,
        )
        assert_all_gone(recorded_pids(tmp_path))

    # The second: a machine that stood still for so long that no time is left to signal anybody.
    @each("seconds", [(0.2, 2.0), (-1.0, -1.0)])
    def test_a_daemon_does_not_outlive_a_good_run(
        self,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
        monkeypatch: pytest.MonkeyPatch,
        seconds: tuple[float, float],
    ) -> None:
        changes = f"module.GRACE_SECONDS, module.LAST_WAIT_SECONDS = {seconds}"
        monkeypatch.setattr(streaming, "_GUARDIAN", changed_guardian(tmp_path_factory.mktemp("guardian"), changes))
        completed = now(stream(python(f"{DAEMON}print('done')", tmp_path)))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert len(recorded_pids(tmp_path)) == 1
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    def test_a_child_that_holds_the_output_does_not_keep_a_finished_program(self, tmp_path: Path) -> None:
        what = shell("sleep 1000 & echo $! >child.pid; echo done", tmp_path, timeout_seconds=FAR_TOO_LONG_SECONDS)
        completed = now(stream(what, idle_timeout_seconds=FAR_TOO_LONG_SECONDS))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert completed.seconds < PATIENCE_SECONDS
        assert_all_gone(recorded_pids(tmp_path))

    @pytest.mark.usefixtures("long_grace")
    def test_what_a_child_writes_when_the_program_has_ended_is_read(self, tmp_path: Path) -> None:
        child = "trap 'echo late; exit' TERM; touch ready; while :; do sleep 0.02; done"
        script = f"({child}) & until test -e ready; do sleep 0.01; done"
        assert now(stream(shell(script, tmp_path))).stdout == b"late\n"

    def test_a_process_that_forks_and_ends_all_the_time_is_caught(self, tmp_path: Path) -> None:
        hop = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    while not os.path.exists('stop'):\n"
            "        if os.fork(): os._exit(0)\n"
            "    open('stopped', 'w')\n"
            "time.sleep(0.2)"
        )
        now(stream(python(hop, tmp_path)))
        (tmp_path / "stop").touch()
        time.sleep(0.2)
        assert not (tmp_path / "stopped").exists()

    def test_no_zombie_is_left_of_what_ended_before_the_program(self, tmp_path: Path) -> None:
        script = (
            "import os, time\n"
            "for _ in range(3):\n"
            "    if os.fork() == 0:\n"
            "        os.fork()\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "def siblings():\n"
            "    for name in filter(str.isdecimal, os.listdir('/proc')):\n"
            "        try: state, parent = open(f'/proc/{name}/stat').read().rpartition(')')[2].split()[:2]\n"
            "        except OSError: continue\n"
            "        if int(parent) == os.getppid() and int(name) != os.getpid(): yield state\n"
            "end = time.monotonic() + 20\n"
            "while (left := list(siblings())) and time.monotonic() < end: time.sleep(0.01)\n"
            "print(left)\n"
        )
        assert now(stream(python(script, tmp_path))).stdout == b"[]\n"
        assert_no_child_left()


class TestCancellation:
    @each("moments", [range(16), [number / 1000 for number in range(4, 80, 8)]])
    def test_cancelled_at_any_moment_of_the_start_nothing_is_left(
        self, tmp_path: Path, moments: Sequence[float]
    ) -> None:
        async def scenario(place: Path, moment: float) -> None:
            script = "echo $$ >sh.pid; setsid sleep 1000 & echo $! >s.pid; wait"
            task = asyncio.create_task(stream(shell(script, place)))
            if isinstance(moment, int):
                for _ in range(moment):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(moment)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        for moment in moments:
            place = tmp_path / str(moment)
            place.mkdir()
            asyncio.run(scenario(place, moment))
            assert_all_gone(recorded_pids(place))
            assert_no_child_left()

    @pytest.mark.requirement("C8")
    def test_cancelled_in_mid_run_everything_is_gone(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            script = "echo $$ >sh.pid; setsid sh -c 'echo $$ >escaped.pid; exec sleep 1000' & wait"
            task = asyncio.create_task(stream(shell(script, tmp_path, timeout_seconds=FAR_TOO_LONG_SECONDS)))
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
            (tmp_path / "other").mkdir()
            other = asyncio.create_task(stream(shell("exec sleep 1000", tmp_path / "other")))
            task = asyncio.create_task(stream(shell(STUBBORN, tmp_path)))
            await until_recorded(tmp_path, 1)
            for _ in range(cancellations):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ProcessLookupError):
                os.kill(recorded_pids(tmp_path)[0], 0)
            other.cancel()
            await asyncio.wait((other,))

        asyncio.run(scenario())
        assert_no_child_left()

    def test_an_outer_timeout_stays_a_timeout(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with asyncio.timeout(0.2):
                await stream(command("sleep", "30", cwd=tmp_path))

        with pytest.raises(TimeoutError):
            asyncio.run(scenario())
        assert_no_child_left()

    def test_one_cancelled_stream_does_not_disturb_another(self, tmp_path: Path) -> None:
        async def scenario() -> Completed:
            (tmp_path / "a").mkdir()
            other = asyncio.create_task(stream(shell("until test -e go; do sleep 0.01; done; echo whole", tmp_path)))
            task = asyncio.create_task(stream(shell("echo $$ >sh.pid; exec sleep 1000", tmp_path / "a")))
            await until_recorded(tmp_path / "a", 1)
            task.cancel()
            await asyncio.wait((task,))
            (tmp_path / "go").touch()
            return await other

        completed = asyncio.run(scenario())
        assert (completed.exit_code, completed.stdout) == (0, b"whole\n")
        assert_all_gone(recorded_pids(tmp_path / "a"))

    def test_two_interrupts_end_even_a_stubborn_program(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "asyncio.run(stream(Command(argv=('sh', '-c', sys.argv[2]), cwd=Path(sys.argv[1]), timeout_seconds=60,\n"
            "    environment=inherited_environment(), max_output_bytes=1)))"
        )
        stubborn = "trap 'touch asked' TERM; echo $$ >stubborn.pid; while :; do sleep 0.05; done"
        ours_argv = (sys.executable, "-X", "dev", "-c", program, str(tmp_path), stubborn)
        with subprocess.Popen(ours_argv, stderr=subprocess.PIPE) as ours:
            asyncio.run(until_recorded(tmp_path, 1))
            ours.send_signal(signal.SIGINT)
            # The first one has come through when the program was asked to end.
            assert comes_to_pass((tmp_path / "asked").exists)
            ours.send_signal(signal.SIGINT)
            _, words = ours.communicate(timeout=PATIENCE_SECONDS)
        assert ours.returncode == -signal.SIGINT
        assert b"never retrieved" not in words
        assert b"ResourceWarning" not in words
        assert_all_gone(recorded_pids(tmp_path))


class TestBlockedSignals:
    @pytest.mark.usefixtures("long_grace")
    def test_what_a_thread_of_ours_blocks_is_not_blocked_for_a_program(self, tmp_path: Path) -> None:
        script = "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.05; done"
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
        try:
            completed = now(stream(shell("sleep 0.2; echo done", tmp_path)))
            error = timed_out(
                StreamTimedOut,
                lambda seconds: now(stream(shell(script, tmp_path, timeout_seconds=seconds))),
                ready=lambda error: error.stdout.startswith(b"ready"),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert completed.stdout == b"done\n"
        # Who cannot hear the polite signal would never end.
        assert error.stdout == b"ready\nasked\n"
        assert_no_child_left()


class TestManyAtOnce:
    def test_a_hundred_at_once_all_come_back(self, tmp_path: Path) -> None:
        async def scenario() -> list[Completed]:
            script = 'read -r line; echo "got $line"; sleep 0.3'
            prompts = (b"%d\n" % number for number in range(100))
            return await asyncio.gather(*(stream(shell(script, tmp_path, stdin=prompt)) for prompt in prompts))

        threads = set(threading.enumerate())
        completed = asyncio.run(scenario())
        assert [one.stdout for one in completed] == [b"got %d\n" % number for number in range(100)]
        assert set(threading.enumerate()) <= threads
        assert_no_child_left()

    def test_two_event_loops_in_two_threads_share_nothing_that_breaks(self, tmp_path: Path) -> None:
        found: list[list[Completed]] = []

        async def scenario() -> list[Completed]:
            return [await stream(shell("echo x; sleep 0.02", tmp_path)) for _ in range(10)]

        threads = [threading.Thread(target=lambda: found.append(asyncio.run(scenario()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.stdout for batch in found for one in batch] == [b"x\n"] * 30
        assert_no_child_left()


class TestLeaks:
    def test_many_streams_leave_no_file_open_and_no_warning(self, tmp_path: Path) -> None:
        async def batch(count: int) -> None:
            for _ in range(count // 10):
                await asyncio.gather(*(stream(command("true", cwd=tmp_path, stdin=b"x")) for _ in range(10)))

        async def scenario() -> frozenset[object]:
            await batch(10)
            before = held_files()
            await batch(50)
            return held_files() - before

        left_open = asyncio.run(scenario(), debug=True)
        gc.collect()
        assert left_open == frozenset()
        assert_no_child_left()

    def test_streams_that_go_wrong_leave_no_file_open(self, tmp_path: Path) -> None:
        async def go_wrong() -> None:
            wrong = (
                command("no-such-program", cwd=tmp_path),
                command("sleep", "9", cwd=tmp_path, timeout_seconds=0.01, stdin=b"x" * MEBIBYTE),
                command("sleep", "9", cwd=tmp_path, timeout_seconds=0),
                command("a\0", cwd=tmp_path),
                command("true", "x" * 4 * MEBIBYTE, cwd=tmp_path),
            )
            for what in wrong:
                with pytest.raises(ProcessError):
                    await stream(what)

        async def scenario() -> frozenset[object]:
            await go_wrong()
            before = held_files()
            await go_wrong()
            return held_files() - before

        left_open = asyncio.run(scenario())
        gc.collect()
        assert left_open == frozenset()

    def test_a_stranger_that_holds_the_pipes_costs_little_and_no_open_file(self, tmp_path: Path) -> None:
        async def scenario() -> tuple[Completed, int]:
            before = held_files()
            script = "echo $$ >sh.pid; echo done; until test -e go; do sleep 0.01; done"
            what = shell(script, tmp_path, stdin=b"x" * MEBIBYTE, timeout_seconds=FAR_TOO_LONG_SECONDS)
            task = asyncio.create_task(stream(what))
            await until_recorded(tmp_path, 1)
            files = Path(f"/proc/{recorded_pids(tmp_path)[0]}/fd")
            with (files / "0").open("rb"), (files / "1").open("wb"):
                (tmp_path / "go").touch()
                return await task, len(held_files() - before)

        completed, held = asyncio.run(scenario())
        assert completed.stdout == b"done\n"
        assert completed.seconds < PATIENCE_SECONDS
        assert held == 2
