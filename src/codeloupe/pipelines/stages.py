"""The life of one stage, from its record to its end, or to where a person is needed: attempts, gates, recovery.

What an agent answered is recorded before anything else is done with it; what it left in its workspace is kept after
that, and again from the same workspace if the process dies in between.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, OutputInvalid, WorkspaceError
from codeloupe.git.workspaces import KeptTree
from codeloupe.model import pipeline as model
from codeloupe.model.agent import AgentRequest, AgentResult, usage_of
from codeloupe.model.pipeline import Approval, Critique, Decision, PipelineEvent, RecoveryStep, StageRecord, StageState
from codeloupe.pipelines.context import Context
from codeloupe.pipelines.execution import execute_stage, failure_usage, read_text
from codeloupe.pipelines.gates import GateTask
from codeloupe.pipelines.recovery import Action, failed_try, next_action, parts_now, tried_again
from codeloupe.pipelines.state import Fact, RunState

_log = logging.getLogger(__name__)
_RECOVERY_WORDS = {
    RecoveryStep.RETRY: "the call is repeated",
    RecoveryStep.RESUME: "its session is resumed, in a fork where the agent can",
    RecoveryStep.FRESH: "it starts over, without its session and history",
}
_ANSWERS = {
    Decision.APPROVE: ("a person approved it", model.CriticVerdict.PASS),
    Decision.RETRY: ("a person asked for another attempt", model.CriticVerdict.REWORK),
    Decision.REJECT: ("a person rejected it", model.CriticVerdict.FAIL),
}


def answer_event(state: RunState, answer: Approval) -> PipelineEvent:
    """What a person decided, and the note."""
    words = ": ".join(filter(None, (_ANSWERS[answer.decision][0], answer.note.strip())))
    return state.event("approval_given", words, stage=answer.stage, decision=answer.decision.value)


async def save_handwork(context: Context, record: StageRecord) -> None:
    """Keep as a patch what a person changed by hand in the workspace of a stage that waited: it is filled anew."""
    shown = record.chosen_attempt
    # Of a run that waited on another machine there may be none here.
    if context.is_checkout or shown is None or not shown.tree or not context.files.workspace(record.name).is_dir():
        return
    name = context.files.attempt(record.name, shown.number, "by-hand.patch")
    try:
        found = (await context.workspaces.keep(context.files.workspace(record.name))).tree
        # Where it could not be filled with what was to be shown, it holds what was there before.
        if found in {attempt.tree for attempt in record.attempts}:
            return
        context.files.write(name, await context.workspaces.diff(shown.tree, found))
    except (CodeloupeError, OSError) as error:
        _log.warning("cannot store the manual changes in the workspace of %s: %s", record.name, error)
        return
    words = f"manual changes made while it waited are not part of attempt {shown.number}; they are stored in {name}"
    context.state.tell("note", words, stage=record.name)


class StageRun:
    """Takes one stage through its life.

    `slots` bound how many stages work at a time; waiting for a person takes none. `answer` is what a person said about
    the stage while it waited, if that is known already.
    """

    def __init__(
        self, stage: model.StageDefinition, context: Context, slots: asyncio.Semaphore, answer: Approval | None = None
    ) -> None:
        self._stage, self._name, self._answer, self._slots = stage, stage.name, answer, slots
        self._context, self._state, self._files = context, context.state, context.files

    @property
    def _record(self) -> StageRecord:
        return self._state.stage(self._name)

    def _event(self, kind: model.PipelineEventKind, message: str = "", **facts: Fact) -> PipelineEvent:
        return self._state.event(kind, message, stage=self._name, **facts)

    async def run(self) -> None:
        """Go on until the stage is completed, failed or waits for a person; its record says which."""
        goes_on = True
        while goes_on:
            action = next_action(self._stage, self._record)
            is_asked = action.do == "judge" and self._stage.gates[action.gate].kind is model.GateKind.APPROVAL
            if is_asked or action.do == "escalate":
                goes_on = await (self._wait_for_approval(action) if is_asked else self._escalate(action))
            elif action.do in ("complete", "fail"):
                await self._end(action)
                goes_on = False
            else:
                acts = {"execute": self._execute, "keep": self._keep, "judge": self._judge}
                async with self._slots:
                    await acts[action.do](action)

    async def _execute(self, action: Action) -> None:
        state, context, step = self._state, self._context, action.step.value
        if action.step is not RecoveryStep.FIRST:
            words, last = _RECOVERY_WORDS[action.step], self._record.failures[-1]
            if action.step is RecoveryStep.FRESH and last.session_id and not last.resumable:
                words = f"{words}; {last.agent} did not store its session"
            state.tell("recovery", words, stage=self._name, step=step)
        state.move(
            self._record,
            StageState.RUNNING,
            self._event("attempt_started", attempt=action.attempt, step=step, session=action.session),
            reason="",
            wants_approval="",
            started_at=self._record.started_at or datetime.now(UTC),
            parts=parts_now(self._stage, state.run.inputs),
            outdated=(),
        )
        heard = list[AgentResult]()

        async def ask(request: AgentRequest) -> AgentResult:
            prompt = self._files.attempt(self._name, action.attempt, "prompt.md")
            self._files.write_quietly(prompt, state.masked(request.prompt))
            heard.append(await context.ask_stage(self._stage, action.agent, request))
            return heard[-1]

        workspace: Path | None = None
        try:
            workspace = await self._ready_workspace(action)
            attempt, output = await execute_stage(
                self._request(action, workspace),
                replace(self._stage, max_budget_usd=context.left_usd(self._name)),
                workspace=workspace,
                ask=ask,
                resume_session=action.session or None,
                built_on=await self._built_on(action),
                # The user's own tree is not ours to write to; beside the prompt is room.
                answers=self._files.of_stage(self._name) / f"attempt-{action.attempt}" if context.is_checkout else None,
            )
        except (CodeloupeError, OSError) as error:
            await self._failed(action, error, heard[-1] if heard else None, workspace)
        else:
            file = self._files.attempt(self._name, action.attempt, "output.md")
            attempt = replace(attempt, number=action.attempt, step=action.step, output_file=file)
            self._files.write_quietly(file, output)
            if state.is_shared:
                # Where another machine goes on, this workspace is not.
                with suppress(CodeloupeError, OSError):  # the next step meets the same, and tells
                    kept = await context.workspaces.keep(workspace)
                    attempt = replace(_without_left_out(attempt, kept), left_tree=kept.tree)
            # Recorded at once: it is paid for. What it left is looked at in the next step.
            state.put(replace(self._record, attempts=(*self._record.attempts, attempt), unanswered=0))

    async def _ready_workspace(self, action: Action) -> Path:
        """The stage's workspace with what this attempt begins with. In the user's own tree nothing is put back."""
        context, record = self._context, self._record
        workspace = self._files.made_workspace(self._name)
        if not record.start_tree:
            # Also where it cannot be joined: that is tried again when one of these has changed.
            record = self._state.put(replace(record, built_on=context.built_on(self._stage)))
            if context.is_checkout:
                tree = (await context.workspaces.keep(workspace)).tree
            else:
                tree = await context.joins.together(self._stage.needs, context.chosen_trees())
            record = self._state.put(replace(record, start_tree=tree))
        if not context.is_checkout:
            previous = record.attempts[-1].tree if record.attempts else ""
            beginning = {RecoveryStep.RESUME: action.tree, RecoveryStep.FRESH: record.start_tree}
            tree = beginning.get(action.step) or previous or record.start_tree
            await self._fill(workspace, tree, action.attempt)
        return workspace

    async def _fill(self, workspace: Path, tree: str, attempt: int) -> None:
        await self._context.workspaces.put(tree, workspace)
        failures = sum(failure.attempt == attempt for failure in self._record.failures)
        self._context.keys.tell(workspace, tree, failures)

    def _request(self, action: Action, workspace: Path) -> model.StageRequest:
        stage, run, record = self._stage, self._state.run, self._record
        lineage = self._context.joins.lineage(stage.name)
        chosen = (run.stage(name).chosen_attempt for name in lineage)
        names = dict.fromkeys(name for each in chosen if each is not None for name in each.artifacts)
        past = [] if action.step is RecoveryStep.FRESH else list(record.attempts)
        if record.person_note:
            said = _by_person(Decision.RETRY, record.person_note)
            past = past or [model.AttemptRecord(number=max(len(record.earlier) + len(record.attempts), 1))]
            past[-1] = replace(past[-1], critiques=(*past[-1].critiques, said))
        return model.StageRequest(
            stage=stage.name,
            step_file=stage.step,
            agent_definition=stage.agent_definition,
            # A later stage may have removed what an earlier one made.
            prior_artifacts=tuple(path for name in names if (path := workspace / name).is_file()),
            elicitation_context=stage.given(run.inputs),
            attempt_history=tuple(past),
            prior_answers=self._context.kept_answers(lineage),
        )

    async def _built_on(self, action: Action) -> tuple[str, ...]:
        """What the stage itself made earlier and this call finds: of the last attempt, and of the session."""
        record = self._record
        if action.step is RecoveryStep.FRESH:
            return ()
        made = record.attempts[-1].artifacts if record.attempts else ()
        if action.step is not RecoveryStep.RESUME or not action.tree:
            return made
        return (*made, *await self._context.workspaces.changed(record.start_tree, action.tree))

    async def _failed(
        self, action: Action, error: Exception, answer: AgentResult | None, workspace: Path | None
    ) -> None:
        """Record the failure, with what the call cost and, where its session can be resumed, what it left."""
        # An answer that is not as asked was paid for too; its session is known from it.
        usage = failure_usage(error) if answer is None else usage_of(answer)
        failure = failed_try(error, step=action.step, attempt=action.attempt, usage=usage)
        if failure.kind == "budget_exhausted" and "codeloupe" not in failure.hint:
            failure = replace(failure, hint=self._context.advice(self._name) or failure.hint)
        if answer is not None:
            failure = replace(failure, session_id=answer.session_id, agent=answer.agent)
        if failure.session_id and self._context.agents.can_resume(failure.agent) and workspace is not None:
            try:
                tree = (await self._context.workspaces.keep(workspace)).tree
                failure = replace(failure, tree=tree, resumable=True)
            except WorkspaceError as trouble:
                _log.warning("cannot store the files of a failed call of %s: %s", self._name, trouble)
        self._record_failure(failure, _unused_answer(error) if answer is None else answer.output)

    def _record_failure(self, failure: model.FailedTry, answer: str = "") -> None:
        """Record a failure and go over to recovery. An `answer` that could not be used is kept, and named."""
        record, state = self._record, self._state
        if answer.strip():
            name = self._files.attempt(self._name, failure.attempt, f"unused-answer-{len(record.failures) + 1}.md")
            if path := self._files.write_quietly(name, state.masked(answer)):
                kept = f"its answer is in {path}"
                failure = replace(failure, hint="; ".join(filter(None, (failure.hint, kept))))
        facts: dict[str, Fact] = {"attempt": failure.attempt, "step": failure.step.value, "error": failure.kind}
        event = self._event("try_failed", failure.message, **facts, gate=failure.gate, hint=failure.hint)
        failures = (*record.failures, replace(failure, message=event.message, hint=str(event.facts["hint"])))
        state.move(record, StageState.RECOVERING, event, failures=failures, unanswered=0, reason=event.message)

    async def _keep(self, action: Action) -> None:
        """Store the attempt's work; a file that cannot be stored is not part of it, and a note says so."""
        record, workspaces, number = self._record, self._context.workspaces, action.attempt
        last = record.attempts[-1]
        try:
            kept = KeptTree(last.left_tree, {})
            if not last.left_tree:
                kept = await workspaces.keep(self._files.workspace(self._name))
            changed = await workspaces.changed(record.start_tree, kept.tree)
            diff_file = self._files.attempt(self._name, number, "diff.patch")
            self._files.write(diff_file, await workspaces.diff(record.start_tree, kept.tree))
        except (CodeloupeError, OSError) as error:
            if not isinstance(error, WorkspaceError):
                words = f"cannot store the work of the stage {self._name}: {error}"
                hint = "free some disk space, then retry the stage; its finished call is not repeated"
                error = WorkspaceError(words, stage=self._name, hint=hint)
            self._record_failure(failed_try(error, step=RecoveryStep.FIRST, attempt=number))
            return
        last = _without_left_out(last, kept)
        facts: dict[str, Fact] = {"attempt": number, "artifacts": len(last.artifacts), "files_changed": len(changed)}
        facts |= {"cost_usd": last.usage.cost_usd, "seconds": round(last.duration_seconds, 3)}
        done = self._event("attempt_finished", "", **facts)
        attempt = replace(last, tree=kept.tree, files_changed=changed, diff_file=diff_file)
        self._state.move(record, StageState.GATING, done, attempts=(*record.attempts[:-1], attempt))

    async def _judge(self, action: Action) -> None:
        gate, record = self._stage.gates[action.gate], self._record
        self._state.move(record, StageState.GATING, reason="", wants_approval="")
        try:
            critique = await self._context.judge(self._stage, gate, await self._task(action.attempt))
        except (CodeloupeError, OSError) as error:
            earlier = record.failures[record.failures_before :]
            again = any(failure.attempt == action.attempt and failure.gate == action.gate for failure in earlier)
            step, usage = RecoveryStep.RETRY if again else RecoveryStep.FIRST, failure_usage(error)
            failure = failed_try(error, step=step, attempt=action.attempt, gate=action.gate, usage=usage)
            self._record_failure(failure, _unused_answer(error))
        else:
            self._decided(action, critique)

    def _decided(self, action: Action, critique: Critique, *events: PipelineEvent, **changes: Any) -> None:
        """Record a gate's verdict; when it sends the stage back, the state says so in the same moment."""
        state, record, mask = self._state, self._record, self._state.masked
        critique = replace(
            critique,
            summary=mask(critique.summary),
            blockers=tuple(map(mask, critique.blockers)),
            fixes=tuple(map(mask, critique.fixes)),
        )
        attempts = tuple(
            replace(attempt, critiques=(*attempt.critiques, critique)) if attempt.number == action.attempt else attempt
            for attempt in record.attempts
        )
        facts: dict[str, Fact] = {"gate": critique.gate.value, "verdict": critique.verdict.value}
        facts |= {"score": critique.score, "blockers": len(critique.blockers), "cost_usd": critique.usage.cost_usd}
        event = self._event("critique", critique.summary, attempt=action.attempt, **facts)
        judged = replace(record, attempts=attempts, unanswered=0, **changes)
        if next_action(self._stage, judged).do == "execute" and record.state is StageState.GATING:
            why = f"attempt {action.attempt} was sent back by its {critique.gate.value} gate"
            state.move(judged, StageState.REWORKING, *events, event, reason=why)
        else:
            state.put(judged, *events, event)

    async def _task(self, number: int) -> GateTask:
        context, record, stage = self._context, self._record, self._stage
        attempt = next(attempt for attempt in record.attempts if attempt.number == number)
        # The workspace holds what the attempt left, and nothing else: that is what would go on.
        if not context.is_checkout:
            await self._fill(self._files.made_workspace(self._name), attempt.tree, number)
        elif number != max(each.number for each in (*record.earlier, *record.attempts)):
            what = f"attempt {number} of {self._name} cannot be judged: the checkout contains a later one"
            hint = f"its patch is {attempt.diff_file}; codeloupe never resets a checkout"
            raise WorkspaceError(what, stage=self._name, hint=hint)
        ours = context.own_answers()
        start, tree = [await context.workspaces.without(each, ours) for each in (record.start_tree, attempt.tree)]
        requirements = read_text(stage.step, "step file", self._name)
        if given := stage.given(self._state.run.inputs):
            listed = "\n".join(f"{name}: {value}" for name, value in given.items())
            requirements = f"{requirements.strip()}\n\nInputs:\n{listed}"
        return GateTask(
            stage=self._name,
            attempt=number,
            workspace=self._files.workspace(self._name),
            requirements=requirements,
            artifacts=attempt.artifacts,
            files_changed=tuple(file for file in attempt.files_changed if file not in ours),
            diff=await context.workspaces.diff(start, tree),
            output=self._files.read(attempt.output_file),
            earlier=tuple(word for past in record.attempts if past.number < number for word in past.critiques),
            start_tree=start,
            tree=tree,
        )

    async def _asked(
        self, wants: str, question: str, attempt: int | None, seconds: float, *events: PipelineEvent
    ) -> Approval | None:
        """Let a person decide; None when nobody does, and the stage goes on waiting."""
        state, record = self._state, self._record
        if record.state is not StageState.AWAITING_APPROVAL or record.wants_approval != wants:
            wanted = self._event("approval_wanted", question, attempt=attempt, wants=wants)
            # For the person to look at; where that fails, the patch is there.
            note = await self._put_back(replace(record, chosen=attempt))
            if note and not self._context.is_checkout:
                state.tell("note", note, stage=self._name)
            changes = {"reason": wanted.message, "wants_approval": wants, "chosen": attempt}
            record = state.move(record, StageState.AWAITING_APPROVAL, *events, wanted, **changes)
        answer, self._answer = self._answer, None
        answer = answer or await self._context.ask_person(record, question, seconds)
        if answer is not None:
            await save_handwork(self._context, self._record)
        return answer

    async def _wait_for_approval(self, action: Action) -> bool:
        gate = self._stage.gates[action.gate]
        question = gate.prompt.strip() or "Approve the work of this stage?"
        answer = await self._asked("gate", question, action.attempt, gate.timeout_seconds)
        if answer is None:
            return False
        changes: dict[str, Any] = {"wants_approval": "", "reason": ""}
        if answer.decision is Decision.RETRY:
            # What a person asks for is not bound by the number of attempts that the gates allow.
            before = self._record
            changes |= {"attempts_before": len(before.attempts), "failures_before": len(before.failures)}
        said = answer_event(self._state, answer)
        self._decided(action, _by_person(answer.decision, said.message), said, **changes)
        return True

    async def _escalate(self, action: Action) -> bool:
        """Give the stage up as its pipeline wants it: to a person, or for good. True when it goes on at once."""
        state, policy = self._state, self._stage.on_failure
        given_up = self._event("recovery", action.reason, step=policy.value)
        if policy is not model.OnFailure.ESCALATE:
            await self._end(replace(action, do="fail"), given_up)
            return False
        answer = await self._asked("escalation", action.reason, action.attempt or None, 0.0, given_up)
        if answer is None:
            return False
        said, is_approved = answer_event(state, answer), answer.decision is Decision.APPROVE
        if answer.decision is Decision.RETRY:
            state.put(tried_again(self._record, answer.note), said)
            return True
        if is_approved and not action.attempt:
            again = f"`codeloupe pipeline resume {state.run.run_id} --retry {self._name}` retries it"
            state.tell("note", f"{said.message}, but it has no work to approve; {again}", stage=self._name)
        else:
            await self._end(Action("complete" if is_approved else "fail", action.attempt, said.message), said)
        return False

    async def _end(self, action: Action, *events: PipelineEvent) -> None:
        """Make the last move. The workspace contains the accepted work, for people who look there."""
        record = replace(self._record, chosen=action.attempt or None)
        note = await self._put_back(record)
        self._state.move(
            record,
            StageState.COMPLETED if action.do == "complete" else StageState.FAILED,
            *events,
            reason="; ".join(filter(None, (action.reason, note))),
            wants_approval="",
            ended_at=datetime.now(UTC),
        )

    async def _put_back(self, record: StageRecord) -> str:
        """Fill the workspace with the chosen attempt; return a note if that is impossible."""
        chosen = record.chosen_attempt
        if chosen is None or not chosen.tree:
            return ""
        if self._context.is_checkout:
            patch = f"the patch of attempt {chosen.number} is {chosen.diff_file}"
            if chosen.number != record.attempts[-1].number:
                return f"the checkout contains a later attempt; {patch}"
            has_more = any(failure.attempt > chosen.number for failure in record.failures)
            return f"the checkout may also contain changes of later, failed calls; {patch}" if has_more else ""
        try:
            await self._context.workspaces.put(chosen.tree, self._files.made_workspace(record.name))
        except (WorkspaceError, OSError) as error:
            return f"the workspace does not contain attempt {chosen.number}: {error}"
        return ""


def _without_left_out(attempt: model.AttemptRecord, kept: KeptTree) -> model.AttemptRecord:
    """Return an attempt without the artifacts that were not stored, and with a note on each file."""
    notes = [f"{name} was not stored: {reason}" for name, reason in kept.left_out.items()]
    if len(notes) > 50:
        notes[50:] = [f"{len(notes) - 50:,} more files were not stored"]
    artifacts = tuple(name for name in attempt.artifacts if name not in kept.left_out)
    return replace(attempt, artifacts=artifacts, notes=(*attempt.notes, *notes))


def _by_person(decision: Decision, words: str) -> Critique:
    return Critique(verdict=_ANSWERS[decision][1], gate=model.GateKind.APPROVAL, summary=words)


def _unused_answer(error: Exception) -> str:
    """What an agent said that could not be used; nothing where it said nothing."""
    cause = error if isinstance(error, OutputInvalid) else error.__cause__
    return (cause.output or cause.raw_output) if isinstance(cause, OutputInvalid) else ""
