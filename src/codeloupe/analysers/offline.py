"""The reviewer that needs no AI: all analysers at the same time on the snapshot, reported on added lines.

Only what touches an added line becomes a finding, one a defect, with evidence that shows no secret.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.analysers.interface import (
    AddedLinesAnalyser,
    Analyser,
    AnalyserReport,
    AnalysisTarget,
    Issue,
    read_regular_file,
)
from codeloupe.analysers.secret_detectors import mask_secrets
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Finding, Severity, Source
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.system.redaction import redact

_ONLY_DIFF = "only the diff is known, not the whole file"
_NOT_IN_SNAPSHOT = "it is not a regular file in the snapshot of the change"
_NAMED_FILES = 3
_MAX_LINK_CHARACTERS = 300
_MAX_EVIDENCE_LINES = 5
_MAX_EVIDENCE_CHARACTERS = 1000
_HARD_CODED_SECRET = "hard-coded secret"  # noqa: S105 - the name of a defect
# Rules that see one defect from two sides: where they meet on a line, one finding is enough.
_SAME_DEFECT = {
    **dict.fromkeys(("S105", "S106", "S107"), _HARD_CODED_SECRET),
    **dict.fromkeys(("E722", "S110", "S112"), "swallowed error"),
    **dict.fromkeys(("B012", "SIM107"), "jump in finally"),
    **dict.fromkeys(("F509", "PLE1300"), "format character"),
    **dict.fromkeys(("B005", "PLE1310"), "strip of a text"),
}


class OfflineReviewer:
    """Runs analysers side by side. One that fails takes nothing from the others and leaves the review incomplete."""

    def __init__(self, analysers: Sequence[Analyser], why: str) -> None:
        self._analysers = tuple(analysers)
        self.info = ReviewerInfo(type="offline", why=why)

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the files that exist after the change. Failures are in the outcome; only cancellation is raised."""
        started = time.monotonic()
        material = _material(task)
        runs = [run for analyser in self._analysers if (run := _Run.of(analyser, material)) is not None]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run.run(task, material, emit)) for run in runs]
        results = [run.result() for run in running]
        missing = (FailedUnit("snapshot", (file,), _NOT_IN_SNAPSHOT) for file in material.missing)
        links = links_outside(task.files, trusted=task.trusted)
        return ReviewerOutcome(
            findings=in_order((*_findings(task.snapshot, material, results), *links)),
            units_total=len(runs),
            units_failed=(*missing, *(unit for result in results for unit in result.failed)),
            errors=tuple(result.error for result in results if result.error is not None),
            usage=Usage(duration_seconds=time.monotonic() - started),
        )


class _Material(Struct, frozen=True):
    """The files of a task by what is known of them: `whole` in the snapshot, `diffs` as added lines only."""

    whole: tuple[str, ...]
    diffs: Mapping[str, Mapping[int, bytes]]
    missing: tuple[str, ...]
    added: Mapping[str, frozenset[int]]


def _material(task: ReviewTask) -> _Material:
    whole: list[str] = []
    diffs: dict[str, dict[int, bytes]] = {}
    missing: list[str] = []
    added: dict[str, frozenset[int]] = {}
    root = os.path.realpath(task.snapshot)
    for change in task.files:
        file = change.new_path
        if file is None or not change.hunks or change.is_symlink or change.is_submodule:
            continue
        if file in task.without_content:
            lines = (line for hunk in change.hunks for line in hunk.lines() if line.kind == "added")
            diffs[file] = {line.new_number: line.text for line in lines if line.new_number is not None}
        elif _is_regular_file(task.snapshot / file, root):
            whole.append(file)
        else:
            missing.append(file)
            continue
        added[file] = change.added_line_numbers()
    return _Material(tuple(whole), diffs, tuple(missing), added)


def _is_regular_file(path: Path, root: str) -> bool:
    """Whether a regular file is there, reached without a link that leads out of the snapshot."""
    try:
        inside = Path(os.path.realpath(path.parent)).is_relative_to(root)
        return inside and stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


