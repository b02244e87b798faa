"""Answers that are one object: a critique, and what an attempt to refute a finding showed. Nothing is invented."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.parse.items import (
    EMPTY_OUTPUT,
    MAX_TEXT_CHARACTERS,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    Fields,
    plain_name,
    share,
    shown,
)
from codeloupe.engine.parse.sentences import is_alarming, is_doubtful, is_unfinished, says_clean, upholds
from codeloupe.engine.parse.statements import (
    MAX_NESTED_TEXTS,
    contradiction,
    failure_in,
    final_results,
    names_defects,
    says_nothing,
    sign_around,
    sign_of_failure,
    walk,
)
from codeloupe.model.finding import Proof, Verification
from codeloupe.model.pipeline import CriticVerdict
from codeloupe.system.json_text import JsonScan, after_reasoning, flaw_of, scan_json, text_in_text, words
from codeloupe.system.regex import regex

_EDGES = "#>*_`~\"'.!- \t\r\n\ufeff"


class _Unclear(ValueError):
    """An object cannot be understood, for a named reason; one that `lasts` counts, whatever other objects say."""

    def __init__(self, problem: str, *, lasts: bool = False) -> None:
        super().__init__(problem)
        self.lasts = lasts


# What an object says, or None when it says nothing of the kind. Raises _Unclear.
_InObject = Callable[[Mapping[str, Any]], Any]
_Claims = list[Any]


def _claims(output: str, structured: Any, field: str, in_object: _InObject) -> tuple[_Claims, str]:
    """What all objects of an answer say, a structured value first, and the words around them. Raises _Unclear."""
    try:
        if structured is not None:
            in_it = _in_text if isinstance(structured, str) else _in_value
            return _certain(in_it(structured, MAX_NESTED_TEXTS, in_object), f"missing field: {field}"), ""
    except _Unclear as unclear:
        try:
            return _in_output(output, field, in_object)
        except _Unclear:
            raise unclear from None
    return _in_output(output, field, in_object)


def _in_output(output: str, field: str, in_object: _InObject) -> tuple[_Claims, str]:
    said = after_reasoning(output)
    if said is None or not said.strip(_EDGES):
        raise _Unclear(ONLY_REASONING if said is None else EMPTY_OUTPUT)
    inner = text_in_text(said)
    scan = scan_json(said if inner is None else inner)
    found = _in_scan(scan, MAX_NESTED_TEXTS, in_object)
    is_cut = flaw_of(inner) or '"' in scan.dangling or any(value.truncated for value in scan.values)
    if is_cut and not scan.stopped:
        raise _Unclear(TRUNCATED_JSON)
    has_objects = any(isinstance(value.value, dict) for value in scan.values)
    return _certain(found, f"missing field: {field}" if has_objects else NO_JSON), scan.outside


def _certain(found: _Claims, nothing: str) -> _Claims:
    """The claims that are no problems. Raises _Unclear for a lasting problem, and where there is nothing else."""
    problems = [claim for claim in found if isinstance(claim, _Unclear)]
    said = [claim for claim in found if not isinstance(claim, _Unclear)]
    if lasting := next((problem for problem in problems if problem.lasts), None if said else _Unclear(nothing)):
        raise lasting if lasting.lasts or not problems else problems[0]
    return said


def _in_text(text: str, nested: int, in_object: _InObject) -> _Claims:
    return _in_scan(scan_json(text), nested, in_object)


def _in_scan(scan: JsonScan, nested: int, in_object: _InObject) -> _Claims:
    stopped = [_Unclear(f"invalid json: {scan.stopped}", lasts=True)] if scan.stopped else []
    values = final_results([found.value for found in scan.values])
    return [*stopped, *(claim for value in values for claim in _in_value(value, nested, in_object))]


def _in_value(value: Any, nested: int, in_object: _InObject) -> _Claims:
    found: _Claims = []

    def understood(part: Any) -> bool:
        if isinstance(part, str):
            claims = _in_text(part, nested - 1, in_object) if nested else []
            is_cut = claims and flaw_of(part)
            found.extend([_Unclear(TRUNCATED_JSON, lasts=True)] if is_cut else claims)
            return False
        if problem := failure_in(part):
            found.append(_Unclear(problem, lasts=True))
            return True
        try:
            claim = in_object(part) if isinstance(part, Mapping) else None
        except _Unclear as unclear:
            claim = unclear
        if claim is not None:
            found.append(claim)
            # The parts of a critique are no answers of their own.
            return not isinstance(claim, Verification)
        if sign := sign_around(part):
            found.append(_Unclear(sign, lasts=True))
        return False

    if left_out := walk(value, understood):
        found.append(_Unclear(f"invalid json: {left_out}", lasts=True))
    return found


def _plain(word: str) -> str:
    return " ".join(word[:100].strip(_EDGES).lower().replace("_", " ").replace("-", " ").split())


_PROOFS = {
    **dict.fromkeys(("refuted", "false positive"), Proof.REFUTED),
    **dict.fromkeys(("confirmed", "true positive", "proven"), Proof.CONFIRMED),
    **dict.fromkeys(("unproven", "not proven", "unconfirmed", "inconclusive", "uncertain", "unclear"), Proof.UNPROVEN),
}
# Other names for the outcome, and states of a call that say nothing of it.
_PROOF_NAMES = words("verdict verification conclusion decision status outcome")
_ENDED = words("completed complete done ok success finished final pass passed verified")
_REASON_NAMES = words("reason reasoning explanation justification rationale why summary")


def read_verification(output: str, structured: Any = None) -> Verification:
    """What was shown; with a problem set, nothing: no finding is refuted on doubtful grounds. Never raises."""
    try:
        return _verification(*_claims(output, structured, "proof", _verification_in))
    except _Unclear as unclear:
        return Verification(proof=Proof.UNPROVEN, problem=str(unclear))


def _verification(said: Sequence[Verification], around: str) -> Verification:
    last = said[-1]
    _only("proof", [each.proof for each in said])
    # Nothing takes weight from a finding which the words beside it say to be there.
    speaks_against = {Proof.REFUTED: upholds, Proof.UNPROVEN: is_unfinished}.get(last.proof)
    if against := next((text for text in (last.reason, around) if speaks_against and speaks_against(text)), None):
        raise _Unclear(f"invalid proof: {last.proof.value}, and yet: {shown(against.strip())}")
    return last


def _verification_in(value: Mapping[str, Any]) -> Verification | None:
    fields = Fields(value)
    stated = fields.get("proof")
    if stated is None:
        return None
    proof = _PROOFS.get(_plain(stated)) if isinstance(stated, str) else None
    if proof is None:
        raise _Unclear(f"invalid proof: {shown(stated)}")
    if flaw := flaw_of(value):
        raise _Unclear(f"invalid json: {flaw}", lasts=True)
    # A flag, or another word for the outcome, may say that the defect is there after all.
    others = {plain_name(name): part for name, part in value.items() if plain_name(name) != "proof"}
    flags = [f"{name} is {shown(part)}" for name, part in others.items() if isinstance(part, bool)]
    words_for_it = [part for name, part in others.items() if name in _PROOF_NAMES and isinstance(part, str)]
    strange = [
        shown(word) for word in words_for_it if _plain(word) not in _ENDED and _PROOFS.get(_plain(word)) != proof
    ]
    against = next(iter((*flags, *strange)), None) or sign_of_failure(value, is_clean=False)
    if proof is not Proof.CONFIRMED and against:
        raise _Unclear(f"invalid proof: {proof.value}, and yet: {against}", lasts=True)
    return Verification(proof=proof, reason=fields.text(*_REASON_NAMES, most=MAX_TEXT_CHARACTERS).strip())


def _strange(value: Mapping[str, Any], known: Iterable[str]) -> str:
    """What speaks against an answer beside the fields that it has to have, or nothing."""
    names = [plain_name(name) for name in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice} is given more than once"
    others = {name: part for name, part in value.items() if plain_name(name) not in known}
    for name, part in others.items():
        has_words = isinstance(part, str) and not says_nothing(part) and " " in part
        if part and names_defects(name) and (has_words or isinstance(part, list | Mapping)):
            return f"there is something under {shown(name)}"
    return sign_of_failure(others, is_clean=True) or contradiction(others) or ""


_CRITIQUE_NAMES = words("verdict score blockers fixes summary reason explanation confidence readable")
_ITEM_NAMES = words("description text title issue message problem blocker fix action body detail")
_VERDICTS = {
    **dict.fromkeys(words("pass passed approve approved accept accepted"), CriticVerdict.PASS),
    **dict.fromkeys(("rework", "needs rework", "needs work", "revise"), CriticVerdict.REWORK),
    **dict.fromkeys(("changes requested", "request changes"), CriticVerdict.REWORK),
    **dict.fromkeys(words("fail failed reject rejected"), CriticVerdict.FAIL),
}
_NOTHING = {"", "none", "n/a", "na", "nothing", "null", "no blockers", "no fixes", "no fixes needed"}
_SCORE = regex(r"(?i)\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%|/\s*100|out of 100)?\s*")
_MAX_ITEMS = 100
_MAX_ITEM_CHARACTERS = 2_000


class CritiqueAnswer(Struct, frozen=True, kw_only=True):
    """What a critic said. With a `problem` set, nothing was: then there is no verdict and no score."""

    verdict: CriticVerdict | None = None
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    problem: str | None = None


def read_critique(output: str, structured: Any = None) -> CritiqueAnswer:
    """What was said, in the words of the last answer; a PASS beside blockers counts as REWORK. Never raises."""
    try:
        return _critique(*_claims(output, structured, "verdict", _critique_in))
    except _Unclear as unclear:
        return CritiqueAnswer(problem=str(unclear))


def _critique(said: Sequence[CritiqueAnswer], around: str) -> CritiqueAnswer:
    verdict = _only("verdict", [each.verdict for each in said])
    _only("score", [each.score for each in said])
    # A blocker that any of them names is one.
    blockers = tuple(dict.fromkeys(text for each in said for text in each.blockers))
    if verdict is CriticVerdict.PASS and blockers:
        verdict = CriticVerdict.REWORK
    if verdict is CriticVerdict.PASS and (is_alarming(around) or is_unfinished(around) or is_doubtful(around)):
        raise _Unclear(f"invalid verdict: PASS, and yet: {shown(around.strip())}")
    return replace(said[-1], verdict=verdict, blockers=blockers)


def _critique_in(value: Mapping[str, Any]) -> CritiqueAnswer | None:
    fields = Fields(value)
    if "verdict" not in fields and not ("score" in fields and fields.has_any(("blockers", "fixes"))):
        return None
    # A field or an item that was cut may lack the words that matter.
    items = (item for part in value.values() for item in (part, *(part if isinstance(part, list) else ())))
    if flaw := flaw_of(value) or next((flaw for item in items if (flaw := flaw_of(item))), ""):
        raise _Unclear(f"invalid json: {flaw}", lasts=True)
    said = CritiqueAnswer(
        verdict=_verdict(fields.get("verdict")),
        score=_score(fields.get("score")),
        summary=fields.text("summary", "reason", "explanation", most=MAX_TEXT_CHARACTERS).strip(),
        blockers=_items(fields, "blockers"),
        fixes=_items(fields, "fixes"),
        confidence=share(fields.get("confidence")),
    )
    is_bad = is_alarming(said.summary) or is_unfinished(said.summary)
    against = shown(said.summary) if is_bad else _strange(value, _CRITIQUE_NAMES)
    if said.verdict is CriticVerdict.PASS and against:
        raise _Unclear(f"invalid verdict: PASS, and yet: {against}")
    return said


def _only(name: str, values: Sequence[Any]) -> Any:
    """The one value that a field was given."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise _Unclear(f"invalid {name}: {' and '.join(shown(value) for value in different)}")
    return different[0]


