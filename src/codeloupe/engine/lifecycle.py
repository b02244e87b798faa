"""A finding across rounds of review: new, still open, fixed, come back, set aside. Pure but for reading the tree.

Two findings are one when they are about the same place and say the same. What sets a finding aside, a dismissal or a
refutation, covers that defect and no more severe one: anything else on its line is a finding of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.choose import ANALYSERS
from codeloupe.engine.identity import PlacesOfNow, digest, is_touched
from codeloupe.engine.similarity import SAME, Profile, gap, likeness_of_meaning
from codeloupe.model.change import FileChange, ScopeKind
from codeloupe.model.finding import ANALYSER_NAMES, Finding, FindingStatus, Source
from codeloupe.model.history import Comparison, ReviewRecord
from codeloupe.model.ports import ReviewTask
from codeloupe.store.interface import History

# With how many earlier findings of its lines one is compared; more only a hostile history has.
_MOST_COMPARED = 100
# Those of now, and those of version 0.1.0.
_ANALYSERS = ANALYSER_NAMES.union(ANALYSERS)
_SET_ASIDE = (FindingStatus.REFUTED, FindingStatus.DISMISSED)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SAID = attrgetter("file", "line_start", "evidence", "category", "title")


class Ground(NamedTuple):
    """What is known of earlier findings: that the code is unchanged, the lines are those of now, it is fixed.

    `is_fixed` judges an open finding that was not found again. `first_names` are other fingerprints under which
    findings of this round may be known.
    """

    still_there: Callable[[Finding], bool]
    is_fixed: Callable[[Finding], bool]
    is_placed: Callable[[Finding], bool] = lambda _: False
    first_names: Mapping[str, str] = _NOTHING


def compare(
    previous: Sequence[Finding], current: Sequence[Finding], ground: Ground
) -> tuple[list[Finding], list[Finding]]:
    """What was found now, and what only before, each with its status of now; a known one keeps its fingerprint."""
    pairs = _pairs(previous, current, ground)
    partners = {new: old for old, new in pairs.items()}
    taken = {finding.fingerprint for finding in previous}
    seen: list[Finding] = []
    for index, finding in enumerate(current):
        if index in partners:
            seen.append(_again(previous[partners[index]], finding))
            continue
        name, number = finding.fingerprint, 0
        while name and name in taken:
            number += 1
            name = digest(finding.fingerprint, str(number))
        taken.add(name)
        status = finding.status if finding.status in _SET_ASIDE else FindingStatus.NEW
        seen.append(replace(finding, fingerprint=name, status=status))
    unseen: list[Finding] = []
    for index, old in enumerate(previous):
        if index not in pairs and not _is_repeated_by(old, seen, current, ground):
            status = FindingStatus.FIXED if old.is_open and ground.is_fixed(old) else FindingStatus.OPEN
            unseen.append(replace(old, status=status) if old.is_open else old)
    return seen, unseen


def compare_reviews(history: History, earlier: ReviewRecord, later: ReviewRecord) -> Comparison:
    """New, still open, fixed, back, set aside, or not known. What was hidden counts too, where it was kept.

    A finding is back when it is open now, was not open in the earlier review, and was seen open before that one, or
    was reported as fixed in it.
    """
    before = [finding for finding in earlier.findings if finding.is_open or finding.status is FindingStatus.FIXED]
    now = [finding for finding in later.findings if finding.status is not FindingStatus.FIXED]
    # The trees of saved reviews are gone: what is not seen again is judged below, by what the later one looked at.
    seen, unseen = compare(before, now, Ground(still_there=lambda _: False, is_fixed=lambda _: True))
    was_open = {finding.fingerprint for finding in before if finding.is_open}
    new = [finding.fingerprint for finding in seen if finding.status is FindingStatus.NEW]
    sightings = history.findings_of(new, repositories=(earlier.repository,))
    back = {one.fingerprint for one in sightings if one.is_open and one.turn < earlier.turn}
    groups: defaultdict[str, list[Finding]] = defaultdict(list)
    for reported, finding in zip(now, seen, strict=True):
        if not finding.is_open:
            # One that was never open and is set aside at once is no news.
            group = "set_aside" if finding.fingerprint in was_open else ""
        elif finding.status is FindingStatus.OPEN:
            group = "still_open"
        else:
            is_back = FindingStatus.REGRESSED in (finding.status, reported.status) or finding.fingerprint in back
            group = "regressed" if is_back else "new"
        groups[group].append(finding)
    surely_fixed = {finding.fingerprint for finding in later.findings if finding.status is FindingStatus.FIXED}
    coverage = later.review.coverage
    not_reviewed = {skip.file for skip in coverage.skipped}.union(*(unit.files for unit in coverage.units_failed))
    # A branch or a pull request stays the same change when it grows or is rebased; anything else must begin where the
    # other began. Else what is not seen again may still be there.
    scopes = (earlier.review.scope, later.review.scope)
    grows = later.review.scope.kind in (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
    is_going_on = earlier.branch == later.branch if grows else scopes[0].base == scopes[1].base
    is_same = scopes[0].kind is scopes[1].kind and is_going_on
    for finding in unseen:
        if finding.fingerprint in was_open:
            was_reviewed = is_same and finding.file not in not_reviewed
            groups["fixed" if was_reviewed or finding.fingerprint in surely_fixed else "unknown"].append(finding)
    groups.pop("", None)
    return Comparison(**{name: tuple(findings) for name, findings in groups.items()})


def _again(old: Finding, new: Finding) -> Finding:
    """A finding that was found again, under its old fingerprint. What an analyser found once stays its finding."""
    known = _joined(old, replace(new, fingerprint=old.fingerprint or new.fingerprint))
    if new.status in _SET_ASIDE:
        return known
    if old.status is FindingStatus.REFUTED and not new.verification and known.source is not Source.ANALYSER:
        return replace(known, status=FindingStatus.REFUTED, verification=old.verification)
    became = {FindingStatus.DISMISSED: FindingStatus.DISMISSED, FindingStatus.FIXED: FindingStatus.REGRESSED}
    return replace(known, status=became.get(old.status, FindingStatus.OPEN))


def _joined(old: Finding, new: Finding) -> Finding:
    """The finding of now with what an analyser said of it before: no model takes that away."""
    if old.source is not Source.ANALYSER:
        return new
    units = new.seen_by or (new.reviewer,)
    known = _ANALYSERS if old.seen_by else {old.reviewer}
    analysers = {name for name in (old.reviewer, *old.seen_by) if name in known} - set(units)
    return replace(
        new,
        source=Source.ANALYSER,
        severity=old.severity if old.severity.at_least(new.severity) else new.severity,
        rule=new.rule or old.rule,
        seen_by=tuple(sorted({*units, *analysers})) if analysers else new.seen_by,
        agreement=new.agreement + len(analysers),
    )


def _is_repeated_by(old: Finding, seen: list[Finding], current: Sequence[Finding], ground: Ground) -> bool:
    """Whether a finding of now, another earlier one already and by other units, says the same of the same lines."""
    if not old.is_open or not old.anchored or not ground.is_placed(old):
        return False
    units = {*old.seen_by, old.reviewer}
    for index, finding in enumerate(seen):
        is_other = units.isdisjoint({finding.reviewer, *finding.seen_by})
        is_here = finding.file == old.file and gap(old, current[index]) <= 0
        if is_here and is_other and finding.is_open and likeness_of_meaning(Profile(old), Profile(finding)) >= SAME:
            seen[index] = _joined(old, finding)
            return True
    return False


def _pairs(previous: Sequence[Finding], current: Sequence[Finding], ground: Ground) -> dict[int, int]:
    """Which earlier finding each one of now is, by their indices: the surest pairs first, each finding once.

    What was fixed comes after all others: only what is not known otherwise has come back.
    """
    profiles = [Profile(finding) for finding in previous]
    known: defaultdict[tuple[str | int, ...], list[int]] = defaultdict(list)
    for index, finding in enumerate(previous):
        for key in _keys(profiles[index], finding.fingerprint, with_lines=ground.is_placed(finding)):
            known[key].append(index)
    names = {finding.fingerprint for finding in current}
    candidates: list[tuple[bool, float, bool, int, int, int]] = []
    for new, profile in enumerate(map(Profile, current)):
        finding = profile.finding
        first_name = ground.first_names.get(finding.fingerprint, "")
        near: set[int] = set()
        for key in _keys(profile, finding.fingerprint, first_name, with_lines=True):
            indices = known.get(key, [])
            # What says the same word for word is never cut off.
            same = [index for index in indices if previous[index].title == finding.title]
            near.update(same[:_MOST_COMPARED], indices[:_MOST_COMPARED])
        for old in near:
            earlier = previous[old]
            is_named = bool(earlier.fingerprint) and earlier.fingerprint in (finding.fingerprint, first_name)
            is_same = earlier.anchored and earlier.fingerprint not in names and _SAID(earlier) == _SAID(finding)
            if not _may_be(earlier, finding, ground):
                continue
            sure = _sureness(profiles[old], profile, is_named=is_named or is_same)
            if sure >= SAME:
                moved = abs(earlier.first_line - finding.first_line)
                is_fixed = earlier.status is FindingStatus.FIXED
                candidates.append((is_fixed, -sure - is_same, not earlier.is_open, moved, old, new))
    found: dict[int, int] = {}
    used: set[int] = set()
    for *_, old, new in sorted(candidates):
        if old not in found and new not in used:
            found[old] = new
            used.add(new)
    return found


def _may_be(earlier: Finding, finding: Finding, ground: Ground) -> bool:
    # What was decided about one finding holds for no more severe one at its place.
    if earlier.status in _SET_ASIDE and not earlier.claimed_severity.at_least(finding.severity):
        return False
    if earlier.file != finding.file:
        # Else the code was copied, not moved: the earlier finding is still where it was.
        return not ground.still_there(earlier)
    are_placed = earlier.anchored and finding.anchored and ground.is_placed(earlier)
    return not are_placed or gap(earlier, finding) <= 0


def _keys(profile: Profile, *names: str, with_lines: bool) -> Iterator[tuple[str | int, ...]]:
    """What two findings at one place have in common: a fingerprint, a line's text, or its number."""
    finding = profile.finding
    yield from ((name,) for name in names if name)
    yield from ((finding.file, line) for line in profile.code.lines)
    if with_lines:
        last = min(finding.last_line, finding.first_line + min(finding.evidence.count("\n"), _MOST_COMPARED))
        yield from ((finding.file, number) for number in range(finding.first_line, last + 1))


