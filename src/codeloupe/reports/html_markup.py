"""HTML that escapes by itself: text is text until an element of ours is put around it.

A `str` is always untrusted here: it is cleaned and escaped wherever it is put. Only `Html`, which nothing but the
functions below makes, passes as it is. Attributes that a browser would run (`on…`, `style`) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from msgspec import Struct

from codeloupe.system.untrusted import terminal

_VOID = frozenset({"meta", "link", "br", "input"})
_NAME = re.compile(r"[a-z][a-z0-9]{0,20}")
_ATTRIBUTE = re.compile(r"(?!on)[a-z][a-zA-Z-]{0,30}")


class Html(Struct, frozen=True):
    """Markup that may be put on a page as it is."""

    text: str


Child = Html | str | None
AttributeValue = str | int | bool | None


def text(words: str) -> Html:
    """Untrusted text: characters that act or hide are shown escaped, and nothing in it is markup."""
    return Html(escape(terminal(words, keep_newlines=True)))


def joined(children: Iterable[Child], between: str = "") -> Html:
    """Several pieces as one; None stands for nothing."""
    pieces = [child if isinstance(child, Html) else text(child) for child in children if child is not None]
    return Html(escape(between).join(piece.text for piece in pieces))


def element(name: str, /, *children: Child, **attributes: AttributeValue) -> Html:
    """`<name …>children</name>`. An attribute that is None or False is left out; `_` stands for `-` in its name.

    Raises ValueError for a name that is none, and for an attribute that could run code.
    """
    if not _NAME.fullmatch(name) or name in ("script", "style"):
        raise ValueError(f"not an element to build: {name!r}")
    shown = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    start = f"<{name}{shown}>"
    return Html(start if name in _VOID else f"{start}{joined(children).text}</{name}>")


def trusted_block(name: str, content: str) -> Html:
    """A `script` or `style` element around a file of ours. Raises ValueError when the content would end it early."""
    if "</" in content or "<!--" in content:
        raise ValueError(f"the content of <{name}> would end it")
    return Html(f"<{name}>{content}</{name}>")


def _attribute(key: str, value: AttributeValue) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name) or name == "style":
        raise ValueError(f"not an attribute to set: {key!r}")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(terminal(str(value)))}"'
