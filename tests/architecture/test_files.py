"""What stands in the project's files, whatever their kind: nothing of the machine they were written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import PROJECT

# Put together from pieces, so that this file keeps its own rules.
MACHINE_PATH = re.compile(
    r"(?<![\w.*/-])/(?:" + "root|work" + r")/|(?<![\w.*-])/(?:" + "home|Users" + r")/(?!some(?:one|body)\b)[A-Za-z0-9_]"
)
REGISTRY = re.compile(
    "|".join(
        [
            r"py" + r"pi\.(?:org|python)",
            r"python" + r"hosted\.org",
            r"npm" + r"js\.(?:org|com)",
            r"crates" + r"\.io",
            r"ruby" + r"gems\.org",
            r"proxy\.golang" + r"\.org",
            r"--(?:extra-)?index" + r"-url",
            r"--find" + r"-links",
        ]
    )
)


def project_files() -> list[Path]:
    """The files that are, or are about to be, in the repository."""
    listed = subprocess.run(
        ("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=PROJECT,
        capture_output=True,
        check=True,
    ).stdout
    return [path for name in listed.decode().split("\0") if name and (path := PROJECT / name).is_file()]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    # Most texts have it nowhere, and a text is looked through faster than its lines one by one.
    somewhere = re.compile(pattern.pattern, re.MULTILINE)
    texts = ((file, file.read_text(encoding="utf-8", errors="replace")) for file in files)
    return [
        f"{file.relative_to(PROJECT) if file.is_relative_to(PROJECT) else file}:{number}: {found[0]}"
        for file, text in texts
        if somewhere.search(text)
        for number, line in enumerate(text.split("\n"), start=1)
        if (found := pattern.search(line))
    ]


def test_no_file_holds_a_path_of_some_machine() -> None:
    found = lines_with(MACHINE_PATH, project_files())
    assert not found, "\n".join(found)


def test_no_file_holds_the_address_of_a_package_registry() -> None:
    found = lines_with(REGISTRY, project_files())
    assert not found, "\n".join(found)


def test_the_pinned_requirements_hold_names_versions_and_hashes_only() -> None:
    files = sorted((PROJECT / "requirements").glob("*.txt"))
    assert len(files) >= 3
    found = lines_with(re.compile("://|@ |^-"), files)
    assert not found, "\n".join(found)
    assert all("--hash=sha256:" in file.read_text() for file in files)


@pytest.mark.parametrize("line", ["see /" + "root/x", "'/" + "work/main'", "(/" + "home/ada)", "/" + "Users/ada"])
def test_a_machine_path_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "f").write_text(f"fine\n{line}\n")
    assert len(lines_with(MACHINE_PATH, [tmp_path / "f"])) == 1


@pytest.mark.parametrize(
    "line", ["src/" + "work/x", "the /" + "home/ directory", "/" + "rooted/x", "/" + "home/someone/x"]
)
def test_an_ordinary_path_is_not(tmp_path: Path, line: str) -> None:
    (tmp_path / "f").write_text(line)
    assert lines_with(MACHINE_PATH, [tmp_path / "f"]) == []


@pytest.mark.parametrize(
    "line", ["https://files.python" + "hosted.org/x", "--index" + "-url x", "https://py" + "pi.org"]
)
def test_a_registry_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "f").write_text(line)
    assert len(lines_with(REGISTRY, [tmp_path / "f"])) == 1
