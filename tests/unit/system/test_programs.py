"""Real programs, run and streamed: what comes back, and what cannot be started."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import OutputTooLarge, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run, stream
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
from tests.rows import each

pytestmark = pytest.mark.program

Call = Callable[[Command], Coroutine[Any, Any, Completed]]
both = each("call", [run, stream])


def done(call: Call, what: Command) -> Completed:
    return asyncio.run(call(what))


def stream_now(what: Command, on_line: Callable[[bytes], None] | None = None, **limits: Any) -> Completed:
    return asyncio.run(stream(what, on_line=on_line, **limits))


class TestBoth:
    @both
    def test_output_and_exit_code_come_back_whatever_the_code(self, tmp_path: Path, call: Call) -> None:
        completed = done(call, shell(r"echo out; printf 'bad \377' >&2; exit 3", tmp_path))
        assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"out\n", "bad \ufffd")
        assert (completed.omitted_bytes, completed.stdout_truncated, completed.skipped_lines) == (0, False, 0)
        assert completed.seconds > 0

    @both
    def test_arguments_variables_and_a_relative_directory_reach_the_program_unchanged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        monkeypatch.chdir(tmp_path.parent)
        odd = ("a b", "$HOME", "*", "", "é", "\udcff", "x" * 100_000)
        completed = done(call, command("printf", r"%s\n", *odd, cwd=Path(tmp_path.name)))
        assert completed.stdout == b"".join(os.fsencode(argument) + b"\n" for argument in odd)
        environment = inherited_environment(**{f"VARIABLE_{number}": "y" * 100_000 for number in range(3)})
        what = shell('echo "${#VARIABLE_2}"; pwd -P', tmp_path, environment=environment, stdin=b"confidential")
        assert done(call, what).stdout == b"100000\n" + os.fsencode(tmp_path.resolve()) + b"\n"
        assert "confidential" not in repr((what, done(call, shell("cat", tmp_path, stdin=b"confidential"))))

    @both
    def test_both_outputs_larger_than_a_pipe_do_not_block_each_other(self, tmp_path: Path, call: Call) -> None:
        script = "import os\nfor _ in range(64):\n os.write(1, b'o' * 65536)\n os.write(2, b'e' * 65536)"
        completed = done(call, python(script, tmp_path))
        assert completed.stdout == b"o" * 64 * 65536
        assert completed.stderr.endswith("e" * 60_000)

    @pytest.mark.requirement("R3")
    @pytest.mark.requirement("C9")
    @both
    def test_a_prompt_of_12_megabytes_comes_back_whole_and_without_one_the_program_reads_end_of_file(
        self, tmp_path: Path, call: Call
    ) -> None:
        for prompt in (bytes(range(256)) * 49152, b""):
            assert done(call, command("cat", cwd=tmp_path, stdin=prompt)).stdout == prompt

    @both
    def test_a_program_that_ends_without_reading_its_input_is_no_failure(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Call
    ) -> None:
        completed = done(call, shell("echo done", tmp_path, stdin=b"x" * 12 * MEBIBYTE))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")
        assert caplog.records == []
        with pytest.raises(ProcessTimedOut):
            done(call, command("sleep", "30", cwd=tmp_path, stdin=b"x" * 12 * MEBIBYTE, timeout_seconds=0.3))
        assert_no_child_left()

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

    def test_output_beyond_the_cap_ends_the_program_and_the_last_of_stderr_is_kept(self, tmp_path: Path) -> None:
        completed = run_now(shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the end >&2", tmp_path))
        assert (len(completed.stderr), completed.stderr[-9:]) == (64 * 1024, "xthe end\n")
        head = command("head", "-c", "1000", "/dev/zero", cwd=tmp_path, max_output_bytes=1000)
        assert len(run_now(head).stdout) == 1000
        with pytest.raises(OutputTooLarge, match="sh wrote more than 1,000 bytes"):
            run_now(shell("echo $$ >sh.pid; exec yes", tmp_path, max_output_bytes=1000))
        assert_all_gone(recorded_pids(tmp_path))


class TestLines:
    def test_a_line_is_handed_over_while_the_program_still_runs(self, tmp_path: Path) -> None:
        lines: list[bytes] = []

        def take(line: bytes) -> None:
            lines.append(line)
            (tmp_path / "seen").touch()

        stream_now(shell("echo one; while ! test -e seen; do sleep 0.01; done; echo two", tmp_path), take)
        assert lines == [b"one", b"two"]

    def test_a_line_that_is_too_long_is_skipped_and_counted(self, tmp_path: Path) -> None:
        lines: list[bytes] = []
        script = "echo before; head -c 5000000 /dev/zero; echo; echo after"
        completed = stream_now(shell(script, tmp_path), lines.append, max_line_bytes=MEBIBYTE)
        assert (lines, completed.skipped_lines) == ([b"before", b"after"], 1)
        stream_now(shell(script, tmp_path), lines.append)
        assert [len(line) for line in lines[2:]] == [6, 5_000_000, 5]

    @each("script", ["echo $$ >sh.pid; echo a; echo b; exec sleep 1000", "echo $$ >sh.pid; printf a"])
    def test_what_the_taker_raises_ends_the_program_and_is_raised(self, tmp_path: Path, script: str) -> None:
        def take(line: bytes) -> None:
            raise KeyError(line)

        with pytest.raises(KeyError):
            stream_now(shell(script, tmp_path), take)
        assert recorded_pids(tmp_path)
        assert_all_gone(recorded_pids(tmp_path))
        assert_no_child_left()

    def test_head_and_tail_of_both_outputs_are_kept_and_what_is_left_out_is_counted(self, tmp_path: Path) -> None:
        script = "echo head; head -c 1000000 /dev/zero; echo; echo tail"
        completed = stream_now(shell(f"({script}); ({script}) >&2", tmp_path), keep_bytes=1000)
        assert (completed.stdout_truncated, completed.omitted_bytes) == (True, 1_000_011 - 1000)
        for output in (completed.stdout, completed.stderr.encode()):
            assert (output[:5], b"bytes omitted ...]\n" in output, output[-6:]) == (b"head\n", True, b"\ntail\n")
        assert (len(completed.stdout) < 1100, len(completed.stderr) < 150_000) == (True, True)


class TestStart:
    @each(
        ("argv", "kind", "words"),
        [
            (("no-such-program",), ProgramNotFound, "cannot start no-such-program: it is not installed"),
            ((".",), ProgramNotFound, "not installed, or cannot run on this system"),
            (("./plain",), ProgramNotFound, "not installed, or cannot run on this system"),
            (("./plain/below",), ProgramNotFound, "not installed"),
            (("./garbage",), ProgramNotFound, "not installed, or cannot run on this system"),
            (("true", "x" * 4 * MEBIBYTE), ProcessError, "arguments are longer than the system allows"),
            (("true", "a\0b"), ProcessError, "invalid argument or environment variable"),
            (("true", "\ud800"), ProcessError, "invalid argument or environment variable"),
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
    def test_a_missing_directory_and_a_variable_that_cannot_be_handed_over_are_explained(
        self, tmp_path: Path, call: Call
    ) -> None:
        with pytest.raises(ProcessError, match=r"its working directory .*gone does not exist") as caught:
            done(call, command("true", cwd=tmp_path / "gone"))
        assert not isinstance(caught.value, ProgramNotFound)
        with pytest.raises(ProcessError, match="invalid argument or environment variable"):
            done(call, command("true", cwd=tmp_path, environment=inherited_environment(NAME="a\0b")))

    @each(("verb", "rooms"), [("run", (2, 4)), ("stream", range(2, 11))])
    def test_a_system_without_room_is_explained(self, tmp_path: Path, verb: str, rooms: tuple[int, ...]) -> None:
        program = (
            "import asyncio, os, resource, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.process import *\n"
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
        words = b"cannot start true: the system is out of resources (Too many open files)\n"
        assert completed.stdout == words * len(rooms)
        assert completed.stderr == ""

    @each(
        ("python", "words"),
        [
            ("/no-python", "cannot start true: cannot run /no-python to supervise it"),
            ("/bin/false", "true was lost: its supervisor process|cannot run /bin/false to supervise it"),
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
        monkeypatch.setenv("PATH", ".")
        assert inherited_environment()["PATH"] == os.defpath
