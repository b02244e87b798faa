"""The order of the jobs of one priority: teams take turns, and so do the repositories of a team.

The lowest rank starts first. New jobs get ranks above the highest one that was started. The jobs of a team have one
rank each, and other teams use the same ranks, so each team has as many turns as any other one. New jobs of a repository
change places with waiting jobs of the team's other repositories, which get the next free ranks of the team. So a
request changes about as many jobs as it adds, however many are waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from codeloupe.store.postgres_connection import Session
from codeloupe.workers.deliveries import DeliveryRequest, deliver, withdraw

_HIGHEST_STARTED = "SELECT max(rank) FROM jobs WHERE queue = ? AND priority = ? AND attempts > 0"
# A job that was started before keeps its rank.
_NEW = "FROM jobs WHERE state = 'waiting' AND attempts = 0 AND priority = ?"
# The last rank of each repository of a team. Each step reads one row from the index.
_LAST_RANKS = f"""
WITH RECURSIVE last AS (
    (SELECT repository, rank {_NEW} AND tenant = ? ORDER BY repository DESC, rank DESC LIMIT 1)
    UNION ALL
    SELECT earlier.repository, earlier.rank FROM last CROSS JOIN LATERAL (
        SELECT repository, rank {_NEW} AND tenant = ? AND repository < last.repository
        ORDER BY repository DESC, rank DESC LIMIT 1
    ) AS earlier
)
SELECT repository, rank FROM last
"""  # noqa: S608 - our own text
_OTHERS = f"""
SELECT number, rank {_NEW} AND tenant = ? AND repository <> ? AND rank > ? AND rank <= ? ORDER BY rank LIMIT ?
"""
_MOVE = """
UPDATE jobs SET rank = moved.rank FROM unnest(?::bigint[], ?::bigint[]) AS moved (number, rank)
WHERE jobs.number = moved.number AND state = 'waiting' AND attempts = 0
RETURNING delivery, jobs.number, queue, priority, jobs.rank, subject
"""


class Asked(Struct, frozen=True):
    """The properties of new jobs that decide their ranks."""

    queue: str
    priority: int
    tenant: str
    repository: str


def find_ranks(session: Session, asked: Asked, count: int) -> Sequence[int]:
    """Return the ranks of so many new jobs, and move jobs of other repositories of their team.

    The caller holds the lock under which jobs are added.
    """
    # Without statistics, as after a large sweep was added, Postgres would sort all waiting jobs.
    session.execute("SET LOCAL enable_sort TO off")
    session.execute("SET LOCAL enable_bitmapscan TO off")
    (started,) = session.execute(_HIGHEST_STARTED, (asked.queue, asked.priority)).fetchone()
    team = (asked.priority, asked.tenant)
    others = dict(session.execute(_LAST_RANKS, team + team).fetchall())
    first = max(started or 0, others.pop(asked.repository, 0))
    last = max([first, *others.values()])
    free = range(last + 1, last + 1 + count)
    if not others:
        return free
    found = session.execute(_OTHERS, (*team, asked.repository, first, last, count * len(others))).fetchall()
    return _change_places(session, {rank: number for number, rank in found}, free, turns=len(others))


def _change_places(session: Session, waiting: Mapping[int, int], free: Sequence[int], *, turns: int) -> list[int]:
    """Return a rank for each free one: one after so many `turns` of the waiting jobs, which are given by their ranks.

    A waiting job whose rank was taken gets a free rank.
    """
    ranks = [*waiting, *free]
    taken = set(ranks[turns :: turns + 1])
    left = [rank for rank in free if rank not in taken]
    moved = [number for rank, number in waiting.items() if rank in taken]
    if moved:
        _move(session, moved, left[: len(moved)])
    return sorted([*taken, *left[len(moved) :]])


def _move(session: Session, numbers: Sequence[int], ranks: Sequence[int]) -> None:
    """Give waiting jobs other ranks. A job that has started meanwhile is not changed."""
    rows = session.execute(_MOVE, (list(numbers), list(ranks))).fetchall()
    for delivery, *_ in rows:
        withdraw(session, delivery)
    deliver(session, [DeliveryRequest(*columns) for _, *columns in rows])
