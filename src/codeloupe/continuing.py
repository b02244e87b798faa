"""A review as the next round of earlier ones: what the last review of this branch saw and found.

What was found before stays until its code is gone or one that reported it was asked about its place again; what was
not seen on the same terms is asked about. So no sequence of reviews loses a finding without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from codeloupe.config.schema import Settings
from codeloupe.engine.agent_reviewer import DROPPED_FINDING
from codeloupe.engine.incremental import IncrementalReviewer, LastLook, digests, unseen
from codeloupe.engine.placing_again import PlacesOfNow
from codeloupe.engine.prompt import PROMPT_VERSION
from codeloupe.engine.rounds import Asked, EarlierRounds, who_saw
from codeloupe.errors import CodeloupeError
from codeloupe.git.repository import find_root
from codeloupe.historian.opening import OpenedHistory, opened_history
from codeloupe.historian.whereabouts import Whereabouts, find_whereabouts
from codeloupe.intake import Intake
from codeloupe.model.change import FileChange, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import EntryKind, HistoryQuery, ReviewRecord
from codeloupe.model.records import dataclass
from codeloupe.model.review import Review, ReviewError
from codeloupe.panel import Floor, Seat, default_analysers, experts_of
from codeloupe.ports import History, Reviewer, ReviewTask

_DIGITS = 32
_LEFT_OPEN = "left_open"
# A commit, a range or a diff file is looked at by itself; these move on as work goes on.
_GOING_ON = (ScopeKind.BRANCH, ScopeKind.UNCOMMITTED, ScopeKind.STAGED, ScopeKind.PULL_REQUEST)
# Of these nothing that was committed is ever left out.
_WHOLE_BRANCHES = (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
# How far back the last review of all of a branch is looked for, behind those of a part of it.
_MOST_PARTIAL_REVIEWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """This review among its earlier ones. `look` is what the agents need not be asked about again.

    `notes` are told while it runs; `errors` stand in its report as well, for they say what a pass does not mean.
    `place` is the repository and its branch, when the history was asked for them.
    """

    terms: str = ""
    look: LastLook | None = None
    earlier: EarlierRounds | None = None
    has_agents: bool = False
    notes: tuple[str, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    place: Whereabouts | None = None

    def over(self, reviewers: Sequence[Reviewer], seats: Sequence[Seat]) -> tuple[Reviewer, ...]:
        """The reviewers, the agents among them asked only about what they have not seen."""
        if self.look is None:
            return tuple(reviewers)
        looks = chain((self.look,), repeat(replace(self.look, findings=())))
        return tuple(
            IncrementalReviewer(reviewer, next(looks)) if seat.agents else reviewer
            for reviewer, seat in zip(reviewers, seats, strict=True)
        )

    def seen(self, task: ReviewTask, review: Review) -> tuple[str, ...]:
        """The hunks that agents have seen whole by now, to be kept with the review.

        None when a finding could not be read: its error is told again by asking again, which costs nothing as long
        as the answer is in the ledger.
        """
        if not self.has_agents or any(error.kind == DROPPED_FINDING for error in review.errors):
            return ()
        failed = {file for unit in review.coverage.units_failed for file in unit.files}
        return tuple(sorted(digests(file for file in task.files if file.path not in failed)))


@dataclass(frozen=True, slots=True)
class _Past:
    """What the history holds of a branch: its newest review, the newest of all of it, and what was dismissed."""

    newest: ReviewRecord | None = None
    whole: ReviewRecord | None = None
    dismissed: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    place: Whereabouts | None = None
    opened: OpenedHistory = opened_history


async def begin_round(
    intake: Intake, seats: Sequence[Seat], settings: Settings, *, floor: Floor, fresh: bool, since_last: bool
) -> Round:
    """What is known from the last review of this branch. A history that cannot be read is a note: all is reviewed then.

    With `fresh` nothing is left out, but findings still have the status they have among the earlier ones.
    """
    plain = Round(terms=terms_of(intake, seats, settings), has_agents=any(seat.agents for seat in seats))
    kind = intake.change.scope.kind
    if not settings.keep_history or kind not in _GOING_ON:
        why = "this kind of change has no earlier reviews" if settings.keep_history else "no history is kept"
        return replace(plain, notes=(f"{why}, so all of it is reviewed",) if since_last else ())
    try:
        past = await _past(floor, kind)
        tree = _tree(intake, floor.repo)
    except CodeloupeError as error:
        note = f"the history cannot be read, so all of it is reviewed: {error.message}"
        return replace(plain, notes=(note,))
    plain = replace(plain, place=past.place)
    if since_last:
        return _since_last(plain, past, settings)
    return _next_round(plain, past, _Now(intake, tuple(seats), settings, tree), fresh=fresh)


def _tree(intake: Intake, repo: Path) -> Path | None:
    """Where the whole reviewed tree is, if it is anywhere."""
    match intake.change.scope.kind:
        case ScopeKind.STAGED:
            return None
        case ScopeKind.PULL_REQUEST:
            return intake.tree
        case _:
            return find_root(repo)


async def _past(floor: Floor, kind: ScopeKind) -> _Past:
    with floor.calls.opened_history() as history:
        place = identity, branch = await find_whereabouts(floor.repo, history)
        dismissed = frozenset(entry.fingerprint for entry in history.dismissals(identity.names))
        newest = None if branch is None else history.last(identity.names, branch=branch, scope=kind)
        whole = newest
        if newest is not None and branch is not None and not _is_whole(newest):
            query = HistoryQuery(repositories=identity.names, branch=branch, limit=_MOST_PARTIAL_REVIEWS)
            whole = _last_whole(history, query, kind)
        return _Past(newest, whole, dismissed, identity.names, place, floor.calls.opened_history)


def _is_whole(record: ReviewRecord) -> bool:
    """Whether a review tells of all that was known: one since the last does not, nor one without anything to see."""
    return bool(record.terms) and record.review.coverage.files_reviewed > 0


def _last_whole(history: History, query: HistoryQuery, kind: ScopeKind) -> ReviewRecord | None:
    for entry in history.list(query).entries:
        if entry.kind is EntryKind.REVIEW and entry.scope == kind.value:
            record = history.get(entry.entry_id)
            if record is not None and _is_whole(record):
                return record
    return None


def _since_last(plain: Round, past: _Past, settings: Settings) -> Round:
    """A round about what is new to the last one. It has no terms, so that no later one goes on from it."""
    # What was dismissed before stays so; nothing else of the earlier rounds is in this one.
    earlier = EarlierRounds(dismissed=past.dismissed, is_first=True)
    last = past.newest
    if last is None:
        note = "there is no earlier review of this branch, so all of it is reviewed"
        return replace(plain, earlier=earlier, notes=(note,))
    if last.problems or not last.seen:
        why = "the last review of this branch cannot be read whole" if last.problems else "no agent saw it before"
        return replace(plain, terms="", earlier=earlier, notes=(f"{why}, so all of it is reviewed",))
    known = {finding.fingerprint: finding for record in (past.whole, last) if record for finding in record.findings}
    grave = [one for one in known.values() if one.can_block and one.severity.at_least(settings.fail_on)]
    remark = "; only what the last review has not seen"
    errors: tuple[ReviewError, ...] = ()
    if grave:
        which = "1 open finding" if len(grave) == 1 else f"{len(grave):,} open findings"
        remark += f", whose {which} of {settings.fail_on.label} or above do not count here"
        told = f"earlier reviews left {which} of {settings.fail_on.label} or above, not in this review"
        errors = (ReviewError(_LEFT_OPEN, told),)
    look = LastLook(seen=frozenset(last.seen), findings=())
    return replace(plain, terms="", look=look, earlier=replace(earlier, remark=remark), errors=errors)


@dataclass(frozen=True, slots=True)
class _Now:
    """What is reviewed now, by whom, and where the whole tree is."""

    intake: Intake
    seats: tuple[Seat, ...]
    settings: Settings
    tree: Path | None

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The reviewed files."""
        return self.intake.selection.files

    @property
    def agents(self) -> frozenset[str]:
        """The names under which agents report."""
        return frozenset(seat.info.type for seat in self.seats if seat.agents)


