"""The offline review beside ruff and ast-grep called directly on the same files, by turns.

With CODELOUPE_BENCH_REPOSITORIES=FOLDER the changes are real ones of up to three git repositories in the folder that
have Python files: the newest range that changes 60 Python files, and the newest commit that changes one Python file
and nothing else. Without a folder, only a generated change of 60 files in four languages is measured. `bench.commits`
measures sweeps.

- The review is the whole program, start included: `codeloupe review A..B --reviewer offline --fresh`. Real changes get
  `--include '*.py'` too. It reads the files from git, runs ruff, ast-grep, the data-flow analysis and the search for
  secrets, and stores the review in a history of its own.
- Called directly, ruff and ast-grep run one after the other on a folder with the new version of the files that the
  review reads, whole. Both use our rules and no cache, and print what they find as JSON. The folder is written before
  the clock starts.
- ast-grep called directly loads our pack for all languages, as it does for a project that has one `sgconfig.yml`. The
  review loads the rules for the languages of the change, and scans only files with the text that a rule needs. A second
  row without a limit compares it with ast-grep that has only the rules for Python, because loading the pack takes most
  of the time on one file.
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
from bench.turns import Contender, Cost, compared, least_costs
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
    """Measure the newest range with 60 Python files, and the newest commit of one Python file."""
    base = _base_of_range(root)
    if base is None:
        yield BenchRow(f"{root.name}: offline review of {_FILES} files", "not measured: fewer files", None, None)
    else:
        yield from _real_rows(MeasuredRange(root, base, "HEAD", _PYTHON), base)
    commit = _commit_of_one_file(root)
    if commit is None:
        yield BenchRow(f"{root.name}: offline review of one file", "not measured: no such commit", None, None)
    else:
        yield from _real_rows(MeasuredRange(root, f"{commit}~1", commit, _PYTHON), commit)


def _generated_rows(folder: Path) -> Iterator[BenchRow]:
    root = folder / "repository"
    make_change(root, files=_FILES, lines=9_500)
    change = MeasuredRange(root, "HEAD~1", "HEAD")
    document = _first_review(change, folder / "home")
    if not document["complete"] or not document["findings"]:
        raise RuntimeError("the review that is measured did not work")
    ours, theirs = _least_costs(change, folder, (_RULES,))
    diff_seconds = best_seconds(lambda: git(root, "diff", "HEAD~1", "HEAD"), times=_TURNS)
    seconds = ours.wall_seconds
    detail = f"{seconds:.2f} s, {len(document['findings'])} findings in {change.added_lines():,} lines"
    yield BenchRow(f"offline review of {_FILES} files / 3 s", detail, seconds / _SECONDS_ALLOWED, 1.0)
    name = f"offline review of {_FILES} files / its git diff"
    yield BenchRow(name, f"{seconds:.2f} s / {diff_seconds:.3f} s", seconds / diff_seconds, None)
    yield _row(f"offline review of {_FILES} files / {_DIRECTLY}", ours, theirs, limit=None)


def _real_rows(change: MeasuredRange, commit: str) -> Iterator[BenchRow]:
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs, only_python = _least_costs(change, Path(directory), (_RULES, _RULES / "python"))
    count = len(change.files())
    what = f"{count} files"
    if count == 1:
        what = "one file"
    name = f"{change.root.name}: offline review of {what}, {commit[:10]}"
    yield _row(f"{name} / {_DIRECTLY}", ours, theirs, limit=_MOST_TIMES_DIRECT)
    yield _row(f"{name} / the same with only the rules for Python", ours, only_python, limit=None)


def _row(name: str, ours: Cost, theirs: Cost, *, limit: float | None) -> BenchRow:
    detail = f"{compared(ours, theirs)}, the least of {_TURNS} turns"
    return BenchRow(name, detail, ours.wall_seconds / theirs.wall_seconds, limit)


def _least_costs(change: MeasuredRange, folder: Path, rule_folders: Sequence[Path]) -> list[Cost]:
    """Return what the review of a change costs, and what direct calls on the same files cost with each set of rules."""
    document = _first_review(change, folder / "home")
    skipped = {row["file"] for row in document["coverage"]["skipped"]}
    files = folder / "files"
    _write_files(change, [name for name in change.files() if name not in skipped], files)
    contenders = [change.review(folder / "home")]
    for number, rules in enumerate(rule_folders):
        config = folder / f"sgconfig{number}.yml"
        config.write_text(f"ruleDirs: [{json.dumps(str(rules))}]\n", encoding="utf-8")
        contenders.append(Contender(_direct_calls(files, config), folder))
    return least_costs(contenders, turns=_TURNS)


def _first_review(change: MeasuredRange, home: Path) -> Any:
    """Review a change once and return the report. Raise RuntimeError if an analyser failed."""
    document = _first_report(change.review(home))
    for error in document["errors"]:
        if error["level"] == "problem" and error["kind"] != _NOT_REVIEWED:
            raise RuntimeError(f"the review that is measured did not work: {error['message']}")
    return document


def _first_report(contender: Contender) -> Any:
    (command,) = contender.commands
    environment = {**os.environ, **(contender.environment or {})}
    ended = subprocess.run(command, cwd=contender.folder, env=environment, capture_output=True, check=False)
    return json.loads(ended.stdout)


def _write_files(change: MeasuredRange, names: Sequence[str], folder: Path) -> None:
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(git(change.root, "show", f"{change.head}:{name}"))


def _ruff_call(files: Path) -> list[str]:
    select = f"--select={','.join(ruff_rules())}"
    return [str(_BIN / "ruff"), "check", "--isolated", "--no-cache", "--output-format=json", select, str(files)]


def _direct_calls(files: Path, config: Path) -> Sequence[Sequence[str]]:
    ast_grep = [str(_BIN / "ast-grep"), "scan", "--config", str(config), "--json=stream", str(files)]
    return [_ruff_call(files), ast_grep]


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
