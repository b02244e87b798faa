"""A run from its record to its end: stages in the order of their needs, independent ones at once.

The engine decides nothing by memory: what comes next follows from the record alone, which is saved after every step.
So a run that was killed is picked up by a new engine on the same record. A stage that waits for a person does not keep
others from going on, unless they need it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError
from codeloupe.git.workspaces import JoinConflict
from codeloupe.model import pipeline as model
from codeloupe.model.pipeline import (
    Approval,
    Decision,
    PipelineDefinition,
    PipelineEventKind,
    RunRecord,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.context import Context, with_lost
from codeloupe.pipelines.recovery import kept_note, reopened, tried_again
from codeloupe.pipelines.stages import StageRun, answer_event, save_handwork
from codeloupe.system.process import uninterrupted

# A stage that is at work has begun with what there is now.
_AT_REST = (StageState.COMPLETED, StageState.PENDING, StageState.INTERRUPTED, StageState.AWAITING_APPROVAL)


class Engine:
    """Runs one run, whose lock the caller holds, in one event loop."""

    def __init__(self, context: Context) -> None:
        self._context, self._state, self._definition = context, context.state, context.definition
        # In the user's own tree one stage works at a time, from its beginning to its end.
        self._turn = asyncio.Lock() if context.is_checkout else contextlib.nullcontext()
        self._slots = asyncio.Semaphore(self._definition.max_parallel)
        self._in_order = sorted(self._definition.stages, key=lambda stage: len(context.joins.ancestors[stage.name]))
        self._settled: frozenset[str] = frozenset()
        self._noted: set[str] = set()

    async def run(self) -> RunRecord:
        """Go on until nothing in the run can, and return its record: completed, failed, or waiting for a person.

        A run that is at its end stays as it is, unless a person had one of its stages tried again or accepted changes
        that leave something to do. A cancellation, and any error that is not a stage's, is raised when every agent is
        gone and the record says that the run was interrupted; then it can be resumed.
        """
        await self._put_back()
        if await self._is_at_its_end():
            return self._state.run
        try:
            self._take_over()
            await self._settle()
            await self._work()
            await self._conclude()
        except BaseException as error:  # whatever it was, the record must not say that the run goes on
            reason = f"stopped by {error!r}"
            if isinstance(error, asyncio.CancelledError):
                reason = "the run was interrupted"
            # This error is the one to tell; a record that cannot be written is found as it is by `resume`.
            with contextlib.suppress(CodeloupeError):
                self._interrupt_stages(lambda _state: reason)
                if self._state.run.state is StageState.RUNNING:
                    ended = self._state.event("run_ended", reason, state=StageState.INTERRUPTED.value)
                    self._state.move_run(StageState.INTERRUPTED, ended, reason=reason)
            raise
        return self._state.run

    def _interrupt_stages(self, reason: Callable[[StageState], str]) -> None:
        for stage in self._state.run.stages:
            if stage.state in model.WORKING_STATES:
                self._state.move(with_lost(stage), StageState.INTERRUPTED, reason=reason(stage.state))

    def _retry(self, name: str) -> Approval | None:
        """What a person left who wants a stage tried again. Another answer is taken, too, and forgotten."""
        answer = self._state.left_answer(name)
        return answer if answer is not None and answer.decision is Decision.RETRY else None

    async def _put_back(self) -> None:
        """Put back each stage at its end that a person had tried again. A completed one begins from its start."""
        for stage in self._state.run.stages:
            if stage.state in (StageState.FAILED, StageState.COMPLETED) and (answer := self._retry(stage.name)):
                await save_handwork(self._context, stage)
                again = reopened(stage, "") if stage.state is StageState.COMPLETED else stage
                self._state.move(tried_again(again, answer.note), StageState.PENDING, answer_event(self._state, answer))

    async def _is_at_its_end(self) -> bool:
        run = self._state.run
        if run.state is StageState.FAILED:
            return failing_stage(self._definition, run) is not None
        if run.state is StageState.COMPLETED:
            await self._settle()
            # A change that was accepted may have added a stage, or put one back.
            return all(stage.state in model.ENDED_STATES for stage in self._state.run.stages)
        return run.state is StageState.CANCELLED

    async def _settle(self) -> None:
        """Find the stages whose work holds, and put back each that was made from other work than there is now.

        One rule for whatever was edited or run again: a stage holds if those that it needs hold, and what they have
        left is what it began with. While one of those is still to run, that is not decided.
        """
        settled: set[str] = set()
        for stage in self._in_order:
            record = self._state.stage(stage.name)
            if not settled.issuperset(stage.needs):
                continue
            has_begun = record.start_tree or record.built_on
            if has_begun and record.state in _AT_REST and (why := await self._why_stale(stage, record)):
                await self._reopen(record, why)
                continue
            if record.name not in self._noted and record.state in _AT_REST and record.attempts:
                # It is said once that a stage keeps the work of another definition, or is judged again.
                self._noted.add(record.name)
                judged = record.reason if record.state is StageState.PENDING else ""
                for words in filter(None, (judged, kept_note(record, self._state.run.run_id))):
                    self._state.tell("note", words, stage=record.name)
            if record.state is StageState.COMPLETED:
                settled.add(stage.name)
        self._settled = frozenset(settled)

    async def _reopen(self, record: StageRecord, why: str) -> None:
        events = [self._state.event("note", why, stage=record.name)]
        note = record.person_note
        if record.state is StageState.AWAITING_APPROVAL:
            await save_handwork(self._context, record)
            # An answer that was left is about work that is made again: it approves nothing that nobody has seen.
            answer = self._state.left_answer(record.name)
            if answer is not None and answer.decision is Decision.RETRY:
                note = answer.note.strip()
            elif answer is not None:
                said = answer_event(self._state, answer).message
                words = f"{said}, which was about its earlier work; codeloupe will ask again"
                events.append(self._state.event("note", words, stage=record.name))
        self._state.move(replace(reopened(record, why), person_note=note), StageState.PENDING, *events)

    async def _why_stale(self, stage: model.StageDefinition, record: StageRecord) -> str:
        """Why a stage's work no longer fits what it builds on; empty where it does."""
        before, now = record.built_on, self._context.built_on(stage)
        # In a checkout its tree is the user's, and changes with every stage; or what it needs could not be joined.
        is_stale = bool(before) and before != now
        if record.start_tree and not self._context.is_checkout:
            try:
                joined = await self._context.joins.together(stage.needs, self._context.chosen_trees())
                is_stale = joined != record.start_tree
            except JoinConflict:
                is_stale = True  # which the stage itself will tell
        changed = [name for name, tree in now.items() if name and before.get(name, tree) != tree]
        why = f"the work of {' and '.join(changed)}" if changed else "the work that it builds on"
        return f"it runs again: {why} has changed since it started" if is_stale else ""

    def _take_over(self) -> None:
        """Say that the run goes on, and mark what a process that died left as under way."""
        state, run = self._state, self._state.run
        kind: PipelineEventKind = "run_started" if run.state is StageState.PENDING else "run_resumed"
        state.move_run(StageState.RUNNING, state.event(kind, pipeline=run.pipeline), reason="")
        for name in revived(self._definition, run):
            state.move(state.stage(name), StageState.PENDING, reason="")
        self._interrupt_stages(lambda was: f"the process that ran it died while it was {was.value}")
        for stage in state.run.stages:
            # Taken now: left where it is, it would be the answer to a question that was not asked yet.
            if stage.state is StageState.INTERRUPTED and (answer := self._retry(stage.name)):
                state.put(tried_again(stage, answer.note), answer_event(state, answer))

    async def _work(self) -> None:
        asked: set[str] = set()
        tasks: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                for name, answer in self._startable(asked, busy=set(tasks.values())):
                    tasks[asyncio.create_task(self._run_stage(name, answer))] = name
                    asked.add(name)
                if not tasks:
                    return
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.pop(task)
                    if not task.cancelled():
                        task.result()
                await self._give_up()
                if failing_stage(self._definition, self._state.run) is not None:
                    # Nobody is asked any more about a run that has failed.
                    for task, name in tasks.items():
                        if self._state.stage(name).state is StageState.AWAITING_APPROVAL:
                            task.cancel()
        finally:
            for task in tasks:
                task.cancel()
            await uninterrupted(_ended(tasks))

    async def _run_stage(self, name: str, answer: Approval | None) -> None:
        stage = next(stage for stage in self._definition.stages if stage.name == name)
        async with self._turn:
            await StageRun(stage, self._context, self._slots, answer).run()

    def _startable(self, asked: set[str], *, busy: set[str]) -> Iterator[tuple[str, Approval | None]]:
        """The stages that can begin or go on. One that waits is asked about once, and goes on with an answer."""
        run = self._state.run
        yield from ((name, None) for name in ready(self._definition, run, self._settled) if name not in busy)
        if failing_stage(self._definition, run) is not None:
            return
        for stage in run.stages:
            # While what it needs is not settled, what it waits with may have to be made again.
            is_waiting = stage.state is StageState.AWAITING_APPROVAL and self._settled.issuperset(stage.needs)
            if is_waiting and stage.name not in busy:
                answer = self._state.left_answer(stage.name) if stage.wants_approval == "escalation" else None
                if answer is not None or stage.name not in asked:
                    yield stage.name, answer

    async def _give_up(self) -> None:
        """Give up what can never begin, and look whose work holds then."""
        for name, reason in given_up(self._definition, self._state.run).items():
            self._state.move(self._state.stage(name), StageState.CANCELLED, reason=reason)
        await self._settle()

    async def _conclude(self) -> None:
        """The run's last state, once its result is where people look for it."""
        await self._give_up()
        state, reason = conclusion(self._definition, self._state.run)
        if state is not StageState.AWAITING_APPROVAL:
            try:
                await self._write_result()
            except (CodeloupeError, OSError) as error:
                hint = f" ({error.hint})" if isinstance(error, CodeloupeError) and error.hint else ""
                why = f"{model.NO_RESULT}: {error}{hint}"
                state, reason = StageState.FAILED, f"{reason}; {why}" if reason else why
        ended = self._state.event("run_ended", reason, state=state.value)
        self._state.move_run(state, ended, reason=ended.message)

    async def _write_result(self) -> None:
        context, files, base = self._context, self._context.files, self._state.run.base_tree
        if files.checkout is not None:
            tree = (await context.workspaces.keep(files.checkout)).tree
        else:
            trees = {name: tree for name, tree in context.chosen_trees().items() if name in self._settled}
            tree = await context.joins.together(trees, trees) if trees else base
            await context.workspaces.put(tree, files.result)
        for name, text in context.kept_answers(self._settled).items():
            files.write(f"{files.result.name}/{name}", text)
        files.write("result.patch", await context.workspaces.diff(base, tree, without=context.own_answers()))


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def ready(definition: PipelineDefinition, run: RunRecord, settled: Collection[str]) -> tuple[str, ...]:
    """The stages, in the order of the file, that can begin: all that they need is settled, and the run goes on."""
    if failing_stage(definition, run) is not None:
        return ()
    begins = (StageState.PENDING, StageState.INTERRUPTED)
    free = (stage.name for stage in definition.stages if set(settled).issuperset(stage.needs))
    return tuple(name for name in free if run.stage(name).state in begins)


