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

from codeloupe.engine.parse.envelopes import MAX_NESTED_TEXTS, Walk, failure_in, final_results
from codeloupe.engine.parse.items import (
    EMPTY_OUTPUT,
    MAX_FINDINGS,
    MAX_SUMMARY_CHARACTERS,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    Fields,
    answer_of,
    claims_defects,
    doubtful,
    failed_run,
    invalid_json,
    invalid_verdict,
    is_lasting,
    looks_like_item,
    looks_like_unrated_item,
    missing_field,
    place_of,
    plain_name,
    shown,
    too_many,
    unlisted,
)
from codeloupe.engine.parse.loose_json import (
    JsonScan,
    JsonValue,
    flaw_of,
    other_values,
    scan_json,
    text_in_text,
    text_outside,
)
from codeloupe.engine.parse.plain_text import read_bullets, read_listed, read_message_lines, read_review_comments
from codeloupe.engine.parse.sarif import looks_like_sarif, read_sarif
from codeloupe.engine.parse.sentences import is_alarming, is_doubtful, is_unfinished, says_clean
from codeloupe.engine.parse.statements import (
    LIST_NAMES,
    Beside,
    contradiction,
    names_defects,
    sign_around,
    sign_of_failure,
)
from codeloupe.model.finding import ReviewAnswer, Severity
from codeloupe.system.json_text import behind_reasoning, late, parsed

_MAX_NESTED_LEVELS = 4
_LONGEST_PLAIN_WORD = 20
_MAX_COMMENTED_CHARACTERS = 20_000
_MAX_MISSING = 20
_MAX_DROPPED = 200
# JSON whose quotes were written as entities.
_ENTITIES = late(r"[\[{]\s{0,20}&(?:quot|#34|#x22);")
_COMMENT = late(r"//|/\*|#|\.\.\.|…")
_TEXT = late(r'"(?:[^"\\\n]|\\.){0,1000}+"')
_FENCE = late(r"[\s`~\ufeff]*+(?:json[c5]?\b)?[\s`~\ufeff]*+", re.IGNORECASE)
_SUMMARY_NAMES = ("summary", "overall_explanation", "explanation")
# The worst comes last.
_VERDICTS = ("PASS", "NEEDS_WORK", "FAIL")
_CORRECTNESS = {"patch is correct": "PASS", "correct": "PASS", "patch is incorrect": "FAIL", "incorrect": "FAIL"}
_PASSED = {"true": "PASS", "yes": "PASS", "1": "PASS", "false": "FAIL", "no": "FAIL", "0": "FAIL"}
_ANSWER_NAMES = (*LIST_NAMES, "verdict", "consensus_verdict", "overall_correctness")
# Two of these tell the form by which orchestrators hand over findings.
_FIELDS_OF_FORM = ("file_path", "line_start", "priority")


def read_review_answer(output: str, structured: Any = None, *, from_program: bool = False) -> ReviewAnswer:
    """The findings in an answer, and why it is no whole answer where it is none. Never raises.

    `structured` is what the agent gave apart from its text, and counts first. `from_program` takes the text for the
    output of a linter, whose lines need no severity and may be among others.
    """
    if structured is None:
        answer = _read_text(output, from_program=from_program).answer
        if not from_program:
            return answer
        # A program may state no verdict, and nothing beyond a title.
        needless = (missing_field("verdict"), missing_field("body"))
        return replace(answer, dropped=tuple(reason for reason in answer.dropped if not reason.startswith(needless)))
    first = _read_structured(structured).answer
    if first.problem is None and (_is_grave([first]) or not output.strip()):
        return first
    beside = _read_text(output, from_program=from_program).answer
    if first.problem is not None:
        return beside if beside.problem is None or len(beside.findings) > len(first.findings) else first
    # Nothing grave was found, unless the text beside it tells of more.
    if beside.findings and (_is_grave([beside]) or beside.problem or beside.lost or not first.findings):
        return beside
    if claims_defects(beside.problem):
        return replace(first, problem=beside.problem)
    return replace(first, problem=_told_beside(output, is_clean=not first.findings) or None)


