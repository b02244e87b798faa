"""A unit: one piece of a change that goes into one agent call."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.expert import Expert

# A unit is never so many times larger than its effort says, whatever an agent adds to it.
_LARGEST_TIMES = 3


class Effort(StrEnum):
    """How finely a change is cut: small units find more and cost more."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def unit_tokens(self) -> int:
        """About how many tokens of diff go into one unit."""
        return {Effort.LOW: 15_000, Effort.MEDIUM: 5_000, Effort.HIGH: 1_000}[self]

    def unit_tokens_beside(self, own_tokens: int) -> int:
        """As `unit_tokens`, for an agent that adds so many tokens of its own to each call: fewer calls pay for them."""
        times = {Effort.LOW: 8, Effort.MEDIUM: 5, Effort.HIGH: 1}[self]
        return min(max(self.unit_tokens, times * own_tokens), _LARGEST_TIMES * self.unit_tokens)


class UnitPart(Struct, frozen=True):
    """Some hunks of one file, in order. A hunk that is too large for a unit appears in pieces, each a hunk itself.

    `repeated_rows` counts the rows at the beginning of the first hunk's body that stand in the piece before it too,
    changed lines among them: they are there to be seen, and are covered by the unit of that piece.
    """

    file: FileChange
    hunks: tuple[Hunk, ...]
    repeated_rows: int = 0


class Unit(Struct, frozen=True, kw_only=True):
    """A few related hunks for one call: under one expert, or under the joined checklist of several.

    `name` is for people and unique in a plan; `tokens` estimates the diff alone.
    """

    name: str
    parts: tuple[UnitPart, ...]
    experts: tuple[Expert, ...]
    tokens: int
    pass_number: int = 1

    @property
    def files(self) -> tuple[str, ...]:
        """The paths in it, in order."""
        return tuple(dict.fromkeys(part.file.path for part in self.parts))
