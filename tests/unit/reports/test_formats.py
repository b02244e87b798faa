from __future__ import annotations

import subprocess
import sys

from codeloupe.model.review import Policy, Review
from codeloupe.reports import FORMATS, Layout, render
from tests.rows import each
from tests.telling_reviews import (
    empty_review,
    hostile_review,
    incomplete_review,
    passed_review,
    shown_diff,
    telling_review,
)
from tests.unit.reports.examples import finding, review

# What a format says of a review that is not whole, and of none that is.
INCOMPLETE_MARKS = {
    "text": "INCOMPLETE",
    "concise": "INCOMPLETE",
    "json": '"complete": false',
    "sarif": '"executionSuccessful": false',
    "markdown": "INCOMPLETE",
    "html": "INCOMPLETE",
    "junit": "<error",
    "gitlab-codequality": "Not reviewed",
    "rdjson": "Not reviewed",
    "rdjsonl": "Not reviewed",
    "github": "could not review everything",
}


def test_every_format_of_a_review_is_here() -> None:
    assert list(FORMATS) == list(INCOMPLETE_MARKS)
    assert tuple(FORMATS) == FORMATS


@each("name", FORMATS)
@each("whole", [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()])
def test_every_format_takes_every_review_and_ends_its_last_line(name: str, whole: Review) -> None:
    text = render(whole, name, Layout())

    text.encode("utf-8")
    assert text.endswith("\n") or (name == "rdjsonl" and not text)
    assert render(whole, name, Layout()) == text


@each(("name", "mark"), INCOMPLETE_MARKS.items())
@each(
    "whole",
    [
        incomplete_review(),
        review(complete=False, exit_code=3),
        review(complete=False, exit_code=0, policy=Policy(pass_when_incomplete=True)),
    ],
)
def test_an_incomplete_review_looks_incomplete_in_every_format(name: str, mark: str, whole: Review) -> None:
    assert mark in render(whole, name, Layout())
    assert mark not in render(passed_review(), name, Layout())


@each("name", FORMATS)
def test_an_open_finding_is_in_every_format(name: str) -> None:
    assert "Statement is built from a variable" in render(review(finding()), name, Layout())


def test_the_page_shows_the_diff_that_the_layout_brings() -> None:
    page = render(review(finding()), "html", Layout(diff=shown_diff()))

    assert "all of them" in page
    assert "all of them" not in render(review(finding()), "html", Layout())


def test_to_know_the_formats_loads_none_of_them() -> None:
    script = "import sys, codeloupe.reports; print([n for n in sys.modules if n.startswith('codeloupe.reports.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_no_format_but_text_loads_the_library_that_lays_out_text() -> None:
    script = (
        "import sys; from codeloupe.reports import FORMATS, Layout, render; from tests.unit.reports.examples import *\n"
        "for name in FORMATS:\n    name == 'text' or render(review(finding()), name, Layout())\n"
        "print('rich' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "False"
