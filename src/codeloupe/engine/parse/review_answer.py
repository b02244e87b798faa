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

from codeloupe.engine.parse import items, statements
from codeloupe.engine.parse.items import DOUBTFUL, FAILED_RUN, TRUNCATED_JSON, UNLISTED, Fields, plain_name, shown
from codeloupe.engine.parse.plain_text import read_bullets, read_listed
from codeloupe.engine.parse.sarif import looks_like_sarif, read_sarif
from codeloupe.engine.parse.sentences import NAMES, WORDING, is_alarming, is_doubtful, is_unfinished, says_clean
from codeloupe.engine.parse.statements import LIST_NAMES, MAX_NESTED_TEXTS
from codeloupe.model.finding import ReviewAnswer, Severity
from codeloupe.system import json_text
from codeloupe.system.json_text import JsonScan, JsonValue, flaw_of, other_values
from codeloupe.system.regex import regex

# JSON whose quotes were written as entities.
_ENTITIES = regex(r"[\[{]\s{0,20}&(?:quot|#34|#x22);")
_COMMENT = regex(r"//|/\*|#|\.\.\.|…")
_TEXT = regex(r'"(?:[^"\\\n]|\\.){0,1000}+"')
_FENCE = regex(r"[\s`~\ufeff]*+(?:json[c5]?\b)?[\s`~\ufeff]*+", re.IGNORECASE)


def read_review_answer(output: str, structured: Any = None, *, from_program: bool = False) -> ReviewAnswer:
    """The findings in an answer, and why it is no whole answer where it is none. Never raises.

    `structured` is what the agent gave apart from its text, and counts first. `from_program` takes the text for the
    output of a linter, whose lines need no severity and may be among others.
    """
    if structured is None:
        answer = _read_text(output, from_program=from_program).answer
        # A program may state no verdict, and nothing beyond a title.
        needless = ("missing field: verdict", "missing field: body") if from_program else ()
        return replace(answer, dropped=tuple(reason for reason in answer.dropped if not reason.startswith(needless)))
    is_empty = isinstance(structured, list) and not structured
    nested = MAX_NESTED_TEXTS + isinstance(structured, str)
    first = ReviewAnswer() if is_empty else _read_value(structured, nested).answer
    if first.problem is None and (_is_serious([first]) or not output.strip()):
        return first
    beside = _read_text(output, from_program=from_program).answer
    if first.problem is not None:
        return beside if beside.problem is None or len(beside.findings) > len(first.findings) else first
    # Nothing serious was found, unless the text beside it tells of more.
    if beside.findings and (_is_serious([beside]) or beside.problem or beside.lost or not first.findings):
        return beside
    # Beside findings, a doubt whether there are any says nothing.
    against = (UNLISTED,) if first.findings or beside.findings else (UNLISTED, DOUBTFUL)
    if (beside.problem or "").startswith(against) or (beside.dropped and not beside.findings):
        return replace(first, problem=beside.problem or beside.lost)
    return replace(first, problem=_said_beside(output, is_clean=not first.findings) or None)


class _Reading(Struct, frozen=True):
    """The answers that were found, or why there is none."""

    answers: Sequence[ReviewAnswer] = ()
    reason: str = ""

    @property
    def answer(self) -> ReviewAnswer:
        return _merged(self.answers) if self.answers else ReviewAnswer(problem=self.reason or "missing field: findings")

    def failed(self, problem: str) -> _Reading:
        """The same findings: they are not lost, but what they were found in is no answer."""
        return _Reading([replace(self.answer, problem=problem)] if self.answers else (), problem)

    def repaired(self) -> _Reading:
        return replace(self, answers=[replace(answer, repaired=True) for answer in self.answers])


def _merged(answers: Sequence[ReviewAnswer]) -> ReviewAnswer:
    """Several answers as one: models draft, correct themselves, and answer file by file. No finding is lost."""
    findings = tuple(dict.fromkeys(finding for answer in answers for finding in answer.findings))
    problems = list(dict.fromkeys(answer.problem for answer in answers if answer.problem))
    understood = any(answer.findings and answer.problem is None for answer in answers)
    lasting = [each for each in problems if each == TRUNCATED_JSON or each.startswith((FAILED_RUN, UNLISTED))]
    problem = next(iter(lasting or ([] if understood else problems)), None)
    reasons = dict.fromkeys(reason for answer in answers for reason in answer.dropped)
    dropped = [*reasons, *(reason for reason in problems if reason != problem and reason not in reasons)]
    if len(dropped) > 200:
        dropped = [*dropped[:200], f"{len(dropped) - 200:,} more reasons like these"]
    if len(findings) > items.MAX_FINDINGS:
        dropped.append(items.too_many(len(findings) - items.MAX_FINDINGS))
    return ReviewAnswer(
        findings=findings[: items.MAX_FINDINGS],
        verdict=next((answer.verdict for answer in reversed(answers) if answer.verdict), None),
        summary=next((answer.summary for answer in reversed(answers) if answer.summary), ""),
        problem=problem,
        dropped=tuple(dropped),
        repaired=any(answer.repaired for answer in answers),
    )


