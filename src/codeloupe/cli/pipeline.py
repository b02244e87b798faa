"""`codeloupe pipeline`: preview and run stages of agents; show, answer, resume and remove runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import codeloupe
from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.pipeline_display import PipelineDisplay, TerminalAsker, can_ask
from codeloupe.cli.pipeline_runs import (
    FIRST_STEP,
    FoundRun,
    choose_a_run,
    find_run,
    is_run,
    load_run,
    open_store,
    run_line,
    run_to_answer,
    run_to_resume,
    run_to_retry,
    waiting_stages,
)
from codeloupe.cli.progress import choose_mode
from codeloupe.cli.verbs import note, run_to_end, set_up_logging, size_of, write_result
from codeloupe.errors import CodeloupeError, RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import (
    ENDED_STATES,
    NO_RESULT,
    Approval,
    Decision,
    RunRecord,
    StageRecord,
    StageState,
    WorkspaceKind,
)
from codeloupe.model.pipeline_preview import PipelinePreview
from codeloupe.pipelines.definition import find_pipeline_file, load_pipeline, pipeline_schema
from codeloupe.pipelines.files import RESULT_FOLDER, RESULT_PATCH
from codeloupe.pipelines.opening import write_out
from codeloupe.reports import pipeline as report
from codeloupe.reports.json_v1 import json_text
from codeloupe.reports.pipeline_json import list_schema, run_json, run_schema, runs_json
from codeloupe.reports.pipeline_preview import preview_json, preview_schema, render_preview
from codeloupe.reports.wording import counted
from codeloupe.store.runs import Holder
from codeloupe.system.redaction import is_secret
from codeloupe.system.untrusted import log_line, terminal, without_log_commands

Work = Callable[["codeloupe.Runtime", "codeloupe.RunOptions"], Coroutine[Any, Any, RunRecord]]

_A_FILE = "a pipeline's YAML file, or the folder of its pipeline.yaml (default: this folder)"
_CAN_BE_TRIED_AGAIN = (
    StageState.AWAITING_APPROVAL,
    StageState.FAILED,
    StageState.INTERRUPTED,
    StageState.COMPLETED,
    StageState.WAITING_FOR_QUOTA,
)
_EPILOG = """\
exit codes:
  0    completed
  1    rejected by a gate or a person
  2    usage or configuration error, or an agent that cannot be used
  3    incomplete: waiting for a person, or unable to continue
  130  interrupted; `resume` continues
