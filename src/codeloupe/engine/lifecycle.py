"""A finding across rounds of review: new, still open, fixed, come back, set aside. Pure.

Two findings are one when they are about the same place and say the same. What sets a finding aside, a dismissal or a
refutation, covers that defect and no graver one: anything else on its line is a finding of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.engine.identity import digest
from codeloupe.engine.similarity import Profile, gap, likeness_of_meaning
from codeloupe.model.finding import ANALYSER_NAMES, Finding, FindingStatus, Severity, Source

SAME = 0.5
# With how many earlier findings of its lines one is compared; more only a hostile history has.
_MOST_COMPARED = 100
_SET_ASIDE = (FindingStatus.REFUTED, FindingStatus.DISMISSED)


class Rounds(Struct, frozen=True):
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


class Ground(Struct, frozen=True, kw_only=True):
    """What is known of the code of earlier findings.

    `still_there` tells whether it is unchanged in the reviewed tree, `is_placed` whether the finding has the lines that
    it is on now. `is_fixed` judges an open finding that was not found again. `first_names` are other fingerprints
    under which findings of this round may be known.
    """

    still_there: Callable[[Finding], bool]
    is_fixed: Callable[[Finding], bool]
    is_placed: Callable[[Finding], bool] = lambda _: False
    first_names: Mapping[str, str] = field(default_factory=dict)


def compare(previous: Sequence[Finding], current: Sequence[Finding], ground: Ground) -> Rounds:
    """What became of the findings of the previous round, and which are new.

    An open finding that was not found again is fixed only if `ground` says so; otherwise it stays open.
    """
    pairs = _pairs(previous, current, ground)
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
    left = [
        finding
        for index, finding in enumerate(previous)
        if index not in pairs and not _is_told_by(finding, seen, current, ground)
    ]
    return Rounds(tuple(seen), tuple(_missed(finding, ground) for finding in left))


def converged(findings: Iterable[Finding], fail_on: Severity) -> bool:
    """Whether a round brought nothing that is new, or came back, and could block at this severity."""
    fresh = (finding for finding in findings if finding.status in (FindingStatus.NEW, FindingStatus.REGRESSED))
    return not any(finding.can_block and finding.severity.at_least(fail_on) for finding in fresh)


def covers(aside: Finding, finding: Finding) -> bool:
    """Whether what was decided about one finding holds for another at its place, which says the same: not if graver."""
    return aside.claimed_severity.at_least(finding.severity)


def _again(old: Finding, new: Finding) -> Finding:
    """A finding that was found again, under its old fingerprint. What an analyser found once stays its finding."""
    known = _joined(old, replace(new, fingerprint=old.fingerprint or new.fingerprint))
    if new.status in _SET_ASIDE:
        return known
    match old.status:
        case FindingStatus.DISMISSED:
            return replace(known, status=FindingStatus.DISMISSED)
        case FindingStatus.REFUTED if not new.verification and known.source is not Source.ANALYSER:
            return replace(known, status=FindingStatus.REFUTED, verification=old.verification)
        case FindingStatus.FIXED:
            return replace(known, status=FindingStatus.REGRESSED)
        case _:
            return replace(known, status=FindingStatus.OPEN)


def _joined(old: Finding, new: Finding) -> Finding:
    """The finding of now with what an analyser said of it before: no model takes that away."""
    if old.source is not Source.ANALYSER:
        return new
    looks = new.seen_by or (new.reviewer,)
    analysers = {name for name in (old.reviewer, *old.seen_by) if name in ANALYSER_NAMES} - set(looks)
    return replace(
        new,
        source=Source.ANALYSER,
        severity=old.severity if old.severity.at_least(new.severity) else new.severity,
        rule=new.rule or old.rule,
        seen_by=tuple(sorted({*looks, *analysers})) if analysers else new.seen_by,
        agreement=new.agreement + len(analysers),
    )


def _missed(old: Finding, ground: Ground) -> Finding:
    if not old.is_open:
        return old
    return replace(old, status=FindingStatus.FIXED if ground.is_fixed(old) else FindingStatus.OPEN)


def _is_told_by(old: Finding, seen: list[Finding], current: Sequence[Finding], ground: Ground) -> bool:
    """Whether a finding of now, which is another earlier one already, says the same of the same lines.

    One look that told of two defects meant two, so only what others saw is joined.
    """
    if not old.is_open or not old.anchored or not ground.is_placed(old):
        return False
    looks = {*old.seen_by, old.reviewer}
    for index, finding in enumerate(seen):
        if (
            finding.file != old.file
            or not finding.is_open
            or not looks.isdisjoint({finding.reviewer, *finding.seen_by})
        ):
            continue
        if gap(old, current[index]) <= 0 and likeness_of_meaning(Profile(old), Profile(finding)) >= SAME:
            seen[index] = _joined(old, finding)
            return True
    return False


def _free(fingerprint: str, taken: set[str]) -> str:
    """The fingerprint, or the next one made from it that no other finding has."""
    name, number = fingerprint, 0
    while name and name in taken:
        number += 1
        name = digest(fingerprint, str(number))
    return name


def _pairs(previous: Sequence[Finding], current: Sequence[Finding], ground: Ground) -> dict[int, int]:
    """Which earlier finding each one of now is, by their indices: the surest pairs first, each finding once.

    What was fixed comes after all others: only what is not known otherwise has come back.
    """
    found: dict[int, int] = {}
    used: set[int] = set()
    for *_, old, new in sorted(_candidates(previous, current, ground)):
        if old not in found and new not in used:
            found[old] = new
            used.add(new)
    return found


def _candidates(
    previous: Sequence[Finding], current: Sequence[Finding], ground: Ground
) -> Iterator[tuple[bool, float, bool, int, int, int]]:
    """Pairs that are one finding, in an order by which the surest come first; last are both indices."""
    index = _Index(previous, ground)
    for new, profile in enumerate(map(Profile, current)):
        finding = profile.finding
        first_name = ground.first_names.get(finding.fingerprint, "")
        for old in index.near(profile, first_name):
            earlier = previous[old]
            if earlier.status in _SET_ASIDE and not covers(earlier, finding):
                continue
            is_named = bool(earlier.fingerprint) and earlier.fingerprint in (finding.fingerprint, first_name)
            sure = _sureness(index.profiles[old], profile, is_named=is_named)
            if sure >= SAME:
                moved = abs(earlier.first_line - finding.first_line)
                yield earlier.status is FindingStatus.FIXED, -sure, not earlier.is_open, moved, old, new


def _sureness(old: Profile, new: Profile, *, is_named: bool) -> float:
    """How sure it is that two findings at one place are one. The name alone says little: it may be of an old kind."""
    if not (old.finding.anchored and new.finding.anchored):
        return 1.0 if is_named else 0.0
    if old.finding.rule and old.finding.rule == new.finding.rule:
        return 1.0 + is_named
    if _says(old.finding) == _says(new.finding):
        return 1.0 + is_named
    like = likeness_of_meaning(old, new)
    return like + (SAME if is_named and like >= SAME else 0.0)


def _says(finding: Finding) -> tuple[str, str]:
    return " ".join(finding.title.split()).casefold(), finding.rule or ""


class _Index:
    """The earlier findings, by what a finding of now may have in common with them."""

    def __init__(self, previous: Sequence[Finding], ground: Ground) -> None:
        self._ground = ground
        self.profiles = [Profile(finding) for finding in previous]
        self._by_name: defaultdict[str, list[int]] = defaultdict(list)
        self._by_line: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._by_place: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for index, profile in enumerate(self.profiles):
            finding = profile.finding
            self._by_name[finding.fingerprint or f"unnamed {index}"].append(index)
            for line in profile.quoted:
                self._by_line[finding.file, line].append(index)
            if ground.is_placed(finding):
                for number in _lines(finding):
                    self._by_place[finding.file, number].append(index)

    def near(self, profile: Profile, first_name: str) -> list[int]:
        """The earlier findings at the place of one of now, as far as that is known."""
        finding = profile.finding
        found = {*self._by_name.get(finding.fingerprint, ()), *self._by_name.get(first_name, ())}
        lists = [self._by_line.get((finding.file, line), ()) for line in sorted(profile.quoted)]
        lists += [self._by_place.get((finding.file, number), ()) for number in _lines(finding)]
        for indices in lists:
            # What says the same word for word is never cut off.
            same = [index for index in indices if self.profiles[index].finding.title == finding.title]
            found.update(same[:_MOST_COMPARED], indices[:_MOST_COMPARED])
        return sorted(index for index in found if self._is_at_its_place(self.profiles[index].finding, finding))

    def _is_at_its_place(self, earlier: Finding, finding: Finding) -> bool:
        if earlier.file != finding.file:
            # Else the code was copied, not moved: the earlier finding is still where it was.
            return not self._ground.still_there(earlier)
        if not (earlier.anchored and finding.anchored and self._ground.is_placed(earlier)):
            return True
        return gap(earlier, finding) <= 0


def _lines(finding: Finding) -> range:
    last = min(finding.last_line, finding.first_line + finding.evidence.count("\n"))
    return range(finding.first_line, min(last, finding.first_line + _MOST_COMPARED) + 1)
