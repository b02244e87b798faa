"""What a caller may ask to have reviewed, which the git room resolves to a Scope; and patterns of paths."""

from __future__ import annotations

import re

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

    Each of `commits` is searched for secrets by itself too: what one adds and another removes is pushed all the same.
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
    """A fetched pull request: two commits, never trusted; `assumed_base` is a branch that nobody said it goes to."""

    base: str
    head: str
    description: str
    assumed_base: str = ""


_OfCommits = BaseScope | RangeScope | CommitScope | PullRequestScope | FetchedScope
ScopeRequest = DefaultScope | UncommittedScope | StagedScope | _OfCommits | DiffScope


class PushedRef(Struct, frozen=True):
    """One ref of a push: its name here, its commit here and at the remote, and its name there, where they are known."""

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


class OneOf(Struct, frozen=True):
    """One character out of some ranges, both ends included, or with `negated` one outside of them; never a slash."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


Piece = str | OneOf
# Right after the opening bracket, a closing one is a character like others.
_PIECE = re.compile(r"(?:\A|(?<=/))\*\*/|\*\*|[*?]|\[[!^]?+[^/][^/\]]*+\]|.", re.DOTALL)


def parse_pattern(text: str) -> tuple[list[Piece], bool]:
    """A pattern as in .gitignore: its pieces, and whether it is tied to the root; one that is not fits at any depth.

    `*` and `?` stay within a folder, `**` does not, and `**/` where a folder could begin is any number of folders.
    There is no escape: a backslash is itself, and so is a bracket that is not closed before the next slash.
    """
    body = text.rstrip("/")
    pieces: list[Piece] = []
    for piece in _PIECE.findall(body.removeprefix("/")):
        if len(piece) > 1 and piece.startswith("["):
            negated = piece[1] in "!^"
            # Two ends with a dash between them, or one character.
            members = re.findall(r"(.)(?:-(.))?", piece[2 if negated else 1 : -1], re.DOTALL)
            pieces.append(OneOf(tuple((low, high or low) for low, high in members), negated))
        else:
            pieces.append(piece)
    return pieces, "/" in body


def check_pattern(text: str) -> str | None:
    """Why a pattern cannot fit what it seems to say, as a clause about "it"; None when it can."""
    folders = text.rstrip("/").removeprefix("/").split("/")
    if folders == [""]:
        return "it names no file"
    wrong = next((folder for folder in folders if folder in ("", ".", "..")), None)
    if wrong is not None:
        return f"it has {f'`{wrong}`' if wrong else 'nothing'} where a path has the name of a folder or file"
    ranges = (ends for piece in parse_pattern(text)[0] if isinstance(piece, OneOf) for ends in piece.ranges)
    backward = next((f"{low!r} to {high!r}" for low, high in ranges if low > high), None)
    return None if backward is None else f"its range from {backward} runs backwards"
