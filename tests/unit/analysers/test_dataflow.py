import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codeloupe.analysers.dataflow import analyser, worker
from codeloupe.analysers.dataflow.analyser import DataflowAnalyser
from codeloupe.analysers.dataflow.harms import MEANINGS, Harm
from codeloupe.analysers.dataflow.syntax import parse
from codeloupe.analysers.dataflow.worker import examine
from codeloupe.analysers.interface import AnalyserReport
from codeloupe.errors import AnalyserFailed
from codeloupe.model.finding import Severity
from tests.program import PYTHON_HEADER
from tests.unit.analysers.written import Files, analyse, examine_everything

EXAMPLES = tomllib.loads(Path(__file__).with_name("dataflow_examples.toml").read_text(encoding="utf-8"))
FLASK = "from flask import Flask, request\napp = Flask(__name__)\n@app.route('/x')\ndef view():\n"
IMPORTS = (
    "import re, os, shlex, subprocess, pathlib, shutil, requests, pickle, json, yaml, importlib, html, lxml.etree\n"
    "import defusedxml.ElementTree\nfrom sqlalchemy import text\nfrom markupsafe import Markup\n"
    "from flask import abort, make_response, redirect, render_template_string, session\n"
    "from app import db, executor, tree, directory, pattern, is_valid\nALLOWED = {'a'}\n"
)


def all_lines(code: str) -> frozenset[int]:
    return frozenset(range(1, code.count("\n") + 2))


def harms(code: str) -> set[str]:
    answer = examine(code.encode(), all_lines(code))
    assert not answer["failed"], code
    return {issue["harm"].removeprefix("py-") for issue in answer["issues"]}


def quiet_lines(code: str, rule: str) -> set[int]:
    answer = examine(code.encode(), all_lines(code))
    return {line for line, rules in answer["quiet"].items() if rule in rules}


def in_view(*lines: str) -> str:
    return IMPORTS + FLASK + "".join(f"    {line}\n" for line in ("x = request.args['x']", *lines))


def modules(text: str) -> list[str]:
    return [f"{module}\n" for module in text.rstrip("\n").split("\n---\n")]


def follow(root: Path, files: Files, /, **more: Any) -> AnalyserReport:
    return analyse(DataflowAnalyser(), root, files, **more)


def test_outside_text_is_followed_to_where_it_does_harm_and_what_makes_it_harmless_is_known() -> None:
    cases: list[tuple[str, str]] = []
    for kind, last in (("travels", "eval(y)"), ("guards", "eval(x)"), ("sinks", "")):
        for expected, text in EXAMPLES[kind].items():
            cases += [(expected, in_view(line, *([last, "return {}"] if last else []))) for line in text.splitlines()]
    for kind in ("sources", "helpers", "names"):
        for expected, text in EXAMPLES[kind].items():
            cases += [(expected, module.replace("{view}", FLASK)) for module in modules(text)]
    meant = {"found": {"code-injection"}, "harmless": set()}
    wrong = {code: found for expected, code in cases if (found := harms(code)) != meant.get(expected, {expected})}
    assert wrong == {}
    assert len(cases) > 120


def test_ruff_stays_in_force_unless_nothing_from_outside_can_be_in_a_query() -> None:
    found: dict[str, list[str]] = {"quiet": [], "doubtful": []}
    for text in EXAMPLES["queries"].values():
        for code in modules(text):
            kind = "quiet" if code.count("\n") in quiet_lines(code, Harm.SQL.value) else "doubtful"
            found[kind].append(code)
    assert found == {kind: modules(text) for kind, text in EXAMPLES["queries"].items()}


def test_every_harm_has_a_meaning_and_injections_block() -> None:
    assert set(MEANINGS) == set(Harm)
    blocking = {harm for harm, meaning in MEANINGS.items() if meaning.severity == "high"}
    assert {Harm.SQL, Harm.SHELL, Harm.CODE, Harm.PATH, Harm.TEMPLATE, Harm.OBJECT, Harm.HTML} <= blocking


VIEW = f"{FLASK}    x = request.args['x']\n    y = 'SELECT * FROM t WHERE a = ' + x\n    z = 1\n    db.execute(y)\n"


@pytest.mark.program
def test_a_flow_counts_when_the_change_touches_any_line_of_it_and_names_its_ends(tmp_path: Path) -> None:
    places = {}
    for line in range(1, 9):
        report = follow(tmp_path, {"a.py": VIEW}, added={"a.py": [line]})
        places[line] = [(issue.line_start, issue.line_end) for issue in report.issues]
    assert places == {1: [], 2: [], 3: [], 4: [], 5: [(5, 5)], 6: [(6, 6)], 7: [], 8: [(8, 8)]}
    (issue,) = follow(tmp_path, {"a.py": VIEW}).issues
    assert (issue.rule, issue.severity, issue.line_start) == ("py-sql-injection", Severity.HIGH, 8)
    assert issue.body.startswith("`request.args` (line 5) flows into `execute` (line 8) via line 6.")


def test_tests_are_not_read_and_no_child_is_started_where_there_is_nothing_to_find(tmp_path: Path) -> None:
    paths = ("a.py", "tests/a.py", "test_a.py", "a.js", "a.pyw")
    assert [path for path in paths if DataflowAnalyser().accepts(path)] == ["a.py", "a.pyw"]
    assert analyse(DataflowAnalyser(program="/nonexistent"), tmp_path, {"a.py": "x = 1\n"}) == AnalyserReport()


NEWER = {
    "x = f'{a['b']}' 'c' f\"{d!r:>{w}}\"\n": 1,
    "def f[T: int](a: list[T]) -> T:\n    return a\n": 2,
    "type A[T] = list[T]\nb = 1\n": 2,
    "x = f'{\n    a['b']\n}'\ny = 1\n": 4,
    "x = f'{a['b']}\\N{DASH}{{c}}'\n": 1,
}


