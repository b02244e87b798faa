"""A verb's coroutine, and the signals that end it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.endings import ends_soon
from tests.rows import each

_PROGRAM = """
import asyncio, signal, sys
from codeloupe.cli.running import run_to_end

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


@each("handling", ["SIG_IGN", "default_int_handler"])
def test_a_polite_end_cancels_the_work_also_in_a_background_job(handling: str) -> None:
    words = (sys.executable, "-c", _PROGRAM.format(handling=handling))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "working\n"
        with ends_soon():
            program.send_signal(signal.SIGTERM)
            assert program.stdout.read() == "cleaned up\n"
    assert program.returncode == 130


def test_a_background_job_does_not_hear_the_terminals_interrupt() -> None:
    words = (sys.executable, "-c", _PROGRAM.format(handling="SIG_IGN"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "working\n"
        program.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.3)
        program.send_signal(signal.SIGTERM)
        assert program.stdout.read() == "cleaned up\n"
    assert program.returncode == 130
