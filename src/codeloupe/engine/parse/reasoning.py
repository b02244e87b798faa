"""What a model thought aloud before it spoke: drafts stand there, and what was thought is not the answer."""

from __future__ import annotations

import re

from codeloupe.engine.parse.patterns import late

_OPENING = late(r"[\s\ufeff]*+<(think|thinking|thoughts?|reasoning)>", re.IGNORECASE)


def behind_reasoning(text: str) -> str | None:
    """The text behind the reasoning that it begins with, all of it without one; None where nothing was said behind it.

    The first closing tag counts, so that none which is quoted later can hide what was said.
    """
    position, lowered = 0, ""
    while opening := _OPENING.match(text, position):
        lowered = lowered or text.lower()
        closing = f"</{opening[1].lower()}>"
        end = lowered.find(closing, opening.end())
        if end < 0:
            return None
        position = end + len(closing)
    if not position:
        return text
    return text[position:] if text[position:].strip().strip("\ufeff") else None