"""
_EXAMPLES = {
    "": ("codeloupe pipeline run tour --input topic=caching", "codeloupe pipeline status --follow"),
    "run": (
        "codeloupe pipeline run tour --input topic=caching --dry-run",
        "codeloupe pipeline run tour --input topic=caching",
        "codeloupe pipeline run tour/pipeline.yaml --no-wait --json",
    ),
    "resume": ("codeloupe pipeline resume", "codeloupe pipeline resume last --retry draft --note 'be shorter'"),
    "status": ("codeloupe pipeline status", "codeloupe pipeline status --follow"),
    "list": ("codeloupe pipeline list --limit 5",),
    "validate": ("codeloupe pipeline validate tour",),
    "approve": ("codeloupe pipeline approve", "codeloupe pipeline approve last draft --resume"),
    "reject": ("codeloupe pipeline reject last draft --note 'too long'",),
    "schema": ("codeloupe pipeline schema > pipeline.schema.json",),
    "remove": ("codeloupe pipeline remove last",),
}


def configure(parser: Parser) -> None:
    """Add the verbs below `pipeline` to its parser."""
    parser.description = "Run agents in stages with gates between them, and manage the runs."
    parser.epilog = _EPILOG
    verbs = parser.add_commands(dest="action")
    a_run = "a run's id, the beginning of one, `last` or `last~1`"
    run = add_command(verbs, "run", "run a pipeline", _run)
    option(run, "file", "FILE", _A_FILE, nargs="?", type=Path, default=Path())
    option(run, "--input", "NAME=VALUE", "an input of the pipeline (may be repeated)", action="append", default=[])
    flag(
        run, "--dry-run --preview", "show what the run would do; no agent is asked, no command runs, nothing is stored"
    )
    options.add(run, "--repo")
    run.set_defaults(accept_changes=False, clone=None)
    _add_running(run)

    about = "continue a run that was interrupted, or was waiting for an answer"
    resume = add_command(verbs, "resume", about, _resume)
    about_run = f"{a_run} (default: the last unfinished run of this repository)"
    option(resume, "run", "RUN", about_run, nargs="?")
    option(resume, "--retry", "STAGE", "run this stage again")
    option(resume, "--note", "TEXT", "with --retry: feedback for its next attempt", default="")
    flag(resume, "--accept-changes", "continue even if the pipeline's files have changed")
    about = "a clone of the run's repository on this machine, for a run that began elsewhere"
    option(resume, "--clone", "DIR", about, type=Path)
    _add_running(resume)

    status = add_command(verbs, "status", "show one run as a tree", _status)
    option(status, "run", "RUN", f"{a_run} (default: last)", nargs="?", default="last")
    flag(status, "--follow", "follow the run until it stops, and exit with its exit code")
    flag(status, "-v --verbose", "show every attempt in full, with its artifacts")
    listed = add_command(verbs, "list", "show all runs, the newest first", _list)
    option(listed, "--limit", "N", "show at most N (default: 20)", type=int, default=20)
    for each in (status, listed):
        options.add(each, "--json", "--color")

    validate = add_command(verbs, "validate", "check pipeline files, at no cost", _validate)
    option(validate, "files", "FILE", _A_FILE, nargs="*", type=Path, default=[Path()])
    options.add(validate, "--json")
    for verb in ("approve", "reject"):
        answer = add_command(verbs, verb, f"{verb} the work of a stage that is waiting for a person", _answer)
        option(answer, "run", "RUN", f"{a_run} (default: the run that is waiting)", nargs="?")
        option(answer, "stage", "STAGE", "the stage that is waiting (default: the only one)", nargs="?")
        option(answer, "--note", "TEXT", "why; it is stored with the run", default="")
        flag(answer, "--resume", "continue the run, here or on the workers that have it, and follow it")
        # What --resume needs besides, as `resume` has it by default.
        answer.set_defaults(agent=None, model=None, no_wait=False, verbose=False, quiet=False)
        answer.set_defaults(accept_changes=False, clone=None)
        flag(answer, "--json", "with --resume: print the final state as JSON")
        options.add(answer, "--color")

    schema = add_command(verbs, "schema", "print the JSON Schema of a pipeline's file", _schema)
    about = "file (default): a pipeline's file; status, list, dry-run: what `--json` prints there"
    option(schema, "of", "OF", about, nargs="?", choices=["file", "status", "list", "dry-run"], default="file")
    removed = add_command(verbs, "remove", "remove a run with all its files", _remove)
    option(removed, "run", "RUN", f"{a_run}; without it, the choices are listed", nargs="?")
    add_examples(parser, _EXAMPLES)


def _add_running(parser: Parser) -> None:
    option(parser, "--agent", "NAME", "the agent for stages that name none")
    option(parser, "--model", "NAME", "the model for stages that name none")
    flag(parser, "--no-wait", "stop if a person must decide, or until a quota resets")
    flag(parser, "--json", "print the final state as JSON")
    verbose = "log to stderr, and show every attempt in full"
    options.add_loudness(parser, verbose=verbose, quiet="print only the final state")
    options.add(parser, "--color", "--on-workers")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for and return the exit code. Raises a CodeloupeError."""
    set_up_logging(verbose=arguments.action in ("run", "resume") and arguments.verbose)
    return int(arguments.act(arguments))


def _run(arguments: argparse.Namespace) -> int:
    inputs: dict[str, str] = {}
    for word in arguments.input:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or name in inputs:
            why = f"the input {name!r} is given twice" if name in inputs else f"{word!r} is not an input"
            raise UsageError(why, hint="write --input NAME=VALUE, once for each input")
        inputs[name] = value
    pipeline = codeloupe.Pipeline.load(arguments.file, agents=())
    if arguments.dry_run:
        return _dry_run(pipeline, inputs, arguments)
    if arguments.on_workers:
        return _start_on_workers(pipeline, inputs, arguments)
    return _go_on(lambda runtime, given: runtime.run_pipeline(pipeline, inputs, options=given), arguments)


