"""The queue: asking for jobs, and listing, cancelling and retrying them.

A job is a row of the table `jobs`; procrastinate only delivers its number to a worker (see `deliveries.py`).

The priority of a job decides first: a person, then a pull request, then a sweep. Within a priority, the lowest rank
starts first. The rank of a new job is the lowest rank that waits, or the last rank of its team's repository if that is
higher, plus the number of repositories of its team that have waiting jobs. So the jobs of teams and repositories are
interleaved, and a job that is added later does not change the rank of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.postgres_connection import Session
from codeloupe.store.processes import Processes, WorkerRecord
from codeloupe.store.queue_schema import prepare_queue
from codeloupe.workers.deliveries import Order, as_time, deliver, withdraw
from codeloupe.workers.jobs import Job, JobKind, JobRecord, JobState, Outcome, Progress, as_json

# The lock under which jobs are added, and put back into the queue.
ADDING = "jobs"
_COLUMNS = (
    "number, request, state, priority, attempts, asked_at, started_at, ended_at, again_at, host, progress, outcome,"
    " reason"
)
_ADDED = "queue, priority, rank, tenant, repository, alone, sweep_id, request, asked_at, progress"
_CONSTANT = "state, owner, host, attempts, failures, deaths, reason"
_ORDER = "number, queue, priority, rank, alone"
_OPEN = "state IN ('waiting', 'running')"
_FAILED = "state IN ('dead', 'cancelled')"
# A statement may have 65,535 values.
_ROWS_AT_ONCE = 1000
_LIST = "`codeloupe jobs list` lists the jobs"
_NEWER_COMMIT = "a newer commit was pushed to this pull request"


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
        commit. A running job for an older commit of the pull request is cancelled.
        """
        if not jobs:
            return ()
        self.prepare()
        now = self.database.clock()
        wanted = [replace(job, priority=priority, fresh_since=now if job.fresh else None) for job in jobs]
        if len(wanted) == 1 and wanted[0].alone is not None:
            return (self.database.persist(lambda: self._ask_alone(wanted[0])),)
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
        self._retry("number = ?", job_id)
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

    def _ask_alone(self, job: Job) -> int:
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
                if _has_same_options(job, record) and self._take_over(session, record, job):
                    return record.job_id
            return self._add(session, [job])[0]

    def _take_over(self, session: Session, waiting: JobRecord, job: Job) -> bool:
        """Let a waiting job do a new request, without its earlier failures; False if it has started meanwhile."""
        priority = min(waiting.priority, job.priority)
        rows = session.execute(
            "UPDATE jobs SET request = ?, again_at = NULL, failures = 0, deaths = 0, reason = ''"  # noqa: S608 - our words
            f" WHERE number = ? AND state = 'waiting' RETURNING delivery, {_ORDER}",
            (as_json(replace(job, priority=priority)), waiting.job_id),
        ).fetchall()
        for delivery, *columns in rows:
            order = Order(*columns)
            if priority < waiting.priority:
                order = replace(order, priority=priority, rank=_ranks(session, job, 1)[0])
            elif waiting.again_at is None:
                break
            # The old delivery is less urgent, or waits for a retry or a quota.
            session.execute(
                "UPDATE jobs SET priority = ?, rank = ? WHERE number = ?", (order.priority, order.rank, order.number)
            )
            withdraw(session, delivery)
            deliver(session, [order])
        return bool(rows)

    def _add(self, session: Session, jobs: Sequence[Job]) -> tuple[int, ...]:
        ranks = _ranks(session, jobs[0], len(jobs))
        now = self.database.clock()
        numbers: list[int] = []
        for start in range(0, len(jobs), _ROWS_AT_ONCE):
            values: list[object] = []
            part = jobs[start : start + _ROWS_AT_ONCE]
            for job, rank in zip(part, ranks[start:], strict=False):
                values.extend(_row(job, rank, now))
            row = f"({', '.join('?' for _ in _ADDED.split(','))}, 'waiting', '', '', 0, 0, 0, '')"
            rows = session.execute(
                f"INSERT INTO jobs ({_ADDED}, {_CONSTANT}) VALUES {', '.join([row] * len(part))} RETURNING {_ORDER}",  # noqa: S608 - our words
                values,
            ).fetchall()
            orders = sorted((Order(*added) for added in rows), key=lambda order: order.rank)
            deliver(session, orders)
            numbers.extend(order.number for order in orders)
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
            names = f"SELECT alone FROM jobs WHERE {condition} AND {_FAILED}"  # noqa: S608 - our words
            waiting = session.execute(
                f"SELECT number FROM jobs WHERE state = 'waiting' AND alone IN ({names})",  # noqa: S608 - our words
                (value,),
            ).fetchone()
            if waiting is not None:
                message = f"the job {waiting[0]}, which does the same, is already waiting"
                raise UsageError(message, hint=f"`codeloupe jobs watch {waiting[0]}` follows it")
            rows = session.execute(
                "UPDATE jobs SET state = 'waiting', failures = 0, deaths = 0, reason = '', outcome = NULL,"  # noqa: S608 - our words
                f" started_at = NULL, ended_at = NULL WHERE {condition} AND {_FAILED} RETURNING {_ORDER}",
                (value,),
            ).fetchall()
            deliver(session, [Order(*row) for row in rows])
        return len(rows)

    def _select(self, condition: str, values: Sequence[object]) -> tuple[JobRecord, ...]:
        self.prepare()
        rows = self.database.select(f"SELECT {_COLUMNS} FROM jobs {condition}", values)  # noqa: S608 - our words
        return tuple(_record(*row) for row in rows)


