"""What the claude program's last message means: an answer, or which error. Shared by its CLI and its Agent SDK.

Exit codes and `subtype` do not tell: a refused request is a "success" with exit code 1, an interrupted run exits with
0. `is_error`, `terminal_reason` and `api_error_status` do, and an answer has to be there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.program import (
    CUT_OFF,
    EMPTY,
    INVALID,
    LIMITED,
    NOT_LOGGED_IN,
    OVERLOADED,
    REFUSED,
    TOO_LONG,
    TOO_OLD,
    UNREACHED,
    Failure,
    Kind,
    Program,
    cost_of,
    count_of,
    crashed,
    detail_of,
    error_of,
    kind_in,
    kind_of_status,
    list_of,
    mapping_of,
    text_of,
)
from codeloupe.errors import AgentError, BudgetExhausted, Crashed, InvalidRequest, OutputInvalid, TurnsExhausted
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink

_TAIL_CHARACTERS = 4000
_UNKNOWN_SESSION = Kind(
    InvalidRequest, "does not know the session that is to be resumed", "leave resume_session out, or keep sessions"
)
_AS_ROOT = Kind(InvalidRequest, "does not bypass permissions for the user root", "run as another user")
_SCHEMA_REFUSED = Kind(InvalidRequest, "does not take this schema", "use a simpler schema")

_BY_REASON = {
    "max_turns": Kind(TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less"),
    "budget_exhausted": Kind(BudgetExhausted, "spent all that the call may cost", "allow more, or ask for less"),
    "structured_output_retry_exhausted": Kind(
        OutputInvalid, "gave no answer that fits the schema", "make the schema simpler, or ask another model"
    ),
    "prompt_too_long": TOO_LONG,
    "blocking_limit": TOO_LONG,
}
_REASON_OF_SUBTYPE = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget_exhausted",
    "error_max_structured_output_retries": "structured_output_retry_exhausted",
}
_BY_CAUSE = {"connection_failed": UNREACHED, "max_output_tokens": CUT_OFF}
# Only where no field tells. These are sentences of the program or the service, not of the model: it has not answered.
_BY_TEXT = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        ("not logged in|invalid api key|please run /login|credit balance is too low", NOT_LOGGED_IN),
        ("usage limit|limit reached|hit your limit", LIMITED),
        ("overloaded", OVERLOADED),
        ("prompt is too long", TOO_LONG),
        ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
    )
)
_BY_STDERR = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        ("unknown option|allowed choices are", TOO_OLD),
        ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
        ("root/sudo privileges", _AS_ROOT),
        ("not a valid json schema", _SCHEMA_REFUSED),
        ("exceeds 10mb", TOO_LONG),
    )
)
_RESETS_AT = re.compile(r"limit reached\|(\d{9,11})\b")


class Signs(Struct, frozen=True, kw_only=True):
    """By what the program tells failures apart: its terminal reason, its subtype, a cause, and a refusal."""

    reason: str = ""
    subtype: str = ""
    cause: str = ""
    refused: bool = False


def failed(failure: Failure, signs: Signs, *, now: float) -> AgentError:
    """The error of a run that told how it failed; `now` is in seconds since the epoch."""
    opens_at = _RESETS_AT.search(failure.text)
    if opens_at and failure.retry_after_seconds is None:
        failure = replace(failure, retry_after_seconds=max(0.0, int(opens_at[1]) - now))
    return error_of(_kind(failure, signs), failure)


def ended_without_result(failure: Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a program that ended without its last message, whatever its exit code."""
    tail = stderr[-_TAIL_CHARACTERS:]
    if known := kind_in(tail, _BY_STDERR):
        return error_of(known, replace(failure, text=tail))
    return crashed(failure, exit_code=exit_code, stderr=stderr)


def _kind(failure: Failure, signs: Signs) -> Kind:
    reason = signs.reason or _REASON_OF_SUBTYPE.get(signs.subtype, "")
    if known := _BY_REASON.get(reason):
        return known
    if signs.refused:
        return REFUSED
    by_status = kind_of_status(failure.status)
    # The service tells some of what is wrong with an account or a prompt by a status for wrong requests.
    if by_status is not None and by_status is not INVALID:
        return by_status
    if known := _BY_CAUSE.get(signs.cause) or kind_in(failure.text, _BY_TEXT) or by_status:
        return known
    # A reply that is empty, or not what the API speaks, has no field of its own.
    if reason == "api_error":
        return UNREACHED
    why = reason or signs.subtype or "no reason is known"
    return Kind(Crashed, f"ended without an answer ({why})", "try again; the raw output is kept")


# What a token costs beside one of the input: the same for all of the vendor's models.
_WEIGHTS = {"fresh": 1.0, "written": 1.25, "cached": 0.1, "output": 5.0}
_IN_TOTALS = {
    "fresh": "inputTokens",
    "written": "cacheCreationInputTokens",
    "cached": "cacheReadInputTokens",
    "output": "outputTokens",
}
_IN_MESSAGES = {
    "fresh": "input_tokens",
    "written": "cache_creation_input_tokens",
    "cached": "cache_read_input_tokens",
    "output": "output_tokens",
}


class Spent(Struct, frozen=True, kw_only=True):
    """What a run took. `is_share` tells that the cost is its share of a session's, reckoned by its tokens."""

    cost_usd: float | None
    usage: TokenUsage
    is_share: bool = False

    def notes(self, agent: str) -> tuple[str, ...]:
        """What is to be said of it."""
        return (
            f"{agent} reports the cost of the whole session; this call's share is estimated from its tokens",
        ) * self.is_share


