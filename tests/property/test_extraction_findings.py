"""Generated findings, written in any shape into any text: exactly those come back, and none from other texts."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.engine.parse.claims import read_verification
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, Severity
from codeloupe.system.json_text import scan_json
from tests.unit.engine.parse.review_shapes import ENVELOPES, JSON_SHAPES, JsonShape, dumped

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
    kept = []
    for finding in shape.expected(given_findings):
        body = "" if finding.body == finding.title else finding.body
        kept.append(ClaimedFinding(**{**as_dict(finding), "body": body}))
    return list(dict.fromkeys(kept))


def as_dict(finding: ClaimedFinding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in ClaimedFinding.__struct_fields__}


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


_PROSE = st.text(st.characters(exclude_characters="{["), max_size=60)


@given(_FINDINGS, _SHAPES, st.data())
def test_generated_findings_cut_anywhere_come_back_as_far_as_they_are_whole(
    given_findings: list[ClaimedFinding], shape: JsonShape, data: st.DataObject
) -> None:
    text = dumped(shape.value(given_findings))
    length = data.draw(st.integers(0, len(text) - 1))
    answer = read_review_answer(text[:length])
    expected = expected_of(shape, given_findings)
    # The last may be cut, but never in its title or severity.
    whole, last = list(answer.findings[:-1]), next(iter(answer.findings[-1:]), None)
    assert whole == expected[: len(whole)]
    if last is not None:
        assert (last.title, last.severity) == (expected[len(whole)].title, expected[len(whole)].severity)
    assert answer.problem is not None


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


_KEYS = st.text(max_size=30)
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
