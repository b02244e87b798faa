"""The runs that `codeloupe pipeline` commands mean: by id, by `last`, or without a word the run that the command fits.

Without an id, `resume`, `approve` and `reject` mean a run of this repository. A run that works in no repository belongs
to every place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from codeloupe.config.files import repository_root
from codeloupe.config.loading import database_url
from codeloupe.errors import RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import ENDED_STATES, RunRecord, StageRecord, StageState
from codeloupe.reports import pipeline as report
from codeloupe.reports.history import moment
from codeloupe.store import open_database, open_run_store
from codeloupe.store.interface import RunStore
from codeloupe.store.runs import Holder
from codeloupe.store.sqlite import state_directory
from codeloupe.system.regex import regex

FIRST_STEP = "`codeloupe pipeline run FILE` starts the first"
_LIST = "`codeloupe pipeline list` lists all runs"
_LAST = regex(r"last(?:~([0-9]{1,6}))?")
_MOST_LISTED = 8


class FoundRun(NamedTuple):
    """A run as it is now, and the process that works on it, if there is one."""

    record: RunRecord
    holder: Holder | None


def open_store() -> RunStore:
    """Return the runs of this user, or of the shared database. Nothing is made or read yet. Raise StoreError."""
    return _store_at(database_url(os.environ), state_directory(os.environ))


@cache
def _store_at(url: str | None, directory: Path) -> RunStore:
    # One store for everything that a command does, because connecting to a server takes longer than asking it.
    return open_run_store(open_database(url, directory), directory)


def load_run(run_id: str) -> FoundRun:
    """Return a run as it is now. Raise RunNotFound or StoreError."""
    store = open_store()
    # The holder is read first: a process that ends between the two reads has then written the last state before.
    holder = store.holder(run_id)
    return FoundRun(report.as_it_is(store.load(run_id), busy=holder is not None), holder)


def find_run(word: str) -> str:
    """Return the id that a word names: an id, its unique beginning, `last` or `last~1`. Raise RunNotFound."""
    last = _LAST.fullmatch(word)
    if last is not None:
        return _counted_back(int(last[1] or 0))
    if not word:
        words = f"the id of the run is empty; runs to choose from:{_listed(_all_runs())}"
        raise UsageError(words, hint="give an id, the beginning of one, or `last`")
    # A run whose state cannot be read has a name all the same.
    store = open_store()
    found = store.matching(word)
    if word in found:
        return word
    if len(found) == 1:
        return found[0]
    if found:
        names = [f"\n  {name}" for name in found[:_MOST_LISTED]]
        if len(found) > _MOST_LISTED:
            names.append(f"\n  and {len(found) - _MOST_LISTED} more")
        words = f"{word!r} matches several runs:{''.join(names)}"
        raise UsageError(words, hint="give more characters of one")
    raise RunNotFound(f"no run {word!r} in {store.name}", hint=_LIST)


def _counted_back(steps: int) -> str:
    """Return the id of the newest run, or of the one that is so many rows below it in `pipeline list`."""
    runs = _all_runs()
    if steps >= len(runs):
        raise RunNotFound(f"no run last~{steps}: the oldest is last~{len(runs) - 1}", hint=_LIST)
    return runs[steps].run_id


def is_run(word: str) -> bool:
    """Return whether a word names a run, or is the beginning of several."""
    return _LAST.fullmatch(word) is not None or bool(open_store().matching(word))


def run_to_resume() -> FoundRun:
    """Return the newest unfinished run of this repository that no process works on. Raise RunNotFound, UsageError."""
    others: list[FoundRun] = []
    for record in _all_runs():
        if record.state in ENDED_STATES:
            continue
        found = load_run(record.run_id)
        if found.holder is None and _is_here(record):
            return found
        others.append(found)
    if not others:
        hint = "`codeloupe pipeline resume RUN --retry STAGE` runs a stage of a finished run again"
        raise UsageError("no run is unfinished", hint=hint)
    lines = [f"\n  {run_line(each.record, each.holder)}" for each in others[:_MOST_LISTED]]
    words = f"no run of this repository can be resumed; unfinished runs elsewhere, or at work:{''.join(lines)}"
    raise UsageError(words, hint="name one: `codeloupe pipeline resume RUN`, or `status RUN --follow` for one at work")


def run_to_retry(stage: str) -> FoundRun:
    """Return the newest run of this repository that has a stage. Raise RunNotFound, UsageError."""
    runs = _all_runs()
    here = [record for record in runs if _is_here(record)]
    for record in here:
        if any(each.name == stage for each in record.stages):
            return load_run(record.run_id)
    if here:
        words = f"no run of this repository has a stage {stage!r}; its runs:{_listed(here)}"
    else:
        words = f"this repository has no run; runs elsewhere:{_listed(runs)}"
    raise UsageError(words, hint="name a run and one of its stages: `codeloupe pipeline resume RUN --retry STAGE`")


def run_to_answer(verb: str) -> FoundRun:
    """Return the one run of this repository that waits for an answer. Raise RunNotFound, UsageError."""
    waiting = [record for record in _all_runs() if waiting_stages(record)]
    here = [record for record in waiting if _is_here(record)]
    if len(here) == 1:
        return load_run(here[0].run_id)
    if here:
        words = f"several runs wait for an answer:{_listed(here)}"
    elif waiting:
        words = f"no run of this repository waits for an answer; runs that wait elsewhere:{_listed(waiting)}"
    else:
        raise UsageError("no run waits for an answer", hint="`codeloupe pipeline status` shows the last run")
    raise UsageError(words, hint=f"name one: `codeloupe pipeline {verb} RUN`")


def choose_a_run(verb: str) -> NoReturn:
    """Raise UsageError with the newest runs, for a command that must not choose one itself."""
    words = f"pipeline {verb} needs the id of a run; runs to choose from:{_listed(_all_runs())}"
    raise UsageError(words, hint=f"name one: `codeloupe pipeline {verb} RUN`")


def waiting_stages(run: RunRecord) -> list[StageRecord]:
    """Return the stages of a run that wait for a person."""
    return [stage for stage in run.stages if stage.state is StageState.AWAITING_APPROVAL]


def run_line(run: RunRecord, holder: Holder | None = None) -> str:
    """Describe a run in a line: id, pipeline, state with the stages that wait, and when it started."""
    state = report.state_text(run.state)
    stages = ", ".join(stage.name for stage in waiting_stages(run))
    if stages:
        state = f"awaiting approval ({stages})"
    if holder is not None:
        state = f"{state}, {holder} is working on it"
    return f"{run.run_id}  {run.pipeline}, {state}, started {moment(run.started_at)}"


def _all_runs() -> Sequence[RunRecord]:
    """Return all runs that can be read, the newest first. Raise RunNotFound or StoreError if there is none."""
    runs, problems = open_store().list()
    if runs:
        return runs
    if problems:
        raise StoreError(f"no run can be read: {next(iter(problems.values()))}", hint=_LIST)
    raise RunNotFound("no pipeline has been run yet", hint=FIRST_STEP)


def _is_here(run: RunRecord) -> bool:
    """Return whether a run works in this repository, or in none."""
    if run.repository is None:
        return True
    # A path of another machine means nothing here.
    is_ours = run.home == open_store().home
    return is_ours and os.path.realpath(run.repository) == str(repository_root(Path()))


def _listed(runs: Sequence[RunRecord]) -> str:
    lines = [f"\n  {run_line(run)}" for run in runs[:_MOST_LISTED]]
    if len(runs) > _MOST_LISTED:
        lines.append(f"\n  and {len(runs) - _MOST_LISTED} more")
    return "".join(lines)
