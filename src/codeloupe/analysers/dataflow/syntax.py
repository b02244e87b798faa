"""Syntax trees of Python source, also of code for a newer Python than the running one.

The parser of the standard library supports only its own version. Python 3.11 refuses the f-strings of 3.12, which may
contain the same quotes again, the type parameters of 3.12, and the `except A, B:` of 3.14. Such text is rewritten for
3.11 without moving a line: an f-string becomes a call of `__fstring__` with its parts.
"""

from __future__ import annotations

import ast
import re
import warnings

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
_EXCEPT_WITHOUT_BRACKETS = regex(r"^([ \t]*except\*?[ \t]+)([\w.]+(?:[ \t]*,[ \t]*[\w.]+)+)[ \t]*:", re.MULTILINE)
_TYPE_STATEMENT = regex(r"^([ \t]*)type[ \t]+(\w+)(?:\[[^\n=]*\])?[ \t]*=", re.MULTILINE)
# The text between two literals that are one string.
_GAP = regex(r"(?:[ \t\r\n\\]|#[^\n]*\n)*")
_GAP_IN_LINE = regex(r"(?:[ \t]|\\\r?\n)*")
_DEEPEST_F_STRING = 20
_ENDINGS = {
    **{quote: regex(rf"[^\\{quote}]*(?:\\.[^\\{quote}]*)*{quote}", re.DOTALL) for quote in "'\""},
    **{quote: regex(rf"(?:[^\\]|\\.)*?{quote}", re.DOTALL) for quote in ("'''", '"""')},
}


def parse(text: str) -> ast.Module | None:
    """Return the tree, or None for text that is not Python. Raise RecursionError or MemoryError for nested code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            pass
        try:
            return ast.parse(_older_syntax(text))
        except (SyntaxError, ValueError):
            return None


def _older_syntax(text: str) -> str:
    """Return the text in the syntax of Python 3.11. Raise ValueError if a string does not end."""
    text = _TYPE_PARAMETERS.sub(r"\1", text)
    text = _TYPE_STATEMENT.sub(r"\1\2 =", text)
    text = _EXCEPT_WITHOUT_BRACKETS.sub(r"\1(\2):", text)
    code, _ = _code(text, 0, 0)
    return code


def end_of_f_string(text: str, start: int) -> int:
    """Return the position after the f-string whose quotes begin at `start`. Raise ValueError if it does not end."""
    quote = text[start]
    if text.startswith(quote * 3, start):
        quote *= 3
    _, end = _f_string(text, start + len(quote), quote, 0)
    return end


# Code and f-strings are read in turn, as PEP 701 nests them. Each function returns its text and the position after it,
# and raises ValueError for text that does not end.


def _code(text: str, start: int, depth: int, *, in_hole: bool = False) -> tuple[str, int]:
    """Read code from `start` to the end of the text, or to the end of the hole of an f-string."""
    if depth > _DEEPEST_F_STRING:
        raise ValueError("f-strings are nested too deeply")
    written: list[str] = []
    position = start
    open_brackets = 0
    after_string: int | None = None
    while token := _TOKEN.search(text, position):
        written.append(text[position : token.start()])
        if token["quote"]:
            if after_string is not None:
                gap = _GAP if open_brackets > 0 or in_hole else _GAP_IN_LINE
                if gap.fullmatch(text, after_string, token.start()):
                    # Two literals in a row are one string. A call cannot follow a literal like that.
                    written.append("+ ")
            literal, position = _string(text, token, depth)
            written.append(literal)
            after_string = position
            continue
        position = token.end()
        if in_hole and open_brackets == 0 and _ends_hole(text, token):
            return "".join(written), token.start()
        if token["open"]:
            open_brackets += 1
        elif token["close"]:
            open_brackets -= 1
        written.append(token[0])
    if in_hole:
        raise ValueError("an f-string does not end")
    written.append(text[position:])
    return "".join(written), len(text)


def _ends_hole(text: str, token: re.Match[str]) -> bool:
    """Return whether a token ends the expression of a hole: a bracket, a conversion, a format or a final `=`."""
    if token["close"]:
        return True
    after = text[token.end() : token.end() + 1]
    if token["end"] in ("!", ":"):
        return after != "="
    if token["end"] == "=":
        before = text[token.start() - 1]
        return after != "=" and before not in "=!<>:" and after.strip() in ("", "}", "!", ":")
    return False


def _string(text: str, token: re.Match[str], depth: int) -> tuple[str, int]:
    """Read a literal. An f-string is replaced by a call with as many line breaks."""
    quote = token["quote"]
    prefix = token["prefix"] or ""
    if set("fFtT").isdisjoint(prefix):
        end = _ENDINGS[quote].match(text, token.end())
        if end is None:
            raise ValueError("a string does not end")
        return text[token.start() : end.end()], end.end()
    return _f_string(text, token.end(), quote, depth)


def _f_string(text: str, position: int, quote: str, depth: int) -> tuple[str, int]:
    arguments: list[str] = []
    literal = ""
    while not text.startswith(quote, position):
        step = text[position : position + 2]
        if not step:
            raise ValueError("an f-string does not end")
        if step == "\\N" and text[position + 2 : position + 3] == "{":
            # The name of a character, such as `\\N{DASH}`.
            position = max(text.find("}", position), position) + 1
        elif step in ("{{", "}}"):
            literal += step[0]
            position += 2
        elif step[0] == "\\" and step != "\\{":
            literal += step
            position += 2
        elif step[0] == "{":
            holes, position = _hole(text, position, depth)
            arguments.append(_literal(literal))
            arguments += holes
            literal = ""
        else:
            literal += step[0]
            position += 1
    arguments.append(_literal(literal))
    return f"{F_STRING}({','.join(arguments)})", position + len(quote)


def _hole(text: str, start: int, depth: int) -> tuple[list[str], int]:
    """Read the expression of a hole, and the expressions in its format."""
    expression, position = _code(text, start + 1, depth + 1, in_hole=True)
    expressions = [f"({expression})"]
    while text[position : position + 1] != "}":
        if position >= len(text):
            raise ValueError("an f-string does not end")
        if text[position] == "{":
            nested, position = _hole(text, position, depth + 1)
            expressions += nested
        else:
            position += 1
    return expressions, position + 1


def _literal(text: str) -> str:
    """Return a literal with the same text and as many line breaks. Escapes stay as they are written."""
    return repr(text) + "\n" * text.count("\n")
