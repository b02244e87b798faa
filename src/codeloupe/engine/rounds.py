"""Reviewing only what a reviewer has not seen yet: the rest of its last answer about the change is carried over.

Lines are known by their file and by those next to them, not by their place, so a rebase or lines put in above change
nothing, and of a long hunk only the part with a new line is asked about again. What is carried over is placed anew in
the code of now, and keeps what was learnt about it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice, repeat
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.agent_reviewer import DROPPED_FINDING
from codeloupe.engine.cutting import stretches_of
from codeloupe.engine.globs import Globs
from codeloupe.engine.history import OpenedHistory, last_of_change, newest_of_kind, opened_history, reviews_of_work
from codeloupe.engine.lifecycle import Asked, EarlierRounds, who_saw
from codeloupe.engine.placing_again import PlacesOfNow, is_touched
from codeloupe.engine.prepare import Intake
from codeloupe.engine.prompt import PROMPT_VERSION
from codeloupe.engine.reviewers import SECRETS, Floor, Seat, default_analysers, experts_of
from codeloupe.errors import CodeloupeError
from codeloupe.git.identity import Whereabouts, commits_of_work, find_whereabouts
from codeloupe.git.repository import find_root
from codeloupe.model.change import FileChange, Hunk, ScopeKind
from codeloupe.model.events import StageStarted
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import Dismissal, ReviewRecord
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import Review, ReviewerInfo, ReviewError, SkipReason

_DIGITS = 24
_MOST_ROWS = 24
_ROWS_AROUND = 4


class _Part(NamedTuple):
    """Rows of a hunk that are known or not known as a whole, and what they are known by."""

    hunk: Hunk
    start: int
    end: int
    digest: str


def digests(files: Iterable[FileChange]) -> frozenset[str]:
    """What all lines of some files' hunks are known by."""
    return frozenset(part.digest for file in files for part in _parts(file))


def unseen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are not in `seen`; a file of which nothing is left is left out.

    Of a long hunk that is a part of it, with a few rows around; its numbers are right.
    """

    def is_new(digest: str) -> bool:
        return digest not in seen

    left = (replace(file, hunks=tuple(_chosen(file, is_new, _ROWS_AROUND))) for file in files)
    return tuple(file for file in left if file.hunks)


def already_seen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are in `seen`."""
    return tuple(replace(file, hunks=tuple(_chosen(file, seen.__contains__, 0))) for file in files)


def _chosen(file: FileChange, is_wanted: Callable[[str], bool], rows_around: int) -> Iterator[Hunk]:
    """The parts of a file's hunks that are wanted, those next to each other as one."""
    for hunk, parts in groupby(_parts(file), key=lambda part: part.hunk):
        stretches: list[tuple[int, int]] = []
        last = 0
        for part in parts:
            if is_wanted(part.digest):
                start = max(0, part.start - rows_around)
                if stretches and start <= stretches[-1][1]:
                    start = stretches.pop()[0]
                stretches.append((start, part.end + rows_around))
            last = part.end
        yield from stretches_of(hunk, ((start, min(end, last)) for start, end in stretches))


def _parts(file: FileChange) -> Iterator[_Part]:
    """The hunks of a file in parts, each with what it is known by: what happened to the file, its section, its rows.

    The same rows again in a file are others: they were not there to be seen when there were only the first.
    """
    facts = (file.path, file.old_path, file.status.value, file.old_mode, file.new_mode)
    times: Counter[tuple[str, bytes]] = Counter()
    for hunk in file.hunks:
        rows = hunk.body.split(b"\n")
        for start, end in _stretches(rows):
            body = b"\n".join(rows[start:end])
            # Of a part in the middle git names no section, and what stands above it may have changed.
            section = hunk.section if start == 0 else ""
            times[section, body] += 1
            told = repr((*facts, section, times[section, body]))
            digest = hashlib.sha256(told.encode("utf-8", "surrogateescape") + b"\0" + body).hexdigest()[:_DIGITS]
            yield _Part(hunk, start, end, digest)


