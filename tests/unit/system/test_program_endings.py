"""Real programs, run and streamed: deadlines, cancellation, and that nothing is left, also when we are killed."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ProcessError, ProcessTimedOut
from codeloupe.system import process as streaming
from codeloupe.system.guardian import GRACE_SECONDS, LAST_WAIT_SECONDS
from codeloupe.system.process import END_SECONDS, Command, Completed, StreamTimedOut, run, stream
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

pytestmark = pytest.mark.program


Grace = Callable[[float], None]


@pytest.fixture
def grace(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Grace:
    """Sets how long a program has to end after the polite signal, in the place of the two seconds of real life."""

    def set_to(seconds: float) -> None:
        program = changed_guardian(tmp_path_factory.mktemp("guardian"), f"module.GRACE_SECONDS = {seconds}")
        monkeypatch.setattr(streaming, "_GUARDIAN", program)
        monkeypatch.setattr(streaming, "END_SECONDS", seconds + END_SECONDS)
        monkeypatch.setattr("codeloupe.system.process._TERMINATE_GRACE_SECONDS", seconds)

    return set_to


Call = Callable[[Command], Coroutine[Any, Any, Completed]]
both = each("call", [run, stream])
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


def ended(call: Call, script: str, place: Path, count: int = 1) -> Any:
    """The error of a script that is ended at its deadline, when so many processes have said their numbers."""
    return timed_out(
        ProcessTimedOut,
        lambda seconds: asyncio.run(call(shell(script, place, timeout_seconds=seconds))),
        ready=lambda _: len(recorded_pids(place)) == count,
    )


async def cancelled(task: Awaitable[object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


class TestDeadline:
    @each(("call", "more"), [(run, "sleep 1000"), (stream, "sleep 1000"), (run, "exit")])
    def test_a_timeout_ends_the_grandchild_that_holds_the_output_too(
        self, tmp_path: Path, call: Call, more: str
    ) -> None:
        error = ended(call, f"echo $$ >parent.pid; sleep 1000 & echo $! >child.pid; {more}", tmp_path, 2)
        assert error.message.startswith("sh did not finish")
        assert error.retryable
        assert error.hint
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    def test_what_was_written_before_a_timeout_is_on_the_error(self, tmp_path: Path) -> None:
        script = 'echo \'{"session_id": "s-1"}\'; echo warning >&2; printf half; echo $$ >sh.pid; exec sleep 1000'
        error = ended(stream, script, tmp_path)
        assert error.stdout == b'{"session_id": "s-1"}\nhalf'
        assert error.stderr == "warning\n"
        assert not error.silent

    @both
    def test_a_program_may_tidy_up_at_the_polite_signal_which_comes_once(
        self, tmp_path: Path, grace: Grace, call: Call
    ) -> None:
        grace(300.0)
        # It goes on for ten rounds after it was asked.
        rounds = "until test $left = 0; do sleep 0.05; test $left = always || left=$((left - 1)); done; rm lock"
        script = f"touch lock; left=always; trap 'echo asked; left=10' TERM; echo $$ >sh.pid; {rounds}"
        error = ended(call, script, tmp_path)
        assert getattr(error, "stdout", b"asked\n") == b"asked\n"
        assert not (tmp_path / "lock").exists()

    @both
    def test_a_program_that_ignores_the_polite_signal_is_killed_after_the_grace(
        self, tmp_path: Path, call: Call
    ) -> None:
        waited: list[float] = []

        def stubborn(seconds: float) -> None:
            started = time.monotonic()
            try:
                asyncio.run(call(shell(STUBBORN, tmp_path, timeout_seconds=seconds)))
            finally:
                waited.append(time.monotonic() - started - seconds)

        timed_out(ProcessTimedOut, stubborn, ready=lambda _: bool(recorded_pids(tmp_path)))
        assert GRACE_SECONDS <= waited[-1] < PATIENCE_SECONDS
        assert END_SECONDS > GRACE_SECONDS + LAST_WAIT_SECONDS + 1
        assert_all_gone(recorded_pids(tmp_path))


class TestSilence:
    def test_a_program_that_writes_nothing_for_too_long_is_ended(self, tmp_path: Path) -> None:
        what = shell("echo first; exec sleep 1000", tmp_path)
        error = timed_out(
            StreamTimedOut,
            lambda seconds: asyncio.run(stream(what, idle_timeout_seconds=seconds)),
            ready=lambda error: bool(error.stdout),
            words=r"sh wrote nothing for \d+(\.\d)? s and was stopped",
        )
        assert error.silent
        assert error.stdout == b"first\n"
        assert "idle timeout" in error.hint
        assert_no_child_left()

    @each("output", [1, 2])
    def test_every_byte_on_either_output_starts_the_silence_anew(self, tmp_path: Path, output: int) -> None:
        def heard(silence_seconds: float) -> Completed:
            pause = f"time.sleep({silence_seconds / 4})"
            script = f"import os, time\nfor _ in range(6): {pause}; os.write({output}, b'x')"
            completed = asyncio.run(stream(python(script, tmp_path), idle_timeout_seconds=silence_seconds))
            assert completed.seconds > silence_seconds
            return completed

        completed = before_its_limit(StreamTimedOut, heard)
        assert completed.exit_code == 0
        assert len(completed.stdout) + len(completed.stderr) == 6


class TestDescendants:
    def test_a_timeout_ends_a_daemon_that_hides_and_will_not_hear(self, tmp_path: Path, grace: Grace) -> None:
        grace(0.3)
        timed_out(
            StreamTimedOut,
            lambda seconds: asyncio.run(stream(python(f"{DAEMON}time.sleep(1000)", tmp_path, timeout_seconds=seconds))),
            ready=lambda _: len(recorded_pids(tmp_path)) == 1,
        )
        assert_all_gone(recorded_pids(tmp_path))

    # The second: a machine that was suspended for so long that no time is left to signal anybody.
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
        completed = asyncio.run(stream(python(f"{DAEMON}print('done')", tmp_path)))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert len(recorded_pids(tmp_path)) == 1
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    @each(("call", "output"), [(run, ">/dev/null 2>&1"), (stream, "")])
    def test_a_background_process_neither_outlives_nor_keeps_a_finished_program(
        self, tmp_path: Path, call: Call, output: str
    ) -> None:
        script = f"sleep 1000 {output} & echo $! >child.pid; echo done"
        completed = asyncio.run(call(shell(script, tmp_path, timeout_seconds=FAR_TOO_LONG_SECONDS)))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert completed.seconds < PATIENCE_SECONDS
        assert_all_gone(recorded_pids(tmp_path))


class TestCancellation:
    @each(
        ("call", "moments"),
        [(run, range(12)), (stream, range(16)), (stream, [number / 1000 for number in range(4, 80, 8)])],
    )
    def test_cancelled_at_any_moment_of_the_start_nothing_is_left(
        self, tmp_path: Path, call: Call, moments: Sequence[float]
    ) -> None:
        escaping = "setsid " if call is stream else ""

        async def scenario(place: Path, moment: float) -> None:
            script = f"echo $$ >sh.pid; {escaping}sleep 1000 & echo $! >s.pid; wait"
            task = asyncio.create_task(call(shell(script, place)))
            if isinstance(moment, int):
                for _ in range(moment):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(moment)
            task.cancel()
            await cancelled(task)

        for moment in moments:
            place = tmp_path / str(moment)
            place.mkdir()
            asyncio.run(scenario(place, moment))
            assert_all_gone(recorded_pids(place))
            assert_no_child_left()

    @pytest.mark.requirement("C8")
    @each(("call", "apart"), [(run, ""), (stream, "setsid ")])
    def test_cancelled_in_mid_run_everything_is_gone(self, tmp_path: Path, call: Call, apart: str) -> None:
        async def scenario() -> None:
            script = f"echo $$ >sh.pid; {apart}sh -c 'echo $$ >child.pid; exec sleep 1000' & wait"
            task = asyncio.create_task(call(shell(script, tmp_path, timeout_seconds=FAR_TOO_LONG_SECONDS)))
            await until_recorded(tmp_path, 2)
            task.cancel()
            with ends_soon():
                await cancelled(task)

        asyncio.run(scenario())
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    @each(("call", "cancellations"), [(run, 2), (run, 50), (stream, 2), (stream, 50)])
    def test_further_cancellations_during_the_clean_up_leave_nothing(
        self, tmp_path: Path, grace: Grace, call: Call, cancellations: int
    ) -> None:
        grace(0.3)

        async def scenario() -> None:
            other = asyncio.create_task(call(shell("until test -e go; do sleep 0.01; done; echo whole", tmp_path)))
            task = asyncio.create_task(call(shell(STUBBORN, tmp_path)))
            await until_recorded(tmp_path, 1)
            for _ in range(cancellations):
                task.cancel()
                await asyncio.sleep(0)
            await cancelled(task)
            with pytest.raises(ProcessLookupError):
                os.kill(recorded_pids(tmp_path)[0], 0)
            # One that is cancelled does not disturb another.
            (tmp_path / "go").touch()
            assert (await other).stdout == b"whole\n"

        asyncio.run(scenario())
        assert_no_child_left()

    @each("verb", ["run", "stream"])
    def test_two_interrupts_end_even_a_stubborn_program(self, tmp_path: Path, verb: str) -> None:
        program = (
            "import asyncio, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.process import *\n"
            "from codeloupe.system import process\nprocess._TERMINATE_GRACE_SECONDS = 300.0\n"
            f"asyncio.run({verb}(Command(argv=('sh', '-c', sys.argv[2]), cwd=Path(sys.argv[1]), timeout_seconds=60,\n"
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


def test_what_a_thread_of_ours_blocks_is_not_blocked_for_a_program(tmp_path: Path, grace: Grace) -> None:
    grace(300.0)
    script = "trap 'echo asked; exit' TERM; echo ready; echo $$ >sh.pid; while :; do sleep 0.05; done"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    try:
        completed = asyncio.run(stream(shell("sleep 0.2; echo done", tmp_path)))
        error = ended(stream, script, tmp_path)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert completed.stdout == b"done\n"
    # Who cannot hear the polite signal would never end.
    assert error.stdout == b"ready\nasked\n"
    assert_no_child_left()


class TestLeaks:
    @both
    def test_many_calls_leave_no_file_open_and_no_warning(self, tmp_path: Path, call: Call) -> None:
        wrong = (
            command("no-such-program", cwd=tmp_path),
            command("sleep", "9", cwd=tmp_path, timeout_seconds=0.01, stdin=b"x" * MEBIBYTE),
            command("sleep", "9", cwd=tmp_path, timeout_seconds=0),
            command("a\0", cwd=tmp_path),
            command("true", "x" * 4 * MEBIBYTE, cwd=tmp_path),
        )

        async def batch(count: int) -> None:
            for _ in range(count // 10):
                await asyncio.gather(*(call(command("true", cwd=tmp_path, stdin=b"x")) for _ in range(10)))
            for what in wrong:
                with pytest.raises(ProcessError):
                    await call(what)

        async def scenario() -> frozenset[object]:
            await batch(10)
            before = held_files()
            await batch(40)
            return held_files() - before

        left_open = asyncio.run(scenario(), debug=True)
        gc.collect()
        assert left_open == frozenset()
        assert_no_child_left()


# Each call: a leader that is deaf to the polite signal, a child in a session of its own, a daemon without variables.
CALL = """
trap '' TERM
echo $PPID >$1-guardian.pid
setsid sh -c 'echo $$ >'$1'-escaped.pid; exec sleep 1000' &
env -i setsid sh -c '(setsid sh -c "echo \\$\\$ >'$1'-daemon.pid; exec sleep 1000" &)'
echo $$ >$1-leader.pid
while :; do sleep 0.1; done
"""
PARENT = """
import asyncio, os, sys, time
from pathlib import Path
from codeloupe.system import process as streaming
from codeloupe.system.process import Command, inherited_environment

