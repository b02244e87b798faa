"""What an external reviewer gave, and the outcome that it makes."""

from __future__ import annotations

from msgspec import Struct

from codeloupe.engine.ask import shortened
from codeloupe.errors import CodeloupeError, ProcessTimedOut, ProgramNotFound
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewError
from codeloupe.model.usage import Usage
from codeloupe.system.redaction import redact

TIMEOUT = "timeout"
FATAL = "fatal"
FAILED = "external_failed"
_NOTE = "external_note"
_MOST_NOTES = 20
_DETAIL_CHARACTERS = 64 * 1024


class Failure(Struct, frozen=True):
    """Why nothing, or not everything, came of it. `kind` is a short stable word, `reason` the phrase for coverage.

    `words` says more than the reason where there is more to say.
    """

    kind: str
    reason: str
    words: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """Findings, what is missing, and what else is worth telling. `raw` is the output that could not be read."""

    findings: tuple[Finding, ...] = ()
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    raw: str = ""


def failed(kind: str, reason: str, *, raw: str = "") -> Reply:
    """A reply without findings."""
    return Reply(failure=Failure(kind, reason), raw=raw)


def could_not_run(error: CodeloupeError) -> Reply:
    """The reply of a program that did not start or did not end. The reason of a timeout is that one word."""
    words = f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, ProcessTimedOut):
        return Reply(failure=Failure(TIMEOUT, TIMEOUT, words))
    # Trying again does not install a program.
    return failed(FATAL if isinstance(error, ProgramNotFound) else FAILED, words)


def tail(text: str, most: int = 400) -> str:
    """The last words of a program on one line, without secrets."""
    line = " ".join(redact(text).split())
    return line if len(line) <= most else f"... {line[-most:]}"


def outcome_of(reply: Reply, task: ReviewTask, *, lane: str, usage: Usage, emit: EventSink) -> ReviewerOutcome:
    """The outcome of the one unit that the whole change is to an external reviewer; tells how it ended."""
    files = tuple(file.path for file in task.files)
    units: tuple[FailedUnit, ...] = ()
    errors = [ReviewError(_NOTE, f"{lane}: {shortened(redact(note))}") for note in _some(reply.notes)]
    for note in errors:
        emit(Warned(note.message))
    reason: str | None = None
    if reply.failure is not None:
        reason = shortened(redact(reply.failure.reason))
        units = (FailedUnit(lane, files, reason),)
        words = shortened(redact(reply.failure.words or reply.failure.reason))
        errors.append(ReviewError(reply.failure.kind, f"{lane} could not review: {words}", _detail(reply.raw)))
    emit(LaneFinished(lane, len(reply.findings), usage.duration_seconds, reason))
    unreviewed = frozenset(files) if units and not reply.findings else frozenset()
    return ReviewerOutcome(reply.findings, 1, units, tuple(errors), usage, unreviewed)


def _some(notes: tuple[str, ...]) -> tuple[str, ...]:
    left = len(notes) - _MOST_NOTES
    return notes if left <= 0 else (*notes[:_MOST_NOTES], f"and {left:,} more like these")


def _detail(raw: str) -> str:
    if len(raw) > _DETAIL_CHARACTERS:
        raw = f"{raw[:_DETAIL_CHARACTERS]}\n[... {len(raw) - _DETAIL_CHARACTERS:,} more characters ...]"
    return redact(raw)
