"""Verification: an agent tries to refute the claims of one finding, with their code. Nothing is dropped here.

A verification returns one proof per claim, and counts only in an exact answer. A claim that could not be verified
stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.agent import AgentResult
from codeloupe.model.change import FileChange
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
_SIGNS = {"context": " ", "added": "+", "deleted": "-"}
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
        suggestion = proof.suggestion
        if suggestion is not None:
            suggestion = redact(suggestion)
        return replace(
            proof,
            reason=shortened(redact(proof.reason)),
            suggestion=suggestion,
            replacement=self._anchorer.replacement_for(claim, proof.replacement),
        )

    def _excerpt(self, finding: Finding) -> str:
        """Return the code around a finding; the diff if it is about deleted lines, or its code is not known."""
        content = self._text.read(finding.file)
        has_deleted = any(claim.deleted for claim in finding.claims)
        if content is not None and finding.line_start is not None and not has_deleted:
            lines = content.decode("utf-8", "replace").split("\n")
            return excerpt_around(lines, finding.first_line, finding.last_line)
        files = [file for file in self._plan.files if file.path == finding.file]
        if finding.line_start is None:
            rows = islice(_diff_rows(files or self._plan.files), _MOST_DIFF_LINES)
            return "\n".join(rows) or finding.evidence
        return "\n".join(_rows_around(finding.line_start, files)) or finding.evidence


def _diff_rows(files: Iterable[FileChange]) -> Iterator[str]:
    """Yield each line of a diff with its number, because a proof names the line that shows it."""
    for file in files:
        for hunk in file.hunks:
            for line in hunk.lines():
                number = line.new_number or line.old_number
                yield f"{file.path}:{number} {_SIGNS[line.kind]}{shown_line(line.text)}"


def _rows_around(place: int, files: Iterable[FileChange]) -> Iterator[str]:
    """Yield the numbered lines of the diff around a place; a deleted line is numbered as in the old file."""
    for file in files:
        is_deleted_file = file.new_path is None
        following = 0
        for hunk in file.hunks:
            for line in hunk.lines():
                number = line.new_number
                if number is not None:
                    following = number + 1
                elif is_deleted_file:
                    following = line.old_number or 0
                if abs(following - place) <= _LINES_AROUND:
                    yield f"{_SIGNS[line.kind]}{number or line.old_number} {shown_line(line.text)}"


def _place(finding: Finding) -> str:
    if finding.line_start is None:
        return finding.file
    return f"{finding.file}:{finding.line_start}"
