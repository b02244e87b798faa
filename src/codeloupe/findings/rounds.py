"""The life of claims from one round to the next, by the tables in docs/rounds.md.

A claim of an analyser or an external reviewer ends when that reviewer completes on the file and reports it nowhere in
the file. An agent's claim stays, ends, or is verified again, by what the agents report and how the code changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.findings.claims import needs_proof, settled
from codeloupe.findings.merge import Case
from codeloupe.findings.places import Located, Places, fingerprint, is_shown
from codeloupe.findings.same_defect import is_analyser, stems_of
from codeloupe.model.change import Unit
from codeloupe.model.finding import Claim, ClaimEnd, Finding, FindingStatus, Proof, Source
from codeloupe.model.ports import AGENTS, ClaimProof, ReviewerResult, Verification
from codeloupe.model.review import Policy


class Recording(Enum):
    """The meaning of a verification's result for a claim."""

    RECORD = auto()  # the proof is recorded
    KEEP_UNLESS_REFUTED = auto()  # the statement is unchanged: only "refuted" changes the claim
    END_UNLESS_CONFIRMED = auto()  # the statement changed: "refuted" or "unproven" means fixed


class Round(Struct, frozen=True, kw_only=True):
    """The facts of a round: who completed on which files, what agents were asked about, and under which checklists.

    `failed` are the files of agents' units without an exact answer, and files that were not read. In a `fresh` round
    agents were asked about everything.
    """

    places: Places
    policy: Policy
    completed: Mapping[str, frozenset[str]]
    units: tuple[Unit, ...] = ()
    failed: frozenset[str] = frozenset()
    has_agents: bool = False
    experts: frozenset[str] = frozenset()
    fresh: bool = False

    def was_asked(self, claim: Claim) -> bool:
        """Tell whether agents were asked about a claim's code in this round, and all of their answers were exact.

        The code of a claim without a place is what changed in its file since the last round.
        """
        if not self.has_agents or claim.file in self.failed:
            return False
        if claim.expert is not None and claim.expert not in self.experts:
            return False
        lines = (claim.first_line, claim.last_line)
        for unit in self.units:
            for part in unit.parts:
                is_in_file = part.file.path == claim.file
                if is_in_file and (not claim.anchored or is_shown(replace(part.file, hunks=part.hunks), lines)):
                    return True
        return False


class Judged(Struct, frozen=True):
    """A finding after a round, before its verification; `checks` are its claims to verify, by their index."""

    finding: Finding
    checks: Mapping[int, Recording]

    @property
    def question(self) -> Finding:
        """The finding with only the claims to verify, in the order of `checks`."""
        return replace(self.finding, claims=tuple(self.finding.claims[index] for index in self.checks))


def round_of(
    results: Iterable[ReviewerResult],
    places: Places,
    policy: Policy,
    *,
    units: tuple[Unit, ...],
    experts: frozenset[str],
    fresh: bool,
) -> Round:
    """Return what a round did, from the results of its reviewers."""
    completed: dict[str, frozenset[str]] = {}
    failed = set(places.unread)
    for result in results:
        completed |= result.completed
        if AGENTS in result.completed:
            failed |= {file for unit in result.units_failed for file in unit.files}
    return Round(
        places=places,
        policy=policy,
        completed=completed,
        units=units,
        failed=frozenset(failed),
        has_agents=AGENTS in completed,
        experts=experts,
        fresh=fresh,
    )


def judge_cases(cases: Sequence[Case], round_: Round) -> list[Judged]:
    """Return the findings of a round. An earlier finding that was closed and is not reported again is omitted."""
    names = _Names(case.earlier.fingerprint for case in cases if case.earlier is not None)
    judged: list[Judged] = []
    for case in cases:
        found = _judge_case(case, round_, names)
        if found is not None:
            judged.append(found)
    return judged


def _judge_case(case: Case, round_: Round, names: _Names) -> Judged | None:
    if case.earlier is None:
        return _judge_new(case, round_, names)
    return _judge_earlier(case, case.earlier, round_)


def with_proofs(judged: Judged, verification: Verification, places: Places) -> Finding:
    """Return the finding with the answer to its question; a failed verification leaves earlier proofs as they are."""
    claims = list(judged.finding.claims)
    for number, (index, recording) in enumerate(judged.checks.items()):
        claim = claims[index]
        if not verification.problem:
            claims[index] = _recorded(claim, verification.proofs[number], recording, places)
        elif claim.proof is None:
            claims[index] = replace(claim, reason=verification.problem)
    return replace(judged.finding, claims=tuple(claims))


