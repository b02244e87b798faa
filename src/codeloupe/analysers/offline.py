"""The reviewer that needs no AI: all analysers at the same time on the snapshot, reported on added lines."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.analysers.claims import claims_of, in_order
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.joint import JointCalls
from codeloupe.analysers.languages import language_of, read_start
from codeloupe.analysers.links import links_outside
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.ports import EventSink, Plan, ReviewerResult
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError

_MOST_NAMED_FAILURES = 3


class _Changed(Struct):
    """The changed files that analysers can read.

    `added` has the numbers of the added lines of each file. `diffs` has the text of the added lines of files of which
    only the diff is known. `starts` has the beginning of files whose names do not show their language.
    """

    added: dict[str, frozenset[int]] = field(default_factory=dict)
    diffs: dict[str, Mapping[int, bytes]] = field(default_factory=dict)
    starts: dict[str, bytes] = field(default_factory=dict)

    def accepted_by(self, analyser: Analyser) -> list[str]:
        """Return the files that an analyser has something to say about."""
        return [file for file in self.added if analyser.accepts(file, self.starts.get(file, b""))]


class _LaneResult(Struct, frozen=True, kw_only=True):
    """The result of one analyser: its report, the parts that it could not review, and the error if it failed whole."""

    analyser: str
    report: AnalyserReport
    failed: tuple[FailedUnit, ...] = ()
    error: ReviewError | None = None


class OfflineReviewer:
    """Runs analysers side by side. One that fails takes nothing from the others and leaves the review incomplete."""

    def __init__(self, analysers: Sequence[Analyser], why: str) -> None:
        self._calls = tuple(JointCalls(analyser) for analyser in analysers)
        self.info = ReviewerInfo(type="offline", why=why)

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        """Review the files that exist after the change. Failures are in the result; only cancellation is raised."""
        started = time.monotonic()
        changed, missing = _changed_files(plan)
        lanes: list[asyncio.Task[_LaneResult]] = []
        async with asyncio.TaskGroup() as group:
            for calls in self._calls:
                files = changed.accepted_by(calls.analyser)
                if files:
                    lane = _Lane(calls, plan, changed, emit)
                    lanes.append(group.create_task(lane.run(files)))
        results = [lane.result() for lane in lanes]
        failed = list(missing)
        for result in results:
            failed += result.failed
        reports = [(result.analyser, result.report) for result in results]
        claims = [*claims_of(reports, plan.snapshot, changed.diffs), *links_outside(plan.files, trusted=plan.trusted)]
        return ReviewerResult(
            claims=in_order(claims),
            completed=self._completed(plan, missing, results),
            units_total=len(results),
            units_failed=tuple(failed),
            errors=tuple(result.error for result in results if result.error is not None),
            usage=Usage(duration_seconds=time.monotonic() - started),
        )

    def _completed(
        self, plan: Plan, missing: Sequence[FailedUnit], results: Sequence[_LaneResult]
    ) -> Mapping[str, frozenset[str]]:
        """Return the files that each analyser reviewed completely, those included that it has nothing to say about."""
        files = frozenset(file.path for file in plan.files) - _files_of(missing)
        completed = {calls.analyser.name: files for calls in self._calls}
        completed["links"] = files
        for result in results:
            completed[result.analyser] = files - _files_of(result.failed)
        return completed


def _files_of(units: Sequence[FailedUnit]) -> set[str]:
    files: set[str] = set()
    for unit in units:
        files.update(unit.files)
    return files


def _changed_files(plan: Plan) -> tuple[_Changed, list[FailedUnit]]:
    """Return the changed files that analysers can read, and those that are missing in the snapshot."""
    changed = _Changed()
    missing: list[FailedUnit] = []
    root = os.path.realpath(plan.snapshot)
    for change in plan.files:
        file = change.new_path
        if file is None or not change.hunks or change.is_symlink or change.is_submodule:
            continue
        if file in plan.without_content:
            changed.diffs[file] = _added_text(change)
        elif not _is_regular_file(plan.snapshot / file, root):
            missing.append(FailedUnit("snapshot", (file,), "it is not a regular file in the snapshot of the change"))
            continue
        changed.added[file] = change.added_line_numbers()
        if language_of(file) is None:
            changed.starts[file] = _start_of(file, plan.snapshot, changed.diffs)
    return changed, missing


def _added_text(change: FileChange) -> dict[int, bytes]:
    """Return the added lines of a file by their numbers."""
    texts: dict[int, bytes] = {}
    for hunk in change.hunks:
        for line in hunk.lines():
            if line.kind == "added" and line.new_number is not None:
                texts[line.new_number] = line.text
    return texts


def _start_of(file: str, snapshot: Path, diffs: Mapping[str, Mapping[int, bytes]]) -> bytes:
    """Return the beginning of a file. If only the diff is known, that is the first line, if the change added it."""
    if file in diffs:
        return diffs[file].get(1, b"")
    return read_start(snapshot / file)


def _is_regular_file(path: Path, root: str) -> bool:
    """Return whether a regular file is there, reached without a link that leads out of the snapshot."""
    try:
        is_inside = Path(os.path.realpath(path.parent)).is_relative_to(root)
        return is_inside and stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


class _Lane:
    """The run of one analyser in a review."""

    def __init__(self, calls: JointCalls, plan: Plan, changed: _Changed, emit: EventSink) -> None:
        self._calls = calls
        self._name = calls.analyser.name
        self._plan = plan
        self._changed = changed
        self._emit = emit

    async def run(self, accepted: Sequence[str]) -> _LaneResult:
        """Analyse files that the analyser accepts, and report the end of the lane."""
        started = time.monotonic()
        files, unreadable = self._readable(accepted)
        failure = ""
        report = AnalyserReport()
        try:
            if files:
                report = await self._calls.analyse(self._target(files))
        except CodeloupeError as error:
            failure = error.message
            if error.hint:
                failure += f" ({error.hint})"
        except TimeoutError:
            limit = f"{self._plan.timeout_seconds:g} s"
            failure = f"it did not finish within {limit} (raise the time limit, or review less at once)"
        except Exception as error:  # noqa: BLE001 - a crash of one analyser is its failure, not that of the review
            failure = f"it crashed with {type(error).__name__}: {error}"
        if failure:
            self._emit(LaneFinished(self._name, 0, time.monotonic() - started, failure))
            return _LaneResult(
                analyser=self._name,
                report=AnalyserReport(),
                failed=(*unreadable, FailedUnit(self._name, tuple(files), failure)),
                error=ReviewError("analyser_failed", f"{self._name} could not review: {failure}"),
            )
        result = self._finished(report, unreadable)
        shown = [issue for issue in result.report.issues if not issue.silenced_by]
        self._emit(LaneFinished(self._name, len(shown), time.monotonic() - started))
        return result

    def _readable(self, accepted: Sequence[str]) -> tuple[list[str], list[FailedUnit]]:
        """Split files into those to analyse, and those that are needed whole although only their diff is known."""
        if self._calls.analyser.needs_only_added_lines:
            return list(accepted), []
        files: list[str] = []
        unreadable: list[FailedUnit] = []
        for file in accepted:
            if file in self._changed.diffs:
                unreadable.append(FailedUnit(self._name, (file,), "only the diff is known, not the whole file"))
            else:
                files.append(file)
        return files, unreadable

    def _target(self, files: Sequence[str]) -> AnalysisTarget:
        changed = self._changed
        return AnalysisTarget(
            root=self._plan.snapshot,
            files=tuple(files),
            added_lines={file: changed.added[file] for file in files},
            trusted=self._plan.trusted,
            timeout_seconds=self._plan.timeout_seconds,
            added_text={file: changed.diffs[file] for file in files if file in changed.diffs},
            moment_of=self._plan.moment_of,
        )

    def _finished(self, report: AnalyserReport, unreadable: Sequence[FailedUnit]) -> _LaneResult:
        """Return the result of an analyser that finished, with its issues on added lines, and warn about failures."""
        failed = list(unreadable)
        for file, reason in sorted(report.failed.items()):
            failed.append(FailedUnit(self._name, (file,), reason))
        if failed:
            self._emit(Warned(f"{self._name} could not review {_named(failed)}"))
        added = {file: sorted(lines) for file, lines in self._changed.added.items()}
        issues: list[Issue] = []
        for issue in report.issues:
            anchor = _first_covered(issue, added.get(issue.file, []))
            if anchor is not None:
                issues.append(replace(issue, anchor=anchor))
        return _LaneResult(analyser=self._name, report=replace(report, issues=tuple(issues)), failed=tuple(failed))


def _named(failed: Sequence[FailedUnit]) -> str:
    """Return the number of failed files, and the first of them with their reasons."""
    counted = "1 file" if len(failed) == 1 else f"{len(failed)} files"
    named = "; ".join(f"{unit.files[0]}: {unit.reason}" for unit in failed[:_MOST_NAMED_FAILURES])
    left = len(failed) - _MOST_NAMED_FAILURES
    if left > 0:
        named += f"; and {left} more"
    return f"{counted}: {named}"


def _first_covered(issue: Issue, added: Sequence[int]) -> int | None:
    """Return the first added line that an issue covers, or None if it covers none."""
    index = bisect_left(added, issue.line_start)
    if index == len(added) or added[index] > issue.line_end:
        return None
    return added[index]
