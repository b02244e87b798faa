"""Path globs as in .gitignore: `*` stays within a folder, `**` does not, a bare name fits at any depth."""

from __future__ import annotations

import re


class Globs:
    """Include and exclude patterns for paths. No include pattern means everything; exclude wins."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = [re.compile(_expression(pattern), re.DOTALL) for pattern in include]
        self._exclude = [(pattern, re.compile(_expression(pattern), re.DOTALL)) for pattern in exclude]

    def unwanted(self, path: str) -> str | None:
        """Why a path is left out, in words, or None when it is wanted."""
        for pattern, expression in self._exclude:
            if expression.fullmatch(path):
                return f"by the pattern {pattern}"
        if self._include and not any(expression.fullmatch(path) for expression in self._include):
            return "no include pattern fits"
        return None


def _expression(pattern: str) -> str:
    """A regular expression for a glob. A pattern for a folder covers everything below it."""
    body = pattern.rstrip("/")
    anchored = "/" in body
    body = body.removeprefix("/")
    prefix = "" if anchored else "(?:.*/)?"
    return f"{prefix}{''.join(_translate(piece) for piece in _pieces(body))}(?:/.*)?"


def _pieces(body: str) -> list[str]:
    return re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|.", body, re.DOTALL)


def _translate(piece: str) -> str:
    if piece == "**/":
        return "(?:.*/)?"
    if piece == "**":
        return ".*"
    if piece == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if piece.startswith("[") and len(piece) > 1:
        inner = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        negated = inner[:1] in ("!", "^")
        members = inner[1:] if negated else inner
        return f"[^/{members}]" if negated else f"[{members}]"
    return re.escape(piece)
