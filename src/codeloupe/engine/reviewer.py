"""One unit through one agent: asked, read, asked once more where the answer cannot be read, and placed in the code."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin, StatedLines
from codeloupe.engine.ask import (
    ECHOED_QUESTION,
    INVALID_ANSWER,
    QUOTED_ANSWER,
    UNEXPECTED_ERROR,
    Asker,
    CallOptions,
    CircuitOpen,
    Desk,
    Failure,
    Transcript,
    answer_in,
    can_read_tree,
    failure_of,
    for_each,
    is_cut_off,
    is_echo,
    is_quoted,
    shortened,
    warn,
)
from codeloupe.engine.merge import merge_findings
from codeloupe.engine.parse.alarm import is_alarming
from codeloupe.engine.parse.reasons import TRUNCATED_JSON, claims_defects
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.plan import plan_units
from codeloupe.engine.prompt import FINDINGS_SCHEMA, MAX_LINE_BYTES, REPAIR_SCHEMA, Prompt, repair_prompt, review_prompt
from codeloupe.engine.prompt_material import PromptMaterial, new_fence
from codeloupe.engine.reviewed_text import TextReader
from codeloupe.errors import Crashed, OutputInvalid
from codeloupe.model.agent import AgentLimits, AgentRequest
from codeloupe.model.answer import ClaimedFinding, ReviewAnswer
from codeloupe.model.events import LaneFinished, UnitFinished, UnitsPlanned
from codeloupe.model.expert import Expert
from codeloupe.model.finding import Finding, Source
from codeloupe.model.material import PathInstruction
from codeloupe.model.ports import AskAgent, EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.model.unit import Effort, Unit
from codeloupe.model.usage import Usage

Place = Callable[[ClaimedFinding, Unit], Finding]

_RUN_FAILED = "the run failed"
_NO_REVIEW = "invalid answer: it is no review"
# Reading so much takes some milliseconds; more is read beside the event loop.
_QUICK_CHARACTERS = 64 * 1024
_MAX_KEPT_CHARACTERS = 64 * 1024
_MAX_DROPPED = 20
# More is no review of a few hunks, and placing each costs time.
_MAX_FINDINGS = 200
_log = logging.getLogger(__name__)


class UnitOutcome(Struct, frozen=True, kw_only=True):
    """What a unit gave. With a `failure` it is not, or not wholly, reviewed, whatever was found.

    `reviewed` says whether there was a whole answer about it. `dropped` tells of findings that could not be read;
    `answer` is the text of an answer that could not be read.
    """

    findings: tuple[Finding, ...] = ()
    failure: Failure | None = None
    reviewed: bool = True
    dropped: tuple[str, ...] = ()
    from_ledger: bool = False
    answer: str = ""


class _Heard(Struct, frozen=True):
    """An answer as it was understood."""

    read: ReviewAnswer
    text: str
    structured: Any = None
    from_ledger: bool = False
    cut_off: bool = False

    @property
    def claims_defects(self) -> bool:
        """Whether it says that there are defects, even if none of them can be read."""
        read = self.read
        told = read.verdict not in (None, "PASS") or bool(read.findings or read.dropped)
        return told or claims_defects(read.problem) or is_alarming(self.text)

    @property
    def stands_for_a_review(self) -> bool:
        """Whether an answer that was said again was a review: without findings, that must be said in so many words."""
        readable = self.structured.get("readable") if isinstance(self.structured, dict) else None
        return readable is True or (readable is None and bool(self.read.findings))


class UnitCall(Struct, frozen=True, kw_only=True):
    """How the units of one task are asked about."""

    asker: Asker
    desk: Desk
    material: PromptMaterial
    place: Place

    async def review(self, unit: Unit, emit: EventSink) -> UnitOutcome:
        """What became of the unit. Raises CircuitOpen when it was not asked about, and a cancellation; nothing else."""
        try:
            prompt = review_prompt(unit, self.material)
            self.asker.warn_once(prompt.notes, emit)
            question = self._request(unit, prompt)
            heard = _unless_quoted(await self._ask(question, emit), unit, question)
        except CircuitOpen:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a unit trips over, it is this unit that failed
            return self._failed(unit, error)
        try:
            return await self._concluded(unit, question, heard, emit)
        except Exception as error:  # noqa: BLE001 - as above; what was found first is kept
            return self._failed(unit, error, heard)

    async def _concluded(self, unit: Unit, question: AgentRequest, heard: _Heard, emit: EventSink) -> UnitOutcome:
        if heard.read.problem is None:
            self.asker.circuit.note_answer()
            return self._placed(unit, heard)
        again = self._second_question(unit, question, heard)
        if again is None:
            return self._unreadable(unit, heard)
        warn(f"the answer about {unit.name} could not be read and is asked for again: {heard.read.problem}", emit)
        try:
            second = await self._ask(again, emit)
        except CircuitOpen:
            # Why nothing more is asked is told once, for all units.
            return self._unreadable(unit, heard, "it was not asked for again, since nothing more is asked")
        both = replace(second, read=replace(second.read, findings=_together(second.read, heard.read)))
        if both.read.problem is not None:
            return self._unreadable(unit, both)
        if heard.claims_defects and not both.read.findings:
            return self._unreadable(unit, heard, "asked again, it named none")
        self.asker.circuit.note_answer()
        return self._placed(unit, both)

    def _request(self, unit: Unit, prompt: Prompt) -> AgentRequest:
        request = self.desk.request(prompt, unit=unit.name, schema=FINDINGS_SCHEMA)
        return self._of_its_pass(unit, request)

    def _second_question(self, unit: Unit, question: AgentRequest, heard: _Heard) -> AgentRequest | None:
        """The same question where nothing, or not all, was said; else to say it again.

        Nothing for an answer that was cut off at a limit: the next one would be too.
        """
        problem = heard.read.problem or ""
        if heard.cut_off:
            return None
        if not heard.text.strip() or problem == TRUNCATED_JSON or problem.startswith(_RUN_FAILED):
            return question
        prompt = repair_prompt(heard.text, problem, self.material)
        if prompt.notes:
            return None
        request = self.desk.request(prompt, unit=unit.name, schema=REPAIR_SCHEMA, without_tools=True)
        return self._of_its_pass(unit, request)

    @staticmethod
    def _of_its_pass(unit: Unit, request: AgentRequest) -> AgentRequest:
        """A further pass is bought anew: one answer for all passes would agree with itself."""
        if unit.pass_number == 1:
            return request
        return replace(request, labels={**request.labels, "pass": str(unit.pass_number)})

    async def _ask(self, request: AgentRequest, emit: EventSink) -> _Heard:
        try:
            result = await self.asker.answer(request, emit)
        except OutputInvalid as error:
            heard = await _heard(answer_in(error), None, cut_off=is_cut_off(error))
        else:
            heard = replace(await _heard(result.output, result.structured), from_ledger=result.from_ledger)
        if request.output_schema is REPAIR_SCHEMA and heard.read.problem is None and not heard.stands_for_a_review:
            return replace(heard, read=replace(heard.read, problem=_NO_REVIEW))
        return heard

    def _placed(self, unit: Unit, heard: _Heard) -> UnitOutcome:
        findings: list[Finding] = []
        claims = sorted(heard.read.findings, key=lambda claim: claim.severity.priority)
        dropped = list(heard.read.dropped)
        for claim in claims[:_MAX_FINDINGS]:
            try:
                findings.append(self.place(claim, unit))
            except Exception as error:  # noqa: BLE001 - one claim that cannot be placed costs that claim
                _log.warning("a finding about %s could not be placed", unit.name, exc_info=True)
                dropped.append(f"{claim.title}: {type(error).__name__}: {error}")
        lost = None
        if len(claims) > _MAX_FINDINGS:
            lost = f"{len(claims):,} findings in one answer, of which only the gravest {_MAX_FINDINGS} are kept"
        elif dropped and not findings:
            lost = f"no finding could be read: {dropped[0]}"
        failure = Failure(INVALID_ANSWER, shortened(lost)) if lost else _hidden_part(unit)
        return UnitOutcome(
            findings=tuple(findings),
            failure=failure,
            reviewed=lost is None,
            dropped=_first(dropped),
            from_ledger=heard.from_ledger,
            answer=heard.text[:_MAX_KEPT_CHARACTERS] if dropped or heard.read.problem else "",
        )

    def _unreadable(self, unit: Unit, heard: _Heard, more: str = "") -> UnitOutcome:
        reason = "; ".join(part for part in (heard.read.problem, more) if part)
        self.asker.circuit.note_failure(OutputInvalid(reason, agent=""))
        failure = Failure(INVALID_ANSWER, shortened(reason))
        return replace(self._placed(unit, heard), failure=failure, reviewed=False)

    def _failed(self, unit: Unit, error: Exception, heard: _Heard | None = None) -> UnitOutcome:
        failure = failure_of(error)
        if failure.kind == UNEXPECTED_ERROR or isinstance(error, Crashed):
            _log.warning("the review of %s failed", unit.name, exc_info=error)
        else:
            _log.info("the review of %s failed: %s", unit.name, failure.reason, exc_info=error)
        self.asker.circuit.note_failure(error)
        if heard is None:
            return UnitOutcome(failure=failure, reviewed=False)
        problem = f"{heard.read.problem}; asking again failed: " if heard.read.problem else ""
        told = Failure(failure.kind, shortened(f"{problem}{failure.reason}"))
        return replace(self._placed(unit, heard), failure=told, reviewed=False)


async def _heard(text: str, structured: Any, *, cut_off: bool = False) -> _Heard:
    if len(text) <= _QUICK_CHARACTERS:
        read = read_review_answer(text, structured)
    else:
        read = await asyncio.to_thread(read_review_answer, text, structured)
    if read.problem is None:
        read = replace(read, problem=TRUNCATED_JSON if cut_off else read.lost)
    return _Heard(read, text, structured, cut_off=cut_off)


def _unless_quoted(heard: _Heard, unit: Unit, question: AgentRequest) -> _Heard:
    """The answer; one that found nothing, and may be quoted from the change or the question, has a problem."""
    read = heard.read
    if heard.structured is not None or read.problem is not None or read.findings:
        return heard
    if is_echo(heard.text, question.system_prompt or ""):
        return replace(heard, read=replace(read, problem=ECHOED_QUESTION))
    if is_quoted(heard.text, (hunk for part in unit.parts for hunk in part.hunks)):
        return replace(heard, read=replace(read, problem=QUOTED_ANSWER))
    return heard


def _first(dropped: list[str]) -> tuple[str, ...]:
    """Some of them in words, and how many more there are."""
    told = tuple(shortened(lost) for lost in dropped[:_MAX_DROPPED])
    return told if len(dropped) <= _MAX_DROPPED else (*told, f"and {len(dropped) - _MAX_DROPPED:,} more")


def _together(second: ReviewAnswer, first: ReviewAnswer) -> tuple[ClaimedFinding, ...]:
    """All findings of the second answer, and those of the first that it does not have."""
    known = {_identity(claim) for claim in second.findings}
    return (*second.findings, *(claim for claim in first.findings if _identity(claim) not in known))


def _identity(claim: ClaimedFinding) -> tuple[str | None, int | None, str]:
    return claim.file, claim.line_start, "".join(claim.title.split()).lower()


def _hidden_part(unit: Unit) -> Failure | None:
    """The failure of a unit whose changed lines are so long that they were not shown whole: their ends are unread."""
    files = [part.file.path for part in unit.parts for hunk in part.hunks if any(_long_lines(hunk.body))]
    if not files:
        return None
    named = tuple(dict.fromkeys(files))
    reason = f"lines longer than {MAX_LINE_BYTES:,} bytes were sent without their ends: {', '.join(named)}"
    return Failure("line_too_long", shortened(reason), named)


def _long_lines(body: bytes) -> Iterator[bool]:
    if len(body) > MAX_LINE_BYTES:
        yield from (len(row) > MAX_LINE_BYTES + 1 and row[:1] in (b"+", b"-") for row in body.split(b"\n"))


DROPPED_FINDING = "dropped_finding"
# Answers that cannot be read are kept to be looked into, but not all of thousands.
_MAX_DETAILS = 50


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


OFFLINE = "offline"


async def review_in_lanes(lanes: Sequence[Reviewer], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    """Let all review, and merge what they found.

    One that fails leaves the others alone and the review incomplete; only cancellation is raised.
    """
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_outcome(lane, task, emit)) for lane in lanes]
    outcomes = [lane.result() for lane in running]
    return ReviewerOutcome(
        findings=_merged([finding for outcome in outcomes for finding in outcome.findings]),
        units_total=sum(outcome.units_total for outcome in outcomes),
        units_failed=tuple(unit for outcome in outcomes for unit in outcome.units_failed),
        errors=tuple(error for outcome in outcomes for error in outcome.errors),
        usage=reduce(Usage.plus, (outcome.usage for outcome in outcomes), Usage()),
        unreviewed=_unreviewed(lanes, outcomes),
    )


def _merged(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding for each defect."""
    if all(finding.source is Source.ANALYSER for finding in findings):
        return tuple(findings)  # merged by their own lane, which knows their rules
    return merge_findings(findings)


