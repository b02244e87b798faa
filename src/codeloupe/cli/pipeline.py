"""`codeloupe pipeline`: preview and run stages of agents; show, answer, resume and remove runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import codeloupe
from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.pipeline_answers import answer_stage, stage_in, store_answer
from codeloupe.cli.pipeline_display import PipelineDisplay
from codeloupe.cli.pipeline_runs import (
    FIRST_STEP,
    FoundRun,
    choose_a_run,
    find_run,
    load_run,
    open_store,
    run_line,
    run_to_resume,
    run_to_retry,
)
from codeloupe.cli.pipeline_work import (
    continue_on_workers,
    exit_code_of,
    go_on,
    hand_to_workers,
    start_on_workers,
    write_run,
)
from codeloupe.cli.progress import choose_mode
from codeloupe.cli.verbs import note, run_to_end, set_up_logging, size_of, write_result
from codeloupe.errors import CodeloupeError, RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import (
    ENDED_STATES,
    Decision,
    RunRecord,
    StageState,
)
from codeloupe.model.pipeline_preview import PipelinePreview
from codeloupe.pipelines.definition import find_pipeline_file, load_pipeline, pipeline_schema
from codeloupe.reports import pipeline as report
from codeloupe.reports.json_v1 import json_text
from codeloupe.reports.pipeline_json import list_schema, run_schema, runs_json
from codeloupe.reports.pipeline_preview import preview_json, preview_schema, render_preview
from codeloupe.reports.wording import counted
from codeloupe.store.runs import Holder
from codeloupe.system.untrusted import log_line, terminal, without_log_commands

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
        answer = add_command(verbs, verb, f"{verb} the work of a stage that is waiting for a person", answer_stage)
        option(answer, "run", "RUN", f"{a_run} (default: the run that is waiting)", nargs="?")
        option(answer, "stage", "STAGE", "the stage that is waiting (default: the only one)", nargs="?")
        option(answer, "--note", "TEXT", "why; it is stored with the run", default="")
        flag(answer, "--resume", "continue the run, here or on the workers that have it, and follow it")
        # The other options of `resume`, with their defaults.
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
    """Run the command and return the exit code. Raise CodeloupeError."""
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
        return start_on_workers(pipeline, inputs, arguments)
    return go_on(lambda runtime, given: runtime.run_pipeline(pipeline, inputs, options=given), arguments)


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
    """Continue a run that stopped; finished work is neither repeated nor paid for again. Raise RunBusy."""
    if arguments.note and arguments.retry is None:
        raise UsageError("--note is for --retry", hint="give --retry STAGE as well")
    record, holder = _run_to_resume(arguments)
    if arguments.retry is not None:
        return _retry(record, holder, arguments)
    if record.state is StageState.COMPLETED and not arguments.accept_changes:
        write_run(record, arguments)
        note("the run is completed; there is nothing left to do", quiet=arguments.quiet)
        return 0
    if arguments.on_workers or record.on_workers:
        return continue_on_workers(record, arguments)
    return go_on(lambda runtime, given: runtime.resume_run(record.run_id, options=given), arguments)


def _retry(record: RunRecord, holder: Holder | None, arguments: argparse.Namespace) -> int:
    """Have a stage run again, and continue the run."""
    states: tuple[StageState, ...] = _CAN_BE_TRIED_AGAIN
    refusal = "cannot be retried"
    if holder is not None:
        # A process that works on the run accepts an answer only on a stage that waits.
        states = (StageState.AWAITING_APPROVAL,)
        refusal = f"cannot be retried while {holder} is working on the run"
    stage = stage_in(record, arguments.retry, states, refusal=refusal)
    if arguments.on_workers:
        record = hand_to_workers(record)
    return store_answer(record, holder, stage, Decision.RETRY, arguments, goes_on=True)


def _run_to_resume(arguments: argparse.Namespace) -> FoundRun:
    """Return the run that is named, or else the one to resume, and say which it is."""
    if arguments.run is not None:
        return load_run(find_run(arguments.run))
    found = run_to_resume() if arguments.retry is None else run_to_retry(arguments.retry)
    note(f"resuming the run {run_line(found.record)}", quiet=arguments.quiet)
    return found


def _status(arguments: argparse.Namespace) -> int:
    """Show a run. The exit code says nothing about it, but with --follow it is that of the run."""
    run_id = find_run(arguments.run)
    record, holder = run_to_end(_followed(run_id)) if arguments.follow else load_run(run_id)
    write_run(record, arguments, holder=holder)
    return exit_code_of(record) if arguments.follow else 0


async def _followed(run_id: str) -> tuple[RunRecord, Holder | None]:
    """Show the progress of the run while a process works on it, and return its last state."""
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


def _list(arguments: argparse.Namespace) -> int:
    """Show all runs; an empty list is not an error."""
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
