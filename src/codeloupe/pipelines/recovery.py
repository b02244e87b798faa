"""What is to be done next with a stage, and what a change of the pipeline's files means for it: functions of records.

So a run that was killed goes on from its record exactly as one that was not: what the record holds is never done
again, and what it does not hold was not done. A call that failed is retried, its session resumed in a fork, begun
afresh, or given to a person; each step is taken at most as often as here. `min_score` applies to critics alone: when no
attempts are left, the best attempt may continue although a critic asked for rework. A review, command or approval gate
is never overridden.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import AgentExecutionError, UsageError, WorkspaceError
from codeloupe.model import pipeline as model
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    GateDefinition,
    GateKind,
    RecoveryStep,
    StageDefinition,
    StageRecord,
)
from codeloupe.pipelines.definition import input_values
from codeloupe.system.regex import regex

# What trying again cannot mend: it goes to a person at once.
_HOPELESS = frozenset(
    {"not_logged_in", "not_installed", "invalid_request", "budget_exhausted", model.WORKSPACE_ERROR, "unreadable_file"}
)
_WORD_START = regex(r"(?<=[a-z])(?=[A-Z])")


class Action(Struct, frozen=True):
    """What is to be done next with a stage, for an attempt of it; 0 where there is none.

    `execute`: ask its agent, as `step` says; `session`, `agent` and `tree` are of a session that is resumed. `keep`:
    keep what the attempt left in its workspace. `judge`: let a gate, by its position, decide on it. `complete`: its
    work goes on. `fail`: it was refused for good, and the attempt's work is kept all the same. `escalate`: only a
    person can help; the attempt is the one that would be taken.
    """

    do: Literal["execute", "keep", "judge", "complete", "fail", "escalate"]
    attempt: int
    reason: str = ""
    gate: int = 0
    step: RecoveryStep = RecoveryStep.FIRST
    session: str = ""
    agent: str = ""
    tree: str = ""


def next_action(stage: StageDefinition, record: StageRecord) -> Action:
    """What is to be done next with a stage that is not at its end."""
    recent = record.attempts[record.attempts_before :]
    if failed := next((attempt for attempt in reversed(recent) if _has_failed(attempt)), None):
        return _fail(record.attempts, failed)
    if not record.attempts:
        return _attempt(stage, record)
    last = record.attempts[-1]
    if not last.tree:
        # Those of its calls are other ones: after one of this kind there would be no attempt.
        failures = [failure for failure in _failures(record, last.number) if failure.kind == model.WORKSPACE_ERROR]
        return _escalated(record, failures) if failures else Action("keep", last.number)
    refused = refused_at(last)
    if refused is None:
        return _onward(stage, record, last)
    most = stage.gates[refused].max_attempts if refused < len(stage.gates) else 0
    # Without a recent one a person had it tried again.
    if not recent or len(recent) < most:
        return _attempt(stage, record)
    accepted = acceptable(recent, stage.gates)
    if accepted is None:
        return _escalated(record, (), _nothing_good(record))
    return _onward(stage, record, accepted)


def _attempt(stage: StageDefinition, record: StageRecord) -> Action:
    number = len(record.earlier) + len(record.attempts) + 1
    # An answer whose files were lost did not fail, so the attempt is made again as if it had not been made.
    failures = [failure for failure in _failures(record, number) if failure.kind != model.WORKSPACE_LOST]
    step = next_step(stage, failures)
    if step is None:
        return _escalated(record, failures)
    if step is RecoveryStep.RESUME:
        last = failures[-1]
        return Action("execute", number, step=step, session=last.session_id, agent=last.agent, tree=last.tree)
    return Action("execute", number, step=step)


def _onward(stage: StageDefinition, record: StageRecord, attempt: AttemptRecord) -> Action:
    """The next gate that an attempt has not faced, or its end."""
    gate, number = len(attempt.critiques), attempt.number
    if gate < len(stage.gates):
        failures = _failures(record, number, gate=gate)
        # A gate that could not decide is asked once more, if its failure is temporary.
        is_lost = failures and (len(failures) > 1 or not all(failure.retryable for failure in failures))
        return _escalated(record, failures) if is_lost else Action("judge", number, gate=gate)
    if refused_at(attempt) is None:
        return Action("complete", number)
    return Action(
        "complete", number, f"attempt {number} was accepted without a PASS: its score, {attempt.score}, is the best"
    )


def _failures(record: StageRecord, attempt: int, *, gate: int | None = None) -> Sequence[FailedTry]:
    recent = record.failures[record.failures_before :]
    return [failure for failure in recent if failure.attempt == attempt and failure.gate == gate]


def _escalated(record: StageRecord, failures: Sequence[FailedTry], reason: str = "") -> Action:
    if failures:
        reason = f"{failures[-1].message}{f' (after {len(failures)} tries)' if len(failures) > 1 else ''}"
    chosen = best(attempt for attempt in record.attempts if attempt.tree)
    return Action("escalate", chosen.number if chosen else 0, reason)


def _nothing_good(record: StageRecord) -> str:
    """Say why no attempt can be accepted: a gate that is never overridden, or else scores that are too low."""
    tries = len(record.attempts)
    words = f"no attempt passed every gate after {tries} attempt{'' if tries == 1 else 's'}"
    chosen = best(record.attempts) or record.attempts[-1]
    for critique in chosen.critiques:
        if critique.verdict is not CriticVerdict.PASS and critique.gate is not GateKind.CRITIC:
            return f"{words}: {critique.summary or critique.gate.value}"
    if chosen.score is None:
        return f"{words}, and no critic gave a score"
    return f"{words}, and the best score, {chosen.score}, is too low to accept"


def _fail(attempts: Sequence[AttemptRecord], failed: AttemptRecord) -> Action:
    """The end of a stage of which a gate failed an attempt; an earlier attempt is kept if its score is better."""
    critique = next(word for word in reversed(failed.critiques) if word.verdict is CriticVerdict.FAIL)
    words = f"the {critique.gate.value} gate failed attempt {failed.number}"
    words = f"{words}: {critique.summary}" if critique.summary else words
    other = best(attempt for attempt in attempts if attempt.number < failed.number and not _has_failed(attempt))
    if other is None or other.score is None or other.score <= (-1 if failed.score is None else failed.score):
        return Action("fail", failed.number, words)
    kept = f"attempt {other.number} was kept, because its score, {other.score}, is better"
    return Action("fail", other.number, f"{words}; {kept}")


def refused_at(attempt: AttemptRecord) -> int | None:
    """The position of the first gate that did not let an attempt pass, or None."""
    verdicts = (critique.verdict for critique in attempt.critiques)
    return next((place for place, verdict in enumerate(verdicts) if verdict is not CriticVerdict.PASS), None)


def _has_failed(attempt: AttemptRecord) -> bool:
    return any(critique.verdict is CriticVerdict.FAIL for critique in attempt.critiques)


def best(attempts: Iterable[AttemptRecord]) -> AttemptRecord | None:
    """The attempt with the highest score, the later of two alike; one without a score ranks below all others."""
    return max(attempts, key=lambda each: (-1 if each.score is None else each.score, each.number), default=None)


def acceptable(attempts: Iterable[AttemptRecord], gates: Sequence[GateDefinition]) -> AttemptRecord | None:
    """Return the best attempt that only critics refused, each with a score of at least its gate's `min_score`."""
    candidates = []
    for attempt in attempts:
        # Verdicts without a gate come from gates that the pipeline no longer has.
        is_judged_by_these = len(attempt.critiques) <= len(gates)
        if attempt.tree and is_judged_by_these and all(map(_allows, gates, attempt.critiques)):
            candidates.append(attempt)
    return best(candidates)


