"""A preview of a review: its files, reviewers, calls, tokens and likely cost. No agent is called, nothing is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError
from codeloupe.git.repository import opening_once
from codeloupe.model.change import FileChange, Unit
from codeloupe.model.review import CostEstimate, Preview, PreviewFile
from codeloupe.model.scope import DefaultScope, ScopeRequest
from codeloupe.planning.experts import experts_of
from codeloupe.planning.prepare import fetched, prepare
from codeloupe.planning.select import with_and_without_lines
from codeloupe.planning.settings import settings_for
from codeloupe.planning.units import plan_units, tokens_of
from codeloupe.reviewers.choose import ChosenReviewer, Team, choose_reviewers
from codeloupe.reviewers.prompt import PromptMaterial, new_fence, review_prompt
from codeloupe.store.ledger import DatabaseLedger, StoredCall

_FREE = "no agent is called"


async def preview(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None, calls: AgentCalls
) -> Preview:
    """Return what a review would look at, who would review, and its likely cost. Raise as `review` does."""
    async with AsyncExitStack() as stack:
        stack.enter_context(opening_once())
        request, place = await stack.enter_async_context(fetched(scope or DefaultScope(), Path(repo)))
        settings = await settings_for(request, place, settings, calls.environment)
        prepared = await stack.enter_async_context(prepare(request, place, settings, must_match=True))
        files, without_lines = with_and_without_lines(prepared.selection.files)
        reasons = {skip.file: skip for skip in (*prepared.selection.skipped, *without_lines)}
        shown = {file.path for file in prepared.change.files}
        team = Team(await choose_reviewers(settings, calls), settings, calls, place)
        units = _units(team, files)
        tokens = _prompt_tokens(units)
        agents = [one for one in team.chosen if one.agents]
        return Preview(
            scope=prepared.change.scope,
            files=tuple(PreviewFile(file, reasons.get(file.path)) for file in prepared.change.files),
            out_of_reach=tuple(skip for skip in reasons.values() if skip.file not in shown),
            reviewers=tuple(one.info for one in team.chosen),
            units=len(units),
            calls=len(units) * len(agents),
            prompt_tokens_estimate=tokens * len(agents),
            cost=_cost(team.chosen, calls, units=len(units), prompt_tokens=tokens),
        )


def _units(team: Team, files: Sequence[FileChange]) -> Sequence[Unit]:
    """Return the units that agents would get; none without an agent."""
    if not team.has_agents:
        return ()
    settings = team.settings
    return plan_units(
        files,
        effort=settings.effort,
        experts=experts_of(settings),
        passes=settings.passes,
        apart=team.asks_experts_apart,
        own_tokens=team.own_tokens,
    )


def _prompt_tokens(units: Sequence[Unit]) -> int:
    """Return about how many tokens the prompts of all units have."""
    if not units:
        return 0
    sample = review_prompt(units[0], PromptMaterial(fence=new_fence()))
    around = tokens_of(sample.system) + tokens_of(json.dumps(sample.schema)) + tokens_of(sample.text)
    return sum(unit.tokens for unit in units) + max(0, around - units[0].tokens) * len(units)


def _cost(reviewers: Sequence[ChosenReviewer], calls: AgentCalls, *, units: int, prompt_tokens: int) -> CostEstimate:
    """Return the cost of all calls; one reviewer without a known price makes it unknown."""
    external = [one.info.type for one in reviewers if one.needs_whole_tree]
    if external:
        return CostEstimate(None, f"{external[0]} is an external program, and does not report its cost in advance")
    if not units:
        return CostEstimate(0.0, _FREE)
    total = 0.0
    bases: list[str] = []
    for one in reviewers:
        if not one.agents:
            continue
        tokens = prompt_tokens + one.agents[0].limits.own_tokens * units
        estimate = _cost_of(one, calls, units=units, tokens=tokens)
        if estimate.usd is None:
            return estimate
        total += estimate.usd
        bases.append(estimate.basis)
    return CostEstimate(total, "; ".join(dict.fromkeys(bases)))


def _cost_of(one: ChosenReviewer, calls: AgentCalls, *, units: int, tokens: int) -> CostEstimate:
    """Return the cost of the calls to one agent.

    It is the number of tokens to send, times the cost per token that earlier calls to the same model had. Without
    earlier calls it is the list price of the prompts alone.
    """
    name = one.info.type
    model = one.info.model
    stored = _stored_calls(name, calls)
    if model is None and stored:
        # The agent chooses its model, which was that of its last call.
        model = stored[0].model
    same = [call for call in stored if _is_same_model(model or "", call.model)]
    paid = [call for call in same if call.cost_usd and call.input_tokens > 0]
    if paid:
        per_token = sum(call.cost_usd or 0.0 for call in paid) / sum(call.input_tokens for call in paid)
        count = "1 stored call" if len(paid) == 1 else f"{len(paid):,} stored calls"
        return CostEstimate(per_token * tokens, f"by the cost per token of {count} to {name} with {paid[0].model}")
    price = _list_price(model or "", tokens // units)
    if price is not None:
        return CostEstimate(price * units, f"for the prompts, by the list price of {model}; the answers are extra")
    if model:
        return CostEstimate(None, f"no stored call to {name} with {model} has a cost, and its list price is not known")
    return CostEstimate(None, f"no call to {name} is stored yet, and a list price needs the name of a model (--model)")


def _stored_calls(agent: str, calls: AgentCalls) -> list[StoredCall]:
    """Return the stored calls to an agent; none if there is no database, or it cannot be read."""
    try:
        if not calls.database.is_made():
            return []
        return DatabaseLedger(calls.database).calls_to(agent)
    except CodeloupeError:
        return []


def _is_same_model(named: str, answered: str) -> bool:
    """Tell whether a model's full name is the named one: equal, with a date after it, or with an alias as a part."""
    plain = named.rpartition(":")[2]
    dated = re.fullmatch(rf"{re.escape(plain)}-[0-9]{{4,8}}(-[0-9]{{2}}-[0-9]{{2}})?", answered)
    is_alias = plain.isalpha() and plain in answered.split("-")
    return bool(plain) and (answered in (plain, named) or dated is not None or is_alias)


def _list_price(model: str, input_tokens: int) -> float | None:
    """Return the list price in dollars of one call's prompt; None for an unknown model or without a price list."""
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415 - comes with the extra `api`
    except ImportError:
        return None
    provider, _, name = model.rpartition(":")
    try:
        price = calc_price(Usage(input_tokens=input_tokens), name, provider_id=provider or None)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)
