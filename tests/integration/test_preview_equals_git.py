"""`review --preview --format json` tells exactly what git's own --raw and --numstat tell."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import codeloupe as library
from codeloupe.config.schema import Settings
from codeloupe.model.scope import CommitScope, RangeScope
from codeloupe.report.preview import render_preview_json
from tests.git_edge_cases import EDGE_CASES, EdgeCase
from tests.long_history import make_long_history
from tests.program import codeloupe
from tests.repository import GitRepository

_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "type_changed"}
# Renames and the algorithm are what the program asks git for; attributes are overruled, since they could hide code.
_FLAGS = ("--find-renames", "--diff-algorithm=histogram", "--no-ext-diff", "--no-textconv")


def told_by_git(repository: GitRepository, *sides: str) -> list[dict[str, Any]]:
    """What git tells of a range (two sides) or of one commit against its first parent, or nothing (one side)."""
    (repository.path / ".git" / "info").mkdir(exist_ok=True)
    (repository.path / ".git" / "info" / "attributes").write_text("* !diff !filter !text !eol\n")
    verb = ("diff",) if len(sides) == 2 else ("diff-tree", "--root", "--no-commit-id", "-r")
    raw = repository.git(*verb, *_FLAGS, "--raw", "--no-abbrev", "-z", *sides)
    counts = _counts(repository.git(*verb, *_FLAGS, "--numstat", "-z", *sides))
    files = []
    fields = iter(raw.split(b"\0"))
    for header in fields:
        if not header:
            break
        letter = header.split(b" ")[4].decode()[0]
        first = next(fields)
        second = next(fields) if letter in "RC" else first
        added, deleted = counts[second]
        files.append(
            {
                "old_path": None if letter == "A" else _name(first),
                "new_path": None if letter == "D" else _name(second),
                "status": _STATUS[letter],
                "binary": added is None,
                "added": added,
                "deleted": deleted,
            }
        )
    return files


def _counts(numstat: bytes) -> dict[bytes, tuple[int | None, int | None]]:
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    fields = iter(numstat.split(b"\0"))
    for entry in fields:
        if not entry:
            break
        added, deleted, path = entry.split(b"\t", 2)
        if not path:
            next(fields)
            path = next(fields)
        counts[path] = (None, None) if added == b"-" else (int(added), int(deleted))
    return counts


def _name(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def comparable(document: dict[str, Any]) -> list[dict[str, Any]]:
    keys = ("old_path", "new_path", "status", "binary")
    return [
        {
            **{key: file[key] for key in keys},
            "added": None if file["binary"] else file["added"],
            "deleted": None if file["binary"] else file["deleted"],
        }
        for file in document["files"]
    ]


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_every_edge_case(case: EdgeCase, tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "repository")
    base, head = case.build(repository.path)
    preview = asyncio.run(library.preview(RangeScope(f"{base}..{head}"), repo=repository.path, settings=Settings()))
    assert comparable(json.loads(render_preview_json(preview))) == told_by_git(repository, base, head)


# A start of the program costs more than the rest, so the front door is tried with some of the cases.
@pytest.mark.parametrize("case", EDGE_CASES[::9], ids=lambda case: case.name)
def test_edge_cases_through_the_front_door(case: EdgeCase, tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "repository")
    base, head = case.build(repository.path)
    ended = codeloupe("review", f"{base}..{head}", "--preview", "--format", "json", "-q", cwd=repository.path)
    assert ended.exit_code == 0, ended.stderr
    assert comparable(ended.json()) == told_by_git(repository, base, head)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_commits(seed: int, tmp_path: Path) -> None:
    commits = make_long_history(tmp_path / "repository", commits=250, seed=seed)
    repository = GitRepository(tmp_path / "repository")
    told = asyncio.run(previews(repository.path, commits))
    assert len(told) == len(commits) == 250
    for commit, document in zip(commits, told, strict=True):
        assert comparable(document) == told_by_git(repository, commit), commit


async def previews(repo: Path, commits: list[str]) -> list[dict[str, Any]]:
    """Every commit's preview through the library, a few at a time."""
    gate = asyncio.Semaphore(4)

    async def one(commit: str) -> dict[str, Any]:
        async with gate:
            preview = await library.preview(CommitScope(commit), repo=repo, settings=Settings())
            document: dict[str, Any] = json.loads(render_preview_json(preview))
            return document

    return await asyncio.gather(*(one(commit) for commit in commits))
