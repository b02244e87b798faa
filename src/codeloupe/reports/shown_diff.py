"""The change beside a review, for formats that show findings among the lines around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from codeloupe.model.change import FileChange


class ShownDiff(Struct, frozen=True):
    """The files under review by their paths.

    `mask` takes secrets out of a text. It gets the new lines of a hunk together, and its deleted ones; a hunk in which
    it masks anything is not shown.
    """

    files: Mapping[str, FileChange]
    mask: Callable[[str], str] = field(default=str)
