"""`codeloupe pipeline approve` and `reject`: a person's word on a stage that waits."""

from __future__ import annotations

import argparse
from importlib import import_module

from codeloupe.cli.pipeline_answers import leave_word, stage_for
from codeloupe.cli.pipeline_place import as_shown, find_run, open_store, write_word
from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.pipeline import Decision, StageState
from codeloupe.reports.pipeline_words import advised_command, has_work

_DECISIONS = {"approve": Decision.APPROVE, "reject": Decision.REJECT}


def run(arguments: argparse.Namespace) -> int:
    """Leave the word; a process that waits for it goes on at once. With --resume, else go on here."""
    store = open_store()
    run_id = find_run(store, arguments.run)
    record, holder = as_shown(store, run_id)
    stage = stage_for(record, arguments.stage, [StageState.AWAITING_APPROVAL], refusal="is not waiting for an answer")
    decision = _DECISIONS[arguments.action]
    if decision is Decision.APPROVE and not has_work(stage):
        raise UsageError(
            f"the stage {stage.name!r} of the run {run_id} has no work to approve: {stage.reason}",
            hint=f"`{advised_command(stage) or f'codeloupe pipeline resume {run_id} --retry {stage.name}'}` tries it"
            f" again; `codeloupe pipeline reject {run_id} {stage.name} --resume` fails it",
        )
    told = leave_word(store, record, stage, decision, note=arguments.note, holder=holder)
    if holder is None and arguments.resume:
        # What runs pipelines takes long to load, and most answers need none of it.
        carry = import_module("codeloupe.cli.pipeline_carrying").carry
        try:
            exit_code: int = carry(lambda runtime, options: runtime.resume_run(run_id, options=options), arguments)
        except (UsageError, ConfigError) as error:
            # The hint names what goes on, and then the answer counts.
            error.hint = f"{error.hint}; your answer is kept until then"
            raise
        return exit_code
    write_word(told, record, store, arguments, holder=holder)
    return 0
