"""What the tests of pipelines at the command line share."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from codeloupe.cli.main import main
from tests.unit.cli.run_terminal import Terminal


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    exit_code: int
    out: str
    err: str

    @property
    def run(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ended]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a verb of `pipeline` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def called(*words: str) -> Ended:
        exit_code = main(["pipeline", *words])
        return Ended(exit_code, *capsys.readouterr())

    return called


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()
