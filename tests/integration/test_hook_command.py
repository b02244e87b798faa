"""`codeloupe hook` in real hooks of git, before real pushes and commits, and as pre-commit starts it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.ci_runner import PROJECT, read_yaml
from tests.hidden_material import LINE, TOKEN
from tests.program import PROGRAM
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"
CLEAN = "def total(prices):\n    return sum(prices)\n"
OFFLINE = ("--reviewer", "offline")
HOOKS = PROJECT / ".pre-commit-hooks.yaml"

pytestmark = pytest.mark.defect("T18")


@pytest.fixture
def project(repository: GitRepository, tmp_path: Path) -> GitRepository:
    """A repository with a remote that has main, and with both hooks."""
    subprocess.run(("git", "init", "--quiet", "--bare", str(tmp_path / "remote.git")), check=True)
    repository.commit_files({"README.md": "a shop\n"})
    repository.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repository.git("push", "--quiet", "origin", "main")
    hooks = repository.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for kind in ("pre-push", "pre-commit"):
        git_words = '"$@"' if kind == "pre-push" else ""
        hook = hooks / kind
        hook.write_text(f'#!/bin/sh\nexec "{PROGRAM}" hook {kind} {git_words} {" ".join(OFFLINE)}\n')
        hook.chmod(0o755)
    return repository


def branch(project: GitRepository, name: str, code: str) -> None:
    project.git("checkout", "--quiet", "-b", name, "main")
    project.commit_files({f"shop/{name}.py": code}, name)


def pushing(project: GitRepository, *words: str) -> subprocess.CompletedProcess[str]:
    environment = project._environment()
    words = ("git", "push", *words)
    return subprocess.run(words, cwd=project.path, env=environment, check=False, text=True, capture_output=True)


def push(project: GitRepository, *words: str) -> bool:
    """Whether a push went through, with the hook in place."""
    return pushing(project, *words).returncode == 0


def remote_refs(project: GitRepository) -> set[str]:
    rows = project.git("ls-remote", "origin").decode().splitlines()
    return {row.split("\t")[1] for row in rows if not row.endswith("HEAD")}


def test_what_is_pushed_is_reviewed_and_not_what_is_checked_out(project: GitRepository) -> None:
    branch(project, "feat", FAULTY)
    project.git("tag", "--annotate", "--message", "first", "v1")
    branch(project, "good", CLEAN)
    project.checkout("main")
    project.write("scratch.py", FAULTY)  # untracked, so no part of any push

    assert not push(project, "origin", "feat")
    assert not push(project, "origin", "v1")
    assert not push(project, "origin", "good", "feat")
    assert not push(project, "origin", "feat:refs/heads/other")
    assert remote_refs(project) == {"refs/heads/main"}
    assert push(project, "origin", "good")
    assert push(project, "origin", "--delete", "good")
    assert push(project, "origin", "main:refs/heads/again")
    assert remote_refs(project) == {"refs/heads/main", "refs/heads/again"}


def test_each_pushed_commit_is_searched_for_secrets_and_a_merge_too(project: GitRepository) -> None:
    def commit(text: str | None) -> None:
        project.write("shop/key.py", text) if text else project.remove("shop/key.py")
        project.commit("a key" if text else "no key")

    branch(project, "side", CLEAN)
    branch(project, "feat", CLEAN)
    commit(LINE)
    commit(None)
    branch(project, "merged", CLEAN)
    project.git("merge", "--no-commit", "--no-ff", "--quiet", "side")
    commit(LINE)
    commit(None)
    for name in ("feat", "merged"):
        shown = pushing(project, "origin", name).stdout
        assert "GitHub token" in shown
        assert TOKEN not in shown
    assert remote_refs(project) == {"refs/heads/main"}


def test_what_git_noted_of_a_remote_long_ago_is_not_believed(project: GitRepository) -> None:
    branch(project, "feat", FAULTY)
    project.git("push", "--quiet", "--no-verify", "origin", "feat")
    remote = project.git("remote", "get-url", "origin").decode().strip()
    subprocess.run(("git", "--git-dir", remote, "branch", "--quiet", "-D", "feat"), check=True)
    assert project.git("rev-parse", "origin/feat")
    assert not push(project, "origin", "feat")
    assert not push(project, "origin", "feat:refs/heads/other")
    assert remote_refs(project) == {"refs/heads/main"}


def test_a_forced_push_and_the_first_push_of_a_history_are_reviewed(project: GitRepository, tmp_path: Path) -> None:
    branch(project, "feat", CLEAN)
    assert push(project, "origin", "feat")
    project.write("shop/more.py", FAULTY)
    project.git("add", ".")
    project.git("commit", "--quiet", "--no-verify", "--amend", "--message", "again")
    assert not push(project, "--force", "origin", "feat")
    subprocess.run(("git", "init", "--quiet", "--bare", str(tmp_path / "empty.git")), check=True)
    project.git("remote", "add", "empty", str(tmp_path / "empty.git"))
    assert not push(project, "empty", "feat")
    assert push(project, "empty", "main")


def test_a_commit_is_reviewed_as_it_is_staged(project: GitRepository) -> None:
    project.checkout("work", new=True)
    project.write("shop/a.py", FAULTY)
    project.git("add", ".")
    assert project.git("commit", "--message", "faulty", may_fail=True) == b""
    assert project.git("log", "--format=%s", "main..").strip() == b""
    project.write("shop/a.py", CLEAN)
    project.git("add", ".")
    project.write("shop/a.py", FAULTY)  # in the working tree only
    project.git("commit", "--quiet", "--message", "clean")
    assert project.git("log", "--format=%s", "main..").strip() == b"clean"


def test_either_hook_reviews_the_refs_that_pre_commit_names(project: GitRepository) -> None:
    branch(project, "feat", FAULTY)
    refs = {"PRE_COMMIT": "1", "PRE_COMMIT_FROM_REF": "main", "PRE_COMMIT_TO_REF": "feat"}
    project.checkout("main")
    for kind in ("pre-commit", "pre-push"):
        assert codeloupe("hook", kind, *OFFLINE, cwd=project.path, environment=refs).exit_code == 1
    first = {"PRE_COMMIT": "1", "PRE_COMMIT_REMOTE_NAME": "elsewhere", "PRE_COMMIT_LOCAL_BRANCH": "refs/heads/feat"}
    assert codeloupe("hook", "pre-push", *OFFLINE, cwd=project.path, environment=first).exit_code == 1


@pytest.mark.defect("E1")
def test_a_hook_with_nothing_to_review_passes_and_says_so(project: GitRepository) -> None:
    project.git("commit", "--quiet", "--allow-empty", "--message", "empty")
    project.git("commit", "--quiet", "--amend", "--allow-empty", "--message", "another message")
    for kind, words in (
        ("pre-commit", "nothing to review: nothing is staged"),
        ("pre-push", "nothing to review: nothing is pushed and nothing is changed here"),
    ):
        ended = codeloupe("hook", kind, *OFFLINE, cwd=project.path, environment={"PRE_COMMIT": "1"})
        assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", f"codeloupe: {words}\n")


@pytest.mark.defect("E1")
def test_a_push_that_is_up_to_date_passes_whatever_the_working_tree_contains(project: GitRepository) -> None:
    assert push(project, "origin", "main")
    project.write("scratch.py", FAULTY)
    assert push(project, "origin", "main")


@pytest.mark.defect("E1")
def test_a_commit_of_named_or_all_tracked_files_is_not_an_empty_one(project: GitRepository) -> None:
    project.commit_files({"shop/a.py": CLEAN})
    project.write("shop/a.py", FAULTY)
    before = project.head()
    for words in (("--all",), ("shop/a.py",)):
        project.git("commit", "--quiet", "--message", "faulty", *words, may_fail=True)
        assert project.head() == before
    project.git("checkout", "--quiet", "shop/a.py")
    project.git("update-index", "--add", "--cacheinfo", f"160000,{before},library")
    ended = codeloupe("hook", "pre-commit", *OFFLINE, cwd=project.path)
    assert "nothing is staged" not in ended.stderr


def configure_pre_commit(repository: GitRepository, *names: str) -> None:
    """Commit a configuration with these of our hooks, as we declare them but for the installation."""
    hooks = [{**hook, "language": "system"} for hook in read_yaml(HOOKS) if hook["id"] in names]
    assert len(hooks) == len(names)
    configuration = {"repos": [{"repo": "local", "hooks": hooks}]}
    repository.commit_files({".pre-commit-config.yaml": json.dumps(configuration), "README.md": "a shop\n"})


def pre_commit(repository: GitRepository, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the real pre-commit, with the program under test on the PATH."""
    return _with_program(repository, str(PROGRAM.with_name("pre-commit")), *words)


