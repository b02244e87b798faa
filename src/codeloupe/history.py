"""Reviews and sweeps in the history: kept, found again, and judged by another policy.

What cannot be kept is a warning: a review that was made is never lost for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.config.files import repository_root
from codeloupe.config.loading import database_url
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.findings.verdict import BLOCKED, INCOMPLETE, PASSED, conclude
from codeloupe.git.identity import Checkout, read_checkout
from codeloupe.model.events import Warned
from codeloupe.model.finding import Severity
from codeloupe.model.history import (
    EntryKind,
    Here,
    HistoryEntry,
    HistoryQuery,
    ReviewRecord,
    SweepRecord,
    steps_back,
)
from codeloupe.model.ports import EventSink, Transcript
from codeloupe.model.review import FailedUnit, Policy, Review, ReviewError
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.store import open_database
from codeloupe.store.history import DatabaseHistory, OpenedHistory
from codeloupe.store.interface import History
from codeloupe.store.sqlite import state_directory
from codeloupe.system.logs import log_failure
from codeloupe.system.process import uninterrupted
from codeloupe.system.redaction import redact

_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = MappingProxyType({})
LAST = "last"
SHORT_ID = 12
_CANDIDATES = 8
_FIRST_STEP = "`codeloupe review` creates the first entry"
_ELSEWHERE = "`codeloupe history list --all` lists reviews of other working trees; an id works from anywhere"
_LIST = "`codeloupe history list` lists the reviews of this working tree, and with --all every review"


@contextmanager
def opened_history(environment: Mapping[str, str] = os.environ) -> Iterator[DatabaseHistory]:
    """This user's history; its file or server is touched with the first use. Raises StoreError and ConfigError."""
    with open_database(database_url(environment), state_directory(environment)) as database:
        yield DatabaseHistory(database)


def locate(history: History, repo: Path) -> Here:
    """Return the work tree that holds a directory, or the directory itself outside a repository."""
    root = repository_root(repo)
    return Here(history.work_tree_of(root), root.name)


def find_entry(history: History, word: str, *, here: Here) -> HistoryEntry:
    """Return the review or sweep that a word names: an id, the start of one, `last` or `last~N`. Raise UsageError.

    `last` is the newest one that was made in this work tree, and `last~1` the one before it.
    """
    back = steps_back(word)
    if back is not None:
        newest = history.list(HistoryQuery(work_tree=here.work_tree, limit=back + _CANDIDATES))
        if len(newest.entries) > back:
            return newest.entries[back]
        if newest.problems and not newest.entries:
            raise StoreError(newest.problems[0], hint=_LIST)
        raise _too_far_back(history, word, here=here, stored=len(newest.entries), what="entry")
    prefix = word.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{4,64}", prefix):
        what = "give at least 4 characters of one, digits and the letters a to f, or `last`, `last~1`, `last~2`"
        raise UsageError(f"{word!r} is not an id of the history: {what}", hint=_LIST)
    found = history.matching(prefix, limit=_CANDIDATES + 1)
    exact = [entry for entry in found.entries if entry.entry_id == prefix]
    if exact or len(found.entries) == 1:
        return (*exact, *found.entries)[0]
    if found.entries:
        more = "\n  and more" if len(found.entries) > _CANDIDATES else ""
        lines = _in_short(found.entries[:_CANDIDATES], len(word))
        raise UsageError(f"{word!r} matches several ids:{lines}{more}", hint="give more characters of one")
    if found.problems:
        raise StoreError(found.problems[0], hint=_LIST)
    known = history.list(HistoryQuery(work_tree=here.work_tree, limit=_CANDIDATES)).entries
    if not known:
        missing = f"no entry of the history begins with {word!r}, and none was made in {here.label}"
        raise UsageError(missing, hint=_next_step(history))
    here_are = f"the newest here are:{_in_short(known)}"
    raise UsageError(f"no entry of the history begins with {word!r}; {here_are}", hint=_LIST)


def find_review(history: History, word: str, *, here: Here) -> ReviewRecord:
    """Return the review that a word names, as `find_entry` does; sweeps do not count for `last`. Raise UsageError."""
    back = steps_back(word)
    if back is None:
        return review_of(history, find_entry(history, word, here=here))
    found = history.last(here.work_tree, back=back)
    if found is not None:
        return found
    stored = 0
    while history.last(here.work_tree, back=stored) is not None:
        stored += 1
    raise _too_far_back(history, word, here=here, stored=stored, what="review")


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


