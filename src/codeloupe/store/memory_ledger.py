"""The ledger of one process, for tests and for a user who has no place to keep anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store import waiting
from codeloupe.store.claims import Claim, Owner
from codeloupe.store.result_text import decode_result, encode_result


class MemoryLedger:
    """Does what `SqliteLedger` does, and forgets all at the end. Results are kept as bytes, so none is shared."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._owner = Owner.here()
        self._lock = threading.Lock()
        self._results: dict[str, bytes] = {}
        self._claims: dict[str, Claim] = {}

    def get(self, key: str) -> AgentResult | None:
        """A finished call, marked as `from_ledger`, or None."""
        with self._lock:
            data = self._results.get(key)
        if data is None:
            return None
        return replace(decode_result(data), from_ledger=True)

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key for buying. False while a claim on it holds."""
        now = self._clock()
        wanted = Claim.until(now, owner=self._owner, lease_seconds=lease_seconds)
        with self._lock:
            standing = self._claims.get(key)
            if standing is not None and standing.holds(now):
                return False
            self._claims[key] = wanted
        return True

    def is_claimed(self, key: str) -> bool:
        """Whether a claim on it holds now."""
        standing = self._claims.get(key)
        return standing is not None and standing.holds(self._clock())

    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our claim, if there is one."""
        wanted = Claim.until(self._clock(), owner=self._owner, lease_seconds=lease_seconds)
        with self._lock:
            if key in self._claims:
                self._claims[key] = wanted

    def put(self, key: str, result: AgentResult) -> None:
        """Keep a result and end our claim. Raises StoreError when it could not be stored either."""
        try:
            data = encode_result(result)
        except ValueError as error:
            raise StoreError(
                f"the result of {result.agent} cannot be stored: {error}", hint="it can be used, but not kept"
            ) from error
        with self._lock:
            self._results[key] = data
            self._claims.pop(key, None)

    def release(self, key: str) -> None:
        """End our claim without a result."""
        with self._lock:
            self._claims.pop(key, None)

    def forget(self, key: str) -> bool:
        """Remove a result; False when there was none."""
        with self._lock:
            return self._results.pop(key, None) is not None

    async def wait_for(self, key: str, *, poll_seconds: float, timeout: float) -> AgentResult | None:
        """What the holder of the claim puts; None when nobody holds one any more, or the time is up."""
        return await waiting.wait_for(self, key, poll_seconds=poll_seconds, timeout=timeout)