class Report(Struct, frozen=True):
    """An issue, who reported it, and whether it is about a value that must not be shown."""

    analyser: str
    issue: Issue
    is_secret: bool = False

    @property
    def defect(self) -> str:
        """What two reports must share, beside their place, to be one finding."""
        if self.is_secret or "hardcoded" in self.issue.rule:
            return _HARD_CODED_SECRET
        return _SAME_DEFECT.get(self.issue.rule, self.issue.rule)


class _Result(Struct, frozen=True):
    reports: tuple[Report, ...] = ()
    failed: tuple[FailedUnit, ...] = ()
    error: ReviewError | None = None
    sensitive: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    quiet: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)


class _Run(Struct, frozen=True):
    """One analyser with the files it gets, and those it would want whole and cannot have."""

    analyser: Analyser
    files: tuple[str, ...]
    refused: tuple[str, ...]

    @classmethod
    def of(cls, analyser: Analyser, material: _Material) -> _Run | None:
        """The run of an analyser, or None when there is nothing for it to look at."""
        whole = tuple(file for file in material.whole if analyser.accepts(file))
        diffs = tuple(file for file in material.diffs if analyser.accepts(file))
        if isinstance(analyser, AddedLinesAnalyser):
            whole, diffs = (*whole, *diffs), ()
        return cls(analyser, whole, diffs) if whole or diffs else None

    async def run(self, task: ReviewTask, material: _Material, emit: EventSink) -> _Result:
        """Run the analyser and tell how it ended."""
        started, name = time.monotonic(), self.analyser.name
        refused = tuple(FailedUnit(name, (file,), _ONLY_DIFF) for file in self.refused)
        try:
            report = await self._analyse(task, material)
        except CodeloupeError as error:
            failure = f"{error.message} ({error.hint})" if error.hint else error.message
        except TimeoutError:
            limit = f"{task.timeout_seconds:g} s"
            failure = f"it did not finish within {limit} (raise the time limit, or review less at once)"
        except Exception as error:  # noqa: BLE001 - whatever an analyser trips over, it is this one that failed
            failure = f"it crashed with {type(error).__name__}: {error}"
        else:
            return self._succeeded(report, refused, material, emit, time.monotonic() - started)
        emit(LaneFinished(name, 0, time.monotonic() - started, failure))
        unit = FailedUnit(name, self.files, failure)
        why = ReviewError("analyser_failed", f"{name} could not review: {failure}")
        return _Result(failed=(*refused, unit), error=why)

    async def _analyse(self, task: ReviewTask, material: _Material) -> AnalyserReport:
        if not self.files:
            return AnalyserReport()
        target = AnalysisTarget(
            root=task.snapshot,
            files=self.files,
            added_lines={file: material.added[file] for file in self.files},
            trusted=task.trusted,
            timeout_seconds=task.timeout_seconds,
            added_text={file: material.diffs[file] for file in self.files if file in material.diffs},
            moment_of=task.moment_of,
        )
        async with asyncio.timeout(task.timeout_seconds):
            return await self.analyser.analyse(target)

    def _succeeded(
        self,
        report: AnalyserReport,
        refused: tuple[FailedUnit, ...],
        material: _Material,
        emit: EventSink,
        seconds: float,
    ) -> _Result:
        name = self.analyser.name
        added = {file: sorted(material.added[file]) for file in self.files}
        reports = tuple(
            Report(name, anchored, is_secret=anchored.line_start in report.sensitive.get(anchored.file, {}))
            for issue in report.issues
            if (anchored := _anchored(issue, added.get(issue.file, []))) is not None
        )
        failed = (*refused, *(FailedUnit(name, (file,), reason) for file, reason in sorted(report.failed.items())))
        if failed:
            named = "; ".join(f"{unit.files[0]}: {unit.reason}" for unit in failed[:_NAMED_FILES])
            more = f"; and {len(failed) - _NAMED_FILES} more" if len(failed) > _NAMED_FILES else ""
            files = f"{len(failed)} file{'s' if len(failed) > 1 else ''}"
            emit(Warned(f"{name} could not review {files}: {named}{more}"))
        emit(LaneFinished(name, len(reports), seconds))
        return _Result(reports, failed, sensitive=report.sensitive, quiet=report.quiet)


def _anchored(issue: Issue, added: Sequence[int]) -> Issue | None:
    """The issue at the first added line that it covers, or None when it covers none."""
    index = bisect_left(added, issue.line_start)
    if index == len(added) or added[index] > issue.line_end:
        return None
    return replace(issue, line_start=added[index])


