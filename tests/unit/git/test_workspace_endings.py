"""Whatever ends a process in the middle of its work, the next one goes on with the same store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.system.directories import remove_tree
from tests.endings import comes_to_pass
from tests.rows import each
from tests.stage_workspaces import fill, held

pytestmark = pytest.mark.program

# Keeps and fills a workspace for ever; says when it has begun.
WORKER = """
import asyncio, sys
from pathlib import Path
from codeloupe.git.workspaces import GitWorkspaceStore

async def main():
    top = Path(sys.argv[1])
    store = GitWorkspaceStore(top / "store.git", source=None)
    first = (await store.keep(top / "first")).tree
    print(first, flush=True)
    number = 0
    while True:
        number += 1
        await store.put(first, top / "work")
        for name in range(40):
            (top / "work" / f"new{name}").write_text(f"{number} {name} " * 200)
        await store.keep(top / "work")

asyncio.run(main())
"""


def works_in(directory: Path) -> bool:
    """Whether a process has the directory among its words or variables; a git call outlives who began it by a bit."""
    name = os.fsencode(directory)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            if name in (process / "cmdline").read_bytes() or name in (process / "environ").read_bytes():
                return True
    return False


def test_a_process_that_is_killed_at_any_moment_leaves_a_store_that_works(tmp_path: Path) -> None:
    first = fill(tmp_path / "first", {f"folder{number % 7}/{number}": f"{number}\n" * 50 for number in range(60)})
    chance = random.Random(7)
    for _ in range(3):
        # What it was killed too early to remove is the next one's to remove, and no business of other tests.
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        words = (sys.executable, "-c", WORKER, str(tmp_path))
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as worker:
            assert worker.stdout is not None
            tree = worker.stdout.readline().decode().strip()
            time.sleep(chance.uniform(0.0, 0.15))
            os.kill(worker.pid, signal.SIGKILL)
        assert comes_to_pass(lambda: not works_in(tmp_path))
        store = GitWorkspaceStore(tmp_path / "store.git", source=None)
        asyncio.run(store.put(tree, tmp_path / "work"))
        assert held(tmp_path / "work") == held(first)
        fill(tmp_path / "work", {"more": "1"})
        kept = asyncio.run(store.keep(tmp_path / "work"))
        assert asyncio.run(store.changed(tree, kept.tree)) == ("more",)


@each("missing", ["HEAD", "config", "info/attributes", "objects/info", "looks"])
def test_a_store_that_was_only_begun_is_completed(tmp_path: Path, missing: str) -> None:
    work = fill(tmp_path / "work", {"a": "1"})
    tree = asyncio.run(GitWorkspaceStore(tmp_path / "store.git", source=None).keep(work)).tree
    part = tmp_path / "store.git" / missing
    if part.is_dir():
        remove_tree(part)
    else:
        part.unlink()
    asyncio.run(GitWorkspaceStore(tmp_path / "store.git", source=None).put(tree, tmp_path / "other"))
    assert held(tmp_path / "other") == held(work)


def test_a_cancelled_put_is_done_again_by_the_next(tmp_path: Path) -> None:
    store = GitWorkspaceStore(tmp_path / "store.git", source=None)
    work = fill(tmp_path / "work", {f"{folder}/{number}": "x" for folder in range(20) for number in range(5)})
    tree = asyncio.run(store.keep(work)).tree

    async def cancelled_after(seconds: float) -> bool:
        filling = asyncio.create_task(store.put(tree, tmp_path / "other"))
        await asyncio.sleep(seconds)
        filling.cancel()
        await asyncio.wait((filling,))
        await store.put(tree, tmp_path / "other")
        return filling.cancelled()

    assert asyncio.run(cancelled_after(0.0))
    assert held(tmp_path / "other") == held(work)
    for seconds in (0.002, 0.006):  # by then it may have ended
        asyncio.run(cancelled_after(seconds))
        assert held(tmp_path / "other") == held(work)