def _next_round(plain: Round, past: _Past, now: _Now, *, fresh: bool) -> Round:
    last = past.whole
    fixed_before = partial(_fixed_before, past.opened, past.names)
    if last is None:
        first = EarlierRounds(dismissed=past.dismissed, fixed_before=fixed_before, is_first=True)
        return replace(plain, earlier=first if past.dismissed else None)
    findings, notes = _of_this_change(_findings(last), now)
    same_terms = last.terms == plain.terms
    seen = frozenset(last.seen)
    look = None
    if last.problems:
        notes = (*notes, "the last review of this branch cannot be read whole, so all of it is reviewed")
    elif seen and same_terms and not fresh:
        by_agents = (one for one in findings if one.status is not FindingStatus.FIXED and who_saw(one) & now.agents)
        look = LastLook(seen=seen, findings=tuple(by_agents))
    new = unseen(now.files, seen)
    earlier = EarlierRounds(
        findings=findings,
        dismissed=past.dismissed,
        fixed_before=fixed_before,
        asked=_asked(now, new if look else now.files, same_terms=same_terms),
        unchanged=_without(now.files, new),
        tree=now.tree,
    )
    return replace(plain, look=look, earlier=earlier, notes=notes)


def _asked(now: _Now, of_agents: tuple[FileChange, ...], *, same_terms: bool) -> tuple[Asked, ...]:
    experts = None
    if now.settings.experts and not same_terms:
        experts = frozenset(expert.name for expert in experts_of(now.settings))
    asked = [Asked(reviewers=now.agents, files=of_agents, experts=experts)]
    for seat in now.seats:
        if seat.info.type == "offline":
            names = frozenset(analyser.name for analyser in default_analysers())
            asked.append(Asked(reviewers=names, files=now.files, on_added_lines=True))
        elif not seat.agents:
            asked.append(Asked(reviewers=frozenset((seat.info.type,)), files=now.files))
    locks = now.intake.selection.lock_files
    if locks:
        asked.append(Asked(reviewers=frozenset(("lock-files",)), files=locks, on_added_lines=True))
    return tuple(asked)


