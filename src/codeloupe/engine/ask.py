"""Asking agents for a review: a change goes to its agent unit by unit, and the answers become findings.

A unit that fails costs that unit. What was found stays, what was not reviewed is named, and only a cancellation is
raised, when nothing runs any more. Verification puts its questions by the same means.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.config.schema import Settings
from codeloupe.engine import prompt as prompts
from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.calls import PROMPT_VERSION, UNEXPECTED_ERROR, Failure, failure_of, shortened, trust_of
from codeloupe.engine.merge import DROPPED_FINDING
from codeloupe.engine.parse.items import TRUNCATED_JSON, UNLISTED
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.parse.sentences import is_alarming
from codeloupe.engine.plan import plan_units
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Usage
from codeloupe.model.change import Expert, Hunk, Unit
from codeloupe.model.events import AgentActivity, LaneFinished, UnitFinished, UnitsPlanned, Warned
from codeloupe.model.finding import ClaimedFinding, Finding, ReviewAnswer
from codeloupe.model.ports import AskAgent, EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.system.json_text import scan_json
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

INVALID_ANSWER = "invalid_answer"
# A service that gave no answer takes no money.
_FREE = (
    *(errors.InvalidRequest, errors.NotInstalled, errors.NotLoggedIn, errors.RateLimited, errors.Overloaded),
    *(errors.ConnectionFailed, errors.PromptTooLong),
)
# Nobody can log in, install a program or mend a database while the others wait.
_LASTING = (errors.BudgetExhausted, errors.NotInstalled, errors.NotLoggedIn, errors.StoreError)

Transcript = Callable[[str, str], None]

# More is no review of a few hunks, and placing each costs time.
_MAX_FINDINGS = 200
_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class CircuitOpen(Exception):
    """The call was not made, since those before it failed; `failure` is theirs."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Circuit:
    """Watches the calls of one run, in one event loop: opens at a failure that lasts, and at three failures in a row.

    Then no call is begun any more, and those that wait for their turn are let go. What is being bought goes on.
    """

    def __init__(self) -> None:
        self._failure: Failure | None = None
        self._in_a_row = 0
        self._waiting: set[asyncio.Timeout] = set()

    def check(self) -> None:
        """Raises CircuitOpen when nothing more is to be asked."""
        if self._failure is not None:
            raise CircuitOpen(self._failure)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Callable[[AgentEvent], None]]:
        """Around one call, which has to note its events. Raises CircuitOpen, also for what waited."""
        self.check()
        scope = asyncio.timeout(None)

        def note(event: AgentEvent) -> None:
            if isinstance(event, model.AgentStarted | model.AttemptFailed):
                self._waiting.add(scope)
            elif isinstance(event, model.AttemptStarted):
                self._waiting.discard(scope)

        try:
            async with scope:
                yield note
        except TimeoutError:
            if scope.expired():
                self.check()
            raise
        finally:
            self._waiting.discard(scope)

    def note_answer(self) -> None:
        """Note that a call was answered in a form that could be read."""
        self._in_a_row = 0

    def note_failure(self, error: Exception) -> None:
        """Note that a call failed for good, or that its answer could not be read."""
        self._in_a_row += 1
        lasts = isinstance(error, _LASTING)
        if self._failure is not None or not (lasts or self._in_a_row >= 3):
            return
        self._failure = failure_of(error)
        if not lasts:
            reason = f"{self._in_a_row} calls in a row failed, the last one with: {self._failure.reason}"
            self._failure = replace(self._failure, reason=reason)
        # The budget refuses by itself what waits, and lets through what costs nothing.
        if not isinstance(error, errors.BudgetExhausted):
            while self._waiting:
                self._waiting.pop().reschedule(0.0)


class CallOptions(Struct, frozen=True, kw_only=True):
    """How each call is made. The time covers all attempts, but not the wait for a place."""

    model: str | None = None
    timeout_seconds: float = 600.0


