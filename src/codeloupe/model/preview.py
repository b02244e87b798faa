"""What a review would look at, known before anything is run or spent."""

from __future__ import annotations

from msgspec import Struct

from codeloupe.model.change import FileChange, Scope
from codeloupe.model.review import SkippedFile


class PreviewFile(Struct, frozen=True):
    """One file of the change; `skipped` says why it would be left out, or is None when it would be reviewed."""

    change: FileChange
    skipped: SkippedFile | None = None

    @property
    def reviewed(self) -> bool:
        """Whether a review would look at it."""
        return self.skipped is None


class Preview(Struct, frozen=True, kw_only=True):
    """The files of a scope, how many units a review would cut them into, and what their prompts would weigh.

    `out_of_reach` are those of which not even the change is known: unreadable ones, and repositories of their own.
    """

    scope: Scope
    files: tuple[PreviewFile, ...]
    out_of_reach: tuple[SkippedFile, ...] = ()
    units: int = 0
    prompt_tokens_estimate: int = 0
