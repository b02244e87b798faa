"""Text of others in a prompt: nothing in it is hidden, and it stands between marks that it cannot write itself."""

from __future__ import annotations

import os

_RANDOM_BYTES = 8


def new_fence() -> str:
    """A marker that whoever wrote the material could not know."""
    return f"material-{os.urandom(_RANDOM_BYTES).hex()}"


def visible(text: str) -> str:
    """The text with each character that cannot be seen, or that turns others around, as `<U+202E>`.

    Newlines and tabs stay. Linear, and of a text without such characters the text itself.
    """
    return "\n".join(line if line.isprintable() else _shown(line) for line in text.split("\n"))


def _shown(line: str) -> str:
    line = line.removesuffix("\r")
    return "".join(sign if sign.isprintable() or sign == "\t" else f"<U+{ord(sign):04X}>" for sign in line)


def cut(text: str, most: int) -> str:
    """At most the first so many characters of a text, and in words how much was left out."""
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most:,} more characters]"


def fenced(fence: str, label: str, text: str) -> str:
    """A block of material between two lines with the marker, which cannot stand in the text itself."""
    shown = visible(text).replace(fence, "[marker]").strip("\n")
    return f"<{fence} {label}>\n{shown}\n</{fence}>"
