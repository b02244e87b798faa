"""Cerberus as a reviewer: its review-gate asks several agents and reports what they agree on."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import math
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.ask import INVALID_ANSWER
from codeloupe.engine.external import command
from codeloupe.engine.external.command import FAILED, FATAL, TIMEOUT, ExternalReviewer, Reply, failed, tail
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.verdict import judge
from codeloupe.errors import ProcessError, ProcessFailed, ProcessTimedOut
from codeloupe.model.agent import Usage
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding
from codeloupe.model.ports import ReviewTask
from codeloupe.model.review import ReviewerInfo, Verdict
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, program_environment, run
from codeloupe.system.regex import regex

PROGRAM = "review-gate"
_Document = Mapping[str, Any]
_ACTIVE = "a review was active in this session already; it was resolved, and its result was not taken"
_STALE = "a review of another change was left active; codeloupe starts its own"
_ORDER = (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.FAIL)
_SESSION_ID = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Its reviewers are the vendors' programs; their keys and where their logins are is all that they get.
_LOGIN_NAMES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CONFIG_DIR", "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)
_VERDICTS = {0: (Verdict.PASS,), 1: (Verdict.FAIL, Verdict.NEEDS_WORK)}
# What other exit codes mean.
_ENDINGS = {
    2: (INVALID_ANSWER, "invalid answer: the gate could not read what its reviewers said"),
    4: (FATAL, "the gate has no reviewers (install claude, codex or gemini)"),
    5: (FATAL, "the gate had an internal error"),
}


class CerberusReviewer(ExternalReviewer):
    """Has the review-gate review a range or a commit of a repository.

    Its verdict counts only when its exit code and its document agree, and when findings on the reviewed files explain
    it. It reviews commits alone, and trusted ones alone: it starts git and agents as the repository configures them.
    In `state_directory` is the lock between reviews. The gate keeps its state under `session_id`, by default a new one.
    Raises ValueError for one that is no plain name: the gate makes a path of it.
    """

    # The gate does not say how often it asks its agents, and what they cost.
    _usage = Usage(requests=1, unknown_costs=1)

    def __init__(
        self, settings: Settings, repo: Path, state_directory: Path, *, info: ReviewerInfo, session_id: str | None
    ) -> None:
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise ValueError(f"{session_id!r} is not a session id: letters, digits, dots and dashes make one")
        self._settings, self._repo, self._state_directory = settings, repo, state_directory
        self.info, self._session_id = info, session_id

    def _refusal(self, task: ReviewTask) -> Reply | None:
        scope = task.change.scope
        if not task.trusted:
            why = "it starts git and agents as the reviewed repository configures them, so it gets no untrusted change"
            return failed(FAILED, f"{why} (choose another reviewer_type)")
        base = scope.base[:12] if scope.base else "BASE"
        why = f"the gate reviews commits only, and this is {scope.description} (commit it, then review {base}..HEAD)"
        return failed(FAILED, why) if scope.head is None else None

    async def _ask(self, task: ReviewTask) -> Reply:
        deadline = time.monotonic() + task.timeout_seconds
        hint = "install the Cerberus plugin, or set review_gate_path to its review-gate"
        program = command.found_program(self._settings.review_gate_path or PROGRAM, hint)
        here = self._repo.resolve()
        # The gate takes patterns of files from where it is: the top of the work tree.
        repository = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
        scope = task.change.scope
        is_commit = scope.kind is ScopeKind.COMMIT or scope.base is None
        selected = ("--commit", scope.head or "") if is_commit else (f"{scope.base}..{scope.head}",)
        with ExitStack() as stack:
            context: tuple[str, ...] = ()
            # The gate refuses an empty one.
            if task.intent.context.strip():
                file = stack.enter_context(temporary_directory()) / "context.md"
                file.write_text(task.intent.context, encoding="utf-8", errors="replace")
                context = ("--context-file", str(file))
            # What is to be reviewed comes last: the gate takes any number of commits.
            arguments = (*_left_out(task), *context, *self._settings.review_gate_arguments, *selected)
            gate = _Gate(program, arguments, repository, session_id=self._session_id, deadline=deadline)
            async with _lock(self._state_directory, repository, deadline=deadline):
                return await self._attempts(gate, task)

    async def _attempts(self, gate: _Gate, task: ReviewTask) -> Reply:
        notes: list[str] = []
        if not await gate.spawn():
            notes.append(_ACTIVE)
            await gate.resolve()
            if not await gate.spawn():
                return failed(FAILED, "another review became active in this session (give it one of its own)")
        completed, document = await gate.wait()
        if completed.exit_code in (2, 3) and isinstance(first := _judged(completed, document), Reply):
            notes.append(f"the first attempt failed: {first.reason}")
            # Where one is active still, it is our own.
            await gate.spawn()
            completed, document = await gate.wait()
        return await asyncio.to_thread(self._read, completed, document, task, notes)

    def _read(self, completed: Completed, document: _Document, task: ReviewTask, notes: list[str]) -> Reply:
        said, findings, dropped = _judged(completed, document), tuple[Finding, ...](), tuple[str, ...]()
        reply = said if isinstance(said, Reply) else Reply()
        if document:
            # Reviewers of the gate that failed are in the notes: the others made its verdict.
            answer = read_review_answer("", structured={**document, "parse_errors": []})
            findings, dropped = command.place(answer.findings, task, reviewer=self.info.type), answer.dropped
            # A verdict may be due to findings that could not be read or placed; it must not be lost with them.
            judged = judge(findings, complete=True)
            if isinstance(said, Verdict) and answer.problem is not None:
                reply = failed(INVALID_ANSWER, answer.problem)
            elif isinstance(said, Verdict) and _ORDER.index(said) > _ORDER.index(judged):
                unlike = f"its verdict is {said.value}, but its findings on reviewed files give {judged.value}"
                reply = failed(FAILED, unlike)
        raw = completed.stdout.decode("utf-8", "replace") if reply.kind else ""
        return replace(reply, findings=findings, notes=(*notes, *_parse_errors(document), *dropped), raw=raw)


def _left_out(task: ReviewTask) -> Iterator[str]:
    """Arguments that keep files of the change out, under both of their names; each pattern means that file alone."""
    wanted = {name for file in task.files for name in (file.old_path, file.new_path)}
    names = dict.fromkeys(name for file in task.change.files for name in (file.old_path, file.new_path) if name)
    for name in names:
        if name not in wanted:
            yield from ("--exclude", re.sub(r"([*?\[\\])", r"\\\1", name))


def _parse_errors(document: _Document) -> list[str]:
    """What the gate says about reviewers whose answers it could not use."""
    listed = document.get("parse_errors")
    return [
        ": ".join(str(item[key]) for key in ("reviewer", "error", "details") if item.get(key))
        if isinstance(item, dict)
        else str(item)
        for item in (listed if isinstance(listed, list) else ())
    ]


def _judged(completed: Completed, document: _Document) -> Verdict | Reply:
    """The verdict when the exit code and the document agree on one, else what such an ending means."""
    code, said, status = completed.exit_code, document.get("consensus_verdict"), document.get("status")
    if code == 3:
        return failed(TIMEOUT, TIMEOUT, "its reviewers did not finish in time (raise the time limit)")
    if code in _VERDICTS and not document:
        return failed(INVALID_ANSWER, f"invalid json: exit code {code}, but no JSON document")
    if code in _VERDICTS:
        is_whole = status not in ("timeout", "error", "no_reviewers")
        verdict = next((verdict for verdict in _VERDICTS[code] if is_whole and verdict.value == said), None)
        unlike = f"its exit code {code} and its verdict {said!r} (status {status!r}) do not agree"
        return verdict or failed(FAILED, unlike)
    kind, reason = _ENDINGS.get(code, (FAILED, f"the gate ended with exit code {code}"))
    because = "; ".join(_parse_errors(document)) or tail(completed.stderr)
    return failed(kind, f"{reason}: {because}" if because else reason)


class _Gate:
    """The review-gate for one session, until a deadline of the monotonic clock. All methods raise ProcessError."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], repository: Path, *, session_id: str | None, deadline: float
    ) -> None:
        self._program, self._arguments, self._repository = program, arguments, repository
        self._session_id, self._deadline = session_id or str(uuid.uuid4()), deadline

    async def spawn(self) -> bool:
        """Start a review; False when one is active in this session already. Raises ProcessFailed when it refuses."""
        completed = await self._run(("spawn-code-review", "--max-rounds", "0", *self._arguments))
        said = f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}"
        if completed.exit_code != 0 and "already active" not in said.lower():
            raise _refused(f"{PROGRAM} did not start the review, exit code {completed.exit_code}", completed)
        return completed.exit_code == 0

    async def resolve(self) -> None:
        """End the review that is active in this session, whosever it is. Raises ProcessFailed when it cannot be."""
        completed = await self._run(("resolve", "--reason", _STALE))
        if completed.exit_code != 0:
            unresolved = f"another review is active in this session of the {PROGRAM}, and it could not be resolved"
            raise _refused(unresolved, completed, hint=f"run `{PROGRAM} resolve`, or give another session")

    async def wait(self) -> tuple[Completed, _Document]:
        """Wait for the review to end, as long as the caller gives, and end it for good; what it printed, if JSON."""
        timeout = str(math.ceil(self._seconds_left()))
        words = ("wait", "--json", "--finalize", "--session-id", self._session_id, "--timeout", timeout)
        # A little longer than the gate itself waits, so that it can say what it has.
        completed = await self._run(words, grace=5.0)
        document = None
        with suppress(ValueError, RecursionError):
            document = json.loads(completed.stdout.decode("utf-8", "replace"))
        return completed, document if isinstance(document, dict) else {}

    async def _run(self, argv: tuple[str, ...], *, grace: float = 0) -> Completed:
        # Not `stream`: what is left running by a start are the gate's reviewers, and `stream` would end them.
        return await run(
            Command(
                argv=(self._program, *argv),
                cwd=self._repository,
                environment=program_environment(_LOGIN_NAMES, {"CLAUDE_SESSION_ID": self._session_id}),
                timeout_seconds=self._seconds_left() + grace,
                max_output_bytes=command.MAX_OUTPUT_BYTES,
            )
        )

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ProcessTimedOut(f"{PROGRAM} had no time left", program=PROGRAM, hint="raise the time limit")
        return left


def _refused(what: str, completed: Completed, *, hint: str = "") -> ProcessFailed:
    said = tail(f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}") or "it said nothing"
    return ProcessFailed(f"{what}: {said}", program=PROGRAM, status=completed.exit_code, hint=hint)


@asynccontextmanager
async def _lock(state_directory: Path, repository: Path, *, deadline: float) -> AsyncIterator[None]:
    """Hold the lock of a repository: reviews that share the gate's state must not overlap. Raises ProcessError."""
    # The gate keeps its state by the path of the repository.
    name = hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]
    try:
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_directory / f"{PROGRAM}-{name}.lock").open("ab")
    except OSError as error:
        why = f"no lock can be made in {state_directory}, so another review may be running ({error.strerror})"
        hint = "set CODELOUPE_HOME to a directory that may be written"
        raise ProcessError(why, program=PROGRAM, hint=hint) from error
    with file:
        while True:
            # It belongs to this opening of the file, so we exclude ourselves as well.
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= deadline:
                why = f"another review of {repository} by the {PROGRAM} did not end in time"
                raise ProcessTimedOut(why, program=PROGRAM, hint="wait for it, or raise the time limit")
            await asyncio.sleep(0.05)
        yield
