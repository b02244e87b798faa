"""Code as tokens: what stays of it when a formatter, a comment or another quote sign changes how it is written.

White space, line breaks, comments, the sign around a string, trailing commas, semicolons and parentheses that enclose
nothing but a whole expression do not count. Everything else does. Linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from codeloupe.engine.suppression_syntax import CLOSERS, UNKNOWN_SYNTAX, Syntax, syntax_of

# A larger file is compared line by line.
_LARGEST_TEXT = 1_000_000
_LONGEST_STATEMENT = 12
_LONGEST_GROUP = 400
_TRIPLE = ('"""', "'''")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# In front of these a parenthesis only groups what follows, as formatters put it around what they break into lines.
_GROUPING = frozenset(
    {"=", "return", "in", "assert", "yield", "if", "elif", "while", "with", "del", "for", "await", "import", "not"}
    | {"lambda", "=>", ":", ",", "(", "[", "{", "switch", "throw", "raise"}
)
# A statement goes on with the next line in front of or after one of these.
_LEADING = frozenset({".", "?", "&", "|"})
_TRAILING = frozenset({"=", "&", "|", "+", "\\"})
_PROSE = frozenset({"", "md", "txt", "rst", "yaml", "yml", "toml", "ini", "csv", "properties", "conf", "cfg"})
_DICTIONARIES = frozenset({"py", "pyi"})


class Token(NamedTuple):
    """A piece of code, on which line it begins and on which it ends, counted from 1."""

    text: str
    line: int
    last_line: int


class Statement(NamedTuple):
    """Lines that belong together, and what they say."""

    first: int
    last: int
    tokens: tuple[str, ...]


def tokens_of_code(text: str, path: str) -> tuple[str, ...]:
    """What a piece of code says; of a piece that is only a comment, the comment."""
    found = tuple(token.text for token in _tokens(text, path))
    return found or tuple(token.text for token in _tokens(text, path, comments=True))


def _tokens(text: str, path: str, *, comments: bool = False) -> list[Token]:
    return _without_decoration(list(_scanned(text, None if comments else syntax_of(path))))


class CodeText:
    """The content of one file, ready to be asked for statements and for where a piece of code is."""

    def __init__(self, content: bytes, path: str) -> None:
        self._path = path
        self._text = content.decode("utf-8", "replace")
        self._is_whole = len(self._text) <= _LARGEST_TEXT
        self._lines = self._text.split("\n")

    @cached_property
    def _written(self) -> list[Token]:
        return list(_scanned(self._text, syntax_of(self._path))) if self._is_whole else []

    @cached_property
    def _tokens(self) -> list[Token]:
        return _without_decoration(self._written)

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for index, token in enumerate(self._tokens):
            found[token.text].append(index)
        return found

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """The first and the last line of the statement that each line belongs to, where it has several."""
        return _spans(self._written, self._path)

    @cached_property
    def _by_line(self) -> dict[int, list[str]]:
        found: defaultdict[int, list[str]] = defaultdict(list)
        for token in self._tokens:
            found[token.line].append(token.text)
        return found

    @cached_property
    def _inside_strings(self) -> frozenset[int]:
        """The lines that a string of several lines covers."""
        long = (token for token in self._tokens if token.last_line > token.line)
        return frozenset(line for token in long for line in range(token.line, token.last_line + 1))

    def statement(self, line: int) -> Statement:
        """The statement that a line belongs to; one of too many lines is taken line by line.

        A line without code has no tokens.
        """
        first, last = self._spans.get(line, (line, line))
        if not self._is_whole or line in self._inside_strings:
            text = self._lines[line - 1] if 1 <= line <= len(self._lines) else ""
            return Statement(line, line, tuple(token.text for token in _tokens(text, self._path)))
        tokens = tuple(token for number in range(first, last + 1) for token in self._by_line.get(number, ()))
        return Statement(first, last, tokens)

    def statements(self, first: int, last: int) -> Iterator[Statement]:
        """The statements that some lines belong to, in order; lines that say nothing are left out."""
        line = max(first, 1)
        while line <= min(last, len(self._lines)):
            found = self.statement(line)
            if found.tokens:
                yield found
            line = found.last + 1

    def places(self, code: str) -> list[tuple[int, int]]:
        """The lines, first and last, of each place where a piece of code is; the places do not overlap."""
        wanted = _needle(code, self._path)
        if not wanted:
            return []
        rarest = min(range(len(wanted)), key=lambda index: len(self._by_text.get(wanted[index], ())))
        found: list[tuple[int, int]] = []
        end = 0
        for index in self._by_text.get(wanted[rarest], ()):
            start = index - rarest
            if start < end or not self._reads(start, wanted):
                continue
            end = start + len(wanted)
            found.append((self._tokens[start].line, self._tokens[end - 1].last_line))
        return found

    def _reads(self, start: int, wanted: Sequence[str]) -> bool:
        return all(
            token.text == text for token, text in zip(self._tokens[start : start + len(wanted)], wanted, strict=False)
        ) and start + len(wanted) <= len(self._tokens)


