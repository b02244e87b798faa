"""A review as the successor of earlier ones: what the last review of this work saw and found.

Work is known by its commits, and by the name of its branch where those were rewritten. What was found before stays
until its code changed, or a verification says that it is gone; what an agent was not asked in the same way is asked
about again. What this review is not about is not judged, and said. So no sequence of reviews loses a finding without a
word.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.calls import PROMPT_VERSION, AgentCalls, trust_of
from codeloupe.engine.choose import ANALYSERS, SECRETS, ChosenReviewer, experts_of
from codeloupe.engine.globs import Globs
from codeloupe.engine.history import OpenedHistory, Round
from codeloupe.engine.identity import PlacesOfNow, digest, is_touched
from codeloupe.engine.lifecycle import Asked, EarlierRounds, who_saw
from codeloupe.engine.merge import DROPPED_FINDING
from codeloupe.engine.prepare import Prepared
from codeloupe.errors import CodeloupeError, StoreError
from codeloupe.git.diff import stretches_of
from codeloupe.git.identity import Checkout, commits_of_work, read_checkout
from codeloupe.git.repository import find_root
from codeloupe.model.change import FileChange, Hunk, ScopeKind
from codeloupe.model.events import StageStarted
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.history import EntryKind, HistoryEntry, HistoryQuery, ReviewRecord
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import Review, ReviewerInfo, ReviewError, SkipReason
from codeloupe.store.interface import History

_log = logging.getLogger(__name__)
# A commit or a diff file is looked at by itself; these move on as work goes on.
_GOING_ON = (ScopeKind.BRANCH, ScopeKind.UNCOMMITTED, ScopeKind.STAGED, ScopeKind.RANGE, ScopeKind.PULL_REQUEST)
# How many reviews are looked at, how many of them are compared with a change that no name belongs to, and how far back
# the last review of all of a branch is looked for, among those of a part of it.
_MOST_LISTED, _MOST_COMPARED, _MOST_PARTIAL = 500, 25, 50


def digests(files: Iterable[FileChange]) -> frozenset[str]:
    """What all lines of some files' hunks are known by: their file and the lines next to them, not their place."""
    return frozenset(name for file in files for *_, name in _parts(file))


def unseen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are not in `seen`, with a few rows around; without other files."""
    left = (_chosen(file, lambda one: one not in seen, rows_around=4) for file in files)
    return tuple(file for file in left if file.hunks)


def already_seen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are in `seen`."""
    return tuple(_chosen(file, seen.__contains__, rows_around=0) for file in files)


def _chosen(file: FileChange, is_wanted: Callable[[str], bool], *, rows_around: int) -> FileChange:
    """A file with the parts of its hunks that are wanted, those next to each other as one."""
    hunks: list[Hunk] = []
    for hunk, parts in groupby(_parts(file), key=lambda part: part[0]):
        stretches: list[tuple[int, int]] = []
        last = 0
        for _, first, last, name in parts:
            if is_wanted(name):
                start = max(0, first - rows_around)
                if stretches and start <= stretches[-1][1]:
                    start = stretches.pop()[0]
                stretches.append((start, last + rows_around))
        hunks += stretches_of(hunk, ((start, min(end, last)) for start, end in stretches))
    return replace(file, hunks=tuple(hunks))


def _parts(file: FileChange) -> Iterator[tuple[Hunk, int, int, str]]:
    """The hunks of a file in parts, each with what it is known by; the same rows again in a file are others."""
    facts = (file.path, file.old_path, file.status.value, file.old_mode, file.new_mode)
    times: Counter[tuple[str, bytes]] = Counter()
    for hunk in file.hunks:
        rows = hunk.body.split(b"\n")
        for start, end in _stretches(rows):
            body = b"\n".join(rows[start:end])
            # Of a part in the middle git names no section, and what is above it may have changed.
            section = hunk.section if start == 0 else ""
            times[section, body] += 1
            known_by = repr((*facts, section, times[section, body])).encode("utf-8", "surrogateescape")
            yield hunk, start, end, hashlib.sha256(known_by + b"\0" + body).hexdigest()[:24]


