"""Requests, results and failures for the tests of what stands around an agent call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from codeloupe.errors import Overloaded, RateLimited, TimedOut
from codeloupe.model.agent import AgentRequest, AgentResult
from tests.endings import timed_out


def request(prompt: str = "Say hello.", **fields: Any) -> AgentRequest:
    return AgentRequest(**{"prompt": prompt, "working_dir": Path(), **fields})


def result(output: str = "hello", **fields: Any) -> AgentResult:
    return AgentResult(**{"success": True, "output": output, "agent": "scripted", "total_cost_usd": 0.0, **fields})


def rate_limited(retry_after_seconds: float | None = None, **fields: Any) -> RateLimited:
    return RateLimited("too many requests", agent="scripted", retry_after_seconds=retry_after_seconds, **fields)


def overloaded() -> Overloaded:
    return Overloaded("the service has no room", agent="scripted")


def ended_in_silence(ask: Callable[[AgentRequest], object], work: Path, limit: str, words: str) -> TimedOut:
    """The error of a program that says something and then nothing, at the limit of this name."""
    return timed_out(
        TimedOut,
        lambda seconds: ask(request("Look.", working_dir=work, **{limit: seconds})),
        ready=lambda error: bool(error.raw_output),
        words=words,
    )


def made_up_token(letter: str = "a") -> str:
    """What looks like a key; put together here, so that none stands in a file."""
    return "-".join(("sk", "ant", letter * 24))
