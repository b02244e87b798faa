"""What happens with files and folders that this user may not read.

Permissions do not bind root, so each test does its work in a child process without root's right to overlook them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.repository import GitRepository
from tests.stage_workspaces import run_bound

_READ = """
import asyncio, json, sys
from pathlib import Path
from codeloupe.errors import CodeloupeError
from codeloupe.git.changes import read_change
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported
from codeloupe.model import scope

async def read(path, request, *names):
    repository = await open_repository(Path(path))
    sides = await resolve_scope(repository, getattr(scope, request)(), base_branch=None)
    change = await read_change(repository, sides)
    async with exported(repository, sides, paths=names) as snapshot:
        return {
            "files": {file.path: file.status.value for file in change.files},
            "unreadable": dict(change.unreadable),
            "missing": snapshot.missing,
        }

def told(path, request, *names):
    try:
        return asyncio.run(read(path, request, *names))
    except CodeloupeError as error:
        return {"error": type(error).__name__, "message": error.message, "hint": error.hint}

print(json.dumps([told(*words) for words in json.loads(sys.argv[1])]))
"""


def _read_all(*requests: tuple[str, ...]) -> list[Any]:
    """What is read of each repository, scope and paths, or the error."""
    return list(json.loads(run_bound(_READ, json.dumps(requests))))


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


def test_unreadable_files_are_named_and_the_others_are_reviewed(repository: GitRepository) -> None:
    repository.commit_files(dict.fromkeys(("tracked.py", "committed.py", "changed.py", "same.py"), "old = 1\n"))
    repository.commit_files({"committed.py": "new = 2\n"}, branch="feature")
    closed = [
        repository.write("tracked.py", "new = 2\n"),
        repository.path / "committed.py",
        repository.write("untracked.py", "new = 2\n"),
    ]
    repository.write("changed.py", "new = 2\n")
    repository.write("added.py", "new = 2\n")

    with _closed(*closed):
        (seen,) = _read_all((str(repository.path), "DefaultScope", "changed.py", "tracked.py"))

    assert seen["files"] == {"changed.py": "modified", "added.py": "added"}
    assert seen["unreadable"] == dict.fromkeys(("tracked.py", "committed.py", "untracked.py"), "permission denied")
    assert seen["missing"] == {"tracked.py": "permission denied"}


def test_a_closed_folder_is_named_and_its_files_are_not_taken_for_deleted(repository: GitRepository) -> None:
    repository.commit_files(dict.fromkeys(("folder/tracked.py", "folder/deep/tracked.py", "other.py"), "old = 1\n"))
    for name in ("folder/tracked.py", "folder/new.py", "other.py"):
        repository.write(name, "new = 2\n")

    with _closed(repository.path / "folder"):
        (seen,) = _read_all((str(repository.path), "UncommittedScope"))

    assert seen["files"] == {"other.py": "modified"}
    assert set(seen["unreadable"]) == {"folder/", "folder/tracked.py", "folder/deep/tracked.py"}
    assert set(seen["unreadable"].values()) == {"permission denied"}


def test_what_of_a_repository_may_not_be_read_is_an_error_in_words(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"a.py": "old = 1\n"})
    repository.write("a.py", "new = 2\n")
    blob = repository.git("rev-parse", "HEAD:a.py").decode().strip()
    index, objects, top, inside = (repository.copied_to(tmp_path / name).path for name in "abcd")
    closed = (index / ".git" / "index", objects / ".git" / "objects" / blob[:2] / blob[2:], top, inside / ".git")

    with _closed(*closed):
        places = (index, objects, top / "below", inside)
        seen = _read_all(*((str(place), "UncommittedScope") for place in places))

    assert [one["error"] for one in seen] == ["NotARepository", "GitFailed", "NotARepository", "NotARepository"]
    assert all(one["hint"] for one in seen)
    assert f"cannot read {index / '.git' / 'index'} of the repository: permission denied" in seen[0]["message"]
    assert "is not a directory that can be entered: permission denied" in seen[2]["message"]
    assert "git cannot read" in seen[3]["message"]
