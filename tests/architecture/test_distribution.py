"""What people install: the wheel has everything, nothing else, and says what it is."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import codeloupe
from tests.architecture.sources import PROJECT
from tests.tested_package import SOURCE, files_of

_BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-c", _BUILD, str(folder)]
    built = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True, timeout=50)
    return folder / built.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        package = {
            name.removeprefix("codeloupe/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith("codeloupe/")
        }
        others = {name.split("/")[0] for name in archive.namelist()} - {"codeloupe"}
    assert package == files_of(SOURCE)
    assert others == {f"codeloupe-{codeloupe.__version__}.dist-info"}


def test_type_checkers_are_told_that_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "codeloupe/py.typed" in archive.namelist()


def test_its_metadata_is_that_of_the_project(metadata: Message) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (metadata["Name"], metadata["Version"]) == ("codeloupe", codeloupe.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert metadata.get_payload() == (PROJECT / "README.md").read_text(encoding="utf-8")


def test_the_changelog_speaks_of_this_version() -> None:
    assert f"\n## {codeloupe.__version__} " in (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
