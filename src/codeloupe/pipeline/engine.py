"""A run from wherever its record stands to its end: stages in the order of their needs, independent ones at once.

The engine decides nothing by memory: what comes next follows from the record alone, which is written after every step.
So a run that was killed is picked up by a new engine on the same record. A stage that waits for a person does not keep
others from going on, unless they need it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, WorkspaceError
from codeloupe.model.pipeline import NO_RESULT, Approval, Decision, RunRecord, StageRecord, StageState
from codeloupe.model.pipeline_definition import StageDefinition
from codeloupe.pipeline.attempting import built_on, chosen_trees, kept_answers, own_answers
from codeloupe.pipeline.changes import kept_in_words, reopened
from codeloupe.pipeline.descent import ancestors
from codeloupe.pipeline.handwork import spare_handwork
from codeloupe.pipeline.lifecycle import Lifecycle, tried_again
from codeloupe.pipeline.purse import with_lost
from codeloupe.pipeline.scheduling import Conclusion, conclusion, failing_stage, given_up, ready, revived
from codeloupe.pipeline.states import ENDED_STATES, LIVE_STATES
from codeloupe.pipeline.surroundings import Surroundings
from codeloupe.pipeline.words import in_words, word_event

RESULT_PATCH = "result.patch"
_INTERRUPTED = "the run was interrupted"
_DIED = "the process that ran it died"
_RETRIED = (StageState.FAILED, StageState.COMPLETED)
# A stage that is at work has begun with what there is now.
_AT_REST = (StageState.COMPLETED, StageState.PENDING, StageState.INTERRUPTED, StageState.AWAITING_APPROVAL)


class Engine:
    """Runs one run, whose lock the caller holds, in one event loop."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._book = around.book
        self._definition = around.definition
        # In the user's own tree one stage works at a time, from its beginning to its end.
        self._turn = asyncio.Lock() if around.is_checkout else None
        self._slots = asyncio.Semaphore(self._definition.max_parallel)
        built = ancestors(self._definition)
        self._in_order = sorted(self._definition.stages, key=lambda stage: len(built[stage.name]))
        self._settled: frozenset[str] = frozenset()
        self._told: set[str] = set()

    async def run(self) -> RunRecord:
        """Go on until nothing in the run can, and return its record: completed, failed, or waiting for a person.

        A run that is at its end stays as it is, unless a person had one of its stages tried again or accepted changes
        that leave something to do. A cancellation, and any error that is not a stage's, is raised when every agent is
        gone and the record says that the run was interrupted; then it can be resumed.
        """
        await self._put_back()
        if await self._is_at_its_end():
            return self._book.run
        try:
            self._take_over()
            await self._settle()
            await self._work()
            await self._conclude()
        except BaseException as error:  # whatever it was, the record must not say that the run goes on
            self._interrupt(_INTERRUPTED if isinstance(error, asyncio.CancelledError) else f"stopped by {error!r}")
            raise
        return self._book.run

    async def _put_back(self) -> None:
        """Put back each stage at its end that a person had tried again. A completed one begins from its start."""
        book = self._book
        for stage in book.run.stages:
            word = self._around.left_word(stage.name) if stage.state in _RETRIED else None
            if word is not None and word.decision is Decision.RETRY:
                await spare_handwork(self._around, stage)
                again = tried_again(stage, word)
                if stage.state is StageState.COMPLETED:
                    again = reopened(again, "")
                book.move(again, StageState.PENDING, word_event(book, word))

    async def _is_at_its_end(self) -> bool:
        run = self._book.run
        if run.state is StageState.FAILED:
            return failing_stage(self._definition, run) is not None
        if run.state is StageState.COMPLETED:
            await self._settle()
            # A change that was accepted may have added a stage, or put one back.
            return all(stage.state in ENDED_STATES for stage in self._book.run.stages)
        return run.state is StageState.CANCELLED

    async def _settle(self) -> None:
        """Find the stages whose work holds, and put back each that was made from other work than there is now.

        One rule for whatever was edited or run again: a stage holds if those that it needs hold, and what they have
        left is what it began with. While one of those is still to run, that is not decided.
        """
        settled: set[str] = set()
        for stage in self._in_order:
            record = self._book.stage(stage.name)
            if not settled.issuperset(stage.needs):
                continue
            has_begun = record.start_tree or record.built_on
            if has_begun and record.state in _AT_REST and (why := await self._why_stale(stage, record)):
                await self._reopen(record, why)
                continue
            self._tell_kept(record)
            if record.state is StageState.COMPLETED:
                settled.add(stage.name)
        self._settled = frozenset(settled)

    async def _reopen(self, record: StageRecord, why: str) -> None:
        told = [self._book.event("note", why, stage=record.name)]
        note = record.person_note
        if record.state is StageState.AWAITING_APPROVAL:
            await spare_handwork(self._around, record)
            # A word that was left is about work that is made again: it approves nothing that nobody has seen.
            word = self._around.left_word(record.name)
            if word is not None and word.decision is Decision.RETRY:
                note = word.note.strip()
            elif word is not None:
                words = f"{in_words(word)}, which was about its earlier work; you will be asked again"
                told.append(self._book.event("note", words, stage=record.name))
        self._book.move(replace(reopened(record, why), person_note=note), StageState.PENDING, *told)

    def _tell_kept(self, record: StageRecord) -> None:
        """Tell once of a stage that keeps the work of another definition, and of one that is judged again."""
        if record.name in self._told or record.state not in _AT_REST or not record.attempts:
            return
        self._told.add(record.name)
        judged = record.reason if record.state is StageState.PENDING else ""
        for words in filter(None, (judged, kept_in_words(record, self._book.run.run_id))):
            self._book.tell(self._book.event("note", words, stage=record.name))

    async def _why_stale(self, stage: StageDefinition, record: StageRecord) -> str:
        """Why a stage's work no longer fits what it builds on; nothing where it does."""
        now = built_on(self._around, stage)
        if self._around.is_checkout or not record.start_tree:
            # Its tree is the user's, and changes with every stage; or what it needs could not be joined.
            is_stale = bool(record.built_on) and record.built_on != now
        else:
            try:
                is_stale = (
                    await self._around.descent.together(stage.needs, chosen_trees(self._around)) != record.start_tree
                )
            except WorkspaceError as error:
                if error.__cause__ is not None:
                    raise
                is_stale = True  # they cannot be joined, which the stage itself will tell
        if not is_stale:
            return ""
        return f"it runs again: {'; '.join(_what_changed(record.built_on, now)) or 'what it builds on has changed'}"

    def _take_over(self) -> None:
        """Say that the run goes on, and mark what a process that died left as under way."""
        run = self._book.run
        kind = "run_started" if run.state is StageState.PENDING else "run_resumed"
        self._book.move_run(StageState.RUNNING, self._book.event(kind, pipeline=run.pipeline), reason="")
        for name in revived(self._definition, run):
            self._book.move(self._book.stage(name), StageState.PENDING, reason="")
        for stage in run.stages:
            if stage.state in LIVE_STATES and stage.state is not StageState.AWAITING_APPROVAL:
                died = f"{_DIED} while it was {stage.state.value}"
                self._book.move(with_lost(stage), StageState.INTERRUPTED, reason=died)
        for stage in self._book.run.stages:
            # Taken now: left where it is, it would be the answer to a question that was not asked yet.
            word = self._around.left_word(stage.name) if stage.state is StageState.INTERRUPTED else None
            if word is not None and word.decision is Decision.RETRY:
                self._book.put(tried_again(stage, word), word_event(self._book, word))

    async def _work(self) -> None:
        """Keep every stage going that can go."""
        asked: set[str] = set()
        tasks: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                for name, word in self._startable(asked, busy=set(tasks.values())):
                    tasks[asyncio.create_task(self._stage(name, word))] = name
                    asked.add(name)
                if not tasks:
                    return
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.pop(task)
                    if not task.cancelled():
                        task.result()
                self._give_up()
                await self._settle()
                self._stop_waiting(tasks)
        finally:
            await _ended(tasks)

    def _startable(self, asked: set[str], *, busy: set[str]) -> Iterator[tuple[str, Approval | None]]:
        """The stages that can begin or go on. One that waits was asked about once, and goes on when a word was left."""
        run = self._book.run
        for name in ready(self._definition, run, self._settled):
            if name not in busy:
                yield name, None
        for stage in self._waiting():
            if stage.name in busy or failing_stage(self._definition, run) is not None:
                continue
            if not self._settled.issuperset(stage.needs):
                continue  # what it waits with may have to be made again
            is_escalated = stage.wants_approval == "escalation"
            word = self._around.left_word(stage.name) if is_escalated else None
            if word is not None or stage.name not in asked:
                yield stage.name, word

    def _stop_waiting(self, tasks: dict[asyncio.Task[None], str]) -> None:
        """Ask nobody any more about a run that has failed."""
        if failing_stage(self._definition, self._book.run) is not None:
            waiting = {stage.name for stage in self._waiting()}
            for task, name in tasks.items():
                if name in waiting:
                    task.cancel()

    def _waiting(self) -> tuple[StageRecord, ...]:
        return tuple(stage for stage in self._book.run.stages if stage.state is StageState.AWAITING_APPROVAL)

    async def _stage(self, name: str, word: Approval | None) -> None:
        definition = next(stage for stage in self._definition.stages if stage.name == name)
        async with self._own_turn():
            await Lifecycle(definition, self._around, self._slots, word).live()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        if self._turn is None:
            yield
            return
        async with self._turn:
            yield

    def _give_up(self) -> None:
        for name, reason in given_up(self._definition, self._book.run).items():
            self._book.move(self._book.stage(name), StageState.CANCELLED, reason=reason)

    async def _conclude(self) -> None:
        """The run's last state, once its result lies where people look for it."""
        self._give_up()
        await self._settle()
        outcome = conclusion(self._definition, self._book.run)
        if outcome.state is not StageState.AWAITING_APPROVAL:
            outcome = await self._with_result(outcome)
        ended = self._book.event("run_ended", outcome.reason, state=outcome.state.value)
        self._book.move_run(outcome.state, ended, reason=ended.message)

    async def _with_result(self, outcome: Conclusion) -> Conclusion:
        around = self._around
        base = self._book.run.base_tree
        try:
            tree = await self._result_tree(base)
            if not around.is_checkout:
                await around.workspaces.put(tree, around.places.result)
            for name, text in kept_answers(around, self._settled).items():
                around.places.write(f"{around.places.result.name}/{name}", text)
            around.places.write(RESULT_PATCH, await around.workspaces.diff(base, tree, without=own_answers(around)))
        except (CodeloupeError, OSError) as error:
            words = error.message if isinstance(error, CodeloupeError) else str(error)
            hint = f" ({error.hint})" if isinstance(error, CodeloupeError) and error.hint else ""
            before = f"{outcome.reason}; " if outcome.reason else ""
            return Conclusion(StageState.FAILED, f"{before}{NO_RESULT}: {words}{hint}")
        return outcome

    async def _result_tree(self, base: str) -> str:
        around = self._around
        if around.places.checkout is not None:
            return (await around.workspaces.keep(around.places.checkout)).tree
        trees = {name: tree for name, tree in chosen_trees(around).items() if name in self._settled}
        return await around.descent.together(trees, trees) if trees else base

    def _interrupt(self, reason: str) -> None:
        # The error that led here is the one to tell; a record that cannot be written is found as it is by `resume`.
        with contextlib.suppress(CodeloupeError):
            for stage in self._book.run.stages:
                if stage.state in LIVE_STATES and stage.state is not StageState.AWAITING_APPROVAL:
                    self._book.move(with_lost(stage), StageState.INTERRUPTED, reason=reason)
            if self._book.run.state is StageState.RUNNING:
                ended = self._book.event("run_ended", reason, state=StageState.INTERRUPTED.value)
                self._book.move_run(StageState.INTERRUPTED, ended, reason=reason)


def _what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """What a stage builds on now and did not when it began. An older version did not write the latter down."""
    if not before:
        return
    if new := [name for name in now if name not in before]:
        yield f"it needs {' and '.join(new)} now"
    if gone := [name for name in before if name not in now]:
        yield f"it no longer needs {' and '.join(gone)}"
    if changed := [name for name, tree in now.items() if name and before.get(name, tree) != tree]:
        yield f"the work of {' and '.join(changed)} has changed since it began"


async def _ended(tasks: dict[asyncio.Task[None], str]) -> None:
    """End what still runs and wait for it, however often we are cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not log it as lost
    if cancelled is not None:
        raise cancelled
