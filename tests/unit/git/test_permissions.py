"""What happens with files and folders that this user may not read.

Permissions do not bind root, so each test does its work in a child process without root's right to overlook them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.repository import GitRepository

_BIND = """
import ctypes, os, sys
if os.geteuid() == 0:
    library = ctypes.CDLL(None, use_errno=True)
    set_bounding, overlook_permissions, overlook_search = 24, 1, 2
    for capability in (overlook_permissions, overlook_search):
        if library.prctl(set_bounding, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot give up a capability")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
_READ = """
import asyncio, json, sys
from pathlib import Path
from codeloupe.errors import CodeloupeError
from codeloupe.git.reading import read_change
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported
from codeloupe.model import scope

async def main():
    repository = await open_repository(Path(sys.argv[1]))
    sides = await resolve_scope(repository, getattr(scope, sys.argv[2])(), base_branch=None)
    change = await read_change(repository, sides)
    async with exported(repository, sides, paths=sys.argv[3:]) as snapshot:
        return {
            "files": {file.path: file.status.value for file in change.files},
            "unreadable": dict(change.unreadable),
            "missing": snapshot.missing,
        }

try:
    print(json.dumps(asyncio.run(main())))
except CodeloupeError as error:
    print(json.dumps({"error": type(error).__name__, "message": error.message, "hint": error.hint}))
"""
_LEAVE_CLOSED_FOLDERS = """
import json
from codeloupe.git.snapshot import empty_directory
with empty_directory() as root:
    for name in ("closed", "closed-too/inner"):
        (root / name / "deep").mkdir(parents=True)
        (root / name / "deep" / "file").write_text("x")
    (root / "link").symlink_to("/")
    (root / "closed").chmod(0)
    (root / "closed-too" / "inner").chmod(0)
    (root / "closed-too").chmod(0)
    root.chmod(0o500)
print(json.dumps(root.parent.exists()))
"""


def _run_bound(code: str, *arguments: str) -> Any:
    completed = subprocess.run(
        (sys.executable, "-c", _BIND, code, *arguments), capture_output=True, text=True, check=False, timeout=50
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@contextmanager
def _closed(*places: Path) -> Iterator[None]:
    modes = [place.lstat().st_mode for place in places]
    for place in places:
        place.chmod(0)
    try:
        yield
    finally:
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)


def test_the_child_process_is_bound_by_permissions(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    code = "import json, os, sys; print(json.dumps([os.geteuid(), os.access(sys.argv[1], os.R_OK)]))"
    with _closed(tmp_path / "secret"):
        assert _run_bound(code, str(tmp_path / "secret")) == [os.geteuid(), False]


def test_unreadable_files_are_named_and_the_others_are_reviewed(repository: GitRepository) -> None:
    for name in ("tracked.py", "committed.py", "changed.py", "same.py"):
        repository.write(name, "old = 1\n")
    repository.commit()
    repository.checkout("feature", new=True)
    repository.write("committed.py", "new = 2\n")
    repository.commit()
    closed = [
        repository.write("tracked.py", "new = 2\n"),
        repository.path / "committed.py",
        repository.write("untracked.py", "new = 2\n"),
    ]
    repository.write("changed.py", "new = 2\n")
    repository.write("added.py", "new = 2\n")

    with _closed(*closed):
        seen = _run_bound(_READ, str(repository.path), "DefaultScope", "changed.py", "tracked.py")

    assert seen["files"] == {"changed.py": "modified", "added.py": "added"}
    assert seen["unreadable"] == dict.fromkeys(("tracked.py", "committed.py", "untracked.py"), "permission denied")
    assert seen["missing"] == {"tracked.py": "permission denied"}


def test_a_closed_folder_is_named_and_its_files_are_not_taken_for_deleted(repository: GitRepository) -> None:
    repository.write("folder/tracked.py", "old = 1\n")
    repository.write("folder/deep/tracked.py", "old = 1\n")
    repository.write("other.py", "old = 1\n")
    repository.commit()
    repository.write("folder/tracked.py", "new = 2\n")
    repository.write("folder/new.py", "new = 2\n")
    repository.write("other.py", "new = 2\n")

    with _closed(repository.path / "folder"):
        seen = _run_bound(_READ, str(repository.path), "UncommittedScope")

    assert seen["files"] == {"other.py": "modified"}
    assert set(seen["unreadable"]) == {"folder/", "folder/tracked.py", "folder/deep/tracked.py"}
    assert set(seen["unreadable"].values()) == {"permission denied"}


def test_a_closed_folder_that_is_ignored_does_not_matter(repository: GitRepository) -> None:
    repository.write(".gitignore", "data/\n")
    repository.write("a.py", "old = 1\n")
    repository.commit()
    repository.write("data/file", "x")
    repository.write("a.py", "new = 2\n")

    with _closed(repository.path / "data"):
        seen = _run_bound(_READ, str(repository.path), "UncommittedScope")

    assert seen == {"files": {"a.py": "modified"}, "unreadable": {}, "missing": {}}


def test_an_unreadable_file_does_not_matter_to_what_is_staged(repository: GitRepository) -> None:
    repository.write("a.py", "old = 1\n")
    repository.commit()
    repository.write("a.py", "new = 2\n")
    repository.git("add", "a.py")

    with _closed(repository.path / "a.py"):
        seen = _run_bound(_READ, str(repository.path), "StagedScope", "a.py")

    assert seen == {"files": {"a.py": "modified"}, "unreadable": {}, "missing": {}}


def test_an_unreadable_index_is_an_error_in_words(repository: GitRepository) -> None:
    repository.write("a.py", "old = 1\n")
    repository.commit()
    with _closed(repository.path / ".git" / "index"):
        seen = _run_bound(_READ, str(repository.path), "UncommittedScope")
    assert seen["error"] == "NotARepository"
    assert "index, a part of the repository, cannot be read: permission denied" in seen["message"]
    assert seen["hint"]


def test_an_unreadable_object_is_an_error_in_words(repository: GitRepository) -> None:
    repository.write("a.py", "old = 1\n")
    repository.commit()
    repository.write("a.py", "new = 2\n")
    blob = repository.git("rev-parse", "HEAD:a.py").decode().strip()
    with _closed(repository.path / ".git" / "objects" / blob[:2] / blob[2:]):
        seen = _run_bound(_READ, str(repository.path), "UncommittedScope")
    assert seen["error"] == "GitFailed"
    assert seen["hint"]


def test_a_start_below_a_closed_folder_is_an_error_in_words(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit()
    with _closed(repository.path):
        seen = _run_bound(_READ, str(repository.path / "below"), "UncommittedScope")
    assert seen["error"] == "NotARepository"
    assert "is not a directory that can be entered: permission denied" in seen["message"]


def test_a_repository_that_may_not_be_entered_is_an_error_in_words(repository: GitRepository) -> None:
    repository.commit()
    with _closed(repository.path / ".git"):
        seen = _run_bound(_READ, str(repository.path), "UncommittedScope")
    assert seen["error"] == "NotARepository"
    assert "git cannot read" in seen["message"]


def test_a_snapshot_is_removed_even_with_folders_in_it_that_nobody_may_enter() -> None:
    assert _run_bound(_LEAVE_CLOSED_FOLDERS) is False
