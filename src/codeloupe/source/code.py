"""Code as it is compared: folded lines, comments, tokens, statements and definitions.

Tokens ignore comments, quote style and the decoration that formatters add. A definition around a line is found by
indentation alone, which works for nearly every language. Every function takes time linear in the text.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from codeloupe.system.regex import regex
from codeloupe.system.untrusted import visible

# The ASCII spelling of typographic signs, and one sign for all quote marks.
_QUOTE_MARKS = '"`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033'
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_REPLACEMENT_CHARACTER = "\ufffd"
_TABLE = str.maketrans(
    {
        **dict.fromkeys(_QUOTE_MARKS, "'"),
        **dict.fromkeys(_DASHES, "-"),
        "\u2026": "...",
        _REPLACEMENT_CHARACTER: "",
    }
)
# Prompts and reports show a character like this if it cannot be seen; see `visible`.
_INVISIBLE_MARK = regex(r"<(?:U\+[0-9A-F]{4,6}|0x[0-9A-F]{2})(?:×\d{1,7})?>")
_LOOSE_SPACE = regex(r" (?!\w)|(?<!\w) ")
# Sorting combining marks takes quadratic time in a run of them.
_LONGEST_NORMALISED_LINE = 500


def fold(line: str) -> str:
    """Return the line as it is compared with a quote.

    Spellings of one line that differ in white space, quote marks, typographic signs, invisible characters or composed
    letters fold to the same text. One space is left between two words, and bytes that are not UTF-8 are removed.
    """
    line = _INVISIBLE_MARK.sub("", visible(line)).translate(_TABLE)
    if not line.isascii() and len(line) <= _LONGEST_NORMALISED_LINE:
        line = unicodedata.normalize("NFC", line)
    words = " ".join(line.split())
    return _LOOSE_SPACE.sub("", words)


_WORD_OR_SIGN = regex(r"\w+|[^\w\s]")


def words_and_signs(line: str) -> str:
    """Return the words and signs of a folded line, with one space between two of them."""
    return " ".join(_WORD_OR_SIGN.findall(line))


def has_letters(text: str) -> bool:
    """Tell whether the text contains a letter or a digit."""
    return any(character.isalnum() for character in text)


# A comment on a longer line is ignored.
_LONGEST_LINE = 20_000
_CLOSERS = {
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


class Syntax(NamedTuple):
    """The signs that open a comment, and the signs that enclose a string."""

    openers: tuple[str, ...]
    quotes: str = "\"'`"


UNKNOWN_SYNTAX = Syntax(("#", "//", "/*", "--", ";", "%", "<!--", "{-", "(*", "{#", _REM))


@cache
def _syntaxes() -> dict[str, Syntax]:
    """Return the syntax for each file name suffix in languages.toml."""
    text = Path(__file__).with_name("languages.toml").read_text(encoding="utf-8")
    syntaxes: dict[str, Syntax] = {}
    for language in tomllib.loads(text)["languages"]:
        syntax = Syntax(tuple(language["comments"]), language["quotes"])
        for suffix in language["files"].split():
            syntaxes[suffix] = syntax
    return syntaxes


def syntax_of(path: str) -> Syntax:
    """Return how a file writes comments, by its suffix; an unknown suffix allows all common ways."""
    return _syntaxes().get(_suffix(path), UNKNOWN_SYNTAX)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.removeprefix(".").lower()


def comments_in(line: str, syntax: Syntax) -> Iterator[tuple[str, bool]]:
    """Yield each comment of one line without its signs, and whether the line has no code.

    A line of more than 20,000 characters has no comments.
    """
    if len(line) > _LONGEST_LINE:
        return
    text = line.lstrip()
    if "/*" in syntax.openers and text.startswith("*"):
        # The middle of a block comment, as it is commonly written.
        comment = text.removeprefix("*").split("*/", 1)[0]
        yield comment, True
        return
    has_code_before = False
    for piece in _cut(line, _comment_signs(syntax)):
        if piece.kind != "comment":
            continue
        opener = line[piece.start : piece.inner]
        closer = _CLOSERS.get(opener.lower(), "")
        comment = line[piece.inner : piece.end]
        # Braces enclose a comment between tags, and a script writes `@` before one.
        has_code_before = has_code_before or bool(line[: piece.start].strip(" \t@{"))
        has_code = has_code_before or bool(line[piece.end :].strip(" \t\r}"))
        yield comment.removesuffix(closer), not has_code


class _Piece(NamedTuple):
    """A comment, a string or another token: where it starts, where its opening sign ends, and where it ends."""

    kind: str | None
    start: int
    inner: int
    end: int


def _cut(text: str, pattern: re.Pattern[str]) -> Iterator[_Piece]:
    """Yield the pieces of a text that a pattern describes; comments and strings extend to their closing sign."""
    # The position up to which a sign is known to have no counterpart: to search again for each sign would take
    # quadratic time.
    unclosed_until: dict[str, int] = {}
    position = 0
    while True:
        found = pattern.search(text, position)
        if found is None:
            return
        position = found.end()
        sign = found[0].lower()
        is_unclosed = position <= unclosed_until.get(sign, 0)
        if found.lastgroup == "comment":
            closing_end = -1 if is_unclosed else _end_of_block_comment(text, sign, position)
            if closing_end < 0:
                unclosed_until[sign] = len(text)
                closing_end = _end_of_line(text, position)
            position = closing_end
        elif found.lastgroup == "quote":
            if is_unclosed:
                continue
            closing = _closing_quote(text, sign, position)
            if closing is None or closing[0] != sign:
                # An apostrophe, or the end of a string of several lines.
                unclosed_until[sign] = len(text) if closing is None else closing.start()
                continue
            position = closing.end()
        yield _Piece(found.lastgroup, found.start(), found.end(), position)


def _end_of_block_comment(text: str, opener: str, position: int) -> int:
    """Return where a comment with a closing sign ends, or -1 if nothing closes it."""
    closer = _CLOSERS.get(opener)
    if closer is None:
        return -1
    closing = text.find(closer, position)
    return closing + len(closer) if closing >= 0 else -1


def _end_of_line(text: str, position: int) -> int:
    newline = text.find("\n", position)
    return newline if newline >= 0 else len(text)


def _closing_quote(text: str, sign: str, position: int) -> re.Match[str] | None:
    """Return the sign or the newline that ends a string."""
    for found in _quote_ends(sign).finditer(text, position):
        is_escaped = found[0].startswith("\\")
        if not is_escaped:
            return found
    return None


@cache
def _quote_ends(sign: str) -> re.Pattern[str]:
    """Return a pattern for an escaped character and for the signs that may end a string."""
    pattern = rf"\\.|{sign}"
    may_hold_newlines = sign in ('"""', "'''", "`")
    if not may_hold_newlines:
        pattern += r"|\n"
    return re.compile(pattern, re.DOTALL)


@cache
def _comment_signs(syntax: Syntax) -> re.Pattern[str]:
    """Return a pattern for the signs that open a comment or a string on one line."""
    signs = []
    for opener in sorted(syntax.openers, key=len, reverse=True):
        if opener == _REM:
            # A word, which opens a comment only where a command may be.
            signs.append(r"(?:(?<=^)|(?<=[\s@&:]))rem ")
        else:
            signs.append(re.escape(opener))
    pattern = f"(?P<comment>{'|'.join(signs)})"
    if syntax.quotes:
        pattern += f"|(?P<quote>[{syntax.quotes}])"
    return re.compile(pattern, re.IGNORECASE)


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
# After one of these, a parenthesis only groups: formatters add it around code that they break into lines.
_GROUPING = frozenset(
    {"=", "return", "in", "assert", "yield", "if", "elif", "while", "with", "del", "for", "await", "import", "not"}
    | {"lambda", "=>", ":", ",", "(", "[", "{", "switch", "throw", "raise"}
)
_LONGEST_GROUP = 400
# A statement continues on the next line after or before one of these.
_CONTINUED_AFTER = frozenset({"=", "&", "|", "+", "\\"})
_CONTINUED_BEFORE = frozenset(".?&|")
_PROSE = frozenset({"", "md", "txt", "rst", "yaml", "yml", "toml", "ini", "csv", "properties", "conf", "cfg"})


class Token(NamedTuple):
    """A piece of code, and the lines on which it begins and ends, counted from 1."""

    text: str
    line: int
    last_line: int


class Statement(NamedTuple):
    """The first and last line of a statement, and its tokens."""

    first: int
    last: int
    tokens: tuple[str, ...]


def tokens_of_code(text: str, path: str) -> tuple[str, ...]:
    """Return the tokens of a piece of code; if it is only a comment, return those of the comment."""
    return _texts(text, syntax_of(path)) or _texts(text, None)


def _texts(text: str, syntax: Syntax | None) -> tuple[str, ...]:
    tokens = _without_decoration(list(_scan(text, syntax)))
    return tuple(token.text for token in tokens)


def _scan(text: str, syntax: Syntax | None) -> Iterator[Token]:
    """Yield the tokens as they are written, strings without their quotes; without comments if there is a syntax."""
    line = 1
    counted = 0
    for piece in _cut(text, _token_signs(syntax)):
        line += text.count("\n", counted, piece.start)
        counted = piece.start
        if piece.kind == "quote":
            sign_length = piece.inner - piece.start
            inner = text[piece.inner : piece.end - sign_length]
            unescaped = inner.replace("\\'", "'").replace('\\"', '"')
            content = " ".join(unescaped.split())
            # The quote keeps a string apart from a name.
            yield Token(f'"{content}', line, line + inner.count("\n"))
        elif piece.kind is None:
            word = text[piece.start : piece.end]
            if word[0].isdigit():
                word = word.lower()
            yield Token(word, line, line)


# These open a comment anywhere; the other signs occur in code too, and open one only after white space.
_CLEAR_OPENERS = frozenset({"//", "/*", "<!--", "(*", "{-", "{#", "<%--", "@*", "<#"})
_OPENERS_OF_UNKNOWN_SYNTAX = frozenset({"#", "//", "/*", "<!--"})
_OPENERS_LIKE_TOKENS = frozenset({"'", '"', "{"})


@cache
def _token_signs(syntax: Syntax | None) -> re.Pattern[str]:
    """Return a pattern for tokens and for the signs that open a comment or a string."""
    is_unknown = syntax is UNKNOWN_SYNTAX
    openers = () if syntax is None else syntax.openers
    signs = []
    for opener in sorted(openers, key=len, reverse=True):
        if opener in _OPENERS_LIKE_TOKENS or (is_unknown and opener not in _OPENERS_OF_UNKNOWN_SYNTAX):
            continue
        sign = re.escape(opener)
        if is_unknown or opener not in _CLEAR_OPENERS:
            sign = rf"(?<![^\s]){sign}"
        signs.append(sign)
    parts = [r"(?P<quote>\"\"\"|'''|[\"'`])", r"[^\W\d]\w*", r"\d[\w.]*", r"=>|[^\w\s]"]
    if signs:
        parts.insert(0, f"(?P<comment>{'|'.join(signs)})")
    return re.compile("|".join(parts), re.IGNORECASE)


