"""Python source to a syntax tree, also where the running Python is older than the code.

The standard library's parser knows only its own version. Up to 3.11 it refuses what 3.12 allows inside f-strings, such
as the same quotes again, and the type parameters of 3.12. Such text is rewritten, line by line as it was, into what
3.11 reads: an f-string becomes a call of `__fstring__` with its parts.
"""

from __future__ import annotations

import ast
import re
import warnings
from contextlib import suppress

from codeloupe.system.regex import regex

F_STRING = "__fstring__"
"""The name of the call that replaces an f-string."""

_TOKEN = regex(
    r"""(?P<comment>\#[^\n]*)
    |(?P<prefix>\b(?:[rbuRBU]|[fFtT][rR]?|[rR][fFtT]|[bB][rR]|[rR][bB]))?(?P<quote>\"\"\"|'''|"|')
    |(?P<open>[\[({])|(?P<close>[\])}])|(?P<end>[!:=])""",
    re.VERBOSE,
)
_TYPE_PARAMETERS = regex(
    r"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+)\[[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*\]", re.MULTILINE
)
_TYPE_STATEMENT = regex(r"^([ \t]*)type[ \t]+(\w+)(?:\[[^\n=]*\])?[ \t]*=", re.MULTILINE)
# What may be between two literals that are one string.
_GAP = regex(r"(?:[ \t\r\n\\]|#[^\n]*\n)*")
_GAP_IN_LINE = regex(r"(?:[ \t]|\\\r?\n)*")
_ENDINGS = {
    **{quote: regex(rf"[^\\{quote}]*(?:\\.[^\\{quote}]*)*{quote}", re.DOTALL) for quote in "'\""},
    **{quote: regex(rf"(?:[^\\]|\\.)*?{quote}", re.DOTALL) for quote in ("'''", '"""')},
}


def parse(text: str) -> ast.Module | None:
    """The tree, or None for text that is no Python. Raises RecursionError or MemoryError for nested code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            with suppress(SyntaxError, ValueError):
                older = _TYPE_STATEMENT.sub(r"\1\2 =", _TYPE_PARAMETERS.sub(r"\1", text))
                return ast.parse(_code(older, 0, 0)[0])
    return None


# Code and f-strings are read in turn, as PEP 701 nests them. Each function gives its text and where that ends, and
# raises ValueError for what does not end.


def _code(text: str, start: int, depth: int, *, in_hole: bool = False) -> tuple[str, int]:
    """Code from `start` on, to the end of the text or of the hole of an f-string."""
    if depth > 20:
        raise ValueError("f-strings are nested too deeply")
    out: list[str] = []
    position, open_brackets = start, 0
    after_string: int | None = None
    while token := _TOKEN.search(text, position):
        out.append(text[position : token.start()])
        if token["quote"]:
            if after_string is not None:
                joined = _GAP if open_brackets > 0 or in_hole else _GAP_IN_LINE
                out.append("+ " if joined.fullmatch(text, after_string, token.start()) else "")
            literal, position = _string(text, token, depth)
            out.append(literal)
            after_string = position
            continue
        position = token.end()
        if in_hole and open_brackets == 0:
            after, before = text[position : position + 1], text[token.start() - 1]
            ends = bool(token["close"]) or (token["end"] in ("!", ":") and after != "=")
            if token["end"] == "=":
                ends = after != "=" and before not in "=!<>:" and after.strip() in ("", "}", "!", ":")
            if ends:
                return "".join(out), token.start()
        open_brackets += bool(token["open"]) - bool(token["close"])
        out.append(token[0])
    if in_hole:
        raise ValueError("an f-string does not end")
    return "".join((*out, text[position:])), len(text)


def _string(text: str, token: re.Match[str], depth: int) -> tuple[str, int]:
    """A literal as it is; or the call that replaces an f-string, with as many line breaks."""
    quote, position = token["quote"], token.end()
    if not set("fFtT") & set(token["prefix"] or ""):
        end = _ENDINGS[quote].match(text, position)
        if end is None:
            raise ValueError("a string does not end")
        return text[token.start() : end.end()], end.end()
    parts: list[str] = []
    literal = ""
    while not text.startswith(quote, position):
        step = text[position : position + 2]
        if not step:
            raise ValueError("an f-string does not end")
        if step == "\\N" and text[position + 2 : position + 3] == "{":
            position = max(text.find("}", position), position) + 1
        elif step in ("{{", "}}") or (step[0] == "\\" and step != "\\{"):
            literal += step if step[0] == "\\" else step[0]
            position += 2
        elif step[0] == "{":
            holes, position = _hole(text, position, depth)
            parts += [_literal(literal), *holes]
            literal = ""
        else:
            literal += step[0]
            position += 1
    return f"{F_STRING}({','.join((*parts, _literal(literal)))})", position + len(quote)


def _hole(text: str, start: int, depth: int) -> tuple[list[str], int]:
    """The expression of a hole, and those in its format."""
    expression, position = _code(text, start + 1, depth + 1, in_hole=True)
    found = [f"({expression})"]
    while text[position : position + 1] != "}":
        if position >= len(text):
            raise ValueError("an f-string does not end")
        if text[position] == "{":
            nested, position = _hole(text, position, depth + 1)
            found += nested
        else:
            position += 1
    return found, position + 1


def _literal(text: str) -> str:
    """A literal with the same text and as many line breaks; escapes are kept as they are written."""
    return repr(text) + "\n" * text.count("\n")
