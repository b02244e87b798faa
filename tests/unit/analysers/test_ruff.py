import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codeloupe.analysers import programs
from codeloupe.analysers.interface import AnalyserReport, Issue
from codeloupe.analysers.ruff import RuffAnalyser, ruff_rules
from codeloupe.errors import ProcessTimedOut
from codeloupe.model.finding import Severity
from tests.endings import with_enough_time
from tests.rows import each
from tests.unit.analysers.written import Files, analyse

pytestmark = pytest.mark.program

CATEGORIES = {"security", "correctness", "reliability", "concurrency", "resource", "performance", "hygiene"}


def check(root: Path, files: Files, /, **more: Any) -> AnalyserReport:
    return analyse(RuffAnalyser(), root, files, **more)


def issues(root: Path, code: str, *, name: str = "a.py") -> tuple[Issue, ...]:
    report = check(root, {name: code})
    assert report.failed == {}
    return report.issues


def test_every_rule_of_the_table_is_a_stable_rule_of_the_installed_ruff() -> None:
    arguments = ("rule", "--all", "--output-format", "json")
    completed = asyncio.run(programs.execute(programs.find("ruff", "ruff"), *arguments, seconds=30.0))
    known = {row["code"]: row for row in json.loads(completed.stdout)}
    assert set(ruff_rules()) - set(known) == set()
    assert [code for code in ruff_rules() if known[code]["preview"]] == []


@pytest.mark.defect("N4")
def test_every_rule_has_a_category_a_reason_and_advice() -> None:
    for rule in ruff_rules().values():
        assert rule.category in CATEGORIES, rule.code
        assert rule.why.endswith("."), rule.code
        assert len(rule.why) > 15, rule.code
        if rule.code != "E902":  # never a finding
            assert rule.fix is not None, rule.code
            assert rule.fix[0].isupper(), rule.code
            assert rule.fix.endswith("."), rule.code
    assert len(ruff_rules()) > 200


def test_a_defect_is_reported_with_its_severity_and_category(tmp_path: Path) -> None:
    defects = [
        ("print(unknown)\n", "F821", Severity.HIGH, "correctness"),
        ("import os\n", "F401", Severity.LOW, "hygiene"),
        ("def f(x=[]):\n    return x\n", "B006", Severity.MEDIUM, "correctness"),
        ("def f(c, x):\n    c.execute(f'SELECT * FROM t WHERE a = {x}')\n", "S608", Severity.HIGH, "security"),
        ("try:\n    f = 1\nexcept Exception:\n    pass\n", "S110", Severity.MEDIUM, "reliability"),
        ("try:\n    f = 1\nexcept:\n    f = 2\n", "E722", Severity.MEDIUM, "reliability"),
        ("import pickle\n\nprint(pickle.loads(b''))\n", "S301", Severity.MEDIUM, "security"),
        ("import yaml\n\nprint(yaml.load(''))\n", "S506", Severity.HIGH, "security"),
        ("import requests\n\nrequests.get('https://x', timeout=1, verify=False)\n", "S501", Severity.HIGH, "security"),
        ("import asyncio\n\n\nasync def f(c):\n    asyncio.create_task(c)\n", "RUF006", Severity.MEDIUM, "concurrency"),
        ("import time\n\n\nasync def f():\n    time.sleep(1)\n", "ASYNC251", Severity.MEDIUM, "concurrency"),
        ("assert (1, 'no')\n", "F631", Severity.HIGH, "correctness"),
        ("print('%d %d' % (1,))\n", "F507", Severity.HIGH, "correctness"),
        ("def f():\n    ValueError('x')\n", "PLW0133", Severity.HIGH, "correctness"),
        ("x = 'a\u202eb'\n", "PLE2502", Severity.HIGH, "security"),
        ("names = [\n    'a'\n    'b',\n    'c',\n]\n", "ISC004", Severity.MEDIUM, "correctness"),
        ("breakpoint()\n", "T100", Severity.MEDIUM, "reliability"),
    ]
    report = check(tmp_path, {f"{rule}.py": code for code, rule, _, _ in defects})
    found = {issue.rule: issue for issue in report.issues if issue.file == f"{issue.rule}.py"}
    assert {rule: (issue.severity, issue.category, issue.body) for rule, issue in found.items()} == {
        rule: (severity, category, ruff_rules()[rule].why) for _, rule, severity, category in defects
    }
    assert {rule: issue.suggestion for rule, issue in found.items()} == {
        rule: ruff_rules()[rule].fix for _, rule, _, _ in defects
    }


