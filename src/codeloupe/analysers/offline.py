"""The reviewer that needs no AI: all analysers at the same time on the snapshot, reported on added lines."""

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

from msgspec.structs import replace

from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.joint import JointCalls
from codeloupe.analysers.secret_detectors import mask_secrets
from codeloupe.config.files import read_regular_file
from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import Claim, Severity, Source
from codeloupe.model.ports import EventSink, Plan, ReviewerResult
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.system.redaction import redact

Sensitive = Mapping[int, Iterable[str]]
_HARD_CODED_SECRET = "hard-coded secret"  # noqa: S105 - the name of a defect
# Rules that see one defect from two sides: where they meet on a line, one finding is enough.
_SAME_DEFECT = {
    **dict.fromkeys(("S105", "S106", "S107"), _HARD_CODED_SECRET),
    **dict.fromkeys(("E722", "S110", "S112"), "swallowed error"),
    **dict.fromkeys(("B012", "SIM107"), "jump in finally"),
    **dict.fromkeys(("F509", "PLE1300"), "format character"),
    **dict.fromkeys(("B005", "PLE1310"), "strip of a text"),
}

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
        chosen = [calls for calls in self._calls if any(map(calls.analyser.accepts, added))]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_run(calls, plan, added, diffs, emit)) for calls in chosen]
        results = [run.result() for run in running]
        links = links_outside(plan.files, trusted=plan.trusted)
        units_failed = (*missing, *(unit for _, _, failed, _ in results for unit in failed))
        return ReviewerResult(
            claims=in_order((*_claims(plan.snapshot, diffs, results), *links)),
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


def _is_regular_file(path: Path, root: str) -> bool:
    """Whether a regular file is there, reached without a link that leads out of the snapshot."""
    try:
        inside = Path(os.path.realpath(path.parent)).is_relative_to(root)
        return inside and stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


async def _run(calls: JointCalls, plan: Plan, all_added: _Added, all_diffs: _Diffs, emit: EventSink) -> _Result:
    """Run one analyser on the files that it accepts; those it would want whole and cannot have are failures."""
    started = time.monotonic()
    analyser = calls.analyser
    name = analyser.name
    files = [file for file in all_added if analyser.accepts(file) and file not in all_diffs]
    diffs = [file for file in all_diffs if analyser.accepts(file)]
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
    """The issue at the first added line that it covers, or None when it covers none."""
    index = bisect_left(added, issue.line_start)
    if index == len(added) or added[index] > issue.line_end:
        return None
    return replace(issue, line_start=added[index])


def _claims(snapshot: Path, diffs: _Diffs, results: Sequence[_Result]) -> Iterator[Claim]:
    """Yield one claim for each defect of a line: the most severe issue, with all analysers that agree on it."""
    groups: dict[tuple[str, int, str], list[tuple[Issue, str]]] = defaultdict(list)
    for analyser, report, *_ in results:
        for issue in report.issues:
            file, line = issue.file, issue.line_start
            is_secret = line in report.sensitive.get(file, {}) or "hardcoded" in issue.rule
            defect = _HARD_CODED_SECRET if is_secret else _SAME_DEFECT.get(issue.rule, issue.rule)
            # An analyser that looked closer may say that this rule has nothing to add at its line.
            if not any(issue.rule in other.quiet.get(file, {}).get(line, ()) for _, other, *_ in results):
                groups[file, line, defect].append((issue, analyser))
    contents = dict(diffs)
    for (file, _, _), group in groups.items():
        shown = [pair for pair in group if not pair[0].silenced_by]
        worst, analyser = min(shown or group, key=lambda pair: pair[0].severity.priority)
        if file not in contents:
            try:
                content = read_regular_file(snapshot / file)
            except OSError:
                content = b""  # it vanished after the analyser read it: the claim stays, without a quote
            contents[file] = dict(enumerate(content.split(b"\n"), start=1))
        sensitive = [report.sensitive.get(file, {}) for _, report, *_ in results]
        names = tuple(sorted({name for _, name in shown or group}))
        yield replace(claim_of(worst, analyser, contents[file], sensitive), seen_by=names)


def claim_of(issue: Issue, analyser: str, content: Mapping[int, bytes], sensitive: Iterable[Sensitive]) -> Claim:
    """Return the claim of an issue in a file with these lines; no text of it shows a sensitive value in full."""
    last = min(issue.line_end, issue.line_start + 4)
    numbers = [number for number in range(issue.line_start, last + 1) if number in content]
    quoted = "\n".join(content[number].decode("utf-8", "replace").rstrip("\r") for number in numbers)
    hidden = sorted({value for values in sensitive for number in numbers for value in values.get(number, ())})
    suggestion = mask_secrets(issue.suggestion or "", hidden)
    return Claim(
        reporter=analyser,
        source=Source.ANALYSER,
        severity=issue.severity,
        category=issue.category,
        title=mask_secrets(issue.title, hidden),
        body=mask_secrets(issue.body, hidden),
        file=issue.file,
        line_start=issue.line_start,
        line_end=issue.line_end,
        # A quoted line may be older than the change, and hold a secret that no analyser was asked about.
        evidence=redact(mask_secrets(quoted, hidden))[:1000],
        rule=issue.rule,
        rule_title=issue.rule_title,
        suggestion=suggestion or None,
        silenced_by=issue.silenced_by,
    )


def in_order(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return claims by file, line and severity."""
    return tuple(sorted(claims, key=lambda one: (one.file, one.first_line, one.severity.value, one.rule or "")))


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
