"""Bad input gets a clear sentence, a hint and the right exit code, never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import Ended
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe

FAULT = "import os\n\n\ndef run(name):\n    os.system('echo ' + name)\n"


def assert_refused(ended: Ended, *words: str, exit_code: int = 2) -> None:
    assert ended.exit_code == exit_code, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("codeloupe: "), ended.stderr
    assert "hint: " in ended.stderr
    for word in words:
        assert word in ended.stderr, ended.stderr


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"}, "first")
    return repository


@each(
    ("words", "told"),
    [
        (["review"], ["not inside a git repository", "--diff-file"]),
        (["review", "--repo", "nowhere"], ["nowhere", "not a directory"]),
        (["review", "--diff-file", "x.diff"], []),
        (["review", "--diff-file", "missing.diff"], ["missing.diff", "no such file"]),
        (["reveiw"], ["'reveiw' is not a command", "'review'"]),
        (["review", "--stagd"], ["--stagd", "--staged"]),
        *(
            ([*verb, "--repo", name], [name, "director"])
            for verb in (["review"], ["review", "--preview"], ["config", "show"], ["config", "init"])
            for name in ("circle", "n" * 300)
        ),
    ],
)
def test_a_call_where_there_is_no_repository(tmp_path: Path, words: list[str], told: list[str]) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "x.diff").write_text("hello\nworld\n")
    assert_refused(codeloupe(*words, cwd=tmp_path), *told)


def test_a_repository_without_commits_can_have_its_first_files_reviewed(repository: GitRepository) -> None:
    assert_refused(codeloupe("review", cwd=repository.path), "no commits yet", "--staged")
    repository.write("a.py", FAULT)
    for flag in ("--uncommitted", "--staged"):
        repository.git("add", "a.py")
        ended = codeloupe("review", flag, "--format", "json", "-q", cwd=repository.path)
        assert [finding["file"] for finding in ended.json()["findings"]] == ["a.py"]


@each(
    ("words", "told"),
    [
        *((words.split(), ["'nope'", "unknown"]) for words in ("nope..HEAD", "--base nope", "--commit nope")),
        (["HEAD...nope"], ["'nope'", "unknown"]),
        (["--base=-x"], ["begins with a dash"]),
        (["--commit=--output=pwned"], ["begins with a dash"]),
        (["--reviewer", "offline", "--", "-x..HEAD"], ["no file of the repository matches '/-x..HEAD'"]),
        (["HEAD"], ["not a range", "--commit HEAD"]),
        (["--staged", "--commit", "HEAD"], ["--staged and --commit exclude each other"]),
        (["--fail-on", "awful"], ["--fail-on", "awful", "critical"]),
        *(
            (["-o", target], ["cannot write the result"])
            for target in ("no/such/folder/out.json", ".", "a.py/out.json", "long" * 100)
        ),
    ],
)
def test_a_call_that_means_nothing(project: GitRepository, words: list[str], told: list[str]) -> None:
    assert_refused(codeloupe("review", *words, cwd=project.path), *told)
    assert not (project.path / "pwned").exists()


def test_a_revision_that_is_both_a_branch_and_a_tag(project: GitRepository) -> None:
    project.branch("same")
    project.commit_files({"b.py": "y = 1\n"}, "second")
    project.git("tag", "same")
    assert_refused(codeloupe("review", "--base", "same", cwd=project.path), "ambiguous", "refs/heads/")


@each(
    ("options", "told"),
    [
        (["--depth=1", "--no-single-branch", "-b", "feature"], ["shallow clone", "--deepen"]),
        (["--depth=1", "-b", "feature"], ["no base branch", "--base"]),
        (["--bare"], ["bare repository", "clone"]),
    ],
)
def test_a_clone_that_has_too_little(
    project: GitRepository, tmp_path: Path, options: list[str], told: list[str]
) -> None:
    twin = project.copied_to(tmp_path / "twin")
    twin.checkout("feature", new=True)
    for number in range(3):
        twin.commit_files({"a.py": f"x = {number}\n"}, "more")
    twin.checkout("main")
    twin.commit_files({"b.py": "y = 1\n"}, "elsewhere")
    twin.git("clone", "--quiet", *options, f"file://{twin.path}", str(tmp_path / "clone"))
    assert_refused(codeloupe("review", cwd=tmp_path / "clone"), *told)


def test_a_detached_head_is_reviewed_against_the_base_branch(project: GitRepository) -> None:
    sha = project.commit_files({"a.py": FAULT}, "fault", branch="feature")
    project.checkout(sha)
    ended = codeloupe("review", "--format", "json", "-q", cwd=project.path)
    assert ended.exit_code == 1
    assert "detached HEAD" in ended.json()["scope"]["description"]


def test_a_merge_in_progress_with_conflicts(project: GitRepository) -> None:
    project.commit_files({"a.py": "x = 2\n"}, "two", branch="other")
    project.checkout("main")
    project.commit_files({"a.py": "x = 3\n"}, "three")
    project.git("merge", "other", may_fail=True)
    assert_refused(codeloupe("review", cwd=project.path), "in progress", "'a.py'", "--abort")


def test_a_configuration_that_is_misspelt_or_broken(project: GitRepository) -> None:
    project.write("codeloupe.yaml", "exclude: []\nfail_onn: high\n")
    assert_refused(codeloupe("review", cwd=project.path), "codeloupe.yaml:2", "fail_onn", "fail_on")
    project.write("codeloupe.yaml", "exclude: [\n")
    assert_refused(codeloupe("review", cwd=project.path), "codeloupe.yaml")


def test_an_empty_diff_is_no_change_and_is_called_empty(tmp_path: Path) -> None:
    ended = codeloupe("review", "--diff-file", "-", cwd=tmp_path, stdin=b"")
    assert ended.exit_code == 0
    assert "the diff from standard input is empty" in ended.stderr
    assert "the diff from standard input, which is empty" in ended.stdout
    assert "No changes to review" in ended.stdout
    quiet = codeloupe("review", "-q", "--preview", "--diff-file", "-", cwd=tmp_path, stdin=b"\n")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert "which is empty" in quiet.stdout


def test_no_git_on_the_path(project: GitRepository, tmp_path: Path) -> None:
    ended = codeloupe("review", cwd=project.path, environment={"PATH": str(tmp_path)})
    assert_refused(ended, "git is not on the PATH", "install git")


@each("answer", ["--path-format=absolute\n.git\n.git\n.git/index", ""])
def test_a_git_that_does_not_understand_is_told_to_be_too_old(
    project: GitRepository, tmp_path: Path, answer: str
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    program.chmod(0o755)
    ended = codeloupe("review", cwd=project.path, environment={"PATH": f"{program.parent}:/usr/bin:/bin"})
    assert_refused(ended, "cannot read the layout of", "git 2.31 or newer")


@each("verb", [["review"], ["history", "list"], ["config", "show"], ["baseline", "list"]])
def test_a_directory_that_was_removed_below_the_program(tmp_path: Path, verb: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The shell stands in the directory, removes it, and becomes the program.
    remove = ("sh", "-c", 'rmdir "$1"; shift; exec "$@"', "sh", str(gone))
    words = (*remove, sys.executable, "-P", "-m", "codeloupe", *verb)
    ended = subprocess.run(words, cwd=gone, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("codeloupe: ")
    assert "hint: " in ended.stderr
    assert "internal error" not in ended.stderr
