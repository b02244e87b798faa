"""What a run of the claude program tells while it runs, and what its end means. Shared by its CLI and its Agent SDK.

Exit codes and `subtype` do not tell: a refused request is a "success" with exit code 1, an interrupted run exits with
0. `is_error`, `terminal_reason` and `api_error_status` do, and an answer has to be there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls import failures as kinds
from codeloupe.agents.calls.program import Message, Reading
from codeloupe.errors import AgentError, BudgetExhausted, Crashed, InvalidRequest, OutputInvalid, TurnsExhausted
from codeloupe.model.agent import AgentRequest, AgentResult, TokensSpent, TokenUsage, ToolUsed, TurnTaken
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

_TAIL_CHARACTERS = 4000
_UNKNOWN_SESSION = kinds.Kind(
    InvalidRequest, "does not know the session that is to be resumed", "leave resume_session out, or keep sessions"
)
_AS_ROOT = kinds.Kind(InvalidRequest, "does not bypass permissions for the user root", "run as another user")
_SCHEMA_REFUSED = kinds.Kind(InvalidRequest, "does not take this schema", "use a simpler schema")
_BY_REASON = {
    "max_turns": kinds.Kind(
        TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less"
    ),
    "budget_exhausted": kinds.Kind(BudgetExhausted, "spent all that the call may cost", "allow more, or ask for less"),
    "structured_output_retry_exhausted": kinds.Kind(
        OutputInvalid, "gave no answer that fits the schema", "make the schema simpler, or ask another model"
    ),
    "prompt_too_long": kinds.TOO_LONG,
    "blocking_limit": kinds.TOO_LONG,
}
_REASON_OF_SUBTYPE = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget_exhausted",
    "error_max_structured_output_retries": "structured_output_retry_exhausted",
}
_BY_CAUSE = {"connection_failed": kinds.UNREACHED, "max_output_tokens": kinds.CUT_OFF}
# Only where no field tells. These are sentences of the program or the service, not of the model: it has not answered.
_BY_TEXT = kinds.patterns(
    ("not logged in|invalid api key|please run /login|credit balance is too low", kinds.NOT_LOGGED_IN),
    ("usage limit|limit reached|hit your limit", kinds.LIMITED),
    ("overloaded", kinds.OVERLOADED),
    ("prompt is too long", kinds.TOO_LONG),
    ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
)
_BY_STDERR = kinds.patterns(
    ("unknown option|allowed choices are", kinds.TOO_OLD),
    ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
    ("root/sudo privileges", _AS_ROOT),
    ("not a valid json schema", _SCHEMA_REFUSED),
    ("exceeds 10mb", kinds.TOO_LONG),
)
_RESETS_AT = regex(r"limit reached\|(\d{9,11})\b")
# What a token costs beside one of the input, the same for all of the vendor's models, and what each sort of token is
# called in the totals by model and in a message.
_TOKENS: Mapping[str, tuple[float, str, str]] = {
    "fresh": (1.0, "inputTokens", "input_tokens"),
    "written": (1.25, "cacheCreationInputTokens", "cache_creation_input_tokens"),
    "cached": (0.1, "cacheReadInputTokens", "cache_read_input_tokens"),
    "output": (5.0, "outputTokens", "output_tokens"),
}
_DETAIL_NAMES = ("file_path", "path", "pattern", "command", "url", "query", "notebook_path")
# The program waits half a second before its first retry, and a little at random; more was asked for by the service.
_LONGEST_OWN_DELAY_MS = 700
_OVERLOADED_STATUS = 529
_NO_MODEL = "<synthetic>"
_SCHEMA_TOOL = "StructuredOutput"
_MAX_SAID_CHARACTERS = 1024 * 1024


class Spent(Struct, frozen=True, kw_only=True):
    """What a run took. `is_share` tells that the cost is its share of a session's, estimated from its tokens."""

    cost_usd: float | None
    usage: TokenUsage
    is_share: bool = False


def spent_in(result: Message, *, resumed: bool) -> Spent:
    """What the run took, by its last message.

    Its totals are those of the session: of one that was resumed they hold what earlier runs took and paid for already.
    """
    cost, own = result.number("total_cost_usd"), _counts(result.part("usage"))
    models = result.part("modelUsage")
    if not models:
        return Spent(cost_usd=cost, usage=_usage(own))
    # The tokens beside the list by model leave some out, such as those of the program's own questions.
    by_model = [_counts(models.part(name), in_totals=True) for name in models]
    total = {name: sum(counts[name] for counts in by_model) for name in _TOKENS}
    whole, share = (sum(_TOKENS[name][0] * count for name, count in counts.items()) for counts in (total, own))
    if not resumed or not 0 < share < whole:
        return Spent(cost_usd=cost, usage=_usage(total))
    return Spent(cost_usd=None if cost is None else cost * share / whole, usage=_usage(own), is_share=cost is not None)


