"""The queue: what asks for jobs, lists, cancels and tries them again. Its tables are procrastinate's and a few of ours.

Order. Each of our priorities is a range of the queue's numbers, of which the highest goes first. Whenever something is
asked for, what waits in its range is put into a fair order: one job of each tenant in turn, of a tenant one of each
repository in turn, of a repository the oldest first. So somebody who asks for one review does not wait for the
thousands that others asked for before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import resources
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.agent import Priority
from codeloupe.store.interface import Connection
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.workers.jobs import Job, JobKind, JobRecord, JobState, Outcome, Progress

_Kept = TypeVar("_Kept")
TASK = "codeloupe"
CHANNEL = "codeloupe_jobs"
# How many numbers of the queue a priority has.
_SPAN = 500_000_000
_STATES = {
    "todo": JobState.WAITING,
    "doing": JobState.RUNNING,
    "succeeded": JobState.DONE,
    "failed": JobState.DEAD,
    "cancelled": JobState.CANCELLED,
    "aborted": JobState.CANCELLED,
    "aborting": JobState.CANCELLED,
}
_COLUMNS = """
    j.id, j.args -> 'job', j.status::text, j.priority, j.attempts, j.scheduled_at, w.host,
    s.progress, s.outcome, s.reason,
    (SELECT min(at) FROM procrastinate_events AS e WHERE e.job_id = j.id AND e.type = 'deferred'),
    (SELECT max(at) FROM procrastinate_events AS e WHERE e.job_id = j.id AND e.type = 'started'),
    (SELECT max(at) FROM procrastinate_events AS e WHERE e.job_id = j.id
        AND e.type IN ('succeeded', 'failed', 'cancelled', 'aborted'))
"""
_JOBS = "procrastinate_jobs AS j LEFT JOIN job_states AS s ON s.job_id = j.id LEFT JOIN workers AS w USING (worker_id)"
_LIST = "`codeloupe jobs list` lists the jobs"
_MOST_DEATHS = 10
# Names the locks under which priorities are given out, and the dead are looked for; numbers that nobody else uses.
_RANKS, _RESCUING = 0x72616E6B, 0x72657363
# What is asked, whoever asks.
_REQUEST = "({} -> 'job') - '{{priority,tenant,description}}'::text[]"
_ENDED = "('succeeded', 'failed', 'cancelled', 'aborted')"
_OF_SWEEP = "args #>> '{job,sweep,sweep_id}' = ?"
_DEAD = "w.id = ANY (?) OR w.last_heartbeat < now() - make_interval(secs => ?)"
_FAIR_ORDER = """
    WITH in_repository AS (
        SELECT id, args #>> '{job,tenant}' AS tenant, row_number() OVER (
            PARTITION BY args #>> '{job,tenant}', args #>> '{job,repository}' ORDER BY priority DESC, id
        ) AS place
        FROM procrastinate_jobs WHERE status = 'todo' AND priority > ? AND priority <= ?
    ), in_tenant AS (
        SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY place, id) AS turn FROM in_repository
    ), fair AS (
        SELECT id, CAST(? + 1 - least(turn, ?) AS integer) AS priority FROM in_tenant
    )
    UPDATE procrastinate_jobs AS j SET priority = fair.priority FROM fair
    WHERE j.id = fair.id AND j.status = 'todo' AND j.priority <> fair.priority
"""
# Of a pull request or a run at most one job waits.
_HAS_SUCCESSOR = (
    "EXISTS (SELECT FROM procrastinate_jobs AS o WHERE o.status = 'todo' AND o.queueing_lock = j.queueing_lock)"
)
# The oldest jobs have the lowest numbers.
_FORGET = f"""
    WITH old AS (
        SELECT j.id FROM procrastinate_jobs AS j WHERE j.status IN {_ENDED} AND NOT EXISTS (
            SELECT FROM procrastinate_events AS e
            WHERE e.job_id = j.id AND e.at > now() - make_interval(secs => 86400 * ?::double precision)
        ) ORDER BY j.id LIMIT ? FOR UPDATE SKIP LOCKED
    ), states AS (DELETE FROM job_states WHERE job_id IN (SELECT id FROM old))
    DELETE FROM procrastinate_jobs WHERE id IN (SELECT id FROM old)
"""  # noqa: S608 - words of ours
_AT_ONCE = 1000
_INSERTED = '{"type": "job_inserted", "job_id": 0}'
_OF_THE_DEAD = f"""
    SELECT j.id, coalesce(s.deaths, 0), j.abort_requested OR {_HAS_SUCCESSOR} FROM procrastinate_jobs AS j
    LEFT JOIN procrastinate_workers AS w ON w.id = j.worker_id LEFT JOIN job_states AS s ON s.job_id = j.id
    WHERE j.status = 'doing' AND (w.id IS NULL OR {_DEAD}) FOR UPDATE OF j SKIP LOCKED
