"""The process module against real children: what comes back, and what cannot be started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from codeloupe.errors import OutputTooLarge, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import find_program, inherited_environment
from tests.children import MEBIBYTE, assert_all_gone, command, python, recorded_pids, run_now, shell
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS
from tests.rows import each


class TestOutcome:
    def test_output_and_exit_code_come_back_whatever_the_code(self, tmp_path: Path) -> None:
        completed = run_now(shell("echo out; echo err >&2; exit 3", tmp_path))
        assert (completed.exit_code, completed.stdout, completed.stderr) == (3, b"out\n", "err\n")
        assert completed.seconds > 0

    def test_arguments_reach_the_child_unchanged(self, tmp_path: Path) -> None:
        odd = ("a b", "$HOME", "*", "", "é", "\udcff")
        completed = run_now(command("printf", r"%s\n", *odd, cwd=tmp_path))
        assert completed.stdout == b"".join(os.fsencode(argument) + b"\n" for argument in odd)

    def test_standard_error_that_is_not_utf_8_is_readable(self, tmp_path: Path) -> None:
        assert run_now(shell(r"printf 'bad \377 byte' >&2", tmp_path)).stderr == "bad \N{REPLACEMENT CHARACTER} byte"

    def test_only_the_tail_of_standard_error_is_kept(self, tmp_path: Path) -> None:
        script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the end >&2"
        completed = run_now(shell(script, tmp_path))
        assert completed.stderr.endswith("x the end\n".replace(" the", "the"))
        assert len(completed.stderr) == 64 * 1024

    def test_neither_input_nor_output_is_in_the_representation(self, tmp_path: Path) -> None:
        what = shell("cat", tmp_path, stdin=b"confidential")
        assert "confidential" not in repr(what)
        assert "confidential" not in repr(run_now(what))


class TestPipes:
    def test_both_outputs_larger_than_a_pipe_do_not_block_each_other(self, tmp_path: Path) -> None:
        script = "import os\nfor _ in range(64):\n os.write(1, b'o' * 65536)\n os.write(2, b'e' * 65536)"
        completed = run_now(python(script, tmp_path))
        assert completed.stdout == b"o" * 64 * 65536
        assert completed.stderr == "e" * 65536

    def test_input_larger_than_a_pipe_comes_back_whole(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 16384
        assert run_now(command("cat", cwd=tmp_path, stdin=data)).stdout == data

    def test_a_child_that_ends_without_reading_its_input_is_no_failure(self, tmp_path: Path) -> None:
        completed = run_now(shell("echo done", tmp_path, stdin=b"x" * 8 * MEBIBYTE))
        assert (completed.exit_code, completed.stdout) == (0, b"done\n")

    def test_a_child_that_never_reads_its_input_is_ended_at_its_deadline(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessTimedOut):
            run_now(command("sleep", "30", cwd=tmp_path, stdin=b"x" * 8 * MEBIBYTE, timeout_seconds=0.2))

    def test_input_held_open_by_a_grandchild_delays_nothing(self, tmp_path: Path) -> None:
        script = "exec 3<&0; sleep 1000 0<&3 >/dev/null 2>&1 & echo done"
        completed = run_now(shell(script, tmp_path, stdin=b"x" * MEBIBYTE, timeout_seconds=FAR_TOO_LONG_SECONDS))
        assert completed.stdout == b"done\n"
        assert completed.seconds < PATIENCE_SECONDS

    def test_a_child_that_closes_its_outputs_early_is_waited_for(self, tmp_path: Path) -> None:
        completed = run_now(shell("echo before; exec >&- 2>&-; sleep 0.2; exit 5", tmp_path))
        assert (completed.exit_code, completed.stdout) == (5, b"before\n")

    def test_output_up_to_the_cap_is_whole(self, tmp_path: Path) -> None:
        assert (
            len(run_now(command("head", "-c", "1000", "/dev/zero", cwd=tmp_path, max_output_bytes=1000)).stdout) == 1000
        )

    def test_one_byte_over_the_cap_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(OutputTooLarge, match="head wrote more than 1,000 bytes"):
            run_now(command("head", "-c", "1001", "/dev/zero", cwd=tmp_path, max_output_bytes=1000))

    def test_endless_output_is_ended_at_the_cap(self, tmp_path: Path) -> None:
        with pytest.raises(OutputTooLarge):
            run_now(shell("echo $$ >sh.pid; exec yes", tmp_path, max_output_bytes=MEBIBYTE))
        assert_all_gone(recorded_pids(tmp_path))


class TestStart:
    def test_a_missing_program_is_named_with_a_hint(self, tmp_path: Path) -> None:
        with pytest.raises(ProgramNotFound, match="cannot start no-such-program: it is not installed") as caught:
            run_now(command("no-such-program", cwd=tmp_path))
        assert caught.value.program == "no-such-program"
        assert caught.value.hint == "install no-such-program and try again"

    def test_a_file_that_is_not_executable_is_no_program(self, tmp_path: Path) -> None:
        (tmp_path / "tool").write_text("#!/bin/sh\n")
        with pytest.raises(ProgramNotFound, match="not installed or not executable"):
            run_now(command(str(tmp_path / "tool"), cwd=tmp_path))

    def test_a_file_in_no_known_format_is_no_program(self, tmp_path: Path) -> None:
        tool = tmp_path / "tool"
        tool.write_bytes(b"\x00\x01\x02 not a program")
        tool.chmod(0o755)
        with pytest.raises(ProgramNotFound, match="not a program that this machine can run"):
            run_now(command(str(tool), cwd=tmp_path))

    def test_a_missing_working_directory_is_named_and_not_taken_for_a_missing_program(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessError, match=r"its working directory .*gone does not exist") as caught:
            run_now(command("true", cwd=tmp_path / "gone"))
        assert not isinstance(caught.value, ProgramNotFound)

    def test_arguments_longer_than_the_system_allows_are_explained(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessError, match="arguments are longer than the system allows") as caught:
            run_now(command("true", "x" * 4 * MEBIBYTE, cwd=tmp_path))
        assert caught.value.hint == "review a smaller change"

    @each("argument", ["a\0b", "\ud800"])
    def test_an_argument_no_program_can_get_is_explained(self, tmp_path: Path, argument: str) -> None:
        with pytest.raises(ProcessError, match="cannot be handed over"):
            run_now(command("true", argument, cwd=tmp_path))

    def test_a_variable_no_program_can_get_is_explained(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessError, match="cannot be handed over"):
            run_now(command("true", cwd=tmp_path, environment=inherited_environment(NAME="a\0b")))

    def test_a_system_without_room_is_explained(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, os, resource, sys; from pathlib import Path\n"
            "from codeloupe.system.process import *\nfrom codeloupe.system.streaming import *\n"
            "async def main():\n"
            "    what = Command(argv=('true',), cwd=Path(sys.argv[1]), environment=inherited_environment(),\n"
            "        timeout_seconds=40, max_output_bytes=1)\n"
            "    used = os.open(os.devnull, os.O_RDONLY)\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, used + 2))\n"
            "    try:\n        await run(what)\n    except Exception as error:\n        print(error)\n"
            "asyncio.run(main())"
        )
        completed = run_now(command(sys.executable, "-c", program, str(tmp_path), cwd=tmp_path))
        assert completed.stdout == b"cannot start true: the system has no room for it (Too many open files)\n"


class TestEnvironment:
    def test_a_secret_of_ours_is_not_seen_by_the_child(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_VENDOR_TOKEN", "tell-nobody")
        assert b"tell-nobody" not in run_now(command("env", cwd=tmp_path)).stdout

    def test_the_child_sees_the_few_allowed_names_and_what_is_added(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", "x")
        seen = run_now(command("env", cwd=tmp_path, environment=inherited_environment(EXTRA="1"))).stdout.decode()
        assert {row.partition("=")[0] for row in seen.splitlines()} == {"PATH", "TMPDIR", "TZ", "LC_ALL", "EXTRA"}

    def test_the_current_directory_is_never_searched_for_programs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planted = tmp_path / "planted-tool"
        planted.write_text("#!/bin/sh\ntouch executed\n")
        planted.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "bin", os.environ["PATH"]]))
        with pytest.raises(ProgramNotFound):
            run_now(command("planted-tool", cwd=tmp_path))
        assert find_program("planted-tool") is None
        assert not (tmp_path / "executed").exists()

    @each("path", ["", ".", ":"])
    def test_a_path_without_a_usable_entry_falls_back_to_the_system_one(
        self, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        monkeypatch.setenv("PATH", path)
        assert inherited_environment()["PATH"] == os.defpath

    def test_a_program_is_found_by_its_name_or_not_at_all(self) -> None:
        found = find_program("sh")
        assert found is not None
        assert Path(found).is_absolute()
        assert find_program("no-such-program") is None

    def test_the_child_has_a_session_of_its_own(self, tmp_path: Path) -> None:
        completed = run_now(python("import os; print(os.getsid(0) == os.getpid() == os.getpgrp())", tmp_path))
        assert completed.stdout == b"True\n"
