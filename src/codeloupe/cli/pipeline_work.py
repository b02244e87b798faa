"""Working on a pipeline run for a command: here with a display, or on workers; and showing how it ended."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import codeloupe
from codeloupe.cli import options
from codeloupe.cli.pipeline_display import PipelineDisplay, TerminalAsker, can_ask
from codeloupe.cli.pipeline_runs import load_run, open_store
from codeloupe.cli.progress import choose_mode
from codeloupe.cli.verbs import note, run_to_end, write_result
from codeloupe.errors import CodeloupeError, UsageError
from codeloupe.model.pipeline import NO_RESULT, RunRecord, StageState, WorkspaceKind
from codeloupe.pipelines.files import RESULT_FOLDER, RESULT_PATCH
from codeloupe.pipelines.opening import write_out
from codeloupe.reports import pipeline as report
from codeloupe.reports.pipeline_json import run_json
from codeloupe.reports.wording import counted
from codeloupe.store.runs import Holder
from codeloupe.system.redaction import is_secret

Work = Callable[["codeloupe.Runtime", "codeloupe.RunOptions"], Coroutine[Any, Any, RunRecord]]


def go_on(work: Work, arguments: argparse.Namespace) -> int:
    """Do the work of `run` or `resume` with a display, show where it ended, and return the exit code."""
    asks = can_ask() and not arguments.no_wait and not arguments.quiet
    stopped: KeyboardInterrupt | CodeloupeError | None = None
    with PipelineDisplay(mode=choose_mode(quiet=arguments.quiet, logs=arguments.verbose)) as display:

        async def working() -> RunRecord:
            given = codeloupe.RunOptions(
                repo=getattr(arguments, "repo", Path()),
                agent=arguments.agent,
                model=arguments.model,
                ask_person=TerminalAsker(display, open_store()) if asks else None,
                wait_for_approval=not arguments.no_wait,
                watch=display.watch,
                accept_changes=arguments.accept_changes,
                clone=arguments.clone,
            )
            async with codeloupe.Runtime() as runtime:
                return await work(runtime, given)

        try:
            run = run_to_end(working())
        except (KeyboardInterrupt, CodeloupeError) as error:
            if display.run is None:
                raise
            stopped, run = error, display.run
            if isinstance(error, CodeloupeError):
                again = f"`codeloupe pipeline resume {run.run_id}` continues from there"
                display.say(f"the finished work of the run {run.run_id} is stored; {again}")
    holder: Holder | None = None
    if stopped is not None:
        # The first error is the one to report.
        with suppress(CodeloupeError):
            run, holder = load_run(run.run_id)
    if isinstance(stopped, CodeloupeError):
        # A program gets the run as it is; a person has read what stopped it.
        if arguments.json:
            with suppress(CodeloupeError):
                write_run(run, arguments, holder=holder, code=stopped.exit_code)
        raise stopped
    write_run(run, arguments, holder=holder)
    if stopped is None:
        return exit_code_of(run)
    done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
    kept = f"{done} of {counted(len(run.stages), 'stage', 'stages')} are finished and stored"
    note(f"interrupted; {kept}; `codeloupe pipeline resume {run.run_id}` continues")
    return report.INTERRUPTED


def start_on_workers(pipeline: codeloupe.Pipeline, inputs: Mapping[str, str], arguments: argparse.Namespace) -> int:
    """Store a new run, hand it to the workers, and follow it."""
    from codeloupe.cli.jobs import opened_queue, run_on_workers

    _refuse_checkout(pipeline.definition.workspace)
    given = codeloupe.RunOptions(repo=arguments.repo, agent=arguments.agent, model=arguments.model, only_begin=True)

    async def begun() -> RunRecord:
        async with codeloupe.Runtime() as runtime:
            return await runtime.run_pipeline(pipeline, inputs, options=given)

    with opened_queue() as queue:
        run = run_to_end(begun())
        run_on_workers(queue, run, accept_changes=False, quiet=arguments.quiet)
    return _show_stopped(run.run_id, arguments)


def continue_on_workers(run: RunRecord, arguments: argparse.Namespace) -> int:
    """Hand a run to the workers, unless they have it already, and follow it."""
    from codeloupe.cli.jobs import opened_queue, run_on_workers

    with opened_queue() as queue:
        run = hand_to_workers(run)
        run_on_workers(queue, run, accept_changes=arguments.accept_changes, quiet=arguments.quiet)
    return _show_stopped(run.run_id, arguments)


def hand_to_workers(run: RunRecord) -> RunRecord:
    """Record that a run continues on workers, and return it. Raise RunBusy if a process works on it."""
    _refuse_checkout(run.workspace)
    if run.on_workers:
        return run
    store = open_store()
    with store.lock(run.run_id):
        handed = replace(store.load(run.run_id), on_workers=True)
        store.save(handed)
    return handed


def _refuse_checkout(workspace: WorkspaceKind) -> None:
    if workspace is WorkspaceKind.CHECKOUT:
        hint = "use `workspace: worktree`, or run it here"
        raise UsageError("a worker cannot do a run that works in your checkout", hint=hint)


def _show_stopped(run_id: str, arguments: argparse.Namespace) -> int:
    run, holder = load_run(run_id)
    write_run(run, arguments, holder=holder)
    return exit_code_of(run)


def write_run(
    run: RunRecord, arguments: argparse.Namespace, *, holder: Holder | None = None, code: int | None = None
) -> None:
    """Show a run on standard output, as text or for programs, with an exit code that does not follow from it."""
    store = open_store()
    has_ended = run.state in (StageState.COMPLETED, StageState.FAILED)
    if has_ended and holder is None:
        run_to_end(write_out(run, store))
    directory = store.directory(run.run_id)
    has_result = has_ended and NO_RESULT not in run.reason
    places = report.Places(
        directory=directory,
        result=_existing_result(directory) if has_result else None,
        patch=_existing_patch(directory) if has_result else None,
    )
    if not arguments.json:
        write_result(report.render_run(run, places, **options.look_of(arguments.color), verbose=arguments.verbose))
        return
    hidden = {name for name, value in run.inputs.items() if name in run.secret_inputs or is_secret(name, value)}
    inputs = {name: "[redacted]" if name in hidden else value for name, value in run.inputs.items()}
    shown, process_id = replace(run, inputs=inputs), holder.process_id if holder else None
    write_result(run_json(shown, places, busy=holder is not None, process_id=process_id, exit_code=code))


def _existing_result(directory: Path) -> Path | None:
    result = directory / RESULT_FOLDER
    has_files = result.is_dir() and any(result.iterdir())
    return result if has_files else None


def _existing_patch(directory: Path) -> Path | None:
    patch = directory / RESULT_PATCH
    has_changes = patch.is_file() and patch.stat().st_size > 0
    return patch if has_changes else None


def exit_code_of(run: RunRecord) -> int:
    """Return the exit code of a command that worked on a run."""
    code = report.exit_code_of(run)
    return report.COULD_NOT_GO_ON if code is None else code
