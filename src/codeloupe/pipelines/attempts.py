"""The attempts of a stage: the call of its agent, its answer, and the files that it left.

An answer is saved at once, because it is paid for. Its files are stored in the next step. If the workspace is lost in
between, with its machine or its directory, the attempt is recorded as failed and made again.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codeloupe.errors import ArtifactError, CodeloupeError, WorkspaceError
from codeloupe.git.workspaces import KeptTree
from codeloupe.model import pipeline as model
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.pipeline import (
    AttemptRecord,
    Critique,
    Decision,
    FailedTry,
    RecoveryStep,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.artifacts import Collected, check_artifact, require
from codeloupe.pipelines.changes import parts_now
from codeloupe.pipelines.deciding import accepted_tree
from codeloupe.pipelines.execution import execute_stage
from codeloupe.pipelines.recovery import Action, failed_try
from codeloupe.pipelines.stage_calls import StageCalls
from codeloupe.pipelines.stage_work import StageWork, quota_error, unused_answer
from codeloupe.reviewers.prompt import cut
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import saved_once_answered

_log = logging.getLogger(__name__)
_MOST_NOTES = 50
# A longer answer of an earlier stage is cut in a prompt.
_MOST_ANSWER_BYTES = 200_000
_RECOVERY_WORDS = {
    RecoveryStep.RETRY: "the call is repeated",
    RecoveryStep.RESUME: "its session is resumed, in a fork where the agent can",
    RecoveryStep.FRESH: "it starts over, without its session and history",
}
_VERDICTS = {
    Decision.APPROVE: model.CriticVerdict.PASS,
    Decision.RETRY: model.CriticVerdict.REWORK,
    Decision.REJECT: model.CriticVerdict.FAIL,
}


class Attempts(StageWork):
    """Makes the attempts of one stage."""

    async def execute(self, action: Action) -> None:
        """Call the stage's agent, and save its answer or its failure. An answer that has arrived is always saved."""
        self._start(action)
        calls = self.context.calls_of(self.name)
        await saved_once_answered(partial(self._execute, action, calls), is_answered=lambda: calls.is_answered)

    async def _execute(self, action: Action, calls: StageCalls) -> None:
        workspace: Path | None = None
        with self.counting(calls):
            try:
                workspace = await self._ready_workspace(action)
                attempt = await self._call(action, workspace, calls)
            except (CodeloupeError, OSError) as error:
                quota = quota_error(error)
                if quota is None:
                    await self._fail(action, error, workspace, calls)
                else:
                    self.wait_for_quota(quota, calls.usage)
                return
            record = self.record
            attempt = replace(attempt, usage=calls.usage)
            self.state.put(replace(record, attempts=(*record.attempts, attempt), unanswered=0))

    def _start(self, action: Action) -> None:
        """Save that a call of an attempt begins."""
        record = self.record
        step = action.step.value
        if action.step is not RecoveryStep.FIRST:
            words = _RECOVERY_WORDS[action.step]
            last = record.failures[-1]
            if action.step is RecoveryStep.FRESH and last.session_id and not last.resumable:
                words = f"{words}; {last.agent} did not store its session"
            self.state.report("recovery", words, stage=self.name, step=step)
        self.state.move(
            record,
            StageState.RUNNING,
            self.event("attempt_started", attempt=action.attempt, step=step, session=action.session),
            reason="",
            wants_approval="",
            quota_until=None,
            started_at=record.started_at or datetime.now(UTC),
            outdated=(),
        )

    async def _call(self, action: Action, workspace: Path, calls: StageCalls) -> AttemptRecord:
        """Return the attempt that an answer makes."""

        async def ask(request: AgentRequest) -> AgentResult:
            prompt = self.files.attempt(self.name, action.attempt, "prompt.md")
            self.files.write(prompt, self.state.masked(request.prompt))
            return await self.context.ask_stage(self.stage, action.agent, request, calls=calls)

        # An answer is saved as a file of the workspace, unless that is the user's own tree.
        with temporary_directory() as folder:
            attempt, output = await execute_stage(
                self._request(action, workspace),
                replace(self.stage, max_budget_usd=self.context.left_usd(self.name)),
                workspace=workspace,
                ask=ask,
                resume_session=action.session or None,
                built_on=await self._built_on(action),
                answers=folder if self.context.is_checkout else None,
            )
            if self.context.is_checkout and attempt.saved_answer:
                text = (folder / attempt.saved_answer).read_text(encoding="utf-8")
                self.files.write(self.files.attempt(self.name, action.attempt, attempt.saved_answer), text)
        file = self.files.attempt(self.name, action.attempt, "output.md")
        self.files.write(file, output)
        return replace(
            attempt,
            number=action.attempt,
            step=action.step,
            output_file=file,
            home=self.state.home,
            parts=parts_now(self.stage, self.state.run.inputs),
        )

    async def _ready_workspace(self, action: Action) -> Path:
        """Return the stage's workspace with the files that this attempt begins with. A checkout is never reset."""
        workspace = self.files.made_workspace(self.name)
        record = self.record
        if not record.start_tree:
            record = await self.begin()
        tree = record.start_tree
        if self.context.is_checkout:
            tree = (await self.context.workspaces.keep(workspace)).tree
        elif action.step is RecoveryStep.RESUME and action.tree:
            tree = action.tree
        elif action.step is not RecoveryStep.FRESH and record.attempts:
            tree = record.attempts[-1].tree or record.start_tree
        await self.fill(workspace, tree, action.attempt)
        return workspace

    async def begin(self, *, wants_approval: str = "") -> StageRecord:
        """Save the tree that the stage starts from, and whether it waits for a person, and return the stage."""
        # Saved before the trees are merged, so that a merge that fails is repeated if one of them changes.
        record = self.state.put(replace(self.record, built_on=self.context.built_on(self.stage)))
        if self.context.is_checkout:
            tree = accepted_tree(self.state.run)
        else:
            tree = await self.context.joins.together(self.stage.needs, self.context.chosen_trees())
        tree = await self.context.stored(tree)
        return self.state.put(replace(record, start_tree=tree, wants_approval=wants_approval))

    def _request(self, action: Action, workspace: Path) -> model.StageRequest:
        run = self.state.run
        lineage = self.context.joins.lineage(self.name)
        answers = self.context.saved_answers(lineage)
        names: dict[str, None] = {}
        for name in lineage:
            chosen = run.stage(name).chosen_attempt
            if chosen is not None:
                names.update(dict.fromkeys(chosen.artifacts))
        # A later stage may have removed an artifact of an earlier one.
        artifacts = [Path(name) for name in names if (workspace / name).is_file()]
        return model.StageRequest(
            stage=self.name,
            step_file=self.stage.step,
            step_text=self.stage.step_text,
            agent_definition=self.stage.agent_definition,
            agent_definition_text=self.stage.agent_definition_text,
            prior_artifacts=tuple(artifacts),
            elicitation_context=self.stage.given(run.inputs),
            attempt_history=self._history(action),
            prior_answers={name: cut(text, _MOST_ANSWER_BYTES) for name, text in answers.items()},
        )

    def _history(self, action: Action) -> tuple[AttemptRecord, ...]:
        """Return the earlier attempts for the prompt, with the note of a person."""
        record = self.record
        past: list[AttemptRecord] = []
        if action.step is not RecoveryStep.FRESH:
            past += record.attempts
        if record.person_note:
            if not past:
                past.append(AttemptRecord(number=max(len(record.earlier) + len(record.attempts), 1)))
            note = critique_by_person(Decision.RETRY, record.person_note)
            past[-1] = replace(past[-1], critiques=(*past[-1].critiques, note))
        return tuple(past)

    async def _built_on(self, action: Action) -> tuple[str, ...]:
        """Return the files of the stage itself that this call finds: of the last attempt, and of the session."""
        record = self.record
        if action.step is RecoveryStep.FRESH:
            return ()
        made = record.attempts[-1].artifacts if record.attempts else ()
        if action.step is not RecoveryStep.RESUME or not action.tree:
            return made
        return (*made, *await self.context.workspaces.changed(record.start_tree, action.tree))

    async def _fail(self, action: Action, error: Exception, workspace: Path | None, calls: StageCalls) -> None:
        """Record a failed call, with its cost and, if its session can be resumed, with its files."""
        answer = calls.answer
        failure = failed_try(error, step=action.step, attempt=action.attempt, usage=calls.usage)
        if failure.kind == "budget_exhausted" and "codeloupe" not in failure.hint:
            failure = replace(failure, hint=self.context.budget_advice(self.name) or failure.hint)
        if answer is not None:
            # An answer that is not as requested names its session.
            failure = replace(failure, session_id=answer.session_id, agent=answer.agent)
        if failure.session_id and self.context.agents.can_resume(failure.agent) and workspace is not None:
            failure = await self._with_files(failure, workspace)
        unused = unused_answer(error) if answer is None else answer.output
        self.record_failure(failure, unused)

    async def _with_files(self, failure: FailedTry, workspace: Path) -> FailedTry:
        """Return a failed call with the tree of its files, so that its session can be resumed on any machine."""
        try:
            kept = await self.context.workspaces.keep(workspace)
            tree = await self.context.stored(kept.tree)
        except WorkspaceError as error:
            _log.warning("cannot store the files of a failed call of %s: %s", self.name, error)
            return failure
        return replace(failure, tree=tree, resumable=True)

    async def store(self, action: Action) -> None:
        """Store the files of an answered attempt. A file that cannot be stored is skipped, with a note."""
        record = self.record
        last = record.attempts[-1]
        workspace = self.files.workspace(self.name)
        if last.home != self.state.home or not workspace.is_dir():
            self._lose(last)
            return
        try:
            kept = await self.context.workspaces.keep(workspace, artifacts=last.artifacts)
            attempt = await self._stored(last, kept)
        except (CodeloupeError, OSError) as error:
            self.record_failure(failed_try(self._storage_error(error), step=RecoveryStep.FIRST, attempt=last.number))
            return
        done = self.event(
            "attempt_finished",
            attempt=action.attempt,
            artifacts=len(attempt.artifacts),
            files_changed=len(attempt.files_changed),
            cost_usd=attempt.usage.cost_usd,
            seconds=round(attempt.duration_seconds, 3),
        )
        self.state.move(record, StageState.GATING, done, attempts=(*record.attempts[:-1], attempt))

    async def _stored(self, attempt: AttemptRecord, kept: KeptTree) -> AttemptRecord:
        """Return an attempt with its tree and its diff, which the next save stores."""
        attempt = _without_skipped(attempt, kept)
        self._check_artifacts(attempt)
        start = self.record.start_tree
        diff = await self.context.workspaces.diff(start, kept.tree)
        file = self.files.attempt(self.name, attempt.number, "diff.patch")
        self.files.write(file, diff)
        return replace(
            attempt,
            tree=await self.context.stored(kept.tree),
            files_changed=await self.context.workspaces.changed(start, kept.tree),
            diff_file=file,
        )

    def _check_artifacts(self, attempt: AttemptRecord) -> None:
        """Raise WorkspaceError if a required artifact was not stored, or if an artifact does not match its schema.

        The files may have changed since the answer, for example if the process died in between.
        """
        names = attempt.artifacts
        if self.context.is_checkout and attempt.saved_answer:
            # It is not in the workspace.
            names = (*names, attempt.saved_answer)
        stored = Collected(artifacts=names, changed=(), notes=attempt.notes)
        workspace = self.files.workspace(self.name)
        try:
            require(stored, self.stage.artifacts, stage=self.name)
            for path in attempt.artifacts:
                check_artifact(workspace / path, path, self.stage.artifacts, stage=self.name)
        except ArtifactError as error:
            hint = "fix the file in the workspace of the stage, then retry the stage"
            raise WorkspaceError(error.message, stage=self.name, hint=hint) from error

    def _storage_error(self, error: Exception) -> WorkspaceError:
        if isinstance(error, WorkspaceError):
            return error
        what = f"cannot store the work of the stage {self.name}: {error}"
        hint = "free some disk space, then retry the stage; its finished call is not repeated"
        return WorkspaceError(what, stage=self.name, hint=hint)

    def _lose(self, attempt: AttemptRecord) -> None:
        """Record an attempt whose files were lost as failed; then it is made again."""
        place = attempt.home.partition(" ")[0] or "another machine"
        message = f"the files of attempt {attempt.number} of {self.name} were lost before they were stored"
        failure = FailedTry(
            step=attempt.step,
            kind=model.WORKSPACE_LOST,
            message=f"{message}, so the attempt is made again",
            hint=f"its answer is stored; its workspace was on {place}, in the directory of the run",
            session_id=attempt.session_id,
            usage=attempt.usage,
            attempt=attempt.number,
            agent=attempt.agent,
            retryable=True,
        )
        remaining = self.record.attempts[:-1]
        before = min(self.record.attempts_before, len(remaining))
        self.record_failure(failure, attempts=remaining, attempts_before=before)


def critique_by_person(decision: Decision, words: str) -> Critique:
    """Return the decision of a person as a verdict."""
    return Critique(verdict=_VERDICTS[decision], gate=model.GateKind.APPROVAL, summary=words)


def _without_skipped(attempt: AttemptRecord, kept: KeptTree) -> AttemptRecord:
    """Return an attempt without artifacts that were not stored, with a note on each such file."""
    notes = [f"{name} was not stored: {reason}" for name, reason in kept.left_out.items()]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"{len(notes) - _MOST_NOTES:,} more files were not stored"]
    artifacts = [name for name in attempt.artifacts if name not in kept.left_out]
    return replace(attempt, artifacts=tuple(artifacts), notes=(*attempt.notes, *notes))
