"""Cerberus as a reviewer: its review-gate asks several agents and tells what they agree on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from codeloupe.engine.ask import INVALID_ANSWER
from codeloupe.engine.external.gate import PROGRAM, Gate, Waited, checked_session_id, excluded
from codeloupe.engine.external.gate_lock import gate_lock
from codeloupe.engine.external.placing import place
from codeloupe.engine.external.reply import (
    FAILED,
    FATAL,
    TIMEOUT,
    Failure,
    Reply,
    could_not_run,
    failed,
    outcome_of,
    tail,
)
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.verdict import judge
from codeloupe.errors import ProcessError, ProgramNotFound
from codeloupe.model.answer import ReviewAnswer
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewerInfo, Verdict
from codeloupe.model.usage import Usage
from codeloupe.system.command import find_program
from codeloupe.system.temporary import temporary_directory

_log = logging.getLogger(__name__)
_ATTEMPTS = 2
_RETRYABLE = {2, 3}
_ACTIVE = "a review was active in this session already; it was resolved, and its result was not taken"
_ORDER = (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.FAIL)


class GatePlace(Struct, frozen=True, kw_only=True):
    """Where the gate runs: the repository with the commits, and the directory for the lock between reviews.

    `session_id` is the session it keeps its state under, by default a new one. Raises ValueError for one that is no
    plain name.
    """

    repo: Path
    state_directory: Path
    session_id: str | None = None

    def __post_init__(self) -> None:
        if self.session_id is not None:
            checked_session_id(self.session_id)


class CerberusReviewer:
    """Has the review-gate review a range or a commit of the repository.

    Its verdict counts only when its exit code and its document agree, and when findings on the reviewed files explain
    it. It reviews commits alone, and trusted ones alone: it starts git and agents as the repository configures them.
    """

    def __init__(self, program: str | None, arguments: Sequence[str], *, info: ReviewerInfo, place: GatePlace) -> None:
        self._program = program or PROGRAM
        self._arguments = tuple(arguments)
        self._info = info
        self._place = place

    @property
    def info(self) -> ReviewerInfo:
        """Its type and why it was chosen."""
        return self._info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the whole change in one run. Failures are in the outcome; only cancellation is raised."""
        refusal = _refusal(task)
        if refusal is not None:
            return outcome_of(refusal, task, lane=self._info.type, usage=Usage(), emit=emit)
        started = time.monotonic()
        try:
            reply = await self._ask(task, deadline=started + task.timeout_seconds)
        except ProcessError as error:
            reply = could_not_run(error)
        except Exception as error:  # noqa: BLE001 - whatever its output leads to, it is this reviewer that failed
            _log.warning("the reviewer %s failed", self._info.type, exc_info=True)
            reply = failed(FAILED, f"unexpected error: {type(error).__name__}: {error}")
        # How often it asks its agents, and what they cost, is not told.
        usage = Usage(requests=1, unknown_costs=1, duration_seconds=time.monotonic() - started)
        return outcome_of(reply, task, lane=self._info.type, usage=usage, emit=emit)

    async def _ask(self, task: ReviewTask, *, deadline: float) -> Reply:
        program = _found(self._program)
        repository = _root(self._place.repo)
        gate = Gate(program, repository=repository, session_id=self._place.session_id, deadline=deadline)
        with _context_file(task.intent.context) as context:
            arguments = (*excluded(_left_out(task)), *context, *self._arguments, *_selected(task.change.scope))
            async with gate_lock(self._place.state_directory, repository, deadline=deadline):
                return await self._attempts(gate, arguments, task)

    async def _attempts(self, gate: Gate, arguments: tuple[str, ...], task: ReviewTask) -> Reply:
        notes: list[str] = []
        for attempt in range(1, _ATTEMPTS + 1):
            # In the second attempt the one that is active is our own, of the first.
            if not await gate.spawn(arguments) and attempt == 1:
                notes.append(_ACTIVE)
                await gate.resolve()
                if not await gate.spawn(arguments):
                    return failed(FAILED, "another review became active in this session (give it one of its own)")
            waited = await gate.wait()
            if waited.exit_code not in _RETRYABLE or attempt == _ATTEMPTS:
                return await asyncio.to_thread(self._read, waited, task, notes)
            notes.append(f"the first attempt failed: {_failure(waited).reason}")
        raise AssertionError("the last attempt returns")

    def _read(self, waited: Waited, task: ReviewTask, notes: list[str]) -> Reply:
        told = (*notes, *waited.parse_errors)
        if not waited.document:
            return Reply(failure=_failure(waited), notes=told, raw=waited.output)
        # Reviewers of the gate that failed are told of as notes: the others made its verdict.
        answer = read_review_answer("", structured={**waited.document, "parse_errors": []})
        findings = place(answer.findings, task, reviewer=self._info.type)
        failure = _unexplained(waited, answer, findings)
        raw = waited.output if failure is not None else ""
        return Reply(findings=findings, failure=failure, notes=(*told, *answer.dropped), raw=raw)


