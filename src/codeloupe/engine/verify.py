"""Trying to refute what was found: each grave finding alone, with its code. Nothing is dropped here.

A refuted finding is kept with that status, an unproven one that has a place is lowered one step, and one that could not
be verified stays as it was and says so. A refutation needs a reason: without one it shows nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.engine.asking import Asker, CallOptions, Desk, Transcript, can_read_tree, for_each, warn
from codeloupe.engine.circuit import CircuitOpen
from codeloupe.engine.failures import NOT_VERIFIED, UNEXPECTED_ERROR, answer_in, failure_of, is_cut_off, shortened
from codeloupe.engine.light_diff import shown_line
from codeloupe.engine.parse.verification import read_verification
from codeloupe.engine.prompt import VERIFY_SCHEMA, PromptMaterial, excerpt_around, new_fence, verify_prompt
from codeloupe.engine.quoted_answer import QUOTED_ANSWER, is_quoted
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentLimits
from codeloupe.model.answer import Proof, Verification
from codeloupe.model.events import FindingVerified, StageStarted
from codeloupe.model.finding import Finding, FindingStatus, Source
from codeloupe.model.ports import AskAgent, EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewError
from codeloupe.model.severity import Severity

_CONTEXT_LINES = 25
_MOST_CHANGED_LINES = 400
_SIGNS = {"added": "+", "deleted": "-", "context": " "}
_log = logging.getLogger(__name__)


class VerifyOptions(Struct, frozen=True, kw_only=True):
    """What is verified, and how. `calls_at_once` as `units_at_once` of a review."""

    at_least: Severity = Severity.HIGH
    calls: CallOptions = CallOptions()
    calls_at_once: int = 64


class AgentVerifier:
    """Verifies with one agent, asked through `ask`, which has `limits`. `transcript` as for the reviewer."""

    def __init__(
        self,
        ask: AskAgent,
        *,
        limits: AgentLimits,
        options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
        transcript: Transcript | None = None,
    ) -> None:
        self._ask = ask
        self._limits = limits
        self._options = options
        self._transcript = transcript

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """All the findings, in order. Only claims that count, are grave and have a place are asked about."""
        started = time.monotonic()
        asker = Asker(self._ask, transcript=self._transcript)
        fence = new_fence()
        run = _Run(
            asker=asker,
            desk=Desk(task=task, limits=self._limits, calls=self._options.calls, fence=fence),
            material=PromptMaterial(
                fence=fence, can_read_tree=can_read_tree(self._limits, task), tree_is_partial=task.tree_is_partial
            ),
            text=TextReader(task),
            emit=emit,
            findings=list(findings),
        )
        wanted = [index for index, finding in enumerate(findings) if _is_wanted(finding, self._options.at_least)]
        if wanted:
            emit(StageStarted("verifying", f"{len(wanted)} finding{'' if len(wanted) == 1 else 's'}"))
        await for_each(wanted, run.verify, at_once=self._options.calls_at_once)
        usage = replace(asker.usage, duration_seconds=time.monotonic() - started)
        errors = tuple(error for _, error in sorted(run.errors.items(), key=lambda entry: entry[0]))
        return ReviewerOutcome(findings=tuple(run.findings), errors=errors, usage=usage)


class AbsentVerifier:
    """Stands where nobody can verify, though it is wanted: says so once there is something to verify."""

    def __init__(self, why: str, *, options: VerifyOptions = VerifyOptions()) -> None:  # noqa: B008 - frozen
        self._why = why
        self._options = options

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:  # noqa: ARG002 - as every verifier
        """All the findings as they are, and in `errors` that they are not verified."""
        grave = sum(_is_wanted(finding, self._options.at_least) for finding in findings)
        if not grave:
            return ReviewerOutcome(findings=tuple(findings))
        which = "1 finding" if grave == 1 else f"{grave:,} findings"
        message = f"{which} of {self._options.at_least.label} or above could not be verified: {self._why}"
        warn(message, emit)
        return ReviewerOutcome(findings=tuple(findings), errors=(ReviewError(NOT_VERIFIED, message),))


def _is_wanted(finding: Finding, at_least: Severity) -> bool:
    # What was verified in an earlier review and carried over is not asked about again, unless it keeps it from passing.
    is_known = bool(finding.verification) and finding.status is FindingStatus.OPEN and finding.anchored
    is_claim = finding.source is not Source.ANALYSER
    return is_claim and finding.is_open and finding.severity.at_least(at_least) and not is_known


class _Run(Struct, kw_only=True):
    """The findings of one verification, each replaced by what became of it."""

    asker: Asker
    desk: Desk
    material: PromptMaterial
    text: TextReader
    emit: EventSink
    findings: list[Finding]
    errors: dict[int, ReviewError] = field(default_factory=dict)

    async def verify(self, index: int) -> None:
        """Verify one finding and tell what became of it."""
        finding = self.findings[index]
        try:
            verification = await self._asked(finding)
        except CircuitOpen as stopped:
            self._could_not(index, stopped.failure.reason)
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, it takes nothing from the finding
            failure = failure_of(error)
            if failure.kind == UNEXPECTED_ERROR:
                _log.warning("the verification of %s failed", _place(finding), exc_info=True)
            self.asker.circuit.note_failure(error)
            self._could_not(index, failure.reason)
            return
        problem = _problem(verification)
        if problem is not None:
            self.asker.circuit.note_failure(OutputInvalid(problem, agent=""))
            self._could_not(index, problem)
            return
        self.asker.circuit.note_answer()
        self.findings[index] = verified(finding, verification)
        self.emit(FindingVerified(self.findings[index], verification.proof.value))

    async def _asked(self, finding: Finding) -> Verification:
        prompt = verify_prompt(finding, self._excerpt(finding), self.material)
        self.asker.warn_once(prompt.notes, self.emit)
        request = self.desk.request(prompt, unit=f"verify {_place(finding)}", schema=VERIFY_SCHEMA)
        try:
            result = await self.asker.answer(request, self.emit)
        except OutputInvalid as error:
            if is_cut_off(error):
                raise
            return self._unless_quoted(finding, answer_in(error))
        if result.structured is None:
            return self._unless_quoted(finding, result.output)
        return read_verification(result.output, result.structured)

    def _unless_quoted(self, finding: Finding, text: str) -> Verification:
        """What a text shows; what takes weight from a finding must not be quoted from the code that it is about."""
        verification = read_verification(text, None)
        if verification.problem is not None or verification.proof is Proof.CONFIRMED:
            return verification
        hunks = (hunk for file in self.desk.task.files for hunk in file.hunks)
        if not is_quoted(text, hunks, beside=self.text.read(finding.file) or b""):
            return verification
        return Verification(proof=Proof.UNPROVEN, problem=QUOTED_ANSWER)

    def _excerpt(self, finding: Finding) -> str:
        if finding.line_start is None:
            return "\n".join(_changed_lines(finding, self.desk.task)) or finding.evidence
        content = self.text.read(finding.file)
        if content is None:
            return "\n".join(_lines_of_diff(finding, self.desk.task)) or finding.evidence
        lines = content.decode("utf-8", "replace").split("\n")
        return excerpt_around(lines, finding.first_line, finding.last_line)

    def _could_not(self, index: int, reason: str) -> None:
        finding = self.findings[index]
        self.findings[index] = replace(finding, verification=f"could not verify: {reason}")
        message = f"{_place(finding)} could not be verified and stays as it was found: {reason}"
        self.errors[index] = ReviewError(NOT_VERIFIED, message)
        warn(message, self.emit)
        self.emit(FindingVerified(self.findings[index], NOT_VERIFIED))


def verified(finding: Finding, verification: Verification) -> Finding:
    """What an attempt to refute a finding makes of it."""
    told = replace(finding, verification=shortened(f"{verification.proof.value}: {verification.reason}"))
    match verification.proof:
        case Proof.REFUTED:
            return replace(told, status=FindingStatus.REFUTED)
        case Proof.UNPROVEN:
            # A claim without a place cannot be proven from its code, which makes it no less grave.
            return replace(told, severity=_lowered(finding.severity)) if finding.anchored else told
        case Proof.CONFIRMED:
            return told


def _lowered(severity: Severity) -> Severity:
    return Severity(min(severity.priority + 1, Severity.LOW.priority))


def _changed_lines(claim: Finding, task: ReviewTask) -> Iterator[str]:
    """What the diff shows of the file that a claim without a place names, or of all files where it names none."""
    named = [file for file in task.files if file.path == claim.file]
    rows = (
        f"{file.path}:{line.new_number or line.old_number} {_SIGNS[line.kind]}{shown_line(line.text)}"
        for file in named or task.files
        for hunk in file.hunks
        for line in hunk.lines()
    )
    yield from islice(rows, _MOST_CHANGED_LINES)


def _lines_of_diff(finding: Finding, task: ReviewTask) -> Iterator[str]:
    """Numbered lines around a finding, as far as the diff tells them; for a file of which nothing else is known.

    A deleted file has only old lines, and its findings are placed by those.
    """
    first, last = finding.first_line - _CONTEXT_LINES, finding.first_line + _CONTEXT_LINES
    for file in task.files:
        is_gone = file.new_path is None
        for hunk in file.hunks if file.path == finding.file else ():
            start, length = (hunk.old_start, hunk.old_lines) if is_gone else (hunk.new_start, hunk.new_lines)
            if first <= start + length and start <= last:
                for line in hunk.lines():
                    number = line.old_number if is_gone else line.new_number
                    if number is not None and first <= number <= last:
                        yield f"{'-' if is_gone else ' '}{number} {shown_line(line.text)}"


def _problem(verification: Verification) -> str | None:
    if verification.problem is not None:
        return shortened(verification.problem)
    if verification.proof is Proof.REFUTED and not verification.reason.strip():
        return "missing field: reason (a refutation without a reason shows nothing)"
    return None


def _place(finding: Finding) -> str:
    return finding.file if finding.line_start is None else f"{finding.file}:{finding.line_start}"
