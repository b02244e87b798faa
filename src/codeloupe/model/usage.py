"""What a review cost."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct, frozen=True, kw_only=True):
    """Requests, tokens, money and time. `cached` counts answers that came from the ledger, which are no requests.

    `cost_usd` is what is known; `unknown_costs` counts the calls that did not tell theirs.
    """

    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    duration_seconds: float = 0.0
    unknown_costs: int = 0

    def plus(self, other: Usage) -> Usage:
        """Both together. Times are added too: what ran side by side needs its own."""
        return Usage(
            requests=self.requests + other.requests,
            cached=self.cached + other.cached,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            duration_seconds=self.duration_seconds + other.duration_seconds,
            unknown_costs=self.unknown_costs + other.unknown_costs,
        )
