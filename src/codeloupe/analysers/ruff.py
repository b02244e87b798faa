"""ruff, isolated from every configuration, on Python files; `ruff_rules.toml` lists the rules and their texts.

ruff never sees the real names of the files: it gets numbered links in an empty directory. So no name can be taken
for an option, an exclusion or an argument file, none is too long, and none is lost on its way through JSON.
"""

from __future__ import annotations

import re
import time
import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Literal

from msgspec import MsgspecError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from codeloupe.analysers import programs
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue, is_test_file
from codeloupe.analysers.secret_detectors import speaks_about_secrets
from codeloupe.config.files import read_regular_file as read
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
_ARGUMENTS = (
    *("check", "--isolated", "--no-cache", "--no-fix", "--no-preview", "--no-respect-gitignore", "--no-force-exclude"),
    *("--exit-zero", "--output-format=json", "--target-version=py314"),  # the newest that every supported ruff knows
    "--per-file-ignores=__init__.py*:F401,__init__.py*:F403",  # a package's own file imports names to pass them on
)


class RuffRule(Struct, frozen=True, kw_only=True):
    """What one rule means; `seems_safe` is its severity where code seems safe, `quiet_in_tests` what tests may do."""

    code: str
    severity: Severity
    category: str
    why: str
    fix: str | None = None
    seems_safe: Severity
    quiet_in_tests: bool = False


@cache
def ruff_rules() -> Mapping[str, RuffRule]:
    """Every rule that is asked for, by its code. Raises ValueError when the table names one twice."""
    rules: dict[str, RuffRule] = {}
    for entry in tomllib.loads(Path(__file__).with_name("ruff_rules.toml").read_text(encoding="utf-8"))["entry"]:
        severity = Severity.parse(entry.pop("severity"))
        seems_safe = Severity.parse(entry.pop("seems_safe", severity))
        for code in entry.pop("rules"):
            if code in rules:
                raise ValueError(f"ruff_rules.toml holds {code} twice")
            rules[code] = RuffRule(code=code, severity=severity, seems_safe=seems_safe, **entry)
    return rules


# What is raised, printed or logged is read by a person, and by no database.
_MESSAGE = regex(
    r"\s*(?:raise\b|print\(|assert\b|warnings\.warn\(|[\w.]{0,60}log(?:ger|ging)?\.(?:debug|info|warning|error|exception)\()"
)
_RUNS = regex(r"execute|query|cursor", re.IGNORECASE)
_F_STRING = regex(r"\b[rR]?[fF][rR]?[\"']")
_HOLE = regex(r"\{([^{}]*)\}")
_CONSTANT = regex(r"(?:\w{1,60}\.)?[A-Z][A-Z0-9_]*")
# As many marks as there are values: `','.join('?' for _ in ids)`, `', '.join(["%s"] * len(ids))`.
_MARKS = regex(r"""["'], ?["']\.join\([(\[]?["'](?:\?|%s)["']\]?(?: ?\* ?len\([\w.]+\)| for \w+ in [\w.()]+)\)?\)?""")
_PLACEHOLDER = regex(r"%s|%\(\w{1,60}\)s")
_OTHER_JOINING = regex(r"\.format\(|[\"') ] ?[+%] ?[\w\"'(]")


def is_harmless_query(rows: Sequence[str]) -> bool:
    """Whether the rows hold a message, or a query whose every variable part is a constant or a mark for a value."""
    if not 0 < len(rows) <= 20 or max(map(len, rows)) > 400:
        return False
    text = "\n".join(rows)
    if _MESSAGE.match(rows[0]):
        return _RUNS.search(text) is None
    bare = _MARKS.sub("MARKS", text)
    if bare != text and _F_STRING.search(bare) is None:
        bare = bare.replace("% MARKS", "")
    elif not (holes := _HOLE.findall(bare)) or not all(map(_CONSTANT.fullmatch, holes)):
        return False
    return _OTHER_JOINING.search(_PLACEHOLDER.sub("?", bare)) is None


