"""An object, or a list, as the answer of a review: which of the known shapes it has, and what it claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.parse.beside import LIST_NAMES, Beside, keyed_items, names_defects
from codeloupe.engine.parse.clean_words import says_clean
from codeloupe.engine.parse.fields import Fields, plain_name
from codeloupe.engine.parse.finding_item import (
    MAX_SUMMARY_CHARACTERS,
    findings_of,
    first_reason,
    looks_like_item,
    looks_like_unrated_item,
)
from codeloupe.engine.parse.flaws import flaw_of, other_values
from codeloupe.engine.parse.json_text import parsed
from codeloupe.engine.parse.places import place_of
from codeloupe.engine.parse.reasons import invalid_json, invalid_verdict, missing_field, shown, unlisted
from codeloupe.engine.parse.sarif import looks_like_sarif, read_sarif
from codeloupe.engine.parse.statements import contradiction, sign_of_failure
from codeloupe.model.finding import ReviewAnswer, Severity

_VERDICT_NAMES = ("verdict", "consensus_verdict")
_STATING_NAMES = (*_VERDICT_NAMES, "overall_correctness")
_SUMMARY_NAMES = ("summary", "overall_explanation", "explanation")
# The worst comes last.
_VERDICTS = ("PASS", "NEEDS_WORK", "FAIL")
_CORRECTNESS = {"patch is correct": "PASS", "correct": "PASS", "patch is incorrect": "FAIL", "incorrect": "FAIL"}
_MOST_MISSING = 20
# Two of these tell the form by which orchestrators hand over findings.
_FIELDS_OF_FORM = ("file_path", "line_start", "priority")
_PASSED = {
    **dict.fromkeys(("true", "yes", "1"), "PASS"),
    **dict.fromkeys(("false", "no", "0"), "FAIL"),
}


def answer_in(value: Any) -> ReviewAnswer | None:
    """What an object or a list answers, or None when it has no known shape."""
    if isinstance(value, Mapping):
        if looks_like_sarif(value):
            return read_sarif(value)
        fields = Fields(value)
        if fields.has_any(LIST_NAMES) or fields.has_any(_STATING_NAMES) or isinstance(fields.get("passed"), bool | str):
            return _read_answer(value, fields)
        return _read_items([value], flaw="") if looks_like_item(value) else _read_graded(value)
    if isinstance(value, list) and any(looks_like_item(item) for item in value):
        return _read_items(value, flaw=flaw_of(value))
    return None


def _read_graded(value: Mapping[str, Any]) -> ReviewAnswer | None:
    """The findings of an object that has them under names of severities, which its items do not repeat."""
    beside = Beside()
    for name, part in value.items():
        if isinstance(part, list | Mapping) and part and names_defects(name):
            beside.look(part, under=name)
    return _read_items(beside.items, flaw=flaw_of(value)) if beside.items else None


def _read_items(items: list[Any], *, flaw: str) -> ReviewAnswer:
    found, reasons = findings_of(items)
    problem = invalid_json(flaw) if flaw else None if found else first_reason(reasons)
    return ReviewAnswer(findings=tuple(found), dropped=tuple(reasons), problem=problem)


def _read_answer(value: Mapping[str, Any], fields: Fields) -> ReviewAnswer:
    verdict, verdict_problem = _verdict(fields)
    items = _items(value)
    beside = _beside(value)
    answer = _in_file(place_of(fields).file, _read_items([*_with_parts(items or []), *beside.items], flaw=""))
    missing = _missing(fields, items or [])
    answer = replace(answer, dropped=(*missing, *answer.dropped))
    answer = replace(answer, verdict=verdict, summary=fields.text(*_SUMMARY_NAMES, most=MAX_SUMMARY_CHARACTERS).strip())
    has_items = items is not None or bool(beside.items)
    problem = _problem(value, fields, answer, verdict_problem, has_items=has_items)
    return replace(answer, problem=problem or (unlisted(beside.strange) if beside.strange else None))


def _beside(value: Mapping[str, Any]) -> Beside:
    """What an answer holds beside its lists: findings under other names, or the answer itself as one."""
    beside = Beside()
    if looks_like_item(value) and looks_like_unrated_item(value):
        beside.items.append({name: part for name, part in value.items() if not isinstance(part, list | Mapping)})
    for name, part in (*value.items(), *other_values(value)):
        if plain_name(name) not in LIST_NAMES and isinstance(part, list | Mapping):
            beside.look(part, under=name)
    return beside


def _with_parts(items: list[Any]) -> Iterator[Any]:
    """The items, each followed by those that it lists itself with a severity of their own."""
    for item in items:
        yield item
        lists = [part for part in item.values() if isinstance(part, list)] if isinstance(item, Mapping) else []
        yield from (part for parts in lists for part in parts if looks_like_item(part))


def _in_file(path: str | None, answer: ReviewAnswer) -> ReviewAnswer:
    """The answer about one file, which is named once for all of its findings."""
    if path is None:
        return answer
    return replace(answer, findings=tuple(replace(found, file=found.file or path) for found in answer.findings))


def _problem(
    value: Mapping[str, Any], fields: Fields, answer: ReviewAnswer, verdict_problem: str | None, *, has_items: bool
) -> str | None:
    flaw = flaw_of(value) or next((flaw for name in LIST_NAMES if (flaw := flaw_of(fields.get(name)))), "")
    if flaw:
        return invalid_json(flaw)
    if verdict_problem:
        return verdict_problem
    if not has_items:
        return missing_field(_list_name(fields))
    if problem := answer.problem or _failure(value, fields, is_clean=not answer.findings):
        return problem
    if not answer.findings and answer.verdict not in (None, "PASS"):
        return f"verdict {answer.verdict} without findings"
    is_grave = any(finding.severity.at_least(Severity.HIGH) for finding in answer.findings)
    if _as_verdict(fields.get("verdict")) == "FAIL" and not is_grave and not answer.dropped:
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
    states = fields.has_any(_STATING_NAMES) or "passed" in fields
    told = [] if states or not has_priorities else [missing_field("verdict")]
    for number, item in enumerate(listed, start=1):
        place = place_of(item)
        needed = (
            ("title", item.text("title", "headline", "message", "description", "issue", "problem", most=1)),
            ("body", item.get("body", "message", "description", "details", "explanation", "comment") is not None),
            ("file_path", place.file),
            ("line_start", place.line_start or place.quote),
        )
        told += [f"{missing_field(name)} (finding {number:,})" for name, there in needed if not there]
    return told[:_MOST_MISSING]


def _failure(value: Mapping[str, Any], fields: Fields, *, is_clean: bool) -> str | None:
    """What an answer tells of itself that makes it no whole review, or None."""
    if fields.get("readable") is False:
        return "invalid answer: it is no review"
    if failed := fields.get("parse_errors"):
        return f"parse errors: {shown(failed[0] if isinstance(failed, list) else failed)}"
    # The status of a review-gate is read by those who know it.
    return sign_of_failure(value, is_clean=is_clean and "consensus_verdict" not in fields)


def _items(value: Mapping[str, Any]) -> list[Any] | None:
    """All items of the answer, or None where it has no list of them."""
    members = (part for name, part in (*value.items(), *other_values(value)) if plain_name(name) in LIST_NAMES)
    lists = [_listed(part) for part in members]
    # A list that cannot be understood may hold anything.
    if not lists or any(items is None for items in lists):
        known = [items for items in lists if items]
        return [item for items in known for item in items] or None
    return [item for items in lists for item in items or ()]


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping):
        return [value] if looks_like_item(value) else keyed_items(value)
    if isinstance(value, str) and not flaw_of(value):
        return [] if says_clean(value) else _listed_in_text(value)
    return value if isinstance(value, list) else None


def _listed_in_text(text: str) -> list[Any] | None:
    """The list in a text that is JSON, as models write it that put their answer into a string once more."""
    try:
        value = parsed(text)
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
    word = str(stated).strip().lower() if isinstance(stated, (bool, str)) or stated in (0, 1) else ""
    return _PASSED.get(word)


def _as_correctness(stated: Any) -> str | None:
    return _CORRECTNESS.get(stated.strip().lower()) if isinstance(stated, str) else None


_STATEMENTS = {
    **dict.fromkeys(_VERDICT_NAMES, _as_verdict),
    "passed": _as_passed,
    "overall_correctness": _as_correctness,
}