"""  # noqa: S608 - words of ours


def put_back(at: str) -> str:
    """SQL that puts the running job `j` back into the queue; cancelled, or if another waits in its place, it ends."""
    return f"""
    CASE WHEN j.abort_requested OR {_HAS_SUCCESSOR} THEN procrastinate_finish_job_v1(j.id, 'aborted', false)
    ELSE procrastinate_retry_job_v2(j.id, {at}, NULL, NULL, NULL) END"""


def top_of(priority: Priority) -> int:
    """The number of the first job of a priority."""
    return (len(Priority) - priority) * _SPAN


def priority_of(number: int) -> Priority:
    """The priority that a number in the queue belongs to."""
    return Priority(max(0, min(len(Priority) - 1, len(Priority) - -(-number // _SPAN))))


class JobQueue:
    """The queue in a shared database, made with its first use. Methods are synchronous and raise StoreError."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._is_ready = False

    def prepare(self) -> None:
        """Make the tables of the queue where they are not there yet; processes that do so at once wait."""
        if self._is_ready:
            return
        with self.database.writing("queue") as connection:
            if connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()[0] is None:
                connection.execute((resources.files("procrastinate.sql") / "schema.sql").read_text("utf-8"))
        self._is_ready = True

    def ask(self, *jobs: Job, priority: Priority) -> tuple[int, ...]:
        """Put jobs in the queue, all or none; their numbers. Those of one call are for one tenant and repository.

        Of a pull request or a run at most one waits: where there is one, it stands for the new request too, since it
        looks at the newest head. One that is running on an older head is cancelled.
        """
        if not jobs:
            return ()
        self.prepare()
        jobs = tuple(replace(job, priority=priority) for job in jobs)
        if len(jobs) == 1 and jobs[0].alone is not None:
            return (self.database.persist(lambda: self._ask_alone(jobs[0], priority)),)
        with self.database.writing(f"queue {priority.name}") as connection:
            return _put(connection, jobs, priority)

    def _ask_alone(self, job: Job, priority: Priority) -> int:
        with self.database.writing(f"job {job.alone}") as connection:
            wanted = _as_json({"job": msgspec.to_builtins(job)})
            running = connection.execute(
                f"SELECT id, args #>> '{{job,head}}', {_REQUEST.format('args')} = {_REQUEST.format('?::jsonb')}"  # noqa: S608 - ours
                " FROM procrastinate_jobs WHERE lock = ? AND status = 'doing' AND NOT abort_requested",
                (wanted, job.alone),
            ).fetchone()
            if running is not None and job.head and running[2]:
                return int(running[0])
            # One with other options waits for that of the same head.
            if running is not None and job.pull_request is not None and (not job.head or running[1] != job.head):
                connection.execute("SELECT procrastinate_cancel_job_v1(?, true, false)", (running[0],))
                _note(connection, running[0], "a newer commit was pushed to this pull request")
            waiting = connection.execute(
                "SELECT id, priority FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo' FOR UPDATE",
                (job.alone,),
            ).fetchone()
            if waiting is not None:
                # Whoever is in a hurry takes the others along.
                number = top_of(priority) if priority < priority_of(waiting[1]) else waiting[1]
                connection.execute(
                    "UPDATE procrastinate_jobs SET args = ?::jsonb, priority = ? WHERE id = ?",
                    (wanted, number, waiting[0]),
                )
                return int(waiting[0])
            return _put(connection, (job,), priority)[0]

    def find(self, job_id: int) -> JobRecord:
        """A job as it is now. Raises UsageError for one that is not there."""
        for record in self._select("WHERE j.id = ?", (job_id,)):
            return record
        raise UsageError(f"there is no job {job_id}", hint=_LIST)

    def list(self, *, states: Sequence[JobState] = (), limit: int = 50, sweep_id: str | None = None) -> list[JobRecord]:
        """The newest jobs, of these states if any are named."""
        names = [name for name, state in _STATES.items() if state in states] or list(_STATES)
        marks = ", ".join("?" for _ in names)
        of_sweep = f" AND j.{_OF_SWEEP}" if sweep_id else ""
        condition = f"WHERE j.status::text IN ({marks}){of_sweep} ORDER BY j.id DESC LIMIT ?"
        return list(self._select(condition, (*names, *((sweep_id,) if sweep_id else ()), limit)))

    def counts(self, sweep_id: str) -> dict[JobState, int]:
        """How many jobs of a sweep are in each state."""
        self.prepare()
        rows = self.database.select(
            f"SELECT status::text, count(*) FROM procrastinate_jobs WHERE {_OF_SWEEP} GROUP BY 1",  # noqa: S608 - as below
            (sweep_id,),
        )
        found = dict.fromkeys(JobState, 0)
        for status, count in rows:
            found[_STATES[status]] += count
        return found

    def cancel(self, job_id: int, *, why: str = "cancelled by a user") -> JobRecord:
        """Take a job out of the queue, or have it ended within seconds where it runs. Raises UsageError at its end."""
        record = self.find(job_id)
        with self.database.writing() as connection:
            found = connection.execute("SELECT procrastinate_cancel_job_v1(?, true, false)", (job_id,)).fetchone()
            if found[0] is not None:
                _note(connection, job_id, why)
        if found[0] is None:
            what = f"the job {job_id} is already {record.state.value}"
            raise UsageError(what, hint="only a waiting or running job can be cancelled")
        return self.find(job_id)

    def cancel_sweep(self, sweep_id: str) -> int:
        """Cancel all that is left of a sweep; how many jobs that were."""
        self.prepare()
        with self.database.writing() as connection:
            left = f"SELECT id FROM procrastinate_jobs WHERE {_OF_SWEEP} AND status IN ('todo', 'doing')"  # noqa: S608 - ours
            (count,) = connection.execute(
                f"SELECT count(procrastinate_cancel_job_v1(id, true, false)) FROM ({left}) AS of_sweep",  # noqa: S608 - ours
                (sweep_id,),
            ).fetchone()
        return int(count)

    def retry(self, job_id: int) -> JobRecord:
        """Put a job that is dead or cancelled back into the queue. Raises UsageError for any other."""
        record = self.find(job_id)
        if record.state not in (JobState.DEAD, JobState.CANCELLED):
            hint = "only a dead or cancelled job can be retried"
            raise UsageError(f"the job {job_id} is {record.state.value}", hint=hint)
        self._retry("id = ?", job_id)
        return self.find(job_id)

    def retry_sweep(self, sweep_id: str) -> int:
        """Put all jobs of a sweep that are dead or cancelled back into the queue; how many there were."""
        self.prepare()
        return self._retry(_OF_SWEEP, sweep_id)

    def _retry(self, condition: str, value: object) -> int:
        with self.database.writing() as connection:
            ended = f"procrastinate_jobs WHERE {condition} AND status IN ('failed', 'cancelled', 'aborted')"
            locks = f"SELECT queueing_lock FROM {ended}"  # noqa: S608 - words of ours
            waiting = connection.execute(
                f"SELECT id FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock IN ({locks})",  # noqa: S608 - ours
                (value,),
            ).fetchone()
            if waiting is not None:
                message = f"the job {waiting[0]}, which does the same, is already waiting"
                raise UsageError(message, hint=f"`codeloupe jobs watch {waiting[0]}` follows it")
            rows = connection.execute(f"SELECT id FROM {ended} FOR UPDATE", (value,)).fetchall()  # noqa: S608 - ours
            chosen = [number for (number,) in rows]
            connection.execute(
                "UPDATE job_states SET failures = 0, deaths = 0, reason = '', outcome = NULL WHERE job_id = ANY (?)",
                (chosen,),
            )
            connection.execute(
                "UPDATE procrastinate_jobs SET status = 'todo', scheduled_at = NULL, abort_requested = false"
                " WHERE id = ANY (?)",
                (chosen,),
            )
            # Workers wait for the word that a job came in, and this one did not.
            connection.execute("SELECT pg_notify('procrastinate_any_queue_v1', ?)", (_INSERTED,))
        return len(chosen)

    def forget(self, *, days: float = 30.0) -> int:
        """Remove jobs that ended so long ago, a thousand at a time; how many. What they came to is in the history."""
        self.prepare()
        count = removed = _AT_ONCE
        while removed == _AT_ONCE:
            removed = self.database.change(_FORGET, (days, _AT_ONCE))
            count += removed
        return count - _AT_ONCE

    def rescue(self, *, dead_seconds: float | None, gone: Sequence[int] = ()) -> int:
        """Put the jobs of dead workers back: of those `gone`, and of those without a pulse for so long; how many.

        A job whose worker dies again and again may be what kills it: it waits longer each time, and then is dead.
        """
        self.prepare()
        with self.database.writing() as connection:
            # One of a thousand workers is enough.
            if not connection.execute("SELECT pg_try_advisory_xact_lock(?)", (_RESCUING,)).fetchone()[0]:
                return 0
            rows = connection.execute(_OF_THE_DEAD, (list(gone), dead_seconds)).fetchall()
            for job_id, deaths, is_over in rows:
                if is_over:
                    connection.execute("SELECT procrastinate_finish_job_v1(?, 'aborted', false)", (job_id,))
                elif deaths >= _MOST_DEATHS:
                    connection.execute("SELECT procrastinate_finish_job_v1(?, 'failed', false)", (job_id,))
                    _note(connection, job_id, f"its worker died {deaths + 1} times while it was running")
                else:
                    delay = 0.0 if deaths < 3 else min(2.0 ** (deaths - 1), 300.0)
                    connection.execute(
                        "SELECT procrastinate_retry_job_v2(?, now() + make_interval(secs => ?), NULL, NULL, NULL)",
                        (job_id, delay),
                    )
                    connection.execute(
                        "INSERT INTO job_states (job_id, deaths) VALUES (?, 1)"
                        " ON CONFLICT (job_id) DO UPDATE SET deaths = job_states.deaths + 1",
                        (job_id,),
                    )
            connection.execute(f"DELETE FROM procrastinate_workers AS w WHERE {_DEAD}", (list(gone), dead_seconds))  # noqa: S608 - as above
            connection.execute("DELETE FROM workers WHERE worker_id NOT IN (SELECT id FROM procrastinate_workers)")
        return len(rows)

    def hand_back(self, job_id: int) -> None:
        """Put a running job that nobody works on back into the queue."""
        with self.database.writing() as connection:
            connection.execute(
                f"SELECT {put_back('now()')} FROM procrastinate_jobs AS j WHERE j.id = ? AND j.status = 'doing'",  # noqa: S608 - ours
                (job_id,),
            )

    def changes(self, *, seconds: float) -> Iterator[set[int]]:
        """The numbers of jobs about which there is something new, at least every so many seconds, for ever."""
        for words in self.database.heard(CHANNEL, seconds=seconds):
            yield {int(word) for word in words if word.isdigit()}

    def _select(self, condition: str, values: Sequence[object]) -> Iterator[JobRecord]:
        self.prepare()
        for row in self.database.select(f"SELECT {_COLUMNS} FROM {_JOBS} {condition}", values):  # noqa: S608 - words of ours
            yield _record(*row)