class Asker:
    """Puts the questions about one task to an agent with these limits, in one event loop.

    It gets tools, for an untrusted change only when it reads nothing outside the reviewed tree. `usage` is what the
    questions cost so far, `models` are those that answered. `transcript` is as in `AgentReviewer`.
    """

    def __init__(
        self,
        ask: AskAgent,
        task: ReviewTask,
        *,
        limits: AgentLimits,
        calls: CallOptions,
        transcript: Transcript | None = None,
    ) -> None:
        self._ask = ask
        self._calls = calls
        self._record = transcript or (lambda _title, _text: None)
        self._notes: set[str] = set()
        self.task = task
        self.fence = prompts.new_fence()
        self.can_read_tree = limits.tools and task.tree is not None and (task.trusted or limits.confined)
        self.circuit = Circuit()
        self.usage = Usage()
        self.models: dict[str, None] = {}

    def request(self, prompt: prompts.Prompt, *, unit: str, schema: Mapping[str, Any]) -> AgentRequest:
        """The question as an agent takes it. `unit` names it for people."""
        trust = trust_of(trusted=self.task.trusted)
        reads_tree = self.can_read_tree and schema is not prompts.REPAIR_SCHEMA
        return AgentRequest(
            system_prompt=prompt.system,
            prompt=prompt.text,
            working_dir=self.task.tree or self.task.snapshot,
            model=self._calls.model,
            permission_mode=model.PermissionMode.DONT_ASK,
            tools=None if reads_tree else (),
            timeout_seconds=self._calls.timeout_seconds,
            output_schema=schema,
            labels={"unit": unit, "fence": self.fence, "prompt_version": PROMPT_VERSION, "trust": trust},
        )

    async def answer(self, request: AgentRequest, emit: EventSink) -> AgentResult:
        """The answer. Raises what `ask` raises, and CircuitOpen when it was not put."""
        unit = request.labels["unit"]
        self._record(f"system prompt of {unit}", request.system_prompt or "")
        self._record(f"prompt of {unit}", request.prompt)
        attempts: int | None = None
        try:
            async with self.circuit.call() as note:

                def listen(event: AgentEvent) -> None:
                    nonlocal attempts
                    note(event)
                    if isinstance(event, model.AgentStarted | model.AttemptStarted):
                        attempts = (attempts or 0) + isinstance(event, model.AttemptStarted)
                    emit(AgentActivity(unit, event))

                result = await self._ask(request, listen)
        except Exception as error:  # whatever it was, what it cost counts
            self.usage = self.usage.plus(_usage_of_failure(error, attempts))
            self._record(f"failure of {unit}", f"{error}\n{getattr(error, 'raw_output', '')}")
            self.models |= dict.fromkeys(filter(None, [getattr(error, "model", None)]))
            raise
        # Calls run side by side: the time of a review is measured as a whole.
        self.usage = self.usage.plus(replace(model.usage_of(result), duration_seconds=0.0))
        self._record(f"answer of {unit}", result.raw_output or result.output)
        self.models |= dict.fromkeys(filter(None, [result.model]))
        self.warn_once(result.notes, emit)
        return result

    def warn_once(self, notes: Sequence[str], emit: EventSink) -> None:
        """Warn of what many calls may have to say, once in a run."""
        for note in notes:
            if note not in self._notes:
                self._notes.add(note)
                warn(note, emit)


def _usage_of_failure(error: Exception, attempts: int | None) -> Usage:
    if isinstance(error, CircuitOpen):
        return Usage(requests=attempts or 0)
    if not isinstance(error, errors.AgentError) or attempts == 0:
        return Usage()
    free = isinstance(error, _FREE) and error.cost_usd is None
    return model.spent(error.attempts, 0.0 if free else error.cost_usd, error.usage)


def warn(message: str, emit: EventSink) -> None:
    """Tell the log and the event sink of something that degrades the review."""
    _log.warning("%s", message)
    emit(Warned(message))