def _allows(gate: GateDefinition, critique: Critique) -> bool:
    """Return whether an attempt with this verdict may continue when no attempts are left."""
    match critique.verdict:
        case CriticVerdict.PASS:
            return True
        case CriticVerdict.FAIL:
            return False
        case CriticVerdict.REWORK:
            if gate.kind is not GateKind.CRITIC or critique.gate is not GateKind.CRITIC:
                return False
            return critique.score is not None and critique.score >= gate.min_score
        case _:
            assert_never(critique.verdict)


def failed_try(
    error: Exception, *, step: RecoveryStep, attempt: int, gate: int | None = None, usage: Usage = Usage()
) -> FailedTry:
    """A failure as it is recorded."""
    # What went wrong below an execution that failed; another error speaks for itself.
    cause = error.__cause__ or error if isinstance(error, AgentExecutionError) else error
    kind = _WORD_START.sub("_", type(cause).__name__).lower()
    # Of an agent's failure every cause is one of our own errors, or that its time was over.
    if isinstance(cause, OSError | ValueError) and not isinstance(cause, TimeoutError):
        kind = "unreadable_file"
    elif isinstance(cause, WorkspaceError):
        kind = model.WORKSPACE_ERROR
    return FailedTry(
        step=step,
        kind=kind,
        message=getattr(error, "message", f"{type(error).__name__}: {error}")[:4_000],
        hint=getattr(error, "hint", "")[:4_000],
        session_id=getattr(cause, "session_id", ""),
        usage=usage,
        attempt=attempt,
        gate=gate,
        agent=getattr(cause, "agent", ""),
        retryable=bool(getattr(cause, "retryable", False)),
    )


