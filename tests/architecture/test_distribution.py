"""What people install: the wheel has everything, nothing else, and says what it is."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest

import codeloupe
from tests.tested_package import PROJECT, SOURCE, files_of, shipped_files

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


def test_the_pinned_requirements_hold_names_versions_and_hashes_only() -> None:
    files = sorted((PROJECT / "requirements").glob("*.txt"))
    assert len(files) >= 3
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert not re.search("://|@ |^-", text, re.MULTILINE), file.name


# The package as the first thing to install, after options and their values, or with a version or an extra anywhere.
_BY_NAME = re.compile(
    r"""\b(?:pip3?|pipx|uv|poetry|pdm|conda)\s(?:\S+\s)?(?:install|inject|add|upgrade|download)"""
    r"""(?:\s+-\S+(?:[ =][^\s-]\S*)?)*?\s+["']?codeloupe(?![\w./-])"""
    # `uv run codeloupe` is not here: it runs a program of the project's environment, and installs nothing by that name.
    r"""|\b(?:uvx|uv tool run|pipx run)\s+["']?codeloupe(?![\w./-])"""
    r"""|--with[ =]["']?codeloupe(?![\w./-])"""
    r"""|\$\{?install\S*["']?\s+["']?codeloupe(?![\w./-])"""
    r"""|\bcodeloupe(?:\[[\w,]+\]|\$\w+)?\s?[=~>]="""
)


@pytest.mark.defect("E3")
def test_no_shipped_file_installs_the_package_by_name_from_an_index() -> None:
    """Check that nobody who owns the name on an index can run code where we tell people to install."""
    for text in (
        "pip install codeloupe",
        "pip install -U 'codeloupe[api]'",
        'python -m pip install --quiet "codeloupe"',
        "pipx inject codeloupe 'codeloupe[api]'",
        "uv tool install codeloupe",
        "uvx codeloupe review",
        "uv tool run codeloupe review",
        "pipx run codeloupe review",
        "uv run --with codeloupe script.py",
        "uv add --dev codeloupe",
        '"${install[@]}" "codeloupe$extras==$INPUT_VERSION"',
        "codeloupe==1.2.3",
    ):
        assert _BY_NAME.search(text), text
    found = {}
    for file in shipped_files():
        match = _BY_NAME.search(file.read_text(encoding="utf-8", errors="replace"))
        if match is not None:
            found[str(file.relative_to(PROJECT))] = match[0]
    assert found == {}


def test_a_base_install_stays_under_130_mb() -> None:
    """People take it into every CI job."""
    pinned = (PROJECT / "requirements" / "base.txt").read_text(encoding="utf-8")
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", pinned, re.MULTILINE)
    assert len(names) > 10
    installed = {Path(str(file.locate())).resolve() for name in names for file in distribution(name).files or ()}
    own = {path for path in SOURCE.rglob("*") if "__pycache__" not in path.parts}
    assert sum(path.stat().st_size for path in installed | own if path.is_file()) < 130_000_000
