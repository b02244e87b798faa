"""What the claude program's last message means: an answer, or which error. Shared by its CLI and its Agent SDK.

Exit codes and `subtype` do not tell: a refused request is a "success" with exit code 1, an interrupted run exits with
0. `is_error`, `terminal_reason` and `api_error_status` do, and an answer has to be there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.program import Program
from codeloupe.agents.calls.program_failures import EMPTY, Failure, error_of
from codeloupe.agents.calls.program_output import count_of, detail_of, list_of, mapping_of, text_of
from codeloupe.agents.claude.failures import Signs, failed
from codeloupe.agents.claude.spending import spent_in
from codeloupe.errors import AgentError
from codeloupe.model.agent import AgentResult

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
