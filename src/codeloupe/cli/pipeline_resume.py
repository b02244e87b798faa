"""`codeloupe pipeline resume`: go on with a run that stopped."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.pipeline_answers import leave_word, stage_for
from codeloupe.cli.pipeline_carrying import carry
from codeloupe.cli.pipeline_place import as_shown, find_run, open_store, write_run, write_word
from codeloupe.errors import UsageError
from codeloupe.model.pipeline import Decision, StageState
from codeloupe.pipelines import resume_run

_CAN_BE_TRIED_AGAIN = (StageState.AWAITING_APPROVAL, StageState.FAILED, StageState.INTERRUPTED)


def run(arguments: argparse.Namespace) -> int:
    """Go on from where it stopped; what is finished is neither run nor bought again. Raises RunBusy."""
    if arguments.note and arguments.retry is None:
        raise UsageError("--note is for --retry", hint="give --retry STAGE as well")
    store = open_store()
    run_id = find_run(store, arguments.run)
    record, holder = as_shown(store, run_id)
    if arguments.retry is not None:
        stage = stage_for(record, arguments.retry, _CAN_BE_TRIED_AGAIN, refusal="so it cannot be tried again")
        told = leave_word(store, record, stage, Decision.RETRY, note=arguments.note, holder=holder)
        if holder is not None:
            write_word(told, record, store, arguments, holder=holder)
            return 0
    elif record.state is StageState.COMPLETED:
        write_run(record, store, arguments)
        if not arguments.quiet:
            print("codeloupe: the run is completed; there is nothing to go on with", file=sys.stderr)
        return 0
    return carry(lambda options: resume_run(run_id, options=options), arguments)