def _stretches(rows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """The rows in stretches whose ends the rows themselves decide, so that a line put in moves no end but the next."""
    last = len(rows) - (rows[-1:] == [b""])
    start = 0
    for row in range(1, last):
        if row - start >= _MOST_ROWS or _ends(rows[row - 1], rows[row]):
            yield start, row
            start = row
    yield start, last


def _ends(before: bytes, after: bytes) -> bool:
    """Whether something ends between two rows: behind blank ones, or before a definition at the left margin."""
    if not after[1:].strip():
        return False
    return not before[1:].strip() or (after[1:2].isalpha() and before[1:2].isspace())


class LastLook(Struct, frozen=True, kw_only=True):
    """What a reviewer saw the last time: hunks, and what it found in them."""

    seen: frozenset[str]
    findings: tuple[Finding, ...]


class IncrementalReviewer:
    """Lets another reviewer look at what it has not seen, and carries over what it found in the rest."""

    def __init__(self, reviewer: Reviewer, last: LastLook) -> None:
        self._reviewer = reviewer
        self._last = last

    @property
    def info(self) -> ReviewerInfo:
        """That of the reviewer itself."""
        return self._reviewer.info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review what is new. Failures are in the outcome; only cancellation is raised."""
        left = unseen(task.files, self._last.seen)
        placed = PlacesOfNow(task).placed(self._last.findings)
        asked = {file.path: file.hunks for file in left}
        whole = {file.path for file in task.files if asked.get(file.path) == file.hunks}
        carried = (
            *(finding for finding in placed if not is_touched(finding, left)),
            *(finding for finding in self._last.findings if not finding.anchored and finding.file not in whole),
        )
        total = _rows(task.files)
        known = total - _rows(left)
        if known > 0:
            emit(StageStarted("carrying over", f"{known:,} of {total:,} lines, known from the last review"))
        if not left:
            return ReviewerOutcome(findings=carried)
        touched = tuple(finding for finding in placed if is_touched(finding, left))
        outcome = await self._reviewer.review(replace(task, files=left, earlier=touched, is_follow_up=True), emit)
        return replace(outcome, findings=(*outcome.findings, *carried))


def _rows(files: Iterable[FileChange]) -> int:
    return sum(hunk.body.count(b"\n") for file in files for hunk in file.hunks)


_CONTINUING_DIGITS = 32
_LEFT_OPEN = "left_open"
_NOT_JUDGED = "not_judged"
_MOST_NAMED = 5
# A commit or a diff file is looked at by itself; these move on as work goes on.
_GOING_ON = (
    ScopeKind.BRANCH,
    ScopeKind.UNCOMMITTED,
    ScopeKind.STAGED,
    ScopeKind.RANGE,
    ScopeKind.PULL_REQUEST,
)
# Of these nothing that was committed is ever left out.
_WHOLE_BRANCHES = (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
# How far back the last review of all of a branch is looked for, among those of a part of it.
_MOST_PARTIAL_REVIEWS = 50


class Round(Struct, frozen=True, kw_only=True):
    """This review among its earlier ones. `look` is what the agents need not be asked about again.

    `notes` are told while it runs; `errors` stand in its report as well, for they say what a pass does not mean.
    `place` is the repository and its branch, when the history was asked for them. `left_out` are findings that this
    review does not judge, and `seen_elsewhere` the hunks of the change that agents saw before and that it leaves out.
    """

    terms: str = ""
    look: LastLook | None = None
    earlier: EarlierRounds | None = None
    has_agents: bool = False
    notes: tuple[str, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    place: Whereabouts | None = None
    left_out: tuple[Finding, ...] = ()
    seen_elsewhere: frozenset[str] = frozenset()

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
        return tuple(sorted(digests(file for file in task.files if file.path not in failed) | self.seen_elsewhere))


class _Past(Struct, frozen=True):
    """What the history holds of a branch: its newest review, the newest of all of it, and what was dismissed."""

    newest: ReviewRecord | None = None
    whole: ReviewRecord | None = None
    dismissed: tuple[Dismissal, ...] = ()
    names: tuple[str, ...] = ()
    place: Whereabouts | None = None
    opened: OpenedHistory = opened_history

    def rounds(self) -> EarlierRounds:
        """What holds whether there was an earlier round or not."""
        return EarlierRounds(
            dismissed=frozenset(one.fingerprint for one in self.dismissed),
            dismissed_findings=tuple(
                replace(one.finding, fingerprint=one.fingerprint, suppression=None)
                for one in self.dismissed
                if one.finding is not None
            ),
            fixed_before=partial(_fixed_before, self.opened, self.names),
        )


async def begin_round(
    intake: Intake, seats: Sequence[Seat], settings: Settings, *, floor: Floor, fresh: bool, since_last: bool
) -> Round:
    """What is known from the last review of this branch. A history that cannot be read is a note: all is reviewed then.

    With `fresh` nothing is left out, but findings still have the status they have among the earlier ones.
    """
    plain = Round(terms=terms_of(intake, seats, settings), has_agents=any(seat.agents for seat in seats))
    kind = intake.change.scope.kind
    if not settings.keep_history or (since_last and kind not in _GOING_ON):
        why = "this kind of change has no earlier reviews" if settings.keep_history else "no history is kept"
        return replace(plain, notes=(f"{why}, so all of it is reviewed",) if since_last else ())
    if kind not in _GOING_ON:
        return await _first_round(plain, floor, intake)
    try:
        past = await _past(floor, intake)
        tree = _tree(intake, floor.repo)
    except CodeloupeError as error:
        note = f"the history cannot be read, so all of it is reviewed: {error.message}"
        return replace(plain, notes=(note,))
    plain = replace(plain, place=past.place)
    if since_last:
        return _since_last(plain, past, settings)
    return _next_round(plain, past, _Now(intake, tuple(seats), settings, tree), fresh=fresh)


async def _first_round(plain: Round, floor: Floor, intake: Intake) -> Round:
    """A change that is looked at by itself: what a person dismissed does not count in it either."""
    try:
        past = await _past(floor, intake)
    except CodeloupeError:
        return plain  # there is no repository or no history to ask, so nothing is dismissed
    return replace(plain, place=past.place, earlier=replace(past.rounds(), is_first=True) if past.dismissed else None)


def _tree(intake: Intake, repo: Path) -> Path | None:
    """Where the whole reviewed tree is, if it is anywhere."""
    match intake.change.scope.kind:
        case ScopeKind.STAGED:
            return None
        case ScopeKind.PULL_REQUEST | ScopeKind.RANGE:
            return intake.tree
        case _:
            return find_root(repo)


async def _past(floor: Floor, intake: Intake) -> _Past:
    scope = intake.change.scope
    with floor.calls.opened_history() as history:
        place = await find_whereabouts(floor.repo, history)
        names = place.identity.names
        dismissed = tuple(
            one
            if one.finding is not None
            else replace(one, finding=history.finding(one.fingerprint, repositories=names))
            for one in history.dismissals(names)
        )
        if scope.kind not in _GOING_ON:
            return _Past(None, None, dismissed, names, place, floor.calls.opened_history)
        # A pull request keeps its number; one in a fork may have the same commits and is another.
        is_named = scope.kind is ScopeKind.PULL_REQUEST
        commits = frozenset[str]() if is_named else await commits_of_work(floor.repo, scope, place)
        # What is checked out says nothing about which range is under review.
        if scope.kind is ScopeKind.RANGE or (place.branch is None and not is_named):
            records, now = newest_of_kind(history, names, scope.kind), digests(intake.selection.files)
            newest = last_of_change(records, now, commits)
            whole = last_of_change([record for record in records if _is_whole(record)], now, commits)
        else:
            found = reviews_of_work(history, names, kind=scope.kind, branch=place.branch, commits=commits)
            newest = whole = next(found, None)
            if newest is not None and not _is_whole(newest):
                whole = next((record for record in islice(found, _MOST_PARTIAL_REVIEWS) if _is_whole(record)), None)
        return _Past(newest, whole, dismissed, names, place, floor.calls.opened_history)


def _is_whole(record: ReviewRecord) -> bool:
    """Whether a review tells of all that was known: one since the last does not, nor one without anything to see."""
    return bool(record.terms) and record.review.coverage.files_reviewed > 0


def _since_last(plain: Round, past: _Past, settings: Settings) -> Round:
    """A round about what is new to the last one. It has no terms, so that no later one goes on from it."""
    # What was dismissed before stays so; nothing else of the earlier rounds is in this one.
    earlier = replace(past.rounds(), is_first=True)
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


class _Now(Struct, frozen=True):
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
    if last is None:
        return replace(plain, earlier=replace(past.rounds(), is_first=True) if past.dismissed else None)
    findings, aside = _of_this_change(_findings(last), now)
    notes: tuple[str, ...] = ()
    same_terms = last.terms == plain.terms
    seen = frozenset(last.seen)
    look = None
    if last.problems:
        notes = (*notes, "the last review of this branch cannot be read whole, so all of it is reviewed")
    elif seen and same_terms and not fresh:
        by_agents = (one for one in findings if one.status is not FindingStatus.FIXED and who_saw(one) & now.agents)
        look = LastLook(seen=seen, findings=tuple(by_agents))
    new = unseen(now.files, seen)
    earlier = replace(
        past.rounds(),
        findings=findings,
        asked=_asked(now, new if look else now.files),
        unchanged=already_seen(now.files, seen),
        tree=now.tree,
    )
    selected = {file.path for file in now.files}
    others = digests(file for file in now.intake.change.files if file.path not in selected)
    return replace(
        plain,
        look=look,
        earlier=earlier,
        notes=notes,
        errors=tuple(_not_judged(aside)),
        left_out=aside.kept(now.intake.change.scope.kind),
        seen_elsewhere=others & seen if same_terms else frozenset(),
    )


def _asked(now: _Now, of_agents: tuple[FileChange, ...]) -> tuple[Asked, ...]:
    experts = None
    if now.settings.experts:
        experts = frozenset(expert.name for expert in experts_of(now.settings))
    asked = [Asked(reviewers=now.agents, files=of_agents, experts=experts)]
    if any(seat.agents for seat in now.seats):
        # It looks for what is masked for them.
        asked.append(Asked(reviewers=frozenset((SECRETS,)), files=of_agents, on_added_lines=True))
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


class _Aside(Struct, frozen=True):
    """Earlier findings that this review does not judge: in files that were left out of it, or not in its change."""

    excluded: tuple[Finding, ...] = ()
    elsewhere: tuple[Finding, ...] = ()

    def kept(self, kind: ScopeKind) -> tuple[Finding, ...]:
        """Those that a later round may be about again. What was committed is no uncommitted change any more."""
        return (*self.excluded, *(self.elsewhere if kind in _WHOLE_BRANCHES else ()))


def _of_this_change(findings: tuple[Finding, ...], now: _Now) -> tuple[tuple[Finding, ...], _Aside]:
    """The findings that this review is about, and the others.

    What the caller leaves out is not judged. Nor is code that is not in the change any more, or never was: it was
    committed meanwhile, or an earlier round had another base.
    """
    task = now.intake.task(trusted=False, timeout_seconds=0.0)
    changed = {path for file in now.intake.change.files for path in (file.old_path, file.new_path)}
    globs = Globs(now.settings.include, now.settings.exclude)
    skipped = {skip.file for skip in now.intake.selection.skipped if skip.reason is SkipReason.EXCLUDED}
    places = PlacesOfNow(task, tree=now.tree)
    placed = {finding.fingerprint: finding for finding in places.placed(findings)}

    def is_excluded(old: Finding) -> bool:
        file = placed.get(old.fingerprint, old).file
        return file in skipped or (bool(file) and globs.unwanted(file) is not None)

    def is_elsewhere(old: Finding) -> bool:
        if not old.anchored:
            return bool(old.file) and old.file not in changed
        if old.outside_change:
            return False
        standing = placed.get(old.fingerprint)
        if standing is None:
            return old.file not in changed and not places.is_gone(old)
        return standing.outside_change and (standing.file not in changed or _is_selected(standing.file, now))

    known = [one for one in findings if one.status is not FindingStatus.FIXED]
    excluded = tuple(one for one in known if is_excluded(one))
    elsewhere = tuple(one for one in known if one not in excluded and is_elsewhere(one))
    return tuple(one for one in findings if one not in excluded and one not in elsewhere), _Aside(excluded, elsewhere)


def _not_judged(aside: _Aside) -> Iterator[ReviewError]:
    for findings, why in (
        (aside.excluded, "in files that this review leaves out"),
        (aside.elsewhere, "in code that is not in this change"),
    ):
        files = list(dict.fromkeys(one.file for one in findings if one.is_open))
        count = sum(one.is_open for one in findings)
        if count:
            which = "1 open finding" if count == 1 else f"{count:,} open findings"
            more = f" and {len(files) - _MOST_NAMED:,} more" if len(files) > _MOST_NAMED else ""
            places = f"{', '.join(files[:_MOST_NAMED])}{more}"
            yield ReviewError(_NOT_JUDGED, f"{which} of the last review, {why}, not judged here ({places})")


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
        "untrusted" if settings.untrusted else "trusted",
        settings.api_base_url or "",
        settings.effort.value,
        str(settings.passes),
        *(repr(rule) for rule in settings.instructions),
        *(repr(file) for file in intake.guidance),
        intake.intent.context,
    )
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_CONTINUING_DIGITS]


def _findings(record: ReviewRecord) -> tuple[Finding, ...]:
    """All of a record, without its suppressions: what was suppressed then may count by now, and the other way round."""
    return tuple(replace(finding, suppression=None) for finding in (*record.findings, *record.left_out))


def _fixed_before(opened: OpenedHistory, repositories: tuple[str, ...], fingerprints: Sequence[str]) -> frozenset[str]:
    try:
        with opened() as history:
            sightings = history.findings_of(fingerprints, repositories=repositories)
    except CodeloupeError:
        return frozenset()  # then it is told as new, which it is to whoever reads this review
    latest = {sighting.fingerprint: sighting.status for sighting in sightings}
    return frozenset(name for name, status in latest.items() if status is FindingStatus.FIXED)
