"""Lines without what copying and reformatting change: white space, invisible characters, typographic signs."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from msgspec import Struct

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


# Nobody reads such a line, and whoever wants a comment to be seen puts it elsewhere.
_LONGEST_LINE = 20_000
CLOSERS = {
    "/*": "*/",
    "<!--": "-->",
    "<%--": "--%>",
    "{-": "-}",
    "(*": "*)",
    "{#": "#}",
    "<#": "#>",
    "@*": "*@",
    "{": "}",
}
_REM = "rem "
_ALL_QUOTES = "\"'`"


class Syntax(Struct, frozen=True):
    """What begins a comment, and which signs enclose a string."""

    openers: tuple[str, ...]
    quotes: str = _ALL_QUOTES


class Comment(Struct, frozen=True):
    """The text of a comment without its signs; `alone` when there is no code on its line."""

    text: str
    alone: bool


_HASH = Syntax(("#",))
_SLASHES = Syntax(("//", "/*"))
_DASHES = Syntax(("--", "/*", "#"))
_SEMICOLON = Syntax((";", "#"), '"')
_MARKUP = Syntax(("<!--", "{#", "<%--", "@*"), "")
_PAGE = Syntax(("<!--", "//", "/*", "{#"))
UNKNOWN_SYNTAX = Syntax(("#", "//", "/*", "--", ";", "%", "<!--", "{-", "(*", "{#", _REM))

_BY_SUFFIX = {
    suffix: syntax
    for syntax, suffixes in (
        (_HASH, "py pyi pyx sh bash zsh fish rb pl pm r jl yaml yml toml nix ex exs cr tcl cmake mk graphql gd awk"),
        (Syntax(("#", "<#")), "ps1 psm1"),
        (Syntax(("#", "//", "/*")), "php tf hcl conf cfg properties"),
        (
            _SLASHES,
            """
            c h cc cpp cxx hpp hh cs java js jsx mjs cjs ts tsx mts cts go rs swift kt kts scala dart groovy gradle
            proto scss less sol zig sv glsl hlsl jsonc json5 cu
            """,
        ),
        (Syntax(("/*",)), "css"),
        (Syntax(("//", "/*", "%")), "m mm"),
        (Syntax(("//", "(*")), "fs fsx fsi ml mli"),
        (Syntax(("//", "(*", "{")), "pas pp dpr"),
        (_DASHES, "sql psql mysql lua adb ads vhd vhdl"),
        (Syntax(("--", "{-")), "hs elm purs"),
        (_SEMICOLON, "lisp lsp cl clj cljs cljc edn el scm rkt asm s ini"),
        (Syntax(("%",), '"'), "tex sty erl hrl pro"),
        (_MARKUP, "html htm xml xhtml svg md xaml csproj jsp twig j2 jinja cshtml"),
        (_PAGE, "vue svelte astro"),
        (Syntax((_REM, "::"), '"'), "bat cmd"),
        (Syntax(("'", _REM), '"'), "vb vbs bas"),
        (Syntax(("!",)), "f f90 f95 f03"),
        (Syntax(('"',), "'"), "vim"),
    )
    for suffix in suffixes.split()
}


def syntax_of(path: str) -> Syntax:
    """How a file writes comments, by the end of its name; of an unknown kind, in any of the common ways."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.removeprefix(".").lower(), UNKNOWN_SYNTAX)


def comments_in(line: str, syntax: Syntax) -> Iterator[Comment]:
    """The comments of one line, in order. Linear in the line; one of more than 20,000 characters has none."""
    if len(line) > _LONGEST_LINE:
        return
    if "/*" in syntax.openers and line.lstrip().startswith("*"):
        # A line within a block, as they are commonly written.
        yield Comment(line.lstrip().removeprefix("*").split("*/", 1)[0], alone=True)
        return
    position, began = 0, False
    while (opening := _next_opening(line, position, syntax)) is not None:
        start, opener = opening
        closer = CLOSERS.get(opener, "")
        body = start + len(opener)
        end = line.find(closer, body) if closer else -1
        end, position = (len(line), len(line)) if end < 0 else (end, end + len(closer))
        # Braces stand around a comment among tags, and an `@` before one in a script.
        began = began or bool(line[:start].strip(" \t@{"))
        yield Comment(line[body:end], alone=not began and not line[position:].strip(" \t\r}"))


def _next_opening(line: str, position: int, syntax: Syntax) -> tuple[int, str] | None:
    """Where the next comment begins behind a place that is in no string, and with which sign."""
    unclosed: set[str] = set()
    signs = _signs(syntax)
    while (found := signs.search(line, position)) is not None:
        sign = found[0].lower()
        if sign in syntax.openers:
            return found.start(), sign
        position = found.end()
        if sign not in unclosed:
            end = _closing(line, position, sign)
            # A quote without its other half is an apostrophe, or belongs to a string of many lines.
            unclosed |= set() if end else {sign}
            position = end or position
    return None


def _closing(line: str, start: int, quote: str) -> int:
    """Behind the next quote that no backslash is before, or 0."""
    return next((found.end() for found in _halves(quote).finditer(line, start) if found[0] == quote), 0)


@cache
def _halves(quote: str) -> re.Pattern[str]:
    return re.compile(rf"\\.|{quote}", re.DOTALL)


@cache
def _signs(syntax: Syntax) -> re.Pattern[str]:
    words = sorted((*syntax.openers, *syntax.quotes), key=len, reverse=True)
    # `rem` is a word, and begins a comment only where a command could stand.
    parts = [r"(?:(?<=^)|(?<=[\s@&:]))rem " if word == _REM else re.escape(word) for word in words]
    return re.compile("|".join(parts), re.IGNORECASE)


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
    for found in _code_tokens_halves(quote).finditer(text, start):
        if found[0] == quote:
            return found.end()
        if found[0] == "\n":
            unclosed[quote] = found.start()
            return 0
    unclosed[quote] = len(text)
    return 0


@cache
def _code_tokens_halves(quote: str) -> re.Pattern[str]:
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


_COMMENT = re.compile(r"#|//|/\*|\*|--|<!--|;|%|\"\"\"|'''")
_SURROUNDINGS_CLOSING = re.compile(r"[)\]}]|end\b|</|\{$")
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
    if not text or _COMMENT.match(text) or _SURROUNDINGS_CLOSING.match(text.rstrip()):
        return -1
    return len(line[: len(line) - len(text)].expandtabs(_TAB_WIDTH))
