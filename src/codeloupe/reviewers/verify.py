"""Verification: an agent tries to refute the claims of one finding, with their code. Nothing is dropped here.

A verification returns one proof per claim, and counts only in an exact answer. A claim that could not be verified
stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.agent import AgentResult
from codeloupe.model.events import FindingVerified, StageStarted
from codeloupe.model.finding import Claim, Finding, Proof
from codeloupe.model.ports import Agent, AskAgent, ClaimProof, EventSink, Plan, Transcript, Verification, VerifierResult
from codeloupe.model.review import NOT_VERIFIED, ReviewError
from codeloupe.reviewers.anchor import Anchorer
from codeloupe.reviewers.answers import read_proofs
from codeloupe.reviewers.asking import Asker, CallOptions, for_each, shortened, warn
from codeloupe.reviewers.diff_text import shown_line
from codeloupe.reviewers.prompt import Prompt, PromptMaterial, excerpt_around, verify_prompt
from codeloupe.source.files import TextReader
from codeloupe.system.redaction import redact

_LINES_AROUND = 25
_MOST_DIFF_LINES = 400
_AT_ONCE = 64
_WORST_FIRST = (Proof.CONFIRMED, Proof.UNPROVEN, Proof.REFUTED)


class AgentVerifier(Struct, frozen=True, kw_only=True):
    """Verifies with a chain of agents."""

    ask: AskAgent
    agents: tuple[Agent, ...]
    options: CallOptions = CallOptions()
    transcript: Transcript | None = None

    async def verify(self, findings: Sequence[Finding], plan: Plan, emit: EventSink) -> VerifierResult:
        """Verify all claims of each finding; each finding holds only those that need a proof."""
        if not findings:
            return VerifierResult()
        started = time.monotonic()
        emit(StageStarted("verifying", f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"))
        run = _Run(self, plan, emit)
        await for_each(range(len(findings)), lambda number: run.verify(number, findings[number]), at_once=_AT_ONCE)
        ordered = [run.done[number] for number in range(len(findings))]
        return VerifierResult(
            verifications=tuple(verification for verification, _ in ordered),
            errors=tuple(error for _, error in ordered if error is not None),
            usage=replace(run.asker.usage, duration_seconds=time.monotonic() - started),
        )


class _Run:
    """The verifications of one review."""

    def __init__(self, verifier: AgentVerifier, plan: Plan, emit: EventSink) -> None:
        self._plan = plan
        self._emit = emit
        self._text = TextReader(plan)
        self._anchorer = Anchorer(plan.files, self._text.read)
        self.asker = Asker(
            verifier.ask, verifier.agents, plan, options=verifier.options, transcript=verifier.transcript
        )
        self.done: dict[int, tuple[Verification, ReviewError | None]] = {}

    async def verify(self, number: int, finding: Finding) -> None:
        """Verify one finding, and keep and report the result."""
        excerpt = self._excerpt(finding)

        def make_prompt(can_read_tree: bool) -> Prompt:  # noqa: FBT001 - as MakePrompt says
            material = PromptMaterial(
                fence=self.asker.fence, can_read_tree=can_read_tree, tree_is_partial=self._plan.tree_is_partial
            )
            return verify_prompt(finding, excerpt, material)

        def read(result: AgentResult) -> Verification:
            return read_proofs(result.output, result.structured, claims=len(finding.claims), inexact=result.inexact)

        place = _place(finding)
        exchange = await self.asker.exchange(make_prompt, read, unit=f"verify {place}", emit=self._emit)
        if exchange.failure is None:
            verification = exchange.heard[-1].answer
            proofs = tuple(map(self._checked, finding.claims, verification.proofs))
            self.done[number] = (Verification(proofs=proofs), None)
            found = {proof.proof for proof in proofs}
            worst = next(proof for proof in _WORST_FIRST if proof in found)
            self._emit(FindingVerified(finding, worst.value))
            return
        reason = exchange.failure.reason
        message = f"{place} could not be verified: {reason}"
        warn(message, self._emit)
        self.done[number] = (Verification(problem=reason), ReviewError(NOT_VERIFIED, message))
        self._emit(FindingVerified(finding, NOT_VERIFIED))

    def _checked(self, claim: Claim, proof: ClaimProof) -> ClaimProof:
        """Return a proof with its texts redacted; a replacement only if it fits exactly the quoted lines."""
        suggestion = None if proof.suggestion is None else redact(proof.suggestion)
        return replace(
            proof,
            reason=shortened(redact(proof.reason)),
            suggestion=suggestion or None,
            replacement=self._anchorer.replacement_for(claim, proof.replacement),
        )

    def _excerpt(self, finding: Finding) -> str:
        """Return the code around a finding; the diff of its file if its place or content is not known."""
        content = self._text.read(finding.file)
        if content is not None and finding.line_start is not None:
            lines = content.decode("utf-8", "replace").split("\n")
            return excerpt_around(lines, finding.first_line, finding.last_line)
        return "\n".join(_shown_by_diff(finding, self._plan)) or finding.evidence


def _shown_by_diff(finding: Finding, plan: Plan) -> Iterator[str]:
    """Yield the numbered lines of the diff around a finding; of its whole file if it has no place."""
    files = [file for file in plan.files if file.path == finding.file]
    if finding.line_start is None:
        signs = {"added": "+", "deleted": "-", "context": " "}
        lines = ((file, line) for file in files or plan.files for hunk in file.hunks for line in hunk.lines())
        for file, line in islice(lines, _MOST_DIFF_LINES):
            number = line.new_number or line.old_number
            yield f"{file.path}:{number} {signs[line.kind]}{shown_line(line.text)}"
        return
    for file in files:
        is_deleted = file.new_path is None
        sign = "-" if is_deleted else " "
        for hunk in file.hunks:
            for line in hunk.lines():
                number = line.old_number if is_deleted else line.new_number
                if number is not None and abs(number - finding.line_start) <= _LINES_AROUND:
                    yield f"{sign}{number} {shown_line(line.text)}"


def _place(finding: Finding) -> str:
    return finding.file if finding.line_start is None else f"{finding.file}:{finding.line_start}"
