"""What a caller may ask to have reviewed; the git room resolves a request to a Scope."""

from __future__ import annotations

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