def _recorded(claim: Claim, shown: ClaimProof, recording: Recording, places: Places) -> Claim:
    proven = replace(claim, proof=shown.proof, reason=shown.reason, code=places.state(claim))
    if shown.proof is Proof.CONFIRMED:
        return replace(
            proven,
            suggestion=shown.suggestion or claim.suggestion,
            replacement=shown.replacement if shown.replacement is not None else claim.replacement,
        )
    match recording:
        case Recording.RECORD:
            return proven
        case Recording.KEEP_UNLESS_REFUTED:
            return proven if shown.proof is Proof.REFUTED else claim
        case Recording.END_UNLESS_CONFIRMED:
            return replace(claim, end=ClaimEnd.FIXED)
        case _:
            assert_never(recording)


def _judge_new(case: Case, round_: Round, names: _Names) -> Judged | None:
    reports = [report for report in case.reports if not report.silenced_by]
    if not reports:
        return None
    claims: list[Claim] = []
    checks: dict[int, Recording] = {}
    _add_reports(claims, checks, reports, round_)
    name = names.new(claims[0], round_.places)
    return Judged(_finding(claims, FindingStatus.NEW, name, round_.policy), checks)


def _judge_earlier(case: Case, earlier: Finding, round_: Round) -> Judged | None:
    reports = [report for report in case.reports if not report.silenced_by]
    has_ended = all(claim.end in (ClaimEnd.FIXED, ClaimEnd.SILENCED) for claim in earlier.claims)
    was_closed = not earlier.is_open and has_ended
    if was_closed and not reports:
        return None
    claims: list[Claim] = []
    checks: dict[int, Recording] = {}
    is_back = False
    for one in case.located:
        own_reports = [report for report in reports if _repeats(report, one.claim)]
        if one.claim.end is not None and own_reports:
            # A claim that is reported after it ended is new.
            is_back = True
            continue
        if one.claim.end is ClaimEnd.GONE and not round_.places.is_gone(one.claim):
            # Its file is back, so the claim is what it was before.
            is_back = True
            one = one.without_end()  # noqa: PLW2901 - the same claim
        elif one.claim.end is not None:
            # A fix is listed with the round that it happened in, and while the finding is open.
            if earlier.is_open or one.claim.end is ClaimEnd.GONE:
                claims.append(one.stored)
            continue
        claim, recording = _judge_claim(one, own_reports, case, round_)
        if recording is not None:
            checks[len(claims)] = recording
        claims.append(claim)
    _add_reports(claims, checks, reports, round_)
    status = FindingStatus.REGRESSED if is_back or was_closed else FindingStatus.OPEN
    finding = _finding(claims, status, earlier.fingerprint, round_.policy)
    if checks:
        # Until its verification, a finding is open: a refuted claim may be confirmed now.
        finding = replace(finding, status=status)
    return Judged(replace(finding, comment=earlier.comment), checks)


def _judge_claim(one: Located, reports: Sequence[Claim], case: Case, round_: Round) -> tuple[Claim, Recording | None]:
    """Return an earlier claim as it is after this round, and how its verification is recorded if it needs one."""
    if not reports and round_.places.is_gone(one.claim):
        # It keeps the place that it had: if its file comes back, it is what it was before.
        return replace(one.stored, end=ClaimEnd.GONE), None
    if one.claim.source is not Source.AGENT:
        return _judge_reporter(one, reports, case, round_), None
    if reports:
        return _judge_repeated(one, reports, round_)
    return _judge_silence(one, round_)


def _judge_repeated(one: Located, reports: Sequence[Claim], round_: Round) -> tuple[Claim, Recording | None]:
    """Judge an agent's claim that an agent reports again."""
    claim = replace(_repeated(one.claim, reports), other_words=())
    if claim.proof is Proof.REFUTED and claim.code.change != round_.places.change:
        # A refutation holds for the change that it was made on.
        claim = replace(claim, proof=None, reason="")
    if claim.proof is Proof.REFUTED:
        return claim, None
    is_settled = False
    if claim.proof is Proof.CONFIRMED:
        is_settled = one.is_same
    elif claim.proof is Proof.UNPROVEN:
        is_settled = round_.places.state(one.claim).file == one.claim.code.file
    if needs_proof(claim, round_.policy) and not is_settled:
        # A proof is about the code that it was made on, until it is made again.
        return claim, Recording.RECORD
    return _with_code(claim, round_.places), None


def _judge_silence(one: Located, round_: Round) -> tuple[Claim, Recording | None]:
    """Judge an agent's claim that no agent reports again."""
    claim = replace(one.claim, other_words=())
    if claim.proof is Proof.REFUTED:
        return claim, None
    was_asked = round_.was_asked(claim)
    if not needs_proof(claim, round_.policy):
        if was_asked and _has_changed(one, round_):
            claim = replace(claim, end=ClaimEnd.FIXED)
        return claim, None
    if claim.proof is None and (one.is_same or not was_asked):
        return claim, Recording.RECORD
    if claim.proof is None:
        return claim, Recording.END_UNLESS_CONFIRMED
    is_file_unchanged = round_.places.state(claim).file == claim.code.file
    if not was_asked or (is_file_unchanged and not round_.fresh):
        return claim, None
    if one.is_same:
        return claim, Recording.KEEP_UNLESS_REFUTED
    return claim, Recording.END_UNLESS_CONFIRMED