def _too_far_back(history: History, word: str, *, here: Here, stored: int, what: str) -> UsageError:
    """Return the error for a `last~N` that is not stored."""
    where = here.label or "this directory"
    if not stored:
        return UsageError(f"no review made in {where} is stored", hint=_next_step(history))
    many = "is stored" if stored == 1 else "are stored"
    words = "reviews" if what == "review" else "entries"
    counted = f"1 {what}" if stored == 1 else f"{stored} {words}"
    return UsageError(f"{word} does not exist: {counted} of {where} {many}", hint=_LIST)


def _next_step(history: History) -> str:
    """Return the hint for a work tree without reviews."""
    others = history.list(HistoryQuery(limit=1)).entries
    return _ELSEWHERE if others else _FIRST_STEP


def _in_short(entries: Sequence[HistoryEntry], given: int = 0) -> str:
    # Each on one line, whatever a description holds: this text goes out with its line ends kept.
    return "".join(
        f"\n  {entry.entry_id[: max(SHORT_ID, given + 4)]}  {entry.saved_at.astimezone():%Y-%m-%d %H:%M}"
        f"  {' '.join(entry.description.split())[:80]}"
        for entry in entries
    )


def judged(record: ReviewRecord, policy: Policy) -> Review:
    """Return the stored review as this policy would have concluded it, at no cost.

    A review that cannot be read completely is incomplete.
    """
    review = record.review
    if policy == review.policy and not record.problems:
        return review
    unread = tuple(FailedUnit("the stored review", (), problem) for problem in record.problems)
    coverage = replace(review.coverage, units_failed=(*review.coverage.units_failed, *unread))
    return conclude(replace(review, policy=policy, coverage=coverage))


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


class Answers:
    """A transcript that keeps the answers and failures, and passes everything on to another one, if there is one."""

    def __init__(self, beside: Transcript | None = None) -> None:
        self._beside = beside
        # A model that never ends must not fill the history: what is longer keeps its beginning.
        self._left = 20_000_000
        # By title, as they came: whoever keeps them redacts them first.
        self.texts: dict[str, str] = {}

    def __call__(self, title: str, text: str) -> None:
        """Take a text. The second answer of a unit, after a repair, follows its first."""
        if self._beside is not None:
            self._beside(title, text)
        if title.startswith(("answer of ", "failure of ")) and self._left > 0:
            kept = text[: min(1_000_000, self._left)]
            self._left -= len(kept)
            earlier = self.texts.get(title)
            self.texts[title] = kept if earlier is None else f"{earlier}\n\n{kept}"


class Saved(Struct, frozen=True, kw_only=True):
    """The parts of a `ReviewRecord` that are stored with a review, beside its result.

    `repo` is where the change was read, and `asked_in` where the review was asked for, if that is another place.
    `work_tree` is the name of that place if it is on another machine.
    """

    repo: Path
    asked_in: Path | None = None
    work_tree: str = ""
    raw_outputs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    terms: str = ""
    seen: tuple[str, ...] = ()
    checkout: Checkout | None = None
    prompt_version: str = ""


async def store_review(
    review: Review,
    saved: Saved,
    *,
    opened: OpenedHistory = opened_history,
    emit: EventSink = lambda _event: None,
) -> Review:
    """Store a review and return it, with an error of kind `history` if that fails. Raise only cancellation."""
    try:
        with opened() as history:
            checkout = saved.checkout or await read_checkout(saved.repo, history)
            record = ReviewRecord(
                review=review,
                terms=saved.terms,
                seen=saved.seen,
                head=review.scope.head or checkout.head,
                work_tree=saved.work_tree or locate(history, saved.asked_in or saved.repo).work_tree,
                **_saved_now(checkout, saved.prompt_version),
            )
            raw_outputs = _masked(saved.raw_outputs)
            await uninterrupted(asyncio.to_thread(history.save, record, raw_outputs=raw_outputs))
    except Exception as error:  # noqa: BLE001 - the review itself is complete and must be shown
        message = _warn("the review", error, emit)
        return replace(review, errors=(*review.errors, ReviewError("history", message)))
    return review


