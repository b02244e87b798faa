"""ruff, isolated from every configuration, on Python files; which rules, and what a hit means: `ruff_rules.toml`.

ruff never sees the real names of the files: it gets numbered links in an empty directory. So no name can be taken
for an option, an exclusion or an argument file, none is too long, and none is lost on its way through JSON.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, Issue, is_test_file, read_regular_file
from codeloupe.analysers.secret_detectors import speaks_about_secrets
from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.model.finding import Severity
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run

_TABLE = "ruff_rules.toml"


class RuffRule(Struct, frozen=True, kw_only=True):
    """What one rule means: how bad, of what kind, why it matters and how to mend it.

    `seems_safe` is the severity when ruff, or a look at the code, says that it seems safe. `quiet_in_tests` marks
    what a test rightly does.
    """

    code: str
    severity: Severity
    category: str
    why: str
    fix: str | None
    seems_safe: Severity
    quiet_in_tests: bool


@cache
def ruff_rules() -> Mapping[str, RuffRule]:
    """Every rule that is asked for, by its code.

    Raises ValueError when the table names one code twice or a severity that does not exist.
    """
    document = tomllib.loads((files("codeloupe.analysers") / _TABLE).read_text(encoding="utf-8"))
    rules: dict[str, RuffRule] = {}
    for entry in document["entry"]:
        for code in entry["rules"]:
            if code in rules:
                raise ValueError(f"{_TABLE} holds {code} twice")
            rules[code] = _rule(code, entry)
    return MappingProxyType(rules)


def _rule(code: str, entry: Mapping[str, Any]) -> RuffRule:
    severity = Severity.parse(entry["severity"])
    return RuffRule(
        code=code,
        severity=severity,
        category=entry["category"],
        why=entry["why"],
        fix=entry.get("fix"),
        seems_safe=Severity.parse(entry.get("seems_safe", severity)),
        quiet_in_tests=entry.get("quiet_in_tests", False),
    )


_MOST_ROWS = 20
_LONGEST_ROW = 400
# What is raised, printed or logged is read by a person, and by no database.
_TOLD = re.compile(
    r"\s*(?:raise\b|print\(|assert\b|warnings\.warn\(|[\w.]{0,60}log(?:ger|ging)?\.(?:debug|info|warning|error|exception)\()"
)
_RUNS = re.compile(r"execute|query|cursor", re.IGNORECASE)
_F_STRING = re.compile(r"\b[rR]?[fF][rR]?[\"']")
_HOLE = re.compile(r"\{([^{}]*)\}")
_CONSTANT = re.compile(r"(?:\w{1,60}\.)?[A-Z][A-Z0-9_]*")
# As many marks as there are values: `','.join('?' for _ in ids)`, `', '.join(["%s"] * len(ids))`.
_MARKS = re.compile(
    r"""["'], ?["']\.join\([(\[]?["'](?:\?|%s)["']\]?(?: ?\* ?len\([\w.]+\)| for \w+ in [\w.()]+)\)?\)?"""
)
_PLACEHOLDER = re.compile(r"%s|%\(\w{1,60}\)s")
_OTHER_JOINING = re.compile(r"\.format\(|[\"') ] ?[+%] ?[\w\"'(]")


def is_harmless_query(rows: Sequence[str]) -> bool:
    """Whether the rows hold a message, or a query whose every variable part is a constant or a mark for a value."""
    if not 0 < len(rows) <= _MOST_ROWS or max(map(len, rows)) > _LONGEST_ROW:
        return False
    text = "\n".join(rows)
    if _TOLD.match(rows[0]):
        return _RUNS.search(text) is None
    bare = _MARKS.sub("MARKS", text)
    if bare != text and _F_STRING.search(bare) is None:
        return not _joins_otherwise(bare.replace("% MARKS", ""))
    holes = _HOLE.findall(bare)
    return bool(holes) and all(map(_CONSTANT.fullmatch, holes)) and not _joins_otherwise(bare)


def _joins_otherwise(text: str) -> bool:
    return _OTHER_JOINING.search(_PLACEHOLDER.sub("?", text)) is not None


_SYNTAX_ERROR = "invalid-syntax"
_UNREADABLE = "E902"
# Syntax that is newer than the target version is no mistake: which Python runs the code is not known here.
_NEWER_SYNTAX = "(syntax was "
_MAX_TITLE_CHARACTERS = 160
_QUERY = "S608"
# A module that offers debugging imports a debugger; what stops the program is the call.
_DEBUGGER_IMPORT = "Import for "
_SECRET_BY_NAME = ("S105", "S106", "S107")
# In a dataclass, a call that makes something shared or something of the moment; others, as a rule, make a field.
_SHARED_DEFAULT = "RUF009"
_MADE_ONCE = re.compile(
    r"`(?:[\w.]*\.)?(?:now|utcnow|today|time|monotonic|uuid[14]|list|dict|set|bytearray|deque|defaultdict|Counter|"
    r"random|randint|getpid)`"
)
_NAME_AT_END = re.compile(r'"([^"]*)"$')
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Diagnostic(Struct, frozen=True):
    """One message of ruff, with rows as ruff counts them; `index` is the number that its file was given."""

    index: int
    code: str | None
    message: str
    fix: str | None
    first_row: int
    last_row: int


