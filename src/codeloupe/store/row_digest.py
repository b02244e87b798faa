"""Digests of rows, which are equal in SQLite and Postgres if the rows are."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct


class EntryDigest(Struct, frozen=True):
    """The SHA-256 of the rows of an entry, and their number, for each of its tables."""

    digests: tuple[bytes, ...]
    rows: tuple[int, ...]


class RowSums:
    """A sum for each of some tables, over the rows of an entry or over entries."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._sums = {table: hashlib.sha256() for table in tables}
        self._rows = dict.fromkeys(tables, 0)

    def add_row(self, table: str, values: Sequence[Any]) -> None:
        """Add a row of a table."""
        self._sums[table].update(canonical(values))
        self._rows[table] += 1

    def add(self, name: Sequence[Any], entry: EntryDigest | None) -> None:
        """Add an entry, unless it is missing."""
        if entry is None:
            return
        for table, digest, rows in zip(self._sums, entry.digests, entry.rows, strict=True):
            self._sums[table].update(canonical(name) + digest)
            self._rows[table] += rows

    def digest(self) -> EntryDigest:
        """Return the sums of all tables."""
        digests = tuple(its_sum.digest() for its_sum in self._sums.values())
        return EntryDigest(digests, tuple(self._rows.values()))

    def total(self, table: str) -> tuple[int, str]:
        """Return the number of rows of a table, and their digest in hex."""
        return self._rows[table], self._sums[table].hexdigest()


def typed_values(values: Sequence[Any], types: Sequence[type | str]) -> list[Any]:
    """Return the values of a row in a form that both databases store."""
    typed: list[Any] = []
    for value, kind in zip(values, types, strict=True):
        typed.append(_typed(value, kind))
    return typed


def _typed(value: Any, kind: type | str) -> Any:
    """Return a value in the type of its column. SQLite may contain a damaged value of another type."""
    if value is None:
        return None
    if kind is str:
        return _text(value).replace("\0", "\\x00")
    if kind is bytes:
        if isinstance(value, bytes):
            return value
        return str(value).encode()
    number: type[int | float] = float if kind is float else int
    with suppress(TypeError, ValueError, OverflowError):
        # Adding 0 makes a negative zero positive; SQLite does not store the sign.
        return number(value) + number(0)
    return number(0)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def canonical(values: Sequence[Any]) -> bytes:
    """Return values as bytes, so that different values have different bytes."""
    pieces: list[bytes] = []
    for value in values:
        match value:
            case None:
                kind = b"n"
                data = b""
            case float():
                kind = b"f"
                data = struct.pack(">d", value)
            case int():
                kind = b"i"
                data = b"%d" % value
            case str():
                kind = b"s"
                data = value.encode("utf-8", "backslashreplace")
            case _:
                kind = b"b"
                data = value
        pieces += (kind, b"%d:" % len(data), data)
    return b"".join(pieces)
