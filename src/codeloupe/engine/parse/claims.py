"""Answers that are one object: a critique, and what an attempt to refute a finding showed. Nothing is invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.parse import items, sentences, statements
from codeloupe.engine.parse.items import MAX_TEXT_CHARACTERS, TRUNCATED_JSON, Fields, plain_name, shown
from codeloupe.engine.parse.sentences import NAMES, WORDING, WORDS
from codeloupe.engine.parse.statements import MAX_NESTED_TEXTS, sign_of_failure
from codeloupe.model.finding import Proof, Verification
from codeloupe.model.pipeline import CriticVerdict, Critique, GateKind
from codeloupe.system import json_text
from codeloupe.system.json_text import JsonScan, flaw_of
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
    if structured is None:
        return _in_output(output, field, in_object)
    try:
        found = _in_value(structured, MAX_NESTED_TEXTS + isinstance(structured, str), in_object)
        return _certain(found, f"missing field: {field}"), ""
    except _Unclear:
        with suppress(_Unclear):
            return _in_output(output, field, in_object)
        raise


def _in_output(output: str, field: str, in_object: _InObject) -> tuple[_Claims, str]:
    said = json_text.after_reasoning(output)
    if said is None or not said.strip(_EDGES):
        raise _Unclear(items.ONLY_REASONING if said is None else items.EMPTY_OUTPUT)
    inner = json_text.text_in_text(said)
    scan = json_text.scan_json(said if inner is None else inner)
    found = _in_scan(scan, MAX_NESTED_TEXTS, in_object)
    is_cut = flaw_of(inner) or '"' in scan.dangling or any(value.truncated for value in scan.values)
    if is_cut and not scan.stopped:
        raise _Unclear(TRUNCATED_JSON)
    has_objects = any(isinstance(value.value, dict) for value in scan.values)
    return _certain(found, f"missing field: {field}" if has_objects else items.NO_JSON), scan.outside


def _certain(found: _Claims, nothing: str) -> _Claims:
    """The claims that are no problems. Raises _Unclear for a lasting problem, and where there is nothing else."""
    problems = [claim for claim in found if isinstance(claim, _Unclear)]
    said = [claim for claim in found if not isinstance(claim, _Unclear)]
    lasting = [problem for problem in problems if problem.lasts]
    if lasting or not said:
        raise next(iter(lasting or problems), _Unclear(nothing))
    return said


def _in_scan(scan: JsonScan, nested: int, in_object: _InObject) -> _Claims:
    stopped = [_Unclear(f"invalid json: {scan.stopped}", lasts=True)] if scan.stopped else []
    values = statements.final_results([found.value for found in scan.values])
    return [*stopped, *(claim for value in values for claim in _in_value(value, nested, in_object))]


def _in_value(value: Any, nested: int, in_object: _InObject) -> _Claims:
    found: _Claims = []

    def understood(part: Any) -> bool:
        if isinstance(part, str):
            claims = _in_scan(json_text.scan_json(part), nested - 1, in_object) if nested else []
            is_cut = claims and flaw_of(part)
            found.extend([_Unclear(TRUNCATED_JSON, lasts=True)] if is_cut else claims)
            return False
        if problem := statements.failure_in(part):
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
        if sign := statements.sign_around(part):
            found.append(_Unclear(sign, lasts=True))
        return False

    if left_out := statements.walk(value, understood):
        found.append(_Unclear(f"invalid json: {left_out}", lasts=True))
    return found


def _plain(word: str) -> str:
    return " ".join(word[:100].strip(_EDGES).lower().replace("_", " ").replace("-", " ").split())


_PROOFS = {word: Proof(name) for name, known in WORDING["proofs"].items() for word in known}
_VERDICTS = {word: CriticVerdict(name) for name, known in WORDING["critic_verdicts"].items() for word in known}


def read_verification(output: str, structured: Any = None) -> Verification:
    """What was shown; with a problem set, nothing: no finding is refuted on doubtful grounds. Never raises."""
    try:
        said, around = _claims(output, structured, "proof", _verification_in)
        _only("proof", [each.proof for each in said])
    except _Unclear as unclear:
        return Verification(proof=Proof.UNPROVEN, problem=str(unclear))
    last: Verification = said[-1]
    # Nothing takes weight from a finding which the words beside it say to be there.
    speaks_against = {Proof.REFUTED: sentences.upholds, Proof.UNPROVEN: sentences.is_unfinished}.get(last.proof)
    if against := next((text for text in (last.reason, around) if speaks_against and speaks_against(text)), None):
        problem = f"invalid proof: {last.proof.value}, and yet: {shown(against.strip())}"
        return Verification(proof=Proof.UNPROVEN, problem=problem)
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
    said = [part for name, part in others.items() if name in WORDS["proof_names"] and isinstance(part, str)]
    said = [word for word in said if _plain(word) not in WORDS["ended"] and _PROOFS.get(_plain(word)) != proof]
    against = next(iter((*flags, *map(shown, said))), None) or sign_of_failure(value, is_clean=False)
    if proof is not Proof.CONFIRMED and against:
        raise _Unclear(f"invalid proof: {proof.value}, and yet: {against}", lasts=True)
    return Verification(proof=proof, reason=fields.text(*NAMES["reason"], most=MAX_TEXT_CHARACTERS).strip())


def _strange(value: Mapping[str, Any]) -> str:
    """What speaks against an answer beside the fields that it has to have, or nothing."""
    names = [plain_name(name) for name in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice} is given more than once"
    others = {name: part for name, part in value.items() if plain_name(name) not in WORDS["critique"]}
    for name, part in others.items():
        has_words = isinstance(part, str) and not statements.says_nothing(part) and " " in part
        if part and statements.names_defects(name) and (has_words or isinstance(part, list | Mapping)):
            return f"there is something under {shown(name)}"
    return sign_of_failure(others, is_clean=True) or statements.contradiction(others) or ""


_NOTHING = {"", "none", "n/a", "na", "nothing", "null", "no blockers", "no fixes", "no fixes needed"}
_SCORE = regex(r"(?i)\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%|/\s*100|out of 100)?\s*")
_MAX_ITEMS = 100
_MAX_ITEM_CHARACTERS = 2_000


def read_critique(output: str, structured: Any = None) -> Critique | str:
    """What was said, in the words of the last answer, or why nothing was; a PASS beside blockers counts as REWORK."""
    try:
        said, around = _claims(output, structured, "verdict", _critique_in)
        verdict = _only("verdict", [each.verdict for each in said])
        _only("score", [each.score for each in said])
    except _Unclear as unclear:
        return str(unclear)
    # A blocker that any of them names is one.
    blockers = tuple(dict.fromkeys(text for each in said for text in each.blockers))
    if verdict is CriticVerdict.PASS and blockers:
        verdict = CriticVerdict.REWORK
    if verdict is CriticVerdict.PASS and (
        sentences.is_alarming(around) or sentences.is_unfinished(around) or sentences.is_doubtful(around)
    ):
        return f"invalid verdict: PASS, and yet: {shown(around.strip())}"
    last: Critique = said[-1]
    return replace(last, verdict=verdict, blockers=blockers)


def _critique_in(value: Mapping[str, Any]) -> Critique | None:
    fields = Fields(value)
    if "verdict" not in fields and not ("score" in fields and fields.has_any(("blockers", "fixes"))):
        return None
    # A field or an item that was cut may lack the words that matter.
    parts = (item for part in value.values() for item in (part, *(part if isinstance(part, list) else ())))
    if flaw := flaw_of(value, *parts):
        raise _Unclear(f"invalid json: {flaw}", lasts=True)
    word = fields.get("verdict")
    verdict = _VERDICTS.get(_plain(word)) if isinstance(word, str) else None
    if verdict is None:
        raise _Unclear("missing field: verdict" if word is None else f"invalid verdict: {shown(word)}")
    said = Critique(
        gate=GateKind.CRITIC,
        verdict=verdict,
        score=_score(fields.get("score")),
        summary=fields.text("summary", "reason", "explanation", most=MAX_TEXT_CHARACTERS).strip(),
        blockers=_texts(fields, "blockers"),
        fixes=_texts(fields, "fixes"),
        confidence=items.share(fields.get("confidence")),
    )
    is_bad = sentences.is_alarming(said.summary) or sentences.is_unfinished(said.summary)
    against = shown(said.summary) if is_bad else _strange(value)
    if said.verdict is CriticVerdict.PASS and against:
        raise _Unclear(f"invalid verdict: PASS, and yet: {against}")
    return said


def _only(name: str, values: Sequence[Any]) -> Any:
    """The one value that a field was given."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise _Unclear(f"invalid {name}: {' and '.join(shown(value) for value in different)}")
    return different[0]


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


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    value, texts = fields.get(name), list[str]()
    for item in value if isinstance(value, list) else (() if value is None else (value,)):
        text = Fields(item).text(*NAMES["item"], most=_MAX_ITEM_CHARACTERS) if isinstance(item, Mapping) else item
        if not isinstance(text, str) or (isinstance(item, Mapping) and not text):
            raise _Unclear(f"invalid {name}: {shown(item)}")
        if _plain(text) not in _NOTHING and not sentences.says_clean(text):
            texts.append(text[:_MAX_ITEM_CHARACTERS].strip())
    kept = tuple(dict.fromkeys(texts[:_MAX_ITEMS]))
    return kept if len(texts) <= _MAX_ITEMS else (*kept, f"and {len(texts) - _MAX_ITEMS:,} more")
