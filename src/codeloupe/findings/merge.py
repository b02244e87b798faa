"""Merging: the claims of one round, together with the findings of earlier rounds, become one case for each defect.

A claim joins at most one finding, the most similar at its place. The claims of one look, such as one pass of a
reviewer, are joined only if they are on the same statement: a look does not report one defect at two places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from codeloupe.findings.places import Lines, Located, Places
from codeloupe.findings.same_defect import CERTAINLY_SIMILAR, SIMILAR, is_analyser, likeness
from codeloupe.model.finding import Claim, Finding, Proof

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
    known = [claim for finding in earlier for claim in finding.claims]
    located = iter(places.located(known))
    cases = [Case(finding, [next(located) for _ in finding.claims]) for finding in earlier]
    index = _Index(places)
    for case in cases:
        for claim in case.known:
            index.add(claim, case)
    unmatched: list[Claim] = []
    for claim in sorted(claims, key=_order):
        known_case = _most_similar(claim, index, of_this_round=False)
        if known_case is None:
            unmatched.append(claim)
        else:
            known_case.add(claim, index.lines(claim))
    unmatched = _still_reported(unmatched, cases, index)
    new = _Index(places)
    for claim in unmatched:
        new_case = _most_similar(claim, new, of_this_round=True)
        if new_case is None:
            new_case = Case()
            cases.append(new_case)
        new_case.add(claim, new.lines(claim))
        new.add(claim, new_case)
    return cases


def _most_similar(claim: Claim, index: _Index, *, of_this_round: bool) -> Case | None:
    best: Case | None = None
    best_likeness = 0.0
    lines = index.lines(claim)
    for other, distance, case in index.near(claim):
        if distance > _reach(claim, other, of_this_round=of_this_round):
            continue
        if case.has_other_rule(claim) or case.is_reported_elsewhere(claim, lines):
            continue
        found = likeness(claim, other)
        if _names(claim, case):
            found = 1.0
        needed = CERTAINLY_SIMILAR if other.proof is Proof.REFUTED else SIMILAR
        if found >= needed and found > best_likeness:
            best = case
            best_likeness = found
    return best


def _reach(claim: Claim, other: Claim, *, of_this_round: bool) -> int:
    """Return how many lines two claims of one defect may be apart; 0 for those on one statement."""
    is_same_look = not set(_looks(claim)).isdisjoint(_looks(other))
    return _NEAR_LINES if of_this_round and not is_same_look else 0


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


def _still_reported(claims: list[Claim], cases: Sequence[Case], index: _Index) -> list[Claim]:
    """Give analysers' claims to earlier findings of the same rule whose statement changed; return the others.

    An analyser's claim ends only if its analyser reports it nowhere in the file.
    """
    waiting: defaultdict[tuple[str, str, str | None], list[tuple[int, Case]]] = defaultdict(list)
    for case in cases:
        for one in case.located:
            claim = one.claim
            if is_analyser(claim) and claim.end is None and not one.is_same and not case.reports:
                waiting[claim.file, claim.reporter, claim.rule].append((claim.first_line, case))
    left: list[Claim] = []
    for claim in claims:
        candidates = waiting[claim.file, claim.reporter, claim.rule] if is_analyser(claim) else []
        if not candidates:
            left.append(claim)
            continue
        nearest = min(candidates, key=lambda pair: abs(pair[0] - claim.first_line))
        candidates.remove(nearest)
        nearest[1].add(claim, index.lines(claim))
    return left


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
