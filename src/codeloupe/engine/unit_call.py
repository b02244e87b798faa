"""One unit through one agent: asked, read, asked once more where the answer cannot be read, and placed in the code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.asking import Asker, Desk, warn
from codeloupe.engine.circuit import CircuitOpen
from codeloupe.engine.failures import (
    INVALID_ANSWER,
    UNEXPECTED_ERROR,
    Failure,
    answer_in,
    failure_of,
    is_cut_off,
    shortened,
)
from codeloupe.engine.light_diff import MAX_LINE_BYTES
from codeloupe.engine.parse.items import TRUNCATED_JSON, claims_defects
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.parse.sentences import is_alarming
from codeloupe.engine.prompt import (
    FINDINGS_SCHEMA,
    REPAIR_SCHEMA,
    Prompt,
    PromptMaterial,
    repair_prompt,
    review_prompt,
)
from codeloupe.engine.quoted_answer import ECHOED_QUESTION, QUOTED_ANSWER, is_echo, is_quoted
from codeloupe.errors import Crashed, OutputInvalid
from codeloupe.model.agent import AgentRequest
from codeloupe.model.finding import ClaimedFinding, Finding, ReviewAnswer
from codeloupe.model.ports import EventSink

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
