"""Names as git writes them: C-quoted where a byte is special; on our side `str` with surrogateescape."""

from __future__ import annotations

import re

_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*"')
_ESCAPE = re.compile(rb'\\([abfnrtv"\\]|[0-3][0-7]{2})')
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b'"': b'"',
    b"\\": b"\\",
}


def quoted_length(text: bytes) -> int | None:
    """How many bytes the quoted name at the start of `text` takes, quotes included; None if there is none."""
    match = _QUOTED.match(text)
    return match.end() if match else None


def unquote(name: bytes) -> bytes | None:
    """The bytes a name stands for. A name without quotes is itself; None if it is quoted and malformed."""
    if not name.startswith(b'"'):
        return name
    if quoted_length(name) != len(name):
        return None
    return _ESCAPE.sub(_unescape, name[1:-1])


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return _LETTERS[escape] if escape in _LETTERS else bytes((int(escape, 8),))


def decode_path(path: bytes) -> str:
    """A path as the model keeps it; bytes that are not UTF-8 survive the way back through `os.fsencode`."""
    return path.decode("utf-8", "surrogateescape")