def _is_serious(answers: Sequence[ReviewAnswer]) -> bool:
    return any(found.severity.at_least(Severity.HIGH) for answer in answers for found in answer.findings)


def _said_beside(text: str, *, is_clean: bool) -> str:
    """Why a text around an answer without a serious finding makes it no clean one, or nothing."""
    if is_alarming(text):
        return f"{UNLISTED}the words around the answer describe a serious defect"
    if is_unfinished(text):
        return f"{FAILED_RUN}the words around the answer say that it is not whole"
    return f"{DOUBTFUL}the words around the list may describe a defect" if is_clean and is_doubtful(text) else ""


def _read_text(text: str, *, from_program: bool = False, nested: int = MAX_NESTED_TEXTS) -> _Reading:
    said = json_text.after_reasoning(text)
    reading = _read_said(text if said is None else said, from_program=from_program, nested=nested)
    return reading.failed(items.ONLY_REASONING) if said is None else reading


def _read_said(text: str, *, from_program: bool, nested: int) -> _Reading:
    if not text.strip().strip("\ufeff"):
        return _Reading(reason=items.EMPTY_OUTPUT)
    if nested and (inner := json_text.text_in_text(text)) is not None:
        reading = _read_nested_text(inner, nested)
        return reading if text.lstrip().startswith('"') else reading.repaired()
    if nested and _ENTITIES.search(text):
        return _read_said(html.unescape(text), from_program=from_program, nested=nested - 1).repaired()
    scan = json_text.scan_json(text)
    answers: list[ReviewAnswer] = []
    reason = ""
    finals = statements.final_results([found.value for found in scan.values])
    for found in scan.values:
        if len(finals) == len(scan.values) or found.value is finals[0]:
            reading = _read_value(found.value, nested)
            answers.extend((reading.repaired() if found.repaired else reading).answers)
            reason = reading.reason or reason
    _add_words(answers, text, scan, from_program=from_program)
    # In prose, brackets mean many things: an empty list counts only where it is alone.
    is_empty_list = len(scan.values) == 1 and scan.values[0].value == [] and _is_alone(text, scan.values[0])
    if not answers and (says_clean(text) or is_empty_list):
        answers.append(ReviewAnswer())
    if scan.stopped:
        return _Reading(answers).failed(f"invalid json: {scan.stopped}")
    return _Reading(answers, "" if answers else reason or _why_nothing(text, scan))


def _add_words(answers: list[ReviewAnswer], text: str, scan: JsonScan, *, from_program: bool) -> None:
    """Add what the text around the JSON says, and that the text ends in the middle of a value."""
    plain = ReviewAnswer()
    if not _is_serious(answers):
        # What is in JSON is left out: it is quoted there, not claimed.
        plain = read_bullets(scan.outside, in_bold_only=bool(scan.values or scan.dangling))
        if not plain.findings and plain.problem != TRUNCATED_JSON:
            # Code that is quoted may look like JSON: where no answer is in it, it is a part of the text.
            listed = read_listed(scan.outside if answers else text, from_program=from_program)
            plain = plain if listed == ReviewAnswer() else listed
        # What prose lists a second time counts once, unless it is more severe there.
        is_new = _is_serious([plain]) or not any(answer.findings for answer in answers)
        answers.extend([plain] if plain != ReviewAnswer() and is_new else ())
    if answers and not _is_serious(answers):
        is_clean = not from_program and not any(answer.findings for answer in answers)
        # In comments findings may be that were left out.
        mended = (text[found.start : found.end][:20_000] for found in scan.values if found.repaired)
        if problem := _said_beside(scan.outside, is_clean=is_clean):
            answers.append(ReviewAnswer(problem=problem))
        elif any(_COMMENT.search(_TEXT.sub("", value)) for value in mended):
            answers.append(ReviewAnswer(problem=f"{DOUBTFUL}it has comments in its JSON"))
    # A text that ends in the middle of a value is not whole, whatever else it holds. A program may quote such values.
    last = scan.values[-1] if scan.values else None
    ends_in_value = last and last.truncated and last.end == scan.length and _holds_object(last.value)
    if ('"' in scan.dangling or ends_in_value) and not (plain != ReviewAnswer() and from_program):
        answers.append(ReviewAnswer(problem=TRUNCATED_JSON))


