"""A unit: one piece of a change that goes into one agent call."""

from __future__ import annotations

from enum import StrEnum

from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.expert import Expert
from codeloupe.model.records import dataclass


class Effort(StrEnum):
    """How finely a change is cut: small units find more and cost more."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def unit_tokens(self) -> int:
        """About how many tokens of diff go into one unit."""
        return {Effort.LOW: 8_000, Effort.MEDIUM: 3_000, Effort.HIGH: 1_000}[self]


@dataclass(frozen=True, slots=True)
class UnitPart:
    """Some hunks of one file, in order. A hunk that is too large for a unit appears in pieces, each a hunk itself.

    `repeated_rows` counts the rows at the beginning of the first hunk's body that stand in the piece before it too,
    changed lines among them: they are there to be seen, and are covered by the unit of that piece.
    """

    file: FileChange
    hunks: tuple[Hunk, ...]
    repeated_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
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
