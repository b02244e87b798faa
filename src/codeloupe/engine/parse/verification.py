"""What an attempt to refute a finding showed, out of whatever the model says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from codeloupe.engine.parse.envelopes import DECORATION, Claim, ClaimReader
from codeloupe.engine.parse.items import Fields, invalid_json, plain_name, shown
from codeloupe.engine.parse.loose_json import flaw_of, words
from codeloupe.engine.parse.sentences import is_unfinished, upholds
from codeloupe.engine.parse.statements import sign_of_failure
from codeloupe.model.finding import Proof, Verification
from codeloupe.system.json_text import late

_MAX_REASON_CHARACTERS = 10_000
_PROOF_NAMES = ("proof", "verdict", "verification", "conclusion", "decision", "status", "outcome")
_REASON_NAMES = ("reason", "reasoning", "explanation", "justification", "rationale", "why", "summary")
_WORDS = {
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
_ENDED = frozenset(
    ["completed", "complete", "done", "ok", "success", "finished", "final", "pass", "passed", "verified"]
)
_SPOKEN = late(
    r"(?:(?:proof|verdict|conclusion|result)[ *_`]{0,6}[:=][ *_`]{0,6})?(refuted|confirmed|unproven)[*_`.!]{0,6}"
    r"(?:[ ]{0,2}[:–—-] (.*))?",
    re.IGNORECASE,
)


def read_verification(output: str, structured: Any = None) -> Verification:
    """What was shown. With a problem set, nothing was: `proof` is UNPROVEN then. Never raises.

    A finding is never refuted on doubtful grounds: an answer that is cut off, or contradicts itself, is a problem.
    """
    return _VerificationReader().read(output, structured)


class _VerificationReader(ClaimReader[Verification, Verification]):
    field = "proof"
    plain_may_be_cut = True
    takes_whole = False

    def failed(self, problem: str) -> Verification:
        return Verification(proof=Proof.UNPROVEN, problem=problem)

    def judged(self, said: Sequence[Verification], around: str) -> Verification | str:
        proofs = list(dict.fromkeys(each.proof for each in said))
        if len(proofs) > 1:
            return f"invalid proof: {' and '.join(str(proof) for proof in proofs)}"
        last = said[-1]
        # Nothing takes weight from a finding which the words beside it say to be there.
        speaks_against = {Proof.REFUTED: upholds, Proof.UNPROVEN: is_unfinished}.get(last.proof)
        told = next((text for text in (last.reason, around) if speaks_against and speaks_against(text)), None)
        return last if told is None else f"invalid proof: {last.proof.value}, and yet: {shown(told.strip())}"

    def in_words(self, text: str) -> Claim[Verification] | None:
        line, _, rest = text.strip(DECORATION).partition("\n")
        match = _SPOKEN.fullmatch(line[:_MAX_REASON_CHARACTERS].strip(DECORATION))
        if match is None:
            return None
        reason = f"{match[2] or ''}\n{rest}".strip()
        return Claim(Verification(proof=Proof(match[1].lower()), reason=reason[:_MAX_REASON_CHARACTERS]))

    def in_object(self, value: Mapping[str, Any]) -> Claim[Verification] | None:
        fields = Fields(value)
        stated = [word for name in _PROOF_NAMES if isinstance(word := fields.get(name), str)]
        flags = [name for name in _FLAGS if isinstance(fields.get(name), bool)]
        proofs = {proof for word in stated if (proof := _WORDS.get(_plain(word)))}
        proofs |= {_FLAGS[name] for name in flags if fields.get(name)}
        if any(flag is True and _REAL & set(plain_name(name).split("_")) for name, flag in value.items()):
            proofs.add(Proof.CONFIRMED)
        if not proofs and flags and not stated:
            proofs = {Proof.UNPROVEN}
        if not proofs:
            return Claim(problem=f"invalid proof: {shown(stated[0])}") if stated else None
        denied = any(_FLAGS[name] in proofs for name in flags if not fields.get(name))
        strange = [word for word in stated if _plain(word) not in _WORDS and _plain(word) not in _ENDED]
        problem = invalid_json(flaw) if (flaw := flaw_of(value)) else ""
        if len(proofs) > 1 or denied:
            problem = f"invalid proof: {' and '.join(sorted(proofs))}{', and it is not' if denied else ''}"
        elif told := strange[0] if strange else sign_of_failure(value, is_clean=False):
            problem = f"invalid proof: {next(iter(proofs))}, and yet: {shown(told)}"
        if problem:
            return Claim(problem=problem, is_grave=True)
        reason = fields.text(*_REASON_NAMES, most=_MAX_REASON_CHARACTERS).strip()
        return Claim(Verification(proof=min(proofs), reason=reason))


def _plain(word: str) -> str:
    return " ".join(word[:100].lower().replace("_", " ").replace("-", " ").split()).strip(".!*`")
