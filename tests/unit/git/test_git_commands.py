"""How often git is asked: a review runs few commands, and asks nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe.git.changes import read_change
from codeloupe.git.repository import comparison_settings, open_repository, opening_once, origin_url, read_head
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported
from codeloupe.model.scope import CommitScope, DefaultScope, RangeScope, ScopeRequest, StagedScope, UncommittedScope
from codeloupe.system.process import Command, Completed, run
from tests.repository import GitRepository


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands of git that were run, without the settings that all have."""
    words: list[tuple[str, ...]] = []

    async def counting(command: Command) -> Completed:
        words.append((str(command.environment["GIT_DIR"]), *command.argv))
        return await run(command)

    monkeypatch.setattr("codeloupe.git.command.run_program", counting)
    return words


@pytest.fixture
def branched(repository: GitRepository) -> GitRepository:
    repository.write("a.py", "a = 1\n")
    repository.commit()
    repository.checkout("feature", new=True)
    repository.write("a.py", "a = 2\n")
    repository.commit()
    repository.write("staged.py", "s = 1\n")
    repository.git("add", "staged.py")
    repository.write("new.py", "n = 1\n")
    return repository


async def _read(path: Path, scope: ScopeRequest) -> None:
    with opening_once():
        repository = await open_repository(path)
        sides = await resolve_scope(repository, scope, base_branch=None)
        change = await read_change(repository, sides)
        async with exported(repository, sides, paths=[file.path for file in change.files]) as snapshot:
            assert not snapshot.missing
        # What others ask of the same repository later.
        again = await open_repository(path)
        await read_head(again)
        await origin_url(again)
        await comparison_settings(again)


@pytest.mark.parametrize(
    ("scope", "most"),
    [
        (DefaultScope(), 6),
        (UncommittedScope(), 5),
        (StagedScope(), 5),
        (RangeScope("HEAD~1..HEAD"), 5),
        (CommitScope("HEAD"), 5),
    ],
)
def test_a_change_is_read_with_few_commands_and_nothing_is_asked_twice(
    branched: GitRepository, started: list[tuple[str, ...]], scope: ScopeRequest, most: int
) -> None:
    started.clear()
    asyncio.run(_read(branched.path, scope))
    assert len(started) <= most
    assert len(set(started)) == len(started)


def test_outside_of_a_review_git_is_asked_again(repository: GitRepository) -> None:
    async def go() -> tuple[str | None, str | None]:
        opened = await open_repository(repository.path)
        before = (await read_head(opened)).sha
        repository.write("b.py", "b = 1\n")
        repository.commit()
        return before, (await read_head(opened)).sha

    repository.write("a.py", "a = 1\n")
    first = repository.commit()
    before, after = asyncio.run(go())
    assert before == first
    assert after not in (None, first)
