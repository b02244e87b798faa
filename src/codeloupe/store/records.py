"""Stored data as bytes and back, exactly: the model's own types as JSON, compressed when it is long.

A field that the model does not know is ignored, and one that an older version did not store gets its default. Python's
json writes, since msgspec refuses lone surrogates, which paths may contain; they are written as they are, because an
escaped one would join with its neighbour when it is read. What is stored has been redacted by the caller.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

_Kind = TypeVar("_Kind")

# Raised when what is written can no longer be read by an older version, not when a field is added.
FORM = 1
_COMPRESSED, _PLAIN = b"z", b"j"
_LARGEST_INTEGER = 2**63 - 1


class Unreadable(ValueError):
    """Bytes that are nothing we stored; the message says why."""


class FromNewerVersion(Unreadable):
    """What was written by a codeloupe that writes in another form."""


def storable(value: object) -> Any:
    """Return a value in the form in which both databases store it.

    Half a character and NUL are escaped, numbers that are too large become the largest ones, and numbers that are not
    finite become 0.
    """
    match value:
        case bool():
            return int(value)
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
        case int():
            return max(-_LARGEST_INTEGER, min(_LARGEST_INTEGER, value))
        case float() if math.isfinite(value):
            # SQLite does not store the sign of a zero. The sum of a negative and a positive zero is positive.
            return value + 0.0
        case float():
            return 0.0
    return value


def to_json(value: object) -> str:
    """A record as JSON, on one line. Raises ValueError for what cannot be written."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, NotImplementedError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def read_json(data: bytes | str) -> dict[str, Any]:
    """A JSON object, lone surrogates too. Raises Unreadable."""
    try:
        document = json.loads(data if isinstance(data, str) else data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is truncated, or not JSON ({error})") from error
    if not isinstance(document, dict):
        raise Unreadable("it is not a JSON object")
    return document


def from_json(kind: type[_Kind], document: object) -> _Kind:
    """The record that a document was made of. Raises Unreadable."""
    try:
        return msgspec.convert(document, kind, dec_hook=lambda wanted, value: wanted(value))
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def encode(value: object) -> bytes:
    """A frozen object as bytes. Raises ValueError for what cannot be written."""
    return pack(f'{{"form":{FORM},"value":{to_json(value)}}}')


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The object that `encode` was given. Raises Unreadable, or FromNewerVersion for a form that is not known."""
    document = read_json(unpack(data))
    form = document.get("form")
    if not isinstance(form, int):
        raise Unreadable("it has an unknown format")
    if form != FORM:
        raise FromNewerVersion(f"another version of codeloupe wrote it (format {form}, this version reads {FORM})")
    return from_json(kind, document.get("value"))


def pack(text: str) -> bytes:
    """Any text, lone surrogates too, as bytes, compressed when it is long; the first byte says which."""
    data = text.encode("utf-8", "surrogatepass")
    # Level 3 takes a third of the time of the usual 6 and gives away a few percent of the size.
    return _PLAIN + data if len(data) <= 1024 else _COMPRESSED + zlib.compress(data, 3)


def unpack(data: object) -> str:
    """The text that `pack` was given. Raises Unreadable."""
    if not isinstance(data, bytes) or data[:1] not in (_COMPRESSED, _PLAIN):
        raise Unreadable("it has an unknown format")
    try:
        return (zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]).decode("utf-8", "surrogatepass")
    except (zlib.error, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from error


def replace_file(file: Path, data: bytes, *, mode: int = 0o600, exact_mode: int | None = None) -> None:
    """Put a whole file in place, durably, by a rename, which replaces a link; `exact_mode` overrules the mask."""
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as stream:
            if exact_mode is not None:
                os.fchmod(stream.fileno(), exact_mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except BaseException:  # also when it is interrupted, no half of a file is left
        temporary.unlink(missing_ok=True)
        raise
    flush_directory(file.parent)


def flush_directory(directory: Path) -> None:
    """Make sure that the names in a directory are on the disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