def _holds_object(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))


def _is_alone(text: str, found: JsonValue) -> bool:
    return bool(_FENCE.fullmatch(text[: found.start]) and _FENCE.fullmatch(text[found.end :]))


def _why_nothing(text: str, scan: JsonScan) -> str:
    if any(found.value == {} and _is_alone(text, found) for found in scan.values[:1]):
        return "missing field: findings"
    start, end = text.find("{"), text.rfind("}") + 1
    if scan.values or start < 0 or end <= start:
        return items.NO_JSON
    try:
        json.loads(text[start:end])
    except json.JSONDecodeError as error:
        return f"invalid json: {error.msg} at character {start + error.pos + 1:,}"
    except (ValueError, RecursionError):
        return "invalid json: it cannot be read"
    return items.NO_JSON


def _read_value(value: Any, nested: int) -> _Reading:
    """What a value answers: itself, a value in it, or a text in it."""
    answers: list[ReviewAnswer] = []
    reason = "missing field: findings" if value and _holds_object(value) else ""
    flaw = sign = ""

    def understood(part: Any) -> bool:
        nonlocal reason, flaw, sign
        if isinstance(part, str):
            reading = _read_nested_text(part, nested)
            answers.extend(reading.answers)
            reason = reading.reason or reason
        elif failure := statements.failure_in(part):
            answers.append(ReviewAnswer(problem=failure))
            return True
        elif answer := _answer_in(part):
            answers.append(answer)
            if isinstance(part, Mapping) and not answer.findings:
                # Findings may be in the texts beside an empty list.
                texts = (text for _, text, _ in statements.plain_values(part) if isinstance(text, str))
                inner = (found for text in texts if len(text) > 20 for found in _read_nested_text(text, nested).answers)
                answers.extend(found for found in inner if found.findings)
            return True
        else:
            flaw = flaw or flaw_of(part)
            sign = sign or statements.sign_around(part)
        return False

    left_out = statements.walk(value, understood)
    # What is missing around an answer may have been another one.
    missing = f"invalid json: {flaw or left_out}" if flaw or left_out else ""
    answers.extend([ReviewAnswer(problem=problem) for problem in (sign, missing) if problem and answers])
    return _Reading(answers, reason)


def _read_nested_text(text: str, nested: int) -> _Reading:
    reading = _read_text(text, nested=nested - 1) if nested else _Reading()
    return reading.failed(TRUNCATED_JSON) if nested and flaw_of(text) else reading


def _answer_in(value: Any) -> ReviewAnswer | None:
    """What an object or a list answers, or None when it has no known shape."""
    problem = f"invalid json: {flaw}" if (flaw := flaw_of(value)) else None
    if isinstance(value, list):
        return items.answer_of(value, problem=problem) if any(map(items.looks_like_item, value)) else None
    if not isinstance(value, Mapping):
        return None
    if looks_like_sarif(value):
        return read_sarif(value)
    fields = Fields(value)
    names = (*LIST_NAMES, "verdict", "consensus_verdict", "overall_correctness")
    if fields.has_any(names) or isinstance(fields.get("passed"), bool | str):
        return _read_object(value, fields)
    if items.looks_like_item(value):
        return items.answer_of([value])
    # Findings may be under names of severities, which the items do not repeat.
    parts = {name: part for name, part in value.items() if isinstance(part, list | Mapping) and part}
    found, _ = statements.items_beside((name, part) for name, part in parts.items() if statements.names_defects(name))
    return items.answer_of(found, problem=problem) if found else None


def _read_object(value: Mapping[str, Any], fields: Fields) -> ReviewAnswer:
    verdict, verdict_problem = _verdict(fields)
    members = [(name, part, plain_name(name) in LIST_NAMES) for name, part in (*value.items(), *other_values(value))]
    lists = [_listed(part) for _, part, is_list in members if is_list]
    listed = [item for part in lists for item in part or ()]
    # Findings are beside the lists too: under other names, in items, or the answer itself is one.
    beside, strange = statements.items_beside(
        (name, part) for name, part, is_list in members if isinstance(part, list | Mapping) and not is_list
    )
    if items.looks_like_item(value) and items.looks_like_unrated_item(value):
        beside.insert(0, {name: part for name, part in value.items() if not isinstance(part, list | Mapping)})
    answer = items.answer_of([*_with_parts(listed), *beside])
    if file := items.place_of(fields).file:
        # The answer is about one file, which is named once for all of its findings.
        answer = replace(answer, findings=tuple(replace(found, file=found.file or file) for found in answer.findings))
    answer = replace(
        answer,
        verdict=verdict,
        summary=fields.text("summary", "overall_explanation", "explanation", most=items.MAX_TEXT_CHARACTERS).strip(),
        dropped=(*_missing(fields, listed), *answer.dropped),
    )
    flaw = flaw_of(value, *(fields.get(name) for name in LIST_NAMES))
    problem = f"invalid json: {flaw}" if flaw else verdict_problem
    # A list that cannot be understood may hold anything.
    if not problem and not listed and not beside and (not lists or None in lists):
        has_issues = "passed" in fields and "verdict" not in fields
        name = "aggregated_findings" if "consensus_verdict" in fields else "issues" if has_issues else "findings"
        problem = f"missing field: {name}"
    problem = problem or answer.problem or next(filter(None, _problems(value, fields, answer)), None)
    return replace(answer, problem=problem or (UNLISTED + strange if strange else None))


