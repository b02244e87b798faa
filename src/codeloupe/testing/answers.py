"""Answers for scripted reviews, verifications and critics, in exactly the format that these calls ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from codeloupe.model.agent import AgentRequest, full_prompt
from codeloupe.testing.apis import RecordedRequest
from codeloupe.testing.replies import Json

SeverityWord = Literal["critical", "high", "medium", "low"]
ProofWord = Literal["confirmed", "refuted", "unproven"]
CritiqueWord = Literal["PASS", "REWORK", "FAIL"]
CallKind = Literal["review", "verification", "critique", "other"]
AnyRequest = AgentRequest | RecordedRequest

_SCORES = {"PASS": 100, "REWORK": 50, "FAIL": 0}
# A sentence of each prompt that no other prompt has.
_SENTENCES: tuple[tuple[str, CallKind], ...] = (
    ("Try to refute the claims", "verification"),
    ("verdict = PASS: every requirement is met", "critique"),
    ("Report the defects that the diff introduces", "review"),
)
_CLAIM = re.compile(r"^<(data-[0-9a-f]{8}) claim (\d+) ([^\n]*)>\n(.*?)\n</\1>", re.DOTALL | re.MULTILINE)

# The end of a claim's place: its lines, or a remark that the quote was not found.
_LINES = re.compile(r"(?::\d+-\d+| \([^()]*\))$")


class ScriptedFinding(Struct, frozen=True, kw_only=True):
    """A finding that a scripted agent reports, and the proof that it gives when it is asked for one.

    `quote` is one to three whole lines of the new file, and decides the place; "" is a claim about no line. `id`
    repeats an open finding of an earlier round. `proof`, `reason`, `suggestion` and `replacement` are for
    `review_answers`, which also answers the verification. Raises ValueError for a word that no answer may have.
    """

    file: str
    line: int
    quote: str
    title: str = "A scripted finding"
    body: str = ""
    severity: SeverityWord = "high"
    category: str = "correctness"
    id: str = ""
    proof: ProofWord = "confirmed"
    reason: str = ""
    suggestion: str = ""
    replacement: str = ""

    def __post_init__(self) -> None:
        _check("severity", self.severity, get_args(SeverityWord))
        if not self.title.strip():
            raise ValueError("a finding needs a title")
        _check_proof(self.proof, self.suggestion, self.replacement)


def findings(*items: ScriptedFinding) -> Json:
    """Return the answer to a review call with these findings; without one, that nothing was found."""
    listed: list[dict[str, Any]] = []
    for item in items:
        # In the order of the prompt.
        fields: dict[str, Any] = {
            "file": item.file,
            "line": item.line,
            "quote": item.quote,
            "body": item.body,
            "title": item.title,
            "category": item.category,
            "severity": item.severity,
        }
        if item.id:
            fields["id"] = item.id
        listed.append(fields)
    return Json({"findings": listed})


def proof(
    proof: ProofWord = "confirmed", *, reason: str = "", suggestion: str = "", replacement: str = "", claims: int = 1
) -> Json:
    """Return the answer to a verification call: the same proof for each of its claims.

    Raise ValueError for an unknown proof, and for a fix (`suggestion`, `replacement`) of a claim that is not confirmed.
    """
    _check_proof(proof, suggestion, replacement)
    given = _proof_fields(proof, reason, suggestion, replacement)
    return Json({"proofs": [{"claim": number, **given} for number in range(1, claims + 1)]})


def critique(
    verdict: CritiqueWord = "PASS",
    *,
    score: int | None = None,
    summary: str = "",
    blockers: Sequence[str] = (),
    fixes: Sequence[str] = (),
) -> Json:
    """Return the answer of a critic. Without a `score` it is 100 for PASS, 50 for REWORK and 0 for FAIL.

    Raise ValueError for an unknown verdict, a score outside of 0 to 100, and a PASS with blockers.
    """
    _check("verdict", verdict, tuple(_SCORES))
    points = _SCORES[verdict] if score is None else score
    if not 0 <= points <= 100:
        raise ValueError(f"the score is {points}; it must be from 0 to 100")
    if verdict == "PASS" and blockers:
        raise ValueError("a PASS has no blockers; use REWORK or FAIL")
    summary = summary or f"The scripted critic says {verdict}."
    return Json(
        {"summary": summary, "verdict": verdict, "score": points, "blockers": list(blockers), "fixes": list(fixes)}
    )


def review_answers(*items: ScriptedFinding) -> Callable[[AnyRequest], Json]:
    """Return a step that answers every call of a review, for `ScriptedAgent([...])` and `StandInServer(reply=...)`.

    A review call gets the findings in the files of its diff, and a verification call the proof of each finding that it
    asks about. The step raises ValueError for any other call.
    """

    def answer(request: AnyRequest) -> Json:
        text = _text_of(request)
        match asked_for(request):
            case "review":
                return findings(*(item for item in items if _is_in_diff(item.file, text)))
            case "verification":
                return _proofs_for(text, items)
            case other:
                raise ValueError(f"review_answers was asked for something else than a review: {other}")

    return answer


def asked_for(request: AnyRequest) -> CallKind:
    """Return which kind of answer a call of codeloupe asks for."""
    text = _text_of(request)
    for sentence, kind in _SENTENCES:
        if sentence in text:
            return kind
    return "other"


def _text_of(request: AnyRequest) -> str:
    if isinstance(request, RecordedRequest):
        return "\n".join(request.strings())
    return "\n".join(text for text in (request.system_prompt, full_prompt(request)) if text)


def _is_in_diff(file: str, text: str) -> bool:
    return re.search(rf"^=== {re.escape(file)}(?: \(|$)", text, re.MULTILINE) is not None


def _proofs_for(text: str, items: Sequence[ScriptedFinding]) -> Json:
    proofs: list[dict[str, Any]] = []
    for _, number, place, words in _CLAIM.findall(text):
        item = _claimed(place, words, items)
        given = _proof_fields(item.proof, item.reason, item.suggestion, item.replacement)
        proofs.append({"claim": int(number), **given})
    return Json({"proofs": proofs})


def _claimed(place: str, words: str, items: Sequence[ScriptedFinding]) -> ScriptedFinding:
    """Return the finding with the file, the title and the quote of a claim. Raise ValueError if there is none."""
    file = _LINES.sub("", place)
    title, _, rest = words.partition("\n\n")
    for item in items:
        has_quote = " ".join(item.quote.split()) in " ".join(rest.split())
        if item.file == file and item.title.strip() == title and has_quote:
            return item
    raise ValueError(f"review_answers was asked for the proof of a claim that it did not make: {words[:80]!r}")


def _proof_fields(proof: str, reason: str, suggestion: str, replacement: str) -> dict[str, str]:
    fields = {"reason": reason or f"The scripted agent says {proof}.", "proof": proof}
    if suggestion:
        fields["suggestion"] = suggestion
    if replacement:
        fields["replacement"] = replacement
    return fields


def _check_proof(proof: str, suggestion: str, replacement: str) -> None:
    _check("proof", proof, get_args(ProofWord))
    if proof != "confirmed" and (suggestion or replacement):
        raise ValueError(f"only a confirmed claim has a fix, and this proof is {proof}")


def _check(name: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        raise ValueError(f"{name} is {word!r}; it must be one of: {', '.join(words)}")
