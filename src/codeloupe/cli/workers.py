"""`codeloupe workers`: list the workers that use a shared database."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from codeloupe.cli import options
from codeloupe.cli.jobs import NO_WORKER, as_json, opened_queue
from codeloupe.cli.parser import Parser, examples
from codeloupe.cli.verbs import note, write_result
from codeloupe.reports.wording import duration
from codeloupe.system.untrusted import terminal

if TYPE_CHECKING:
    from codeloupe.store.processes import WorkerRecord
    from codeloupe.workers.queue import JobQueue


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A live worker: its process, its queues and slots, and how many jobs it is running."""

    host: str
    queues: tuple[str, ...]
    slots: int
    running: int
    started_at: datetime
    seen_at: datetime


def configure(parser: Parser) -> None:
    """Add the options of `workers`."""
    options.add(parser, "--json")
    examples(parser, "codeloupe workers", "codeloupe workers --json")


def run(arguments: argparse.Namespace) -> int:
    """List the live workers."""
    with opened_queue() as queue:
        rows = _rows(queue)
        now = queue.database.clock()
    if arguments.json:
        write_result(as_json({"workers": rows}))
        return 0
    if not rows:
        note(NO_WORKER)
        return 0
    lines = [f"{'RUNNING':>7}  {'SLOTS':>5}  {'HEARTBEAT':>12}  {'AGE':>12}  {'QUEUES':<26}  HOST"]
    for row in rows:
        seen = f"{duration(max(0.0, now - row.seen_at.timestamp()))} ago"
        age = duration(max(0.0, now - row.started_at.timestamp()))
        queues = ", ".join(row.queues)
        lines.append(f"{row.running:>7}  {row.slots:>5}  {seen:>12}  {age:>12}  {queues:<26}  {terminal(row.host)}")
    write_result("\n".join(lines) + "\n")
    return 0


def _rows(queue: JobQueue) -> list[WorkerRow]:
    running = queue.running_counts()
    return [_row(worker, running.get(worker.owner, 0)) for worker in queue.workers()]


def _row(worker: WorkerRecord, running: int) -> WorkerRow:
    return WorkerRow(
        host=worker.host,
        queues=worker.queues,
        slots=worker.slots,
        running=running,
        started_at=datetime.fromtimestamp(worker.started_at, UTC),
        seen_at=datetime.fromtimestamp(worker.seen_at, UTC),
    )
