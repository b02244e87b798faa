"""ruff, isolated from every configuration, on Python files; `ruff_rules.toml` lists the rules and their texts.

ruff never sees the real names of the files: it gets numbered links in an empty directory. So no name is read as an
option, an exclusion or an argument file, no name is too long, and every name survives JSON.
"""

from __future__ import annotations

import re
import time
import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from typing import Literal

from msgspec import MsgspecError, Struct, convert, field
from msgspec.json import decode
from msgspec.structs import replace

from codeloupe.analysers import programs
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue, is_test_file
from codeloupe.analysers.languages import language_of
from codeloupe.analysers.secret_values import speaks_about_secrets
from codeloupe.config.files import read_regular_file
from codeloupe.model.finding import Severity
from codeloupe.system.directories import temporary_folder
from codeloupe.system.regex import regex

_HINT = "run `codeloupe doctor` to see which ruff is used"
# A comment that hides issues from ruff, up to its codes. A `wide` one may hide issues on other rows than its own.
_SILENCING_COMMENT = regex(
    r"#[ \t]{0,9}(?P<wide>(?:ruff|flake8)[ \t]{0,9}:[ \t]{0,9})?"
    r"(?:noqa(?:[ \t]{0,9}:[ \t]{0,9}[A-Z]+[0-9]+(?:[, \t]{1,9}[A-Z]+[0-9]+)*)?"
    r"|(?:disable|ignore|file-ignore)\[[^\]\n]{0,200}\])",
    re.IGNORECASE,
)
# Statements and literals that Python 2 has and Python 3 does not, as "What's New in Python 3.0" lists them, and `async`
# as a name, which Python 3.7 ended.
_OLDER_PYTHON = regex(
    r"""
    ^[ \t]*(?:print|exec)\b[ \t]*(?![ \t]*[(=.,:)])
    | ^[ \t]*raise[ \t]+[\w.]+[ \t]*,
    | ^[ \t]*def[ \t]+\w+[ \t]*\((?:[^()]*,)?[ \t]*\(
    | ` | <> | \b[uU][rR]["'] | \b0[0-7]+\b | \b[0-9]+[lL]\b
    | \b(?:import|from)\b.*\basync\b | \.async\b | \basync[ \t]*[=,)]
    """,
    re.VERBOSE,
)
_LONGEST_ROW = 1000
_LINE_END = regex(rb"\r\n|\r|\n")
# The shortest row length that a formatter is usually given.
_ROW_LENGTH = 79
_HARDCODED_SECRETS = ("S105", "S106", "S107")
# The name of the variable at the end of ruff's message about a hard-coded secret.
_NAME_AT_END = regex(r'"([^"]*)"$')
_ARGUMENTS = (
    *("check", "--isolated", "--no-cache", "--no-fix", "--no-preview", "--no-respect-gitignore", "--no-force-exclude"),
    *("--exit-zero", "--output-format=json", "--target-version=py314"),  # the newest that every supported ruff knows
    "--per-file-ignores=__init__.py*:F401,__init__.py*:F403",  # a package's own file imports names for other modules
)


