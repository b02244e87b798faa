import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import GitFailed, NotARepository, ProgramNotFound, RevisionError
from codeloupe.git.command import Place, failure, git_for_user, git_version, try_git
from codeloupe.git.objects import read_blobs
from codeloupe.git.repository import (
    BaseBranch,
    Head,
    Repository,
    comparison_settings,
    find_base_branch,
    merge_base,
    open_repository,
    read_file_at,
    read_head,
    resolve,
)
from codeloupe.system.process import Completed
from tests.repository import GitRepository
from tests.rows import each


def _open(path: Path) -> Repository:
    return asyncio.run(open_repository(path))


def _resolve(repository: GitRepository, revision: str) -> str:
    return asyncio.run(resolve(_open(repository.path), revision))


def _base(repository: GitRepository, configured: str | None = None) -> BaseBranch | None:
    return asyncio.run(find_base_branch(_open(repository.path), configured))


@pytest.fixture
def committed(repository: GitRepository) -> GitRepository:
    repository.commit_files({"folder/a.txt": "content\n"}, "first")
    return repository


@pytest.mark.program
def test_a_path_with_a_line_break_is_refused_in_words(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "two\nlines")
    with pytest.raises(NotARepository, match="contains a line break"):
        _open(repository.path)


def test_a_linked_worktree_has_its_own_index_and_the_common_objects(committed: GitRepository, tmp_path: Path) -> None:
    committed.git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "linked"))
    opened = _open(tmp_path / "linked")
    assert opened.root == tmp_path / "linked"
    assert opened.index == committed.path / ".git" / "worktrees" / "linked" / "index"
    assert opened.objects == committed.path / ".git" / "objects"
    assert asyncio.run(read_head(opened)) == Head(committed.head(), "other")


@pytest.mark.program
def test_a_bare_repository_is_refused_with_a_way_out(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copytree(GitRepository(tmp_path / "start").path / ".git", bare, dirs_exist_ok=True)
    inside = tmp_path / "start" / ".git"
    for start in (bare, bare / "refs" / "heads", inside, inside / "objects"):
        with pytest.raises(NotARepository, match="bare repository") as caught:
            _open(start)
        assert "clone it" in caught.value.hint


def test_a_start_that_is_no_directory_or_in_no_repository_is_refused(committed: GitRepository, tmp_path: Path) -> None:
    with pytest.raises(NotARepository, match="is not inside a git repository") as caught:
        _open(tmp_path)
    assert "DiffScope" in caught.value.hint
    committed.git("config", "core.repositoryFormatVersion", "1")
    committed.git("config", "extensions.fromTheFuture", "true")
    with pytest.raises(NotARepository, match="fromthefuture"):
        _open(committed.path)
    for start in ("nothing", "folder/a.txt", "folder/a.txt/below", "nul\0byte"):
        with pytest.raises(NotARepository, match="is not a directory"):
            _open(committed.path / start)


@pytest.mark.program
@each("content", ["", "gitdir: nowhere\n", "gitdir: ../start/.git/objects\n", "\0\n"])
def test_a_git_file_that_leads_nowhere_is_refused_in_gits_words(tmp_path: Path, content: str) -> None:
    GitRepository(tmp_path / "start")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".git").write_text(content)
    with pytest.raises(NotARepository, match="has a .git that git cannot read: .*fatal: "):
        _open(broken)


@pytest.mark.parametrize(
    "revision", ["main", "HEAD", "@", "refs/heads/main", "annotated", "annotated^{}", "light", "HEAD^0", "@{0}"]
)
def test_every_usual_name_gives_the_commit(committed: GitRepository, revision: str) -> None:
    committed.git("tag", "-a", "-m", "a tag", "annotated")
    committed.git("tag", "light")
    assert _resolve(committed, revision) == committed.head()
    assert _resolve(committed, committed.head()[:7]) == committed.head()


@pytest.mark.parametrize(
    ("revision", "words"),
    [
        ("no-such-name", "unknown"),
        ("0" * 40, "unknown"),
        ("f" * 40, "unknown"),
        ("HEAD~5", "unknown"),
        ("main..HEAD", "unknown"),
        ("^main", "unknown"),
        ("HEAD:folder/a.txt", "unknown"),
        ("a b\nc", "unknown"),
        ("", "is not a revision"),
        ("nul\0byte", "is not a revision"),
        ("-x", "begins with a dash"),
        ("--all", "begins with a dash"),
        ("--output=sprung", "begins with a dash"),
    ],
)
def test_what_is_no_commit_is_refused_in_words(committed: GitRepository, revision: str, words: str) -> None:
    with pytest.raises(RevisionError, match=words) as caught:
        _resolve(committed, revision)
    assert caught.value.hint
    assert not list(committed.path.rglob("sprung"))
    for name, kind in (("HEAD^{tree}", "tree"), ("HEAD:folder/a.txt", "blob")):
        with pytest.raises(RevisionError, match=f"is a {kind}, not a commit"):
            _resolve(committed, committed.git("rev-parse", name).decode().strip())


