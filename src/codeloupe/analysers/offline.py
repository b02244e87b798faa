"""The reviewer that needs no AI: all analysers at the same time on the snapshot, reported on added lines."""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.analysers.claims import claims_of, in_order
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.joint import JointCalls
from codeloupe.analysers.languages import language_of, read_start
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Claim, Severity, Source
from codeloupe.model.ports import EventSink, Plan, ReviewerResult
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError

_Added = Mapping[str, frozenset[int]]
# The text of added lines, of files that are not whole in the snapshot.
_Diffs = Mapping[str, Mapping[int, bytes]]
# What an analyser, by its name, found, what it could not review, and whether it failed altogether.
_Result = tuple[str, AnalyserReport, tuple[FailedUnit, ...], ReviewError | None]


class OfflineReviewer:
    """Runs analysers side by side. One that fails takes nothing from the others and leaves the review incomplete."""

    def __init__(self, analysers: Sequence[Analyser], why: str) -> None:
        self._analysers = tuple(analysers)
        self._calls = tuple(JointCalls(analyser) for analyser in analysers)
        self.info = ReviewerInfo(type="offline", why=why)

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        """Review the files that exist after the change. Failures are in the outcome; only cancellation is raised."""
        started, root = time.monotonic(), os.path.realpath(plan.snapshot)
        added: dict[str, frozenset[int]] = {}
        diffs: dict[str, dict[int, bytes]] = {}
        missing: list[FailedUnit] = []
        for change in plan.files:
            file = change.new_path
            if file is None or not change.hunks or change.is_symlink or change.is_submodule:
                continue
            if file in plan.without_content:
                lines = (line for hunk in change.hunks for line in hunk.lines() if line.kind == "added")
                diffs[file] = {line.new_number: line.text for line in lines if line.new_number is not None}
            elif not _is_regular_file(plan.snapshot / file, root):
                why = "it is not a regular file in the snapshot of the change"
                missing.append(FailedUnit("snapshot", (file,), why))
                continue
            added[file] = change.added_line_numbers()
        starts = {file: _start_of(file, plan.snapshot, diffs) for file in added}
        running: list[asyncio.Task[_Result]] = []
        async with asyncio.TaskGroup() as group:
            for calls in self._calls:
                accepts = calls.analyser.accepts
                accepted = {file: lines for file, lines in added.items() if accepts(file, starts[file])}
                if accepted:
                    running.append(group.create_task(_run(calls, plan, accepted, diffs, emit)))
        results = [run.result() for run in running]
        reports = [(name, report) for name, report, *_ in results]
        links = links_outside(plan.files, trusted=plan.trusted)
        units_failed = (*missing, *(unit for _, _, failed, _ in results for unit in failed))
        return ReviewerResult(
            claims=in_order((*claims_of(reports, plan.snapshot, diffs), *links)),
            completed=self._completed(plan, missing, results),
            units_total=len(results),
            units_failed=units_failed,
            errors=tuple(error for *_, error in results if error is not None),
            usage=Usage(duration_seconds=time.monotonic() - started),
        )

    def _completed(
        self, plan: Plan, missing: Sequence[FailedUnit], results: Sequence[_Result]
    ) -> Mapping[str, frozenset[str]]:
        """Return the files that each analyser reviewed completely, those included that it has nothing to say about."""
        unread = {file for unit in missing for file in unit.files}
        files = frozenset(file.path for file in plan.files) - unread
        completed = {analyser.name: files for analyser in self._analysers}
        completed["links"] = files
        for name, _, failed, _ in results:
            completed[name] = files - {file for unit in failed for file in unit.files}
        return completed


def _start_of(file: str, snapshot: Path, diffs: _Diffs) -> bytes:
    """Return the beginning of a file whose name does not tell its language.

    If only the diff is known, that is the first line, if the change added it.
    """
    if language_of(file) is not None:
        return b""
    if file in diffs:
        return diffs[file].get(1, b"")
    return read_start(snapshot / file)