def test_a_call_in_a_dataclass_is_reported_where_what_it_makes_is_shared(tmp_path: Path) -> None:
    head = "from dataclasses import dataclass\n\nfrom fields import given\n\n\n@dataclass\nclass A:\n"
    code = head + "    a: list = given()\n    b: dict = dict()\n    c: list = list()\n"
    assert [issue.line_start for issue in check(tmp_path, {"a.py": code}).issues if issue.rule == "RUF009"] == [9, 10]


def test_what_seems_safe_weighs_less_and_a_statement_is_covered_whole(tmp_path: Path) -> None:
    code = "from subprocess import run\nrun('ls', shell=True, check=True)\nrun(input(), shell=True, check=True)\n"
    code += "def f(c, table):\n    c.execute(f'SELECT *'\n  f' FROM {table}')\n"
    found = [issue for issue in issues(tmp_path, code) if issue.rule in ("S602", "S608")]
    assert [(issue.line_start, issue.line_end, issue.severity) for issue in found] == [
        (2, 2, Severity.LOW),
        (3, 3, Severity.HIGH),
        (5, 6, Severity.HIGH),
    ]


def test_a_variable_named_after_what_a_secret_has_is_no_secret(tmp_path: Path) -> None:
    names = ("API_TOKEN_ENV", "PASSWORD_FIELD", "SECRET_NAME", "tokenUrl", "PASSWORD", "api_token", "client_secret")
    code = "".join(f"{name} = 'some value'\n" for name in names) + "def f(token_name='x', token='y'):\n    pass\n"
    found = [(issue.rule, issue.line_start) for issue in issues(tmp_path, code)]
    assert found == [("S105", 5), ("S105", 6), ("S105", 7), ("S107", 8)]


@each(
    ("name", "code", "expected"),
    [
        ("src/a.py", "password = 'hunter2'\nprint(unknown)\n", [("S105", 1), ("F821", 2)]),
        ("tests/test_a.py", "password = 'hunter2'\nprint(unknown)\n", [("F821", 2)]),
        # An init file may import a name to pass it on.
        ("package/__init__.py", "from os import path\nprint(unknown)\n", [("F821", 2)]),
        ("package/module.py", "import os\nprint(unknown)\n", [("F401", 1), ("F821", 2)]),
        # A lone carriage return does not shift the lines.
        ("a.py", "x = 1\ry = 2\rz = 3\nprint(unknown)\r\nprint(unknown)\n", [("F821", 2), ("F821", 3)]),
    ],
)
def test_what_is_reported_depends_on_the_kind_of_file_and_has_its_line(
    tmp_path: Path, name: str, code: str, expected: list[tuple[str, int]]
) -> None:
    assert [(issue.rule, issue.line_start) for issue in issues(tmp_path, code, name=name)] == expected


def test_a_syntax_error_on_an_added_line_is_an_issue_and_a_file_with_one_elsewhere_is_not_clean(tmp_path: Path) -> None:
    report = check(tmp_path, {"a.py": "x = 1\ny = = 2\nz = = 3\n"}, added={"a.py": {3}})
    (issue,) = report.issues
    assert (issue.rule, issue.line_start, issue.severity) == ("invalid-syntax", 3, Severity.HIGH)
    assert "does not parse" in issue.title
    assert report.failed == {}
    report = check(tmp_path, {"a.py": "x = 1\ny = = 2\n", "b.py": "print(unknown)\n"}, added={"a.py": {1}})
    assert report.failed == {"a.py": "syntax error at line 2: the other checks could not run"}
    assert [issue.file for issue in report.issues] == ["b.py"]


def test_the_newest_syntax_is_no_error(tmp_path: Path) -> None:
    codes = (
        "match 1:\n    case 1 | 2:\n        pass\n",
        "type Pair[T] = tuple[T, T]\n\n\ndef first[T](pair: Pair[T]) -> T:\n    return pair[0]\n",
        "try:\n    print()\nexcept* ValueError:\n    print(1)\n",
        "name = 'x'\nprint(t'hello {name}')\n",
        "lazy import os\n\nprint(os)\n",
        "try:\n    print()\nexcept KeyError, ValueError:\n    print(1)\n",
    )
    assert check(tmp_path, {f"{number}.py": code for number, code in enumerate(codes)}) == AnalyserReport()


