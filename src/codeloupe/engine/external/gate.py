"""The review-gate program: how a review is started, waited for, and what its ending means."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.engine.external.reply import tail
from codeloupe.errors import ProcessFailed, ProcessTimedOut
from codeloupe.model.review import Verdict
from codeloupe.system.process import Command, Completed, program_environment, run

PROGRAM = "review-gate"
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024
_ALREADY_ACTIVE = "already active"
_STALE = "a review of another change was left active; codeloupe starts its own"
_GRACE_SECONDS = 5.0
# Its reviewers are the vendors' programs; their keys and where their logins are is all that they get.
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
_VERDICTS = {0: (Verdict.PASS,), 1: (Verdict.FAIL, Verdict.NEEDS_WORK)}
_UNFINISHED = ("timeout", "error", "no_reviewers")


class Waited(Struct, frozen=True):
    """How waiting ended: the exit code, and the document that was printed; empty when there was none."""

    exit_code: int
    document: Mapping[str, Any]
    output: str
    stderr: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict when the exit code and the document agree on one, else None."""
        said = self.document.get("consensus_verdict")
        if self.document.get("status") in _UNFINISHED:
            return None
        return next((verdict for verdict in _VERDICTS.get(self.exit_code, ()) if verdict.value == said), None)

    @property
    def parse_errors(self) -> tuple[str, ...]:
        """What the gate says about reviewers whose answers it could not use."""
        listed = self.document.get("parse_errors")
        return tuple(_in_words(item) for item in listed) if isinstance(listed, list) else ()


class Gate:
    """The review-gate for one session. Its own reviewers go on when a call is cut short.

    Every call is given until `deadline`, of the monotonic clock. Raises ProcessTimedOut at the deadline, and other
    kinds of ProcessError when the program does not run.
    """

    def __init__(self, program: str, *, repository: Path, session_id: str | None, deadline: float) -> None:
        self._program = program
        self._repository = repository
        self._session_id = checked_session_id(session_id)
        self._deadline = deadline

    async def spawn(self, arguments: Iterable[str]) -> bool:
        """Start a review; False when one is active in this session already. Raises ProcessFailed when it refuses."""
        argv = ("spawn-code-review", "--max-rounds", "0", *arguments)
        completed = await self._run(argv, self._seconds_left())
        if completed.exit_code == 0:
            return True
        said = f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}"
        if _ALREADY_ACTIVE in said.lower():
            return False
        raise ProcessFailed(
            f"{PROGRAM} did not start the review, exit code {completed.exit_code}: {tail(said) or 'it said nothing'}",
            program=PROGRAM,
            exit_code=completed.exit_code,
        )

    async def resolve(self) -> None:
        """End the review that is active in this session, whosever it is. Raises ProcessFailed when it cannot be."""
        completed = await self._run(("resolve", "--reason", _STALE), self._seconds_left())
        if completed.exit_code != 0:
            said = f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}"
            raise ProcessFailed(
                f"another review is active in this session of the {PROGRAM}, and it could not be resolved:"
                f" {tail(said) or 'it said nothing'}",
                program=PROGRAM,
                exit_code=completed.exit_code,
                hint=f"run `{PROGRAM} resolve`, or give another session",
            )

    async def wait(self) -> Waited:
        """Wait for the review to end, for as long as the caller gives, and end it for good."""
        left = self._seconds_left()
        words = ("--json", "--finalize", "--session-id", self._session_id, "--timeout", str(math.ceil(left)))
        # A little longer than the gate itself waits, so that it can say what it has.
        completed = await self._run(("wait", *words), left + _GRACE_SECONDS)
        output = completed.stdout.decode("utf-8", "replace")
        return Waited(completed.exit_code, _document(output), output, completed.stderr)

    async def _run(self, argv: tuple[str, ...], timeout_seconds: float) -> Completed:
        # Not `stream`: what is left behind by a start are the gate's reviewers, and `stream` would end them.
        return await run(
            Command(
                argv=(self._program, *argv),
                cwd=self._repository,
                environment=program_environment(_LOGIN_NAMES, {"CLAUDE_SESSION_ID": self._session_id}),
                timeout_seconds=timeout_seconds,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        )

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ProcessTimedOut(f"{PROGRAM} had no time left", program=PROGRAM, hint="raise the time limit")
        return left


def checked_session_id(session_id: str | None) -> str:
    """The session, or a new one. Raises ValueError for one that is no plain name: the gate makes a path of it."""
    if session_id is None:
        return str(uuid.uuid4())
    if not _SESSION_ID.fullmatch(session_id):
        raise ValueError(f"{session_id!r} is not a session id: letters, digits, dots and dashes make one")
    return session_id


def excluded(paths: Iterable[str]) -> Iterator[str]:
    """Arguments that keep files out of a review; what is special in a pattern stands for itself."""
    for path in paths:
        yield "--exclude"
        yield re.sub(r"([*?\[\\])", r"\\\1", path)


def _document(output: str) -> Mapping[str, Any]:
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _in_words(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    return ": ".join(str(item[key]) for key in ("reviewer", "error", "details") if item.get(key))
