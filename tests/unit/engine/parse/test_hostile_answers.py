"""Texts that are made to take long. Their size is such that quadratic work would not end within a test's time limit."""

from __future__ import annotations

import json

import pytest

from codeloupe.engine.parse.claims import read_verification
from codeloupe.engine.parse.review_answer import read_review_answer
from tests.rows import each
from tests.unit.engine.parse.review_shapes import FINDINGS, own_item

# Counting lines would take several times as long as running them, and other tests show the same lines.
pytestmark = [pytest.mark.no_cover, pytest.mark.timeout(300)]

PIECES = [
    *("[", "{", '{"', '"', "'", "`", "~", '\\"', '"\\', "\\", "[]", "{}", "{]", "[{", "{/*", "{//", '{"a":', '{"a":['),
    *('{"a":"b"c', '["a",', "[1],", "“"),
    *(" ", "\n", "\ud800", "\0", "```json\n", "```\n```json\n[", '{"a":1 ', '{"a":1,/*', '{"a": "x" j, ', '{"a":1}\n'),
    *("**Severity:** ", "**Severity:** high\n**Title:** x\n", "Severity: high\nFile: ", "- [P1] x — a:1\n", "- [P1] "),
    *("a:1: error: x\n", "a:1: x\n", "a:1", "no issues found. ", '{"findings":[', '{"findings":[]}', '{"result":"'),
    "{'a': 'it's",
]
# One finding, told over and over.
FINDING_PIECES = ["**Severity:** high\n**Title:** x\n", "- [P1] x — a:1\n", "a:1: error: x\n", "a:1: x\n"]
CHARACTERS = 200_000


@each("before", ["", '{"findings": [{"title": "', '{"a": 1, "findings": [{"a": 1}, '])
@each("piece", PIECES)
def test_a_great_text_of_anything_ends_with_a_problem_or_its_one_finding(piece: str, before: str) -> None:
    characters = CHARACTERS // 3 if before else CHARACTERS
    answer = read_review_answer(before + piece * (characters // len(piece)), from_program=True)
    is_finding = not before and piece in FINDING_PIECES
    assert len(answer.findings) == is_finding
    assert (answer.problem is None) is is_finding


@each("piece", PIECES)
def test_a_great_text_of_anything_verifies_nothing(piece: str) -> None:
    assert read_verification(piece * (CHARACTERS // 3 // len(piece))).problem


def test_a_number_of_many_digits_does_no_harm() -> None:
    item = json.dumps(own_item(FINDINGS[2]))
    for digits in (400, 4000, 5000):
        number = "9" * digits
        items = f'{item.replace("0.5", number)}, {{"severity": {number}, "title": "x"}}'
        text = f'{{"findings": [{items}], "verdict": {number}}}'
        answer = read_review_answer(text)
        assert [finding.title for finding in answer.findings] == [FINDINGS[2].title]
        assert answer.findings[0].confidence is None
        assert len(str(answer.problem)) < 200
    assert read_review_answer("", {"verdict": 10**5000, "findings": []}).problem == "invalid verdict: a large number"


def test_lone_surrogates_and_nul_are_kept_as_they_are() -> None:
    item = {"title": "x\ud800\0y", "severity": "low", "file": "a\udcff.py", "quote": "\0"}
    for text in (json.dumps([item]), json.dumps([item], ensure_ascii=False)):
        (finding,) = read_review_answer(text).findings
        assert (finding.title, finding.file, finding.evidence) == ("x\ud800\0y", "a\udcff.py", "\0")