def _dry_run(pipeline: codeloupe.Pipeline, inputs: Mapping[str, str], arguments: argparse.Namespace) -> int:
    """Show what a run would do. The exit code is 0 although no agent can be used here; the preview says so."""
    if arguments.on_workers:
        hint = "a dry run is made here, and only shows what the run would do; give one of the two"
        raise UsageError("--dry-run and --on-workers exclude each other", hint=hint)

    async def previewing() -> PipelinePreview:
        given = codeloupe.RunOptions(repo=arguments.repo, agent=arguments.agent, model=arguments.model)
        async with codeloupe.Runtime() as runtime:
            return await runtime.preview_pipeline(pipeline, inputs, options=given)

    preview = run_to_end(previewing())
    if arguments.json:
        write_result(preview_json(preview))
    else:
        write_result(render_preview(preview, **options.look_of(arguments.color), verbose=arguments.verbose))
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    """Go on with a run that stopped; what is finished is neither run nor bought again. Raises RunBusy."""
    if arguments.note and arguments.retry is None:
        raise UsageError("--note is for --retry", hint="give --retry STAGE as well")
    record, holder = _run_to_resume(arguments)
    if arguments.retry is not None:
        # A process that works on the run accepts an answer only on a stage that waits.
        states = _CAN_BE_TRIED_AGAIN if holder is None else _CAN_BE_TRIED_AGAIN[:1]
        busy = "" if holder is None else f" while {holder} is working on the run"
        stage = _stage_in(record, arguments.retry, states, refusal=f"cannot be retried{busy}")
        return _answered(record, holder, stage, Decision.RETRY, arguments, goes_on=True)
    if record.state is StageState.COMPLETED and not arguments.accept_changes:
        _write_run(record, arguments)
        note("the run is completed; there is nothing left to do", quiet=arguments.quiet)
        return 0
    if arguments.on_workers or record.on_workers:
        return _continue_on_workers(record, arguments)
    return _go_on(lambda runtime, given: runtime.resume_run(record.run_id, options=given), arguments)


def _run_to_resume(arguments: argparse.Namespace) -> FoundRun:
    """Return the run that is named, or else the one to resume, and say which it is."""
    if arguments.run is not None:
        return load_run(find_run(arguments.run))
    found = run_to_resume() if arguments.retry is None else run_to_retry(arguments.retry)
    note(f"resuming the run {run_line(found.record)}", quiet=arguments.quiet)
    return found


def _refuse_checkout(workspace: WorkspaceKind) -> None:
    if workspace is WorkspaceKind.CHECKOUT:
        hint = "use `workspace: worktree`, or run it here"
        raise UsageError("a worker cannot do a run that works in your checkout", hint=hint)


def _start_on_workers(pipeline: codeloupe.Pipeline, inputs: Mapping[str, str], arguments: argparse.Namespace) -> int:
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


def _continue_on_workers(run: RunRecord, arguments: argparse.Namespace) -> int:
    """Hand a run to the workers, unless they have it already, and follow it."""
    from codeloupe.cli.jobs import opened_queue, run_on_workers

    _refuse_checkout(run.workspace)
    with opened_queue() as queue:
        if not run.on_workers:
            _hand_to_workers(run.run_id)
        run_on_workers(queue, run, accept_changes=arguments.accept_changes, quiet=arguments.quiet)
    return _show_stopped(run.run_id, arguments)


def _hand_to_workers(run_id: str) -> None:
    """Record that a run continues on workers. Raise RunBusy if a process works on it."""
    store = open_store()
    with store.lock(run_id):
        store.save(replace(store.load(run_id), on_workers=True))


def _show_stopped(run_id: str, arguments: argparse.Namespace) -> int:
    run, holder = load_run(run_id)
    _write_run(run, arguments, holder=holder)
    return _exit_code_of(run)


def _answer(arguments: argparse.Namespace) -> int:
    """Store an answer, which a process that waits for it reads at once. With --resume, continue the run."""
    (record, holder), name = _run_to_answer(arguments)
    waiting = (StageState.AWAITING_APPROVAL,)
    stage = _stage_in(record, name, waiting, refusal="is not waiting for an answer")
    decision, words = Decision(arguments.action), f"{record.run_id} {stage.name}"
    if decision is Decision.APPROVE and not report.has_work(stage):
        again = report.advised_command(stage) or f"codeloupe pipeline resume {record.run_id} --retry {stage.name}"
        what = f"the stage {stage.name!r} of the run {record.run_id} has no work to approve: {stage.reason}"
        raise UsageError(what, hint=f"`{again}` tries it again; `codeloupe pipeline reject {words} --resume` fails it")
    return _answered(record, holder, stage, decision, arguments, goes_on=arguments.resume)


def _run_to_answer(arguments: argparse.Namespace) -> tuple[FoundRun, str]:
    """Return the run and the stage that are named, or else those that wait, and say which run it is.

    A single word is a run if it names one, and otherwise a stage.
    """
    run, stage = arguments.run, arguments.stage
    if run is not None and stage is None and not is_run(run):
        run, stage = None, run
    if run is None:
        found = run_to_answer(arguments.action)
        note(f"this is about the run {run_line(found.record)}")
    else:
        found = load_run(find_run(run))
    if stage is not None:
        return found, stage
    waiting = [each.name for each in waiting_stages(found.record)]
    if len(waiting) == 1:
        return found, waiting[0]
    run_id = found.record.run_id
    if not waiting:
        state = report.state_text(found.record.state)
        words = f"no stage of the run {run_id} waits for an answer; its state is {state}"
        raise UsageError(words, hint=f"`codeloupe pipeline status {run_id}` shows it")
    words = f"several stages of the run {run_id} wait for an answer: {', '.join(waiting)}"
    raise UsageError(words, hint=f"name one: `codeloupe pipeline {arguments.action} {run_id} {waiting[0]}`")


