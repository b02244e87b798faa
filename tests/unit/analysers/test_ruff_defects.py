"""The diagnostics of ruff that are defects, and files that ruff cannot check."""

from pathlib import Path

import pytest

from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.model.finding import Severity
from tests.rows import each
from tests.unit.analysers.written import analyse

pytestmark = pytest.mark.program


def reported(root: Path, code: str, rule: str, name: str = "a.py") -> list[int]:
    """Return the lines on which ruff's rule is an issue."""
    report = analyse(RuffAnalyser(), root, {name: code})
    return [issue.line_start for issue in report.issues if issue.rule == rule]


@each(
    ("code", "lines"),
    [
        ("import os\n", [1]),
        ("import os, sys\nprint(sys)\n", [1]),
        ("from .api import name\n", []),
        ("from package.api import (\n    name,\n)\n", []),
        ("import a as a\n", []),
        ("import sys\nif sys.argv:\n    import os\n", []),
        ("try:\n    import ujson\nexcept ImportError:\n    ujson = None\n", []),
        ("import os\n__all__ = ['os']\n", []),
    ],
)
def test_an_unused_import_counts_only_if_no_other_module_can_mean_it(
    tmp_path: Path, code: str, lines: list[int]
) -> None:
    assert reported(tmp_path, code, "F401") == lines


@each(
    ("code", "lines"),
    [
        ("names = [\n    'a'\n    'b',\n    'c',\n]\n", [2]),
        ("names = ['a' 'b', 'c']\n", [1]),
        (f"names = [\n    '{'a' * 60} '\n    '{'b' * 60}',\n    'c',\n]\n", []),
    ],
)
def test_a_comma_is_missing_if_the_string_would_fit_on_one_line(tmp_path: Path, code: str, lines: list[int]) -> None:
    assert reported(tmp_path, code, "ISC004") == lines


def test_no_comment_of_the_change_explains_a_discarded_error_away(tmp_path: Path) -> None:
    code = "try:\n    print()\nexcept Exception:\n    # The connection is gone anyway.\n    pass\n"
    assert reported(tmp_path, code, "S110") == [3]


def test_a_debugger_counts_if_it_stops_the_program(tmp_path: Path) -> None:
    code = "import pdb\n\nfrom IPython.terminal.embed import InteractiveShellEmbed\n\npdb.set_trace()\nbreakpoint()\n"
    assert reported(tmp_path, code + "InteractiveShellEmbed()\n", "T100") == [5, 6]


OLDER_PYTHON = [
    'print "x"',
    "print x, y",
    'exec "x = 1"',
    'raise ValueError, "x"',
    "x = `y`",
    "x = 1 <> 2",
    "x = 0777",
    "x = 10L",
    'x = ur"y"',
    "from kombu.async import timer",
    "f(async=True)",
]


@each("statement", OLDER_PYTHON)
def test_a_statement_of_an_older_python_makes_a_file_unreadable_and_is_no_issue(tmp_path: Path, statement: str) -> None:
    report = analyse(RuffAnalyser(), tmp_path, {"a.py": f"x = 1\n{statement}\n"})
    assert report.issues == ()
    assert report.failed == {"a.py": "line 2 is not valid in Python 3: the other checks could not run"}


@each(
    "statement",
    [
        "y = = 2",
        "print('x'",
        "def f(:",
        "<<<<<<< HEAD",
        "return (",
        "x = 'unclosed",
        "async deff f(): pass",
        "printx 1",
    ],
)
def test_a_syntax_error_of_python_3_on_an_added_line_is_an_issue(tmp_path: Path, statement: str) -> None:
    report = analyse(RuffAnalyser(), tmp_path, {"a.py": f"x = 1\n{statement}"}, added={"a.py": {2}})
    assert [(issue.rule, issue.severity) for issue in report.issues] == [("invalid-syntax", Severity.HIGH)]
    assert report.failed == {}
