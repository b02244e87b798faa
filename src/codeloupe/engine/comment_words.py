"""The words of a review comment: stems for what it says, names for the code it speaks of, numbers."""

from __future__ import annotations

import re
from functools import lru_cache

from codeloupe.engine.vocabulary import vocabulary

_LONGEST_TEXT = 4_000
_WORD = re.compile(r"[^\W_]{1,60}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TICKED = re.compile(r"`([^`\n]{1,200})`")
# Only at the start of a word, or a long word would be tried at each of its letters.
_CODE_LIKE = re.compile(
    r"(?<!\w)(?:"
    r"[A-Za-z_]\w{0,80}(?:\.\w{1,80}){1,9}"  # dotted
    r"|[A-Za-z]\w{0,80}_\w{1,80}"  # snake_case
    r"|[a-z]{1,40}[A-Z]\w{0,80}"  # camelCase
    r"|[A-Za-z_]\w{0,80}(?=\(\))"  # a call
    r")"
)
_NAME = re.compile(r"[^\W\d]\w{0,80}")
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?:\.\d{1,6})?(?![\w])")
# An ending and what stands for it in the stem, the longest first.
_ENDINGS = (
    ("ification", "ify"),
    ("isations", "is"),
    ("isation", "is"),
    ("nesses", ""),
    ("ments", ""),
    ("ities", ""),
    ("edly", ""),
    ("ness", ""),
    ("ment", ""),
    ("able", ""),
    ("ible", ""),
    ("ency", "ent"),
    ("ancy", "ant"),
    ("ions", ""),
    ("ings", ""),
    ("ies", "y"),
    ("ied", "y"),
    ("ion", ""),
    ("ing", ""),
    ("ers", ""),
    ("ity", ""),
    ("er", ""),
    ("ed", ""),
    ("ly", ""),
    ("s", ""),
)
_SHORTEST_STEM = 3
# Longer words in un-ed are a negation: who writes "unquoted" today writes "not quoted" tomorrow.
_LONGEST_UNNEGATED = 7


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its ending, so that `closing` and `closed` are the same; British and American alike."""
    word = word.lower().replace("iz", "is").replace("our", "or")
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            if ending == "s" and word.endswith("ss"):
                break
            word = word[: -len(ending)] + instead
            if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == "e" and word != "none" else word


def stems(text: str) -> frozenset[str]:
    """The stems of all words, also of those that a name in the code is made of, and of empty ones."""
    shown = text[:_LONGEST_TEXT].replace("_", " ")
    return frozenset(stem(word) for word in (*_WORD.findall(shown), *_WORD.findall(_CAMEL.sub(" ", shown))))


def telling_stems(text: str) -> frozenset[str]:
    """The stems of the words that tell what a comment is about."""
    words = (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text[:_LONGEST_TEXT]).replace("_", " ")))
    empty = vocabulary().empty_words
    told = (word for word in words if word not in empty and not word.isdigit() and len(word) > 1)
    return frozenset(stem(_without_negation(word)) for word in told)


def _without_negation(word: str) -> str:
    negated = word.startswith("un") and word.endswith("ed") and len(word) > _LONGEST_UNNEGATED
    return word[2:] if negated and word != "unlocked" else word


def names(text: str) -> frozenset[str]:
    """The names of code in a comment: what stands in backticks, and what is written as only code is."""
    shown = text[:_LONGEST_TEXT]
    pieces = [*_TICKED.findall(shown), *_CODE_LIKE.findall(shown)]
    return frozenset(name for piece in pieces for name in _NAME.findall(piece))


def mentioned(text: str, known: frozenset[str]) -> frozenset[str]:
    """Which of some known names a text mentions as a word."""
    return frozenset(_NAME.findall(text[:_LONGEST_TEXT])) & known


def numbers(text: str) -> frozenset[str]:
    """The numbers in a text."""
    return frozenset(_NUMBER.findall(text[:_LONGEST_TEXT]))
