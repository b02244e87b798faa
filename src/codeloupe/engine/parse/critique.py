"""What a critic says of a result, out of whatever the model says: verdict, score, blockers, fixes, confidence.

Nothing is invented: an answer without a verdict or a score, one that is cut off, and one that contradicts itself is a
problem. A PASS beside blockers counts as REWORK, since it is computed and not believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.alarm import is_alarming, is_doubtful, is_unfinished
from codeloupe.engine.parse.critique_fields import Claim, claim_of, contradiction, truncated
from codeloupe.engine.parse.envelopes import Walk, failure_in, final_results
from codeloupe.engine.parse.flaws import flaw_of
from codeloupe.engine.parse.json_values import JsonValue, scan_json, text_outside
from codeloupe.engine.parse.quoted_text import text_in_text
from codeloupe.engine.parse.reasoning import behind_reasoning
from codeloupe.engine.parse.reasons import (
    EMPTY_OUTPUT,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    invalid_json,
    invalid_verdict,
    missing_field,
    shown,
)
from codeloupe.engine.parse.statements import sign_around
from codeloupe.model.pipeline import CriticVerdict

_MAX_NESTED_TEXTS = 3
_MAX_LABELLED_CHARACTERS = 200_000
_DECORATION = "#>*_`~- \t\r\n\ufeff"
# `**Verdict:** PASS`, `## Blockers:` and the like, at the beginning of a line.
_LABEL = re.compile(
    r"^[#>*_ \t-]{0,12}(verdict|score|summary|blockers|fixes|confidence)[*_ \t]{0,6}[:=][*_ \t]{0,6}(.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s{0,20}(?:[-*+•]|\d{1,3}[.)])\s{1,4}")
_LISTS = ("blockers", "fixes")


class CritiqueAnswer(Struct, frozen=True, kw_only=True):
    """What a critic said. With a `problem` set, nothing was: then there is no verdict and no score.

    The reasons have the names that those of reviews have: `missing field: X`, `invalid verdict: X`, `invalid score: X`,
    `invalid json: …`, `empty output`, `the run failed: …`.
    """

    verdict: CriticVerdict | None = None
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    problem: str | None = None


def read_critique(output: str, structured: Any = None) -> CritiqueAnswer:
    """What was said. Takes linear time and never raises. A structured value counts first, if it says something."""
    if structured is None:
        return _read_text(output)
    claims = list(_claims_in_text(structured)) if isinstance(structured, str) else list(_claims_in(structured))
    first = _judged(claims, missing_field("verdict"))
    if first.problem is None:
        return first
    second = _read_text(output)
    return second if second.problem is None else first


def _read_text(text: str) -> CritiqueAnswer:
    said = behind_reasoning(text)
    return CritiqueAnswer(problem=ONLY_REASONING) if said is None else _read_said(said)


def _read_said(text: str) -> CritiqueAnswer:
    if not text.strip(_DECORATION):
        return CritiqueAnswer(problem=EMPTY_OUTPUT)
    inner = text_in_text(text)
    if inner is not None and flaw_of(inner):
        return CritiqueAnswer(problem=TRUNCATED_JSON)
    return _read_scan(text if inner is None else inner)


def _read_scan(text: str) -> CritiqueAnswer:
    scan = scan_json(text)
    if scan.stopped:
        return CritiqueAnswer(problem=invalid_json(scan.stopped))
    claims = list(_claims_in_values(scan.values))
    if not claims and (labelled := _labelled(text)) is not None:
        claims = [labelled]
    if '"' in scan.dangling or any(found.truncated for found in scan.values):
        return CritiqueAnswer(problem=TRUNCATED_JSON)
    has_objects = any(isinstance(found.value, dict) for found in scan.values)
    judged = _judged(claims, missing_field("verdict") if has_objects else NO_JSON)
    around = text_outside(text, scan.values) if scan.values else ""
    if judged.verdict is CriticVerdict.PASS and (is_alarming(around) or is_unfinished(around) or is_doubtful(around)):
        return CritiqueAnswer(problem=f"{invalid_verdict('PASS')}, and yet: {shown(around.strip())}")
    return judged


def _judged(claims: Sequence[Claim], nothing: str) -> CritiqueAnswer:
    """The one answer that all claims give together; the words are those of the last."""
    if grave := next((claim.problem for claim in claims if claim.is_grave), ""):
        return CritiqueAnswer(problem=grave)
    sound = [claim for claim in claims if not claim.problem]
    if not sound:
        return CritiqueAnswer(problem=next((claim.problem for claim in claims), nothing))
    for name in ("verdict", "score"):
        stated = list(dict.fromkeys(getattr(claim, name) for claim in sound))
        if len(stated) > 1:
            return CritiqueAnswer(problem=contradiction(name, stated))
    last = sound[-1]
    # A blocker that any of them names is one.
    blockers = tuple(dict.fromkeys(text for claim in sound for text in claim.blockers))
    passes = last.verdict is CriticVerdict.PASS
    return CritiqueAnswer(
        verdict=CriticVerdict.REWORK if passes and blockers else last.verdict,
        score=last.score,
        summary=last.summary,
        blockers=blockers,
        fixes=last.fixes,
        confidence=last.confidence,
    )


def _claims_in_text(text: str, nested: int = _MAX_NESTED_TEXTS) -> Iterator[Claim]:
    scan = scan_json(text)
    if scan.stopped:
        yield Claim(problem=invalid_json(scan.stopped), is_grave=True)
    yield from _claims_in_values(scan.values, nested)


def _claims_in_values(values: Sequence[JsonValue], nested: int = _MAX_NESTED_TEXTS) -> Iterator[Claim]:
    for value in final_results([found.value for found in values]):
        yield from _claims_in(value, nested)


def _claims_in(value: Any, nested: int = _MAX_NESTED_TEXTS) -> Iterator[Claim]:
    walk = Walk(value)
    for part in walk:
        if isinstance(part, str):
            yield from _claims_in_nested_text(part, nested)
        elif failure := failure_in(part):
            yield Claim(problem=failure, is_grave=True)
            walk.take()
        elif isinstance(part, Mapping) and (claim := claim_of(part)):
            yield claim
            # What stands in its blockers and fixes are parts of it, not answers of their own.
            walk.take()
        elif sign := sign_around(part):
            yield Claim(problem=sign, is_grave=True)
    if walk.left_out:
        yield Claim(problem=invalid_json(walk.left_out), is_grave=True)


def _claims_in_nested_text(text: str, nested: int) -> Iterator[Claim]:
    if not nested:
        return
    claims = list(_claims_in_text(text, nested - 1))
    if not claims and (labelled := _labelled(text)) is not None:
        claims = [labelled]
    if claims and flaw_of(text):
        yield truncated()
    yield from claims


def _labelled(text: str) -> Claim | None:
    """An answer in lines such as `Verdict: PASS` and `Blockers:` with a list below, or None when it is none."""
    found: dict[str, Any] = {}
    current, is_open = "", False
    for line in text[:_MAX_LABELLED_CHARACTERS].splitlines():
        if label := _LABEL.match(line[:1_000]):
            current = label[1].lower()
            if current in found:
                return Claim(problem=f"invalid {current}: it is given more than once", is_grave=True)
            is_open = not label[2].strip(_DECORATION)
            found[current] = [label[2]] if not is_open else []
        elif current and line.strip(_DECORATION):
            is_open = False
            found[current].append(_BULLET.sub("", line, count=1))
    if "verdict" not in found:
        return None
    if is_open or len(text) > _MAX_LABELLED_CHARACTERS:
        return truncated()
    joined = {name: lines if name in _LISTS else "\n".join(lines[:1]) for name, lines in found.items()}
    if "summary" in found:
        joined["summary"] = "\n".join(found["summary"])
    return claim_of(joined)
