"""Findings written in any shape into any text: exactly those come back, none from other texts or damaged ones."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.engine.parse.claims import read_verification
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, Severity
from codeloupe.system.json_text import scan_json
from tests.unit.engine.parse.review_shapes import ENVELOPES, JSON_SHAPES, JsonShape, dumped, short_finding

# Surrogates too: paths that are no UTF-8 hold them, and so may what models say of those.
_CHARACTERS = st.characters(exclude_characters="\x1c\x1d\x1e\x1f\x85\u2028\u2029")
_WORDS = st.text(_CHARACTERS, min_size=1, max_size=30).map(str.strip).filter(lambda text: text and "\n" not in text)
_NASTY = st.sampled_from(
    ['"', '\\"', "\\", "}]", '"}, {"title": "x"', "```", "{", "// x", "[P3] x", "**Severity:** low", "'"]
)
_LINES = st.lists(_WORDS | _NASTY, max_size=3).map(lambda lines: "\n".join(lines).strip())
_PATHS = st.text(st.sampled_from("abc/._- é\udcff"), min_size=1, max_size=20).map(str.strip).filter(bool)


@st.composite
def findings(draw: st.DrawFn) -> ClaimedFinding:
    start = draw(st.integers(1, 10_000))
    return ClaimedFinding(
        severity=draw(st.sampled_from(Severity)),
        title=draw(_WORDS | _NASTY),
        body=draw(_LINES),
        file=draw(_PATHS),
        line_start=start,
        line_end=start + draw(st.integers(0, 20)),
        category=draw(st.sampled_from(["security", "correctness", ""])),
        evidence=draw(_LINES),
        suggestion=draw(_LINES.filter(bool) | st.none()),
        confidence=draw(st.floats(0, 1) | st.none()),
    )


_FINDINGS = st.lists(findings(), min_size=1, max_size=4, unique_by=lambda finding: (finding.title, finding.line_start))
_SHAPES = st.sampled_from(sorted(JSON_SHAPES)).map(JSON_SHAPES.__getitem__)


def expected_of(shape: JsonShape, given_findings: Sequence[ClaimedFinding]) -> list[ClaimedFinding]:
    """What the shape can say of them; a body that only repeats the title is none, and what is equal counts once."""
    kept = shape.expected(given_findings)
    return list(dict.fromkeys(replace(one, body="" if one.body == one.title else one.body) for one in kept))


@given(_FINDINGS, _SHAPES, st.sampled_from(sorted(ENVELOPES)))
def test_generated_findings_come_back_exactly(
    given_findings: list[ClaimedFinding], shape: JsonShape, envelope: str
) -> None:
    answer = read_review_answer(ENVELOPES[envelope](shape.value(given_findings)))
    assert list(answer.findings) == expected_of(shape, given_findings)
    # A stated FAIL needs a grave finding.
    is_explained = any(found.severity.at_least(Severity.HIGH) for found in answer.findings)
    doubt = None if is_explained or not (answer.problem or "").startswith("verdict FAIL") else answer.problem
    assert (answer.problem, answer.dropped, answer.repaired) == (doubt, (), False)


_FRAGMENTS = st.lists(
    st.sampled_from(
        ['{"findings"', ":", "[", "]", "{", "}", '"title"', '"x"', '"severity"', '"low"', ",", "```", "\n", "'", "//"]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


@given(st.text(max_size=200) | _FRAGMENTS)
def test_no_text_breaks_the_readers_and_no_finding_comes_from_nowhere(text: str) -> None:
    for from_program in (False, True):
        answer = read_review_answer(text, from_program=from_program)
        for finding in answer.findings:
            assert finding.title in text
            assert finding.file is None or finding.file in text
    read_verification(text)
    positions = [position for found in scan_json(text).values for position in (found.start, found.end)]
    assert positions == sorted(positions)


# A key that is itself a quote can make the text before it look like code with quotes in it.
_KEYS = st.text(st.characters(exclude_characters="'\""), max_size=30)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4)


@given(_OBJECTS)
def test_an_object_with_a_trailing_comma_is_mended_to_what_it_was(value: dict[str, Any]) -> None:
    """The loose reader reads all that the strict one does, and reads it alike."""
    (found,) = scan_json(dumped(value)[:-1] + ",}").values
    assert (found.value, found.repaired, found.truncated) == (value, True, False)


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(_VALUES) | _OBJECTS)
def test_no_structured_value_breaks_the_readers(value: Any) -> None:
    assert read_review_answer("", value).findings == ()
    read_verification("", value)


_PLAIN = tuple(
    short_finding(severity, f"title-{name}", f"dir/{name}.py", evidence=f"quote {name}")
    for name, severity in zip(("aa", "bb", "cc"), Severity, strict=False)
)
# No backslash: with one, what is read is not what stands there.
_DAMAGE = "{}[]\",:' \n`-*x1#/“"
# In these, the text of the answer stands in a string, with its quotes escaped.
_NESTED = {"string", "claude", "claude messages", "gemini", "codex"}


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
            text = text[:start] + draw(st.sampled_from(_DAMAGE)) + text[start + (kind == "replace") :]
    return text


@settings(max_examples=150)
@given(st.data())
def test_a_changed_answer_breaks_nothing_and_invents_nothing(data: st.DataObject) -> None:
    shape = data.draw(_SHAPES)
    envelope = data.draw(st.sampled_from(sorted(ENVELOPES)))
    text = data.draw(changed(ENVELOPES[envelope](shape.value(_PLAIN))))
    answer = read_review_answer(text)
    # Something was claimed in it, so it is never clean, whatever happened to it.
    assert answer.findings or answer.problem
    if envelope not in _NESTED:
        for finding in answer.findings:
            assert finding.title in text
            assert finding.file is None or finding.file in text
            assert finding.evidence in text


@given(st.data())
def test_a_changed_verification_never_refutes_what_was_confirmed(data: st.DataObject) -> None:
    text = ENVELOPES[data.draw(st.sampled_from(sorted(ENVELOPES)))]({"reason": "so", "proof": "confirmed"})
    shown = read_verification(data.draw(changed(text)))
    assert shown.proof != "refuted"