def next_step(stage: StageDefinition, failures: Sequence[FailedTry]) -> RecoveryStep | None:
    """How the call of an attempt is tried again after these failures of it; None when only a person can help."""
    if not failures:
        return RecoveryStep.FIRST
    last = failures[-1]
    # A session that is not known any more is an invalid request; another way round it is not.
    is_mendable = last.step is RecoveryStep.RESUME and last.kind == "invalid_request"
    # Without retries there is exactly one call.
    if (last.kind in _HOPELESS and not is_mendable) or not stage.retries:
        return None
    steps = [failure.step for failure in failures]
    # What is not known to pass by itself is tried once more all the same, since agents do not fail alike twice.
    retries = stage.retries if last.retryable else min(stage.retries, 1)
    is_later = RecoveryStep.RESUME in steps or RecoveryStep.FRESH in steps
    if steps.count(RecoveryStep.RETRY) < retries and not is_later:
        return RecoveryStep.RETRY
    if last.resumable and last.session_id and not is_later:
        return RecoveryStep.RESUME
    return None if RecoveryStep.FRESH in steps else RecoveryStep.FRESH


def new_stage_record(stage: StageDefinition) -> StageRecord:
    """A stage before it began."""
    judged = (gate.max_attempts for gate in stage.gates if gate.kind is not GateKind.APPROVAL)
    return StageRecord(name=stage.name, needs=stage.needs, max_attempts=max(judged, default=1))


