"""What the offline review finds in Python code, through the front door: flows from a request, and little noise."""

from pathlib import Path

import pytest

from bench.detection import programs, scores
from tests.program import codeloupe as started_codeloupe
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe

APP = """\
import subprocess
from flask import Flask, redirect, request
app = Flask(__name__)


@app.post("/convert")
def convert():
    form = request.form
    name = form["name"].strip()
    words = ["sh", "-c", f"convert {name}.png {name}.jpg"]
    subprocess.run(words, check=True)
    return redirect(form.get("next", "/"))
"""
SAFE = APP.replace('["sh", "-c", f"convert {name}.png {name}.jpg"]', '["convert", name, "out.jpg"]').replace(
    'redirect(form.get("next", "/"))', 'redirect("/done")'
)
IN_TESTS = """\
import hashlib
import pickle
import random
import subprocess
import requests


def test_all():
    requests.get("http://localhost")
    assert pickle.loads(pickle.dumps(1)) == 1
    subprocess.run("echo " + str(random.random()), shell=True)
    token = hashlib.md5(b"a").hexdigest()
    assert token == eval("token")
"""


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"base.py": "x = 1\n"}, "first")
    repository.checkout("feature", new=True)
    return repository


def found(project: GitRepository, *words: str) -> list[tuple[str, str, int]]:
    ended = codeloupe("review", "--reviewer", "offline", "--format", "json", "-q", *words, cwd=project.path)
    assert ended.json()["complete"], ended.stdout
    rows = [row for row in ended.json()["findings"] if row["status"] != "fixed"]
    return [(row["rule"], row["severity"], row["line_start"]) for row in rows]


@pytest.mark.defect("N4")
def test_advice_fixes_the_defect_instead_of_silencing_the_rule(project: GitRepository) -> None:
    # ruff's own fixes for these are to add `check=False`, to replace the condition by `True` and to delete one key.
    code = "import subprocess\n\nsubprocess.run(['ls'])\nif subprocess or True:\n    print({'a': 1, 'a': 1})\n"
    project.write("app.py", code)
    ended = codeloupe("review", "--reviewer", "offline", "--format", "json", "-q", cwd=project.path)
    advice = {row["rule"]: row["suggestion"] for row in ended.json()["findings"]}
    assert advice == {
        "PLW1510": "Pass `check=True`, or handle the return code.",
        "SIM222": "Use the intended operand, or remove the dead branch.",
        "F601": "Correct or remove the repeated entry.",
    }


CLEARED = """\
import os
import pickle
import subprocess

TABLE = "orders"


def report(cursor, connection):
    name = "orders"
    command = "ls " + name
    subprocess.run(
        command,
        shell=True,
        check=True,
    )
    os.system("ls " + name)
    cursor.execute(
        f"SELECT * FROM {TABLE} "
        f"WHERE name = '{name}'"
    )
    print(eval("1 + " + str(len(name))))
    return pickle.loads(b"N.")
"""
# The same calls with a value that the function cannot know.
UNKNOWN = CLEARED.replace('    name = "orders"\n', "").replace("(cursor, connection)", "(cursor, name, data)")
UNKNOWN = UNKNOWN.replace('b"N."', "data").replace("str(len(name))", "name")


@pytest.mark.defect("N3")
def test_ruff_is_silent_where_the_data_flow_shows_that_a_call_is_safe(project: GitRepository) -> None:
    project.write("app.py", UNKNOWN)
    assert {rule for rule, *_ in found(project)} == {"S602", "S605", "S608", "S307", "S301"}
    project.write("app.py", CLEARED)
    assert found(project) == []


@pytest.mark.defect("N3")
def test_a_safe_call_stays_silent_if_the_change_adds_only_its_last_line(project: GitRepository) -> None:
    before = "def report(cursor):\n    table = 'orders'\n    cursor.execute(\n        f'SELECT a FROM {table} '\n"
    project.commit_files({"app.py": before + "    )\n"}, "a query")
    project.write("app.py", before + "        f'WHERE {table} = 1'\n    )\n")
    assert found(project, "--uncommitted") == []
    unknown = before.replace("report(cursor)", "report(cursor, table)").replace("    table = 'orders'\n", "")
    project.write("app.py", unknown + "        f'WHERE {table} = 1'\n    )\n")
    assert found(project, "--uncommitted") == [("S608", "high", 4)]


def test_a_comment_silences_a_defect_only_for_its_own_analyser(project: GitRepository) -> None:
    code = APP.replace("subprocess.run(words, check=True)", "eval(name)")
    project.write("app.py", code.replace("eval(name)", "eval(name)  # noqa: S307"))
    assert ("py-code-injection", "high", 11) in found(project)
    project.write("app.py", "def run(text):\n    return eval(text)\n")
    assert found(project) == [("S307", "high", 2)]
    project.write("app.py", "def run(text):\n    return eval(text)  # noqa: S307\n")
    ended = codeloupe("review", "--reviewer", "offline", "--format", "json", "-q", cwd=project.path)
    # It is still listed, as silenced by its comment.
    assert {row["rule"]: row["status"] for row in ended.json()["findings"]}["S307"] == "silenced"


