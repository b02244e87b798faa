"""Cerberus, an external reviewer: its review-gate asks several agents and agrees on one verdict."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import math
import os
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.errors import ProcessError, ProcessFailed, ProcessTimedOut
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.ports import Plan
from codeloupe.model.review import ReviewerInfo, Verdict
from codeloupe.reviewers.answers import INVALID_ANSWER
from codeloupe.reviewers.command import (
    FAILED,
    FATAL,
    MAX_OUTPUT_BYTES,
    TIMEOUT,
    ExternalReviewer,
    Reply,
    found_program,
    placed,
    reporters_of,
    tail,
    unexplained_verdict,
)
from codeloupe.reviewers.formats import GateDocument, gate_document, gate_parse_errors, read_gate_document
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, program_environment, run
from codeloupe.system.regex import regex

_GATE = "review-gate"
_ACTIVE = "a review was active in this session already; it was resolved, and its result was not used"
_STALE = "a review of another change was still active; codeloupe starts its own"
_SESSION_ID = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# The gate asks the vendors' programs. They get their keys and the places of their logins, and no other secret.
_LOGIN_NAMES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_HOME",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
)
# The exit codes with a verdict, and the meaning of other ones.
_VERDICTS = {0: (Verdict.PASS,), 1: (Verdict.FAIL, Verdict.NEEDS_WORK)}
_ENDINGS = {
    2: (INVALID_ANSWER, "invalid answer: the gate could not read the answers of its reviewers"),
    4: (FATAL, "the gate has no reviewers (install claude, codex or gemini)"),
    5: (FATAL, "the gate had an internal error"),
}
_UNREADABLE_CODE = 2
_TIMEOUT_CODE = 3


class _Ending(Struct, frozen=True):
    """How a wait for a review ended. `problem` says why there is no document that can be read."""

    completed: Completed
    document: GateDocument = GateDocument()
    problem: str = ""


class CerberusReviewer(ExternalReviewer):
    """Lets the review-gate review a range or a commit of a repository.

    Its verdict counts only if its exit code and its document agree, if none of its reviewers failed, and if findings on
    the reviewed files explain it.
    It reviews commits only, and only trusted ones, because it starts git and agents as the repository configures them.
    `state_directory` contains the lock between reviews. The gate stores its state under `session_id`, by default a new
    one. Raise ValueError for an id that is not a plain name, because the gate makes a path of it.
    """

    # The gate does not say how often it asks its agents, and what they cost.
    _usage = Usage(requests=1, unknown_costs=1)

    def __init__(
        self, settings: Settings, repo: Path, state_directory: Path, *, info: ReviewerInfo, session_id: str | None
    ) -> None:
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise ValueError(f"{session_id!r} is not a session id: use letters, digits, dots and dashes")
        self._settings = settings
        self._repo = repo
        self._state_directory = state_directory
        self._session_id = session_id
        self.info = info

    def _refusal(self, plan: Plan) -> str:
        scope = plan.change.scope
        if not plan.trusted:
            why = (
                "it starts git and agents as the reviewed repository configures them, so it reviews no untrusted change"
            )
            return f"{why} (choose another reviewer_type)"
        if scope.head is not None:
            return ""
        base = "BASE"
        if scope.base:
            base = scope.base[:12]
        why = f"the gate reviews commits only, and this is {scope.description}"
        return f"{why} (commit it, then review {base}..HEAD)"

    async def _ask(self, plan: Plan) -> Reply:
        deadline = time.monotonic() + plan.timeout_seconds
        hint = "install the Cerberus plugin, or set review_gate_path to its review-gate"
        program = found_program(self._settings.review_gate_path or _GATE, hint)
        repository = _top_of_work_tree(self._repo)
        with ExitStack() as stack:
            arguments = [*_exclude_arguments(plan)]
            # The gate refuses an empty context.
            if plan.intent.context.strip():
                file = stack.enter_context(temporary_directory()) / "context.md"
                file.write_text(plan.intent.context, encoding="utf-8", errors="replace")
                arguments += ["--context-file", str(file)]
            arguments += self._settings.review_gate_arguments
            # The selection comes last, because the gate takes any number of commits.
            arguments += _selection(plan.change.scope)
            gate = _Gate(program, tuple(arguments), repository, session_id=self._session_id, deadline=deadline)
            async with _lock(self._state_directory, repository, deadline=deadline):
                return await self._attempts(gate, plan)

    async def _attempts(self, gate: _Gate, plan: Plan) -> Reply:
        notes: list[str] = []
        if not await gate.spawn():
            notes.append(_ACTIVE)
            await gate.resolve()
            if not await gate.spawn():
                reason = "another review became active in this session (use a separate session)"
                return Reply(kind=FAILED, reason=reason)
        ending = await gate.wait()
        if ending.completed.exit_code in (_UNREADABLE_CODE, _TIMEOUT_CODE):
            notes.append(f"the first attempt failed: {_failure(ending).reason}")
            # If a review is still active, it is our own.
            await gate.spawn()
            ending = await gate.wait()
        return await asyncio.to_thread(self._read, ending, plan, notes)

    def _read(self, ending: _Ending, plan: Plan, notes: list[str]) -> Reply:
        answer = read_gate_document(ending.document)
        claims = placed(answer.claims, plan, reviewer=self.info.type)
        parse_errors = gate_parse_errors(ending.document)
        all_notes = (*notes, *parse_errors, *answer.invalid)
        raw = ending.completed.stdout.decode("utf-8", "replace")
        verdict = _agreed_verdict(ending)
        if verdict is None:
            return replace(_failure(ending), claims=claims, notes=all_notes, raw=raw)
        reply = Reply(claims=claims, notes=all_notes, raw=raw)
        if answer.problem:
            return replace(reply, kind=INVALID_ANSWER, reason=answer.problem)
        if parse_errors:
            return replace(reply, kind=FAILED, reason=f"one of its reviewers failed: {'; '.join(parse_errors)}")
        unexplained = unexplained_verdict(verdict, claims)
        if unexplained:
            return replace(reply, kind=FAILED, reason=unexplained)
        return replace(reply, completed=reporters_of(plan, self.info.type, claims))


def _top_of_work_tree(directory: Path) -> Path:
    """Return the directory that the gate's file patterns are relative to."""
    here = directory.resolve()
    for place in (here, *here.parents):
        if (place / ".git").exists():
            return place
    return here


