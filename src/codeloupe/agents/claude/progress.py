"""What a run of the claude program tells while it runs: its events, and what is needed to read its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from codeloupe.agents.calls.program import Program
from codeloupe.agents.calls.program_failures import Failure
from codeloupe.agents.calls.program_output import count_of, list_of, mapping_of, text_of
from codeloupe.agents.claude.failures import Signs, failed
from codeloupe.agents.claude.output import Told, tool_detail
from codeloupe.agents.claude.spending import message_usage, spent_in
from codeloupe.errors import AgentError
from codeloupe.model.agent import AgentRequest, TokenUsage
from codeloupe.model.agent_events import TokensSpent, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink

# The program waits half a second before its first retry, and a little at random; more was asked for by the service.
_LONGEST_OWN_DELAY_MS = 700
_OVERLOADED_STATUS = 529
_NO_MODEL = "<synthetic>"
_SCHEMA_TOOL = "StructuredOutput"
_MAX_SAID_CHARACTERS = 1024 * 1024


class Progress:
    """Takes the messages of one run in order. `result` is the last message, once it came."""

    def __init__(self, request: AgentRequest, *, program: Program, emit: AgentEventSink) -> None:
        self.result: Mapping[str, Any] | None = None
        self._program = program
        self._agent = program.agent
        self._emit = emit
        self._model = request.model
        self._may_switch_models = request.fallback_model is not None
        self._is_resumed = request.resume_session is not None
        self._told_session = ""
        self._told_model: str | None = None
        self._quota_opens_at: float | None = None
        self._notes: list[str] = []
        self._message_id = ""
        self._said = ""
        self._turns = 0
        self._spent = TokenUsage()

    @property
    def session_id(self) -> str:
        """The session, once it was told."""
        return self._told_session

    @property
    def is_answered(self) -> bool:
        """Whether the run is over and has told how."""
        return self.result is not None

    def told(self) -> Told:
        """What the run told so far."""
        return Told(
            program=self._program,
            asked_model=self._model,
            session_id=self._told_session,
            model=self._told_model,
            quota_opens_at=self._quota_opens_at,
            said=self._said,
            resumed=self._is_resumed,
            notes=tuple(self._notes),
        )

    def take(self, message: Mapping[str, Any]) -> None:
        """Take the next message. Raises the AgentError of a request that the program is about to send again.

        Retries are not the program's business, but only one that may retry tells how long the service wants us to
        wait: so it may, and is stopped here.
        """
        self._told_session = self._told_session or text_of(message.get("session_id"))
        match message.get("type"), message.get("subtype"):
            case "assistant", _:
                self._take_turn(message)
            case "result", _:
                self.result = message
                self._tell_cost(message)
            case "system", "api_retry":
                self._refuse_retry(message)
            case "system", "model_fallback":
                self._note_fallback(message)
            case "rate_limit_event", _:
                self._note_quota(mapping_of(message.get("rate_limit_info")))

    def _take_turn(self, message: Mapping[str, Any]) -> None:
        said = mapping_of(message.get("message"))
        if not said or said.get("model") == _NO_MODEL:
            return
        is_own = message.get("parent_tool_use_id") is None
        if is_own and (identity := text_of(said.get("id"))) != self._message_id:
            self._message_id = identity
            self._turns += 1
            self._told_model = text_of(said.get("model")) or self._told_model
            self._emit(TurnTaken(self._agent, self._turns))
            self._tell_tokens(message_usage(mapping_of(said.get("usage"))))
        if is_own:
            self._take_words(said.get("content"))
        for tool, detail in _tools_used(said.get("content")):
            self._emit(ToolUsed(self._agent, tool, detail))

    def _take_words(self, content: object) -> None:
        """What is said before a tool is used is not the answer. A message that was cut off is continued by the next."""
        for block in map(mapping_of, list_of(content)):
            match block.get("type"), block.get("name"):
                case "text", _:
                    self._said += text_of(block.get("text"))
                case "tool_use", name if name == _SCHEMA_TOOL:
                    self._said = json.dumps(block.get("input"), ensure_ascii=False, default=str)
                case "tool_use", _:
                    self._said = ""
        self._said = self._said[:_MAX_SAID_CHARACTERS]

    def _tell_tokens(self, new: TokenUsage) -> None:
        self._spent = TokenUsage(
            input_tokens=self._spent.input_tokens + new.input_tokens,
            cached_tokens=self._spent.cached_tokens + new.cached_tokens,
            output_tokens=self._spent.output_tokens + new.output_tokens,
        )
        self._emit(TokensSpent(self._agent, self._spent.input_tokens, self._spent.output_tokens))

    def _tell_cost(self, result: Mapping[str, Any]) -> None:
        spent = spent_in(result, resumed=self._is_resumed)
        if spent.usage.input_tokens or spent.cost_usd:
            usage = spent.usage
            self._emit(TokensSpent(self._agent, usage.input_tokens, usage.output_tokens, spent.cost_usd))

    def _refuse_retry(self, event: Mapping[str, Any]) -> None:
        status = count_of(event.get("error_status")) or None
        if self._may_switch_models and status == _OVERLOADED_STATUS:
            return
        raise self._retry_error(status, event)

    def _retry_error(self, status: int | None, event: Mapping[str, Any]) -> AgentError:
        delay_ms = count_of(event.get("retry_delay_ms"))
        asked = delay_ms / 1000 if delay_ms > _LONGEST_OWN_DELAY_MS else None
        if self._quota_opens_at is not None:
            asked = max(asked or 0.0, self._quota_opens_at - time.time())
        failure = Failure(
            program=self._program,
            text="the connection was not made, or cut" if status is None else text_of(event.get("error")),
            status=status,
            asked_model=self._model,
            retry_after_seconds=asked,
            session_id=self._told_session,
            raw_output=json.dumps(dict(event), default=str),
        )
        return failed(failure, Signs(reason="api_error"), now=0)

    def _note_fallback(self, event: Mapping[str, Any]) -> None:
        models = text_of(event.get("original_model")), text_of(event.get("fallback_model"))
        why = text_of(event.get("trigger")) or "no reason was given"
        self._notes.append(f"{self._agent} switched from the model {models[0]} to {models[1]}: {why}")

    def _note_quota(self, info: Mapping[str, Any]) -> None:
        if info.get("status") == "rejected":
            self._quota_opens_at = count_of(info.get("resetsAt")) or None


def _tools_used(content: object) -> Iterator[tuple[str, str]]:
    for block in map(mapping_of, list_of(content)):
        if block.get("type") == "tool_use" and block.get("name") != _SCHEMA_TOOL:
            yield text_of(block.get("name")), tool_detail(block.get("input"))
