"""Reviews and sweeps in the history: opened, found again, and judged by another policy. Needs no event loop."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from msgspec.structs import replace

from codeloupe.engine.verdict import BLOCKED, INCOMPLETE, PASSED, conclude, judge
from codeloupe.errors import StoreError, UsageError
from codeloupe.model.finding import Severity
from codeloupe.model.history import EntryKind, HistoryEntry, HistoryQuery, RepositoryIdentity, ReviewRecord, SweepRecord
from codeloupe.model.review import UNPLACED, Policy, Review, unplaced_errors
from codeloupe.model.sweep import CommitSweep
from codeloupe.store.database import Database, database_path
from codeloupe.store.history import SqliteHistory
from codeloupe.store.interface import History

OpenedHistory = Callable[[], AbstractContextManager[SqliteHistory]]
# Which repository this is, found out only when it is needed: that takes longer than to look up an id.
Here = Callable[[], RepositoryIdentity]

LAST = "last"
SHORT_ID = 12
_CANDIDATES = 8
_FIRST_STEP = "`codeloupe review` makes the first entry"
_LIST = "`codeloupe history list` shows what there is"


@contextmanager
def opened_history(environment: Mapping[str, str] = os.environ) -> Iterator[SqliteHistory]:
    """This user's history in the one database; the file is touched with its first use. Raises StoreError."""
    with Database(database_path(environment)) as database:
        yield SqliteHistory(database)


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
    if len(prefix) < 4:
        raise UsageError(f"{word!r} is too short: give at least 4 characters of the id", hint=_LIST)
    found = history.matching(prefix, limit=_CANDIDATES + 1)
    exact = [entry for entry in found.entries if entry.entry_id == prefix]
    if exact or len(found.entries) == 1:
        return (*exact, *found.entries)[0]
    if found.entries:
        more = "\n  and more" if len(found.entries) > _CANDIDATES else ""
        lines = _in_short(found.entries[:_CANDIDATES], len(word))
        raise UsageError(f"{word!r} is the beginning of several ids:{lines}{more}", hint="give more characters of one")
    if found.problems:
        raise StoreError(found.problems[0], hint=_LIST)
    known = history.list(HistoryQuery(repositories=here().names, limit=_CANDIDATES)).entries
    if not known:
        raise UsageError(f"no entry {word!r} is in the history, nor any of this repository", hint=_FIRST_STEP)
    here_are = f"the newest here are:{_in_short(known)}"
    raise UsageError(f"no entry of the history begins with {word!r}; {here_are}", hint=_LIST)


def find_review(history: History, word: str, *, here: Here) -> ReviewRecord:
    """The review that a word names; `last` is the newest here that is not part of a sweep. Raises UsageError."""
    if word == LAST:
        newest = history.last(here().names)
        if newest is None:
            raise nothing_saved(here())
        return newest
    return review_of(history, find_entry(history, word, here=here))


def review_of(history: History, entry: HistoryEntry) -> ReviewRecord:
    """The review of an entry. Raises UsageError when it is a sweep."""
    if entry.kind is EntryKind.SWEEP:
        name = entry.entry_id[:SHORT_ID]
        hint = f"`codeloupe history show {name}` has the reviews of its commits; name one"
        raise UsageError(f"{name} is a sweep of {entry.commits} commits, not one review", hint=hint)
    record = history.get(entry.entry_id)
    if record is None:
        raise UsageError(f"the review {entry.entry_id} was removed just now", hint=_LIST)
    return record


def nothing_saved(identity: RepositoryIdentity) -> UsageError:
    """The error for a repository without any entry."""
    return UsageError(f"no review of {identity.label or 'this directory'} is saved yet", hint=_FIRST_STEP)


def _in_short(entries: Sequence[HistoryEntry], given: int = 0) -> str:
    # Each on one line, whatever a description holds: this text goes out with its line ends kept.
    return "".join(
        f"\n  {entry.entry_id[: max(SHORT_ID, given + 4)]}  {entry.saved_at.astimezone():%Y-%m-%d %H:%M}"
        f"  {' '.join(entry.description.split())[:80]}"
        for entry in entries
    )


def judged(record: ReviewRecord, policy: Policy) -> Review:
    """The saved review as this policy would have concluded it, at no cost; with its own policy, as it was.

    What could not be read of it makes it incomplete. Raises UsageError when findings that could decide were not kept.
    """
    review = record.review
    # Earlier versions let claims without a place pass, and concluded those reviews otherwise.
    sound = review.complete and not review.unsettled
    verdict = judge(review.findings, complete=sound, fail_on=review.policy.fail_on)
    is_sound = sound is review.complete and verdict is review.verdict
    if policy == review.policy and not record.problems and is_sound:
        return review
    unknown = max(review.hidden_findings - len(review.hidden), 0)
    # What was hidden and not kept is below both limits of the old policy; a new one must not reach down there.
    kept_down_to = max(review.policy.fail_on.value, review.policy.min_severity.value)
    if unknown and policy.fail_on.value > kept_down_to:
        lowest = Severity(kept_down_to).label
        raise UsageError(
            f"{unknown} findings below {lowest} were not kept with this review,"
            f" so it cannot be judged by fail_on={policy.fail_on.label}",
            hint=f"use --fail-on {lowest} or above, or review again with --min-severity {policy.fail_on.label}",
        )
    everything = review.findings
    if review.hidden:
        everything = tuple(sorted(record.findings, key=lambda one: (one.file, one.first_line, one.last_line)))
    # Whether claims are settled is a matter of the policy; what was reviewed is not.
    saw_everything = review.coverage.complete and (review.complete or bool(review.unsettled)) and not record.problems
    again = replace(review, **conclude(everything, policy, review.coverage, complete=saw_everything))
    errors = (*(error for error in review.errors if error.kind != UNPLACED), *unplaced_errors(again.unsettled))
    return replace(again, hidden_findings=again.hidden_findings + unknown, errors=errors)


def judged_sweep(record: SweepRecord, *, strict: bool = False, pass_when_incomplete: bool | None = None) -> CommitSweep:
    """The saved sweep as it would have ended strictly, or with another word on what could not be reviewed."""
    sweep = record.sweep
    is_strict = strict or sweep.strict
    is_whole = record.finished and not record.problems
    complete = is_whole and all(commit.verdict is not None for commit in sweep.commits)
    # That it passed then says nothing of what cannot be read of it now.
    passes = is_whole and sweep.exit_code == PASSED if pass_when_incomplete is None else pass_when_incomplete
    reviews = (commit.review for commit in sweep.commits if commit.review is not None)
    findings = (finding for review in reviews for finding in (*review.findings, *review.hidden))
    blocks = any(finding.can_block and finding.severity.at_least(Severity.HIGH) for finding in findings)
    code = BLOCKED if is_strict and blocks else PASSED if complete or passes else INCOMPLETE
    summary = sweep.summary or f"{len(sweep.commits)} commits"
    if not is_whole:
        summary += "; not all of it can be read" if record.finished else "; not finished"
    return replace(sweep, strict=is_strict, exit_code=code, summary=summary)


def changed_policy(policy: Policy, **changes: Severity | bool | None) -> Policy:
    """The policy with what is given, and is not None, in the place of its own."""
    return replace(policy, **{name: value for name, value in changes.items() if value is not None})
