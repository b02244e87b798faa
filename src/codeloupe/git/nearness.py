"""Which files of a very large tree are near to a change, for an agent that reads more than the diff.

Names and folders alone decide, so that nothing has to be read. An agent looks at a few files around a change, and to
write tens of thousands would take longer than the rest of a review.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from codeloupe.model.change import FileChange

_MOST_FILES = 1_000
_MOST_READ_BYTES = 1_000_000
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{2,60}")


class Nearness(Struct, frozen=True, kw_only=True):
    """How much of a large tree is exported: so many files, the nearest to the needed ones first.

    `names` are words of the change, in lower case: a file that is called like one of them is near.
    """

    most_files: int
    names: frozenset[str] = frozenset()

    def nearest(self, files: Sequence[str], needed: Sequence[str]) -> list[str]:
        """The nearest of some files: of the same folder, named in the change, of a folder above, then by folder."""
        if len(files) <= self.most_files:
            return list(files)
        own = {name.rpartition("/")[0] for name in needed}
        ends = {folder: (0, *(end for end, sign in enumerate(folder) if sign == "/")) for folder in own}
        related = own | {folder[:end] for folder in own for end in ends[folder]}
        ranks: dict[str, tuple[int, int]] = {}

        def rank(name: str) -> tuple[int, int, str, str]:
            folder, _, base = name.rpartition("/")
            if folder not in ranks:
                ranks[folder] = _folder_rank(folder, own, related)
            is_named = base.partition(".")[0].lower() in self.names
            kind, distance = ranks[folder]
            return (0 if is_named else 1) if kind == 0 else 2 if is_named else kind, distance, folder, base

        return sorted(sorted(files, key=rank)[: self.most_files])


def _folder_rank(folder: str, own: set[str], related: set[str]) -> tuple[int, int]:
    """0 for a folder of needed files, 3 for one above them, 4 for others; and how far its nearest relative is."""
    if folder in own:
        return 0, 0
    if folder in related:
        return 3, -folder.count("/")
    distance, outer = 0, folder
    while outer and outer not in related:
        outer = outer.rpartition("/")[0]
        distance += 1
    return 4, distance - 2 * (outer.count("/") + bool(outer))


def near_to(files: Sequence[FileChange]) -> Nearness:
    """What is near to the changes of some files: their words may be names of others."""
    bodies = b"\n".join(hunk.body for file in files for hunk in file.hunks)[:_MOST_READ_BYTES]
    names = frozenset(word.decode("ascii").lower() for word in set(_NAME.findall(bodies)))
    return Nearness(most_files=_MOST_FILES, names=names)
