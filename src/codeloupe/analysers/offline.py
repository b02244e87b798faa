"""The reviewer that needs no AI: all analysers at the same time on the snapshot, reported on added lines."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from codeloupe.analysers.interface import AddedLinesAnalyser, Analyser, AnalyserReport, AnalysisTarget
from codeloupe.analysers.links import links_outside
from codeloupe.analysers.narrowing import AddedLines, Report, finding, in_order, merge, quoted_lines
from codeloupe.analysers.paths import read_regular_file
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError

_ONLY_DIFF = "only the diff is known, not the whole file"
_NOT_IN_SNAPSHOT = "it is not a regular file in the snapshot of the change"
_FAILED = "analyser_failed"
_NAMED_FILES = 3


class OfflineReviewer:
    """Runs analysers side by side. One that fails takes nothing from the others and leaves the review incomplete."""

    def __init__(self, analysers: Sequence[Analyser], why: str) -> None:
        self._analysers = tuple(analysers)
        self._info = ReviewerInfo(type="offline", why=why)

    @property
    def info(self) -> ReviewerInfo:
        """Its type and why it was chosen."""
        return self._info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the files that exist after the change. Failures are in the outcome; only cancellation is raised."""
        started = time.monotonic()
        material = _material(task)
        lanes = [lane for analyser in self._analysers if (lane := _Lane.of(analyser, material)) is not None]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(lane.run(task, material, emit)) for lane in lanes]
        results = [lane.result() for lane in running]
        failed = (FailedUnit("snapshot", (file,), _NOT_IN_SNAPSHOT) for file in material.missing)
        return ReviewerOutcome(
            findings=in_order(
                (*_findings(task.snapshot, material, results), *links_outside(task.files, trusted=task.trusted))
            ),
            units_total=len(lanes),
            units_failed=(*failed, *(unit for result in results for unit in result.failed)),
            errors=tuple(result.error for result in results if result.error is not None),
            usage=Usage(duration_seconds=time.monotonic() - started),
        )


class _Material(Struct, frozen=True):
    """The files of a task by what is known of them: `whole` in the snapshot, `diffs` as added lines only."""

    whole: tuple[str, ...]
    diffs: Mapping[str, Mapping[int, bytes]]
    missing: tuple[str, ...]
    added: Mapping[str, frozenset[int]]


class _LaneResult(Struct, frozen=True):
    reports: tuple[Report, ...] = ()
    failed: tuple[FailedUnit, ...] = ()
    error: ReviewError | None = None
    sensitive: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    quiet: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)


class _Lane(Struct, frozen=True):
    """One analyser with the files it gets, and those it would want whole and cannot have."""

    analyser: Analyser
    files: tuple[str, ...]
    refused: tuple[str, ...]

    @classmethod
    def of(cls, analyser: Analyser, material: _Material) -> _Lane | None:
        """The lane of an analyser, or None when there is nothing for it to look at."""
        whole = tuple(file for file in material.whole if analyser.accepts(file))
        diffs = tuple(file for file in material.diffs if analyser.accepts(file))
        if isinstance(analyser, AddedLinesAnalyser):
            whole, diffs = (*whole, *diffs), ()
        return cls(analyser, whole, diffs) if whole or diffs else None

    async def run(self, task: ReviewTask, material: _Material, emit: EventSink) -> _LaneResult:
        """Run the analyser and tell how it ended."""
        started = time.monotonic()
        refused = tuple(FailedUnit(self.analyser.name, (file,), _ONLY_DIFF) for file in self.refused)
        try:
            report = await self._analyse(task, material)
        except CodeloupeError as error:
            failure = f"{error.message} ({error.hint})" if error.hint else error.message
        except TimeoutError:
            failure = (
                f"it did not finish within {task.timeout_seconds:g} s (raise the time limit, or review less at once)"
            )
        except Exception as error:  # noqa: BLE001 - whatever an analyser trips over, it is this lane that failed
            failure = f"it crashed with {type(error).__name__}: {error}"
        else:
            return self._succeeded(report, refused, material, emit, time.monotonic() - started)
        name = self.analyser.name
        emit(LaneFinished(name, 0, time.monotonic() - started, failure))
        unit = FailedUnit(name, self.files, failure)
        return _LaneResult(failed=(*refused, unit), error=ReviewError(_FAILED, f"{name} could not review: {failure}"))

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
    ) -> _LaneResult:
        name = self.analyser.name
        added = AddedLines({file: material.added[file] for file in self.files})
        reports = tuple(
            Report(name, anchored, is_secret=anchored.line_start in report.sensitive.get(anchored.file, {}))
            for issue in report.issues
            if (anchored := added.anchor(issue)) is not None
        )
        failed = (*refused, *(FailedUnit(name, (file,), reason) for file, reason in sorted(report.failed.items())))
        if failed:
            emit(Warned(_failed_files_in_words(name, failed)))
        emit(LaneFinished(name, len(reports), seconds))
        return _LaneResult(reports, failed, sensitive=report.sensitive, quiet=report.quiet)


def _failed_files_in_words(name: str, failed: Sequence[FailedUnit]) -> str:
    named = "; ".join(f"{unit.files[0]}: {unit.reason}" for unit in failed[:_NAMED_FILES])
    more = f"; and {len(failed) - _NAMED_FILES} more" if len(failed) > _NAMED_FILES else ""
    return f"{name} could not review {len(failed)} file{'s' if len(failed) > 1 else ''}: {named}{more}"


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
            diffs[file] = dict(_added_text(change))
        elif _is_regular_file(task.snapshot / file, root):
            whole.append(file)
        else:
            missing.append(file)
            continue
        added[file] = change.added_line_numbers()
    return _Material(tuple(whole), diffs, tuple(missing), added)


def _added_text(change: FileChange) -> Iterator[tuple[int, bytes]]:
    for hunk in change.hunks:
        for line in hunk.lines():
            if line.kind == "added" and line.new_number is not None:
                yield line.new_number, line.text


def _is_regular_file(path: Path, root: str) -> bool:
    """Whether a regular file stands there, reached without a link that leads out of the snapshot."""
    try:
        inside = Path(os.path.realpath(path.parent)).is_relative_to(root)
        return inside and stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _findings(snapshot: Path, material: _Material, results: Sequence[_LaneResult]) -> tuple[Finding, ...]:
    sensitive = [result.sensitive for result in results]
    reports = [report for result in results for report in result.reports if not _is_answered(report, results)]
    contents: dict[str, Mapping[int, bytes]] = dict(material.diffs)
    found: list[Finding] = []
    for report, agreement in merge(reports):
        file = report.issue.file
        if file not in contents:
            contents[file] = dict(enumerate(_read(snapshot / file).split(b"\n"), start=1))
        lines = quoted_lines(report.issue, contents[file])
        secrets = [value for known in sensitive for line in lines for value in known.get(file, {}).get(line, ())]
        found.append(finding(report, agreement=agreement, lines=lines, secrets=secrets))
    return tuple(found)


def _is_answered(report: Report, results: Sequence[_LaneResult]) -> bool:
    """Whether an analyser that looked closer says that this rule has nothing to add at its line."""
    issue = report.issue
    return any(issue.rule in result.quiet.get(issue.file, {}).get(issue.line_start, ()) for result in results)


def _read(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except OSError:
        return b""  # it vanished after the analyser read it: the finding stays, without a quote
