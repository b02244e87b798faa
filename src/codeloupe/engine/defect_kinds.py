"""Kinds of defects by the words that tell them: two comments of one kind at one place are likely one defect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from codeloupe.engine.comment_words import stem
from codeloupe.engine.vocabulary import vocabulary


def kinds_of(stems: frozenset[str]) -> frozenset[str]:
    """The kinds of defects that the stems of a sentence speak of."""
    ways = _ways()
    return frozenset(kind for word in stems if word in ways for words, kind in ways[word] if words <= stems)


@cache
def words_of_kinds(kinds: frozenset[str]) -> frozenset[str]:
    """The stems of all words by which some kinds are told."""
    return frozenset(stem(word) for kind in kinds for way in vocabulary().kinds.get(kind, ()) for word in way)


@cache
def _ways() -> Mapping[str, tuple[tuple[frozenset[str], str], ...]]:
    """The ways to say a kind, each under its longest word, so that few are tried for a sentence."""
    found: defaultdict[str, list[tuple[frozenset[str], str]]] = defaultdict(list)
    for kind, ways in vocabulary().kinds.items():
        for way in ways:
            words = frozenset(map(stem, way))
            found[max(sorted(words), key=len)].append((words, kind))
    return {word: tuple(known) for word, known in found.items()}
