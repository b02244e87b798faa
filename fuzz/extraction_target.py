"""Whatever a model says: the readers never raise, take linear time, and find nothing that does not stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from codeloupe.extraction import json_text
from codeloupe.extraction.critique import read_critique
from codeloupe.extraction.json_values import scan_json
from codeloupe.extraction.review_answer import read_review_answer
from codeloupe.extraction.verification import read_verification
from codeloupe.model.answer import ClaimedFinding, ReviewAnswer
from codeloupe.model.severity import Severity
from fuzz.target import Target, hold
from tests.unit.extraction.review_shapes import ENVELOPES, JSON_SHAPES

_WORD = re.compile(r"\w+")
# Behind these, what is read is not what stands there.
_ESCAPES = re.compile(r"\\[ux0-9UNabfv]|&")
_CLEAN_SIGNS = ("[", "{", "no", "lgtm", "nothing", "clean", "0 ", "good", "without", "none")
_FINDINGS = tuple(
    ClaimedFinding(
        severity=severity,
        title=f"t {name}",
        body=f"b {name}",
        file=f"{name}.py",
        line_start=3,
        line_end=4,
        category="security",
        evidence=f"q {name}",
        suggestion=f"d {name}",
        confidence=0.5,
    )
    for name, severity in (("aa", Severity.HIGH), ("bb", Severity.LOW))
)
_TEXTS = (
    b"No issues found.",
    b"- **[P1] Breaks** (src/a.py:3-4): it does\n- [high] b.py:7 - other\n",
    b"src/a.py:12:4: error: wrong thing [rule-x]\nsrc/b.py:1: warning: other\n",
    b"Review comment:\n\n- [P2] Title - /src/a.py:10-12\n  Body of it.\n",
    b'{"verdict": "revise", "score": 40, "feedback": "not yet", "problems": ["a"]}',
    b'{"proof": "refuted", "reason": "it is checked above"}',
    b'{"proof": "confirmed", "reason": "so"}',
)
_WORDS = (
    *(f'"{name}":'.encode() for name in ("findings", "title", "severity", "file", "line", "evidence", "body", "proof")),
    *(f'"{name}":'.encode() for name in ("result", "content", "text", "verdict", "score", "runs", "error", "is_error")),
    *(
        f'"{name}":'.encode()
        for name in ("type", "message", "line_start", "confidence", "suggestion", "level", "ruleId")
    ),
    *(b'"high"', b'"low"', b'"critical"', b'"refuted"', b'"confirmed"', b'"pass"', b"null", b"true", b"[]", b"{}"),
    *(b"```json\n", b"```\n", b"- **[P1] ", b"[P0] ", b"**Severity:** ", b": error: ", b"No issues found", b"// x\n"),
    *(b"/* x */", b"'", b"...", b"<think>", b"</think>", b"\xe2\x80\x9c", b"{'", b'\\"', b"data: "),
)


def _seeds() -> Sequence[bytes]:
    shaped = [
        ENVELOPES[envelope](shape.value(_FINDINGS))
        for number, shape in enumerate(JSON_SHAPES.values())
        for place, envelope in enumerate(ENVELOPES)
        if place % 5 == number % 5
    ]
    return [*(text.encode("utf-8", "surrogatepass") for text in shaped), *_TEXTS]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _search(data: bytes) -> None:
    text = _text(data)
    read_review_answer(text)
    read_review_answer(text, from_program=True)
    read_verification(text)
    read_critique(text)


def _check(data: bytes) -> None:
    text = _text(data)
    for from_program in (False, True):
        answer = read_review_answer(text, from_program=from_program)
        _check_answer(answer, text)
    _check_verification(text)
    _check_critique(text)
    _check_values(text)


def _check_answer(answer: ReviewAnswer, text: str) -> None:
    hold(answer.findings or answer.problem or _may_be_clean(text), "an empty answer from nothing that says so")
    for finding in answer.findings:
        hold(finding.title.strip(), "a finding without a title")
        if _ESCAPES.search(text):
            continue
        for part in (finding.title, finding.file or "", finding.evidence, finding.body, finding.suggestion or ""):
            for word in _WORD.findall(part):
                hold(word in text, "a finding holds a word that is not in the text")


def _may_be_clean(text: str) -> bool:
    lowered = text.lower()
    return any(sign in lowered for sign in _CLEAN_SIGNS)


def _check_verification(text: str) -> None:
    shown = read_verification(text)
    if shown.problem is not None:
        hold(shown.proof == "unproven", "a verification with a problem proves something")
    elif shown.proof == "refuted" and not _ESCAPES.search(text):
        hold(any(word in text.lower() for word in ("refut", "false", "wrong", "reject", "invalid", "not")), "refuted")


def _check_critique(text: str) -> None:
    critique = read_critique(text)
    if critique.problem is not None:
        hold(critique.verdict is None and critique.score is None, "a critique with a problem says something")
    elif critique.score is not None:
        hold(0 <= critique.score <= 100, "a score beyond its bounds")


def _check_values(text: str) -> None:
    scan = scan_json(text)
    places = [place for found in scan.values for place in (found.start, found.end)]
    hold(places == sorted(places) and all(0 <= place <= len(text) for place in places), "values overlap")
    for found in scan.values:
        json.dumps(found.value, allow_nan=False)
    try:
        parts = list(json_text.candidates(text))
    except ValueError:
        return
    for part in parts[:3]:
        hold(part in text, "a candidate is not in the text")
        value = _parsed(part)
        if value is not None:
            json.dumps(value, allow_nan=False)
            read_review_answer("", value)
            read_verification("", value)
            read_critique("", value)


def _parsed(part: str) -> Any:
    try:
        return json_text.parsed(part)
    except ValueError:
        return None


TARGET = Target("extraction", _seeds, _WORDS, search=_search, check=_check)
