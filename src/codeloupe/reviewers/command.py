"""Reviewers that are other programs, and the one that is any program which reads a diff and prints findings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import ReviewFormat
from codeloupe.errors import ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.git.unified_diff import unified_diff
from codeloupe.model.agent import Usage
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Claim, Source
from codeloupe.model.ports import EventSink, Plan, ReviewerResult
from codeloupe.model.review import FailedUnit, Level, ReviewerInfo, ReviewError, Verdict
from codeloupe.reviewers.anchor import Anchorer, Origin
from codeloupe.reviewers.answers import (
    EMPTY_OUTPUT,
    INVALID_ANSWER,
    RawClaim,
    is_worse,
    redacted_start,
    verdict_of,
)
from codeloupe.reviewers.formats import read_output
from codeloupe.source.files import TextReader
from codeloupe.system.directories import temporary_directory
from codeloupe.system.logs import log_failure
from codeloupe.system.process import Command, Completed, find_program, program_environment, stream
from codeloupe.system.redaction import redact

TIMEOUT = "timeout"
FATAL = "fatal"
FAILED = "external_failed"
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
_DETAIL_CHARACTERS = 64 * 1024
_LINE_CHARACTERS = 600
_TAIL_CHARACTERS = 400
_MAX_NOTES = 20
_log = logging.getLogger(__name__)


class Reply(Struct, frozen=True, kw_only=True):
    """The result of a run of an external reviewer.

    `kind` is a short stable word if the run is not a complete review; then `reason` is the phrase for coverage,
    `words` say more if there is more to say, and `raw` is the output. `completed` names the reporters that reviewed
    the whole change.
    """

    kind: str = ""
    reason: str = ""
    words: str = ""
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    completed: frozenset[str] = frozenset()
    raw: str = ""


class ExternalReviewer:
    """A program that reviews the whole change in one run. `_usage` is what a run costs."""

    info: ReviewerInfo
    _usage = Usage()

    def _refusal(self, plan: Plan) -> str:
        """Return why the program is not started for this change, or an empty text."""
        raise NotImplementedError

    async def _ask(self, plan: Plan) -> Reply:
        raise NotImplementedError

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        """Review the whole change. Failures are in the result; only cancellation is raised."""
        started = time.monotonic()
        usage = Usage()
        refusal = self._refusal(plan)
        if refusal:
            reply = Reply(kind=FAILED, reason=refusal)
        else:
            usage = self._usage
            reply = await self._asked(plan)
        usage = replace(usage, duration_seconds=time.monotonic() - started)
        return self._result(plan, reply, usage, emit)

    async def _asked(self, plan: Plan) -> Reply:
        try:
            return await self._ask(plan)
        except ProcessError as error:
            return _reply_of_error(error)
        except Exception as error:  # noqa: BLE001 - any error that its output leads to is a failure of this reviewer
            log_failure(_log, error, "the reviewer %s failed", self.info.type)
            return Reply(kind=FAILED, reason=f"unexpected error: {type(error).__name__}: {error}")

    def _result(self, plan: Plan, reply: Reply, usage: Usage, emit: EventSink) -> ReviewerResult:
        reviewer = self.info.type
        errors: list[ReviewError] = []
        for note in _first_notes(reply.notes):
            message = f"{reviewer} reports: {_one_line(note)}"
            errors.append(ReviewError("external_note", message, level=Level.NOTE))
            emit(Warned(message, Level.NOTE))
        paths = tuple(file.path for file in plan.files)
        if not reply.kind:
            emit(LaneFinished(reviewer, len(reply.claims), usage.duration_seconds, None))
            completed = dict.fromkeys(reply.completed, frozenset(paths))
            return ReviewerResult(
                claims=reply.claims, completed=completed, units_total=1, errors=tuple(errors), usage=usage
            )
        reason = _one_line(reply.reason)
        words = _one_line(reply.words or reply.reason)
        errors.append(ReviewError(reply.kind, f"{reviewer} could not review: {words}", _detail(reply.raw)))
        emit(LaneFinished(reviewer, len(reply.claims), usage.duration_seconds, reason))
        return ReviewerResult(
            claims=reply.claims,
            units_total=1,
            units_failed=(FailedUnit(reviewer, paths, reason),),
            errors=tuple(errors),
            usage=usage,
        )


def _reply_of_error(error: ProcessError) -> Reply:
    words = error.message
    if error.hint:
        words = f"{error.message} ({error.hint})"
    if isinstance(error, ProcessTimedOut):
        return Reply(kind=TIMEOUT, reason=TIMEOUT, words=words)
    if isinstance(error, ProgramNotFound):
        # A retry does not install a program.
        return Reply(kind=FATAL, reason=words)
    return Reply(kind=FAILED, reason=words)


def _first_notes(notes: Sequence[str]) -> list[str]:
    more = len(notes) - _MAX_NOTES
    shown = list(notes[:_MAX_NOTES])
    if more > 0:
        shown.append(f"and {more:,} more like these")
    return shown


def _one_line(text: str) -> str:
    """Return a text without secrets, on one line of limited length."""
    line = " ".join(redact(text).split())
    return line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]} ..."


def _detail(raw: str) -> str:
    """Return the beginning of the raw output, without secrets."""
    start = redacted_start(raw, _DETAIL_CHARACTERS)
    more = len(raw) - _DETAIL_CHARACTERS
    if more <= 0:
        return start
    return f"{start}\n[... {more:,} more characters ...]"


def tail(text: str) -> str:
    """Return the end of a program's output on one line, without secrets."""
    line = " ".join(redact(text).split())
    return line if len(line) <= _TAIL_CHARACTERS else f"... {line[-_TAIL_CHARACTERS:]}"


