"""`codeloupe pipeline list`: all runs, the newest first."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.options import look_of
from codeloupe.cli.output import write_result
from codeloupe.cli.pipeline_place import FIRST_STEP, open_store
from codeloupe.errors import RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import RunRecord
from codeloupe.reports.pipeline_json import runs_json
from codeloupe.reports.pipeline_list import render_runs
from codeloupe.reports.pipeline_words import ENDED_STATES, as_it_stands
from codeloupe.store.run_store import DirectoryRunStore


def run(arguments: argparse.Namespace) -> int:
    """Show the list; that there is no run is no error."""
    if arguments.limit < 1:
        raise UsageError(f"--limit is {arguments.limit}, and must be at least 1", hint="give a number from 1 on")
    store = open_store()
    found, problems = store.list()
    runs = found[: arguments.limit]
    busy = frozenset(each.run_id for each in runs if _is_busy(store, each))
    shown = [as_it_stands(each, busy=each.run_id in busy) for each in runs]
    if arguments.json:
        write_result(runs_json(shown, problems, busy=busy))
    elif not shown and not problems:
        write_result(f"There is no run of a pipeline yet; {FIRST_STEP}.\n")
    else:
        look = look_of(arguments.color)
        write_result(render_runs(shown, problems, width=look.width, color=look.color, ascii_only=look.ascii_only))
    if len(found) > len(runs) and not arguments.json:
        print(f"codeloupe: there are older ones; --limit {arguments.limit * 2} shows more", file=sys.stderr)
    return 0


def _is_busy(store: DirectoryRunStore, run: RunRecord) -> bool:
    """Whether a process works on it; not where that cannot be told: one run must not hide the others."""
    try:
        return run.state not in ENDED_STATES and store.holder(run.run_id) is not None
    except (StoreError, RunNotFound):
        return False