def _verdict(word: Any) -> CriticVerdict:
    verdict = _VERDICTS.get(_plain(word)) if isinstance(word, str) else None
    if verdict is None:
        raise _Unclear("missing field: verdict" if word is None else f"invalid verdict: {shown(word)}")
    return verdict


def _score(value: Any) -> int:
    """A score from 0 to 100. One between 0 and 1 may be meant as a share, or as next to nothing: nobody knows."""
    number = value
    if isinstance(value, str):
        match = _SCORE.fullmatch(value[:100].strip(_EDGES))
        number = float(match[1]) if match else None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= 100 or 0 < number < 1:
        raise _Unclear("missing field: score" if value is None else f"invalid score: {shown(value)}")
    return int(number)


def _items(fields: Fields, name: str) -> tuple[str, ...]:
    value, texts = fields.get(name), list[str]()
    for item in value if isinstance(value, list) else (() if value is None else (value,)):
        text = Fields(item).text(*_ITEM_NAMES, most=_MAX_ITEM_CHARACTERS) if isinstance(item, Mapping) else item
        if not isinstance(text, str) or (isinstance(item, Mapping) and not text):
            raise _Unclear(f"invalid {name}: {shown(item)}")
        if _plain(text) not in _NOTHING and not says_clean(text):
            texts.append(text[:_MAX_ITEM_CHARACTERS].strip())
    kept = tuple(dict.fromkeys(texts[:_MAX_ITEMS]))
    return kept if len(texts) <= _MAX_ITEMS else (*kept, f"and {len(texts) - _MAX_ITEMS:,} more")
