"""The kinds of value a setting can have: how each is described to a person, and how it is read from plain text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codeloupe.model.severity import Severity

LARGEST_LIMIT = 1_000_000_000
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """`expected` completes the sentence "expected …"; `from_text` raises ValueError for what it cannot read."""

    expected: str
    from_text: Callable[[str], object]
    choices: tuple[str, ...] = ()


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _BOOLEANS:
        raise ValueError("not a boolean")
    return _BOOLEANS[word]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (raw.strip() for raw in text.split(",")) if part)


def one_of(*choices: str) -> Kind:
    """The kind of a value that is one of a few words."""
    return Kind(" or ".join(choices), str.strip, choices)


BOOLEAN = Kind("true or false", _boolean)
WHOLE_NUMBER = Kind(f"a whole number from 1 to {LARGEST_LIMIT:,}", int)
SECONDS = Kind("a number of seconds above 0", float)
BRANCH = Kind("the name of a branch as text", str.strip)
PATTERNS = Kind('a list of patterns, such as ["src/**", "*.py"]', _list)
SEVERITY = Kind("critical, high, medium or low (or P0 to P3)", str.strip, tuple(step.label for step in Severity))
TEXT = Kind("a text", str.strip)
DOLLARS = Kind("an amount of dollars above 0", float)
NAMES = Kind("a list of names, such as [agent_sdk, codex]", _list)
