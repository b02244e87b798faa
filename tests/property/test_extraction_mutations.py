"""Sound answers with characters deleted, doubled, replaced and inserted: nothing breaks, nothing is invented."""

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.engine.parse.claims import read_verification
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, Severity
from tests.unit.engine.parse.review_shapes import ENVELOPES, JSON_SHAPES

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
