"""The bytes of a diff under reading: where lines end, and how to point at one of them in a refusal."""

from __future__ import annotations

import re

from msgspec import Struct

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.quoting import decode_path
from codeloupe.model.change import FileChange

_EXCERPT_BYTES = 60
_BOUNDARY = re.compile(rb'boundary="([^"\n]{1,70})"')
_HERE = re.compile(rb"(?:\./)+")
_MAKE_AGAIN = "make the diff again, for example with `git diff > change.diff`, and do not edit it"


class Section(Struct, frozen=True):
    """One file of a diff, and the positions where its text begins and ends.

    `from_git` is true for a section with a `diff --git` line.
    """

    change: FileChange
    start: int
    end: int
    from_git: bool


class DiffText:
    """The whole text, read by position."""

    __slots__ = ("_boundaries", "data", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self._boundaries: frozenset[bytes] | None = None

    @property
    def mail_boundaries(self) -> frozenset[bytes]:
        """The lines that part the mails in the text, where it has mails of several parts; looked for once."""
        if self._boundaries is None:
            self._boundaries = frozenset(b"--" + name for name in _BOUNDARY.findall(self.data))
        return self._boundaries

    def line_end(self, position: int) -> int:
        """Where the newline of this line is. Raises DiffSyntaxError when the text ends in the middle of the line."""
        end = self.data.find(b"\n", position)
        if end < 0:
            raise self.refusal(position, "the text ends in the middle of a line, so the diff may be cut off")
        return end

    def refusal(self, position: int, problem: str, *, hint: str = _MAKE_AGAIN) -> DiffSyntaxError:
        """An error that names the line at `position`, what is wrong there, and the line itself."""
        number = self.data.count(b"\n", 0, position) + 1
        if position >= self.size:
            return DiffSyntaxError(f"line {number}: {problem} (the text ends here)", hint=hint)
        return DiffSyntaxError(f"line {number}: {problem} (the line is {self._excerpt(position)})", hint=hint)

    def path(self, position: int, name: bytes) -> str:
        """A path inside a repository, decoded. Raises DiffSyntaxError for a name no repository can hold."""
        if here := _HERE.match(name):
            name = name[here.end() :]
        if not name or b"\0" in name:
            raise self.refusal(position, "expected the name of a file")
        if name.startswith(b"/") or b".." in name.split(b"/"):
            raise self.refusal(
                position,
                "the name of the file leads out of the repository",
                hint="make the diff in the root directory of the repository, with relative names",
            )
        return decode_path(name)

    def _excerpt(self, position: int) -> str:
        end = self.data.find(b"\n", position, position + _EXCERPT_BYTES)
        cut = end < 0 and position + _EXCERPT_BYTES < self.size
        line = self.data[position : position + _EXCERPT_BYTES if end < 0 else end].decode("utf-8", "replace")
        return repr(line) + ("..." if cut else "")
