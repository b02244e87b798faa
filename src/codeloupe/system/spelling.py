"""The known word that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

# A longer word is not a typing mistake, and comparing it would take long.
_LONGEST_WORD = 100
_LONG_WORD = 8


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that takes the fewest slips to become `word`, or None if none is near.

    A slip is a wrong, missing, added or swapped character. A word may have one, or two if it has eight characters or
    more. Upper and lower case are the same.
    """
    typed = word.casefold()
    if not typed or len(typed) > _LONGEST_WORD:
        return None
    most = 2 if len(typed) >= _LONG_WORD else 1
    best: str | None = None
    fewest = most + 1
    for candidate in known:
        meant = candidate.casefold()
        if abs(len(meant) - len(typed)) > most:
            continue
        slips = count_slips(typed, meant)
        if slips < fewest:
            best = candidate
            fewest = slips
    return best


def count_slips(one: str, other: str) -> int:
    """Return how many characters must be changed, added, removed or swapped to make one text from another."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, character in enumerate(one, start=1):
        current = [row]
        for column, wanted in enumerate(other, start=1):
            changed = above[column - 1] + (character != wanted)
            fewest = min(changed, above[column] + 1, current[column - 1] + 1)
            is_swapped = row > 1 and column > 1 and character == other[column - 2] and one[row - 2] == wanted
            if is_swapped:
                fewest = min(fewest, before[column - 2] + 1)
            current.append(fewest)
        before = above
        above = current
    return above[-1]