class SweepKeeper:
    """Saves the commits of a sweep as they are finished, and the whole at the end; `problem` says why it cannot."""

    def __init__(self, emit: EventSink, position: int | None = None) -> None:
        self._emit, self._position = emit, position
        self._answers: dict[str, Answers] = {}
        self.place: tuple[DatabaseHistory, SweepRecord] | None = None
        self.problem = ""

    def transcript_of(self, sha: str) -> Transcript:
        """What takes down the answers of the agents to a commit, until that is finished."""
        return self._answers.setdefault(sha, Answers())

    async def keep_commit(self, commit: CommitReview) -> None:
        """Save one commit; raises nothing but a cancellation. The event loop goes on, however long it takes."""
        raw_outputs = _masked(self._answers.pop(commit.commit.sha, Answers()).texts)
        await self._saved(
            (commit,),
            lambda history, record: history.add_commit(
                record, commit, raw_outputs=raw_outputs, position=self._position
            ),
        )

    async def finish(self, sweep: CommitSweep) -> None:
        """Save the whole sweep in the place of its parts; as `keep_commit`."""
        whole = {"sweep": sweep, "saved_at": datetime.now(UTC)}
        await self._saved(sweep.commits, lambda history, record: history.save_sweep(replace(record, **whole)))

    def give_up(self, error: Exception) -> None:
        """Warn, and save nothing more."""
        self.problem = self.problem or _warn("the sweep", error, self._emit)

    async def _saved(
        self, commits: Sequence[CommitReview], save: Callable[[DatabaseHistory, SweepRecord], None]
    ) -> None:
        if self.place is None or self.problem:
            return
        history, record = self.place
        # Only commits that agents were asked about have experts.
        asked = record if any(one.experts for one in commits) else replace(record, prompt_version="")
        try:
            # The history is closed after us: nothing may still be on its way into it.
            await uninterrupted(asyncio.to_thread(save, history, asked))
        except Exception as error:  # noqa: BLE001 - as in `keep`
            self.give_up(error)


@asynccontextmanager
async def keeping_sweep(
    sweep: CommitSweep,
    *,
    repo: Path,
    prompt_version: str = "",
    position: int | None = None,
    work_tree: str = "",
    opened: OpenedHistory = opened_history,
    emit: EventSink = lambda _: None,
) -> AsyncIterator[SweepKeeper]:
    """Store a sweep while it runs, so that commits that were finished before a crash are stored, as unfinished.

    `sweep` is the sweep at its start, without commits; the one that `finish` gets has the same id. In a sweep over
    several machines, `position` is that of the commit reviewed here, and `work_tree` where the sweep was asked for.
    """
    keeper = SweepKeeper(emit, position)
    with ExitStack() as stack:
        try:
            history = stack.enter_context(opened())
            checkout = await read_checkout(repo, history)
            asked_in = work_tree or locate(history, repo).work_tree
            record = SweepRecord(sweep=sweep, work_tree=asked_in, **_saved_now(checkout, prompt_version))
            keeper.place = history, record
        except Exception as error:  # noqa: BLE001 - as in `keep`
            keeper.give_up(error)
        yield keeper


def _saved_now(checkout: Checkout, prompt_version: str) -> dict[str, Any]:
    names = {"repository": checkout.identity.names[0], "repository_label": checkout.identity.label}
    versions = {"tool_version": __version__, "prompt_version": prompt_version}
    return {"saved_at": datetime.now(UTC), "branch": checkout.branch, **names, **versions}


def _masked(raw_outputs: Mapping[str, str]) -> dict[str, str]:
    return {unit: redact(output) for unit, output in raw_outputs.items()}


def _warn(what: str, error: Exception, emit: EventSink) -> str:
    reason = error.message if isinstance(error, CodeloupeError) else f"{type(error).__name__}: {error}"
    message = redact(f"{what} is not in the history: {reason}")
    log_failure(_log, error, "%s", message)
    try:
        emit(Warned(message))
    except Exception as failure:  # noqa: BLE001 - a display may fail at anything, and the review is not lost for that
        log_failure(_log, failure, "a warning could not be shown")
    return message
