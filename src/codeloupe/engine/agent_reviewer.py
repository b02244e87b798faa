"""The reviewer that asks an agent: the change in units, each one call, many at the same time.

A unit that fails costs that unit. What was found stays, what was not reviewed is named, and only a cancellation is
raised, when nothing runs any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.asking import Asker, CallOptions, Desk, Transcript, can_read_tree, for_each, warn
from codeloupe.engine.circuit import CircuitOpen
from codeloupe.engine.failures import Failure
from codeloupe.engine.plan import plan_units
from codeloupe.engine.prompt import PromptMaterial, new_fence
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.stated_lines import StatedLines
from codeloupe.engine.unit_call import UnitCall, UnitOutcome
from codeloupe.model.agent import AgentLimits
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.events import LaneFinished, UnitFinished, UnitsPlanned
from codeloupe.model.expert import Expert
from codeloupe.model.finding import Finding
from codeloupe.model.material import PathInstruction
from codeloupe.model.ports import AskAgent, EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.model.unit import Effort, Unit

DROPPED_FINDING = "dropped_finding"
# Answers that cannot be read are kept to be looked into, but not all of thousands.
_MAX_DETAILS = 50
_log = logging.getLogger(__name__)


class AgentReviewOptions(Struct, frozen=True, kw_only=True):
    """How an agent reviews.

    `apart` asks about each expert's checklist by itself; `passes` says how often all is asked. `call_timeout_seconds`
    is for one unit. `units_at_once` is how many are asked about at a time. It should be the number of calls that may
    run at a time, which is for `ask` to bound: with fewer some would not be used, and with more a broken answer would
    be asked for again only after all other units, so that it would be late to be seen that none can be read.
    """

    model: str | None = None
    fallback_model: str | None = None
    effort: Effort = Effort.MEDIUM
    experts: tuple[Expert, ...] = ()
    apart: bool = False
    passes: int = 1
    call_timeout_seconds: float = 600.0
    idle_timeout_seconds: float | None = None
    max_turns: int | None = None
    instructions: tuple[PathInstruction, ...] = ()
    units_at_once: int = 64

    @property
    def calls(self) -> CallOptions:
        """What of it concerns a single call."""
        return CallOptions(
            model=self.model,
            fallback_model=self.fallback_model,
            timeout_seconds=self.call_timeout_seconds,
            idle_timeout_seconds=self.idle_timeout_seconds,
            max_turns=self.max_turns,
        )


class AgentReviewer:
    """Reviews with one agent, asked through `ask`, which has `limits`. `name` stands in each finding.

    `mask` takes secrets out of the lines that a finding quotes. `transcript` gets every prompt and raw answer, with
    the secrets that are masked only when they are sent: whoever writes them anywhere redacts them first. Nothing of
    them goes to the log.
    """

    def __init__(
        self,
        name: str,
        ask: AskAgent,
        *,
        limits: AgentLimits,
        info: ReviewerInfo,
        options: AgentReviewOptions = AgentReviewOptions(),  # noqa: B008 - frozen
        mask: Callable[[str], str] | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self._name = name
        self._ask = ask
        self._limits = limits
        self._info = info
        self._options = options
        self._mask = mask
        self._transcript = transcript

    @property
    def info(self) -> ReviewerInfo:
        """Its type, why it was chosen, and its model: once it has reviewed, the one that answered."""
        return self._info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the task's files. Findings go to `emit` as their units end, not merged yet; failures do too."""
        started = time.monotonic()
        options = self._options
        units = plan_units(
            task.files,
            effort=options.effort,
            experts=options.experts,
            passes=options.passes,
            apart=options.apart,
            own_tokens=self._limits.own_tokens,
        )
        emit(UnitsPlanned(self._name, len(units), sum(unit.tokens for unit in units)))
        _log.info("Starting review for %s with %d units", task.change.scope.description, len(units))
        asker = Asker(self._ask, transcript=self._transcript)
        run = _Run(self._name, self._call(task, asker), emit)
        await for_each(units, run.review, at_once=options.units_at_once)
        outcome = run.outcome(units, _in_no_unit(task, units))
        if asker.models:
            self._info = replace(self._info, model="+".join(asker.models))
        seconds = time.monotonic() - started
        failed = len(outcome.units_failed)
        failure = outcome.units_failed[0].reason if failed and failed == len(units) else None
        emit(LaneFinished(self._name, len(outcome.findings), seconds, failure))
        return replace(outcome, usage=replace(asker.usage, duration_seconds=seconds))

    def _call(self, task: ReviewTask, asker: Asker) -> UnitCall:
        material = PromptMaterial(
            fence=new_fence(),
            intent=task.intent,
            guidance=task.guidance,
            instructions=self._options.instructions,
            earlier=task.earlier,
            can_read_tree=can_read_tree(self._limits, task),
            is_follow_up=task.is_follow_up,
            tree_is_partial=task.tree_is_partial,
        )
        text = TextReader(task)
        anchorer = Anchorer(task.files, text.read, mask=self._mask)
        lines = StatedLines(task, text, mask=self._mask or str, only_shown=True)

        def place(claim: ClaimedFinding, unit: Unit) -> Finding:
            found = anchorer.place(claim, self._origin(claim, unit), unit_files=unit.files)
            return lines.believe(claim, found)

        desk = Desk(task=task, limits=self._limits, calls=self._options.calls, fence=material.fence)
        return UnitCall(asker=asker, desk=desk, material=material, place=place)

    def _origin(self, claim: ClaimedFinding, unit: Unit) -> Origin:
        """Who looked. Under a joined checklist the category tells whose part of it this is."""
        names = [expert.name for expert in unit.experts]
        category = claim.category.strip().lower().replace(" ", "_").replace("-", "_")
        alone = names[0] if len(names) == 1 else None
        expert = alone or next((name for name in names if name == category), None)
        look = f"{self._name}/{alone}" if self._options.apart and alone else self._name
        if self._options.passes > 1:
            look = f"{look}#{unit.pass_number}"
        return Origin(reviewer=self._name, expert=expert, look=look)