def _needle(code: str, path: str) -> list[str]:
    """What to look for: a piece of a statement may begin or end between brackets."""
    tokens = [token.text for token in _tokens(code, path)]
    while tokens and tokens[-1] == ",":
        tokens.pop()
    if len(tokens) > 1 and tokens[-1] == "(" and tokens[-2] in _GROUPING:
        tokens.pop()
    return tokens


def _scanned(text: str, syntax: Syntax | None) -> Iterator[Token]:
    """The tokens as they are written, but for the signs around strings; without comments if there is a syntax."""
    position, line = 0, 1
    # Where a sign has no other half: of a string of one line up to its end, of others up to the end of the text.
    unclosed: dict[str, int] = {}
    pattern = _pieces(syntax)
    while (found := pattern.search(text, position)) is not None:
        piece, start = found[0], found.start()
        position = found.end()
        if piece == "\n":
            line += 1
            continue
        if found.lastgroup == "comment":
            end = _end_of_comment(text, position, piece.lower())
            line += text.count("\n", start, end)
            position = end
        elif found.lastgroup == "quote":
            end = _end_of_string(text, position, piece, unclosed)
            if end:
                inner = text[position : end - len(piece)]
                last = line + inner.count("\n")
                yield Token('"' + _plain_string(inner), line, last)
                line, position = last, end
        else:
            yield Token(piece.lower() if piece[0].isdigit() else piece, line, line)


def _plain_string(inner: str) -> str:
    return " ".join(inner.replace("\\'", "'").replace('\\"', '"').split())


def _end_of_comment(text: str, start: int, opener: str) -> int:
    end_of_line = text.find("\n", start)
    end_of_line = len(text) if end_of_line < 0 else end_of_line
    closer = CLOSERS.get(opener)
    if closer is None:
        return end_of_line
    end = text.find(closer, start)
    return end_of_line if end < 0 else end + len(closer)


def _end_of_string(text: str, start: int, quote: str, unclosed: dict[str, int]) -> int:
    """After the sign that ends a string, or 0 when there is none."""
    if start <= unclosed.get(quote, 0):
        return 0
    for found in _halves(quote).finditer(text, start):
        if found[0] == quote:
            return found.end()
        if found[0] == "\n":
            unclosed[quote] = found.start()
            return 0
    unclosed[quote] = len(text)
    return 0


@cache
def _halves(quote: str) -> re.Pattern[str]:
    # Only these may hold line breaks.
    line_break = "" if quote in (*_TRIPLE, "`") else r"|\n"
    return re.compile(rf"\\.|{quote}{line_break}", re.DOTALL)


