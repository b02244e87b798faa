"""Reviews and sweeps in the history: kept, found again, compared, and judged by another policy."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.engine import lifecycle
from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.git.identity import Checkout, read_checkout
from codeloupe.model.change import ScopeKind
from codeloupe.model.events import Event, Warned
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import (
    Comparison,
    EntryKind,
    HistoryEntry,
    HistoryQuery,
    RepositoryIdentity,
    ReviewRecord,
    SweepRecord,
)
from codeloupe.model.ports import EventSink, History, Transcript
from codeloupe.model.review import UNPLACED, Policy, Review, ReviewError, unplaced_errors, unsettled_claims
from codeloupe.model.severity import Severity
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from codeloupe.store.location import database_path
from codeloupe.system.redaction import redact

OpenedHistory = Callable[[], AbstractContextManager[SqliteHistory]]
# Which repository this is, found out only when it is needed: that takes longer than to look up an id.
Here = Callable[[], RepositoryIdentity]

LAST = "last"
SHORT_ID = 12
_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PASSED, _BLOCKED, _INCOMPLETE = 0, 1, 3
_KEPT = ("answer of ", "failure of ")
# A model that never ends must not fill the history: what is longer keeps its beginning.
_LONGEST_CHARACTERS = 1_000_000
_MOST_CHARACTERS = 20_000_000
_SHORTEST_PREFIX = 4
_CANDIDATES = 8
_MOST_LOOKED_AT = 500
# How many reviews are compared with a change that no name belongs to, and what share of its lines is nearly all.
_MOST_COMPARED = 25
_NEARLY_ALL = 0.9
_FIRST_STEP = "`codeloupe review` makes the first entry"
_LIST = "`codeloupe history list` shows what there is"


def _ignore(_event: Event) -> None:
    """Take an event and do nothing with it."""


@contextmanager
def opened_history(environment: Mapping[str, str] = os.environ) -> Iterator[SqliteHistory]:
    """This user's history in the one database; the file is touched with its first use. Raises StoreError."""
    with Database(database_path(environment)) as database:
        yield SqliteHistory(database)


class Answers:
    """A transcript that keeps the answers and failures, and passes everything on to another one, if there is one."""

    def __init__(self, beside: Transcript | None = None) -> None:
        self._beside = beside
        self._left = _MOST_CHARACTERS
        self._texts: dict[str, str] = {}

    def __call__(self, title: str, text: str) -> None:
        """Take a text. The second answer of a unit, after a repair, follows its first."""
        if self._beside is not None:
            self._beside(title, text)
        if title.startswith(_KEPT) and self._left > 0:
            kept = text[: min(_LONGEST_CHARACTERS, self._left)]
            self._left -= len(kept)
            earlier = self._texts.get(title)
            self._texts[title] = kept if earlier is None else f"{earlier}\n\n{kept}"

    @property
    def texts(self) -> Mapping[str, str]:
        """The answers by title, as they came: whoever keeps them redacts them first."""
        return MappingProxyType(self._texts)


async def keep(  # noqa: PLR0913 - each is a part of the record, by name
    review: Review,
    *,
    repo: Path,
    raw_outputs: Mapping[str, str] = _NOTHING,
    prompt_version: str = "",
    terms: str = "",
    seen: tuple[str, ...] = (),
    left_out: tuple[Finding, ...] = (),
    checkout: Checkout | None = None,
    opened: OpenedHistory = opened_history,
    emit: EventSink = _ignore,
) -> Review:
    """Save a review and return it. When it cannot be saved, it has an error of kind `history`, and a warning is out.

    `raw_outputs` is what agents printed, by unit; `terms`, `seen` and `left_out` are for a later review, as in the
    record. `checkout` is what `repo` holds, when that is known already. Raises nothing but a cancellation.
    """
    try:
        with opened() as history:
            identity, branch, head = checkout or await read_checkout(repo, history)
            record = ReviewRecord(
                review=review,
                saved_at=datetime.now(UTC),
                repository=identity.names[0],
                repository_label=identity.label,
                branch=branch,
                tool_version=__version__,
                prompt_version=prompt_version,
                terms=terms,
                seen=seen,
                head=review.scope.head or head,
                left_out=left_out,
            )
            await asyncio.to_thread(history.save, record, raw_outputs=_masked(raw_outputs))
    except Exception as error:  # noqa: BLE001 - whatever it is, the review itself is whole and must be shown
        message = _warn("the review", error, emit)
        return replace(review, errors=(*review.errors, ReviewError("history", message)))
    return review


