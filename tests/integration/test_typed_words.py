"""What people type by habit or by mistake, through the front door: aliases, pointers, revisions, no change at all."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from codeloupe import BaseScope, CommitScope, RangeScope, Settings
from codeloupe import review as codeloupe_review
from codeloupe.cli.parser import with_our_options
from codeloupe.errors import RevisionError
from tests.program import Ended
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe

FAULT = "import subprocess\nsubprocess.call('ls', shell=True)\nname = input()\neval(name)\n"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    """On `main`, everything committed, with a tag and a branch of a remote."""
    repository.commit_files({"a.py": "x = 1\n"}, "base")
    repository.commit_files({"b.py": FAULT}, "fault")
    repository.git("branch", "feature/login")
    repository.git("tag", "v1.0")
    repository.git("update-ref", "refs/remotes/origin/topic", "HEAD")
    return repository


def history(project: GitRepository) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = codeloupe("history", "list", "--json", cwd=project.path).json()["entries"]
    return entries


@pytest.mark.defect("E13")
def test_a_review_understands_the_words_of_other_programs(project: GitRepository) -> None:
    project.write("c.py", FAULT)
    project.git("add", "c.py")
    document = codeloupe("review", "--offline", "--cached", "--json", "--no-color", cwd=project.path).json()
    assert (document["scope"]["kind"], document["reviewer"]["type"]) == ("staged", "offline")
    assert document["findings"]
    listed = codeloupe("review", "--dry-run", "--agent", "claude", "--json", cwd=project.path)
    assert (listed.exit_code, [file["new_path"] for file in listed.json()["files"]]) == (0, ["c.py"])
    annotated = codeloupe("review", "--offline", "--output-format=github-actions", cwd=project.path)
    assert "::error " in annotated.stdout


@pytest.mark.defect("E13")
@each(
    ("words", "exit_code", "said"),
    [
        (["help", "review"], 0, "usage: codeloupe review"),
        (["init"], 0, "wrote "),
        (["-V"], 0, "codeloupe "),
        (
            ["review", "--since", "yesterday"],
            2,
            "hint: `codeloupe commits --since '1 day ago'` reviews commits by time",
        ),
        (["review", "-"], 2, "hint: --diff-file - reads a diff from standard input"),
        (["scan"], 2, "hint: `codeloupe review` reviews a change"),
        (["review", "--reviewer", "openai"], 2, "hint: `codex` is OpenAI's program"),
        (["agent", "run", "hi", "--agent", "ollama"], 2, "hint: `api` asks any model by its API"),
    ],
)
def test_other_commands_do_what_is_meant_or_point_to_it(
    tmp_path: Path, words: Sequence[str], exit_code: int, said: str
) -> None:
    GitRepository(tmp_path / "project")
    ended = codeloupe(*words, cwd=tmp_path / "project")
    assert ended.exit_code == exit_code
    assert said in ended.stdout + ended.stderr


@pytest.mark.defect("E14")
def test_output_is_a_file_and_format_a_format_in_every_command(project: GitRepository) -> None:
    for verb in (["review", "--commit", "HEAD"], ["commits", "--max", "1"]):
        words = (*verb, "--offline", "--json", "--output", "out.json", "--format", "markdown")
        ended = codeloupe(*words, cwd=project.path)
        assert ended.stdout.startswith("#"), ended
        assert json.loads((project.path / "out.json").read_text())["schema_version"] == 1
        refused = codeloupe(*verb, "--offline", "--output", "json", cwd=project.path)
        assert refused.exit_code == 2
        assert "'json' is a format: give --format json, or ./json for a file" in refused.stderr
    shown = codeloupe("history", "render", "last", "--json", "-o", "again.json", cwd=project.path)
    assert shown.stdout == ""
    assert json.loads((project.path / "again.json").read_text())["schema_version"] == 1


@pytest.mark.defect("E16")
@each(
    ("words", "meant"),
    [
        (["review", "mian...HEAD"], "main"),
        (["review", "HEAD~1..feature/lgoin"], "feature/login"),
        (["review", "v1.O~1..main"], "v1.0~1"),
        (["review", "--base", "mian"], "main"),
        (["review", "--base", "master"], "main"),
        (["review", "--commit", "HAED"], "HEAD"),
        (["review", "--commit", "topic"], "origin/topic"),
        (["review", "mian"], "main"),
        (["review", "--preview", "mian..HEAD"], "main"),
        (["commits", "mian..HEAD"], "main"),
        (["commits", "--branch", "mian"], "main"),
    ],
)
def test_an_unknown_revision_suggests_the_nearest_one(project: GitRepository, words: Sequence[str], meant: str) -> None:
    ended = codeloupe(*words, "--offline", cwd=project.path)
    assert ended.exit_code == 2
    assert f"  hint: did you mean {meant}?" in ended.stderr


@pytest.mark.defect("E16")
def test_the_library_suggests_the_nearest_revision(project: GitRepository) -> None:
    for scope in (BaseScope("mian"), CommitScope("mian"), RangeScope("HEAD..mian")):
        with pytest.raises(RevisionError) as caught:
            asyncio.run(codeloupe_review(scope, repo=project.path, settings=Settings(reviewer_type="offline")))
        assert caught.value.hint == "did you mean main?"


def review(project: GitRepository, *words: str) -> Ended:
    return codeloupe("review", "--reviewer", "offline", *words, cwd=project.path)


@pytest.mark.defect("E17")
def test_a_review_of_no_change_names_other_scopes_and_is_not_stored(project: GitRepository) -> None:
    ended = review(project)
    assert ended.exit_code == 0
    assert "No changes to review" in ended.stdout
    assert "codeloupe review --commit HEAD\n" in ended.stdout
    assert "PASS" not in ended.stdout
    for_programs = review(project, "--json")
    document = for_programs.json()
    assert (document["nothing_to_review"], document["summary"]) == (True, "No changes to review")
    assert "no changes to review; --commit HEAD reviews the last commit" in for_programs.stderr
    assert "codeloupe review --uncommitted\n" in review(project, "--staged").stdout
    assert history(project) == []
    assert review(project, "--commit", "HEAD").exit_code == 1


@pytest.mark.defect("E17")
def test_a_review_of_no_change_is_no_round(project: GitRepository) -> None:
    project.write("c.py", FAULT)
    first = review(project, "--json").json()
    project.remove("c.py")
    assert review(project, "--json").json()["nothing_to_review"] is True
    project.write("c.py", FAULT)
    again = review(project, "--json").json()
    assert {finding["status"] for finding in first["findings"]} == {"new"}
    assert {finding["status"] for finding in again["findings"]} == {"open"}
    assert [entry["id"] for entry in history(project)] == [again["review_id"], first["review_id"]]


@pytest.mark.defect("E17")
def test_the_library_names_another_scope_for_no_change(project: GitRepository) -> None:
    found = asyncio.run(codeloupe_review(repo=project.path, settings=Settings(reviewer_type="offline")))
    assert (found.nothing_to_review, found.summary) == (True, "No changes to review")
    assert found.hint.startswith('CommitScope("HEAD") reviews the last commit; ')
    assert history(project) == []


@pytest.mark.defect("E13")
def test_offline_excludes_every_agent(project: GitRepository) -> None:
    words = ("review", "--offline", "--reviewer", "claude,codex", "--preview", "--json")
    reviewers = codeloupe(*words, cwd=project.path).json()["reviewers"]
    assert [reviewer["type"] for reviewer in reviewers] == ["offline"]
    twice = codeloupe("review", "--reviewer", "offline", "--reviewer", "offline", "--preview", cwd=project.path)
    assert twice.exit_code == 0, twice.stderr


@pytest.mark.defect("E14")
def test_a_dash_is_standard_output(project: GitRepository) -> None:
    words = ("review", "--commit", "HEAD", "--offline", "--json", "-o", "-")
    assert "findings" in codeloupe(*words, cwd=project.path).json()
    assert "findings" in codeloupe("history", "render", "--json", "-o", "-", cwd=project.path).json()
    assert not (project.path / "-").exists()


@pytest.mark.defect("E13")
def test_words_after_two_dashes_are_not_habits() -> None:
    assert with_our_options(["--", "-m", "--cwd"], {"--model"}, end=pytest.fail) == ["--", "-m", "--cwd"]
