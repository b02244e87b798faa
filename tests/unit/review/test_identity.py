from __future__ import annotations

from dataclasses import replace

from codeloupe.review.identity import with_fingerprints
from tests.unit.review.samples import finding


def fingerprint(**differences: object) -> str:
    (named,) = with_fingerprints([replace(finding(evidence="query = f'{x}'"), **differences)])  # type: ignore[arg-type]  # any field
    return named.fingerprint


def test_shifted_lines_new_words_and_new_spacing_keep_the_fingerprint() -> None:
    same = fingerprint()
    assert fingerprint(line_start=90, line_end=91) == same
    assert fingerprint(title="other words", body="other words") == same
    assert fingerprint(evidence="  query  =  f'{x}'\n") == same


def test_another_file_category_rule_or_quote_is_another_finding() -> None:
    names = {
        fingerprint(),
        fingerprint(file="b.py"),
        fingerprint(category="security"),
        fingerprint(rule="S608"),
        fingerprint(evidence="other"),
    }
    assert len(names) == 5


def test_the_same_defect_twice_in_a_file_keeps_two_fingerprints() -> None:
    first, second = with_fingerprints([finding(line=9), finding(line=3)])
    assert first.fingerprint != second.fingerprint
    assert (first.line_start, second.line_start) == (3, 9)


def test_a_path_that_is_not_utf_8_has_a_fingerprint_too() -> None:
    assert len(fingerprint(file="a\udcff.py")) == 32
