"""One scale of severity with two names for each step: critical = P0, high = P1, medium = P2, low = P3."""

from __future__ import annotations

import re
from enum import Enum


class Severity(Enum):
    """How bad a finding is; the value is the priority, so P0 is the worst."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The word used in reports and JSON."""
        return self.name.lower()

    @property
    def priority(self) -> int:
        """The number in P0 to P3."""
        return self.value

    def at_least(self, threshold: Severity) -> bool:
        """Whether this is as bad as the threshold, or worse."""
        return self.value <= threshold.value

    @classmethod
    def parse(cls, text: object) -> Severity:
        """Read any accepted spelling: P0-P3, 0-3, [P1], critical/high/medium/low, error/warning/suggestion/info.

        Raises ValueError for anything else, so that the caller can drop that one finding and say so.
        """
        if isinstance(text, Severity):
            return text
        if isinstance(text, bool) or not isinstance(text, (int, str)):
            raise ValueError(f"not a severity: {text!r}")
        word = str(text).strip().strip("[]").strip().lower()
        numbered = re.fullmatch(r"p?\s*([0-3])", word)
        if numbered:
            return cls(int(numbered[1]))
        if word in _WORDS:
            return _WORDS[word]
        raise ValueError(f"not a severity: {text!r} (use critical, high, medium, low or P0 to P3)")


_WORDS = {
    "critical": Severity.CRITICAL,
    "high": Severity.HIGH,
    "error": Severity.HIGH,
    "medium": Severity.MEDIUM,
    "warning": Severity.MEDIUM,
    "low": Severity.LOW,
    "suggestion": Severity.LOW,
    "info": Severity.LOW,
}