def _put(connection: Connection, jobs: Sequence[Job], priority: Priority) -> tuple[int, ...]:
    """Put jobs into the queue, and what else waits with their priority into a fair order."""
    connection.execute("SELECT pg_advisory_xact_lock(?, ?)", (_RANKS, priority.value))
    top = top_of(priority)
    rows = [
        {"queue": job.kind.queue, "lock": job.alone, "arguments": {"job": msgspec.to_builtins(job)}} for job in jobs
    ]
    found = connection.execute(
        "SELECT unnest(procrastinate_defer_jobs_v1(array_agg(ROW("
        "queue, CAST(? AS text), CAST(? AS integer), lock, lock, arguments, NULL)::procrastinate_job_to_defer_v1"
        "))) FROM jsonb_to_recordset(?::jsonb) AS one (queue text, lock text, arguments jsonb)",
        (TASK, top - _SPAN + 1, _as_json(rows)),
    ).fetchall()
    connection.execute(_FAIR_ORDER, (top - _SPAN, top, top, _SPAN))
    return tuple(int(number) for (number,) in found)


def _as_json(value: object) -> str:
    """JSON as Postgres takes it: without NUL and halves of characters, which a path or a subject may hold."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return text.replace("\\u0000", "\\ufffd")


def _note(connection: Connection, job_id: int, reason: str) -> None:
    connection.execute(
        "INSERT INTO job_states (job_id, reason) VALUES (?, ?)"
        " ON CONFLICT (job_id) DO UPDATE SET reason = excluded.reason",
        (job_id, reason),
    )
    connection.execute("SELECT pg_notify(?, ?)", (CHANNEL, str(job_id)))


def _record(  # noqa: PLR0913, PLR0917 - the columns, in their order
    job_id: int,
    job: object,
    status: str,
    number: int,
    attempts: int,
    scheduled_at: datetime | None,
    host: str | None,
    progress: object,
    outcome: object,
    reason: str | None,
    asked_at: datetime | None,
    started_at: datetime | None,
    ended_at: datetime | None,
) -> JobRecord:
    state = _STATES[status]
    try:
        known = msgspec.convert(job, Job)
    except msgspec.ValidationError as error:
        # The other jobs are still listed, and this one can be cancelled.
        what = f"cannot be read; another version of codeloupe may have written it: {error}"
        known = Job(kind=JobKind.REVIEW, repository="", description=what)
    return JobRecord(
        job_id=job_id,
        job=known,
        state=state,
        priority=priority_of(number),
        attempts=attempts,
        asked_at=asked_at,
        started_at=started_at,
        ended_at=ended_at if state.is_end else None,
        again_at=scheduled_at if state is JobState.WAITING else None,
        worker=(host or "") if state is JobState.RUNNING else "",
        progress=_converted(progress, Progress) or Progress(),
        outcome=_converted(outcome, Outcome),
        reason=reason or "",
    )


def _converted(value: object, kind: type[_Kept]) -> _Kept | None:
    """What a worker wrote; None for what another version wrote that cannot be read."""
    with suppress(msgspec.ValidationError):
        return None if value is None else msgspec.convert(value, kind)
    return None