class _Reading(Struct, frozen=True):
    """The answers that were found, or why there is none."""

    answers: Sequence[ReviewAnswer] = ()
    reason: str = ""

    @property
    def answer(self) -> ReviewAnswer:
        return _merged(self.answers) if self.answers else ReviewAnswer(problem=self.reason)

    def failed(self, problem: str) -> _Reading:
        """The same findings: they are not lost, but what they were found in is no answer."""
        return _Reading([replace(self.answer, problem=problem)] if self.answers else (), problem)

    def repaired(self) -> _Reading:
        return replace(self, answers=[replace(answer, repaired=True) for answer in self.answers])


def _merged(answers: Sequence[ReviewAnswer]) -> ReviewAnswer:
    """Several answers as one: all findings, each once, in their order; the last verdict and summary.

    Models draft, correct themselves, and answer file by file. A problem of one answer gives way to findings in another
    that was understood, and is told in `dropped` then. That an answer was cut off, or its run failed, never gives way.
    """
    findings = tuple(dict.fromkeys(finding for answer in answers for finding in answer.findings))
    problems = list(dict.fromkeys(answer.problem for answer in answers if answer.problem))
    understood = any(answer.findings and answer.problem is None for answer in answers)
    standing = [problem for problem in problems if is_lasting(problem)] or ([] if understood else problems)
    problem = standing[0] if standing else None
    told = dict.fromkeys(reason for answer in answers for reason in answer.dropped)
    dropped = [*told, *(reason for reason in problems if reason != problem and reason not in told)]
    if len(dropped) > _MAX_DROPPED:
        dropped = [*dropped[:_MAX_DROPPED], f"{len(dropped) - _MAX_DROPPED:,} more reasons like these"]
    if len(findings) > MAX_FINDINGS:
        dropped.append(too_many(len(findings) - MAX_FINDINGS))
    return ReviewAnswer(
        findings=findings[:MAX_FINDINGS],
        verdict=next((answer.verdict for answer in reversed(answers) if answer.verdict), None),
        summary=next((answer.summary for answer in reversed(answers) if answer.summary), ""),
        problem=problem,
        dropped=tuple(dropped),
        repaired=any(answer.repaired for answer in answers),
    )


def _is_grave(answers: Sequence[ReviewAnswer]) -> bool:
    return any(found.severity.at_least(Severity.HIGH) for answer in answers for found in answer.findings)


def _told_beside(text: str, *, is_clean: bool) -> str:
    """Why a text around an answer without a grave finding makes it no clean one, or nothing."""
    if is_alarming(text):
        return unlisted("the words around the answer describe a serious defect")
    if is_unfinished(text):
        return failed_run("the words around the answer say that it is not whole")
    return doubtful("the words around the list may describe a defect") if is_clean and is_doubtful(text) else ""


def _read_structured(value: Any) -> _Reading:
    if isinstance(value, str):
        return _read_text(value)
    if isinstance(value, list) and not value:
        return _Reading([ReviewAnswer()])
    reading = _read_value(value, MAX_NESTED_TEXTS)
    return replace(reading, reason=reading.reason or missing_field("findings"))


def _read_text(text: str, *, from_program: bool = False, nested: int = MAX_NESTED_TEXTS) -> _Reading:
    said = behind_reasoning(text)
    if said is not None:
        return _read_said(said, from_program=from_program, nested=nested)
    return _read_said(text, from_program=from_program, nested=nested).failed(ONLY_REASONING)