def failing_stage(definition: PipelineDefinition, run: RunRecord) -> StageRecord | None:
    """The first stage whose failure fails the run, or None: after it nothing new is begun."""
    tolerated = {stage.name for stage in definition.stages if stage.on_failure is model.OnFailure.CONTINUE}
    failed = (stage for stage in run.stages if stage.state is StageState.FAILED)
    return next((stage for stage in failed if stage.name not in tolerated), None)


def given_up(definition: PipelineDefinition, run: RunRecord) -> Mapping[str, str]:
    """The stages that have not begun and never will, each with the reason."""
    failing = failing_stage(definition, run)
    if failing is not None:
        why = f"not run, because the run failed at {failing.name}"
        return {stage.name: why for stage in run.stages if stage.state is StageState.PENDING}
    lost = {stage.name for stage in run.stages if stage.state in (StageState.FAILED, StageState.CANCELLED)}
    reasons: dict[str, str] = {}
    needs = {stage.name: stage.needs for stage in definition.stages}
    for name in TopologicalSorter(needs).static_order():
        if missing := [needed for needed in needs[name] if needed in lost]:
            lost.add(name)
            state = run.stage(name).state
            if state in (StageState.PENDING, StageState.COMPLETED):
                what = "not run" if state is StageState.PENDING else "its earlier work is not used"
                failed = any(run.stage(each).state is StageState.FAILED for each in missing)
                fate = "failed" if failed else "was not run"
                reasons[name] = f"{what}, because it needs {' and '.join(missing)}, which {fate}"
    return reasons