class SweepKeeper:
    """Saves the commits of a sweep as they are finished, and the whole at the end. Warns once when it cannot.

    `problem` says in words why nothing more is saved. What the agents print for a commit, which `transcript_of` takes
    down, is saved with it.
    """

    def __init__(self, emit: EventSink) -> None:
        self._emit = emit
        self._place: tuple[SqliteHistory, SweepRecord] | None = None
        self._answers: dict[str, Answers] = {}
        self._turn = threading.Lock()
        self.problem = ""

    def start(self, history: SqliteHistory, record: SweepRecord) -> None:
        """From now on save into this history; `record` is the sweep without its commits."""
        self._place = history, record

    def transcript_of(self, sha: str) -> Transcript:
        """What takes down the answers of the agents to a commit, until that is finished."""
        return self._answers.setdefault(sha, Answers())

    async def keep_commit(self, commit: CommitReview) -> None:
        """Save one commit; raises nothing but a cancellation. The event loop goes on, however long it takes."""
        answers = self._answers.pop(commit.commit.sha, None)
        raw_outputs = _masked(_NOTHING if answers is None else answers.texts)
        await self._saved(
            lambda history, record: history.add_commit(_of_agents(record, commit), commit, raw_outputs=raw_outputs)
        )

    async def finish(self, sweep: CommitSweep) -> None:
        """Save the whole sweep in the place of its parts; as `keep_commit`."""
        saved_at = datetime.now(UTC)
        await self._saved(
            lambda history, record: history.save_sweep(
                replace(_of_agents(record, *sweep.commits), sweep=sweep, saved_at=saved_at)
            )
        )

    def give_up(self, error: Exception) -> None:
        """Warn, and save nothing more."""
        self.problem = _warn("the sweep", error, self._emit)

    async def _saved(self, save: Callable[[SqliteHistory, SweepRecord], None]) -> None:
        def attempt() -> Exception | None:
            with self._turn:
                if self._place is not None and not self.problem:
                    try:
                        save(*self._place)
                    except Exception as error:  # noqa: BLE001 - as in `keep`
                        return error
            return None

        saving = asyncio.ensure_future(asyncio.to_thread(attempt))
        try:
            error = await asyncio.shield(saving)
        except asyncio.CancelledError:
            # The history is closed behind us: nothing may still be on its way into it.
            await asyncio.wait((saving,))
            raise
        if error is not None and not self.problem:
            self.give_up(error)


@asynccontextmanager
async def keeping_sweep(
    sweep: CommitSweep,
    *,
    repo: Path,
    prompt_version: str = "",
    opened: OpenedHistory = opened_history,
    emit: EventSink = _ignore,
) -> AsyncIterator[SweepKeeper]:
    """Keep a sweep while it runs: what was finished before a crash or an interruption is there, as not finished.

    `sweep` is what is known of it at the start, without commits; what is given to `finish` has the same id.
    `prompt_version` is kept where agents were asked. Raises nothing of its own.
    """
    keeper = SweepKeeper(emit)
    with ExitStack() as stack:
        try:
            history = stack.enter_context(opened())
            identity, branch, _ = await read_checkout(repo, history)
        except Exception as error:  # noqa: BLE001 - as in `keep`
            keeper.give_up(error)
        else:
            record = SweepRecord(
                sweep=sweep,
                saved_at=datetime.now(UTC),
                repository=identity.names[0],
                repository_label=identity.label,
                branch=branch,
                tool_version=__version__,
                prompt_version=prompt_version,
            )
            keeper.start(history, record)
        yield keeper


def _of_agents(record: SweepRecord, *commits: CommitReview) -> SweepRecord:
    """The record, with a version of prompts only where agents were asked: only then a commit has experts."""
    return record if any(commit.experts for commit in commits) else replace(record, prompt_version="")


