"""What every measurement gives back: one row of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One measurement as a ratio, with the limit that it must not pass; None where there is none."""

    name: str
    measured: str
    ratio: float | None
    limit: float | None
    unit: str = "x"

    @property
    def ok(self) -> bool:
        """Whether the limit holds."""
        return self.ratio is None or self.limit is None or self.ratio <= self.limit
