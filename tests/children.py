"""Children for the tests of the process module: how to start them, and whether they are gone."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest

from codeloupe.system import guardian
from codeloupe.system.process import Command, Completed, inherited_environment, run
from tests.endings import comes_to_pass

MEBIBYTE = 1024 * 1024
# A guardian in which something is as in no other: the lines that change it come before its `main`.
_GUARDIAN = (
    "import importlib.util, sys\n"
    f"spec = importlib.util.spec_from_file_location('guardian', {str(guardian.__file__)!r})\n"
    "module = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(module)\n"
    "@changes@\n"
    "main = module.main\n"
)


def command(*argv: str, cwd: Path, **changes: object) -> Command:
    """A command with generous limits; `changes` replaces any field."""
    settings: dict[str, object] = {
        "environment": inherited_environment(),
        "timeout_seconds": 40.0,
        "max_output_bytes": 64 * MEBIBYTE,
        **changes,
    }
    return Command(argv=argv, cwd=cwd, **settings)  # type: ignore[arg-type]  # the names are Command's own


def shell(script: str, cwd: Path, **changes: object) -> Command:
    """A command that runs a shell script."""
    return command("sh", "-c", script, cwd=cwd, **changes)


def python(script: str, cwd: Path, **changes: object) -> Command:
    """A command that runs a Python program in an interpreter with the standard library only."""
    return command(sys.executable, "-I", "-S", "-c", script, cwd=cwd, **changes)


def run_now(what: Command) -> Completed:
    """Run a command in an event loop of its own."""
    return asyncio.run(run(what))


def recorded_pids(directory: Path) -> list[int]:
    """The process numbers that children wrote to `*.pid` files."""
    return [int(text) for file in directory.glob("*.pid") if (text := file.read_text().strip())]


async def until_recorded(directory: Path, count: int) -> None:
    """Wait until so many children have written their process numbers."""
    while len(recorded_pids(directory)) < count:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.005)


def assert_all_gone(pids: list[int]) -> None:
    """Fail unless every process ends."""
    comes_to_pass(lambda: not any(map(_is_alive, pids)))
    assert [pid for pid in pids if _is_alive(pid)] == []


def assert_no_child_left() -> None:
    """Fail if this process has a child, running or as a zombie."""
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def changed_guardian(folder: Path, changes: str) -> Path:
    """A program in the guardian's place; `changes` are lines of Python that set something else in its `module`."""
    program = folder / "guardian.py"
    program.write_text(_GUARDIAN.replace("@changes@", changes))
    return program


def held_files() -> frozenset[tuple[int, int, int]]:
    """The files that this process has open now, each by its number and by what it is."""
    found = set()
    for entry in Path("/dev/fd").iterdir():
        # That of this listing is closed by now.
        with contextlib.suppress(OSError):
            facts = os.fstat(int(entry.name))
            found.add((int(entry.name), facts.st_dev, facts.st_ino))
    return frozenset(found)


def open_files() -> int:
    """How many file descriptors this process has."""
    return len(list(Path("/dev/fd").iterdir()))


def _is_alive(pid: int) -> bool:
    # An orphan that has ended is a zombie until the machine's first process collects it, which may never be.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        os.kill(pid, 0)
        return True
    return False