def _read_said(text: str, *, from_program: bool, nested: int) -> _Reading:
    if not text.strip().strip("\ufeff"):
        return _Reading(reason=EMPTY_OUTPUT)
    if nested and (inner := text_in_text(text)) is not None:
        reading = _read_nested_text(inner, nested)
        return reading if text.lstrip().startswith('"') else reading.repaired()
    if nested and _ENTITIES.search(text):
        return _read_said(html.unescape(text), from_program=from_program, nested=nested - 1).repaired()
    scan = scan_json(text)
    reading = _read_values(scan.values, nested)
    answers = list(reading.answers)
    _add_words(answers, text, scan, from_program=from_program)
    # In prose, brackets mean many things: an empty list counts only where it is alone.
    is_empty_list = len(scan.values) == 1 and scan.values[0].value == [] and _is_alone(text, scan.values[0])
    if not answers and (says_clean(text) or is_empty_list):
        answers.append(ReviewAnswer())
    if scan.stopped:
        return _Reading(answers).failed(invalid_json(scan.stopped))
    return _Reading(answers) if answers else _Reading(reason=reading.reason or _why_nothing(text, scan))


def _read_values(values: Sequence[JsonValue], nested: int) -> _Reading:
    answers: list[ReviewAnswer] = []
    reason = ""
    finals = final_results([found.value for found in values])
    for found in values:
        if len(finals) == len(values) or found.value is finals[0]:
            reading = _read_value(found.value, nested)
            answers.extend((reading.repaired() if found.repaired else reading).answers)
            reason = reading.reason or reason
    return _Reading(answers, reason)


def _add_words(answers: list[ReviewAnswer], text: str, scan: JsonScan, *, from_program: bool) -> None:
    """Add what the text around the JSON says, and that the text ends in the middle of a value."""
    outside = text_outside(text, scan.values)
    plain = None
    if not _is_grave(answers):
        plain = _plain_answer(text, scan, outside, is_all=not answers, from_program=from_program)
        # What is listed a second time in words is told once, unless it is graver there.
        if plain and (_is_grave([plain]) or not any(answer.findings for answer in answers)):
            answers.append(plain)
    if answers and not _is_grave(answers):
        is_clean = not from_program and not any(answer.findings for answer in answers)
        if told := _told_beside(outside, is_clean=is_clean) or _told_in_comments(text, scan):
            answers.append(ReviewAnswer(problem=told))
    # A text that ends in the middle of a value is not whole, whatever else it holds. A program may quote such values.
    last = scan.values[-1] if scan.values else None
    ends_in_value = last and last.truncated and last.end == scan.length and _holds_object(last.value)
    if ('"' in scan.dangling or ends_in_value) and not (plain and from_program):
        answers.append(ReviewAnswer(problem=TRUNCATED_JSON))


def _told_in_comments(text: str, scan: JsonScan) -> str:
    """That an answer has comments, where findings may be that were left out, or nothing."""
    mended = (text[found.start : found.end][:_MAX_COMMENTED_CHARACTERS] for found in scan.values if found.repaired)
    has_some = any(_COMMENT.search(_TEXT.sub("", value)) for value in mended)
    return doubtful("it has comments in its JSON") if has_some else ""


def _holds_object(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))


def _is_alone(text: str, found: JsonValue) -> bool:
    return bool(_FENCE.fullmatch(text[: found.start]) and _FENCE.fullmatch(text[found.end :]))


def _plain_answer(text: str, scan: JsonScan, outside: str, *, is_all: bool, from_program: bool) -> ReviewAnswer | None:
    """The answer in plain text. What is in JSON is left out: it is quoted there, not claimed."""
    nothing = ReviewAnswer()
    has_json = bool(scan.values or scan.dangling)
    answer = read_bullets(outside, in_bold_only=has_json)
    if answer == nothing:
        answer = read_review_comments(outside)
    if not from_program and not answer.findings and answer.problem != TRUNCATED_JSON:
        # Code that is quoted may look like JSON: where no answer is in it, it is a part of the text.
        listed = read_listed(text if is_all else outside)
        answer = answer if listed == nothing else listed
    if answer == nothing and is_all:
        answer = read_message_lines(text, from_program=from_program)
    return None if answer == nothing else answer


