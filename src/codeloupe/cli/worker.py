"""`codeloupe worker`: work on the jobs of a shared database until stopped."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from codeloupe.cli.parser import Parser, examples, flag, option
from codeloupe.cli.verbs import note, set_up_logging
from codeloupe.errors import UsageError
from codeloupe.system.process import hide_from_others
from codeloupe.workers.jobs import QUEUES

_EPILOG = """\
Set the database with CODELOUPE_DATABASE, or `database` in your settings. SIGTERM stops the worker: jobs that do not
finish within the grace time return to the queue, and another worker continues them with the results so far. The
worker fetches private repositories over https with GITHUB_TOKEN (github.com) or GITLAB_TOKEN (gitlab.com), or with the
credential helper of your git.
"""
_TOKENS = {"github.com": ("GH_TOKEN", "GITHUB_TOKEN"), "gitlab.com": ("GITLAB_TOKEN",)}


def configure(parser: Parser) -> None:
    """Add the options of `worker`."""
    parser.epilog = _EPILOG
    option(parser, "--concurrency", "N", "jobs at a time (default: 4)", type=int, default=4)
    queues = f"which queues to work on (default: {','.join(QUEUES)})"
    option(parser, "--queues", "A,B", queues, default=",".join(QUEUES))
    option(
        parser, "--grace", "SECONDS", "how long running jobs may take to end (default: 30)", type=float, default=30.0
    )
    option(parser, "--cache", "DIR", "where clones are stored (default: in the state directory)", type=Path)
    option(parser, "--cache-gb", "N", "the most space for clones (default: 20)", type=float, default=20.0)
    option(parser, "--pulse", "FILE", "touch this file every few seconds, for health checks", type=Path)
    flag(parser, "--until-idle", "stop when no job is left")
    flag(parser, "-q --quiet", "log only warnings")
    examples(parser, "codeloupe worker --concurrency 8", "codeloupe worker --until-idle --queues reviews")


def run(arguments: argparse.Namespace) -> int:
    """Work until a signal comes."""
    from codeloupe.cli.jobs import opened_queue
    from codeloupe.git.mirrors import MirrorCache
    from codeloupe.store.sqlite import state_directory
    from codeloupe.workers.execution import JobExecutor
    from codeloupe.workers.worker import Worker

    queues = [name.strip() for name in arguments.queues.split(",") if name.strip()]
    if unknown := [name for name in queues if name not in QUEUES] or not queues:
        what = f"{unknown[0]!r} is not a queue" if isinstance(unknown, list) else "--queues is empty"
        raise UsageError(what, hint=f"the queues are {', '.join(QUEUES)}")
    if arguments.concurrency < 1 or not (0 <= arguments.grace < 1e9 and 0 < arguments.cache_gb < 1e9):
        raise UsageError("--concurrency, --grace and --cache-gb must be above 0", hint="omit them to use the defaults")
    if arguments.pulse is not None:
        try:
            arguments.pulse.touch()
        except OSError as error:
            message = f"cannot write the --pulse file {arguments.pulse}: {error.strerror}"
            raise UsageError(message, hint="give a file in an existing directory, or omit --pulse") from error
    set_up_logging(verbose=True)
    if arguments.quiet:
        logging.getLogger("codeloupe").setLevel(logging.WARNING)
    hide_from_others()
    with opened_queue() as queue:
        cache = arguments.cache or state_directory(os.environ) / "mirrors"
        mirrors = MirrorCache(cache, max_bytes=round(arguments.cache_gb * 1000**3), token_of=_token_of)
        mirrors.check()
        executor = JobExecutor(queue.database, mirrors)
        worker = Worker(
            queue.database,
            executor.execute,
            give_up=executor.give_up,
            queues=queues,
            concurrency=arguments.concurrency,
            grace_seconds=arguments.grace,
        )
        note(f"worker on {queue.database.name}, queues {', '.join(queues)}", quiet=arguments.quiet)
        asyncio.run(_run(worker, arguments))
    note("worker stopped", quiet=arguments.quiet)
    return 0


async def _run(worker: object, arguments: argparse.Namespace) -> None:
    from codeloupe.workers.worker import Worker

    assert isinstance(worker, Worker)  # noqa: S101 - a type that loads late
    beating = asyncio.create_task(_beat(arguments.pulse))
    try:
        await worker.run(wait=not arguments.until_idle)
    finally:
        beating.cancel()


async def _beat(file: Path | None) -> None:
    while file is not None:
        with suppress(OSError):  # a disk that is full for a while must not look like a worker that is stuck for ever
            file.touch()
            os.utime(file, (time.time(),) * 2)
        await asyncio.sleep(5.0)


def _token_of(address: object) -> str | None:
    """The token for a remote over https; only its own host gets it."""
    host = urlsplit(getattr(address, "url", "")).hostname or ""
    return next((os.environ[name] for name in _TOKENS.get(host, ()) if os.environ.get(name)), None)
