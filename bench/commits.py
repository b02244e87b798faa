"""An offline sweep over real commits, per commit, beside `ruff check` on the Python files that each of them changes.

With CODELOUPE_BENCH_REPOSITORIES=FOLDER, the newest commits of each git repository in the folder are swept, merges as
one change against their first parent. The files are exported before, and ruff is started once for each commit that
changes Python files. Both are measured by turns. Without the variable, there is nothing to measure; `bench.small`
measures a sweep over made-up commits.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.changes import git
from bench.prompt_tokens import REPOSITORIES
from bench.table import BenchRow
from bench.timing import best_seconds, quiet

_NEWEST_COMMITS = 100
_FEWEST_PYTHON_COMMITS = 10
_TURNS = 3
_LIMIT = 4.0
_BIN = Path(sys.executable).parent


def rows() -> Iterator[BenchRow]:
    """Yield a row for each repository with enough commits that change Python files."""
    folder = os.environ.get(REPOSITORIES)
    if not folder:
        print(f"{REPOSITORIES} is not set: no real commits to sweep", file=sys.stderr)
        return
    for root in sorted(place.parent for place in Path(folder).glob("*/.git")):
        with tempfile.TemporaryDirectory() as directory:
            row = _repository_row(root, Path(directory))
        if row is not None:
            yield row


def _repository_row(root: Path, temporary: Path) -> BenchRow | None:
    listed = git(root, "log", "--first-parent", f"--max-count={_NEWEST_COMMITS}", "--format=%H %P")
    commits = [line.split() for line in listed.decode("ascii").splitlines()]
    exported: list[list[str]] = []
    for sha, *parents in commits:
        files = _exported_files(root, sha, parents, temporary / sha)
        if files:
            exported.append(files)
    if len(exported) < _FEWEST_PYTHON_COMMITS:
        return None
    ours: list[float] = []
    ruffs: list[float] = []
    for turn in range(_TURNS):
        ruffs.append(best_seconds(lambda: _check_each(exported), times=1))
        home = temporary / f"state{turn}"
        ours.append(best_seconds(lambda: _sweep(root, len(commits), home), times=1))  # noqa: B023 - called at once
    measured = (
        f"{min(ours):.2f} s / {min(ruffs):.2f} s for {len(commits)} commits, of which {len(exported)} change Python "
        f"files, the least of {_TURNS} turns"
    )
    name = f"a commit of an offline sweep / ruff on its files, {root.name}"
    return BenchRow(name, measured, min(ours) / min(ruffs), _LIMIT)


def _exported_files(root: Path, sha: str, parents: Sequence[str], target: Path) -> list[str]:
    """Export the Python files that a commit adds or changes, and return their paths."""
    if not parents:
        return []
    words = ("diff", "--name-only", "-z", "--diff-filter=d", "--no-renames", parents[0], sha, "--", "*.py")
    exported: list[str] = []
    for name in git(root, *words).decode("utf-8").split("\0"):
        if name:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(git(root, "show", f"{sha}:{name}"))
            exported.append(str(file))
    return exported


def _check_each(exported: Sequence[Sequence[str]]) -> None:
    for files in exported:
        quiet([str(_BIN / "ruff"), "check", "--isolated", "--no-cache", "--quiet", *files], expected=(0, 1))


def _sweep(root: Path, count: int, home: Path) -> None:
    """Sweep the newest commits as a user does, with an empty history."""
    os.environ["CODELOUPE_HOME"] = str(home)
    try:
        words = ["commits", "--max", str(count), "--reviewer", "offline", "--quiet"]
        quiet([str(_BIN / "codeloupe"), *words], cwd=root, expected=(0, 3))
    finally:
        del os.environ["CODELOUPE_HOME"]
