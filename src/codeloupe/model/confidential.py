"""Data that holds a secret: no representation, so no log and no traceback, shows it."""

from __future__ import annotations

from msgspec import Struct


class Confidential(Struct, frozen=True):
    """A base for such data: its representation names the class alone."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"