def _why_nothing(text: str, scan: JsonScan) -> str:
    if any(found.value == {} and _is_alone(text, found) for found in scan.values[:1]):
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
        elif answer := _answer_in(part):
            answers.append(answer)
            if isinstance(part, Mapping) and not answer.findings:
                # Findings may be in the texts beside an empty list.
                beside = [member for name, member in part.items() if plain_name(name) not in LIST_NAMES]
                texts = [text for text in _texts_in(beside, _MAX_NESTED_LEVELS) if len(text) > _LONGEST_PLAIN_WORD]
                told = (found for text in texts for found in _read_nested_text(text, nested).answers)
                answers.extend(found for found in told if found.findings)
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
    return reading.failed(TRUNCATED_JSON) if flaw_of(text) else reading


def _answer_in(value: Any) -> ReviewAnswer | None:
    """What an object or a list answers, or None when it has no known shape."""
    if isinstance(value, list):
        flaw = flaw_of(value)
        is_list = any(looks_like_item(item) for item in value)
        return answer_of(value, problem=invalid_json(flaw) if flaw else None) if is_list else None
    if not isinstance(value, Mapping):
        return None
    if looks_like_sarif(value):
        return read_sarif(value)
    fields = Fields(value)
    if fields.has_any(_ANSWER_NAMES) or isinstance(fields.get("passed"), bool | str):
        return _read_object(value, fields)
    if looks_like_item(value):
        return answer_of([value])
    # Findings may be under names of severities, which the items do not repeat.
    beside = Beside()
    for name, part in value.items():
        if isinstance(part, list | Mapping) and part and names_defects(name):
            beside.look(part, under=name)
    flaw = flaw_of(value)
    return answer_of(beside.items, problem=invalid_json(flaw) if flaw else None) if beside.items else None


def _read_object(value: Mapping[str, Any], fields: Fields) -> ReviewAnswer:
    verdict, verdict_problem = _verdict(fields)
    items = _items(value)
    members = [*value.items(), *other_values(value)]
    # Findings are beside the lists too: under other names, in items, or the answer itself is one.
    beside = Beside()
    if looks_like_item(value) and looks_like_unrated_item(value):
        beside.items.append({name: part for name, part in value.items() if not isinstance(part, list | Mapping)})
    for name, part in members:
        if plain_name(name) not in LIST_NAMES and isinstance(part, list | Mapping):
            beside.look(part, under=name)
    answer = answer_of([*_with_parts(items or []), *beside.items])
    if file := place_of(fields).file:
        # The answer is about one file, which is named once for all of its findings.
        answer = replace(answer, findings=tuple(replace(found, file=found.file or file) for found in answer.findings))
    answer = replace(
        answer,
        verdict=verdict,
        summary=fields.text(*_SUMMARY_NAMES, most=MAX_SUMMARY_CHARACTERS).strip(),
        dropped=(*_missing(fields, items or []), *answer.dropped),
    )
    problem = _flaw(value, fields) or verdict_problem
    if not problem and items is None and not beside.items:
        problem = missing_field(_list_name(fields))
    problem = problem or answer.problem or _problem(value, fields, answer)
    return replace(answer, problem=problem or (unlisted(beside.strange) if beside.strange else None))


def _with_parts(items: list[Any]) -> Iterator[Any]:
    """The items, each followed by those that it lists itself with a severity of their own."""
    for item in items:
        yield item
        lists = [part for part in item.values() if isinstance(part, list)] if isinstance(item, Mapping) else []
        yield from (part for parts in lists for part in parts if looks_like_item(part))


def _flaw(value: Mapping[str, Any], fields: Fields) -> str | None:
    flaw = flaw_of(value) or next((flaw for name in LIST_NAMES if (flaw := flaw_of(fields.get(name)))), "")
    return invalid_json(flaw) if flaw else None