SCRIPTS = [
    ("#!/usr/bin/env python3\nprint(unknown)\n", "F821"),
    ("#!/usr/bin/python3.12 -u\nprint(unknown)\n", "F821"),
    ("#!/usr/bin/env -S uv run --script\nprint(unknown)\n", "F821"),
    ("#!/bin/sh\nrm -rf $1\n", "sh-remove-unquoted"),
    ("#!/usr/bin/env -S A=1 bash -e\nrm -rf $1\n", "sh-remove-unquoted"),
    ("#!/usr/bin/env node\nfunction f(text) { eval(text); }\n", "js-eval-dynamic"),
    ("#!/usr/bin/php8.3\n<?php eval($_GET['x']);\n", "php-eval-dynamic"),
]


@each(("code", "rule"), SCRIPTS)
def test_a_script_without_a_suffix_has_the_language_of_its_first_line(code: str, rule: str, tmp_path: Path) -> None:
    project = GitRepository(tmp_path / "project")
    project.commit_files({"base.py": "x = 1\n"}, "first")
    project.write("bin/tool", code)
    assert [name for name, *_ in found(project, "--uncommitted")] == [rule]


@pytest.mark.defect("F14")
@each(("error", "reason"), [("RuntimeError", "it crashed with RuntimeError: broken"), ("ImportError", "broken")])
def test_a_crash_of_the_secret_search_leaves_the_review_incomplete(error: str, reason: str, tmp_path: Path) -> None:
    project = GitRepository(tmp_path / "project")
    project.commit_files({"base.py": "x = 1\n"}, "first")
    project.write("notes.txt", "some words\n")
    package = tmp_path / "path" / "detect_secrets"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise {error}('broken')\n", encoding="ascii")
    words = ("review", "--reviewer", "offline", "--uncommitted", "--format", "json", "-q")
    ended = started_codeloupe(*words, cwd=project.path, environment={"PYTHONPATH": str(package.parent)})
    document = ended.json()
    assert (ended.exit_code, document["verdict"], document["complete"]) == (3, "INCOMPLETE", False)
    (problem,) = document["errors"]
    assert problem["message"].startswith("detect-secrets could not review: ")
    assert reason in problem["message"]


@each("code", ['print "x"\n', "def f():\n    exec 'x = 1'\n", "def f(a, (b, c)):\n    return b\n"])
def test_a_file_of_python_2_is_not_reviewed_and_not_a_finding(code: str, tmp_path: Path) -> None:
    project = GitRepository(tmp_path / "project")
    project.commit_files({"base.py": "x = 1\n"}, "first")
    project.write("old.py", code)
    ended = codeloupe("review", "--reviewer", "offline", "--uncommitted", "--format", "json", "-q", cwd=project.path)
    assert (ended.exit_code, ended.json()["verdict"], ended.json()["findings"]) == (3, "INCOMPLETE", [])
    assert "not valid in Python 3" in ended.stdout


@pytest.mark.defect("O")
def test_what_a_request_holds_is_followed_to_where_it_does_harm(project: GitRepository) -> None:
    project.write("app.py", APP)
    assert found(project) == [("py-command-injection", "high", 11), ("py-open-redirect", "medium", 12)]
    project.write("app.py", SAFE)
    assert found(project) == []


@pytest.mark.defect("O")
def test_a_source_that_is_new_makes_an_old_sink_a_finding_at_the_new_line(project: GitRepository) -> None:
    app = APP.replace('form.get("next", "/")', '"/"')
    project.commit_files({"app.py": app.replace('form["name"].strip()', '"fixed"')}, "fixed name")
    project.write("app.py", app)
    assert found(project, "--uncommitted") == [("py-command-injection", "high", 9)]


@pytest.mark.defect("O")
def test_what_tests_rightly_do_is_no_finding(project: GitRepository) -> None:
    project.write("tests/test_all.py", IN_TESTS)
    assert found(project) == []


@pytest.mark.defect("O")
def test_more_is_found_in_weak_programs_than_by_bandit_and_ruff_with_fewer_false_alarms() -> None:
    known = programs()
    assert len(known) >= 120
    assert sum(program.is_weak for program in known) * 2 == len(known)
    ours, *others = scores().values()
    assert len(others) == 2
    for other in others:
        assert ours.recall > other.recall, ours.missed
        assert ours.precision > other.precision, ours.false_alarms
    assert ours.f1 > 0.9, (ours.missed, ours.false_alarms)
