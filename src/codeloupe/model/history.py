"""What history keeps: reviews and sweeps as they were saved, and what lists, trends and comparisons show of them."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitSweep

# Begins the name of a repository that goes by a commit.
COMMIT_PREFIX = "commit:"


class RepositoryIdentity(Struct, frozen=True):
    """The names of one repository, and what people call it: saved under the first, looked for under all of them."""

    names: tuple[str, ...]
    label: str


class Here(Struct, frozen=True):
    """The work tree in which a command runs, by its name in the history, and its folder's name for people.

    Each linked worktree is a work tree of its own. Outside a repository it is the directory itself.
    """

    work_tree: str
    label: str


def steps_back(word: str) -> int | None:
    """Return how far before the newest entry a word points: 0 for `last`, N for `last~N`; None for any other word."""
    found = re.fullmatch(r"last(?:~([0-9]{0,6}))?", word.strip())
    if found is None:
        return None
    if found[1] is None:
        return 0
    return int(found[1] or 1)


class _Saved(Struct, frozen=True, kw_only=True):
    """The fields that a stored review and a stored sweep share.

    `work_tree` names the work tree in which it was asked for. `problems` are set when it is read back, and say which
    parts of it cannot be read.
    """

    saved_at: datetime
    repository: str
    work_tree: str = ""
    repository_label: str = ""
    branch: str | None = None
    tool_version: str = ""
    prompt_version: str = ""
    problems: tuple[str, ...] = ()


class ReviewRecord(_Saved, frozen=True, kw_only=True):
    """A review as it is saved, with what a later review needs.

    `terms` names what the agents were asked with, and `seen` the hunks that they saw whole, so that a later review on
    the same terms need not ask about them again. `turn` is its place in the order of saving, set when it is read back.
    """

    review: Review
    sweep_id: str | None = None
    terms: str = ""
    seen: tuple[str, ...] = ()
    head: str | None = None
    turn: int = 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of the review, also those below its `min_severity` and those that it omits."""
        return self.review.findings + self.review.hidden + self.review.omitted


class SweepRecord(_Saved, frozen=True, kw_only=True):
    """A sweep as it is saved. One that is not `finished` holds the commits that were reviewed until then."""

    sweep: CommitSweep
    finished: bool = True

    def record_of(self, review: Review) -> ReviewRecord:
        """The record of one of its reviews."""
        shared = {name: getattr(self, name) for name in _Saved.__struct_fields__ if name != "problems"}
        return ReviewRecord(review=review, sweep_id=self.sweep.sweep_id, **shared)


EntryKind = StrEnum("EntryKind", "REVIEW SWEEP")


class SeverityCounts(Struct, frozen=True, kw_only=True):
    """How many findings count, by severity."""

    critical: int = 0
    high: int = 0
    medium: int = 0
    low: int = 0

    def of(self, severity: Severity) -> int:
        """How many there are of one severity."""
        return (self.critical, self.high, self.medium, self.low)[severity.value]


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One line of the list: a review, or a sweep, which has no `verdict` and more than 0 `commits`.

    `scope` is the scope's kind. `counts` holds what counts towards the verdict; `set_aside` counts the rest.
    """

    entry_id: str
    kind: EntryKind
    saved_at: datetime
    repository_label: str
    branch: str | None
    scope: str
    description: str
    verdict: str | None
    complete: bool
    exit_code: int
    summary: str
    counts: SeverityCounts
    set_aside: int = 0
    commits: int = 0
    reviewer: str = ""
    cost_usd: float = 0.0
    unknown_costs: int = 0
    duration_seconds: float = 0.0
    head: str | None = None


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """Select the newest entries, at most `limit`; a filter that is None matches all entries.

    `repositories` are the names of one repository.
    """

    repositories: tuple[str, ...] | None = None
    work_tree: str | None = None
    branch: str | None = None
    limit: int = 20


class Listing(Struct, frozen=True):
    """Entries, the newest first; `problems` name those that cannot be read."""

    entries: tuple[HistoryEntry, ...]
    problems: tuple[str, ...] = ()


class SweepOutline(Struct, frozen=True):
    """A sweep without its reviews' findings: `record` has its commits, `reviews` the entry of each one's review."""

    record: SweepRecord
    reviews: tuple[HistoryEntry | None, ...]


class Sighting(Struct, frozen=True, kw_only=True):
    """One finding in one saved review, as far as its life across reviews needs it."""

    fingerprint: str
    review_id: str
    saved_at: datetime
    status: FindingStatus
    severity: Severity
    file: str
    is_open: bool
    turn: int = 0


class Dismissal(Struct, frozen=True, kw_only=True):
    """A finding that a person set aside for good, and why; `finding` is as it was then, where it was kept."""

    fingerprint: str
    repository: str
    reason: str
    who: str
    at: datetime
    finding: Finding | None = None


TrendKey = StrEnum("TrendKey", "WEEK EXPERT REVIEWER")


class TrendRow(Struct, frozen=True, kw_only=True):
    """One week, expert or reviewer. A finding counts once, where it was seen first; `fixed` are those gone since.

    `reviews`, `cost_usd` and `duration_seconds` are None for experts, who share a review.
    """

    key: str
    findings: int
    fixed: int
    reviews: int | None = None
    cost_usd: float | None = None
    unknown_costs: int = 0
    duration_seconds: float | None = None

    @property
    def fixed_share(self) -> float | None:
        """Fixed findings by all that were found, None when there are none."""
        return self.fixed / self.findings if self.findings else None


class Trends(Struct, frozen=True):
    """Rows in the order they are to be shown; `problems` name what could not be read."""

    by: TrendKey
    rows: tuple[TrendRow, ...]
    problems: tuple[str, ...] = ()


class PruneRule(Struct, frozen=True, kw_only=True):
    """Select entries to remove: those before a moment, all but the newest `keep_last`, the oldest beyond `max_bytes`.

    With both `older_than` and `keep_last`, the newest `keep_last` stay however old they are.
    """

    older_than: datetime | None = None
    keep_last: int | None = None
    max_bytes: int | None = None
    repositories: tuple[str, ...] | None = None
    work_tree: str | None = None


class Removed(Struct, frozen=True, kw_only=True):
    """What was removed, or would be. `size_bytes` is what the entries took as they were stored."""

    reviews: int = 0
    sweeps: int = 0
    findings: int = 0
    size_bytes: int = 0


class Comparison(Struct, frozen=True, kw_only=True):
    """What became of findings from one review to a later one; each is taken from the later where that has it.

    `set_aside` were open and are refuted, dismissed or suppressed now. `unknown` the later one could not see again.
    """

    new: tuple[Finding, ...] = ()
    still_open: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    regressed: tuple[Finding, ...] = ()
    set_aside: tuple[Finding, ...] = ()
    unknown: tuple[Finding, ...] = ()
