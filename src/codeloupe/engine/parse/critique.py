"""What a critic says of a result, out of whatever the model says: verdict, score, blockers, fixes, confidence.

Nothing is invented: an answer without a verdict or a score, one that is cut off, and one that contradicts itself is a
problem. A PASS beside blockers counts as REWORK, since it is computed and not believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.parse.envelopes import DECORATION, Claim, ClaimReader
from codeloupe.engine.parse.items import (
    TRUNCATED_JSON,
    Fields,
    invalid_json,
    invalid_verdict,
    missing_field,
    plain_name,
    share,
    shown,
)
from codeloupe.engine.parse.loose_json import flaw_of, words
from codeloupe.engine.parse.sentences import is_alarming, is_doubtful, is_unfinished, says_clean
from codeloupe.engine.parse.statements import names_defects, objection_in, says_nothing, sign_of_failure
from codeloupe.model.pipeline import CriticVerdict
from codeloupe.system.json_text import late

_VERDICT_NAMES = ("verdict", "decision", "judgement", "judgment", "overall_verdict")
_SCORE_NAMES = ("score", "quality_score", "overall_score", "rating")
_BLOCKER_NAMES = ("blockers", "blocking_issues", "blocking", "blocker")
_FIX_NAMES = ("fixes", "prescriptive_fixes", "required_fixes", "fix", "suggestions", "recommendations")
_SUMMARY_NAMES = ("summary", "reason", "reasoning", "explanation", "rationale", "feedback", "comment")
_CONFIDENCE_NAMES = ("confidence", "confidence_score")
_KNOWN_NAMES = {*_VERDICT_NAMES, *_SCORE_NAMES, *_BLOCKER_NAMES, *_FIX_NAMES, *_CONFIDENCE_NAMES, "readable"}
_ITEM_NAMES = words("description text title issue message problem blocker fix action body detail")
_WORDS = {
    **dict.fromkeys(("pass", "passed", "approve", "approved", "accept", "accepted"), CriticVerdict.PASS),
    **dict.fromkeys(("rework", "needs rework", "needs work", "revise"), CriticVerdict.REWORK),
    **dict.fromkeys(("changes requested", "request changes"), CriticVerdict.REWORK),
    **dict.fromkeys(("fail", "failed", "reject", "rejected"), CriticVerdict.FAIL),
}
_NOTHING = {"", "none", "n/a", "na", "nothing", "null", "-", "no blockers", "no fixes", "no fixes needed"}
_SCORE = late(r"(?i)\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%|/\s*100|out of 100)?\s*")
# `**Verdict:** PASS`, `## Blockers:` and the like, at the beginning of a line.
_LABEL = late(
    r"(?i)^[#>*_ \t-]{0,12}(verdict|score|summary|blockers|fixes|confidence)[*_ \t]{0,6}[:=][*_ \t]{0,6}(.*)$"
)
_BULLET = late(r"^\s{0,20}(?:[-*+•]|\d{1,3}[.)])\s{1,4}")
_EDGES = " \t\r\n*_`~\"'.!"
_MAX_LABELLED_CHARACTERS = 200_000
_MAX_ITEMS = 100
_MAX_ITEM_CHARACTERS = 2_000
_MAX_SUMMARY_CHARACTERS = 10_000


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


class _UnclearError(ValueError):
    """A field has a value that cannot be understood; the message is a named reason."""


def read_critique(output: str, structured: Any = None) -> CritiqueAnswer:
    """What was said. Takes linear time and never raises. A structured value counts first, if it says something."""
    return _CritiqueReader().read(output, structured)


class _CritiqueReader(ClaimReader[CritiqueAnswer, CritiqueAnswer]):
    field = "verdict"
    plain_may_be_cut = False
    # What is in its blockers and fixes are parts of it, not answers of their own.
    takes_whole = True

    def failed(self, problem: str) -> CritiqueAnswer:
        return CritiqueAnswer(problem=problem)

    def judged(self, said: Sequence[CritiqueAnswer], around: str) -> CritiqueAnswer | str:
        """The one answer that all claims give together; the words are those of the last."""
        try:
            _only("verdict", [each.verdict for each in said])
            _only("score", [each.score for each in said])
        except _UnclearError as unclear:
            return str(unclear)
        # A blocker that any of them names is one.
        blockers = tuple(dict.fromkeys(text for each in said for text in each.blockers))
        verdict = said[-1].verdict
        if verdict is CriticVerdict.PASS and blockers:
            verdict = CriticVerdict.REWORK
        if verdict is CriticVerdict.PASS and (is_alarming(around) or is_unfinished(around) or is_doubtful(around)):
            return f"{invalid_verdict('PASS')}, and yet: {shown(around.strip())}"
        return replace(said[-1], verdict=verdict, blockers=blockers)

    def in_object(self, value: Mapping[str, Any]) -> Claim[CritiqueAnswer] | None:
        fields = Fields(value)
        has_lists = fields.has_any((*_BLOCKER_NAMES, *_FIX_NAMES))
        if not fields.has_any(_VERDICT_NAMES) and not (fields.has_any(_SCORE_NAMES) and has_lists):
            return None
        # A field or an item that was cut may lack the words that matter.
        items = (item for part in value.values() for item in (part, *(part if isinstance(part, list) else ())))
        if flaw := flaw_of(value) or next((flaw for item in items if (flaw := flaw_of(item))), ""):
            return Claim(problem=invalid_json(flaw), is_grave=True)
        try:
            said = CritiqueAnswer(
                verdict=_only("verdict", [_verdict(word) for word in _stated(fields, _VERDICT_NAMES)]),
                score=_only("score", [_score(value) for value in _stated(fields, _SCORE_NAMES)]),
                summary=fields.text(*_SUMMARY_NAMES, most=_MAX_SUMMARY_CHARACTERS).strip(),
                blockers=_items(fields, _BLOCKER_NAMES),
                fixes=_items(fields, _FIX_NAMES),
                confidence=share(fields.get(*_CONFIDENCE_NAMES)),
            )
        except _UnclearError as unclear:
            return Claim(problem=str(unclear))
        told = _against(value) if said.verdict is CriticVerdict.PASS else None
        return Claim(problem=f"{invalid_verdict('PASS')}, and yet: {told}") if told else Claim(said)

    def in_words(self, text: str) -> Claim[CritiqueAnswer] | None:
        """An answer in lines such as `Verdict: PASS` and `Blockers:` with a list below."""
        found: dict[str, list[str]] = {}
        current, is_open = "", False
        for line in text[:_MAX_LABELLED_CHARACTERS].splitlines():
            if label := _LABEL.match(line[:1_000]):
                current = label[1].lower()
                if current in found:
                    return Claim(problem=f"invalid {current}: it is given more than once", is_grave=True)
                is_open = not label[2].strip(DECORATION)
                found[current] = [label[2]] if not is_open else []
            elif current and line.strip(DECORATION):
                is_open = False
                found[current].append(_BULLET.sub("", line, count=1))
        if "verdict" not in found:
            return None
        if is_open or len(text) > _MAX_LABELLED_CHARACTERS:
            return Claim(problem=TRUNCATED_JSON, is_grave=True)
        most = {"blockers": None, "fixes": None, "summary": None}
        texts = {name: "\n".join(lines[: most.get(name, 1)]) for name, lines in found.items()}
        return self.in_object({**texts, **{name: found[name] for name in ("blockers", "fixes") if name in found}})


def _against(value: Mapping[str, Any]) -> str | None:
    """What speaks against a PASS beside the fields of a critique, or None."""
    names = [plain_name(name) for name in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice} is given more than once"
    others = {name: part for name, part in value.items() if plain_name(name) not in _KNOWN_NAMES}
    for name, part in others.items():
        has_words = isinstance(part, str) and not says_nothing(part) and " " in part
        if part and names_defects(name) and (has_words or isinstance(part, list | Mapping)):
            return f"there is something under {shown(name)}"
    return sign_of_failure(others, is_clean=True) or objection_in(others)


def _stated(fields: Fields, names: Sequence[str]) -> list[Any]:
    """The values under these names, of which there must be one."""
    stated = [value for name in names if (value := fields.get(name)) is not None]
    if not stated:
        raise _UnclearError(missing_field(names[0]))
    return stated


def _only(name: str, values: Sequence[Any]) -> Any:
    """The one value that a field was given."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise _UnclearError(f"invalid {name}: {' and '.join(shown(value) for value in different)}")
    return different[0]


