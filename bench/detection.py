"""What the offline review finds in small programs, beside bandit and ruff's security rules.

The programs are in `bench/weaknesses`: pairs of one with a weakness and a twin without it. A program counts as flagged
when a tool reports anything about security in it; bandit's notices about imports do not count, to its favour.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.changes import git
from bench.table import BenchRow

_PROGRAMS = Path(__file__).with_name("weaknesses")
_IMPORT_NOTICES = "B4"


@dataclass(frozen=True, slots=True)
class Program:
    """One small program, whether it has the weakness, and the name of its file."""

    name: str
    file: str
    is_weak: bool
    code: str


@dataclass(frozen=True, slots=True)
class Score:
    """How well a tool tells programs with a weakness from those without."""

    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]
    weak: int

    @property
    def recall(self) -> float:
        """The share of weaknesses that are found."""
        return 1 - len(self.missed) / self.weak

    @property
    def precision(self) -> float:
        """The share of flagged programs that are weak."""
        found = self.weak - len(self.missed)
        return found / (found + len(self.false_alarms)) if found else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        both = self.recall + self.precision
        return 2 * self.recall * self.precision / both if both else 0.0


def programs() -> list[Program]:
    """All programs, in the order of their files."""
    found: list[Program] = []
    for path in sorted(_PROGRAMS.glob("*.yml")):
        for pair in yaml.safe_load(path.read_text(encoding="utf-8")):
            for is_weak in (True, False):
                file = f"program_{len(found):03}.py"
                found.append(
                    Program(f"{pair['name']} (CWE-{pair['cwe']})", file, is_weak, pair["unsafe" if is_weak else "safe"])
                )
    return found


def scores() -> Mapping[str, Score]:
    """The score of each tool, by name, all on the same files."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        root.mkdir()
        git(root, "init", "-q")
        git(root, "commit", "-q", "--allow-empty", "-m", "start")
        for program in programs():
            (root / program.file).write_text(program.code, encoding="utf-8")
        return {name: _score(flagged(root)) for name, flagged in _TOOLS.items()}


def _score(flagged: set[str]) -> Score:
    known = programs()
    weak = [program for program in known if program.is_weak]
    return Score(
        missed=tuple(program.name for program in weak if program.file not in flagged),
        false_alarms=tuple(program.name for program in known if not program.is_weak and program.file in flagged),
        weak=len(weak),
    )


def _by_codeloupe(root: Path) -> set[str]:
    found = _json(root, "codeloupe", "review", "--reviewer", "offline", "--format", "json", "-q")
    return {row["file"] for row in found["findings"] if row["category"] == "security"}


def _by_bandit(root: Path) -> set[str]:
    found = _json(root, "bandit", "-q", "-f", "json", "-r", ".")
    return {Path(row["filename"]).name for row in found["results"] if not row["test_id"].startswith(_IMPORT_NOTICES)}


def _by_ruff(root: Path) -> set[str]:
    found = _json(root, "ruff", "check", "--isolated", "--no-cache", "--select", "S", "--output-format", "json", ".")
    return {Path(row["filename"]).name for row in found}


_TOOLS: dict[str, Callable[[Path], set[str]]] = {
    "codeloupe, offline": _by_codeloupe,
    "bandit": _by_bandit,
    "ruff --select S": _by_ruff,
}


def _json(root: Path, program: str, *words: str) -> Any:
    command = [str(Path(sys.executable).with_name(program)), *words]
    return json.loads(subprocess.run(command, cwd=root, capture_output=True, check=False).stdout)


def rows() -> Iterator[BenchRow]:
    """Recall, precision and F1 of each tool; the others' F1 against ours must stay below one."""
    measured = scores()
    ours = measured["codeloupe, offline"]
    for name, score in measured.items():
        detail = f"recall {score.recall:.2f}, precision {score.precision:.2f} on {2 * score.weak} programs"
        limit = None if score is ours else 1.0
        ratio = score.f1 if score is ours else score.f1 / ours.f1
        what = f"F1 of {name}" if score is ours else f"F1 of {name} / ours"
        yield BenchRow(what, f"{detail}, F1 {score.f1:.2f}", ratio, limit, "" if score is ours else "x")
