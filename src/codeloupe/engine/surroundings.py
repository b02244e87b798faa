"""What encloses a line, read from indentation alone: it holds for nearly every language, and survives reformatting.

Nothing is taken from the lines right above, which any edit changes: only from the definitions around a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from codeloupe.engine.code_tokens import CodeText, Statement
from codeloupe.engine.folding import fold

_COMMENT = re.compile(r"#|//|/\*|\*|--|<!--|;|%|\"\"\"|'''")
_CLOSING = re.compile(r"[)\]}]|end\b|</|\{$")
# What stands around code without being what the code belongs to: to wrap a line in one of these is no new place.
_CONTROL = re.compile(
    r"(?:async\s|await\s)?\s{0,4}(?:if|elif|elsif|else|for|foreach|while|until|unless|try|except|finally|with|switch|case|"
    r"default|do|catch|match|when|begin|rescue|ensure|loop|using|lock|synchronized|select|defer|go|return|then|not)\b"
)
_MOST_ENCLOSING = 6
_TAB_WIDTH = 4
# No walk goes further, so that a hostile file costs no more than a large one.
_FURTHEST = 20_000
_LONGEST_BLOCK = 2_000
_NEAR_LINES, _NEAR_STATEMENTS = 12, 3


def is_comment(line: str) -> bool:
    """Whether a line looks like a comment, in any language."""
    return _COMMENT.match(line.lstrip()) is not None


class Surroundings:
    """The lines of one file, numbered from 1, ready to be asked what is around them."""

    def __init__(self, content: bytes, path: str = "") -> None:
        self._lines = content.decode("utf-8", "replace").split("\n")
        self.code = CodeText(content, path)

    @cached_property
    def _indents(self) -> list[int]:
        """How far each line is indented; -1 for one that is blank, a comment or a closing bracket."""
        return [_indent(line) for line in self._lines]

    @cached_property
    def _folded(self) -> list[str]:
        return [fold(line) for line in self._lines]

    def number_of(self, line: str, first: int, last: int) -> int:
        """The number between two of the line that reads like this, or the first of them."""
        folded = fold(line)
        numbers = range(max(first, 1), min(last, len(self._lines)) + 1)
        return next((number for number in numbers if self._folded[number - 1] == folded), first)

    def line(self, number: int) -> str:
        """The line with a number, or nothing."""
        return self._lines[number - 1] if 1 <= number <= len(self._lines) else ""

    def enclosing(self, number: int, line: str) -> tuple[str, ...]:
        """The definitions around a line with this number and text, folded, the innermost first."""
        return tuple(self._folded[index] for index in self._enclosing(number, line))

    def _enclosing(self, number: int, line: str) -> Iterator[int]:
        bound = _indent(line) if line.strip() else 0
        start = min(number - 1, len(self._lines)) - 1
        found = 0
        for index in range(start, max(-1, start - _FURTHEST), -1):
            if bound <= 0 or found >= _MOST_ENCLOSING:
                return
            if 0 <= self._indents[index] < bound:
                bound = self._indents[index]
                if not _CONTROL.match(self._lines[index].lstrip()):
                    found += 1
                    yield index

    def earlier_copies(self, number: int, line: str) -> int:
        """How many lines read the same between the innermost definition around a line and the line itself."""
        top = next(self._enclosing(number, line), -1)
        folded = fold(line)
        last = min(number - 1, len(self._lines))
        return sum(self._folded[index] == folded for index in range(max(top + 1, last - _FURTHEST), last))

    def headers(self, number: int) -> tuple[str, ...]:
        """The definitions around a line, the innermost first, each by its tokens up to its parameters."""
        found = (self.code.statement(index + 1).tokens for index in self._enclosing(number, self.line(number)))
        return tuple(" ".join(tokens[: tokens.index("(")] if "(" in tokens else tokens) for tokens in found)

    def earlier_statements(self, statement: Statement) -> int:
        """How many statements say the same between the innermost definition around one and that one itself."""
        top = next(self._enclosing(statement.first, self.line(statement.first)), -1)
        first = max(top + 2, statement.first - _FURTHEST)
        return sum(other.tokens == statement.tokens for other in self.code.statements(first, statement.first - 1))

    def around(self, statement: Statement) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """What the innermost definition around a statement says, and the statements before and after this one.

        Outside of any definition the nearest statements stand for it.
        """
        before = next(iter(self._statements_before(statement.first)), ())
        after = next(iter(self._statements_after(statement.last)), ())
        top = next(self._enclosing(statement.first, self.line(statement.first)), None)
        if top is None:
            near = [
                *self._statements_before(statement.first),
                statement.tokens,
                *self._statements_after(statement.last),
            ]
            return tuple(token for tokens in near for token in tokens), before, after
        end = self._end_of_block(top, statement.last)
        block = self.code.statements(top + 1, min(end, top + _LONGEST_BLOCK))
        return tuple(token for one in block for token in one.tokens), before, after

    def _end_of_block(self, top: int, last: int) -> int:
        """The last line of the definition that begins at an index and holds a line."""
        indent = self._indents[top]
        for index in range(last, min(len(self._lines), top + _LONGEST_BLOCK)):
            if 0 <= self._indents[index] <= indent:
                return index
        return len(self._lines)

    def _statements_before(self, number: int) -> Sequence[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        line = number - 1
        while line >= max(1, number - _NEAR_LINES) and len(found) < _NEAR_STATEMENTS:
            statement = self.code.statement(line)
            found += [statement.tokens] if statement.tokens else []
            line = statement.first - 1
        return found

    def _statements_after(self, number: int) -> Sequence[tuple[str, ...]]:
        return [one.tokens for one in self.code.statements(number + 1, number + _NEAR_LINES)][:_NEAR_STATEMENTS]

    def following(self, number: int) -> str:
        """The next line that is not blank, folded."""
        rest: Sequence[str] = self._folded[number : number + _FURTHEST]
        return next((line for line in rest if line), "")


def _indent(line: str) -> int:
    text = line.lstrip()
    if not text or _COMMENT.match(text) or _CLOSING.match(text.rstrip()):
        return -1
    return len(line[: len(line) - len(text)].expandtabs(_TAB_WIDTH))
