"""The life of one stage, from its record to its end, or until a person is needed: attempts, gates, recovery.

The next action follows from the record alone, so a stage whose process was killed continues where its record ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import AnswerReplaced, CodeloupeError, WorkspaceError
from codeloupe.model import pipeline as model
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    Approval,
    AttemptRecord,
    CriticVerdict,
    Critique,
    Decision,
    PipelineEvent,
    RecoveryStep,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.attempts import Attempts, critique_by_person
from codeloupe.pipelines.changes import outdated_parts, parts_now
from codeloupe.pipelines.checkout import CheckoutRules
from codeloupe.pipelines.context import Context
from codeloupe.pipelines.gates import GateTask
from codeloupe.pipelines.recovery import Action, failed_try, failures_of, next_action, refused_at, tried_again
from codeloupe.pipelines.stage_work import StageWork, quota_error, unused_answer
from codeloupe.store.records import to_json

_log = logging.getLogger(__name__)


async def save_handwork(context: Context, record: StageRecord) -> None:
    """Store changes that a person made in the workspace of a stage that waited, as a patch, before it is refilled."""
    shown = record.chosen_attempt
    workspace = context.files.workspace(record.name)
    # The workspace of a run that waited on another machine is not here.
    if context.is_checkout or shown is None or not shown.tree or not workspace.is_dir():
        return
    name = context.files.attempt(record.name, shown.number, "by-hand.patch")
    try:
        found = (await context.workspaces.keep(workspace)).tree
        # A workspace that could not be filled with the shown attempt has another one.
        if found in {attempt.tree for attempt in record.attempts}:
            return
        context.files.write(name, await context.workspaces.diff(shown.tree, found))
    except (CodeloupeError, OSError) as error:
        _log.warning("cannot store the manual changes in the workspace of %s: %s", record.name, error)
        return
    words = f"manual changes made while it waited are not part of attempt {shown.number}; they are stored in {name}"
    context.state.report("note", words, stage=record.name)


class _Question(Struct, frozen=True):
    """A question to a person: the words, the attempt that is shown, and the gate that asks."""

    wants: str
    words: str
    attempt: int | None
    gate_key: str = ""

    @property
    def key(self) -> str:
        """Return a key that changes with everything that the question is about."""
        return hashlib.sha256(to_json(self).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class StageRun(StageWork):
    """Takes one stage through its life.

    `slots` limit how many stages work at a time; a stage that waits for a person needs none.
    """

    def __init__(self, stage: model.StageDefinition, context: Context, slots: asyncio.Semaphore) -> None:
        super().__init__(stage, context)
        self._slots = slots
        self._attempts = Attempts(stage, context)
        self._checkout = CheckoutRules(stage, context, self._attempts)

    async def run(self) -> None:
        """Continue until the stage is completed, failed or waits for a person or a quota; its record shows which."""
        goes_on = True
        while goes_on:
            # If a person answers again before the first answer is applied, the newer answer is read.
            with suppress(AnswerReplaced):
                await self._apply_retry()
                goes_on = await self._act(next_action(self.stage, self.record))

    async def _apply_retry(self) -> None:
        """Apply the retry of a waiting stage before its next action is chosen, unless that is the same question."""
        record = self.record
        if record.state is not StageState.AWAITING_APPROVAL:
            return
        answer = self.state.answer(self.name)
        if answer is None or answer.decision is not Decision.RETRY:
            return
        action = next_action(self.stage, record)
        if action.do == "judge" and self._asks(action) and self._gate_question(action).key == record.question_key:
            return
        await save_handwork(self.context, record)
        self.state.put(tried_again(record, answer.note), self.state.given(answer), answered=answer)

    def _asks(self, action: Action) -> bool:
        return self.stage.gates[action.gate].kind is model.GateKind.APPROVAL

    def _gate_question(self, action: Action) -> _Question:
        words = self.stage.gates[action.gate].prompt.strip() or "Approve the work of this stage?"
        return _Question("gate", words, action.attempt, self.stage.gate_keys[action.gate])

    async def _act(self, action: Action) -> bool:
        """Take one action, and return whether another one follows at once."""
        if self.context.is_checkout:
            action = await self._checkout.possible(action)
        match action.do:
            case "complete" | "fail":
                await self._end(action)
                return False
            case "escalate":
                return await self._escalate(action)
            case "judge" if self._asks(action):
                return await self._wait_for_approval(action)
            case "judge":
                async with self._slots:
                    await self._judge(action)
            case "execute":
                async with self._slots:
                    await self._attempts.execute(action)
            case "keep":
                async with self._slots:
                    await self._attempts.store(action)
        return self.record.state is not StageState.WAITING_FOR_QUOTA

    async def _judge(self, action: Action) -> None:
        gate = self.stage.gates[action.gate]
        self.state.move(self.record, StageState.GATING, reason="", wants_approval="", quota_until=None)
        calls = self.context.calls_of(self.name)
        with self.counting(calls):
            try:
                task = await self._task(action.attempt)
                critique = await self.context.judge(self.stage, gate, task, calls=calls)
            except (CodeloupeError, OSError) as error:
                quota = quota_error(error)
                if quota is None:
                    self._gate_failed(action, error, calls.usage)
                else:
                    self.wait_for_quota(quota, calls.usage)
                return
            self._decided(action, critique)

    def _gate_failed(self, action: Action, error: Exception, usage: Usage) -> None:
        key = self.stage.gate_keys[action.gate]
        step = RecoveryStep.FIRST
        if failures_of(self.record, action.attempt, gate_key=key):
            step = RecoveryStep.RETRY
        failure = failed_try(error, step=step, attempt=action.attempt, usage=usage)
        self.record_failure(replace(failure, gate=action.gate, gate_key=key), unused_answer(error))

    def _decided(
        self,
        action: Action,
        critique: Critique,
        *events: PipelineEvent,
        answered: Approval | None = None,
        **changes: Any,
    ) -> None:
        """Save a gate's verdict; if it sends the stage back, the same save has the new state."""
        record = self.record
        key = self.stage.gate_keys[action.gate]
        critique = replace(self._masked(critique), gate_key=key)
        attempts: list[AttemptRecord] = []
        for attempt in record.attempts:
            if attempt.number == action.attempt:
                attempts.append(replace(attempt, critiques=(*attempt.critiques, critique)))
            else:
                attempts.append(attempt)
        event = self.event(
            "critique",
            critique.summary,
            attempt=action.attempt,
            gate=critique.gate.value,
            verdict=critique.verdict.value,
            score=critique.score,
            blockers=len(critique.blockers),
            cost_usd=critique.usage.cost_usd,
        )
        judged = replace(record, attempts=tuple(attempts), unanswered=0, **changes)
        if critique.verdict is not CriticVerdict.PASS:
            judged = replace(judged, kept=None)
        is_sent_back = next_action(self.stage, judged).do == "execute"
        if is_sent_back and record.state is StageState.GATING:
            reason = f"attempt {action.attempt} was sent back by its {critique.gate.value} gate"
            self.state.move(judged, StageState.REWORKING, *events, event, reason=reason)
        else:
            self.state.put(judged, *events, event, answered=answered)

    def _masked(self, critique: Critique) -> Critique:
        mask = self.state.masked
        return replace(
            critique,
            summary=mask(critique.summary),
            blockers=tuple(map(mask, critique.blockers)),
            fixes=tuple(map(mask, critique.fixes)),
        )

    async def _task(self, number: int) -> GateTask:
        """Return the task for a gate, after filling the workspace with the attempt and nothing else."""
        record = self.record
        attempt = next(attempt for attempt in record.attempts if attempt.number == number)
        await self.fill(self.files.made_workspace(self.name), attempt.tree, number)
        ours = self.context.own_answers()
        start = await self.context.workspaces.without(record.start_tree, ours)
        tree = await self.context.workspaces.without(attempt.tree, ours)
        earlier: list[Critique] = []
        for past in record.attempts:
            if past.number < number:
                earlier += past.critiques
        return GateTask(
            stage=self.name,
            attempt=number,
            workspace=self.files.workspace(self.name),
            requirements=self._requirements(),
            artifacts=attempt.artifacts,
            files_changed=await self.context.workspaces.changed(start, tree),
            diff=await self.context.workspaces.diff(start, tree),
            output=self.files.read(attempt.output_file),
            saved_answer=attempt.saved_answer,
            earlier=tuple(earlier),
            start_tree=start,
            tree=tree,
        )

    def _requirements(self) -> str:
        requirements = self.stage.step_text
        given = self.stage.given(self.state.run.inputs)
        if not given:
            return requirements
        listed = "\n".join(f"{name}: {value}" for name, value in given.items())
        return f"{requirements.strip()}\n\nInputs:\n{listed}"

    async def _ask_person(self, question: _Question, seconds: float, *events: PipelineEvent) -> Approval | None:
        """Return the decision of a person on exactly this question, or None if the stage keeps waiting."""
        record = self.record
        is_asked = record.state is StageState.AWAITING_APPROVAL and bool(record.wants_approval)
        if not is_asked or record.question_key != question.key:
            record = await self._begin_waiting(question, *events)
        answer = await self.context.ask_person(record, question.words, seconds)
        if answer is None:
            return None
        await save_handwork(self.context, self.record)
        # A person at a terminal was asked the last question.
        return replace(answer, stage=self.name, question=self.record.questions)

    async def _begin_waiting(self, question: _Question, *events: PipelineEvent) -> StageRecord:
        wanted = self.event("approval_wanted", question.words, attempt=question.attempt, wants=question.wants)
        # The workspace shows the attempt to the person. If it cannot be filled, the patch does.
        note = await self._put_back(replace(self.record, chosen=question.attempt))
        if note:
            self.state.report("note", note, stage=self.name)
        record = self.record
        return self.state.move(
            record,
            StageState.AWAITING_APPROVAL,
            *events,
            wanted,
            reason=wanted.message,
            wants_approval=question.wants,
            chosen=question.attempt,
            questions=record.questions + 1,
            question_key=question.key,
        )

    async def _wait_for_approval(self, action: Action) -> bool:
        gate = self.stage.gates[action.gate]
        answer = await self._ask_person(self._gate_question(action), gate.timeout_seconds)
        if answer is None:
            return False
        changes: dict[str, Any] = {"wants_approval": "", "reason": ""}
        if answer.decision is Decision.RETRY:
            # An attempt that a person asks for does not count towards the limits of the gates.
            changes["attempts_before"] = len(self.record.attempts)
            changes["failures_before"] = len(self.record.failures)
        said = self.state.given(answer)
        critique = critique_by_person(answer.decision, said.message)
        self._decided(action, critique, said, answered=answer, **changes)
        return True

    async def _escalate(self, action: Action) -> bool:
        """Give the stage to a person or fail it, as its pipeline wants; return whether it continues at once."""
        policy = self.stage.on_failure
        given_up = self.event("recovery", action.reason, step=policy.value)
        if policy is not model.OnFailure.ESCALATE:
            await self._end(replace(action, do="fail"), given_up)
            return False
        question = _Question("escalation", self.state.masked(action.reason), action.attempt or None)
        answer = await self._ask_person(question, 0.0, given_up)
        if answer is None:
            return False
        said = self.state.given(answer)
        if answer.decision is Decision.RETRY:
            self.state.put(tried_again(self.record, answer.note), said, answered=answer)
            return True
        if answer.decision is Decision.APPROVE and not action.attempt:
            again = f"`codeloupe pipeline resume {self.state.run.run_id} --retry {self.name}` retries it"
            self.state.drop(answer, self.event("note", f"{said.message}, but it has no work to approve; {again}"))
        elif answer.decision is Decision.APPROVE:
            reason = f"{said.message}{self._without_pass(action.attempt)}"
            await self._end(Action("complete", action.attempt, reason), said, answered=answer)
        else:
            await self._end(Action("fail", action.attempt, said.message), said, answered=answer)
        return False

    def _without_pass(self, number: int) -> str:
        """Return the gates that have not passed an attempt which a person approved, for the reason of the stage."""
        attempt = next(attempt for attempt in self.record.attempts if attempt.number == number)
        passed = refused_at(attempt)
        if passed is None:
            passed = len(attempt.critiques)
        kinds = [gate.kind.value for gate in self.stage.gates[passed:]]
        if not kinds:
            return ""
        return f", without a PASS of these gates: {', '.join(kinds)}"

    async def _end(self, action: Action, *events: PipelineEvent, answered: Approval | None = None) -> None:
        """Bring the stage to its end. The workspace contains the accepted work, for people who look there."""
        # The files of a checkout may have changed while the person was asked.
        if self.context.is_checkout and answered is not None:
            problem = await self._checkout.problem(action)
            if problem:
                self.state.drop(answered, *events, self.event("note", f"the approval does not count: {problem}"))
                return
        record = replace(self.record, chosen=action.attempt or None)
        note = await self._put_back(record)
        reasons = [reason for reason in (action.reason, note) if reason]
        used = record.chosen_attempt
        if used is not None:
            record = replace(record, outdated=outdated_parts(used, parts_now(self.stage, self.state.run.inputs)))
        self.state.move(
            record,
            StageState.COMPLETED if action.do == "complete" else StageState.FAILED,
            *events,
            answered=answered,
            reason="; ".join(reasons),
            wants_approval="",
            ended_at=datetime.now(UTC),
        )

    async def _put_back(self, record: StageRecord) -> str:
        """Fill the workspace with the chosen attempt, and return a note if that is impossible."""
        chosen = record.chosen_attempt
        if self.context.is_checkout or chosen is None or not chosen.tree:
            return ""
        last = record.attempts[-1]
        if not last.tree:
            # The workspace has the only copy of its files.
            return f"the workspace contains attempt {last.number}, whose files are not stored yet"
        try:
            await self.context.workspaces.put(chosen.tree, self.files.made_workspace(record.name))
        except (WorkspaceError, OSError) as error:
            return f"the workspace does not contain attempt {chosen.number}: {error}"
        return ""
