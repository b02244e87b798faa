"""Code as it is compared: lines without what copying changes, comments, tokens, statements, and what is around them.

Compared are tokens, so that reformatting and added comments make no difference. What encloses a line is read from
indentation alone: it holds for nearly every language. Everything is linear in the text.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from codeloupe.system.regex import regex

_INVISIBLE = (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x00AD, 0x034F, 0x180E, 0xFEFF)
# Typographic signs as a keyboard has them, and nothing for what cannot be seen or is no character.
_TABLE: dict[int, str] = {
    **dict.fromkeys((*_INVISIBLE, *range(0xD800, 0xE000), 0xFFFD), ""),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
    0x2026: "...",
}
_LOOSE_SPACE = regex(r" (?!\w)|(?<!\w) ")


def fold(line: str) -> str:
    """The line with one space between two words and none elsewhere, its typographic signs as a keyboard has them.

    Spellings of one line that differ in white space, invisible characters or composed letters fold to the same text;
    bytes that are not UTF-8 leave no trace.
    """
    if not line.isascii():
        line = line.translate(_TABLE)
        # Putting marks into their canonical order takes quadratic time in a run of them.
        line = unicodedata.normalize("NFC", line) if len(line) <= 500 else line
    return _LOOSE_SPACE.sub("", " ".join(line.split()))


def has_letters(text: str) -> bool:
    """Whether there is a letter or a digit in it: nothing tells the rest apart from nothing."""
    return any(character.isalnum() for character in text)


# Nobody reads such a line, and whoever wants a comment to be seen puts it elsewhere.
_LONGEST_LINE = 20_000
_CLOSERS = dict(
    pair.split() for pair in ("/* */", "<!-- -->", "<%-- --%>", "{- -}", "(* *)", "{# #}", "<# #>", "@* *@", "{ }")
)
_REM = "rem "


class Syntax(NamedTuple):
    """What begins a comment, and which signs enclose a string."""

    openers: tuple[str, ...]
    quotes: str = "\"'`"


UNKNOWN_SYNTAX = Syntax(("#", "//", "/*", "--", ";", "%", "<!--", "{-", "(*", "{#", _REM))


@cache
def _syntaxes() -> dict[str, Syntax]:
    rows = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))["languages"]
    return {end: Syntax(tuple(row["comments"]), row["quotes"]) for row in rows for end in row["files"].split()}


def syntax_of(path: str) -> Syntax:
    """How a file writes comments, by the end of its name; of an unknown kind, in any of the common ways."""
    return _syntaxes().get(_suffix(path), UNKNOWN_SYNTAX)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.removeprefix(".").lower()


def comments_in(line: str, syntax: Syntax) -> Iterator[tuple[str, bool]]:
    """The comments of one line, in order, without their signs, and whether there is no code on the line.

    A line of more than 20,000 characters has none.
    """
    if len(line) > _LONGEST_LINE:
        return
    if "/*" in syntax.openers and line.lstrip().startswith("*"):
        # A line within a block, as they are commonly written.
        yield line.lstrip().removeprefix("*").split("*/", 1)[0], True
        return
    began = False
    for kind, start, body, end in _cut(line, _comment_signs(syntax)):
        if kind == "comment":
            closer = _CLOSERS.get(line[start:body].lower(), "")
            is_closed = closer and line.endswith(closer, body, end)
            # Braces are around a comment among tags, and an `@` is before one in a script.
            began = began or bool(line[:start].strip(" \t@{"))
            yield line[body : end - len(closer) if is_closed else end], not began and not line[end:].strip(" \t\r}")


def _cut(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str | None, int, int, int]]:
    """The kind of each piece of a text, where it begins, where its first sign ends, and where it ends."""
    position = 0
    # Where a sign has no other half: of a string of one line up to its end, of others up to the end of the text.
    unclosed: dict[str, int] = {}
    while (found := pattern.search(text, position)) is not None:
        kind, sign, position = found.lastgroup, found[0], found.end()
        if kind == "comment":
            closer = _CLOSERS.get(sign.lower(), "\n")
            end = text.find(closer, position)
            end = text.find("\n", position) if end < 0 else end + (0 if closer == "\n" else len(closer))
            position = len(text) if end < 0 else end
        elif kind == "quote":
            if position <= unclosed.get(sign, 0):
                continue
            half = next((one for one in _halves(sign).finditer(text, position) if one[0][0] != "\\"), None)
            if half is None or half[0] != sign:
                # An apostrophe, or the end of a string of many lines.
                unclosed[sign] = len(text) if half is None else half.start()
                continue
            position = half.end()
        yield kind, found.start(), found.end(), position


@cache
def _halves(quote: str) -> re.Pattern[str]:
    """What may end a string; after a backslash nothing does. Only some strings may hold line breaks."""
    return re.compile(rf"\\.|{quote}" + ("" if quote in ('"""', "'''", "`") else r"|\n"), re.DOTALL)


@cache
def _comment_signs(syntax: Syntax) -> re.Pattern[str]:
    # `rem` is a word, and begins a comment only where a command may be.
    rem = r"(?:(?<=^)|(?<=[\s@&:]))rem "
    signs = [rem if word == _REM else re.escape(word) for word in sorted(syntax.openers, key=len, reverse=True)]
    quotes = [f"(?P<quote>[{syntax.quotes}])"] if syntax.quotes else []
    return re.compile("|".join([f"(?P<comment>{'|'.join(signs)})", *quotes]), re.IGNORECASE)


_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
# In front of these a parenthesis only groups what follows, as formatters put it around what they break into lines.
_GROUPING = frozenset(
    {"=", "return", "in", "assert", "yield", "if", "elif", "while", "with", "del", "for", "await", "import", "not"}
    | {"lambda", "=>", ":", ",", "(", "[", "{", "switch", "throw", "raise"}
)
_TRAILING = frozenset({"=", "&", "|", "+", "\\"})
_PROSE = frozenset({"", "md", "txt", "rst", "yaml", "yml", "toml", "ini", "csv", "properties", "conf", "cfg"})


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
    return _texts(text, syntax_of(path)) or _texts(text, None)


def _texts(text: str, syntax: Syntax | None) -> tuple[str, ...]:
    return tuple(token.text for token in _without_decoration([*_scanned(text, syntax)]))


def _scanned(text: str, syntax: Syntax | None) -> Iterator[Token]:
    """The tokens as they are written, but for the signs around strings; without comments if there is a syntax."""
    line, counted = 1, 0
    for kind, start, body, end in _cut(text, _pieces(syntax)):
        line += text.count("\n", counted, start)
        counted = start
        if kind == "quote":
            inner = text[body : end - (body - start)]
            plain = " ".join(inner.replace("\\'", "'").replace('\\"', '"').split())
            yield Token(f'"{plain}', line, line + inner.count("\n"))
        elif kind is None:
            piece = text[start:end]
            yield Token(piece.lower() if piece[0].isdigit() else piece, line, line)


@cache
def _pieces(syntax: Syntax | None) -> re.Pattern[str]:
    is_unknown = syntax is UNKNOWN_SYNTAX
    signs = []
    for word in sorted(syntax.openers, key=len, reverse=True) if syntax else ():
        if word not in ("'", '"', "{") and not (is_unknown and word not in ("#", "//", "/*", "<!--")):
            # A sign that code has too begins a comment only after white space.
            is_plain = word in ("//", "/*", "<!--", "(*", "{-", "{#", "<%--", "@*", "<#") and not is_unknown
            signs.append(re.escape(word) if is_plain else rf"(?<![^\s]){re.escape(word)}")
    comment = [f"(?P<comment>{'|'.join(signs)})"] if signs else []
    parts = [*comment, r"(?P<quote>\"\"\"|'''|[\"'`])", r"[^\W\d]\w*", r"\d[\w.]*", r"=>|[^\w\s]"]
    return re.compile("|".join(parts), re.IGNORECASE)


