"""A small world for histories: files that change, reporters that make claims, a verifier that answers by a table.

Each round goes through `codeloupe.engine.run_review`, and the next one gets its findings, as a stored history would
give them.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from codeloupe.engine import Job, run_review
from codeloupe.findings.earlier import Earlier
from codeloupe.git.diff import parse_diff
from codeloupe.model.baseline import Baseline, BaselineEntry
from codeloupe.model.change import Change, Effort, FileChange, Scope, ScopeKind, Unit
from codeloupe.model.finding import Claim, Finding, Proof, Severity, Source
from codeloupe.model.history import Dismissal
from codeloupe.model.ports import (
    AGENTS,
    ClaimProof,
    EventSink,
    Plan,
    Reviewer,
    ReviewerResult,
    Verification,
    VerifierResult,
)
from codeloupe.model.review import FailedUnit, Policy, Review, ReviewerInfo, SkippedFile, SkipReason, UnitRecord
from codeloupe.planning.prepare import Prepared
from codeloupe.planning.select import Selection
from codeloupe.planning.units import plan_units
from codeloupe.store.baseline import Acceptance, entry_for

AGENT, RUFF, COMMAND = "agent", "ruff", "command"
SCOPE = Scope(ScopeKind.BRANCH, "a" * 40, None, "a branch")
# What the verifier answers if its call fails.
FAILED = "failed"


@dataclass(frozen=True)
class Said:
    """A claim before it is placed: its line is the one that reads like `quote`, the `number`th of these."""

    reporter: str
    source: Source
    severity: Severity
    words: str
    quote: str
    file: str = "app.py"
    number: int = 1
    rule: str | None = None
    expert: str | None = None
    names_finding: str = ""
    silenced_by: str = ""
    look: str = ""


def agent(
    quote: str,
    words: str,
    severity: str = "high",
    *,
    by: str = AGENT,
    file: str = "app.py",
    number: int = 1,
    expert: str | None = None,
    names: str = "",
) -> Said:
    """A claim of an agent; a quote that is in no line makes it an unanchored one.

    With `names="first"` it names the id of the first finding of the last round.
    """
    return Said(
        reporter=by,
        source=Source.AGENT,
        severity=Severity.parse(severity),
        words=words,
        quote=quote,
        file=file,
        number=number,
        expert=expert,
        names_finding=names,
        look=f"{by} {expert or 'general'} 1",
    )


def ruff(
    quote: str,
    rule: str,
    severity: str = "high",
    *,
    words: str = "",
    file: str = "app.py",
    number: int = 1,
    silenced_by: str = "",
    by: str = RUFF,
) -> Said:
    """A claim of an analyser."""
    return Said(
        reporter=by,
        source=Source.ANALYSER,
        severity=Severity.parse(severity),
        words=words or f"rule {rule}",
        quote=quote,
        file=file,
        number=number,
        rule=rule,
        silenced_by=silenced_by,
    )


def command(quote: str, words: str, severity: str = "high", *, file: str = "app.py", number: int = 1) -> Said:
    """A claim of an external reviewer."""
    return Said(
        reporter=COMMAND,
        source=Source.EXTERNAL,
        severity=Severity.parse(severity),
        words=words,
        quote=quote,
        file=file,
        number=number,
    )


# Answers for all claims, or by the words of a claim or its severity's label.
Proofs = str | Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """One round: how the files change before it, what is claimed in it, and what its verifier answers.

    `files` holds the new text of each changed file, None for a deleted one. `renamed` maps old paths to new ones.
    `left` are files that are not in the change any more. `failed` are reporters that failed on every file, `off` those
    that did not take part. Without `asks` no agent is asked about any code, because all of it is covered. `accepts`
    puts all findings of the last round into the baseline or dismisses them, at the severity claimed then.
    """

    says: tuple[Said, ...] = ()
    proof: Proofs = FAILED
    files: Mapping[str, str | None] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    asks: bool = True
    verifies: bool = True
    experts: frozenset[str] = frozenset()
    policy: Policy = field(default_factory=Policy)
    trusted: bool = True
    accepts: str = ""
    drops_acceptance: bool = False
    fresh: bool = False


def step(*says: Said, proof: Proofs = FAILED, **changes: Any) -> Step:
    """One round, its claims first."""
    return Step(says=says, proof=proof, **changes)


class _StubReviewer:
    """Returns what it is given."""

    def __init__(self, name: str, result: Callable[[Plan], ReviewerResult]) -> None:
        self.info = ReviewerInfo(name, "for a test")
        self._result = result

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        return self._result(plan)


class StubVerifier:
    """Answers by a table and records the claims of each call."""

    def __init__(self, proofs: Proofs) -> None:
        self._proofs = proofs
        self.asked: list[Claim] = []
        self.refuted: list[Claim] = []
        self.findings: list[Finding] = []
        self.calls = 0

    async def verify(self, findings: Sequence[Finding], plan: Plan, emit: EventSink) -> VerifierResult:
        self.calls += 1
        self.findings += findings
        return VerifierResult(verifications=tuple(self._verification(finding) for finding in findings))

    def _verification(self, finding: Finding) -> Verification:
        self.asked += finding.claims
        words = [self._answer(claim) for claim in finding.claims]
        if FAILED in words:
            return Verification(problem="no answer")
        answers = zip(finding.claims, words, strict=True)
        self.refuted += [claim for claim, word in answers if word == Proof.REFUTED.value]
        return Verification(proofs=tuple(ClaimProof(proof=Proof(word), reason="read it") for word in words))

    def _answer(self, claim: Claim) -> str:
        if isinstance(self._proofs, str):
            return self._proofs
        return self._proofs.get(claim.title) or self._proofs.get(claim.severity.label) or FAILED


class World:
    """A change under review, round after round. `base` holds the files as they were before the change."""

    def __init__(self, root: Path, files: Mapping[str, str], *, base: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._base = dict(base or {})
        self._files = dict(files)
        self._renamed: dict[str, str] = {}
        self._left: frozenset[str] = frozenset()
        self._rounds = 0
        self._baseline: tuple[BaselineEntry, ...] = ()
        self._dismissals: tuple[Dismissal, ...] = ()
        self.findings: tuple[Finding, ...] | None = None
        self.verifier = StubVerifier(FAILED)
        self.plan: Prepared | None = None

    def play(self, steps: Iterable[Step]) -> Review:
        """Run several rounds and return the last review."""
        review: Review | None = None
        for one in steps:
            review = self.review(one)
        assert review is not None
        return review

    def review(self, one: Step) -> Review:
        """Run one round."""
        self._change(one)
        plan = self._prepared(one)
        self.plan = plan
        self.verifier = StubVerifier(one.proof)
        job = Job(
            plan=plan,
            policy=one.policy,
            reviewers=self._reviewers(one, plan),
            verifier=self.verifier if one.verifies else None,
            baseline=Baseline(entries=self._baseline),
            earlier=Earlier(findings=self.findings, dismissals=self._dismissals),
            experts=one.experts,
            fresh=one.fresh,
            tree=self._root / "tree",
        )
        review = asyncio.run(run_review(job, started=time.monotonic(), emit=lambda _event: None))
        self.findings = (*review.findings, *review.hidden, *review.omitted)
        return review

    def text(self, path: str) -> str:
        """Return the text of a file as it is now."""
        return self._files[path]

    def placed(self, said: Said) -> Claim:
        """Return a claim at the line that it quotes."""
        lines = self._files.get(said.file, "").split("\n")
        found = [number for number, line in enumerate(lines, start=1) if line.strip() == said.quote.strip()]
        line = found[said.number - 1] if len(found) >= said.number else None
        looks: tuple[str, ...] = (said.look,) if said.look else ()
        return Claim(
            reporter=said.reporter,
            source=said.source,
            severity=said.severity,
            title=said.words,
            file=said.file,
            line_start=line,
            line_end=line,
            evidence=said.quote if line is None else lines[line - 1],
            anchored=line is not None,
            rule=said.rule,
            expert=said.expert,
            seen_by=looks,
            silenced_by=said.silenced_by,
            names_finding=self._id(said.names_finding),
        )

    def _id(self, name: str) -> str:
        return self.findings[0].fingerprint[:12] if name == "first" and self.findings else name

    def _change(self, one: Step) -> None:
        for path, text in one.files.items():
            if text is None:
                del self._files[path]
            else:
                self._files[path] = text
        for old, new in one.renamed.items():
            self._files[new] = self._files.pop(old)
            if old in self._base:
                self._renamed[new] = old
        self._left = one.left
        if one.drops_acceptance:
            self._baseline = ()
            self._dismissals = ()
        if one.accepts == "baseline":
            entries = [entry_for(finding, Acceptance(reason="accepted")) for finding in self.findings or ()]
            self._baseline = tuple(entries)
        elif one.accepts == "dismissal":
            self._dismissals = tuple(_dismissal(finding) for finding in self.findings or ())

    def _prepared(self, one: Step) -> Prepared:
        self._rounds += 1
        folder = self._root / f"round{self._rounds}"
        tree = self._root / "tree"
        if tree.exists():
            shutil.rmtree(tree)
        for path, text in self._files.items():
            for place in (folder / path, tree / path):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
        changed = tuple(file for file in self._changed_files() if file.path not in self._left)
        files = tuple(file for file in changed if file.path not in one.excluded)
        skipped = tuple(SkippedFile(file.path, SkipReason.EXCLUDED) for file in changed if file.path in one.excluded)
        units = plan_units(files, effort=Effort.MEDIUM, experts=()) if one.asks else ()
        return Prepared(
            change=Change(SCOPE, changed),
            files=files,
            snapshot=folder,
            trusted=one.trusted,
            timeout_seconds=30.0,
            units=units,
            selection=Selection(files, skipped),
            place=self._root,
        )

    def _changed_files(self) -> tuple[FileChange, ...]:
        renamed_from = set(self._renamed.values())
        parts: list[str] = []
        for path in sorted({*self._base, *self._files} - renamed_from):
            old_path = self._renamed.get(path, path)
            before = self._base.get(old_path)
            after = self._files.get(path)
            if before != after or old_path != path:
                parts.append(_git_diff(old_path, path, before, after))
        return parse_diff("".join(parts).encode())

    def _reviewers(self, one: Step, plan: Prepared) -> tuple[Reviewer, ...]:
        claims = [self.placed(said) for said in one.says]
        of_agents = [claim for claim in claims if claim.source is Source.AGENT]
        reviewers: list[Reviewer] = []
        if AGENT not in one.off:
            reviewers.append(_StubReviewer(AGENT, lambda plan: _agents(plan, of_agents, failed=AGENT in one.failed)))
        names = {RUFF, COMMAND, *(claim.reporter for claim in claims if claim.source is not Source.AGENT)}
        for name in sorted(names - one.off):
            own = [claim for claim in claims if claim.reporter == name]
            reviewers.append(_StubReviewer(name, _whole(name, own, failed=name in one.failed)))
        return tuple(reviewers)


def _agents(plan: Plan, claims: Sequence[Claim], *, failed: bool) -> ReviewerResult:
    """Return the result of agents; a failure is one of every unit."""
    files = frozenset(file.path for file in plan.files)
    if failed:
        units = tuple(FailedUnit(unit.name, unit.files, "timeout") for unit in plan.units)
        completed = files - {file for unit in units for file in unit.files}
        return ReviewerResult(
            claims=tuple(claims), completed={AGENTS: completed}, units_total=len(units), units_failed=units
        )
    records = tuple(_record(unit) for unit in plan.units)
    return ReviewerResult(claims=tuple(claims), completed={AGENTS: files}, units=records, units_total=len(plan.units))


def _record(unit: Unit) -> UnitRecord:
    return UnitRecord(unit=unit.name, files=unit.files, answered_by=AGENT)


def _whole(name: str, claims: Sequence[Claim], *, failed: bool) -> Callable[[Plan], ReviewerResult]:
    """Return the result of an analyser or an external reviewer of the whole change."""

    def result(plan: Plan) -> ReviewerResult:
        paths = tuple(file.path for file in plan.files)
        if failed:
            units = (FailedUnit(name, paths, "it crashed"),)
            return ReviewerResult(completed={name: frozenset()}, units_total=1, units_failed=units)
        return ReviewerResult(claims=tuple(claims), completed={name: frozenset(paths)}, units_total=1)

    return result


def _dismissal(finding: Finding) -> Dismissal:
    return Dismissal(
        fingerprint=finding.fingerprint,
        repository="root:here",
        reason="accepted",
        who="me",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        finding=finding,
    )


def _git_diff(old_path: str, new_path: str, before: str | None, after: str | None) -> str:
    """Return a section of a diff as git writes it."""
    head = [f"diff --git a/{old_path} b/{new_path}"]
    if before is None:
        head.append("new file mode 100644")
    elif after is None:
        head.append("deleted file mode 100644")
    elif old_path != new_path:
        head += ["similarity index 90%", f"rename from {old_path}", f"rename to {new_path}"]
    old_name = "/dev/null" if before is None else f"a/{old_path}"
    new_name = "/dev/null" if after is None else f"b/{new_path}"
    rows = unified_diff((before or "").splitlines(), (after or "").splitlines(), old_name, new_name, lineterm="")
    return "\n".join([*head, *rows]) + "\n"


def described(finding: Finding) -> str:
    """Return a finding in words: its status, the severity that counts, and whether a claim is pending."""
    if finding.suppression is not None:
        return "suppressed"
    if not finding.is_open:
        return finding.status.value
    words = [finding.status.value]
    if finding.counts:
        words.append(finding.severity.label)
    if finding.is_pending:
        words.append("pending")
    return " ".join(words)
