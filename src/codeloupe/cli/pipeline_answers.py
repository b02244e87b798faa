"""What a person may say about a stage, and how the word reaches the run."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageRecord, StageState
from codeloupe.reports.pipeline_words import state_in_words
from codeloupe.store.run_lock import Holder
from codeloupe.store.run_store import DirectoryRunStore

_DONE = {Decision.APPROVE: "approved", Decision.REJECT: "rejected", Decision.RETRY: "to be tried again"}


def stage_for(run: RunRecord, name: str, states: Sequence[StageState], *, refusal: str) -> StageRecord:
    """The stage of that name. Raises UsageError when there is none, or when it is in no state for what is asked."""
    fitting = [stage.name for stage in run.stages if stage.state in states]
    hint = f"did you mean {' or '.join(fitting)}?" if fitting else f"see `codeloupe pipeline status {run.run_id}`"
    try:
        stage = run.stage(name)
    except KeyError as error:
        known = ", ".join(stage.name for stage in run.stages)
        raise UsageError(f"the run {run.run_id} has no stage {name!r}; it has {known}", hint=hint) from error
    if stage.state not in states:
        raise UsageError(
            f"the stage {name!r} of the run {run.run_id} {refusal}; its state is {state_in_words(stage.state)}",
            hint=hint,
        )
    return stage


def leave_word(
    store: DirectoryRunStore,
    run: RunRecord,
    stage: StageRecord,
    decision: Decision,
    *,
    note: str,
    holder: Holder | None,
) -> str:
    """Leave a person's word for a run; what to tell that person."""
    store.put_approval(run.run_id, Approval(stage=stage.name, decision=decision, note=note))
    done = f"{stage.name} of the run {run.run_id} is {_DONE[decision]}"
    if holder is not None:
        other = "the process that runs it" if holder.process_id is None else f"process {holder.process_id}"
        return f"{done}; {other} continues with it"
    return f"{done}; no process is working on the run: `codeloupe pipeline resume {run.run_id}` continues it"