def _without_decoration(tokens: list[Token]) -> list[Token]:
    """The tokens without what formatters add and take away."""
    gone: set[int] = set()
    opened: list[int] = []
    for index, token in enumerate(tokens):
        text = token.text
        if text in _OPENING:
            opened.append(index)
        elif text in _CLOSING:
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
    before = tokens[start - 1].text if start else ":"
    ends = _is_last_of_line(tokens, end) or tokens[end + 1].text in (":", ";", "{", ")", "]", "}")
    if before not in _GROUPING or not ends or end - start > 400:
        return False
    return before == "import" or not any(token.text in (",", "for") for token in tokens[start + 1 : end])


def _is_last_of_line(tokens: list[Token], index: int) -> bool:
    return index + 1 == len(tokens) or tokens[index + 1].line > tokens[index].last_line


_COMMENT = regex(r"#|//|/\*|\*|--|<!--|;|%|\"\"\"|'''")
_END_OF_BLOCK = regex(r"[)\]}]|end\b|</|\{$")
# What is around code without being what the code belongs to: to wrap a line in one of these is no new place.
_CONTROL = regex(
    r"(?:async\s|await\s)?\s{0,4}(?:if|elif|elsif|else|for|foreach|while|until|unless|try|except|finally|with|switch|case|"
    r"default|do|catch|match|when|begin|rescue|ensure|loop|using|lock|synchronized|select|defer|go|return|then|not)\b"
)
# No walk goes further, so that a hostile file costs no more than a large one.
_FURTHEST, _LONGEST_BLOCK = 20_000, 2_000


