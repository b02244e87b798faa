"""What the program prints for reviews, a sweep and a pipeline stays as it is, and what 0.1.0 stored can be read.

A change of the output is made on purpose: `python -m tests.golden_cases` renews the files, and the diff shows it.
"""

import difflib
import json
import sqlite3
from pathlib import Path

from tests.golden_cases import CASES, GOLDEN, Case, documents, environment, pipeline_documents, plain, sweep_documents
from tests.rows import each
from tests.warm_program import codeloupe

STORE = GOLDEN / "store-0.1.0"


def differences(folder: str, made: dict[str, str]) -> str:
    kept = {file.name: file.read_text(encoding="utf-8") for file in (GOLDEN / folder).iterdir()}
    return "".join(
        line
        for name in sorted(kept.keys() | made.keys())
        for line in difflib.unified_diff(
            kept.get(name, "").splitlines(keepends=True),
            made.get(name, "").splitlines(keepends=True),
            f"golden/{folder}/{name}",
            f"now/{folder}/{name}",
        )
    )


@each("case", CASES)
def test_a_review_prints_what_it_printed(case: Case, tmp_path: Path) -> None:
    assert differences(case.name, dict(documents(case, tmp_path / "case", codeloupe))) == ""


def test_a_sweep_and_a_pipeline_print_what_they_printed(tmp_path: Path) -> None:
    assert differences("sweep", dict(sweep_documents(tmp_path / "sweep", codeloupe))) == ""
    assert differences("pipeline", dict(pipeline_documents(tmp_path / "pipeline", codeloupe))) == ""


def test_the_store_of_the_first_version_can_still_be_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with sqlite3.connect(home / "codeloupe.sqlite3") as database:
        database.executescript((STORE / "codeloupe.sql").read_text(encoding="utf-8"))
    database.close()

    def history(*words: str) -> str:
        ended = codeloupe("history", *words, cwd=tmp_path, environment=environment(None, home))
        assert ended.stderr == ""
        return ended.stdout

    listed = json.loads(history("list", "--all-repositories", "--json"))
    kept = json.loads((STORE / "list.json").read_text(encoding="utf-8"))
    names = ("id", "kind", "branch", "exit_code", "findings", "verdict", "scope")
    assert [[entry[name] for name in names] for entry in listed["entries"]] == [
        [entry[name] for name in names] for entry in kept["entries"]
    ]
    for file in STORE.glob("????????????????????????????????.json"):
        then, now = file.read_text(encoding="utf-8"), history("render", file.stem, "--format", "json")
        assert _essence(now, tmp_path) == _essence(then, tmp_path)


def _essence(text: str, directory: Path) -> object:
    """What must not get lost of a stored review; fields may be added."""
    document = json.loads(plain(text, directory, None).replace(": T", ": 0"))
    names = ("title", "file", "line_start", "severity", "status", "fingerprint", "evidence")
    findings = [[finding[name] for name in names] for finding in document["findings"]]
    return findings, document["exit_code"], document["scope"], document["coverage"]["files_total"]
