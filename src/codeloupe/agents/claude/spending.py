"""What a run of the claude program took, by its last message.

Its totals are those of the session: of one that was resumed they hold what earlier runs took and paid for already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.program_output import cost_of, count_of, mapping_of
from codeloupe.model.agent import TokenUsage

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
