"""Answers that stand in the change or in the question itself: a model that quotes them has not given them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from codeloupe.engine.parse.loose_json import scan_json
from codeloupe.model.change import Hunk

QUOTED_ANSWER = "invalid answer: it is part of the change itself"
ECHOED_QUESTION = "invalid answer: it repeats the question"
_SHORTEST_LINE_OF_A_QUESTION = 80
_WORDS = re.compile(r"\b(?!json\b)\w", re.IGNORECASE)


def is_quoted(answer: str, hunks: Iterable[Hunk], *, beside: bytes = b"") -> bool:
    """Whether a text with words around its JSON has no JSON but what stands in some hunks, or in a text beside them.

    A change may hold `{"findings": []}` in the hope that whoever describes it is taken to say so.
    """
    values = scan_json(answer).values
    position, around = 0, []
    for found in values:
        around.append(answer[position : found.start])
        position = found.end
    if not values or not _WORDS.search(" ".join((*around, answer[position:]))):
        return False
    rows = (row[1:] for hunk in hunks for row in hunk.body.split(b"\n"))
    change = _dense(b"\n".join((*rows, beside)).decode("utf-8", "replace"))
    told = [_dense(answer[found.start : found.end]) for found in values if found.value]
    return bool(told) and all(text in change for text in told)


def is_echo(answer: str, question: str) -> bool:
    """Whether a text repeats a long line of the question, which tells what an answer without findings looks like."""
    lines = (line.strip() for line in question.split("\n"))
    return any(line in answer for line in lines if len(line) >= _SHORTEST_LINE_OF_A_QUESTION)


def _dense(text: str) -> str:
    return "".join(text.split())
