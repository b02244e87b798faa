"""The queue: asking for jobs, and listing, cancelling and retrying them.

A job is a row of the table `jobs`; procrastinate only delivers its number to a worker (see `deliveries.py`).

The priority of a job decides first: a person, then a pull request, then a sweep. Within a priority, the lowest rank
starts first (see `ranks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from codeloupe.errors import StoreError, UsageError
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.postgres_connection import Session, is_duplicate
from codeloupe.store.processes import Processes, WorkerRecord
from codeloupe.store.queue_schema import prepare_queue
from codeloupe.workers.deliveries import DeliveryRequest, as_time, create_deliveries, deliver, withdraw
from codeloupe.workers.jobs import Job, JobKind, JobRecord, JobState, Outcome, Progress, as_json
from codeloupe.workers.ranks import Asked, find_ranks

_Answer = TypeVar("_Answer")
# The lock under which jobs are added, and returned to the queue.
ADDING = "jobs"
_COLUMNS = (
    "number, request, state, priority, attempts, asked_at, started_at, ended_at, again_at, host, progress, outcome,"
    " reason"
)
_ADDED = (
    "number, delivery, queue, priority, rank, tenant, repository, subject, options, sweep_id, request, asked_at,"
    " progress"
)
_CONSTANT = "state, owner, host, attempts, failures, deaths, reason"
_FOR_DELIVERY = "number, queue, priority, rank, subject"
_NEXT_NUMBER = "nextval(pg_get_serial_sequence('jobs', 'number'))"
_OPEN = "state IN ('waiting', 'running')"
_FAILED = "state IN ('dead', 'cancelled')"
# A statement may have 65,535 values.
_ROWS_AT_ONCE = 1000
_MOST_CONFLICTS = 10
_LIST = "`codeloupe jobs list` lists the jobs"
_NEWER_COMMIT = "a newer commit was pushed to this pull request"
# A retried job has the place and the attempts of a new one.
_RETRY = f"""
UPDATE jobs SET state = 'waiting', rank = given.rank, attempts = 0, failures = 0, deaths = 0, reason = '',
    outcome = NULL, started_at = NULL, ended_at = NULL