def _selection(scope: Scope) -> tuple[str, ...]:
    if scope.kind is ScopeKind.COMMIT or scope.base is None:
        return ("--commit", scope.head or "")
    return (f"{scope.base}..{scope.head}",)


def _exclude_arguments(plan: Plan) -> list[str]:
    """Return arguments that exclude the other files of the change, under both of their names."""
    wanted: set[str | None] = set()
    for file in plan.files:
        wanted.update((file.old_path, file.new_path))
    arguments: list[str] = []
    for file in plan.change.files:
        for name in dict.fromkeys((file.old_path, file.new_path)):
            if name is None or name in wanted:
                continue
            wanted.add(name)
            # The gate reads a pattern, which must match this file only.
            pattern = re.sub(r"([*?\[\\])", r"\\\1", name)
            arguments += ["--exclude", pattern]
    return arguments


def _agreed_verdict(ending: _Ending) -> Verdict | None:
    """Return the verdict if the exit code and the document agree on one."""
    if not ending.document.has_ended:
        return None
    for verdict in _VERDICTS.get(ending.completed.exit_code, ()):
        if verdict.value == ending.document.consensus_verdict:
            return verdict
    return None


def _failure(ending: _Ending) -> Reply:
    """Return the meaning of an ending without a verdict."""
    code = ending.completed.exit_code
    document = ending.document
    if code == _TIMEOUT_CODE:
        words = "its reviewers did not finish in time (raise the time limit)"
        return Reply(kind=TIMEOUT, reason=TIMEOUT, words=words)
    if code in _VERDICTS and ending.problem:
        return Reply(kind=INVALID_ANSWER, reason=f"{ending.problem} (exit code {code})")
    if code in _VERDICTS:
        stated = f"its verdict {document.consensus_verdict!r} (status {document.status!r})"
        return Reply(kind=FAILED, reason=f"its exit code {code} and {stated} do not agree")
    kind, reason = _ENDINGS.get(code, (FAILED, f"the gate ended with exit code {code}"))
    because = "; ".join(gate_parse_errors(document)) or tail(ending.completed.stderr)
    if because:
        reason = f"{reason}: {because}"
    return Reply(kind=kind, reason=reason)