def _without(files: Sequence[FileChange], others: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The files without the hunks that the others have."""
    gone = {file.path: set(file.hunks) for file in others}
    return tuple(
        replace(file, hunks=tuple(hunk for hunk in file.hunks if hunk not in gone.get(file.path, ()))) for file in files
    )


def _of_this_change(findings: tuple[Finding, ...], now: _Now) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The findings that this change still has to do with, and a note on the others.

    What is committed meanwhile is not in the uncommitted or staged changes any more, and neither fixed nor theirs.
    """
    if now.intake.change.scope.kind in _WHOLE_BRANCHES:
        return findings, ()
    task = now.intake.task(trusted=False, timeout_seconds=0.0)
    changed = {path for file in now.intake.change.files for path in (file.old_path, file.new_path)}
    places = PlacesOfNow(task, tree=now.tree)
    placed = {finding.fingerprint: finding for finding in places.placed(findings)}

    def has_left(old: Finding) -> bool:
        if not old.anchored or old.outside_change or old.status is FindingStatus.FIXED:
            return False
        standing = placed.get(old.fingerprint)
        if standing is None:
            return old.file not in changed and not places.is_gone(old)
        return standing.outside_change and (standing.file not in changed or _is_selected(standing.file, now))

    left = [one for one in findings if has_left(one)]
    count = sum(one.is_open for one in left)
    which = "1 open finding" if count == 1 else f"{count:,} open findings"
    note = (f"{which} of the last review stand in code that is not in these changes any more",) if count else ()
    return tuple(one for one in findings if one not in left), note


def _is_selected(path: str, now: _Now) -> bool:
    return any(file.path == path for file in now.files)


def terms_of(intake: Intake, seats: Sequence[Seat], settings: Settings) -> str:
    """All that an agent is asked with beside the diff, as one word: on other terms an earlier answer does not count.

    Commit messages are not in it: each commit would make the terms new.
    """
    parts = (
        PROMPT_VERSION,
        *(f"{seat.info.type} {seat.info.model}" for seat in seats if seat.agents),
        *(repr(expert) for expert in experts_of(settings)),
        settings.effort.value,
        str(settings.passes),
        *(repr(rule) for rule in settings.instructions),
        *(repr(file) for file in intake.guidance),
        intake.intent.context,
    )
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _findings(record: ReviewRecord) -> tuple[Finding, ...]:
    """All of a record, without its suppressions: what was suppressed then may count by now, and the other way round."""
    return tuple(replace(finding, suppression=None) for finding in record.findings)


def _fixed_before(opened: OpenedHistory, repositories: tuple[str, ...], fingerprints: Sequence[str]) -> frozenset[str]:
    try:
        with opened() as history:
            sightings = history.findings_of(fingerprints, repositories=repositories)
    except CodeloupeError:
        return frozenset()  # then it is told as new, which it is to whoever reads this review
    latest = {sighting.fingerprint: sighting.status for sighting in sightings}
    return frozenset(name for name, status in latest.items() if status is FindingStatus.FIXED)
