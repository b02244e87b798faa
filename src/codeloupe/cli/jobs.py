"""`codeloupe jobs`: what is asked of workers, how it goes, and what it came to; `--on-workers` of other verbs too."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_examples, either, flag, option, sentence
from codeloupe.cli.progress import Display, choose_mode
from codeloupe.cli.verbs import Interrupted, Output, loaded_by, note, run_to_end, write_result
from codeloupe.config.loading import database_url, user_settings
from codeloupe.errors import JobNotDone, StoreError, UsageError, install_command
from codeloupe.reports import Layout, render, render_sweep
from codeloupe.reports.wording import counted, duration
from codeloupe.system.untrusted import terminal

if TYPE_CHECKING:
    from codeloupe.config.loading import LoadedSettings
    from codeloupe.model.pipeline import RunRecord
    from codeloupe.model.review import Review
    from codeloupe.model.sweep import CommitQuery, CommitSweep
    from codeloupe.workers.jobs import JobRecord
    from codeloupe.workers.queue import JobQueue

_STATES = ("waiting", "running", "done", "dead", "cancelled")
_WHICH = "a job number or a sweep id"
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
    """Do the command."""
    with opened_queue() as queue:
        do: Callable[[JobQueue, argparse.Namespace], int] = arguments.job
        return do(queue, arguments)


@contextmanager
def opened_queue() -> Iterator[JobQueue]:
    """The queue of the shared database. Raises UsageError if none is configured, StoreError if it cannot be used."""
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


def _list(queue: JobQueue, arguments: argparse.Namespace) -> int:
    from codeloupe.workers.jobs import JobState

    records = queue.list(states=[JobState(name) for name in arguments.state or ()], limit=max(arguments.limit, 1))
    if arguments.json:
        import msgspec

        write_result(msgspec.json.format(msgspec.json.encode({"schema_version": 1, "jobs": records})).decode() + "\n")
        return 0
    rows = [f"{one.job_id:>8}  {one.state.value:<9}  {_age(one):>8}  {_told(one)}" for one in records]
    write_result("\n".join([f"{'JOB':>8}  {'STATE':<9}  {'SINCE':>8}  WHAT", *rows]) + "\n" if rows else "No jobs.\n")
    return 0


def _told(record: JobRecord) -> str:
    more = record.reason or (record.outcome.summary if record.outcome else "") or _progress(record)
    return terminal(" ".join(f"{record.job.description}{f' - {more}' if more else ''}".split()))[:300]


def _progress(record: JobRecord) -> str:
    done = record.progress
    calls = f", {done.done} of {counted(done.total, 'call')}" if done.total else ""
    return f"{done.stage}{calls}" if record.worker and done.stage else ""


def _age(record: JobRecord) -> str:
    since = record.ended_at or record.started_at or record.asked_at
    return "" if since is None else duration((datetime.now(since.tzinfo) - since).total_seconds())


def _show(queue: JobQueue, arguments: argparse.Namespace) -> int:
    record = queue.find(_number(arguments.which))
    import msgspec

    if arguments.json:
        write_result(msgspec.json.format(msgspec.json.encode({"schema_version": 1, "job": record})).decode() + "\n")
        return 0
    facts = {
        "state": record.state.value,
        "what": record.job.description,
        "repository": record.job.repository,
        "queued": record.asked_at,
        "started": record.started_at,
        "ended": record.ended_at,
        "retry at": record.again_at,
        "worker": record.worker,
        "progress": _progress(record),
        "attempts": record.attempts or "",
        "reason": record.reason,
        "result": record.outcome.summary if record.outcome else "",
        "review": record.outcome.review_id if record.outcome else "",
        "sweep": record.job.sweep.sweep_id if record.job.sweep else "",
    }
    shown = (
        (name, f"{value:%Y-%m-%d %H:%M:%S %Z}" if isinstance(value, datetime) else value)
        for name, value in facts.items()
    )
    write_result("".join(f"{name:<12} {terminal(str(value))}\n" for name, value in shown if value))
    return 0


def _cancel(queue: JobQueue, arguments: argparse.Namespace) -> int:
    if not arguments.which.isdigit():
        count = _some(queue.cancel_sweep(_sweep_id(arguments.which)), arguments.which, "is waiting or running")
        print(f"cancelled {counted(count, 'job')} of the sweep {arguments.which}")
        return 0
    record = queue.cancel(_number(arguments.which))
    print(f"job {record.job_id} is {'being cancelled' if record.state.value == 'running' else record.state.value}")
    return 0


def _retry(queue: JobQueue, arguments: argparse.Namespace) -> int:
    if not arguments.which.isdigit():
        count = _some(queue.retry_sweep(_sweep_id(arguments.which)), arguments.which, "is dead or cancelled")
        print(f"requeued {counted(count, 'job')} of the sweep {arguments.which}")
        return 0
    record = queue.retry(_number(arguments.which))
    print(f"job {record.job_id} is {record.state.value} again")
    return 0


def _watch(queue: JobQueue, arguments: argparse.Namespace) -> int:
    form = "json" if arguments.json else "text"
    layout = Layout(**options.look_of(arguments.color))
    if arguments.which.isdigit():
        number = _number(arguments.which)
        if (sweep := queue.find(number).job.sweep) is None:
            review = watched_review(queue, number, quiet=arguments.quiet)
            if review is not None:
                write_result(render(review, form, layout))
                return review.exit_code
            outcome = queue.find(number).outcome
            return outcome.exit_code if outcome else 3
        arguments.which = sweep.sweep_id
    found = watched_sweep(queue, _sweep_id(arguments.which), quiet=arguments.quiet)
    write_result(render_sweep(found, form, layout))
    return found.exit_code


def review_on_workers(
    arguments: argparse.Namespace, context: str, layout_of: Callable[..., Layout]
) -> tuple[int, Callable[[Output], str]]:
    """Let a worker make the review that the options name, and follow it. Raises UsageError for what works only here."""
    from codeloupe.cli.review import flags_of
    from codeloupe.model.scope import PullRequestScope
    from codeloupe.planning.settings import configure as settings_for
    from codeloupe.workers.requests import ask_for_pull_request, ask_for_scope

    scope = options.scope_of(arguments)
    for name in ("preview", "since_last", "guessed", "paths"):
        if getattr(arguments, name):
            what = "paths" if name in ("guessed", "paths") else f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{what} and --on-workers exclude each other", hint="narrow it with --include and --exclude"
            )
    flags = {key: value for key, value in flags_of(arguments).items() if value is not None}
    with opened_queue() as queue:
        more: dict[str, Any] = {"repo": arguments.repo, "context": context, "fresh": arguments.fresh, "tenant": _team()}
        if isinstance(scope, PullRequestScope):
            job_id = run_to_end(ask_for_pull_request(queue, scope, flags=flags, **more))
        else:
            loaded = loaded_by(settings_for(scope, repo=arguments.repo, flags=flags), quiet=arguments.quiet)
            job_id = run_to_end(ask_for_scope(queue, scope, loaded, **more))
        note(f"job {job_id} is queued; `codeloupe jobs watch {job_id}` follows it too", quiet=arguments.quiet)
        review = watched_review(queue, job_id, quiet=arguments.quiet)
    if review is None:
        raise JobNotDone(
            f"the job {job_id} did not produce a review", hint=f"`codeloupe jobs show {job_id}` shows what it did"
        )
    return review.exit_code, lambda output: render(review, output.format, layout_of(output, arguments))


def sweep_on_workers(query: CommitQuery, loaded: LoadedSettings, arguments: argparse.Namespace) -> CommitSweep:
    """Have workers review commits, each as a job of its own, and follow them."""
    from codeloupe.commits.queries import describe
    from codeloupe.commits.sweep import concluded
    from codeloupe.model.sweep import CommitSweep as Sweep
    from codeloupe.workers.requests import ask_for_commits

    more: dict[str, Any] = {"repo": arguments.repo, "strict": arguments.strict, "fresh": arguments.fresh}
    more["tenant"] = _team()
    with opened_queue() as queue:
        sweep_id, count = run_to_end(ask_for_commits(queue, query, loaded, **more))
        if not count:
            note(f"there are no commits to review: {describe(query)}", quiet=arguments.quiet)
            known = Sweep(sweep_id=sweep_id, description=describe(query), commits=(), summary="", exit_code=0)
            return concluded(known, (), passes=True, seconds=0.0)
        what = f"sweep {sweep_id}: {counted(count, 'commit')} queued"
        note(f"{what}; `codeloupe jobs watch {sweep_id}` follows them too", quiet=arguments.quiet)
        return watched_sweep(queue, sweep_id, quiet=arguments.quiet)


def run_on_workers(queue: JobQueue, run: RunRecord, *, accept_changes: bool, quiet: bool) -> None:
    """Have a worker work on a run until it ends or waits for a person, and follow it. Raises JobNotDone."""
    from codeloupe.workers.requests import queue_run

    number = queue_run(queue, run, accept_changes=accept_changes)
    note(f"job {number} is queued; `codeloupe jobs watch {number}` follows it too", quiet=quiet)
    watched_review(queue, number, quiet=quiet)


def _team() -> str:
    return user_settings(os.environ).team or ""


class _Watching(Display):
    """How a job or a sweep goes, in one line that changes; elsewhere a line for each new thing."""

    words = ""

    def status(self) -> str:
        return self.words

    def show(self, words: str) -> None:
        if words and words != self.words:
            self.words = words
            self.tell(words)


def watched_review(queue: JobQueue, job_id: int, *, quiet: bool) -> Review | None:
    """Follow a job to its end; the review that it made, or None for a pipeline. Raises JobNotDone, and Interrupted."""
    from codeloupe.store.history import DatabaseHistory

    record: JobRecord = _followed(queue, str(job_id), lambda: _state_of(queue.find(job_id)), quiet=quiet)
    if record.outcome is None or record.state.value != "done":
        why = f": {record.reason}" if record.reason else ""
        hint = f"retry it with `codeloupe jobs retry {job_id}`"
        # As the same command would have ended that was not given to workers.
        code = record.outcome.exit_code if record.outcome and record.state.value == "dead" else JobNotDone.exit_code
        raise JobNotDone(f"the job {job_id} is {record.state.value}{why}", hint=hint, exit_code=code)
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


def _state_of(record: JobRecord) -> tuple[str, JobRecord | None]:
    words = f"job {record.job_id} {record.state.value}"
    if record.worker:
        words += f" on {record.worker}"
    if record.again_at is not None and record.reason:
        words += f", retry at {record.again_at.astimezone():%H:%M:%S}: {record.reason}"
    progress = _progress(record)
    return f"{words}{f': {progress}' if progress else ''}", record if record.state.is_end else None


def watched_sweep(queue: JobQueue, sweep_id: str, *, quiet: bool) -> CommitSweep:
    """Follow a sweep to its end, and return what it came to. Raises JobNotDone for one that is not known."""
    from codeloupe.store.history import DatabaseHistory
    from codeloupe.workers.jobs import JobState

    history = DatabaseHistory(queue.database)

    def state() -> tuple[str, bool | None]:
        counts = queue.counts(sweep_id)
        total, left = sum(counts.values()), counts[JobState.WAITING] + counts[JobState.RUNNING]
        words = f"{total - left:,} of {counted(total, 'commit')} done, {counts[JobState.RUNNING]:,} running"
        others = {"failed": counts[JobState.DEAD], "cancelled": counts[JobState.CANCELLED]}
        words += "".join(f", {count:,} {name}" for name, count in others.items() if count)
        return words, None if left else True

    _followed(queue, sweep_id, state, quiet=quiet)
    record = history.get_sweep(sweep_id)
    if record is None:
        why = next((f": {one.reason}" for one in queue.list(sweep_id=sweep_id, limit=1) if one.reason), "")
        hint = "`codeloupe jobs list` lists the jobs"
        raise JobNotDone(f"no commit of the sweep {sweep_id} was reviewed{why}", hint=hint)
    if not record.finished:
        from codeloupe.history import judged_sweep

        return judged_sweep(record)
    return record.sweep


def _followed(queue: JobQueue, name: str, state: Callable[[], tuple[str, Any]], *, quiet: bool) -> Any:
    """Show how something goes until `state` gives its end. After Ctrl-C, say how to follow it again."""
    try:
        with _Watching(mode=choose_mode(quiet=quiet)) as display:
            for _ in queue.changes(seconds=1.0):
                words, end = state()
                display.show(words)
                if end is not None:
                    return end
    except KeyboardInterrupt:
        raise Interrupted("it keeps running on the workers", ["jobs", "watch", name]) from None
    raise AssertionError("the stream of changes never ends")


def _number(word: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", word):
        raise UsageError(f"{word!r} is not a job number", hint="`codeloupe jobs list` lists the jobs")
    return int(word)


def _some(count: int, sweep_id: str, state: str) -> int:
    if not count:
        raise UsageError(f"no job of the sweep {sweep_id} {state}", hint="`codeloupe jobs list` lists the jobs")
    return count


def _sweep_id(word: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", word):
        raise UsageError(f"{word!r} is neither a job number nor a sweep id", hint="see `codeloupe jobs list`")
    return word
