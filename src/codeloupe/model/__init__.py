"""Frozen data that every room speaks: change, finding, review, usage, events. No I/O, no imports from other rooms."""

from __future__ import annotations

from msgspec import Struct


class Confidential(Struct, frozen=True):
    """A base for data that holds a secret: no representation, so no log and no traceback, shows its values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"
