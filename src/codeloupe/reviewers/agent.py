"""The agent reviewer: each unit of a plan is a question to a chain of agents, and the answers become anchored claims.

A unit is complete only if its answer is exact. Claims that were read are kept even if the unit is incomplete. Only a
cancellation is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentResult
from codeloupe.model.change import Unit
from codeloupe.model.events import LaneFinished, UnitFinished, UnitsPlanned
from codeloupe.model.finding import Claim
from codeloupe.model.ports import AGENTS, Agent, AskAgent, EventSink, Plan, ReviewerResult, Transcript
from codeloupe.model.review import FAILOVER, FailedUnit, Level, ReviewerInfo, ReviewError, UnitRecord
from codeloupe.planning.units import MAX_LINE_BYTES
from codeloupe.reviewers.anchor import Anchorer, Origin
from codeloupe.reviewers.answers import RawClaim, ReviewAnswer, read_review
from codeloupe.reviewers.asking import Asker, CallOptions, Exchange, Failure, Heard, for_each, shortened, warn
from codeloupe.reviewers.prompt import Prompt, PromptMaterial, review_prompt
from codeloupe.source.files import TextReader

INVALID_ITEM = "invalid_item"
_MOST_INVALID_LISTED = 20
# The text of an unreadable answer is kept for people, but not those of thousands of units.
_MOST_DETAILS = 50
_LONGEST_DETAIL = 64 * 1024
_log = logging.getLogger(__name__)


class AgentReviewer(Struct, kw_only=True):
    """Reviews with a chain of agents, the first of which `info` names.

    `ask` puts one question to one agent. With `apart`, each expert has units of its own, and its name is in `seen_by`.
    """

    ask: AskAgent
    agents: tuple[Agent, ...]
    info: ReviewerInfo
    settings: Settings
    options: CallOptions = CallOptions()
    apart: bool = False
    transcript: Transcript | None = None

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        """Review the units of a plan. Claims go to `emit` as their units end, not merged yet; failures do too."""
        started = time.monotonic()
        emit(UnitsPlanned(self.info.type, len(plan.units), sum(unit.tokens for unit in plan.units)))
        _log.info("Starting review for %s with %d units", plan.change.scope.description, len(plan.units))
        run = _Run(self, plan, emit)
        # As many units at a time as calls may run, so that a second question comes soon after the first.
        await for_each(plan.units, run.review, at_once=self.settings.concurrency)
        result = run.result(plan.units)
        seconds = time.monotonic() - started
        failed = result.units_failed
        all_failed = bool(failed) and len(failed) == len(plan.units)
        emit(LaneFinished(self.info.type, len(result.claims), seconds, failed[0].reason if all_failed else None))
        models = dict.fromkeys(one.model for one in result.units if one.model and one.answered_by == self.info.type)
        if models:
            self.info = replace(self.info, model="+".join(models))
        return replace(result, usage=replace(run.asker.usage, duration_seconds=seconds))


class _UnitResult(Struct, frozen=True, kw_only=True):
    """The result of one unit; `failed` if it is not complete."""

    record: UnitRecord
    claims: tuple[Claim, ...] = ()
    failed: FailedUnit | None = None
    errors: tuple[ReviewError, ...] = ()


class _Run:
    """The units of one review."""

    def __init__(self, reviewer: AgentReviewer, plan: Plan, emit: EventSink) -> None:
        self._reviewer = reviewer
        self._plan = plan
        self._emit = emit
        self.asker = Asker(
            reviewer.ask, reviewer.agents, plan, options=reviewer.options, transcript=reviewer.transcript
        )
        self._anchorer = Anchorer(plan.files, TextReader(plan).read)
        self._results: dict[str, _UnitResult] = {}
        self._not_asked: list[Failure] = []
        self._details = 0

    async def review(self, unit: Unit) -> None:
        """Ask about one unit, and keep and report what it gave."""
        started = time.monotonic()

        def make_prompt(can_read_tree: bool) -> Prompt:  # noqa: FBT001 - as MakePrompt says
            return review_prompt(unit, self._material(can_read_tree=can_read_tree))

        def read(result: AgentResult) -> ReviewAnswer:
            return read_review(
                result.output, result.structured, inexact=result.inexact, other_answers=result.other_answers
            )

        # A further pass is asked anew: one answer for all passes would only agree with itself.
        labels = {"pass": str(unit.pass_number)} if unit.pass_number > 1 else {}
        exchange = await self.asker.exchange(make_prompt, read, unit=unit.name, emit=self._emit, labels=labels)
        result = self._unit_result(unit, exchange)
        self._results[unit.name] = result
        if not exchange.was_asked and exchange.failure is not None:
            self._not_asked.append(exchange.failure)
            return
        for error in result.errors:
            warn(error.message, self._emit)
        self._emit(
            UnitFinished(
                self._reviewer.info.type,
                unit.name,
                result.claims,
                time.monotonic() - started,
                from_ledger=exchange.from_ledger,
                failure=result.failed.reason if result.failed else None,
            )
        )

    def result(self, units: Sequence[Unit]) -> ReviewerResult:
        """Return the results of all units, in the order of the plan."""
        results = [self._results[unit.name] for unit in units]
        errors = [error for one in results for error in one.errors]
        errors += self._not_asked_error()
        errors += _failover_errors(results, self._reviewer.agents)
        failed = tuple(one.failed for one in results if one.failed)
        incomplete = {file for unit in failed for file in unit.files}
        return ReviewerResult(
            claims=tuple(claim for one in results for claim in one.claims),
            completed={AGENTS: frozenset(file.path for file in self._plan.files) - incomplete},
            units=tuple(one.record for one in results),
            units_total=len(units),
            units_failed=failed,
            errors=tuple(errors),
        )

    def _not_asked_error(self) -> list[ReviewError]:
        """Return one error for all units that no agent was asked about: they may be thousands, for one reason."""
        if not self._not_asked:
            return []
        failure = self._not_asked[0]
        message = f"{self._reviewer.info.type} did not start {len(self._not_asked):,} units: {failure.reason}"
        warn(message, self._emit)
        return [ReviewError(failure.kind, message)]

    def _material(self, *, can_read_tree: bool) -> PromptMaterial:
        plan = self._plan
        return PromptMaterial(
            fence=self.asker.fence,
            intent=plan.intent,
            guidance=plan.guidance,
            instructions=self._reviewer.settings.instructions,
            known=plan.known,
            can_read_tree=can_read_tree,
            tree_is_partial=plan.tree_is_partial,
            is_follow_up=plan.is_follow_up,
        )

    def _unit_result(self, unit: Unit, exchange: Exchange[ReviewAnswer]) -> _UnitResult:
        record = UnitRecord(
            unit=unit.name,
            files=unit.files,
            answered_by=exchange.answered_by,
            model=exchange.model,
            unanswered=exchange.unanswered,
        )
        claims = self._claims(unit, exchange.heard)
        failure = exchange.failure
        files = unit.files
        cut_files = _files_with_cut_lines(unit)
        if failure is None and cut_files:
            reason = f"lines longer than {MAX_LINE_BYTES:,} bytes were sent truncated: {', '.join(cut_files)}"
            failure = Failure("line_too_long", shortened(reason))
            files = cut_files
        errors = self._invalid_items(unit, exchange.heard)
        failed: FailedUnit | None = None
        if failure is not None:
            name = unit.name if files is unit.files else shortened(", ".join(files))
            failed = FailedUnit(name, files, failure.reason)
            if exchange.was_asked:
                message = f"{self._reviewer.info.type} could not review {name}: {failure.reason}"
                errors.append(ReviewError(failure.kind, message, self._detail(exchange.heard)))
        return _UnitResult(record=record, claims=tuple(claims), failed=failed, errors=tuple(errors))

    def _claims(self, unit: Unit, heard: Sequence[Heard[ReviewAnswer]]) -> list[Claim]:
        """Return the claims of all answers to a unit; one that a second answer repeats word by word is made once."""
        made: dict[Claim, None] = {}
        for one in heard:
            for raw in one.answer.claims:
                claim = self._anchorer.place(raw, self._origin(raw, unit, one.agent), unit_files=unit.files)
                made[claim] = None
        return list(made)

    def _origin(self, raw: RawClaim, unit: Unit, agent: str) -> Origin:
        """Return who reports a claim. Under a joined checklist the category says which expert it belongs to."""
        names = [expert.name for expert in unit.experts]
        category = raw.category.strip().lower().replace(" ", "_").replace("-", "_")
        expert: str | None = None
        if len(names) == 1:
            expert = names[0]
        elif category in names:
            expert = category
        label = agent
        if self._reviewer.apart and len(names) == 1:
            label = f"{agent}/{names[0]}"
        if self._reviewer.settings.passes > 1:
            label = f"{label}#{unit.pass_number}"
        return Origin(reporter=agent, expert=expert, label=label)

    def _invalid_items(self, unit: Unit, heard: Sequence[Heard[ReviewAnswer]]) -> list[ReviewError]:
        """Return an error for each item of an answer that is no claim."""
        found = [item for one in heard for item in one.answer.invalid]
        listed = [shortened(item) for item in found[:_MOST_INVALID_LISTED]]
        if len(found) > _MOST_INVALID_LISTED:
            listed.append(f"and {len(found) - _MOST_INVALID_LISTED:,} more")
        about = f"a finding about {unit.name} could not be read"
        return [ReviewError(INVALID_ITEM, f"{about}: {item}") for item in listed]

    def _detail(self, heard: Sequence[Heard[ReviewAnswer]]) -> str:
        if not heard or self._details >= _MOST_DETAILS:
            return ""
        self._details += 1
        return heard[-1].text[:_LONGEST_DETAIL]


def _files_with_cut_lines(unit: Unit) -> tuple[str, ...]:
    """Return the files of a unit whose changed lines are so long that they were not sent whole."""
    files: dict[str, None] = {}
    for part in unit.parts:
        for hunk in part.hunks:
            for row in hunk.body.split(b"\n"):
                if len(row) > MAX_LINE_BYTES + 1 and row[:1] in (b"+", b"-"):
                    files[part.file.path] = None
    return tuple(files)


def _failover_errors(results: Sequence[_UnitResult], agents: Sequence[Agent]) -> list[ReviewError]:
    """Return an error for each agent that answered units in place of the first one, and why."""
    if not agents:
        return []
    first = agents[0].name
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for one in results:
        agent = one.record.answered_by
        if agent and agent != first:
            counts[agent] = counts.get(agent, 0) + 1
            why = "; ".join(f"{other.agent}: {other.reason}" for other in one.record.unanswered)
            reasons.setdefault(agent, why)
    errors: list[ReviewError] = []
    for agent, count in counts.items():
        units = "1 unit was" if count == 1 else f"{count:,} units were"
        message = shortened(f"{units} answered by {agent}, because others did not answer: {reasons[agent]}")
        errors.append(ReviewError(FAILOVER, message, level=Level.NOTE))
    return errors