class _Diagnostic(Struct):
    """One message of ruff. Its rows are not always git's lines: a lone carriage return ends a row, and no line."""

    filename: str
    code: str | None
    message: str
    location: dict[Literal["row", "column"], int]
    end_location: dict[Literal["row", "column"], int]
    noqa_row: int | None = None
    name: str | None = None

    @property
    def rows(self) -> tuple[int, int]:
        first, last = self.location["row"], self.end_location["row"]
        return first, last - (self.end_location["column"] == 1 and last > first)

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what two runs of ruff agree on if they report the same diagnostic."""
        return self.code, self.message, *self.location.items(), *self.end_location.items()

    @property
    def title(self) -> str:
        line = " ".join(self.message.split()).removesuffix(".")
        return line if len(line) <= 160 else line[:159] + "…"

    @property
    def rule_title(self) -> str:
        """Return ruff's name of the rule in words: `Suspicious eval usage`; messages name variables and modules."""
        return (self.name or "").replace("-", " ").capitalize()


# In a dataclass, a call that makes something shared or something of the moment; others, as a rule, make a field.
_MADE_ONCE = regex(
    r"`(?:[\w.]*\.)?(?:now|utcnow|today|time|monotonic|uuid[14]|list|dict|set|bytearray|deque|defaultdict|Counter|"
    r"random|randint|getpid)`"
)
_NAME_AT_END = regex(r'"([^"]*)"$')
_LINE_END = regex(rb"\r\n|\r|\n")


