"""What is wrong with a set-up is told by `config validate` and `doctor`, before a run stumbles over it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase
from tests.repository import GitRepository
from tests.warm_program import codeloupe

# What stands in codeloupe.yaml, and what must be said of it.
WRONG = {
    "experts: [nope]": "'nope'",
    "experts: [security, securty]": "'securty'",
    "commit_experts: {bug_fix: [nope]}": "'nope'",
    "commit_experts: {chore: [general], feature: [tests, nobody]}": "'nobody'",
    "fail_on: 3": "fail_on: expected critical",
    "min_severity: 0": "min_severity: expected critical",
    'fail_on: "1"': "fail_on: expected critical",
    "reviewer_type: command": "review_command",
    "reviewers: [offline, command]": "review_command",
    "base_branch: no-such-branch": "no-such-branch",
    "include: ['scr/**']": "did you mean src/**?",
    "include: [src/, 'nowhere/*.py']": "nowhere",
    "experts: [nope]\nreviewer_type: command": "review_command is not set",
}


@pytest.mark.defect("V14")
def test_validate_finds_what_a_run_would_stumble_over(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n", "src/b.py": "x = 1\n"})
    missing: list[str] = []
    for text, words in WRONG.items():
        repository.write("codeloupe.yaml", f"{text}\n")
        ended = codeloupe("config", "validate", cwd=repository.path)
        if ended.exit_code != 2 or words not in ended.stderr:
            missing.append(f"{text!r}: {ended.exit_code} {ended.stderr}")
    assert missing == []
    repository.write(
        "codeloupe.yaml",
        "include: ['src/**', '*.yaml']\nexperts: [default, security]\ncommit_experts: {chore: [tests]}\nfail_on: P2\n",
    )
    ended = codeloupe("config", "validate", cwd=repository.path)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "codeloupe.yaml: valid\n", "")


@pytest.mark.defect("V14")
def test_validate_looks_at_variables_experts_folders_and_the_baseline_too(repository: GitRepository) -> None:
    for variables in ({"CODELOUPE_FAIL_ON": "wurst"}, {"CODELOUPE_EXPERTS": "nope"}, {"CODELOUPE_HOME": "state"}):
        ended = codeloupe("config", "validate", cwd=repository.path, environment=variables)
        assert ended.exit_code == 2, variables
    gone = {"CODELOUPE_EXPERTS_FOLDER": str(repository.path / "gone")}
    assert codeloupe("config", "validate", cwd=repository.path, environment=gone).exit_code == 2
    repository.write("codeloupe-baseline.yaml", "entries: 7\n")
    ended = codeloupe("config", "validate", cwd=repository.path)
    assert (ended.exit_code, "codeloupe-baseline.yaml" in ended.stderr) == (2, True)


@pytest.mark.defect("V14")
def test_files_that_only_look_like_settings_are_mentioned(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    mistaken = [".codeloupe.yaml", ".codeloupe.yml", "codeloupe.toml", "codeloupe.json"]
    mistaken += ["codelupe.yaml", "Codeloupe.yaml"]
    for name in (*mistaken, "code.yaml", "codeloupe.md", "codeloupe.py", "codeloupe-baseline.yaml"):
        repository.write(name, "")
    review = "review --staged --reviewer offline"
    for words in ("config validate", "config show", review, "doctor"):
        told = codeloupe(*words.split(), cwd=repository.path).stderr
        assert [name for name in mistaken if f" {name} is ignored" not in told] == [], words
        assert told.count("is ignored") == len(mistaken)
    assert "is ignored" not in codeloupe(*review.split(), "-q", cwd=repository.path).stderr


@pytest.mark.defect("V14")
def test_a_relative_home_never_puts_anything_into_the_work_tree(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    relative = {"CODELOUPE_HOME": "kept/here"}
    for words in ("review --uncommitted --reviewer offline", "history list", "doctor", "pipeline list"):
        ended = codeloupe(*words.split(), cwd=repository.path, environment=relative)
        assert ended.exit_code in (2, 3), words
        assert "CODELOUPE_HOME" in ended.stderr
        assert "absolute path" in ended.stderr
    assert not (repository.path / "kept").exists()


def _damaged(home: Path) -> None:
    with SqliteDatabase(home / DATABASE_NAME) as database, database.writing() as connection:
        connection.execute("CREATE TABLE more AS SELECT hex(randomblob(2000)) AS text")
        connection.execute("CREATE INDEX more_text ON more (text)")
    path = home / DATABASE_NAME
    data = path.read_bytes()
    path.write_bytes(data[: 2 * 4096] + bytes(len(data) - 2 * 4096))


def _newer(home: Path) -> None:
    with SqliteDatabase(home / DATABASE_NAME) as database, database.writing() as connection:
        connection.execute("PRAGMA user_version = 9999")


def _foreign(home: Path) -> None:
    connection = sqlite3.connect(home / DATABASE_NAME)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()


BREAKING: dict[str, Callable[[Path], object]] = {
    "garbage": lambda home: (home / DATABASE_NAME).write_bytes(b"no database at all " * 200),
    "a folder": lambda home: (home / DATABASE_NAME).mkdir(),
    "a file for runs": lambda home: (home / "pipelines").touch(),
    "damaged": _damaged,
    "newer": _newer,
    "foreign": _foreign,
}


@pytest.mark.defect("V14")
def test_doctor_praises_no_store_that_it_has_not_opened(tmp_path: Path) -> None:
    praised: list[str] = []
    for name, broken in BREAKING.items():
        home = tmp_path / name
        home.mkdir()
        broken(home)
        ended = codeloupe("doctor", cwd=tmp_path, environment={"CODELOUPE_HOME": str(home)})
        (line,) = [line for line in ended.stdout.splitlines() if " state " in line]
        if "✘" not in line or ended.exit_code != 3 or "to fix it:" not in ended.stdout:
            praised.append(f"{name}: {ended.exit_code} {line}")
    assert praised == []
    for place in ("/dev/null/nowhere", "/proc/nowhere", str(tmp_path / ("long" * 100) / "x")):
        assert codeloupe("doctor", cwd=tmp_path, environment={"CODELOUPE_HOME": place}).exit_code == 3
    good = tmp_path / "good"
    with SqliteDatabase(good / DATABASE_NAME) as database:
        database.check()
    ended = codeloupe("doctor", cwd=tmp_path, environment={"CODELOUPE_HOME": str(good)})
    assert (ended.exit_code, f"✔ state           {good}" in ended.stdout) == (0, True)
    assert [path.name for path in good.iterdir()] == [DATABASE_NAME]


@pytest.mark.defect("V14")
def test_doctor_reports_settings_that_cannot_be_used_and_looks_at_the_rest(repository: GitRepository) -> None:
    for text, words in (("fail_on: [\n", "codeloupe.yaml"), ("experts: [nope]\n", "'nope'")):
        repository.write("codeloupe.yaml", text)
        ended = codeloupe("doctor", cwd=repository.path)
        (line,) = [line for line in ended.stdout.splitlines() if " settings " in line]
        assert (ended.exit_code, "✘" in line, words in ended.stdout) == (3, True, True)
        assert "detect-secrets" in ended.stdout
        assert "A review here would be" in ended.stdout
