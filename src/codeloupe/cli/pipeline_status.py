"""`codeloupe pipeline status`: one run as a tree, once or until it stops."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from codeloupe.cli.pipeline_display import PipelineDisplay
from codeloupe.cli.pipeline_place import as_shown, find_run, open_store, write_run
from codeloupe.cli.progress import choose_mode
from codeloupe.model.pipeline import RunRecord
from codeloupe.reports.pipeline_words import COULD_NOT_GO_ON, exit_code_of, state_in_words
from codeloupe.store.run_lock import Holder
from codeloupe.store.run_store import DirectoryRunStore

_POLL_SECONDS = 0.5


def run(arguments: argparse.Namespace) -> int:
    """Show the run. The exit code says nothing about it, but with --follow it is that of the run."""
    store = open_store()
    run_id = find_run(store, arguments.run)
    record, holder = _followed(store, run_id) if arguments.follow else as_shown(store, run_id)
    write_run(record, store, arguments, holder=holder)
    if not arguments.follow:
        return 0
    code = exit_code_of(record)
    return COULD_NOT_GO_ON if code is None else code


def _followed(store: DirectoryRunStore, run_id: str) -> tuple[RunRecord, Holder | None]:
    """Show how the run goes on as long as a process works on it; then its last state."""
    mode = choose_mode(quiet=False, stream=sys.stderr, environment=os.environ)
    told: dict[str, str] = {}
    with _ended_as_by_ctrl_c(), PipelineDisplay(stream=sys.stderr, mode=mode) as display:
        while True:
            record, holder = as_shown(store, run_id)
            display.run = record
            _tell_changes(display, record, told)
            if holder is None:
                return record, holder
            time.sleep(_POLL_SECONDS)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Whoever ends us by SIGTERM leaves the terminal as it was, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell_changes(display: PipelineDisplay, run: RunRecord, told: dict[str, str]) -> None:
    """A line for each stage whose state is another than before, where nothing is redrawn."""
    for stage in run.stages:
        words = state_in_words(stage.state)
        if told.get(stage.name, words if stage.state.value == "pending" else "") != words:
            display.tell(f"{stage.name}: {words}{f': {stage.reason}' if stage.reason else ''}")
        told[stage.name] = words
