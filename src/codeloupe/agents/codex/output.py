"""What a run of the codex program tells while it runs, and what its end means: an answer, or which error."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from codeloupe.agents.calls.program import (
    EMPTY,
    Failure,
    Places,
    count_of,
    detail_of,
    error_of,
    list_of,
    mapping_of,
    message_on,
    one_line,
    text_of,
)
from codeloupe.agents.calls.schemas import strict_schema, without_fillers
from codeloupe.agents.codex.failures import ended_without_result, failed
from codeloupe.agents.codex.flags import SHELL, notes_on
from codeloupe.agents.codex.program import CODEX, private_folder
from codeloupe.engine.parse.json_text import parsed
from codeloupe.errors import AgentError, InvalidRequest
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.command import Completed

_MAX_NOTES = 5
_PATCH = "apply_patch"
_MAX_COMMAND_CHARACTERS = 10_000


class _Heard(Struct):
    """What was told so far."""

    session_id: str = ""
    answer: str = ""
    usage: TokenUsage | None = None
    is_completed: bool = False
    failure: str | None = None
    last_error: str = ""
    notes: list[str] = field(default_factory=list)
    files: dict[str, None] = field(default_factory=dict)


class CodexProgress:
    """Takes the messages of one run in order."""

    def __init__(self, request: AgentRequest, *, emit: AgentEventSink) -> None:
        self._request = request
        self._emit = emit
        self._heard = _Heard()

    @property
    def session_id(self) -> str:
        """The thread, once it was told."""
        return self._heard.session_id

    @property
    def is_answered(self) -> bool:
        """Whether the turn is over."""
        return self._heard.is_completed or self._heard.failure is not None

    def take(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""
        heard = self._heard
        match message.get("type"):
            case "thread.started":
                heard.session_id = text_of(message.get("thread_id"))
            case "item.started":
                self._take_begun(mapping_of(message.get("item")))
            case "item.completed":
                self._take_item(mapping_of(message.get("item")))
            case "turn.completed":
                heard.is_completed = True
                self._take_usage(mapping_of(message.get("usage")))
            case "turn.failed":
                heard.failure = text_of(mapping_of(message.get("error")).get("message"))
            case "error":
                # Most of these tell of a retry, so none of them is the end.
                heard.last_error = text_of(message.get("message"))

    def answer(self, completed: Completed, *, now: datetime) -> AgentResult:
        """The answer of a run that ended; `now` is local time. Raises the AgentError that the end means."""
        heard, request = self._heard, self._request
        raw_output = completed.stdout.decode("utf-8", "replace")
        if heard.failure is not None:
            raise failed(self._failure(raw_output, heard.failure), stderr=completed.stderr, now=now)
        if not heard.is_completed:
            raise self._cut_short(completed, raw_output, now)
        self._refuse_other_session(raw_output)
        if not heard.answer.strip():
            raise error_of(EMPTY, self._failure(raw_output))
        return AgentResult(
            success=True,
            output=heard.answer,
            agent=CODEX.agent,
            structured=_structured(heard.answer, request),
            session_id=heard.session_id,
            duration_ms=round(completed.seconds * 1000),
            num_turns=1,
            usage=heard.usage or TokenUsage(),
            model=request.model,
            files_changed=tuple(heard.files),
            raw_output=raw_output,
            notes=(*heard.notes, *notes_on(request)),
        )

    def _take_begun(self, item: Mapping[str, Any]) -> None:
        if item.get("type") == "command_execution":
            self._emit(ToolUsed(CODEX.agent, SHELL, _command(text_of(item.get("command")))))

    def _take_item(self, item: Mapping[str, Any]) -> None:
        heard = self._heard
        match item.get("type"):
            case "agent_message":
                heard.answer = text_of(item.get("text"))
            case "file_change":
                for change in list_of(item.get("changes")):
                    path = self._inside(text_of(mapping_of(change).get("path")))
                    heard.files[path] = None
                    self._emit(ToolUsed(CODEX.agent, _PATCH, detail_of(path)))
            case "error":
                note = f"codex warned: {one_line(text_of(item.get('message')))}"
                if note not in heard.notes and len(heard.notes) < _MAX_NOTES:
                    heard.notes.append(note)

    def _inside(self, path: str) -> str:
        """The path as seen from the working directory."""
        folder = self._request.working_dir.resolve()
        return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        self._heard.usage = spent = TokenUsage(
            input_tokens=count_of(usage.get("input_tokens")),
            cached_tokens=count_of(usage.get("cached_input_tokens")),
            output_tokens=count_of(usage.get("output_tokens")),
        )
        self._emit(TurnTaken(CODEX.agent, 1))
        self._emit(TokensSpent(CODEX.agent, spent.input_tokens, spent.output_tokens))

    def _failure(self, raw_output: str, text: str = "") -> Failure:
        return Failure(
            program=CODEX,
            text=text,
            asked_model=self._request.model,
            session_id=self._heard.session_id,
            raw_output=raw_output,
            output=self._heard.answer,
            usage=self._heard.usage,
        )

    def _cut_short(self, completed: Completed, raw_output: str, now: datetime) -> AgentError:
        failure = self._failure(raw_output, self._heard.last_error)
        # An error that no end followed counts only where the exit code says that it was one.
        if self._heard.last_error and completed.exit_code > 0:
            return failed(failure, stderr=completed.stderr, now=now)
        return ended_without_result(failure, exit_code=completed.exit_code, stderr=completed.stderr)

    def _refuse_other_session(self, raw_output: str) -> None:
        asked, had = self._request.resume_session, self._heard.session_id
        if asked is not None and (asked.lower() == had) is self._request.fork_session:
            raise InvalidRequest(
                f"codex went on in the session {had}, which is not what was asked of the session {asked}",
                agent=CODEX.agent,
                hint="leave resume_session out, or use another",
                raw_output=raw_output,
                session_id=had,
            )


def model_in_session(places: Places, session_id: str) -> str | None:
    """The model that answered, by the record of the session: the program says it nowhere else."""
    model = None
    for file in (private_folder(places) / "sessions").glob(f"*/*/*/rollout-*{session_id}.jsonl"):
        with suppress(OSError), file.open("rb") as lines:
            for message in (message_on(line) for line in lines if b'"turn_context"' in line):
                model = text_of(mapping_of((message or {}).get("payload")).get("model")) or model
    return model


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