def _counts(entry: Message, *, in_totals: bool = False) -> dict[str, int]:
    return {name: entry.count(keys[1] if in_totals else keys[2]) for name, keys in _TOKENS.items()}


def _usage(counts: Mapping[str, int]) -> TokenUsage:
    taken = counts["fresh"] + counts["written"] + counts["cached"]
    return TokenUsage(input_tokens=taken, cached_tokens=counts["cached"], output_tokens=counts["output"])


class ClaudeReading(Reading):
    """Takes the messages of one run in order. `result` is the last message, once it came."""

    def __init__(self, program: kinds.Program, request: AgentRequest, emit: AgentEventSink) -> None:
        super().__init__(program, request, emit)
        self.result: Message | None = None
        self.quota_opens_at: float | None = None
        self._model: str | None = None
        self._notes: list[str] = []
        self._message_id = ""
        self._said = ""
        self._turns = 0
        self._spent = TokenUsage()

    def take(self, message: Message) -> None:
        """Take the next message. Raises the AgentError of a request that the program is about to send again.

        Retries are not the program's business, but only one that may retry tells how long the service wants us to
        wait: so it may, and is stopped here.
        """
        agent = self.program.agent
        self.session_id = self.session_id or message.text("session_id")
        match message.get("type"), message.get("subtype"):
            case "assistant", _:
                self._take_turn(message)
            case "result", _:
                self.result, self.is_answered = message, True
                spent = self._spent_in(message)
                if spent.usage.input_tokens or spent.cost_usd:
                    usage = spent.usage
                    self.emit(TokensSpent(agent, usage.input_tokens, usage.output_tokens, spent.cost_usd))
            case "system", "api_retry":
                self._refuse_retry(message)
            case "system", "model_fallback":
                models = f"{message.text('original_model')} to {message.text('fallback_model')}"
                why = message.text("trigger") or "no reason was given"
                self._notes.append(f"{agent} switched from the model {models}: {why}")
            case "rate_limit_event", _:
                info = message.part("rate_limit_info")
                if info.get("status") == "rejected":
                    self.quota_opens_at = info.count("resetsAt") or None

    def answer(self, completed: Completed, *, now: float | None = None) -> AgentResult:
        """The answer of a run that ended; `now` is in seconds since the epoch. Raises the AgentError that it means."""
        if self.result is None:
            failure = self.failure(raw_output=completed.stdout.decode("utf-8", "replace"))
            raise self.cut_short(failure, exit_code=completed.exit_code, stderr=completed.stderr)
        return self.answer_in(self.result, duration_ms=round(completed.seconds * 1000), now=now)

    def cut_short(self, failure: kinds.Failure, *, exit_code: int, stderr: str) -> AgentError:
        """The error of a run without a last message."""
        return kinds.ended_without_result(failure, _BY_STDERR, exit_code=exit_code, stderr=stderr[-_TAIL_CHARACTERS:])

    def answer_in(self, result: Message, *, duration_ms: int, now: float | None = None) -> AgentResult:
        """The answer in a run's last message. Raises the AgentError that it means."""
        if result.get("is_error") is not False or result.get("terminal_reason") not in ("completed", None):
            raise self._error_in(result, now=time.time() if now is None else now)
        structured, output = result.get("structured_output"), result.text("result")
        if not output.strip() and structured is None:
            raise kinds.error_of(kinds.EMPTY, self._failure_in(result))
        spent, agent = self._spent_in(result), self.program.agent
        notes = (f"{agent} reports the cost of the whole session; this call's share is estimated from its tokens",)
        denials = (
            f"{one.text('tool_name')} {one.part('tool_input').detail(_DETAIL_NAMES)}".strip()
            for one in result.parts("permission_denials")
        )
        return AgentResult(
            success=True,
            output=output or json.dumps(structured, ensure_ascii=False),
            agent=agent,
            structured=structured,
            session_id=result.text("session_id") or self.session_id,
            duration_ms=result.count("duration_ms") or duration_ms,
            num_turns=result.count("num_turns"),
            total_cost_usd=spent.cost_usd,
            usage=spent.usage,
            model=self._model or result.busiest("modelUsage") or self.request.model,
            permission_denials=tuple(denials),
            raw_output=_raw(result),
            notes=(*self._notes, *notes * spent.is_share),
        )

    def _take_turn(self, message: Message) -> None:
        said, agent = message.part("message"), self.program.agent
        if not said or said.get("model") == _NO_MODEL:
            return
        blocks = said.parts("content")
        if message.get("parent_tool_use_id") is None:
            if (identity := said.text("id")) != self._message_id:
                self._message_id = identity
                self._turns += 1
                self._model = said.text("model") or self._model
                self.emit(TurnTaken(agent, self._turns))
                new, spent = _usage(_counts(said.part("usage"))), self._spent
                self._spent = TokenUsage(
                    input_tokens=spent.input_tokens + new.input_tokens,
                    output_tokens=spent.output_tokens + new.output_tokens,
                )
                self.emit(TokensSpent(agent, self._spent.input_tokens, self._spent.output_tokens))
            self._take_words(blocks)
        for block in blocks:
            if block.get("type") == "tool_use" and block.get("name") != _SCHEMA_TOOL:
                self.emit(ToolUsed(agent, block.text("name"), block.part("input").detail(_DETAIL_NAMES)))

    def _take_words(self, blocks: list[Message]) -> None:
        """What is said before a tool is used is not the answer. A message that was cut off is continued by the next."""
        for block in blocks:
            match block.get("type"), block.get("name"):
                case "text", _:
                    self._said += block.text("text")
                case "tool_use", name if name == _SCHEMA_TOOL:
                    self._said = json.dumps(block.get("input"), ensure_ascii=False, default=str)
                case "tool_use", _:
                    self._said = ""
        self._said = self._said[:_MAX_SAID_CHARACTERS]

    def _refuse_retry(self, event: Message) -> None:
        status = event.count("error_status") or None
        if self.request.fallback_model is not None and status == _OVERLOADED_STATUS:
            return
        delay_ms = event.count("retry_delay_ms")
        asked = delay_ms / 1000 if delay_ms > _LONGEST_OWN_DELAY_MS else None
        if self.quota_opens_at is not None:
            asked = max(asked or 0.0, self.quota_opens_at - time.time())
        text = "the connection was not made, or cut" if status is None else event.text("error")
        failure = self.failure(text, _raw(event), status=status, retry_after_seconds=asked)
        raise kinds.error_of(_kind(failure, Message(terminal_reason="api_error")), failure)

    def _error_in(self, result: Message, *, now: float) -> AgentError:
        failure, opens_at = self._failure_in(result), self.quota_opens_at
        if opens_at is None and (told := _RESETS_AT.search(failure.text)):
            opens_at = int(told[1])
        if opens_at is not None:
            failure = replace(failure, retry_after_seconds=max(0.0, opens_at - now))
        return kinds.error_of(_kind(failure, result), failure)

    def _failure_in(self, result: Message) -> kinds.Failure:
        errors = result.get("errors")
        sentences = [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
        spent = self._spent_in(result)
        failure = self.failure(
            result.text("result") or "; ".join(filter(None, sentences)),
            _raw(result),
            status=result.count("api_error_status") or None,
            model=self._model or result.busiest("modelUsage"),
            output=self._said,
            cost_usd=spent.cost_usd,
            usage=spent.usage,
        )
        return replace(failure, session_id=result.text("session_id") or self.session_id)

    def _spent_in(self, result: Message) -> Spent:
        return spent_in(result, resumed=self.request.resume_session is not None)


def _kind(failure: kinds.Failure, result: Message) -> kinds.Kind:
    reason = result.text("terminal_reason") or _REASON_OF_SUBTYPE.get(result.text("subtype"), "")
    if known := _BY_REASON.get(reason):
        return known
    if result.get("stop_reason") == "refusal":
        return kinds.REFUSED
    by_status = kinds.kind_of_status(failure.status)
    # The service tells some of what is wrong with an account or a prompt by a status for wrong requests.
    if by_status is not None and by_status is not kinds.INVALID:
        return by_status
    if known := _BY_CAUSE.get(result.text("api_error")) or kinds.kind_in(failure.text, _BY_TEXT) or by_status:
        return known
    # A reply that is empty, or not what the API speaks, has no field of its own.
    if reason == "api_error":
        return kinds.UNREACHED
    why = reason or result.text("subtype") or "no reason is known"
    return kinds.Kind(Crashed, f"ended without an answer ({why})", "try again; the raw output is kept")


def _raw(message: Message) -> str:
    return json.dumps(message, ensure_ascii=False, default=str)