class _Run(Struct):
    """The units of one review, and what became of them."""

    name: str
    call: UnitCall
    emit: EventSink
    outcomes: dict[str, UnitOutcome] = field(default_factory=dict)
    not_started: dict[str, Failure] = field(default_factory=dict)
    details: int = 0

    async def review(self, unit: Unit) -> None:
        """Review one unit, keep what became of it, and tell."""
        started = time.monotonic()
        try:
            outcome = await self.call.review(unit, self.emit)
        except CircuitOpen as stopped:
            self.not_started[unit.name] = stopped.failure
            return
        self.details += bool(outcome.answer)
        self.outcomes[unit.name] = outcome if self.details <= _MAX_DETAILS else replace(outcome, answer="")
        failure = outcome.failure.reason if outcome.failure else None
        if outcome.failure is not None:
            warn(f"{self.name} could not review {_failed(unit, outcome.failure).unit}: {failure}", self.emit)
        for lost in outcome.dropped:
            warn(_dropped(unit, lost), self.emit)
        seconds = time.monotonic() - started
        finished = UnitFinished(
            self.name, unit.name, outcome.findings, seconds, from_ledger=outcome.from_ledger, failure=failure
        )
        self.emit(finished)

    def outcome(self, units: Sequence[Unit], forgotten: Sequence[str]) -> ReviewerOutcome:
        """All of it, in the order of the units, whichever ended first. `forgotten` are files that none of them has."""
        ended = [(unit, self.outcomes[unit.name]) for unit in units if unit.name in self.outcomes]
        failures = {unit.name: outcome.failure for unit, outcome in ended if outcome.failure} | self.not_started
        failed = ((unit, failures[unit.name]) for unit in units if unit.name in failures)
        reviewed = {file for unit, outcome in ended if outcome.reviewed for file in unit.files}
        return ReviewerOutcome(
            findings=tuple(finding for _, outcome in ended for finding in outcome.findings),
            units_total=len(units),
            units_failed=(
                *(_failed(unit, failure) for unit, failure in failed),
                *(FailedUnit(file, (file,), "it is in no unit") for file in forgotten),
            ),
            errors=(*(error for unit, outcome in ended for error in self._errors(unit, outcome)), *self._stopped()),
            unreviewed=frozenset((*forgotten, *(file for unit in units for file in unit.files))) - reviewed,
        )

    def _errors(self, unit: Unit, outcome: UnitOutcome) -> list[ReviewError]:
        errors = [ReviewError(DROPPED_FINDING, _dropped(unit, lost), outcome.answer) for lost in outcome.dropped]
        if outcome.failure is not None:
            failed = _failed(unit, outcome.failure)
            message = f"{self.name} could not review {failed.unit}: {failed.reason}"
            errors.append(ReviewError(outcome.failure.kind, message, outcome.answer))
        return errors

    def _stopped(self) -> list[ReviewError]:
        """One error for all units that were not started: they may be thousands, for one reason."""
        if not self.not_started:
            return []
        failure = next(iter(self.not_started.values()))
        message = f"{self.name} did not start {len(self.not_started):,} units: {failure.reason}"
        warn(message, self.emit)
        return [ReviewError(failure.kind, message)]


def _in_no_unit(task: ReviewTask, units: Sequence[Unit]) -> list[str]:
    """Changed files that no unit has: a plan has none, and were there one, it must not look reviewed."""
    planned = {file for unit in units for file in unit.files}
    changed = dict.fromkeys(file.path for file in task.files if not file.is_bare)
    return [file for file in changed if file not in planned]


def _failed(unit: Unit, failure: Failure) -> FailedUnit:
    """What could not be reviewed: the unit, or those of its files that the failure is about. The others were."""
    if not failure.files or set(failure.files) == set(unit.files):
        return FailedUnit(unit.name, unit.files, failure.reason)
    first, *others = failure.files
    more = f" and {len(others)} more file{'s' if len(others) > 1 else ''}" if others else ""
    return FailedUnit(f"{first}{more}", failure.files, failure.reason)


def _dropped(unit: Unit, lost: str) -> str:
    return f"a finding about {unit.name} could not be read: {lost}"
