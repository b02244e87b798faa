"""The diff parser on a diff of a million lines, against the `git diff` that made it and against its size.

Times are the best of several runs. Memory is the growth of a fresh process's peak resident set over what it had
before it read the diff, so the diff itself counts: on Linux from VmHWM, elsewhere from getrusage, which may also
see the parent's peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peak_memory import peak_bytes
from bench.table import BenchRow
from bench.timing import best_seconds
from codeloupe.git.command import PATCH_FLAGS
from codeloupe.git.diff import parse_diff

_RUNS = 7
_DIFF_LINES = 1_000_000
_TIME_LIMIT = 1.5
_MEMORY_LIMIT = 5.0

_HUGE_FILES = 4
_SMALL_FILES = 2_000
_SMALL_HUNK_LINES = 9
_LINES_BETWEEN_CHANGES = 10


@dataclass(frozen=True, slots=True)
class ParseMeasurement:
    """One shape of diff: seconds of git, of the parser and of a plain split, and bytes of the diff and of the peak."""

    shape: str
    lines: int
    diff_bytes: int
    git_seconds: float
    parse_seconds: float
    split_seconds: float
    peak_bytes: int


def rows() -> Iterator[BenchRow]:
    """The rows of the table for both shapes."""
    for shape in (measure_huge_hunks, measure_small_hunks):
        measurement = shape()
        size = f"{measurement.lines:,} lines, {measurement.diff_bytes / 1e6:.0f} MB, {measurement.shape}"
        yield _time_row(f"parse a diff of {size}", measurement.parse_seconds, measurement, limit=_TIME_LIMIT)
        yield _time_row(f"plain split of the same ({measurement.shape})", measurement.split_seconds, measurement)
        yield BenchRow(
            f"peak memory while parsing the same ({measurement.shape})",
            f"{measurement.peak_bytes / 1e6:.0f} MB against {measurement.diff_bytes / 1e6:.0f} MB of diff",
            measurement.peak_bytes / measurement.diff_bytes,
            _MEMORY_LIMIT,
        )


def _time_row(name: str, seconds: float, measurement: ParseMeasurement, *, limit: float | None = None) -> BenchRow:
    measured = f"{seconds:.2f} s against {measurement.git_seconds:.2f} s of git diff"
    return BenchRow(name, measured, seconds / measurement.git_seconds, limit)


def measure_huge_hunks() -> ParseMeasurement:
    """A few files, each of which is one hunk: half of them new, half of them rewritten."""
    each = _DIFF_LINES // _HUGE_FILES
    half = each // 2
    base = {f"rewritten{number}.py": _code(number, half) for number in range(_HUGE_FILES // 2)}
    head = {f"rewritten{number}.py": _code(number + 100, half) for number in range(_HUGE_FILES // 2)}
    head |= {f"new{number}.py": _code(number + 200, each) for number in range(_HUGE_FILES // 2)}
    return _measure("few huge hunks", base, head)


def measure_small_hunks() -> ParseMeasurement:
    """Many files, each with many hunks of a changed line and its context."""
    hunks = _DIFF_LINES // _SMALL_FILES // _SMALL_HUNK_LINES
    lines = (hunks + 1) * _LINES_BETWEEN_CHANGES
    base, head = {}, {}
    for number in range(_SMALL_FILES):
        old = _code(number, lines).splitlines(keepends=True)
        new = list(old)
        for place in range(_LINES_BETWEEN_CHANGES // 2, lines - _LINES_BETWEEN_CHANGES, _LINES_BETWEEN_CHANGES):
            new[place] = b"    changed(%d, %d)\n" % (number, place)
        name = f"package{number % 40}/module{number}.py"
        base[name], head[name] = b"".join(old), b"".join(new)
    return _measure(f"small hunks in {_SMALL_FILES:,} files", base, head)


def _code(seed: int, lines: int) -> bytes:
    return b"".join(b"    value_%d = compute(%d, other)\n" % (seed, line * 7919) for line in range(lines))


def _measure(shape: str, base: Mapping[str, bytes], head: Mapping[str, bytes]) -> ParseMeasurement:
    with tempfile.TemporaryDirectory() as directory:
        repository, diff = Path(directory) / "repository", Path(directory) / "change.diff"
        _build(repository, base, head)
        git_seconds = best_seconds(lambda: _write_diff(repository, diff), times=_RUNS)
        command = [sys.executable, "-m", "bench.parse", str(diff)]
        root = Path(__file__).resolve().parent.parent
        completed = subprocess.run(command, cwd=root, capture_output=True, check=True)
        return ParseMeasurement(shape=shape, git_seconds=git_seconds, **json.loads(completed.stdout))


def _build(repository: Path, base: Mapping[str, bytes], head: Mapping[str, bytes]) -> None:
    repository.mkdir()
    _git(repository, "init", "--quiet", "--template=", "--initial-branch=main")
    with subprocess.Popen(
        ("git", "fast-import", "--quiet"), cwd=repository, env=_environment(), stdin=subprocess.PIPE
    ) as importer:
        assert importer.stdin is not None
        for tree in (base, head):
            importer.stdin.write(b"commit refs/heads/main\ncommitter A <a@example.invalid> 1700000000 +0000\ndata 0\n")
            for name, content in tree.items():
                importer.stdin.write(b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode(), len(content), content))
        importer.stdin.close()
    if importer.returncode:
        raise RuntimeError(f"git fast-import ended with {importer.returncode}")


def _write_diff(repository: Path, diff: Path) -> None:
    with diff.open("wb") as output:
        _git(repository, "diff", *PATCH_FLAGS, "main~1", "main", "--", stdout=output.fileno())


def _git(repository: Path, *arguments: str, stdout: int | None = None) -> None:
    subprocess.run(("git", *arguments), cwd=repository, env=_environment(), stdout=stdout, check=True)


def _environment() -> dict[str, str]:
    nowhere = {"HOME": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **nowhere}


def _measure_here(diff: Path) -> dict[str, float]:
    before = peak_bytes()
    data = diff.read_bytes()
    files = parse_diff(data)
    peak = peak_bytes() - before
    del files
    return {
        "lines": data.count(b"\n"),
        "diff_bytes": len(data),
        "peak_bytes": peak,
        "parse_seconds": best_seconds(lambda: parse_diff(data), times=_RUNS),
        "split_seconds": best_seconds(lambda: data.split(b"\n"), times=_RUNS),
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here(Path(sys.argv[1]))))
