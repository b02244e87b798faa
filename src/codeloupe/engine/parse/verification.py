"""What an attempt to refute a finding showed, out of whatever the model says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.alarm import is_unfinished, upholds
from codeloupe.engine.parse.envelopes import Walk, failure_in, final_results
from codeloupe.engine.parse.fields import Fields, plain_name
from codeloupe.engine.parse.flaws import flaw_of
from codeloupe.engine.parse.json_values import JsonValue, scan_json, text_outside
from codeloupe.engine.parse.patterns import late
from codeloupe.engine.parse.quoted_text import text_in_text
from codeloupe.engine.parse.reasoning import behind_reasoning
from codeloupe.engine.parse.reasons import (
    EMPTY_OUTPUT,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    invalid_json,
    missing_field,
    shown,
)
from codeloupe.engine.parse.statements import sign_around, sign_of_failure
from codeloupe.model.finding import Proof, Verification

_MAX_NESTED_TEXTS = 3
_MAX_REASON_CHARACTERS = 10_000
_PROOF_NAMES = ("proof", "verdict", "verification", "conclusion", "decision", "status", "outcome")
_REASON_NAMES = ("reason", "reasoning", "explanation", "justification", "rationale", "why", "summary")
_WORDS = {
    "refuted": Proof.REFUTED,
    "false positive": Proof.REFUTED,
    "confirmed": Proof.CONFIRMED,
    "true positive": Proof.CONFIRMED,
    "proven": Proof.CONFIRMED,
    "unproven": Proof.UNPROVEN,
    "not proven": Proof.UNPROVEN,
    "unconfirmed": Proof.UNPROVEN,
    "inconclusive": Proof.UNPROVEN,
    "uncertain": Proof.UNPROVEN,
    "unclear": Proof.UNPROVEN,
    "unknown": Proof.UNPROVEN,
}
# What a flag says when it is on. When it is off, it says nothing: what is not refuted is not confirmed by that.
_FLAGS = {
    "refuted": Proof.REFUTED,
    "is_refuted": Proof.REFUTED,
    "false_positive": Proof.REFUTED,
    "is_false_positive": Proof.REFUTED,
    "confirmed": Proof.CONFIRMED,
    "is_confirmed": Proof.CONFIRMED,
}
# Flags that say, when they are on, that the defect is there; and states that say nothing of it.
_REAL = frozenset({"real", "valid", "exploitable", "vulnerable", "genuine", "reproducible", "reproduced"})
_ENDED = frozenset(
    {"completed", "complete", "done", "ok", "success", "finished", "final", "pass", "passed", "verified"}
)
_SPOKEN = late(
    r"(?:(?:proof|verdict|conclusion|result)[ *_`]{0,6}[:=][ *_`]{0,6})?(refuted|confirmed|unproven)[*_`.!]{0,6}"
    r"(?:[ ]{0,2}[:–—-] (.*))?",
    re.IGNORECASE,
)
_DECORATION = "#>*_`~- \t\r\n\ufeff"


class _Claim(Struct, frozen=True):
    """What one object says: a proof, or why it is none. A grave problem stands, whatever others say."""

    proof: Proof | None
    reason: str = ""
    problem: str = ""
    is_grave: bool = False


def read_verification(output: str, structured: Any = None) -> Verification:
    """What was shown. With a problem set, nothing was: `proof` is UNPROVEN then. Never raises.

    A finding is never refuted on doubtful grounds: an answer that is cut off, or contradicts itself, is a problem.
    """
    if structured is not None:
        claims = list(_claims_in_text(structured)) if isinstance(structured, str) else list(_claims_in(structured))
        first = _judged(claims, missing_field("proof"))
        if first.problem is None:
            return first
        second = _read_text(output)
        return second if second.problem is None else first
    return _read_text(output)


def _read_text(text: str) -> Verification:
    said = behind_reasoning(text)
    return _problem(ONLY_REASONING) if said is None else _read_said(said)


def _read_said(text: str) -> Verification:
    if not text.strip(_DECORATION):
        return _problem(EMPTY_OUTPUT)
    if (inner := text_in_text(text)) is not None:
        return _problem(TRUNCATED_JSON) if flaw_of(inner) else _read_scan(inner)
    return _read_scan(text)


def _read_scan(text: str) -> Verification:
    scan = scan_json(text)
    if scan.stopped:
        return _problem(invalid_json(scan.stopped))
    claims = list(_claims_in_values(scan.values))
    if not claims and (spoken := _spoken(text.strip(_DECORATION))):
        return _unless_upheld(spoken, spoken.reason)
    is_cut = '"' in scan.dangling or any(found.truncated for found in scan.values)
    if is_cut:
        return _problem(TRUNCATED_JSON)
    has_objects = any(isinstance(found.value, dict) for found in scan.values)
    judged = _judged(claims, missing_field("proof") if has_objects else NO_JSON)
    return _unless_upheld(judged, text_outside(text, scan.values))


def _spoken(text: str) -> Verification | None:
    line, _, rest = text.partition("\n")
    match = _SPOKEN.fullmatch(line[:_MAX_REASON_CHARACTERS].strip(_DECORATION))
    if match is None:
        return None
    reason = f"{match[2] or ''}\n{rest}".strip()
    return Verification(proof=Proof(match[1].lower()), reason=reason[:_MAX_REASON_CHARACTERS])


def _problem(reason: str) -> Verification:
    return Verification(proof=Proof.UNPROVEN, problem=reason)


def _judged(claims: Sequence[_Claim], nothing: str) -> Verification:
    proven = [claim for claim in claims if claim.proof is not None]
    proofs = list(dict.fromkeys(claim.proof for claim in proven))
    if grave := next((claim.problem for claim in claims if claim.is_grave or (claim.proof and claim.problem)), ""):
        return _problem(grave)
    if len(proofs) > 1:
        return _problem(f"invalid proof: {' and '.join(str(proof) for proof in proofs)}")
    if not proven or proven[-1].proof is None:
        return _problem(next((claim.problem for claim in claims if claim.problem), nothing))
    return _unless_upheld(Verification(proof=proven[-1].proof, reason=proven[-1].reason), proven[-1].reason)


def _unless_upheld(verification: Verification, words: str) -> Verification:
    """The verification, unless it takes weight from a finding which the words beside it say to be there."""
    speaks_against = {Proof.REFUTED: upholds, Proof.UNPROVEN: is_unfinished}.get(verification.proof)
    if verification.problem is not None or speaks_against is None or not speaks_against(words):
        return verification
    return _problem(f"invalid proof: {verification.proof.value}, and yet: {shown(words.strip())}")


def _claims_in_text(text: str, nested: int = _MAX_NESTED_TEXTS) -> Iterator[_Claim]:
    scan = scan_json(text)
    if scan.stopped:
        yield _Claim(None, problem=invalid_json(scan.stopped), is_grave=True)
    yield from _claims_in_values(scan.values, nested)


def _claims_in_values(values: Sequence[JsonValue], nested: int = _MAX_NESTED_TEXTS) -> Iterator[_Claim]:
    for value in final_results([found.value for found in values]):
        yield from _claims_in(value, nested)


def _claims_in(value: Any, nested: int = _MAX_NESTED_TEXTS) -> Iterator[_Claim]:
    walk = Walk(value)
    for part in walk:
        if isinstance(part, str):
            yield from _claims_in_nested_text(part, nested)
        elif failure := failure_in(part):
            yield _Claim(None, problem=failure, is_grave=True)
            walk.take()
        elif isinstance(part, Mapping) and (claim := _claim(part)):
            yield claim
        elif sign := sign_around(part):
            yield _Claim(None, problem=sign, is_grave=True)


def _claims_in_nested_text(text: str, nested: int) -> Iterator[_Claim]:
    if not nested:
        return
    claims = list(_claims_in_text(text, nested - 1))
    if not claims and (spoken := _spoken(text.strip(_DECORATION))):
        claims = [_Claim(spoken.proof, spoken.reason)]
    for claim in claims:
        yield _Claim(claim.proof, claim.reason, TRUNCATED_JSON) if flaw_of(text) else claim


def _claim(value: Mapping[str, Any]) -> _Claim | None:
    """What an object says of a proof, or None when it says nothing of one."""
    fields = Fields(value)
    reason = fields.text(*_REASON_NAMES, most=_MAX_REASON_CHARACTERS).strip()
    stated = [word for name in _PROOF_NAMES if isinstance(word := fields.get(name), str)]
    flags = [name for name in _FLAGS if isinstance(fields.get(name), bool)]
    proofs = {proof for word in stated if (proof := _WORDS.get(_plain(word)))}
    proofs |= {_FLAGS[name] for name in flags if fields.get(name)}
    proofs |= {
        Proof.CONFIRMED for name, flag in value.items() if flag is True and _REAL & set(plain_name(name).split("_"))
    }
    if not proofs and flags and not stated:
        proofs = {Proof.UNPROVEN}
    problem = invalid_json(flaw) if (flaw := flaw_of(value)) else ""
    denied = any(_FLAGS[name] in proofs for name in flags if not fields.get(name))
    strange = [word for word in stated if _plain(word) not in _WORDS and _plain(word) not in _ENDED]
    if len(proofs) > 1 or denied:
        problem = f"invalid proof: {' and '.join(sorted(proofs))}{', and it is not' if denied else ''}"
    elif proofs and (told := strange[0] if strange else sign_of_failure(value, is_clean=False)):
        problem = f"invalid proof: {next(iter(proofs))}, and yet: {shown(told)}"
    if proofs:
        return _Claim(min(proofs), reason, problem)
    return _Claim(None, problem=f"invalid proof: {shown(stated[0])}") if stated else None


def _plain(word: str) -> str:
    return " ".join(word[:100].lower().replace("_", " ").replace("-", " ").split()).strip(".!*`")