def parts_now(stage: StageDefinition, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Digests of all that shapes the work of a stage, the values of its inputs included."""
    text = json.dumps(sorted(stage.given(inputs).items()))
    return {**stage.parts, "inputs": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]}


def tried_again(stage: StageRecord, note: str) -> StageRecord:
    """A stage that is tried again: what was before no longer counts towards its limits."""
    before = {"attempts_before": len(stage.attempts), "failures_before": len(stage.failures)}
    asked = {"person_note": note.strip(), "chosen": None, "wants_approval": "", "reason": "", "ended_at": None}
    return replace(stage, **before, **asked)


def reopened(stage: StageRecord, reason: str) -> StageRecord:
    """A stage that begins again: its attempts are history, and paid for."""
    earlier = (*stage.earlier, *stage.attempts)
    begun = replace(stage, earlier=earlier, attempts=(), start_tree="", built_on={}, outdated=())
    return replace(tried_again(begun, stage.person_note), reason=reason)


def with_changes(
    record: model.RunRecord, definition: model.PipelineDefinition, *, accepted: bool
) -> tuple[model.RunRecord, tuple[str, ...]]:
    """The record under a changed definition, and notes. Raises UsageError when that is not accepted, or cannot be."""
    # Of a run that did not record which inputs were given, all of them count as given.
    names = record.inputs if record.given is None else record.given
    given = {each.name: record.inputs[each.name] for each in definition.inputs if each.name in names}
    obstacles = tuple(_obstacles(record, definition, given))
    if not accepted or obstacles:
        with_them = f"`codeloupe pipeline resume {record.run_id} --accept-changes`"
        either = "or start a new run" if obstacles else f"start a new run, or continue with the changes: {with_them}"
        begun = f"{record.file}, or a file that it names, has changed since the run {record.run_id} started"
        raise UsageError("; ".join((begun, *obstacles)), hint=f"restore the files, {either}")
    inputs = input_values(definition, given)
    known = {stage.name: stage for stage in record.stages}
    stages = []
    for each in definition.stages:
        new = new_stage_record(each)
        stage = known.get(each.name, new)
        if stage.attempts:
            now = parts_now(each, inputs)
            # Gates are judges, and no part of the work.
            outdated = sorted(key for key, digest in now.items() if key != "gates" and stage.parts.get(key) != digest)
            judged = _judged_again(stage, each, now)
            stage = replace(judged, outdated=tuple(outdated) if stage.parts else (model.UNKNOWN_PART,))
        stages.append(replace(stage, needs=new.needs, max_attempts=new.max_attempts))
    notes = []
    for about in definition.inputs:
        value = inputs[about.name]
        before = record.inputs.get(about.name, value)
        if before != value:
            notes.append(f"the input {about.name} has a new default, which applies to the remaining stages")
        elif record.given is None and about.default not in (None, before):
            why = "an older version did not record whether it was a default"
            notes.append(f"the input {about.name} keeps its value: {why}")
    return replace(record, stages=tuple(stages), digest=definition.digest, inputs=inputs), tuple(notes)


def _obstacles(
    record: model.RunRecord, definition: model.PipelineDefinition, given: Mapping[str, str]
) -> Iterator[str]:
    wanted = {stage.name: stage for stage in definition.stages}
    # What has done, or paid for, something that would be lost with it.
    worked = [
        stage for stage in record.stages if stage.attempts or stage.earlier or stage.unanswered or stage.usage.requests
    ]
    if lost := [stage.name for stage in worked if stage.name not in wanted]:
        yield f"{', '.join(lost)} had started, but is no longer in the pipeline under that name"
    if definition.workspace is not record.workspace:
        yield f"its workspace was a {record.workspace.value} and is a {definition.workspace.value}"
    for each in definition.inputs:
        if each.default is None and not given.get(each.name, "").strip():
            is_known = each.name in record.inputs
            why = "no longer has the default that the run used" if is_known else "is new and has no default"
            yield f"its input {each.name} {why}"
    if record.workspace is model.WorkspaceKind.CHECKOUT:
        # With what they began was not recorded, and in a checkout no tree tells it.
        for stage in worked:
            if not stage.built_on and stage.name in wanted and set(stage.needs) != set(wanted[stage.name].needs):
                yield f"{stage.name} had started, and now needs other stages"


def kept_note(stage: StageRecord, run_id: str) -> str:
    """That a stage keeps work of another definition; nothing of one that does not."""
    if not (parts := stage.outdated_text):
        return ""
    unknown = ", and an older version did not record its inputs" if stage.outdated == (model.UNKNOWN_PART,) else ""
    again = f"`codeloupe pipeline resume {run_id} --retry {stage.name}` runs it again"
    return f"its work is from before {parts} changed{unknown}; {again}"


def _judged_again(stage: StageRecord, definition: StageDefinition, now: Mapping[str, str]) -> StageRecord:
    """The stage without the verdicts of gates that are others now; the same where none is, or it was sent back."""
    kept = stage.chosen_attempt or stage.attempts[-1]
    # An older version recorded of a gate only its kind: there all of them judge again, if there are any.
    known = stage.parts.get("gates") or ("" if definition.gates or kept.critiques else now["gates"])
    if known == now["gates"]:
        return stage
    parts = {**stage.parts, "gates": now["gates"]} if stage.parts else stage.parts
    if stage.state is model.StageState.COMPLETED:
        return replace(
            reopened(stage, "its gates have changed since it finished, so they run again on its work"),
            state=model.StageState.PENDING,
            start_tree=stage.start_tree,
            built_on=stage.built_on,
            attempts=(_unjudged(kept),),
            earlier=(*stage.earlier, *(attempt for attempt in stage.attempts if attempt is not kept)),
            parts=parts,
        )
    last = stage.attempts[-1]
    if not last.critiques or stage.state in model.ENDED_STATES or refused_at(last) is not None:
        return replace(stage, parts=parts)
    return replace(stage, attempts=(*stage.attempts[:-1], _unjudged(last)), parts=parts)


def _unjudged(attempt: AttemptRecord) -> AttemptRecord:
    """An attempt that its gates judge again; what they cost before is a part of its own cost."""
    if not attempt.critiques:
        return attempt
    usage = reduce(Usage.plus, (critique.usage for critique in attempt.critiques), attempt.usage)
    note = "the pipeline's files changed after gates had passed it, so its gates run again"
    return replace(attempt, critiques=(), usage=usage, notes=(*attempt.notes, note))