async def main():
    streaming._GUARDIAN = Path(sys.argv[4])
    place, script, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    def call(number):
        return streaming.stream(Command(argv=("sh", "-c", script, "sh", str(number)), cwd=place, timeout_seconds=300,
            environment=inherited_environment(), max_output_bytes=100))
    calls = [asyncio.create_task(call(number)) for number in range(count)]
    if "fork" in sys.argv:
        while len(list(place.glob("*-leader.pid"))) < count:
            await asyncio.sleep(0.01)
        if os.fork() == 0:
            (place / "ours-forked.txt").write_text(str(os.getpid()))
            time.sleep(300)
            os._exit(0)
    await asyncio.gather(*calls)

asyncio.run(main())
"""


@contextmanager
def codeloupe(place: Path, calls: int, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours in the middle of so many calls, whose programs have a short time to end."""
    program = changed_guardian(place, "module.GRACE_SECONDS = 0.3")
    argv = (sys.executable, "-c", PARENT, str(place), CALL, str(calls), str(program), *more)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as ours:
        try:
            asyncio.run(asyncio.wait_for(until_recorded(place, 4 * calls), PATIENCE_SECONDS))
            yield ours
        finally:
            ours.kill()


class TestWeAreKilled:
    @each("number", [signal.SIGKILL, signal.SIGTERM])
    def test_in_the_middle_of_calls_no_orphan_is_left(self, tmp_path: Path, number: signal.Signals) -> None:
        with codeloupe(tmp_path, 10 if number is signal.SIGKILL else 1) as ours:
            for file in tmp_path.glob("*-guardian.pid"):
                # A signal of our terminal does not reach it.
                assert os.getsid(int(file.read_text())) != os.getsid(ours.pid)
            ours.send_signal(number)
            ours.wait()
            assert_all_gone(recorded_pids(tmp_path))

    def test_also_when_a_process_that_we_forked_holds_all_our_files(self, tmp_path: Path) -> None:
        with codeloupe(tmp_path, 2, "fork") as ours:
            note = tmp_path / "ours-forked.txt"
            while not (note.exists() and note.read_text()):
                time.sleep(0.01)
            forked = int(note.read_text())
            try:
                ours.kill()
                ours.wait()
                assert_all_gone(recorded_pids(tmp_path))
                os.kill(forked, 0)
            finally:
                os.kill(forked, signal.SIGKILL)


