"""One gate on one attempt: the workspace holds exactly what would go on, and the gate's word is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, WorkspaceError
from codeloupe.model.pipeline import (
    Approval,
    AttemptRecord,
    Critique,
    Decision,
    FailedTry,
    PipelineEvent,
    RecoveryStep,
    StageRecord,
    StageRequest,
    StageState,
)
from codeloupe.model.pipeline_definition import GateKind, StageDefinition
from codeloupe.model.ports import GateTask
from codeloupe.pipeline.attempting import own_answers, record_failure, unused_answer
from codeloupe.pipeline.deciding import Execute, Judge, next_action
from codeloupe.pipeline.handwork import spare_handwork
from codeloupe.pipeline.logbook import Mask
from codeloupe.pipeline.recovery import failed_try
from codeloupe.pipeline.stage_execution import failure_usage
from codeloupe.pipeline.stage_prompt import read_texts
from codeloupe.pipeline.surroundings import Surroundings
from codeloupe.pipeline.words import critique_of, word_event

_QUESTION = "Approve the work of this stage?"


class Gating:
    """Has the attempts of one stage judged."""

    def __init__(self, stage: StageDefinition, around: Surroundings) -> None:
        self._stage = stage
        self._around = around

    @property
    def _record(self) -> StageRecord:
        return self._around.book.stage(self._stage.name)

    def asks_a_person(self, action: Judge) -> bool:
        """Whether the gate is one that waits for somebody."""
        return self._stage.gates[action.gate].kind is GateKind.APPROVAL

    async def judge(self, action: Judge) -> None:
        """Let a gate decide. Its word, or why it could not, is in the record afterwards."""
        gate, record = self._stage.gates[action.gate], self._record
        self._around.book.move(record, StageState.GATING, reason="", wants_approval="")
        try:
            task = await self._task(action.attempt)
            if gate.kind in (GateKind.CRITIC, GateKind.REVIEW):
                self._around.purse.left_usd(self._stage.name)
            critique = await self._around.gates[gate.kind](gate, task)
        except (CodeloupeError, OSError) as error:
            failure = _failure(error, action, record)
            record_failure(self._around, self._record, failure, unused_answer(error))
        else:
            self._said(action, critique)

    def _said(self, action: Judge, critique: Critique, *events: PipelineEvent, **changes: Any) -> None:
        """Write a gate's word down; when it sends the stage back, the state says so in the same moment."""
        around, record = self._around, self._record
        critique = _without_secrets(critique, around.book.masked)
        critique = replace(critique, gate_digest=self._stage.gates[action.gate].digest)
        attempts = tuple(
            replace(attempt, critiques=(*attempt.critiques, critique)) if attempt.number == action.attempt else attempt
            for attempt in record.attempts
        )
        event = around.book.event(
            "critique",
            critique.summary,
            stage=record.name,
            attempt=action.attempt,
            gate=critique.gate.value,
            verdict=critique.verdict.value,
            score=critique.score,
            blockers=len(critique.blockers),
            cost_usd=critique.usage.cost_usd,
        )
        changes = {**changes, "unanswered": 0}
        judged = replace(record, attempts=attempts, **changes)
        comes_next = next_action(self._stage, judged)
        if isinstance(comes_next, Execute) and record.state is StageState.GATING:
            why = f"attempt {action.attempt} was sent back by its {critique.gate.value} gate"
            around.book.move(record, StageState.REWORKING, *events, event, attempts=attempts, reason=why, **changes)
        else:
            around.book.put(judged, *events, event)

    async def wait_for_word(self, action: Judge) -> bool:
        """Let a person decide; False when nobody does, and the stage goes on waiting."""
        gate, around = self._stage.gates[action.gate], self._around
        question = gate.prompt.strip() or _QUESTION
        record = self._record
        if record.state is not StageState.AWAITING_APPROVAL or record.wants_approval != "gate":
            wanted = around.book.event(
                "approval_wanted", question, stage=record.name, attempt=action.attempt, wants="gate"
            )
            await self._show(action.attempt)
            around.book.move(
                record,
                StageState.AWAITING_APPROVAL,
                wanted,
                reason=question,
                wants_approval="gate",
                chosen=action.attempt,
            )
        word = await around.word(self._record, question, gate.timeout_seconds)
        if word is None:
            return False
        await spare_handwork(around, self._record)
        self._take_word(action, word)
        return True

    def _take_word(self, action: Judge, word: Approval) -> None:
        record = self._record
        changes: dict[str, Any] = {"wants_approval": "", "reason": ""}
        if word.decision is Decision.RETRY:
            # A person's wish is not bound by the number of attempts that the gates allow.
            changes |= {"attempts_before": len(record.attempts), "failures_before": len(record.failures)}
        self._said(action, critique_of(word), word_event(self._around.book, word), **changes)

    async def _show(self, number: int) -> None:
        """Put an attempt into the workspace, for a person to look at; where that fails, the patch is there."""
        if self._around.is_checkout:
            return
        try:
            await self._placed(self._attempt(number))
        except WorkspaceError as error:
            self._around.book.tell(self._around.book.event("note", error.message, stage=self._stage.name))

    def _attempt(self, number: int) -> AttemptRecord:
        return next(attempt for attempt in self._record.attempts if attempt.number == number)

    async def _placed(self, attempt: AttemptRecord) -> None:
        """Make the workspace hold what an attempt left, and nothing else: that is what would go on."""
        around = self._around
        if not around.is_checkout:
            workspace = around.places.made_workspace(self._stage.name)
            await around.workspaces.put(attempt.tree, workspace)
            failures = self._record.failures
            around.tell_tree(workspace, attempt.tree, sum(one.attempt == attempt.number for one in failures))
        elif attempt.number != max(each.number for each in (*self._record.earlier, *self._record.attempts)):
            raise WorkspaceError(
                f"attempt {attempt.number} of {self._stage.name} cannot be judged: the checkout holds a later one",
                stage=self._stage.name,
                hint=f"its patch is {attempt.diff_file}; what is in a checkout is never put back by itself",
            )

    async def _task(self, number: int) -> GateTask:
        around, record, attempt = self._around, self._record, self._attempt(number)
        await self._placed(attempt)
        workspace, ours = around.places.workspace(self._stage.name), own_answers(around)
        start, tree = [await around.workspaces.without(each, ours) for each in (record.start_tree, attempt.tree)]
        return GateTask(
            stage=self._stage.name,
            attempt=number,
            workspace=workspace,
            requirements=self._requirements(),
            artifacts=tuple(workspace / name for name in attempt.artifacts),
            files_changed=tuple(file for file in attempt.files_changed if file not in ours),
            diff=await around.workspaces.diff(start, tree),
            output=around.places.read(attempt.output_file),
            earlier=tuple(word for past in record.attempts if past.number < number for word in past.critiques),
            start_tree=start,
            tree=tree,
        )

    def _requirements(self) -> str:
        """What the stage was asked: its step file, and the inputs that it was told."""
        stage, inputs = self._stage, self._around.book.run.inputs
        text = read_texts(StageRequest(stage=stage.name, step_file=stage.step)).step
        told = _listed(inputs if stage.inputs is None else {name: inputs[name] for name in stage.inputs})
        return f"{text.strip()}\n\nInputs:\n{told}" if told else text


def _without_secrets(critique: Critique, mask: Mask) -> Critique:
    """A critique as it may be written down and told to the next attempt."""
    return replace(
        critique,
        summary=mask(critique.summary),
        blockers=tuple(map(mask, critique.blockers)),
        fixes=tuple(map(mask, critique.fixes)),
    )


def _failure(error: Exception, action: Judge, record: StageRecord) -> FailedTry:
    earlier = record.failures[record.failures_before :]
    is_again = any(failure.attempt == action.attempt and failure.gate == action.gate for failure in earlier)
    return failed_try(
        error,
        step=RecoveryStep.RETRY if is_again else RecoveryStep.FIRST,
        attempt=action.attempt,
        gate=action.gate,
        usage=failure_usage(error),
    )


def _listed(inputs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in inputs.items())
