"""Answers that are one object: what a critic says of a result, and what an attempt to refute a finding showed.

Nothing is invented: an answer that lacks what was asked for, one that is cut off, and one that contradicts itself is a
problem, with a name that those of reviews have: `missing field: X`, `invalid verdict: X`, `invalid json: …`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

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
from codeloupe.system.json_text import after_reasoning, flaw_of, scan_json, text_in_text, words
from codeloupe.system.regex import regex

T = TypeVar("T")
_DECORATION = "#>*_`~- \t\r\n\ufeff"


class _Claim(Struct, Generic[T], frozen=True):
    """What one object says, or why it must not count; a lasting problem counts, whatever other objects say."""

    said: T | None = None
    problem: str = ""
    lasts: bool = False


class _ClaimReader(ABC, Generic[T]):
    """Reads an answer that is one object. Takes linear time and never raises.

    `field` is the name of what must be there. With `plain_may_be_cut`, an answer in plain words may quote JSON that is
    not whole; with `takes_whole`, nothing inside an object that was read is an answer of its own.
    """

    field: str
    plain_may_be_cut: bool
    takes_whole: bool

    @abstractmethod
    def in_object(self, value: Mapping[str, Any]) -> _Claim[T] | None:
        """What an object says, or None when it says nothing of this kind."""

    @abstractmethod
    def in_words(self, text: str) -> _Claim[T] | None:
        """What a text without JSON says, or None."""

    @abstractmethod
    def judged(self, said: Sequence[T], around: str) -> T | str:
        """The one answer that all claims (at least one) and the words around them give together, or a problem."""

    def read(self, output: str, structured: Any = None) -> T | str:
        """What was said, or the problem. A structured value counts first, if it says something."""
        problem = ""
        if structured is not None:
            claims = self._in_text(structured) if isinstance(structured, str) else self._in_value(structured)
            first = self._answer(claims, f"missing field: {self.field}")
            if not isinstance(first, str):
                return first
            problem = first
        second = self._read_text(output)
        return problem or second if isinstance(second, str) else second

    def _read_text(self, text: str) -> T | str:
        said = after_reasoning(text)
        if said is None or not said.strip(_DECORATION):
            return ONLY_REASONING if said is None else EMPTY_OUTPUT
        inner = text_in_text(said)
        if inner is not None and flaw_of(inner):
            return TRUNCATED_JSON
        said = said if inner is None else inner
        scan = scan_json(said)
        if scan.stopped:
            return f"invalid json: {scan.stopped}"
        claims = [claim for value in final_results([v.value for v in scan.values]) for claim in self._in_value(value)]
        plain = None if claims else self.in_words(said)
        is_cut = '"' in scan.dangling or any(found.truncated for found in scan.values)
        if is_cut and not (plain and self.plain_may_be_cut):
            return TRUNCATED_JSON
        has_objects = any(isinstance(found.value, dict) for found in scan.values)
        nothing = f"missing field: {self.field}" if has_objects else NO_JSON
        return self._answer([plain] if plain else claims, nothing, scan.outside if scan.values else "")

    def _answer(self, claims: Sequence[_Claim[T]], nothing: str, around: str = "") -> T | str:
        if problem := next((claim.problem for claim in claims if claim.lasts), ""):
            return problem
        said = [claim.said for claim in claims if claim.said is not None]
        return self.judged(said, around) if said else next((claim.problem for claim in claims), nothing)

    def _in_text(self, text: str, nested: int = MAX_NESTED_TEXTS) -> list[_Claim[T]]:
        scan = scan_json(text)
        stopped = [_Claim[T](problem=f"invalid json: {scan.stopped}", lasts=True)] if scan.stopped else []
        values = final_results([found.value for found in scan.values])
        return [*stopped, *(claim for value in values for claim in self._in_value(value, nested))]

    def _in_value(self, value: Any, nested: int = MAX_NESTED_TEXTS) -> list[_Claim[T]]:
        found: list[_Claim[T]] = []

        def understood(part: Any) -> bool:
            if isinstance(part, str):
                claims = self._in_text(part, nested - 1) if nested else []
                plain = self.in_words(part) if nested and not claims else None
                claims = [plain] if plain else claims
                is_cut = claims and flaw_of(part)
                found.extend([_Claim[T](problem=TRUNCATED_JSON, lasts=True)] if is_cut else claims)
            elif failure := failure_in(part):
                found.append(_Claim(problem=failure, lasts=True))
                return True
            elif isinstance(part, Mapping) and (claim := self.in_object(part)):
                found.append(claim)
                return self.takes_whole
            elif sign := sign_around(part):
                found.append(_Claim(problem=sign, lasts=True))
            return False

        if left_out := walk(value, understood):
            found.append(_Claim(problem=f"invalid json: {left_out}", lasts=True))
        return found


def _plain(word: str) -> str:
    return " ".join(word[:100].strip(_EDGES).lower().replace("_", " ").replace("-", " ").split())


_EDGES = " \t\r\n*_`~\"'.!"
_PROOF_NAMES = words("proof verdict verification conclusion decision status outcome")
_REASON_NAMES = words("reason reasoning explanation justification rationale why summary")
_PROOFS = {
    **dict.fromkeys(("refuted", "false positive"), Proof.REFUTED),
    **dict.fromkeys(("confirmed", "true positive", "proven"), Proof.CONFIRMED),
    **dict.fromkeys(("unproven", "not proven", "unconfirmed"), Proof.UNPROVEN),
    **dict.fromkeys(("inconclusive", "uncertain", "unclear", "unknown"), Proof.UNPROVEN),
}
# What a flag says when it is on. When it is off, it says nothing: what is not refuted is not confirmed by that.
_FLAGS = {
    **dict.fromkeys(("refuted", "is_refuted", "false_positive", "is_false_positive"), Proof.REFUTED),
    **dict.fromkeys(("confirmed", "is_confirmed"), Proof.CONFIRMED),
}
# Flags that say, when they are on, that the defect is there; and states that say nothing of it.
_REAL = frozenset(words("real valid exploitable vulnerable genuine reproducible reproduced"))
_ENDED = words("completed complete done ok success finished final pass passed verified")
_SPOKEN = regex(
    r"(?:(?:proof|verdict|conclusion|result)[ *_`]{0,6}[:=][ *_`]{0,6})?(refuted|confirmed|unproven)[*_`.!]{0,6}"
    r"(?:[ ]{0,2}[:–—-] (.*))?",
    re.IGNORECASE,
)


def read_verification(output: str, structured: Any = None) -> Verification:
    """What was shown. With a problem set, nothing was: `proof` is UNPROVEN then. Never raises.

    A finding is never refuted on doubtful grounds: an answer that is cut off, or contradicts itself, is a problem.
    """
    answer = _VerificationReader().read(output, structured)
    return Verification(proof=Proof.UNPROVEN, problem=answer) if isinstance(answer, str) else answer


class _VerificationReader(_ClaimReader[Verification]):
    field = "proof"
    plain_may_be_cut = True
    takes_whole = False

    def judged(self, said: Sequence[Verification], around: str) -> Verification | str:
        proofs = list(dict.fromkeys(each.proof for each in said))
        if len(proofs) > 1:
            return f"invalid proof: {' and '.join(proofs)}"
        last = said[-1]
        # Nothing takes weight from a finding which the words beside it say to be there.
        speaks_against = {Proof.REFUTED: upholds, Proof.UNPROVEN: is_unfinished}.get(last.proof)
        against = next((text for text in (last.reason, around) if speaks_against and speaks_against(text)), None)
        return last if against is None else f"invalid proof: {last.proof.value}, and yet: {shown(against.strip())}"

    def in_words(self, text: str) -> _Claim[Verification] | None:
        line, _, rest = text.strip(_DECORATION).partition("\n")
        match = _SPOKEN.fullmatch(line[:MAX_TEXT_CHARACTERS].strip(_DECORATION))
        if match is None:
            return None
        reason = f"{match[2] or ''}\n{rest}".strip()[:MAX_TEXT_CHARACTERS]
        return _Claim(Verification(proof=Proof(match[1].lower()), reason=reason))

    def in_object(self, value: Mapping[str, Any]) -> _Claim[Verification] | None:
        fields = Fields(value)
        stated = [word for name in _PROOF_NAMES if isinstance(word := fields.get(name), str)]
        flags = {name: fields.get(name) for name in _FLAGS if isinstance(fields.get(name), bool)}
        proofs = {proof for word in stated if (proof := _PROOFS.get(_plain(word)))}
        proofs |= {_FLAGS[name] for name, is_on in flags.items() if is_on}
        if any(flag is True and _REAL & set(plain_name(name).split("_")) for name, flag in value.items()):
            proofs.add(Proof.CONFIRMED)
        if not proofs and flags and not stated:
            proofs = {Proof.UNPROVEN}
        if not proofs:
            return _Claim(problem=f"invalid proof: {shown(stated[0])}") if stated else None
        denied = any(_FLAGS[name] in proofs for name, is_on in flags.items() if not is_on)
        strange = [word for word in stated if _plain(word) not in (*_PROOFS, *_ENDED)]
        problem = f"invalid json: {flaw}" if (flaw := flaw_of(value)) else ""
        if len(proofs) > 1 or denied:
            problem = f"invalid proof: {' and '.join(sorted(proofs))}{', and it is not' if denied else ''}"
        elif sign := strange[0] if strange else sign_of_failure(value, is_clean=False):
            problem = f"invalid proof: {next(iter(proofs))}, and yet: {shown(sign)}"
        if problem:
            return _Claim(problem=problem, lasts=True)
        reason = fields.text(*_REASON_NAMES, most=MAX_TEXT_CHARACTERS).strip()
        return _Claim(Verification(proof=min(proofs), reason=reason))


_VERDICT_NAMES = words("verdict decision judgement judgment overall_verdict")
_SCORE_NAMES = words("score quality_score overall_score rating")
_BLOCKER_NAMES = words("blockers blocking_issues blocking blocker")
_FIX_NAMES = words("fixes prescriptive_fixes required_fixes fix suggestions recommendations")
_SUMMARY_NAMES = words("summary reason reasoning explanation rationale feedback comment")
_CONFIDENCE_NAMES = ("confidence", "confidence_score")
_KNOWN_NAMES = {*_VERDICT_NAMES, *_SCORE_NAMES, *_BLOCKER_NAMES, *_FIX_NAMES, *_CONFIDENCE_NAMES, "readable"}
_ITEM_NAMES = words("description text title issue message problem blocker fix action body detail")
_VERDICTS = {
    **dict.fromkeys(words("pass passed approve approved accept accepted"), CriticVerdict.PASS),
    **dict.fromkeys(("rework", "needs rework", "needs work", "revise"), CriticVerdict.REWORK),
    **dict.fromkeys(("changes requested", "request changes"), CriticVerdict.REWORK),
    **dict.fromkeys(words("fail failed reject rejected"), CriticVerdict.FAIL),
}
_NOTHING = {"", "none", "n/a", "na", "nothing", "null", "-", "no blockers", "no fixes", "no fixes needed"}
_SCORE = regex(r"(?i)\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%|/\s*100|out of 100)?\s*")
# `**Verdict:** PASS`, `## Blockers:` and the like, at the beginning of a line.
_LABEL = regex(
    r"(?i)^[#>*_ \t-]{0,12}(verdict|score|summary|blockers|fixes|confidence)[*_ \t]{0,6}[:=][*_ \t]{0,6}(.*)$"
)
_BULLET = regex(r"^\s{0,20}(?:[-*+•]|\d{1,3}[.)])\s{1,4}")
_MAX_LABELLED_CHARACTERS = 200_000
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


class _Unclear(ValueError):
    """A field has a value that cannot be understood; the message is a named reason."""


def read_critique(output: str, structured: Any = None) -> CritiqueAnswer:
    """What was said. Takes linear time and never raises. A structured value counts first, if it says something.

    A PASS beside blockers counts as REWORK, since it is computed and not believed.
    """
    answer = _CritiqueReader().read(output, structured)
    return CritiqueAnswer(problem=answer) if isinstance(answer, str) else answer


class _CritiqueReader(_ClaimReader[CritiqueAnswer]):
    field = "verdict"
    plain_may_be_cut = False
    # What is in its blockers and fixes are parts of it, not answers of their own.
    takes_whole = True

    def judged(self, said: Sequence[CritiqueAnswer], around: str) -> CritiqueAnswer | str:
        """The one answer that all claims give together; the words are those of the last."""
        try:
            verdict = _only("verdict", [each.verdict for each in said])
            _only("score", [each.score for each in said])
        except _Unclear as unclear:
            return str(unclear)
        # A blocker that any of them names is one.
        blockers = tuple(dict.fromkeys(text for each in said for text in each.blockers))
        if verdict is CriticVerdict.PASS and blockers:
            verdict = CriticVerdict.REWORK
        if verdict is CriticVerdict.PASS and (is_alarming(around) or is_unfinished(around) or is_doubtful(around)):
            return f"invalid verdict: PASS, and yet: {shown(around.strip())}"
        return replace(said[-1], verdict=verdict, blockers=blockers)

    def in_object(self, value: Mapping[str, Any]) -> _Claim[CritiqueAnswer] | None:
        fields = Fields(value)
        has_lists = fields.has_any((*_BLOCKER_NAMES, *_FIX_NAMES))
        if not fields.has_any(_VERDICT_NAMES) and not (fields.has_any(_SCORE_NAMES) and has_lists):
            return None
        # A field or an item that was cut may lack the words that matter.
        items = (item for part in value.values() for item in (part, *(part if isinstance(part, list) else ())))
        if flaw := flaw_of(value) or next((flaw for item in items if (flaw := flaw_of(item))), ""):
            return _Claim(problem=f"invalid json: {flaw}", lasts=True)
        try:
            said = CritiqueAnswer(
                verdict=_only("verdict", [_verdict(word) for word in _stated(fields, _VERDICT_NAMES)]),
                score=_only("score", [_score(value) for value in _stated(fields, _SCORE_NAMES)]),
                summary=fields.text(*_SUMMARY_NAMES, most=MAX_TEXT_CHARACTERS).strip(),
                blockers=_items(fields, _BLOCKER_NAMES),
                fixes=_items(fields, _FIX_NAMES),
                confidence=share(fields.get(*_CONFIDENCE_NAMES)),
            )
        except _Unclear as unclear:
            return _Claim(problem=str(unclear))
        against = _against(value) if said.verdict is CriticVerdict.PASS else None
        return _Claim(problem=f"invalid verdict: PASS, and yet: {against}") if against else _Claim(said)

    def in_words(self, text: str) -> _Claim[CritiqueAnswer] | None:
        """An answer in lines such as `Verdict: PASS` and `Blockers:` with a list below."""
        found: dict[str, list[str]] = {}
        current, is_open = "", False
        for line in text[:_MAX_LABELLED_CHARACTERS].splitlines():
            if label := _LABEL.match(line[:1_000]):
                current = label[1].lower()
                if current in found:
                    return _Claim(problem=f"invalid {current}: it is given more than once", lasts=True)
                is_open = not label[2].strip(_DECORATION)
                found[current] = [label[2]] if not is_open else []
            elif current and line.strip(_DECORATION):
                is_open = False
                found[current].append(_BULLET.sub("", line, count=1))
        if "verdict" not in found:
            return None
        if is_open or len(text) > _MAX_LABELLED_CHARACTERS:
            return _Claim(problem=TRUNCATED_JSON, lasts=True)
        lists = {name: lines for name, lines in found.items() if name in ("blockers", "fixes")}
        texts = {name: "\n".join(lines if name == "summary" else lines[:1]) for name, lines in found.items()}
        return self.in_object({**texts, **lists})


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
    return sign_of_failure(others, is_clean=True) or contradiction(others)


def _stated(fields: Fields, names: Sequence[str]) -> list[Any]:
    """The values under these names, of which there must be one."""
    stated = [value for name in names if (value := fields.get(name)) is not None]
    if not stated:
        raise _Unclear(f"missing field: {names[0]}")
    return stated


def _only(name: str, values: Sequence[Any]) -> Any:
    """The one value that a field was given."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        raise _Unclear(f"invalid {name}: {' and '.join(shown(value) for value in different)}")
    return different[0]


def _verdict(word: Any) -> CriticVerdict:
    verdict = _VERDICTS.get(_plain(word)) if isinstance(word, str) else None
    if verdict is None:
        raise _Unclear(f"invalid verdict: {shown(word)}")
    return verdict


def _score(value: Any) -> int:
    """A score from 0 to 100. One between 0 and 1 may be meant as a share, or as next to nothing: nobody knows."""
    number = value
    if isinstance(value, str):
        match = _SCORE.fullmatch(value[:100].strip(_EDGES))
        number = float(match[1]) if match else None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= 100 or 0 < number < 1:
        raise _Unclear(f"invalid score: {shown(value)}")
    return int(number)


def _items(fields: Fields, names: Sequence[str]) -> tuple[str, ...]:
    """The texts of every list under these names."""
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
