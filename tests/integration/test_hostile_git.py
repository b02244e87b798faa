"""Nothing that a hostile repository sets up is started, and nothing that it hides stays hidden.

The first half shows that plain git starts every program of the trap, so that the second half, in which the git room
goes through the same repository and none may be started, could fail.
"""

import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.config.schema import Settings
from codeloupe.errors import GitFailed
from codeloupe.git.changes import read_change
from codeloupe.git.commits import list_commits
from codeloupe.git.repository import find_base_branch, open_repository, read_file_at, resolve
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported, exported_tree
from codeloupe.model.change import Change, Commit
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    DiffScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from codeloupe.model.sweep import CommitQuery
from codeloupe.planning.prepare import prepare
from tests.diff_checks import read_scope
from tests.hostile_repository import SOURCES, TRIGGERS, VARIABLES, Trap, arm, make_trap, plain_git

_SCOPES = (
    DefaultScope(),
    UncommittedScope(),
    StagedScope(),
    BaseScope("main"),
    RangeScope("main..feature"),
    RangeScope("main...feature"),
    CommitScope("feature"),
    CommitScope("main"),
    CommitScope("merged"),
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trap, Trap]:
    """The repository as its author left it, and the same one armed."""
    clean = make_trap(tmp_path_factory.mktemp("clean"))
    armed = clean.copy(tmp_path_factory.mktemp("armed"))
    arm(armed)
    return clean, armed


@pytest.fixture
def clean(originals: tuple[Trap, Trap], tmp_path: Path) -> Trap:
    return originals[0].copy(tmp_path / "clean")


@pytest.fixture
def trap(originals: tuple[Trap, Trap], tmp_path: Path) -> Trap:
    return originals[1].copy(tmp_path / "armed")


@pytest.mark.parametrize("name", TRIGGERS)
def test_plain_git_starts_the_program(trap: Trap, name: str) -> None:
    if name == "merge-driver":
        plain_git(trap.repository.path, "reset --hard")
    plain_git(trap.repository.path, TRIGGERS[name])
    assert name in trap.sprung()


@pytest.mark.parametrize("name", VARIABLES)
def test_plain_git_starts_what_a_variable_names(clean: Trap, name: str) -> None:
    plain_git(clean.repository.path, VARIABLES[name], **{name: str(clean.program(name))})
    assert clean.sprung() == {name}


def test_plain_git_hides_code_by_attributes_and_by_its_configuration(trap: Trap) -> None:
    shown = plain_git(trap.repository.path, "diff --no-ext-diff main -- *.py")
    assert "macro.py" in shown
    assert "import" not in shown
    assert "untracked.py" not in plain_git(trap.repository.path, "status --short")


async def _see_everything(path: Path) -> tuple[dict[str, Change], dict[str, dict[str, bytes]], tuple[Commit, ...]]:
    """Go through the git room: every scope, its change, its files as they were exported, and the commits."""
    repository = await open_repository(path)
    await find_base_branch(repository, None)
    await resolve(repository, "feature")
    changes: dict[str, Change] = {}
    contents: dict[str, dict[str, bytes]] = {}
    for request in _SCOPES:
        sides = await resolve_scope(repository, request, base_branch=None)
        change = changes[str(request)] = await read_change(repository, sides)
        paths = [file.new_path for file in change.files if file.new_path is not None and not file.is_submodule]
        for whole in (False, True):
            some, tree = exported(repository, sides, paths=paths), exported_tree(repository, sides, needed=paths)
            async with tree if whole else some as snapshot:
                assert not snapshot.missing
                contents[f"{request} {whole}"] = _files(snapshot.root)
        await read_file_at(repository, sides.base, "a.py")
    return changes, contents, await list_commits(repository, CommitQuery())


def _files(root: Path) -> dict[str, bytes]:
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def test_no_program_is_started_and_nothing_is_seen_otherwise_than_without_them(
    clean: Trap, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asyncio.run(_see_everything(clean.repository.path))
    for name in VARIABLES:
        monkeypatch.setenv(name, str(trap.program(name)))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap.program("from-environment")))

    seen = asyncio.run(_see_everything(trap.repository.path))

    assert trap.sprung() == set()
    assert seen == expected


def test_no_code_is_hidden(trap: Trap) -> None:
    changes, contents, _ = asyncio.run(_see_everything(trap.repository.path))
    words = {
        str(DefaultScope()): ("committed", "staged", "unstaged"),
        str(UncommittedScope()): ("staged", "unstaged"),
        str(StagedScope()): ("staged",),
        str(RangeScope("main..feature")): ("committed",),
    }
    for scope, expected in words.items():
        bodies = {file.path: b"".join(hunk.body for hunk in file.hunks).decode() for file in changes[scope].files}
        for name in SOURCES:
            assert [
                word for word in ("committed", "staged", "unstaged") if f"+import {word}\n" in bodies[name]
            ] == list(expected)
            assert f"import {expected[-1]}\n".encode() in contents[f"{scope} False"][name]
    by_default = {file.path: file for file in changes[str(DefaultScope())].files}
    assert b"+import committed\n" in by_default["nul.py"].hunks[0].body
    assert {"untracked.py", "A.PY", "untracked.filtered"} <= set(by_default)
    assert changes[str(DefaultScope())].nested_repositories == ("nested/",)
    assert trap.sprung() == set()


@pytest.mark.parametrize("request_", [CommitScope("partial"), RangeScope("main..partial")])
def test_what_a_partial_clone_lacks_is_an_error_and_is_not_fetched(trap: Trap, request_: ScopeRequest) -> None:
    with pytest.raises(GitFailed) as caught:
        read_scope(trap.repository.path, request_)
    assert "git fetch" in caught.value.hint
    assert trap.sprung() == set()


def test_a_diff_is_completed_without_starting_anything(trap: Trap) -> None:
    words = ("-c", "core.fsmonitor=false", "rev-parse", "main:a.py", "partial:lost.py")
    known, lost = trap.repository.git(*words).decode().split()
    section = "diff --git a/{0} b/{0}\nindex {1}..{2} 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-{3}\n+import x\n"
    data = section.format("a.py", known, "1" * 40, "a.py 0") + section.format("lost.py", lost, "2" * 40, "lost")

    async def complete() -> frozenset[str]:
        request = DiffScope("-", data.encode())
        async with prepare(request, trap.repository.path, Settings()) as intake:
            return intake.without_content

    assert asyncio.run(complete()) == {"a.py", "lost.py"}
    assert trap.sprung() == set()
