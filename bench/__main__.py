"""`python -m bench`: every measurement, one table, written to bench/RESULTS.md too.

`python -m bench ROOM…` measures only those, and writes no table, since it would be half of one.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import (
    agents,
    commits,
    detection,
    extraction,
    growth,
    history,
    ledger,
    limits,
    lock_files,
    offline,
    overhead,
    parse,
    peers,
    pipelines,
    prompt_tokens,
    review,
    rounds,
    same_defect,
    scaling,
    small,
    start,
    sweep,
    thousand,
    workers,
)
from bench.table import BenchRow

_RESULTS = Path(__file__).with_name("RESULTS.md")
_ROOMS: dict[str, Callable[[], Iterator[BenchRow]]] = {
    "start": start.rows,
    "small": small.rows,
    "commits": commits.rows,
    "parse": parse.rows,
    "extraction": extraction.rows,
    "offline": offline.rows,
    "detection": detection.rows,
    "lock_files": lock_files.rows,
    "agents": agents.rows,
    "scaling": scaling.rows,
    "review": review.rows,
    "tokens": prompt_tokens.rows,
    "same_defect": same_defect.rows,
    "overhead": overhead.rows,
    "growth": growth.rows,
    "sweep": sweep.rows,
    "pipelines": pipelines.rows,
    "workers": workers.rows,
    "thousand": thousand.rows,
    "limits": limits.rows,
    "ledger": ledger.rows,
    "history": history.rows,
    "rounds": rounds.rows,
    "peers": peers.rows,
}
_WHEN_ASKED = {"peers": "BENCH_PEERS"}


def main(names: Sequence[str]) -> int:
    """Measure, show, save; exit 1 when a limit is broken, 2 for a room that nobody knows."""
    unknown = [name for name in names if name not in _ROOMS]
    if unknown:
        print(f"there is no room {unknown[0]!r}; there are {', '.join(_ROOMS)}", file=sys.stderr)
        return 2
    measured: list[BenchRow] = []
    for name in names or _usual():
        for row in _ROOMS[name]():
            print(_line(row), flush=True)
            measured.append(row)
    if not names:
        _RESULTS.write_text("\n".join(_document(measured)) + "\n", encoding="utf-8")
    return 0 if all(row.ok for row in measured) else 1


def _usual() -> Iterator[str]:
    """All rooms, but for those that are measured only when their variable is 1."""
    return (name for name in _ROOMS if name not in _WHEN_ASKED or os.environ.get(_WHEN_ASKED[name]) == "1")


def _line(row: BenchRow) -> str:
    mark = "ok " if row.ok else "OVER"
    ratio = "" if row.ratio is None else f"{row.ratio:8.2f}{row.unit}"
    limit = "" if row.limit is None else f" (limit {row.limit:g}{row.unit})"
    return f"{mark:4} {row.name:55} {ratio}{limit}  {row.measured}"


def _document(measured: list[BenchRow]) -> Iterator[str]:
    yield "# Measured"
    yield ""
    yield f"By `make bench`, Python {platform.python_version()}, {platform.system()}. Each row is one ratio of one run."
    yield ""
    yield "| what | ratio | limit | measured |"
    yield "|---|---|---|---|"
    for row in measured:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}{row.unit}"
        limit = "" if row.limit is None else f"{row.limit:g}{row.unit}"
        yield f"| {row.name} | {ratio} | {limit} | {row.measured} |"
    yield ""
    yield f"How cost grows with the size of the change: ![both axes by powers of ten]({growth.PICTURE.name})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