def _masked(raw_outputs: Mapping[str, str]) -> dict[str, str]:
    return {unit: redact(output) for unit, output in raw_outputs.items()}


def _warn(what: str, error: Exception, emit: EventSink) -> str:
    reason = error.message if isinstance(error, CodeloupeError) else f"{type(error).__name__}: {error}"
    message = redact(f"{what} is not in the history: {reason}")
    _log.warning("%s", message, exc_info=not isinstance(error, CodeloupeError))
    try:
        emit(Warned(message))
    except Exception:  # noqa: BLE001 - a display may fail at anything, and the review is not lost for that either
        _log.warning("a warning could not be shown", exc_info=True)
    return message


def find_entry(history: History, word: str, *, here: Here) -> HistoryEntry:
    """The review or sweep that a word names; `last` is the newest one of this repository. Raises UsageError."""
    if word == LAST:
        newest = history.list(HistoryQuery(repositories=here().names, limit=_CANDIDATES))
        if newest.entries:
            return newest.entries[0]
        raise StoreError(newest.problems[0], hint=_LIST) if newest.problems else nothing_saved(here())
    prefix = word.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{1,64}", prefix):
        raise UsageError(f"{word!r} is no id of the history: ids have digits and the letters a to f", hint=_LIST)
    if len(prefix) < _SHORTEST_PREFIX:
        raise UsageError(f"{word!r} is too short: give at least {_SHORTEST_PREFIX} characters of the id", hint=_LIST)
    found = history.matching(prefix, limit=_CANDIDATES + 1)
    exact = [entry for entry in found.entries if entry.entry_id == prefix]
    if exact or len(found.entries) == 1:
        return (*exact, *found.entries)[0]
    if found.entries:
        more = "\n  and more" if len(found.entries) > _CANDIDATES else ""
        lines = "\n".join(f"  {_in_short(entry, len(word))}" for entry in found.entries[:_CANDIDATES])
        raise UsageError(
            f"{word!r} is the beginning of several ids:\n{lines}{more}", hint="give more characters of one"
        )
    if found.problems:
        raise StoreError(found.problems[0], hint=_LIST)
    known = history.list(HistoryQuery(repositories=here().names, limit=_CANDIDATES)).entries
    if not known:
        raise UsageError(f"no entry {word!r} is in the history, nor any of this repository", hint=_FIRST_STEP)
    lines = "\n".join(f"  {_in_short(entry)}" for entry in known)
    raise UsageError(f"no entry of the history begins with {word!r}; the newest here are:\n{lines}", hint=_LIST)


def find_review(history: History, word: str, *, here: Here) -> ReviewRecord:
    """The review that a word names; `last` is the newest one of this repository that is not part of a sweep.

    Raises UsageError when there is none, more than one, or when it is a sweep.
    """
    if word == LAST:
        newest = history.last(here().names)
        if newest is None:
            raise nothing_saved(here())
        return newest
    return review_of(history, find_entry(history, word, here=here))


def review_of(history: History, entry: HistoryEntry) -> ReviewRecord:
    """The review of an entry. Raises UsageError when it is a sweep."""
    if entry.kind is EntryKind.SWEEP:
        raise UsageError(
            f"{entry.entry_id[:SHORT_ID]} is a sweep of {entry.commits} commits, not one review",
            hint=f"`codeloupe history show {entry.entry_id[:SHORT_ID]}` has the reviews of its commits; name one",
        )
    record = history.get(entry.entry_id)
    if record is None:
        raise UsageError(f"the review {entry.entry_id} was removed just now", hint=_LIST)
    return record


def nothing_saved(identity: RepositoryIdentity) -> UsageError:
    """The error for a repository without any entry."""
    return UsageError(f"no review of {identity.label or 'this directory'} is saved yet", hint=_FIRST_STEP)


def _in_short(entry: HistoryEntry, given: int = 0) -> str:
    shown = entry.entry_id[: max(SHORT_ID, given + 4)]
    # Each on one line, whatever a description holds: this text goes out with its line ends kept.
    description = " ".join(entry.description.split())[:80]
    return f"{shown}  {entry.saved_at.astimezone():%Y-%m-%d %H:%M}  {description}"


