"""Limits that all processes of one database share: concurrent requests, a rate, pauses, and money for a month.

A request is stored when it first asks, which gives it a turn. It may start if the requests with an earlier turn, of the
same or a better priority, leave room for it. With a rate limit of N a minute, starts are at least 60/N seconds apart.
All changes are made under one lock, in short transactions, so that no two processes start a request at once.

A process holds its permits while it renews its row in `processes`. After an outage of the server, it has time to do so.
The permits of a dead process are released when they may be in the way, and once by each process.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from codeloupe.errors import BudgetExhausted
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Permit, Waiting
from codeloupe.store.interface import Connection, Database, persistent
from codeloupe.store.owner import Owner
from codeloupe.store.processes import LEASE_SECONDS, Processes
from codeloupe.store.spending import Cost, add_spending, marks, month_of, spent_from

Answer = Permit | Waiting | BudgetExhausted
# A permit may be for a start so far ahead. Otherwise every late wake-up of a process would lower the rate.
AHEAD_SECONDS = 0.5
# The interval between two starts at one request a minute, which is the lowest rate.
_LONGEST_INTERVAL_SECONDS = 60.0
_SUCCESSES_TO_GROW = 10
# One expensive answer does not predict all others: 100 answers later, a seventh of its price remains.
_FORGETTING = 0.98
# A service may ask for any pause. The stored pause outlasts all processes, so the service is asked again after a day.
_LONGEST_PAUSE_SECONDS = 86_400.0
_LOCK = "limits"
_ACCOUNT_COLUMNS = "places, most, lowered, successes, opens_at, next_start_at, answers, next_usd"
# The values are a priority twice, and a turn.
_IS_EARLIER = "r.started_at IS NULL AND (r.priority < ? OR (r.priority = ? AND r.turn < ?))"
# The values are our own owner, and the time at which the row of a dead process has expired.
_OF_LIVE = "JOIN processes AS p ON p.owner = r.owner WHERE (r.owner = ? OR p.expires_at > ?)"
_SAVE_REQUEST = """
INSERT INTO limited_requests
    (id, owner, agent, account, priority, blocked_by, started_at, month, lowered, reserved_usd)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET blocked_by = excluded.blocked_by, started_at = excluded.started_at,
    month = excluded.month, lowered = excluded.lowered, reserved_usd = excluded.reserved_usd
"""
_COUNT_OF_ACCOUNT = f"""
SELECT count(*) FILTER (WHERE r.started_at IS NOT NULL), count(*) FILTER (WHERE r.blocked_by = '' AND {_IS_EARLIER})
FROM limited_requests AS r {_OF_LIVE} AND r.account = ?
"""  # noqa: S608 - our own text
_COUNT_OF_BUDGETS = f"""
SELECT b.budget, count(*) FILTER (WHERE r.month = ?),
    coalesce(sum(r.reserved_usd) FILTER (WHERE r.month = ?), 0.0),
    count(*) FILTER (WHERE r.blocked_by = b.budget AND {_IS_EARLIER})
