"""Any program as a reviewer: a unified diff on stdin, findings on stdout."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codeloupe.engine.ask import INVALID_ANSWER
from codeloupe.engine.external.placing import place
from codeloupe.engine.external.reply import FAILED, Failure, Reply, could_not_run, failed, outcome_of, tail
from codeloupe.engine.external.unified_diff import unified_diff
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.errors import ProcessError, ProgramNotFound
from codeloupe.model.answer import ReviewAnswer
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewerInfo, Verdict
from codeloupe.model.usage import Usage
from codeloupe.system.command import Command, Completed, find_program
from codeloupe.system.environment import program_environment
from codeloupe.system.streaming import stream
from codeloupe.system.temporary import temporary_directory

_log = logging.getLogger(__name__)
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024


class CommandReviewer:
    """Runs a program on the diff of a change and reads what it prints.

    It may print JSON in any known shape, SARIF, Markdown bullets or `path:line:col: severity: message` lines. It runs
    in the reviewed tree, or in an empty directory when the change is not trusted, and sees of our variables the usual
    ones and those in `environment_names`. An exit code other than 0 is no failure when findings were printed, as
    linters do. Printing nothing is one, since a program that did not work prints nothing too, unless
    `silence_is_clean` says that this program has nothing to say about clean code.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        info: ReviewerInfo,
        silence_is_clean: bool = False,
        environment_names: Sequence[str] = (),
    ) -> None:
        if not argv or not argv[0]:
            raise ValueError("a command has at least the name of a program")
        self._argv = tuple(argv)
        self._info = info
        self._silence_is_clean = silence_is_clean
        self._environment_names = tuple(environment_names)

    @property
    def info(self) -> ReviewerInfo:
        """Its type and why it was chosen."""
        return self._info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the whole change in one run. Failures are in the outcome; only cancellation is raised."""
        started = time.monotonic()
        try:
            completed = await self._run(task)
            # Reading takes time that the event loop should not wait for when there is much of it.
            reply = await asyncio.to_thread(self._read, completed, task)
        except ProcessError as error:
            reply = could_not_run(error)
        except Exception as error:  # noqa: BLE001 - whatever its output leads to, it is this reviewer that failed
            _log.warning("the reviewer %s failed", self._info.type, exc_info=True)
            reply = failed(FAILED, f"unexpected error: {type(error).__name__}: {error}")
        usage = Usage(duration_seconds=time.monotonic() - started)
        return outcome_of(reply, task, lane=self._info.type, usage=usage, emit=emit)

    async def _run(self, task: ReviewTask) -> Completed:
        program = self._program(trusted=task.trusted)
        with _directory(task) as directory:
            command = Command(
                argv=(program, *self._argv[1:]),
                cwd=directory,
                environment=program_environment(self._environment_names),
                timeout_seconds=task.timeout_seconds,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                stdin=unified_diff(task.files),
            )
            return await stream(command)

    def _program(self, *, trusted: bool) -> str:
        name = self._argv[0]
        if "/" in name and not Path(name).is_absolute() and not trusted:
            raise ProcessError(
                f"{name} is a relative path, which may lead into the untrusted change",
                program=name,
                hint="name the program by an absolute path, or by a name on the PATH",
            )
        found = find_program(name)
        if found is None:
            raise ProgramNotFound(
                f"there is no program {name}", program=name, hint="install it, or name it by an absolute path"
            )
        # It is started in the reviewed tree, not where we are.
        return str(Path(found).absolute())

    def _read(self, completed: Completed, task: ReviewTask) -> Reply:
        if completed.stdout_truncated:
            return failed(FAILED, f"it wrote more than {_MAX_OUTPUT_BYTES:,} bytes, so its output is not whole")
        output = completed.stdout.decode("utf-8", "replace")
        if not output.strip():
            return self._read_silence(completed)
        answer = read_review_answer(output, from_program=True)
        findings = place(answer.findings, task, reviewer=self._info.type)
        problem = _problem(completed, answer, can_block=any(finding.can_block for finding in findings))
        raw = output if problem is not None else ""
        return Reply(findings=findings, failure=problem, notes=answer.dropped, raw=raw)

    def _read_silence(self, completed: Completed) -> Reply:
        if completed.exit_code != 0:
            return failed(FAILED, _ending(completed))
        if self._silence_is_clean:
            return Reply()
        return failed(INVALID_ANSWER, "empty output")


def _problem(completed: Completed, answer: ReviewAnswer, *, can_block: bool) -> Failure | None:
    """Why an output must not count as a whole review, or None."""
    if answer.problem is not None:
        words = f"{answer.problem}; {_ending(completed)}" if completed.exit_code else answer.problem
        return Failure(INVALID_ANSWER, answer.problem, words)
    if completed.exit_code < 0 or (completed.exit_code and not answer.findings):
        return Failure(FAILED, _ending(completed))
    if completed.exit_code and not can_block:
        return Failure(FAILED, f"no finding on the reviewed files says why {_ending(completed)}")
    if answer.verdict not in (None, Verdict.PASS.value) and not can_block:
        return Failure(FAILED, f"its verdict is {answer.verdict}, but no finding on the reviewed files says why")
    return Failure(INVALID_ANSWER, answer.lost) if answer.lost else None


def _ending(completed: Completed) -> str:
    how = f"exit code {completed.exit_code}" if completed.exit_code >= 0 else f"signal {-completed.exit_code}"
    words = tail(completed.stderr)
    return f"it ended with {how}: {words}" if words else f"it ended with {how}"


@contextmanager
def _directory(task: ReviewTask) -> Iterator[Path]:
    """Where a command runs. Programs read settings from where they are, and those of strangers may run anything."""
    if task.trusted:
        yield task.tree or task.snapshot
        return
    with temporary_directory() as directory:
        yield directory
