"""Merging: the claims of one round, together with the findings of earlier rounds, become one case for each defect.

A claim joins at most one finding, the most similar at its place: an earlier claim on the same statement; or else an
earlier claim of the same analyser or external reviewer whose statement changed, anywhere in the file; or else a claim
of this round up to 3 lines apart. The claims of one look, such as one pass of a reviewer, are joined only if they are
on the same statement: a look does not report one defect at two places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from codeloupe.findings.places import Lines, Located, Places
from codeloupe.findings.same_defect import CERTAINLY_SIMILAR, SIMILAR, is_analyser, likeness
from codeloupe.model.finding import Claim, Finding, Proof, Source

# Two looks may quote neighbouring lines of one defect.
_NEAR_LINES = 3
_BUCKET_LINES = 16
# Real reviews never come near; a hostile answer with thousands of claims on one line stays linear.
_MOST_COMPARED = 100
_MOST_BUCKETS = 20

_Bucket = tuple[str, int]
_UNPLACED = -1


class Case:
    """One finding while a round is under way: what earlier rounds say about it, and what this round reports.

    `earlier` is None for a finding that no earlier round has. `located` has its claims at their present places.
    """

    def __init__(self, earlier: Finding | None = None, located: Sequence[Located] = ()) -> None:
        self.earlier = earlier
        self.located = tuple(located)
        self.reports: list[Claim] = []
        self._lines_by_look: dict[str, Lines] = {}

    @property
    def known(self) -> list[Claim]:
        """The claims of earlier rounds, at their present places."""
        return [one.claim for one in self.located]

    def add(self, claim: Claim, lines: Lines) -> None:
        """Add a report of this round, at the lines of its statement."""
        self.reports.append(claim)
        for look in _looks(claim):
            self._lines_by_look.setdefault(look, lines)

    def is_reported_elsewhere(self, claim: Claim, lines: Lines) -> bool:
        """Tell whether a look of a claim has reported the case on another statement: these are two defects."""
        for look in _looks(claim):
            other = self._lines_by_look.get(look, lines)
            if _lines_between(lines, other) > 0:
                return True
        return False

    def has_other_rule(self, claim: Claim) -> bool:
        """Tell whether a claim is an analyser's and the case has one of another rule: these are never one defect."""
        if not is_analyser(claim):
            return False
        return any(is_analyser(other) and other.rule != claim.rule for other in (*self.known, *self.reports))


