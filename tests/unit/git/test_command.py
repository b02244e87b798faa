from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import GitFailed, ProgramNotFound
from codeloupe.git.command import Place, both, failure, git, git_for_user, git_version, try_git
from codeloupe.system.process import Completed
from tests.repository import GitRepository
from tests.rows import each

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


def _stand_in(folder: Path) -> Path:
    """A program named git that writes down its environment and arguments instead of working."""
    folder.mkdir()
    program = folder / "git"
    program.write_text('#!/bin/sh\nenv -0 > "$0.environment"\nprintf "%s\\n" "$@" > "$0.arguments"\n')
    program.chmod(0o755)
    return program


def _variables(program: Path) -> dict[str, str]:
    entries = program.with_name("git.environment").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


@pytest.mark.program
@each("ask", [try_git, git_for_user])
def test_no_variable_of_the_user_reaches_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    program = _stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in _OF_THE_USER.items():
        monkeypatch.setenv(name, value)

    asyncio.run(ask(Place(tmp_path), "status"))

    seen = _variables(program)
    assert not [name for name, value in seen.items() if value == _OF_THE_USER.get(name) or "elsewhere" in value]
    assert (seen["GIT_DIR"], seen["GIT_ALLOW_PROTOCOL"], seen["GIT_TERMINAL_PROMPT"]) == (str(tmp_path), "none", "0")
    assert not {"GIT_WORK_TREE", "GIT_INDEX_FILE"} & set(seen)
    # A question for the user's settings sees the home, and nothing else of the user.
    assert (seen["HOME"] == str(tmp_path / "home")) is (ask is git_for_user)
    assert seen.get("GIT_CONFIG_GLOBAL") == (None if ask is git_for_user else "/dev/null")


@pytest.mark.program
def test_git_is_told_its_place_and_the_settings_of_that_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    place = Place(tmp_path, work_tree=tmp_path / "bin", index_file=tmp_path / "index", settings=("core.eol=lf",))

    asyncio.run(try_git(place, "status"))

    seen = _variables(program)
    assert (seen["GIT_WORK_TREE"], seen["GIT_INDEX_FILE"]) == (str(tmp_path / "bin"), str(tmp_path / "index"))
    assert seen["PWD"] == str(tmp_path / "bin")
    arguments = program.with_name("git.arguments").read_text().splitlines()
    assert arguments[arguments.index("core.eol=lf") - 1] == "-c"
    assert "core.fsmonitor=false" in arguments
    assert arguments[-1] == "status"


def test_a_failure_speaks_in_gits_own_words(repository: GitRepository) -> None:
    with pytest.raises(GitFailed, match=r"git cat-file failed \(exit 128\): fatal: Not a valid object name") as caught:
        asyncio.run(git(Place(repository.path / ".git"), "cat-file", "blob", "no-such-name"))
    assert caught.value.status == 128
    assert caught.value.hint


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


def test_a_git_that_lies_in_the_reviewed_tree_is_not_started(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = repository.write("git", "#!/bin/sh\ntouch sprung\n", executable=True)
    assert trap.stat().st_mode & stat.S_IXUSR
    monkeypatch.chdir(repository.path)
    monkeypatch.setenv("PATH", ":.:/usr/bin:/bin")

    asyncio.run(git(Place(repository.path / ".git", work_tree=repository.path), "rev-parse", "--git-dir"))

    assert not (repository.path / "sprung").exists()


@each("slow_first", [True, False])
def test_when_one_of_two_things_fails_the_other_has_ended_before_the_error_is_raised(*, slow_first: bool) -> None:
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise GitFailed("broken", program="git", exit_code=1)

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("waiting")

    async def run_both() -> None:
        first, second = (wait(), fail()) if slow_first else (fail(), wait())
        try:
            await both(first, second)
        except GitFailed:
            ended.append("error seen")

    asyncio.run(run_both())
    assert ended == ["waiting", "error seen"]