def _answered(
    run: RunRecord,
    holder: Holder | None,
    stage: StageRecord,
    decision: Decision,
    arguments: argparse.Namespace,
    *,
    goes_on: bool,
) -> int:
    """Store a person's answer for a run, and continue the run, or say which process does."""
    store = open_store()
    store.put_approval(run.run_id, Approval(stage=stage.name, decision=decision, note=arguments.note))
    if run.on_workers:
        return _answered_on_workers(run, holder, stage, decision, arguments, goes_on=goes_on)
    if holder is None and goes_on:
        return _continue_answered(run, stage, decision, arguments)
    continues = f"no process is working on the run: `codeloupe pipeline resume {run.run_id}` continues it"
    if holder is not None:
        process = holder.name if holder.process_id else "the process that runs it"
        continues = f"{process} continues with it"
    return _confirm(run, holder, stage, decision, arguments, continues)


def _continue_answered(run: RunRecord, stage: StageRecord, decision: Decision, arguments: argparse.Namespace) -> int:
    """Continue a run on this machine after an answer. If that is refused, a retry is taken back."""
    try:
        return _go_on(lambda runtime, given: runtime.resume_run(run.run_id, options=given), arguments)
    except UsageError as error:
        if decision is Decision.RETRY:
            error.hint = error.hint.replace("--accept-changes`", f"--accept-changes --retry {stage.name}`")
            # Otherwise the stage would be run again, to the user's surprise, when the run is resumed later.
            open_store().take_approval(run.run_id, stage.name)
        else:
            error.hint = f"{error.hint}; your answer is stored until then"
        raise


def _answered_on_workers(
    run: RunRecord,
    holder: Holder | None,
    stage: StageRecord,
    decision: Decision,
    arguments: argparse.Namespace,
    *,
    goes_on: bool,
) -> int:
    """Queue a job that continues a run after an answer. A run that was handed to workers continues on workers."""
    if goes_on:
        return _continue_on_workers(run, arguments)
    from codeloupe.cli.jobs import opened_queue
    from codeloupe.workers.requests import queue_run

    with opened_queue() as queue:
        number = queue_run(queue, run)
    continues = f"job {number} continues it on a worker: `codeloupe jobs watch {number}` follows it"
    return _confirm(run, holder, stage, decision, arguments, continues)


def _confirm(
    run: RunRecord,
    holder: Holder | None,
    stage: StageRecord,
    decision: Decision,
    arguments: argparse.Namespace,
    continues: str,
) -> int:
    """Say that an answer was stored, and what continues the run."""
    done = {Decision.APPROVE: "approved", Decision.REJECT: "rejected", Decision.RETRY: "to be retried"}[decision]
    words = f"{stage.name} of the run {run.run_id} is {done}; {continues}"
    if arguments.json:
        # A program gets the run as it was before the answer, and the message on stderr.
        _write_run(run, arguments, holder=holder)
        note(words)
    else:
        print(terminal(words))
    return 0


def _status(arguments: argparse.Namespace) -> int:
    """Show a run. The exit code says nothing about it, but with --follow it is that of the run."""
    run_id = find_run(arguments.run)
    record, holder = run_to_end(_followed(run_id)) if arguments.follow else load_run(run_id)
    _write_run(record, arguments, holder=holder)
    return _exit_code_of(record) if arguments.follow else 0


async def _followed(run_id: str) -> tuple[RunRecord, Holder | None]:
    """Show how the run goes on as long as a process works on it; then its last state."""
    said: dict[str, str] = {}
    with PipelineDisplay(mode=choose_mode()) as display:
        while True:
            display.run, holder = load_run(run_id)
            for stage in display.run.stages:
                words = report.stage_text(stage)
                if said.get(stage.name, words if stage.state is StageState.PENDING else "") != words:
                    display.tell(f"{stage.name}: {words}{f': {stage.reason}' if stage.reason else ''}")
                said[stage.name] = words
            if holder is None:
                return display.run, holder
            await asyncio.sleep(0.5)


def _exit_code_of(run: RunRecord) -> int:
    code = report.exit_code_of(run)
    return report.COULD_NOT_GO_ON if code is None else code