class RuffRule(Struct, frozen=True, kw_only=True):
    """The meaning of one rule; `ruff_rules.toml` explains the fields."""

    code: str
    defect: str
    severity: Severity
    seems_safe: Severity
    category: str
    why: str
    fix: str | None = None
    message: str = ""
    quiet_in_tests: bool = False


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `ruff_rules.toml`."""

    rules: list[str]
    severity: str
    category: str
    why: str
    fix: str | None = None
    seems_safe: str = ""
    defect: str = ""
    message: str = ""
    quiet_in_tests: bool = False


@cache
def ruff_rules() -> Mapping[str, RuffRule]:
    """Return every rule that is enabled, by its code. Raises ValueError if the table has a rule twice."""
    text = Path(__file__).with_name("ruff_rules.toml").read_text(encoding="utf-8")
    rules: dict[str, RuffRule] = {}
    for entry in convert(tomllib.loads(text)["entry"], list[_Entry]):
        for code in entry.rules:
            if code in rules:
                raise ValueError(f"ruff_rules.toml has {code} twice")
            rules[code] = RuffRule(
                code=code,
                defect=entry.defect or entry.rules[0],
                severity=Severity.parse(entry.severity),
                seems_safe=Severity.parse(entry.seems_safe or entry.severity),
                category=entry.category,
                why=entry.why,
                fix=entry.fix,
                message=entry.message,
                quiet_in_tests=entry.quiet_in_tests,
            )
    return rules


class _Diagnostic(Struct):
    """One message of ruff. Its rows are not always git's lines: a lone carriage return ends a row, but not a line."""

    filename: str
    code: str | None
    message: str
    location: dict[Literal["row", "column"], int]
    end_location: dict[Literal["row", "column"], int]
    noqa_row: int | None = None
    name: str | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Return the first and the last row."""
        first = self.location["row"]
        last = self.end_location["row"]
        if self.end_location["column"] == 1 and last > first:
            last -= 1
        return first, last

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what two runs of ruff agree on if they report the same diagnostic."""
        return self.code, self.message, *self.location.items(), *self.end_location.items()

    @property
    def title(self) -> str:
        """Return the message as one line."""
        line = " ".join(self.message.split()).removesuffix(".")
        return line if len(line) <= 160 else line[:159] + "…"

    @property
    def rule_title(self) -> str:
        """Return ruff's name of the rule in words: `Suspicious eval usage`; messages name variables and modules."""
        return (self.name or "").replace("-", " ").capitalize()

    @property
    def is_syntax_error(self) -> bool:
        """Return whether the code does not parse. Syntax newer than the target version parses in a newer Python."""
        return self.code in (None, "invalid-syntax") and "(syntax was " not in self.message


class _File:
    """A file that ruff checks."""

    def __init__(self, name: str, content: bytes, added: frozenset[int]) -> None:
        self.name = name
        self._content = content
        self._added = added
        self._last = max(1, content.count(b"\n") + (not content.endswith(b"\n")))
        # The line of each row.
        self._lines: Sequence[int] = range(1, self._last + 1)
        if content.count(b"\r") != content.count(b"\r\n"):
            ends = (end[0] != b"\r" for end in _LINE_END.finditer(content))
            self._lines = tuple(accumulate(ends, initial=1))

    @cached_property
    def _rows(self) -> list[str]:
        return [row.decode("utf-8", "replace") for row in _LINE_END.split(self._content)]

    def _line(self, row: int) -> int:
        """Return the line that a row belongs to; a row after the end of the file belongs to its last line."""
        return min(self._lines[min(max(row, 1), len(self._lines)) - 1], self._last)

    def on_added_lines(self, diagnostics: Sequence[_Diagnostic]) -> list[_Diagnostic]:
        """Return the diagnostics that cover an added line."""
        covering: list[_Diagnostic] = []
        for diagnostic in diagnostics:
            first, last = diagnostic.rows
            lines = range(self._line(first), self._line(last) + 1)
            if not self._added.isdisjoint(lines):
                covering.append(diagnostic)
        return covering

    def issues(self, diagnostics: Sequence[_Diagnostic]) -> list[Issue]:
        """Return the issues of diagnostics by the table of rules."""
        issues: list[Issue] = []
        for diagnostic in diagnostics:
            rule = ruff_rules().get(diagnostic.code or "")
            if rule is not None and self._is_defect(rule, diagnostic):
                issues.append(self._issue(rule, diagnostic))
        return issues

    def _is_defect(self, rule: RuffRule, found: _Diagnostic) -> bool:
        """Return whether a diagnostic is a defect by the table of rules."""
        if rule.code == "E902" or (rule.quiet_in_tests and is_test_file(self.name)):
            return False
        if rule.message and not re.search(rule.message, found.message):
            return False
        if rule.code == "F401":
            # Another module may use a name that `from … import` or an import under a condition brings here.
            return self._rows[found.rows[0] - 1].startswith("import ")
        if rule.code == "ISC004":
            first, last = found.rows
            return _would_fit_on_one_line(self._rows[first - 1 : last])
        if rule.code in _HARDCODED_SECRETS:
            # A name such as `TOKEN_ENV` is that of something about a secret.
            name = _NAME_AT_END.search(found.message)
            return name is None or not speaks_about_secrets(name[1])
        return True

    def _issue(self, rule: RuffRule, found: _Diagnostic) -> Issue:
        first, last = found.rows
        return Issue(
            file=self.name,
            line_start=self._line(first),
            line_end=self._line(last),
            rule=rule.code,
            defect=rule.defect,
            severity=rule.seems_safe if "seems safe" in found.message else rule.severity,
            category=rule.category,
            title=found.title,
            rule_title=found.rule_title,
            body=rule.why,
            suggestion=rule.fix,
        )

    @property
    def may_hide_issues(self) -> bool:
        """Return whether the file may contain a comment that hides issues from ruff."""
        text = self._content.lower()
        return b"noqa" in text or b"ruff" in text

    def silenced_issues(self, hidden: Sequence[_Diagnostic]) -> list[Issue]:
        """Return the issues of diagnostics that ruff reports only without comments, each with its comment."""
        if not hidden:
            return []
        comments = _Comments(self._content)
        silenced: list[Issue] = []
        for diagnostic in hidden:
            comment = comments.of(diagnostic)
            silenced += [replace(issue, silenced_by=comment) for issue in self.issues([diagnostic])]
        return silenced

    def failure(self, diagnostics: Sequence[_Diagnostic]) -> Issue | str | None:
        """Return why ruff could not check all of the file, if so: an issue or a reason.

        A syntax error on an added line is an issue, unless the line is written for an older Python. Then, and if the
        error is on another line, the file could not be checked.
        """
        for found in diagnostics:
            is_known = found.code in ruff_rules() and found.code != "E902"
            if not is_known and found.code not in (None, "invalid-syntax"):
                return f"could not be checked: {found.title}"
        errors = [found for found in diagnostics if found.is_syntax_error]
        for error in errors:
            row = error.rows[0]
            if self._is_older_python(row):
                return f"line {self._line(row)} is not valid in Python 3: the other checks could not run"
        for error in errors:
            line = self._line(error.rows[0])
            if line in self._added:
                return self._syntax_issue(line, error)
        if errors:
            return f"syntax error at line {self._line(errors[0].rows[0])}: the other checks could not run"
        return None

    def _is_older_python(self, row: int) -> bool:
        """Return whether a row has a statement or a literal that only an older Python has."""
        if row > len(self._rows):
            return False
        return _OLDER_PYTHON.search(self._rows[row - 1][:_LONGEST_ROW]) is not None

    def _syntax_issue(self, line: int, error: _Diagnostic) -> Issue:
        return Issue(
            file=self.name,
            line_start=line,
            line_end=line,
            rule="invalid-syntax",
            severity=Severity.HIGH,
            category="correctness",
            title=f"The file does not parse: {error.title}",
            rule_title="The file does not parse",
            body="Python cannot parse this file: importing it fails, and the other checks could not run on it.",
            suggestion="Correct the syntax on this line or shortly before it.",
        )


