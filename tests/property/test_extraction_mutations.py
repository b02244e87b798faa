"""Sound answers with characters deleted, doubled, replaced and inserted: nothing breaks, nothing is invented."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.engine.parse.critique import read_critique
from codeloupe.engine.parse.json_values import scan_json
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.parse.verification import read_verification
from codeloupe.model.finding import ClaimedFinding, Severity
from tests.kept import broken_by_kept_inputs
from tests.unit.extraction.review_shapes import ENVELOPES, JSON_SHAPES

FINDINGS = tuple(
    ClaimedFinding(
        severity=severity,
        title=f"title-{name}",
        body=f"body {name}",
        file=f"dir/{name}.py",
        line_start=3,
        line_end=4,
        category="security",
        evidence=f"quote {name}",
        suggestion=f"do {name}",
        confidence=0.5,
    )
    for name, severity in zip(("aa", "bb", "cc"), Severity, strict=False)
)
# No backslash: with one, what is read is not what stands there.
CHARACTERS = "{}[]\",:' \n`-*x1#/“"
# In these, the text of the answer stands in a string, with its quotes escaped.
NESTED = {"string", "claude", "claude messages", "gemini", "codex"}


@st.composite
def changed(draw: st.DrawFn, text: str) -> str:
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.sampled_from([1, 1, 1, 5, 40]))
        kind = draw(st.sampled_from(["delete", "double", "replace", "insert"]))
        if kind == "delete":
            text = text[:start] + text[end:]
        elif kind == "double":
            text = text[:end] + text[start:]
        else:
            text = text[:start] + draw(st.sampled_from(CHARACTERS)) + text[start + (kind == "replace") :]
    return text


@settings(max_examples=150)
@given(st.data())
def test_a_changed_answer_breaks_nothing_and_invents_nothing(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(sorted(JSON_SHAPES)))
    envelope = data.draw(st.sampled_from(sorted(ENVELOPES)))
    text = data.draw(changed(ENVELOPES[envelope](JSON_SHAPES[shape].value(FINDINGS))))
    answer = read_review_answer(text)
    # Something was claimed in it, so it is never clean, whatever happened to it.
    assert answer.findings or answer.problem
    if envelope not in NESTED:
        for finding in answer.findings:
            assert finding.title in text
            assert finding.file is None or finding.file in text
            assert finding.evidence in text


@given(st.data())
def test_a_changed_verification_never_refutes_what_was_confirmed(data: st.DataObject) -> None:
    text = ENVELOPES[data.draw(st.sampled_from(sorted(ENVELOPES)))]({"reason": "so", "proof": "confirmed"})
    shown = read_verification(data.draw(changed(text)))
    assert shown.proof != "refuted"


def test_one_character_less_costs_at_most_what_it_stood_in() -> None:
    """Between the items a character may cost more; within one it costs that one, unless a bracket is gone."""
    costly = []
    for name, form in JSON_SHAPES.items():
        text = ENVELOPES["bare"](form.value(FINDINGS))
        expected = form.expected(FINDINGS)
        places = [place for place in range(len(text)) if text[place] not in "{}[]"][::6]
        answers = [read_review_answer(text[:place] + text[place + 1 :]) for place in places]
        kept = sum(finding in answer.findings for answer in answers for finding in expected)
        if not all(answer.findings or answer.problem for answer in answers) or kept <= 0.6 * len(expected) * len(
            places
        ):
            costly.append(name)
    assert costly == []


# Behind these, what is read is not what stands there.
ESCAPES = re.compile(r"\\[ux0-9UNabfv]|&")
CLEAN_SIGNS = ("[", "{", "no", "lgtm", "nothing", "clean", "0 ", "good", "without", "none")
REFUTING = ("refut", "false", "wrong", "reject", "invalid", "not")


def check_readers(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for from_program in (False, True):
        answer = read_review_answer(text, from_program=from_program)
        assert answer.findings or answer.problem or any(sign in text.lower() for sign in CLEAN_SIGNS)
        for finding in answer.findings:
            assert finding.title.strip()
            parts = (finding.title, finding.file or "", finding.evidence, finding.body, finding.suggestion or "")
            invented = [word for part in parts for word in re.findall(r"\w+", part) if word not in text]
            assert not invented or ESCAPES.search(text), invented
    shown = read_verification(text)
    assert shown.problem is None or shown.proof == "unproven"
    if shown.proof == "refuted" and not ESCAPES.search(text):
        assert any(word in text.lower() for word in REFUTING)
    critique = read_critique(text)
    assert critique.problem is None or (critique.verdict is None and critique.score is None)
    assert critique.score is None or 0 <= critique.score <= 100
    values = scan_json(text).values
    places = [place for found in values for place in (found.start, found.end)]
    assert places == sorted(places)
    assert all(0 <= place <= len(text) for place in places)
    for found in values:
        json.dumps(found.value, allow_nan=False)


def test_every_kept_answer_is_read_without_inventing_anything() -> None:
    assert broken_by_kept_inputs("extraction", check_readers) == {}


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_inventing_anything(data: bytes) -> None:
    check_readers(data)
