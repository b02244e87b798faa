"""Texts that are made to take long. Times are of the processor, and only so tight that quadratic work fails."""

from __future__ import annotations

import json
import time

import pytest

from codeloupe.extraction.review_answer import read_review_answer
from codeloupe.extraction.verification import read_verification
from tests.unit.extraction.review_shapes import FINDINGS, JSON_SHAPES, dumped, own_item

# Counting lines would take several times as long as running them, and other tests show the same lines.
pytestmark = pytest.mark.no_cover

PIECES = [
    "[",
    "{",
    '{"',
    '"',
    "'",
    " ",
    "\n",
    "`",
    "~",
    "```json\n",
    "```\n```json\n[",
    '\\"',
    '"\\',
    "\\",
    "[]",
    "{}",
    "{]",
    "[{",
    "{/*",
    "{//",
    '{"a":',
    '{"a":[',
    '{"a":1 ',
    '{"a":1,/*',
    '{"a": "x" j, ',
    '{"a":"b"c',
    '{"a":1}\n',
    '["a",',
    "[1],",
    "**Severity:** ",
    "**Severity:** high\n**Title:** x\n",
    "Severity: high\nFile: ",
    "- [P1] x — a:1\n",
    "- [P1] ",
    "a:1: error: x\n",
    "a:1: x\n",
    "a:1",
    "no issues found. ",
    "\ud800",
    "\0",
    '{"findings":[',
    '{"findings":[]}',
    '{"result":"',
    "“",
    "{'a': 'it's",
]


def seconds(text: str) -> float:
    began = time.process_time()
    read_review_answer(text)
    read_review_answer(text, from_program=True)
    read_verification(text)
    return time.process_time() - began


@pytest.mark.parametrize("before", ["", '{"findings": [{"title": "', '{"a": 1, "findings": [{"a": 1}, '])
@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_size_and_not_with_its_square(piece: str, before: str) -> None:
    small = before + piece * (4_000 // len(piece))
    large = before + piece * (40_000 // len(piece))
    # Ten times the text takes about ten times as long; quadratic work would take a hundred times.
    assert min(seconds(large) for _ in range(2)) < max(0.5, 50 * min(seconds(small) for _ in range(3)))


@pytest.mark.parametrize("piece", ["[", " ", '{"', "`", '"', "```json\n", "{/*", '{"a": "b" c, ', '["a\\"', "\n"])
def test_a_megabyte_of_anything_ends_soon_with_a_problem(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    answer = read_review_answer(text)
    # Far above what it takes, and far below what quadratic work would: coverage slows each line down.
    assert time.process_time() - began < 30
    assert answer.problem is not None
    assert answer.findings == ()


@pytest.mark.requirement("C10")
def test_an_ordinary_answer_takes_a_few_milliseconds() -> None:
    texts = [dumped(JSON_SHAPES["own"].value(FINDINGS * 2)), repr(JSON_SHAPES["own"].value(FINDINGS * 2))]
    for text in texts:
        durations = []
        for _ in range(20):
            began = time.process_time()
            read_review_answer(text)
            durations.append(time.process_time() - began)
        assert min(durations) < 0.01


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
