"""How long a program has to end after the polite signal, where the two seconds of real life are not what is shown."""

from __future__ import annotations

import pytest

from codeloupe.system import streaming as supervised
from tests.children import changed_guardian

SHORT_GRACE_SECONDS = 0.3
LONG_GRACE_SECONDS = 300.0


@pytest.fixture
def short_grace(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a program that never hears the signal."""
    _set_grace(SHORT_GRACE_SECONDS, tmp_path_factory, monkeypatch)


@pytest.fixture
def long_grace(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a program that has something to do at the signal, be the machine ever so busy."""
    _set_grace(LONG_GRACE_SECONDS, tmp_path_factory, monkeypatch)


def _set_grace(seconds: float, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("guardian")
    monkeypatch.setattr(supervised, "_GUARDIAN", changed_guardian(folder, f"module.GRACE_SECONDS = {seconds}"))
    monkeypatch.setattr(supervised, "END_SECONDS", seconds + supervised.END_SECONDS)
    monkeypatch.setattr("codeloupe.system.process._TERMINATE_GRACE_SECONDS", seconds)
