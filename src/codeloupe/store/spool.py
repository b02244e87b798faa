"""The spool: answers on the disk of this machine while the database cannot store them.

An answer that was paid for is on a disk before it is used: in the database or, while that cannot store it, in the
spool. A server may be unreachable, and a file may be locked by another process. The spool is a ledger in a SQLite file,
one for each database. It is emptied as soon as the database is back, by any process of this machine that uses the
database.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.model.agent import AgentResult, DatabaseReachable, DatabaseUnreachable
from codeloupe.store.interface import Database, short_identity
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.sqlite import SqliteDatabase

_FOLDER = "spool"
_RETRY_SECONDS = 2.0
# The spool is never pruned.
_NO_LIMIT = 1e9
_log = logging.getLogger(__name__)


def open_spool(database: Database, state_directory: Path) -> DatabaseLedger:
    """Return the spool of a database on this machine. Its file is created with the first answer. Raise StoreError."""
    file = SqliteDatabase(state_directory / _FOLDER / f"{short_identity(database)}.sqlite3")
    return DatabaseLedger(file, max_age_days=_NO_LIMIT, max_gb=_NO_LIMIT)


def spooled_answers(database: Database, state_directory: Path) -> int:
    """Return the number of answers that a database does not have yet. Raise StoreError."""
    if not database.is_made():
        return 0
    spool = open_spool(database, state_directory)
    if not spool.database.is_made():
        return 0
    with spool.database:
        return spool.count()


class SpooledLedger:
    """The ledger in a database, with a spool. Methods raise StoreError.

    The name of the spool is known when the database was reached, so nothing is paid for before that. `last_event` is
    the newest change for the user: an outage with the number of spooled answers, or its end.
    """

    def __init__(self, ledger: DatabaseLedger, state_directory: Path, *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self.last_event: DatabaseUnreachable | DatabaseReachable | None = None
        self._ledger = ledger
        self._state_directory = state_directory
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._was_used = False
        self._moved = 0
        self._outage: StoreError | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    @cached_property
    def spool(self) -> DatabaseLedger:
        """The answers that the database does not have yet."""
        return open_spool(self._ledger.database, self._state_directory)

    def get(self, key: str, *, since: float = 0.0) -> AgentResult | None:
        """Return a finished call from the spool or from the database, stored `since` then, or None."""
        self.open()
        # The file is created with the first answer, perhaps by another process.
        if self.spool.database.is_made():
            found = self.spool.get(key, since=since)
            if found is not None:
                return found
        return self._ledger.get(key, since=since)

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key in the database."""
        return self._ledger.claim(key, lease_seconds=lease_seconds)

    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim."""
        self._ledger.renew(key, lease_seconds=lease_seconds)

    def release(self, key: str) -> None:
        """End our claim without a result. During an outage, the claim expires or ends with the outage instead."""
        if isinstance(self.last_event, DatabaseUnreachable):
            return
        with self._ledger.database.once():
            self._ledger.release(key)

    def put(self, key: str, result: AgentResult) -> bool:
        """Store a result durably. Return whether the database has it; otherwise it is in the spool."""
        # During an outage, answers go to the spool at once. Each attempt to use a locked file takes seconds.
        outage = self._outage
        if outage is None:
            try:
                # The caller waits for an answer that is already paid for, so this does not wait for the end of an
                # outage.
                with self._ledger.database.once():
                    self._ledger.put(key, result)
            except StoreError as error:
                outage = error
            else:
                return True
        self.spool.put(key, result)
        self._report_outage(outage)
        return False

    def close(self) -> None:
        """Stop emptying the spool in the background, after a last attempt. The next use begins again."""
        self._is_closed.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        if "spool" in vars(self):
            self.spool.database.close()
        with self._lock:
            self._thread = None
            self._was_used = False
            self._is_closed.clear()

    def open(self) -> None:
        """Empty the spool at the first use, because an earlier process may have left answers in it."""
        with self._lock:
            if self._was_used:
                return
            spool = self.spool
            self._was_used = True
        if not spool.database.is_made() or not spool.count():
            return
        try:
            self._empty()
        except StoreError as error:
            self._report_outage(error)

    def _empty(self) -> None:
        """Move all answers from the spool to the database. Raise StoreError."""
        with self._ledger.database.once():
            row = self.spool.oldest_row()
            while row is not None:
                self._ledger.put_row(row)
                self.spool.remove_row(row)
                self._moved += 1
                row = self.spool.oldest_row()
        self._report_end()

    def _report_outage(self, error: StoreError) -> None:
        with self._lock:
            self._outage = error
            since = datetime.now(UTC).astimezone()
            if isinstance(self.last_event, DatabaseUnreachable):
                since = self.last_event.since
            is_reached = not isinstance(error, StoreUnavailable)
            self.last_event = DatabaseUnreachable(since, self.spool.count(), error.message, is_reached)
            _log.warning("%s: %s", self.last_event.summary, error.message)
            if self._thread is None:
                self._thread = threading.Thread(target=self._empty_in_background, name="spool", daemon=True)
                self._thread.start()

    def _report_end(self) -> None:
        with self._lock:
            self._outage = None
            if self._moved or isinstance(self.last_event, DatabaseUnreachable):
                self.last_event = DatabaseReachable(self._moved)
                self._moved = 0
                _log.warning("%s", self.last_event.summary)

    def _empty_in_background(self) -> None:
        """Retry until the spool is empty, or until the ledger is closed."""
        is_done = False
        while not is_done:
            is_last = self._is_closed.wait(self._retry_seconds)
            with suppress(StoreError):
                self._empty()
            is_done = is_last or self._end_if_empty()

    def _end_if_empty(self) -> bool:
        """Return whether the thread can end. An answer that is spooled after that starts a new one."""
        with self._lock, suppress(StoreError):
            if not self.spool.count():
                self._thread = None
                return True
        return False
