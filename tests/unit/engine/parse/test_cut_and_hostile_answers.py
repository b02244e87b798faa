"""Every accepted form, cut after every character: what was whole is read exactly, and nothing is invented.

Of a finding that was cut, title and severity must be whole, or it is not read. And texts that are made to take long:
their size is such that quadratic work would not end within a test's time limit.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.parse.claims import read_critique, read_verification
from codeloupe.engine.parse.items import TRUNCATED_JSON
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.model.finding import ClaimedFinding, Severity
from tests.rows import each
from tests.unit.engine.parse import review_shapes
from tests.unit.engine.parse.review_shapes import ENVELOPES, JSON_SHAPES, dumped, own_item, short_finding

# Counting lines would take several times as long as running them, and other tests show the same lines.
pytestmark = [pytest.mark.no_cover, pytest.mark.timeout(300)]

# Short, so that every place can be tried; with what looks like the end of something.
FINDINGS = (
    short_finding(Severity.HIGH, 'one "}]" \\ é🔍', "one.py", evidence="x = ['one']"),
    short_finding(Severity.LOW, 'two "}]" \\ é🔍', "two.py", evidence="x = ['two']"),
)


def in_string(item: Any) -> str:
    return json.dumps(json.dumps(item))[1:-1]


# How an item is written in some envelopes.
ESCAPED = ("escaped", "claude structured")
IN_STRINGS = ("string", "claude", "claude messages", "gemini", "codex")


def check_every_cut(
    text: str, ends: list[int], expected: tuple[ClaimedFinding, ...], *, whole: int, step: int = 1
) -> None:
    """`ends` are where the items end, `whole` is the length from which on the answer is a whole one."""
    for length in range(0, len(text), step):
        answer = read_review_answer(text[:length])
        complete = sum(end <= length for end in ends)
        assert answer.findings[:complete] == expected[:complete], (length, text[:length])
        check_begun(answer.findings[complete:], expected[complete:])
        if length < whole:
            assert answer.problem is not None, (length, text[:length])
        if complete < len(ends) and complete:
            assert answer.problem == TRUNCATED_JSON, (length, text[:length])


def check_begun(more: tuple[ClaimedFinding, ...], expected: tuple[ClaimedFinding, ...]) -> None:
    """At most one finding was begun, and what it has of the next one is exact."""
    assert len(more) <= 1
    for begun, whole in zip(more, expected[: len(more)], strict=True):
        assert (begun.title, begun.severity) == (whole.title, whole.severity)
        for name in ("file", "evidence", "category", "suggestion", "confidence", "line_start"):
            assert getattr(begun, name) in (getattr(whole, name), None, ""), name


def ends_of(text: str, pieces: list[str]) -> list[int]:
    return [text.index(piece) + len(piece) for piece in pieces]


@each("shape", JSON_SHAPES)
def test_every_shape_cut_anywhere_keeps_its_complete_findings(shape: str) -> None:
    form = JSON_SHAPES[shape]
    for write in (dumped, repr) if shape == "passed" else (dumped,):
        text = write(form.value(FINDINGS))
        ends = ends_of(text, [write(form.item(finding)) for finding in FINDINGS])
        check_every_cut(text, ends, form.expected(FINDINGS), whole=len(text))


@each("envelope", ENVELOPES)
def test_every_envelope_cut_at_many_places_keeps_its_complete_findings(envelope: str) -> None:
    form = JSON_SHAPES["codex"]
    text = ENVELOPES[envelope](form.value(FINDINGS))
    write = in_string if envelope in IN_STRINGS else json.dumps if envelope in ESCAPED else dumped
    ends = ends_of(text, [write(form.item(finding)) for finding in FINDINGS])
    check_every_cut(text, ends, form.expected(FINDINGS), whole=ends[-1], step=3)


def test_sarif_cut_anywhere_keeps_its_complete_results() -> None:
    place = {"physicalLocation": {"artifactLocation": {"uri": "a.py"}, "region": {"startLine": 12}}}
    results = [
        {"ruleId": f"R{number}", "level": "error", "message": {"text": f"It fails {number}"}, "locations": [place]}
        for number in (1, 2)
    ]
    text = dumped({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "results": results}]})
    bare = ClaimedFinding(severity=Severity.HIGH, title="", file="a.py", line_start=12)
    expected = tuple(replace(bare, title=f"It fails {number}", rule=f"R{number}") for number in (1, 2))
    check_every_cut(text, ends_of(text, [dumped(result) for result in results]), expected, whole=len(text))


PIECES = [
    *("[", "{", '{"', '"', "'", "`", "~", '\\"', '"\\', "\\", "[]", "{}", "{]", "[{", "{/*", "{//", '{"a":', '{"a":['),
    *('{"a":"b"c', '["a",', "[1],", "“"),
    *(" ", "\n", "\ud800", "\0", "```json\n", "```\n```json\n[", '{"a":1 ', '{"a":1,/*', '{"a": "x" j, ', '{"a":1}\n'),
    *("**Severity:** ", "**Severity:** high\n**Title:** x\n", "Severity: high\nFile: ", "- [P1] x — a.py:1\n"),
    *("a:1: error: x\n", "a:1: x\n", "a:1", "no issues found. ", '{"findings":[', '{"findings":[]}', '{"result":"'),
    *("- [P1] ", "{'a': 'it's", "Verdict: ", '{"verdict": '),
]
# One finding, told over and over.
FINDING_PIECES = ["**Severity:** high\n**Title:** x\n", "- [P1] x — a.py:1\n", "a:1: error: x\n", "a:1: x\n"]
CHARACTERS = 50_000
# So many lists without a finding that the search ends at its cap: fewer are an answer that is given twice.
CLEAN_PIECE, CLEAN_CHARACTERS = '{"findings":[]}', 200_000


@each("before", ["", '{"findings": [{"title": "', '{"a": 1, "findings": [{"a": 1}, '])
@each("piece", PIECES)
def test_a_great_text_of_anything_ends_with_a_problem_or_its_one_finding(piece: str, before: str) -> None:
    characters = CHARACTERS // 3 if before else CLEAN_CHARACTERS if piece == CLEAN_PIECE else CHARACTERS
    answer = read_review_answer(before + piece * (characters // len(piece)), from_program=True)
    is_finding = not before and piece in FINDING_PIECES
    assert len(answer.findings) == is_finding
    assert (answer.problem is None) is is_finding


@each("piece", PIECES)
def test_a_great_text_of_anything_verifies_nothing_and_passes_nothing(piece: str) -> None:
    text = piece * (CHARACTERS // 3 // len(piece))
    assert read_verification(text).problem
    assert isinstance(read_critique(text), str)


def test_a_number_of_many_digits_does_no_harm() -> None:
    item = json.dumps(own_item(review_shapes.FINDINGS[2]))
    for digits in (400, 4000, 5000):
        number = "9" * digits
        items = f'{item.replace("0.5", number)}, {{"severity": {number}, "title": "x"}}'
        text = f'{{"findings": [{items}], "verdict": {number}}}'
        answer = read_review_answer(text)
        assert [finding.title for finding in answer.findings] == [review_shapes.FINDINGS[2].title]
        assert answer.findings[0].confidence is None
        assert len(str(answer.problem)) < 200
        assert read_review_answer(f'{{"findings": [], "score": {number}, "total": {number}, "n": {number}}}').problem
    assert read_review_answer("", {"verdict": 10**5000, "findings": []}).problem == "invalid verdict: a large number"
