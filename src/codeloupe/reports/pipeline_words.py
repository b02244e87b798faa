"""Words, signs and numbers that every report about a run of a pipeline shares."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    RunRecord,
    StageRecord,
    StageState,
)
from codeloupe.reports.wording import dollars, duration

# What a process does, and what has stopped when the process is gone.
WORKING_STATES = frozenset({StageState.RUNNING, StageState.GATING, StageState.REWORKING, StageState.RECOVERING})
ENDED_STATES = frozenset({StageState.COMPLETED, StageState.FAILED, StageState.CANCELLED})
STYLES = {
    StageState.PENDING: "dim",
    StageState.RUNNING: "cyan",
    StageState.GATING: "cyan",
    StageState.REWORKING: "yellow",
    StageState.RECOVERING: "yellow",
    StageState.AWAITING_APPROVAL: "yellow",
    StageState.COMPLETED: "green",
    StageState.FAILED: "red",
    StageState.CANCELLED: "dim",
    StageState.INTERRUPTED: "yellow",
}
VERDICT_STYLES = {CriticVerdict.PASS: "green", CriticVerdict.REWORK: "yellow", CriticVerdict.FAIL: "red"}
_SIGNS = {
    StageState.PENDING: ("·", "."),
    StageState.RUNNING: ("▸", ">"),
    StageState.GATING: ("◆", "="),
    StageState.REWORKING: ("↻", "~"),
    StageState.RECOVERING: ("↺", "~"),
    StageState.AWAITING_APPROVAL: ("?", "?"),
    StageState.COMPLETED: ("✔", "+"),
    StageState.FAILED: ("✖", "x"),
    StageState.CANCELLED: ("-", "-"),
    StageState.INTERRUPTED: ("!", "!"),
}
# An attempt is under way that is not in the list of those that gave a result.
_ATTEMPT_UNDER_WAY = frozenset({StageState.RUNNING, StageState.RECOVERING, StageState.REWORKING})
_COMMAND = re.compile(r"`(codeloupe pipeline resume [^`]+)`")
PASSED, FAILED_BY_A_GATE, COULD_NOT_GO_ON, INTERRUPTED = 0, 1, 3, 130


def as_it_stands(run: RunRecord, *, busy: bool) -> RunRecord:
    """The run as it really is: what its file says is under way is interrupted when no process works on it."""
    if busy or run.state in ENDED_STATES:
        return run
    stages = tuple(_stopped(stage) if stage.state in WORKING_STATES else stage for stage in run.stages)
    stopped = run.state in WORKING_STATES or run.state is StageState.PENDING
    return replace(run, stages=stages, state=StageState.INTERRUPTED if stopped else run.state)


def _stopped(stage: StageRecord) -> StageRecord:
    return replace(stage, state=StageState.INTERRUPTED, reason=stage.reason or "the process that ran it is gone")


def exit_code_of(run: RunRecord) -> int | None:
    """The exit code for a run that stopped, or None while it goes on.

    1 is for a run that a gate or a person said no to, 3 for one that waits for a person or could not go on.
    """
    if run.state is StageState.COMPLETED:
        return PASSED
    if run.state is StageState.INTERRUPTED:
        return INTERRUPTED
    if run.state in (StageState.CANCELLED, StageState.AWAITING_APPROVAL):
        return COULD_NOT_GO_ON
    if run.state is StageState.FAILED:
        failed = [stage for stage in run.stages if stage.state is StageState.FAILED]
        return FAILED_BY_A_GATE if any(map(_was_refused, failed)) else COULD_NOT_GO_ON
    return None


def _was_refused(stage: StageRecord) -> bool:
    return any(
        critique.verdict is not CriticVerdict.PASS for attempt in stage.attempts[-1:] for critique in attempt.critiques
    )


def state_in_words(state: StageState) -> str:
    """`awaiting approval`."""
    return state.value.replace("_", " ")


def sign_of(state: StageState, *, ascii_only: bool) -> str:
    """One cell that stands for a state."""
    return _SIGNS[state][ascii_only]


def counted_attempt(stage: StageRecord) -> AttemptRecord | None:
    """The attempt that speaks for a stage: the one whose work goes on, else the last that gave a result."""
    for attempt in stage.attempts:
        if attempt.number == stage.chosen:
            return attempt
    return stage.attempts[-1] if stage.attempts else None


def has_work(stage: StageRecord) -> bool:
    """Whether a stage that waits for a person has made something that the person can approve."""
    return stage.wants_approval != "escalation" or stage.chosen is not None


def open_failures(stage: StageRecord) -> list[FailedTry]:
    """What failed and has not worked since: no call gave that attempt, the gate did not decide."""
    kept = {attempt.number: attempt for attempt in stage.attempts if attempt.tree}
    return [
        failure
        for failure in stage.failures[stage.failures_before :]
        if failure.attempt not in kept
        or (failure.gate is not None and len(kept[failure.attempt].critiques) <= failure.gate)
    ]


def advised_command(stage: StageRecord) -> str:
    """The command that goes on with a stage, where its failure names one; else empty."""
    failures = open_failures(stage)
    found = _COMMAND.search(failures[-1].hint) if failures else None
    return found[1] if found else ""


def attempt_in_words(stage: StageRecord) -> str:
    """`attempt 2 of 3`, with `taken` when a later one was not; empty where there is only one to speak of."""
    under_way = stage.state in _ATTEMPT_UNDER_WAY
    if not stage.attempts and not under_way:
        return ""
    number = len(stage.earlier) + len(stage.attempts) + under_way
    taken = ""
    if not under_way and stage.chosen is not None and stage.attempts and stage.chosen != stage.attempts[-1].number:
        number, taken = stage.chosen, " taken"
    most = len(stage.earlier) + stage.max_attempts + stage.attempts_before
    if number < 1 or (number == 1 and most == 1):
        return ""
    limit = f" of {most}" if stage.max_attempts and number <= most else ""
    return f"attempt {number}{limit}{taken}"


def agent_in_words(stage: StageRecord) -> str:
    """`claude_cli sonnet`; empty before it is known."""
    attempt = counted_attempt(stage)
    return "" if attempt is None else " ".join(part for part in (attempt.agent, attempt.model) if part)


def spent_on(usage: Usage) -> str:
    """`$0.06`; `cost unknown` or `$0.06 and more` when calls did not tell theirs; empty when nothing was asked."""
    if not usage.requests and not usage.cached and not usage.cost_usd:
        return ""
    if not usage.unknown_costs:
        return dollars(usage.cost_usd)
    return f"{dollars(usage.cost_usd)} and more" if usage.cost_usd else "cost unknown"


def outdated_in_words(stage: StageRecord) -> str:
    """That a stage keeps work of another definition: `made before its step and its model changed`; else empty."""
    if not stage.outdated or not stage.attempts:
        return ""
    if stage.outdated == ("definition",):
        return "made before the pipeline's files changed"
    names = [f"its {part.replace('_', ' ')}" for part in stage.outdated]
    return f"made before {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} changed"


def elapsed_seconds(begun: datetime | None, ended: datetime | None, now: datetime) -> float | None:
    """From its beginning to its end, or until now; None before it began."""
    return None if begun is None else max(((ended or now) - begun).total_seconds(), 0.0)


def stage_seconds(stage: StageRecord, now: datetime) -> float | None:
    """How long a stage took, or has taken so far; for one that stands still without an end, what its attempts took."""
    if stage.ended_at is not None or stage.state in WORKING_STATES:
        return elapsed_seconds(stage.started_at, stage.ended_at, now)
    took = sum(attempt.duration_seconds for attempt in stage.attempts)
    return took or None


def run_seconds(run: RunRecord, now: datetime) -> float:
    """How long a run took, or has taken so far."""
    return elapsed_seconds(run.started_at, None if run.state in WORKING_STATES else run.updated_at, now) or 0.0


def took(seconds: float | None) -> str:
    """`12.5 s`; empty when it is not known."""
    return "" if seconds is None else duration(seconds)


def critique_in_words(critique: Critique) -> str:
    """`critic REWORK 50`."""
    score = "" if critique.score is None else f" {critique.score}"
    return f"{critique.gate.value} {critique.verdict.value}{score}"
