"""What a target of the fuzzer is: inputs to begin with, words to put in, and a check that says what fell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Fell(Exception):
    """Something holds no longer that must hold for every input."""


def hold(condition: object, words: str) -> None:
    """Raises Fell with these words unless the condition is true. An `assert` may be switched off."""
    if not condition:
        raise Fell(words)


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz.

    `check` raises, whatever it raises, when the input breaks something. `search` is the cheap part of it, which
    guides the search by its coverage. `most_bytes` is what the time of a pumped input is taken at.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    words: Sequence[bytes]
    search: Callable[[bytes], object]
    check: Callable[[bytes], object]
    most_bytes: int = 256 * 1024