def found_program(name: str, hint: str) -> str:
    """Return the absolute path of a program, since it is started in another directory. Raise ProgramNotFound."""
    found = find_program(name)
    if found is None:
        raise ProgramNotFound(f"the program {name} was not found", program=name, hint=hint)
    return str(Path(found).absolute())


def placed(claims: Iterable[RawClaim], plan: Plan, *, reviewer: str) -> tuple[Claim, ...]:
    """Return claims with their places. A line without a quote is believed; a claim without a place is kept."""
    anchorer = Anchorer(plan.files, TextReader(plan).read, believes="any")
    paths = tuple(file.path for file in plan.files)
    found: list[Claim] = []
    for raw in claims:
        origin = Origin(reporter=reporter_name(reviewer, raw.reporter), source=Source.EXTERNAL)
        found.append(anchorer.place(raw, origin, unit_files=paths))
    return tuple(found)


def reporter_name(reviewer: str, reporter: str) -> str:
    """Return the name of a reporter, which an external reviewer may ask on its behalf."""
    return f"{reviewer}/{reporter}" if reporter else reviewer


def reporters_of(plan: Plan, reviewer: str, claims: Iterable[Claim]) -> frozenset[str]:
    """Return all names that a reviewer reports under: its own, and those of reporters in this and earlier rounds."""
    names = {reviewer}
    for claim in claims:
        names.add(claim.reporter)
    for finding in plan.known:
        for claim in finding.claims:
            if claim.reporter.startswith(f"{reviewer}/"):
                names.add(claim.reporter)
    return frozenset(names)


def unexplained_verdict(stated: Verdict | None, claims: Iterable[Claim]) -> str:
    """Return a reason if a verdict is worse than the claims on the reviewed files give, or an empty text."""
    given = verdict_of(claim for claim in claims if claim.anchored)
    if stated is None or not is_worse(stated, given):
        return ""
    return f"its verdict is {stated.value}, but its findings on reviewed files give {given.value}"


class CommandReviewer(ExternalReviewer):
    """Runs a program on the diff of a change and reads its output in the declared format.

    It runs in the reviewed tree, or in an empty directory if the change is not trusted. An exit code other than 0 and 1
    is a failure; findings that were printed are kept. Linters exit with 1 if they report findings, so 1 is a failure
    without a finding on the reviewed files. A program without output has failed, since one that did not work prints
    nothing, too.
    """

    def __init__(self, argv: Sequence[str], *, info: ReviewerInfo, output_format: ReviewFormat = "findings") -> None:
        if not argv or not argv[0]:
            raise ValueError("a command has at least the name of a program")
        self._argv = tuple(argv)
        self._format: ReviewFormat = output_format
        self.info = info

    def _refusal(self, plan: Plan) -> str:
        name = self._argv[0]
        is_relative = "/" in name and not Path(name).is_absolute()
        if plan.trusted or not is_relative:
            return ""
        why = f"{name} is a relative path, which may lead into the untrusted change"
        return f"{why} (name the program by an absolute path, or by a name on the PATH)"

    async def _ask(self, plan: Plan) -> Reply:
        program = found_program(self._argv[0], "install it, or name it by an absolute path")
        with ExitStack() as stack:
            directory = plan.tree or plan.snapshot
            if not plan.trusted:
                # Programs read settings from their directory, and those of strangers may run anything.
                directory = stack.enter_context(temporary_directory())
            command = Command(
                argv=(program, *self._argv[1:]),
                cwd=directory,
                environment=program_environment(),
                timeout_seconds=plan.timeout_seconds,
                max_output_bytes=MAX_OUTPUT_BYTES,
                stdin=unified_diff(plan.files),
            )
            completed = await stream(command)
        # A thread, because much output takes time that the event loop should not wait for.
        return await asyncio.to_thread(self._read, completed, plan)

    def _read(self, completed: Completed, plan: Plan) -> Reply:
        if completed.stdout_truncated:
            reason = f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes, so its output is not complete"
            return Reply(kind=FAILED, reason=reason)
        output = completed.stdout.decode("utf-8", "replace")
        answer = read_output(output, self._format, trusted=plan.trusted)
        if answer.problem == EMPTY_OUTPUT and completed.exit_code:
            return Reply(kind=FAILED, reason=_ending(completed))
        claims = placed(answer.claims, plan, reviewer=self.info.type)
        reply = Reply(claims=claims, notes=answer.invalid, raw=output)
        if answer.problem:
            words = ""
            if completed.exit_code:
                words = f"{answer.problem}; {_ending(completed)}"
            return replace(reply, kind=INVALID_ANSWER, reason=answer.problem, words=words)
        if completed.exit_code not in (0, 1) or (completed.exit_code and not claims):
            return replace(reply, kind=FAILED, reason=_ending(completed))
        if completed.exit_code and not any(claim.anchored for claim in claims):
            return replace(reply, kind=FAILED, reason=f"no finding on the reviewed files says why {_ending(completed)}")
        unexplained = unexplained_verdict(answer.verdict, claims)
        if unexplained:
            return replace(reply, kind=FAILED, reason=unexplained)
        return Reply(claims=claims, completed=reporters_of(plan, self.info.type, claims))


def _ending(completed: Completed) -> str:
    ended = f"it ended with exit code {completed.exit_code}"
    if completed.exit_code < 0:
        ended = f"it ended with signal {-completed.exit_code}"
    words = tail(completed.stderr)
    return f"{ended}: {words}" if words else ended