def _without_decoration(tokens: list[Token]) -> list[Token]:
    """Return the tokens without those that formatters add and remove."""
    removed: set[int] = set()
    open_brackets: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in _OPENING:
            open_brackets.append(index)
        elif token.text in _CLOSING:
            start = open_brackets.pop() if open_brackets else -1
            has_trailing_comma = index > 0 and tokens[index - 1].text == ","
            is_only_comma = start == index - 2
            if has_trailing_comma and not is_only_comma:
                removed.add(index - 1)
            if token.text == ")" and start >= 0 and _only_groups(tokens, start, index):
                removed.update((start, index))
        elif token.text == ";" or (token.text == "\\" and _is_last_of_line(tokens, index)):
            removed.add(index)
    return [token for index, token in enumerate(tokens) if index not in removed]


def _only_groups(tokens: list[Token], start: int, end: int) -> bool:
    """Tell whether the brackets at two indices only group the tokens between them."""
    is_empty = end == start + 1
    if tokens[start].text != "(" or is_empty:
        return False
    if end + 1 < len(tokens) and tokens[end + 1].text == "=>":
        # The parentheses of an arrow function with one parameter.
        return end == start + 2
    before = tokens[start - 1].text if start else ":"
    if before not in _GROUPING or end - start > _LONGEST_GROUP:
        return False
    is_at_end = _is_last_of_line(tokens, end) or tokens[end + 1].text in (":", ";", "{", ")", "]", "}")
    if not is_at_end:
        return False
    makes_tuple_or_generator = any(token.text in (",", "for") for token in tokens[start + 1 : end])
    return before == "import" or not makes_tuple_or_generator