def _has_changed(one: Located, round_: Round) -> bool:
    """Tell whether the statement of a claim changed, or the function around it."""
    if not one.is_same:
        return True
    return one.claim.anchored and round_.places.state(one.claim).function != one.claim.code.function


def _judge_reporter(one: Located, reports: Sequence[Claim], case: Case, round_: Round) -> Claim:
    """Return the earlier claim of an analyser or an external reviewer as it is after this round."""
    claim = one.claim
    if reports:
        report = _from_worst(reports)[0]
        is_less_severe = claim.severity.is_worse_than(report.severity)
        if claim.source is Source.EXTERNAL and one.is_same and is_less_severe:
            # An external reviewer may be a model: on unchanged code, a less severe repetition changes nothing.
            report = _repeated(claim, reports)
        return _with_code(report, round_.places)
    # A reviewer that did not take part, or failed on the file, says nothing about it.
    if claim.file not in round_.completed.get(claim.reporter, frozenset()):
        return claim
    for report in case.reports:
        if report.silenced_by and _repeats(report, claim):
            return replace(claim, end=ClaimEnd.SILENCED, silenced_by=report.silenced_by)
    return replace(claim, end=ClaimEnd.FIXED)


def _add_reports(claims: list[Claim], checks: dict[int, Recording], reports: Iterable[Claim], round_: Round) -> None:
    """Add the reports of a round to the claims of a finding, and their verifications to the checks.

    A report that repeats a claim and is not more severe adds no claim; its words are for the claim's verification.
    """
    for report in _from_worst(reports):
        for index, claim in enumerate(claims):
            is_repeated = claim.end is None and _repeats(report, claim)
            if is_repeated and not report.severity.is_worse_than(claim.severity):
                claims[index] = _with_report(claim, report)
                break
        else:
            if needs_proof(report, round_.policy):
                checks[len(claims)] = Recording.RECORD
            claims.append(_with_code(report, round_.places))


def _with_report(claim: Claim, report: Claim) -> Claim:
    """Return a claim that was also reported in other words."""
    looks = dict.fromkeys((*_looks(claim), *_looks(report)))
    other_words = claim.other_words
    if stems_of(report) != stems_of(claim):
        other_words = (*other_words, f"{report.title}\n{report.body}".strip())
    return replace(claim, seen_by=tuple(looks), other_words=other_words)


def _repeats(report: Claim, claim: Claim) -> bool:
    """Tell whether a report of the same defect repeats a claim: any agent repeats an agent, others only themselves."""
    if report.source is not claim.source:
        return False
    if report.source is Source.AGENT:
        return True
    return report.reporter == claim.reporter and (report.rule == claim.rule or not is_analyser(report))


def _repeated(claim: Claim, reports: Sequence[Claim]) -> Claim:
    """Return a claim that was reported again, at the place of the report."""
    report = _from_worst(reports)[0]
    return replace(
        claim,
        file=report.file,
        line_start=report.line_start,
        line_end=report.line_end,
        evidence=report.evidence,
        anchored=report.anchored,
        deleted=report.deleted,
        outside_change=report.outside_change,
        replacement=claim.replacement if report.evidence == claim.evidence else None,
    )


def _with_code(claim: Claim, places: Places) -> Claim:
    return replace(claim, code=places.state(claim), seen_by=_looks(claim))


def _looks(claim: Claim) -> tuple[str, ...]:
    return claim.seen_by or (claim.reporter,)


def _from_worst(reports: Iterable[Claim]) -> list[Claim]:
    return sorted(reports, key=lambda report: report.severity.value)


def _finding(claims: Sequence[Claim], status: FindingStatus, name: str, policy: Policy) -> Finding:
    draft = Finding(claims=tuple(claims), severity=claims[0].severity, status=status, fingerprint=name)
    return settled(draft, policy)


class _Names:
    """Gives new findings fingerprints: by the statement, the definitions around it, and the rule or words."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._used: Counter[str] = Counter()

    def new(self, claim: Claim, places: Places) -> str:
        """Return a fingerprint that no other finding of the round has."""
        meaning: Sequence[str] = sorted(stems_of(claim)) or (claim.title, claim.body)
        if is_analyser(claim) and claim.rule:
            meaning = ("rule", claim.rule)
        place = claim.code.statements if claim.anchored else (claim.file, claim.evidence)
        core = "\0".join((*place, *places.headers(claim), *meaning))
        while True:
            name = fingerprint(core, str(self._used[core]))
            self._used[core] += 1
            if name not in self._taken:
                return name
