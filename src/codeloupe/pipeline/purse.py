"""What a run and its stages may still spend in their whole life, looked at before each call and counted with it."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.errors import BudgetExhausted
from codeloupe.model.agent import AgentEvent, AttemptStarted, Usage
from codeloupe.model.pipeline import StageRecord
from codeloupe.model.pipeline_definition import PipelineDefinition
from codeloupe.model.ports import AgentEventSink
from codeloupe.pipeline.logbook import Logbook


class Purse:
    """The limits of a pipeline and of the settings, against what the run's record says was spent."""

    def __init__(self, definition: PipelineDefinition, book: Logbook, limits: Settings) -> None:
        self._file = definition.file
        self._run_usd = definition.max_budget_usd
        self._stage_usd = {stage.name: stage.max_budget_usd for stage in definition.stages}
        self._limits = limits
        self._book = book

    def left_usd(self, stage: str) -> float | None:
        """What a call of a stage, or of one of its gates, may cost; None without a limit of money.

        Raises BudgetExhausted, which names the limit, what was spent and how to go on, when a limit is reached.
        """
        self._check_counts(stage, self._book.run.usage)
        left = []
        for whose, most, spent, where in self._money(stage):
            if spent.cost_usd >= most:
                unknown = f" ({spent.unknown_costs} calls did not report their cost)" if spent.unknown_costs else ""
                words = f"${spent.cost_usd:.4f} of the ${most:.4f} for {whose} has been spent{unknown}"
                raise self._exhausted(stage, words, where=where, key="max_budget_usd")
            left.append(most - spent.cost_usd)
        return min(left) if left else None

    def _money(self, stage: str) -> list[tuple[str, float, Usage, str]]:
        """Each limit of money on a stage: whose it is, how much, what was spent of it, and where it can be raised."""
        run = self._book.run
        limits = (
            ("the run", self._run_usd, run.usage, f"`max_budget_usd` in {self._file}"),
            (f"the stage {stage}", self._stage_usd[stage], run.stage(stage).usage, f"its `budget` in {self._file}"),
            ("the run", self._limits.max_budget_usd, run.usage, ""),
        )
        return [(whose, most, spent, where) for whose, most, spent, where in limits if most is not None]

    def advice(self, stage: str) -> str:
        """What to do when an agent stopped at the money that it was given; nothing where no limit of ours gave it."""
        limits = self._money(stage)
        if not limits:
            return ""
        *_, where = min(limits, key=lambda limit: limit[1] - limit[2].cost_usd)
        return self._exhausted(stage, "", where=where, key="max_budget_usd").hint

    def left_requests(self) -> int | None:
        """How many requests the run may still make; None without a limit."""
        most = self._limits.max_requests
        return None if most is None else most - self._book.run.usage.requests

    def left_tokens(self) -> int | None:
        """How many tokens the run may still use; None without a limit."""
        most = self._limits.max_tokens
        return None if most is None else most - _tokens(self._book.run.usage)

    def counting(self, stage: str, emit: AgentEventSink) -> AgentEventSink:
        """A sink that writes each request of a stage down when it goes out: a process that dies has not lost it."""

        def count(event: AgentEvent) -> None:
            if isinstance(event, AttemptStarted):
                record = self._book.stage(stage)
                self._book.put(replace(record, unanswered=record.unanswered + 1))
            emit(event)

        return count

    def _check_counts(self, stage: str, spent: Usage) -> None:
        requests, tokens = self.left_requests(), self.left_tokens()
        if requests is not None and requests <= 0:
            words = f"the run has made {spent.requests:,} of its {self._limits.max_requests:,} requests"
            raise self._exhausted(stage, words, key="max_requests")
        if tokens is not None and tokens <= 0:
            words = f"the run has used {_tokens(spent):,} of its {self._limits.max_tokens:,} tokens"
            raise self._exhausted(stage, words, key="max_tokens")

    def _exhausted(self, stage: str, words: str, *, key: str, where: str = "") -> BudgetExhausted:
        option = " --accept-changes" if where else ""
        place = where or f"`{key}` in your settings, or CODELOUPE_{key.upper()}"
        return BudgetExhausted(
            f"no more is spent on {stage}: {words}",
            agent="none",
            hint=f"raise {place}, then `codeloupe pipeline resume {self._book.run.run_id}{option} --retry {stage}`",
            attempts=0,
        )


def with_lost(record: StageRecord) -> StageRecord:
    """A stage that was stopped: what it had asked and nobody will answer counts as asked, at an unknown cost."""
    if not record.unanswered:
        return record
    lost = Usage(requests=record.unanswered, unknown_costs=record.unanswered)
    return replace(record, unanswered=0, lost=record.lost.plus(lost))


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