def _findings(snapshot: Path, material: _Material, results: Sequence[_Result]) -> Iterator[Finding]:
    """One finding for each defect of a line: the most severe report, and how many analysers agree on it."""
    groups: dict[tuple[str, int, str], list[Report]] = defaultdict(list)
    for report in (report for result in results for report in result.reports):
        file, line = report.issue.file, report.issue.line_start
        # An analyser that looked closer may say that this rule has nothing to add at its line.
        if not any(report.issue.rule in result.quiet.get(file, {}).get(line, ()) for result in results):
            groups[file, line, report.defect].append(report)
    contents: dict[str, Mapping[int, bytes]] = dict(material.diffs)
    for (file, _, _), group in groups.items():
        worst = min(group, key=lambda report: report.issue.severity.priority)
        if file not in contents:
            try:
                content = read_regular_file(snapshot / file)
            except OSError:
                content = b""  # it vanished after the analyser read it: the finding stays, without a quote
            contents[file] = dict(enumerate(content.split(b"\n"), start=1))
        lines = quoted_lines(worst.issue, contents[file])
        known = [result.sensitive.get(file, {}) for result in results]
        secrets = [value for values in known for line in lines for value in values.get(line, ())]
        agreement = len({report.analyser for report in group})
        yield finding(worst, agreement=agreement, lines=lines, secrets=secrets)


def finding(report: Report, *, agreement: int, lines: Mapping[int, str], secrets: Iterable[str]) -> Finding:
    """The finding of a report; `lines` are the quoted ones, and no text of it shows a secret in full."""
    issue = report.issue
    hidden = sorted(set(secrets))
    suggestion = None if issue.suggestion is None else mask_secrets(issue.suggestion, hidden)
    return Finding(
        file=issue.file,
        line_start=issue.line_start,
        line_end=issue.line_end,
        severity=issue.severity,
        category=issue.category,
        title=mask_secrets(issue.title, hidden),
        body=mask_secrets(issue.body, hidden),
        # The analysers' own words do not agree on a capital at the start.
        suggestion=suggestion and suggestion[:1].upper() + suggestion[1:],
        # A quoted line may be older than the change, and hold a secret that no analyser was asked about.
        evidence=redact(mask_secrets("\n".join(lines.values()), hidden))[:_MAX_EVIDENCE_CHARACTERS],
        reviewer=report.analyser,
        source=Source.ANALYSER,
        rule=issue.rule,
        agreement=agreement,
    )


def quoted_lines(issue: Issue, content: Mapping[int, bytes]) -> dict[int, str]:
    """The first lines of an issue, by number; a byte that is not UTF-8 is replaced."""
    last = min(issue.line_end, issue.line_start + _MAX_EVIDENCE_LINES - 1)
    numbers = (number for number in range(issue.line_start, last + 1) if number in content)
    return {number: content[number].decode("utf-8", "replace").rstrip("\r") for number in numbers}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by file, line and severity."""
    return tuple(
        sorted(findings, key=lambda item: (item.file, item.line_start, item.severity.priority, item.rule or ""))
    )


def links_outside(files: Iterable[FileChange], *, trusted: bool) -> Iterator[Finding]:
    """A finding for each symbolic link of a change that leads out of the repository, or into git's own folder.

    No link is followed.
    """
    for file in files:
        if file.new_path is None or not file.is_symlink:
            continue
        added = (line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
        target = b"\n".join(added).decode("utf-8", "replace")
        parts = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), target)).split("/")
        leaves = target.startswith("/") or parts[0] == ".." or any(part.lower() == ".git" for part in parts)
        if not target or not leaves:
            continue
        yield Finding(
            file=file.path,
            line_start=1,
            line_end=1,
            severity=Severity.MEDIUM if trusted else Severity.HIGH,
            category="security",
            title="A symbolic link leads out of the repository",
            body="Whatever reads or writes this path, such as a build, gets at a file of the machine that it runs on.",
            evidence=target[:_MAX_LINK_CHARACTERS],
            reviewer="links",
            source=Source.ANALYSER,
            rule="link-outside",
            suggestion="Link to a file of the repository by a relative path, or keep a copy here.",
        )
