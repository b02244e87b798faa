"""Which lines are searched for secrets in this process, and that searching there leaves no trace in it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from codeloupe.analysers import programs, secret_detectors, secrets
from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget
from codeloupe.analysers.secrets import SecretsAnalyser

TOKEN = "gh" + "p_u8jzPde0IgxLd6GncfBAepfJBd0Kh8oOOL8d"
LONG = "x = " + "a + " * 200 + "1"


def searched(root: Path, text: str) -> AnalyserReport:
    (root / "a.py").write_text(text, encoding="utf-8")
    lines = frozenset(range(1, text.count("\n") + 1))
    target = AnalysisTarget(
        root=root, files=("a.py",), added_lines={"a.py": lines}, trusted=False, timeout_seconds=50.0
    )
    return asyncio.run(SecretsAnalyser().analyse(target))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands that are started, none of which runs."""
    commands: list[object] = []

    async def run(command: object) -> object:
        commands.append(command)
        raise RuntimeError("no process here")

    monkeypatch.setattr(programs, "run", run)
    return commands


def test_short_lines_start_no_process(tmp_path: Path, started: list[object]) -> None:
    report = searched(tmp_path, f'y = 1\nx = "{TOKEN}"\n')
    assert [(issue.line_start, issue.rule) for issue in report.issues] == [(2, "github-token")]
    assert started == []


def test_a_long_line_is_searched_in_a_process_of_its_own(tmp_path: Path, started: list[object]) -> None:
    with pytest.raises(RuntimeError):
        searched(tmp_path, f'{LONG}\nx = "{TOKEN}"\n')
    assert len(started) == 1


def test_what_takes_longer_than_its_time_goes_to_a_process(
    tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_HERE_SECONDS", 0.0)
    with pytest.raises(RuntimeError):
        searched(tmp_path, f'x = "{TOKEN}"\n')
    assert len(started) == 1


def test_loading_the_detectors_leaves_no_stand_in_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("requests", "detect_secrets")]:
        monkeypatch.delitem(sys.modules, name)
    secret_detectors._loaded.cache_clear()
    secret_detectors.load_detectors()
    assert not {"requests", "detect_secrets"} & set(sys.modules)