def _is_regular_file(path: Path, root: str) -> bool:
    """Whether a regular file is there, reached without a link that leads out of the snapshot."""
    try:
        inside = Path(os.path.realpath(path.parent)).is_relative_to(root)
        return inside and stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


async def _run(calls: JointCalls, plan: Plan, all_added: _Added, all_diffs: _Diffs, emit: EventSink) -> _Result:
    """Run one analyser on files that it accepts; files that it needs whole and of which only a diff is known fail."""
    started = time.monotonic()
    analyser = calls.analyser
    name = analyser.name
    files = [file for file in all_added if file not in all_diffs]
    diffs = [file for file in all_added if file in all_diffs]
    failed: list[FailedUnit] = []
    if analyser.needs_only_added_lines:
        files += diffs
    else:
        failed = [FailedUnit(name, (file,), "only the diff is known, not the whole file") for file in diffs]
    target = AnalysisTarget(
        root=plan.snapshot,
        files=tuple(files),
        added_lines={file: all_added[file] for file in files},
        trusted=plan.trusted,
        timeout_seconds=plan.timeout_seconds,
        added_text={file: all_diffs[file] for file in files if file in all_diffs},
        moment_of=plan.moment_of,
    )
    try:
        report = await calls.analyse(target) if files else AnalyserReport()
    except CodeloupeError as error:
        failure = f"{error.message} ({error.hint})" if error.hint else error.message
    except TimeoutError:
        limit = f"{plan.timeout_seconds:g} s"
        failure = f"it did not finish within {limit} (raise the time limit, or review less at once)"
    except Exception as error:  # noqa: BLE001 - whatever an analyser trips over, it is this one that failed
        failure = f"it crashed with {type(error).__name__}: {error}"
    else:
        added = {file: sorted(all_added[file]) for file in files}
        anchored = (_anchored(issue, added.get(issue.file, [])) for issue in report.issues)
        issues = tuple(issue for issue in anchored if issue is not None)
        failed += [FailedUnit(name, (file,), reason) for file, reason in sorted(report.failed.items())]
        if failed:
            named = "; ".join(f"{unit.files[0]}: {unit.reason}" for unit in failed[:3])
            more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
            counted = f"{len(failed)} file{'s' if len(failed) > 1 else ''}"
            emit(Warned(f"{name} could not review {counted}: {named}{more}"))
        reported = sum(1 for issue in issues if not issue.silenced_by)
        emit(LaneFinished(name, reported, time.monotonic() - started))
        return name, replace(report, issues=issues), tuple(failed), None
    emit(LaneFinished(name, 0, time.monotonic() - started, failure))
    why = ReviewError("analyser_failed", f"{name} could not review: {failure}")
    return name, AnalyserReport(), (*failed, FailedUnit(name, tuple(files), failure)), why


def _anchored(issue: Issue, added: Sequence[int]) -> Issue | None:
    """Return the issue with the first added line that it covers, or None if it covers none."""
    index = bisect_left(added, issue.line_start)
    if index == len(added) or added[index] > issue.line_end:
        return None
    return replace(issue, anchor=added[index])


def links_outside(files: Iterable[FileChange], *, trusted: bool) -> Iterator[Claim]:
    """Yield a claim for each symbolic link that leads out of the repository or into git's folder; none is followed."""
    for file in files:
        if file.new_path is None or not file.is_symlink:
            continue
        added = (line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
        target = b"\n".join(added).decode("utf-8", "replace")
        parts = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), target)).split("/")
        leaves = target.startswith("/") or parts[0] == ".." or any(part.lower() == ".git" for part in parts)
        if not target or not leaves:
            continue
        yield Claim(
            file=file.path,
            line_start=1,
            line_end=1,
            severity=Severity.MEDIUM if trusted else Severity.HIGH,
            category="security",
            title="A symbolic link points outside the repository",
            body="A program that reads or writes this path, such as a build, accesses a file outside the repository.",
            evidence=target[:300],
            reporter="links",
            source=Source.ANALYSER,
            rule="link-outside",
            suggestion="Link to a file in the repository with a relative path, or add a copy of the file.",
        )
