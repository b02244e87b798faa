"""The repository that tests work with is real, and the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository import GitRepository


def test_the_same_calls_give_the_same_object_names(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    monkeypatch.setenv("GIT_DIR", "elsewhere")
    repository.write("a.txt", "one\n")
    assert repository.commit("first") == "e9a3d97451c3e8a16261070039c4d69272f8a66d"


def test_commits_are_a_minute_apart(repository: GitRepository) -> None:
    for name in ("a", "b"):
        repository.write(name, name)
        repository.commit(name)
    assert repository.git("log", "--format=%at %an").splitlines() == [
        b"1700000060 Ada Example",
        b"1700000000 Ada Example",
    ]


def test_files_are_written_as_they_are_and_removed(repository: GitRepository) -> None:
    repository.write("deep/er/\udcff\n.bin", b"\r\n\x00")
    repository.write("tool", "é", executable=True)
    repository.commit()
    assert repository.git("ls-files", "-z", "--stage").count(b"100755") == 1
    assert repository.git("show", "HEAD:tool") == "é".encode()
    repository.remove("tool")
    repository.commit()
    assert repository.git("ls-files", "-z") == b"deep/er/\xff\n.bin\0"


def test_branches_are_made_and_checked_out(repository: GitRepository) -> None:
    first = repository.commit("first")
    repository.checkout("topic", new=True)
    second = repository.commit("second")
    repository.branch("other", first)
    repository.checkout("other")
    assert repository.head() == first != second
    assert repository.git("rev-parse", "topic").decode().strip() == second


def test_what_is_staged_can_be_committed_alone(repository: GitRepository) -> None:
    repository.write("staged", "x")
    repository.git("add", "staged")
    repository.write("unstaged", "x")
    repository.commit_staged("half")
    assert repository.git("ls-tree", "--name-only", "HEAD") == b"staged\n"


def test_a_git_command_that_fails_fails_the_test_with_its_words(repository: GitRepository) -> None:
    with pytest.raises(AssertionError, match="git rev-parse --verify nothing ended with 128: fatal: Needed"):
        repository.git("rev-parse", "--verify", "nothing")
    assert repository.git("rev-parse", "--verify", "nothing", may_fail=True) == b""


def test_no_sample_hooks_are_there(tmp_path: Path) -> None:
    GitRepository(tmp_path / "fresh", branch="trunk")
    assert not (tmp_path / "fresh" / ".git" / "hooks").exists()
    assert (tmp_path / "fresh" / ".git" / "HEAD").read_text() == "ref: refs/heads/trunk\n"