def revived(definition: PipelineDefinition, run: RunRecord) -> tuple[str, ...]:
    """The stages that were given up for the sake of others, and need not have been as things are now."""
    cancelled = {stage.name for stage in run.stages if stage.state is StageState.CANCELLED}
    stages = (replace(stage, state=StageState.PENDING) if stage.name in cancelled else stage for stage in run.stages)
    lost = given_up(definition, replace(run, stages=tuple(stages)))
    return tuple(stage.name for stage in run.stages if stage.name in cancelled and stage.name not in lost)


def conclusion(definition: PipelineDefinition, run: RunRecord) -> tuple[StageState, str]:
    """The state of a run in which nothing goes on any more, and the reason."""
    failing = failing_stage(definition, run)
    if failing is not None:
        return StageState.FAILED, f"{failing.name} failed: {failing.reason}"
    waiting = [stage for stage in run.stages if stage.state is StageState.AWAITING_APPROVAL]
    if waiting:
        words = "; ".join(f"{stage.name}: {stage.reason}" for stage in waiting)
        return StageState.AWAITING_APPROVAL, f"waiting for a person to decide on {words}"
    failed = ", ".join(stage.name for stage in run.stages if stage.state is StageState.FAILED)
    without = ", ".join(stage.name for stage in run.stages if stage.state is StageState.CANCELLED)
    completed = [stage for stage in run.stages if stage.state is StageState.COMPLETED]
    outdated = ", ".join(stage.name for stage in completed if stage.outdated)
    reasons = (
        f"without {failed}, which failed" if failed else "",
        f"{without} not run" if without else "",
        f"with the work that {outdated} did before the pipeline's files changed" if outdated else "",
    )
    return StageState.COMPLETED, "; ".join(filter(None, reasons))
