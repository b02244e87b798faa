"""Two stored reviews compared: what is new, still open, fixed, regressed, set aside, or not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from codeloupe.findings.same_defect import SIMILAR, likeness
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.store.interface import History


def compare_reviews(history: History, earlier: ReviewRecord, later: ReviewRecord) -> Comparison:
    """Compare two reviews; findings below `min_severity` take part if they were stored.

    A finding regressed if it is open now, was not open in the earlier review, and was open before that one or was
    reported as fixed in it. Findings that the later review could not see again are `unknown`.
    """
    before = [finding for finding in earlier.findings if finding.is_open or finding.status is FindingStatus.FIXED]
    now = [finding for finding in later.findings if finding.status is not FindingStatus.FIXED]
    pairs = _pairs(before, now)
    matched = set(pairs.values())
    regressed = _regressed_names(history, earlier, [one for index, one in enumerate(now) if index not in pairs])
    groups: defaultdict[str, list[Finding]] = defaultdict(list)
    for index, finding in enumerate(now):
        previous = before[pairs[index]] if index in pairs else None
        groups[_group(finding, previous, regressed)].append(finding)
    ended = {finding.fingerprint for finding in later.findings if finding.status is FindingStatus.FIXED}
    not_reviewed = _not_reviewed(earlier, later)
    for index, finding in enumerate(before):
        if index in matched or not finding.is_open:
            continue
        is_fixed = finding.fingerprint in ended or (not_reviewed is not None and finding.file not in not_reviewed)
        groups["fixed" if is_fixed else "unknown"].append(finding)
    groups.pop("", None)
    return Comparison(**{name: tuple(findings) for name, findings in groups.items()})


def _group(finding: Finding, previous: Finding | None, regressed: frozenset[str]) -> str:
    was_open = previous is not None and previous.is_open
    if not finding.is_open:
        # A finding that was never open and is set aside at once is no news.
        return "set_aside" if was_open else ""
    if was_open:
        return "still_open"
    is_back = previous is not None or finding.status is FindingStatus.REGRESSED or finding.fingerprint in regressed
    return "regressed" if is_back else "new"


def _pairs(before: Sequence[Finding], now: Sequence[Finding]) -> dict[int, int]:
    """Return the earlier finding of each present one: by fingerprint, else by statement and similar words."""
    by_name = {finding.fingerprint: index for index, finding in enumerate(before)}
    by_place: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for index, finding in enumerate(before):
        by_place[_place(finding)].append(index)
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for index, finding in enumerate(now):
        found = by_name.get(finding.fingerprint)
        if found is not None and found not in taken:
            pairs[index] = found
            taken.add(found)
    for index, finding in enumerate(now):
        if index in pairs:
            continue
        for candidate in by_place.get(_place(finding), ()):
            if candidate not in taken and _are_alike(before[candidate], finding):
                pairs[index] = candidate
                taken.add(candidate)
                break
    return pairs


def _place(finding: Finding) -> tuple[str, tuple[str, ...]]:
    return finding.file, finding.main_claim.code.statements


def _are_alike(one: Finding, other: Finding) -> bool:
    return any(likeness(mine, its) >= SIMILAR for mine in one.claims for its in other.claims)


def _regressed_names(history: History, earlier: ReviewRecord, findings: Iterable[Finding]) -> frozenset[str]:
    """Return the fingerprints of findings that were open in a review before the earlier one."""
    names = [finding.fingerprint for finding in findings if finding.is_open]
    sightings = history.findings_of(names, repositories=(earlier.repository,)) if names else ()
    return frozenset(one.fingerprint for one in sightings if one.is_open and one.turn < earlier.turn)


def _not_reviewed(earlier: ReviewRecord, later: ReviewRecord) -> frozenset[str] | None:
    """Return the files that the later review did not review, or None if it is not about the same work.

    A branch or a pull request stays the same change when it grows or is rebased; another scope must begin where the
    earlier one began.
    """
    first, second = earlier.review.scope, later.review.scope
    if first.kind is not second.kind:
        return None
    if second.kind in (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST):
        is_same_work = earlier.branch == later.branch
    else:
        is_same_work = first.base == second.base
    if not is_same_work:
        return None
    coverage = later.review.coverage
    files = {skip.file for skip in coverage.skipped}
    for unit in coverage.units_failed:
        files.update(unit.files)
    return frozenset(files)
