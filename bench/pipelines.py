"""What codeloupe adds to the stages of a pipeline: state, workspaces, calls. And workspaces of 20,000 files."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path

from bench.changes import git
from bench.table import BenchRow
from bench.timing import best_seconds
from codeloupe.config.schema import Settings
from codeloupe.git.repository import open_repository
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import StageState
from codeloupe.pipelines.run import Pipeline, RunOptions
from codeloupe.testing import ScriptedAgent, Text

_STAGES = (10, 40)
_FILES, _FILES_A_FOLDER = 20_000, 100
_CHANGED = 20
_LINE = "value = compute({}, other)  # and what it is for\n"
# The state of all stages is saved with every step of one, so a stage of many costs a little more than one of few.
_MOST_LATER = 2.0


def rows() -> Iterator[BenchRow]:
    """Stages one after the other on an agent that answers at once; then a large workspace beside plain git."""
    yield from _stages()
    yield from _large_workspace()


def _stages() -> Iterator[BenchRow]:
    each = []
    for count in _STAGES:
        with tempfile.TemporaryDirectory() as directory:
            used, started = _cpu_seconds(), time.monotonic()
            asyncio.run(_run_stages(Path(directory), count))
            wall, cpu = (time.monotonic() - started) / count, (_cpu_seconds() - used) / count
        detail = f"{wall * 1000:.0f} ms of wall, {cpu * 1000:.0f} ms of CPU, that of git included"
        yield BenchRow(f"own time of each of {count} stages, one file each", detail, wall * 1000, None, unit=" ms")
        each.append(cpu)
    detail = f"{each[-1] * 1000:.0f} ms / {each[0] * 1000:.0f} ms of CPU"
    yield BenchRow(f"a stage of {_STAGES[-1]} / a stage of {_STAGES[0]}", detail, each[-1] / each[0], _MOST_LATER)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


async def _run_stages(directory: Path, count: int) -> None:
    names = [f"stage{number}" for number in range(count)]
    (directory / "step.md").write_text("Write the next part.\n", encoding="utf-8")
    stages = [
        {"name": name, "step": "step.md", **({"needs": [before]} if before else {})}
        for name, before in zip(names, ["", *names], strict=False)
    ]
    file = directory / "pipeline.yaml"
    file.write_text(json.dumps({"name": "measured", "stages": stages}), encoding="utf-8")
    options = RunOptions(
        repo=directory,
        settings=Settings(),
        agents={"scripted": ScriptedAgent([_write])},
        agent="scripted",
        wait_for_approval=False,
        state_directory=directory / "state",
    )
    record = await Pipeline.load(file).run(options=options)
    if record.state is not StageState.COMPLETED:
        raise RuntimeError(f"the pipeline that is measured is {record.state}")


def _write(request: AgentRequest) -> Text:
    (request.working_dir / f"{request.labels['stage']}.md").write_text("A part.\n", encoding="utf-8")
    return Text("done")


def _large_workspace() -> Iterator[BenchRow]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        source, work = top / "source", top / "work"
        source.mkdir()
        git(source, "init", "--quiet", "--template=", "--initial-branch=main")
        git(source, "commit", "--quiet", "--allow-empty", "--message=empty")
        for folder in (source, work):
            _write_files(folder)
        by_git = best_seconds(lambda: git(source, "add", "--all"), times=1)
        by_git_again = best_seconds(lambda: git(source, "status", "--porcelain"), times=3)
        store = asyncio.run(_opened(top / "store", source))
        first = _seconds(store.keep(work))
        yield _beside_git(f"keep a workspace of {_FILES:,} new files / git add", first, by_git)
        again = min(_seconds(store.keep(work)) for _ in range(3))
        yield _beside_git(f"keep the same again, with {_FILES:,} files as they were / git status", again, by_git_again)
        for number in range(_CHANGED):
            _path(work, number * 997).write_text("changed\n", encoding="utf-8")
        changed = _seconds(store.keep(work))
        yield _beside_git(f"keep the same with {_CHANGED} files changed / git status", changed, by_git_again)
        tree = asyncio.run(store.keep(work)).tree
        git(source, "commit", "--quiet", "--message=all")
        by_git = best_seconds(lambda: git(source, "worktree", "add", "--quiet", str(top / "tree")), times=1)
        fill = _seconds(store.put(tree, top / "other"))
        yield _beside_git(f"fill a new workspace with {_FILES:,} files / git worktree add", fill, by_git)
        back = _seconds(store.put(tree, top / "other"))
        yield _beside_git("fill the same again, with nothing to do / git status", back, by_git_again)


async def _opened(directory: Path, source: Path) -> GitWorkspaceStore:
    directory.mkdir()
    return GitWorkspaceStore(directory, source=await open_repository(source))


def _beside_git(name: str, seconds: float, git_seconds: float) -> BenchRow:
    return BenchRow(name, f"{seconds:.2f} s / {git_seconds:.2f} s", seconds / git_seconds, None)


def _seconds(work: Coroutine[object, object, object]) -> float:
    started = time.perf_counter()
    asyncio.run(work)
    return time.perf_counter() - started


def _write_files(folder: Path) -> None:
    for number in range(_FILES):
        path = _path(folder, number)
        if number % _FILES_A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_text("".join(_LINE.format(number * 100 + line) for line in range(20)), encoding="utf-8")


def _path(folder: Path, number: int) -> Path:
    return folder / f"part{number // _FILES_A_FOLDER}" / f"module{number}.py"
