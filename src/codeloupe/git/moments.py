"""How far a line of a change has got: only in the working tree, staged, committed, or pushed to a remote."""

from __future__ import annotations

from codeloupe.errors import CodeloupeError
from codeloupe.git.blobs import read_file_at
from codeloupe.git.command import try_git
from codeloupe.git.repository import Repository
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import Moment, ScopeKind
from codeloupe.model.ports import MomentOf

_MOST_BRANCHES = 10
_REMOTE = ("for-each-ref", "--sort=-committerdate", "--format=%(objectname)")


def moments_in(repository: Repository, sides: Sides) -> MomentOf:
    """Tells how far a line of the new side has got. UNKNOWN where git does not say; never raises for that."""

    async def moment_of(file: str, line: bytes) -> Moment:
        if sides.scope.kind is ScopeKind.PULL_REQUEST:
            return Moment.PUSHED
        try:
            return await _moment(repository, sides, file, line)
        except (CodeloupeError, OSError, ValueError):  # it only chooses the words of an advice
            return Moment.UNKNOWN

    return moment_of


async def _moment(repository: Repository, sides: Sides, file: str, line: bytes) -> Moment:
    if sides.side is not Side.COMMIT and not await _holds(repository, "HEAD", file, line):
        return Moment.STAGED if sides.side is Side.INDEX else Moment.UNCOMMITTED
    if sides.head is not None and await _remote_branches(repository, "--count=1", "--contains", sides.head):
        return Moment.PUSHED
    for branch in await _remote_branches(repository, f"--count={_MOST_BRANCHES}"):
        if await _holds(repository, branch, file, line):
            return Moment.PUSHED
    return Moment.COMMITTED


async def _remote_branches(repository: Repository, *words: str) -> list[str]:
    completed = await try_git(repository.place, *_REMOTE, *words, "refs/remotes")
    return completed.stdout.decode("ascii", "replace").split()


async def _holds(repository: Repository, revision: str, file: str, line: bytes) -> bool:
    completed = await try_git(repository.place, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if completed.exit_code != 0:
        return False  # there is no commit yet
    content = await read_file_at(repository, completed.stdout.decode("ascii", "replace").strip(), file)
    return content is not None and line.rstrip(b"\r") in (row.rstrip(b"\r") for row in content.split(b"\n"))
