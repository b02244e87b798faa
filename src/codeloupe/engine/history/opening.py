"""Opens the history of this user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from codeloupe.store.database import Database, database_path
from codeloupe.store.history import SqliteHistory

OpenedHistory = Callable[[], AbstractContextManager[SqliteHistory]]


@contextmanager
def opened_history(environment: Mapping[str, str] = os.environ) -> Iterator[SqliteHistory]:
    """The history in the one database; the file is touched with its first use. Raises StoreError."""
    with Database(database_path(environment)) as database:
        yield SqliteHistory(database)
