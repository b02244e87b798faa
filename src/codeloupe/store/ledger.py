"""Finished agent calls by content key: what was paid for is never bought again. The caller has redacted it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Self

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.store.interface import Database, persistent
from codeloupe.store.records import Unreadable, from_json, pack, read_json, unpack

# Raised when the fields of a key, or what they mean, change: old results are then no longer found.
_FORMAT = 2
CALL_VERSION = "1"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_SECONDS_PER_DAY = 86_400
_CLAIM = "SELECT owner, lease_seconds, expires_at FROM claims WHERE key = ?"
_END_CLAIM = "DELETE FROM claims WHERE key = ? AND owner = ?"


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


class Owner(Struct, frozen=True):
    """One user of a ledger. `machine` names a table of process numbers, or is empty where there is none."""

    machine: str
    process_id: int
    token: str

    @classmethod
    def here(cls) -> Self:
        """A new owner in this process."""
        return cls(_machine(), os.getpid(), secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner that `str` made the text of, or None when it is from nobody we know."""
        found = re.fullmatch(r"(.*) process ([0-9]+) token (.*?)", text, re.DOTALL)
        return cls(found[1], int(found[2]), found[3]) if found else None

    def __str__(self) -> str:
        return f"{self.machine} process {self.process_id} token {self.token}"

    def is_gone(self) -> bool:
        """Whether the process is known to have ended; False when that cannot be known from here."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.process_id, 0)
            status = Path(f"/proc/{self.process_id}/stat").read_bytes()
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        # One whose parent has not asked how it ended keeps its number. The name before the state may hold anything,
        # brackets and blanks too.
        return status.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _machine() -> str:
    # Two containers may have one host name and each a process 7: only the kernel's own names tell them apart.
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return ""


def _check_lease(seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise ValueError(f"a lease must last a positive number of seconds, not {seconds!r}")


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
        self._owner = owner or Owner.here()
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
        _check_lease(lease_seconds)
        # Of this attempt alone: if the connection is lost, it knows by this whether its claim got through.
        owner = f"{self._owner}.{secrets.token_hex(4)}"
        is_ours = self._claim(key, owner, lease_seconds)
        if is_ours:
            self._claims[key] = owner
        return is_ours

    @persistent
    def _claim(self, key: str, owner: str, lease_seconds: float) -> bool:
        with self.database.writing(f"claim {key}") as connection:
            found = connection.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone()
            # Another process may have finished the call since `get` missed it. Who did not ask wants it bought again.
            if found is not None and key in self._missed:
                return False
            claim = connection.execute(_CLAIM, (key,)).fetchone()
            if self._holds(claim) and claim[0] != owner:
                return False
            connection.execute(
                "INSERT INTO claims (key, owner, lease_seconds, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO"
                " UPDATE SET owner = excluded.owner, lease_seconds = excluded.lease_seconds,"
                " expires_at = excluded.expires_at",
                (key, owner, lease_seconds, self._clock() + lease_seconds),
            )
        return True

    def is_claimed(self, key: str) -> bool:
        """Whether a claim has not run out, also by a clock that was set back, and its owner may be alive."""
        return self._holds(next(iter(self.database.select(_CLAIM, (key,))), None))

    def _holds(self, claim: tuple[str, float, float] | None) -> bool:
        if claim is None:
            return False
        owner, lease_seconds, expires_at = claim
        known = Owner.parse(owner)
        is_over = not expires_at - 2 * lease_seconds <= self._clock() < expires_at
        return not is_over and (known is None or not known.is_gone())

    @persistent
    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim. One that ran out and went to another stays with it: our call is under way anyway."""
        _check_lease(lease_seconds)
        self.database.change(
            "UPDATE claims SET lease_seconds = ?, expires_at = ? WHERE key = ? AND owner = ?",
            (lease_seconds, self._clock() + lease_seconds, key, self._claims.get(key, "")),
        )

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
        with self.database.writing(f"claim {key}") as connection:
            connection.execute(
                "INSERT INTO results (key, created_at, size_bytes, agent, model, cost_usd, payload)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at,"
                " size_bytes = excluded.size_bytes, agent = excluded.agent, model = excluded.model,"
                " cost_usd = excluded.cost_usd, payload = excluded.payload",
                row,
            )
            connection.execute(_END_CLAIM, (key, self._claims.get(key, "")))
        self._missed.discard(key)
        if not self._is_pruned:
            self._is_pruned = True
            # The result is stored. What could not be removed now is removed by the next run, and what is wrong with
            # the file is reported by the next call that needs it.
            with suppress(StoreError):
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
        self.database.change(_END_CLAIM, (key, self._claims.get(key, "")))

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
        self.database.change("DELETE FROM claims WHERE expires_at < ?", (now - _SECONDS_PER_DAY,))
