"""The ledger: finished agent calls by content key, so that no answer is paid for twice. The caller redacts them."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentRequest, AgentResult, DatabaseReachable, DatabaseUnreachable
from codeloupe.store.interface import Database, persistent
from codeloupe.store.leases import (
    check_seconds,
    end_lease,
    read_lease,
    release_lease,
    remove_expired,
    renew_lease,
    take_lease,
)
from codeloupe.store.maintenance import is_due
from codeloupe.store.owner import Owner, this_process
from codeloupe.store.records import Unreadable, from_json, pack, read_json, unpack

# Increased if the fields of a key or their meaning change. Results with old keys are then no longer found.
_FORMAT = 2
CALL_VERSION = "1"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_SECONDS_PER_DAY = 86_400
# Pruning reads a whole index, so it is done once in this time for all users of a database.
_PRUNE_SECONDS = 3600.0
MAX_AGE_DAYS = 90.0
MAX_GB = 1.0
_BYTES_PER_GB = 1024**3
_COLUMNS = "key, created_at, size_bytes, agent, model, cost_usd, payload"


class Asked(Struct, frozen=True, kw_only=True):
    """The agent, its model, the address of its service if known, and whether the files are trusted."""

    agent: str
    model: str | None
    service: str | None
    trust: str


def content_key(
    request: AgentRequest,
    asked: Asked,
    *,
    version: str = CALL_VERSION,
    tree: str | None = None,
    extra: Mapping[str, str] = _NOTHING,
) -> str:
    """Return the SHA-256, in hex, of everything that shapes the answer to a request.

    `version` is that of the prompts. `tree` names the content of the working directory, for agents that can read files.
    Labels, paths, timeouts, attempts and the money limit do not shape an answer. The turn limit does, because some
    agents see it and answer with the results so far.
    """
    shaping = {
        "format": _FORMAT,
        "version": version,
        **asdict(asked),
        "tree": tree,
        "extra": sorted(extra.items()),
        "prompt": request.prompt,
        "asked_model": request.model,
        **{name: getattr(request, name) for name in ("fallback_model", "system_prompt", "append_system_prompt")},
        "permission_mode": request.permission_mode.value,
        **{name: getattr(request, name) for name in ("tools", "max_turns", "output_schema", "resume_session")},
        "context": list(request.context.items()),
    }
    if request.accept_any_output:
        # A caller that wants a checked answer must not get an unchecked one.
        shaping["accept_any_output"] = True
    # JSON quotes every text, so two fields cannot be confused. Names inside a schema keep their order, because a model
    # writes its answer in that order. Surrogates are encoded one by one, so that half a character is not an error.
    text = json.dumps(shaping, ensure_ascii=False, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_repeatable(request: AgentRequest) -> bool:
    """Return whether a stored answer may replace the call: not if it changes files or resumes a session."""
    return not request.permission_mode.may_write and request.resume_session is None


class StoredCall(Struct, frozen=True):
    """The model that answered a stored call, the tokens that were sent, and the cost, None if it is not known."""

    model: str
    input_tokens: int
    cost_usd: float | None


class LedgerRow(Struct, frozen=True):
    """A finished call as it is stored. `payload` is the packed result."""

    key: str
    created_at: float
    size_bytes: int
    agent: str
    model: str | None
    cost_usd: float | None
    payload: bytes


class DatabaseLedger:
    """The ledger in a database. Methods raise StoreError.

    Times are those of the database, so that machines with different clocks agree on the end of a claim. Once an hour,
    `put` removes calls that are older than `max_age_days`, and then the oldest ones until the rest has `max_gb`.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] | None = None,
        max_age_days: float = MAX_AGE_DAYS,
        max_gb: float = MAX_GB,
        owner: Owner | None = None,
    ) -> None:
        self.database = database
        self.last_event: DatabaseUnreachable | DatabaseReachable | None = None
        self._claims: dict[str, str] = {}
        self._clock = clock or database.clock
        self._max_age_days = max_age_days
        self._max_bytes = int(max_gb * _BYTES_PER_GB)
        self._prune_after = -math.inf
        self._owner = owner or this_process()
        self._missed: set[str] = set()

    @persistent
    def open(self) -> None:
        """Raise StoreError if the database cannot be opened."""
        with self.database.reading():
            pass

    @persistent
    def get(self, key: str, *, since: float = 0.0) -> AgentResult | None:
        """Return a finished call, marked as `from_ledger`, or None if there is none that was stored `since` then."""
        statement = "SELECT payload FROM results WHERE key = ? AND created_at >= ?"
        rows = self.database.select(statement, (key, since))
        if not rows:
            self._missed.add(key)
            return None
        self._missed.discard(key)
        try:
            return replace(from_json(AgentResult, read_json(unpack(rows[0][0]))), from_ledger=True)
        except Unreadable as error:
            message = f"cannot read the result {key} in the database {self.database.name}: {error}"
            raise StoreError(message, hint="run it with --fresh; the new result replaces this one") from error

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key before a call. False while it is claimed, also by another task of this process."""
        check_seconds(lease_seconds)
        # A name for this attempt alone. After a lost connection it shows whether the attempt was successful.
        owner = f"{self._owner}.{secrets.token_hex(4)}"
        is_ours = self._claim(key, owner, lease_seconds)
        if is_ours:
            self._claims[key] = owner
        return is_ours

    @persistent
    def _claim(self, key: str, owner: str, lease_seconds: float) -> bool:
        name = _lease_name(key)
        with self.database.writing(name) as connection:
            found = connection.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone()
            # Another process may have finished the call since `get` missed it. A caller that did not use `get` wants a
            # new answer.
            if found is not None and key in self._missed:
                return False
            return take_lease(connection, name, owner, now=self._clock(), seconds=lease_seconds) is None

    def is_claimed(self, key: str) -> bool:
        """Return whether a claim holds: it has not expired, and its owner may be alive."""
        with self.database.reading() as connection:
            lease = read_lease(connection, _lease_name(key))
        return lease is not None and lease.holds(self._clock())

    @persistent
    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim. A claim that expired and was taken by another owner is not changed."""
        check_seconds(lease_seconds)
        with self.database.writing() as connection:
            owner = self._claims.get(key, "")
            renew_lease(connection, _lease_name(key), owner, now=self._clock(), seconds=lease_seconds)

    def put(self, key: str, result: AgentResult) -> bool:
        """Store a result durably, replace an earlier one, and end our claim, all in one transaction. Return True."""
        row = self.row(key, result)
        self.database.persist(lambda: self._write_row(row))
        return True

    def row(self, key: str, result: AgentResult) -> LedgerRow:
        """Return the row of a result that is stored now. Raise StoreError if it is not valid JSON."""
        try:
            document = {**asdict(result), "usage": asdict(result.usage)}
            payload = pack(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError) as error:
            message = f"cannot store the result of {result.agent}: a value in it is not valid JSON ({error})"
            raise StoreError(message, hint="it was used, but not stored") from error
        return LedgerRow(
            key=key,
            created_at=self._clock(),
            size_bytes=len(payload),
            agent=result.agent,
            model=result.model,
            cost_usd=result.total_cost_usd,
            payload=payload,
        )

    @persistent
    def put_row(self, row: LedgerRow) -> None:
        """Store a row of the spool, and end our claim on its key. A newer row is not replaced."""
        self._write_row(row, condition=" WHERE excluded.created_at >= results.created_at")

    def _write_row(self, row: LedgerRow, *, condition: str = "") -> None:
        with self.database.writing(_lease_name(row.key)) as connection:
            connection.execute(
                f"INSERT INTO results ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
                " ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at,"
                " size_bytes = excluded.size_bytes, agent = excluded.agent, model = excluded.model,"
                f" cost_usd = excluded.cost_usd, payload = excluded.payload{condition}",
                astuple(row),
            )
            # A stored answer ends every claim, also that of a process that spooled it and died.
            end_lease(connection, _lease_name(row.key))
        self._missed.discard(row.key)
        # The result is stored. Pruning that fails now is done by a later `put`.
        with suppress(StoreError):
            self._prune_if_due()

    def count(self) -> int:
        """Return the number of stored calls."""
        return int(self.database.select("SELECT count(*) FROM results")[0][0])

    def oldest_row(self) -> LedgerRow | None:
        """Return the call that was stored first, or None."""
        rows = self.database.select(f"SELECT {_COLUMNS} FROM results ORDER BY created_at, key LIMIT 1")  # noqa: S608 - ours
        if not rows:
            return None
        return LedgerRow(*rows[0])

    def remove_row(self, row: LedgerRow) -> None:
        """Remove a stored call, unless it was replaced since it was read."""
        self.database.change("DELETE FROM results WHERE key = ? AND created_at = ?", (row.key, row.created_at))

    def calls_to(self, agent: str, *, limit: int = 200) -> list[StoredCall]:
        """Return the newest calls to an agent. A call that cannot be read is skipped."""
        rows = self.database.select(
            "SELECT model, cost_usd, payload FROM results WHERE agent = ? ORDER BY created_at DESC LIMIT ?",
            (agent, limit),
        )
        calls: list[StoredCall] = []
        for model, cost_usd, payload in rows:
            with suppress(Unreadable):
                result = from_json(AgentResult, read_json(unpack(payload)))
                calls.append(StoredCall(model or "", result.usage.input_tokens, cost_usd))
        return calls

    @persistent
    def release(self, key: str) -> None:
        """End our claim without a result. A claim of another owner is not changed."""
        with self.database.writing() as connection:
            release_lease(connection, _lease_name(key), self._claims.get(key, ""))

    def _prune_if_due(self) -> None:
        now = self._clock()
        if now < self._prune_after:
            return
        self._prune_after = now + _PRUNE_SECONDS
        if is_due(self.database, "prune the ledger", every_seconds=_PRUNE_SECONDS):
            self._prune(now)

    def _prune(self, now: float) -> None:
        """Remove calls that are too old, and then the oldest ones until the rest fits."""
        removed = self.database.change(
            "DELETE FROM results WHERE created_at < ? OR key IN (SELECT key FROM (SELECT key, sum(size_bytes)"
            " OVER (ORDER BY created_at DESC, key DESC) AS total FROM results) AS sums WHERE total > ?)",
            (now - self._max_age_days * _SECONDS_PER_DAY, self._max_bytes),
        )
        if removed:
            self.database.give_back_room()
        with self.database.writing() as connection:
            remove_expired(connection, before=now - _SECONDS_PER_DAY)


def _lease_name(key: str) -> str:
    return f"call {key}"
