"""What a caller may ask to have reviewed; the git room resolves a request to a Scope."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct


class DefaultScope(Struct, frozen=True):
    """The working tree against the merge base with the base branch; on the base branch, what is uncommitted."""


class UncommittedScope(Struct, frozen=True):
    """The working tree against HEAD, untracked files included, ignored ones not."""


class StagedScope(Struct, frozen=True):
    """The index against HEAD."""


class BaseScope(Struct, frozen=True):
    """The working tree against its merge base with `revision`."""

    revision: str


class RangeScope(Struct, frozen=True):
    """`A..B` (B against A) or `A...B` (B against the merge base of both); an empty side is HEAD.

    Each of `commits` is searched for secrets by itself too: what one of them adds and another removes again is part of
    what is pushed, and does not show between the two ends.
    """

    text: str
    commits: tuple[str, ...] = ()


class CommitScope(Struct, frozen=True):
    """One commit against its first parent; a root commit against nothing."""

    revision: str


class DiffScope(Struct, frozen=True):
    """A diff that was made elsewhere; `name` is for messages."""

    name: str
    data: bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return not self.data or self.data.isspace()


class PullRequestScope(Struct, frozen=True):
    """A pull request by its URL, or by its number at the remote; its head against the merge base with what it goes to.

    `base` is a branch, a tag or a commit of the remote to compare with instead. It is never trusted.
    """

    name: str
    base: str | None = None


class FetchedScope(Struct, frozen=True):
    """A pull request in the repository that it was fetched into: two commits. It is never trusted.

    `assumed_base` names the branch it is compared with when nobody said that it goes there.
    """

    base: str
    head: str
    description: str
    assumed_base: str = ""


ScopeRequest = (
    DefaultScope
    | UncommittedScope
    | StagedScope
    | BaseScope
    | RangeScope
    | CommitScope
    | DiffScope
    | PullRequestScope
    | FetchedScope
)


class PushedRef(Struct, frozen=True):
    """One ref of a push: its name here, its commit here and at the remote; None for a side that has none.

    `remote_name` is its name at the remote, such as refs/heads/main, where that is known.
    """

    name: str
    local: str | None
    remote: str | None
    remote_name: str = ""


class PushedRange(Struct, frozen=True):
    """What is new of one ref, as a range and its commits; without a range nothing is, and `why` says so."""

    ref: str
    range: str | None
    why: str = ""
    commits: tuple[str, ...] = ()


class Wildcard(Enum):
    """What stands for a run of characters, or for one."""

    FOLDERS = "**/"
    ANYTHING = "**"
    WITHIN = "*"
    ONE = "?"


class OneOf(Struct, frozen=True):
    """One character out of some ranges, both ends included, or with `negated` one outside of them; never a slash."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


Piece = str | Wildcard | OneOf


class PathPattern(Struct, frozen=True):
    """A pattern: its pieces, and whether it is tied to the root; one that is not fits at any depth."""

    pieces: tuple[Piece, ...]
    anchored: bool


def parse_pattern(text: str) -> PathPattern:
    """The pattern that a text means; every text means one. Takes time linear in the text."""
    body = text.rstrip("/")
    return PathPattern(tuple(_pieces(body.removeprefix("/"))), anchored="/" in body)


def check_pattern(text: str) -> str | None:
    """Why a pattern cannot fit what it seems to say, in words about "it"; None when it can."""
    folders = text.rstrip("/").removeprefix("/").split("/")
    if folders == [""]:
        return "it names no file"
    wrong = next((folder for folder in folders if folder in ("", ".", "..")), None)
    if wrong is not None:
        return f"it has {f'`{wrong}`' if wrong else 'nothing'} where a path has the name of a folder or file"
    ranges = (ends for piece in parse_pattern(text).pieces if isinstance(piece, OneOf) for ends in piece.ranges)
    backward = next((f"{low!r} to {high!r}" for low, high in ranges if low > high), None)
    return None if backward is None else f"its range from {backward} runs backwards"


def _pieces(body: str) -> Iterator[Piece]:
    position = 0
    while position < len(body):
        found, length = _piece_at(body, position)
        yield found
        position += length


def _piece_at(body: str, position: int) -> tuple[Piece, int]:
    if body[position] == "[":
        return _bracket_at(body, position)
    known = [wildcard for wildcard in Wildcard if body.startswith(wildcard.value, position)]
    if known[:1] == [Wildcard.FOLDERS] and body[position - 1 : position] not in ("", "/"):
        known = [Wildcard.ANYTHING]
    wildcard = known[0] if known else None
    return (body[position], 1) if wildcard is None else (wildcard, len(wildcard.value))


def _bracket_at(body: str, start: int) -> tuple[Piece, int]:
    negated = body[start + 1 : start + 2] in ("!", "^")
    first = start + 2 if negated else start + 1
    # Right behind the opening one, a closing bracket is a character like others.
    end = body.find("]", first + 1)
    if end < 0 or "/" in body[first:end]:
        return "[", 1
    return OneOf(tuple(_ranges(body[first:end])), negated), end + 1 - start


def _ranges(members: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(members):
        is_range = members[position + 1 : position + 2] == "-" and position + 2 < len(members)
        last = position + 2 if is_range else position
        yield members[position], members[last]
        position = last + 1