def _with_program(repository: GitRepository, *words: str) -> subprocess.CompletedProcess[str]:
    places = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
    environment = {**os.environ, **repository._environment(), **places}
    return subprocess.run(words, cwd=repository.path, env=environment, check=False, text=True, capture_output=True)


@pytest.mark.defect("E1")
def test_pre_commit_on_all_files_of_a_clean_tree_passes(repository: GitRepository) -> None:
    configure_pre_commit(repository, "codeloupe-staged", "codeloupe")
    clean = pre_commit(repository, "run", "--all-files", "--verbose")
    assert clean.returncode == 0, clean.stdout
    assert "codeloupe: nothing to review: nothing is staged" in clean.stdout
    assert "codeloupe: nothing to review: nothing is pushed and nothing is changed here" in clean.stdout
    repository.write("shop.py", FAULTY)
    repository.git("add", "shop.py")
    assert pre_commit(repository, "run", "codeloupe-staged", "--all-files").returncode == 1


@pytest.mark.defect("E2")
def test_pre_commit_reviews_the_range_between_two_refs(repository: GitRepository) -> None:
    configure_pre_commit(repository, "codeloupe")
    branch(repository, "feat", FAULTY)
    branch(repository, "good", CLEAN)
    repository.checkout("main")
    faulty = pre_commit(repository, "run", "codeloupe", "--from-ref", "main", "--to-ref", "feat")
    assert (faulty.returncode, "shop/feat.py:5" in faulty.stdout) == (1, True), faulty.stdout
    clean = pre_commit(repository, "run", "codeloupe", "--from-ref", "main", "--to-ref", "good", "--verbose")
    assert (clean.returncode, "1 file" in clean.stdout) == (0, True), clean.stdout


@pytest.mark.defect("E2")
def test_the_hook_for_pushes_lets_commits_pass_and_reviews_the_branch_by_hand(repository: GitRepository) -> None:
    configure_pre_commit(repository, "codeloupe")
    branch(repository, "feat", FAULTY)
    assert pre_commit(repository, "install", "--hook-type", "pre-commit").returncode == 0
    repository.write("shop/more.py", CLEAN)
    repository.git("add", "shop/more.py")
    committed = _with_program(repository, "git", "commit", "--message", "more")
    assert committed.returncode == 0, committed.stderr
    for stage in ("pre-commit", "manual", "pre-push"):
        by_hand = pre_commit(repository, "run", "codeloupe", "--hook-stage", stage)
        assert (by_hand.returncode, "shop/feat.py:5" in by_hand.stdout) == (1, True), by_hand.stdout