def _would_fit_on_one_line(rows: Sequence[str]) -> bool:
    """Return whether the literals on these rows are short enough for one row, so that only a mistake explains them."""
    length = len(rows[0].rstrip())
    for row in rows[1:]:
        # One of two quotes is no longer needed at each end.
        length += len(row.strip()) - 2
    return length <= _ROW_LENGTH


class _Comments:
    """The comments of a file that may hide issues from ruff."""

    def __init__(self, content: bytes) -> None:
        self._by_row: dict[int, str] = {}
        wide_rows: list[int] = []
        for row, text in enumerate(_LINE_END.split(content), start=1):
            comment = _SILENCING_COMMENT.search(text.decode("utf-8", "replace"))
            if comment is not None:
                self._by_row[row] = comment[0]
                if comment["wide"]:
                    wide_rows.append(row)
        self._rows = wide_rows or list(self._by_row)

    def of(self, hidden: _Diagnostic) -> str:
        """Return the text of the comment that hides a diagnostic.

        That is the comment on its row, or else the nearest wide comment above it. In a file without wide comments it is
        the nearest one above, which is at the beginning of the statement.
        """
        row = hidden.noqa_row or hidden.rows[1]
        if row in self._by_row:
            return self._by_row[row]
        if not self._rows:
            return "# noqa"
        # A comment for the whole file may also be below.
        index = max(0, bisect_right(self._rows, row) - 1)
        return self._by_row[self._rows[index]]


