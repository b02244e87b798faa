"""`python -m bench`: every measurement, one table, written to bench/RESULTS.md too."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import agents, extraction, history, offline, parse, review, start, sweep
from bench.table import BenchRow

_RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    """Measure, show, save; exit 1 when a limit is broken."""
    measured: list[BenchRow] = []
    for suite in (start, parse, extraction, offline, agents, review, sweep, history):
        for row in suite.rows():
            print(_line(row), flush=True)
            measured.append(row)
    _RESULTS.write_text("\n".join(_document(measured)) + "\n")
    return 0 if all(row.ok for row in measured) else 1


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


if __name__ == "__main__":
    sys.exit(main())
