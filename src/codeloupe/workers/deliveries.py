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


class Order(Struct, frozen=True):
    """The request for a delivery: of which job, in which order, not beside which other job, and not before when."""

    number: int
    queue: str
    priority: int
    rank: int
    alone: str | None
    at: float | None = None


def delivery_priority(priority: Priority, rank: int) -> int:
    """Return procrastinate's priority for a rank, counted from 0, among the jobs of one of our priorities."""
    top = (len(Priority) - priority) * _SPAN
    return top - min(rank, _SPAN - 1)


def deliver(session: Session, orders: Sequence[Order]) -> None:
    """Create a delivery for each job, which becomes its newest one. Raise StoreError."""
    wanted = [_delivery(order) for order in orders]
    with _explained(session):
        created = _manager.batch_defer_jobs(wanted, connection=session.connection)
    rows: list[tuple[int | None, int]] = []
    for order, delivery in zip(orders, created, strict=True):
        rows.append((delivery.id, order.number))
    session.executemany("UPDATE jobs SET delivery = ? WHERE number = ?", rows)


def withdraw(session: Session, delivery: int) -> None:
    """Remove a delivery that waits, or have its worker stop working on it. Raise StoreError."""
    with _explained(session):
        _manager.cancel_job_by_id(delivery, abort=True, delete_job=True, connection=session.connection)


def as_time(seconds: float) -> datetime:
    """Return a time of the database as procrastinate expects it."""
    return datetime.fromtimestamp(seconds, UTC)


def _delivery(order: Order) -> Delivery:
    return Delivery(
        queue=order.queue,
        priority=delivery_priority(Priority(order.priority), order.rank),
        lock=order.alone,
        queueing_lock=None,
        task_name=TASK,
        task_kwargs={"number": order.number},
        scheduled_at=None if order.at is None else as_time(order.at),
    )


@contextmanager
def _explained(session: Session) -> Iterator[None]:
    """Raise procrastinate's errors as StoreError."""
    try:
        yield
    except exceptions.ConnectorException as error:
        raise session.explain_cause(error) from error
