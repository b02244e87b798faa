"""The parts of a stage's work that its attempts and its gates share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import OutputInvalid, RateLimited, StoreError
from codeloupe.model import pipeline as model
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import FailedTry, PipelineEvent, StageRecord, StageState
from codeloupe.pipelines.context import LONGEST_QUOTA_SECONDS, Context
from codeloupe.pipelines.stage_calls import StageCalls
from codeloupe.pipelines.state import Fact


class StageWork:
    """One stage of a run, with its record as it was saved last."""

    def __init__(self, stage: model.StageDefinition, context: Context) -> None:
        self.stage = stage
        self.name = stage.name
        self.context = context
        self.state = context.state
        self.files = context.files

    @property
    def record(self) -> StageRecord:
        """Return the stage as it was saved last."""
        return self.state.stage(self.name)

    def event(self, kind: model.PipelineEventKind, message: str = "", **facts: Fact) -> PipelineEvent:
        """Return an event of the stage that happens now."""
        return self.state.event(kind, message, stage=self.name, **facts)

    async def fill(self, workspace: Path, tree: str, attempt: int) -> None:
        """Fill a workspace with a tree, for calls of an attempt; a checkout has it already. Raise WorkspaceError."""
        if not self.context.is_checkout:
            await self.context.workspaces.put(tree, workspace)
        failures = 0
        for failure in self.record.failures:
            # An answer whose files were lost did not fail; if it changed no files, the ledger returns it again.
            if failure.attempt == attempt and failure.kind != model.WORKSPACE_LOST:
                failures += 1
        self.context.keys.tell(workspace, tree, calls=f"{self.record.retries} {failures}")

    @contextmanager
    def counting(self, calls: StageCalls) -> Iterator[None]:
        """Save what calls spent if the block, which saves their outcome, is cancelled or fails."""
        try:
            yield
        except BaseException:
            record = self.record
            # The caller gets the first error.
            with suppress(StoreError):
                self.state.put(replace(record, unanswered=0, lost=record.lost.plus(calls.usage)))
            raise

    def wait_for_quota(self, error: RateLimited, usage: Usage) -> None:
        """Save that the stage waits until a quota resets, which does not count as a failure, and what it spent."""
        record = self.record
        self.state.move(
            record,
            StageState.WAITING_FOR_QUOTA,
            reason=error.message,
            quota_until=self.context.quota_reset(self.name, error),
            unanswered=0,
            lost=record.lost.plus(usage),
        )

    def record_failure(self, failure: FailedTry, answer: str = "", **changes: Any) -> None:
        """Record a failure and begin recovery. An `answer` that could not be used is stored, and named in the hint."""
        record = self.record
        if answer.strip():
            file = f"unused-answer-{len(record.failures) + 1}.md"
            name = self.files.attempt(self.name, failure.attempt, file)
            path = self.files.write(name, self.state.masked(answer))
            hints = [failure.hint, f"its answer is in {path}"]
            failure = replace(failure, hint="; ".join(hint for hint in hints if hint))
        event = self.event(
            "try_failed",
            failure.message,
            attempt=failure.attempt,
            step=failure.step.value,
            error=failure.kind,
            gate=failure.gate,
            hint=failure.hint,
        )
        masked = replace(failure, message=event.message, hint=str(event.facts["hint"]))
        failures = (*record.failures, masked)
        self.state.move(
            record, StageState.RECOVERING, event, failures=failures, unanswered=0, reason=event.message, **changes
        )


def quota_error(error: Exception) -> RateLimited | None:
    """Return the error about a quota that is used up, if the error of a call or a gate is about that.

    A service that asks for a wait of more than a year is an ordinary failure, about which a person decides.
    """
    cause = error if isinstance(error, RateLimited) else error.__cause__
    if not isinstance(cause, RateLimited):
        return None
    seconds = cause.retry_after_seconds
    if seconds is not None and seconds > LONGEST_QUOTA_SECONDS:
        return None
    return cause


def unused_answer(error: Exception) -> str:
    """Return the answer of an agent that could not be used; empty if there was none."""
    cause = error if isinstance(error, OutputInvalid) else error.__cause__
    if not isinstance(cause, OutputInvalid):
        return ""
    return cause.output or cause.raw_output
