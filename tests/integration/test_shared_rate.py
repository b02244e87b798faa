"""Shared limits in real time: the rate that a model service sees, and how soon free capacity is used."""

import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.store.postgres import PostgresDatabase
from codeloupe.testing import StandInServer, Text
from tests.endings import comes_to_pass
from tests.limit_worker import Worker

PER_MINUTE = 60
MINUTES = 3
PROCESSES = 3
# A process that calls the `api` agent with its real packages, which take seconds to load. A round of calls follows the
# other until the process is ended.
WORKER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from codeloupe import AgentRequest, Runtime, Settings

async def main(database, model_server, directory):
    settings = Settings(
        database=database, agents=("api",), api_model="anthropic:claude-opus-4-8", concurrency=30,
        shared_calls_per_minute=60, shared_concurrency=100, mask_prompts=False,
    )
    environment = {"ANTHROPIC_API_KEY": "stand-in", "ANTHROPIC_BASE_URL": model_server}
    request = AgentRequest(prompt="p", working_dir=directory, timeout_seconds=600.0)
    async with Runtime(settings, environment=environment) as runtime:
        async def calls():
            while True:
                await runtime.run_agent(request, fresh=True)
        await asyncio.gather(*(calls() for _ in range(25)))

asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
"""


def most_in_a_minute(arrivals: Sequence[float]) -> int:
    """Return the most arrivals in any 60 seconds."""
    return max(bisect_left(arrivals, arrival + 60.0) - number for number, arrival in enumerate(arrivals))


def fewest_in_a_minute(arrivals: Sequence[float]) -> int:
    """Return the fewest arrivals in any 60 seconds between the first arrival and the last."""
    counts: list[int] = []
    for number, arrival in enumerate(arrivals):
        if arrival + 60.0 <= arrivals[-1]:
            # The minute begins just after this arrival.
            counts.append(bisect_left(arrivals, arrival + 60.0) - number - 1)
    return min(counts)


@pytest.mark.soak
@pytest.mark.defect("M3")
@pytest.mark.timeout(900)
def test_a_service_sees_the_rate_in_real_minutes(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrivals: list[float] = []
    lock = threading.Lock()

    def note(_request: object) -> None:
        with lock:
            arrivals.append(time.monotonic())

    with StandInServer([Text("hello")], on_request=note) as server:
        words = (sys.executable, "-c", WORKER, postgres_url, server.url, str(tmp_path))
        workers = [subprocess.Popen(words) for _ in range(PROCESSES)]
        try:
            assert comes_to_pass(lambda: bool(arrivals))
            # The length of the measurement is what is tested here: real minutes.
            time.sleep(60.0 * MINUTES + 5.0)
            assert all(worker.poll() is None for worker in workers)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    seen = sorted(arrivals)
    most, fewest = most_in_a_minute(seen), fewest_in_a_minute(seen)
    measured = f"{len(seen)} arrivals in {seen[-1] - seen[0]:.0f} s, at most {most} and at least {fewest} in 60 s"
    with capsys.disabled():
        sys.stdout.write(f"\n{PER_MINUTE} a minute over {PROCESSES} processes: {measured}\n")
    assert most <= 1.05 * PER_MINUTE
    assert fewest >= 55


@pytest.mark.soak
@pytest.mark.defect("W1")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [{"concurrency": 1}, {"monthly_usd": 1_000.0}], ids=["place", "budget"])
def test_free_capacity_is_used_within_two_seconds_with_fifty_waiting(
    postgres_url: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    # While no price is known, a budget lets one request run.
    holder = Worker(postgres_url, "hang", **options)
    holder.go()
    holder.reads("asked")
    waiting = [Worker(postgres_url, calls=10, **options) for _ in range(5)]
    for worker in waiting:
        worker.go()
    with PostgresDatabase(postgres_url) as database:
        count = "SELECT count(*) FROM limited_requests WHERE started_at IS NULL"
        assert comes_to_pass(lambda: database.select(count) == [(50,)])
    asked_at: list[float] = []

    def note_first(worker: Worker) -> None:
        worker.reads("asked")
        asked_at.append(time.monotonic())

    readers = [threading.Thread(target=note_first, args=(worker,)) for worker in waiting]
    for reader in readers:
        reader.start()
    freed_at = time.monotonic()
    assert holder.end(signal.SIGKILL) == ""
    for reader in readers:
        reader.join()
    for worker in waiting:
        assert worker.end().splitlines() == ["asked"] * 9 + ["done"]
    seconds = min(asked_at) - freed_at
    with capsys.disabled():
        sys.stdout.write(f"\nfrom free capacity to the next request: {seconds:.2f} s\n")
    assert seconds < 2.0
