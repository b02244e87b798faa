"""What a run and its stages may still spend, looked at before each call."""

from __future__ import annotations

from codeloupe.errors import BudgetExhausted
from codeloupe.model.pipeline_definition import PipelineDefinition
from codeloupe.model.usage import Usage
from codeloupe.pipeline.logbook import Logbook


class Purse:
    """The budgets of a pipeline, against what the run's record says was spent."""

    def __init__(self, definition: PipelineDefinition, book: Logbook) -> None:
        self._run_usd = definition.max_budget_usd
        self._stage_usd = {stage.name: stage.max_budget_usd for stage in definition.stages}
        self._book = book

    def left_usd(self, stage: str) -> float | None:
        """What a call of a stage, or of one of its gates, may cost; None without a limit.

        Raises BudgetExhausted, which names the limit and what was spent, when nothing is left.
        """
        run = self._book.run
        limits = (
            ("the run", self._run_usd, run.usage),
            (f"the stage {stage}", self._stage_usd[stage], run.stage(stage).usage),
        )
        left = [_left(whose, most, spent, stage) for whose, most, spent in limits if most is not None]
        return min(left) if left else None


def _left(whose: str, most: float, spent: Usage, stage: str) -> float:
    left = most - spent.cost_usd
    if left > 0:
        return left
    unknown = f" ({spent.unknown_costs} calls did not tell their cost)" if spent.unknown_costs else ""
    raise BudgetExhausted(
        f"nothing more is spent on {stage}: ${spent.cost_usd:.4f} of the ${most:.4f} of {whose} are spent{unknown}",
        agent="none",
        hint="allow more in the pipeline's file, then have the stage tried again with that change accepted",
        attempts=0,
    )