FROM request_budgets AS b JOIN limited_requests AS r ON r.id = b.request {_OF_LIVE}
"""  # noqa: S608 - our own text


class _Account(Struct):
    """A row of `limit_accounts`."""

    places: int | None = None
    most: int | None = None
    lowered: int = 0
    successes: int = 0
    opens_at: float = 0.0
    next_start_at: float = 0.0
    answers: int = 0
    next_usd: float = 0.0


class _Use(Struct, frozen=True):
    """The use of a budget: the running requests, what they may cost, and how many earlier requests wait for it."""

    running: int = 0
    running_usd: float = 0.0
    ahead: int = 0


class _Stored(Struct, frozen=True):
    """The stored state of a request. One that is not stored yet comes after all others."""

    turn: int = 2**63 - 1
    blocked_by: str | None = None
    started_at: float | None = None


class SharedLimits:
    """The limits as one process uses them. Safe between threads. Methods raise StoreError.

    `owner` is for tests.
    """

    def __init__(self, database: Database, *, owner: Owner | None = None, lease_seconds: float = LEASE_SECONDS) -> None:
        self.database = database
        self.lease_seconds = lease_seconds
        self._processes = Processes(database, owner=owner, lease_seconds=lease_seconds)
        self._owner = str(self._processes.owner)
        self._has_looked = False

    def now(self) -> float:
        """Return the time by the clock of the database."""
        return self.database.clock()

    @persistent
    def start(self, requests: Sequence[LimitedRequest]) -> dict[str, Answer]:
        """Start the requests that may start now, and return the answer for each by its id.

        The requests are considered in the order of their turns; new ones get the next turns. Whatever the answer is,
        `end` ends the request.
        """
        with self.database.writing(_LOCK) as connection:
            self._processes.renew_in(connection)
            if not self._has_looked:
                self._release_dead(connection)
            answers = self._consider(connection, requests)
            has_to_wait = any(isinstance(answer, Waiting) for answer in answers.values())
            if has_to_wait and self._has_looked and self._release_dead(connection):
                answers = self._consider(connection, requests)
        self._has_looked = True
        return answers

    @persistent
    def end(self, request: LimitedRequest, ending: Ending) -> None:
        """End a request that started, or withdraw one that waits. The cost is counted once, in the month of its start.

        A second call with the same request does nothing.
        """
        with self.database.writing(_LOCK) as connection:
            row = connection.execute(
                "SELECT started_at, month, lowered FROM limited_requests WHERE id = ?", (request.id,)
            ).fetchone()
            if row is None:
                return
            started_at, month, lowered = row
            _delete(connection, request)
            if started_at is None:
                return
            budgets = [(budget.name, budget.label) for budget in request.budgets]
            cost = Cost(ending.usd, ending.requests, ending.unknown_costs)
            add_spending(connection, month, request.agent, budgets=budgets, cost=cost)
            self._learn(connection, request, ending, lowered=lowered)

    def renew(self) -> None:
        """Keep the permits of this process for another lease."""
        self._processes.renew()

    def _consider(self, connection: Connection, requests: Sequence[LimitedRequest]) -> dict[str, Answer]:
        now = self.now()
        expired_at = now
        if now < self.database.up_since + self.lease_seconds:
            # While the server was down, no process could renew its row.
            expired_at = 0.0
        rows = connection.execute(
            "SELECT id, turn, blocked_by, started_at FROM limited_requests WHERE owner = ?", (self._owner,)
        )
        stored = {request_id: _Stored(*row) for request_id, *row in rows.fetchall()}
        asked = [(request, stored.get(request.id, _Stored())) for request in requests]
        asked.sort(key=lambda each: each[1].turn)
        line = _Line(connection, self._owner, now=now, expired_at=expired_at)
        return {request.id: line.answer(request, state) for request, state in asked}

    def _learn(self, connection: Connection, request: LimitedRequest, ending: Ending, *, lowered: int) -> None:
        """Store what the end of a request says about the price and the capacity of its account."""
        account = _read_account(connection, request.account)
        if ending.next_usd is not None:
            account.answers += 1
            account.next_usd = max(ending.next_usd, _FORGETTING * account.next_usd)
        if ending.refused:
            account.successes = 0
            pause = min(ending.pause_seconds, _LONGEST_PAUSE_SECONDS)
            account.opens_at = max(account.opens_at, self.now() + pause)
            # A request that started before the places were lowered says nothing about the lower number.
            if lowered == account.lowered:
                before = request.concurrency
                if before is None:
                    before = _running(connection, request.account) + 1
                _lower(account, before)
        elif ending.succeeded and account.places is not None:
            _raise(account, account.places)
        _write_account(connection, request.account, account)

    def _release_dead(self, connection: Connection) -> bool:
        """Release the permits and turns of dead processes; return whether there were any."""
        dead = set(self._processes.dead_in(connection))
        holders = connection.execute(
            "SELECT DISTINCT r.owner, p.owner FROM limited_requests AS r LEFT JOIN processes AS p ON p.owner = r.owner"
        ).fetchall()
        has_released = False
        for owner, registered in holders:
            if owner in dead or registered is None:
                self._release(connection, owner)
                has_released = True
        # The row of a worker shows its end to others, and its jobs are given to another worker first.
        connection.executemany("DELETE FROM processes WHERE owner = ? AND slots = 0", [(owner,) for owner in dead])
        return has_released

    def _release(self, connection: Connection, owner: str) -> None:
        started = connection.execute(
            "SELECT r.month, r.agent, b.budget, b.label FROM limited_requests AS r"
            " JOIN request_budgets AS b ON b.request = r.id WHERE r.owner = ? AND r.started_at IS NOT NULL",
            (owner,),
        ).fetchall()
        for month, agent, budget, label in started:
            # The request may have cost something, and no process will report it.
            add_spending(connection, month, agent, budgets=[(budget, label)], cost=Cost(0.0, 1, 1))
        connection.execute("DELETE FROM limited_requests WHERE owner = ?", (owner,))


class _Line:
    """The requests of one process in one transaction, considered in the order of their turns.

    If a request waits for its account, so do the later ones of the account. If it waits for a budget, so do the later
    ones that the budget pays.
    """

    def __init__(self, connection: Connection, owner: str, *, now: float, expired_at: float) -> None:
        self._connection = connection
        self._owner = owner
        self._now = now
        self._expired_at = expired_at
        self._month = month_of(now)
        self._waits: dict[str, Waiting] = {}
        self._blocked: set[str] = set()

    def answer(self, request: LimitedRequest, stored: _Stored) -> Answer:
        """Start a request if it may start, and return the answer."""
        if stored.started_at is not None:
            return Permit(stored.started_at)
        for budget in request.budgets:
            if budget.name in self._blocked:
                return self._wait_for_budget(request, stored, budget)
        if request.account in self._waits:
            return self._wait_for_account(request, stored)
        account = _read_account(self._connection, request.account)
        reserved_usd = _reserved_usd(request, account)
        try:
            full = self._full_budget(request, stored.turn, reserved_usd)
        except BudgetExhausted as error:
            # It never starts, so no other request may wait for it.
            _delete(self._connection, request)
            return error
        if full is not None:
            return self._wait_for_budget(request, stored, full)
        found = self._permit(request, stored.turn, account)
        if isinstance(found, Waiting):
            self._waits[request.account] = found
            return self._wait_for_account(request, stored)
        self._start(request, stored, found, lowered=account.lowered, reserved_usd=reserved_usd)
        if request.per_minute is not None:
            account.next_start_at = found.starts_at + _interval_seconds(request.per_minute)
            _write_account(self._connection, request.account, account)
        return found

    def _wait_for_budget(self, request: LimitedRequest, stored: _Stored, budget: MonthlyBudget) -> Waiting:
        self._blocked.add(budget.name)
        self._note_obstacle(request, stored, budget.name)
        return Waiting()

    def _wait_for_account(self, request: LimitedRequest, stored: _Stored) -> Waiting:
        self._note_obstacle(request, stored, "")
        return self._waits[request.account]

    def _note_obstacle(self, request: LimitedRequest, stored: _Stored, budget: str) -> None:
        if stored.blocked_by == budget:
            return
        self._save(request, stored, (budget, None, "", 0, 0.0))

    def _start(
        self, request: LimitedRequest, stored: _Stored, permit: Permit, *, lowered: int, reserved_usd: float
    ) -> None:
        self._save(request, stored, ("", permit.starts_at, self._month, lowered, reserved_usd))

    def _save(self, request: LimitedRequest, stored: _Stored, state: tuple[object, ...]) -> None:
        own = (request.id, self._owner, request.agent, request.account, request.priority)
        self._connection.execute(_SAVE_REQUEST, (*own, *state))
        if stored.blocked_by is None:
            budgets = [(request.id, budget.name, budget.label) for budget in request.budgets]
            self._connection.executemany(
                "INSERT INTO request_budgets (request, budget, label) VALUES (?, ?, ?)", budgets
            )

    def _full_budget(self, request: LimitedRequest, turn: int, reserved_usd: float) -> MonthlyBudget | None:
        """Return a budget into which a request does not fit beside the running ones; these may cost less than reserved.

        Raise BudgetExhausted if a budget is spent.
        """
        limited = {budget.name: budget for budget in request.budgets if budget.limit_usd is not None}
        if not limited:
            return None
        names = tuple(limited)
        spent = spent_from(self._connection, self._month, names)
        rows = self._connection.execute(
            f"{_COUNT_OF_BUDGETS} AND b.budget IN ({marks(names)}) GROUP BY b.budget",
            (self._month, self._month, request.priority, request.priority, turn, self._owner, self._expired_at, *names),
        ).fetchall()
        uses = {name: _Use(*use) for name, *use in rows}
        for name, budget in limited.items():
            limit_usd = budget.limit_usd or 0.0
            if spent[name].usd >= limit_usd:
                raise _exhausted(request, budget, self._month, spent[name])
            use = uses.get(name, _Use())
            fits = not use.running or spent[name].usd + use.running_usd + reserved_usd <= limit_usd
            if use.ahead or not fits:
                return budget
        return None

    def _permit(self, request: LimitedRequest, turn: int, account: _Account) -> Permit | Waiting:
        """Return a permit if the account has room for a request, after those with an earlier turn."""
        earlier = (request.priority, request.priority, turn)
        running, ahead = self._connection.execute(
            _COUNT_OF_ACCOUNT, (*earlier, self._owner, self._expired_at, request.account)
        ).fetchone()
        starts_at = self._starts_at(request, account, ahead)
        pause = min(max(account.opens_at - self._now, 0.0), _LONGEST_PAUSE_SECONDS)
        if pause:
            return Waiting(seconds=max(pause, starts_at - self._now), pause_seconds=pause)
        early = starts_at - self._now
        # A process with an earlier turn may still use its time.
        if early > (0.0 if ahead else AHEAD_SECONDS):
            return Waiting(seconds=early if early <= AHEAD_SECONDS else early - AHEAD_SECONDS)
        places = _places(request, account)
        if places is not None and running + ahead >= places:
            return Waiting()
        return Permit(starts_at)

    def _starts_at(self, request: LimitedRequest, account: _Account, ahead: int) -> float:
        """Return the earliest time at which the rate allows a start after so many others."""
        if request.per_minute is None:
            return self._now
        next_start_at = account.next_start_at
        if next_start_at > self._now + _LONGEST_INTERVAL_SECONDS + AHEAD_SECONDS:
            # It was stored before the clock was set back.
            next_start_at = self._now
        return max(next_start_at + ahead * _interval_seconds(request.per_minute), self._now)


def _interval_seconds(per_minute: int) -> float:
    return 60.0 / per_minute


def _delete(connection: Connection, request: LimitedRequest) -> None:
    """Delete a request; its rows in `request_budgets` are deleted with it."""
    connection.execute("DELETE FROM limited_requests WHERE id = ?", (request.id,))


def _read_account(connection: Connection, name: str) -> _Account:
    row = connection.execute(f"SELECT {_ACCOUNT_COLUMNS} FROM limit_accounts WHERE account = ?", (name,)).fetchone()  # noqa: S608 - ours
    if row is None:
        return _Account()
    return _Account(*row)


def _write_account(connection: Connection, name: str, account: _Account) -> None:
    columns = _ACCOUNT_COLUMNS.split(", ")
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
    connection.execute(
        f"INSERT INTO limit_accounts (account, {_ACCOUNT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
        f" ON CONFLICT (account) DO UPDATE SET {changes}",
        (name, *(getattr(account, column) for column in columns)),
    )


def _running(connection: Connection, account: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM limited_requests WHERE account = ? AND started_at IS NOT NULL", (account,)
    ).fetchone()
    return int(row[0])


def _lower(account: _Account, before: int) -> None:
    """Halve the places of an account, of which there were so many `before`."""
    now = before
    if account.places is not None:
        now = min(account.places, before)
    account.places = max(now // 2, 1)
    account.most = max(account.most or 0, before)
    account.lowered += 1


def _raise(account: _Account, places: int) -> None:
    """Add a place after enough successes; the limit ends when all places are back."""
    account.successes += 1
    if account.successes >= _SUCCESSES_TO_GROW:
        account.places = places + 1
        account.successes = 0
    if account.places is not None and account.places >= (account.most or 0):
        account.places = None
        account.most = None


def _places(request: LimitedRequest, account: _Account) -> int | None:
    """Return how many requests of the account may run at once; None means no limit."""
    limits: list[int] = []
    if request.concurrency is not None:
        limits.append(request.concurrency)
    if account.places is not None:
        limits.append(account.places)
    if request.limits_money:
        # One answer says little about the price. As many requests may run as there were answers, and one more.
        limits.append(account.answers + 1)
    return min(limits, default=None)


def _reserved_usd(request: LimitedRequest, account: _Account) -> float:
    """Return what a request may cost, by what its process knows and by what any process paid at its account."""
    known: list[float] = []
    if request.expected_usd is not None:
        known.append(request.expected_usd)
    if account.answers:
        known.append(account.next_usd)
    if known:
        usd = max(known)
    else:
        # While no price is known, one request may take the whole budget.
        limits = [budget.limit_usd for budget in request.budgets if budget.limit_usd is not None]
        usd = min(limits, default=0.0)
    if request.max_usd is not None:
        usd = min(usd, request.max_usd)
    return usd


def _exhausted(request: LimitedRequest, budget: MonthlyBudget, month: str, spent: Cost) -> BudgetExhausted:
    note = ""
    if spent.unknown_costs:
        note = f" ({spent.unknown_costs} more requests did not report their cost)"
    return BudgetExhausted(
        f"{request.agent} was not called: the budget of {budget.description} for {month} is used"
        f" up: ${spent.usd:.4f} of ${budget.limit_usd:.4f} spent{note}",
        agent=request.agent,
        hint=f"raise {budget.setting}, or wait for the next month (UTC); finished calls are in the ledger",
        attempts=0,
    )