def _problem(value: Mapping[str, Any], fields: Fields, answer: ReviewAnswer) -> str | None:
    """What an answer tells of itself that makes it no whole review, or contradicts its findings, or None."""
    if fields.get("readable") is False:
        return "invalid answer: it is no review"
    if failed := fields.get("parse_errors"):
        return f"parse errors: {shown(failed[0] if isinstance(failed, list) else failed)}"
    # The status of a review-gate is read by those who know it.
    if sign := sign_of_failure(value, is_clean=not answer.findings and "consensus_verdict" not in fields):
        return sign
    if not answer.findings and answer.verdict not in (None, "PASS"):
        return f"verdict {answer.verdict} without findings"
    if _as_verdict(fields.get("verdict")) == "FAIL" and not _is_grave([answer]) and not answer.dropped:
        return "verdict FAIL without a finding of high or above"
    return contradiction(value, answer.findings)


def _missing(fields: Fields, items: list[Any]) -> list[str]:
    """The fields that answers in the form with a verdict and priorities must have, and this one has not.

    The findings are read all the same; a review-gate leaves out what it does not know.
    """
    listed = [Fields(item) for item in items if isinstance(item, Mapping)]
    has_priorities = any(
        sum(name in item for name in _FIELDS_OF_FORM) > 1 and "severity" not in item for item in listed
    )
    if "consensus_verdict" in fields or not ("verdict" in fields or has_priorities):
        return []
    told = [missing_field("verdict")] if has_priorities and not fields.has_any(_STATEMENTS) else []
    for number, item in enumerate(listed, start=1):
        place = place_of(item)
        needed = {
            "title": item.text("title", "headline", "message", "description", "issue", "problem", most=1),
            "body": item.get("body", "message", "description", "details", "explanation", "comment") is not None,
            "file_path": place.file,
            "line_start": place.line_start or place.quote,
        }
        told += [f"{missing_field(name)} (finding {number:,})" for name, there in needed.items() if not there]
    return told[:_MAX_MISSING]


def _items(value: Mapping[str, Any]) -> list[Any] | None:
    """All items of the answer, or None where it has no list of them."""
    members = (part for name, part in (*value.items(), *other_values(value)) if plain_name(name) in LIST_NAMES)
    lists = [_listed(part) for part in members]
    items = [item for listed in lists for item in listed or ()]
    # A list that cannot be understood may hold anything.
    return items if items or (lists and None not in lists) else None


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping):
        if looks_like_item(value):
            return [value]
        # In the place of a list: by file, by severity, by number.
        beside = Beside()
        beside.look(value, under="findings")
        return beside.items if beside.items or not value else None
    if isinstance(value, str) and not flaw_of(value):
        if says_clean(value):
            return []
        try:
            # Some models put their list into a string once more.
            value = parsed(value)
        except ValueError:
            return None
    return value if isinstance(value, list) else None


def _list_name(fields: Fields) -> str:
    if "consensus_verdict" in fields:
        return "aggregated_findings"
    return "issues" if "passed" in fields and "verdict" not in fields else "findings"


def _verdict(fields: Fields) -> tuple[str | None, str | None]:
    """The verdict as it was stated, in one spelling, and what is wrong with it.

    Of several that differ the worst counts. One that cannot be understood is no verdict, and never taken for a pass.
    """
    stated = []
    for name, meaning in _STATEMENTS.items():
        if name in fields:
            verdict = meaning(fields.get(name))
            if verdict is None:
                return None, invalid_verdict(fields.get(name))
            stated.append(verdict)
    return max(stated, key=_VERDICTS.index, default=None), None


def _as_verdict(stated: Any) -> str | None:
    word = "_".join(stated.upper().replace("-", " ").replace("_", " ").split()) if isinstance(stated, str) else ""
    return word if word in _VERDICTS else None


def _as_passed(stated: Any) -> str | None:
    return _PASSED.get(str(stated).strip().lower()) if isinstance(stated, (bool, str)) or stated in (0, 1) else None


def _as_correctness(stated: Any) -> str | None:
    return _CORRECTNESS.get(stated.strip().lower()) if isinstance(stated, str) else None


_STATEMENTS = {
    "verdict": _as_verdict,
    "consensus_verdict": _as_verdict,
    "passed": _as_passed,
    "overall_correctness": _as_correctness,
}
