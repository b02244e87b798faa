"""What may reach a terminal, a log or a JSON document: every character that could act or hide is shown escaped.

Escaped are control characters (so no escape sequence survives), bidirectional controls, invisible and zero-width
characters, line and paragraph separators and lone surrogates. Ordinary text of any script and emoji stay as they
are: a zero-width joiner or a variation selector is kept only inside an emoji. A backslash that was in the text is
not doubled, so the result is for reading, not for decoding. Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from functools import cache

_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_ALWAYS_ESCAPED = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_FORBIDDEN = (
    rf"[{_ALWAYS_ESCAPED}]"
    rf"|(?<![{_EMOJI}0-9#*])[\ufe0e\ufe0f]"
    rf"|(?<![{_EMOJI}])(?<![{_EMOJI}]\ufe0f)\u200d"
    rf"|\u200d(?![{_EMOJI}])"
)
_FORBIDDEN_OUTSIDE_ASCII = rf"\x7f|(?![\x00-\x7f])(?:{_FORBIDDEN})"
_LOG_COMMAND = r"(?m)^([^\S\n]*):(?=:)|##(?=\w*\[)"
_IN_ASCII = str.maketrans(
    {"—": "-", "–": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "·": "-", "×": "x", "→": "->", "\xa0": " "}
)


def plain_signs(text: str) -> str:
    """The text with the nearest sign of ASCII in the place of dashes, quotes and the like."""
    return text.translate(_IN_ASCII)


def in_ascii(text: str) -> str:
    """The text without anything outside of ASCII: plain signs, and escapes for what has none."""
    return plain_signs(text).encode("ascii", "backslashreplace").decode("ascii")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled on first use: that takes milliseconds, and every start of the program loads this module."""
    return re.compile(text)


def terminal(text: str, *, keep_newlines: bool = False) -> str:
    """The text with nothing in it that a terminal would obey or hide: `\\x1b`, `\\u202e`; a tab becomes a space.

    A byte of a path that is not UTF-8 (a surrogate escape) is shown as that byte, `\\xff`. Without
    `keep_newlines` the result is one line; with it, `\\r\\n` counts as a newline.
    """
    text = text.replace("\t", " ")
    if text.isascii() and text.isprintable():
        return text
    if not keep_newlines:
        return _pattern(_FORBIDDEN).sub(_visible, text)
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(_pattern(_FORBIDDEN).sub(_visible, line) for line in lines)


def log_line(text: str) -> str:
    """One line for a CI log: as `terminal`, and nothing in it is a command to the CI system (`::`, `##[`)."""
    return without_log_commands(terminal(text))


def without_log_commands(lines: str) -> str:
    """Break what CI systems would obey: `::` at the start of a line, and `##[` or `##name[` anywhere in it."""
    return _pattern(_LOG_COMMAND).sub(lambda match: f"{match[1]}: " if match[1] is not None else "## ", lines)


def for_ci_log(text: str) -> str:
    """A whole result that is printed into the log of a CI job, without a command to the CI system.

    A document keeps its value: in XML and HTML the first character is written as a reference, and JSON has escaped it
    already. In other text the command is broken by a space.
    """
    if text.startswith(("{", "[")):
        return text
    if text.startswith("<"):
        return _pattern(_LOG_COMMAND).sub(lambda match: f"{match[1]}&#58;" if match[1] is not None else "&#35;#", text)
    return without_log_commands(text)


def json_document(document: str) -> str:
    """A JSON document of the same value that is safe to print: forbidden characters as `\\u` escapes.

    Lone surrogates become `\\udcXX`, so a path that is not UTF-8 survives and the document can be encoded.
    The document must be one that `json.dumps` made: characters outside ASCII stand only inside its strings.
    """
    escaped = _pattern(_FORBIDDEN_OUTSIDE_ASCII).sub(_json_escape, document)
    return _pattern(r"##(?=\w*\[)").sub(r"#\\u0023", escaped) if "##" in escaped else escaped


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
