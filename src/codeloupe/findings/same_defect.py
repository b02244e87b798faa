"""Whether two claims are about the same defect.

Two claims are about the same defect if they are in the same file, on the same or an overlapping statement, and have the
same analyser rule or similar words. Two different analyser rules are never the same defect. Similar means at least
three common stems and a Jaccard index of at least .20, or equal sets of stems; suppressions and refutations need .22.
"""

from __future__ import annotations

import re
from functools import lru_cache

import Stemmer  # type: ignore[import-not-found, import-untyped, unused-ignore]  # it has no type hints

from codeloupe.model.finding import Claim, Source

SIMILAR = 0.20
# A refutation or suppression takes weight from a claim, so it needs more certainty.
CERTAINLY_SIMILAR = 0.22
_FEWEST_COMMON_STEMS = 3
_SHORTEST_WORD = 4
_LONGEST_TEXT = 4_000
# A part of a name in camelCase or snake_case is a word of its own.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_a-zA-Z]+")
# Chinese, Japanese and Korean text has no spaces: each character is a word.
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_STEMMER = Stemmer.Stemmer("english")


def stems_of(claim: Claim) -> frozenset[str]:
    """Return the stems of the words in a claim's title and body."""
    return _stems(f"{claim.title}\n{claim.body}"[:_LONGEST_TEXT])


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of stems; 0 if they have too few stems in common."""
    common = len(one & other)
    if one and one == other:
        return 1.0
    if common < _FEWEST_COMMON_STEMS:
        return 0.0
    return common / len(one | other)


def likeness(one: Claim, other: Claim) -> float:
    """Return how alike two claims at one place are: 1 for the same analyser rule or text, 0 for different rules."""
    if is_analyser(one) and is_analyser(other):
        return 1.0 if one.rule == other.rule else 0.0
    if (one.title, one.body) == (other.title, other.body):
        return 1.0
    return similarity(stems_of(one), stems_of(other))


def is_analyser(claim: Claim) -> bool:
    """Tell whether a claim's rule counts: a rule that an agent names proves nothing."""
    return claim.source is Source.ANALYSER


@lru_cache(maxsize=20_000)
def _stems(text: str) -> frozenset[str]:
    found: set[str] = set()
    for word in _WORD.findall(text):
        ideographs = _IDEOGRAPH.findall(word)
        if ideographs:
            found.update(ideographs)
        elif len(word) >= _SHORTEST_WORD:
            found.add(_stem(word.lower()))
    return frozenset(found)


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    stem: str = _STEMMER.stemWord(word)
    return stem