def test_a_name_that_a_branch_and_a_tag_have_is_ambiguous_whatever_the_configuration(committed: GitRepository) -> None:
    committed.branch("same")
    committed.git("tag", "same")
    committed.git("config", "core.warnAmbiguousRefs", "false")
    with pytest.raises(RevisionError, match="ambiguous") as caught:
        _resolve(committed, "same")
    assert "refs/tags/NAME" in caught.value.hint
    assert _resolve(committed, "refs/heads/same") == committed.head()


def test_head_before_the_first_commit_is_an_error_that_names_the_scopes_that_work(repository: GitRepository) -> None:
    with pytest.raises(NotARepository, match="no commits yet") as caught:
        _resolve(repository, "HEAD")
    assert "StagedScope()" in caught.value.hint
    assert asyncio.run(read_head(_open(repository.path))) == Head(None, None)


def test_a_head_whose_commit_is_gone_is_damage_and_not_a_new_repository(committed: GitRepository) -> None:
    sha = committed.head()
    (committed.path / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    with pytest.raises(GitFailed):
        asyncio.run(read_head(_open(committed.path)))


def test_damaged_history_is_not_taken_for_unrelated_history(committed: GitRepository) -> None:
    first = committed.head()
    second, third = committed.commit("second"), committed.commit("third")
    committed.git("checkout", "--quiet", "--detach", first)
    other = committed.commit("other")
    (committed.path / ".git" / "objects" / second[:2] / second[2:]).unlink()
    with pytest.raises(GitFailed, match="merge-base"):
        asyncio.run(merge_base(_open(committed.path), third, other))


def test_the_base_branch_is_the_one_that_origin_names(committed: GitRepository) -> None:
    sha = committed.head()
    committed.commit("ahead")
    committed.git("update-ref", "refs/remotes/origin/trunk", sha)
    committed.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert _base(committed) == BaseBranch("origin/trunk", sha, checked_out=False)
    committed.checkout("trunk", new=True)
    assert _base(committed) == BaseBranch("origin/trunk", sha, checked_out=True)


@pytest.mark.parametrize("target", ["refs/remotes/origin/gone", "refs/heads/gone"])
def test_an_origin_head_that_leads_nowhere_is_passed_over(committed: GitRepository, target: str) -> None:
    committed.git("symbolic-ref", "refs/remotes/origin/HEAD", target)
    (committed.path / ".git" / "refs" / "heads" / "develop").write_text("damaged\n")
    assert _base(committed) == BaseBranch("main", committed.head(), checked_out=True)


@pytest.mark.program
@each(
    ("refs", "expected"),
    [
        (["heads/develop", "heads/master", "heads/main"], "main"),
        (["heads/develop", "heads/master", "remotes/origin/main"], "origin/main"),
        (["heads/develop", "heads/master"], "master"),
        (["heads/develop", "remotes/origin/master"], "origin/master"),
        (["heads/develop"], "develop"),
        (["remotes/origin/develop"], "origin/develop"),
        (["heads/main/sub", "heads/mainly", "remotes/upstream/main", "tags/main"], None),
    ],
)
def test_without_origin_the_usual_names_are_tried_in_order(
    tmp_path: Path, refs: list[str], expected: str | None
) -> None:
    repository = GitRepository(tmp_path / "repository", branch="feature")
    sha = repository.commit()
    for ref in refs:
        repository.git("update-ref", f"refs/{ref}", sha)
    found = _base(repository)
    assert (found.name if found else None) == expected


def test_a_configured_base_branch_comes_first_and_may_be_origins_alone(committed: GitRepository) -> None:
    sha = committed.head()
    committed.branch("next")
    committed.git("update-ref", "refs/remotes/origin/release/1.0", sha)
    assert _base(committed, "next") == BaseBranch("next", sha, checked_out=False)
    assert _base(committed, "release/1.0") == BaseBranch("origin/release/1.0", sha, checked_out=False)
    assert _base(committed, "main") == BaseBranch("main", sha, checked_out=True)
    assert _base(committed, "origin/release/1.0") == BaseBranch("origin/release/1.0", sha, checked_out=False)
    for missing in ("not-there", "-x", "", "a b", "ma*"):
        with pytest.raises(RevisionError):
            _base(committed, missing)


def test_only_harmless_settings_for_comparing_are_taken_over(
    committed: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["HOME"])
    (home / "more").write_text("[core]\n\tautocrlf = input\n\texcludesFile = ~/ignored-by-me\n")
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n[core]\n\tsymlinks\n\tfsmonitor = /bin/false\n")
    for name, value in {
        "core.fileMode": "off",
        "core.excludesFile": "/from/the/repository",
        "core.eol": "something else",
        "core.ignoreCase": "true",
        "core.trustctime": "false",
        "core.fsmonitor": "/bin/false",
    }.items():
        committed.git("config", name, value)

    assert set(asyncio.run(comparison_settings(_open(committed.path)))) == {
        "core.autocrlf=input",
        "core.symlinks=true",
        "core.filemode=off",
        "core.ignorecase=false",
        f"core.excludesfile={home}/ignored-by-me",
    }


def _file_at(path: Path, revision: str, name: str) -> bytes | None:
    async def go() -> bytes | None:
        return await read_file_at(await open_repository(path), revision, name)

    return asyncio.run(go())


@pytest.mark.parametrize("name", ["gone.yaml", "folder", "link.yaml", "module", "*.yaml", "code", "CODELOUPE.YAML"])
def test_what_is_no_regular_file_of_that_name_counts_as_none(repository: GitRepository, name: str) -> None:
    sha = repository.commit()
    repository.write("codeloupe.yaml", "a: 1\n")
    repository.write("folder/codeloupe.yaml", "a: 1\n")
    (repository.path / "link.yaml").symlink_to("codeloupe.yaml")
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{sha},module")
    assert _file_at(repository.path, repository.commit_staged(), name) is None


def test_blobs_are_read_byte_for_byte_as_many_as_have_room(repository: GitRepository) -> None:
    contents = {"a": b"x\n", "b": b"", "c": b"\0\n\xff" * 100, "d": b"y" * 50}
    repository.commit_files(contents)
    blobs = {name: repository.git("rev-parse", f"HEAD:{name}").decode().strip() for name in contents}
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()

    async def read(*names: str, max_bytes: int = 10_000) -> dict[str, bytes]:
        return await read_blobs(await open_repository(repository.path), names, max_bytes=max_bytes)

    everything = {blobs[name]: content for name, content in contents.items()}
    assert asyncio.run(read(*blobs.values(), *blobs.values())) == everything
    # What is not here, and what is no blob, is not there.
    assert asyncio.run(read("0" * 39 + "1", tree, blobs["a"])) == {blobs["a"]: b"x\n"}
    assert asyncio.run(read()) == {}
    few = asyncio.run(read(*blobs.values(), max_bytes=60))
    assert set(few) == {blobs["a"], blobs["b"], blobs["d"]}


_PROGRAMS = ("EXTERNAL_DIFF", "PAGER", "SSH_COMMAND", "PROXY_COMMAND", "ASKPASS", "CONFIG_VALUE_0", "TRACE", "DIR")
_PLACES = ("WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "EXEC_PATH")
_OF_THE_USER = {
    **{f"GIT_{name}": f"/elsewhere/{name}" for name in (*_PROGRAMS, *_PLACES)},
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_ALLOW_PROTOCOL": "ext:file:https",
    "GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='/elsewhere/program'",
    "GIT_DIFF_OPTS": "--unified=0",
    "LD_PRELOAD": "",
    "API_KEY": "not for git",
}


@pytest.mark.program
@each("ask", [try_git, git_for_user])
def test_no_variable_of_the_user_reaches_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\nenv -0 > "$0.environment"\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in _OF_THE_USER.items():
        monkeypatch.setenv(name, value)

    asyncio.run(ask(Place(tmp_path), "status"))

    entries = (tmp_path / "git.environment").read_text().split("\0")
    seen = dict(entry.split("=", 1) for entry in entries if entry)
    assert not [name for name, value in seen.items() if value == _OF_THE_USER.get(name) or "elsewhere" in value]
    assert (seen["GIT_DIR"], seen["GIT_ALLOW_PROTOCOL"], seen["GIT_TERMINAL_PROMPT"]) == (str(tmp_path), "none", "0")
    assert not {"GIT_WORK_TREE", "GIT_INDEX_FILE"} & set(seen)
    # A question for the user's settings sees the home, and nothing else of the user.
    assert (seen["HOME"] == str(tmp_path / "home")) is (ask is git_for_user)
    assert seen.get("GIT_CONFIG_GLOBAL") == (None if ask is git_for_user else "/dev/null")


@each(
    ("words", "message", "hint"),
    [
        ("", "no message", "git fsck"),
        ("warning: x\nfatal: it broke\nusage: y\n", "fatal: it broke", "git fsck"),
        ("fatal: not known:\n\tone\n\ttwo\nusage: y\n", "fatal: not known: one two", "git fsck"),
        ("it broke\nbadly\n", "badly", "git fsck"),
        ('error: open("x"): Permission denied\n', "Permission denied", "readable"),
        ("error: bad signature 0x00\nfatal: index file corrupt\n", "error: bad signature", "git reset"),
        ("fatal: unable to read tree 1234\n", "unable to read tree", "git fetch --refetch"),
    ],
)
def test_a_failure_is_told_in_one_line_with_a_hint(words: str, message: str, hint: str) -> None:
    error = failure("diff", Completed(128, b"", words, 0.0))
    assert message in error.message
    assert "\n" not in error.message
    assert hint in error.hint
    assert error.stderr == words


def test_without_git_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramNotFound, match="git is not on the PATH") as caught:
        asyncio.run(git_version())
    assert "install git" in caught.value.hint
