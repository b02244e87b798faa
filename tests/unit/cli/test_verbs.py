"""What all verbs do: run a coroutine until a signal ends it, and write a result, or say before the work why not."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codeloupe.cli.options import scope_of
from codeloupe.cli.parser import Parser
from codeloupe.cli.review import configure
from codeloupe.cli.verbs import output_file
from codeloupe.errors import OutputError, UsageError
from tests.endings import ends_soon
from tests.rows import each

_PROGRAM = """
import asyncio, signal, sys
from codeloupe.cli.verbs import run_to_end

signal.signal(signal.SIGINT, signal.{handling})

async def work():
    try:
        print("working", flush=True)
        await asyncio.sleep(300)
    finally:
        print("cleaned up", flush=True)

try:
    run_to_end(work())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.program
@each("handling", ["SIG_IGN", "default_int_handler"])
def test_a_polite_end_cancels_the_work_and_a_background_job_does_not_hear_the_terminals_interrupt(
    handling: str,
) -> None:
    words = (sys.executable, "-c", _PROGRAM.format(handling=handling))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "working\n"
        if handling == "SIG_IGN":
            program.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                program.wait(0.3)
        with ends_soon():
            program.send_signal(signal.SIGTERM)
            assert program.stdout.read() == "cleaned up\n"
    assert program.returncode == 130


@each("name", ["folder/none/out", "file/out", "n" * 300, "."])
def test_a_target_that_cannot_be_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write the result"), output_file(tmp_path / name):
        pytest.fail("the work began")


def test_a_failure_of_the_work_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="something else"), output_file(tmp_path / "out"):
        raise FileNotFoundError("something else")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "out").symlink_to("other")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("out", "loop"):
        with output_file(tmp_path / name) as pieces:
            pieces.append("result\n")
        assert (tmp_path / name).read_text() == "result\n"
    assert (tmp_path / "other").read_text() == "kept"


def test_a_diff_that_is_larger_than_may_be_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codeloupe.cli.options._MAX_DIFF_BYTES", 10)
    (tmp_path / "x.diff").write_bytes(b"\n" * 11)
    parser = Parser()
    configure(parser)
    with pytest.raises(UsageError, match="larger than 10 bytes"):
        scope_of(parser.parse_args(["--diff-file", str(tmp_path / "x.diff")]))
