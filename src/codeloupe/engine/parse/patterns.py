"""Patterns that are compiled when they are first used: most answers are sound and need hardly any of them."""

from __future__ import annotations

import re
from typing import Any, cast


class _LatePattern:
    """Stands in for a pattern until one of its methods is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        # From now on the method is found here at once.
        setattr(self, name, value)
        return value


def late(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled with its first use; a mistake in it shows only then, so each needs a test."""
    return cast("re.Pattern[str]", _LatePattern(text, flags))
