"""Prompts and answers in the log: the logger `codeloupe.transcript` has them at DEBUG, without secrets."""

from __future__ import annotations

import logging

from codeloupe.errors import AgentError, CodeloupeError
from codeloupe.model.agent import AgentRequest, AgentResult, full_prompt
from codeloupe.system.redaction import redact

_log = logging.getLogger("codeloupe.transcript")
# The ledger needs these to know how a prompt was made; they are not for people.
_LABELS_FOR_KEYS = ("fence", "prompt_version", "trust", "fresh")


def label_of(request: AgentRequest) -> str:
    """Return the name of a call for people, from its labels."""
    return " ".join(value for name, value in request.labels.items() if name not in _LABELS_FOR_KEYS)


def log_prompt(request: AgentRequest, agent: str) -> None:
    """Log all that an agent is asked."""
    for title, text in (
        ("system prompt", request.system_prompt),
        ("addition to the system prompt", request.append_system_prompt),
        ("prompt", full_prompt(request)),
    ):
        if text:
            _log_text(title, request, agent, text)


def log_answer(request: AgentRequest, agent: str, result: AgentResult) -> None:
    """Log an answer as the agent printed it."""
    _log_text("answer", request, agent, result.raw_output or result.output)


def log_failed_call(request: AgentRequest, agent: str, error: CodeloupeError) -> None:
    """Log why there is no answer, with the output of the agent."""
    raw_output = error.raw_output if isinstance(error, AgentError) else ""
    _log_text("failure", request, agent, f"{error.message}\n{raw_output}")


def _log_text(title: str, request: AgentRequest, agent: str, text: str) -> None:
    # Redaction takes time, so it is done only for a log that someone reads.
    if _log.isEnabledFor(logging.DEBUG):
        about = f"{title} of {label_of(request)} ({agent})" if label_of(request) else f"{title} of {agent}"
        _log.debug("%s:\n%s", redact(about), redact(text))