def _failure(waited: Waited) -> Failure:
    """What an ending without a verdict means."""
    match waited.exit_code:
        case 0 | 1 if not waited.document:
            return Failure(INVALID_ANSWER, f"invalid json: exit code {waited.exit_code}, but no JSON document")
        case 0 | 1:
            said, status = waited.document.get("consensus_verdict"), waited.document.get("status")
            agree = f"its exit code {waited.exit_code} and its verdict {said!r} (status {status!r}) do not agree"
            return Failure(FAILED, agree)
        case 2:
            return Failure(
                INVALID_ANSWER, f"invalid answer: the gate could not read what its reviewers said{_because(waited)}"
            )
        case 3:
            return Failure(TIMEOUT, TIMEOUT, "its reviewers did not finish in time (raise the time limit)")
        case 4:
            return Failure(FATAL, f"the gate has no reviewers (install claude, codex or gemini){_because(waited)}")
        case 5:
            return Failure(FATAL, f"the gate had an internal error{_because(waited)}")
        case _:
            return Failure(FAILED, f"the gate ended with exit code {waited.exit_code}{_because(waited)}")


def _because(waited: Waited) -> str:
    words = "; ".join(waited.parse_errors) or tail(waited.stderr)
    return f": {words}" if words else ""


def _unexplained(waited: Waited, answer: ReviewAnswer, findings: tuple[Finding, ...]) -> Failure | None:
    """Why a document must not count as a whole review, or None.

    A verdict may be due to findings that could not be read or placed; it must not be lost with them.
    """
    verdict = waited.verdict
    if verdict is None:
        return _failure(waited)
    if answer.problem is not None:
        return Failure(INVALID_ANSWER, answer.problem)
    judged = judge(findings, complete=True)
    if _ORDER.index(verdict) > _ORDER.index(judged):
        return Failure(
            FAILED, f"its verdict is {verdict.value}, but its findings on reviewed files give {judged.value}"
        )
    return None


def _refusal(task: ReviewTask) -> Reply | None:
    if not task.trusted:
        return failed(
            FAILED,
            "it starts git and agents as the reviewed repository configures them, so it gets no untrusted change"
            " (choose another reviewer_type)",
        )
    scope = task.change.scope
    if scope.head is None:
        base = scope.base[:12] if scope.base else "BASE"
        return failed(
            FAILED,
            f"the gate reviews commits only, and this is {scope.description} (commit it, then review {base}..HEAD)",
        )
    return None


def _selected(scope: Scope) -> tuple[str, ...]:
    """What is to be reviewed, in object names alone. The last arguments: the gate takes any number of commits."""
    head = scope.head or ""
    if scope.kind is ScopeKind.COMMIT or scope.base is None:
        return ("--commit", head)
    return (f"{scope.base}..{head}",)


def _left_out(task: ReviewTask) -> list[str]:
    """Files of the change that are not to be reviewed, under both of their names."""
    wanted = {name for file in task.files for name in (file.old_path, file.new_path)}
    names = dict.fromkeys(name for file in task.change.files for name in (file.old_path, file.new_path) if name)
    return [name for name in names if name not in wanted]


def _found(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise ProgramNotFound(
            f"there is no program {name}",
            program=PROGRAM,
            hint="install the Cerberus plugin, or set review_gate_path to its review-gate",
        )
    return str(Path(found).absolute())


def _root(repo: Path) -> Path:
    """The top of the work tree: the gate takes patterns of files from where it is."""
    here = repo.resolve()
    return next((place for place in (here, *here.parents) if (place / ".git").exists()), here)


@contextmanager
def _context_file(context: str) -> Iterator[tuple[str, ...]]:
    """The arguments that hand over the context; the gate refuses an empty one."""
    if not context.strip():
        yield ()
        return
    with temporary_directory() as directory:
        file = directory / "context.md"
        file.write_text(context, encoding="utf-8", errors="replace")
        yield ("--context-file", str(file))
