"""Tries to refute what was found: each critical or high finding alone, with its code. Nothing is dropped here.

A refuted finding is kept with that status, an unproven one that has a place is lowered one step, and one that could not
be verified stays as it was and says so. A refutation needs a reason: without one it shows nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from codeloupe.engine.ask import QUOTED_ANSWER, Asker, CallOptions, CircuitOpen, Transcript, for_each, is_quoted, warn
from codeloupe.engine.calls import UNEXPECTED_ERROR, failure_of, shortened
from codeloupe.engine.parse.claims import read_verification
from codeloupe.engine.prompt import VERIFY_SCHEMA, PromptMaterial, excerpt_around, shown_line, verify_prompt
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentLimits
from codeloupe.model.events import FindingVerified, StageStarted
from codeloupe.model.finding import Finding, FindingStatus, Proof, Severity, Source, Verification
from codeloupe.model.ports import AskAgent, EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import NOT_VERIFIED, ReviewError

_log = logging.getLogger(__name__)


class AgentVerifier:
    """Verifies with one agent, asked through `ask`, which has `limits`. `transcript` as for the reviewer."""

    def __init__(
        self,
        ask: AskAgent,
        *,
        limits: AgentLimits,
        calls: CallOptions = CallOptions(),  # noqa: B008 - frozen
        transcript: Transcript | None = None,
    ) -> None:
        self._ask, self._limits, self._calls, self._transcript = ask, limits, calls, transcript

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """All the findings, in order. Only claims that count, are severe enough and not settled are asked about."""
        started = time.monotonic()
        asker = Asker(self._ask, task, limits=self._limits, calls=self._calls, transcript=self._transcript)
        run = _Run(asker, emit, findings)
        wanted = [index for index, finding in enumerate(findings) if _is_wanted(finding)]
        if wanted:
            emit(StageStarted("verifying", f"{len(wanted)} finding{'' if len(wanted) == 1 else 's'}"))
        await for_each(wanted, run.verify, at_once=64)
        usage = replace(asker.usage, duration_seconds=time.monotonic() - started)
        return ReviewerOutcome(findings=tuple(run.findings), errors=tuple(filter(None, run.errors)), usage=usage)


class AbsentVerifier:
    """A verifier that is wanted and cannot be had: says so once there is something to verify."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:  # noqa: ARG002 - as every verifier
        """All the findings as they are, and in `errors` that they are not verified."""
        wanted = sum(map(_is_wanted, findings))
        if not wanted:
            return ReviewerOutcome(findings=tuple(findings))
        which = "1 finding" if wanted == 1 else f"{wanted:,} findings"
        message = f"{which} of high or above could not be verified: {self._why}"
        warn(message, emit)
        return ReviewerOutcome(findings=tuple(findings), errors=(ReviewError(NOT_VERIFIED, message),))


def _is_wanted(finding: Finding) -> bool:
    # What was verified in an earlier review and carried over is not asked about again, unless it keeps it from passing.
    is_known = bool(finding.verification) and finding.status is FindingStatus.OPEN and finding.anchored
    is_claim = finding.source is not Source.ANALYSER
    return is_claim and finding.is_open and finding.severity.at_least(Severity.HIGH) and not is_known


