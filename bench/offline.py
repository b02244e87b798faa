"""The offline review beside ruff and ast-grep called directly on the same files, by turns.

With CODELOUPE_BENCH_REPOSITORIES=FOLDER the changes are real ones of up to three git repositories in the folder that
have Python files: the newest range that changes 60 Python files, and the newest commit that changes one Python file and
nothing else. Otherwise the change is a generated one of 60 files in four languages.

- The review is the whole program, start included: `codeloupe review A..B --reviewer offline --fresh`. Real changes get
  `--include '*.py'` too. It reads the files from git, runs ruff, ast-grep, the data-flow analysis and the search for
  secrets, and stores the review in a history of its own.
- Called directly, ruff and ast-grep run one after the other on a folder with the new version of the files that the
  review reads, whole. Both use our rules and no cache, and print what they find as JSON. The folder is written before
  the clock starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import codeloupe.analysers
from bench.changes import git, make_change
from bench.prompt_tokens import REPOSITORIES
from bench.table import BenchRow
from bench.timing import best_seconds
from bench.turns import Contender, Cost, least_costs
from codeloupe.analysers.ruff import ruff_rules

_BIN = Path(sys.executable).parent
_RULES = Path(codeloupe.analysers.__file__).parent / "rules"
_SECONDS_ALLOWED = 3.0
_MOST_TIMES_DIRECT = 2.0
_MOST_REPOSITORIES = 3
_FILES = 60
_NEWEST_COMMITS = 2_000
_TURNS = 7
_PYTHON = "*.py"
_DIRECTLY = "ruff and ast-grep directly"
# A review is incomplete if a file is too large for it. Such a file is not given to the other programs either.
_INCOMPLETE = 3
_NOT_REVIEWED = "not_reviewed"


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """The changes between two commits of a repository, of all files or only of those that a glob matches."""

    root: Path
    base: str
    head: str
    glob: str | None = None

    def files(self) -> list[str]:
        """Return the changed files that the head still has."""
        words = ["diff", "--name-only", "--diff-filter=d", "-z", self.base, self.head]
        if self.glob is not None:
            words += ["--", self.glob]
        listed = git(self.root, *words).decode("utf-8", "surrogateescape")
        return [name for name in listed.split("\0") if name]

    def added_lines(self) -> int:
        """Return the number of lines that the changes add."""
        count = 0
        for row in git(self.root, "diff", "--numstat", self.base, self.head).splitlines():
            count += int(row.split(b"\t")[0])
        return count

    def review(self, home: Path) -> Contender:
        """Return the review of the changes, with its history in a folder."""
        words = ["review", f"{self.base}..{self.head}", "--reviewer", "offline", "--fresh", "--json", "--quiet"]
        if self.glob is not None:
            words += ["--include", self.glob]
        command = [str(_BIN / "codeloupe"), *words]
        environment = {"CODELOUPE_HOME": str(home)}
        return Contender([command], self.root, expected=(0, 1, _INCOMPLETE), environment=environment)


def rows() -> Iterator[BenchRow]:
    """Measure the generated change, and real changes if a folder of repositories is given."""
    with tempfile.TemporaryDirectory() as directory:
        yield from _generated_rows(Path(directory))
    folder = os.environ.get(REPOSITORIES)
    if not folder:
        detail = f"not measured: {REPOSITORIES} is not set"
        yield BenchRow(f"offline review of real changes / {_DIRECTLY}", detail, None, None)
        return
    for root in python_repositories(Path(folder)):
        yield from repository_rows(root)


def python_repositories(folder: Path) -> list[Path]:
    """Return the first repositories in a folder whose newest commit has Python files, in order of name."""
    found: list[Path] = []
    for place in sorted(folder.glob("*/.git")):
        listed = git(place.parent, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
        if any(name.endswith(b".py") for name in listed):
            found.append(place.parent)
        if len(found) == _MOST_REPOSITORIES:
            break
    return found


def repository_rows(root: Path) -> Iterator[BenchRow]:
    """Yield one row for the newest range with 60 Python files, and one for the newest commit of one Python file."""
    base = _base_of_range(root)
    if base is None:
        yield BenchRow(f"{root.name}: offline review of {_FILES} files", "not measured: fewer files", None, None)
    else:
        yield _real_row(MeasuredRange(root, base, "HEAD", _PYTHON), base)
    commit = _commit_of_one_file(root)
    if commit is None:
        yield BenchRow(f"{root.name}: offline review of one file", "not measured: no such commit", None, None)
    else:
        yield _real_row(MeasuredRange(root, f"{commit}~1", commit, _PYTHON), commit)


def _generated_rows(folder: Path) -> Iterator[BenchRow]:
    root = folder / "repository"
    make_change(root, files=_FILES, lines=9_500)
    change = MeasuredRange(root, "HEAD~1", "HEAD")
    document = _first_review(change, folder / "home")
    if not document["complete"] or not document["findings"]:
        raise RuntimeError("the review that is measured did not work")
    ours, theirs = _least_costs(change, folder)
    diff_seconds = best_seconds(lambda: git(root, "diff", "HEAD~1", "HEAD"), times=_TURNS)
    seconds = ours.wall_seconds
    detail = f"{seconds:.2f} s, {len(document['findings'])} findings in {change.added_lines():,} lines"
    yield BenchRow(f"offline review of {_FILES} files / 3 s", detail, seconds / _SECONDS_ALLOWED, 1.0)
    name = f"offline review of {_FILES} files / its git diff"
    yield BenchRow(name, f"{seconds:.2f} s / {diff_seconds:.3f} s", seconds / diff_seconds, None)
    yield _row(f"offline review of {_FILES} files", ours, theirs, limit=None)


def _real_row(change: MeasuredRange, commit: str) -> BenchRow:
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = _least_costs(change, Path(directory))
    count = len(change.files())
    what = f"{count} files"
    if count == 1:
        what = "one file"
    name = f"{change.root.name}: offline review of {what}, {commit[:10]}"
    return _row(name, ours, theirs, limit=_MOST_TIMES_DIRECT)


def _row(name: str, ours: Cost, theirs: Cost, *, limit: float | None) -> BenchRow:
    wall = f"{ours.wall_seconds * 1000:.0f} ms / {theirs.wall_seconds * 1000:.0f} ms"
    cpu = f"CPU {ours.cpu_seconds * 1000:.0f} ms / {theirs.cpu_seconds * 1000:.0f} ms"
    detail = f"{wall}, {cpu}, the least of {_TURNS} turns"
    return BenchRow(f"{name} / {_DIRECTLY}", detail, ours.wall_seconds / theirs.wall_seconds, limit)


def _least_costs(change: MeasuredRange, folder: Path) -> tuple[Cost, Cost]:
    """Return what the review of a change costs, and what the direct calls on the same files cost."""
    document = _first_review(change, folder / "home")
    skipped = {row["file"] for row in document["coverage"]["skipped"]}
    files = folder / "files"
    for name in change.files():
        if name not in skipped:
            target = files / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(git(change.root, "show", f"{change.head}:{name}"))
    direct = Contender(_direct_calls(files, folder), folder)
    ours, theirs = least_costs([change.review(folder / "home"), direct], turns=_TURNS)
    return ours, theirs


def _first_review(change: MeasuredRange, home: Path) -> Any:
    """Review a change once and return the report. Raise RuntimeError if an analyser failed."""
    review = change.review(home)
    environment = {**os.environ, **(review.environment or {})}
    (command,) = review.commands
    ended = subprocess.run(command, cwd=change.root, env=environment, capture_output=True, check=False)
    document = json.loads(ended.stdout)
    for error in document["errors"]:
        if error["level"] == "problem" and error["kind"] != _NOT_REVIEWED:
            raise RuntimeError(f"the review that is measured did not work: {error['message']}")
    return document


def _direct_calls(files: Path, folder: Path) -> Sequence[Sequence[str]]:
    config = folder / "sgconfig.yml"
    config.write_text(f"ruleDirs: [{json.dumps(str(_RULES))}]\n", encoding="utf-8")
    select = f"--select={','.join(ruff_rules())}"
    return [
        [str(_BIN / "ruff"), "check", "--isolated", "--no-cache", "--output-format=json", select, str(files)],
        [str(_BIN / "ast-grep"), "scan", "--config", str(config), "--json=stream", str(files)],
    ]


def _base_of_range(root: Path) -> str | None:
    """Return the newest commit since which at least 60 Python files were changed."""
    newest = git(root, "rev-list", "--first-parent", f"--max-count={_NEWEST_COMMITS}", "HEAD").decode().split()
    for commit in newest:
        if len(MeasuredRange(root, commit, "HEAD", _PYTHON).files()) >= _FILES:
            return commit
    return None


def _commit_of_one_file(root: Path) -> str | None:
    """Return the newest commit that changes one existing Python file and nothing else."""
    listed = git(root, "log", "--no-merges", f"--max-count={_NEWEST_COMMITS}", "--name-status", "--format=%x00%H")
    for entry in listed.decode("utf-8", "replace").split("\0")[1:]:
        commit, *files = entry.split()
        if len(files) == 2 and files[0] == "M" and files[1].endswith(".py"):
            return commit
    return None