class _Gate:
    """The review-gate for one session, until a deadline of the monotonic clock. All methods raise ProcessError."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], repository: Path, *, session_id: str | None, deadline: float
    ) -> None:
        self._program = program
        self._arguments = arguments
        self._repository = repository
        self._session_id = session_id or str(uuid.uuid4())
        self._deadline = deadline

    async def spawn(self) -> bool:
        """Start a review. Return False if one is active in this session. Raise ProcessFailed if the gate refuses."""
        completed = await self._run(("spawn-code-review", "--max-rounds", "0", *self._arguments))
        if completed.exit_code == 0:
            return True
        said = f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}"
        if "already active" in said.lower():
            return False
        raise _refused(f"{_GATE} did not start the review, exit code {completed.exit_code}", completed)

    async def resolve(self) -> None:
        """End the active review of this session, even if it is not ours. Raise ProcessFailed if that fails."""
        completed = await self._run(("resolve", "--reason", _STALE))
        if completed.exit_code != 0:
            unresolved = f"another review is active in this session of the {_GATE}, and it could not be resolved"
            raise _refused(unresolved, completed, hint=f"run `{_GATE} resolve`, or give another session")

    async def wait(self) -> _Ending:
        """Wait for the review until the deadline and finalize it."""
        timeout = str(math.ceil(self._seconds_left()))
        words = ("wait", "--json", "--finalize", "--session-id", self._session_id, "--timeout", timeout)
        # The grace lets the gate itself report what it has at its timeout.
        completed = await self._run(words, grace=5.0)
        try:
            document = gate_document(completed.stdout.decode("utf-8", "replace"))
        except ValueError as error:
            return _Ending(completed, problem=str(error))
        return _Ending(completed, document)

    async def _run(self, argv: tuple[str, ...], *, grace: float = 0) -> Completed:
        # Not `stream`, which would end the gate's reviewers: they continue to run after a start.
        return await run(
            Command(
                argv=(self._program, *argv),
                cwd=self._repository,
                environment=program_environment(_LOGIN_NAMES, {"CLAUDE_SESSION_ID": self._session_id}),
                timeout_seconds=self._seconds_left() + grace,
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        )

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ProcessTimedOut(f"{_GATE} had no time left", program=_GATE, hint="raise the time limit")
        return left


def _refused(what: str, completed: Completed, *, hint: str = "") -> ProcessFailed:
    said = tail(f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}") or "it printed nothing"
    return ProcessFailed(f"{what}: {said}", program=_GATE, status=completed.exit_code, hint=hint)


@asynccontextmanager
async def _lock(state_directory: Path, repository: Path, *, deadline: float) -> AsyncIterator[None]:
    """Hold the lock of a repository: reviews that share the gate's state must not overlap. Raise ProcessError."""
    # The gate stores its state by the path of the repository.
    name = hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]
    try:
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_directory / f"{_GATE}-{name}.lock").open("ab")
    except OSError as error:
        why = f"a lock cannot be created in {state_directory}, so another review may be running ({error.strerror})"
        hint = "set CODELOUPE_HOME to a writable directory"
        raise ProcessError(why, program=_GATE, hint=hint) from error
    with file:
        while not _is_locked(file.fileno()):
            if time.monotonic() >= deadline:
                why = f"another review of {repository} by the {_GATE} did not finish in time"
                raise ProcessTimedOut(why, program=_GATE, hint="wait for it, or raise the time limit")
            await asyncio.sleep(0.05)
        yield


def _is_locked(descriptor: int) -> bool:
    """Try to lock a file. The lock belongs to this opening of the file, so it excludes our own process, too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
