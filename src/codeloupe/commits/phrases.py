"""Phrases of whole words, searched in a text that is cut into words. Linear, whatever the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from codeloupe.model.sweep import CommitCategory

_WORD = re.compile(r"\.?\w[\w'’.+-]*")
_VERSION = re.compile(r"v\d{1,8}|v?\d{1,8}(?:\.\d{1,8}){1,3}[\w.+-]{0,30}", re.IGNORECASE)
_GAP = "..."
_GAP_WORDS = 4
# What follows them is something else: "fix the test of the parser" is about a test, "fix a crash in a test" is not.
_ENDS_GAP = frozenset(("in", "of", "for", "from", "to", "on", "with", "when", "if", "by", "at", "after", "and"))
_MOST_WORDS = 400


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without the marks around them; of a long text the first few hundred."""
    found = (
        match[0].rstrip(".'’+-").lower() for match, _ in zip(_WORD.finditer(text), range(_MOST_WORDS), strict=False)
    )
    return tuple(word.replace("’", "'") for word in found if word)


class _Phrase(NamedTuple):
    """One phrase of a category. `rank` is the category's place: the smaller one wins."""

    rank: int
    words: tuple[str, ...]

    def fits(self, text: Sequence[str], position: int) -> bool:
        """Whether it stands in the text from there on."""
        return _fits(self.words, text, position)


class Phrases:
    """Phrases of several categories. Where those of more than one fit, the category that was named first wins."""

    def __init__(self, phrases: Mapping[CommitCategory, Iterable[str]]) -> None:
        self._categories = tuple(phrases)
        listed = [
            _Phrase(rank, tuple(phrase.lower().split()))
            for rank, words in enumerate(phrases.values())
            for phrase in words
        ]
        # By the first word, so that a text costs one look for each of its words, and not one for each phrase.
        self._by_first: dict[str, list[_Phrase]] = {}
        self._loose: list[_Phrase] = []
        for phrase in listed:
            if _is_loose(phrase.words[0]):
                self._loose.append(phrase)
            else:
                self._by_first.setdefault(phrase.words[0], []).append(phrase)

    def at_start(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase begins the text, or None."""
        return self._best(text, range(min(1, len(text))))

    def within(self, text: Sequence[str]) -> CommitCategory | None:
        """The category whose phrase stands anywhere in the text, or None."""
        return self._best(text, range(len(text)))

    def _best(self, text: Sequence[str], positions: Iterable[int]) -> CommitCategory | None:
        fitting = (
            phrase.rank
            for position in positions
            for phrase in (*self._by_first.get(text[position], ()), *self._loose)
            if phrase.fits(text, position)
        )
        rank = min(fitting, default=None)
        return None if rank is None else self._categories[rank]


def _is_loose(word: str) -> bool:
    return "*" in word or word.startswith("<")


def _fits(phrase: Sequence[str], text: Sequence[str], position: int) -> bool:
    for number, word in enumerate(phrase):
        if word == _GAP:
            rest = phrase[number + 1 :]
            return any(_fits(rest, text, place) for place in _ends_of_gap(text, position))
        if position >= len(text) or not _is(word, text[position]):
            return False
        position += 1
    return True


def _ends_of_gap(text: Sequence[str], position: int) -> Iterator[int]:
    """Where a gap that begins there may end."""
    for place in range(position, position + _GAP_WORDS + 1):
        yield place
        if place >= len(text) or text[place] in _ENDS_GAP:
            return


def _is(word: str, given: str) -> bool:
    if word == "<version>":
        return _VERSION.fullmatch(given) is not None
    match word.startswith("*"), word.endswith("*"):
        case True, True:
            return word[1:-1] in given
        case True, False:
            return given.endswith(word[1:])
        case False, True:
            return given.startswith(word[:-1])
        case _:
            return given == word
