"""Carrying a run through to where it stops, with a display, a person to ask, and a clean end when it is interrupted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from codeloupe.cli.pipeline_asking import TerminalAsker, can_ask
from codeloupe.cli.pipeline_display import PipelineDisplay
from codeloupe.cli.pipeline_place import as_shown, open_store, write_run
from codeloupe.cli.progress import ProgressMode, choose_mode
from codeloupe.cli.running import run_to_end
from codeloupe.errors import CodeloupeError
from codeloupe.model.pipeline import RunRecord, StageState
from codeloupe.pipelines import RunOptions
from codeloupe.reports.pipeline_words import COULD_NOT_GO_ON, INTERRUPTED, exit_code_of
from codeloupe.reports.wording import counted
from codeloupe.runtime import Runtime
from codeloupe.store.run_store import DirectoryRunStore

Work = Callable[[Runtime, RunOptions], Coroutine[Any, Any, RunRecord]]


def carry(work: Work, arguments: argparse.Namespace, *, repo: Path = Path()) -> int:
    """Do the work of `run` or `resume`, show where it ended, and return the exit code. Raises a CodeloupeError."""
    store = open_store()
    run: RunRecord | None = None
    stopped: KeyboardInterrupt | CodeloupeError | None = None
    with PipelineDisplay(stream=sys.stderr, mode=mode_of(arguments)) as display:
        try:
            run = run_to_end(_carried(work, arguments, repo, display=display, store=store))
        except (KeyboardInterrupt, CodeloupeError) as error:
            if display.run is None:
                raise
            if isinstance(error, CodeloupeError):
                again = f"`codeloupe pipeline resume {display.run.run_id}` continues from there"
                display.say(f"the run {display.run.run_id} keeps what was done; {again}")
            stopped = error
    if isinstance(stopped, CodeloupeError) and display.run is not None:
        _show_stopped(display.run.run_id, store, arguments, exit_code=stopped.exit_code)
        raise stopped
    if run is None and display.run is not None:
        return _interrupted(display.run.run_id, store, arguments)
    assert run is not None  # noqa: S101 - see above
    write_run(run, store, arguments)
    code = exit_code_of(run)
    return COULD_NOT_GO_ON if code is None else code


def mode_of(arguments: argparse.Namespace) -> ProgressMode:
    """How much is shown while it goes on."""
    quiet = getattr(arguments, "quiet", False)
    mode = choose_mode(quiet=quiet, stream=sys.stderr, environment=os.environ)
    # A log writes to the same terminal, and would tear what is redrawn.
    return ProgressMode.PLAIN if arguments.verbose and mode is ProgressMode.LIVE else mode


async def _carried(
    work: Work, arguments: argparse.Namespace, repo: Path, *, display: PipelineDisplay, store: DirectoryRunStore
) -> RunRecord:
    asks = can_ask() and not arguments.no_wait and not arguments.quiet
    options = RunOptions(
        repo=repo,
        agent=arguments.agent,
        model=arguments.model,
        ask_person=TerminalAsker(display, store) if asks else None,
        wait_for_approval=not arguments.no_wait,
        watch=display.watch,
        accept_changes=arguments.accept_changes,
    )
    async with Runtime() as runtime:
        return await work(runtime, options)


def _show_stopped(run_id: str, store: DirectoryRunStore, arguments: argparse.Namespace, *, exit_code: int) -> None:
    """Give a program the run as it stands; a person has read what stopped it."""
    # The error that stopped it is the one to tell.
    with suppress(CodeloupeError):
        run, holder = as_shown(store, run_id)
        if arguments.json:
            write_run(run, store, arguments, holder=holder, exit_code=exit_code)


def _interrupted(run_id: str, store: DirectoryRunStore, arguments: argparse.Namespace) -> int:
    run, holder = as_shown(store, run_id)
    write_run(run, store, arguments, holder=holder)
    done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
    kept = f"{done} of {counted(len(run.stages), 'stage', 'stages')} are finished and kept"
    print(f"codeloupe: interrupted; {kept}; `codeloupe pipeline resume {run_id}` continues", file=sys.stderr)
    return INTERRUPTED
