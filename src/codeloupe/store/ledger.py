"""Finished agent calls by content key: what was paid for is never bought again. The caller has redacted it."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.store.interface import Database, persistent
from codeloupe.store.leases import check_seconds, read_lease, release_lease, remove_expired, renew_lease, take_lease
from codeloupe.store.maintenance import is_due
from codeloupe.store.owner import Owner, this_process
from codeloupe.store.records import Unreadable, from_json, pack, read_json, unpack

# Raised when the fields of a key, or what they mean, change: old results are then no longer found.
_FORMAT = 2
CALL_VERSION = "1"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_SECONDS_PER_DAY = 86_400
# Pruning reads the whole index, so it is not done for every process.
_PRUNE_SECONDS = 3600.0


class Asked(Struct, frozen=True, kw_only=True):
    """Who is asked: agent, model and the address that answers, where known; and whose files the question is about."""

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
    """The SHA-256, in hex, of all that shapes the answer to a request: equal exactly when all of it is equal.

    `version` is that of the prompts; `tree` names the content of the working directory, for agents that can read files.
    Left out are labels, paths, timeouts, attempts and the money limit, by which no agent answers differently. The turn
    limit is in: some agents see it and answer with what they have.
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
    # JSON quotes every text, so no two fields can run into each other. Names inside a schema keep their order: a
    # model writes its answer in that order. Surrogates pass one by one, so that half a character is no crash.
    text = json.dumps(shaping, ensure_ascii=False, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_repeatable(request: AgentRequest) -> bool:
    """Whether a stored answer may be used instead of the call: not where it changes files or resumes a session."""
    return not request.permission_mode.may_write and request.resume_session is None


class StoredCall(Struct, frozen=True):
    """The model that answered a stored call, the tokens that were sent, and the cost, None if it is not known."""

    model: str
    input_tokens: int
    cost_usd: float | None


class DatabaseLedger:
    """The ledger in a database, with claims of its own; the first `put` also keeps it within its limits.

    Time is that of the database, so that machines whose clocks differ agree on when a claim ends.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] | None = None,
        max_age_days: float = 90.0,
        max_bytes: int = 1024**3,
        owner: Owner | None = None,
    ) -> None:
        self.database = database
        self._claims: dict[str, str] = {}
        self._clock = clock or database.clock
        self._limits = max_age_days, max_bytes
        self._is_pruned = False
        self._owner = owner or this_process()
        self._missed: set[str] = set()

    @persistent
    def get(self, key: str) -> AgentResult | None:
        """A finished call, marked as `from_ledger`, or None."""
        rows = self.database.select("SELECT payload FROM results WHERE key = ?", (key,))
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
        """Claim a key for buying. False while a claim on it holds, also one of our own: two tasks are two buyers."""
        check_seconds(lease_seconds)
        # Of this attempt alone: if the connection is lost, it knows by this whether its claim got through.
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
            # Another process may have finished the call since `get` missed it. Who did not ask wants it bought again.
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
        """Extend our own claim. One that ran out and went to another stays with it: our call is under way anyway."""
        check_seconds(lease_seconds)
        with self.database.writing() as connection:
            owner = self._claims.get(key, "")
            renew_lease(connection, _lease_name(key), owner, now=self._clock(), seconds=lease_seconds)

    @persistent
    def put(self, key: str, result: AgentResult) -> None:
        """Store a result durably and end our claim, in one transaction; it replaces one that is there."""
        try:
            document = {**asdict(result), "usage": asdict(result.usage)}
            payload = pack(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError) as error:
            message = f"cannot store the result of {result.agent}: a value in it is not valid JSON ({error})"
            raise StoreError(message, hint="it was used, but not stored") from error
        row = (key, self._clock(), len(payload), result.agent, result.model, result.total_cost_usd, payload)
        with self.database.writing(_lease_name(key)) as connection:
            connection.execute(
                "INSERT INTO results (key, created_at, size_bytes, agent, model, cost_usd, payload)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at,"
                " size_bytes = excluded.size_bytes, agent = excluded.agent, model = excluded.model,"
                " cost_usd = excluded.cost_usd, payload = excluded.payload",
                row,
            )
            release_lease(connection, _lease_name(key), self._claims.get(key, ""))
        self._missed.discard(key)
        if not self._is_pruned:
            self._is_pruned = True
            # The result is stored. What could not be removed now is removed by the next run, and what is wrong with
            # the file is reported by the next call that needs it.
            with suppress(StoreError):
                if is_due(self.database, "prune the ledger", every_seconds=_PRUNE_SECONDS):
                    self._prune(*self._limits)

    def calls_to(self, agent: str, *, limit: int = 200) -> list[StoredCall]:
        """Return the newest calls to an agent; one that cannot be read is skipped."""
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
        """End our claim without a result; a claim of another stays."""
        with self.database.writing() as connection:
            release_lease(connection, _lease_name(key), self._claims.get(key, ""))

    def _prune(self, max_age_days: float, max_bytes: int) -> None:
        """Remove what is too old, then the oldest until the rest fits."""
        now = self._clock()
        removed = self.database.change(
            "DELETE FROM results WHERE created_at < ? OR key IN (SELECT key FROM (SELECT key, sum(size_bytes)"
            " OVER (ORDER BY created_at DESC, key DESC) AS total FROM results) AS sums WHERE total > ?)",
            (now - max_age_days * _SECONDS_PER_DAY, max_bytes),
        )
        if removed:
            self.database.give_back_room()
        with self.database.writing() as connection:
            remove_expired(connection, before=now - _SECONDS_PER_DAY)


def _lease_name(key: str) -> str:
    return f"call {key}"
