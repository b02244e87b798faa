"""What codeloupe adds to a sweep over many commits: the time beside that of the agent, and CPU for each commit."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.changes import git
from bench.table import BenchRow
from bench.timing import quiet
from codeloupe.commits.sweep import review_commits
from codeloupe.config.schema import Settings
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.sweep import CommitQuery, CommitSweep
from codeloupe.reviewers.choose import ChosenReviewer
from codeloupe.testing import Delay, Json, ScriptedAgent

_COMMITS, _AT_A_TIME = 200, 20
_IDEAL_SECONDS = _COMMITS / _AT_A_TIME
_MOST_CPU_SECONDS = 0.01
_FUNCTION = (
    "def part_{0}(value):\n    total = value + {0}\n    if total > 100:\n        return 100\n    return total\n\n\n"
)


def rows() -> Iterator[BenchRow]:
    """200 commits, 20 at a time, each one call of a second; then again, when all of them come from the ledger."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        make_history(root)
        before = os.environ.get("CODELOUPE_HOME")
        os.environ["CODELOUPE_HOME"] = str(Path(directory) / "state")
        try:
            yield from _measured(root)
        finally:
            if before is None:
                del os.environ["CODELOUPE_HOME"]
            else:
                os.environ["CODELOUPE_HOME"] = before


def _measured(root: Path) -> Iterator[BenchRow]:
    agent = ScriptedAgent([Delay(1.0, Json({"findings": []}))])
    used = time.process_time()
    started = time.monotonic()
    sweep = asyncio.run(_sweep(root, agent))
    seconds = time.monotonic() - started
    cpu = (time.process_time() - used) / _COMMITS
    _check(sweep, agent, calls=_COMMITS)
    name = f"sweep over {_COMMITS} commits of 1 s, {_AT_A_TIME} at a time"
    yield BenchRow(f"{name} / ideal", f"{seconds:.2f} s / {_IDEAL_SECONDS:g} s", seconds / _IDEAL_SECONDS, 1.2)
    yield BenchRow("own CPU of a reviewed commit / 10 ms", f"{cpu * 1000:.1f} ms", cpu / _MOST_CPU_SECONDS, 1.0)
    started = time.monotonic()
    again = asyncio.run(_sweep(root, agent))
    seconds = time.monotonic() - started
    _check(again, agent, calls=_COMMITS)
    yield BenchRow("the same sweep again, all from the ledger / 3 s", f"{seconds:.2f} s", seconds / 3.0, 1.0)


async def _sweep(root: Path, agent: ScriptedAgent) -> CommitSweep:
    reviewer = ChosenReviewer(ReviewerInfo("scripted", "to measure"), (agent,))
    return await review_commits(
        CommitQuery(), repo=root, settings=Settings(concurrency=_AT_A_TIME), reviewers=[reviewer]
    )


def _check(sweep: CommitSweep, agent: ScriptedAgent, *, calls: int) -> None:
    good = sum(commit.reviewed for commit in sweep.commits)
    if (good, len(agent.requests)) != (_COMMITS, calls):
        raise RuntimeError(f"{good} commits reviewed with {len(agent.requests)} calls: {sweep.summary}")


def make_history(root: Path, commits: int = _COMMITS) -> None:
    """Each commit adds a function to one of ten files."""
    root.mkdir()
    git(root, "init", "--quiet", "--template=")
    quiet(["git", "fast-import", "--quiet"], cwd=root, stdin=b"".join(_stream(commits)))
    git(root, "symbolic-ref", "HEAD", "refs/heads/main")


def _stream(commits: int) -> Iterator[bytes]:
    files = [""] * 10
    for number in range(commits):
        place = number % len(files)
        files[place] += _FUNCTION.format(number)
        message, content = f"feat: part {number}".encode(), files[place].encode()
        yield b"commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\n" % (1_700_000_000 + 60 * number)
        yield b"data %d\n%s\nM 100644 inline part%d.py\ndata %d\n%s\n" % (
            len(message),
            message,
            place,
            len(content),
            content,
        )