def is_comment(line: str) -> bool:
    """Whether a line looks like a comment, in any language."""
    return _COMMENT.match(line.lstrip()) is not None


class CodeText:
    """The content of one file, lines numbered from 1: its statements, where a piece of code is, and what is around."""

    def __init__(self, content: bytes, path: str = "") -> None:
        self._path = path
        self._text = content.decode("utf-8", "replace")
        self._lines = self._text.split("\n")
        # A larger file is compared line by line.
        self._is_whole = len(self._text) <= 1_000_000

    _written = cached_property(lambda self: list(_scanned(self._text, syntax_of(self._path))) if self._is_whole else [])
    _tokens = cached_property(lambda self: _without_decoration(self._written))
    _by_text = cached_property(lambda self: _grouped((token.text, index) for index, token in enumerate(self._tokens)))
    _by_line = cached_property(lambda self: _grouped((token.line, token.text) for token in self._tokens))
    # How far each line is indented; -1 for one that is blank, a comment or a closing bracket.
    _indents = cached_property(lambda self: [_indent(line) for line in self._lines])
    _folded = cached_property(lambda self: [fold(line) for line in self._lines])

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """The first and the last line of the statement that each line belongs to, where it has several."""
        tokens, suffix = self._written, _suffix(self._path)
        joining = "([{" if suffix in ("py", "pyi") else "(["
        spans: dict[int, tuple[int, int]] = {}
        stack: list[str] = []
        first = tokens[0].line if tokens else 0
        for before, token in zip(tokens, [*tokens[1:], None], strict=False):
            if before.text in _OPENING:
                stack.append(before.text)
            elif stack and before.text in _CLOSING:
                stack.pop()
            if token is not None and token.line <= before.last_line:
                continue
            inside = bool(stack) and stack[-1] in joining
            # A statement goes on with the next line in front of or after one of these.
            goes_on = token and suffix not in _PROSE and (token.text in ".?&|" or before.text in _TRAILING)
            if token is None or not (inside or goes_on):
                if 0 < before.last_line - first < 12:
                    spans.update(dict.fromkeys(range(first, before.last_line + 1), (first, before.last_line)))
                first = token.line if token else 0
        return spans

    @cached_property
    def _inside_strings(self) -> frozenset[int]:
        """The lines that a string of several lines covers."""
        long = (token for token in self._tokens if token.last_line > token.line)
        return frozenset(line for token in long for line in range(token.line, token.last_line + 1))

    def line(self, number: int) -> str:
        """The line with a number, or nothing."""
        return self._lines[number - 1] if 1 <= number <= len(self._lines) else ""

    def number_of(self, line: str, first: int, last: int) -> int:
        """The number between two of the line that reads like this, or the first of them."""
        folded = fold(line)
        numbers = range(max(first, 1), min(last, len(self._lines)) + 1)
        return next((number for number in numbers if self._folded[number - 1] == folded), first)

    def following(self, number: int) -> str:
        """The next line that is not blank, folded."""
        return next((line for line in self._folded[number : number + _FURTHEST] if line), "")

    def statement(self, line: int) -> Statement:
        """The statement that a line belongs to, without tokens where there is no code; a long one is taken by lines."""
        first, last = self._spans.get(line, (line, line))
        if not self._is_whole or line in self._inside_strings:
            return Statement(line, line, _texts(self.line(line), syntax_of(self._path)))
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
        wanted = [*_texts(code, syntax_of(self._path))]
        # A piece of a statement may begin or end between brackets.
        while wanted and wanted[-1] == ",":
            wanted.pop()
        if len(wanted) > 1 and wanted[-1] == "(" and wanted[-2] in _GROUPING:
            wanted.pop()
        if not wanted:
            return []
        rarest = min(range(len(wanted)), key=lambda index: len(self._by_text.get(wanted[index], ())))
        found: list[tuple[int, int]] = []
        end = 0
        for index in self._by_text.get(wanted[rarest], ()):
            start = index - rarest
            if start >= end and [token.text for token in self._tokens[start : start + len(wanted)]] == wanted:
                end = start + len(wanted)
                found.append((self._tokens[start].line, self._tokens[end - 1].last_line))
        return found

    def _enclosing(self, number: int, line: str) -> Iterator[int]:
        bound = _indent(line) if line.strip() else 0
        start = min(number - 1, len(self._lines)) - 1
        found = 0
        for index in range(start, max(-1, start - _FURTHEST), -1):
            if bound <= 0 or found >= 6:
                return
            if 0 <= self._indents[index] < bound:
                bound = self._indents[index]
                if not _CONTROL.match(self._lines[index].lstrip()):
                    found += 1
                    yield index

    def headers(self, number: int) -> tuple[str, ...]:
        """The definitions around a line, the innermost first, each by its tokens up to its parameters."""
        found = (self.statement(index + 1).tokens for index in self._enclosing(number, self.line(number)))
        return tuple(" ".join(tokens[: tokens.index("(")] if "(" in tokens else tokens) for tokens in found)

    def enclosing(self, number: int, line: str) -> tuple[int, tuple[str, ...]]:
        """How often a line is in the innermost definition around it before, and all definitions around it, folded."""
        around = list(self._enclosing(number, line))
        folded, last = fold(line), min(number - 1, len(self._lines))
        before = self._folded[max((around or [-1])[0] + 1, last - _FURTHEST, 0) : last]
        return before.count(folded), tuple(self._folded[index] for index in around)

    def earlier_statements(self, statement: Statement) -> int:
        """How many statements say the same between the innermost definition around one and that one itself."""
        top = next(self._enclosing(statement.first, self.line(statement.first)), -1)
        first = max(top + 2, statement.first - _FURTHEST)
        return sum(other.tokens == statement.tokens for other in self.statements(first, statement.first - 1))

    def around(self, statement: Statement) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """What the innermost definition around a statement says, else the nearest ones; and its two neighbours."""
        before: list[tuple[str, ...]] = []
        line = statement.first - 1
        while line >= max(1, statement.first - 12) and len(before) < 3:
            found = self.statement(line)
            before += [found.tokens] if found.tokens else []
            line = found.first - 1
        after = [one.tokens for one in self.statements(statement.last + 1, statement.last + 12)]
        top = next(self._enclosing(statement.first, self.line(statement.first)), None)
        said = [*before, statement.tokens, *after[:3]]
        if top is not None:
            furthest = min(len(self._lines), top + _LONGEST_BLOCK)
            indents = enumerate(self._indents[statement.last : furthest], start=statement.last)
            end = next((index for index, indent in indents if 0 <= indent <= self._indents[top]), len(self._lines))
            said = [one.tokens for one in self.statements(top + 1, min(end, top + _LONGEST_BLOCK))]
        return tuple(token for tokens in said for token in tokens), next(iter(before), ()), next(iter(after), ())


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def _indent(line: str) -> int:
    text = line.lstrip()
    if not text or _COMMENT.match(text) or _END_OF_BLOCK.match(text.rstrip()):
        return -1
    return len(line[: len(line) - len(text)].expandtabs(4))
