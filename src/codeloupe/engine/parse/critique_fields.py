"""One object as the answer of a critic, whichever of the known spellings its fields have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.beside import names_defects, says_nothing
from codeloupe.engine.parse.clean_words import says_clean
from codeloupe.engine.parse.fields import Fields, plain_name, share
from codeloupe.engine.parse.flaws import flaw_of
from codeloupe.engine.parse.reasons import TRUNCATED_JSON, invalid_json, invalid_verdict, missing_field, shown
from codeloupe.engine.parse.statements import objection_in, sign_of_failure
from codeloupe.model.pipeline import CriticVerdict

VERDICT_NAMES = ("verdict", "decision", "judgement", "judgment", "overall_verdict")
SCORE_NAMES = ("score", "quality_score", "overall_score", "rating")
BLOCKER_NAMES = ("blockers", "blocking_issues", "blocking", "blocker")
FIX_NAMES = ("fixes", "prescriptive_fixes", "required_fixes", "fix", "suggestions", "recommendations")
SUMMARY_NAMES = ("summary", "reason", "reasoning", "explanation", "rationale", "feedback", "comment")
CONFIDENCE_NAMES = ("confidence", "confidence_score")
_KNOWN_NAMES = frozenset((*VERDICT_NAMES, *SCORE_NAMES, *BLOCKER_NAMES, *FIX_NAMES, *CONFIDENCE_NAMES, "readable"))
_ITEM_NAMES = (
    "description",
    "text",
    "title",
    "issue",
    "message",
    "problem",
    "blocker",
    "fix",
    "action",
    "body",
    "detail",
)
_WORDS = {
    "pass": CriticVerdict.PASS,
    "passed": CriticVerdict.PASS,
    "approve": CriticVerdict.PASS,
    "approved": CriticVerdict.PASS,
    "accept": CriticVerdict.PASS,
    "accepted": CriticVerdict.PASS,
    "rework": CriticVerdict.REWORK,
    "needs rework": CriticVerdict.REWORK,
    "needs work": CriticVerdict.REWORK,
    "revise": CriticVerdict.REWORK,
    "changes requested": CriticVerdict.REWORK,
    "request changes": CriticVerdict.REWORK,
    "fail": CriticVerdict.FAIL,
    "failed": CriticVerdict.FAIL,
    "reject": CriticVerdict.FAIL,
    "rejected": CriticVerdict.FAIL,
}
_NOTHING = frozenset({"", "none", "n/a", "na", "nothing", "null", "-", "no blockers", "no fixes", "no fixes needed"})
_SCORE = re.compile(r"\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%|/\s*100|out of 100)?\s*", re.IGNORECASE)
_DECORATION = " \t\r\n*_`~\"'.!"
_MAX_ITEMS = 100
_MAX_ITEM_CHARACTERS = 2_000
_MAX_SUMMARY_CHARACTERS = 10_000


class Claim(Struct, frozen=True, kw_only=True):
    """What one object says. With a `problem` it must not count; a grave one stands, whatever other objects say."""

    verdict: CriticVerdict | None = None
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    problem: str = ""
    is_grave: bool = False


class _Unclear(ValueError):
    """A field has a value that cannot be understood; the message is a named reason."""


def claim_of(value: Mapping[str, Any]) -> Claim | None:
    """What an object says as a critique, or None when it is none."""
    fields = Fields(value)
    has_lists = fields.has_any(BLOCKER_NAMES) or fields.has_any(FIX_NAMES)
    if not fields.has_any(VERDICT_NAMES) and not (fields.has_any(SCORE_NAMES) and has_lists):
        return None
    if flaw := flaw_of(value) or next((flaw for part in value.values() if (flaw := _flaw_within(part))), ""):
        return Claim(problem=invalid_json(flaw), is_grave=True)
    try:
        claim = Claim(
            verdict=_verdict(fields),
            score=_score(fields),
            summary=fields.text(*SUMMARY_NAMES, most=_MAX_SUMMARY_CHARACTERS).strip(),
            blockers=_items(fields, BLOCKER_NAMES),
            fixes=_items(fields, FIX_NAMES),
            confidence=share(fields.get(*CONFIDENCE_NAMES)),
        )
    except _Unclear as unclear:
        return Claim(problem=str(unclear))
    told = _against(value) if claim.verdict is CriticVerdict.PASS else None
    return Claim(problem=f"{invalid_verdict('PASS')}, and yet: {told}") if told else claim


def _against(value: Mapping[str, Any]) -> str | None:
    """What speaks against a PASS beside the fields of a critique, or None."""
    names = [plain_name(name) for name in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice} is given more than once"
    others = {name: part for name, part in value.items() if plain_name(name) not in _KNOWN_NAMES}
    unread = next((name for name, part in others.items() if part and names_defects(name) and _has_words(part)), None)
    if unread is not None:
        return f"there is something under {shown(unread)}"
    return sign_of_failure(others, is_clean=True) or objection_in(others)


def _has_words(part: Any) -> bool:
    return isinstance(part, list | Mapping) or (isinstance(part, str) and not says_nothing(part) and " " in part)


def _flaw_within(value: Any) -> str:
    """The flaw of a field or of an item in it: one that was cut may lack the words that matter."""
    items = value if isinstance(value, list) else ()
    return flaw_of(value) or next((flaw for item in items if (flaw := flaw_of(item))), "")


def _verdict(fields: Fields) -> CriticVerdict:
    stated = [word for name in VERDICT_NAMES if (word := fields.get(name)) is not None]
    if not stated:
        raise _Unclear(missing_field("verdict"))
    known = [_WORDS.get(_plain(word)) if isinstance(word, str) else None for word in stated]
    if None in known:
        raise _Unclear(invalid_verdict(stated[known.index(None)]))
    verdicts = list(dict.fromkeys(verdict for verdict in known if verdict is not None))
    if len(verdicts) > 1:
        raise _Unclear(contradiction("verdict", verdicts))
    return verdicts[0]


def _score(fields: Fields) -> int:
    stated = [value for name in SCORE_NAMES if (value := fields.get(name)) is not None]
    if not stated:
        raise _Unclear(missing_field("score"))
    scores = list(dict.fromkeys(_score_of(value) for value in stated))
    if len(scores) > 1:
        raise _Unclear(contradiction("score", scores))
    return scores[0]


def _score_of(value: Any) -> int:
    """A score from 0 to 100. One between 0 and 1 may be meant as a share, or as next to nothing: nobody knows."""
    number = value
    if isinstance(value, str):
        match = _SCORE.fullmatch(value[:100].strip(_DECORATION))
        number = float(match[1]) if match else None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= 100 or 0 < number < 1:
        raise _Unclear(f"invalid score: {shown(value)}")
    return int(number)


def _items(fields: Fields, names: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of every list under these names. Raises _Unclear for an item without words."""
    texts = [text for name in names for text in _texts(fields.get(name), names[0])]
    kept = tuple(dict.fromkeys(texts[:_MAX_ITEMS]))
    return kept if len(texts) <= _MAX_ITEMS else (*kept, f"and {len(texts) - _MAX_ITEMS:,} more")


def _texts(value: Any, name: str) -> Iterator[str]:
    for item in value if isinstance(value, list) else (() if value is None else (value,)):
        text = Fields(item).text(*_ITEM_NAMES, most=_MAX_ITEM_CHARACTERS) if isinstance(item, Mapping) else item
        if not isinstance(text, str) or (isinstance(item, Mapping) and not text):
            raise _Unclear(f"invalid {name}: {shown(item)}")
        if _plain(text) not in _NOTHING and not says_clean(text):
            yield text[:_MAX_ITEM_CHARACTERS].strip()


def contradiction(name: str, values: list[Any]) -> str:
    """The reason for a field that was given more than one value."""
    return f"invalid {name}: {' and '.join(shown(value) for value in values)}"


def truncated() -> Claim:
    """The claim of an answer whose end is missing."""
    return Claim(problem=TRUNCATED_JSON, is_grave=True)


def _plain(word: str) -> str:
    return " ".join(word[:100].strip(_DECORATION).lower().replace("_", " ").replace("-", " ").split())
