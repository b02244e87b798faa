"""What the verbs about runs share: the store, which run is meant, and how a run is shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.cli.options import look_of
from codeloupe.cli.writing import write_result
from codeloupe.errors import RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import NO_RESULT, RunRecord, StageState
from codeloupe.reports.history_words import moment
from codeloupe.reports.pipeline_json import run_json
from codeloupe.reports.pipeline_text import Places, render_run
from codeloupe.reports.pipeline_words import as_it_stands, state_in_words
from codeloupe.store.location import state_directory
from codeloupe.store.run_lock import Holder
from codeloupe.store.run_store import RUNS_DIRECTORY, DirectoryRunStore
from codeloupe.system.redaction import is_secret
from codeloupe.system.untrusted import terminal

LAST = "last"
FIRST_STEP = "`codeloupe pipeline run FILE` makes the first"
_LIST = "`codeloupe pipeline list` shows what there is"
_CANDIDATES = 8


def open_store() -> DirectoryRunStore:
    """The runs of this user. Nothing is made or read yet. Raises StoreError when nothing names a place."""
    return DirectoryRunStore(state_directory(os.environ) / RUNS_DIRECTORY)


def find_run(store: DirectoryRunStore, word: str) -> str:
    """The id of the run that a word names: an id, the beginning of one, or `last`. Raises RunNotFound in words.

    Whether the state of that run can be read is not looked at, but for `last`.
    """
    if word == LAST:
        return _last(store)
    found = store.matching(word)
    if word in found:
        return word
    if len(found) == 1:
        return found[0]
    if found:
        names = "".join(f"\n  {name}" for name in found[:_CANDIDATES])
        more = "\n  and more" if len(found) > _CANDIDATES else ""
        raise UsageError(f"{word!r} is the beginning of several runs:{names}{more}", hint="give more characters of one")
    raise _unknown(store, word)


def as_shown(store: DirectoryRunStore, run_id: str) -> tuple[RunRecord, Holder | None]:
    """A run as it really is, and the process that works on it."""
    # Asked first: whoever works on it may end between the two, and has then written the last state before.
    holder = store.holder(run_id)
    return as_it_stands(store.load(run_id), busy=holder is not None), holder


def places_of(run: RunRecord, directory: Path) -> Places:
    """Where the result and the patch of a run are, as far as they are there and are those of its present state."""
    result, patch = directory / "result", directory / "result.patch"
    if run.state not in (StageState.COMPLETED, StageState.FAILED) or NO_RESULT in run.reason:
        return Places(directory=directory)
    return Places(
        directory=directory,
        result=result if result.is_dir() and any(result.iterdir()) else None,
        patch=patch if patch.is_file() and patch.stat().st_size else None,
    )


def write_run(
    run: RunRecord,
    store: DirectoryRunStore,
    arguments: argparse.Namespace,
    *,
    holder: Holder | None = None,
    exit_code: int | None = None,
) -> None:
    """Show a run on standard output, as text or for programs, with an exit code that does not follow from it."""
    places = places_of(run, store.directory(run.run_id))
    if arguments.json:
        run = replace(run, inputs={name: _shown(run, name, value) for name, value in run.inputs.items()})
        process_id = None if holder is None else holder.process_id
        write_result(run_json(run, places, busy=holder is not None, process_id=process_id, exit_code=exit_code))
        return
    look = look_of(arguments.color)
    write_result(
        render_run(
            run,
            places,
            width=look.width,
            color=look.color,
            ascii_only=look.ascii_only,
            verbose=arguments.verbose,
        )
    )


def _shown(run: RunRecord, name: str, value: str) -> str:
    return "[redacted]" if name in run.secret_inputs or is_secret(name, value) else value


def write_word(
    told: str, run: RunRecord, store: DirectoryRunStore, arguments: argparse.Namespace, *, holder: Holder | None
) -> None:
    """Tell that a person's word was left. A program gets the run as it was before it, and the words beside it."""
    if arguments.json:
        write_run(run, store, arguments, holder=holder)
        print(f"codeloupe: {terminal(told)}", file=sys.stderr)
    else:
        print(terminal(told))


def _last(store: DirectoryRunStore) -> str:
    runs, problems = store.list()
    if runs:
        return runs[0].run_id
    if problems:
        raise StoreError(f"no run can be read: {next(iter(problems.values()))}", hint=_LIST)
    raise RunNotFound("there is no run of a pipeline yet", hint=FIRST_STEP)


def _unknown(store: DirectoryRunStore, word: str) -> RunNotFound:
    runs, problems = store.list()
    if not runs:
        hint = _LIST if problems else FIRST_STEP
        return RunNotFound(f"there is no run {word!r}, nor any that can be read", hint=hint)
    return RunNotFound(f"there is no run {word!r}; the newest are:{in_short(runs[:_CANDIDATES])}", hint=_LIST)


def in_short(runs: Sequence[RunRecord]) -> str:
    """A line for each run, whatever the name of its pipeline holds."""
    return "".join(
        f"\n  {run.run_id}  {moment(run.started_at)}  {state_in_words(run.state)}  {_cut(run.pipeline)}" for run in runs
    )


def _cut(name: str) -> str:
    return " ".join(name.split())[:60]
