"""What the agents of the example pipelines say and write in tests: made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One answer of an agent: the files it writes, and what it says, in words or as a value for a schema."""

    files: Mapping[str, str] = field(default_factory=dict)
    text: str = "Done."
    value: Any = None


CLAIMS = """\
{"claims": [
  {"id": "c1", "claim": "The Moon and the Sun pull at the oceans.", "basis": "knowledge",
   "support": "established since Newton", "confidence": "high"},
  {"id": "c2", "claim": "Most coasts have two high waters in about 25 hours.", "basis": "knowledge",
   "support": "follows from the turning Earth below two bulges", "confidence": "high"}
]}
"""
NOTES = """\
# Notes

**The question**: why does the sea rise and fall twice a day?

The Moon pulls more at the near side of the Earth than at its middle, and least at the far side. So the water bulges on
both sides, and the Earth turns below the bulges.
"""
FIRST_ARTICLE = """\
# Why the sea comes twice a day

The Moon pulls the water up on two sides of the Earth, and the Earth turns below. The highest tides of the world are in
Brittany.
"""
ARTICLE = """\
# Why the sea comes twice a day

The Moon pulls the water up on two sides of the Earth, and the Earth turns below. So most coasts meet high water twice
in about 25 hours.
"""
EDITOR_SENDS_BACK = {
    "summary": "Clear and short. One sentence is not carried by a claim.",
    "verdict": "REWORK",
    "score": 55,
    "blockers": ["article.md: that the highest tides are in Brittany is carried by no claim, and is not true"],
    "fixes": ["Remove the sentence on Brittany, or replace it by claim c2."],
}
EDITOR_PRINTS = {"summary": "Ready.", "verdict": "PASS", "score": 92, "blockers": [], "fixes": []}

TESTS = """\
import unittest

from shop.prices import read_price


class ReadPrice(unittest.TestCase):
    def test_a_price_is_read_with_a_point_or_a_comma(self):
        self.assertEqual(str(read_price("3.50")), "3.50")
        self.assertEqual(str(read_price("3,50")), "3.50")

    def test_what_is_no_price_is_refused(self):
        for text in ("", "free", "NaN"):
            with self.assertRaises(ValueError):
                read_price(text)
"""
TOTAL = """\
from decimal import Decimal, InvalidOperation


def total(prices):
    return sum(prices)
"""
FAILS_A_TEST = f'''{TOTAL}

def read_price(text):
    """The price in a text. Raises ValueError."""
    return Decimal(text)
'''
FAILS_THE_REVIEW = f'''{TOTAL}

def read_price(text):
    """The price in a text. Raises ValueError."""
    if not text or not text[0].isdigit():
        raise ValueError(f"no price: {{text!r}}")
    return Decimal(format(eval(text.replace(",", ".")), ".2f"))
'''
PASSES = f'''{TOTAL}

def read_price(text):
    """The price in a text. Raises ValueError."""
    try:
        price = Decimal(text.replace(",", "."))
    except InvalidOperation as error:
        raise ValueError(f"no price: {{text!r}}") from error
    if not price.is_finite():
        raise ValueError(f"no price: {{text!r}}")
    return price
'''
CHANGELOG = "# Changes\n\n## Next\n\n- Prices are read with a point or a comma.\n"

RISKS = {
    "summary": "Small and clear. What comes from outside is not looked at.",
    "observations": [
        {
            "title": "total() adds whatever it is given",
            "file": "shop/prices.py",
            "line": 2,
            "evidence": "    return sum(prices)",
            "consequence": "A price that is a text ends the request with an error that names no input.",
            "weight": "medium",
            "effort": "hours",
        }
    ],
}
GAPS = {
    "summary": "One test, of the ordinary case.",
    "observations": [
        {
            "title": "Nothing notices what an empty basket costs",
            "file": "shop/prices.py",
            "line": 2,
            "evidence": "    return sum(prices)",
            "consequence": "A change to the start value would reach every empty basket.",
            "weight": "low",
            "effort": "hours",
        }
    ],
}
PLAN = """\
# Assessment

Sound, and hardly held by tests.

## Do first

1. shop/prices.py:2: a test for an empty basket, then one for a text as price; refuse the text. Two hours.
"""
CRITIC_PASSES = {"summary": "Each place was found.", "verdict": "PASS", "score": 85, "blockers": [], "fixes": []}

# By example, and by stage or by the critic of a stage: one answer for each time it is asked.
ANSWERS: Mapping[str, Mapping[str, tuple[Answer, ...]]] = {
    "article": {
        "research": (Answer({"notes.md": NOTES, "claims.json": CLAIMS}),),
        "write": (Answer({"article.md": FIRST_ARTICLE}), Answer({"article.md": ARTICLE})),
        "critic of write": (Answer(value=EDITOR_SENDS_BACK), Answer(value=EDITOR_PRINTS)),
    },
    "change": {
        "implement": (
            Answer({"shop/prices.py": FAILS_A_TEST, "tests/test_reading.py": TESTS}),
            Answer({"shop/prices.py": FAILS_THE_REVIEW}),
            Answer({"shop/prices.py": PASSES}),
        ),
        "document": (Answer({"CHANGELOG.md": CHANGELOG}),),
    },
    "assessment": {
        "risks": (Answer(value=RISKS),),
        "tests": (Answer(value=GAPS),),
        "plan": (Answer({"assessment.md": PLAN}),),
        "critic of plan": (Answer(value=CRITIC_PASSES),),
    },
}
INPUTS: Mapping[str, Mapping[str, str]] = {
    "article": {"topic": "Why are there two tides a day?", "words": "40"},
    "change": {"task": "Read prices from forms: '3.50' and '3,50' are the same."},
    "assessment": {"area": "shop"},
}
# What the repository holds that the examples work on.
REPOSITORY: Mapping[str, str] = {
    "shop/__init__.py": "",
    "shop/prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/__init__.py": "",
    "tests/test_prices.py": (
        "import unittest\n\nfrom shop.prices import total\n\n\nclass Total(unittest.TestCase):\n"
        "    def test_prices_are_added(self):\n        self.assertEqual(total([1, 2]), 3)\n"
    ),
    "CHANGELOG.md": "# Changes\n\n## Next\n",
}
