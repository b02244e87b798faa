"""Offline sweeps through the front door: many commits in one call of an analyser, each with its own findings."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repository import GitRepository
from tests.warm_program import codeloupe

_TOKEN = "gh" + "p_" + "q8Zr3LwXn5Kd9VtYb2Hc7Mf4Sg6Jp1Ra0TeU"
# Commits that change the same paths, each with other findings: in code, in a test, in a package's own file, by data
# flow, by a comment that hides one, by a secret, by a file that does not parse, and in another language.
_COMMITS: tuple[dict[str, str | bytes], ...] = (
    {"shop/cart.py": "def total(x):\n    return eval(x)\n", "tests/test_cart.py": "assert eval('1')\n"},
    {"shop/cart.py": "import os\n\n\ndef total(x):\n    return x\n", "shop/__init__.py": "from shop import cart\n"},
    {"shop/cart.py": "def total(x):\n    try:\n        return int(x)\n    except:\n        pass\n"},
    {"shop/cart.py": "def total(x):\n    return exec(x)  # noqa: S102\n", "README.md": "A shop.\n"},
    {"shop/cart.py": "def total(x:\n    return x\n"},
    {"shop/cart.py": f"TOKEN = '{_TOKEN}'\n", "tests/test_cart.py": "import os\nprint(undefined)\n"},
    {
        "shop/cart.py": (
            "from flask import Flask, request\nimport sqlite3\n\napp = Flask(__name__)\n\n\n@app.get('/find')\n"
            "def find():\n    name = request.args['name']\n"
            "    return sqlite3.connect('x').execute('SELECT * FROM items WHERE name = ' + name)\n"
        )
    },
    {"web/cart.js": "export const total = (x) => eval(x);\n", "shop/cart.py": "def total(x):\n    return x is 1\n"},
    {"shop/cart.py": "def total(x):\n    return x\n", "tests/test_cart.py": b"text = '\xff\xfe'\n"},
)


def _made(path: Path) -> GitRepository:
    repository = GitRepository(path)
    for number, files in enumerate(_COMMITS):
        repository.commit_files(files, f"Change {number}")
    return repository


def _swept(repository: GitRepository, *words: str) -> dict[str, Any]:
    ended = codeloupe("commits", *words, "--reviewer", "offline", "--json", "-q", cwd=repository.path)
    assert ended.exit_code in (0, 3), ended.stderr
    document: dict[str, Any] = ended.json()
    return document


def _comparable(commit: dict[str, Any]) -> dict[str, Any]:
    """Return a commit of a report without what differs from run to run."""
    text = json.dumps(commit)
    known: dict[str, Any] = json.loads(text)
    review = known.get("review") or {}
    for name in ("id", "review_id", "usage", "duration_seconds"):
        known.pop(name, None)
        review.pop(name, None)
    return known


@pytest.mark.parametrize("trust", [(), ("--untrusted",)], ids=["trusted", "untrusted"])
def test_a_commit_has_the_same_findings_in_a_sweep_and_alone(tmp_path: Path, trust: tuple[str, ...]) -> None:
    repository = _made(tmp_path / "shop")
    together = _swept(repository, "--max", "100", *trust)["commits"]
    assert len(together) == len(_COMMITS)
    alone: list[dict[str, Any]] = []
    for commit in together:
        alone += _swept(repository, "--branch", commit["sha"], "--max", "1", *trust)["commits"]
    assert [_comparable(commit) for commit in together] == [_comparable(commit) for commit in alone]
    assert {"S307", "F401", "E722", "F821", "F632", "js-eval-dynamic", "py-sql-injection"} <= _rules(together)


def _rules(commits: list[dict[str, Any]]) -> set[str]:
    return {finding["rule"] for commit in commits for finding in commit["findings"]}


def test_a_hostile_commit_makes_no_other_commit_of_its_call_fail(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "shop")
    # Such a line ends ruff and the parser of the data-flow analysis.
    deep = f"import os\n\nos.system(input())\nx = {'-' * 30_000}1\n"
    for number in range(6):
        content = deep if number == 3 else f"def total(x):\n    return missing_{number}\n"
        repository.commit_files({"shop/cart.py": content}, f"Change {number}")
    swept = _swept(repository, "--max", "100")["commits"]
    hostile = swept.pop(2)
    assert hostile["verdict"] == "INCOMPLETE"
    assert "ruff died of signal" in hostile["failure"]
    assert [commit["failure"] for commit in swept] == [None] * 5
    assert [[finding["rule"] for finding in commit["findings"]] for commit in swept] == [["F821"]] * 5
