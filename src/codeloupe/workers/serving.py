"""`codeloupe serve`: the services of a team on one machine, started in order, watched, and stopped in reverse.

A service is a database server or a group of worker processes. A web page or a receiver of webhooks would be one more.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from codeloupe.errors import StoreError
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.processes import Processes
from codeloupe.system.child_process import ChildProcess
from codeloupe.system.postgres_server import PostgresServer

_log = logging.getLogger(__name__)
_WATCH_SECONDS = 0.5
_READY_SECONDS = 60.0
# A worker that ends so soon after its start will end again for the same reason.
_SHORT_LIFE_SECONDS = 10.0
_MOST_SHORT_LIVES = 3
_MOST_FAILED_STARTS = 3


class StopSignals:
    """How many times the user, or the system, asked the program to stop."""

    count = 0

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT."""
        self.count += 1

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Count signals while the block runs."""
        before = {number: signal.signal(number, self.note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Service(Protocol):
    """Something that `serve` starts, watches and stops. Methods raise CodeloupeError."""

    def start(self, signals: StopSignals) -> None:
        """Start it, and return when it can be used or a signal has come."""

    def watch(self) -> None:
        """Restart it if it has ended, or raise an error if it would end again."""

    def stop(self, signals: StopSignals) -> None:
        """Stop it, at once if a second signal comes."""


def serve(services: Sequence[Service], *, ready: Callable[[], None]) -> None:
    """Run services until a signal comes. `ready` is called when all of them can be used."""
    signals = StopSignals()
    started: list[Service] = []
    with signals.caught():
        try:
            for service in services:
                if not signals.count:
                    started.append(service)
                    service.start(signals)
            if not signals.count:
                ready()
            while not signals.count:
                time.sleep(_WATCH_SECONDS)
                for service in services:
                    service.watch()
        finally:
            for service in reversed(started):
                service.stop(signals)


class DatabaseService:
    """A Postgres server of our own, with the tables of codeloupe."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._failed_starts = 0

    def start(self, _signals: StopSignals) -> None:
        """Start the server, and create or upgrade its tables."""
        self._server.start()
        with PostgresDatabase(self._server.url) as database:
            database.check()

    def watch(self) -> None:
        """Restart the server if it has crashed; the workers wait for it. Raise StoreError if it fails repeatedly."""
        if self._server.is_running:
            self._failed_starts = 0
            return
        _log.warning("the Postgres server ended unexpectedly; restarting it")
        try:
            self._server.start()
        except StoreError as error:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise
            _log.warning("%s; trying again", error.message)

    def stop(self, _signals: StopSignals) -> None:
        """Stop the server."""
        self._server.stop()


class WorkerService:
    """Worker processes on a database, each restarted when it ends."""

    def __init__(self, url: str, count: int, options: Sequence[str], *, grace_seconds: float) -> None:
        self._url = url
        self._count = count
        self._words = (sys.executable, "-m", "codeloupe", "worker", *options, "--grace", f"{grace_seconds:g}")
        self._grace_seconds = grace_seconds
        self._workers: list[_RestartedWorker] = []

    def start(self, signals: StopSignals) -> None:
        """Start the workers, and return when all of them are registered."""
        environment = {**os.environ, "CODELOUPE_DATABASE": self._url}
        self._workers = [_RestartedWorker(self._words, environment) for _ in range(self._count)]
        deadline = time.monotonic() + _READY_SECONDS
        with PostgresDatabase(self._url) as database:
            processes = Processes(database)
            while not signals.count and not self._are_registered(processes):
                self.watch()
                if time.monotonic() > deadline:
                    hint = "see the messages of the workers, then start `codeloupe serve` again"
                    raise StoreError(f"the workers did not start within {_READY_SECONDS:g} s", hint=hint)
                time.sleep(0.1)

    def _are_registered(self, processes: Processes) -> bool:
        numbers = {worker.process_id for worker in processes.workers() if worker.is_alive}
        return all(worker.process.process_id in numbers for worker in self._workers)

    def watch(self) -> None:
        """Restart workers that have ended. Raise StoreError if one of them never runs for long."""
        for worker in self._workers:
            worker.restart_if_ended()

    def stop(self, signals: StopSignals) -> None:
        """Ask the workers to stop, wait for their running jobs, and kill workers that take too long."""
        already = signals.count
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_seconds + 30.0
        while any(worker.process.is_running for worker in self._workers):
            if signals.count > already:
                # A second signal means: do not wait for running jobs.
                already = signals.count
                for worker in self._workers:
                    worker.process.send_signal(signal.SIGTERM)
            if time.monotonic() > deadline:
                for worker in self._workers:
                    worker.process.send_signal(signal.SIGKILL)
            time.sleep(0.05)


class _RestartedWorker:
    """A worker process that is restarted when it ends."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._words = words
        self._environment = environment
        self._short_lives = 0
        self._start()

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self.process = ChildProcess(self._words, self._environment)

    def restart_if_ended(self) -> None:
        """Restart it if it has ended. Raise StoreError if it never runs for long."""
        if self.process.is_running:
            return
        code = self.process.exit_code
        lived_seconds = time.monotonic() - self._started_at
        if lived_seconds < _SHORT_LIFE_SECONDS:
            self._short_lives += 1
        else:
            self._short_lives = 0
        if self._short_lives >= _MOST_SHORT_LIVES:
            hint = "see its messages above; `codeloupe doctor` checks the installation"
            raise StoreError(f"a worker ended {_MOST_SHORT_LIVES} times right after its start (code {code})", hint=hint)
        _log.warning("a worker ended unexpectedly (code %s); restarting it", code)
        self._start()