FROM unnest(?::bigint[], ?::bigint[]) AS given (number, rank)
WHERE jobs.number = given.number AND {_FAILED}
RETURNING jobs.number, queue, priority, jobs.rank, subject
"""  # noqa: S608 - our words


class JobQueue:
    """The queue in a shared database, created at its first use. Methods are synchronous and raise StoreError."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._is_ready = False

    def prepare(self) -> None:
        """Create or upgrade the tables of the queue, once in the life of this object."""
        if not self._is_ready:
            prepare_queue(self.database)
            self._is_ready = True

    def ask(self, *jobs: Job, priority: Priority) -> tuple[int, ...]:
        """Add jobs of one team and repository, all or none; return their numbers.

        At most one job of a pull request or run waits with the same options. If there is one, it reviews the newest
        commit, and its team remains the one that asked first. A running job for an older commit of the pull request is
        cancelled.
        """
        if not jobs:
            return ()
        self.prepare()
        now = self.database.clock()
        wanted = [replace(job, priority=priority, fresh_since=now if job.fresh else None) for job in jobs]
        if len(wanted) == 1 and wanted[0].subject is not None:
            return (self._repeated(lambda: self._ask_or_share(wanted[0])),)
        with self.database.writing(ADDING) as session:
            return self._add(session, wanted)

    def find(self, job_id: int) -> JobRecord:
        """Return a job. Raise UsageError if it does not exist."""
        records = self._select("WHERE number = ?", (job_id,))
        if not records:
            raise UsageError(f"there is no job {job_id}", hint=_LIST)
        return records[0]

    def list(
        self, *, states: Sequence[JobState] = (), limit: int = 50, sweep_id: str | None = None
    ) -> tuple[JobRecord, ...]:
        """Return the newest jobs first, only those of the given states and sweep if any are given."""
        conditions = ["TRUE"]
        values: list[object] = []
        if states:
            marks = ", ".join("?" for _ in states)
            conditions.append(f"state IN ({marks})")
            values.extend(state.value for state in states)
        if sweep_id is not None:
            conditions.append("sweep_id = ?")
            values.append(sweep_id)
        return self._select(f"WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?", (*values, limit))

    def counts(self, sweep_id: str) -> dict[JobState, int]:
        """Return how many jobs of a sweep are in each state."""
        self.prepare()
        found = dict.fromkeys(JobState, 0)
        rows = self.database.select("SELECT state, count(*) FROM jobs WHERE sweep_id = ? GROUP BY state", (sweep_id,))
        for state, count in rows:
            found[JobState(state)] = count
        return found

    def has_open_jobs(self) -> bool:
        """Return whether a job is waiting or running."""
        self.prepare()
        return bool(self.database.select(f"SELECT number FROM jobs WHERE {_OPEN} LIMIT 1"))  # noqa: S608 - our words

    def workers(self) -> tuple[WorkerRecord, ...]:
        """Return the workers that are alive."""
        found = Processes(self.database).workers()
        return tuple(worker for worker in found if worker.is_alive)

    def is_served(self, queue: str) -> bool:
        """Return whether a live worker takes jobs from a queue."""
        return any(queue in worker.queues for worker in self.workers())

    def running_counts(self) -> dict[str, int]:
        """Return how many jobs each worker is running, by its owner."""
        self.prepare()
        rows = self.database.select("SELECT owner, count(*) FROM jobs WHERE state = 'running' GROUP BY owner")
        return {owner: int(count) for owner, count in rows}

    def cancel(self, job_id: int, *, why: str = "cancelled by a user") -> JobRecord:
        """Cancel a waiting or running job; its worker stops within seconds. Raise UsageError if it has ended."""
        with self.database.writing() as session:
            count = self._cancel(session, "number = ?", job_id, why=why)
        record = self.find(job_id)
        if not count:
            hint = "only a waiting or running job can be cancelled"
            raise UsageError(f"the job {job_id} is already {record.state.value}", hint=hint)
        return record

    def cancel_sweep(self, sweep_id: str) -> int:
        """Cancel all waiting and running jobs of a sweep; return how many there were."""
        self.prepare()
        with self.database.writing() as session:
            return self._cancel(session, "sweep_id = ?", sweep_id, why="cancelled by a user")

    def retry(self, job_id: int) -> JobRecord:
        """Put a dead or cancelled job back into the queue. Raise UsageError for any other job."""
        record = self.find(job_id)
        if record.state not in (JobState.DEAD, JobState.CANCELLED):
            hint = "only a dead or cancelled job can be retried"
            raise UsageError(f"the job {job_id} is {record.state.value}", hint=hint)
        self._repeated(lambda: self._retry("number = ?", job_id))
        return self.find(job_id)

    def retry_sweep(self, sweep_id: str) -> int:
        """Put all dead and cancelled jobs of a sweep back into the queue; return how many there were."""
        self.prepare()
        return self._retry("sweep_id = ?", sweep_id)

    def forget(self, *, days: float = 30.0) -> int:
        """Remove jobs that ended so long ago; return how many. Their results stay in the history."""
        before = self.database.clock() - 86400.0 * days
        total = 0
        while True:
            removed = self.database.change(
                "DELETE FROM jobs WHERE number IN (SELECT number FROM jobs WHERE ended_at < ? ORDER BY number LIMIT ?)",
                (before, _ROWS_AT_ONCE),
            )
            total += removed
            if removed < _ROWS_AT_ONCE:
                return total

    def _repeated(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step again if a worker has returned a job with the same subject and options to the queue meanwhile."""
        conflicts = 0
        while True:
            try:
                return self.database.persist(step)
            except StoreError as error:
                conflicts += 1
                if conflicts == _MOST_CONFLICTS or not is_duplicate(error.__cause__):
                    raise

    def _ask_or_share(self, job: Job) -> int:
        with self.database.writing(ADDING) as session:
            # In this order, a job that a worker starts meanwhile is found twice, and not missed.
            waiting = _open_jobs(session, job, JobState.WAITING)
            running = _open_jobs(session, job, JobState.RUNNING)
            for record in running:
                if _is_answered_by(job, record):
                    return record.job_id
                if _is_outdated(record, job):
                    self._cancel(session, "number = ?", record.job_id, why=_NEWER_COMMIT)
            for record in waiting:
                if record.job.options == job.options and self._take_over(session, record, job):
                    return record.job_id
            return self._add(session, [job])[0]

    def _take_over(self, session: Session, waiting: JobRecord, job: Job) -> bool:
        """Let a waiting job do a new request, without its earlier failures; False if it has started meanwhile."""
        priority = min(waiting.priority, job.priority)
        shared = replace(job, priority=priority, tenant=waiting.job.tenant)
        rows = session.execute(
            "UPDATE jobs SET request = ?, again_at = NULL, failures = 0, deaths = 0, reason = ''"  # noqa: S608 - our words
            f" WHERE number = ? AND state = 'waiting' RETURNING delivery, {_FOR_DELIVERY}",
            (as_json(shared), waiting.job_id),
        ).fetchall()
        for delivery, *columns in rows:
            wanted = DeliveryRequest(*columns)
            if priority < waiting.priority:
                (rank,) = find_ranks(session, _asked(shared), 1)
                wanted = replace(wanted, priority=priority, rank=rank)
            elif waiting.again_at is None:
                break
            # The old delivery is less urgent, or waits for a retry or a quota.
            session.execute(
                "UPDATE jobs SET priority = ?, rank = ? WHERE number = ?", (wanted.priority, wanted.rank, wanted.number)
            )
            withdraw(session, delivery)
            deliver(session, [wanted])
        return bool(rows)

    def _add(self, session: Session, jobs: Sequence[Job]) -> tuple[int, ...]:
        ranks = find_ranks(session, _asked(jobs[0]), len(jobs))
        rows = session.execute(f"SELECT {_NEXT_NUMBER} FROM generate_series(1, ?)", (len(jobs),)).fetchall()  # noqa: S608 - our words
        numbers = [number for (number,) in rows]
        now = self.database.clock()
        for start in range(0, len(jobs), _ROWS_AT_ONCE):
            part = range(start, min(start + _ROWS_AT_ONCE, len(jobs)))
            wanted = [_delivery_of(jobs[index], numbers[index], ranks[index]) for index in part]
            values: list[object] = []
            for index, delivery in zip(part, create_deliveries(session, wanted), strict=True):
                values.extend((numbers[index], delivery, *_row(jobs[index], ranks[index], now)))
            row = f"({', '.join('?' for _ in _ADDED.split(','))}, 'waiting', '', '', 0, 0, 0, '')"
            session.execute(
                f"INSERT INTO jobs ({_ADDED}, {_CONSTANT}) VALUES {', '.join([row] * len(part))}",  # noqa: S608 - our words
                values,
            )
        return tuple(numbers)

    def _cancel(self, session: Session, condition: str, value: object, *, why: str) -> int:
        rows = session.execute(
            f"UPDATE jobs SET state = 'cancelled', ended_at = ?, again_at = NULL, reason = ?"  # noqa: S608 - our words
            f" WHERE {condition} AND {_OPEN} RETURNING delivery",
            (self.database.clock(), why, value),
        ).fetchall()
        for (delivery,) in rows:
            withdraw(session, delivery)
        return len(rows)

    def _retry(self, condition: str, value: object) -> int:
        with self.database.writing(ADDING) as session:
            failed = f"SELECT subject, options FROM jobs WHERE {condition} AND {_FAILED}"  # noqa: S608 - our words
            waiting = session.execute(
                f"SELECT number FROM jobs WHERE state = 'waiting' AND (subject, options) IN ({failed})",  # noqa: S608 - our words
                (value,),
            ).fetchone()
            if waiting is not None:
                message = f"the job {waiting[0]}, which does the same, is already waiting"
                raise UsageError(message, hint=f"`codeloupe jobs watch {waiting[0]}` follows it")
            found = session.execute(
                "SELECT number, queue, priority, tenant, repository FROM jobs"  # noqa: S608 - our words
                f" WHERE {condition} AND {_FAILED} ORDER BY rank",
                (value,),
            ).fetchall()
            if not found:
                return 0
            # The jobs of a sweep have the same team and repository.
            ranks = find_ranks(session, Asked(*found[0][1:]), len(found))
            numbers = [row[0] for row in found]
            rows = session.execute(_RETRY, (numbers, list(ranks))).fetchall()
            deliver(session, [DeliveryRequest(*row) for row in rows])
        return len(rows)

    def _select(self, condition: str, values: Sequence[object]) -> tuple[JobRecord, ...]:
        self.prepare()
        rows = self.database.select(f"SELECT {_COLUMNS} FROM jobs {condition}", values)  # noqa: S608 - our words
        return tuple(_record(*row) for row in rows)


def _open_jobs(session: Session, job: Job, state: JobState) -> list[JobRecord]:
    """Return the jobs in that state for the same pull request or run, the newest first."""
    rows = session.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE subject = ? AND {_OPEN} AND state = ? ORDER BY number DESC",  # noqa: S608 - our words
        (job.subject, state.value),
    ).fetchall()
    return [_record(*row) for row in rows]


def _is_answered_by(job: Job, running: JobRecord) -> bool:
    """Return whether a running job does what is asked for."""
    return bool(job.head) and running.job.head == job.head and running.job.options == job.options


def _is_outdated(running: JobRecord, job: Job) -> bool:
    """Return whether a running review is about an older commit of its pull request."""
    return job.pull_request is not None and (not job.head or running.job.head != job.head)


def _asked(job: Job) -> Asked:
    return Asked(job.kind.queue, job.priority.value, job.tenant, job.repository)


def _delivery_of(job: Job, number: int, rank: int) -> DeliveryRequest:
    return DeliveryRequest(number, job.kind.queue, job.priority.value, rank, job.subject)


def _row(job: Job, rank: int, now: float) -> Iterator[object]:
    """Yield the values of a new row after its number and delivery, in the order of `_ADDED`."""
    yield job.kind.queue
    yield job.priority.value
    yield rank
    yield job.tenant
    yield job.repository
    yield job.subject
    yield job.options
    yield None if job.sweep is None else job.sweep.sweep_id
    yield as_json(job)
    yield now
    yield b"{}"


def decoded(request: bytes) -> Job:
    """Return the request of a job. Raise msgspec.DecodeError if another version of codeloupe has written it."""
    return msgspec.json.decode(request, type=Job)


def _record(  # noqa: PLR0913, PLR0917 - the columns, in their order
    number: int,
    request: bytes,
    state_name: str,
    priority: int,
    attempts: int,
    asked_at: float,
    started_at: float | None,
    ended_at: float | None,
    again_at: float | None,
    host: str,
    progress: bytes,
    outcome: bytes | None,
    reason: str,
) -> JobRecord:
    state = JobState(state_name)
    try:
        job = decoded(request)
    except msgspec.DecodeError as error:
        # The other jobs are still listed, and this one can be cancelled.
        what = f"cannot be read; another version of codeloupe may have written it: {error}"
        job = Job(kind=JobKind.REVIEW, repository="", description=what)
    return JobRecord(
        job_id=number,
        job=job,
        state=state,
        priority=Priority(priority),
        attempts=attempts,
        asked_at=as_time(asked_at),
        started_at=None if started_at is None else as_time(started_at),
        ended_at=None if ended_at is None else as_time(ended_at),
        again_at=None if again_at is None else as_time(again_at),
        worker=host if state is JobState.RUNNING else "",
        progress=_progress(progress),
        outcome=_outcome(outcome),
        reason=reason,
    )


def _progress(value: bytes) -> Progress:
    try:
        return msgspec.json.decode(value, type=Progress)
    except msgspec.DecodeError:
        return Progress()


def _outcome(value: bytes | None) -> Outcome | None:
    """Return a stored result, or None if there is none or another version has written it."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Outcome)
    except msgspec.DecodeError:
        return None
