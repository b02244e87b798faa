"""A whole review by the program over loopback, with a model that answers at once: what it takes, and what it sends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lifelike import LARGE, SMALL, ChangeSize, branch_diff, make_lifelike_change
from bench.prompt_tokens import prompt_of, tokens_in, tokens_sent
from bench.table import BenchRow
from codeloupe.git.diff import parse_diff
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer

CHANGES: Mapping[str, ChangeSize] = {"small": SMALL, "large": LARGE}
_MEASURE = "bytes / 3.5"
_TIMES = {"small": 3, "large": 1}
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What a program took, with all that it started and waited for."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


def rows() -> Iterator[BenchRow]:
    """The small and the large change, reviewed by the `api` agent: no other program takes part."""
    with tempfile.TemporaryDirectory() as directory:
        for name, size in CHANGES.items():
            root = Path(directory) / name
            make_lifelike_change(root, size)
            yield reviewed(name, root)


def reviewed(name: str, root: Path) -> BenchRow:
    """A change, small or large, through codeloupe as it is installed here."""
    program = str(Path(sys.executable).with_name("codeloupe"))
    command = [program, "review", "--reviewer", "api", "--fresh", "--no-verify", "-q"]
    best, requests = least_of(_TIMES[name], command, root, _variables)
    return overhead_row(f"codeloupe on the {name} change", root, best, requests)


def least_of(
    times: int,
    command: Sequence[str],
    root: Path,
    variables_for: Callable[[str], Mapping[str, str]],
    *,
    answer: Reply = Json({"findings": []}),  # noqa: B008 - frozen
) -> tuple[ProgramRun, tuple[RecordedRequest, ...]]:
    """The run with the least CPU of several, each with a home and a server of its own, and what it asked.

    `variables_for` gives what the program is told of the server at an address.
    """
    runs = []
    for _ in range(times):
        with StandInServer(reply=lambda _request: answer) as server, tempfile.TemporaryDirectory() as home:
            variables = {**variables_for(server.url), **surroundings(Path(home))}
            runs.append((run_program(command, cwd=root, environment=variables), tuple(server.requests)))
    return min(runs, key=lambda run: run[0].cpu_seconds)


def overhead_row(name: str, root: Path, run: ProgramRun, requests: Sequence[RecordedRequest]) -> BenchRow:
    """What a review took and sent, as a ratio of the tokens sent to those of the diff."""
    diff = branch_diff(root)
    sent, in_diff = tokens_sent(requests)[_MEASURE], tokens_in(diff.decode())[_MEASURE]
    detail = (
        f"{run.wall_seconds:.2f} s of wall, {run.cpu_seconds:.2f} s of CPU, {len(requests)} request(s), "
        f"{sent:,} tokens sent for a diff of {in_diff:,}, {run.peak_bytes / 1e6:.0f} MB, "
        f"{share_sent(diff, requests):.0%} of the added lines sent"
    )
    return BenchRow(f"tokens sent / tokens of the diff, {name}", detail, sent / in_diff, None)


def share_sent(diff: bytes, requests: Sequence[RecordedRequest]) -> float:
    """How many of the different lines that a diff adds stand in a prompt, whatever a reviewer writes around them."""
    prompts = "\n".join(map(prompt_of, requests))
    lines = (line for file in parse_diff(diff) for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
    added = {text for line in lines if (text := line.text.decode().strip())}
    return sum(text in prompts for text in added) / len(added)


def run_program(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> ProgramRun:
    """Run a program to its end. RuntimeError when it does not end with 0."""
    started = time.monotonic()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command, cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        if process.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said}")
    return ProgramRun(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _RSS_UNIT)


def surroundings(home: Path) -> dict[str, str]:
    """A home of its own, and no way out but to this machine."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **nowhere}


def _variables(url: str) -> dict[str, str]:
    return {
        "CODELOUPE_API_MODEL": "openai:gpt-5",
        "CODELOUPE_API_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "sk-stand-in",
    }
