"""This review as one round of many: what was known before, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.identity import PlacesOfNow, is_on_added_lines, is_touched
from codeloupe.engine.lifecycle import Ground, compare
from codeloupe.model.change import FileChange
from codeloupe.model.finding import ANALYSER_NAMES, Finding, FindingStatus, Source
from codeloupe.model.ports import ReviewTask

# Of some fingerprints, those whose finding was fixed when it was seen last.
FixedBefore = Callable[[Sequence[str]], frozenset[str]]
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_LOOK_MARKS = re.compile(r"[/#]")


def _none_fixed(_fingerprints: Sequence[str]) -> frozenset[str]:
    return frozenset()


def who_saw(finding: Finding) -> frozenset[str]:
    """The names of the reviewers that reported a finding, without their experts and passes."""
    return frozenset(_LOOK_MARKS.split(look, 1)[0] for look in (finding.reviewer, *finding.seen_by))


class Asked(Struct, frozen=True, kw_only=True):
    """Who is asked in this round, and about which hunks.

    `experts` are the checklists, None when nothing that was asked before is left out of them. `on_added_lines` is for
    those who report nothing of the other lines that a hunk shows: that they are silent says nothing about those.
    """

    reviewers: frozenset[str]
    files: tuple[FileChange, ...]
    experts: frozenset[str] | None = None
    on_added_lines: bool = False

    def is_about(self, finding: Finding) -> bool:
        """Whether one that reported the finding is asked about its place again, under the same checklist."""
        if self.reviewers.isdisjoint(who_saw(finding)):
            return False
        if self.experts is not None and finding.expert not in self.experts:
            return False
        if not finding.anchored:
            return any(file.path == finding.file for file in self.files)
        return (is_on_added_lines if self.on_added_lines else is_touched)(finding, self.files)


class Settled(Struct, frozen=True):
    """Findings with their status. Of the `doubtful`, by fingerprint, the code is there and changed around them.

    Those were not found again by who reported them: they are open until a verification says that they are fixed, and
    fixed where none is made.
    """

    findings: tuple[Finding, ...]
    doubtful: frozenset[str] = frozenset()

    def decided(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings after their verification, the doubtful ones with the status that it gives them."""
        return tuple(
            replace(one, status=FindingStatus.FIXED) if one.fingerprint in self.doubtful and _is_fixed(one) else one
            for one in findings
        )


def _is_fixed(doubtful: Finding) -> bool:
    return doubtful.status is FindingStatus.REFUTED or not doubtful.verification


