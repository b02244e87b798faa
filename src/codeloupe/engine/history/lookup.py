"""From what a person types to an entry of the history: an id, the beginning of one, or `last`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from codeloupe.errors import StoreError, UsageError
from codeloupe.model.change import ScopeKind
from codeloupe.model.history import EntryKind, HistoryEntry, HistoryQuery, RepositoryIdentity, ReviewRecord

# Loaded for its type alone, it would take longer than to look anything up.
if TYPE_CHECKING:
    from codeloupe.store.interface import History

# Which repository this is, found out only when it is needed: that takes longer than to look up an id.
Here = Callable[[], RepositoryIdentity]

_log = logging.getLogger(__name__)
LAST = "last"
SHORT_ID = 12
_SHORTEST_PREFIX = 4
_CANDIDATES = 8
_MOST_LOOKED_AT = 500
# How many reviews are compared with a change that no name belongs to, and what share of its lines is nearly all.
_MOST_COMPARED = 25
_NEARLY_ALL = 0.9
_FIRST_STEP = "`codeloupe review` makes the first entry"
_LIST = "`codeloupe history list` shows what there is"


def find_entry(history: History, word: str, *, here: Here) -> HistoryEntry:
    """The review or sweep that a word names; `last` is the newest one of this repository. Raises UsageError."""
    if word == LAST:
        newest = history.list(HistoryQuery(repositories=here().names, limit=_CANDIDATES))
        if newest.entries:
            return newest.entries[0]
        raise StoreError(newest.problems[0], hint=_LIST) if newest.problems else nothing_saved(here())
    prefix = _prefix(word)
    found = history.matching(prefix, limit=_CANDIDATES + 1)
    exact = [entry for entry in found.entries if entry.entry_id == prefix]
    if exact:
        return exact[0]
    if len(found.entries) > 1:
        raise _ambiguous(word, found.entries)
    if not found.entries:
        if found.problems:
            raise StoreError(found.problems[0], hint=_LIST)
        raise _unknown(history, word, here())
    return found.entries[0]


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


def reviews_of_work(
    history: History, names: Sequence[str], *, kind: ScopeKind, branch: str | None, commits: frozenset[str]
) -> Iterator[ReviewRecord]:
    """The reviews of the same work and kind of scope, the newest first: of its branch, or of one of its commits."""
    for entry in history.list(HistoryQuery(repositories=tuple(names), limit=_MOST_LOOKED_AT)).entries:
        is_same = (branch is not None and entry.branch == branch) or entry.head in commits
        if entry.kind is EntryKind.REVIEW and entry.scope == kind.value and is_same:
            try:
                record = history.get(entry.entry_id)
            except StoreError as error:
                _log.warning("%s", error.message)
                continue
            if record is not None:
                yield record


def nothing_saved(identity: RepositoryIdentity) -> UsageError:
    """The error for a repository without any entry."""
    return UsageError(f"no review of {identity.label or 'this directory'} is saved yet", hint=_FIRST_STEP)


def _prefix(word: str) -> str:
    prefix = word.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{1,64}", prefix):
        raise UsageError(f"{word!r} is no id of the history: ids have digits and the letters a to f", hint=_LIST)
    if len(prefix) < _SHORTEST_PREFIX:
        raise UsageError(f"{word!r} is too short: give at least {_SHORTEST_PREFIX} characters of the id", hint=_LIST)
    return prefix


def _ambiguous(word: str, entries: Sequence[HistoryEntry]) -> UsageError:
    shown = entries[:_CANDIDATES]
    more = "\n  and more" if len(entries) > len(shown) else ""
    lines = "\n".join(f"  {_in_short(entry, len(word))}" for entry in shown)
    return UsageError(f"{word!r} is the beginning of several ids:\n{lines}{more}", hint="give more characters of one")


def _unknown(history: History, word: str, identity: RepositoryIdentity) -> UsageError:
    newest = history.list(HistoryQuery(repositories=identity.names, limit=_CANDIDATES)).entries
    if not newest:
        return UsageError(f"no entry {word!r} is in the history, nor any of this repository", hint=_FIRST_STEP)
    lines = "\n".join(f"  {_in_short(entry)}" for entry in newest)
    return UsageError(f"no entry of the history begins with {word!r}; the newest here are:\n{lines}", hint=_LIST)


def _in_short(entry: HistoryEntry, given: int = 0) -> str:
    shown = entry.entry_id[: max(SHORT_ID, given + 4)]
    # Each on one line, whatever a description holds: this text goes out with its line ends kept.
    description = " ".join(entry.description.split())[:80]
    return f"{shown}  {entry.saved_at.astimezone():%Y-%m-%d %H:%M}  {description}"


def newest_of_kind(history: History, names: tuple[str, ...], kind: ScopeKind) -> list[ReviewRecord]:
    """Some reviews of a kind of scope, the newest first."""
    listed = history.list(HistoryQuery(repositories=names, limit=_MOST_LOOKED_AT)).entries
    alike = [entry for entry in listed if entry.kind is EntryKind.REVIEW and entry.scope == kind.value]
    records = (history.get(entry.entry_id) for entry in alike[:_MOST_COMPARED])
    return [record for record in records if record is not None]


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
