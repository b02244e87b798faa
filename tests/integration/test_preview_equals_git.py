"""`review --preview --format json` tells exactly what git's own --raw and --numstat tell."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import codeloupe as library
from codeloupe.config.schema import Settings
from codeloupe.model.scope import CommitScope, RangeScope
from codeloupe.reports.preview import render_preview_json
from tests.git_edge_cases import EDGE_CASES, commit_cases
from tests.long_history import make_long_history
from tests.repository import GitRepository
from tests.warm_program import codeloupe

_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "type_changed"}
# Renames and the algorithm are what the program asks git for; attributes are overruled, since they could hide code.
_FLAGS = ("--find-renames", "--diff-algorithm=histogram", "--no-ext-diff", "--no-textconv")


def told_by_git(repository: GitRepository, commits: list[str]) -> list[list[dict[str, Any]]]:
    """What git tells of each commit against its first parent, or against nothing."""
    (repository.path / ".git" / "info").mkdir(exist_ok=True)
    (repository.path / ".git" / "info" / "attributes").write_text("* !diff !filter !text !eol\n")
    words = ("diff-tree", "--stdin", "--root", "-r", *_FLAGS, "--raw", "--numstat", "--no-abbrev", "-z")
    listed = repository.git(*words, stdin="".join(f"{commit}\n" for commit in commits).encode())
    told: dict[str, list[dict[str, Any]]] = {commit: [] for commit in commits}
    counted: dict[tuple[str, bytes], tuple[int | None, int | None]] = {}
    commit = ""
    fields = iter(listed.split(b"\0")[:-1])
    for entry in fields:
        if entry.startswith(b":"):
            letter = entry.split(b" ")[4].decode()[0]
            first = next(fields)
            second = next(fields) if letter in "RC" else first
            told[commit].append(
                {
                    "old_path": None if letter == "A" else _name(first),
                    "new_path": None if letter == "D" else _name(second),
                    "status": _STATUS[letter],
                    "counted": (commit, second),
                }
            )
        elif b"\t" in entry:
            added, deleted, path = entry.split(b"\t", 2)
            path = path or (next(fields), next(fields))[1]
            counted[commit, path] = (None, None) if added == b"-" else (int(added), int(deleted))
        else:
            commit = entry.decode()
    return [[_with_counts(file, *counted[file.pop("counted")]) for file in told[commit]] for commit in commits]


def _with_counts(file: dict[str, Any], added: int | None, deleted: int | None) -> dict[str, Any]:
    return {**file, "binary": added is None, "added": added, "deleted": deleted}


def _name(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def comparable(document: dict[str, Any]) -> list[dict[str, Any]]:
    keys = ("old_path", "new_path", "status", "binary")
    counts = [
        {key: None if file["binary"] else file[key] for key in ("added", "deleted")} for file in document["files"]
    ]
    return [{key: file[key] for key in keys} | counted for file, counted in zip(document["files"], counts, strict=True)]


def test_every_edge_case_and_some_through_the_front_door(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "repository")
    commits = commit_cases(repository, EDGE_CASES)
    told = told_by_git(repository, [head for _, head in commits])
    ranges = [f"{base}..{head}" for base, head in commits]

    async def seen() -> dict[str, list[dict[str, Any]]]:
        pairs = zip(EDGE_CASES, ranges, strict=True)
        return {case.name: comparable(await previewed(repository.path, RangeScope(text))) for case, text in pairs}

    assert asyncio.run(seen()) == {case.name: files for case, files in zip(EDGE_CASES, told, strict=True)}
    # A start of the program costs more than the rest.
    for text, files in list(zip(ranges, told, strict=True))[::20]:
        ended = codeloupe("review", text, "--preview", "--format", "json", "-q", cwd=repository.path)
        assert ended.exit_code == 0, ended.stderr
        assert comparable(ended.json()) == files


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "count"), [(0, 30), *(pytest.param(seed, 250, marks=pytest.mark.soak) for seed in range(4))]
)
def test_every_commit_of_a_history(seed: int, count: int, tmp_path: Path) -> None:
    commits = make_long_history(tmp_path / "repository", commits=count, seed=seed)
    repository = GitRepository(tmp_path / "repository")
    told = told_by_git(repository, commits)
    assert len(told) == count
    assert sum(map(len, told)) > count
    for commit, files, document in zip(commits, told, asyncio.run(previews(repository.path, commits)), strict=True):
        assert comparable(document) == files, commit


async def previews(repo: Path, commits: list[str]) -> list[dict[str, Any]]:
    """Every commit's preview through the library, a few at a time."""
    gate = asyncio.Semaphore(4)

    async def one(commit: str) -> dict[str, Any]:
        async with gate:
            return await previewed(repo, CommitScope(commit))

    return await asyncio.gather(*(one(commit) for commit in commits))


async def previewed(repo: Path, scope: CommitScope | RangeScope) -> dict[str, Any]:
    preview = await library.preview(scope, repo=repo, settings=Settings())
    document: dict[str, Any] = json.loads(render_preview_json(preview))
    return document