class _Answer(Struct, frozen=True):
    """The diagnostics of ruff by linked file, and the files that it could not check, with the reasons."""

    found: dict[str, list[_Diagnostic]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


class RuffAnalyser(Analyser):
    """Correctness, bug and security rules of ruff. No notebooks: ruff counts their lines by cell."""

    name = "ruff"

    def accepts(self, path: str, start: bytes = b"") -> bool:
        """Return whether the file is written in Python."""
        return language_of(path, start) == "Python"

    async def version(self) -> str:
        """Return the version of ruff. Raises AnalyserFailed or a ProcessError."""
        return await programs.version_of("ruff", self._find(), "--version", hint=_HINT)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Run ruff; files that it cannot check are in `failed`. Raises AnalyserFailed or a ProcessError."""
        if not target.files:
            return AnalyserReport()
        deadline = time.monotonic() + target.timeout_seconds
        failed: dict[str, str] = {}
        issues: list[Issue] = []
        async with temporary_folder() as temporary:
            directory = temporary.resolve()  # as ruff calls it
            files = _link_files(target, directory, failed)
            answer = await self._check(directory, list(files), deadline, "--ignore-noqa")
            found = {name: files[name].on_added_lines(answer.found[name]) for name in answer.found}
            shown = _Answer()
            if target.trusted:
                # Only in these files can a comment hide an issue of the change.
                commented = [name for name in found if found[name] and files[name].may_hide_issues]
                shown = await self._check(directory, commented, deadline)
                for name in commented:
                    hidden = _without(found[name], shown.found.get(name, []))
                    found[name] = _without(found[name], hidden)
                    issues += files[name].silenced_issues(hidden)
        for name, reason in (answer.broken | shown.broken).items():
            failed[files[name].name] = reason
        for name, diagnostics in found.items():
            file = files[name]
            issues += file.issues(diagnostics)
            failure = file.failure(answer.found[name])
            if isinstance(failure, Issue):
                issues.append(failure)
            elif failure is not None:
                failed[file.name] = failure
        return AnalyserReport(tuple(issues), failed)

    async def _check(self, directory: Path, files: Sequence[str], deadline: float, *options: str) -> _Answer:
        """Run ruff on linked files."""
        found: dict[str, list[_Diagnostic]] = defaultdict(list)
        program = self._find()
        arguments = (*_ARGUMENTS, *options, f"--select={','.join(ruff_rules())}", "@arguments")

        async def attempt(names: Sequence[str], left: float) -> str | None:
            """Check some files and store what ruff reports. If a file is in the way, store nothing and return why."""
            (directory / "arguments").write_text("".join(f"{name}\n" for name in names), encoding="ascii")
            seconds = left if len(files) == 1 else left / 2
            completed = await programs.execute(program, *arguments, cwd=directory, seconds=seconds)
            if completed.exit_code < 0:
                return f"ruff died of signal {-completed.exit_code}"
            try:
                diagnostics = decode(completed.stdout, type=list[_Diagnostic])
            except (MsgspecError, RecursionError) as error:
                what = f"gave no answer that can be read (exit code {completed.exit_code})"
                raise programs.failure("ruff", what, completed.stderr, hint=_HINT) from error
            given = {str(directory / name): name for name in names}
            for diagnostic in diagnostics:
                found[given[diagnostic.filename]].append(diagnostic)
            return None

        broken = await programs.in_halves("ruff", files, deadline, attempt)
        return _Answer(found, broken)

    def _find(self) -> str:
        return self._program or programs.find("ruff", "ruff")


def _without(diagnostics: Sequence[_Diagnostic], others: Sequence[_Diagnostic]) -> list[_Diagnostic]:
    """Return the diagnostics that are not among others."""
    identities = {diagnostic.identity for diagnostic in others}
    return [diagnostic for diagnostic in diagnostics if diagnostic.identity not in identities]


def _link_files(target: AnalysisTarget, directory: Path, failed: dict[str, str]) -> dict[str, _File]:
    """Link each file by a number and return the files by the names of the links.

    Only `__init__.py` keeps its name, because some rules of ruff depend on it.
    """
    linked: dict[str, _File] = {}
    for index, file in enumerate(target.files):
        path = target.root.absolute() / file
        base = file.rsplit("/", 1)[-1].lower()
        if base.startswith("__init__."):
            name = f"{index}/{base}"
        elif base.endswith(".pyi"):
            name = f"{index}.pyi"
        else:
            name = f"{index}.py"
        try:
            content = read_regular_file(path)
        except OSError as error:
            failed[file] = f"cannot be read: {error.strerror}"
            continue
        linked[name] = _File(file, content, target.added_lines.get(file, frozenset()))
        (directory / name).parent.mkdir(exist_ok=True)
        programs.link_or_copy(path, directory / name, content)
    return linked