def _is_last_of_line(tokens: list[Token], index: int) -> bool:
    return index + 1 == len(tokens) or tokens[index + 1].line > tokens[index].last_line


_COMMENT = regex(r"#|//|/\*|\*|--|<!--|;|%")
_END_OF_BLOCK = regex(r"[)\]}]|end\b|</|\{$")
# Statements that enclose code without defining anything.
_CONTROL = regex(
    r"(?:async\s|await\s)?\s{0,4}(?:if|elif|elsif|else|for|foreach|while|until|unless|try|except|finally|with|switch|case|"
    r"default|do|catch|match|when|begin|rescue|ensure|loop|using|lock|synchronized|select|defer|go|return|then|not)\b"
)
_MOST_HEADERS = 6
# A longer statement is compared line by line, and so is a larger file.
_LONGEST_STATEMENT = 12
_LARGEST_FILE = 1_000_000


class _Outline(NamedTuple):
    """The definitions of a file, each known by its first line.

    `around` maps each line to the innermost definition around it, 0 if there is none. `last_inner` maps each line that
    has deeper code after it to the last line directly inside, and `ends` to the end of that block.
    """

    around: list[int]
    last_inner: dict[int, int]
    ends: dict[int, int]


class _OpenBlock(NamedTuple):
    """A line that may enclose the lines after it, and the innermost definition for those lines."""

    line: int
    indent: int
    definition: int


