"""Real programs, run and streamed: what comes back, and what cannot be started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import OutputTooLarge, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run
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
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, timed_out
from tests.rows import each

pytestmark = pytest.mark.program

Call = Callable[[Command], Awaitable[Completed]]
both = each("call", [run, stream])


def done(call: Call, what: Command) -> Completed:
    async def go() -> Completed:
        return await call(what)

    return asyncio.run(go())


def stream_now(what: Command, on_line: Callable[[bytes], None] | None = None, **limits: Any) -> Completed:
    return asyncio.run(stream(what, on_line=on_line, **limits))


def lines_of(what: Command, **limits: int) -> list[bytes]:
    lines: list[bytes] = []
    stream_now(what, lines.append, **limits)
    return lines


class TestBoth:
    @both
    def test_output_and_exit_code_come_back_whatever_the_code(self, tmp_path: Path, call: Call) -> None:
        completed = done(call, shell(r"echo out; printf 'bad \377' >&2; exit 3", tmp_path))
        assert (completed.exit_code, completed.stdout, completed.stderr) == (
            3,
            b"out\n",
            "bad \N{REPLACEMENT CHARACTER}",
        )
        assert (completed.omitted_bytes, completed.stdout_truncated, completed.skipped_lines) == (0, False, 0)
        assert completed.seconds > 0

    @both
    def test_arguments_reach_the_program_unchanged(self, tmp_path: Path, call: Call) -> None:
        odd = ("a b", "$HOME", "*", "", "é", "\udcff")
        completed = done(call, command("printf", r"%s\n", *odd, cwd=tmp_path))
        assert completed.stdout == b"".join(os.fsencode(argument) + b"\n" for argument in odd)

    @both
    def test_arguments_and_variables_of_a_megabyte_reach_the_program(self, tmp_path: Path, call: Call) -> None:
        many = tuple("x" * 100_000 for _ in range(8))
        environment = inherited_environment(**{f"VARIABLE_{number}": "y" * 100_000 for number in range(3)})
        script = 'echo "$#" "${#VARIABLE_2}"'
        what = command("sh", "-c", script, "sh", *many, cwd=tmp_path, environment=environment)
        assert done(call, what).stdout == b"8 100000\n"

    @both
    def test_neither_input_nor_output_is_in_the_representation(self, tmp_path: Path, call: Call) -> None:
        what = shell("cat", tmp_path, stdin=b"confidential")
        assert "confidential" not in repr(what)
        assert "confidential" not in repr(done(call, what))

    @both
    def test_both_outputs_larger_than_a_pipe_do_not_block_each_other(self, tmp_path: Path, call: Call) -> None:
        script = "import os\nfor _ in range(64):\n os.write(1, b'o' * 65536)\n os.write(2, b'e' * 65536)"
        completed = done(call, python(script, tmp_path))
        assert completed.stdout == b"o" * 64 * 65536
        assert completed.stderr.endswith("e" * 60_000)

    @pytest.mark.requirement("R3")
    @both
    def test_a_prompt_of_12_megabytes_comes_back_whole(self, tmp_path: Path, call: Call) -> None:
        prompt = bytes(range(256)) * 49152
        assert done(call, command("cat", cwd=tmp_path, stdin=prompt)).stdout == prompt

    @pytest.mark.requirement("C9")
    @both
    def test_without_input_the_program_reads_end_of_file_at_once(self, tmp_path: Path, call: Call) -> None:
        assert done(call, command("cat", cwd=tmp_path)).stdout == b""

    @both
    def test_a_program_that_ends_without_reading_its_input_is_no_failure(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Call
    ) -> None:
        completed = done(call, shell("echo done", tmp_path, stdin=b"x" * 12 * MEBIBYTE))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert caplog.records == []

    @both
    def test_a_program_that_never_reads_its_input_is_ended_at_its_deadline(self, tmp_path: Path, call: Call) -> None:
        with pytest.raises(ProcessTimedOut):
            done(call, command("sleep", "30", cwd=tmp_path, stdin=b"x" * 12 * MEBIBYTE, timeout_seconds=0.3))
        assert_no_child_left()

    @both
    def test_input_held_open_by_a_grandchild_delays_nothing(self, tmp_path: Path, call: Call) -> None:
        script = "exec 3<&0; sleep 1000 0<&3 >/dev/null 2>&1 & echo done"
        what = shell(script, tmp_path, stdin=b"x" * MEBIBYTE, timeout_seconds=FAR_TOO_LONG_SECONDS)
        completed = done(call, what)
        assert completed.stdout == b"done\n"
        assert completed.seconds < PATIENCE_SECONDS

    @both
    def test_a_program_that_closes_its_outputs_early_is_waited_for(self, tmp_path: Path, call: Call) -> None:
        completed = done(call, shell("echo before; exec >&- 2>&-; sleep 0.2; exit 5", tmp_path))
        assert (completed.exit_code, completed.stdout) == (5, b"before\n")

    @both
    def test_a_secret_of_ours_is_seen_neither_by_the_program_nor_beside_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        monkeypatch.setenv("SOME_VENDOR_TOKEN", "tell-nobody")
        script = "env; test $PPID = $1 || cat /proc/$PPID/environ"
        seen = done(call, command("sh", "-c", script, "sh", str(os.getpid()), cwd=tmp_path)).stdout
        assert b"PATH=" in seen
        assert b"tell-nobody" not in seen

    def test_a_program_finds_the_same_signals_files_session_and_variables(self, tmp_path: Path) -> None:
        script = "grep -E '^(SigIgn|SigBlk)' /proc/self/status; ls /proc/self/fd; env; ps -o sid= -p $$ | grep -qw $$"
        what = shell(script, tmp_path)
        assert stream_now(what).stdout == run_now(what).stdout
        own = "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())"
        assert run_now(python(own, tmp_path)).stdout == stream_now(python(own, tmp_path)).stdout == b"True\n"

    @both
    def test_a_relative_working_directory_is_below_ours(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path)
        completed = done(call, command("pwd", "-P", cwd=Path("below")))
        assert completed.stdout == os.fsencode((tmp_path / "below").resolve()) + b"\n"


class TestRun:
    def test_only_the_tail_of_standard_error_is_kept(self, tmp_path: Path) -> None:
        completed = run_now(shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the end >&2", tmp_path))
        assert completed.stderr.endswith("xthe end\n")
        assert len(completed.stderr) == 64 * 1024

    def test_output_up_to_the_cap_is_whole_and_one_byte_more_is_an_error(self, tmp_path: Path) -> None:
        def head(size: str) -> Command:
            return command("head", "-c", size, "/dev/zero", cwd=tmp_path, max_output_bytes=1000)

        assert len(run_now(head("1000")).stdout) == 1000
        with pytest.raises(OutputTooLarge, match="head wrote more than 1,000 bytes"):
            run_now(head("1001"))

    def test_endless_output_is_ended_at_the_cap(self, tmp_path: Path) -> None:
        with pytest.raises(OutputTooLarge):
            run_now(shell("echo $$ >sh.pid; exec yes", tmp_path, max_output_bytes=MEBIBYTE))
        assert_all_gone(recorded_pids(tmp_path))


class TestLines:
    def test_a_line_is_handed_over_while_the_program_still_runs(self, tmp_path: Path) -> None:
        lines: list[bytes] = []

        def take(line: bytes) -> None:
            lines.append(line)
            (tmp_path / "seen").touch()

        stream_now(shell("echo one; while ! test -e seen; do sleep 0.01; done; echo two", tmp_path), take)
        assert lines == [b"one", b"two"]

    def test_line_ends_are_taken_off_and_the_rest_stays(self, tmp_path: Path) -> None:
        script = r"printf 'a\r\n\n\0\377\n \r \nb\rc\nlast'"
        assert lines_of(shell(script, tmp_path)) == [b"a", b"", b"\0\xff", b" \r ", b"b\rc", b"last"]

    def test_a_line_cut_off_by_a_timeout_is_no_line_but_is_kept(self, tmp_path: Path) -> None:
        lines: list[bytes] = []

        def cut_off(seconds: float) -> None:
            lines.clear()
            stream_now(shell("printf 'a\nb'; exec sleep 1000", tmp_path, timeout_seconds=seconds), lines.append)

        error = timed_out(StreamTimedOut, cut_off, ready=lambda error: bool(error.stdout))
        assert lines == [b"a"]
        assert error.stdout == b"a\nb"

    def test_one_line_of_many_pieces_or_megabytes_is_whole_when_it_may_be(self, tmp_path: Path) -> None:
        script = "import os, time\nfor _ in range(50): os.write(1, b'x'); time.sleep(0.002)\nos.write(1, b'\\n')"
        assert lines_of(python(script, tmp_path)) == [b"x" * 50]
        script = "head -c 12000000 /dev/zero; echo; echo next"
        assert [len(line) for line in lines_of(shell(script, tmp_path), max_line_bytes=12_000_000)] == [12_000_000, 4]

    def test_a_line_that_is_too_long_is_skipped_and_counted(self, tmp_path: Path) -> None:
        lines: list[bytes] = []
        script = "echo before; head -c 5000000 /dev/zero; echo; echo after"
        completed = stream_now(shell(script, tmp_path), lines.append, max_line_bytes=MEBIBYTE)
        assert lines == [b"before", b"after"]
        assert completed.skipped_lines == 1

    @each("script", ["echo $$ >sh.pid; echo a; echo b; exec sleep 1000", "echo $$ >sh.pid; printf a"])
    def test_what_the_taker_raises_ends_the_program_and_is_raised(self, tmp_path: Path, script: str) -> None:
        def take(line: bytes) -> None:
            raise KeyError(line)

        with pytest.raises(KeyError):
            stream_now(shell(script, tmp_path), take)
        assert recorded_pids(tmp_path)
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()


class TestKeptOutput:
    def test_head_and_tail_are_kept_and_what_is_left_out_is_said(self, tmp_path: Path) -> None:
        script = "echo head; head -c 1000000 /dev/zero; echo; echo tail"
        completed = stream_now(shell(f"({script}); ({script}) >&2", tmp_path), keep_bytes=1000)
        assert completed.stdout.startswith(b"head\n\0")
        assert completed.stdout.endswith(b"\0\ntail\n")
        assert completed.stdout_truncated
        assert completed.omitted_bytes == 1_000_011 - 1000
        assert len(completed.stdout) < 1100
        assert completed.stderr.startswith("head\n")
        assert "bytes left out ...]\n" in completed.stderr
        assert completed.stderr.endswith("\ntail\n")
        assert len(completed.stderr) < 150_000

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


class TestStart:
    @each(
        ("argv", "kind", "words"),
        [
            (("no-such-program",), ProgramNotFound, "cannot start no-such-program: it is not installed"),
            ((".",), ProgramNotFound, "not installed or not executable"),
            (("./plain",), ProgramNotFound, "not installed or not executable"),
            (("./plain/below",), ProgramNotFound, "not installed"),
            (("./garbage",), ProgramNotFound, "not a program that this machine can run"),
            (("true", "x" * 4 * MEBIBYTE), ProcessError, "arguments are longer than the system allows"),
            (("true", "a\0b"), ProcessError, "cannot be handed over"),
            (("true", "\ud800"), ProcessError, "cannot be handed over"),
        ],
    )
    def test_what_cannot_be_started_is_explained_in_the_same_words(
        self, tmp_path: Path, argv: tuple[str, ...], kind: type[ProcessError], words: str
    ) -> None:
        (tmp_path / "plain").write_text("#!/bin/sh\n")
        (tmp_path / "garbage").write_bytes(b"\x00\x01\x02 not a program")
        (tmp_path / "garbage").chmod(0o755)
        what = command(*argv, cwd=tmp_path)
        with pytest.raises(kind, match=words) as ran:
            run_now(what)
        with pytest.raises(kind) as streamed:
            stream_now(what)
        assert type(streamed.value) is type(ran.value) is kind
        assert (str(streamed.value), streamed.value.hint) == (str(ran.value), ran.value.hint)
        assert ran.value.hint
        assert_no_child_left()

    @both
    def test_a_missing_working_directory_is_named_and_not_taken_for_a_missing_program(
        self, tmp_path: Path, call: Call
    ) -> None:
        with pytest.raises(ProcessError, match=r"its working directory .*gone does not exist") as caught:
            done(call, command("true", cwd=tmp_path / "gone"))
        assert not isinstance(caught.value, ProgramNotFound)

    @both
    def test_a_variable_no_program_can_get_is_explained(self, tmp_path: Path, call: Call) -> None:
        with pytest.raises(ProcessError, match="cannot be handed over"):
            done(call, command("true", cwd=tmp_path, environment=inherited_environment(NAME="a\0b")))

    @each(("verb", "rooms"), [("run", (2, 4)), ("stream", range(2, 11))])
    def test_a_system_without_room_is_explained(self, tmp_path: Path, verb: str, rooms: tuple[int, ...]) -> None:
        program = (
            "import asyncio, os, resource, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
            "async def main(room):\n"
            "    what = Command(argv=('true',), cwd=Path(sys.argv[1]), environment=inherited_environment(),\n"
            "        timeout_seconds=40, max_output_bytes=1)\n"
            "    used = os.open(os.devnull, os.O_RDONLY)\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, limits[1]))\n"
            f"    try:\n        await {verb}(what)\n    except Exception as error:\n        print(error)\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, limits)\n"
            "    os.close(used)\n"
            f"for room in {tuple(rooms)}:\n    asyncio.run(main(room))\n"
        )
        completed = run_now(command(sys.executable, "-X", "dev", "-c", program, str(tmp_path), cwd=tmp_path))
        words = b"cannot start true: the system has no room for it (Too many open files)\n"
        assert completed.stdout == words * len(rooms)
        assert completed.stderr == ""

    @each(
        ("python", "words"),
        [
            ("/no-python", "cannot start true: /no-python does not run, which is to watch over it"),
            ("/bin/false", "true was lost: the process that watched|false does not run"),
        ],
    )
    def test_a_python_that_does_not_run_is_explained(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, words: str
    ) -> None:
        # A Python without an executable of its own exists only inside other programs.
        monkeypatch.setattr(sys, "executable", python)
        with pytest.raises(ProcessError, match=words):
            stream_now(command("true", cwd=tmp_path))
        assert_no_child_left()


class TestEnvironment:
    def test_the_child_sees_the_few_allowed_names_and_what_is_added(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", "x")
        seen = run_now(command("env", cwd=tmp_path, environment=inherited_environment(EXTRA="1"))).stdout.decode()
        assert {row.partition("=")[0] for row in seen.splitlines()} == {"PATH", "TMPDIR", "TZ", "LC_ALL", "EXTRA"}

    @both
    def test_the_current_directory_is_never_searched_for_programs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        planted = tmp_path / "planted-tool"
        planted.write_text("#!/bin/sh\ntouch executed\n")
        planted.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "bin", os.environ["PATH"]]))
        with pytest.raises(ProgramNotFound):
            done(call, command("planted-tool", cwd=tmp_path))
        assert find_program("planted-tool") is None
        assert not (tmp_path / "executed").exists()

    def test_a_path_without_a_usable_entry_falls_back_to_the_system_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = find_program("sh")
        assert found is not None
        assert Path(found).is_absolute()
        for path in ("", ".", ":"):
            monkeypatch.setenv("PATH", path)
            assert inherited_environment()["PATH"] == os.defpath
