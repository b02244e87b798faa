"""Limits that many processes share, on a real server, with a clock that the test sets."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import BudgetExhausted
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Waiting
from codeloupe.store.ledger import Owner
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase

pytestmark = pytest.mark.program
NOW = datetime(2030, 1, 31, 23, tzinfo=UTC).timestamp()
ALL = MonthlyBudget("all", "all work", "monthly_budget_usd")
ANSWER = Ending(usd=1.0, next_usd=1.5, succeeded=True)
REFUSED = Ending(refused=True)
SOMETIME = Waiting(turn=0)
_numbers = itertools.count()


class Limits:
    """Processes, as many as are asked for, that share one database and one clock."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self.now = NOW
        self.processes: list[SharedLimits] = []
        self.add()

    def add(self, owner: Owner | None = None) -> SharedLimits:
        self.processes.append(SharedLimits(self.database, clock=lambda: self.now, owner=owner))
        return self.processes[-1]

    def start(self, wanted: LimitedRequest, process: int = 0) -> Waiting | None:
        """Start a request; the turn of one that waits is 0, so that results can be compared."""
        waiting = self.processes[process].start(wanted)
        return None if waiting is None else replace(waiting, turn=0)

    def end(self, wanted: LimitedRequest, ending: Ending = ANSWER) -> None:
        self.processes[0].end(wanted, ending)

    def places(self, count: int = 9, **fields: Any) -> int:
        """How many of many requests could start now; they are gone again."""
        tried = [request(**fields) for _ in range(count)]
        started = sum(self.start(one) is None for one in tried)
        for one in tried:
            self.end(one, Ending(requests=0))
        return started

    def spent(self) -> dict[tuple[str, str], tuple[float, int, int]]:
        rows = self.database.select("SELECT month, budget, usd, requests, unknown_costs FROM spending")
        return {(row[0], row[1]): tuple(row[2:]) for row in rows}


@pytest.fixture
def limits(postgres_url: str) -> Iterator[Limits]:
    with PostgresDatabase(postgres_url) as database:
        yield Limits(database)


def request(**fields: Any) -> LimitedRequest:
    given = {"id": f"r{next(_numbers)}", "agent": "scripted", "account": "a", "priority": 0, "budgets": (ALL,)}
    return LimitedRequest(**{**given, **fields})


def paid_by(*named: tuple[str, float | None]) -> tuple[MonthlyBudget, ...]:
    return tuple(MonthlyBudget(name, f"the {name}", f"monthly_{name}", usd) for name, usd in named)


def test_no_more_run_than_there_are_places_for_an_account_and_the_first_that_asked_is_next(limits: Limits) -> None:
    first, second, third, fourth = (request(concurrency=1) for _ in range(4))
    limits.add()
    told = [limits.start(one, process) for one, process in ((first, 0), (second, 1), (third, 0))]
    assert told == [None, SOMETIME, SOMETIME]
    assert limits.start(request(concurrency=1, account="b")) is None
    limits.end(first)
    # Whoever asks sooner is not first for it.
    assert [limits.start(one) for one in (fourth, third)] == [SOMETIME] * 2
    assert limits.start(second, 1) is None
    limits.end(third)  # gives up
    limits.end(second)
    assert limits.start(fourth) is None
    # Who asks again after a lost connection has its place already.
    assert limits.start(fourth) is None


def test_nobody_starts_while_one_of_a_better_priority_waits(limits: Limits) -> None:
    running = [request(concurrency=2) for _ in range(2)]
    sweep, pull, person = (request(concurrency=2, priority=priority) for priority in (2, 1, 0))
    for one in (*running, sweep, pull, person):
        limits.start(one)
    limits.end(running[0])
    assert [limits.start(one) for one in (sweep, pull, person)] == [SOMETIME, SOMETIME, None]
    limits.end(running[1])
    assert [limits.start(one) for one in (sweep, pull)] == [SOMETIME, None]
    limits.end(person)
    assert limits.start(sweep) is None


def test_starts_in_a_minute_are_counted_over_all_and_each_is_told_when_its_own_comes(limits: Limits) -> None:
    limits.add()
    for seconds in range(3):
        limits.now = NOW + seconds
        assert limits.start(request(per_minute=3), seconds % 2) is None
    waiting = [request(per_minute=3) for _ in range(4)]
    told = [limits.start(one) for one in waiting]
    assert [one and one.seconds for one in told] == pytest.approx([58.5, 59.5, 60.5, 60.5])
    # One that has its turn sooner gets the time of another, who learns of it when it asks again.
    person = request(per_minute=3, priority=-1)
    limits.now = NOW + 60.5
    assert limits.start(person) is None
    told = [limits.start(one) for one in waiting]
    assert [one and one.seconds for one in told] == pytest.approx([1.0, 2.0, 60.5, 60.5])
    limits.now += 1
    assert [limits.start(one) is None for one in waiting] == [True, False, False, False]


