"""What the offline review finds in Python code, through the front door: flows from a request, and little noise."""

import pytest

from bench.detection import programs, scores
from tests.repository import GitRepository
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
