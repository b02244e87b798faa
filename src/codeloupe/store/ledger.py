"""Finished agent calls in the database: what was paid for is never bought again, by this process or another.

What is stored here has been redacted by the caller.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store import retention, waiting
from codeloupe.store.claims import Claim, Owner
from codeloupe.store.database import Database
from codeloupe.store.result_text import Unreadable, decode_result, encode_result
from codeloupe.store.retention import Limits, Pruned


class LedgerStats(Struct, frozen=True, kw_only=True):
    """What is in the ledger; times are seconds of the wall clock, None when it is empty.

    `size_bytes` counts the results as stored, `file_bytes` the database with all that is in it. `cost_usd` is what
    the results cost when they were bought, as far as the agents told.
    """

    results: int
    claims: int
    size_bytes: int
    file_bytes: int
    cost_usd: float
    oldest_at: float | None
    newest_at: float | None


class SqliteLedger:
    """The ledger in a database file. Each instance is an owner of claims of its own; raises StoreError throughout.

    `clock` gives seconds of the wall clock, since claims are compared between processes. The first `put` of an
    instance also keeps the ledger within `limits`.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = Limits(),  # noqa: B008 - frozen
        owner: Owner | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits
        self._owner = owner or Owner.here()
        self._missed: set[str] = set()

    def get(self, key: str) -> AgentResult | None:
        """A finished call, marked as `from_ledger`, or None."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT payload FROM results WHERE key = ?", (key,)).fetchone()
        if row is None:
            self._missed.add(key)
            return None
        self._missed.discard(key)
        return replace(self._decoded(key, row[0]), from_ledger=True)

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key for buying. False while a claim on it holds, also one of our own: two tasks are two buyers.

        False also when another process finished the call since `get` missed it here: it is there now. One who did
        not ask first wants it bought anew, and gets the claim. Tasks that let others run between the two calls ask
        once more after the claim. A claim whose process is known to be gone can be had at once, any other when its
        lease has run out.
        """
        now = self._clock()
        wanted = Claim.until(now, owner=self._owner, lease_seconds=lease_seconds)
        with self._database.writing() as connection:
            if key in self._missed and _has_result(connection, key):
                return False
            standing = _standing_claim(connection, key)
            if standing is not None and standing.holds(now):
                return False
            connection.execute(
                "INSERT OR REPLACE INTO claims (key, owner, lease_seconds, expires_at) VALUES (?, ?, ?, ?)",
                (key, wanted.owner, wanted.lease_seconds, wanted.expires_at),
            )
        return True

    def is_claimed(self, key: str) -> bool:
        """Whether somebody, or we, hold a claim on it now."""
        with self._database.reading() as connection:
            standing = _standing_claim(connection, key)
        return standing is not None and standing.holds(self._clock())

    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim. One that ran out and went to another stays with it: our call is under way anyway."""
        wanted = Claim.until(self._clock(), owner=self._owner, lease_seconds=lease_seconds)
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE claims SET lease_seconds = ?, expires_at = ? WHERE key = ? AND owner = ?",
                (wanted.lease_seconds, wanted.expires_at, key, wanted.owner),
            )

    def put(self, key: str, result: AgentResult) -> None:
        """Store a result durably and end our claim, in one transaction; it replaces one that is there."""
        row = self._row(key, result)
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO results (key, created_at, size_bytes, agent, model, cost_usd, payload)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, str(self._owner)))
        self._missed.discard(key)
        self._keep_limits()

    def release(self, key: str) -> None:
        """End our claim without a result; a claim of another stays."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, str(self._owner)))

    def forget(self, key: str) -> bool:
        """Remove a result, so that the call is bought again; False when there was none."""
        with self._database.writing() as connection:
            return connection.execute("DELETE FROM results WHERE key = ?", (key,)).rowcount > 0

    async def wait_for(self, key: str, *, poll_seconds: float, timeout: float) -> AgentResult | None:
        """What the holder of the claim puts; None when nobody holds one any more, or the time is up."""
        return await waiting.wait_for(self, key, poll_seconds=poll_seconds, timeout=timeout)

    def stats(self) -> LedgerStats:
        """What is in the ledger now."""
        with self._database.reading() as connection:
            results, size_bytes, oldest_at, newest_at, cost_usd = connection.execute(
                "SELECT count(*), coalesce(sum(size_bytes), 0), min(created_at), max(created_at),"
                " coalesce(sum(cost_usd), 0.0) FROM results"
            ).fetchone()
            claims = [Claim(*row) for row in connection.execute("SELECT owner, lease_seconds, expires_at FROM claims")]
            pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _FILE_SIZE)
        now = self._clock()
        return LedgerStats(
            results=results,
            claims=sum(claim.holds(now) for claim in claims),
            size_bytes=size_bytes,
            file_bytes=pages * page_bytes,
            cost_usd=cost_usd,
            oldest_at=oldest_at,
            newest_at=newest_at,
        )

    def prune(self, max_age_days: float, max_bytes: int) -> Pruned:
        """Remove results that are older, then the oldest until the rest takes no more bytes."""
        limits = Limits(max_age_days=max_age_days, max_bytes=max_bytes)
        return retention.prune(self._database, now=self._clock(), limits=limits)

    def _keep_limits(self) -> None:
        limits, self._limits = self._limits, None
        if limits is not None:
            # The result is stored. What could not be removed now is removed by the next run, and what is wrong with
            # the file is told by the next call that needs it.
            with suppress(StoreError):
                retention.prune(self._database, now=self._clock(), limits=limits)

    def _row(self, key: str, result: AgentResult) -> tuple[object, ...]:
        try:
            payload = encode_result(result)
            cost_usd = None if result.total_cost_usd is None else float(result.total_cost_usd)
        except (ValueError, OverflowError) as error:
            raise StoreError(
                f"the result of {result.agent} cannot be stored: {error}", hint="it can be used, but not kept"
            ) from error
        model = None if result.model is None else _encodable(result.model)
        return key, self._clock(), len(payload), _encodable(result.agent), model, cost_usd, payload

    def _decoded(self, key: str, payload: bytes) -> AgentResult:
        try:
            return decode_result(payload)
        except Unreadable as error:
            raise StoreError(
                f"the result {key} in the database {self._database.path} cannot be read: {error}",
                hint="run it afresh (--fresh); the new result takes its place",
            ) from error


_FILE_SIZE = ("page_count", "page_size")


def _standing_claim(connection: sqlite3.Connection, key: str) -> Claim | None:
    row = connection.execute("SELECT owner, lease_seconds, expires_at FROM claims WHERE key = ?", (key,)).fetchone()
    return None if row is None else Claim(*row)


def _has_result(connection: sqlite3.Connection, key: str) -> bool:
    return connection.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone() is not None


def _encodable(text: str) -> str:
    """A name for the columns that people look at; the exact one is in the payload."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