def _with_parts(listed: list[Any]) -> Iterator[Any]:
    """The items, each followed by those that it lists itself with a severity of their own."""
    for item in listed:
        yield item
        lists = [part for part in item.values() if isinstance(part, list)] if isinstance(item, Mapping) else []
        yield from (part for parts in lists for part in parts if items.looks_like_item(part))


def _problems(value: Mapping[str, Any], fields: Fields, answer: ReviewAnswer) -> Iterator[str | None]:
    """What an answer says of itself that makes it no whole review, or contradicts its findings."""
    yield "invalid answer: it is no review" if fields.get("readable") is False else None
    if failed := fields.get("parse_errors"):
        yield f"parse errors: {shown(failed[0] if isinstance(failed, list) else failed)}"
    # The status of a review-gate is read by those who know it.
    is_clean = not answer.findings and "consensus_verdict" not in fields
    yield statements.sign_of_failure(value, is_clean=is_clean)
    if not answer.findings and answer.verdict not in (None, "PASS"):
        yield f"verdict {answer.verdict} without findings"
    if _meaning("verdict", fields) == "FAIL" and not _is_serious([answer]) and not answer.dropped:
        yield "verdict FAIL without a finding of high or above"
    yield statements.contradiction(value, answer.findings)
    yield None if answer.findings else statements.doubt_in(value)


def _missing(fields: Fields, listed: list[Any]) -> list[str]:
    """The fields that answers in the form with a verdict and priorities must have, and this one has not."""
    found = [Fields(item) for item in listed if isinstance(item, Mapping)]
    # Two of these tell the form by which orchestrators hand over findings.
    form = ("file_path", "line_start", "priority")
    has_form = any(sum(name in item for name in form) > 1 and "severity" not in item for item in found)
    # A review-gate leaves out what it does not know.
    if "consensus_verdict" in fields or not ("verdict" in fields or has_form):
        return []
    missing = ["missing field: verdict"] if has_form and not fields.has_any(WORDING["verdicts"]) else []
    for number, item in enumerate(found, start=1):
        place = items.place_of(item)
        needed = {
            "title": item.text("title", "headline", "message", "description", "issue", "problem"),
            "body": item.get(*NAMES["body"]) is not None,
            "file_path": place.file,
            "line_start": place.line_start or place.evidence,
        }
        missing += [f"missing field: {name} (finding {number:,})" for name, there in needed.items() if not there]
    return missing[:20]


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping):
        # One item, or in the place of a list: by file, by severity, by number.
        found = [value] if items.looks_like_item(value) else statements.items_beside([("findings", value)])[0]
        return found if found or not value else None
    if isinstance(value, str) and not flaw_of(value):
        if says_clean(value):
            return []
        try:
            # Some models put their list into a string once more.
            value = json_text.parsed(value)
        except ValueError:
            return None
    return value if isinstance(value, list) else None


def _verdict(fields: Fields) -> tuple[str | None, str | None]:
    """The worst verdict that was stated, in one spelling, or what is wrong with one of them."""
    stated = {name: _meaning(name, fields) for name in WORDING["verdicts"] if name in fields}
    strange = next((name for name, verdict in stated.items() if verdict is None), None)
    if strange:
        return None, f"invalid verdict: {shown(fields.get(strange))}"
    return next((verdict for verdict in ("FAIL", "NEEDS_WORK", "PASS") if verdict in stated.values()), None), None


def _meaning(name: str, fields: Fields) -> str | None:
    stated = fields.get(name)
    is_flag = name == "passed" and (isinstance(stated, bool) or stated in (0, 1))
    if not isinstance(stated, str) and not is_flag:
        return None
    meanings: dict[str, str] = WORDING["verdicts"][name]
    return meanings.get("_".join(str(stated).upper().replace("-", " ").replace("_", " ").split()))