def joined_info(lanes: Sequence[ReviewerInfo]) -> ReviewerInfo:
    """Who reviewed, as one line: a single reviewer as it is, several with their types and reasons in order."""
    if len(lanes) == 1:
        return lanes[0]
    models = dict.fromkeys(info.model for info in lanes if info.model)
    return ReviewerInfo(
        type="+".join(info.type for info in lanes),
        why="; ".join(f"{info.type}: {info.why}" for info in lanes),
        model="+".join(models) or None,
    )


def _unreviewed(lanes: Sequence[Reviewer], outcomes: Sequence[ReviewerOutcome]) -> frozenset[str]:
    """Files about which nobody can say anything. Where agents review, analysers do not make a file a reviewed one."""
    asked = [outcome for lane, outcome in zip(lanes, outcomes, strict=True) if lane.info.type != OFFLINE] or outcomes
    return frozenset.intersection(*(outcome.unreviewed for outcome in asked))


async def _outcome(lane: Reviewer, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    started = time.monotonic()
    try:
        return await lane.review(task, emit)
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this lane that failed
        _log.warning("the reviewer %s failed", lane.info.type, exc_info=True)
        reason = failure_of(error).reason
    files = tuple(dict.fromkeys(file.path for file in task.files))
    emit(LaneFinished(lane.info.type, 0, time.monotonic() - started, reason))
    return ReviewerOutcome(
        units_total=1,
        units_failed=(FailedUnit(lane.info.type, files, reason),),
        errors=(ReviewError("reviewer_failed", f"{lane.info.type} could not review: {reason}"),),
        unreviewed=frozenset(files),
    )
