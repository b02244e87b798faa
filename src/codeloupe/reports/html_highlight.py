"""Colours for code, line by line: strings, comments, numbers and the usual keywords of most languages.

It reads no language. A line is cut into tokens by one pattern that looks a bounded way ahead, so the time is linear;
what it takes wrongly is only coloured wrongly.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath

from codeloupe.reports.html_markup import Child, Html, element, joined

_HASH_COMMENTS = frozenset(
    {".py", ".sh", ".bash", ".rb", ".yml", ".yaml", ".toml", ".pl", ".r", ".tf", ".cfg", ".ini", ".mk", ".conf", ""}
)
_DASH_COMMENTS = frozenset({".sql", ".lua", ".hs"})
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    and as assert async await begin bool boolean break case catch char class const constexpr continue crate def default
    defer del delete do done double elif else elsif end enum esac except export extends false False fi final finally
    float fn for foreach from func function global go goto if impl implements import in include instanceof int interface
    is lambda let long loop match mod module mut namespace new nil None nonlocal not null nullptr of or override package
    pass private protected pub public raise return self short signed sizeof static string struct super switch template
    then this throw throws trait true True try type typedef typeof union unless unsafe unsigned until use using var
    virtual void volatile when where while with yield
    """,
    )
)
_TOKENS = r"""
    (?P<string>"(?:[^"\\]|\\.){0,300}"|'(?:[^'\\]|\\.){0,300}'|`[^`]{0,300}`)
    |(?P<number>\b(?:0[xXbBoO][0-9a-fA-F_]{1,40}|[0-9][0-9_]{0,40}(?:\.[0-9]{1,40})?)\b)
    |(?P<word>[^\W\d]\w*)
"""
_SLASH = r"|(?P<comment>//.*|/\*.*)"
_HASH = r"|(?P<comment>(?<![^\s;])\#.*)"
_DASH = r"|(?P<comment>--.*)"


def highlighted(line: str, *, path: str) -> Html:
    """One line of code as markup."""
    pieces: list[Child] = []
    at = 0
    for match in _pattern(_comments(path)).finditer(line):
        kind = match.lastgroup
        if kind == "word" and match[0] not in _KEYWORDS:
            continue
        pieces += [line[at : match.start()], element("span", match[0], class_=_CLASSES[kind or "word"])]
        at = match.end()
    return joined([*pieces, line[at:]])


_CLASSES = {"string": "s", "number": "n", "word": "k", "comment": "c"}


def _comments(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _HASH_COMMENTS:
        return _HASH
    return _DASH if suffix in _DASH_COMMENTS else _SLASH


@cache
def _pattern(comments: str) -> re.Pattern[str]:
    return re.compile(_TOKENS + comments, re.VERBOSE)
