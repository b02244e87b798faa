"""The life of one stage, from wherever its record stands to its end, or to where a person is needed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import assert_never

from msgspec.structs import replace

from codeloupe.errors import WorkspaceError
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RecoveryStep, StageRecord, StageState
from codeloupe.model.pipeline_definition import OnFailure, StageDefinition
from codeloupe.pipeline.attempting import Attempting, chosen_attempt
from codeloupe.pipeline.deciding import Action, Complete, Escalate, Execute, Fail, Judge, Keep, next_action
from codeloupe.pipeline.gating import Gating
from codeloupe.pipeline.handwork import spare_handwork
from codeloupe.pipeline.surroundings import Surroundings
from codeloupe.pipeline.words import in_words, word_event

_RECOVERY_WORDS = {
    RecoveryStep.RETRY: "the call is repeated",
    RecoveryStep.RESUME: "its session is resumed, in a fork where the agent can",
    RecoveryStep.FRESH: "it starts over, without its session and history",
}


class Lifecycle:
    """Takes one stage through its life.

    `slots` bound how many stages work at a time; waiting for a person takes none. `word` is what a person said about
    the stage while it waited, if that is known already.
    """

    def __init__(
        self, stage: StageDefinition, around: Surroundings, slots: asyncio.Semaphore, word: Approval | None = None
    ) -> None:
        self._stage = stage
        self._word = word
        self._around = around
        self._slots = slots
        self._attempting = Attempting(stage, around)
        self._gating = Gating(stage, around)

    @property
    def _record(self) -> StageRecord:
        return self._around.book.stage(self._stage.name)

    async def live(self) -> None:
        """Go on until the stage is completed, failed or waits for a person; its record says which.

        A cancellation is raised as it came, the agent being gone.
        """
        while True:
            action = next_action(self._stage, self._record)
            if isinstance(action, Complete | Fail):
                await self._end(action)
                return
            if not await self._take(action):
                return

    async def _take(self, action: Action) -> bool:
        """Do what is next; False when the stage has to wait, or is at its end."""
        match action:
            case Execute():
                async with self._slots:
                    self._tell_recovery(action)
                    await self._attempting.execute(action)
            case Keep():
                async with self._slots:
                    await self._attempting.keep(action.attempt)
            case Judge() if self._gating.asks_a_person(action):
                return await self._gating.wait_for_word(action)
            case Judge():
                async with self._slots:
                    await self._gating.judge(action)
            case Escalate():
                return await self._escalate(action)
            case Complete() | Fail():
                return False
            case _:
                assert_never(action)
        return True

    def _tell_recovery(self, action: Execute) -> None:
        if action.step is RecoveryStep.FIRST:
            return
        words = _RECOVERY_WORDS[action.step]
        last = self._record.failures[-1]
        if action.step is RecoveryStep.FRESH and last.session_id and not last.resumable:
            words = f"{words}; {last.agent} did not keep its session"
        self._around.book.tell(self._recovery_event(action.step.value, words))

    def _recovery_event(self, step: str, words: str) -> PipelineEvent:
        return self._around.book.event("recovery", words, stage=self._stage.name, step=step)

    async def _end(self, action: Complete | Fail, *events: PipelineEvent) -> None:
        """The last move. The workspace holds the work that is kept, for whoever looks there."""
        book = self._around.book
        is_done = isinstance(action, Complete)
        reason = action.note if isinstance(action, Complete) else action.reason
        record = replace(self._record, chosen=action.attempt)
        note = await self._put_back(record)
        book.move(
            record,
            StageState.COMPLETED if is_done else StageState.FAILED,
            *events,
            reason="; ".join(filter(None, (reason, note))),
            wants_approval="",
            ended_at=datetime.now(UTC),
        )

    async def _put_back(self, record: StageRecord) -> str:
        """Make the workspace hold the chosen attempt; a note where that cannot be."""
        chosen = chosen_attempt(record)
        is_last = chosen is not None and chosen.number == record.attempts[-1].number
        if chosen is None or not chosen.tree:
            return ""
        if self._around.is_checkout:
            patch = f"the patch of attempt {chosen.number} is {chosen.diff_file}"
            if not is_last:
                return f"the checkout holds a later attempt; {patch}"
            has_more = any(failure.attempt > chosen.number for failure in record.failures)
            return f"the checkout may also hold what calls after it left that failed; {patch}" if has_more else ""
        try:
            await self._around.workspaces.put(chosen.tree, self._around.places.made_workspace(record.name))
        except (WorkspaceError, OSError) as error:
            return f"the workspace does not hold attempt {chosen.number}: {error}"
        return ""

    async def _escalate(self, action: Escalate) -> bool:
        """Give the stage up as its pipeline wants it: to a person, or for good. True when it goes on at once."""
        book, record = self._around.book, self._record
        if self._stage.on_failure is not OnFailure.ESCALATE:
            given_up = self._recovery_event(self._stage.on_failure.value, action.reason)
            await self._end(Fail(action.attempt, action.reason), given_up)
            return False
        if record.state is not StageState.AWAITING_APPROVAL or record.wants_approval != "escalation":
            given_up = self._recovery_event("escalate", action.reason)
            wanted = book.event("approval_wanted", action.reason, stage=record.name, wants="escalation")
            # For the person to look at: a later attempt, or a call that failed, may have left something else there.
            await self._put_back(replace(record, chosen=action.attempt))
            record = book.move(
                record,
                StageState.AWAITING_APPROVAL,
                given_up,
                wanted,
                reason=wanted.message,
                wants_approval="escalation",
                chosen=action.attempt,
            )
        word, self._word = self._word, None
        word = word or await self._around.word(record, action.reason, 0.0)
        return word is not None and await self._obey(word, action)

    async def _obey(self, word: Approval, action: Escalate) -> bool:
        """Do what a person says about a stage that was escalated; True when it goes on."""
        book, number = self._around.book, action.attempt
        await spare_handwork(self._around, self._record)
        said = word_event(book, word)
        match word.decision:
            case Decision.APPROVE if number is None:
                again = f"`codeloupe pipeline resume {book.run.run_id} --retry {self._stage.name}` tries it again"
                words = f"{in_words(word)}, but it has no work to approve; {again}"
                book.tell(book.event("note", words, stage=self._stage.name))
            case Decision.APPROVE:
                await self._end(Complete(number or 0, in_words(word)), said)
            case Decision.REJECT:
                await self._end(Fail(number, in_words(word)), said)
            case Decision.RETRY:
                book.put(tried_again(self._record, word), said)
                return True
            case _:
                assert_never(word.decision)
        return False


def tried_again(record: StageRecord, word: Approval) -> StageRecord:
    """A stage that a person has tried again: what was before no longer counts towards its limits."""
    return replace(
        record,
        person_note=word.note.strip(),
        attempts_before=len(record.attempts),
        failures_before=len(record.failures),
        chosen=None,
        wants_approval="",
        reason="",
        ended_at=None,
    )
