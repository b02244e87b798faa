"""From what ruff writes to issues: rows to lines, codes to our rules, broken files to reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import Issue
from codeloupe.analysers.paths import is_test_file
from codeloupe.analysers.query_text import is_harmless_query
from codeloupe.analysers.ruff_rules import RuffRule, ruff_rules
from codeloupe.analysers.secret_values import speaks_about_secrets
from codeloupe.model.finding import Severity

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