def _sureness(old: Profile, new: Profile, *, is_named: bool) -> float:
    """How sure it is that two findings at one place are one. The name alone says little: it may be of an old kind."""
    one, other = old.finding, new.finding
    if not (one.anchored and other.anchored):
        return 1.0 if is_named else 0.0
    same_title = " ".join(one.title.split()).casefold() == " ".join(other.title.split()).casefold()
    if (one.rule or "") == (other.rule or "") and (one.rule or same_title):
        return 1.0 + is_named
    like = likeness_of_meaning(old, new)
    return like + (SAME if is_named and like >= SAME else 0.0)


def who_saw(finding: Finding) -> frozenset[str]:
    """The names of the reviewers that reported a finding, without their experts and passes."""
    return frozenset(unit.partition("/")[0].partition("#")[0] for unit in (finding.reviewer, *finding.seen_by))


class Asked(Struct, frozen=True):
    """Who is asked in this round, and about which hunks.

    `experts` are the checklists, None when nothing that was asked before is left out of them.
    """

    reviewers: frozenset[str]
    files: tuple[FileChange, ...]
    experts: frozenset[str] | None = None

    def is_about(self, finding: Finding) -> bool:
        """Whether one that reported the finding is asked about its place again, under the same checklist."""
        if self.reviewers.isdisjoint(who_saw(finding)):
            return False
        if self.experts is not None and finding.expert not in self.experts:
            return False
        files = [file for file in self.files if file.path == finding.file]
        if not finding.anchored:
            return bool(files)
        if self.reviewers <= _ANALYSERS:
            # They report nothing of the other lines that a hunk shows: that they are silent says nothing about those.
            lines = range(finding.first_line, finding.last_line + 1)
            files = [file for file in files if not file.added_line_numbers().isdisjoint(lines)]
        return is_touched(finding, files)