def _list(arguments: argparse.Namespace) -> int:
    """Show all runs; that there is none is no error."""
    if arguments.limit < 1:
        raise UsageError(f"--limit is {arguments.limit}, and must be at least 1", hint="give 1 or more")
    store = open_store()
    found, problems = store.list()
    runs = found[: arguments.limit]
    busy = set()
    for each in runs:
        # One run whose lock cannot be looked at must not hide the others.
        with suppress(StoreError, RunNotFound):
            if each.state not in ENDED_STATES and store.holder(each.run_id) is not None:
                busy.add(each.run_id)
    shown = [report.as_it_is(each, busy=each.run_id in busy) for each in runs]
    if arguments.json:
        write_result(runs_json(shown, problems, busy=frozenset(busy)))
    elif not shown and not problems:
        write_result(f"No pipeline has been run yet; {FIRST_STEP}.\n")
    else:
        write_result(report.render_runs(shown, problems, **options.look_of(arguments.color)))
    if len(found) > len(runs) and not arguments.json:
        note(f"there are older ones; --limit {arguments.limit * 2} shows more")
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    """Check files before anything is spent; the exit code is 2 when one of them is wrong."""
    files = [_validated(path, quiet=arguments.json) for path in arguments.files]
    if arguments.json:
        write_result(json_text({"schema_version": 1, "files": files}))
    return 0 if all(each["valid"] for each in files) else UsageError.exit_code


def _validated(path: Path, *, quiet: bool) -> dict[str, object]:
    """Check one file, print the outcome unless `quiet`, and return it for programs."""
    try:
        file = find_pipeline_file(path)
        definition = load_pipeline(file)
    except CodeloupeError as error:
        if not quiet:
            about = f"{error.message}\n  hint: {error.hint}" if error.hint else error.message
            print(without_log_commands(terminal(about, keep_newlines=True)), file=sys.stderr)
        # One text for each mistake; of several, the first line only says how many.
        first, *rest = error.message.split("\n")
        problems = [line.strip() for line in rest] or [first]
        return {"file": str(path), "valid": False, "problems": problems, "hint": error.hint}
    if not quiet:
        about = f"{definition.name}, {counted(len(definition.stages), 'stage')}"
        if definition.inputs:
            about += f", {counted(len(definition.inputs), 'input')}"
        print(f"{log_line(str(file))}: valid ({log_line(about)})", flush=True)
    return {"file": str(file), "valid": True, "problems": [], "hint": None}


def _schema(arguments: argparse.Namespace) -> int:
    schemas = {"file": pipeline_schema, "status": run_schema, "list": list_schema, "dry-run": preview_schema}
    print(json.dumps(schemas[arguments.of](), indent=2))
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    """Remove a run and say how much space that freed. Raise RunBusy while a process works on it."""
    if arguments.run is None:
        choose_a_run("remove")
    run_id = find_run(arguments.run)
    print(f"removed the run {terminal(run_id)}, which freed {size_of(open_store().remove(run_id))}")
    return 0


def _write_run(
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


def _stage_in(run: RunRecord, name: str, states: Sequence[StageState], *, refusal: str) -> StageRecord:
    fitting = [stage.name for stage in run.stages if stage.state in states]
    hint = f"did you mean {' or '.join(fitting)}?" if fitting else f"see `codeloupe pipeline status {run.run_id}`"
    stage = next((stage for stage in run.stages if stage.name == name), None)
    if stage is None:
        known = ", ".join(stage.name for stage in run.stages)
        raise UsageError(f"the run {run.run_id} has no stage {name!r}; it has {known}", hint=hint)
    if stage.state not in states:
        state = report.stage_text(stage)
        raise UsageError(f"the stage {name!r} of the run {run.run_id} {refusal}; its state is {state}", hint=hint)
    return stage


def _go_on(work: Work, arguments: argparse.Namespace) -> int:
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
        # What stopped it is the error to report.
        with suppress(CodeloupeError):
            run, holder = load_run(run.run_id)
    if isinstance(stopped, CodeloupeError):
        # A program gets the run as it is; a person has read what stopped it.
        if arguments.json:
            with suppress(CodeloupeError):
                _write_run(run, arguments, holder=holder, code=stopped.exit_code)
        raise stopped
    _write_run(run, arguments, holder=holder)
    if stopped is None:
        return _exit_code_of(run)
    done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
    kept = f"{done} of {counted(len(run.stages), 'stage', 'stages')} are finished and stored"
    note(f"interrupted; {kept}; `codeloupe pipeline resume {run.run_id}` continues")
    return report.INTERRUPTED
