"""`codeloupe pipeline resume`: go on with a run that stopped."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.pipeline_answers import leave_word, stage_for
from codeloupe.cli.pipeline_carrying import carry
from codeloupe.cli.pipeline_place import as_shown, find_run, open_store, write_run, write_word
from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.pipeline import Decision, StageState

_CAN_BE_TRIED_AGAIN: tuple[StageState, ...] = (
    StageState.AWAITING_APPROVAL,
    StageState.FAILED,
    StageState.INTERRUPTED,
    StageState.COMPLETED,
)
# Whoever works on the run takes a word on a stage that waits, and on no other.
_CAN_BE_TOLD: tuple[StageState, ...] = (StageState.AWAITING_APPROVAL,)


def run(arguments: argparse.Namespace) -> int:
    """Go on from where it stopped; what is finished is neither run nor bought again. Raises RunBusy."""
    if arguments.note and arguments.retry is None:
        raise UsageError("--note is for --retry", hint="give --retry STAGE as well")
    store = open_store()
    run_id = find_run(store, arguments.run)
    record, holder = as_shown(store, run_id)
    if arguments.retry is not None:
        states, refusal = _CAN_BE_TRIED_AGAIN, "cannot be tried again"
        if holder is not None:
            states, refusal = _CAN_BE_TOLD, f"cannot be tried again while {holder} is working on the run"
        stage = stage_for(record, arguments.retry, states, refusal=refusal)
        told = leave_word(store, record, stage, Decision.RETRY, note=arguments.note, holder=holder)
        if holder is not None:
            write_word(told, record, store, arguments, holder=holder)
            return 0
    elif record.state is StageState.COMPLETED and not arguments.accept_changes:
        write_run(record, store, arguments)
        if not arguments.quiet:
            print("codeloupe: the run is completed; there is nothing left to do", file=sys.stderr)
        return 0
    try:
        return carry(lambda runtime, options: runtime.resume_run(run_id, options=options), arguments)
    except (UsageError, ConfigError) as error:
        if arguments.retry is not None:
            error.hint = error.hint.replace("--accept-changes`", f"--accept-changes --retry {arguments.retry}`")
            # What was refused is not done by surprise when the run goes on later.
            store.take_approval(run_id, arguments.retry)
        raise
