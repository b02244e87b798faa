"""Limits that all processes share through one database: places, starts in a minute, pauses, and money for a month.

A request is written down when it first asks, which keeps its turn, and may start when those with an earlier turn, of
the same or a better priority, leave room for it. Whoever waits asks again at the time that it was told. Every change is
made under one lock, in one short transaction: so nothing can lock in another order, and no two start at once.

A process holds what it has as long as it renews its lease, or, after the server was away, as long as it could have.
What is left of one that died counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import BudgetExhausted
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Waiting
from codeloupe.store.interface import Connection, Database, persistent
from codeloupe.store.owner import Owner

LEASE_SECONDS = 30.0
# A little more than a minute: between its turn here and the moment at which its service counts it, one request takes
# longer than another.
WINDOW_SECONDS = 60.5
_SUCCESSES_TO_GROW = 10
# One dear answer is not what all will cost for ever: of 100 answers later, a seventh of it is left.
_FORGETTING = 0.98
_FORGOTTEN_SECONDS = 3600.0
# What a service asks for may be nonsense, and here it outlasts every process: one asks again after a day.
_LONGEST_PAUSE_SECONDS = 86_400.0
_LOCK = "limits"
# The server's time, unless a test has its own.
_NOW = "coalesce(?::double precision, extract(epoch FROM clock_timestamp())::double precision)"
# All that decides on a start, with a row for each budget, from one moment.
_STATE = f"""
WITH clock AS MATERIALIZED (SELECT {_NOW} AS now),
own AS MATERIALIZED (
    SELECT now, to_char(to_timestamp(now) AT TIME ZONE 'UTC', 'YYYY-MM') AS month, started_at, blocked_by,
        coalesce(turn, 9223372036854775807) AS turn
    FROM clock LEFT JOIN limited_requests ON id = ?
),
live AS MATERIALIZED (
    SELECT r.* FROM clock, limited_requests AS r JOIN limit_owners AS o USING (owner)
    WHERE r.owner = ? OR now < greatest(
        o.expires_at, extract(epoch FROM pg_postmaster_start_time())::double precision + ?::double precision)
),
line AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE live.started_at IS NOT NULL) AS running,
        count(*) FILTER (WHERE live.started_at IS NULL AND live.blocked_by = ''
            AND (priority, live.turn) < (?, own.turn)) AS ahead
    FROM live, own WHERE account = ?
)
SELECT own.now, own.month, own.started_at IS NOT NULL, own.blocked_by, own.turn, line.running, line.ahead,
    (SELECT at FROM limit_starts WHERE account = ? AND at <= own.now
        ORDER BY at DESC OFFSET greatest(?::bigint - line.ahead - 1, 0) LIMIT 1),
    a.places, coalesce(a.lowered, 0), coalesce(a.opens_at, 0), coalesce(a.answers, 0), coalesce(a.next_usd, 0),
    ARRAY(SELECT owner FROM limit_owners WHERE starts_with(owner, ?)),
    ARRAY(SELECT owner FROM limit_owners WHERE expires_at < own.now - ?::double precision),
    coalesce(spending.usd, 0), coalesce(spending.unknown_costs, 0), money.reserved, money.running, money.ahead
FROM unnest(?::text[]) WITH ORDINALITY AS wanted (budget, position) CROSS JOIN own CROSS JOIN line
    LEFT JOIN limit_accounts AS a ON a.account = ?
    LEFT JOIN spending ON spending.month = own.month AND spending.budget = wanted.budget
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(reserved_usd) FILTER (WHERE live.month = own.month), 0) AS reserved,
            count(*) FILTER (WHERE live.month = own.month) AS running,
            count(*) FILTER (WHERE live.started_at IS NULL AND live.blocked_by = wanted.budget
                AND (priority, live.turn) < (?, own.turn)) AS ahead
        FROM live WHERE wanted.budget = ANY (budgets)
    ) AS money