def _ranks(session: Session, job: Job, count: int) -> range:
    """Return the ranks of so many new jobs like this one, by the rule at the top of this module."""
    waiting = "FROM jobs WHERE state = 'waiting' AND priority = ?"
    # A job that was started before keeps its old rank, which is no measure for new jobs.
    (lowest,) = session.execute(
        f"SELECT min(rank) {waiting} AND attempts = 0",
        (job.priority,),
    ).fetchone()
    (last,) = session.execute(
        f"SELECT max(rank) {waiting} AND tenant = ? AND repository = ?",
        (job.priority, job.tenant, job.repository),
    ).fetchone()
    (others,) = session.execute(
        f"SELECT count(DISTINCT repository) {waiting} AND tenant = ? AND repository <> ?",
        (job.priority, job.tenant, job.repository),
    ).fetchone()
    step = others + 1
    first = max(lowest or 0, last or 0) + step
    return range(first, first + step * count, step)


def _open_jobs(session: Session, job: Job, state: JobState) -> list[JobRecord]:
    """Return the jobs in that state for the same pull request or run, the newest first."""
    rows = session.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE alone = ? AND {_OPEN} AND state = ? ORDER BY number DESC",  # noqa: S608 - our words
        (job.alone, state.value),
    ).fetchall()
    return [_record(*row) for row in rows]


def _has_same_options(job: Job, other: JobRecord) -> bool:
    """Return whether two jobs differ at most in the commit; their clients, teams and priorities do not matter.

    The newest request counts for a run, because all of them continue the same run.
    """
    if job.run_id is not None:
        return True
    same = replace(
        other.job,
        head=job.head,
        priority=job.priority,
        tenant=job.tenant,
        description=job.description,
        fresh_since=job.fresh_since,
    )
    return same == job


def _is_answered_by(job: Job, running: JobRecord) -> bool:
    """Return whether a running job does what is asked for."""
    return bool(job.head) and running.job.head == job.head and _has_same_options(job, running)


def _is_outdated(running: JobRecord, job: Job) -> bool:
    """Return whether a running review is about an older commit of its pull request."""
    return job.pull_request is not None and (not job.head or running.job.head != job.head)


def _row(job: Job, rank: int, now: float) -> Iterator[object]:
    """Yield the values of a new row, in the order of `_ADDED`."""
    yield job.kind.queue
    yield job.priority.value
    yield rank
    yield job.tenant
    yield job.repository
    yield job.alone
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
