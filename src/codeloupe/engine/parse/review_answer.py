"""From whatever a reviewing model or program says to the findings that can be read for certain.

JSON comes first, strict or mended, in any known shape and any envelope; then the known forms of plain text; then words
that say nothing was found. Anything else is a problem with a name, never an empty list.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.parse.alarm import is_alarming, is_doubtful, is_unfinished
from codeloupe.engine.parse.answer_object import answer_in
from codeloupe.engine.parse.beside import LIST_NAMES
from codeloupe.engine.parse.bullets import read_bullets
from codeloupe.engine.parse.clean_words import says_clean
from codeloupe.engine.parse.envelopes import Walk, failure_in, final_results
from codeloupe.engine.parse.fields import plain_name
from codeloupe.engine.parse.flaws import flaw_of
from codeloupe.engine.parse.json_values import JsonScan, JsonValue, scan_json, text_outside
from codeloupe.engine.parse.listed_text import read_listed
from codeloupe.engine.parse.merging import merged
from codeloupe.engine.parse.message_lines import read_message_lines
from codeloupe.engine.parse.patterns import late
from codeloupe.engine.parse.quoted_text import text_in_text
from codeloupe.engine.parse.reasoning import behind_reasoning
from codeloupe.engine.parse.reasons import (
    EMPTY_OUTPUT,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    claims_defects,
    doubtful,
    failed_run,
    invalid_json,
    missing_field,
    unlisted,
)
from codeloupe.engine.parse.review_comments import read_review_comments
from codeloupe.engine.parse.statements import sign_around
from codeloupe.model.finding import ReviewAnswer, Severity

# A text in an envelope, in a text in an envelope, is as deep as programs go.
_MAX_NESTED_TEXTS = 3
_MAX_NESTED_LEVELS = 4
_LONGEST_PLAIN_WORD = 20
# JSON whose quotes were written as entities.
_ENTITIES = late(r"[\[{]\s{0,20}&(?:quot|#34|#x22);")
_COMMENT = late(r"//|/\*|#|\.\.\.|…")
_TEXT = late(r'"(?:[^"\\\n]|\\.){0,1000}+"')
_MAX_COMMENTED_CHARACTERS = 20_000
_FENCE = late(r"[\s`~\ufeff]*+(?:json[c5]?\b)?[\s`~\ufeff]*+", re.IGNORECASE)


def read_review_answer(output: str, structured: Any = None, *, from_program: bool = False) -> ReviewAnswer:
    """The findings in an answer, and why it is no whole answer where it is none. Never raises.

    `structured` is what the agent gave apart from its text, and counts first. `from_program` takes the text for the
    output of a linter, whose lines need no severity and may stand among others.
    """
    if structured is None:
        answer = _answer(_read_text(output, from_program=from_program))
        return _as_programs_write(answer) if from_program else answer
    first = _answer(_read_structured(structured))
    if first.problem is None and _is_grave([first]):
        return first
    if first.problem is None:
        return _unless_told_in(output, first, from_program=from_program)
    second = _answer(_read_text(output, from_program=from_program))
    return second if second.problem is None or len(second.findings) > len(first.findings) else first


def _as_programs_write(answer: ReviewAnswer) -> ReviewAnswer:
    """The answer of a program, which may have no verdict, and nothing to say beyond a title."""
    needless = (missing_field("verdict"), missing_field("body"))
    return replace(answer, dropped=tuple(reason for reason in answer.dropped if not reason.startswith(needless)))


def _unless_told_in(output: str, first: ReviewAnswer, *, from_program: bool) -> ReviewAnswer:
    """An answer that found nothing grave, unless the text beside it tells of more."""
    if not output.strip():
        return first
    beside = _answer(_read_text(output, from_program=from_program))
    if beside.findings and (_is_grave([beside]) or beside.problem or beside.lost or not first.findings):
        return beside
    if claims_defects(beside.problem):
        return replace(first, problem=beside.problem)
    return replace(first, problem=_told_beside(output, is_clean=not first.findings) or None)


def _told_beside(text: str, *, is_clean: bool) -> str:
    """Why a text around an answer without a grave finding makes it no clean one, or nothing."""
    if is_alarming(text):
        return unlisted("the words around the answer describe a serious defect")
    if is_unfinished(text):
        return failed_run("the words around the answer say that it is not whole")
    return doubtful("the words around the list may describe a defect") if is_clean and is_doubtful(text) else ""


class _Reading(Struct, frozen=True):
    """The answers that were found, or why there is none."""

    answers: Sequence[ReviewAnswer] = ()
    reason: str = ""


def _answer(reading: _Reading) -> ReviewAnswer:
    if not reading.answers:
        return ReviewAnswer(problem=reading.reason)
    return merged(reading.answers)


def _read_structured(value: Any) -> _Reading:
    if isinstance(value, str):
        return _read_text(value)
    if isinstance(value, list) and not value:
        return _Reading([ReviewAnswer()])
    reading = _read_value(value, _MAX_NESTED_TEXTS)
    return replace(reading, reason=reading.reason or missing_field("findings"))


def _read_text(text: str, *, from_program: bool = False, nested: int = _MAX_NESTED_TEXTS) -> _Reading:
    said = behind_reasoning(text)
    if said is not None:
        return _read_said(said, from_program=from_program, nested=nested)
    # What was found is not lost with the thought that it was found in, but is no answer.
    draft = _read_said(text, from_program=from_program, nested=nested)
    return _Reading([replace(merged(draft.answers), problem=ONLY_REASONING)] if draft.answers else (), ONLY_REASONING)


def _read_said(text: str, *, from_program: bool, nested: int) -> _Reading:
    if not text.strip().strip("\ufeff"):
        return _Reading(reason=EMPTY_OUTPUT)
    if nested and (inner := text_in_text(text)) is not None:
        reading = _read_nested_text(inner, nested)
        is_quoted = text.lstrip().startswith('"')
        return replace(
            reading, answers=[replace(one, repaired=one.repaired or not is_quoted) for one in reading.answers]
        )
    if nested and _ENTITIES.search(text):
        reading = _read_said(html.unescape(text), from_program=from_program, nested=nested - 1)
        return replace(reading, answers=[replace(one, repaired=True) for one in reading.answers])
    scan = scan_json(text)
    reading = _read_values(scan.values, nested)
    answers, plain = list(reading.answers), None
    if not _is_grave(answers):
        plain = _plain_answer(text, scan, is_all=not answers, from_program=from_program)
        # What is listed a second time in words is told once, unless it is graver there.
        if plain and (_is_grave([plain]) or not any(answer.findings for answer in answers)):
            answers.append(plain)
    is_clean = not from_program and not any(answer.findings for answer in answers)
    if (
        answers
        and not _is_grave(answers)
        and (told := _told_beside(text_outside(text, scan.values), is_clean=is_clean) or _told_in_comments(text, scan))
    ):
        answers.append(ReviewAnswer(problem=told))
    # A text that ends in the middle of a value is not whole, whatever else it holds. A program may quote such values.
    if _ends_in_value(scan) and not (plain and from_program):
        answers.append(ReviewAnswer(problem=TRUNCATED_JSON))
    if not answers and (says_clean(text) or _is_empty_list(text, scan)):
        answers.append(ReviewAnswer())
    if scan.stopped:
        problem = invalid_json(scan.stopped)
        return _Reading([replace(merged(answers), problem=problem)] if answers else (), problem)
    return _Reading(answers) if answers else _Reading(reason=reading.reason or _why_nothing(text, scan))


def _is_grave(answers: Sequence[ReviewAnswer]) -> bool:
    return any(found.severity.at_least(Severity.HIGH) for answer in answers for found in answer.findings)


def _told_in_comments(text: str, scan: JsonScan) -> str:
    """That an answer has comments, where findings may stand that were left out, or nothing."""
    mended = (text[found.start : found.end][:_MAX_COMMENTED_CHARACTERS] for found in scan.values if found.repaired)
    has_some = any(_COMMENT.search(_TEXT.sub("", value)) for value in mended)
    return doubtful("it has comments in its JSON") if has_some else ""


def _read_values(values: Sequence[JsonValue], nested: int) -> _Reading:
    answers: list[ReviewAnswer] = []
    reason = ""
    for found in _final_values(values):
        reading = _read_value(found.value, nested)
        answers.extend(replace(answer, repaired=answer.repaired or found.repaired) for answer in reading.answers)
        reason = reading.reason or reason
    return _Reading(answers, reason)


def _ends_in_value(scan: JsonScan) -> bool:
    if '"' in scan.dangling:
        return True
    return any(
        found.truncated and found.end == scan.length and _holds_object(found.value) for found in scan.values[-1:]
    )


def _final_values(values: Sequence[JsonValue]) -> Sequence[JsonValue]:
    finals = final_results([found.value for found in values])
    return [found for found in values if found.value is finals[0]] if len(finals) < len(values) else values


def _holds_object(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))


def _read_value(value: Any, nested: int) -> _Reading:
    """What a value answers: itself, a value in it, or a text in it."""
    answers: list[ReviewAnswer] = []
    reason = missing_field("findings") if value and _holds_object(value) else ""
    flaw, sign, walk = "", "", Walk(value)
    for part in walk:
        if isinstance(part, str):
            reading = _read_nested_text(part, nested)
            answers.extend(reading.answers)
            reason = reading.reason or reason
        elif failure := failure_in(part):
            answers.append(ReviewAnswer(problem=failure))
            walk.take()
        elif answer := answer_in(part):
            answers.append(answer)
            answers.extend(_told_in_texts(part, nested) if not answer.findings else ())
            walk.take()
        else:
            flaw = flaw or flaw_of(part)
            sign = sign or sign_around(part)
    if answers and sign:
        answers.append(ReviewAnswer(problem=sign))
    if answers and (missing := flaw or walk.left_out):
        # What is missing around an answer may have been another one.
        answers.append(ReviewAnswer(problem=invalid_json(missing)))
    return _Reading(answers, reason)


def _told_in_texts(part: Any, nested: int) -> list[ReviewAnswer]:
    """The findings in the texts that stand beside an empty list."""
    if not isinstance(part, Mapping) or not nested:
        return []
    texts = _texts_in([value for name, value in part.items() if plain_name(name) not in LIST_NAMES], _MAX_NESTED_LEVELS)
    readings = (_read_nested_text(text, nested) for text in texts if len(text) > _LONGEST_PLAIN_WORD)
    return [answer for reading in readings for answer in reading.answers if answer.findings]


def _texts_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list) and depth:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(part, depth - 1)


def _read_nested_text(text: str, nested: int) -> _Reading:
    if not nested:
        return _Reading()
    reading = _read_text(text, nested=nested - 1)
    if not flaw_of(text):
        return reading
    return _Reading(
        [replace(merged(reading.answers), problem=TRUNCATED_JSON)] if reading.answers else (), TRUNCATED_JSON
    )


def _plain_answer(text: str, scan: JsonScan, *, is_all: bool, from_program: bool) -> ReviewAnswer | None:
    """The answer in plain text. What stands in JSON is left out: it is quoted there, not claimed."""
    has_json = bool(scan.values or scan.dangling)
    outside = text_outside(text, scan.values) if has_json else text
    answer = read_bullets(outside, in_bold_only=has_json) or read_review_comments(outside)
    is_read = answer is not None and (answer.findings or answer.problem == TRUNCATED_JSON)
    if not is_read and not from_program:
        # Code that is quoted may look like JSON: where no answer is in it, it is a part of the text.
        answer = read_listed(text if is_all else outside) or answer
    return answer or (read_message_lines(text, from_program=from_program) if is_all else None)


def _stands_alone(text: str, found: JsonValue) -> bool:
    before, behind = text[: found.start], text[found.end :]
    return bool(_FENCE.fullmatch(before) and _FENCE.fullmatch(behind))


def _is_empty_list(text: str, scan: JsonScan) -> bool:
    """Whether the text is an empty list and nothing else: in prose, brackets mean many things."""
    return len(scan.values) == 1 and scan.values[0].value == [] and _stands_alone(text, scan.values[0])


def _why_nothing(text: str, scan: JsonScan) -> str:
    if any(found.value == {} and _stands_alone(text, found) for found in scan.values[:1]):
        return missing_field("findings")
    start, end = text.find("{"), text.rfind("}") + 1
    if scan.values or start < 0 or end <= start:
        return NO_JSON
    try:
        json.loads(text[start:end])
    except json.JSONDecodeError as error:
        return invalid_json(f"{error.msg} at character {start + error.pos + 1:,}")
    except (ValueError, RecursionError):
        return invalid_json("it cannot be read")
    return NO_JSON
