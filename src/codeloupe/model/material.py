"""What a reviewer is told beside the diff: intent, guidance, instructions. All of it is data, none of it command."""

from __future__ import annotations

from msgspec import Struct


class Intent(Struct, frozen=True, kw_only=True):
    """What the change is meant to do, in its author's words. Assurances in it prove nothing."""

    title: str = ""
    messages: tuple[str, ...] = ()
    context: str = ""


class GuidanceFile(Struct, frozen=True):
    """A project's own words on how to review: REVIEW.md, AGENTS.md or CLAUDE.md.

    It holds for the files below its folder; `path` is relative to the root of the repository. One that is there and is
    not read says why in `unused`, and has no text.
    """

    path: str
    text: str
    unused: str = ""

    @property
    def folder(self) -> str:
        """The folder for which it speaks; empty for the whole repository."""
        return self.path.rpartition("/")[0]


class PathInstruction(Struct, frozen=True):
    """A rule of the configuration for the files that match one of some globs."""

    paths: tuple[str, ...]
    text: str