def _verdict(word: Any) -> CriticVerdict:
    verdict = _WORDS.get(_plain(word)) if isinstance(word, str) else None
    if verdict is None:
        raise _UnclearError(invalid_verdict(word))
    return verdict


def _score(value: Any) -> int:
    """A score from 0 to 100. One between 0 and 1 may be meant as a share, or as next to nothing: nobody knows."""
    number = value
    if isinstance(value, str):
        match = _SCORE.fullmatch(value[:100].strip(_EDGES))
        number = float(match[1]) if match else None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= 100 or 0 < number < 1:
        raise _UnclearError(f"invalid score: {shown(value)}")
    return int(number)


def _items(fields: Fields, names: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of every list under these names."""
    texts = [text for name in names for text in _texts(fields.get(name), names[0])]
    kept = tuple(dict.fromkeys(texts[:_MAX_ITEMS]))
    return kept if len(texts) <= _MAX_ITEMS else (*kept, f"and {len(texts) - _MAX_ITEMS:,} more")


def _texts(value: Any, name: str) -> Iterator[str]:
    for item in value if isinstance(value, list) else (() if value is None else (value,)):
        text = Fields(item).text(*_ITEM_NAMES, most=_MAX_ITEM_CHARACTERS) if isinstance(item, Mapping) else item
        if not isinstance(text, str) or (isinstance(item, Mapping) and not text):
            raise _UnclearError(f"invalid {name}: {shown(item)}")
        if _plain(text) not in _NOTHING and not says_clean(text):
            yield text[:_MAX_ITEM_CHARACTERS].strip()


def _plain(word: str) -> str:
    return " ".join(word[:100].strip(_EDGES).lower().replace("_", " ").replace("-", " ").split())
