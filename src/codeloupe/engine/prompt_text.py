"""Text of others in a prompt: nothing in it is hidden, and it stands between marks that it cannot write itself."""

from __future__ import annotations

import os
import re
from functools import cache

_HIDDEN_ASCII = re.compile(r"([\x00-\x08\x0b-\x1f\x7f])\1*")
_RANDOM_BYTES = 4


def new_fence() -> str:
    """A marker for one run that the author of the reviewed text could not know."""
    return f"data-{os.urandom(_RANDOM_BYTES).hex()}"


def visible(text: str) -> str:
    """The text with each character that cannot be seen, or that turns others around, as `<U+202E>`.

    A run of one of them becomes `<U+200B×40>`; a byte of a path that is not UTF-8 becomes `<0xE9>`. Tabs and newlines
    stay, and CR LF is a newline. Backslash escapes would look like source code, where they mean something.
    """
    if text.isascii() and text.isprintable():
        return text
    return _hidden_in(text).sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text as `visible` shows it, with every newline and tab escaped too."""
    return visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def has_hidden(text: str) -> bool:
    """Whether `visible` would change the text."""
    return not (text.isascii() and text.isprintable()) and _hidden_in(text).search(text) is not None


def cut(text: str, max_bytes: int) -> str:
    """At most the first so many bytes of a text, and in words how much was left out."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= max_bytes:
        return text
    return f"{encoded[:max_bytes].decode('utf-8', 'ignore')}\n[cut: {len(encoded) - max_bytes:,} more bytes]"


def fenced(fence: str, label: str, text: str) -> str:
    """A block of data: visible, and between two lines with the marker, which cannot stand in the text itself."""
    shown = visible(text).replace(fence, "[marker]").strip("\n")
    return f"<{fence} {one_line(label).replace(fence, '[marker]')}>\n{shown}\n</{fence}>"


def _hidden_in(text: str) -> re.Pattern[str]:
    return _HIDDEN_ASCII if text.isascii() else _hidden_anywhere()


@cache
def _hidden_anywhere() -> re.Pattern[str]:
    """For text beyond ASCII, which many changes have none of: so large a class takes milliseconds to compile."""
    emoji = "\u2190-\U0001faff"
    return re.compile(
        r"([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f"
        r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
        r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])\1*"
        # A joiner is a part of some emoji, and between letters a way to make two names look the same.
        rf"|(?<![{emoji}])\u200d|\u200d(?![{emoji}])"
    )


def _shown(match: re.Match[str]) -> str:
    run = match[0]
    code = ord(run[0])
    name = f"0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
    return f"<{name}>" if len(run) == 1 else f"<{name}×{len(run)}>"
