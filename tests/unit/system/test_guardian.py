"""The guardian: what happens to running programs when we or it are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codeloupe.errors import ProcessError
from codeloupe.system import streaming
from codeloupe.system.process import Completed
from codeloupe.system.streaming import StreamTimedOut, stream
from tests.children import assert_all_gone, assert_no_child_left, changed_guardian, recorded_pids, shell, until_recorded
from tests.endings import PATIENCE_SECONDS, timed_out

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
from codeloupe.system import streaming
from codeloupe.system.process import Command
from codeloupe.system.process import inherited_environment
from codeloupe.system.streaming import stream

async def main():
    streaming._GUARDIAN = Path(sys.argv[4])
    place, script, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    def call(number):
        return stream(Command(argv=("sh", "-c", script, "sh", str(number)), cwd=place, timeout_seconds=300,
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


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class TestWeAreKilled:
    def test_in_the_middle_of_ten_calls_no_orphan_is_left(self, tmp_path: Path) -> None:
        with codeloupe(tmp_path, 10) as ours:
            pids = recorded_pids(tmp_path)
            guardians = [int(file.read_text()) for file in tmp_path.glob("*-guardian.pid")]
            assert {parent_of(pid) for pid in guardians} == {ours.pid}
            ours.kill()
            ours.wait()
            assert len(pids) == 40
            assert_all_gone(pids)

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

    def test_a_polite_end_of_ours_ends_everything_that_a_signal_of_our_terminal_does_not_reach(
        self, tmp_path: Path
    ) -> None:
        with codeloupe(tmp_path, 1) as ours:
            (guardian,) = (int(file.read_text()) for file in tmp_path.glob("*-guardian.pid"))
            assert os.getsid(guardian) != os.getsid(ours.pid)
            ours.terminate()
            ours.wait()
            assert_all_gone(recorded_pids(tmp_path))


class TestAnotherIsKilled:
    SCRIPT = "echo $PPID >guardian.pid; echo $$ >leader.pid; until test -e go; do sleep 0.01; done; echo whole"

    def test_a_lost_guardian_is_an_error_and_its_program_is_gone(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            task = asyncio.create_task(stream(shell(self.SCRIPT, tmp_path)))
            await until_recorded(tmp_path, 2)
            os.kill(int((tmp_path / "guardian.pid").read_text()), signal.SIGKILL)
            with pytest.raises(ProcessError, match="sh was lost: the process that watched over it") as caught:
                await task
            assert caught.value.hint

        asyncio.run(scenario())
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    @pytest.mark.usefixtures("long_grace")
    def test_a_guardian_that_is_asked_to_end_ends_its_call_in_order(self, tmp_path: Path) -> None:
        async def scenario() -> Completed:
            task = asyncio.create_task(stream(shell(self.SCRIPT, tmp_path)))
            await until_recorded(tmp_path, 2)
            os.kill(int((tmp_path / "guardian.pid").read_text()), signal.SIGTERM)
            return await task

        assert asyncio.run(scenario()).exit_code == -signal.SIGTERM
        assert_all_gone(recorded_pids(tmp_path))


class TestOnASystemThatAdoptsNoOrphans:
    # Stands in for what only another system has: a guardian that gets nothing from the Linux kernel, and no file by
    # which to know that we are gone.
    CHANGES = "module._KERNEL = None\nsys.argv[2] = '-1'\nmodule.GRACE_SECONDS = 0.3"

    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path_factory.mktemp("elsewhere")
        monkeypatch.setattr(streaming, "_GUARDIAN", changed_guardian(folder, self.CHANGES))

    def test_a_program_runs_as_everywhere(self, tmp_path: Path) -> None:
        completed = asyncio.run(stream(shell("cat; echo err >&2; exit 3", tmp_path, stdin=b"x")))
        assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"x", "err\n")

    def test_a_timeout_ends_the_whole_group(self, tmp_path: Path) -> None:
        script = "sleep 1000 & echo $! >child.pid; trap '' TERM; echo $$ >sh.pid; while :; do sleep 0.05; done"
        timed_out(
            StreamTimedOut,
            lambda seconds: asyncio.run(stream(shell(script, tmp_path, timeout_seconds=seconds))),
            ready=lambda _: len(recorded_pids(tmp_path)) == 2,
        )
        assert_all_gone(recorded_pids(tmp_path))

    def test_a_member_of_the_group_does_not_outlive_a_good_run(self, tmp_path: Path) -> None:
        deaf = "(trap '' TERM; touch ready; while :; do sleep 0.05; done)"
        script = f"{deaf} & echo $! >deaf.pid; until test -e ready; do sleep 0.01; done"
        completed = asyncio.run(stream(shell(script, tmp_path)))
        assert completed.exit_code == 0
        assert len(recorded_pids(tmp_path)) == 1
        assert_all_gone(recorded_pids(tmp_path))


def test_a_process_forked_off_us_has_a_guardian_of_its_own(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys, threading; from pathlib import Path\n"
        "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
        "def call(script):\n"
        "    return stream(Command(argv=('sh', '-c', script), cwd=Path(sys.argv[1]), timeout_seconds=40,\n"
        "        environment=inherited_environment(), max_output_bytes=100))\n"
        "def forked():\n"
        "    script = 'until test -e parent-gone; do sleep 0.01; done; echo second'\n"
        "    print(asyncio.run(call(script)).stdout, flush=True)\n"
        "async def main():\n"
        "    begun, forked_off = (Path(sys.argv[1], name) for name in ('begun', 'forked-off'))\n"
        "    script = 'touch begun; until test -e forked-off; do sleep 0.01; done; echo first'\n"
        "    task = asyncio.create_task(call(script))\n"
        "    while not begun.exists():\n"
        "        await asyncio.sleep(0.01)\n"
        "    if os.fork() == 0:\n"
        "        thread = threading.Thread(target=forked)\n"
        "        thread.start()\n"
        "        thread.join()\n"
        "        os._exit(0)\n"
        "    forked_off.touch()\n"
        "    print((await task).stdout, flush=True)\n"
        "asyncio.run(main())"
    )
    argv = (sys.executable, "-X", "dev", "-c", program, str(tmp_path))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ours:
        assert ours.wait(timeout=PATIENCE_SECONDS) == 0
        time.sleep(0.3)
        (tmp_path / "parent-gone").touch()
        answers, warnings = ours.communicate(timeout=PATIENCE_SECONDS)
    assert answers.splitlines() == [b"b'first\\n'", b"b'second\\n'"]
    assert b"ResourceWarning" not in warnings
