"""The limits of a run on money, tokens and requests, and the amounts that are left."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits, Spent
from codeloupe.config.schema import Settings
from codeloupe.errors import BudgetExhausted
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import PipelineDefinition, RunRecord, StageRecord


class Allowance(Struct, frozen=True, kw_only=True):
    """The amount that one limit leaves for the rest of a run, a text about the spent amount, and advice."""

    left: float
    is_money: bool
    words: str
    hint: str


def with_lost(record: StageRecord) -> StageRecord:
    """Return a stopped stage in which requests that will never be answered count, at an unknown cost."""
    unknown = Usage(requests=record.unanswered, unknown_costs=record.unanswered)
    return replace(record, unanswered=0, lost=record.lost.plus(unknown))


def spending_of(definition: PipelineDefinition, run: RunRecord, settings: Settings) -> SpendingLimits:
    """Return the limits of all calls of a run together, with the amounts that it has used so far."""
    limits = [most for most in (definition.max_budget_usd, settings.max_budget_usd) if most is not None]
    used = reduce(Usage.plus, (with_lost(stage).usage for stage in run.stages), Usage())
    return SpendingLimits(
        max_usd=min(limits, default=None),
        max_tokens=settings.max_tokens,
        max_requests=settings.max_requests,
        spent=Spent(
            usd=used.cost_usd,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            requests=used.requests,
            unknown_costs=used.unknown_costs,
        ),
    )


def left_usd(definition: PipelineDefinition, run: RunRecord, settings: Settings, stage: str) -> float | None:
    """Return the amount that a call of a stage may cost, or None without a limit. Raise BudgetExhausted."""
    amounts: list[float] = []
    for allowance in _allowances(definition, run, settings, stage):
        if allowance.left <= 0:
            what = f"stopped spending on {stage}: {allowance.words}"
            raise BudgetExhausted(what, agent="none", hint=allowance.hint, attempts=0)
        if allowance.is_money:
            amounts.append(allowance.left)
    return min(amounts, default=None)


def budget_advice(definition: PipelineDefinition, run: RunRecord, settings: Settings, stage: str) -> str:
    """Return advice for an agent that stopped at its budget; empty if no limit of ours set that budget."""
    amounts = [each for each in _allowances(definition, run, settings, stage) if each.is_money]
    if not amounts:
        return ""
    return min(amounts, key=lambda allowance: allowance.left).hint


def _allowances(definition: PipelineDefinition, run: RunRecord, settings: Settings, stage: str) -> Iterator[Allowance]:
    used = run.usage
    yield from _counts(used, settings, run.run_id, stage)
    in_file = f"`max_budget_usd` in {definition.file}"
    if definition.max_budget_usd is not None:
        hint = _hint(in_file, run.run_id, stage, options=" --accept-changes")
        yield _money(used, definition.max_budget_usd, "the run", hint)
    own = next(each.max_budget_usd for each in definition.stages if each.name == stage)
    if own is not None:
        hint = _hint(f"its `budget` in {definition.file}", run.run_id, stage, options=" --accept-changes")
        yield _money(run.stage(stage).usage, own, f"the stage {stage}", hint)
    if settings.max_budget_usd is not None:
        hint = _hint(_setting("max_budget_usd"), run.run_id, stage)
        yield _money(used, settings.max_budget_usd, "the run", hint)


def _counts(used: Usage, settings: Settings, run_id: str, stage: str) -> Iterator[Allowance]:
    if settings.max_requests is not None:
        words = f"the run has made {used.requests:,} of its {settings.max_requests:,} requests"
        left = settings.max_requests - used.requests
        yield Allowance(left=left, is_money=False, words=words, hint=_hint(_setting("max_requests"), run_id, stage))
    if settings.max_tokens is not None:
        tokens = used.input_tokens + used.output_tokens
        words = f"the run has used {tokens:,} of its {settings.max_tokens:,} tokens"
        left = settings.max_tokens - tokens
        yield Allowance(left=left, is_money=False, words=words, hint=_hint(_setting("max_tokens"), run_id, stage))


def _money(used: Usage, usd: float, whose: str, hint: str) -> Allowance:
    words = f"${used.cost_usd:.4f} of the ${usd:.4f} for {whose} has been spent"
    if used.unknown_costs:
        words += f" ({used.unknown_costs} calls did not report their cost)"
    return Allowance(left=usd - used.cost_usd, is_money=True, words=words, hint=hint)


def _setting(key: str) -> str:
    return f"`{key}` in your settings, or CODELOUPE_{key.upper()}"


def _hint(place: str, run_id: str, stage: str, *, options: str = "") -> str:
    return f"raise {place}, then `codeloupe pipeline resume {run_id}{options} --retry {stage}`"
