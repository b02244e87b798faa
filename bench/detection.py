"""The offline review's detection of weaknesses, beside bandit and ruff's security rules, on two labelled sets.

- Our own programs in `bench/weaknesses`: pairs of a program with a weakness and a twin without it. A program counts as
  flagged if a tool reports anything about security in it.
- The OWASP benchmark for Python, with CODELOUPE_BENCH_OWASP=FOLDER: a checkout with `testcode/*.py` and
  `expectedresults-0.1.csv`. A test case counts as flagged if a tool reports a weakness of the case's CWE in it. This
  number is compared; the one in which any report about security counts is printed next to it.

bandit's notices about imports do not count, to its favour. bandit parses with the Python that runs it, so that 3.11
cannot read some of OWASP's cases; the row says how many. The limits are on the fall of our F1 since it was recorded.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.changes import git
from bench.table import BenchRow

OWASP = "CODELOUPE_BENCH_OWASP"
# Our F1 when the limits were set, and how far below it a change may get.
RECORDED_OWN_F1 = 0.9907
RECORDED_OWASP_F1 = 0.9119
MOST_FALL = 0.01

_PROGRAMS = Path(__file__).with_name("weaknesses")
_IMPORT_NOTICES = "B4"
_OURS = "codeloupe, offline"
# The CWE of each rule in the words of the OWASP benchmark. ruff's S rules have the numbers of bandit's tests.
_CWE_OF_TEST = {
    78: (601, 602, 603, 604, 605, 606, 607, 609),
    79: (308, 701, 702, 703, 704),
    89: (608, 610, 611),
    94: (102, 307),
    328: (303, 324),
    330: (311,),
    502: (301, 302, 506),
    611: (313, 314, 315, 316, 317, 318, 319, 320),
}
_CWE_OF_RULE = {
    "py-path-traversal": 22,
    "py-command-injection": 78,
    "py-cross-site-scripting": 79,
    "py-sql-injection": 89,
    "py-ldap-injection": 90,
    "py-code-injection": 94,
    "py-template-injection": 94,
    "py-guessable-secret": 330,
    "py-unsafe-deserialization": 502,
    "py-open-redirect": 601,
    "py-xml-external-entity": 611,
    "py-insecure-cookie": 614,
    "py-xpath-injection": 643,
}


@dataclass(frozen=True, slots=True)
class Program:
    """A labelled program: the name and the content of its file, its weakness, and whether it has it."""

    name: str
    file: str
    cwe: int
    is_weak: bool
    code: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """What a tool reports about a file: the CWE of the rule, or None if the table has no CWE for it."""

    file: str
    cwe: int | None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool reports about all programs, and how many of them it cannot parse."""

    reports: tuple[Report, ...]
    unparsed: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """The programs that a tool judges wrongly, of a number of weak ones."""

    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]
    weak: int

    @property
    def recall(self) -> float:
        """Return the share of weaknesses that are found."""
        return 1 - len(self.missed) / self.weak

    @property
    def precision(self) -> float:
        """Return the share of flagged programs that are weak."""
        found = self.weak - len(self.missed)
        if not found:
            return 0.0
        return found / (found + len(self.false_alarms))

    @property
    def f1(self) -> float:
        """Return the harmonic mean of recall and precision."""
        both = self.recall + self.precision
        if not both:
            return 0.0
        return 2 * self.recall * self.precision / both

    def __str__(self) -> str:
        return f"recall {self.recall:.3f}, precision {self.precision:.3f}, F1 {self.f1:.3f}"


def rows() -> Iterator[BenchRow]:
    """Measure each tool on our own programs, and on the OWASP benchmark if a folder is given."""
    measured = scores()
    details = {tool: f"{one}, {2 * one.weak} programs" for tool, one in measured.items()}
    yield from _score_rows("our programs", measured, details, RECORDED_OWN_F1)
    folder = os.environ.get(OWASP)
    if not folder:
        yield BenchRow("F1 on the OWASP benchmark", f"not measured: {OWASP} is not set", None, None)
        return
    yield from _owasp_rows(owasp_programs(Path(folder)))


def scores() -> Mapping[str, Score]:
    """Return the score of each tool on our own programs."""
    known = programs()
    return {tool: score(known, result.reports) for tool, result in results(known).items()}


def _owasp_rows(known: Sequence[Program]) -> Iterator[BenchRow]:
    measured: dict[str, Score] = {}
    details: dict[str, str] = {}
    for tool, result in results(known).items():
        measured[tool] = score(known, result.reports, by_cwe=True)
        detail = f"{measured[tool]} by CWE, {len(known)} cases"
        if result.unparsed:
            detail += f", {result.unparsed} of which it cannot parse"
        any_cwe = score(known, result.reports)
        details[tool] = f"{detail}; F1 {any_cwe.f1:.3f} if any security report counts"
    yield from _score_rows("the OWASP benchmark", measured, details, RECORDED_OWASP_F1)


