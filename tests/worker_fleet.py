"""Worker processes as a team runs them: several, of the installed program, on one Postgres server and one stand-in."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.endings import comes_to_pass
from tests.program import PROGRAM

# No variable of ours, which the settings would look at.
_MARK = "TESTS_FLEET"


class Fleet:
    """Some workers, which can be killed and come back. All they start carries a mark in its environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, concurrency: int = 2) -> None:
        self._folder = folder
        self._mark = f"{_MARK}={folder}"
        self.environment = {**os.environ, **environment, _MARK: str(folder)}
        self._concurrency = concurrency
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, name: str = "worker") -> subprocess.Popen[bytes]:
        """Start the program in the background; what it says goes to a file."""
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                (str(PROGRAM), *words), cwd=self._folder, env=self.environment, stdout=log, stderr=log
            )

    def start_workers(self, count: int) -> None:
        """Start so many workers, each with a cache of repositories that they share."""
        words = ("--concurrency", str(self._concurrency), "--grace", "5", "--cache", str(self._folder / "cache"))
        self.workers += [self.start("worker", *words, name=f"worker-{n}") for n in range(count)]

    def kill(self, number: int) -> None:
        """Kill a worker as the system would, and start another in its place."""
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait()
        self.start_workers(1)

    def stop(self) -> list[int]:
        """Stop all workers as a service would; how each ended."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(60) for worker in self.workers]

    def logs(self) -> str:
        """The ends of what the processes said."""
        return "\n".join(file.read_text("utf-8", "replace")[-2000:] for file in self._folder.glob("*.log"))

    def left(self) -> list[int]:
        """The processes that carry the mark, wherever they are in the tree."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environment = (place / "environ").read_bytes()
                is_zombie = (place / "stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]
            except OSError:
                continue  # it has ended, or belongs to somebody else
            if os.fsencode(self._mark) in environment.split(b"\0") and not is_zombie:
                found.append(int(place.name))
        return found


@contextmanager
def fleet(folder: Path, environment: Mapping[str, str], *, count: int, concurrency: int = 2) -> Iterator[Fleet]:
    """Workers that run while the block does; nothing of them may be left."""
    made = Fleet(folder, environment, concurrency=concurrency)
    made.start_workers(count)
    try:
        yield made
        # One that has hardly begun has nothing to hand back, and ends as any program does.
        ended = made.stop()
        assert {0, -signal.SIGTERM}.issuperset(ended), (ended, made.logs())
        comes_to_pass(lambda: not made.left())
        assert made.left() == []
    finally:
        for process in made.left():
            os.kill(process, signal.SIGKILL)
        for worker in made.workers:
            worker.wait(60)
