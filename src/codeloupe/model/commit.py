"""A commit as the log tells it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Commit(Struct, frozen=True, kw_only=True):
    """One commit; `files` are the paths its diff against the first parent touches."""

    sha: str
    author: str
    email: str
    time: datetime
    subject: str
    body: str
    files: tuple[str, ...]
    insertions: int
    deletions: int
    parents: tuple[str, ...]
