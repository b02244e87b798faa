"""Joint calls: one call of an analyser for the targets of several commits.

While an analyser runs, the targets of further commits wait, and its next call analyses all of them together. A joint
call decides only about a target whose files it could all analyse. If it fails, or a file of a target fails in it, that
target is analysed by itself, so that one commit cannot make another one fail. A single target, as in a review, is
analysed as it is.

Targets go together if their roots are folders of the same directory. In the joint call, each file is named by the
folder of its root and its own path, so that every part of the repository's path stays what it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget
from codeloupe.system.process import uninterrupted

_Value = TypeVar("_Value")

# Limits of one joint call: enough that the start of a program no longer matters, and little enough for the memory.
_MOST_FILES = 400
_MOST_BYTES = 8_000_000
# The share of a target's time limit that a joint call may take. After that, each target is analysed alone.
_JOINT_SHARE = 0.2
# Targets that are analysed by themselves at the same time after a joint call failed.
_ALONE_AT_ONCE = 4


class _Waiting(Struct, eq=False):
    """A target, its answer, and the call that analyses it, once that has begun."""

    target: AnalysisTarget
    answer: asyncio.Future[AnalyserReport]
    call: _Call | None = None


class _Call(Struct, eq=False):
    """A running call and the targets that it analyses."""

    members: Sequence[_Waiting]
    task: asyncio.Task[None]

    @property
    def is_abandoned(self) -> bool:
        """Return whether all callers were answered or cancelled."""
        return all(member.answer.done() for member in self.members)


class JointCalls:
    """The calls of one analyser, one at a time; each analyses the targets that came during the call before it."""

    def __init__(self, analyser: Analyser) -> None:
        self.analyser = analyser
        self._queue: list[_Waiting] = []
        self._running: _Call | None = None

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Return the analyser's report on a target. Raise as the analyser does, and TimeoutError at its time limit.

        The time limit starts with the call, not while the target waits for it. A caller that is cancelled takes nothing
        from the others; if all callers of a call are cancelled, the call ends before this function does.
        """
        waiting = _Waiting(target, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._start_next()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            call = waiting.call
            if call is None:
                self._queue.remove(waiting)
            elif call.is_abandoned:
                call.task.cancel()
                await uninterrupted(_ended(call.task))
            raise

    def _start_next(self) -> None:
        """Start the call for the targets that wait, unless a call is running."""
        if self._running is not None or not self._queue:
            return
        members = _next_members(self._queue)
        chosen = set(map(id, members))
        self._queue = [waiting for waiting in self._queue if id(waiting) not in chosen]
        call = _Call(members, asyncio.create_task(self._answer(members)))
        for member in members:
            member.call = call
        self._running = call
        call.task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        """Start the next call after one has ended. An answer is missing only if the analyser cancelled itself."""
        call = self._running
        self._running = None
        if not task.cancelled():
            task.exception()
        if call is not None:
            for member in call.members:
                member.answer.cancel()
        self._start_next()

    async def _answer(self, members: Sequence[_Waiting]) -> None:
        """Answer all members of a call."""
        left = list(members)
        if len(members) > 1:
            reports = await self._reports_together([member.target for member in members])
            left = []
            for member, report in zip(members, reports, strict=True):
                if report is None or report.failed:
                    left.append(member)
                elif not member.answer.done():
                    member.answer.set_result(report)
        places = asyncio.Semaphore(_ALONE_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for member in left:
                group.create_task(self._answer_alone(member, places))

    async def _reports_together(self, targets: Sequence[AnalysisTarget]) -> list[AnalyserReport | None]:
        """Return a report for each target, or None for all of them if the joint call fails."""
        target = _joined(targets)
        try:
            async with asyncio.timeout(target.timeout_seconds):
                report = await self.analyser.analyse(target)
            return [_part_of(report, each.root.name) for each in targets]
        except Exception:  # noqa: BLE001 - each target gets a call of its own, which reports its failure
            return [None] * len(targets)

    async def _answer_alone(self, member: _Waiting, places: asyncio.Semaphore) -> None:
        """Analyse one target alone, and answer with the report or the error."""
        async with places:
            if member.answer.done():
                return
            try:
                async with asyncio.timeout(member.target.timeout_seconds):
                    report = await self.analyser.analyse(member.target)
            except Exception as error:  # noqa: BLE001 - the caller gets every error as it is
                if not member.answer.done():
                    member.answer.set_exception(error)
            else:
                if not member.answer.done():
                    member.answer.set_result(report)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))


def _next_members(queue: Sequence[_Waiting]) -> list[_Waiting]:
    """Return the first target that waits, and those after it that fit into one call with it."""
    first = queue[0]
    members = [first]
    if not _can_be_joined(first.target):
        return members
    names = {first.target.root.name}
    files = len(first.target.files)
    size = _size_of(first.target)
    for waiting in queue[1:]:
        target = waiting.target
        if not _can_be_joined(target) or not _is_alike(first.target, target) or target.root.name in names:
            continue
        files += len(target.files)
        size += _size_of(target)
        if files > _MOST_FILES or size > _MOST_BYTES:
            break
        names.add(target.root.name)
        members.append(waiting)
    return members


def _can_be_joined(target: AnalysisTarget) -> bool:
    """Return whether a target needs nothing of its own beyond its files."""
    return target.moment_of is None


def _is_alike(one: AnalysisTarget, other: AnalysisTarget) -> bool:
    """Return whether two targets are analysed in the same way, from folders of the same directory."""
    is_same_way = one.trusted == other.trusted and one.timeout_seconds == other.timeout_seconds
    return is_same_way and one.root.parent == other.root.parent


def _size_of(target: AnalysisTarget) -> int:
    """Return the size of a target's files in bytes. A file that cannot be read has none; the analyser reports it."""
    size = 0
    for file in target.files:
        try:
            size += (target.root / file).lstat().st_size
        except (OSError, ValueError):
            continue
    return size


def _joined(targets: Sequence[AnalysisTarget]) -> AnalysisTarget:
    """Return one target with the files of all, each below the folder of its root."""
    first = targets[0]
    files: list[str] = []
    added_lines: dict[str, frozenset[int]] = {}
    added_text: dict[str, Mapping[int, bytes]] = {}
    for target in targets:
        folder = target.root.name
        files += (f"{folder}/{file}" for file in target.files)
        added_lines |= _below(folder, target.added_lines)
        added_text |= _below(folder, target.added_text)
    return replace(
        first,
        root=first.root.parent,
        files=tuple(files),
        added_lines=added_lines,
        added_text=added_text,
        timeout_seconds=first.timeout_seconds * _JOINT_SHARE,
    )


def _part_of(report: AnalyserReport, folder: str) -> AnalyserReport:
    """Return the part of a joint report about the files below a folder, by their own paths."""
    prefix = f"{folder}/"
    issues = [issue for issue in report.issues if issue.file.startswith(prefix)]
    return AnalyserReport(
        issues=tuple(replace(issue, file=issue.file.removeprefix(prefix)) for issue in issues),
        failed=_inside(prefix, report.failed),
        sensitive=_inside(prefix, report.sensitive),
        quiet=_inside(prefix, report.quiet),
    )


def _below(folder: str, by_file: Mapping[str, _Value]) -> dict[str, _Value]:
    return {f"{folder}/{file}": value for file, value in by_file.items()}


def _inside(prefix: str, by_file: Mapping[str, _Value]) -> dict[str, _Value]:
    return {file.removeprefix(prefix): value for file, value in by_file.items() if file.startswith(prefix)}
