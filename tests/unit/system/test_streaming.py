"""Streams against real programs: what comes back, line by line and in the end, and what cannot be started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ProcessError
from codeloupe.system.process import Command, Completed, inherited_environment
from codeloupe.system.streaming import StreamTimedOut, stream
from tests.children import (
    MEBIBYTE,
    assert_all_gone,
    assert_no_child_left,
    command,
    python,
    recorded_pids,
    run_now,
    shell,
)
from tests.endings import timed_out
from tests.rows import each


def stream_now(what: Command, on_line: Callable[[bytes], None] | None = None, **limits: Any) -> Completed:
    """Stream a program in an event loop of its own."""
    return asyncio.run(stream(what, on_line=on_line, **limits))


def lines_of(what: Command, **limits: int) -> list[bytes]:
    lines: list[bytes] = []
    stream_now(what, lines.append, **limits)
    return lines


class TestOutcome:
    def test_output_and_exit_code_come_back_whatever_the_code(self, tmp_path: Path) -> None:
        completed = stream_now(shell("echo out; echo err >&2; exit 3", tmp_path))
        assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"out\n", "err\n")
        assert (completed.omitted_bytes, completed.stdout_truncated, completed.skipped_lines) == (0, False, 0)
        assert completed.seconds > 0

    def test_arguments_and_variables_of_a_megabyte_reach_the_program(self, tmp_path: Path) -> None:
        many = tuple("x" * 100_000 for _ in range(8))
        environment = inherited_environment(**{f"VARIABLE_{number}": "y" * 100_000 for number in range(3)})
        script = 'echo "$#" "${#VARIABLE_2}"'
        completed = stream_now(command("sh", "-c", script, "sh", *many, cwd=tmp_path, environment=environment))
        assert completed.stdout == b"8 100000\n"

    def test_standard_error_keeps_its_head_and_tail(self, tmp_path: Path) -> None:
        script = r"printf 'first \377' >&2; head -c 3000000 /dev/zero | tr '\0' x >&2; echo the end >&2"
        stderr = stream_now(shell(script, tmp_path)).stderr
        assert stderr.startswith("first \N{REPLACEMENT CHARACTER}x")
        assert "bytes left out ...]\n" in stderr
        assert stderr.endswith("xthe end\n")
        assert len(stderr) < 150_000

    def test_neither_input_nor_output_is_in_the_representation(self, tmp_path: Path) -> None:
        assert "confidential" not in repr(stream_now(command("cat", cwd=tmp_path, stdin=b"confidential")))


class TestLines:
    def test_a_line_is_handed_over_while_the_program_still_runs(self, tmp_path: Path) -> None:
        script = "echo one; while ! test -e seen; do sleep 0.01; done; echo two"
        lines: list[bytes] = []

        def take(line: bytes) -> None:
            lines.append(line)
            (tmp_path / "seen").touch()

        stream_now(shell(script, tmp_path), take)
        assert lines == [b"one", b"two"]

    def test_line_ends_are_taken_off_and_empty_lines_and_odd_bytes_stay(self, tmp_path: Path) -> None:
        script = r"printf 'a\r\n\n\0\377\n \r \nb\rc\n'"
        assert lines_of(shell(script, tmp_path)) == [b"a", b"", b"\0\xff", b" \r ", b"b\rc"]

    def test_a_last_line_without_a_line_feed_is_handed_over(self, tmp_path: Path) -> None:
        assert lines_of(shell("printf 'a\nb'", tmp_path)) == [b"a", b"b"]

    def test_a_line_cut_off_by_a_timeout_is_no_line_but_is_kept(self, tmp_path: Path) -> None:
        lines: list[bytes] = []

        def cut_off(seconds: float) -> None:
            lines.clear()
            stream_now(shell("printf 'a\nb'; exec sleep 1000", tmp_path, timeout_seconds=seconds), lines.append)

        error = timed_out(StreamTimedOut, cut_off, ready=lambda error: bool(error.stdout))
        assert lines == [b"a"]
        assert error.stdout == b"a\nb"

    def test_a_line_written_in_many_pieces_is_one(self, tmp_path: Path) -> None:
        script = "import os, time\nfor _ in range(50): os.write(1, b'x'); time.sleep(0.002)\nos.write(1, b'\\n')"
        assert lines_of(python(script, tmp_path)) == [b"x" * 50]

    def test_one_line_of_many_megabytes_is_whole_when_it_may_be(self, tmp_path: Path) -> None:
        script = "head -c 12000000 /dev/zero; echo; echo next"
        assert [len(line) for line in lines_of(shell(script, tmp_path), max_line_bytes=12_000_000)] == [12_000_000, 4]

    def test_a_line_that_is_too_long_is_skipped_and_counted(self, tmp_path: Path) -> None:
        lines: list[bytes] = []
        script = "echo before; head -c 5000000 /dev/zero; echo; echo after"
        completed = stream_now(shell(script, tmp_path), lines.append, max_line_bytes=MEBIBYTE)
        assert lines == [b"before", b"after"]
        assert completed.skipped_lines == 1

    def test_what_the_taker_raises_ends_the_program_and_is_raised(self, tmp_path: Path) -> None:
        def take(line: bytes) -> None:
            raise KeyError(line)

        with pytest.raises(KeyError):
            stream_now(shell("echo $$ >sh.pid; echo a; echo b; exec sleep 1000", tmp_path), take)
        assert recorded_pids(tmp_path)
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    def test_what_the_taker_raises_at_the_last_line_is_raised_too(self, tmp_path: Path) -> None:
        def take(line: bytes) -> None:
            raise KeyError(line)

        with pytest.raises(KeyError):
            stream_now(shell("printf a", tmp_path), take)


class TestCaps:
    def test_head_and_tail_are_kept_and_what_is_left_out_is_told(self, tmp_path: Path) -> None:
        script = "echo head; head -c 1000000 /dev/zero; echo; echo tail"
        completed = stream_now(shell(script, tmp_path), keep_bytes=1000)
        assert completed.stdout.startswith(b"head\n\0")
        assert completed.stdout.endswith(b"\0\ntail\n")
        assert completed.stdout_truncated
        assert completed.omitted_bytes == 1_000_011 - 1000
        assert len(completed.stdout) < 1100

    @each("flood", ["head -c 60000000 /dev/zero", f"yes {'x' * 999} | head -c 60000000"])
    def test_a_flood_of_60_megabytes_costs_little_memory(self, tmp_path: Path, flood: str) -> None:
        program = (
            "import asyncio, resource, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "what = Command(argv=('sh', '-c', sys.argv[1]), cwd=Path(sys.argv[2]), timeout_seconds=50,\n"
            "    environment=inherited_environment(), max_output_bytes=1)\n"
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "before = peak()\n"
            "streaming = stream(what, on_line=lambda line: None, keep_bytes=100000, max_line_bytes=1000000)\n"
            "completed = asyncio.run(streaming)\n"
            "print(completed.omitted_bytes, peak() - before)"
        )
        completed = run_now(command(sys.executable, "-c", program, flood, str(tmp_path), cwd=tmp_path))
        omitted_bytes, grown_kibibytes = map(int, completed.stdout.split())
        assert omitted_bytes == 59_900_000
        assert grown_kibibytes < 20_000


class TestInput:
    @pytest.mark.requirement("R3")
    def test_a_prompt_of_12_megabytes_comes_back_whole(self, tmp_path: Path) -> None:
        prompt = bytes(range(256)) * 49152
        assert stream_now(command("cat", cwd=tmp_path, stdin=prompt)).stdout == prompt

    @pytest.mark.requirement("C9")
    def test_without_input_the_program_reads_end_of_file_at_once(self, tmp_path: Path) -> None:
        assert stream_now(command("cat", cwd=tmp_path)).stdout == b""

    def test_a_program_that_ends_without_reading_its_input_is_no_failure(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        completed = stream_now(shell("echo done", tmp_path, stdin=b"x" * 12 * MEBIBYTE))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert caplog.records == []

    def test_a_program_that_never_reads_its_input_is_ended_at_its_deadline(self, tmp_path: Path) -> None:
        with pytest.raises(StreamTimedOut):
            stream_now(command("sleep", "30", cwd=tmp_path, stdin=b"x" * 12 * MEBIBYTE, timeout_seconds=0.3))
        assert_no_child_left()


class TestSurroundings:
    SCRIPT = "grep -E '^(SigIgn|SigBlk)' /proc/self/status; ls /proc/self/fd; env"

    def test_a_program_finds_the_same_signals_files_and_variables_as_one_that_is_run(self, tmp_path: Path) -> None:
        what = shell(self.SCRIPT, tmp_path)
        assert stream_now(what).stdout == run_now(what).stdout

    def test_a_secret_of_ours_is_not_seen_by_the_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_VENDOR_TOKEN", "tell-nobody")
        script = "env; cat /proc/$PPID/environ"
        assert b"tell-nobody" not in stream_now(shell(script, tmp_path)).stdout

    def test_a_relative_working_directory_is_below_ours(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path)
        completed = stream_now(command("pwd", "-P", cwd=Path("below")))
        assert completed.stdout == os.fsencode((tmp_path / "below").resolve()) + b"\n"


class TestStart:
    @each(
        "argv",
        [
            ("no-such-program",),
            (".",),
            ("./plain",),
            ("./plain/below",),
            ("./garbage",),
            ("true", "x" * 4 * MEBIBYTE),
            ("true", "a\0b"),
            ("true", "\ud800"),
        ],
    )
    def test_it_fails_in_the_same_words_as_a_run(self, tmp_path: Path, argv: tuple[str, ...]) -> None:
        (tmp_path / "plain").write_text("#!/bin/sh\n")
        (tmp_path / "garbage").write_bytes(b"\x00\x01\x02 not a program")
        (tmp_path / "garbage").chmod(0o755)
        what = command(*argv, cwd=tmp_path)
        with pytest.raises(ProcessError) as streamed:
            stream_now(what)
        with pytest.raises(ProcessError) as ran:
            run_now(what)
        assert type(streamed.value) is type(ran.value)
        assert (str(streamed.value), streamed.value.hint) == (str(ran.value), ran.value.hint)
        assert_no_child_left()

    def test_a_system_without_room_is_explained(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, os, resource, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
            "async def main(room):\n"
            "    what = Command(argv=('true',), cwd=Path(sys.argv[1]), environment=inherited_environment(),\n"
            "        timeout_seconds=40, max_output_bytes=1)\n"
            "    used = os.open(os.devnull, os.O_RDONLY)\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, limits[1]))\n"
            "    try:\n        await stream(what)\n    except Exception as error:\n        print(error)\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
            "    os.close(used)\n"
            "for room in range(2, 11):\n    asyncio.run(main(room))\n"
        )
        completed = run_now(command(sys.executable, "-X", "dev", "-c", program, str(tmp_path), cwd=tmp_path))
        words = b"cannot start true: the system has no room for it (Too many open files)\n"
        assert completed.stdout == words * 9
        assert completed.stderr == ""

    def test_a_python_that_cannot_be_started_is_explained(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A Python without an executable of its own exists only inside other programs.
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
        with pytest.raises(
            ProcessError, match=r"cannot start true: .*no-python does not run, which is to watch over it"
        ):
            stream_now(command("true", cwd=tmp_path))
        assert_no_child_left()

    def test_a_python_that_ends_at_once_is_explained(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # As above: a Python that is broken, and so never listens.
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(ProcessError, match=r"true was lost: the process that watched|false does not run"):
            stream_now(command("true", cwd=tmp_path))
        assert_no_child_left()
