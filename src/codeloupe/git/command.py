"""The one wrapper around the git program: hardened environment and flags on every call.

Two layers keep a hostile repository from running anything. The flags and variables below switch off what they
can. What flags cannot switch off (filters, whose names the attacker picks; textconv; a redirected work tree)
is kept out by the engine of repository.py: content is only read through a repository of our own and its settings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import GitFailed, ProgramNotFound
from codeloupe.system.process import Command, Completed, find_program, inherited_environment
from codeloupe.system.process import run as run_program

_First = TypeVar("_First")
_Second = TypeVar("_Second")

MINIMUM_VERSION = (2, 31)
MAX_OUTPUT_BYTES = 2 * 1024**3
WANTED_VERSION = "git 2.31 or newer, and 2.38 for pipelines with parallel stages"

ENVIRONMENT: Mapping[str, str] = {
    **dict.fromkeys(("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "GIT_GRAFT_FILE"), "/dev/null"),
    **dict.fromkeys(("GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_NO_REPLACE_OBJECTS", "GIT_NO_LAZY_FETCH"), "1"),
    **dict.fromkeys(("GIT_ASKPASS", "GIT_EDITOR"), "/bin/false"),
    **dict.fromkeys(("GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"), "0"),
    "GIT_PAGER": "cat",
    "GIT_LITERAL_PATHSPECS": "1",
    "HOME": "/nonexistent",
    # Nothing is fetched by the way; a partial clone would otherwise fetch from wherever its configuration says.
    "GIT_ALLOW_PROTOCOL": "none",
}
_SETTINGS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.sshCommand=/bin/false", "credential.helper="),
    *("core.alternateRefsCommand=/bin/true", "core.attributesFile=/dev/null", "core.quotePath=true"),
    # A graph file beside the objects may claim other parents than the commits themselves.
    "core.commitGraph=false",
    # `resolve` refuses a name that two refs have; git says so only when this is on.
    "core.warnAmbiguousRefs=true",
    # Ownership is checked to keep hostile configuration from running; ours never runs it, and a container's
    # checkout often belongs to another user.
    *("safe.directory=*", "safe.bareRepository=explicit", "submodule.recurse=false"),
    *("log.showSignature=false", "gpg.program=/bin/false", "gc.auto=0", "maintenance.auto=false"),
)
DIFF_FLAGS = (
    *("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--diff-algorithm=histogram"),
    # `dirty` still shows that a submodule moved, and never starts git inside of it.
    *("--ignore-submodules=dirty", "--find-renames", "--no-relative"),
)
PATCH_FLAGS = (
    *DIFF_FLAGS,
    # An attribute or a NUL byte must not hide code.
    "--text",
    *("--patch", "--full-index", "--unified=3", "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/"),
)


class Place(Struct, frozen=True):
    """Where a git command works, and further `-c` values: ours, never unchecked from the reviewed repository."""

    git_dir: Path
    work_tree: Path | None = None
    index_file: Path | None = None
    settings: tuple[str, ...] = ()


async def git(place: Place, *arguments: str, stdin: bytes = b"", max_bytes: int | None = None) -> bytes:
    """Run git and return its output; raises GitFailed with git's own words when it ends badly."""
    completed = await try_git(place, *arguments, stdin=stdin, max_bytes=max_bytes)
    if completed.exit_code != 0:
        raise failure(arguments[0], completed)
    return completed.stdout


async def try_git(
    place: Place,
    *arguments: str,
    stdin: bytes = b"",
    max_bytes: int | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
    timeout_seconds: float = 300.0,
) -> Completed:
    """Run git and return how it ended, for callers to whom a failure is an answer. Raises OutputTooLarge."""
    command = git_command(place, *arguments, environment=environment, timeout_seconds=timeout_seconds)
    limited = replace(command, stdin=stdin, max_output_bytes=max_bytes or MAX_OUTPUT_BYTES)
    return await run_program(limited)


def git_command(
    place: Place,
    *arguments: str,
    environment: Mapping[str, str] = ENVIRONMENT,
    timeout_seconds: float = 300.0,
) -> Command:
    """Return the hardened command for a call of git. Raise ProgramNotFound."""
    settings = [word for value in (*_SETTINGS, *place.settings) for word in ("-c", value)]
    places = {"GIT_DIR": place.git_dir, "GIT_WORK_TREE": place.work_tree, "GIT_INDEX_FILE": place.index_file}
    variables = {name: str(path) for name, path in places.items() if path is not None}
    found = find_program("git")
    if found is None:
        raise ProgramNotFound("git is not on the PATH", program="git", hint=f"install {WANTED_VERSION}")
    return Command(
        argv=(found, "--no-pager", "--no-replace-objects", *settings, *arguments),
        cwd=place.work_tree or place.git_dir,
        environment=inherited_environment(**environment, **variables),
        timeout_seconds=timeout_seconds,
        max_output_bytes=MAX_OUTPUT_BYTES,
    )


async def git_for_user(place: Place, *arguments: str) -> Completed:
    """Run git with the user's own configuration beside the repository's, to ask for values; never to read content."""
    ours = {name: value for name, value in ENVIRONMENT.items() if name != "HOME" and not name.startswith("GIT_CONFIG_")}
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    theirs = {name: os.environ[name] for name in names if name in os.environ}
    return await try_git(place, *arguments, environment=ours | theirs)


async def both(first: Coroutine[Any, Any, _First], second: Coroutine[Any, Any, _Second]) -> tuple[_First, _Second]:
    """Do two things at once. When one fails the other is ended before the failure is raised."""
    one, other = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        from_one, from_other = await asyncio.gather(one, other)
        return from_one, from_other
    finally:
        one.cancel()
        other.cancel()
        await asyncio.gather(one, other, return_exceptions=True)


def failure(verb: str, completed: Completed) -> GitFailed:
    """An error in git's own words, with a hint where the cause is known."""
    stderr = completed.stderr
    lines = [line for line in stderr.splitlines() if line.strip()]
    # The line in which git gives up, with the indented ones below it, or else the last line.
    start = next((number for number, line in enumerate(lines) if line.startswith(("fatal:", "error:"))), len(lines) - 1)
    below = takewhile(lambda line: line[0].isspace(), lines[start + 1 :])
    words = " ".join(line.strip() for line in (*lines[start : start + 1], *below)) or "no message"
    if "Permission denied" in stderr:
        hint = "make the file readable for this user, or skip it with --exclude"
    elif any(sign in stderr for sign in ("unable to read", "bad object", "could not get object", "missing blob")):
        hint = "objects are missing: in a partial or shallow clone, fetch them first (git fetch --refetch --no-filter)"
    elif "index file" in stderr or "bad signature" in stderr:
        hint = "the index is damaged: run `git reset` to rebuild it"
    else:
        hint = "run `git fsck` to check the repository"
    message = f"git {verb} failed (exit {completed.exit_code}): {words}"
    return GitFailed(message, program="git", status=completed.exit_code, stderr=stderr, hint=hint)


async def git_version() -> str:
    """The version of git; raises ProgramNotFound without it."""
    completed = await try_git(Place(Path("/")), "--version")
    return completed.stdout.decode("utf-8", "replace").strip().removeprefix("git version ")
