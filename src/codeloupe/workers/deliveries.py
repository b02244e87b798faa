"""Deliveries: the jobs of procrastinate, whose only argument is the number of one of our jobs.

A job belongs to its newest delivery; any other delivery ends without doing anything. Deliveries are created and
withdrawn in the transaction that changes the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct
from procrastinate import SyncPsycopgConnector, exceptions
from procrastinate.jobs import Job as Delivery
from procrastinate.manager import JobManager

from codeloupe.model.agent import Priority
from codeloupe.store.postgres_connection import Session

TASK = "codeloupe"
# Each of our priorities is a range of so many priorities of procrastinate, which starts the highest number first.
_SPAN = 500_000_000
# It is never opened: all statements use the connection of a transaction.
_manager = JobManager(SyncPsycopgConnector())


class DeliveryRequest(Struct, frozen=True):
    """The request for the delivery of a job: its place in the queue, and the earliest time, if there is one.

    Deliveries of jobs about the same subject are not made at the same time.
    """

    number: int
    queue: str
    priority: int
    rank: int
    subject: str | None
    at: float | None = None


def delivery_priority(priority: Priority, rank: int) -> int:
    """Return procrastinate's priority for a rank, counted from 0, among the jobs of one of our priorities."""
    top = (len(Priority) - priority) * _SPAN
    return top - min(rank, _SPAN - 1)


def create_deliveries(session: Session, requests: Sequence[DeliveryRequest]) -> list[int | None]:
    """Create a delivery for each job; return their numbers. Raise StoreError."""
    wanted = [_delivery(request) for request in requests]
    with _explained(session):
        created = _manager.batch_defer_jobs(wanted, connection=session.connection)
    return [delivery.id for delivery in created]


def deliver(session: Session, requests: Sequence[DeliveryRequest]) -> None:
    """Create a delivery for each stored job, which becomes its newest one. Raise StoreError."""
    deliveries = create_deliveries(session, requests)
    rows: list[tuple[int | None, int]] = []
    for request, delivery in zip(requests, deliveries, strict=True):
        rows.append((delivery, request.number))
    session.executemany("UPDATE jobs SET delivery = ? WHERE number = ?", rows)


def withdraw(session: Session, delivery: int) -> None:
    """Remove a delivery that waits, or have its worker stop working on it. Raise StoreError."""
    with _explained(session):
        _manager.cancel_job_by_id(delivery, abort=True, delete_job=True, connection=session.connection)


def as_time(seconds: float) -> datetime:
    """Return a time of the database as procrastinate expects it."""
    return datetime.fromtimestamp(seconds, UTC)


def _delivery(request: DeliveryRequest) -> Delivery:
    return Delivery(
        queue=request.queue,
        priority=delivery_priority(Priority(request.priority), request.rank),
        lock=request.subject,
        queueing_lock=None,
        task_name=TASK,
        task_kwargs={"number": request.number},
        scheduled_at=None if request.at is None else as_time(request.at),
    )


@contextmanager
def _explained(session: Session) -> Iterator[None]:
    """Raise procrastinate's errors as StoreError."""
    try:
        yield
    except exceptions.ConnectorException as error:
        raise session.explain_cause(error) from error