def spent_in(result: Mapping[str, Any], *, resumed: bool) -> Spent:
    """What the run took that a last message is of."""
    cost = cost_of(result.get("total_cost_usd"))
    by_model = [_counts(mapping_of(entry), _IN_TOTALS) for entry in mapping_of(result.get("modelUsage")).values()]
    own = _counts(mapping_of(result.get("usage")), _IN_MESSAGES)
    if not by_model:
        return Spent(cost_usd=cost, usage=_usage(own))
    # The tokens beside the list by model leave some out, such as those of the program's own questions.
    total = {name: sum(counts[name] for counts in by_model) for name in _WEIGHTS}
    whole, share = _weight(total), _weight(own)
    if not resumed or not 0 < share < whole:
        return Spent(cost_usd=cost, usage=_usage(total))
    return Spent(cost_usd=None if cost is None else cost * share / whole, usage=_usage(own), is_share=cost is not None)


def message_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """The tokens of one message."""
    return _usage(_counts(usage, _IN_MESSAGES))


def _counts(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, int]:
    return {name: count_of(entry.get(key)) for name, key in names.items()}


def _usage(counts: Mapping[str, int]) -> TokenUsage:
    taken = counts["fresh"] + counts["written"] + counts["cached"]
    return TokenUsage(input_tokens=taken, cached_tokens=counts["cached"], output_tokens=counts["output"])


def _weight(counts: Mapping[str, int]) -> float:
    return sum(_WEIGHTS[name] * count for name, count in counts.items())


_DETAIL_NAMES = ("file_path", "path", "pattern", "command", "url", "query", "notebook_path")


class Told(Struct, frozen=True, kw_only=True):
    """What a run told before its last message, and what was asked of it. `said` is what the model said last.

    `resumed` is of a run that went on with an earlier session.
    """

    program: Program
    asked_model: str | None = None
    session_id: str = ""
    model: str | None = None
    quota_opens_at: float | None = None
    said: str = ""
    resumed: bool = False
    notes: tuple[str, ...] = ()


def answer_in(result: Mapping[str, Any], told: Told, *, duration_ms: int, now: float) -> AgentResult:
    """The answer in a run's last message; `now` is in seconds since the epoch. Raises the AgentError that it means."""
    if result.get("is_error") is not False or result.get("terminal_reason") not in ("completed", None):
        raise error_in(result, told, now=now)
    structured = result.get("structured_output")
    output = text_of(result.get("result"))
    if not output.strip() and structured is None:
        raise error_of(EMPTY, _failure(result, told))
    spent = spent_in(result, resumed=told.resumed)
    return AgentResult(
        success=True,
        output=output or json.dumps(structured, ensure_ascii=False),
        agent=told.program.agent,
        structured=structured,
        session_id=_session(result, told),
        duration_ms=count_of(result.get("duration_ms")) or duration_ms,
        num_turns=count_of(result.get("num_turns")),
        total_cost_usd=spent.cost_usd,
        usage=spent.usage,
        model=told.model or _busiest_model(result) or told.asked_model,
        permission_denials=_denials(result),
        raw_output=_raw(result),
        notes=(*told.notes, *spent.notes(told.program.agent)),
    )


def error_in(result: Mapping[str, Any], told: Told, *, now: float) -> AgentError:
    """The error that a run's last message means."""
    signs = Signs(
        reason=text_of(result.get("terminal_reason")),
        subtype=text_of(result.get("subtype")),
        cause=text_of(result.get("api_error")),
        refused=result.get("stop_reason") == "refusal",
    )
    opens_in = None if told.quota_opens_at is None else max(0.0, told.quota_opens_at - now)
    return failed(_failure(result, told, retry_after_seconds=opens_in), signs, now=now)


def tool_detail(tool_input: object) -> str:
    """What a tool was used on, on one short line."""
    given = mapping_of(tool_input)
    return detail_of(next((text for name in _DETAIL_NAMES if (text := text_of(given.get(name)))), ""))


def _failure(result: Mapping[str, Any], told: Told, *, retry_after_seconds: float | None = None) -> Failure:
    sentences = [text_of(error) for error in list_of(result.get("errors"))]
    spent = spent_in(result, resumed=told.resumed)
    return Failure(
        program=told.program,
        text=text_of(result.get("result")) or "; ".join(filter(None, sentences)),
        status=count_of(result.get("api_error_status")) or None,
        asked_model=told.asked_model,
        model=told.model or _busiest_model(result),
        retry_after_seconds=retry_after_seconds,
        session_id=_session(result, told),
        raw_output=_raw(result),
        output=told.said,
        cost_usd=spent.cost_usd,
        usage=spent.usage,
    )


def _session(result: Mapping[str, Any], told: Told) -> str:
    return text_of(result.get("session_id")) or told.session_id


def _busiest_model(result: Mapping[str, Any]) -> str | None:
    by_model = mapping_of(result.get("modelUsage"))
    return max(by_model, key=lambda name: count_of(mapping_of(by_model[name]).get("outputTokens")), default=None)


def _denials(result: Mapping[str, Any]) -> tuple[str, ...]:
    entries = map(mapping_of, list_of(result.get("permission_denials")))
    return tuple(
        f"{text_of(entry.get('tool_name'))} {tool_detail(entry.get('tool_input'))}".strip() for entry in entries
    )


def _raw(result: Mapping[str, Any]) -> str:
    return json.dumps(dict(result), ensure_ascii=False, default=str)


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
