"""The folder that git runs the hooks of a repository from."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.git.command import ENVIRONMENT, failure, git_for_user, try_git
from codeloupe.git.repository import Repository, open_repository


class HooksFolder(Struct, frozen=True, kw_only=True):
    """The folder that git runs hooks from.

    `named` is its path as git has it, and `path` the same without symbolic links. `scope` is the level of the
    configuration that sets core.hooksPath, such as `local` or `global`; empty for git's own folder. A folder in the
    work tree is part of what people commit, unless git ignores it.
    """

    named: Path
    path: Path
    root: Path
    scope: str = ""
    is_shared_by_worktrees: bool = False
    is_in_work_tree: bool = False
    is_ignored: bool = False


async def find_hooks_folder(start: Path) -> HooksFolder:
    """Return the folder for the repository that holds `start`. Raise NotARepository, or UsageError without hooks."""
    repository = await open_repository(start)
    scope, value = await _hooks_path(repository)
    named = repository.common_dir / "hooks"
    if scope:
        # Git runs hooks at the root of the work tree, which a relative path is relative to.
        named = repository.root / value
    if (scope and not value) or (os.path.lexists(named) and not named.is_dir()):
        message = f"git runs no hooks here: core.hooksPath ({scope}) is {value!r}, which is not a folder"
        raise UsageError(message, hint=f"run `git config --{scope or 'local'} --unset core.hooksPath` to enable hooks")
    path = named.resolve()
    is_in_work_tree = _is_in_work_tree(path, repository)
    return HooksFolder(
        named=named,
        path=path,
        root=repository.root,
        scope=scope,
        is_shared_by_worktrees=not scope and repository.git_dir.resolve() != repository.common_dir.resolve(),
        is_in_work_tree=is_in_work_tree,
        is_ignored=is_in_work_tree and await _is_ignored(path / "pre-commit", repository),
    )


async def _hooks_path(repository: Repository) -> tuple[str, str]:
    """Return the scope and the value of core.hooksPath that git uses; both empty if it is not set."""
    question = ("config", "--null", "--show-scope", "--type=path", "--get-all", "core.hooksPath")
    answered = await git_for_user(repository.place, *question)
    if answered.exit_code not in (0, 1):
        raise failure("config", answered)
    words = os.fsdecode(answered.stdout).split("\0")
    pairs = list(zip(words[0::2], words[1::2], strict=False))
    # On the command line is our own value, which keeps hooks from running in commands of ours.
    configured = [pair for pair in pairs if pair[0] != "command"]
    return configured[-1] if configured else ("", "")


def _is_in_work_tree(path: Path, repository: Repository) -> bool:
    inner = (repository.git_dir.resolve(), repository.common_dir.resolve())
    if any(path.is_relative_to(folder) for folder in inner):
        return False
    return path.is_relative_to(repository.root.resolve())


async def _is_ignored(path: Path, repository: Repository) -> bool:
    # This command refuses paths that are taken literally.
    environment = {**ENVIRONMENT, "GIT_LITERAL_PATHSPECS": "0"}
    question = ("check-ignore", "--quiet", str(path))
    answered = await try_git(repository.place, *question, environment=environment)
    return answered.exit_code == 0
