"""Frozen data as the bytes of a database's field and back, exactly, with the form in which it was written.

What is stored has been redacted by the caller.
"""

from __future__ import annotations

import json
import zlib
from typing import TypeVar

from codeloupe.store.failures import Unreadable
from codeloupe.store.record_text import plain, read

_Kind = TypeVar("_Kind")

# Raised when what is written can no longer be read by an older version, not when a field is added.
FORM = 1
_COMPRESSED_FROM_BYTES = 1024
_COMPRESSION_LEVEL = 3
_COMPRESSED = b"z"
_PLAIN = b"j"


class FromNewerVersion(Unreadable):
    """What was written by a codeloupe that writes in another form."""


def encode(value: object) -> bytes:
    """A frozen object as bytes. Raises ValueError for what cannot be written, such as a class that is no data."""
    try:
        text = json.dumps({"form": FORM, "value": plain(value)}, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return pack(text)


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The object that `encode` was given. Raises Unreadable, or FromNewerVersion for a form that is not known.

    Fields that this version does not know are ignored, and those that an older one did not store get their default.
    """
    try:
        document = json.loads(unpack(data))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if not isinstance(document, dict) or not isinstance(form := document.get("form"), int):
        raise Unreadable("it has another form")
    if form != FORM:
        raise FromNewerVersion(f"it was saved by another version of codeloupe (form {form}, this one reads {FORM})")
    return read(kind, document.get("value"))


def pack(text: str) -> bytes:
    """Any text, lone surrogates too, as bytes, compressed when it is long; the first byte says which."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= _COMPRESSED_FROM_BYTES:
        return _PLAIN + data
    return _COMPRESSED + zlib.compress(data, _COMPRESSION_LEVEL)


def unpack(data: object) -> str:
    """The text that `pack` was given. Raises Unreadable."""
    if not isinstance(data, bytes) or data[:1] not in (_COMPRESSED, _PLAIN):
        raise Unreadable("it has another form")
    try:
        unpacked = zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]
        return unpacked.decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error
