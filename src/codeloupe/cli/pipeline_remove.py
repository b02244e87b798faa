"""`codeloupe pipeline remove`: a run with all its files."""

from __future__ import annotations

import argparse

from codeloupe.cli.pipeline_place import find_run, open_store
from codeloupe.reports.wording import counted
from codeloupe.system.untrusted import terminal


def run(arguments: argparse.Namespace) -> int:
    """Remove the run and say how much room that gave. Raises RunBusy while a process works on it."""
    store = open_store()
    run_id = find_run(store, arguments.run)
    freed = store.remove(run_id)
    print(f"removed the run {terminal(run_id)}, which freed {_size(freed)}")
    return 0


def _size(size_bytes: int) -> str:
    if size_bytes < 1000:
        return counted(size_bytes, "byte", "bytes")
    return f"{size_bytes / 1000:,.0f} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:,.1f} MB"
