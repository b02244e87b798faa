"""Jobs of workers that died: found by the other workers, and delivered again.

A worker of the same machine is known to be dead as soon as its process has ended; any other one after 30 s without a
heartbeat. A job gets a new delivery, so that a worker that was only slow no longer changes it. A job whose worker died
more than 10 times may be the cause: it is dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from procrastinate.jobs import Job as Delivery
from procrastinate.jobs import Status
from procrastinate.manager import JobManager

from codeloupe.store.owner import is_gone, this_process
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.postgres_connection import Session
from codeloupe.workers.deliveries import DeliveryRequest, deliver
from codeloupe.workers.queue import ADDING
from codeloupe.workers.running import HAS_SUCCESSOR

MOST_DEATHS = 10
# After so many deaths, a job waits before its next attempt, ever longer.
_PATIENT_DEATHS = 3
_LONGEST_WAIT_SECONDS = 300.0


class Held(Struct, frozen=True, order=True):
    """A delivery that a worker holds, and the number of its job."""

    delivery: int
    number: int


class DeadJob(Struct, frozen=True):
    """A job that is not delivered again: its number, its request as it is stored, and the reason."""

    number: int
    request: bytes
    reason: str


class Rescued(Struct):
    """The result of a rescue: how many jobs were delivered again, and those that are dead."""

    count: int = 0
    dead: list[DeadJob] = []


class _Row(Struct, frozen=True):
    number: int
    queue: str
    priority: int
    rank: int
    subject: str | None
    options: str | None
    delivery: int
    state: str
    owner: str
    deaths: int
    again_at: float | None
    request: bytes


_COLUMNS = ", ".join(_Row.__struct_fields__)


def abandoned_deliveries(database: PostgresDatabase) -> list[Held]:
    """Return the deliveries of jobs that run in processes of this machine that have ended. Raise StoreError."""
    machine = this_process().machine
    if not machine:
        return []
    # The names of the owners on this machine begin with its name; `!` follows the blank after it.
    rows = database.select(
        "SELECT owner, delivery, number FROM jobs WHERE state = 'running' AND owner >= ? AND owner < ?",
        (f"{machine} process ", f"{machine} process!"),
    )
    gone: dict[str, bool] = {}
    found: list[Held] = []
    for owner, delivery, number in rows:
        if owner not in gone:
            gone[owner] = is_gone(owner)
        if gone[owner]:
            found.append(Held(delivery, number))
    return found


def redeliver(database: PostgresDatabase, deliveries: Iterable[Held]) -> Rescued:
    """Replace the deliveries of dead workers, each only if it is the newest of an open job. Raise StoreError."""
    rescued = Rescued(dead=[])
    for held in deliveries:
        with database.writing(ADDING) as session:
            found = session.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE number = ? AND delivery = ? AND state IN ('waiting', 'running')",  # noqa: S608 - ours
                (held.number, held.delivery),
            ).fetchone()
            if found is not None:
                _redeliver(session, _Row(*found), rescued, now=database.clock())
    return rescued


def _redeliver(session: Session, row: _Row, rescued: Rescued, *, now: float) -> None:
    has_died = row.state == "running"
    deaths = row.deaths + has_died
    if _has_successor(session, row):
        _end(session, row, "cancelled", HAS_SUCCESSOR, now=now)
        return
    if deaths > MOST_DEATHS:
        reason = f"its worker died {deaths} times while it was running"
        if _end(session, row, "dead", reason, now=now):
            rescued.dead.append(DeadJob(row.number, row.request, reason))
        return
    again_at = row.again_at
    if has_died and deaths > _PATIENT_DEATHS:
        again_at = now + seconds_after_deaths(deaths)
    changed = session.execute(
        "UPDATE jobs SET state = 'waiting', owner = '', host = '', deaths = ?, again_at = ?"
        " WHERE number = ? AND delivery = ? AND state = ? AND owner = ?",
        (deaths, again_at, row.number, row.delivery, row.state, row.owner),
    )
    if changed.rowcount:
        deliver(session, [DeliveryRequest(row.number, row.queue, row.priority, row.rank, row.subject, again_at)])
        rescued.count += 1


def seconds_after_deaths(deaths: int) -> float:
    """Return how long to wait before the next attempt of a job that has died so often."""
    doublings = min(deaths - 2, 10)
    return min(2.0**doublings, _LONGEST_WAIT_SECONDS)


def _has_successor(session: Session, row: _Row) -> bool:
    """Return whether another job waits that does the same."""
    if row.subject is None:
        return False
    found = session.execute(
        "SELECT number FROM jobs WHERE subject = ? AND options = ? AND state = 'waiting' AND number <> ?",
        (row.subject, row.options, row.number),
    ).fetchone()
    return found is not None


def _end(session: Session, row: _Row, state: str, reason: str, *, now: float) -> bool:
    changed = session.execute(
        "UPDATE jobs SET state = ?, deaths = deaths + 1, ended_at = ?, again_at = NULL, reason = ?"
        " WHERE number = ? AND delivery = ? AND state = ? AND owner = ?",
        (state, now, reason, row.number, row.delivery, row.state, row.owner),
    )
    return changed.rowcount > 0


async def stalled_deliveries(manager: JobManager, *, dead_seconds: float) -> list[Held]:
    """Return the deliveries of workers without a heartbeat for so long, or that are no longer registered."""
    found = await manager.get_stalled_jobs(seconds_since_heartbeat=dead_seconds)
    return _held(found)


async def fetched_deliveries(manager: JobManager, worker_ids: Iterable[int]) -> list[Held]:
    """Return the deliveries that procrastinate has given to these workers."""
    fetched: list[Held] = []
    for worker_id in worker_ids:
        found = await manager.list_jobs_async(status=Status.DOING.value, worker_id=worker_id)
        fetched.extend(_held(found))
    return fetched


async def end_deliveries(manager: JobManager, deliveries: Iterable[Held]) -> None:
    """End deliveries that were replaced. One that has ended meanwhile is not an error."""
    for held in deliveries:
        await manager.finish_job_by_id_async(held.delivery, Status.ABORTED, delete_job=True)


def _held(found: Iterable[Delivery]) -> list[Held]:
    held: list[Held] = []
    for delivery in found:
        number = delivery.task_kwargs.get("number")
        if delivery.id is not None and isinstance(number, int):
            held.append(Held(delivery.id, number))
    return held
