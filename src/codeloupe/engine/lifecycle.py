"""A finding across rounds of review: new, still open, fixed, come back, set aside. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from codeloupe.engine.identity import digest
from codeloupe.engine.similarity import Profile, likeness_across_rounds
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.records import dataclass
from codeloupe.model.severity import Severity

_SAME = 0.5
_SAME_FINGERPRINT = 0.5
# With how many earlier findings of its lines one is compared; more only a hostile history has.
_MOST_COMPARED = 60
_SET_ASIDE = (FindingStatus.REFUTED, FindingStatus.DISMISSED)


@dataclass(frozen=True, slots=True)
class Rounds:
    """This round against the one before: `seen` was found now, `unseen` only before. Each has its status of now.

    A finding that was known before keeps the fingerprint it had.
    """

    seen: tuple[Finding, ...] = ()
    unseen: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, those of this round first."""
        return self.seen + self.unseen

    def having(self, *statuses: FindingStatus) -> tuple[Finding, ...]:
        """Those with one of some statuses."""
        return tuple(finding for finding in self.findings if finding.status in statuses)


def compare(
    previous: Sequence[Finding],
    current: Sequence[Finding],
    *,
    still_there: Callable[[Finding], bool],
    reviewed: Callable[[Finding], bool],
) -> Rounds:
    """What became of the findings of the previous round, and which are new.

    `still_there` tells whether the code of an earlier finding is unchanged in the reviewed tree, and `reviewed` whether
    its place was reviewed again, completely. An open finding that was not found again is fixed only if its code is not
    there any more, or if its place was reviewed again; otherwise nobody knows, and it stays open.
    """
    pairs = _pairs(previous, current, still_there)
    partners = {new: old for old, new in pairs.items()}
    taken = {finding.fingerprint for finding in previous}
    seen: list[Finding] = []
    for index, finding in enumerate(current):
        if index in partners:
            seen.append(_again(previous[partners[index]], finding))
            continue
        name = _free(finding.fingerprint, taken)
        taken.add(name)
        status = finding.status if finding.status in _SET_ASIDE else FindingStatus.NEW
        seen.append(replace(finding, fingerprint=name, status=status))
    unseen = [
        _missed(finding, still_there=still_there, reviewed=reviewed)
        for index, finding in enumerate(previous)
        if index not in pairs
    ]
    return Rounds(tuple(seen), tuple(unseen))


def converged(findings: Iterable[Finding], fail_on: Severity) -> bool:
    """Whether a round brought nothing that is new, or came back, and could block at this severity."""
    fresh = (finding for finding in findings if finding.status in (FindingStatus.NEW, FindingStatus.REGRESSED))
    return not any(finding.can_block and finding.severity.at_least(fail_on) for finding in fresh)


def _again(old: Finding, new: Finding) -> Finding:
    """A finding that was found again, under its old fingerprint."""
    known = replace(new, fingerprint=old.fingerprint or new.fingerprint)
    if new.status in _SET_ASIDE:
        return known
    match old.status:
        case FindingStatus.DISMISSED:
            return replace(known, status=FindingStatus.DISMISSED)
        case FindingStatus.REFUTED if not new.verification:
            return replace(known, status=FindingStatus.REFUTED, verification=old.verification)
        case FindingStatus.FIXED:
            return replace(known, status=FindingStatus.REGRESSED)
        case _:
            return replace(known, status=FindingStatus.OPEN)


def _missed(old: Finding, *, still_there: Callable[[Finding], bool], reviewed: Callable[[Finding], bool]) -> Finding:
    if not old.is_open:
        return old
    is_fixed = not still_there(old) or reviewed(old)
    return replace(old, status=FindingStatus.FIXED if is_fixed else FindingStatus.OPEN)


def _free(fingerprint: str, taken: set[str]) -> str:
    """The fingerprint, or the next one made from it that no other finding has."""
    name, number = fingerprint, 0
    while name and name in taken:
        number += 1
        name = digest(fingerprint, str(number))
    return name


def _pairs(
    previous: Sequence[Finding], current: Sequence[Finding], still_there: Callable[[Finding], bool]
) -> dict[int, int]:
    """Which earlier finding each one of now is, by their indices: the surest pairs first, each finding once."""
    found: dict[int, int] = {}
    used: set[int] = set()
    for _, _, old, new in sorted(_candidates(previous, current, still_there)):
        if old not in found and new not in used:
            found[old] = new
            used.add(new)
    return found


def _candidates(
    previous: Sequence[Finding], current: Sequence[Finding], still_there: Callable[[Finding], bool]
) -> Iterator[tuple[float, int, int, int]]:
    """Pairs that may be one finding: the negative of how sure that is, how many lines they moved, and both indices."""
    old_profiles = [Profile(finding) for finding in previous]
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    by_line: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for index, profile in enumerate(old_profiles):
        by_name[profile.finding.fingerprint or f"unnamed {index}"].append(index)
        for line in profile.quoted:
            by_line[profile.finding.file, line].append(index)
    for new, profile in enumerate(map(Profile, current)):
        finding = profile.finding
        named = set(by_name.get(finding.fingerprint, ()))
        near = (
            index for line in sorted(profile.quoted) for index in by_line.get((finding.file, line), ())[:_MOST_COMPARED]
        )
        for old in sorted(named.union(near)):
            earlier = previous[old]
            if earlier.file != finding.file and still_there(earlier):
                # The code was copied, not moved: the earlier finding is still where it was.
                continue
            like = likeness_across_rounds(old_profiles[old], profile)
            if old in named or like >= _SAME:
                sure = like + (_SAME_FINGERPRINT if old in named else 0.0)
                yield -sure, abs(earlier.line_start - finding.line_start), old, new
