"""The second look at code that ruff reports: which diagnostics are defects."""

from pathlib import Path

import pytest

from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.ruff_checks import CHECKS, Place
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
        ("texts = [\n    'first\\n'\n    'second\\n',\n    'c',\n]\n", []),
    ],
)
def test_a_comma_is_missing_if_the_string_would_fit_on_one_line(tmp_path: Path, code: str, lines: list[int]) -> None:
    assert reported(tmp_path, code, "ISC004") == lines


@each(
    ("code", "lines"),
    [
        ("def f(x=[]):\n    return x\n", [1]),
        ("def f(x=[]): return x\n", [1]),
        ("def f(a, x=[]):\n    x.append(a)\n", [1]),
        ("def f(a, x={}):\n    x[a] = 1\n", [1]),
        ("def f(a, x={}):\n    x |= a\n", [1]),
        ("class A:\n    def f(self, x={}):\n        self.x = x\n", [2]),
        ("def f(\n    a,\n    x: list[int] = [],\n):\n    x.extend(a)\n", [3]),
        ("def f(a: list[int], x: dict[str, int] = {}):\n    x.pop(a)\n", [1]),
        ("def f(a: list[int], x: dict[str, int] = {}):\n    a.pop(x)\n", []),
        ("def f(x=[]):\n    return len(x)\n", []),
        ("def f(x={}):\n    return dict(x, a=1)\n", []),
        ("def f(x={}):\n    x = dict(x)\n    return [x]\n", []),
        ("def f(\n    x: list[int] = [],\n):\n    print(x)\n\n\ndef g(x):\n    x.append(1)\n", []),
        ("def f(x={}):\n" + "    print(x)\n" * 400, [1]),
    ],
)
def test_a_shared_default_counts_if_the_function_changes_or_keeps_it(
    tmp_path: Path, code: str, lines: list[int]
) -> None:
    assert reported(tmp_path, code, "B006") == lines


@each(
    ("handler", "lines"),
    [
        ("except Exception:\n    pass\n", [3]),
        ("except Exception:  # noqa: E501\n    pass\n", [3]),
        ("except Exception:  # pragma: no cover\n    pass\n", [3]),
        ("except Exception:\n    # The connection is gone anyway.\n    pass\n", []),
        ("except Exception:\n    pass  # the connection is gone anyway\n", []),
    ],
)
def test_a_discarded_error_counts_if_no_comment_explains_it(tmp_path: Path, handler: str, lines: list[int]) -> None:
    assert reported(tmp_path, "try:\n    print()\n" + handler, "S110") == lines


def test_a_default_of_another_type_counts_unless_the_value_is_converted(tmp_path: Path) -> None:
    code = (
        'import os\nx = float(os.getenv("A", 10))\ny = os.getenv("A", 10)\nz = int(\n    os.environ.get("A", 10)\n)\n'
    )
    assert reported(tmp_path, code, "PLW1508") == [3]


def test_a_name_that_only_python_2_defines_is_not_undefined(tmp_path: Path) -> None:
    code = "print(unicode, long, xrange, file)\nprint(reduce)\nprint(unicodes)\n"
    assert reported(tmp_path, code, "F821") == [2, 3]


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


# ruff takes every text with SQL words and a variable part for an injection.
HARMLESS = [
    '    raise ValueError(f"could not select {column} from {table}")',
    '    print(f"Update {name} set of values from {source}")',
    '    logger.warning(f"delete from {name} where it is old")',
]
DANGEROUS = [
    """    c.execute(f"SELECT * FROM t WHERE a = '{name}'")""",
    """    c.execute(f"SELECT * FROM {TABLE} WHERE a = '{name}'")""",
    """    c.execute(f"SELECT * FROM {TABLE}")""",
    """    c.execute("SELECT * FROM t WHERE a = " + name)""",
    """    c.execute("SELECT * FROM t WHERE a = '%s'" % name)""",
    """    c.execute(f"SELECT * FROM t WHERE id IN ({','.join(ids)})")""",
    """    assert c.execute(f"SELECT * FROM t WHERE a = '{name}'")""",
    """    sql = f"SELECT * FROM {table}" """,
]


def place(rows: list[str]) -> Place:
    return Place(rows, 1, len(rows), 1, "")


def test_a_message_is_no_injection_and_every_other_variable_text_is() -> None:
    check = CHECKS["S608"]
    assert [row for row in (*HARMLESS, *DANGEROUS) if check(place([row]))] == DANGEROUS
    assert check(place(['    c.execute(f"SELECT * FROM {TABLE} "', "    f\"WHERE a = '{name}'\")"]))


@each("part", ["{", "','.join(", "a.", "log", "% ", "A", '"+', "# ", "x[", "x = "])
@each("rule", sorted(CHECKS))
def test_a_check_ends_on_hostile_rows(rule: str, part: str) -> None:
    for rows in ([part * 500_000], [(part * 400)[:400]] * 20, ['f"{A}"'] * 1_000_000, [f"def f(x=[{part}"] * 1000):
        CHECKS[rule](place(rows))
