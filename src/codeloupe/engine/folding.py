"""Lines without what copying and reformatting change: white space, invisible characters, typographic signs."""

from __future__ import annotations

import re
import unicodedata

# Putting marks into their canonical order takes quadratic time in a run of them, so only short lines are composed.
_LONGEST_COMPOSED = 500
_INVISIBLE = (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x00AD, 0x034F, 0x180E, 0xFEFF)
_LOST = (*range(0xD800, 0xE000), 0xFFFD)
_TYPOGRAPHIC = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    "\u2026": "...",
}
_LOOSE_SPACE = re.compile(r" (?!\w)|(?<!\w) ")
_TABLE = str.maketrans({**dict.fromkeys(map(chr, _INVISIBLE + _LOST), ""), **_TYPOGRAPHIC})


def fold(line: str) -> str:
    """The line with one space between two words and none elsewhere, its typographic signs as a keyboard has them.

    Spellings of one line that differ in white space, invisible characters or composed letters fold to the same text;
    bytes that are not UTF-8 leave no trace. Linear in the line.
    """
    if not line.isascii():
        line = line.translate(_TABLE)
        if len(line) <= _LONGEST_COMPOSED:
            line = unicodedata.normalize("NFC", line)
    return _LOOSE_SPACE.sub("", " ".join(line.split()))


def has_letters(text: str) -> bool:
    """Whether there is a letter or a digit in it: what has none is told apart from nothing."""
    return any(character.isalnum() for character in text)
