"""A run from its record to its end: stages in the order of their needs, independent ones at the same time.

The next step follows from the record alone, which is saved after every step. So a new engine on the same record
continues a run that was killed. A stage that waits for a person or a quota only stops the stages that need it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from codeloupe.errors import AnswerReplaced, CodeloupeError
from codeloupe.git.workspaces import JoinConflict
from codeloupe.model import pipeline as model
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageRecord, StageState
from codeloupe.pipelines.artifacts import listed
from codeloupe.pipelines.changes import kept_note
from codeloupe.pipelines.context import Context
from codeloupe.pipelines.deciding import accepted_tree, conclusion, failing_stage, given_up, ready, revived
from codeloupe.pipelines.files import RESULT_FOLDER, RESULT_PATCH
from codeloupe.pipelines.recovery import reopened, tried_again
from codeloupe.pipelines.spending import with_lost
from codeloupe.pipelines.stages import StageRun, save_handwork
from codeloupe.system.process import uninterrupted

# A stage in another state is working with the trees that it began with.
_AT_REST = (
    StageState.COMPLETED,
    StageState.PENDING,
    StageState.INTERRUPTED,
    StageState.WAITING_FOR_QUOTA,
    StageState.AWAITING_APPROVAL,
)
_WAITING = (StageState.WAITING_FOR_QUOTA, StageState.AWAITING_APPROVAL)
# A person may have these stages run again before a run continues, and those that the process of the run left.
_BEFORE_START = (StageState.FAILED, StageState.COMPLETED, StageState.PENDING)
_STOPPED = (StageState.INTERRUPTED, StageState.WAITING_FOR_QUOTA)


class Engine:
    """Runs one run, whose lock the caller holds, in one event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.state
        self._definition = context.definition
        self._slots = asyncio.Semaphore(self._definition.max_parallel)
        ancestors = context.joins.ancestors
        self._in_order = sorted(self._definition.stages, key=lambda stage: len(ancestors[stage.name]))
        self._settled: frozenset[str] = frozenset()
        self._noted: set[str] = set()

    async def run(self) -> RunRecord:
        """Continue until no stage can, and return the record: completed, failed, or waiting for a person or a quota.

        A run that has ended stays as it is, unless a person had a stage run again or accepted changes that add work.
        A cancellation, and any error that is not a stage's, is raised when every agent has ended and the record says
        that the run was interrupted; then it can be resumed.
        """
        await self._apply_retries(_BEFORE_START)
        if await self._has_ended():
            return self._state.run
        try:
            await self._take_over()
            await self._settle()
            await self._work()
            await self._conclude()
        except BaseException as error:  # after any error, the record must not say that the run is working
            self._record_stop(error)
            raise
        return self._state.run

    def _record_stop(self, error: BaseException) -> None:
        reason = f"stopped by {error!r}"
        if isinstance(error, asyncio.CancelledError):
            reason = "the run was interrupted"
        # The caller gets the first error. If the record cannot be saved, `resume` continues from the last one.
        with contextlib.suppress(CodeloupeError):
            self._interrupt_stages(lambda _state: reason)
            if self._state.run.state is StageState.RUNNING:
                ended = self._state.event("run_ended", reason, state=StageState.INTERRUPTED.value)
                self._state.move_run(StageState.INTERRUPTED, ended, reason=reason)

    def _interrupt_stages(self, reason: Callable[[StageState], str]) -> None:
        for stage in self._state.run.stages:
            if stage.state in model.WORKING_STATES:
                self._state.move(with_lost(stage), StageState.INTERRUPTED, reason=reason(stage.state))

    def _wanted_retry(self, name: str) -> Approval | None:
        """Return the answer of a person who wants a stage run again. Any other answer is removed, with a note."""
        answer = self._state.answer(name)
        if answer is None or answer.decision is Decision.RETRY:
            return answer
        self._state.drop(answer, self._state.outdated(answer))
        return None

    async def _apply_retries(self, states: Collection[StageState]) -> None:
        """Apply the retries that people want for stages in some states. A completed stage begins from its start."""
        for stage in self._state.run.stages:
            if stage.state not in states:
                continue
            is_applied = False
            while not is_applied:
                # If the person answers again meanwhile, the newer answer is read.
                with contextlib.suppress(AnswerReplaced):
                    await self._apply_retry(stage)
                    is_applied = True

    async def _apply_retry(self, stage: StageRecord) -> None:
        answer = self._wanted_retry(stage.name)
        if answer is None:
            return
        await save_handwork(self._context, stage)
        again = stage
        if stage.state is StageState.COMPLETED:
            again = reopened(stage, "")
        again = replace(tried_again(again, answer.note), quota_until=None)
        to = StageState.PENDING if stage.state in model.ENDED_STATES else stage.state
        self._state.move(again, to, self._state.given(answer), answered=answer)

    async def _has_ended(self) -> bool:
        run = self._state.run
        if run.state is StageState.FAILED:
            return failing_stage(self._definition, run) is not None
        if run.state is StageState.COMPLETED:
            await self._settle()
            # A change that was accepted may have added or reopened a stage.
            return all(stage.state in model.ENDED_STATES for stage in self._state.run.stages)
        return run.state is StageState.CANCELLED

    async def _settle(self) -> None:
        """Find the settled stages, and reopen each stage that was made from other work than there is now.

        One rule covers everything that was edited or run again: a completed stage is settled if the stages that it
        needs are settled, and their work is what it began with. While one of them still has to run, it is undecided.
        """
        settled: set[str] = set()
        for stage in self._in_order:
            if not settled.issuperset(stage.needs):
                continue
            record = self._state.stage(stage.name)
            reason = await self._why_stale(stage, record)
            if reason:
                while self._state.stage(stage.name) is record:
                    # If the person answers again meanwhile, the newer answer is read.
                    with contextlib.suppress(AnswerReplaced):
                        await self._reopen(record, reason)
                continue
            self._note_old_work(record)
            if record.state is StageState.COMPLETED:
                settled.add(stage.name)
        self._settled = frozenset(settled)

    def _note_old_work(self, record: StageRecord) -> None:
        """Report once that a stage uses work of another definition, or is judged again."""
        if record.name in self._noted or record.state not in _AT_REST or not record.attempts:
            return
        self._noted.add(record.name)
        judged_again = record.reason if record.state is StageState.PENDING else ""
        for words in (judged_again, kept_note(record, self._state.run.run_id)):
            if words:
                self._state.report("note", words, stage=record.name)

    async def _reopen(self, record: StageRecord, reason: str) -> None:
        events = [self._state.event("note", reason, stage=record.name)]
        note = record.person_note
        answer = None
        if record.state is StageState.AWAITING_APPROVAL:
            await save_handwork(self._context, record)
            answer = self._state.answer(record.name)
            if answer is not None and answer.decision is Decision.RETRY:
                note = answer.note.strip()
            elif answer is not None:
                events.append(self._state.outdated(answer))
        again = replace(reopened(record, reason), person_note=note)
        self._state.move(again, StageState.PENDING, *events, answered=answer)

    async def _why_stale(self, stage: model.StageDefinition, record: StageRecord) -> str:
        """Return why a stage's work no longer fits the work that it builds on; empty if it fits."""
        before = record.built_on
        has_begun = bool(record.start_tree or before)
        if not has_begun or record.state not in _AT_REST:
            return ""
        now = self._context.built_on(stage)
        # The tree of a checkout changes with every stage, so the trees of the needed stages are compared.
        is_stale = bool(before) and before != now
        if record.start_tree and not self._context.is_checkout:
            is_stale = await self._starts_elsewhere(stage, record.start_tree)
        if not is_stale:
            return ""
        changed = [name for name, tree in now.items() if name and before.get(name, tree) != tree]
        what = "the work that it builds on"
        if changed:
            what = f"the work of {' and '.join(changed)}"
        return f"it runs again: {what} has changed since it started"

    async def _starts_elsewhere(self, stage: model.StageDefinition, start_tree: str) -> bool:
        try:
            joined = await self._context.joins.together(stage.needs, self._context.chosen_trees())
        except JoinConflict:
            return True  # the stage itself reports the conflict
        return joined != start_tree

    async def _take_over(self) -> None:
        """Save that the run is working, and interrupt the stages of a process that died."""
        state = self._state
        kind: model.PipelineEventKind = "run_resumed"
        if state.run.state is StageState.PENDING:
            kind = "run_started"
        state.move_run(StageState.RUNNING, state.event(kind, pipeline=state.run.pipeline), reason="")
        for name in revived(self._definition, state.run):
            state.move(state.stage(name), StageState.PENDING, reason="")
        self._interrupt_stages(lambda was: f"the process that ran it died while it was {was.value}")
        await self._apply_retries(_STOPPED)

    async def _work(self) -> None:
        asked: set[str] = set()
        tasks: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                for name in self._startable(asked, busy=set(tasks.values())):
                    if not self._has_turn(name, busy=set(tasks.values())):
                        continue
                    tasks[asyncio.create_task(self._run_stage(name))] = name
                    asked.add(name)
                if not tasks:
                    return
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.pop(task)
                    if not task.cancelled():
                        task.result()
                await self._give_up()
                self._stop_asking(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await uninterrupted(_ended(tasks))

    def _has_turn(self, name: str, *, busy: set[str]) -> bool:
        """Return whether a stage may work now: in a checkout, only if no other stage is working, waiting or unfinished.

        Another stage does not count if it may have to begin again, because a stage that it needs is not settled.
        """
        if not self._context.is_checkout:
            return True
        if busy:
            return False
        record = self._state.stage(name)
        if record.state in _WAITING:
            return True
        for stage in self._definition.stages:
            other = self._state.stage(stage.name)
            if stage.name == name or not self._settled.issuperset(stage.needs):
                continue
            is_unfinished = bool(other.start_tree) and other.state not in model.ENDED_STATES
            if other.state in _WAITING or (is_unfinished and not record.start_tree):
                return False
        return True

    def _stop_asking(self, tasks: dict[asyncio.Task[None], str]) -> None:
        """Stop asking people about a run that has failed, and stop waiting for its quotas."""
        if failing_stage(self._definition, self._state.run) is None:
            return
        for task, name in tasks.items():
            if self._state.stage(name).state in _WAITING:
                task.cancel()

    async def _run_stage(self, name: str) -> None:
        stage = next(stage for stage in self._definition.stages if stage.name == name)
        if self._state.stage(name).state is StageState.WAITING_FOR_QUOTA:
            await self._context.wait_for_quota(name)
        await StageRun(stage, self._context, self._slots).run()

    def _startable(self, asked: set[str], *, busy: set[str]) -> Iterator[str]:
        """Yield the stages that can continue. One that waits for a person is asked about once, or has an answer."""
        run = self._state.run
        for name in ready(self._definition, run, self._settled):
            if name not in busy:
                yield name
        if failing_stage(self._definition, run) is not None:
            return
        for stage in run.stages:
            # Until the stages that it needs are settled, its work may have to be made again.
            if stage.name in busy or not self._settled.issuperset(stage.needs):
                continue
            if stage.state is StageState.WAITING_FOR_QUOTA and self._context.may_continue(stage):
                yield stage.name
            if stage.state is not StageState.AWAITING_APPROVAL:
                continue
            if stage.name not in asked or self._state.answer(stage.name) is not None:
                yield stage.name

    async def _give_up(self) -> None:
        """Cancel the stages that can never start, and find the settled ones again."""
        for name, reason in given_up(self._definition, self._state.run).items():
            self._state.move(self._state.stage(name), StageState.CANCELLED, reason=reason)
        await self._settle()

    async def _conclude(self) -> None:
        """Save the last state of the run, with its result."""
        await self._give_up()
        state, reason = conclusion(self._definition, self._state.run)
        tree = ""
        if state not in (StageState.AWAITING_APPROVAL, StageState.WAITING_FOR_QUOTA):
            try:
                tree = await self._write_result()
            except (CodeloupeError, OSError) as error:
                state = StageState.FAILED
                reason = _without_result(reason, error)
        ended = self._state.event("run_ended", reason, state=state.value)
        self._state.move_run(state, ended, reason=ended.message, result_tree=tree)

    async def _write_result(self) -> str:
        """Write the result for people, and return its tree; empty for a checkout, which has the result itself."""
        context = self._context
        files = context.files
        base = self._state.run.base_tree
        result_tree = ""
        if files.checkout is not None:
            tree = accepted_tree(self._state.run)
            await self._note_more(files.checkout, tree)
        else:
            tree = await self._merged_tree()
            await context.workspaces.put(tree, files.result)
            result_tree = await context.stored(tree)
        files.write_folder(RESULT_FOLDER, context.saved_answers(self._settled))
        patch = await context.workspaces.diff(base, tree, without=context.own_answers())
        files.write(RESULT_PATCH, patch)
        return result_tree

    async def _note_more(self, checkout: Path, accepted: str) -> None:
        """Report the files of a checkout that differ from the accepted work."""
        more = await self._context.workspaces.changes(checkout, since=accepted)
        if more:
            words = (
                f"the checkout contains changes that were not accepted and are not in {RESULT_PATCH}: {listed(more)}"
            )
            self._state.report("note", words)

    async def _merged_tree(self) -> str:
        """Return one tree with the work of all settled stages."""
        trees = {name: tree for name, tree in self._context.chosen_trees().items() if name in self._settled}
        if not trees:
            return self._state.run.base_tree
        return await self._context.joins.together(trees, trees)


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _without_result(reason: str, error: Exception) -> str:
    words = f"{model.NO_RESULT}: {error}"
    if isinstance(error, CodeloupeError) and error.hint:
        words = f"{words} ({error.hint})"
    return f"{reason}; {words}" if reason else words