class TestTheGuardianIsKilled:
    SCRIPT = "echo $PPID >guardian.pid; echo $$ >leader.pid; until test -e go; do sleep 0.01; done; echo whole"

    def kill(self, place: Path, number: signal.Signals) -> Completed:
        async def scenario() -> Completed:
            task = asyncio.create_task(stream(shell(self.SCRIPT, place)))
            await until_recorded(place, 2)
            os.kill(int((place / "guardian.pid").read_text()), number)
            return await task

        try:
            return asyncio.run(scenario())
        finally:
            assert_all_gone(recorded_pids(place))
            assert_no_child_left()

    def test_a_lost_guardian_is_an_error_and_its_program_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessError, match="sh was lost: its supervisor process") as caught:
            self.kill(tmp_path, signal.SIGKILL)
        assert caught.value.hint

    def test_one_that_is_asked_to_end_ends_its_call_in_order(self, tmp_path: Path, grace: Grace) -> None:
        grace(300.0)
        assert self.kill(tmp_path, signal.SIGTERM).exit_code == -signal.SIGTERM


class TestOnASystemThatAdoptsNoOrphans:
    # What only another system has: a guardian that gets nothing from the Linux kernel, and no file by which to know
    # that we are gone.
    CHANGES = "module._KERNEL = None\nsys.argv[2] = '-1'\nmodule.GRACE_SECONDS = 0.3"

    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path_factory.mktemp("elsewhere")
        monkeypatch.setattr(streaming, "_GUARDIAN", changed_guardian(folder, self.CHANGES))

    def test_a_timeout_ends_the_whole_group(self, tmp_path: Path) -> None:
        ended(stream, f"sleep 1000 & echo $! >child.pid; {STUBBORN}", tmp_path, 2)
        assert_all_gone(recorded_pids(tmp_path))

    def test_a_member_of_the_group_does_not_outlive_a_good_run(self, tmp_path: Path) -> None:
        deaf = "(trap '' TERM; touch ready; while :; do sleep 0.05; done)"
        script = f"{deaf} & echo $! >deaf.pid; until test -e ready; do sleep 0.01; done; cat; exit 3"
        completed = asyncio.run(stream(shell(script, tmp_path, stdin=b"x")))
        assert (completed.exit_code, completed.stdout) == (3, b"x")
        assert len(recorded_pids(tmp_path)) == 1
        assert_all_gone(recorded_pids(tmp_path))
