"""The smallest runs, where our own part is largest: an empty review, one file, one commit; and version 0.1.0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import codeloupe.analysers
from bench.changes import git, source
from bench.sweep import make_history
from bench.table import BenchRow
from bench.timing import best_seconds, quiet
from bench.turns import Contender, compared, least_costs, shared

# The last commit of version 0.1.0.
_FIRST_VERSION = "dd3e45e"
_TIMES = 15
_TURNS = 9
_BIN = Path(sys.executable).parent
_RULES = Path(codeloupe.analysers.__file__).parent / "rules"
_CODELOUPE = (str(_BIN / "codeloupe"),)
_RUFF = (str(_BIN / "ruff"), "check", "--isolated", "--no-cache", "--quiet")
# The commits of the sweep.
_SWEPT = 40


def rows() -> Iterator[BenchRow]:
    """Each as a ratio to what the bare programs take, or to version 0.1.0, measured by turns."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        os.environ["CODELOUPE_HOME"] = str(folder / "state")
        try:
            root = folder / "repository"
            root.mkdir()
            git(root, "init", "--quiet", "--template=", "--initial-branch=main")
            (root / "shop.py").write_text(source("py", 120, 1), encoding="utf-8")
            git(root, "add", ".")
            git(root, "-c", "user.name=a", "-c", "user.email=a@example.invalid", "commit", "--quiet", "-m", "first")
            yield _empty(root)
            (root / "shop.py").write_text(source("py", 120, 1) + source("py", 5, 2), encoding="utf-8")
            yield _one_file(root, folder)
            yield from _against_first_version(root, folder)
            yield _commits(folder / "history")
        finally:
            del os.environ["CODELOUPE_HOME"]


def _review(*, program: Sequence[str] = _CODELOUPE) -> list[str]:
    return [*program, "review", "--reviewer", "offline", "--uncommitted", "--quiet"]


def _empty(root: Path) -> BenchRow:
    bare = best_seconds(lambda: quiet([sys.executable, "-c", "pass"]), times=_TIMES)
    seconds = best_seconds(lambda: quiet(_review(), cwd=root), times=_TIMES)
    return BenchRow("review of no change / python -c pass", _both(seconds, bare), seconds / bare, 12.0)


def _one_file(root: Path, folder: Path) -> BenchRow:
    """Compare a review of one changed file with ruff and ast-grep called on it, as `bench.offline` does."""
    config = folder / "sgconfig.yml"
    config.write_text(f"ruleDirs: [{json.dumps(str(_RULES))}]\n", encoding="utf-8")
    file = str(root / "shop.py")
    ast_grep = [str(_BIN / "ast-grep"), "scan", "--config", str(config), "--json=stream", file]
    direct = Contender([[*_RUFF, file], ast_grep], folder)
    review, bare = least_costs([Contender([_review()], root), direct], turns=_TIMES)
    name = "offline review of one file / ruff and ast-grep on it"
    return BenchRow(name, compared(review, bare), review.wall_seconds / bare.wall_seconds, 2.0)


def _commits(root: Path) -> BenchRow:
    """Compare a commit of a sweep with ruff called on one file."""
    make_history(root, _SWEPT)
    words = [*_CODELOUPE, "commits", "--since", "2000-01-01", "--reviewer", "offline", "--fresh", "--quiet"]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "part.py"
        file.write_bytes(git(root, "show", "HEAD:part0.py"))
        ruff = Contender([[*_RUFF, str(file)]], Path(directory))
        sweep, bare = least_costs([Contender([words], root), ruff], turns=_TURNS)
    commit = shared(sweep, _SWEPT)
    name = f"a commit of an offline sweep over {_SWEPT} / ruff on one file"
    return BenchRow(name, compared(commit, bare), commit.wall_seconds / bare.wall_seconds, 4.0)


def _against_first_version(root: Path, folder: Path) -> Iterator[BenchRow]:
    """CPU of one offline review, ours and that of version 0.1.0, by turns; nothing where git does not have it."""
    source = Path(__file__).parent.parent
    found = subprocess.run(["git", "archive", _FIRST_VERSION, "src"], cwd=source, capture_output=True, check=False)
    if found.returncode:
        return
    first = folder / "first"
    first.mkdir()
    quiet(["tar", "-x", "-C", str(first)], stdin=found.stdout)
    # An environment of its own, since its child processes do not look at PYTHONPATH; dependencies are those of ours.
    quiet([sys.executable, "-m", "venv", "--without-pip", str(first / "venv")])
    (packages,) = (first / "venv" / "lib").glob("python*/site-packages")
    (packages / "first.pth").write_text(f"{first / 'src'}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")

    def cpu(python: str, state: str) -> float:
        variables = {"CODELOUPE_HOME": str(folder / state), "PATH": os.pathsep.join((str(_BIN), os.environ["PATH"]))}
        with subprocess.Popen(
            _review(program=[python, "-m", "codeloupe"]),
            cwd=root,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            raise RuntimeError(f"the review by {python} ended with {process.returncode}")
        return usage.ru_utime + usage.ru_stime

    old = str(first / "venv" / "bin" / "python")
    cpu(old, "first")
    turns = [(cpu(sys.executable, "state"), cpu(old, "first")) for _ in range(_TURNS)]
    ours, theirs = (min(turn[side] for turn in turns) for side in (0, 1))
    detail = f"{_both(ours, theirs)}, the least of {_TURNS} turns, git and the analysers included"
    yield BenchRow("CPU of an offline review of one file / version 0.1.0", detail, ours / theirs, 0.7)


def _both(seconds: float, bare: float) -> str:
    return f"{seconds * 1000:.0f} ms / {bare * 1000:.0f} ms"