def test_code_for_newer_python_is_read_line_by_line_as_it_is() -> None:
    trees = {code: parse(code) for code in NEWER}
    assert {code: tree and tree.body[-1].end_lineno for code, tree in trees.items()} == NEWER
    assert parse("def (") is None
    assert harms(in_view("eval(f'{x['a']} {', '.join(['b'])}')", "return {}")) == {"code-injection"}


HOSTILE = {
    "long sum": "x = " + "a+" * 100_000 + "a\n",
    "deep brackets": "x = " + "(" * 5000,
    "deep signs": "x = " + "-" * 50_000 + "1\n",
    "long chain": "x = a" + ".b()" * 900 + "\n",
    "ever more branches": "def f(a):\n"
    + "".join(f"    v{i} = a\n" for i in range(1500))
    + "".join(f"    if v{i}:\n        v{i} = 1\n" for i in range(1500)),
    "calls of calls": "".join(f"def f{i}(a):\n    return f{i + 1}(f{i + 1}(a))\n" for i in range(300)),
    "nested loops": "def f(a):\n"
    + "".join("    " * (i + 1) + f"for x{i} in a:\n" for i in range(18))
    + " " * 76
    + "g(a)\n",
    "huge numbers": "x = 9 ** 9 ** 9\ny = 'a' * 10 ** 12\nz = 1 << 10 ** 9\n",
    "nested strings": "x = " + "f'{" * 60 + "1" + "}'" * 60 + "\n",
    "not text": "\x00\ufffe",
    "escaped quotes": "\\'" * 200_000,
    "open string": 'x = """' + "\\a" * 200_000,
    "attributes in one line": "class A:\n  def f(self):\n    " + "self.a;" * 60_000,
    "functions that use all others": "".join(
        f"def f{i}(): {' '.join(f'f{j}' for j in range(200))}\n" for i in range(200)
    ),
    "many classes": "".join(f"class A{i}(View):\n  def f(self): eval(a)\n" for i in range(3000)),
}


def test_hostile_code_is_read_or_refused_within_the_time_limit_of_a_test() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        for name, code in HOSTILE.items():
            for read in (examine, examine_everything):
                answer = read(code.encode("utf-8", "replace"), frozenset({1}))
                assert answer["issues"] == [], name
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.program
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    deep = "request = eval(" + "-" * 50_000 + "1)\n"
    report = follow(tmp_path, {"a.py": deep, "b.py": VIEW})
    assert report.failed == {"a.py": "its code is nested too deeply for the data flow analysis"}
    assert [issue.file for issue in report.issues] == ["b.py"]


MORTAL = """\
import json, os, signal, sys
for header in sys.stdin.buffer:
    request = json.loads(header)
    content = sys.stdin.buffer.read(request["size"])
    if content.startswith(b"# bad"):
        sys.stdout.write('{"issues":')
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    place = {"harm": "py-sql-injection", "line_start": 1, "line_end": 1, "body": "b"}
    answer = {"issues": [place], "quiet": {}, "failed": ""}
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()
"""


@pytest.mark.program
def test_files_that_kill_a_worker_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    program = tmp_path / "mortal"
    program.write_text(PYTHON_HEADER + MORTAL, encoding="utf-8")
    program.chmod(0o700)
    names = ("a.py", "bad1.py", "b.py", "c.py", "bad2.py", "d.py")
    files = {name: f"# {name}\n" + VIEW * (number + 1) for number, name in enumerate(names)}
    report = analyse(DataflowAnalyser(program=str(program)), tmp_path, files)
    assert report.failed == dict.fromkeys(("bad1.py", "bad2.py"), "dataflow died of signal 9")
    assert [issue.file for issue in report.issues] == ["a.py", "b.py", "c.py", "d.py"]


@pytest.mark.program
def test_any_file_name_can_be_analysed(tmp_path: Path) -> None:
    names = ("a\nb.py", 'quoted".py', "not utf-8 \udcff.py")
    report = follow(tmp_path, dict.fromkeys(names, VIEW))
    assert report.failed == {}
    assert [issue.file for issue in report.issues] == list(names)


@pytest.mark.program
def test_a_worker_that_gives_no_answer_is_a_failure(tmp_path: Path) -> None:
    one_answer = """echo '{"issues": [], "quiet": {}, "failed": ""}'"""
    for number, end in enumerate(("exit 3", "exit 0", "echo words", f"{one_answer}\n{one_answer}")):
        script = f"#!/bin/sh\n{end}\n"
        program = tmp_path / f"silent{number}"
        program.write_text(script, encoding="utf-8")
        program.chmod(0o700)
        with pytest.raises(AnalyserFailed, match="no answer that can be read"):
            analyse(DataflowAnalyser(program=str(program)), tmp_path, {"a.py": VIEW})


def test_files_are_shared_among_the_usable_cores_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyser, "_usable_cores", lambda: 2)
    sizes = (500_000, 10, 300_000, 250_000, 20)
    files = [analyser._File(str(size), b" " * size, ()) for size in sizes]
    shares = [[file.name for file in share] for share in analyser._shares(files)]
    assert shares == [["500000", "20", "10"], ["300000", "250000"]]
    assert len(analyser._shares(files[1:2])) == 1
    assert analyser._shares([]) == []


def test_a_file_that_takes_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_: str) -> None:
        worker._stop()

    monkeypatch.setattr(worker, "parse", parse)
    assert "did not finish within" in examine(VIEW.encode(), all_lines(VIEW))["failed"]
