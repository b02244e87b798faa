"""Phrases that every report and the progress display say in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codeloupe.model.agents import AGENTS

# Every agent call loads this module for its durations, and needs none of these.
if TYPE_CHECKING:
    from codeloupe.model.finding import Finding
    from codeloupe.model.review import ReviewerInfo
    from codeloupe.model.usage import Usage

_MINUTE_SECONDS = 60
_OFFLINE_PROMISE = "lint, security and hygiene; not an AI review"
_REVIEWER_NAMES = {
    "offline": "Offline review",
    **{name: f"{facts.label} review" for name, facts in AGENTS.items()},
    "cerberus": "Cerberus review",
    "command": "Review by a command",
}


def counted(count: int, one: str, many: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {one if count == 1 else many}"


def duration(seconds: float) -> str:
    """`0.4 s`, `2 min 5 s`."""
    if seconds < _MINUTE_SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_SECONDS)
    return f"{minutes:,} min {rest} s"


def reviewer_in_words(reviewer: ReviewerInfo) -> str:
    """Which reviewer and why, as one sentence; the offline one never passes for an AI review."""
    model = f" with {reviewer.model}" if reviewer.model else ""
    why = f": {reviewer.why}" if reviewer.why else ""
    promise = f" ({_OFFLINE_PROMISE})" if reviewer.type == "offline" and "not an AI review" not in reviewer.why else ""
    return f"{_reviewer_name(reviewer.type)}{model}{why}{promise}"


def _reviewer_name(kind: str) -> str:
    """`agent_sdk`, or several together: `agent_sdk+codex`."""
    names = [name for name in kind.split("+") if name]
    if len(names) > 1:
        return f"Review by {', '.join(names[:-1])} and {names[-1]}"
    return _REVIEWER_NAMES.get(kind, f"Review by {kind}")


def place_in_words(finding: Finding) -> str:
    """`a.py:12`; only the path where no line is known, and `?` where not even that is."""
    path = finding.file or "?"
    return f"{path}:{finding.line_start}" if finding.first_line > 0 else path


def dollars(amount: float) -> str:
    """`$1.20`; a small amount with as many digits as it needs, so that it does not look like nothing."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def spent_in_words(usage: Usage) -> str:
    """Calls, tokens and cost: `9 calls (2 more from the ledger), 41,234 tokens, $0.31`; empty when there were none."""
    if not usage.requests and not usage.cached:
        return ""
    calls = counted(usage.requests, "call", "calls")
    ledger = f" ({usage.cached:,} more from the ledger)" if usage.cached else ""
    if not usage.requests:
        return f"no new calls, {counted(usage.cached, 'answer', 'answers')} from the ledger"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return f"{calls}{ledger}, {tokens}, {_cost(usage)}"


def _cost(usage: Usage) -> str:
    if not usage.unknown_costs:
        return dollars(usage.cost_usd)
    if usage.unknown_costs >= usage.requests and not usage.cost_usd:
        return "cost unknown"
    return f"{dollars(usage.cost_usd)} and the unknown cost of {counted(usage.unknown_costs, 'call', 'calls')}"
