"""Families of categories: models call one defect a bug today and a logic error tomorrow."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from codeloupe.engine.vocabulary import vocabulary

_WORDS = re.compile(r"[a-z]{2,40}")
_LONGEST_CATEGORY = 200


class Family(StrEnum):
    """What a finding is about, as coarse as models agree on it."""

    SECURITY = "security"
    TESTS = "tests"
    DOCUMENTATION = "documentation"
    COMPATIBILITY = "compatibility"
    PERFORMANCE = "performance"
    UPKEEP = "upkeep"
    BEHAVIOUR = "behaviour"


@lru_cache(maxsize=1024)
def family(category: str) -> Family:
    """The family of a category in anybody's words; what belongs to no other is about behaviour."""
    words = _WORDS.findall(category[:_LONGEST_CATEGORY].lower())
    for name, beginnings in vocabulary().families.items():
        if any(word.startswith(beginnings) for word in words):
            return Family(name)
    return Family.BEHAVIOUR