class EarlierRounds(Struct, frozen=True, kw_only=True):
    """What is known from before: the findings of the last round, and what persons dismissed, by fingerprint.

    `dismissed_findings` are those of the dismissed that are still known, from any branch.
    `is_first` when there was no round before, only dismissals. `asked` is who looks this time at what; None when
    all that reported before look at all of it. `unchanged` are the files with those hunks that the last round saw as
    they are now. `tree` is the reviewed tree, for findings outside of the reviewed files. `remark` goes to the summary.
    """

    findings: tuple[Finding, ...] = ()
    dismissed: frozenset[str] = frozenset()
    dismissed_findings: tuple[Finding, ...] = ()
    fixed_before: FixedBefore = _none_fixed
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
        first_names: Mapping[str, str] = _NO_NAMES,
    ) -> Settled:
        """The findings of now with their status, and after them the earlier ones that are fixed now or still open.

        `unreviewed` are files that could not be reviewed whole: an earlier finding in one of them stays open.
        `first_names` are the fingerprints that version 0.1.0 gave to the findings of now.
        """
        places = PlacesOfNow(task, tree=self.tree)
        earlier = self._with_dismissed()
        there = {finding.fingerprint: finding for finding in places.placed(earlier)}
        known = [self._with_dismissal(there.get(finding.fingerprint, finding)) for finding in earlier]
        was_open = {finding.fingerprint for finding in known if finding.is_open}
        previous = [self._doubted(finding) for finding in known]
        doubtful: set[str] = set()

        def still_there(finding: Finding) -> bool:
            return finding.fingerprint in there or not finding.anchored or not places.is_gone(finding)

        def is_fixed(finding: Finding) -> bool:
            if not still_there(finding):
                return True
            if finding.file in unreviewed or not self._is_asked_about(finding, task):
                return False
            if not finding.anchored:
                return not self._is_unchanged(finding.file, task)
            if self._is_refuted_by_silence(finding):
                return True
            if self._has_changed_around(finding, places):
                doubtful.add(finding.fingerprint)
            return False

        rounds = compare(
            previous,
            _recognised(current, previous),
            Ground(
                still_there=still_there,
                is_fixed=is_fixed,
                is_placed=lambda finding: finding.fingerprint in there,
                first_names=first_names,
            ),
        )
        unseen = [
            # What was learnt of it was about the code of before.
            replace(finding, verification="") if finding.fingerprint in doubtful else finding
            for finding in rounds.unseen
            if finding.fingerprint in was_open and _is_telling(finding)
        ]
        seen = self._returned([self._with_dismissal(finding, first_names) for finding in rounds.seen])
        return Settled((*seen, *unseen), frozenset(doubtful))

    def _with_dismissed(self) -> tuple[Finding, ...]:
        """The findings of the last round, and those that were dismissed elsewhere."""
        names = {finding.fingerprint for finding in self.findings}
        others = (finding for finding in self.dismissed_findings if finding.fingerprint not in names)
        return (*self.findings, *(replace(finding, status=FindingStatus.DISMISSED) for finding in others))

    def _is_asked_about(self, finding: Finding, task: ReviewTask) -> bool:
        if self.asked is None:
            return is_touched(finding, task.files)
        return any(asked.is_about(finding) for asked in self.asked)

    def _is_unchanged(self, path: str, task: ReviewTask) -> bool:
        """Whether all that the change says of a file is what the last round saw: then silence settles nothing."""
        now, before = (
            [hunk.body for file in files if file.path == path for hunk in file.hunks]
            for files in (task.files, self.unchanged)
        )
        return bool(now) and now == before

    def _is_refuted_by_silence(self, finding: Finding) -> bool:
        """Whether it is an analyser's alone: one that looks again and reports nothing has verified that it is gone.

        An agent that does not repeat itself says nothing about code that is still there.
        """
        return finding.source is Source.ANALYSER and who_saw(finding) <= ANALYSER_NAMES

    def _has_changed_around(self, finding: Finding, places: PlacesOfNow) -> bool:
        unchanged = places.is_unchanged_around(finding)
        return not is_touched(finding, self.unchanged) if unchanged is None else not unchanged

    def _doubted(self, finding: Finding) -> Finding:
        """A refutation holds for the code that it was about, and never for what an analyser found."""
        if finding.status is not FindingStatus.REFUTED:
            return finding
        is_doubtful = finding.source is Source.ANALYSER or not is_touched(finding, self.unchanged)
        return replace(finding, status=FindingStatus.OPEN, verification="") if is_doubtful else finding

    def _with_dismissal(self, finding: Finding, first_names: Mapping[str, str] = _NO_NAMES) -> Finding:
        names = {finding.fingerprint, first_names.get(finding.fingerprint, "")}
        # One whose finding is still known was compared with it: only of the others the name has to do.
        unknown = self.dismissed - {one.fingerprint for one in self.dismissed_findings}
        if finding.fingerprint in self.dismissed or not names.isdisjoint(unknown):
            return replace(finding, status=FindingStatus.DISMISSED)
        if finding.status is FindingStatus.DISMISSED:
            # The dismissal was taken back.
            return replace(finding, status=FindingStatus.OPEN)
        return finding

    def _returned(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings, those that were fixed in a round before the last and came back marked so."""
        new = [finding.fingerprint for finding in findings if finding.status is FindingStatus.NEW]
        fixed = self.fixed_before(new) if new else frozenset[str]()
        return tuple(
            replace(finding, status=FindingStatus.REGRESSED)
            if finding.status is FindingStatus.NEW and finding.fingerprint in fixed
            else finding
            for finding in findings
        )


def _recognised(current: Sequence[Finding], previous: Sequence[Finding]) -> list[Finding]:
    """The findings of now, those that say the same of the same lines as an earlier one under its fingerprint.

    A line with few letters is named by what stands around it, which a change next to it changes.
    """
    known = {_said(finding): finding.fingerprint for finding in previous if finding.anchored}
    taken = {finding.fingerprint for finding in current}
    result: list[Finding] = []
    for finding in current:
        name = known.get(_said(finding), "") if finding.anchored else ""
        if name and name not in taken:
            taken.add(name)
            result.append(replace(finding, fingerprint=name))
        else:
            result.append(finding)
    return result


def _said(finding: Finding) -> tuple[object, ...]:
    return finding.file, finding.line_start, finding.evidence, finding.category, finding.title


def _is_telling(finding: Finding) -> bool:
    """Whether an earlier finding that was not found again is told: without a place nobody can say that it is fixed."""
    return finding.anchored or finding.status is not FindingStatus.FIXED
