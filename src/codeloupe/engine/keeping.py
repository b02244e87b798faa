"""Keeps reviews and sweeps. What cannot be kept is a warning: a review that was made is never lost for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.engine.history import OpenedHistory, opened_history
from codeloupe.errors import CodeloupeError
from codeloupe.git.identity import Checkout, read_checkout
from codeloupe.model.events import Warned
from codeloupe.model.finding import Finding
from codeloupe.model.history import ReviewRecord, SweepRecord
from codeloupe.model.ports import EventSink, Reviewer, ReviewTask, Transcript
from codeloupe.model.review import Review, ReviewError
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.store.history import SqliteHistory
from codeloupe.system.redaction import redact

if TYPE_CHECKING:
    from codeloupe.engine.choose import ChosenReviewer
    from codeloupe.engine.lifecycle import EarlierRounds

_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = MappingProxyType({})


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


class Round(Struct, frozen=True, kw_only=True):
    """A review among earlier ones; this one has none. `conditions` names what agents are asked with beside the diff.

    `notes` are shown while it runs; `errors` are in its report as well, for they say what a pass does not mean.
    `left_out` are findings that this review does not judge. `over` gives the reviewers, the agents among them asked
    only about what they have not seen; `seen` the hunks that agents have seen whole by now, to be kept with the review.
    """

    conditions: str = ""
    earlier: EarlierRounds | None = None
    notes: tuple[str, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    checkout: Checkout | None = None
    left_out: tuple[Finding, ...] = ()
    over: Callable[[Sequence[Reviewer], Sequence[ChosenReviewer]], tuple[Reviewer, ...]] = lambda made, _: tuple(made)
    seen: Callable[[ReviewTask, Review], tuple[str, ...]] = lambda _task, _review: ()


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
    emit: EventSink = lambda _: None,
) -> Review:
    """Save a review and return it, with an error of kind `history` when it cannot be saved. Raises only cancellation.

    `raw_outputs` is what agents printed, by unit; `checkout` is what `repo` holds, when that is known already; the rest
    is as in the record.
    """
    try:
        with opened() as history:
            checkout = checkout or await read_checkout(repo, history)
            record = ReviewRecord(
                review=review,
                terms=terms,
                seen=seen,
                head=review.scope.head or checkout.head,
                left_out=left_out,
                **_saved_now(checkout, prompt_version),
            )
            await asyncio.to_thread(history.save, record, raw_outputs=_masked(raw_outputs))
    except Exception as error:  # noqa: BLE001 - whatever it is, the review itself is whole and must be shown
        message = _warn("the review", error, emit)
        return replace(review, errors=(*review.errors, ReviewError("history", message)))
    return review


class SweepKeeper:
    """Saves the commits of a sweep as they are finished, and the whole at the end; `problem` says why it cannot."""

    def __init__(self, emit: EventSink) -> None:
        self._emit = emit
        self._answers: dict[str, Answers] = {}
        self.place: tuple[SqliteHistory, SweepRecord] | None = None
        self.problem = ""

    def transcript_of(self, sha: str) -> Transcript:
        """What takes down the answers of the agents to a commit, until that is finished."""
        return self._answers.setdefault(sha, Answers())

    async def keep_commit(self, commit: CommitReview) -> None:
        """Save one commit; raises nothing but a cancellation. The event loop goes on, however long it takes."""
        raw_outputs = _masked(self._answers.pop(commit.commit.sha, Answers()).texts)
        await self._saved(
            (commit,), lambda history, record: history.add_commit(record, commit, raw_outputs=raw_outputs)
        )

    async def finish(self, sweep: CommitSweep) -> None:
        """Save the whole sweep in the place of its parts; as `keep_commit`."""
        whole = {"sweep": sweep, "saved_at": datetime.now(UTC)}
        await self._saved(sweep.commits, lambda history, record: history.save_sweep(replace(record, **whole)))

    def give_up(self, error: Exception) -> None:
        """Warn, and save nothing more."""
        self.problem = self.problem or _warn("the sweep", error, self._emit)

    async def _saved(self, commits: Sequence[CommitReview], save: Callable[[SqliteHistory, SweepRecord], None]) -> None:
        if self.place is None or self.problem:
            return
        history, record = self.place
        # Only commits that agents were asked about have experts.
        asked = record if any(one.experts for one in commits) else replace(record, prompt_version="")
        saving = asyncio.ensure_future(asyncio.to_thread(save, history, asked))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            # The history is closed after us: nothing may still be on its way into it.
            await asyncio.gather(saving, return_exceptions=True)
            raise
        except Exception as error:  # noqa: BLE001 - as in `keep`
            self.give_up(error)


@asynccontextmanager
async def keeping_sweep(
    sweep: CommitSweep,
    *,
    repo: Path,
    prompt_version: str = "",
    opened: OpenedHistory = opened_history,
    emit: EventSink = lambda _: None,
) -> AsyncIterator[SweepKeeper]:
    """Keep a sweep while it runs: what was finished before a crash or an interruption is there, as not finished.

    `sweep` is what is known of it at the start, without commits; what is given to `finish` has the same id.
    """
    keeper = SweepKeeper(emit)
    with ExitStack() as stack:
        try:
            history = stack.enter_context(opened())
            checkout = await read_checkout(repo, history)
            keeper.place = history, SweepRecord(sweep=sweep, **_saved_now(checkout, prompt_version))
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
    _log.warning("%s", message, exc_info=not isinstance(error, CodeloupeError))
    try:
        emit(Warned(message))
    except Exception:  # noqa: BLE001 - a display may fail at anything, and the review is not lost for that either
        _log.warning("a warning could not be shown", exc_info=True)
    return message
