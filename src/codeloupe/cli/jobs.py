"""`codeloupe jobs`: list, show, watch, cancel and retry jobs on workers. Other commands use it for `--on-workers`."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_examples, either, flag, option, sentence
from codeloupe.cli.progress import Display, choose_mode
from codeloupe.cli.verbs import Interrupted, Output, loaded_by, note, run_to_end, write_result
from codeloupe.config.loading import database_url, user_settings
from codeloupe.errors import JobNotDone, StoreError, UsageError, install_command
from codeloupe.reports import Layout, render, render_sweep
from codeloupe.reports.wording import counted, duration, quota_text
from codeloupe.system.untrusted import terminal
from codeloupe.workers.jobs import WAITING_FOR_QUOTA

if TYPE_CHECKING:
    from codeloupe.config.loading import LoadedSettings
    from codeloupe.model.pipeline import RunRecord
    from codeloupe.model.review import Review
    from codeloupe.model.sweep import CommitQuery, CommitSweep
    from codeloupe.workers.jobs import JobRecord
    from codeloupe.workers.queue import JobQueue

_End = TypeVar("_End")
_STATES = ("waiting", "running", "done", "dead", "cancelled")
_WHICH = "a job number or a sweep id"
_LIST = "`codeloupe jobs list` lists the jobs"
NO_WORKER = "no worker is running (start one with `codeloupe worker`)"
_FIRST_LOOK_SECONDS = 0.1
_LONGEST_LOOK_SECONDS = 2.0
_EXAMPLES = {
    "": ("codeloupe jobs list --state running", "codeloupe jobs watch 12"),
    "list": ("codeloupe jobs list", "codeloupe jobs list --state dead --json"),
    "show": ("codeloupe jobs show 12",),
    "watch": ("codeloupe jobs watch 12",),
    "cancel": ("codeloupe jobs cancel 12",),
    "retry": ("codeloupe jobs retry 12",),
}


def configure(parser: Parser) -> None:
    """Add the commands below `jobs`."""
    commands = parser.add_commands(dest="command")
    listing = commands.add_parser("list", help="show the newest jobs", description="Show the newest jobs.")
    option(listing, "--state", "STATE", f"only jobs that are {either(_STATES)}", choices=_STATES, action="append")
    option(listing, "--limit", "N", "show at most N (default: 50)", type=int, default=50)
    options.add(listing, "--json")
    listing.set_defaults(job=_list)
    for name, about, do in (
        ("show", "show the details of a job", _show),
        ("watch", "follow a job or a sweep until it ends, and show the result", _watch),
        ("cancel", "cancel a job, or the rest of a sweep, waiting or running", _cancel),
        ("retry", "retry a dead or cancelled job, or all of a sweep", _retry),
    ):
        command = commands.add_parser(name, help=about, description=sentence(about))
        if name == "show":
            option(command, "which", "JOB", "the number of a job")
        else:
            option(command, "which", "JOB|SWEEP", _WHICH)
        command.set_defaults(job=do)
        if name in ("show", "watch"):
            options.add(command, "--json")
        if name == "watch":
            options.add(command, "--color")
            flag(command, "-q --quiet", "print only the result")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with opened_queue() as queue:
        do: Callable[[JobQueue, argparse.Namespace], int] = arguments.job
        return do(queue, arguments)


@contextmanager
def opened_queue() -> Iterator[JobQueue]:
    """Yield the queue of the shared database. Raise UsageError if none is configured, StoreError if it is unusable."""
    url = database_url(os.environ)
    if url is None:
        hint = "set CODELOUPE_DATABASE, or `database` in your settings, to a postgresql:// URL"
        raise UsageError("jobs need a shared database, and none is configured", hint=hint)
    try:
        from codeloupe.store.postgres import PostgresDatabase
        from codeloupe.workers.queue import JobQueue
    except ImportError as error:
        raise StoreError("the Postgres driver is not installed", hint=install_command("server")) from error
    with PostgresDatabase(url) as database:
        yield JobQueue(database)


def as_json(document: dict[str, object]) -> str:
    """Return a document of the first version of its schema, indented."""
    import msgspec

    encoded = msgspec.json.encode({"schema_version": 1, **document})
    return msgspec.json.format(encoded).decode() + "\n"


def _list(queue: JobQueue, arguments: argparse.Namespace) -> int:
    from codeloupe.workers.jobs import JobState

    states = [JobState(name) for name in arguments.state or ()]
    records = queue.list(states=states, limit=max(arguments.limit, 1))
    if arguments.json:
        write_result(as_json({"jobs": records}))
        return 0
    lines = [_line(record) for record in records]
    if lines:
        heading = f"{'JOB':>8}  {'STATE':<9}  {'SINCE':>8}  WHAT"
        write_result("\n".join([heading, *lines]) + "\n")
    else:
        write_result("No jobs.\n")
    if queue.has_open_jobs() and not queue.workers():
        note(NO_WORKER, quiet=False)
    return 0


def _line(record: JobRecord) -> str:
    """Return the row of a job, with what explains its state: the reason, the result or the progress."""
    words = record.job.description
    summary = record.outcome.summary if record.outcome else ""
    for explanation in (_reason(record), summary, _progress(record)):
        if explanation:
            words = f"{words} - {explanation}"
            break
    shown = terminal(" ".join(words.split()))[:300]
    return f"{record.job_id:>8}  {record.state.value:<9}  {_age(record):>8}  {shown}"


def _progress(record: JobRecord) -> str:
    progress = record.progress
    if not record.worker or not progress.stage:
        return ""
    if not progress.total:
        return progress.stage
    return f"{progress.stage}, {progress.done} of {counted(progress.total, 'call')}"


def _reason(record: JobRecord) -> str:
    """Return why a job failed or waits; for a quota, with the time of its reset."""
    if record.reason == WAITING_FOR_QUOTA:
        return quota_text(record.again_at, waiting=True)
    return record.reason


def _age(record: JobRecord) -> str:
    since = record.ended_at or record.started_at or record.asked_at
    if since is None:
        return ""
    return duration((datetime.now(since.tzinfo) - since).total_seconds())


def _show(queue: JobQueue, arguments: argparse.Namespace) -> int:
    record = queue.find(_number(arguments.which))
    if arguments.json:
        write_result(as_json({"job": record}))
        return 0
    facts: dict[str, object] = {
        "state": record.state.value,
        "what": record.job.description,
        "repository": record.job.repository,
        "queued": record.asked_at,
        "started": record.started_at,
        "ended": record.ended_at,
        "retry at": record.again_at,
        "worker": record.worker,
        "progress": _progress(record),
        "attempts": record.attempts,
        "reason": _reason(record),
    }
    if record.outcome is not None:
        facts["result"] = record.outcome.summary
        facts["review"] = record.outcome.review_id
    if record.job.sweep is not None:
        facts["sweep"] = record.job.sweep.sweep_id
    lines: list[str] = []
    for name, value in facts.items():
        shown = f"{value:%Y-%m-%d %H:%M:%S %Z}" if isinstance(value, datetime) else value
        if shown:
            lines.append(f"{name:<12} {terminal(str(shown))}\n")
    write_result("".join(lines))
    return 0


def _cancel(queue: JobQueue, arguments: argparse.Namespace) -> int:
    if arguments.which.isdigit():
        record = queue.cancel(_number(arguments.which))
        print(f"job {record.job_id} is {record.state.value}")
        return 0
    count = queue.cancel_sweep(_sweep_id(arguments.which))
    _check_some(count, arguments.which, "is waiting or running")
    print(f"cancelled {counted(count, 'job')} of the sweep {arguments.which}")
    return 0


def _retry(queue: JobQueue, arguments: argparse.Namespace) -> int:
    if arguments.which.isdigit():
        record = queue.retry(_number(arguments.which))
        print(f"job {record.job_id} is {record.state.value} again")
        return 0
    count = queue.retry_sweep(_sweep_id(arguments.which))
    _check_some(count, arguments.which, "is dead or cancelled")
    print(f"requeued {counted(count, 'job')} of the sweep {arguments.which}")
    return 0


def _watch(queue: JobQueue, arguments: argparse.Namespace) -> int:
    form = "json" if arguments.json else "text"
    layout = Layout(**options.look_of(arguments.color))
    which = arguments.which
    if which.isdigit():
        number = _number(which)
        sweep = queue.find(number).job.sweep
        if sweep is None:
            review = watched_review(queue, number, quiet=arguments.quiet)
            if review is not None:
                write_result(render(review, form, layout))
                return review.exit_code
            outcome = queue.find(number).outcome
            return outcome.exit_code if outcome else JobNotDone.exit_code
        which = sweep.sweep_id
    found = watched_sweep(queue, _sweep_id(which), quiet=arguments.quiet)
    write_result(render_sweep(found, form, layout))
    return found.exit_code


def review_on_workers(
    arguments: argparse.Namespace, context: str, layout_of: Callable[..., Layout]
) -> tuple[int, Callable[[Output], str]]:
    """Have a worker do the review that the options name, and follow it. Raise UsageError if only this machine can."""
    from codeloupe.cli.review import flags_of
    from codeloupe.model.scope import PullRequestScope
    from codeloupe.planning.settings import configure as settings_for
    from codeloupe.workers.requests import Client, ask_for_pull_request, ask_for_scope

    scope = options.scope_of(arguments)
    _refuse_local_options(arguments)
    flags = {key: value for key, value in flags_of(arguments).items() if value is not None}
    client = Client(repo=arguments.repo, context=context, fresh=arguments.fresh, tenant=_team())
    with opened_queue() as queue:
        if isinstance(scope, PullRequestScope):
            job_id = run_to_end(ask_for_pull_request(queue, scope, client, flags=flags))
        else:
            loaded = loaded_by(settings_for(scope, repo=arguments.repo, flags=flags), quiet=arguments.quiet)
            job_id = run_to_end(ask_for_scope(queue, scope, client, loaded=loaded))
        note(f"job {job_id} is queued; `codeloupe jobs watch {job_id}` follows it too", quiet=arguments.quiet)
        review = watched_review(queue, job_id, quiet=arguments.quiet)
    if review is None:
        hint = f"`codeloupe jobs show {job_id}` shows what it did"
        raise JobNotDone(f"the job {job_id} did not produce a review", hint=hint)
    return review.exit_code, lambda output: render(review, output.format, layout_of(output, arguments))


def _refuse_local_options(arguments: argparse.Namespace) -> None:
    names = {"preview": "--preview", "since_last": "--since-last", "guessed": "paths", "paths": "paths"}
    for attribute, name in names.items():
        if getattr(arguments, attribute):
            hint = "narrow it with --include and --exclude"
            raise UsageError(f"{name} and --on-workers exclude each other", hint=hint)


def sweep_on_workers(query: CommitQuery, loaded: LoadedSettings, arguments: argparse.Namespace) -> CommitSweep:
    """Have workers review commits, each as its own job, and follow them."""
    from codeloupe.commits.queries import describe
    from codeloupe.commits.sweep import concluded
    from codeloupe.model.sweep import CommitSweep as Sweep
    from codeloupe.workers.requests import Client, ask_for_commits

    client = Client(repo=arguments.repo, fresh=arguments.fresh, tenant=_team())
    with opened_queue() as queue:
        asking = ask_for_commits(queue, query, client, loaded=loaded, strict=arguments.strict)
        sweep_id, count = run_to_end(asking)
        if not count:
            note(f"there are no commits to review: {describe(query)}", quiet=arguments.quiet)
            known = Sweep(sweep_id=sweep_id, description=describe(query), commits=(), summary="", exit_code=0)
            return concluded(known, (), passes=True, seconds=0.0)
        what = f"sweep {sweep_id}: {counted(count, 'commit')} queued"
        note(f"{what}; `codeloupe jobs watch {sweep_id}` follows them too", quiet=arguments.quiet)
        return watched_sweep(queue, sweep_id, quiet=arguments.quiet)


def run_on_workers(queue: JobQueue, run: RunRecord, *, accept_changes: bool, quiet: bool) -> None:
    """Have a worker continue a run until it ends or waits for a person, and follow it. Raise JobNotDone."""
    from codeloupe.workers.requests import queue_run

    number = queue_run(queue, run, accept_changes=accept_changes)
    note(f"job {number} is queued; `codeloupe jobs watch {number}` follows it too", quiet=quiet)
    watched_review(queue, number, quiet=quiet)


def _team() -> str:
    return user_settings(os.environ).team or ""


class _Watching(Display):
    """Shows the state of a job or a sweep: on a terminal in a line that changes, elsewhere a line for each change."""

    words = ""

    def status(self) -> str:
        return self.words

    def show(self, words: str) -> None:
        """Show the state, unless it is shown already."""
        if words and words != self.words:
            self.words = words
            self.tell(words)


def watched_review(queue: JobQueue, job_id: int, *, quiet: bool) -> Review | None:
    """Follow a job to its end; return its review, or None for a pipeline. Raise JobNotDone or Interrupted."""
    from codeloupe.store.history import DatabaseHistory
    from codeloupe.workers.jobs import JobState

    record = _followed(str(job_id), _JobStates(queue, job_id).look, quiet=quiet)
    if record.outcome is None or record.state is not JobState.DONE:
        raise _not_done(record)
    if record.outcome.review is not None:
        return record.outcome.review
    if record.outcome.review_id is None:
        note(record.outcome.summary, quiet=quiet)
        return None
    saved = DatabaseHistory(queue.database).get(record.outcome.review_id)
    if saved is None:
        message = f"the review {record.outcome.review_id} of the job {job_id} is no longer in the history"
        raise JobNotDone(message, hint=f"`codeloupe jobs show {job_id}` has its summary")
    return saved.review


def _not_done(record: JobRecord) -> JobNotDone:
    """Return the error for a job that was cancelled or is dead, with the exit code of the command without workers."""
    message = f"the job {record.job_id} is {record.state.value}"
    if record.reason:
        message = f"{message}: {record.reason}"
    exit_code = JobNotDone.exit_code
    if record.outcome is not None and record.state.value == "dead":
        exit_code = record.outcome.exit_code
    hint = f"retry it with `codeloupe jobs retry {record.job_id}`"
    return JobNotDone(message, hint=hint, exit_code=exit_code)


class _JobStates:
    """Describes the states of a job while it is watched. The reason of a failure is shown once, not at every retry."""

    def __init__(self, queue: JobQueue, job_id: int) -> None:
        self._queue = queue
        self._job_id = job_id
        self._reason = ""
        self._reason_of_attempt = 0

    def look(self) -> tuple[str, JobRecord | None]:
        """Return the state in words, and the record if the job has ended."""
        record = self._queue.find(self._job_id)
        words = f"job {record.job_id} {record.state.value}"
        if record.state.is_end:
            return words, record
        if record.reason == WAITING_FOR_QUOTA:
            return f"job {record.job_id} {_reason(record)}", None
        if record.worker:
            words = f"{words} on {record.worker}"
        elif not self._queue.is_served(record.job.kind.queue):
            words = f"{words}; {NO_WORKER}"
        if record.again_at is not None:
            words = f"{words}, retry at {record.again_at.astimezone():%H:%M:%S}"
        explanation = _progress(record) or self._new_reason(record)
        if explanation:
            words = f"{words}: {explanation}"
        return words, None

    def _new_reason(self, record: JobRecord) -> str:
        """Return the reason of the last failure, unless an earlier attempt failed for the same reason."""
        # While an attempt runs, there is no reason.
        if record.reason and record.reason != self._reason:
            self._reason = record.reason
            self._reason_of_attempt = record.attempts
        if record.attempts == self._reason_of_attempt:
            return record.reason
        return ""


def watched_sweep(queue: JobQueue, sweep_id: str, *, quiet: bool) -> CommitSweep:
    """Follow a sweep to its end, and return its result. Raise JobNotDone for an unknown sweep."""
    from codeloupe.history import judged_sweep
    from codeloupe.store.history import DatabaseHistory

    _followed(sweep_id, lambda: _state_of_sweep(queue, sweep_id), quiet=quiet)
    record = DatabaseHistory(queue.database).get_sweep(sweep_id)
    if record is None:
        message = f"no commit of the sweep {sweep_id} was reviewed"
        newest = queue.list(sweep_id=sweep_id, limit=1)
        if newest and newest[0].reason:
            message = f"{message}: {newest[0].reason}"
        raise JobNotDone(message, hint=_LIST)
    if not record.finished:
        return judged_sweep(record)
    return record.sweep


def _state_of_sweep(queue: JobQueue, sweep_id: str) -> tuple[str, bool | None]:
    """Return the state of a sweep in words, and True if it has ended."""
    from codeloupe.workers.jobs import SWEEPS, JobState

    counts = queue.counts(sweep_id)
    total = sum(counts.values())
    running = counts[JobState.RUNNING]
    left = counts[JobState.WAITING] + running
    words = f"{total - left:,} of {counted(total, 'commit')} done, {running:,} running"
    if counts[JobState.DEAD]:
        words = f"{words}, {counts[JobState.DEAD]:,} failed"
    if counts[JobState.CANCELLED]:
        words = f"{words}, {counts[JobState.CANCELLED]:,} cancelled"
    if not left:
        return words, True
    if not running and not queue.is_served(SWEEPS):
        words = f"{words}; {NO_WORKER}"
    return words, None


def _followed(name: str, look: Callable[[], tuple[str, _End | None]], *, quiet: bool) -> _End:
    """Show a state until `look` returns its end. After Ctrl-C, say how to follow it again."""
    seconds = _FIRST_LOOK_SECONDS
    try:
        with _Watching(mode=choose_mode(quiet=quiet)) as display:
            while True:
                words, end = look()
                display.show(words)
                if end is not None:
                    return end
                time.sleep(seconds)
                seconds = min(1.2 * seconds, _LONGEST_LOOK_SECONDS)
    except KeyboardInterrupt:
        raise Interrupted("it keeps running on the workers", ["jobs", "watch", name]) from None


def _number(word: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", word):
        raise UsageError(f"{word!r} is not a job number", hint=_LIST)
    return int(word)


def _sweep_id(word: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", word):
        raise UsageError(f"{word!r} is neither a job number nor a sweep id", hint="see `codeloupe jobs list`")
    return word


def _check_some(count: int, sweep_id: str, state: str) -> None:
    if not count:
        raise UsageError(f"no job of the sweep {sweep_id} {state}", hint=_LIST)