class EarlierRounds(Struct, frozen=True, kw_only=True):
    """What is known from before: the findings of the last round, and what persons `dismissed`, by fingerprint.

    Of a dismissal the finding is None where it is not known any more. `fixed_before` says which of some fingerprints
    were fixed when they were seen last. `is_first` where no round was before, only dismissals. `asked` is who looks
    this time at what; None when all look at all of it. `unchanged` are the files with those hunks that the last round
    saw as they are now. `tree` is for findings outside of the reviewed files. `remark` goes to the summary.
    """

    findings: tuple[Finding, ...] = ()
    dismissed: Mapping[str, Finding | None] = _NOTHING
    fixed_before: Callable[[Sequence[str]], frozenset[str]] = lambda _: frozenset()
    is_first: bool = False
    asked: tuple[Asked, ...] | None = None
    unchanged: tuple[FileChange, ...] = ()
    tree: Path | None = None
    remark: str = ""

    def settle(
        self,
        current: Sequence[Finding],
        task: ReviewTask,
        *,
        unreviewed: frozenset[str],
        first_names: Mapping[str, str] = _NOTHING,
    ) -> tuple[tuple[Finding, ...], set[str]]:
        """The findings of now with their status, and after them the earlier ones that are fixed now or still open.

        With them the fingerprints of the doubtful: their code is there and changed around them, and who reported them
        did not find them again. They are open until a verification says that they are fixed, and fixed without one.
        `unreviewed` are files that could not be reviewed whole: an earlier finding in one of them stays open.
        `first_names` are the fingerprints that version 0.1.0 gave to the findings of now.
        """
        places = PlacesOfNow(task, tree=self.tree)
        names = {finding.fingerprint for finding in self.findings}
        elsewhere = (finding for name, finding in self.dismissed.items() if finding is not None and name not in names)
        earlier = (*self.findings, *(replace(finding, status=FindingStatus.DISMISSED) for finding in elsewhere))
        there = {finding.fingerprint: finding for finding in places.placed(earlier)}
        known = [self._with_dismissal(there.get(finding.fingerprint, finding)) for finding in earlier]
        was_open = {finding.fingerprint for finding in known if finding.is_open}
        doubtful: set[str] = set()

        def still_there(finding: Finding) -> bool:
            return finding.fingerprint in there or not finding.anchored or not places.is_gone(finding)

        def is_fixed(finding: Finding) -> bool:
            if not still_there(finding):
                return True
            asked = self.asked
            is_asked = is_touched(finding, task.files) if asked is None else any(one.is_about(finding) for one in asked)
            if finding.file in unreviewed or not is_asked:
                return False
            settled = self._is_settled_by_silence(finding, task, places)
            if settled is None:
                doubtful.add(finding.fingerprint)
            return bool(settled)

        ground = Ground(still_there, is_fixed, lambda finding: finding.fingerprint in there, first_names)
        previous = [self._doubted(finding) for finding in known]
        found, missing = compare(previous, current, ground)
        unseen = [
            # What was learnt of it was about the code of before.
            replace(finding, verification="") if finding.fingerprint in doubtful else finding
            for finding in missing
            # Without a place nobody can say that it is fixed.
            if finding.fingerprint in was_open and (finding.anchored or finding.status is not FindingStatus.FIXED)
        ]
        seen = [self._with_dismissal(finding, first_names) for finding in found]
        new = [finding.fingerprint for finding in seen if finding.status is FindingStatus.NEW]
        # Those that were fixed in a round before the last have come back.
        back = self.fixed_before(new).intersection(new) if new else frozenset[str]()
        for index, one in enumerate(seen):
            if one.status is FindingStatus.NEW and one.fingerprint in back:
                seen[index] = replace(one, status=FindingStatus.REGRESSED)
        return (*seen, *unseen), doubtful

    def _is_settled_by_silence(self, finding: Finding, task: ReviewTask, places: PlacesOfNow) -> bool | None:
        """Whether a finding that was asked about and not reported again is fixed; None when that is doubtful."""
        if not finding.anchored:
            # Not where all that the change says of its file is what the last round saw.
            now, before = (
                [hunk.body for file in files if file.path == finding.file for hunk in file.hunks]
                for files in (task.files, self.unchanged)
            )
            return not now or now != before
        # An analyser that looks again and reports nothing has verified that its finding is gone. An agent that
        # does not repeat itself says nothing about code that is still there.
        if finding.source is Source.ANALYSER and who_saw(finding) <= _ANALYSERS:
            return True
        unchanged = places.is_unchanged_around(finding)
        return False if (is_touched(finding, self.unchanged) if unchanged is None else unchanged) else None

    def _doubted(self, finding: Finding) -> Finding:
        """A refutation holds for the code that it was about, and never for what an analyser found."""
        is_doubtful = finding.source is Source.ANALYSER or not is_touched(finding, self.unchanged)
        if finding.status is FindingStatus.REFUTED and is_doubtful:
            return replace(finding, status=FindingStatus.OPEN, verification="")
        return finding

    def _with_dismissal(self, finding: Finding, first_names: Mapping[str, str] = _NOTHING) -> Finding:
        # One whose finding is still known was compared with it: only of the others the name has to do.
        is_unknown = self.dismissed.get(first_names.get(finding.fingerprint, ""), finding) is None
        if finding.fingerprint in self.dismissed or is_unknown:
            return replace(finding, status=FindingStatus.DISMISSED)
        # Else a dismissal was taken back.
        is_back = finding.status is FindingStatus.DISMISSED
        return replace(finding, status=FindingStatus.OPEN) if is_back else finding
