from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from codeloupe.agents.calls.program import installed_version


def test_it_tells_what_the_standard_library_tells_of_every_package_here() -> None:
    for found in importlib.metadata.distributions():
        name = found.metadata["Name"]
        assert installed_version(name) == importlib.metadata.version(name), name


def test_what_is_not_installed_has_no_version(subtests: pytest.Subtests) -> None:
    for name in ["nothing-of-the-kind", "", "claude", "agent-sdk", "../x"]:
        with subtests.test(str(name)[:80]):
            assert installed_version(name) is None


@pytest.mark.parametrize(
    "folder",
    ["Some_Package-1.2.3.dist-info", "some.package-1.2.3.egg-info", "some_package-1.2.3-py3.11.egg-info"],
)
def test_the_name_is_known_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "not there"), str(tmp_path)])
    assert installed_version("some-package") == "1.2.3"
    assert installed_version("package") is None
