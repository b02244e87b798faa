"""This review as one round of many: what was known before, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from codeloupe.engine.lifecycle import compare
from codeloupe.engine.placing_again import PlacesOfNow, is_on_added_lines, is_touched
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.records import dataclass
from codeloupe.ports import ReviewTask

# Of some fingerprints, those whose finding was fixed when it was seen last.
FixedBefore = Callable[[Sequence[str]], frozenset[str]]
_LOOK_MARKS = re.compile(r"[/#]")


def _none_fixed(_fingerprints: Sequence[str]) -> frozenset[str]:
    return frozenset()


def who_saw(finding: Finding) -> frozenset[str]:
    """The names of the reviewers that reported a finding, without their experts and passes."""
    return frozenset(_LOOK_MARKS.split(look, 1)[0] for look in (finding.reviewer, *finding.seen_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRounds:
    """What is known from before: the findings of the last round, and what persons dismissed, by fingerprint.

    `is_first` when there was no round before, only dismissals. `asked` is who looks this time at what; None when
    all that reported before look at all of it. `unchanged` are the files with those hunks that the last round saw as
    they are now. `tree` is the reviewed tree, for findings outside of the reviewed files. `remark` goes to the summary.
    """

    findings: tuple[Finding, ...] = ()
    dismissed: frozenset[str] = frozenset()
    fixed_before: FixedBefore = _none_fixed
    is_first: bool = False
    asked: tuple[Asked, ...] | None = None
    unchanged: tuple[FileChange, ...] = ()
    tree: Path | None = None
    remark: str = ""

    def settle(
        self, current: Sequence[Finding], task: ReviewTask, *, unreviewed: frozenset[str]
    ) -> tuple[Finding, ...]:
        """The findings of now with their status, and behind them the earlier ones that are fixed now or still unknown.

        `unreviewed` are files that could not be reviewed whole: an earlier finding in one of them stays open.
        """
        places = PlacesOfNow(task, tree=self.tree)
        there = {finding.fingerprint: finding for finding in places.placed(self.findings)}
        known = [self._with_dismissal(there.get(finding.fingerprint, finding)) for finding in self.findings]
        was_open = {finding.fingerprint for finding in known if finding.is_open}
        previous = [self._doubted(finding) for finding in known]
        rounds = compare(
            previous,
            _recognised(current, previous),
            still_there=lambda finding: (
                finding.fingerprint in there or not finding.anchored or not places.is_gone(finding)
            ),
            reviewed=lambda finding: finding.file not in unreviewed and self._is_asked_about(finding, task),
        )
        unseen = (finding for finding in rounds.unseen if finding.fingerprint in was_open and _is_telling(finding))
        return (*self._returned([self._with_dismissal(finding) for finding in rounds.seen]), *unseen)

    def _is_asked_about(self, finding: Finding, task: ReviewTask) -> bool:
        if self.asked is None:
            return is_touched(finding, task.files)
        return any(asked.is_about(finding) for asked in self.asked)

    def _doubted(self, finding: Finding) -> Finding:
        """A refutation holds for the code that it was about: what is found again after a change of that is open."""
        is_doubtful = finding.status is FindingStatus.REFUTED and not is_touched(finding, self.unchanged)
        return replace(finding, status=FindingStatus.OPEN, verification="") if is_doubtful else finding

    def _with_dismissal(self, finding: Finding) -> Finding:
        if finding.fingerprint in self.dismissed:
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