def _stretches(rows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """The rows in stretches whose ends the rows themselves decide, so that a line put in moves no end but the next."""
    last = len(rows) - (rows[-1:] == [b""])
    start = 0
    for row in range(1, last):
        before, after = rows[row - 1], rows[row]
        is_end = after[1:].strip() and (not before[1:].strip() or (after[1:2].isalpha() and before[1:2].isspace()))
        if row - start >= 24 or is_end:
            yield start, row
            start = row
    yield start, last


class IncrementalReviewer:
    """Has another reviewer review what it has not `seen`, and carries over, placed anew, what it found in the rest."""

    def __init__(self, reviewer: Reviewer, seen: frozenset[str], findings: tuple[Finding, ...]) -> None:
        self._reviewer, self._seen, self._findings = reviewer, seen, findings

    @property
    def info(self) -> ReviewerInfo:
        """That of the reviewer itself."""
        return self._reviewer.info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review what is new. Failures are in the outcome; only cancellation is raised."""
        left = unseen(task.files, self._seen)
        placed = PlacesOfNow(task).placed(self._findings)
        touched = tuple(finding for finding in placed if is_touched(finding, left))
        asked = {file.path: file.hunks for file in left}
        whole = {file.path for file in task.files if asked.get(file.path) == file.hunks}
        loose = (finding for finding in self._findings if not finding.anchored and finding.file not in whole)
        carried = (*(finding for finding in placed if finding not in touched), *loose)
        counts = ((hunk.body.count(b"\n") for file in files for hunk in file.hunks) for files in (task.files, left))
        total, new = map(sum, counts)
        if total > new:
            emit(StageStarted("carrying over", f"{total - new:,} of {total:,} lines, known from the last review"))
        if not left:
            return ReviewerOutcome(findings=carried)
        outcome = await self._reviewer.review(replace(task, files=left, earlier=touched, is_follow_up=True), emit)
        return replace(outcome, findings=(*outcome.findings, *carried))


async def begin_round(
    prepared: Prepared,
    chosen: Sequence[ChosenReviewer],
    settings: Settings,
    *,
    calls: AgentCalls,
    repo: Path,
    fresh: bool,
    since_last: bool,
) -> Round:
    """What is known from the last review of this branch. A history that cannot be read is a note: all is reviewed then.

    With `fresh` nothing is left out, but findings still have the status they have among the earlier ones.
    """
    plain = Round(conditions=_conditions_of(prepared, chosen, settings))
    if any(one.agents for one in chosen):
        plain = replace(plain, seen=_seen_whole)
    kind = prepared.change.scope.kind
    is_going_on = kind in _GOING_ON
    if not settings.keep_history or (since_last and not is_going_on):
        why = "this kind of change has no earlier reviews" if settings.keep_history else "no history is kept"
        return replace(plain, notes=(f"{why}, so all of it is reviewed",) if since_last else ())
    try:
        checkout, dismissed, newest, whole = await _read_past(prepared, calls.opened_history, repo)
        tree = prepared.tree
        if kind is ScopeKind.STAGED:
            tree = None
        elif is_going_on and kind not in (ScopeKind.PULL_REQUEST, ScopeKind.RANGE):
            tree = find_root(repo)
    except CodeloupeError as error:
        note = f"the history cannot be read, so all of it is reviewed: {error.message}"
        return replace(plain, notes=(note,) if is_going_on else ())
    plain = replace(plain, checkout=checkout)
    if is_going_on and since_last:
        # What was dismissed before stays so; nothing else of the earlier rounds is in this one.
        return _since_last(replace(plain, earlier=dismissed), dismissed, newest, whole, settings.fail_on)
    if whole is None:
        # What a person dismissed does not count in a change that is looked at by itself either.
        return replace(plain, earlier=dismissed if dismissed.dismissed else None)
    return _Now(prepared, chosen, settings, tree).next_round(plain, dismissed, whole, fresh=fresh)


def _seen_whole(task: ReviewTask, review: Review, seen_elsewhere: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The hunks that agents have seen whole by now, with those that they saw and this review leaves out."""
    # To ask again reports the error again, which costs nothing as long as the answer is in the ledger.
    if any(error.kind == DROPPED_FINDING for error in review.errors):
        return ()
    failed = {file for unit in review.coverage.units_failed for file in unit.files}
    return tuple(sorted(digests(file for file in task.files if file.path not in failed) | seen_elsewhere))


def _conditions_of(prepared: Prepared, chosen: Sequence[ChosenReviewer], settings: Settings) -> str:
    """A digest of all that an agent is asked with beside the diff, but for commit messages: each would make it new."""
    agents = [f"{one.info.type} {one.info.model}" for one in chosen if one.agents]
    parts = (
        PROMPT_VERSION,
        *agents,
        *(repr(expert) for expert in (experts_of(settings) if agents else ())),
        trust_of(trusted=not settings.untrusted),
        settings.api_base_url or "",
        settings.effort.value,
        str(settings.passes),
        *(repr(rule) for rule in settings.instructions),
        *(repr(file) for file in prepared.guidance),
        prepared.intent.context,
    )
    return digest(*(f"{len(part)}:{part}" for part in parts))


async def _read_past(
    prepared: Prepared, opened: OpenedHistory, repo: Path
) -> tuple[Checkout, EarlierRounds, ReviewRecord | None, ReviewRecord | None]:
    """What the history holds of a branch: what was dismissed, its newest review, and the newest of all of it."""
    scope = prepared.change.scope
    with opened() as history:
        checkout = await read_checkout(repo, history.root_of, prepared.repository)
        names = checkout.identity.names
        dismissed = _dismissed(history, names, opened)
        if scope.kind not in _GOING_ON:
            return checkout, dismissed, None, None
        # A pull request keeps its number; one in a fork may have the same commits and is another.
        is_named = scope.kind is ScopeKind.PULL_REQUEST
        commits = frozenset[str]() if is_named else await commits_of_work(prepared.repository, scope, checkout)
        listed = history.list(HistoryQuery(repositories=names, limit=_MOST_LISTED)).entries
        entries = [one for one in listed if one.kind is EntryKind.REVIEW and one.scope == scope.kind.value]
        # What is checked out says nothing about which range is under review.
        if scope.kind is ScopeKind.RANGE or (checkout.branch is None and not is_named):
            records, now = list(_records(history, entries[:_MOST_COMPARED])), digests(prepared.selection.files)
            newest = _last_of_change(records, now, commits)
            whole = _last_of_change([record for record in records if _is_whole(record)], now, commits)
        else:
            branches = {checkout.branch} - {None}
            of_work = [entry for entry in entries if entry.branch in branches or entry.head in commits]
            found = _records(history, of_work)
            newest = whole = next(found, None)
            if newest is not None and not _is_whole(newest):
                whole = next((record for record in islice(found, _MOST_PARTIAL) if _is_whole(record)), None)
        return checkout, dismissed, newest, whole


def _dismissed(history: History, repositories: tuple[str, ...], opened: OpenedHistory) -> EarlierRounds:

    def fixed_before(fingerprints: Sequence[str]) -> frozenset[str]:
        try:
            with opened() as again:
                sightings = again.findings_of(fingerprints, repositories=repositories)
        except CodeloupeError:
            return frozenset()  # then it is reported as new, which it is to whoever reads this review
        latest = {sighting.fingerprint: sighting.status for sighting in sightings}
        return frozenset(name for name, status in latest.items() if status is FindingStatus.FIXED)

    known: dict[str, Finding | None] = {}
    for one in history.dismissals(repositories):
        name = one.fingerprint
        found = one.finding or history.finding(name, repositories=repositories)
        known[name] = replace(found, fingerprint=name, suppression=None) if found else None
    return EarlierRounds(dismissed=known, fixed_before=fixed_before, is_first=True)


def _records(history: History, entries: Iterable[HistoryEntry]) -> Iterator[ReviewRecord]:
    for entry in entries:
        try:
            record = history.get(entry.entry_id)
        except StoreError as error:
            _log.warning("%s", error.message)
            continue
        if record is not None:
            yield record


def _last_of_change(
    records: Sequence[ReviewRecord], now: frozenset[str], commits: frozenset[str]
) -> ReviewRecord | None:
    """The newest review that saw nearly the most of these lines, which a rebase keeps; else one of these commits."""
    shared = [len(now.intersection(record.seen)) for record in records]
    if most := max(shared, default=0):
        return next(record for record, count in zip(records, shared, strict=True) if count >= 0.9 * most)
    return next((record for record in records if record.review.scope.head in commits), None)


def _is_whole(record: ReviewRecord) -> bool:
    """Whether a review tells of all that was known: one since the last does not, nor one without anything to see."""
    return bool(record.terms) and record.review.coverage.files_reviewed > 0


def _since_last(
    plain: Round, dismissed: EarlierRounds, last: ReviewRecord | None, whole: ReviewRecord | None, fail_on: Severity
) -> Round:
    """A round about what is new to the last one. It has no conditions, so that no later one goes on from it."""
    if last is None:
        return replace(plain, notes=("there is no earlier review of this branch, so all of it is reviewed",))
    if last.problems or not last.seen:
        why = "the last review of this branch cannot be read whole" if last.problems else "no agent saw it before"
        return replace(plain, conditions="", notes=(f"{why}, so all of it is reviewed",))
    known = {finding.fingerprint: finding for record in (whole, last) if record for finding in record.findings}
    blocking = [one for one in known.values() if one.can_block and one.severity.at_least(fail_on)]
    remark = "; only what the last review has not seen"
    errors: tuple[ReviewError, ...] = ()
    if blocking:
        which = f"{_open_findings(len(blocking))} of {fail_on.label} or above"
        remark += f", whose {which} do not count here"
        errors = (ReviewError("left_open", f"earlier reviews left {which}, not in this review"),)
    over = partial(_only_new, frozenset(last.seen), ())
    return replace(plain, conditions="", over=over, earlier=replace(dismissed, remark=remark), errors=errors)


def _only_new(
    seen: frozenset[str], found: tuple[Finding, ...], made: Sequence[Reviewer], chosen: Sequence[ChosenReviewer]
) -> tuple[Reviewer, ...]:
    """The reviewers, the agents asked only about what they have not seen; the first carries over what they found."""
    result = list(made)
    for index in [number for number, one in enumerate(chosen) if one.agents]:
        result[index] = IncrementalReviewer(made[index], seen, found)
        found = ()
    return tuple(result)


class _Now(NamedTuple):
    """What is reviewed now, by whom, and where the whole tree is."""

    prepared: Prepared
    chosen: Sequence[ChosenReviewer]
    settings: Settings
    tree: Path | None

    def next_round(self, plain: Round, past: EarlierRounds, last: ReviewRecord, *, fresh: bool) -> Round:
        # Without its suppressions: what was suppressed then may count by now, and the other way round.
        known = tuple(replace(finding, suppression=None) for finding in (*last.findings, *last.left_out))
        findings, excluded, elsewhere = self._of_this_change(known)
        seen, files = frozenset(last.seen), self.prepared.selection.files
        is_asked_alike = last.terms == plain.conditions
        goes_on = bool(seen) and is_asked_alike and not fresh and not last.problems
        agents = frozenset(one.info.type for one in self.chosen if one.agents)
        if goes_on:
            by_agents = (one for one in findings if one.status is not FindingStatus.FIXED and who_saw(one) & agents)
            plain = replace(plain, over=partial(_only_new, seen, tuple(by_agents)))
        if agents and is_asked_alike:
            selected = {file.path for file in files}
            others = digests(file for file in self.prepared.change.files if file.path not in selected)
            plain = replace(plain, seen=partial(_seen_whole, seen_elsewhere=others & seen))
        # Of a whole branch nothing that was committed is ever left out. Elsewhere it is no uncommitted change any more,
        # so that no later round is about it again.
        is_kept = self.prepared.change.scope.kind in (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
        note = "the last review of this branch cannot be read whole, so all of it is reviewed"
        asked = tuple(self._asked(agents, unseen(files, seen) if goes_on else files))
        earlier = replace(past, findings=findings, is_first=False, asked=asked, tree=self.tree)
        left_out = _not_judged(excluded, "in files that this review leaves out")
        return replace(
            plain,
            earlier=replace(earlier, unchanged=already_seen(files, seen)),
            notes=(note,) if last.problems else (),
            errors=(*left_out, *_not_judged(elsewhere, "in code that is not in this change")),
            left_out=(*excluded, *(elsewhere if is_kept else ())),
        )

    def _asked(self, agents: frozenset[str], of_agents: tuple[FileChange, ...]) -> Iterator[Asked]:
        selection, settings = self.prepared.selection, self.settings
        experts = frozenset(expert.name for expert in experts_of(settings)) if settings.experts else None
        yield Asked(agents, of_agents, experts)
        if agents:
            # It looks for what is masked for them.
            yield Asked(frozenset((SECRETS,)), of_agents)
        for one in self.chosen:
            if not one.agents:
                names = ANALYSERS if one.info.type == "offline" else (one.info.type,)
                yield Asked(frozenset(names), selection.files)
        yield Asked(frozenset(("lock-files",)), selection.lock_files)

    def _of_this_change(self, findings: tuple[Finding, ...]) -> tuple[tuple[Finding, ...], ...]:
        """The findings that this review is about, those in files that it leaves out, and those not in its change."""
        prepared = self.prepared
        changed = {path for file in prepared.change.files for path in (file.old_path, file.new_path)}
        selected = {file.path for file in prepared.selection.files}
        globs = Globs(self.settings.include, self.settings.exclude)
        skipped = {skip.file for skip in prepared.selection.skipped if skip.reason is SkipReason.EXCLUDED}
        places = PlacesOfNow(prepared, tree=self.tree)
        placed = {finding.fingerprint: finding for finding in places.placed(findings)}

        def is_elsewhere(old: Finding) -> bool:
            if not old.anchored:
                return bool(old.file) and old.file not in changed
            if old.outside_change:
                return False
            now = placed.get(old.fingerprint)
            if now is None:
                return old.file not in changed and not places.is_gone(old)
            return now.outside_change and (now.file not in changed or now.file in selected)

        groups: tuple[list[Finding], ...] = ([], [], [])
        for one in findings:
            file = placed.get(one.fingerprint, one).file
            is_excluded = file in skipped or (bool(file) and globs.unwanted(file) is not None)
            is_fixed = one.status is FindingStatus.FIXED
            groups[0 if is_fixed else 1 if is_excluded else 2 if is_elsewhere(one) else 0].append(one)
        return tuple(tuple(group) for group in groups)


def _not_judged(findings: Sequence[Finding], why: str) -> Iterator[ReviewError]:
    still_open = [one for one in findings if one.is_open]
    if still_open:
        files = list(dict.fromkeys(one.file for one in still_open))
        places = f"{', '.join(files[:5])}{f' and {len(files) - 5:,} more' if len(files) > 5 else ''}"
        which = _open_findings(len(still_open))
        yield ReviewError("not_judged", f"{which} of the last review, {why}, not judged here ({places})")


def _open_findings(count: int) -> str:
    return "1 open finding" if count == 1 else f"{count:,} open findings"