def reviews_of_work(
    history: History, names: Sequence[str], *, kind: ScopeKind, branch: str | None, commits: frozenset[str]
) -> Iterator[ReviewRecord]:
    """The reviews of the same work and kind of scope, the newest first: of its branch, or of one of its commits."""
    for entry in _of_kind(history, names, kind):
        if (branch is not None and entry.branch == branch) or entry.head in commits:
            try:
                record = history.get(entry.entry_id)
            except StoreError as error:
                _log.warning("%s", error.message)
                continue
            if record is not None:
                yield record


def newest_of_kind(history: History, names: Sequence[str], kind: ScopeKind) -> list[ReviewRecord]:
    """Some reviews of a kind of scope, the newest first."""
    records = (history.get(entry.entry_id) for entry in _of_kind(history, names, kind)[:_MOST_COMPARED])
    return [record for record in records if record is not None]


def _of_kind(history: History, names: Sequence[str], kind: ScopeKind) -> list[HistoryEntry]:
    listed = history.list(HistoryQuery(repositories=tuple(names), limit=_MOST_LOOKED_AT)).entries
    return [entry for entry in listed if entry.kind is EntryKind.REVIEW and entry.scope == kind.value]


def last_of_change(
    records: Sequence[ReviewRecord], now: frozenset[str], commits: frozenset[str]
) -> ReviewRecord | None:
    """The newest review of the same work, known by its lines, which a rebase keeps; else by its commits.

    A review of a part of the change is not taken where there is one that saw more of it.
    """
    shared = [len(now.intersection(record.seen)) for record in records]
    most = max(shared, default=0)
    if most:
        return next(record for record, count in zip(records, shared, strict=True) if count >= _NEARLY_ALL * most)
    return next((record for record in records if record.review.scope.head in commits), None)


def compare(history: History, earlier: ReviewRecord, later: ReviewRecord) -> Comparison:
    """New, still open, fixed, back, set aside, or not known. What was hidden counts too, where it was kept.

    A finding is back when it is open now, was not open in the earlier review, and was seen open before that one, or
    was told as fixed in it.
    """
    before = [finding for finding in earlier.findings if finding.is_open or finding.status is FindingStatus.FIXED]
    now = [finding for finding in later.findings if finding.status is not FindingStatus.FIXED]
    # The trees of saved reviews are gone: what is not seen again is judged below, by what the later one looked at.
    rounds = lifecycle.compare(before, now, lifecycle.Ground(still_there=lambda _: False, is_fixed=lambda _: True))
    was_open = {finding.fingerprint for finding in before if finding.is_open}
    new = [finding.fingerprint for finding in rounds.having(FindingStatus.NEW)]
    sightings = history.findings_of(new, repositories=(earlier.repository,))
    back = {one.fingerprint for one in sightings if one.is_open and one.turn < earlier.turn}
    groups: defaultdict[str, list[Finding]] = defaultdict(list)
    for told, finding in zip(now, rounds.seen, strict=True):
        if not finding.is_open:
            # One that was never open and is set aside at once is no news.
            groups["set_aside" if finding.fingerprint in was_open else ""].append(finding)
        elif finding.status is FindingStatus.NEW:
            is_back = finding.fingerprint in back or told.status is FindingStatus.REGRESSED
            groups["regressed" if is_back else "new"].append(finding)
        else:
            groups["regressed" if finding.status is FindingStatus.REGRESSED else "still_open"].append(finding)
    surely_fixed = {finding.fingerprint for finding in later.findings if finding.status is FindingStatus.FIXED}
    coverage = later.review.coverage
    not_reviewed = {skip.file for skip in coverage.skipped}.union(*(unit.files for unit in coverage.units_failed))
    is_same = _is_same_change(earlier, later)
    for finding in rounds.unseen:
        if finding.fingerprint in was_open:
            was_reviewed = is_same and finding.file not in not_reviewed
            groups["fixed" if was_reviewed or finding.fingerprint in surely_fixed else "unknown"].append(finding)
    groups.pop("", None)
    return Comparison(**{name: tuple(findings) for name, findings in groups.items()})