class TestRefusal:
    def test_what_one_is_refused_halves_the_places_of_all_once_and_successes_bring_them_back(
        self, limits: Limits
    ) -> None:
        limits.add()
        running = [request(concurrency=8) for _ in range(8)]
        assert all(limits.start(one, number % 2) is None for number, one in enumerate(running))
        for one in running:
            limits.end(one, REFUSED)
        assert limits.places(concurrency=8) == 4
        one = request(concurrency=8)
        limits.start(one)
        limits.end(one, REFUSED)
        seen = []
        for _ in range(60):
            seen.append(limits.places(concurrency=8))
            one = request(concurrency=8)
            limits.start(one, 1)
            limits.end(one)
        assert seen == [2] * 10 + [3] * 10 + [4] * 10 + [5] * 10 + [6] * 10 + [7] * 10
        assert limits.places(concurrency=8) == 8

    def test_without_a_fixed_limit_the_half_of_those_that_ran_is_left_until_all_have_a_place_again(
        self, limits: Limits
    ) -> None:
        running = [request() for _ in range(6)]
        assert all(limits.start(one) is None for one in running)
        limits.end(running[0], REFUSED)
        for one in running[1:]:
            limits.end(one)
        assert limits.places() == 3
        for _ in range(30):
            one = request()
            limits.start(one)
            limits.end(one)
        assert limits.places() == 9

    def test_a_pause_holds_for_all_processes_and_a_shorter_one_does_not_end_it(self, limits: Limits) -> None:
        limits.add()
        running = [request() for _ in range(2)]
        for one in running:
            limits.start(one)
        limits.end(running[0], replace(REFUSED, pause_seconds=30.0))
        limits.end(running[1], replace(REFUSED, pause_seconds=5.0))
        assert limits.start(request(), 1) == Waiting(turn=0, seconds=30.0, pause_seconds=30.0)
        assert limits.start(request(account="b"), 1) is None
        limits.now += 30
        last = request(priority=-1)
        assert limits.start(last, 1) is None
        limits.end(last, replace(REFUSED, pause_seconds=1e15))
        assert limits.start(request(), 1) == Waiting(turn=0, seconds=86_400.0, pause_seconds=86_400.0)


class TestLeases:
    def test_what_a_process_holds_counts_until_its_lease_ends_and_again_when_it_is_back(self, limits: Limits) -> None:
        other = limits.add(Owner("elsewhere", 1, "t"))
        held, kept = request(concurrency=1), request(concurrency=1)
        assert other.start(held) is None
        limits.now += 25
        other.renew()
        limits.now += 25
        assert limits.start(kept) == SOMETIME
        limits.now += 6
        assert limits.start(kept) is None
        other.renew()
        limits.end(kept)
        assert limits.start(request(concurrency=1)) == SOMETIME
        # It was only away: what it paid is counted, once.
        other.end(held, ANSWER)
        other.end(held, ANSWER)
        assert limits.spent() == {("2030-01", "all"): (2.0, 2, 0)}

    def test_one_that_waits_and_is_not_heard_of_is_not_waited_for(self, limits: Limits) -> None:
        other = limits.add(Owner("elsewhere", 1, "t"))
        first, dead, alive = (request(concurrency=1) for _ in range(3))
        limits.start(first)
        other.start(dead)
        limits.start(alive)
        limits.end(first)
        assert limits.start(alive) == SOMETIME
        limits.now += 31
        assert limits.start(alive) is None

    def test_a_process_of_this_machine_that_was_killed_leaves_its_places_and_its_money_at_once(
        self, limits: Limits
    ) -> None:
        program = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
        other = limits.add(replace(Owner.here(), process_id=program.pid))
        budgets = paid_by(("all", 5.0))
        held, waiting = (request(concurrency=1, budgets=budgets) for _ in range(2))
        assert other.start(held) is None
        assert other.start(waiting) is not None
        mine = request(concurrency=1, budgets=budgets)
        assert limits.start(mine) == SOMETIME
        os.kill(program.pid, signal.SIGKILL)
        program.communicate()
        assert limits.start(mine) is None
        # It may have cost something, and nobody knows how much.
        assert limits.spent() == {("2030-01", "all"): (0.0, 1, 1)}
        assert limits.database.select("SELECT count(*) FROM limited_requests") == [(1,)]

    def test_after_the_server_was_away_nobody_loses_a_lease_that_could_not_be_renewed(self, limits: Limits) -> None:
        ((started,),) = limits.database.select("SELECT extract(epoch FROM pg_postmaster_start_time())::float8")
        limits.now = started - 100
        other = limits.add(Owner("elsewhere", 1, "t"))
        assert other.start(request(concurrency=1)) is None
        limits.now = started + 29
        assert limits.start(request(concurrency=1)) == SOMETIME
        limits.now = started + 31
        assert limits.places(concurrency=1) == 0  # the one that asked before is still before them


