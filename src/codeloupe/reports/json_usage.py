"""What something cost, as every JSON document says it."""

from __future__ import annotations

import math
from typing import TypedDict

from codeloupe.model.agent import Usage


class UsageV1(TypedDict):
    """What it cost; `cached` counts answers that were bought before and came from the ledger.

    `cost_usd` is what is known; `unknown_costs` counts the calls that did not tell theirs.
    """

    requests: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    duration_seconds: float
    unknown_costs: int


def usage_v1(usage: Usage) -> UsageV1:
    """The usage as JSON has it."""
    return UsageV1(
        requests=usage.requests,
        cached=usage.cached,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=finite(usage.cost_usd),
        duration_seconds=finite(usage.duration_seconds),
        unknown_costs=usage.unknown_costs,
    )


def finite(number: float) -> float:
    """JSON has no word for infinity; a number that cannot be written counts as not known, which is 0."""
    return number if math.isfinite(number) else 0.0
