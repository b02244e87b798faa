"""`codeloupe hook` in real hooks of git, before real pushes and commits, and as pre-commit starts it."""

import subprocess
from pathlib import Path

import pytest

from tests.hidden_material import LINE, TOKEN
from tests.program import PROGRAM
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"
CLEAN = "def total(prices):\n    return sum(prices)\n"
OFFLINE = ("--reviewer", "offline")

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


def test_pre_commit_gets_what_it_asked_for_and_no_pass_for_nothing(project: GitRepository) -> None:
    branch(project, "feat", FAULTY)
    refs = {"PRE_COMMIT": "1", "PRE_COMMIT_FROM_REF": "main", "PRE_COMMIT_TO_REF": "feat"}
    project.checkout("main")
    for kind in ("pre-commit", "pre-push"):
        assert codeloupe("hook", kind, *OFFLINE, cwd=project.path, environment=refs).exit_code == 1
        ended = codeloupe("hook", kind, *OFFLINE, cwd=project.path, environment={"PRE_COMMIT": "1"})
        assert ended.exit_code == 2
        assert "nothing was reviewed" in ended.stderr
    first = {"PRE_COMMIT": "1", "PRE_COMMIT_REMOTE_NAME": "elsewhere", "PRE_COMMIT_LOCAL_BRANCH": "refs/heads/feat"}
    assert codeloupe("hook", "pre-push", *OFFLINE, cwd=project.path, environment=first).exit_code == 1
