"""The part of GitHub's expressions that our files use: values by path, texts, comparisons, and, or, brackets.

A value that is not there is None. Reading on below None gives None, as on a runner.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r"\s*(?:(?P<text>'[^']*')|(?P<sign>==|!=|&&|\|\||[()])|(?P<path>[A-Za-z_][\w.-]*))")
_INSERTED = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def inserted(template: object, contexts: Mapping[str, Any]) -> str:
    """A text with its `${{ }}` filled in, as a runner hands it over in a variable."""
    return _INSERTED.sub(lambda found: _as_text(evaluated(found[1], contexts)), str(template))


def evaluated(expression: str, contexts: Mapping[str, Any]) -> Any:
    """The value of an expression. Raises ValueError for what is not understood, so that no test passes by mistake."""
    parser = _Parser(_tokens(expression), contexts)
    value = parser.either()
    if parser.tokens:
        raise ValueError(f"{expression!r} has more than an expression: {parser.tokens}")
    return value


def _tokens(expression: str) -> list[str]:
    found, position = [], 0
    text = expression.strip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"{text[position:]!r} is not understood")
        found.append(token[0].strip())
        position = token.end()
    return found


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Parser:
    def __init__(self, tokens: list[str], contexts: Mapping[str, Any]) -> None:
        self.tokens = tokens
        self._contexts = contexts

    def either(self) -> Any:
        value = self._all()
        while self.tokens[:1] == ["||"]:
            self.tokens.pop(0)
            other = self._all()
            value = value or other
        return value

    def _all(self) -> Any:
        value = self._compared()
        while self.tokens[:1] == ["&&"]:
            self.tokens.pop(0)
            other = self._compared()
            value = value and other
        return value

    def _compared(self) -> Any:
        value = self._one()
        if self.tokens[:1] in (["=="], ["!="]):
            sign = self.tokens.pop(0)
            same = value == self._one()
            return same if sign == "==" else not same
        return value

    def _one(self) -> Any:
        token = self.tokens.pop(0)
        if token == "(":
            value = self.either()
            if self.tokens.pop(0) != ")":
                raise ValueError("a bracket is not closed")
            return value
        if token.startswith("'"):
            return token[1:-1]
        value = self._contexts
        if token.split(".", 1)[0] not in value:
            raise ValueError(f"{token} is no context")
        for name in token.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value