def _is_same_change(earlier: ReviewRecord, later: ReviewRecord) -> bool:
    """Whether the later review looked at what the earlier did: else what is not seen again may still be there.

    A branch or a pull request stays the same change when it grows or is rebased; anything else must begin where the
    other began.
    """
    before, now = earlier.review.scope, later.review.scope
    if before.kind is not now.kind:
        return False
    grows = now.kind in (ScopeKind.BRANCH, ScopeKind.PULL_REQUEST)
    return earlier.branch == later.branch if grows else before.base == now.base


def judged(record: ReviewRecord, policy: Policy) -> Review:
    """The saved review as this policy would have concluded it, at no cost; with its own policy, as it was.

    What could not be read of it makes it incomplete. Raises UsageError when findings that could decide were not kept.
    """
    review = record.review
    if policy == review.policy and not record.problems and _is_sound(review):
        return review
    unknown = review.hidden_findings - len(review.hidden)
    # What was hidden and not kept is below both limits of the old policy; a new one must not reach down there.
    kept_down_to = max(review.policy.fail_on.value, review.policy.min_severity.value)
    if unknown > 0 and policy.fail_on.value > kept_down_to:
        lowest = Severity(kept_down_to).label
        raise UsageError(
            f"{unknown} findings below {lowest} were not kept with this review,"
            f" so it cannot be judged by fail_on={policy.fail_on.label}",
            hint=f"use --fail-on {lowest} or above, or review again with --min-severity {policy.fail_on.label}",
        )
    everything = review.findings
    if review.hidden:
        both = (*review.findings, *review.hidden)
        everything = tuple(sorted(both, key=lambda one: (one.file, one.first_line, one.last_line)))
    findings = tuple(finding for finding in everything if policy.shows(finding.severity))
    hidden = tuple(finding for finding in everything if not policy.shows(finding.severity))
    unsettled = unsettled_claims(findings, policy)
    # Whether claims are settled is a matter of the policy; what was reviewed is not.
    saw_everything = review.coverage.complete and (review.complete or bool(review.unsettled))
    complete = saw_everything and not record.problems and not unsettled
    return replace(
        review,
        policy=policy,
        findings=findings,
        hidden=hidden,
        hidden_findings=len(hidden) + max(unknown, 0),
        complete=complete,
        verdict=judge(findings, complete=complete, fail_on=policy.fail_on),
        exit_code=exit_code(findings, policy, complete=complete),
        summary=summarise(findings, review.coverage, complete=complete),
        errors=(*(error for error in review.errors if error.kind != UNPLACED), *unplaced_errors(unsettled)),
    )


def _is_sound(review: Review) -> bool:
    """Whether a review was concluded as it would be now; earlier versions let claims without a place pass."""
    complete = review.complete and not review.unsettled
    verdict = judge(review.findings, complete=complete, fail_on=review.policy.fail_on)
    return complete is review.complete and verdict is review.verdict


def judged_sweep(record: SweepRecord, *, strict: bool = False, pass_when_incomplete: bool | None = None) -> CommitSweep:
    """The saved sweep as it would have ended strictly, or with another word on what could not be reviewed.

    One that was not finished, or cannot be read whole, is not complete.
    """
    sweep = record.sweep
    is_strict = strict or sweep.strict
    is_whole = record.finished and not record.problems
    complete = is_whole and all(commit.verdict is not None for commit in sweep.commits)
    # That it passed then says nothing of what cannot be read of it now.
    passes = is_whole and sweep.exit_code == _PASSED if pass_when_incomplete is None else pass_when_incomplete
    reviews = (commit.review for commit in sweep.commits if commit.review is not None)
    blocks = any(
        finding.can_block and finding.severity.at_least(Severity.HIGH)
        for review in reviews
        for finding in (*review.findings, *review.hidden)
    )
    code = _BLOCKED if is_strict and blocks else _PASSED if complete or passes else _INCOMPLETE
    told = "" if is_whole else f"; {'not finished' if not record.finished else 'not all of it can be read'}"
    words = sweep.summary or f"{len(sweep.commits)} commits"
    return replace(sweep, strict=is_strict, exit_code=code, summary=f"{words}{told}")


def changed_policy(policy: Policy, **changes: Severity | bool | None) -> Policy:
    """The policy with what is given, and is not None, in the place of its own."""
    return replace(policy, **{name: value for name, value in changes.items() if value is not None})
