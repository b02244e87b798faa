"""Runs as they are stored: names, states and journals as bytes and back, and the errors about them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath

from msgspec import Struct

from codeloupe.errors import AnswerReplaced, RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, Moment, PipelineEvent, RunRecord
from codeloupe.store.leases import Lease
from codeloupe.store.owner import Owner
from codeloupe.store.records import FromNewerVersion, Unreadable, from_json, pack, read_json, to_json, unpack
from codeloupe.system.regex import regex

# The version changes if an older program can no longer read what is written, not if a field is added.
VERSION = 1
_RUN_ID = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LIST = "`codeloupe pipeline list` lists the runs"


class Holder(Struct, frozen=True):
    """The process that works on a run, as far as it is known. `host` is empty for this machine."""

    process_id: int | None = None
    since: Moment | None = None
    host: str = ""

    @property
    def name(self) -> str:
        """Return the process and, if it is on another machine, the host."""
        process = "another process"
        if self.process_id is not None:
            process = f"process {self.process_id}"
        return f"{process} on {self.host}" if self.host else process

    def __str__(self) -> str:
        if self.since is None:
            return self.name
        return f"{self.name} (since {self.since.isoformat(' ', 'seconds')})"


def holder_of(lease: Lease, *, host: str) -> Holder:
    """Return the holder of a lease, as seen from a host."""
    return Holder(
        process_id=lease.process_id,
        since=datetime.fromtimestamp(lease.since, UTC),
        host="" if lease.host == host else lease.host,
    )


def checked_name(run_id: str) -> str:
    """Return the id of a run. Raise RunNotFound for a text that cannot be one, such as a path."""
    if not _RUN_ID.fullmatch(run_id):
        message = f"{run_id!r} is not a valid run name: a letter or digit, then letters, digits, '-', '_' and '.'"
        raise RunNotFound(message, hint=_LIST)
    return run_id


def checked_path(name: str, run_id: str) -> str:
    """Return the name of a file of a run. Raise StoreError if it leads out of the run's directory."""
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        message = f"the file {name!r} of the run {run_id} is damaged in the database: its path is not valid in a run"
        raise StoreError(message, hint="restore the database from a backup, or start a new run")
    return name


def not_found(run_id: str) -> RunNotFound:
    """Return the error for a run that does not exist."""
    return RunNotFound(f"there is no run {run_id}", hint=_LIST)


def name_taken(run_id: str, place: str) -> StoreError:
    """Return the error for a new run whose name is taken."""
    return StoreError(f"the run {run_id} already exists ({place})", hint="use another name, or `remove` that run")


def busy(run_id: str, lease: Lease, *, host: str) -> RunBusy:
    """Return the error for a run that another process, or another part of this one, is working on."""
    here = Owner.here()
    owner = Owner.parse(lease.owner)
    if owner is not None and (owner.machine, owner.process_id) == (here.machine, here.process_id):
        return RunBusy(f"this process is already working on the run {run_id}", hint="wait until it ends")
    hint = f"`codeloupe pipeline status {run_id} --follow` shows its progress; wait, or stop that process"
    return RunBusy(f"the run {run_id} is busy: {holder_of(lease, host=host)} is working on it", hint=hint)


def lost(run_id: str, lease: Lease | None, *, host: str) -> RunBusy:
    """Return the error for a process that no longer holds the lock of a run."""
    reason = "another process took it over"
    if lease is not None:
        reason = f"{holder_of(lease, host=host)} is working on it"
    hint = f"nothing was overwritten; `codeloupe pipeline status {run_id}` shows its progress"
    return RunBusy(f"this process no longer owns the run {run_id}: {reason}", hint=hint)


def state_text(run: RunRecord) -> str:
    """Return a state as JSON on one line. Raise StoreError."""
    try:
        return to_json(run)
    except ValueError as error:
        message = f"cannot write the state of the run {run.run_id}: {error}"
        raise StoreError(message, hint="this is a bug; please report it") from error


def read_state(run_id: str, state: object, place: str) -> RunRecord:
    """Return the run of a stored state. Raise StoreError if it is damaged or from a newer version."""
    try:
        return _run_of(run_id, unpack(state))
    except FromNewerVersion as error:
        message = f"the state of the run {run_id} cannot be read: {error} ({place})"
        raise StoreError(message, hint="use the newer codeloupe") from error
    except Unreadable as error:
        message = f"the state of the run {run_id} is damaged: {error} ({place})"
        raise StoreError(message, hint="`codeloupe pipeline remove` removes a run whose state is lost") from error


def _run_of(run_id: str, text: str) -> RunRecord:
    document = read_json(text)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unreadable("it has no version, so it is not the state of a run")
    if version > VERSION:
        raise FromNewerVersion(f"a newer codeloupe wrote it (version {version}, this version reads {VERSION})")
    run = from_json(RunRecord, document)
    if run.run_id != run_id:
        raise Unreadable(f"it belongs to another run, {run.run_id!r}")
    return run


def read_events(payloads: Iterable[object]) -> tuple[PipelineEvent, ...]:
    """Return the events of a journal, with a note for each that cannot be read."""
    events: list[PipelineEvent] = []
    last = datetime.fromtimestamp(0, UTC)
    for number, payload in enumerate(payloads, start=1):
        try:
            event = from_json(PipelineEvent, read_json(unpack(payload)))
        except Unreadable as error:
            message = f"line {number} of the journal cannot be read: {error}"
            event = PipelineEvent(at=last, kind="note", message=message)
        events.append(event)
        last = event.at
    return tuple(events)


def approval_bytes(approval: Approval) -> bytes:
    """Return an approval as it is stored."""
    return pack(to_json(approval))


def read_approval(payload: object, run_id: str, stage: str) -> Approval:
    """Return a stored approval. Raise StoreError if it is damaged."""
    try:
        return from_json(Approval, read_json(unpack(payload)))
    except Unreadable as error:
        message = f"cannot read the answer on {stage!r} of the run {run_id}: {error}"
        raise StoreError(message, hint="give it again") from error


def answer_replaced(run_id: str, stage: str) -> AnswerReplaced:
    """Return the error for an answer that a newer one has replaced."""
    message = f"the answer on {stage!r} of the run {run_id} was replaced before it was applied"
    return AnswerReplaced(message, hint="resume the run; the newer answer counts")


def stage_key(stage: str) -> bytes:
    """Return the name of a stage as it is stored; it may contain any character."""
    return stage.encode("utf-8", "surrogatepass")


def path_key(name: str) -> bytes:
    """Return the name of a file as it is stored."""
    return os.fsencode(name)