class LineNumbers:
    """From ruff's rows to git's lines: a lone carriage return ends a row and does not end a line."""

    def __init__(self, content: bytes) -> None:
        self._last = max(1, content.count(b"\n") + (not content.endswith(b"\n")))
        self._by_row: list[int] | None = None
        if content.count(b"\r") != content.count(b"\r\n"):
            self._by_row = [1]
            for end in _LINE_END.finditer(content):
                self._by_row.append(self._by_row[-1] + (end[0] != b"\r"))

    def of_row(self, row: int) -> int:
        """The line that a row belongs to; a row behind the end of the file belongs to its last line."""
        if self._by_row is not None:
            row = self._by_row[min(row, len(self._by_row)) - 1]
        return min(max(row, 1), self._last)


def parse_diagnostics(output: bytes) -> list[Diagnostic]:
    """Read ruff's JSON. Raises ValueError, LookupError, TypeError or RecursionError when it is none."""
    return [_diagnostic(row) for row in json.loads(output)]


def _diagnostic(row: Mapping[str, Any]) -> Diagnostic:
    first, last = row["location"], row["end_location"]
    ends_before_row = last["column"] == 1 and last["row"] > first["row"]
    path = Path(row["filename"])
    return Diagnostic(
        index=int(path.stem if path.stem.isdigit() else path.parent.name),
        code=row["code"],
        message=str(row["message"]),
        fix=row["fix"]["message"] if row["fix"] else None,
        first_row=int(first["row"]),
        last_row=int(last["row"]) - ends_before_row,
    )


def rows_of(content: bytes) -> list[bytes]:
    """The content in rows, as ruff counts them."""
    return _LINE_END.split(content)


def rule_issues(
    file: str, diagnostics: Sequence[Diagnostic], lines: LineNumbers, rows: Callable[[], Sequence[bytes]] = tuple
) -> Iterator[Issue]:
    """The issues of a file by the rules of the table. `rows` of the file are asked for only where they decide."""
    in_tests = is_test_file(file)
    rules = ruff_rules()
    for diagnostic in diagnostics:
        rule = rules.get(diagnostic.code or "")
        if rule is None or rule.code == _UNREADABLE or (in_tests and rule.quiet_in_tests):
            continue
        if rule.code == _SHARED_DEFAULT and not _MADE_ONCE.search(diagnostic.message):
            continue
        if not _is_about_a_secret(diagnostic) and not diagnostic.message.startswith(_DEBUGGER_IMPORT):
            seems_safe = "seems safe" in diagnostic.message or _is_harmless(diagnostic, rows)
            yield _issue(file, diagnostic, lines, rule if not seems_safe else replace(rule, severity=rule.seems_safe))


def _is_about_a_secret(diagnostic: Diagnostic) -> bool:
    """Whether what ruff takes for a password by its name is the name, place or kind of one, as in `TOKEN_ENV`."""
    named = _NAME_AT_END.search(diagnostic.message) if diagnostic.code in _SECRET_BY_NAME else None
    return named is not None and speaks_about_secrets(named[1])


def _is_harmless(diagnostic: Diagnostic, rows: Callable[[], Sequence[bytes]]) -> bool:
    """Whether what ruff takes for a query can hold nothing from outside."""
    if diagnostic.code != _QUERY:
        return False
    marked = rows()[diagnostic.first_row - 1 : diagnostic.last_row]
    return is_harmless_query([row.decode("utf-8", "replace") for row in marked])


def _issue(file: str, diagnostic: Diagnostic, lines: LineNumbers, rule: RuffRule) -> Issue:
    return Issue(
        file=file,
        line_start=lines.of_row(diagnostic.first_row),
        line_end=lines.of_row(diagnostic.last_row),
        rule=rule.code,
        severity=rule.severity,
        category=rule.category,
        title=_title(diagnostic.message),
        body=rule.why,
        suggestion=diagnostic.fix or rule.fix,
    )


def _title(message: str) -> str:
    line = " ".join(message.split()).removesuffix(".")
    return line if len(line) <= _MAX_TITLE_CHARACTERS else line[: _MAX_TITLE_CHARACTERS - 1] + "…"


def broken_file(
    file: str, diagnostics: Sequence[Diagnostic], lines: LineNumbers, added: frozenset[int]
) -> Issue | str | None:
    """What to say of a file that could not be checked whole, or None when it could.

    A syntax error on an added line is an issue; anything else is a reason in words.
    """
    errors = [found for found in diagnostics if found.code not in ruff_rules() or found.code == _UNREADABLE]
    for error in errors:
        if error.code not in (None, _SYNTAX_ERROR):
            return f"could not be checked: {_title(error.message)}"
    syntax = [found for found in errors if _NEWER_SYNTAX not in found.message]
    for error in syntax:
        line = lines.of_row(error.first_row)
        if line in added:
            return _syntax_issue(file, line, error.message)
    if not syntax:
        return None
    return f"syntax error at line {lines.of_row(syntax[0].first_row)}: the other checks could not run"


def _syntax_issue(file: str, line: int, message: str) -> Issue:
    return Issue(
        file=file,
        line_start=line,
        line_end=line,
        rule=_SYNTAX_ERROR,
        severity=Severity.HIGH,
        category="correctness",
        title=f"The file does not parse: {_title(message)}",
        body="Python cannot read this file, so importing it fails, and no other check could look at it.",
        suggestion="correct the syntax here or shortly before",
    )


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

    name = "ruff"

    def __init__(self, program: str | None = None) -> None:
        self._program = program

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