class _Run:
    """The findings of one verification, each replaced by what became of it."""

    def __init__(self, asker: Asker, emit: EventSink, findings: Sequence[Finding]) -> None:
        self._asker, self._emit = asker, emit
        self._text = TextReader(asker.task)
        self._material = PromptMaterial(
            fence=asker.fence, can_read_tree=asker.can_read_tree, tree_is_partial=asker.task.tree_is_partial
        )
        self.findings = list(findings)
        self.errors: list[ReviewError | None] = [None] * len(findings)

    async def verify(self, index: int) -> None:
        finding = self.findings[index]
        circuit = self._asker.circuit
        try:
            verification = await self._asked(finding)
            problem = verification.problem and shortened(verification.problem)
            if problem is None and verification.proof is Proof.REFUTED and not verification.reason.strip():
                problem = "missing field: reason (a refutation without a reason shows nothing)"
            if problem is None:
                circuit.note_answer()
                self.findings[index] = verified(finding, verification)
                self._emit(FindingVerified(self.findings[index], verification.proof.value))
                return
            circuit.note_failure(OutputInvalid(problem, agent=""))
        except CircuitOpen as stopped:
            problem = stopped.failure.reason
        except Exception as error:  # noqa: BLE001 - whatever it was, it takes nothing from the finding
            failure = failure_of(error)
            if failure.kind == UNEXPECTED_ERROR:
                _log.warning("the verification of %s failed", _place(finding), exc_info=True)
            circuit.note_failure(error)
            problem = failure.reason
        self.findings[index] = replace(finding, verification=f"could not verify: {problem}")
        message = f"{_place(finding)} could not be verified and stays as it was found: {problem}"
        self.errors[index] = ReviewError(NOT_VERIFIED, message)
        warn(message, self._emit)
        self._emit(FindingVerified(self.findings[index], NOT_VERIFIED))

    async def _asked(self, finding: Finding) -> Verification:
        prompt = verify_prompt(finding, self._excerpt(finding), self._material)
        self._asker.warn_once(prompt.notes, self._emit)
        request = self._asker.request(prompt, unit=f"verify {_place(finding)}", schema=VERIFY_SCHEMA)
        try:
            result = await self._asker.answer(request, self._emit)
        except OutputInvalid as error:
            if error.cut_off:
                raise
            text = error.output or error.raw_output
        else:
            if result.structured is not None:
                return read_verification(result.output, result.structured)
            text = result.output
        verification = read_verification(text, None)
        if verification.problem is not None or verification.proof is Proof.CONFIRMED:
            return verification
        # What takes weight from a finding must not be quoted from the code that it is about.
        hunks = (hunk for file in self._asker.task.files for hunk in file.hunks)
        if not is_quoted(text, hunks, beside=self._text.read(finding.file) or b""):
            return verification
        return Verification(proof=Proof.UNPROVEN, problem=QUOTED_ANSWER)

    def _excerpt(self, finding: Finding) -> str:
        content = self._text.read(finding.file)
        if content is not None and finding.line_start is not None:
            lines = content.decode("utf-8", "replace").split("\n")
            return excerpt_around(lines, finding.first_line, finding.last_line)
        return "\n".join(_shown_by_diff(finding, self._asker.task)) or finding.evidence


def verified(finding: Finding, verification: Verification) -> Finding:
    """What an attempt to refute a finding makes of it."""
    noted = replace(finding, verification=shortened(f"{verification.proof.value}: {verification.reason}"))
    match verification.proof:
        case Proof.REFUTED:
            return replace(noted, status=FindingStatus.REFUTED)
        case Proof.UNPROVEN:
            # A claim without a place cannot be proven from its code, which makes it no less severe.
            lowered = Severity(min(finding.severity.priority + 1, Severity.LOW.priority))
            return replace(noted, severity=lowered) if finding.anchored else noted
        case Proof.CONFIRMED:
            return noted


def _shown_by_diff(finding: Finding, task: ReviewTask) -> Iterator[str]:
    """The numbered lines around a finding; of a claim without a place its file, or all where it names none."""
    files = [file for file in task.files if file.path == finding.file]
    if finding.line_start is None:
        signs = {"added": "+", "deleted": "-", "context": " "}
        lines = ((file, line) for file in files or task.files for hunk in file.hunks for line in hunk.lines())
        for file, line in islice(lines, 400):
            yield f"{file.path}:{line.new_number or line.old_number} {signs[line.kind]}{shown_line(line.text)}"
        return
    for file in files:
        for line in (line for hunk in file.hunks for line in hunk.lines()):
            number = line.old_number if file.new_path is None else line.new_number
            if number is not None and abs(number - finding.line_start) <= 25:
                yield f"{'-' if file.new_path is None else ' '}{number} {shown_line(line.text)}"


def _place(finding: Finding) -> str:
    return finding.file if finding.line_start is None else f"{finding.file}:{finding.line_start}"
