"""What a run of the codex program tells while it runs, and what its end means: an answer, or which error."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import Message, Reading, detail_of
from codeloupe.agents.calls.schemas import strict_schema, without_fillers
from codeloupe.errors import AgentError, Crashed, InvalidRequest
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.json_text import parsed
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

LOG_FILTER = "error,codex_http_client::client=debug"
"""What the program writes to its log: beside errors, a line for each reply, since it tells no status elsewhere."""
SHELL = "shell"
"""The one tool that there is: commands in a sandbox."""

_PATCH = "apply_patch"
_MAX_NOTES = 5
_MAX_COMMAND_CHARACTERS = 10_000
_BROKEN = kinds.Kind(Crashed, "failed inside", "try again; the raw output is kept")
_UNKNOWN_SESSION = kinds.Kind(
    InvalidRequest, "does not know the session that is to be resumed", "leave resume_session out, or use another"
)
_STATUS = regex(r"(?:unexpected status|last status:) (\d{3})\b")
# Lines of the log that the program is told to keep, see LOG_FILTER.
_LOGGED = regex(r"^\S+ +DEBUG codex_http_client.*$", re.MULTILINE)
_REPLIED = regex(r": Request completed method=POST .{0,2000}? status=(\d{3})\b")
_RETRY_AFTER = regex(r'"retry-after": "(\d{1,7})"')
_TRY_AGAIN_AT = regex(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}:\d{2} [AP]M)", re.IGNORECASE
)
# These words say more than a status does.
_ABOVE_STATUS = kinds.patterns(
    (r"reason: max_output_tokens", kinds.CUT_OFF),
    (r"reason: content_filter|flagged (?:for|as)\b|usage polic", kinds.REFUSED),
    (r"missing environment variable|could not be refreshed|log ?in again|sign in again", kinds.NOT_LOGGED_IN),
    (r"current quota|quota exceeded|out of credits|spend cap|upgrade to plus: ", kinds.NOT_LOGGED_IN),
    (r"context window|context_length_exceeded|maximum context length|exceeds the maximum length", kinds.TOO_LONG),
)
# Where neither tells, it is the sentence of the service about a request that it does not take, such as one for an
# unknown model: the program passes such a sentence on as it came.
_BELOW_STATUS = kinds.patterns(
    (r"usage limit|rate limit|too many requests", kinds.LIMITED),
    (r"high demand|at capacity|high load|capacity (?:is )?unavailable|overloaded", kinds.OVERLOADED),
    (r"stream disconnected|connection failed|error sending request|error while reading the server", kinds.UNREACHED),
    (r"request timed out|workspace routing discovery failed|network error|idle timeout", kinds.UNREACHED),
    (r"^(?:fatal|internal|sandbox) error|agent loop died|^turn aborted|^interrupted|no thread with id", _BROKEN),
)
_BY_STDERR = kinds.patterns(
    (r"unexpected argument|unrecognized subcommand|invalid value .* for '--", kinds.TOO_OLD),
    (r"exceeds the maximum length", kinds.TOO_LONG),
    (r"no rollout found|no saved session|thread/resume failed|CODEX_HOME points to", _UNKNOWN_SESSION),
    (r"node.{0,3}: no such file", kinds.WITHOUT_NODE),
    (r"not logged in|codex login", kinds.NOT_LOGGED_IN),
)


class CodexReading(Reading):
    """Takes the messages of one run in order."""

    def __init__(self, program: kinds.Program, request: AgentRequest, emit: AgentEventSink) -> None:
        super().__init__(program, request, emit)
        self._answer = ""
        self._usage: TokenUsage | None = None
        self._failed_with: str | None = None
        self._last_error = ""
        self._notes: dict[str, None] = {}
        self._files: dict[str, None] = {}

    def take(self, message: Message) -> None:
        """Take the next message."""
        agent, item = self.program.agent, message.part("item")
        match message.get("type"), item.get("type"):
            case "thread.started", _:
                self.session_id = message.text("thread_id")
            case "item.started", "command_execution":
                self.emit(ToolUsed(agent, SHELL, _command(item.text("command"))))
            case "item.completed", "agent_message":
                self._answer = item.text("text")
            case "item.completed", "file_change":
                self._take_changes(item)
            case "item.completed", "error":
                if len(self._notes) < _MAX_NOTES:
                    self._notes[f"codex warned: {kinds.one_line(item.text('message'))}"] = None
            case "turn.completed", _:
                usage, self.is_answered = message.part("usage"), True
                self._usage = TokenUsage(
                    input_tokens=usage.count("input_tokens"),
                    cached_tokens=usage.count("cached_input_tokens"),
                    output_tokens=usage.count("output_tokens"),
                )
                self.emit(TurnTaken(agent, 1))
                self.emit(TokensSpent(agent, self._usage.input_tokens, self._usage.output_tokens))
            case "turn.failed", _:
                self._failed_with, self.is_answered = message.part("error").text("message"), True
            case "error", _:
                # Most of these tell of a retry, so none of them is the end.
                self._last_error = message.text("message")

    def _take_changes(self, item: Message) -> None:
        """The files that changed, as seen from the working directory."""
        folder = self.request.working_dir.resolve()
        for path in (change.text("path") for change in item.parts("changes")):
            inside = str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
            self._files[inside] = None
            self.emit(ToolUsed(self.program.agent, _PATCH, detail_of(inside)))

    def answer(self, completed: Completed, *, now: datetime | None = None) -> AgentResult:
        """The answer of a run that ended; `now` is local time. Raises the AgentError that the end means."""
        request, raw_output, stderr = self.request, completed.stdout.decode("utf-8", "replace"), completed.stderr
        now = now or datetime.now().astimezone()
        failure = self.failure(self._failed_with or "", raw_output, output=self._answer, usage=self._usage)
        if self._failed_with is not None:
            raise failed(failure, stderr=stderr, now=now)
        if not self.is_answered:
            failure = replace(failure, text=self._last_error)
            # An error that no end followed counts only where the exit code says that it was one.
            if self._last_error and completed.exit_code > 0:
                raise failed(failure, stderr=stderr, now=now)
            words = _LOGGED.sub("", stderr)
            raise kinds.ended_without_result(failure, _BY_STDERR, exit_code=completed.exit_code, stderr=words)
        asked, had = request.resume_session, self.session_id
        if asked is not None and (asked.lower() == had) is request.fork_session:
            raise InvalidRequest(
                f"codex went on in the session {had}, which is not what was asked of the session {asked}",
                agent=self.program.agent,
                hint="leave resume_session out, or use another",
                raw_output=raw_output,
                session_id=had,
            )
        if not self._answer.strip():
            raise kinds.error_of(kinds.EMPTY, failure)
        return AgentResult(
            success=True,
            output=self._answer,
            agent=self.program.agent,
            structured=_structured(self._answer, request),
            session_id=had,
            duration_ms=round(completed.seconds * 1000),
            num_turns=1,
            usage=self._usage or TokenUsage(),
            model=request.model,
            files_changed=tuple(self._files),
            raw_output=raw_output,
            notes=(
                *self._notes,
                *("codex counts the tokens of the whole session that was resumed",) * (asked is not None),
            ),
        )


def _structured(answer: str, request: AgentRequest) -> Any:
    """The value that the schema asks for, where the program was given one; the caller looks whether it conforms."""
    schema = request.output_schema
    if schema is None or strict_schema(schema) is None:
        return None
    try:
        return without_fillers(parsed(answer), schema)
    except ValueError:
        return None


def _command(told: str) -> str:
    """The command without the shell that runs it, as in: /bin/bash -lc 'ls -l'."""
    try:
        words = shlex.split(told) if len(told) <= _MAX_COMMAND_CHARACTERS else []
    except ValueError:
        words = []
    return detail_of(words[2] if len(words) == 3 and words[1] in ("-lc", "-c") else told)


def failed(failure: kinds.Failure, *, stderr: str, now: datetime) -> AgentError:
    """The error of a turn that failed, by the sentence about it and the log of the last reply of the service.

    The program tells an HTTP status only in its sentences. `now` is local time, as such sentences tell it.
    """
    *_, last = ("", *_LOGGED.findall(stderr))
    replied, wait = _REPLIED.search(last), None
    status = int(replied[1]) if replied and int(replied[1]) >= 400 else None
    if status is not None and (asked := _RETRY_AFTER.search(last)):
        wait = float(asked[1])
    if status is None and (told := _STATUS.search(failure.text)):
        status = int(told[1])
    kind = (
        kinds.kind_in(failure.text, _ABOVE_STATUS)
        or kinds.kind_of_status(status)
        or kinds.kind_in(failure.text, _BELOW_STATUS)
        or kinds.INVALID
    )
    if kind is kinds.LIMITED and wait is None:
        wait = _retry_after(failure.text, now)
    return kinds.error_of(kind, replace(failure, status=status, retry_after_seconds=wait))


def _retry_after(text: str, now: datetime) -> float | None:
    found = _TRY_AGAIN_AT.search(text)
    if found is None:
        return kinds.retry_after_in(text)
    month, day, year, moment = found.groups()
    local = now.replace(tzinfo=None)
    date = f"{month} {day} {year}" if month else local.strftime("%b %d %Y")
    try:
        opens = datetime.strptime(f"{date} {moment}", "%b %d %Y %I:%M %p")  # noqa: DTZ007 - local time, as it was told
    except ValueError:
        return None
    # A time without a date that has just passed is the minute we are in, told without its seconds.
    if not month and opens < local - timedelta(hours=1):
        opens += timedelta(days=1)
    return max(0.0, (opens - local).total_seconds())
