"""What a run of the gemini program tells while it runs, and what its end means: an answer, or which error.

An exit code of 0 tells nothing: the program ends with it also when it was ended from outside, when the service sent
nothing, when it sent nothing itself, and when it did not get rid of its output in time, which is then cut. The other
format that it has, one document at its end, is cut for every long answer. An answer that a model broke off since its
tokens were used up is not marked as such in either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codeloupe.agents.calls.program import EMPTY, Failure, count_of, detail_of, error_of, mapping_of, text_of
from codeloupe.agents.gemini.failures import SENT_NOTHING, ended_without_result, failed
from codeloupe.agents.gemini.program import GEMINI
from codeloupe.agents.gemini.prompt import restored
from codeloupe.errors import AgentError
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.command import Completed

# A tool that was not given to it, and one that a rule keeps from it. The others have no type of their own.
_DENIED = ("tool_not_registered", "policy_violation")
_DENIED_IN_WORDS = ("requires user confirmation", "Path not in workspace")
# Said instead of what a command prints, as if it had been run.
_BLOCKED = "Blocked: command substitution detected"
_DETAIL_NAMES = ("file_path", "dir_path", "path", "pattern", "command", "query", "include")


class GeminiProgress:
    """Takes the messages of one run in order."""

    def __init__(self, request: AgentRequest, *, emit: AgentEventSink) -> None:
        self._request = request
        self._emit = emit
        self._session_id = ""
        self._model: str | None = None
        self._has_repeated_prompt = False
        self._pieces: list[str] = []
        self._turns = 0
        self._is_answering = False
        self._used: dict[str, str] = {}
        self._denials: list[str] = []
        self._last_error = ""
        self._result: Mapping[str, Any] | None = None

    @property
    def session_id(self) -> str:
        """The session, once it was told."""
        return self._session_id

    @property
    def is_answered(self) -> bool:
        """Whether the run told how it ended."""
        return self._result is not None

    def take(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""
        match message.get("type"):
            case "init":
                self._session_id = text_of(message.get("session_id"))
                self._model = text_of(message.get("model")) or None
            case "message" if message.get("role") == "user":
                self._has_repeated_prompt = True
            case "message" if message.get("role") == "assistant":
                self._begin_turn()
                self._pieces.append(text_of(message.get("content")))
            case "tool_use":
                self._begin_turn()
                self._take_tool(message)
            case "tool_result":
                self._take_tool_result(message)
            case "error":
                self._last_error = text_of(message.get("message"))
            case "result":
                self._result = message
                self._tell_tokens(_usage(mapping_of(message.get("stats"))))

    def answer(self, completed: Completed) -> AgentResult:
        """The answer of a run that ended. Raises the AgentError that its end means."""
        raw_output = completed.stdout.decode("utf-8", "replace")
        if self._result is None:
            raise self._cut_short(completed, raw_output)
        if self._result.get("status") != "success":
            text = text_of(mapping_of(self._result.get("error")).get("message")) or self._last_error
            failure = self._failure(raw_output, text)
            raise failed(failure, exit_code=completed.exit_code, stderr=completed.stderr)
        stats = mapping_of(self._result.get("stats"))
        output = restored("".join(self._pieces))
        if not output.strip():
            kind = EMPTY if mapping_of(stats.get("models")) else SENT_NOTHING
            raise error_of(kind, self._failure(raw_output, self._last_error))
        return AgentResult(
            success=True,
            output=output,
            agent=GEMINI.agent,
            session_id=self._session_id,
            duration_ms=round(completed.seconds * 1000),
            num_turns=self._turns,
            usage=_usage(stats),
            model=_busiest_model(stats) or self._model or self._request.model,
            permission_denials=tuple(self._denials),
            raw_output=raw_output,
        )

    def _cut_short(self, completed: Completed, raw_output: str) -> AgentError:
        failure = self._failure(raw_output, self._last_error)
        # It loses what is left of its output when it ends, and repeats the prompt there before it sends it.
        if completed.exit_code == 0 and self._session_id and not self._has_repeated_prompt:
            return error_of(SENT_NOTHING, failure)
        return ended_without_result(failure, exit_code=completed.exit_code, stderr=completed.stderr)

    def _begin_turn(self) -> None:
        if not self._is_answering:
            self._is_answering = True
            self._turns += 1
            self._emit(TurnTaken(GEMINI.agent, self._turns))

    def _take_tool(self, message: Mapping[str, Any]) -> None:
        tool, detail = text_of(message.get("tool_name")), _detail(mapping_of(message.get("parameters")))
        self._used[text_of(message.get("tool_id"))] = f"{tool} {detail}".strip()
        self._emit(ToolUsed(GEMINI.agent, tool, detail))

    def _take_tool_result(self, message: Mapping[str, Any]) -> None:
        self._is_answering = False
        # What was said before a tool was used is not the answer.
        self._pieces.clear()
        used = self._used.pop(text_of(message.get("tool_id")), "")
        error = mapping_of(message.get("error"))
        words = text_of(error.get("message"))
        is_blocked = text_of(message.get("output")).startswith(_BLOCKED)
        if is_blocked or error.get("type") in _DENIED or any(phrase in words for phrase in _DENIED_IN_WORDS):
            self._denials.append(used)

    def _tell_tokens(self, usage: TokenUsage) -> None:
        if usage.input_tokens:
            self._emit(TokensSpent(GEMINI.agent, usage.input_tokens, usage.output_tokens))

    def _failure(self, raw_output: str, text: str) -> Failure:
        return Failure(
            program=GEMINI,
            text=text,
            asked_model=self._request.model,
            model=self._model,
            session_id=self._session_id,
            raw_output=raw_output,
            output=restored("".join(self._pieces)),
            usage=None if self._result is None else _usage(mapping_of(self._result.get("stats"))),
        )


def _usage(stats: Mapping[str, Any]) -> TokenUsage:
    sent = count_of(stats.get("input_tokens"))
    # What a model thought counts as output too, but stands only in the total.
    written = max(count_of(stats.get("output_tokens")), count_of(stats.get("total_tokens")) - sent)
    return TokenUsage(input_tokens=sent, cached_tokens=count_of(stats.get("cached")), output_tokens=written)


def _busiest_model(stats: Mapping[str, Any]) -> str | None:
    models = mapping_of(stats.get("models"))
    # Of equals the later one: before the one that answers, the program may ask a small one which to ask.
    return max(
        reversed(list(models)), key=lambda name: count_of(mapping_of(models[name]).get("output_tokens")), default=None
    )


def _detail(parameters: Mapping[str, Any]) -> str:
    return detail_of(next((text for name in _DETAIL_NAMES if (text := text_of(parameters.get(name)))), ""))