def test_a_file_that_is_not_utf8_is_not_clean(tmp_path: Path) -> None:
    report = check(tmp_path, {"a.py": b"# -*- coding: latin-1 -*-\nx = '\xe9'\nprint(unknown)\n"})
    assert report.issues == ()
    assert "UTF-8" in report.failed["a.py"]


def test_a_file_that_kills_ruff_does_not_hide_the_others(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{number}.py": "print(unknown)\n" for number in range(5)}
    files["2.py"] = f"x = {'-' * 100_000}1\n"
    report = check(tmp_path, files)
    assert sorted(issue.file for issue in report.issues) == ["0.py", "1.py", "3.py", "4.py"]
    assert report.failed == {"2.py": "ruff died of signal 6"}


def test_a_file_that_holds_ruff_up_does_not_hide_the_others(tmp_path: Path) -> None:
    program = tmp_path / "ruff"
    program.write_text("#!/bin/sh\nif grep -q '^0[.]' arguments; then sleep 60; fi\necho '[]'\n", encoding="ascii")
    program.chmod(0o755)

    def failed_within(seconds: float) -> Mapping[str, str]:
        files = {"0.py": "", "1.py": ""}
        try:
            return analyse(RuffAnalyser(str(program)), tmp_path, files, timeout_seconds=seconds).failed
        except ProcessTimedOut:  # nothing was left for the second file
            return {}

    failed = with_enough_time(failed_within, ready=lambda failed: len(failed) == 1, seconds=(1.0, 6.0, 30.0))
    assert list(failed) == ["0.py"]
    assert "did not finish" in failed["0.py"]


SILENCED = [
    ("eval(input())  # noqa: S307 - on purpose\n", "# noqa: S307"),
    ("eval(input())  #NoQA:S307,E501\n", "#NoQA:S307,E501"),
    ("# ruff: noqa: S307\nx = 1  # noqa: E741\neval(input())\n", "# ruff: noqa: S307"),
    ("eval(input())\n# ruff: noqa\n", "# ruff: noqa"),
    ("# flake8: noqa\neval(input())\n", "# flake8: noqa"),
    ("x = f'''\n{eval(input())}\n'''  # noqa: S307\n", "# noqa: S307"),
    ("x = [  # noqa: S307\n    eval(input()),  # noqa: S307\n]\n", "# noqa: S307"),
]


@each(("code", "comment"), SILENCED)
def test_an_issue_that_a_comment_hides_is_reported_with_the_comment(code: str, comment: str, tmp_path: Path) -> None:
    report = check(tmp_path, {"a.py": code}, trusted=True)
    assert report.failed == {}
    assert [issue.silenced_by for issue in report.issues] == [comment]


def test_a_comment_silences_only_what_it_names(tmp_path: Path) -> None:
    report = check(tmp_path, {"a.py": "eval(unknown)  # noqa: S307\neval(input())  # noqa: F401\n"}, trusted=True)
    silenced = {(issue.rule, issue.line_start): issue.silenced_by for issue in report.issues}
    assert silenced == {("S307", 1): "# noqa: S307", ("F821", 1): "", ("S307", 2): ""}


def test_ruff_runs_again_only_on_files_whose_issues_a_comment_may_hide(tmp_path: Path) -> None:
    program = tmp_path / "ruff"
    log = f"(echo \"$@\" | grep -o -e --ignore-noqa; cat arguments) >> '{tmp_path}/log'"
    program.write_text(f"#!/bin/sh\n{log}\nexec '{programs.find('ruff', 'ruff')}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    files = {"0.py": "eval(input())\n", "1.py": "x = 1  # noqa\n", "2.py": "eval(input())  # noqa\n"}
    report = analyse(RuffAnalyser(str(program)), tmp_path, files, trusted=True)
    assert [(issue.file, issue.silenced_by) for issue in report.issues] == [("2.py", "# noqa"), ("0.py", "")]
    assert (tmp_path / "log").read_text().split() == ["--ignore-noqa", "0.py", "1.py", "2.py", "2.py"]
