"""The history of one process, for tests and for a user who has no place to keep anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import (
    Dismissal,
    EntryKind,
    HistoryEntry,
    HistoryQuery,
    Listing,
    PruneRule,
    Removed,
    ReviewRecord,
    Sighting,
    SweepOutline,
    SweepRecord,
    TrendKey,
    Trends,
)
from codeloupe.model.sweep import CommitReview
from codeloupe.store.history_entries import entry_of_review, entry_of_sweep
from codeloupe.store.history_pruning import Prunable, doomed, total
from codeloupe.store.history_trends import FindingFact, ReviewFact, trend_rows
from codeloupe.store.history_writing import prepare_commits, prepare_review

_NOTHING: Mapping[str, str] = MappingProxyType({})


class _Saved(Struct, frozen=True):
    number: int
    record: ReviewRecord
    size_bytes: int


class MemoryHistory:
    """Does what `SqliteHistory` does, and forgets all at the end. What it keeps is frozen, so none can change it."""

    def __init__(self) -> None:
        self._reviews: dict[str, _Saved] = {}
        self._raw_outputs: dict[str, Mapping[str, str]] = {}
        self._sweeps: dict[str, tuple[int, SweepRecord]] = {}
        self._dismissals: dict[tuple[str, str], Dismissal] = {}
        self._count = 0

    def save(self, record: ReviewRecord, *, raw_outputs: Mapping[str, str] = _NOTHING) -> None:
        """Keep a review. Raises StoreError when it could not be stored either."""
        if record.sweep_id is not None and record.sweep_id not in self._sweeps:
            raise StoreError(
                f"the review {record.review.review_id} cannot be saved before its sweep {record.sweep_id}",
                hint="save the sweep first",
            )
        review_id = record.review.review_id
        size_bytes = prepare_review(record, raw_outputs or self.raw_outputs(review_id)).size_bytes
        known = self._reviews.get(review_id)
        number = self._next() if known is None else known.number
        self._reviews[review_id] = _Saved(number, replace(record, problems=(), turn=0), size_bytes)
        if raw_outputs:
            self._raw_outputs[review_id] = dict(raw_outputs)

    def save_sweep(self, record: SweepRecord) -> None:
        """Keep a sweep with its reviews."""
        prepare_commits(record, record.sweep.commits)
        sweep_id = record.sweep.sweep_id
        self._sweeps[sweep_id] = (self._next(), replace(record, problems=()))
        for commit in record.sweep.commits:
            if commit.review is not None:
                self.save(record.record_of(commit.review))

    def add_commit(
        self, record: SweepRecord, commit: CommitReview, *, raw_outputs: Mapping[str, str] = _NOTHING
    ) -> None:
        """Keep one more commit of a sweep that goes on."""
        known = self._sweeps.get(record.sweep.sweep_id)
        before = () if known is None else known[1].sweep.commits
        self.save_sweep(replace(record, sweep=replace(record.sweep, commits=(*before, commit)), finished=False))
        if commit.review is not None:
            self.save(record.record_of(commit.review), raw_outputs=raw_outputs)

    def get(self, review_id: str) -> ReviewRecord | None:
        """A kept review, or None."""
        saved = self._reviews.get(review_id)
        return None if saved is None else replace(saved.record, turn=saved.number)

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit."""
        return dict(self._raw_outputs.get(review_id, {}))

    def get_sweep(self, sweep_id: str) -> SweepRecord | None:
        """A kept sweep with its reviews, or None."""
        known = self._sweeps.get(sweep_id)
        return None if known is None else known[1]

    def outline(self, sweep_id: str) -> SweepOutline | None:
        """A kept sweep without the findings of its reviews, or None."""
        record = self.get_sweep(sweep_id)
        if record is None:
            return None
        commits = record.sweep.commits
        reviews = (
            None if commit.review is None else entry_of_review(record.record_of(commit.review)) for commit in commits
        )
        bare = replace(record.sweep, commits=tuple(replace(commit, review=None) for commit in commits))
        return SweepOutline(replace(record, sweep=bare), tuple(reviews))

    def last(
        self, repositories: Sequence[str], *, branch: str | None = None, scope: ScopeKind | None = None
    ) -> ReviewRecord | None:
        """The newest review of a repository, of a branch and a kind of scope; none of a sweep."""
        wanted = [
            saved
            for saved in self._of(repositories)
            if saved.record.sweep_id is None
            and (branch is None or saved.record.branch == branch)
            and (scope is None or saved.record.review.scope.kind is scope)
        ]
        return replace(wanted[-1].record, turn=wanted[-1].number) if wanted else None

    def list(self, query: HistoryQuery) -> Listing:
        """The newest entries."""
        names = query.repositories
        reviews = [
            (saved.number, saved.record.repository, entry_of_review(saved.record))
            for saved in self._reviews.values()
            if saved.record.sweep_id is None
        ]
        sweeps = [(number, record.repository, entry_of_sweep(record)) for number, record in self._sweeps.values()]
        wanted = [
            (number, entry)
            for number, repository, entry in (*sweeps, *reviews)
            if (names is None or repository in names) and (query.branch is None or entry.branch == query.branch)
        ]
        wanted.sort(key=lambda item: item[0], reverse=True)
        return Listing(tuple(entry for _, entry in wanted[: query.limit]))

    def matching(self, prefix: str, *, limit: int = 10) -> Listing:
        """Reviews and sweeps whose id begins so."""
        found: list[HistoryEntry] = [
            *(entry_of_review(saved.record) for saved in self._reviews.values()),
            *(entry_of_sweep(record) for _, record in self._sweeps.values()),
        ]
        return Listing(tuple(entry for entry in found if entry.entry_id.startswith(prefix))[:limit])

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[Sighting, ...]:
        """Every time these findings were seen, the oldest first."""
        wanted = frozenset(fingerprints)
        return tuple(
            _sighting(saved, finding)
            for saved in self._of(repositories)
            for finding in saved.record.findings
            if finding.fingerprint in wanted
        )

    def dismiss(self, dismissal: Dismissal) -> None:
        """Keep that a person set a finding aside."""
        self._dismissals[dismissal.repository, dismissal.fingerprint] = dismissal

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""
        gone = [self._dismissals.pop((name, fingerprint), None) for name in repositories]
        return any(gone)

    def dismissals(self, repositories: Sequence[str]) -> tuple[Dismissal, ...]:
        """What persons set aside in a repository, the oldest first."""
        found = (dismissal for dismissal in self._dismissals.values() if dismissal.repository in repositories)
        return tuple(sorted(found, key=lambda dismissal: (dismissal.at, dismissal.fingerprint)))

    def trends(self, by: Sequence[TrendKey], *, repositories: Sequence[str] | None = None) -> tuple[Trends, ...]:
        """Findings, cost, time and what was fixed, for each key by which they are wanted."""
        saved = self._of(repositories)
        reviews = [_review_fact(each) for each in saved]
        findings = (_finding_fact(each, finding) for each in saved for finding in each.record.review.findings)
        return trend_rows(by, reviews, findings)

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Removed:
        """Forget what the rule names, and tell what went; with `dry_run`, what would."""
        entries = {entry: name for name, entry in self._prunable(rule.repositories)}
        going = doomed(list(entries), rule)
        for entry in () if dry_run else going:
            name = entries[entry]
            its = [name]
            if entry.kind is EntryKind.SWEEP:
                its = [saved.record.review.review_id for saved in self._of_sweep(name)]
                del self._sweeps[name]
            for review_id in its:
                del self._reviews[review_id]
                self._raw_outputs.pop(review_id, None)
        return total(going)

    def _prunable(self, repositories: Sequence[str] | None) -> Iterable[tuple[str, Prunable]]:
        for saved in self._of(repositories):
            record = saved.record
            if record.sweep_id is None:
                at, findings = record.saved_at.timestamp(), len(record.findings)
                yield (
                    record.review.review_id,
                    Prunable(EntryKind.REVIEW, saved.number, at, saved.number, 1, findings, saved.size_bytes),
                )
        for sweep_id, (number, sweep) in self._sweeps.items():
            if repositories is not None and sweep.repository not in repositories:
                continue
            its = self._of_sweep(sweep_id)
            findings = sum(len(saved.record.findings) for saved in its)
            size_bytes = sum(saved.size_bytes for saved in its)
            at = sweep.saved_at.timestamp()
            yield sweep_id, Prunable(EntryKind.SWEEP, number, at, number, len(its), findings, size_bytes)

    def _of(self, repositories: Sequence[str] | None) -> Sequence[_Saved]:
        """The reviews of a repository, the oldest first."""
        wanted = (
            saved for saved in self._reviews.values() if repositories is None or saved.record.repository in repositories
        )
        return sorted(wanted, key=lambda saved: saved.number)

    def _of_sweep(self, sweep_id: str) -> Sequence[_Saved]:
        return [saved for saved in self._reviews.values() if saved.record.sweep_id == sweep_id]

    def _next(self) -> int:
        self._count += 1
        return self._count


def _sighting(saved: _Saved, finding: Finding) -> Sighting:
    record = saved.record
    return Sighting(
        fingerprint=finding.fingerprint,
        review_id=record.review.review_id,
        saved_at=record.saved_at,
        status=finding.status,
        severity=finding.severity,
        file=finding.file,
        is_open=finding.is_open,
        turn=saved.number,
    )


def _review_fact(saved: _Saved) -> ReviewFact:
    review = saved.record.review
    return ReviewFact(
        saved.number,
        saved.record.saved_at.timestamp(),
        saved.record.repository,
        review.reviewer.type,
        review.usage.cost_usd,
        review.usage.unknown_costs,
        review.usage.duration_seconds,
    )


def _finding_fact(saved: _Saved, finding: Finding) -> FindingFact:
    return FindingFact(
        saved.number, finding.fingerprint, finding.expert, finding.status is FindingStatus.FIXED, finding.is_open
    )
