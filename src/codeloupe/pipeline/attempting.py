"""One attempt of a stage: its workspace made ready, its agent asked, and what it left kept.

What an agent answered is written down before anything else is done with it; what it left in its workspace is kept
after that, and again from the same workspace if the process dies in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, OutputInvalid, WorkspaceError
from codeloupe.model.agent import AgentRequest, AgentResult, usage_of
from codeloupe.model.pipeline import (
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    PastAttempt,
    RecoveryStep,
    StageRecord,
    StageRequest,
    StageResult,
    StageState,
)
from codeloupe.model.pipeline_definition import GateKind, StageDefinition, WorkspaceKind
from codeloupe.model.ports import AgentEventSink, AskAgent
from codeloupe.pipeline.changes import parts_now
from codeloupe.pipeline.deciding import Execute
from codeloupe.pipeline.recovery import failed_try
from codeloupe.pipeline.stage_execution import execute_stage, failure_usage
from codeloupe.pipeline.surroundings import Surroundings

_log = logging.getLogger(__name__)
_MOST_NOTES = 50
# More of an answer than any stage should have to read in its prompt.
_MOST_ANSWER_CHARACTERS = 200_000


class Attempting:
    """Makes the attempts of one stage."""

    def __init__(self, stage: StageDefinition, around: Surroundings) -> None:
        self._stage = stage
        self._around = around

    @property
    def _record(self) -> StageRecord:
        return self._around.book.stage(self._stage.name)

    async def execute(self, action: Execute) -> None:
        """Ask the agent. What it gave, or how it failed, is in the record afterwards."""
        book, name = self._around.book, self._stage.name
        begun = book.event(
            "attempt_started", stage=name, attempt=action.attempt, step=action.step.value, session=action.session
        )
        started = self._record.started_at or datetime.now(UTC)
        book.move(
            self._record,
            StageState.RUNNING,
            begun,
            reason="",
            wants_approval="",
            started_at=started,
            parts=parts_now(self._stage, book.run.inputs),
            outdated=(),
        )
        asking = _Heard(self._ask_for(action), self._around, self._stage.name, action.attempt)
        workspace: Path | None = None
        try:
            workspace = await self._ready_workspace(action)
            left_usd = self._around.purse.left_usd(name)
            result = await execute_stage(
                self._request(action, workspace),
                replace(self._stage, max_budget_usd=left_usd),
                workspace=workspace,
                ask=asking,
                emit=self._around.emit,
                resume_session=action.session or None,
                built_on=await self._built_on(action),
                answers=self._answers(action.attempt),
            )
        except (CodeloupeError, OSError) as error:
            await self._failed(action, error, asking.result, workspace)
        else:
            self._answered(action, result, workspace)

    def _ask_for(self, action: Execute) -> AskAgent:
        return self._around.ask(self._stage, action.agent)

    def _answers(self, number: int) -> Path | None:
        """Where an answer is saved instead of in the user's own tree."""
        places = self._around.places
        return places.made_attempt(self._stage.name, number) if self._around.is_checkout else None

    async def _ready_workspace(self, action: Execute) -> Path:
        """The stage's workspace with what this attempt begins with. In the user's own tree nothing is put back."""
        around, record = self._around, self._record
        workspace = around.places.made_workspace(self._stage.name)
        if not record.start_tree:
            try:
                tree = await self._start_tree(workspace)
            except WorkspaceError:
                # What cannot be joined now is tried again when one of these has changed.
                around.book.put(replace(record, built_on=built_on(around, self._stage)))
                raise
            record = around.book.put(replace(record, start_tree=tree, built_on=built_on(around, self._stage)))
        if around.is_checkout:
            return workspace
        previous = record.attempts[-1].tree if record.attempts else ""
        beginning = {RecoveryStep.RESUME: action.tree, RecoveryStep.FRESH: record.start_tree}
        tree = beginning.get(action.step) or previous or record.start_tree
        await around.workspaces.put(tree, workspace)
        around.tell_tree(workspace, tree, sum(failure.attempt == action.attempt for failure in record.failures))
        return workspace

    async def _start_tree(self, workspace: Path) -> str:
        around = self._around
        if around.is_checkout:
            return (await around.workspaces.keep(workspace)).tree
        return await around.descent.together(self._stage.needs, chosen_trees(around))

    def _request(self, action: Execute, workspace: Path) -> StageRequest:
        stage, run = self._stage, self._around.book.run
        told = run.inputs if stage.inputs is None else {name: run.inputs[name] for name in stage.inputs}
        names = (
            name
            for earlier in self._around.descent.lineage(stage.name)
            if (chosen := chosen_attempt(run.stage(earlier))) is not None
            for name in chosen.artifacts
        )
        # A later stage may have removed what an earlier one made.
        prior = (path for name in dict.fromkeys(names) if (path := workspace / name).is_file())
        return StageRequest(
            stage=stage.name,
            step_file=stage.step,
            agent_definition=stage.agent_definition,
            prior_artifacts=tuple(prior),
            elicitation_context=told,
            attempt_history=tuple(_history(self._record, fresh=action.step is RecoveryStep.FRESH)),
            prior_answers=kept_answers(self._around, self._around.descent.lineage(stage.name)),
        )

    async def _built_on(self, action: Execute) -> tuple[str, ...]:
        """What the stage itself made earlier and this call finds: of the last attempt, and of the session."""
        record = self._record
        if action.step is RecoveryStep.FRESH:
            return ()
        made = record.attempts[-1].artifacts if record.attempts else ()
        if action.step is not RecoveryStep.RESUME or not action.tree:
            return made
        return (*made, *await self._around.workspaces.changed(record.start_tree, action.tree))

    def _answered(self, action: Execute, result: StageResult, workspace: Path) -> None:
        """Write the attempt down, at once: it is paid for. Its tree is kept in the next step."""
        places, name, number = self._around.places, self._stage.name, action.attempt
        home = workspace.absolute()
        attempt = AttemptRecord(
            number=number,
            step=action.step,
            artifacts=tuple(str(path.relative_to(home)) for path in result.artifacts if path.is_relative_to(home)),
            session_id=result.session_id,
            agent=result.agent,
            model=result.model,
            duration_seconds=result.duration_seconds,
            usage=result.usage,
            notes=result.notes,
            output_file=places.attempt(name, number, "output.md"),
            saved_answer=result.saved_answer,
        )
        self._around.book.put(replace(self._record, attempts=(*self._record.attempts, attempt), unanswered=0))
        try:
            places.write(attempt.output_file, result.output)
        except OSError as error:
            _log.warning("the answer of %s could not be written to %s: %s", name, attempt.output_file, error)

    async def _failed(
        self, action: Execute, error: Exception, answer: AgentResult | None, workspace: Path | None
    ) -> None:
        """Write the failure down, with what the call cost and, where its session can be resumed, what it left."""
        # An answer that is not as asked was paid for too; its session is known from it.
        usage = failure_usage(error) if answer is None else usage_of(answer)
        failure = failed_try(error, step=action.step, attempt=action.attempt, usage=usage)
        if failure.kind == "budget_exhausted" and "codeloupe" not in failure.hint:
            failure = replace(failure, hint=self._around.purse.advice(self._stage.name) or failure.hint)
        if answer is not None:
            failure = replace(failure, session_id=answer.session_id, agent=answer.agent)
        can_resume = bool(failure.session_id) and self._around.can_resume(failure.agent)
        if can_resume and workspace is not None:
            tree = await self._kept_quietly(workspace)
            failure = replace(failure, tree=tree, resumable=bool(tree))
        record_failure(self._around, self._record, failure, unused_answer(error) if answer is None else answer.output)

    async def _kept_quietly(self, workspace: Path) -> str:
        try:
            return (await self._around.workspaces.keep(workspace)).tree
        except WorkspaceError as error:
            _log.warning("what a failed call of %s left cannot be kept: %s", self._stage.name, error)
            return ""

    async def keep(self, number: int) -> None:
        """Keep what the last attempt left; what cannot be kept is no part of its work, and a note says so."""
        around, record, places = self._around, self._record, self._around.places
        try:
            kept = await around.workspaces.keep(places.workspace(self._stage.name))
            changed = await around.workspaces.changed(record.start_tree, kept.tree)
            diff_file = places.attempt(self._stage.name, number, "diff.patch")
            places.write(diff_file, await around.workspaces.diff(record.start_tree, kept.tree))
        except (CodeloupeError, OSError) as error:
            trouble = error if isinstance(error, WorkspaceError) else _unkept(self._stage.name, error)
            record_failure(around, record, failed_try(trouble, step=RecoveryStep.FIRST, attempt=number))
            return
        attempt = replace(
            record.attempts[-1],
            tree=kept.tree,
            files_changed=changed,
            diff_file=diff_file,
            artifacts=tuple(name for name in record.attempts[-1].artifacts if name not in kept.left_out),
            notes=(*record.attempts[-1].notes, *_left_out(kept.left_out)),
        )
        done = around.book.event(
            "attempt_finished",
            stage=record.name,
            attempt=number,
            cost_usd=attempt.usage.cost_usd,
            seconds=round(attempt.duration_seconds, 3),
            artifacts=len(attempt.artifacts),
            files_changed=len(changed),
        )
        around.book.move(record, StageState.GATING, done, attempts=(*record.attempts[:-1], attempt))


