"""`python -m codeloupe.testing`, run as a person would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codeloupe.testing import Delay, StandInServer, Status, Text
from codeloupe.testing.__main__ import main
from codeloupe.testing.replies import read_script
from tests.endings import PATIENCE_SECONDS
from tests.unit.testing.wire import ask, port_of


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "codeloupe.testing", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    text = ""
    while word not in text:
        line = process.stdout.readline()
        assert line, f"it ended without saying {word!r}: {text}"
        text += line
    return text


def test_it_prints_its_address_and_settings_shows_requests_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('["by the script"]')
    with started(str(tmp_path / "script.json")) as process:
        said = lines_until(process, "OPENAI_API_KEY")
        address = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert address
        assert '{"security": {"auth": {"selectedType": "gemini-api-key"}}}' in said
        for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "model_providers.standin", "OPENAI_BASE_URL"):
            assert name in said
        answer = ask(StandInServer(port=int(address[1])), "chat").json()
        assert answer["choices"][0]["message"]["content"] == "by the script"
        assert "POST /v1/chat/completions" in lines_until(process, "POST")
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["missing.json"], "missing.json cannot be read.*JSON list"),
        (["1", "2"], "1 2.*Usage: python -m codeloupe.testing"),
        (["a.json", "b.json"], "a.json b.json.*Usage"),
        (["--port"], "--port.*Usage"),
        (["99999"], "99999 is no port.*65535"),
    ],
)
def test_what_cannot_be_used_is_told_with_what_to_do(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert re.search(told, capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_tells_the_words_and_a_script_that_can_be_read(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 0
    said, errors = capsys.readouterr()
    assert (said.splitlines()[0], errors) == ("Usage: python -m codeloupe.testing [SCRIPT.json] [PORT]", "")
    example = re.search(r"^ +(\[.*\])$", said, re.MULTILINE)
    assert example is not None
    (tmp_path / "script.json").write_text(example[1])
    assert read_script(tmp_path / "script.json") == [
        Text("hello"),
        Status(429, retry_after=3),
        Delay(2, Text("done")),
    ]


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with StandInServer() as server:
        assert main([str(port_of(server))]) == 2
    assert "Try another port" in capsys.readouterr().err
