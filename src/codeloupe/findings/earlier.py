"""Earlier rounds of the same work, read from the history: their findings, and the code that they covered.

Work is known by its commits, and by the name of its branch if those were rewritten. A commit and a diff file have no
earlier rounds, but dismissals apply to them too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, StoreError
from codeloupe.git.identity import Checkout, commits_of_work, read_checkout
from codeloupe.model.change import FileChange, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import Dismissal, EntryKind, HistoryEntry, HistoryQuery, ReviewRecord
from codeloupe.planning.coverage import names_of
from codeloupe.planning.prepare import Prepared
from codeloupe.store.history import OpenedHistory
from codeloupe.store.interface import History

_log = logging.getLogger(__name__)
_CONTINUING = (ScopeKind.BRANCH, ScopeKind.UNCOMMITTED, ScopeKind.STAGED, ScopeKind.RANGE, ScopeKind.PULL_REQUEST)
_MOST_LISTED = 500
# How many reviews are compared with a change that no name belongs to.
_MOST_COMPARED = 25
# A branch whose newest reviews cannot be read is searched so far back.
_MOST_UNREADABLE = 50
# A rebase keeps nearly all lines of a change.
_NEARLY_ALL = 0.9


class Earlier(Struct, frozen=True, kw_only=True):
    """The findings and the covered code of the last round, and the dismissals of the repository.

    `findings` is None if there was no earlier round. `covered` is empty if agents must be asked about everything.
    `terms` and `seen` are those of the last round, for a round without agents to pass on.
    """

    checkout: Checkout | None = None
    findings: tuple[Finding, ...] | None = None
    covered: frozenset[str] = frozenset()
    terms: str = ""
    seen: tuple[str, ...] = ()
    dismissals: tuple[Dismissal, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_first(self) -> bool:
        """Tell whether this is the first round."""
        return self.findings is None


async def read_earlier(prepared: Prepared, opened: OpenedHistory, *, conditions: str, fresh: bool) -> Earlier:
    """Read what earlier rounds left; a history that cannot be read is a problem, and everything is reviewed then.

    Covered code counts only under the same `conditions`. With `fresh` nothing is covered, but findings keep their
    history.
    """
    is_continuing = prepared.change.scope.kind in _CONTINUING
    try:
        with opened() as history:
            checkout = await read_checkout(prepared.place, history, prepared.repository)
            dismissals = tuple(history.dismissals(checkout.identity.names))
            last = await _last_round(prepared, history, checkout) if is_continuing else None
    except CodeloupeError as error:
        problem = f"the history cannot be read, so everything is reviewed: {error.message}"
        return Earlier(problems=(problem,) if is_continuing else ())
    if last is None:
        return Earlier(checkout=checkout, dismissals=dismissals)
    problems: tuple[str, ...] = ()
    covered = frozenset(last.seen)
    if last.problems:
        problems = ("the last review of this branch cannot be read completely, so everything is reviewed",)
        covered = frozenset()
    if fresh or last.terms != conditions:
        covered = frozenset()
    return Earlier(
        checkout=checkout,
        findings=last.findings,
        covered=covered,
        terms=last.terms,
        seen=last.seen,
        dismissals=dismissals,
        problems=problems,
    )


async def read_dismissals(repo: Path, opened: OpenedHistory) -> tuple[Dismissal, ...]:
    """Return the dismissals of a repository; none if the history cannot be read."""
    try:
        with opened() as history:
            checkout = await read_checkout(repo, history)
            return tuple(history.dismissals(checkout.identity.names))
    except CodeloupeError as error:
        _log.warning("the dismissals cannot be read: %s", error.message)
        return ()


def with_regressions(
    findings: Iterable[Finding], opened: OpenedHistory, checkout: Checkout | None
) -> tuple[Finding, ...]:
    """Return the findings, with the new ones marked as regressed that were fixed when they were last seen."""
    found = list(findings)
    new = [finding.fingerprint for finding in found if finding.status is FindingStatus.NEW]
    if not new or checkout is None:
        return tuple(found)
    try:
        with opened() as history:
            sightings = history.findings_of(new, repositories=checkout.identity.names)
    except CodeloupeError:
        return tuple(found)
    closed = (FindingStatus.FIXED, FindingStatus.SILENCED, FindingStatus.GONE)
    latest = {sighting.fingerprint: sighting.status for sighting in sightings}
    for index, finding in enumerate(found):
        if finding.status is FindingStatus.NEW and latest.get(finding.fingerprint) in closed:
            found[index] = replace(finding, status=FindingStatus.REGRESSED)
    return tuple(found)


def without_known_gone(findings: Iterable[Finding], earlier: Earlier) -> tuple[list[Finding], list[Finding]]:
    """Return the findings to report, and those that an earlier round reported as gone and that still are.

    The latter stay stored, since their files may come back.
    """
    was_gone = {known.fingerprint for known in earlier.findings or () if known.status is FindingStatus.GONE}
    reported: list[Finding] = []
    still_gone: list[Finding] = []
    for finding in findings:
        if finding.status is FindingStatus.GONE and finding.fingerprint in was_gone:
            still_gone.append(finding)
        else:
            reported.append(finding)
    return reported, still_gone


async def _last_round(prepared: Prepared, history: History, checkout: Checkout) -> ReviewRecord | None:
    """Return the newest review of the same work that can be continued."""
    scope = prepared.change.scope
    # A pull request keeps its number; one in a fork may have the same commits and is another.
    is_numbered = scope.kind is ScopeKind.PULL_REQUEST
    commits = frozenset[str]() if is_numbered else await commits_of_work(prepared.repository, scope, checkout)
    listed = history.list(HistoryQuery(repositories=checkout.identity.names, limit=_MOST_LISTED)).entries
    entries = [one for one in listed if one.kind is EntryKind.REVIEW and one.scope == scope.kind.value]
    # The branch that is checked out does not say which range is under review.
    if scope.kind is ScopeKind.RANGE or (checkout.branch is None and not is_numbered):
        records = [record for record in _records(history, entries[:_MOST_COMPARED]) if _is_continuable(record)]
        return _most_alike(records, prepared.selection.files, commits)
    of_work = [one for one in entries if (one.branch and one.branch == checkout.branch) or one.head in commits]
    records_of_work = islice(_records(history, of_work), _MOST_UNREADABLE)
    return next((record for record in records_of_work if _is_continuable(record)), None)


def _records(history: History, entries: Iterable[HistoryEntry]) -> Iterator[ReviewRecord]:
    for entry in entries:
        try:
            record = history.get(entry.entry_id)
        except StoreError as error:
            _log.warning("%s", error.message)
            continue
        if record is not None:
            yield record


def _most_alike(
    records: Sequence[ReviewRecord], files: Sequence[FileChange], commits: frozenset[str]
) -> ReviewRecord | None:
    """Return the newest review that covered nearly the most of these lines; else one of these commits."""
    now = names_of(files)
    shared = [len(now.intersection(record.seen)) for record in records]
    most = max(shared, default=0)
    if most:
        return next(record for record, count in zip(records, shared, strict=True) if count >= _NEARLY_ALL * most)
    return next((record for record in records if record.review.scope.head in commits), None)


def _is_continuable(record: ReviewRecord) -> bool:
    """Tell whether a review saw anything: one of an empty change says nothing about earlier findings."""
    return bool(record.terms) and record.review.coverage.files_reviewed > 0
