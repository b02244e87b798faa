"""Comments that ask to ignore a finding: `codeloupe: ignore[category] reason`, on its line or above it.

In the brackets stand categories, families of them, rules or experts, several with commas between; without brackets it
is about any finding. A reason is required. A comment that shares its line with code is about that line alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from codeloupe.engine.families import Family, family
from codeloupe.engine.folding import has_letters
from codeloupe.engine.suppression_syntax import Syntax, comments_in, syntax_of
from codeloupe.model.finding import Finding

_WORD = "codeloupe:"
_MARK = re.compile(r"codeloupe:[ \t]{0,20}ignore(?![\w-])[ \t]{0,20}(?:\[([^\]]{0,400})(\]?))?", re.IGNORECASE)
_LONGEST_REASON = 500
# Of a longer finding a comment somewhere in the middle is more likely about something smaller.
_FEW_LINES = 10
_MOST_LINES_ABOVE = 10
_SEPARATORS = re.compile(r"[\s_-]+")
# What people call the family that has no words of its own.
_BEHAVIOUR_WORDS = frozenset({"behaviour", "behavior", "correctness", "bug", "bugs", "logic", "reliability"})


class Mark(Struct, frozen=True):
    """One such comment. `names` is None when it is about any finding; `reason` is empty when it gives none."""

    file: str
    line: int
    names: tuple[str, ...] | None
    reason: str
    alone: bool

    @property
    def counts(self) -> bool:
        """Whether it says all that it must."""
        return bool(self.reason) and self.names != ()

    def in_words(self) -> str:
        """How a message shows it."""
        return "codeloupe: ignore" if self.names is None else f"codeloupe: ignore[{', '.join(self.names)}]"

    def fits(self, finding: Finding) -> bool:
        """Whether a finding is of a kind that it names."""
        if self.names is None:
            return True
        words = {_plain(word) for word in (finding.category, finding.rule or "", finding.expert or "") if word}
        return any(_plain(name) in words or _is_its_family(name, finding) for name in self.names)


def marks_in(file: str, number: int, line: str) -> list[Mark]:
    """What the comments of one line ask for."""
    return list(_marks(file, number, line, syntax_of(file))) if _WORD in line.lower() else []


def _marks(file: str, number: int, line: str, syntax: Syntax) -> Iterator[Mark]:
    for comment in comments_in(line, syntax):
        found = list(_MARK.finditer(comment.text))
        ends = [*(mark.start() for mark in found[1:]), len(comment.text)]
        for mark, end in zip(found, ends, strict=False):
            reason = comment.text[mark.end() : end].strip(" \t\r:,;.-–—#/*")[:_LONGEST_REASON]
            yield Mark(file, number, _names(mark), reason if has_letters(reason) else "", comment.alone)


def _names(mark: re.Match[str]) -> tuple[str, ...] | None:
    """What stands in the brackets; of brackets that are not closed, nothing."""
    if mark[1] is None:
        return None
    return tuple(name for part in mark[1].split(",") if (name := part.strip())) if mark[2] else ()


def asks_to_ignore(line: str) -> bool:
    """Whether a line asks for it, be it in a comment or not."""
    return _MARK.search(line) is not None


def places_of(finding: Finding, lines: Sequence[str], is_alone: Callable[[int], bool]) -> Iterator[int]:
    """The numbers of the lines whose comments are about a finding: its own, and the comments right above it.

    `is_alone` tells whether a line is a comment and nothing else.
    """
    first, last = finding.first_line, min(finding.last_line, len(lines))
    if not finding.anchored or not 1 <= first <= last:
        return
    yield from range(first, last + 1) if last - first < _FEW_LINES else (first, last)
    for number in range(first - 1, max(first - 1 - _MOST_LINES_ABOVE, 0), -1):
        if not is_alone(number):
            return
        yield number


def is_comment_alone(line: str, file: str) -> bool:
    """Whether there is a comment and no code on a line."""
    found = list(comments_in(line, syntax_of(file)))
    return bool(found) and found[-1].alone


def _is_its_family(name: str, finding: Finding) -> bool:
    """Whether a name is one word for the family of a finding's category, as fingerprints have it too.

    A word that belongs to no family must not be taken for the one that holds all the rest.
    """
    word = _plain(name)
    if not word.isalpha():
        return False
    if word in _BEHAVIOUR_WORDS:
        return family(finding.category) is Family.BEHAVIOUR
    named = next((known for known in Family if known == word), family(word))
    return named is not Family.BEHAVIOUR and named is family(finding.category)


def _plain(name: str) -> str:
    return _SEPARATORS.sub("_", name.strip().casefold())
