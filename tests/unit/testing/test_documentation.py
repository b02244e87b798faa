"""What docs/testing.md shows is run, and what it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import codeloupe.testing
from codeloupe.testing import read_script
from codeloupe.testing.replies import REPLY_KINDS
from tests.rows import each

TEXT = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found
    return found


@each("source", blocks("python"))
def test_the_examples_run(source: str, tmp_path: Path) -> None:
    command = (sys.executable, "-X", "dev", "-W", "error", "-c", source)
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_script_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(blocks("json")[0])
    assert len(read_script(tmp_path / "script.json")) == 3


def test_every_reply_is_described_and_public() -> None:
    for name in REPLY_KINDS:
        assert f"`{name}(" in TEXT
        assert name in codeloupe.testing.__all__
