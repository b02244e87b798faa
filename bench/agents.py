"""What codeloupe adds to an agent call: time beside the bare program, CPU, and both at a thousand calls."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.changes import git
from bench.table import BenchRow
from bench.timing import best_seconds, quiet
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.calls import review_key
from codeloupe.model.agent import AgentEvent, AgentRequest
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.system.process import Command, inherited_environment, stream
from codeloupe.testing import Delay, ScriptedAgent, StandInServer, Text

_CALLS, _AT_A_TIME = 1000, 100
_PROGRAMS = 300
_IDEAL_SECONDS = 10.0
_MOST_CPU_SECONDS = 0.005
_MOST_EXTRA_SECONDS = 0.2
_PAIRS = 9


def rows() -> Iterator[BenchRow]:
    """One call, a program that does nothing, and a thousand calls."""
    yield from _one_call()
    yield from _programs()
    yield from _thousand_calls()


def _one_call() -> Iterator[BenchRow]:
    program = _claude()
    with tempfile.TemporaryDirectory() as directory, StandInServer([Text("Hello.")]) as server:
        root = Path(directory) / "repository"
        root.mkdir()
        git(root, "init", "--quiet", "--template=")
        home = Path(directory) / "home"
        home.mkdir()
        variables = _variables(server.url, home, program)
        env = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        bare = [
            *env,
            program,
            "-p",
            "--output-format",
            "json",
            "--setting-sources",
            "",
            "--tools",
            "Read,Grep,Glob",
            "Hi",
        ]
        ours = [*env, _codeloupe(), "agent", "run", "--agent", "claude_cli", "--fresh", "-q", "Hi"]
        # In turns and each pair by itself, so that a busy moment of the machine does not count for one side alone.
        pairs = [
            (
                best_seconds(lambda: quiet(bare, cwd=root, stdin=b"Hi"), times=1),
                best_seconds(lambda: quiet(ours, cwd=root), times=1),
            )
            for _ in range(_PAIRS)
        ]
    extra = median(our_seconds - bare_seconds for bare_seconds, our_seconds in pairs)
    detail = f"{extra:.2f} s beyond {median(bare_seconds for bare_seconds, _ in pairs):.2f} s, medians of {_PAIRS}"
    yield BenchRow("agent run beyond the bare claude / 0.2 s", detail, extra / _MOST_EXTRA_SECONDS, 1.0)


def _programs() -> Iterator[BenchRow]:
    """Our own part of starting, watching and ending a program, without what the system takes for its process."""

    async def run_all() -> None:
        limiter = asyncio.Semaphore(_AT_A_TIME)

        async def one() -> None:
            async with limiter:
                await stream(what)

        await asyncio.gather(*(one() for _ in range(_PROGRAMS)))

    with tempfile.TemporaryDirectory() as directory:
        what = Command(
            argv=("true",),
            cwd=Path(directory),
            environment=inherited_environment(),
            timeout_seconds=60.0,
            max_output_bytes=1000,
            stdin=b"x",
        )
        used = time.process_time()
        asyncio.run(run_all())
        cpu = (time.process_time() - used) / _PROGRAMS
    yield BenchRow("own CPU of a finished program / 5 ms", f"{cpu * 1000:.1f} ms", cpu / _MOST_CPU_SECONDS, 1.0)


def _thousand_calls() -> Iterator[BenchRow]:
    with tempfile.TemporaryDirectory() as directory, SqliteDatabase(Path(directory) / "ledger.sqlite3") as database:
        used = time.process_time()
        started = time.monotonic()
        asyncio.run(_call_all(Path(directory), DatabaseLedger(database)))
        seconds = time.monotonic() - started
        cpu = (time.process_time() - used) / _CALLS
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    name = f"{_CALLS:,} scripted calls of 1 s, {_AT_A_TIME} at a time"
    yield BenchRow(
        f"{name} / ideal", f"{seconds:.2f} s / {_IDEAL_SECONDS:g} s, {memory} MiB", seconds / _IDEAL_SECONDS, 1.15
    )
    yield BenchRow("own CPU of a finished call / 5 ms", f"{cpu * 1000:.1f} ms", cpu / _MOST_CPU_SECONDS, 1.0)


async def _call_all(work: Path, ledger: DatabaseLedger) -> None:
    agent = ScriptedAgent([Delay(1.0, Text("done"))])
    caller = AgentCaller(
        CallerOptions(concurrency=_AT_A_TIME),
        ledger=ledger,
        key_of=review_key,
    )
    requests = [AgentRequest(prompt=f"Question {number}", working_dir=work) for number in range(_CALLS)]
    await asyncio.gather(*(caller.call(request, agent=agent, emit=_ignore) for request in requests))


def _ignore(_event: AgentEvent) -> None:
    """Take an event and do nothing with it."""


def _variables(url: str, home: Path, program: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_API_KEY": "sk-stand-in",
        "ANTHROPIC_BASE_URL": url,
        "CODELOUPE_CLAUDE_PATH": program,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def _codeloupe() -> str:
    return str(Path(sys.executable).with_name("codeloupe"))


def _claude() -> str:
    """The native program inside the Agent SDK's wheel, which is part of the development install."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        raise RuntimeError("the Agent SDK is not installed: run `make test`, which sets it up")
    return str(Path(spec.origin).parent / "_bundled" / "claude")
