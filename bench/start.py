"""How long the program takes to say what it can do, against bare Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.table import BenchRow
from bench.timing import best_seconds, quiet

_TIMES = 20
_STARTS = (
    (["--help"], 3.0),
    (["--version"], 3.0),
    (["review", "--help"], 7.0),
    (["agent", "run", "--help"], 7.0),
)


def rows() -> Iterator[BenchRow]:
    """Starts, as multiples of `python -c pass`."""
    program = str(Path(sys.executable).with_name("codeloupe"))
    bare = best_seconds(lambda: quiet([sys.executable, "-c", "pass"]), times=_TIMES)
    for words, limit in _STARTS:
        seconds = best_seconds(lambda words=words: quiet([program, *words]), times=_TIMES)  # type: ignore[misc]  # a default binds the loop variable
        name = f"codeloupe {' '.join(words)} / python -c pass"
        yield BenchRow(name, f"{seconds * 1000:.0f} ms / {bare * 1000:.0f} ms", seconds / bare, limit)
