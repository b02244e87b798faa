"""The release workflow: its shell runs here, and only the jobs that need a right have it."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import codeloupe
from ci.release_notes import release_notes
from tests.ci_runner import PROJECT, read_yaml
from tests.fresh_install import copy_of_project
from tests.rows import each

WORKFLOW = PROJECT / ".github" / "workflows" / "release.yml"
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
TAG = f"v{codeloupe.__version__}"
# Leaves its words behind, each on a line.
STUB = """#!/bin/sh
printf '%s\\n' "$@" > "{log}"
"""


def jobs() -> Mapping[str, Any]:
    return dict(read_yaml(WORKFLOW)["jobs"])


def script_of(job: str, name: str) -> str:
    [script] = [step["run"] for step in jobs()[job]["steps"] if step.get("name") == name]
    return str(script)


def run(script: str, checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script)
    environment = {**os.environ, "GITHUB_REF_NAME": TAG, **variables}
    return subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def checkout_at(folder: Path) -> Path:
    """Return a copy of the project that is set up: make finds the tools of the real one."""
    folder.mkdir()
    copy_of_project(folder)
    (folder / "Makefile").write_bytes((PROJECT / "Makefile").read_bytes())
    (folder / "ci").mkdir()
    (folder / "ci" / "release_notes.py").write_bytes((PROJECT / "ci" / "release_notes.py").read_bytes())
    environment = folder / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    for name in (".uv", ".base", ".dev"):
        (environment / name).touch()
    return folder


def test_the_steps_that_build_and_check_pass_for_this_version(tmp_path: Path) -> None:
    checkout = checkout_at(tmp_path / "checkout")
    checked = run(script_of("build", "Check"), checkout)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert (checkout / "release-notes.md").read_text(encoding="utf-8") == release_notes(TAG)
    built = run(script_of("build", "Build"), checkout)
    assert built.returncode == 0, built.stdout + built.stderr
    names = [f"codeloupe-{codeloupe.__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz")]
    assert sorted(path.name for path in (checkout / "dist").glob("codeloupe*")) == names
    with tarfile.open(checkout / "dist" / names[1]) as archive:
        inside = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert inside == {"src", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"}


def test_another_tag_stops_the_release(tmp_path: Path) -> None:
    checkout = checkout_at(tmp_path / "checkout")
    ended = run(script_of("build", "Check"), checkout, GITHUB_REF_NAME="v9.9.9")
    assert ended.returncode == 1
    assert ended.stderr == (
        f"release_notes: the tag is v9.9.9, but the version in src/codeloupe/__init__.py is {codeloupe.__version__}\n"
    )


def test_the_release_has_the_notes_and_the_files(tmp_path: Path) -> None:
    stub, log = tmp_path / "gh", tmp_path / "log"
    stub.write_text(STUB.format(log=log))
    stub.chmod(0o755)
    (tmp_path / "dist").mkdir()
    for name in ("a.whl", "b.tar.gz"):
        (tmp_path / "dist" / name).touch()
    ended = run(script_of("release", "Release"), tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert ended.returncode == 0, ended.stderr
    assert log.read_text().splitlines() == [
        *("release", "create", TAG, "--verify-tag", "--title", f"codeloupe {TAG}"),
        *("--notes-file", "release-notes.md", "dist/a.whl", "dist/b.tar.gz"),
    ]


@each(
    ("changelog", "words"),
    [
        ("# Changelog\n\n## Unreleased\n\n- A thing.\n", "has no section"),
        ("# Changelog\n\n## 1.0\n\n- A thing.\n", "has no section"),
        ("# Changelog\n\n## 1.0.1 (2026-01-02)\n\n- A thing.\n", "has no section"),
        ("# Changelog\n\n## 1.0 (2026-01-02)\n\n## 0.9 (2026-01-01)\n\n- Older.\n", "is empty"),
    ],
)
def test_a_changelog_without_the_section_stops_the_release(changelog: str, words: str, tmp_path: Path) -> None:
    write_project(tmp_path, changelog)
    with pytest.raises(ValueError, match=words):
        release_notes("v1.0", tmp_path)


def test_the_notes_are_the_section_of_the_version_alone(tmp_path: Path) -> None:
    write_project(tmp_path, "# Changelog\n\n## 1.0 (2026-01-02)\n\n### A\n- New.\n\n## 0.9 (2026-01-01)\n\n- Older.\n")
    assert release_notes("v1.0", tmp_path) == "### A\n- New.\n"


def write_project(folder: Path, changelog: str) -> None:
    package = folder / "src" / "codeloupe"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "1.0"\n')
    (folder / "CHANGELOG.md").write_text(changelog)


def test_only_the_job_that_publishes_gets_an_identity_and_only_the_last_may_write() -> None:
    workflow = read_yaml(WORKFLOW)
    assert workflow["permissions"] == {}
    assert list(workflow["on"]) == ["push"]
    rights = {name: job["permissions"] for name, job in jobs().items()}
    assert rights == {
        "build": {"contents": "read"},
        "test": {"contents": "read"},
        "publish": {"id-token": "write", "attestations": "write"},
        "release": {"contents": "write"},
    }
    assert jobs()["publish"]["environment"] == {"name": "pypi"}
    assert jobs()["publish"]["needs"] == ["build", "test"]
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_every_action_of_the_release_is_pinned_and_nothing_with_rights_is_checked_out() -> None:
    for name, job in jobs().items():
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(PINNED.fullmatch(action) for action in used), name
        if "write" in job["permissions"].values():
            assert not [action for action in used if action.startswith("actions/checkout@")], name
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), name