async def for_each(items: Sequence[_Item], work: Callable[[_Item], Awaitable[None]], *, at_once: int) -> None:
    """Do the work for so many items at a time. A cancellation or an error is raised when nothing runs any more."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(worker())


QUOTED_ANSWER = "invalid answer: it is part of the change itself"
ECHOED_QUESTION = "invalid answer: it repeats the question"
_WORDS = regex(r"\b(?!json\b)\w", re.IGNORECASE)


def is_quoted(answer: str, hunks: Iterable[Hunk], *, beside: bytes = b"") -> bool:
    """Whether a text with words around its JSON has no JSON but what is in some hunks, or in a text beside them.

    A change may hold `{"findings": []}` in the hope that whoever describes it is taken to say so.
    """
    values = scan_json(answer).values
    position, around = 0, []
    for found in values:
        around.append(answer[position : found.start])
        position = found.end
    if not values or not _WORDS.search(" ".join((*around, answer[position:]))):
        return False
    rows = (row[1:] for hunk in hunks for row in hunk.body.split(b"\n"))
    change = "".join(b"\n".join((*rows, beside)).decode("utf-8", "replace").split())
    given = ["".join(answer[found.start : found.end].split()) for found in values if found.value]
    return bool(given) and all(text in change for text in given)


def is_echo(answer: str, question: str) -> bool:
    """Whether a text repeats a long line of the question, which says what an answer without findings looks like."""
    lines = (line.strip() for line in question.split("\n"))
    return any(line in answer for line in lines if len(line) >= 80)


class AgentReviewer(Struct, kw_only=True):
    """Reviews with one agent, which has `limits`. The type of `info` is in each finding; it gets the answering model.

    `apart` asks about each expert's checklist by itself. As many units are asked about at a time as calls may run: with
    more a broken answer would be asked for again only after all other units. `transcript` gets every prompt and raw
    answer, with the secrets that are masked only when they are sent: whoever writes them redacts them.
    """

    ask: AskAgent
    limits: AgentLimits
    info: ReviewerInfo
    settings: Settings
    calls: CallOptions = CallOptions()
    experts: tuple[Expert, ...] = ()
    apart: bool = False
    transcript: Transcript | None = None

    @property
    def name(self) -> str:
        """Who says that it found something."""
        return self.info.type

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the task's files. Findings go to `emit` as their units end, not merged yet; failures do too."""
        started, settings = time.monotonic(), self.settings
        asked: dict[str, Any] = {"experts": self.experts, "apart": self.apart, "own_tokens": self.limits.own_tokens}
        units = plan_units(task.files, effort=settings.effort, passes=settings.passes, **asked)
        emit(UnitsPlanned(self.name, len(units), sum(unit.tokens for unit in units)))
        _log.info("Starting review for %s with %d units", task.change.scope.description, len(units))
        run = _Run(self, task, emit)
        await for_each(units, run.review, at_once=settings.concurrency)
        outcome = run.outcome(units)
        if run.asker.models:
            self.info = replace(self.info, model="+".join(run.asker.models))
        seconds = time.monotonic() - started
        failed = len(outcome.units_failed)
        failure = outcome.units_failed[0].reason if failed and failed == len(units) else None
        emit(LaneFinished(self.name, len(outcome.findings), seconds, failure))
        return replace(outcome, usage=replace(run.asker.usage, duration_seconds=seconds))


class _Heard(Struct, frozen=True):
    """An answer as it was understood."""

    read: ReviewAnswer
    text: str
    from_ledger: bool
    cut_off: bool


class _UnitOutcome(Struct, frozen=True, kw_only=True):
    """What a unit gave. With `failed` it is not wholly `reviewed`; `errors` say what could not be read."""

    findings: tuple[Finding, ...] = ()
    failed: FailedUnit | None = None
    reviewed: bool = True
    errors: tuple[ReviewError, ...] = ()
    from_ledger: bool = False


