"""Where a comment begins in a line of code, in the languages people write; what stands in a string is none.

One line is looked at, by itself: of a string or a comment that began on an earlier line nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from msgspec import Struct

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
