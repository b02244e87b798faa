"""`codeloupe worker`: work on the jobs of a shared database until stopped."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
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

    queues = _checked_queues(arguments.queues)
    _check_numbers(arguments)
    _check_pulse(arguments.pulse)
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
        asyncio.run(_run(worker.run(wait=not arguments.until_idle), arguments.pulse))
    note("worker stopped", quiet=arguments.quiet)
    return 0


def _checked_queues(words: str) -> list[str]:
    queues = [name.strip() for name in words.split(",") if name.strip()]
    hint = f"the queues are {', '.join(QUEUES)}"
    if not queues:
        raise UsageError("--queues is empty", hint=hint)
    for name in queues:
        if name not in QUEUES:
            raise UsageError(f"{name!r} is not a queue", hint=hint)
    return queues


def _check_numbers(arguments: argparse.Namespace) -> None:
    if arguments.concurrency < 1 or not (0 <= arguments.grace < 1e9 and 0 < arguments.cache_gb < 1e9):
        raise UsageError("--concurrency, --grace and --cache-gb must be above 0", hint="omit them to use the defaults")


def _check_pulse(file: Path | None) -> None:
    if file is None:
        return
    try:
        file.touch()
    except OSError as error:
        message = f"cannot write the --pulse file {file}: {error.strerror}"
        raise UsageError(message, hint="give a file in an existing directory, or omit --pulse") from error


async def _run(work: Coroutine[Any, Any, None], pulse: Path | None) -> None:
    """Run a worker, and touch the file of its pulse while it runs."""
    touching = asyncio.create_task(_touch_always(pulse)) if pulse is not None else None
    try:
        await work
    finally:
        if touching is not None:
            touching.cancel()


async def _touch_always(file: Path) -> None:
    while True:
        with suppress(OSError):  # A disk that is full for a while must not look like a worker that hangs.
            file.touch()
            os.utime(file, (time.time(),) * 2)
        await asyncio.sleep(5.0)


def _token_of(address: object) -> str | None:
    """Return the token for a remote over https. Only the host that it belongs to gets it."""
    host = urlsplit(getattr(address, "url", "")).hostname or ""
    for name in _TOKENS.get(host, ()):
        if os.environ.get(name):
            return os.environ[name]
    return None
