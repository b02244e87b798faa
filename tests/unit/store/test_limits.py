"""Limits that many processes share, on both databases, with a clock that the test sets."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from codeloupe.errors import BudgetExhausted
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Permit, Waiting
from codeloupe.store.interface import Connection, Database, Rows
from codeloupe.store.limits import AHEAD_SECONDS, SharedLimits
from codeloupe.store.owner import Owner
from codeloupe.store.postgres import PostgresDatabase
from tests.postgres import made_database

NOW = datetime(2030, 1, 31, 23, tzinfo=UTC).timestamp()
ALL = MonthlyBudget("all", "", "all work", "monthly_budget_usd")
ANSWER = Ending(usd=1.0, next_usd=1.5, succeeded=True)
REFUSED = Ending(refused=True)
SOMETIME = Waiting()
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.program)]
_numbers = itertools.count()


class Limits:
    """Several processes that share one database and one clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = NOW
        database.clock = lambda: self.now  # type: ignore[method-assign]
        self.processes: list[SharedLimits] = []
        self.add()

    def add(self, owner: Owner | None = None) -> SharedLimits:
        chosen = owner or Owner("elsewhere", len(self.processes) + 1, "t")
        self.processes.append(SharedLimits(self.database, owner=chosen))
        return self.processes[-1]

    def ask(self, wanted: LimitedRequest, process: int = 0) -> Permit | Waiting:
        answer = self.processes[process].start([wanted])[wanted.id]
        if isinstance(answer, BudgetExhausted):
            raise answer
        return answer

    def starts(self, wanted: LimitedRequest, process: int = 0) -> bool:
        return isinstance(self.ask(wanted, process), Permit)

    def end(self, wanted: LimitedRequest, ending: Ending = ANSWER, process: int = 0) -> None:
        self.processes[process].end(wanted, ending)

    def call(self, ending: Ending = ANSWER, **fields: Any) -> None:
        one = request(**fields)
        assert self.starts(one)
        self.end(one, ending)

    def places(self, count: int = 9, **fields: Any) -> int:
        """Return how many of many requests could start now; all are withdrawn again."""
        tried = [request(**fields) for _ in range(count)]
        answers = self.processes[0].start(tried)
        for one in tried:
            self.end(one, Ending(requests=0))
        return sum(isinstance(answer, Permit) for answer in answers.values())

    def spent(self) -> dict[tuple[str, str], tuple[float, int, int]]:
        rows = self.database.select("SELECT month, budget, usd, requests, unknown_costs FROM spending")
        return {(row[0], row[1]): tuple(row[2:]) for row in rows}

    def stored(self) -> int:
        return int(self.database.select("SELECT count(*) FROM limited_requests")[0][0])


