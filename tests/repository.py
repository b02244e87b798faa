"""A real git repository for tests, the same on every machine."""

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

_FIRST_COMMIT_SECONDS = 1_700_000_000
_SECONDS_BETWEEN_COMMITS = 60
_SETTINGS = {
    "user.name": "Ada Example",
    "user.email": "ada@example.invalid",
    "commit.gpgSign": "false",
    "core.fsync": "none",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.file.allow": "always",
    "advice.detachedHead": "false",
}
_OBJECT_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# What git made of an empty directory, by the name of the branch: the content of each file, and None for a folder. The
# next repository gets the same without a start of git.
_Content = dict[str, bytes | None]
_EMPTY: dict[str, _Content] = {}


def _read_below(path: Path) -> _Content:
    found = sorted((path / ".git").rglob("*"))
    return {str(file.relative_to(path)): None if file.is_dir() else file.read_bytes() for file in found}


def _write_below(path: Path, content: _Content) -> None:
    (path / ".git").mkdir()
    for name, data in content.items():
        if data is None:
            (path / name).mkdir()
        else:
            (path / name).write_bytes(data)


class GitRepository:
    """A repository at `path`, driven by the real git with a fixed identity, fixed dates and a clean environment.

    The same calls give the same object names everywhere. Each commit is one minute after the one before it.
    Paths may hold any bytes, as `str` with surrogate escapes. A git command that fails fails the
    test with git's own words.
    """

    def __init__(self, path: Path, *, branch: str = "main") -> None:
        """Make the directory and an empty repository in it, without git's template of sample hooks."""
        self.path = path
        self._commits = 0
        path.mkdir(parents=True, exist_ok=True)
        is_new = not os.path.lexists(path / ".git")
        if is_new and branch in _EMPTY:
            _write_below(path, _EMPTY[branch])
            return
        self.git("init", "--quiet", "--template=", f"--initial-branch={branch}")
        if is_new:
            _EMPTY[branch] = _read_below(path)

    def copied_to(self, path: Path) -> Self:
        """The same repository in another place, with its history and its working tree: faster than to make it anew."""
        shutil.copytree(self.path, path, symlinks=True)
        twin = copy.copy(self)
        twin.path = path
        return twin

    def git(self, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes:
        """Run git in the repository and return what it printed, as bytes."""
        completed = subprocess.run(
            ("git", *arguments), cwd=self.path, env=self._environment(), input=stdin, capture_output=True, check=False
        )
        if completed.returncode and not may_fail:
            words = completed.stderr.decode("utf-8", "replace")
            raise AssertionError(f"git {' '.join(arguments)} ended with {completed.returncode}: {words}")
        return completed.stdout

    def write(self, name: str, content: str | bytes, *, executable: bool = False) -> Path:
        """Write a file of the working tree, with the directories above it. Text is written as UTF-8, as it is."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
        if executable:
            file.chmod(0o755)
        return file

    def remove(self, name: str) -> None:
        """Remove a file of the working tree."""
        (self.path / name).unlink()

    def commit(self, message: str = "change") -> str:
        """Commit the whole working tree (ignored files left out), or nothing, and return the commit's full name."""
        self.git("add", "--all")
        return self.commit_staged(message)

    def commit_files(
        self, files: Mapping[str, str | bytes], message: str = "change", *, branch: str | None = None
    ) -> str:
        """Write files and commit the whole working tree, on a new branch if one is named."""
        if branch is not None:
            self.checkout(branch, new=True)
        for name, content in files.items():
            self.write(name, content)
        return self.commit(message)

    def commit_staged(self, message: str = "change") -> str:
        """Commit the index as it is and return the commit's full name."""
        self.git(
            "commit",
            "--quiet",
            "--allow-empty",
            "--allow-empty-message",
            "--no-verify",
            "-F",
            "-",
            stdin=message.encode(),
        )
        self._commits += 1
        return self.head()

    def head(self) -> str:
        """The full name of the commit that is checked out."""
        return self._loose_head() or self.git("rev-parse", "HEAD").decode().strip()

    def _loose_head(self) -> str | None:
        """The same without git, where it stands in files of the usual kind."""
        try:
            head = (self.path / ".git" / "HEAD").read_text(encoding="utf-8", errors="surrogateescape").strip()
            ref = head.removeprefix("ref: ")
            name = head if ref == head else (self.path / ".git" / ref).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        return name if _OBJECT_NAME.fullmatch(name) else None

    def branch(self, name: str, start: str = "HEAD") -> None:
        """Make a branch without checking it out."""
        self.git("branch", name, start)

    def checkout(self, name: str, *, new: bool = False) -> None:
        """Check out a branch or a commit; `new` makes the branch at the current commit first."""
        self.git("checkout", "--quiet", *(["-b"] if new else []), name)

    def _environment(self) -> dict[str, str]:
        when = f"{_FIRST_COMMIT_SECONDS + self._commits * _SECONDS_BETWEEN_COMMITS} +0000"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.devnull,
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_DATE": when,
            "GIT_COMMITTER_DATE": when,
            "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
        }
        for index, (name, value) in enumerate(_SETTINGS.items()):
            environment |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        return environment