class CodeText:
    """The content of one file, with lines numbered from 1: its statements and definitions."""

    def __init__(self, content: bytes, path: str = "") -> None:
        self._path = path
        self._syntax = syntax_of(path)
        self._text = content.decode("utf-8", "replace")
        self._lines = self._text.split("\n")
        self._is_whole = len(self._text) <= _LARGEST_FILE
        self._functions: dict[int, tuple[str, ...]] = {}

    def line(self, number: int) -> str:
        """Return the line with a number, or an empty text if there is none."""
        return self._lines[number - 1] if 1 <= number <= len(self._lines) else ""

    def statement_list(self) -> tuple[Statement, ...]:
        """Return all statements in order, without lines that have no code.

        Each line of a long statement, of a string with several lines and of a large file is a statement of its own.
        """
        return self._statements

    def statements(self, first: int, last: int) -> tuple[Statement, ...]:
        """Return the statements that share a line with those from first to last, in order."""
        start = bisect_left(self._statements, first, key=lambda statement: statement.last)
        end = bisect_right(self._statements, last, key=lambda statement: statement.first)
        return self._statements[start:end]

    def function_at(self, line: int) -> tuple[str, ...] | None:
        """Return the tokens of the innermost definition around a line, or None outside of one.

        The lines that open a definition belong to it.
        """
        if not 1 <= line <= len(self._lines):
            return None
        first = last = line
        statements = self.statements(line, line)
        if statements:
            first, last, _ = statements[0]
        definition = self._outline.around[first]
        is_control = _CONTROL.match(self._lines[first - 1].lstrip()) is not None
        opens_block = self._outline.last_inner.get(first, 0) > last
        if opens_block and not is_control:
            definition = first
        if not definition:
            return None
        if definition not in self._functions:
            statements = self.statements(definition, self._outline.ends[definition])
            self._functions[definition] = tuple(token for one in statements for token in one.tokens)
        return self._functions[definition]

    def headers(self, line: int) -> tuple[str, ...]:
        """Return the names of the definitions around a line, the innermost first: their tokens up to the parameters."""
        if not 1 <= line <= len(self._lines):
            return ()
        names: list[str] = []
        definition = self._outline.around[line]
        while definition and len(names) < _MOST_HEADERS:
            for statement in self.statements(definition, definition):
                tokens = statement.tokens
                if "(" in tokens:
                    tokens = tokens[: tokens.index("(")]
                names.append(" ".join(tokens))
            definition = self._outline.around[definition]
        return tuple(names)

    def places(self, code: str) -> list[tuple[int, int]]:
        """Return the first and last line of each place where a piece of code is; places do not overlap."""
        wanted = list(_texts(code, self._syntax))
        # A piece of a statement may begin or end between brackets.
        while wanted and wanted[-1] == ",":
            wanted.pop()
        if len(wanted) > 1 and wanted[-1] == "(" and wanted[-2] in _GROUPING:
            wanted.pop()
        if not wanted:
            return []
        offset = min(range(len(wanted)), key=lambda index: len(self._indices_of_text.get(wanted[index], ())))
        places: list[tuple[int, int]] = []
        end = 0
        for index in self._indices_of_text.get(wanted[offset], ()):
            start = index - offset
            if start < end:
                continue
            found = self._tokens[start : start + len(wanted)]
            if [token.text for token in found] == wanted:
                end = start + len(wanted)
                places.append((found[0].line, found[-1].last_line))
        return places

    @cached_property
    def _written_tokens(self) -> list[Token]:
        return list(_scan(self._text, self._syntax)) if self._is_whole else []

    @cached_property
    def _tokens(self) -> list[Token]:
        return _without_decoration(self._written_tokens)

    @cached_property
    def _indices_of_text(self) -> dict[str, list[int]]:
        indices: defaultdict[str, list[int]] = defaultdict(list)
        for index, token in enumerate(self._tokens):
            indices[token.text].append(index)
        return indices

    @cached_property
    def _tokens_of_line(self) -> dict[int, list[str]]:
        tokens: defaultdict[int, list[str]] = defaultdict(list)
        for token in self._tokens:
            tokens[token.line].append(token.text)
        return tokens

    @cached_property
    def _string_lines(self) -> dict[int, int]:
        """Map each line of a string with several lines to the first line of the string."""
        lines: dict[int, int] = {}
        for token in self._tokens:
            if token.last_line > token.line:
                for line in range(token.line, token.last_line + 1):
                    lines.setdefault(line, token.line)
        return lines

    @cached_property
    def _statements(self) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        for first, last in self._spans():
            lines = range(first, last + 1)
            has_long_string = any(line in self._string_lines for line in lines)
            if len(lines) > _LONGEST_STATEMENT or has_long_string:
                groups = [range(line, line + 1) for line in lines]
            else:
                groups = [lines]
            for group in groups:
                tokens = self._tokens_in(group)
                if tokens:
                    statements.append(Statement(group[0], group[-1], tokens))
        return tuple(statements)

    def _tokens_in(self, lines: range) -> tuple[str, ...]:
        tokens: list[str] = []
        for line in lines:
            if line in self._string_lines or not self._is_whole:
                tokens += _texts(self._lines[line - 1], self._syntax)
            else:
                tokens += self._tokens_of_line.get(line, ())
        return tuple(tokens)

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last line of each statement, of any length."""
        if not self._is_whole:
            for line in range(1, len(self._lines) + 1):
                yield line, line
            return
        suffix = _suffix(self._path)
        is_prose = suffix in _PROSE
        # Code in braces is a block of statements, except in Python.
        joining = "([{" if suffix in ("py", "pyi") else "(["
        open_brackets: list[str] = []
        first = 0
        for token, following in zip_longest(self._written_tokens, self._written_tokens[1:]):
            first = first or token.line
            if token.text in _OPENING:
                open_brackets.append(token.text)
            elif token.text in _CLOSING and open_brackets:
                open_brackets.pop()
            if following is not None:
                if following.line <= token.last_line:
                    continue
                if open_brackets and open_brackets[-1] in joining:
                    continue
                if not is_prose and (following.text in _CONTINUED_BEFORE or token.text in _CONTINUED_AFTER):
                    continue
            yield first, token.last_line
            first = 0

    @cached_property
    def _outline(self) -> _Outline:
        around = [0]
        last_inner: dict[int, int] = {}
        ends: dict[int, int] = {}
        blocks: list[_OpenBlock] = []
        last_code = 0
        for number, line in enumerate(self._lines, start=1):
            text = line.lstrip()
            if not text or self._string_lines.get(number, number) < number:
                around.append(around[-1])
                continue
            indent = len(line[: len(line) - len(text)].expandtabs(4))
            depth = bisect_left(blocks, indent, key=lambda block: block.indent)
            definition = blocks[depth - 1].definition if depth else 0
            around.append(definition)
            if _COMMENT.match(text):
                continue
            if not _END_OF_BLOCK.match(text.rstrip()):
                for block in blocks[depth:]:
                    ends[block.line] = last_code
                del blocks[depth:]
                if blocks:
                    last_inner[blocks[-1].line] = number
                if not _CONTROL.match(text):
                    definition = number
                blocks.append(_OpenBlock(number, indent, definition))
            last_code = number
        for block in blocks:
            ends[block.line] = last_code
        return _Outline(around, last_inner, ends)