class _Heard:
    """The agent, with a look at what it is asked and what it answers."""

    def __init__(self, ask: AskAgent, around: Surroundings, stage: str, number: int) -> None:
        self._ask = ask
        self._around = around
        self._name = around.places.attempt(stage, number, "prompt.md")
        self.result: AgentResult | None = None

    async def __call__(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        try:
            self._around.places.write(self._name, self._around.book.masked(request.prompt))
        except OSError as error:
            _log.warning("a prompt could not be written to %s: %s", self._name, error)
        self.result = await self._ask(request, emit)
        return self.result


def record_failure(around: Surroundings, record: StageRecord, failure: FailedTry, answer: str = "") -> None:
    """Write a failure down and go over to recovery. An `answer` that could not be used is kept, and named."""
    if answer.strip():
        name = around.places.attempt(record.name, failure.attempt, f"unused-answer-{len(record.failures) + 1}.md")
        try:
            around.places.write(name, around.book.masked(answer))
        except OSError as error:
            _log.warning("an answer could not be written to %s: %s", name, error)
        else:
            kept = f"its answer is in {around.places.path(name)}"
            failure = replace(failure, hint="; ".join(filter(None, (failure.hint, kept))))
    event = around.book.event(
        "try_failed",
        failure.message,
        stage=record.name,
        attempt=failure.attempt,
        step=failure.step.value,
        error=failure.kind,
        gate=failure.gate,
        hint=failure.hint,
    )
    masked = replace(failure, message=event.message, hint=str(event.facts["hint"]))
    failures = (*record.failures, masked)
    around.book.move(record, StageState.RECOVERING, event, failures=failures, unanswered=0, reason=event.message)


def chosen_attempt(record: StageRecord) -> AttemptRecord | None:
    """The attempt whose work goes on, or None."""
    return next((attempt for attempt in record.attempts if attempt.number == record.chosen), None)


def unused_answer(error: Exception) -> str:
    """What an agent said that could not be used; nothing where it said nothing."""
    cause = error if isinstance(error, OutputInvalid) else error.__cause__
    return (cause.output or cause.raw_output) if isinstance(cause, OutputInvalid) else ""


def built_on(around: Surroundings, stage: StageDefinition) -> dict[str, str]:
    """What a stage that begins now builds on: the trees of what it needs, and under "" that of the run's beginning."""
    trees = chosen_trees(around)
    return {"": around.book.run.base_tree, **{name: trees[name] for name in stage.needs if name in trees}}


def kept_answers(around: Surroundings, stages: Iterable[str]) -> dict[str, str]:
    """The answers of completed stages that were saved beside the user's own tree, by name."""
    answers: dict[str, str] = {}
    for name in stages:
        record = around.book.stage(name)
        chosen = chosen_attempt(record) if record.state is StageState.COMPLETED else None
        # An older version saved them in the tree, as an artifact.
        if around.is_checkout and chosen is not None and chosen.saved_answer not in ("", *chosen.artifacts):
            text = around.places.read(around.places.attempt(name, chosen.number, chosen.saved_answer))
            answers[chosen.saved_answer] = text[:_MOST_ANSWER_CHARACTERS]
    return answers


def own_answers(around: Surroundings) -> tuple[str, ...]:
    """The answers that we saved into a repository's files: stages hand them on, but they are no change to it."""
    run = around.book.run
    if run.workspace is WorkspaceKind.DIRECTORY:
        return ()
    attempts = (each for stage in run.stages for each in (*stage.earlier, *stage.attempts))
    return tuple(sorted({each.saved_answer for each in attempts if each.saved_answer in each.artifacts}))


def chosen_trees(around: Surroundings) -> dict[str, str]:
    """What each completed stage left."""
    done = (stage for stage in around.book.run.stages if stage.state is StageState.COMPLETED)
    return {stage.name: chosen.tree for stage in done if (chosen := chosen_attempt(stage)) is not None}


def _history(record: StageRecord, *, fresh: bool) -> Iterator[PastAttempt]:
    """What the next attempt is told of the earlier ones: nothing where it begins afresh, but for a person's word."""
    past = [] if fresh else [PastAttempt(number=one.number, critiques=one.critiques) for one in record.attempts]
    if not record.person_note:
        yield from past
        return
    word = Critique(verdict=CriticVerdict.REWORK, gate=GateKind.APPROVAL, summary=record.person_note)
    yield from past[:-1]
    last = past[-1] if past else PastAttempt(number=max(len(record.earlier) + len(record.attempts), 1))
    yield replace(last, critiques=(*last.critiques, word))


def _left_out(left_out: Mapping[str, str]) -> Iterator[str]:
    entries = list(left_out.items())
    for name, reason in entries[:_MOST_NOTES]:
        yield f"{name} was not kept: {reason}"
    if len(entries) > _MOST_NOTES:
        yield f"{len(entries) - _MOST_NOTES:,} more files were not kept"


def _unkept(stage: str, error: Exception) -> WorkspaceError:
    words = error.message if isinstance(error, CodeloupeError) else f"{getattr(error, 'strerror', None) or error}"
    trouble = WorkspaceError(
        f"what the stage {stage} left cannot be kept: {words}",
        stage=stage,
        hint="free some disk space, then retry the stage: its agent is not asked again",
    )
    trouble.__cause__ = error
    return trouble
