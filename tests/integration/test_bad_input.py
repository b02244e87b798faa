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


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    assert_refused(codeloupe("review", cwd=tmp_path), "not inside a git repository", "--diff-file")


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert_refused(codeloupe("review", "--repo", "nowhere", cwd=tmp_path), "nowhere", "not a directory")


@each("name", ["circle", "n" * 300])
@each("verb", [["review"], ["review", "--preview"], ["config", "show"], ["config", "init"]])
def test_a_folder_that_cannot_be(tmp_path: Path, verb: list[str], name: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert_refused(codeloupe(*verb, "--repo", name, cwd=tmp_path), name, "director")


def test_a_repository_without_commits(repository: GitRepository) -> None:
    assert_refused(codeloupe("review", cwd=repository.path), "no commits yet", "--staged")


def test_a_repository_without_commits_can_still_have_its_first_files_reviewed(repository: GitRepository) -> None:
    repository.write("a.py", FAULT)
    for flag in ("--uncommitted", "--staged"):
        repository.git("add", "a.py")
        ended = codeloupe("review", flag, "--format", "json", "-q", cwd=repository.path)
        assert [finding["file"] for finding in ended.json()["findings"]] == ["a.py"]


@each("words", [["nope..HEAD"], ["--base", "nope"], ["--commit", "nope"], ["HEAD...nope"]])
def test_an_unknown_revision(project: GitRepository, words: list[str]) -> None:
    assert_refused(codeloupe("review", *words, cwd=project.path), "'nope'", "unknown")


def test_a_revision_that_is_both_a_branch_and_a_tag(project: GitRepository) -> None:
    project.branch("same")
    project.commit_files({"b.py": "y = 1\n"}, "second")
    project.git("tag", "same")
    assert_refused(codeloupe("review", "--base", "same", cwd=project.path), "ambiguous", "refs/heads/")


@each("words", [["--base=-x"], ["--commit=--output=pwned"]])
def test_a_revision_that_begins_with_a_dash(project: GitRepository, words: list[str]) -> None:
    assert_refused(codeloupe("review", *words, cwd=project.path), "begins with a dash")
    assert not (project.path / "pwned").exists()


def test_a_path_that_begins_with_a_dash(project: GitRepository) -> None:
    refused = codeloupe("review", "--reviewer", "offline", "--", "-x..HEAD", cwd=project.path)
    assert refused.exit_code == 2
    assert "no file of the repository matches '/-x..HEAD'" in refused.stderr


def test_one_revision_where_a_range_belongs(project: GitRepository) -> None:
    assert_refused(codeloupe("review", "HEAD", cwd=project.path), "not a range", "--commit HEAD")


def test_two_scopes_at_once(project: GitRepository) -> None:
    ended = codeloupe("review", "--staged", "--commit", "HEAD", cwd=project.path)
    assert_refused(ended, "--staged and --commit exclude each other")


def test_no_merge_base_in_a_shallow_clone_says_how_to_deepen(project: GitRepository, tmp_path: Path) -> None:
    project.checkout("feature", new=True)
    for number in range(3):
        project.commit_files({"a.py": f"x = {number}\n"}, "more")
    project.checkout("main")
    project.commit_files({"b.py": "y = 1\n"}, "elsewhere")
    clone = tmp_path / "clone"
    project.git(
        "clone", "--quiet", "--depth=1", "--no-single-branch", "-b", "feature", f"file://{project.path}", str(clone)
    )
    assert_refused(codeloupe("review", cwd=clone), "shallow clone", "--deepen")


def test_a_shallow_clone_of_one_branch_is_not_called_clean(project: GitRepository, tmp_path: Path) -> None:
    project.commit_files({"a.py": FAULT}, "fault", branch="feature")
    project.checkout("main")
    clone = tmp_path / "clone"
    project.git("clone", "--quiet", "--depth=1", "-b", "feature", f"file://{project.path}", str(clone))
    assert_refused(codeloupe("review", cwd=clone), "no base branch", "--base")


def test_a_bare_repository(project: GitRepository, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    project.git("clone", "--quiet", "--bare", str(project.path), str(bare))
    assert_refused(codeloupe("review", cwd=bare), "bare repository", "clone")


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


def test_a_misspelt_key_in_the_configuration(project: GitRepository) -> None:
    project.write("codeloupe.yaml", "exclude: []\nfail_onn: high\n")
    assert_refused(codeloupe("review", cwd=project.path), "codeloupe.yaml:2", "fail_onn", "fail_on")


def test_a_broken_configuration(project: GitRepository) -> None:
    project.write("codeloupe.yaml", "exclude: [\n")
    assert_refused(codeloupe("review", cwd=project.path), "codeloupe.yaml")


def test_a_severity_that_does_not_exist(project: GitRepository) -> None:
    assert_refused(codeloupe("review", "--fail-on", "awful", cwd=project.path), "--fail-on", "awful", "critical")


@each("target", ["no/such/folder/out.json", ".", "a.py/out.json", "long" * 100])
def test_an_output_that_cannot_be_written_is_refused_before_the_review(project: GitRepository, target: str) -> None:
    assert_refused(codeloupe("review", "-o", target, cwd=project.path), "cannot write the result")


def test_a_diff_that_is_no_diff(tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text("hello\nworld\n")
    assert_refused(codeloupe("review", "--diff-file", "x.diff", cwd=tmp_path))
    assert_refused(codeloupe("review", "--diff-file", "missing.diff", cwd=tmp_path), "missing.diff", "no such file")


def test_an_empty_diff_is_no_change_and_is_called_empty(tmp_path: Path) -> None:
    ended = codeloupe("review", "--diff-file", "-", cwd=tmp_path, stdin=b"")
    assert ended.exit_code == 0
    assert "the diff from standard input is empty" in ended.stderr
    assert "the diff from standard input, which is empty" in ended.stdout
    assert "No changes to review" in ended.stdout
    quiet = codeloupe("review", "-q", "--preview", "--diff-file", "-", cwd=tmp_path, stdin=b"\n")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert "which is empty" in quiet.stdout


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    assert_refused(codeloupe("reveiw", cwd=tmp_path), "'reveiw' is not a command", "'review'")


def test_an_option_that_does_not_exist(tmp_path: Path) -> None:
    assert_refused(codeloupe("review", "--stagd", cwd=tmp_path), "--stagd", "--staged")


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
    assert_refused(ended, "git does not answer what codeloupe asks about", "git 2.31 or newer")


@each("verb", [["review"], ["history", "list"], ["config", "show"], ["baseline", "list"]])
def test_a_directory_that_was_removed_below_the_program(tmp_path: Path, verb: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # The shell stands in the directory, removes it, and becomes the program.
    words = [
        "sh",
        "-c",
        'rmdir "$1"; shift; exec "$@"',
        "sh",
        str(gone),
        sys.executable,
        "-P",
        "-m",
        "codeloupe",
        *verb,
    ]
    ended = subprocess.run(words, cwd=gone, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("codeloupe: ")
    assert "hint: " in ended.stderr
    assert "internal error" not in ended.stderr