class _File:
    """A file that was checked, and what ruff says of it."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content
        self._last = max(1, content.count(b"\n") + (not content.endswith(b"\n")))
        self._lines: Sequence[int] = range(1, self._last + 1)  # by rows
        if content.count(b"\r") != content.count(b"\r\n"):
            ends = (end[0] != b"\r" for end in _LINE_END.finditer(content))
            self._lines = tuple(accumulate(ends, initial=1))

    def _line(self, row: int) -> int:
        """The line that a row belongs to; a row after the end of the file belongs to its last line."""
        return min(self._lines[min(max(row, 1), len(self._lines)) - 1], self._last)

    def issue(self, found: _Diagnostic) -> Issue | None:
        """The issue by the table of rules, if it is one."""
        rule = ruff_rules().get(found.code or "")
        if rule is None or rule.code == "E902" or (rule.quiet_in_tests and is_test_file(self.name)):
            return None
        # What ruff takes for a password by its name may be the name, place or kind of one, as in `TOKEN_ENV`.
        named = _NAME_AT_END.search(found.message) if rule.code in ("S105", "S106", "S107") else None
        # A module that offers debugging imports a debugger; what stops the program is the call.
        if (
            (rule.code == "RUF009" and not _MADE_ONCE.search(found.message))
            or (named is not None and speaks_about_secrets(named[1]))
            or found.message.startswith("Import for ")
        ):
            return None
        first, last = found.rows
        seems_safe = "seems safe" in found.message
        if rule.code == "S608":
            rows = _LINE_END.split(self._content)[first - 1 : last]
            seems_safe = is_harmless_query([row.decode("utf-8", "replace") for row in rows])
        return Issue(
            file=self.name,
            line_start=self._line(first),
            line_end=self._line(last),
            rule=rule.code,
            severity=rule.seems_safe if seems_safe else rule.severity,
            category=rule.category,
            title=found.title,
            rule_title=found.rule_title,
            body=rule.why,
            suggestion=rule.fix,
        )

    @property
    def may_hide_issues(self) -> bool:
        """Return whether the file may hold a comment that hides issues from ruff."""
        text = self._content.lower()
        return b"noqa" in text or b"ruff" in text

    def silenced_issues(self, hidden: Sequence[_Diagnostic]) -> list[Issue]:
        """Return the issues of diagnostics that ruff reports only without comments, each with its comment."""
        if not hidden:
            return []
        comments = _Comments(self._content)
        issues: list[Issue] = []
        for diagnostic in hidden:
            issue = self.issue(diagnostic)
            if issue is not None:
                issues.append(replace(issue, silenced_by=comments.of(diagnostic)))
        return issues

    def broken(self, diagnostics: Sequence[_Diagnostic], added: frozenset[int]) -> Issue | str | None:
        """Why a file could not be checked whole, if so: an issue for a syntax error on an added line, else a reason."""
        errors = [found for found in diagnostics if found.code not in ruff_rules() or found.code == "E902"]
        for error in errors:
            if error.code not in (None, "invalid-syntax"):
                return f"could not be checked: {error.title}"
        # Syntax that is newer than the target version is no mistake: which Python runs the code is not known here.
        syntax = [(self._line(found.rows[0]), found) for found in errors if "(syntax was " not in found.message]
        for line, error in syntax:
            if line in added:
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
        return f"syntax error at line {syntax[0][0]}: the other checks could not run" if syntax else None


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


class RuffAnalyser(Analyser):
    """Correctness, bug and security rules of ruff. No notebooks: ruff counts their lines by cell."""

    name = "ruff"

    def accepts(self, path: str) -> bool:
        """Whether the name is that of a Python file."""
        return path.lower().endswith((".py", ".pyi", ".pyw"))

    async def version(self) -> str:
        """The version of ruff. Raises AnalyserFailed or a ProcessError."""
        program = self._program or programs.find("ruff", "ruff")
        return await programs.version_of("ruff", program, "--version", hint=_HINT)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Run ruff on all files; what it cannot check is in `failed`. Raises AnalyserFailed or a ProcessError."""
        if not target.files:
            return AnalyserReport()
        failed: dict[str, str] = {}
        hidden: dict[str, list[_Diagnostic]] = {}
        deadline = time.monotonic() + target.timeout_seconds
        async with temporary_folder() as temporary:
            directory = temporary.resolve()  # as ruff calls it
            linked = _link_files(target, directory, failed)
            if target.trusted:
                found, broken = await self._check(directory, tuple(linked), deadline)
                # Only these files may hold a comment that hides an issue.
                commented = [name for name, file in linked.items() if file.may_hide_issues and name not in broken]
                uncommented, broken_without = await self._check(directory, commented, deadline, "--ignore-noqa")
                broken |= broken_without
                for name, diagnostics in uncommented.items():
                    shown = {diagnostic.identity for diagnostic in found.get(name, ())}
                    hidden[name] = [diagnostic for diagnostic in diagnostics if diagnostic.identity not in shown]
            else:
                found, broken = await self._check(directory, tuple(linked), deadline, "--ignore-noqa")
        for name, reason in broken.items():
            failed[linked[name].name] = reason
        issues: list[Issue] = []
        for name, diagnostics in found.items():
            file = linked[name]
            issues += filter(None, map(file.issue, diagnostics))
            what = file.broken(diagnostics, target.added_lines.get(file.name, frozenset()))
            issues += [what] if isinstance(what, Issue) else []
            failed |= {file.name: what} if isinstance(what, str) else {}
        for name, diagnostics in hidden.items():
            issues += linked[name].silenced_issues(diagnostics)
        return AnalyserReport(tuple(issues), failed)

    async def _check(
        self, directory: Path, files: Sequence[str], deadline: float, *options: str
    ) -> tuple[dict[str, list[_Diagnostic]], dict[str, str]]:
        """Run ruff on linked files. Return the diagnostics by file, and the files that ruff could not check."""
        found: dict[str, list[_Diagnostic]] = defaultdict(list)
        program = self._program or programs.find("ruff", "ruff")
        arguments = (*_ARGUMENTS, *options, f"--select={','.join(ruff_rules())}", "@arguments")

        async def attempt(names: Sequence[str], left: float) -> str | None:
            """Check some files and store what ruff reports. If a file is in the way, store nothing and say why."""
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
        return found, broken


def _link_files(target: AnalysisTarget, directory: Path, failed: dict[str, str]) -> dict[str, _File]:
    """A link with a number for each file, by its name. Only `__init__.py` keeps its own, for ruff goes by it."""
    linked: dict[str, _File] = {}
    for index, file in enumerate(target.files):
        path = target.root.absolute() / file
        base = file.rsplit("/", 1)[-1].lower()
        name = f"{index}/{base}" if base.startswith("__init__.") else f"{index}{Path(base).suffix}"
        try:
            linked[name] = _File(file, read(path))
        except OSError as error:
            failed[file] = f"cannot be read: {error.strerror}"
            continue
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).symlink_to(path)
    return linked
