"""An object, or a list, as the answer of a review: which of the known shapes it has, and what it claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from codeloupe.extraction.clean_words import says_clean
from codeloupe.extraction.fields import Fields
from codeloupe.extraction.finding_item import MAX_SUMMARY_CHARACTERS, findings_of, first_reason, looks_like_item
from codeloupe.extraction.flaws import flaw_of
from codeloupe.extraction.json_text import parsed
from codeloupe.extraction.places import place_of
from codeloupe.extraction.reasons import failed_run, invalid_json, invalid_verdict, missing_field, shown
from codeloupe.extraction.sarif import looks_like_sarif, read_sarif
from codeloupe.model.answer import ReviewAnswer

_LIST_NAMES = ("findings", "issues", "aggregated_findings")
_VERDICT_NAMES = ("verdict", "consensus_verdict")
_STATING_NAMES = (*_VERDICT_NAMES, "overall_correctness")
_SUMMARY_NAMES = ("summary", "overall_explanation", "explanation")
# The worst comes last.
_VERDICTS = ("PASS", "NEEDS_WORK", "FAIL")
_CORRECTNESS = {"patch is correct": "PASS", "correct": "PASS", "patch is incorrect": "FAIL", "incorrect": "FAIL"}
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
        if (
            fields.has_any(_LIST_NAMES)
            or fields.has_any(_STATING_NAMES)
            or isinstance(fields.get("passed"), bool | str)
        ):
            return _read_answer(value, fields)
        return _read_items([value], flaw="") if looks_like_item(value) else None
    if isinstance(value, list) and any(looks_like_item(item) for item in value):
        return _read_items(value, flaw=flaw_of(value))
    return None


def _read_items(items: list[Any], *, flaw: str) -> ReviewAnswer:
    found, reasons = findings_of(items)
    problem = invalid_json(flaw) if flaw else None if found else first_reason(reasons)
    return ReviewAnswer(findings=tuple(found), dropped=tuple(reasons), problem=problem)


def _read_answer(value: Mapping[str, Any], fields: Fields) -> ReviewAnswer:
    verdict, verdict_problem = _verdict(fields)
    items = _items(fields)
    answer = _in_file(place_of(fields).file, _read_items(items or [], flaw=""))
    answer = replace(answer, verdict=verdict, summary=fields.text(*_SUMMARY_NAMES, most=MAX_SUMMARY_CHARACTERS).strip())
    return replace(answer, problem=_problem(value, fields, answer, verdict_problem, has_items=items is not None))


def _in_file(path: str | None, answer: ReviewAnswer) -> ReviewAnswer:
    """The answer about one file, which is named once for all of its findings."""
    if path is None:
        return answer
    return replace(answer, findings=tuple(replace(found, file=found.file or path) for found in answer.findings))


def _problem(
    value: Mapping[str, Any], fields: Fields, answer: ReviewAnswer, verdict_problem: str | None, *, has_items: bool
) -> str | None:
    flaw = flaw_of(value) or next((flaw for name in _LIST_NAMES if (flaw := flaw_of(fields.get(name)))), "")
    if flaw:
        return invalid_json(flaw)
    if verdict_problem:
        return verdict_problem
    if not has_items:
        return missing_field(_list_name(fields))
    if problem := answer.problem or _failure(fields):
        return problem
    if not answer.findings and answer.verdict not in (None, "PASS"):
        return f"verdict {answer.verdict} without findings"
    return None


def _failure(fields: Fields) -> str | None:
    """What an answer tells of itself that makes it no whole review, or None."""
    if fields.get("readable") is False:
        return "invalid answer: it is no review"
    if failed := fields.get("parse_errors"):
        return f"parse errors: {shown(failed[0] if isinstance(failed, list) else failed)}"
    if (failed := fields.get("error") or fields.get("errors")) or fields.get("complete") is False:
        return failed_run((failed[0] if isinstance(failed, list) else failed) or "it is not complete")
    return None


def _items(fields: Fields) -> list[Any] | None:
    """All items of the answer, or None where it has no list of them."""
    lists = [items for name in _LIST_NAMES if (items := _listed(fields.get(name))) is not None]
    return [item for items in lists for item in items] if lists else None


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping) and looks_like_item(value):
        return [value]
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
