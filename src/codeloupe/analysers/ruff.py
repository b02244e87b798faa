"""ruff, isolated from every configuration, on Python files.

ruff never sees the real names of the files: it gets numbered links in an empty directory. So no name can be taken
for an option, an exclusion or an argument file, none is too long, and none is lost on its way through JSON.
"""

from __future__ import annotations

import os
import sysconfig
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from msgspec import Struct, field

from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.paths import read_regular_file
from codeloupe.analysers.ruff_output import (
    Diagnostic,
    LineNumbers,
    broken_file,
    parse_diagnostics,
    rows_of,
    rule_issues,
)
from codeloupe.analysers.ruff_rules import ruff_rules
from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run

_SUFFIXES = (".py", ".pyi", ".pyw")
# The newest version that every supported ruff knows.
_TARGET_VERSION = "py314"
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_VERSION_TIMEOUT_SECONDS = 20.0
_SHORTEST_ATTEMPT_SECONDS = 0.1
_ARGUMENT_FILE = "arguments"
# A package's own file imports names to pass them on.
_RE_EXPORTS = "__init__.py*:F401,__init__.py*:F403"


class RuffAnalyser:
    """Correctness, bug and security rules of ruff; no style.

    Notebooks are not accepted: ruff counts lines by cell, which says nothing about the lines of the file.
    """

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    @property
    def name(self) -> str:
        """Its short name in reports."""
        return "ruff"

    def accepts(self, path: str) -> bool:
        """Whether the name is that of a Python file."""
        return path.lower().endswith(_SUFFIXES)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Run ruff on all files.

        A file that does not parse, is not UTF-8 or makes ruff die is in the report's `failed`, unless it is a syntax
        error on an added line: that is an issue. Raises AnalyserFailed when ruff fails or its output cannot be read,
        or a ProcessError.
        """
        if not target.files:
            return AnalyserReport()
        with temporary_directory() as directory:
            check = _Check(
                program=self._program or _find_ruff(),
                directory=directory,
                target=target,
                deadline=time.monotonic() + target.timeout_seconds,
            )
            check.link_files()
            if check.names:
                await check.run(tuple(check.names))
        return check.report()

    async def version(self) -> str:
        """The version of ruff. Raises AnalyserFailed or a ProcessError."""
        program = self._program or _find_ruff()
        completed = await run(_command((program, "--version"), Path(os.sep), _VERSION_TIMEOUT_SECONDS))
        words = completed.stdout.decode("utf-8", "replace").split()
        if completed.exit_code != 0 or len(words) < 2 or words[0] != "ruff":
            raise _failure("does not say its version", completed)
        return words[1]


def _find_ruff() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "ruff"
    program = str(beside) if os.access(beside, os.X_OK) else find_program("ruff")
    if program is None:
        raise ProgramNotFound("ruff is not installed", program="ruff", hint="pip install ruff")
    return program


def _command(argv: tuple[str, ...], cwd: Path, timeout_seconds: float) -> Command:
    return Command(
        argv=argv,
        cwd=cwd,
        environment=inherited_environment(),
        timeout_seconds=timeout_seconds,
        max_output_bytes=_MAX_OUTPUT_BYTES,
    )


def _arguments(*, trusted: bool) -> tuple[str, ...]:
    return (
        "check",
        "--isolated",
        "--no-cache",
        "--no-fix",
        "--no-preview",
        "--no-respect-gitignore",
        "--no-force-exclude",
        "--exit-zero",
        *(() if trusted else ("--ignore-noqa",)),
        f"--target-version={_TARGET_VERSION}",
        "--output-format=json",
        f"--select={','.join(ruff_rules())}",
        f"--per-file-ignores={_RE_EXPORTS}",
        f"@{_ARGUMENT_FILE}",
    )


def _failure(what: str, completed: Completed) -> AnalyserFailed:
    lines = completed.stderr.strip().splitlines() or [""]
    line = next((line for line in lines if "error" in line.lower()), lines[0])
    detail = f": {line[:300]}" if line else ""
    return AnalyserFailed(
        f"ruff {what}{detail}", analyser="ruff", hint="run `codeloupe doctor` to see which ruff is used"
    )


class _Check(Struct, frozen=True, kw_only=True):
    """One analysis. A file that kills ruff or holds it up is found by halving, so that it does not hide the others."""

    program: str
    directory: Path
    target: AnalysisTarget
    deadline: float
    names: dict[int, str] = field(default_factory=dict)
    lines: dict[int, LineNumbers] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def link_files(self) -> None:
        """A link with a number for each file. Only `__init__.py` keeps its name, for ruff goes by it."""
        for index, file in enumerate(self.target.files):
            path = self.target.root.absolute() / file
            try:
                self.lines[index] = LineNumbers(read_regular_file(path))
            except OSError as error:
                self.failed[file] = f"cannot be read: {error.strerror}"
                continue
            base = file.rsplit("/", 1)[-1].lower()
            name = f"{index}{Path(base).suffix}"
            if base.startswith("__init__."):
                (self.directory / str(index)).mkdir()
                name = f"{index}/{base}"
            (self.directory / name).symlink_to(path)
            self.names[index] = name

    async def run(self, indexes: Sequence[int]) -> None:
        """Check some files; if ruff dies of one of them, check the halves."""
        reason = await self._attempt(indexes)
        if reason is None:
            return
        if len(indexes) == 1:
            self.failed[self.target.files[indexes[0]]] = reason
            return
        middle = len(indexes) // 2
        await self.run(indexes[:middle])
        await self.run(indexes[middle:])

    async def _attempt(self, indexes: Sequence[int]) -> str | None:
        """Check some files and keep what ruff says; or keep nothing, and return why one of them stands in the way."""
        is_only_attempt = len(self.names) == 1
        left = self.deadline - time.monotonic()
        seconds = max(left if is_only_attempt else left / 2, _SHORTEST_ATTEMPT_SECONDS)
        arguments = "".join(f"{self.names[index]}\n" for index in indexes)
        (self.directory / _ARGUMENT_FILE).write_text(arguments, encoding="ascii")
        try:
            completed = await run(
                _command((self.program, *_arguments(trusted=self.target.trusted)), self.directory, seconds)
            )
        except ProcessTimedOut:
            if is_only_attempt or seconds == _SHORTEST_ATTEMPT_SECONDS:
                raise
            return f"ruff did not finish with it within {seconds:.1f} s"
        except OutputTooLarge:
            return f"ruff's answer is over {_MAX_OUTPUT_BYTES:,} bytes"
        if completed.exit_code < 0:
            return f"ruff died of signal {-completed.exit_code}"
        self.diagnostics.extend(_read(completed, known=indexes))
        return None

    def report(self) -> AnalyserReport:
        """All that ruff said, as issues and failures."""
        by_file: dict[int, list[Diagnostic]] = defaultdict(list)
        for diagnostic in self.diagnostics:
            by_file[diagnostic.index].append(diagnostic)
        issues: list[Issue] = []
        failed = dict(self.failed)
        for index, found in by_file.items():
            file, lines = self.target.files[index], self.lines[index]
            issues.extend(rule_issues(file, found, lines, cache(partial(self._rows, file))))
            match broken_file(file, found, lines, self.target.added_lines.get(file, frozenset())):
                case Issue() as issue:
                    issues.append(issue)
                case str() as reason:
                    failed[file] = reason
                case None:
                    pass
        return AnalyserReport(tuple(issues), failed)

    def _rows(self, file: str) -> list[bytes]:
        try:
            return rows_of(read_regular_file(self.target.root / file))
        except OSError:  # it vanished after ruff read it: what ruff said stands as it is
            return []


def _read(completed: Completed, known: Sequence[int]) -> list[Diagnostic]:
    if completed.exit_code != 0:
        raise _failure(f"ended with exit code {completed.exit_code}", completed)
    try:
        diagnostics = parse_diagnostics(completed.stdout)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _failure("wrote something that is not its JSON", completed) from error
    if not {diagnostic.index for diagnostic in diagnostics} <= set(known):
        raise _failure("speaks of files that it was not given", completed)
    return diagnostics