ORDER BY position
"""  # noqa: S608 - our own words
_RENEW = f"""
INSERT INTO limit_owners (owner, expires_at) VALUES (?, {_NOW} + ?)
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
"""  # noqa: S608 - our own words
_KEEP_TURN = f"""
WITH renewed AS ({_RENEW})
INSERT INTO limited_requests (id, owner, account, priority, budgets, blocked_by) VALUES (?, ?, ?, ?, ?::text[], ?)
ON CONFLICT (id) DO UPDATE SET blocked_by = excluded.blocked_by
RETURNING turn
"""  # noqa: S608 - our own words
_START = f"""
WITH renewed AS ({_RENEW}),
known AS (INSERT INTO limit_accounts (account) VALUES (?) ON CONFLICT DO NOTHING),
past AS (DELETE FROM limit_starts WHERE account = ? AND at < ?),
start AS (INSERT INTO limit_starts (account, at) VALUES (?, ?))
INSERT INTO limited_requests (id, owner, account, priority, budgets, started_at, month, lowered, reserved_usd)
VALUES (?, ?, ?, ?, ?::text[], ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, month = excluded.month, lowered = excluded.lowered,
    reserved_usd = excluded.reserved_usd, blocked_by = ''
"""  # noqa: S608 - our own words
_ADD = """
ON CONFLICT (month, budget) DO UPDATE SET usd = spending.usd + excluded.usd,
    requests = spending.requests + excluded.requests, unknown_costs = spending.unknown_costs + excluded.unknown_costs
"""
_END = f"""
WITH ended AS (DELETE FROM limited_requests WHERE id = ? RETURNING account, budgets, month, lowered, started_at),
paid AS (
    INSERT INTO spending (month, budget, usd, requests, unknown_costs)
    SELECT month, budget, ?::double precision, ?::bigint, ?::bigint FROM ended, unnest(budgets) AS budget
    WHERE started_at IS NOT NULL {_ADD}
)
SELECT ended.lowered = a.lowered, a.places, a.most, a.lowered, a.successes, a.opens_at, a.answers, a.next_usd, {_NOW},
    (SELECT count(*) FROM limited_requests AS r WHERE r.account = a.account AND r.started_at IS NOT NULL)
FROM ended JOIN limit_accounts AS a USING (account) WHERE ended.started_at IS NOT NULL
"""  # noqa: S608 - our own words
# What they had asked may have cost something, and nobody will ever know how much.
_FORGET = f"""
WITH gone AS (DELETE FROM limited_requests WHERE owner = ANY (?) RETURNING budgets, month, started_at),
paid AS (
    INSERT INTO spending (month, budget, usd, requests, unknown_costs)
    SELECT month, budget, 0, count(*), count(*) FROM gone, unnest(budgets) AS budget
    WHERE started_at IS NOT NULL GROUP BY month, budget {_ADD}
)
DELETE FROM limit_owners WHERE owner = ANY (?)
"""  # noqa: S608 - our own words


class _Balance(Struct, frozen=True):
    """What was spent of a budget this month, what running requests may take, and how many wait for it before us."""

    usd: float
    unknown_costs: int
    reserved_usd: float
    running: int
    ahead: int


class _State(Struct, frozen=True):
    """What is known when a request asks. `last_start` is the start that has to be a window ago."""

    balances: tuple[_Balance, ...]
    now: float
    month: str
    is_started: bool
    blocked_by: str | None
    turn: int
    running: int
    ahead: int
    last_start: float | None
    places: int | None
    lowered: int
    opens_at: float
    answers: int
    next_usd: float
    neighbours: list[str]
    forgotten: list[str]


class SharedLimits:
    """The limits of one process and all others that use the same database. Safe between threads.

    `clock` and `window_seconds` are for tests.
    """

    def __init__(
        self,
        database: Database,
        *,
        owner: Owner | None = None,
        clock: Callable[[], float] | None = None,
        window_seconds: float = WINDOW_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.database = database
        self.lease_seconds = lease_seconds
        self._owner = owner or Owner.here()
        self._clock: Callable[[], float | None] = clock or (lambda: None)
        self._window_seconds = window_seconds
        self._has_looked = False

    @persistent
    def start(self, request: LimitedRequest) -> Waiting | None:
        """Start a request, which gives None, or keep its turn and tell how long to wait before it asks again.

        Raises BudgetExhausted when the money of a month is spent, and StoreError. Whatever became of it, `end` ends it.
        """
        with self.database.writing(_LOCK) as connection:
            state = self._state(connection, request)
            if state.is_started:
                return None
            found = _obstacle(request, state, self._window_seconds)
            # Those of the dead are looked for when they may be in the way, and once by each process.
            if (found is not None or not self._has_looked) and self._forget(connection, state):
                state = self._state(connection, request)
                found = _obstacle(request, state, self._window_seconds)
            self._has_looked = True
            lease = (str(self._owner), self._clock(), self.lease_seconds)
            own = (request.id, lease[0], request.account, request.priority, [one.name for one in request.budgets])
            if found is not None:
                waiting, blocked_by = found
                if state.blocked_by == blocked_by:
                    return waiting
                ((turn,),) = connection.execute(_KEEP_TURN, (*lease, *own, blocked_by)).fetchall()
                return replace(waiting, turn=turn)
            past = (request.account, request.account, state.now - self._window_seconds)
            reserved = _reserved_usd(request, state)
            values = (*lease, *past, request.account, state.now, *own, state.now, state.month, state.lowered, reserved)
            connection.execute(_START, values)
        return None

    @persistent
    def end(self, request: LimitedRequest, ending: Ending) -> None:
        """End a request that started, or take back one that waits; what it cost is counted for its month once."""
        values = (request.id, ending.usd, ending.requests, ending.unknown_costs, self._clock())
        with self.database.writing(_LOCK) as connection:
            if (row := connection.execute(_END, values).fetchone()) is None:
                return
            is_of_now, places, most, lowered, successes, opens_at, answers, next_usd, now, running = row
            if ending.next_usd is not None:
                answers, next_usd = answers + 1, max(ending.next_usd, _FORGETTING * next_usd)
            if ending.refused:
                opens_at, successes = max(opens_at, now + min(ending.pause_seconds, _LONGEST_PAUSE_SECONDS)), 0
                # Those that began before the places were lowered say nothing about the lower number.
                if is_of_now:
                    before = running if request.concurrency is None else request.concurrency
                    places, most = max(min(places or before, before) // 2, 1), max(most or 0, before)
                    lowered += 1
            elif ending.succeeded and places is not None:
                successes += 1
                if successes >= _SUCCESSES_TO_GROW:
                    places, successes = places + 1, 0
                if places >= most:
                    places = most = None
            connection.execute(
                "UPDATE limit_accounts SET places = ?, most = ?, lowered = ?, successes = ?, opens_at = ?, answers = ?,"
                " next_usd = ? WHERE account = ?",
                (places, most, lowered, successes, opens_at, answers, next_usd, request.account),
            )

    @persistent
    def renew(self) -> None:
        """Keep all that this process holds for another lease."""
        self.database.change(_RENEW, (str(self._owner), self._clock(), self.lease_seconds))

    @persistent
    def seconds_until_open(self) -> float:
        """How long until the first of the accounts opens that are paused; 0 where none is."""
        query = f"SELECT min(opens_at - now) FROM limit_accounts, (SELECT {_NOW} AS now) AS c WHERE opens_at > now"  # noqa: S608 - ours
        ((seconds,),) = self.database.select(query, (self._clock(),))
        return float(seconds or 0.0)

    def _state(self, connection: Connection, request: LimitedRequest) -> _State:
        rows = connection.execute(
            _STATE,
            (
                *(self._clock(), request.id, str(self._owner), self.lease_seconds, request.priority, request.account),
                *(request.account, request.per_minute or 0, self._owner.machine or "none", _FORGOTTEN_SECONDS),
                *([budget.name for budget in request.budgets], request.account, request.priority),
            ),
        ).fetchall()
        return _State(tuple(_Balance(*row[15:]) for row in rows), *rows[0][:15])

    def _forget(self, connection: Connection, state: _State) -> bool:
        """Remove what the dead have left: processes of this machine, and those that nobody heard of for long."""
        gone = [owner for owner in state.neighbours if (known := Owner.parse(owner)) and known.is_gone()]
        gone += [owner for owner in state.forgotten if owner != str(self._owner)]
        if gone:
            connection.execute(_FORGET, (gone, gone))
        return bool(gone)


def _obstacle(request: LimitedRequest, state: _State, window_seconds: float) -> tuple[Waiting, str] | None:
    """What keeps a request from starting, and the budget that has no room, if one is it. Raises BudgetExhausted."""
    blocked_by = next(
        (
            budget.name
            for budget, balance in zip(request.budgets, state.balances, strict=True)
            if not _has_room(request, budget, balance, state)
        ),
        "",
    )
    places = min(math.inf if limit is None else limit for limit in (request.concurrency, state.places))
    if request.limits_money:
        # A price is not known from one answer: as many may run as have been answered, and one more.
        places = min(places, state.answers + 1)
    is_full = state.running + state.ahead >= places
    pause = max(state.opens_at - state.now, 0.0)
    wait = pause
    if request.per_minute is not None and state.last_start is not None:
        wait = max(wait, state.last_start + window_seconds - state.now)
    if not (blocked_by or is_full or wait > 0):
        return None
    return Waiting(turn=state.turn, seconds=wait if wait > 0 else None, pause_seconds=pause), blocked_by


def _has_room(request: LimitedRequest, budget: MonthlyBudget, balance: _Balance, state: _State) -> bool:
    """Whether a request fits into a budget beside those that run; it waits for them, since they may cost less."""
    limit = budget.limit_usd
    if limit is None:
        return True
    if balance.usd >= limit:
        unknown = balance.unknown_costs
        note = f" ({unknown} more requests did not report their cost)" if unknown else ""
        raise BudgetExhausted(
            f"{request.agent} was not called: the budget of {budget.label} for {state.month} is used"
            f" up: ${balance.usd:.4f} of ${limit:.4f} spent{note}",
            agent=request.agent,
            hint=f"raise {budget.setting}, or wait for the next month (UTC); finished calls are in the ledger",
            attempts=0,
        )
    together = balance.usd + balance.reserved_usd + _reserved_usd(request, state)
    return not balance.ahead and (together <= limit or not balance.running)


def _reserved_usd(request: LimitedRequest, state: _State) -> float:
    """What a request may cost: by what this process knows, and by what any has paid at this account."""
    known = [usd for usd in (request.expected_usd, state.next_usd if state.answers else None) if usd is not None]
    # While no price is known, one request may take all there is.
    limits = (budget.limit_usd for budget in request.budgets if budget.limit_usd is not None)
    usd = max(known) if known else min(limits, default=0.0)
    return usd if request.max_usd is None else min(usd, request.max_usd)