class _Run:
    """The units of one review, and what became of them: asked, read, asked once more where that failed, and placed."""

    def __init__(self, reviewer: AgentReviewer, task: ReviewTask, emit: EventSink) -> None:
        self._reviewer = reviewer
        self._emit = emit
        self.asker = Asker(
            reviewer.ask, task, limits=reviewer.limits, calls=reviewer.calls, transcript=reviewer.transcript
        )
        self._material = prompts.PromptMaterial(
            fence=self.asker.fence,
            can_read_tree=self.asker.can_read_tree,
            instructions=reviewer.settings.instructions,
            **{name: getattr(task, name) for name in prompts.PromptMaterial.__struct_fields__ if hasattr(task, name)},
        )
        self._anchorer = Anchorer(task.files, TextReader(task).read, mask=redact, believes="shown")
        self._ended: dict[str, _UnitOutcome] = {}
        self._not_started: list[Failure] = []
        self._details = 0

    async def review(self, unit: Unit) -> None:
        """Review one unit, keep what became of it, and report it."""
        started = time.monotonic()
        try:
            outcome = await self._reviewed(unit)
        except CircuitOpen as stopped:
            self._not_started.append(stopped.failure)
            self._ended[unit.name] = _UnitOutcome(failed=_failed(unit, stopped.failure), reviewed=False)
            return
        self._ended[unit.name] = outcome
        for error in outcome.errors:
            warn(error.message, self._emit)
        seconds, failure = time.monotonic() - started, outcome.failed.reason if outcome.failed else None
        name, from_ledger = self._reviewer.name, outcome.from_ledger
        self._emit(UnitFinished(name, unit.name, outcome.findings, seconds, from_ledger=from_ledger, failure=failure))

    def outcome(self, units: Sequence[Unit]) -> ReviewerOutcome:
        """All of it, in the order of the units, whichever ended first."""
        ended = [self._ended[unit.name] for unit in units]
        errors = [error for one in ended for error in one.errors]
        if self._not_started:
            # One error for all units that were not started: they may be thousands, for one reason.
            failure = self._not_started[0]
            message = f"{self._reviewer.name} did not start {len(self._not_started):,} units: {failure.reason}"
            warn(message, self._emit)
            errors.append(ReviewError(failure.kind, message))
        reviewed = {file for unit, one in zip(units, ended, strict=True) if one.reviewed for file in unit.files}
        return ReviewerOutcome(
            findings=tuple(finding for one in ended for finding in one.findings),
            units_total=len(units),
            units_failed=tuple(one.failed for one in ended if one.failed),
            errors=tuple(errors),
            unreviewed=frozenset(file for unit in units for file in unit.files) - reviewed,
        )

    async def _reviewed(self, unit: Unit) -> _UnitOutcome:
        """What became of a unit. Raises CircuitOpen when it was not asked about, and a cancellation; nothing else."""
        heard = None
        try:
            prompt = prompts.review_prompt(unit, self._material)
            self.asker.warn_once(prompt.notes, self._emit)
            question = self._request(unit, prompt, prompts.FINDINGS_SCHEMA)
            heard = await self._ask(question, unit)
            return await self._concluded(unit, question, heard)
        except CircuitOpen:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a unit trips over, it is this unit that failed
            failure = failure_of(error)
            is_bad = failure.kind == UNEXPECTED_ERROR or isinstance(error, errors.Crashed)
            level = logging.WARNING if is_bad else logging.INFO
            _log.log(level, "the review of %s failed: %s", unit.name, failure.reason, exc_info=error)
            self.asker.circuit.note_failure(error)
        # What was found first is kept.
        first = f"{heard.read.problem}; asking again failed: " if heard and heard.read.problem else ""
        return self._placed(unit, heard, Failure(failure.kind, shortened(f"{first}{failure.reason}")))

    async def _concluded(self, unit: Unit, question: AgentRequest, heard: _Heard) -> _UnitOutcome:
        read, problem = heard.read, heard.read.problem
        if problem is None:
            self.asker.circuit.note_answer()
            return self._placed(unit, heard)
        again: AgentRequest | None = None
        # An answer that was cut off at a limit is not asked for again: the next one would be cut off too.
        if not heard.cut_off:
            # The same question where nothing, or not all, was said; else to say it again.
            if not heard.text.strip() or problem == TRUNCATED_JSON or problem.startswith("the run failed"):
                again = question
            elif not (prompt := prompts.repair_prompt(heard.text, problem, self._material)).notes:
                again = self._request(unit, prompt, prompts.REPAIR_SCHEMA)
        if again is None:
            return self._unreadable(unit, heard)
        warn(f"the answer about {unit.name} could not be read and is asked for again: {problem}", self._emit)
        try:
            second = await self._ask(again)
        except CircuitOpen:
            # Why nothing more is asked is said once, for all units.
            return self._unreadable(unit, heard, "it was not asked for again, since nothing more is asked")
        # All findings of the second answer, and those of the first that it does not have.
        known = set(map(_identity, second.read.findings))
        first = (claim for claim in read.findings if _identity(claim) not in known)
        both = replace(second, read=replace(second.read, findings=(*second.read.findings, *first)))
        if both.read.problem is not None:
            return self._unreadable(unit, both)
        said = read.verdict not in (None, "PASS") or bool(read.findings or read.dropped)
        if not both.read.findings and (said or (problem or "").startswith(UNLISTED) or is_alarming(heard.text)):
            return self._unreadable(unit, heard, "asked again, it named none")
        self.asker.circuit.note_answer()
        return self._placed(unit, both)

    def _request(self, unit: Unit, prompt: prompts.Prompt, schema: Mapping[str, Any]) -> AgentRequest:
        request = self.asker.request(prompt, unit=unit.name, schema=schema)
        if unit.pass_number == 1:
            return request
        # A further pass is bought anew: one answer for all passes would agree with itself.
        return replace(request, labels={**request.labels, "pass": str(unit.pass_number)})

    async def _ask(self, request: AgentRequest, unit: Unit | None = None) -> _Heard:
        """The answer; with a `unit`, one that found nothing and may be quoted from it or the question is a problem."""
        structured, from_ledger, cut_off = None, False, False
        try:
            result = await self.asker.answer(request, self._emit)
            text, structured, from_ledger = result.output, result.structured, result.from_ledger
        except errors.OutputInvalid as error:
            # What the model said, where the error knows that; else all that was printed, with its envelope.
            text, cut_off = error.output or error.raw_output, error.cut_off
        # Reading so much takes some milliseconds; more is read beside the event loop.
        if len(text) <= 64 * 1024:
            read = read_review_answer(text, structured)
        else:
            read = await asyncio.to_thread(read_review_answer, text, structured)
        problem = read.problem or (TRUNCATED_JSON if cut_off else read.lost)
        if request.output_schema is prompts.REPAIR_SCHEMA and problem is None:
            # Whether it was a review must be said in so many words, unless there are findings.
            readable = structured.get("readable") if isinstance(structured, dict) else None
            if readable is not True and (readable is not None or not read.findings):
                problem = "invalid answer: it is no review"
        if unit is not None and structured is None and problem is None and not read.findings:
            if is_echo(text, request.system_prompt or ""):
                problem = ECHOED_QUESTION
            elif is_quoted(text, (hunk for part in unit.parts for hunk in part.hunks)):
                problem = QUOTED_ANSWER
        return _Heard(replace(read, problem=problem), text, from_ledger, cut_off)

    def _placed(self, unit: Unit, heard: _Heard | None, failure: Failure | None = None) -> _UnitOutcome:
        """What was heard of a unit, with its findings in their places; with a `failure` it is not reviewed."""
        read, text = (heard.read, heard.text) if heard else (ReviewAnswer(), "")
        findings: list[Finding] = []
        claims = sorted(read.findings, key=lambda claim: claim.severity.priority)
        dropped = list(read.dropped)
        for claim in claims[:_MAX_FINDINGS]:
            try:
                findings.append(self._anchorer.place(claim, self._origin(claim, unit), unit_files=unit.files))
            except Exception as error:  # noqa: BLE001 - one claim that cannot be placed costs that claim
                _log.warning("a finding about %s could not be placed", unit.name, exc_info=True)
                dropped.append(f"{claim.title}: {type(error).__name__}: {error}")
        if failure is None and len(claims) > _MAX_FINDINGS:
            lost = f"{len(claims):,} findings in one answer, of which only the most severe {_MAX_FINDINGS} are kept"
            failure = Failure(INVALID_ANSWER, lost)
        elif failure is None and dropped and not findings:
            failure = Failure(INVALID_ANSWER, shortened(f"no finding could be read: {dropped[0]}"))
        is_reviewed = failure is None
        failure = failure or _hidden_part(unit)
        # Answers that cannot be read are kept to be looked into, but not all of thousands.
        self._details += bool(dropped or read.problem)
        detail = text[: 64 * 1024] if (dropped or read.problem) and self._details <= 50 else ""
        named = [shortened(one) for one in dropped[:20]]
        named += [f"and {len(dropped) - 20:,} more"] if len(dropped) > 20 else []
        about = f"a finding about {unit.name} could not be read"
        problems = [ReviewError(DROPPED_FINDING, f"{about}: {lost}", detail) for lost in named]
        failed = None
        if failure is not None:
            failed = _failed(unit, failure)
            message = f"{self._reviewer.name} could not review {failed.unit}: {failed.reason}"
            problems.append(ReviewError(failure.kind, message, detail))
        return _UnitOutcome(
            findings=tuple(findings),
            failed=failed,
            reviewed=is_reviewed,
            errors=tuple(problems),
            from_ledger=heard is not None and heard.from_ledger,
        )

    def _origin(self, claim: ClaimedFinding, unit: Unit) -> Origin:
        """Who found it. Under a joined checklist the category says whose part of it this is."""
        reviewer, names = self._reviewer, [expert.name for expert in unit.experts]
        category = claim.category.strip().lower().replace(" ", "_").replace("-", "_")
        alone = names[0] if len(names) == 1 else None
        label = f"{reviewer.name}/{alone}" if reviewer.apart and alone else reviewer.name
        label += f"#{unit.pass_number}" if reviewer.settings.passes > 1 else ""
        return Origin(reviewer=reviewer.name, expert=alone or (category if category in names else None), label=label)

    def _unreadable(self, unit: Unit, heard: _Heard, more: str = "") -> _UnitOutcome:
        reason = "; ".join(part for part in (heard.read.problem, more) if part)
        self.asker.circuit.note_failure(errors.OutputInvalid(reason, agent=""))
        return self._placed(unit, heard, Failure(INVALID_ANSWER, shortened(reason)))


def _identity(claim: ClaimedFinding) -> tuple[str | None, int | None, str]:
    return claim.file, claim.line_start, "".join(claim.title.split()).lower()


def _hidden_part(unit: Unit) -> Failure | None:
    """The failure of a unit whose changed lines are so long that they were not shown whole: their ends are unread."""
    files = dict.fromkeys(
        part.file.path
        for part in unit.parts
        for hunk in part.hunks
        if len(hunk.body) > prompts.MAX_LINE_BYTES
        and any(len(row) > prompts.MAX_LINE_BYTES + 1 and row[:1] in (b"+", b"-") for row in hunk.body.split(b"\n"))
    )
    reason = f"lines longer than {prompts.MAX_LINE_BYTES:,} bytes were sent without their ends: {', '.join(files)}"
    return Failure("line_too_long", shortened(reason), tuple(files)) if files else None


def _failed(unit: Unit, failure: Failure) -> FailedUnit:
    """What could not be reviewed: the unit, or those of its files that the failure is about. The others were."""
    return FailedUnit(shortened(", ".join(failure.files)) or unit.name, failure.files or unit.files, failure.reason)