class StatementCounter:
    """A database that counts the statements of transactions and the rows that they return."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statements = 0
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def writing(self, about: str = "") -> Iterator[Any]:
        with self._database.writing(about) as connection:
            yield CountedConnection(self, connection)


class CountedConnection:
    def __init__(self, counter: StatementCounter, connection: Connection) -> None:
        self._counter = counter
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> "CountedRows":
        self._counter.statements += 1
        return CountedRows(self._counter, self._connection.execute(sql, parameters))

    def executemany(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self._counter.statements += len(rows)
        self._connection.executemany(sql, rows)


class CountedRows:
    def __init__(self, counter: StatementCounter, rows: Rows) -> None:
        self._counter = counter
        self._rows = rows

    def fetchone(self) -> Any:
        self._counter.rows += 1
        return self._rows.fetchone()

    def fetchall(self) -> list[Any]:
        found = self._rows.fetchall()
        self._counter.rows += len(found)
        return found


@pytest.fixture(params=DATABASES)
def limits(request: pytest.FixtureRequest) -> Iterator[Limits]:
    with made_database(request) as database:
        yield Limits(database)


def request(**fields: Any) -> LimitedRequest:
    given = {"id": f"r{next(_numbers)}", "agent": "scripted", "account": "a", "priority": 0, "budgets": (ALL,)}
    return LimitedRequest(**{**given, **fields})


def paid_by(**limits: float | None) -> tuple[MonthlyBudget, ...]:
    return tuple(MonthlyBudget(kind, kind, kind, f"monthly_{kind}", usd) for kind, usd in limits.items())


class TestPlaces:
    def test_a_free_place_goes_to_the_request_that_asked_first(self, limits: Limits) -> None:
        first, second, third, fourth = (request(concurrency=1) for _ in range(4))
        limits.add()
        assert limits.starts(first)
        assert limits.ask(second, 1) == SOMETIME
        assert limits.ask(third) == SOMETIME
        assert limits.starts(request(concurrency=1, account="b"))
        limits.end(first)
        # The order of the later questions does not matter.
        assert [limits.ask(one) for one in (fourth, third)] == [SOMETIME] * 2
        assert limits.starts(second, 1)
        limits.end(third)  # withdrawn
        limits.end(second, process=1)
        assert limits.starts(fourth)

    def test_a_better_priority_starts_first(self, limits: Limits) -> None:
        running = [request(concurrency=2) for _ in range(2)]
        sweep, pull, person = (request(concurrency=2, priority=priority) for priority in (2, 1, 0))
        for one in (*running, sweep, pull, person):
            limits.ask(one)
        limits.end(running[0])
        assert [limits.starts(one) for one in (sweep, pull, person)] == [False, False, True]
        limits.end(running[1])
        assert [limits.starts(one) for one in (sweep, pull)] == [False, True]
        limits.end(person)
        assert limits.starts(sweep)

    @pytest.mark.defect("W1")
    def test_one_transaction_starts_all_waiting_requests_that_fit(self, limits: Limits) -> None:
        wanted = [request(concurrency=3) for _ in range(5)]
        answers = limits.processes[0].start(wanted)
        assert [isinstance(answers[one.id], Permit) for one in wanted] == [True, True, True, False, False]
        limits.end(wanted[0])
        limits.end(wanted[1])
        answers = limits.processes[0].start(wanted[3:])
        assert [isinstance(answers[one.id], Permit) for one in wanted[3:]] == [True, True]

    def test_a_repeated_step_counts_once(self, limits: Limits) -> None:
        one = request(per_minute=5)
        assert limits.ask(one) == limits.ask(one)
        limits.end(one)
        limits.end(one)
        assert limits.spent() == {("2030-01", "all"): (1.0, 1, 0)}
        assert limits.starts(request(per_minute=5, account="b"))


class TestRate:
    @pytest.mark.defect("M3")
    def test_starts_are_an_interval_apart_over_all_processes(self, limits: Limits) -> None:
        limits.add()
        times: list[float] = []
        waiting = [(request(per_minute=20), number % 2) for number in range(8)]
        while waiting:
            for one, process in list(waiting):
                answer = limits.ask(one, process)
                if isinstance(answer, Permit):
                    times.append(answer.starts_at)
                    waiting.remove((one, process))
            limits.now += 0.25
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert gaps == pytest.approx([3.0] * 7)

    def test_a_late_process_never_gets_two_starts_at_once(self, limits: Limits) -> None:
        limits.call(per_minute=20)
        limits.now += 60.0
        first, second = request(per_minute=20), request(per_minute=20)
        assert limits.ask(first) == Permit(limits.now)
        assert limits.ask(second) == Waiting(seconds=3.0 - AHEAD_SECONDS)

    def test_a_permit_is_granted_shortly_before_its_time(self, limits: Limits) -> None:
        limits.call(per_minute=20)
        one = request(per_minute=20)
        limits.ask(one)
        limits.now += 3.0 - AHEAD_SECONDS
        assert limits.ask(one) == Permit(NOW + 3.0)

    def test_a_process_ahead_that_does_not_ask_costs_one_interval(self, limits: Limits) -> None:
        limits.add()
        limits.call(per_minute=20)
        silent, other = request(per_minute=20), request(per_minute=20)
        limits.ask(silent, 1)
        assert limits.ask(other) == Waiting(seconds=6.0 - AHEAD_SECONDS)
        limits.now += 6.0 - AHEAD_SECONDS
        assert limits.ask(other) == Waiting(seconds=AHEAD_SECONDS)
        limits.now += AHEAD_SECONDS
        assert limits.ask(other) == Permit(NOW + 6.0)

    def test_a_clock_that_was_set_back_does_not_delay_a_start(self, limits: Limits) -> None:
        limits.call(per_minute=1)
        limits.now -= 3600
        assert limits.starts(request(per_minute=1))
        assert limits.ask(request(per_minute=1)) == Waiting(seconds=60.0 - AHEAD_SECONDS)


class TestRefusal:
    def test_a_refusal_halves_the_places_once_until_successes_raise_them(self, limits: Limits) -> None:
        limits.add()
        running = [request(concurrency=8) for _ in range(8)]
        assert all(limits.starts(one, number % 2) for number, one in enumerate(running))
        for one in running:
            limits.end(one, REFUSED)
        assert limits.places(concurrency=8) == 4
        limits.call(REFUSED, concurrency=8)
        seen = []
        for _ in range(60):
            seen.append(limits.places(concurrency=8))
            limits.call(concurrency=8)
        assert seen == [2] * 10 + [3] * 10 + [4] * 10 + [5] * 10 + [6] * 10 + [7] * 10
        assert limits.places(concurrency=8) == 8

    def test_without_a_fixed_limit_half_of_the_running_requests_remain(self, limits: Limits) -> None:
        running = [request() for _ in range(6)]
        assert all(limits.starts(one) for one in running)
        limits.end(running[0], REFUSED)
        for one in running[1:]:
            limits.end(one)
        assert limits.places() == 3
        for _ in range(30):
            limits.call()
        assert limits.places() == 9

    def test_a_pause_applies_to_all_processes_and_a_shorter_one_changes_nothing(self, limits: Limits) -> None:
        limits.add()
        running = [request() for _ in range(2)]
        for one in running:
            limits.ask(one)
        limits.end(running[0], replace(REFUSED, pause_seconds=30.0))
        limits.end(running[1], replace(REFUSED, pause_seconds=5.0))
        assert limits.ask(request(), 1) == Waiting(seconds=30.0, pause_seconds=30.0)
        assert limits.starts(request(account="b"), 1)
        limits.now += 30
        last = request(priority=-1)
        assert limits.starts(last, 1)
        limits.end(last, replace(REFUSED, pause_seconds=1e15))
        assert limits.ask(request(), 1) == Waiting(seconds=86_400.0, pause_seconds=86_400.0)


class TestProcesses:
    def test_a_permit_counts_until_the_lease_of_its_process_ends(self, limits: Limits) -> None:
        other = limits.add()
        held, mine = request(concurrency=1), request(concurrency=1)
        assert limits.starts(held, 1)
        limits.now += 25
        other.renew()
        limits.now += 25
        assert limits.ask(mine) == SOMETIME
        limits.now += 6
        assert limits.starts(mine)
        other.renew()
        limits.end(mine)
        assert limits.ask(request(concurrency=1)) == SOMETIME
        # The process was only slow: its cost is counted, once.
        other.end(held, ANSWER)
        other.end(held, ANSWER)
        assert limits.spent() == {("2030-01", "all"): (2.0, 2, 0)}

    def test_a_waiting_request_of_a_silent_process_does_not_block_others(self, limits: Limits) -> None:
        limits.add()
        first, dead, alive = (request(concurrency=1) for _ in range(3))
        limits.ask(first)
        limits.ask(dead, 1)
        limits.ask(alive)
        limits.end(first)
        assert limits.ask(alive) == SOMETIME
        limits.now += 31
        assert limits.starts(alive)

    @pytest.mark.program
    def test_a_killed_process_of_this_machine_releases_everything_at_once(self, limits: Limits) -> None:
        program = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
        limits.add(replace(Owner.here(), process_id=program.pid))
        budgets = (replace(ALL, limit_usd=5.0),)
        held, waiting, mine = (request(concurrency=1, budgets=budgets) for _ in range(3))
        assert limits.starts(held, 1)
        assert not limits.starts(waiting, 1)
        assert limits.ask(mine) == SOMETIME
        os.kill(program.pid, signal.SIGKILL)
        program.communicate()
        assert limits.starts(mine)
        # The request may have cost something.
        assert limits.spent() == {("2030-01", "all"): (0.0, 1, 1)}
        assert limits.stored() == 1

    def test_a_new_process_releases_what_forgotten_processes_held(self, limits: Limits) -> None:
        limits.add()
        limits.ask(request(account="b"), 1)
        limits.ask(request(account="c"), 1)
        limits.now += 3 * 3600
        limits.add()
        assert limits.starts(request(), 2)
        assert limits.stored() == 1
        assert limits.spent() == {("2030-01", "all"): (0.0, 2, 2)}

    @pytest.mark.parametrize("limits", DATABASES[1:], indirect=True)
    def test_after_an_outage_every_process_has_time_to_renew(self, limits: Limits) -> None:
        started = limits.database.up_since
        limits.now = started - 100
        limits.add()
        assert limits.starts(request(concurrency=1), 1)
        limits.now = started + 29
        assert limits.ask(request(concurrency=1)) == SOMETIME
        limits.now = started + 31
        assert limits.places(concurrency=1) == 0  # the request from before still has an earlier turn

    @pytest.mark.defect("W5")
    def test_a_first_call_costs_the_same_after_thousands_of_jobs(self, limits: Limits) -> None:
        owner = Owner("elsewhere", 9, "t")
        counts: list[tuple[int, int]] = []
        for _ in range(200):
            # Each job has a runtime with limits of its own, in the same process.
            counter = StatementCounter(limits.database)
            job = SharedLimits(cast("Database", counter), owner=owner)
            one = request()
            job.start([one])
            job.end(one, ANSWER)
            counts.append((counter.statements, counter.rows))
        assert counts[-1] == counts[1]
        assert limits.database.select("SELECT count(*) FROM processes") == [(1,)]
        assert limits.stored() == 0


class TestMonths:
    def test_a_cost_counts_for_each_budget_in_the_month_of_its_start(self, limits: Limits) -> None:
        budgets = paid_by(all=None, repository=None, team=None)
        first, second, free = request(budgets=budgets), request(budgets=budgets[:2]), request(budgets=budgets)
        limits.ask(first)
        limits.now += 3600
        limits.ask(second)
        limits.ask(free)
        limits.end(first)
        limits.end(second, Ending(unknown_costs=1, next_usd=0.0))
        limits.end(free, Ending(requests=0))
        assert limits.spent() == {
            ("2030-01", "all all"): (1.0, 1, 0),
            ("2030-01", "repository repository"): (1.0, 1, 0),
            ("2030-01", "team team"): (1.0, 1, 0),
            ("2030-02", "all all"): (0.0, 1, 1),
            ("2030-02", "repository repository"): (0.0, 1, 1),
        }

    def test_each_agent_has_its_own_row_and_all_count_for_the_limit(self, limits: Limits) -> None:
        budgets = paid_by(all=2.0)
        limits.call(budgets=budgets, agent="codex")
        limits.call(budgets=budgets, agent="gemini", account="b")
        rows = limits.database.select("SELECT agent, usd FROM spending ORDER BY agent")
        assert [tuple(row) for row in rows] == [("codex", 1.0), ("gemini", 1.0)]
        with pytest.raises(BudgetExhausted):
            limits.ask(request(budgets=budgets))

    def test_an_exhausted_budget_is_named_and_the_next_month_is_new(self, limits: Limits) -> None:
        budgets = paid_by(all=50.0, repository=2.0, team=1.5)
        for ending in (ANSWER, replace(ANSWER, unknown_costs=1)):
            limits.call(ending, budgets=budgets)
        with pytest.raises(BudgetExhausted) as caught:
            limits.ask(request(budgets=budgets))
        assert caught.value.message == (
            "scripted was not called: the budget of the repository repository for 2030-01 is used up: $2.0000 of"
            " $2.0000 spent (1 more requests did not report their cost)"
        )
        assert "raise monthly_repository, or wait for the next month" in caught.value.hint
        with pytest.raises(BudgetExhausted, match="the budget of the team team for 2030-01"):
            limits.ask(request(budgets=(budgets[0], budgets[2])))
        assert limits.starts(request(budgets=budgets[:1]))
        limits.now += 3600
        assert limits.starts(request(budgets=budgets))

    def test_a_request_that_does_not_fit_waits_for_the_running_ones(self, limits: Limits) -> None:
        budgets = paid_by(all=10.0)

        def asked(**fields: Any) -> LimitedRequest:
            return request(budgets=budgets, **fields)

        # While no price is known, one request may take the whole budget.
        first, second = asked(), asked()
        assert (limits.starts(first), limits.starts(second)) == (True, False)
        limits.end(first, Ending(usd=2.0, next_usd=3.0, succeeded=True))
        third, dear, cheap = asked(), asked(expected_usd=5.5), asked(max_usd=0.5)
        # A price that one process paid is expected by all: 2 + 3 + 3 of 10 dollars.
        assert (limits.starts(second), limits.starts(third)) == (True, True)
        limits.end(second, Ending(usd=0.5, next_usd=0.75, succeeded=True))
        assert (limits.starts(dear), limits.starts(cheap)) == (False, False)
        limits.end(third, Ending(usd=0.5, next_usd=0.75, succeeded=True))
        assert (limits.starts(cheap), limits.starts(dear)) == (False, True)
        assert limits.starts(cheap)

    @pytest.mark.defect("W1")
    def test_a_budget_that_blocks_one_repository_blocks_no_other(self, limits: Limits) -> None:
        of_one, of_other = (
            (ALL, MonthlyBudget("repository", key, key, "monthly_repository", 1.0)) for key in ("x", "y")
        )
        assert limits.starts(request(budgets=of_one, concurrency=2))
        blocked = request(budgets=of_one, concurrency=2)
        assert limits.ask(blocked) == SOMETIME
        # At the same account, the first price is still unknown. Another account has none to wait for.
        free = request(budgets=of_other, concurrency=2, account="b")
        answers = limits.processes[0].start([blocked, free])
        assert (answers[blocked.id], type(answers[free.id])) == (SOMETIME, Permit)
        assert limits.ask(request(budgets=of_one, concurrency=2, account="b", max_usd=0.01)) == SOMETIME


@pytest.mark.program
def test_the_server_ends_a_transaction_that_holds_the_lock_and_does_nothing(postgres_url: str) -> None:
    shown = "SHOW idle_in_transaction_session_timeout"
    with PostgresDatabase(postgres_url) as database:
        with database.writing("limits") as connection:
            assert connection.execute(shown).fetchone() == ("30s",)
        assert database.select(shown) == [("0",)]