@cache
def _pieces(syntax: Syntax | None) -> re.Pattern[str]:
    comments = [_opener(word, syntax) for word in sorted(syntax.openers, key=len, reverse=True)] if syntax else []
    comment = "|".join(part for part in comments if part)
    parts = [
        r"\n",
        *([f"(?P<comment>{comment})"] if comment else []),
        r"(?P<quote>\"\"\"|'''|[\"'`])",
        r"[^\W\d]\w*",
        r"\d[\w.]*",
        r"=>|[^\w\s]",
    ]
    return re.compile("|".join(parts), re.IGNORECASE)


def _opener(word: str, syntax: Syntax | None) -> str:
    """What begins a comment. A sign that code has too begins one only after white space."""
    if word in ("'", '"', "{"):
        return ""
    if syntax is UNKNOWN_SYNTAX and word not in ("#", "//", "/*", "<!--"):
        return ""
    is_plain = word in ("//", "/*", "<!--", "(*", "{-", "{#", "<%--", "@*", "<#") and syntax is not UNKNOWN_SYNTAX
    return re.escape(word) if is_plain else rf"(?<![^\s]){re.escape(word)}"


def _without_decoration(tokens: list[Token]) -> list[Token]:
    """The tokens without what formatters add and take away."""
    gone: set[int] = set()
    opened: list[int] = []
    for index, token in enumerate(tokens):
        text = token.text
        if text in _CLOSING:
            opened.append(index)
        elif text in (")", "]", "}"):
            start = opened.pop() if opened else -1
            if index and tokens[index - 1].text == "," and start != index - 2:
                gone.add(index - 1)
            if text == ")" and start >= 0 and _only_groups(tokens, start, index):
                gone.update((start, index))
        elif text == ";" or (text == "\\" and _is_last_of_line(tokens, index)):
            gone.add(index)
    return [token for index, token in enumerate(tokens) if index not in gone]


def _only_groups(tokens: list[Token], start: int, end: int) -> bool:
    if tokens[start].text != "(" or end == start + 1:
        return False
    if end + 1 < len(tokens) and tokens[end + 1].text == "=>":
        return end == start + 2  # the one parameter of an arrow function
    begins = not start or tokens[start - 1].text in _GROUPING
    ends = _is_last_of_line(tokens, end) or tokens[end + 1].text in (":", ";", "{", ")", "]", "}")
    if not begins or not ends or end - start > _LONGEST_GROUP:
        return False
    names = start and tokens[start - 1].text == "import"
    return bool(names) or not any(token.text in (",", "for") for token in tokens[start + 1 : end])


def _is_last_of_line(tokens: list[Token], index: int) -> bool:
    return index + 1 == len(tokens) or tokens[index + 1].line > tokens[index].last_line


def _spans(tokens: Sequence[Token], path: str) -> dict[int, tuple[int, int]]:
    suffix = PurePosixPath(path).suffix.removeprefix(".").lower()
    is_code = suffix not in _PROSE
    joining = "([{" if suffix in _DICTIONARIES else "(["
    spans: dict[int, tuple[int, int]] = {}
    stack: list[str] = []
    first = 0
    for index, token in enumerate(tokens):
        if not index:
            first = token.line
        elif token.line > tokens[index - 1].last_line:
            before = tokens[index - 1]
            inside = bool(stack) and stack[-1] in joining
            goes_on = is_code and (token.text in _LEADING or before.text in _TRAILING)
            if not inside and not goes_on:
                _put(spans, first, before.last_line)
                first = token.line
        if token.text in _CLOSING:
            stack.append(token.text)
        elif stack and token.text in (")", "]", "}"):
            stack.pop()
    if tokens:
        _put(spans, first, tokens[-1].last_line)
    return spans


def _put(spans: dict[int, tuple[int, int]], first: int, last: int) -> None:
    if 0 < last - first < _LONGEST_STATEMENT:
        spans.update(dict.fromkeys(range(first, last + 1), (first, last)))