def _score_rows(
    where: str, scores: Mapping[str, Score], details: Mapping[str, str], recorded: float
) -> Iterator[BenchRow]:
    """Yield our F1 with a limit on its fall, and the ratio of each other tool's F1 to ours, which must stay below 1."""
    ours = scores[_OURS].f1
    for tool, one in scores.items():
        if tool == _OURS:
            yield BenchRow(f"F1 of {tool} on {where}", details[tool], one.f1, None, "")
            yield BenchRow(f"fall of it below {recorded:.3f}", f"F1 {one.f1:.4f}", recorded - one.f1, MOST_FALL, "")
        else:
            yield BenchRow(f"F1 of {tool} on {where} / ours", details[tool], one.f1 / ours, 1.0)


def programs() -> list[Program]:
    """Return our own programs, in the order of their files."""
    found: list[Program] = []
    for path in sorted(_PROGRAMS.glob("*.yml")):
        for pair in yaml.safe_load(path.read_text(encoding="utf-8")):
            name = f"{pair['name']} (CWE-{pair['cwe']})"
            for key in ("unsafe", "safe"):
                file = f"program_{len(found):03}.py"
                found.append(Program(name, file, pair["cwe"], key == "unsafe", pair[key].encode()))
    return found


def owasp_programs(folder: Path) -> list[Program]:
    """Return the test cases of a checkout of the OWASP benchmark."""
    found: list[Program] = []
    with (folder / "expectedresults-0.1.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            if row[0].startswith("#"):
                continue
            case, category, is_weak, cwe = row[:4]
            code = (folder / "testcode" / f"{case}.py").read_bytes()
            found.append(Program(f"{case} ({category})", f"{case}.py", int(cwe), is_weak == "true", code))
    return found


def results(known: Sequence[Program]) -> Mapping[str, ToolResult]:
    """Return the result of each tool on some programs, which are new files in a repository."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        root.mkdir()
        git(root, "init", "-q")
        git(root, "commit", "-q", "--allow-empty", "-m", "start")
        for program in known:
            (root / program.file).write_bytes(program.code)
        return {tool: run(root) for tool, run in _TOOLS.items()}


def score(known: Sequence[Program], reports: Sequence[Report], *, by_cwe: bool = False) -> Score:
    """Compare reports with the labels. With `by_cwe`, only a report of the program's own weakness flags it."""
    flagged = {report.file for report in reports}
    if by_cwe:
        cwes = {program.file: program.cwe for program in known}
        flagged = {report.file for report in reports if report.cwe == cwes[report.file]}
    missed: list[str] = []
    false_alarms: list[str] = []
    for program in known:
        if program.is_weak and program.file not in flagged:
            missed.append(program.name)
        elif not program.is_weak and program.file in flagged:
            false_alarms.append(program.name)
    weak = sum(program.is_weak for program in known)
    return Score(tuple(missed), tuple(false_alarms), weak)


def _by_codeloupe(root: Path) -> ToolResult:
    words = ("review", "--uncommitted", "--reviewer", "offline", "--fresh", "--format", "json", "-q")
    found = _json(root, "codeloupe", *words)
    if not found["complete"]:
        raise RuntimeError(f"the review that is measured is incomplete: {found['summary']}")
    reports: list[Report] = []
    for row in found["findings"]:
        if row["category"] == "security":
            rule = row["rule"]
            reports.append(Report(row["file"], _CWE_OF_RULE.get(rule) or _cwe_of_test(rule)))
    return ToolResult(tuple(reports))


def _by_bandit(root: Path) -> ToolResult:
    found = _json(root, "bandit", "-q", "-f", "json", "-r", ".")
    counted = [row for row in found["results"] if not row["test_id"].startswith(_IMPORT_NOTICES)]
    reports = [Report(Path(row["filename"]).name, _cwe_of_test(row["test_id"])) for row in counted]
    return ToolResult(tuple(reports), unparsed=len(found["errors"]))


def _by_ruff(root: Path) -> ToolResult:
    found = _json(root, "ruff", "check", "--isolated", "--no-cache", "--select", "S", "--output-format", "json", ".")
    reports = [Report(Path(row["filename"]).name, _cwe_of_test(row["code"])) for row in found]
    return ToolResult(tuple(reports))


def _cwe_of_test(name: str) -> int | None:
    """Return the CWE of a rule such as S602 or B602."""
    number = name[1:]
    if name[:1] not in ("S", "B") or not number.isdecimal():
        return None
    for cwe, tests in _CWE_OF_TEST.items():
        if int(number) in tests:
            return cwe
    return None


_TOOLS: dict[str, Callable[[Path], ToolResult]] = {
    _OURS: _by_codeloupe,
    "bandit": _by_bandit,
    "ruff --select S": _by_ruff,
}


def _json(root: Path, program: str, *words: str) -> Any:
    """Run a program in a folder and return what it prints. A review is stored outside of the user's own history."""
    command = [str(Path(sys.executable).with_name(program)), *words]
    environment = {**os.environ, "CODELOUPE_HOME": str(root.parent / "home")}
    return json.loads(subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False).stdout)
