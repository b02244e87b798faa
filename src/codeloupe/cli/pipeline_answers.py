"""The decisions of people about stages that wait: which stage is meant, and how its run continues."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from codeloupe.cli.pipeline_runs import (
    FoundRun,
    find_run,
    is_run,
    load_run,
    open_store,
    run_line,
    run_to_answer,
    waiting_stages,
)
from codeloupe.cli.pipeline_work import continue_on_workers, go_on, write_run
from codeloupe.cli.verbs import note
from codeloupe.errors import UsageError
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageRecord, StageState
from codeloupe.reports import pipeline as report
from codeloupe.store.runs import Holder
from codeloupe.system.untrusted import terminal


def answer_stage(arguments: argparse.Namespace) -> int:
    """Store an answer, which a process that waits for it reads at once. With --resume, continue the run."""
    (record, holder), name = _run_to_answer(arguments)
    waiting = (StageState.AWAITING_APPROVAL,)
    stage = stage_in(record, name, waiting, refusal="is not waiting for an answer")
    decision, words = Decision(arguments.action), f"{record.run_id} {stage.name}"
    if decision is Decision.APPROVE and not report.has_work(stage):
        again = report.advised_command(stage) or f"codeloupe pipeline resume {record.run_id} --retry {stage.name}"
        what = f"the stage {stage.name!r} of the run {record.run_id} has no work to approve: {stage.reason}"
        raise UsageError(what, hint=f"`{again}` tries it again; `codeloupe pipeline reject {words} --resume` fails it")
    return store_answer(record, holder, stage, decision, arguments, goes_on=arguments.resume)


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


def store_answer(
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
    answer = Approval(stage=stage.name, decision=decision, note=arguments.note, question=stage.questions)
    store.put_approval(run.run_id, answer)
    if run.on_workers:
        return _answered_on_workers(run, holder, stage, decision, arguments, goes_on=goes_on)
    if holder is None and goes_on:
        return _continue_answered(run, answer, arguments)
    continues = f"no process is working on the run: `codeloupe pipeline resume {run.run_id}` continues it"
    if holder is not None:
        process = holder.name if holder.process_id else "the process that runs it"
        continues = f"{process} continues with it"
    return _confirm(run, holder, stage, decision, arguments, continues)


def _continue_answered(run: RunRecord, answer: Approval, arguments: argparse.Namespace) -> int:
    """Continue a run on this machine after an answer. If that is refused, a retry is taken back."""
    try:
        return go_on(lambda runtime, given: runtime.resume_run(run.run_id, options=given), arguments)
    except UsageError as error:
        if answer.decision is Decision.RETRY:
            error.hint = error.hint.replace("--accept-changes`", f"--accept-changes --retry {answer.stage}`")
            # Otherwise the stage would be run again, to the user's surprise, when the run is resumed later.
            open_store().remove_approval(run.run_id, answer)
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
        return continue_on_workers(run, arguments)
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
        write_run(run, arguments, holder=holder)
        note(words)
    else:
        print(terminal(words))
    return 0


def stage_in(run: RunRecord, name: str, states: Sequence[StageState], *, refusal: str) -> StageRecord:
    """Return the stage with a name, which must be in one of some states. Raise UsageError."""
    fitting = [stage.name for stage in run.stages if stage.state in states]
    hint = f"see `codeloupe pipeline status {run.run_id}`"
    if fitting:
        hint = f"did you mean {' or '.join(fitting)}?"
    stage = next((stage for stage in run.stages if stage.name == name), None)
    if stage is None:
        known = ", ".join(stage.name for stage in run.stages)
        raise UsageError(f"the run {run.run_id} has no stage {name!r}; it has {known}", hint=hint)
    if stage.state not in states:
        state = report.stage_text(stage)
        raise UsageError(f"the stage {name!r} of the run {run.run_id} {refusal}; its state is {state}", hint=hint)
    return stage
