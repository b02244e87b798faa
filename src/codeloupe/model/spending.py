"""What agent calls cost, as a sum can hold it. Pure."""

from __future__ import annotations

import math

from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.model.usage import Usage


def usage_of(result: AgentResult) -> Usage:
    """What an answer cost: nothing if it came from the ledger."""
    if result.from_ledger:
        return Usage(cached=1)
    seconds = result.duration_ms / 1000
    return spent(max(result.attempts, 1), result.total_cost_usd, result.usage, duration_seconds=seconds)


def spent(requests: int, cost_usd: float | None, tokens: TokenUsage | None, *, duration_seconds: float = 0.0) -> Usage:
    """What some requests cost; where there were any, a cost that is not known, or no number, counts as unknown."""
    known = cost_usd is not None and math.isfinite(cost_usd)
    return Usage(
        requests=requests,
        input_tokens=tokens.input_tokens if tokens else 0,
        output_tokens=tokens.output_tokens if tokens else 0,
        cost_usd=max(cost_usd, 0.0) if cost_usd is not None and known else 0.0,
        duration_seconds=duration_seconds,
        unknown_costs=1 if requests and not known else 0,
    )