class TestMonths:
    def test_money_is_counted_for_each_budget_in_the_month_in_which_a_request_began(self, limits: Limits) -> None:
        budgets = paid_by(("all", None), ("repository x", None), ("team y", None))
        first, second, free = request(budgets=budgets), request(budgets=budgets[:2]), request(budgets=budgets)
        limits.start(first)
        limits.now += 3600
        for one in (second, free):
            limits.start(one)
        limits.end(first)
        limits.end(second, Ending(unknown_costs=1, next_usd=0.0))
        limits.end(free, Ending(requests=0))
        assert limits.spent() == {
            ("2030-01", "all"): (1.0, 1, 0),
            ("2030-01", "repository x"): (1.0, 1, 0),
            ("2030-01", "team y"): (1.0, 1, 0),
            ("2030-02", "all"): (0.0, 1, 1),
            ("2030-02", "repository x"): (0.0, 1, 1),
            ("2030-02", "team y"): (0.0, 0, 0),
        }

    def test_a_month_that_is_spent_is_named_with_its_limit_and_the_next_one_is_new(self, limits: Limits) -> None:
        budgets = paid_by(("all", 50.0), ("repository", 2.0), ("team", 1.5))
        for ending in (ANSWER, replace(ANSWER, unknown_costs=1)):
            one = request(budgets=budgets)
            assert limits.start(one) is None
            limits.end(one, ending)
        with pytest.raises(BudgetExhausted) as caught:
            limits.start(request(budgets=budgets))
        assert caught.value.message == (
            "scripted was not called: the budget of the repository for 2030-01 is used up: $2.0000 of"
            " $2.0000 spent (1 more requests did not report their cost)"
        )
        assert "raise monthly_repository, or wait for the next month" in caught.value.hint
        with pytest.raises(BudgetExhausted, match="the budget of the team for 2030-01"):
            limits.start(request(budgets=(budgets[0], budgets[2])))
        assert limits.start(request(budgets=budgets[:1])) is None
        limits.now += 3600
        assert limits.start(request(budgets=budgets)) is None

    def test_one_that_does_not_fit_beside_those_that_run_waits_for_them(self, limits: Limits) -> None:
        budgets = paid_by(("all", 10.0))

        def asked(**fields: Any) -> LimitedRequest:
            return request(budgets=budgets, **fields)

        # While no price is known, one may take all there is.
        first, second = asked(), asked()
        assert (limits.start(first), limits.start(second)) == (None, SOMETIME)
        limits.end(first, Ending(usd=2.0, next_usd=3.0, succeeded=True))
        third, dear, cheap = asked(), asked(expected_usd=5.5), asked(max_usd=0.5)
        # What one process has paid, another expects too: 2 + 3 + 3 of 10 dollars.
        assert (limits.start(second), limits.start(third)) == (None, None)
        limits.end(second, Ending(usd=0.5, next_usd=0.75, succeeded=True))
        assert (limits.start(dear), limits.start(cheap)) == (SOMETIME, SOMETIME)
        limits.end(third, Ending(usd=0.5, next_usd=0.75, succeeded=True))
        assert (limits.start(cheap), limits.start(dear)) == (SOMETIME, None)
        assert limits.start(cheap) is None

    def test_who_waits_for_the_money_of_one_repository_holds_up_no_other(self, limits: Limits) -> None:
        of_one, of_other = (paid_by(("all", None), (f"repository {name}", 1.0)) for name in "xy")
        assert limits.start(request(budgets=of_one, concurrency=2)) is None
        assert limits.start(request(budgets=of_one, concurrency=2)) == SOMETIME
        # The first price of an account is waited for; at another there is none to wait for.
        assert limits.start(request(budgets=of_other, concurrency=2, account="b")) is None
        assert limits.start(request(budgets=of_one, concurrency=2, account="b", max_usd=0.01)) == SOMETIME


def test_whoever_stands_still_with_the_lock_of_all_is_cut_off_by_the_server(limits: Limits) -> None:
    shown = "SHOW idle_in_transaction_session_timeout"
    with limits.database.writing("limits") as connection:
        assert connection.execute(shown).fetchone() == ("30s",)
    assert limits.database.select(shown) == [("0",)]


def test_a_clock_that_was_set_back_opens_sooner_and_never_stays_closed(limits: Limits) -> None:
    assert limits.start(request(per_minute=1)) is None
    limits.now -= 3600
    assert limits.start(request(per_minute=1)) is None


def test_a_step_that_is_made_again_after_a_lost_connection_counts_once(limits: Limits) -> None:
    one = request(per_minute=5)
    for _ in range(2):
        assert limits.start(one) is None
    for _ in range(2):
        limits.end(one)
    assert limits.spent() == {("2030-01", "all"): (1.0, 1, 0)}
    assert limits.database.select("SELECT count(*) FROM limit_starts") == [(1,)]