class _Index:
    """The cases of all files by the lines of their claims."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._cases: defaultdict[_Bucket, list[tuple[Claim, Lines, Case]]] = defaultdict(list)

    def add(self, claim: Claim, case: Case) -> None:
        """Let a case be found by the place of one of its claims."""
        lines = self.lines(claim)
        for bucket in _buckets(claim, lines):
            self._cases[bucket].append((claim, lines, case))

    def near(self, claim: Claim) -> Iterator[tuple[Claim, int, Case]]:
        """Yield the claims near a claim, the latest first, with their distance in lines and their cases."""
        lines = self.lines(claim)
        wide = (lines[0] - _NEAR_LINES, lines[1] + _NEAR_LINES)
        seen: set[int] = set()
        for bucket in _buckets(claim, wide):
            for other, its_lines, case in self._cases[bucket][-_MOST_COMPARED:]:
                if id(other) in seen:
                    continue
                seen.add(id(other))
                yield other, _lines_between(lines, its_lines), case

    def lines(self, claim: Claim) -> Lines:
        """Return the lines of the statement of a claim."""
        return self._places.lines(claim) if claim.anchored else (0, 0)


def merge(claims: Iterable[Claim], earlier: Sequence[Finding], places: Places) -> list[Case]:
    """Return a case for each earlier finding, in order, and then for each new one."""
    earlier_claims = [claim for finding in earlier for claim in finding.claims]
    located = iter(places.located(earlier_claims))
    cases = [Case(finding, [next(located) for _ in finding.claims]) for finding in earlier]
    of_earlier_rounds = _Index(places)
    for case in cases:
        for claim in case.known:
            of_earlier_rounds.add(claim, case)
    of_this_round = _Index(places)

    def join(claim: Claim, case: Case) -> None:
        case.add(claim, of_this_round.lines(claim))
        of_this_round.add(claim, case)

    unmatched: list[Claim] = []
    for claim in sorted(claims, key=_order):
        known_case = _most_similar(claim, of_earlier_rounds, reach=0)
        if known_case is None:
            unmatched.append(claim)
        else:
            join(claim, known_case)
    new: list[Claim] = []
    moved = _Moved(cases)
    for claim in unmatched:
        changed_case = moved.case_of(claim)
        if changed_case is None:
            new.append(claim)
        else:
            join(claim, changed_case)
    for claim in new:
        near_case = _most_similar(claim, of_this_round, reach=_NEAR_LINES)
        if near_case is None:
            near_case = Case()
            cases.append(near_case)
        join(claim, near_case)
    return cases


def _most_similar(claim: Claim, index: _Index, *, reach: int) -> Case | None:
    """Return the case with the most similar claim at most so many lines away; 0 lines for the same statement."""
    best: Case | None = None
    best_likeness = 0.0
    lines = index.lines(claim)
    for other, distance, case in index.near(claim):
        if distance > reach:
            continue
        if case.has_other_rule(claim) or case.is_reported_elsewhere(claim, lines):
            continue
        found = likeness(claim, other)
        if _names(claim, case):
            found = 1.0
        if found >= _needed_likeness(other, case) and found > best_likeness:
            best = case
            best_likeness = found
    return best


def _needed_likeness(claim: Claim, case: Case) -> float:
    """Return how alike a report must be; a refutation or suppression takes weight from it, so that needs more."""
    is_suppressed = case.earlier is not None and case.earlier.suppression is not None
    if is_suppressed or claim.proof is Proof.REFUTED:
        return CERTAINLY_SIMILAR
    return SIMILAR


def _looks(claim: Claim) -> tuple[str, ...]:
    return claim.seen_by or (claim.reporter,)


def _lines_between(one: Lines, other: Lines) -> int:
    """Return how many lines two places are apart; not above 0 if they overlap."""
    return max(one[0] - other[1], other[0] - one[1])


def _names(claim: Claim, case: Case) -> bool:
    """Tell whether a claim says, by its id, that it is an earlier finding; prompts list only the open ones."""
    name = claim.names_finding
    if len(name) < 6 or case.earlier is None or not case.earlier.is_open:
        return False
    return case.earlier.fingerprint.startswith(name)


_Reporter = tuple[str, str, str | None]


class _Moved:
    """Earlier claims of analysers and external reviewers whose statement changed and that no report has joined.

    Such a claim ends only if its reporter reports it nowhere in the file, so it takes a report elsewhere in the file
    with the same rule or similar words.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self._waiting: defaultdict[_Reporter, list[tuple[Claim, Case]]] = defaultdict(list)
        for case in cases:
            for one in case.located:
                claim = one.claim
                if claim.source is not Source.AGENT and claim.end is None and not one.is_same and not case.reports:
                    self._waiting[_reporter(claim)].append((claim, case))

    def case_of(self, report: Claim) -> Case | None:
        """Return the case of the nearest such claim, which takes no further report; None if there is none."""
        waiting = self._waiting[_reporter(report)]
        nearest: int | None = None
        for number, (claim, _) in enumerate(waiting[:_MOST_COMPARED]):
            is_nearer = nearest is None or _lines_apart(report, claim) < _lines_apart(report, waiting[nearest][0])
            if is_nearer and likeness(report, claim) >= SIMILAR:
                nearest = number
        if nearest is None:
            return None
        _, case = waiting.pop(nearest)
        return case


def _reporter(claim: Claim) -> _Reporter:
    """Return the file, the reporter and, for an analyser, the rule of a claim."""
    return claim.file, claim.reporter, claim.rule if is_analyser(claim) else None


def _lines_apart(one: Claim, other: Claim) -> int:
    return abs(one.first_line - other.first_line)


def _buckets(claim: Claim, lines: Lines) -> list[_Bucket]:
    # The lines of a file in a single commit are others than those of the whole change.
    file = claim.file if claim.commit_sha is None else f"{claim.commit_sha}:{claim.file}"
    if not claim.anchored:
        return [(file, _UNPLACED)]
    first = max(lines[0], 0) // _BUCKET_LINES
    last = max(lines[1], 0) // _BUCKET_LINES
    return [(file, number) for number in range(first, min(last, first + _MOST_BUCKETS) + 1)]


def _order(claim: Claim) -> tuple[object, ...]:
    """Order claims by place and severity, so that nothing depends on the order of arrival."""
    place = (claim.file, claim.first_line, claim.last_line)
    return (
        *place,
        not is_analyser(claim),
        claim.severity.value,
        claim.reporter,
        claim.rule or "",
        claim.title,
        claim.body,
        claim.evidence,
        claim.expert or "",
        claim.seen_by,
    )
