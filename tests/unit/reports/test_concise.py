"""One line a finding: what a line holds, and what it never holds."""

from __future__ import annotations

import pytest

from codeloupe.model.finding import Severity
from codeloupe.reports.concise import render_concise
from tests.telling_reviews import hostile_review, incomplete_review
from tests.unit.reports.examples import finding, review

PRINT = "0123456789abcdef" * 2


@pytest.mark.defect("U2")
def test_a_finding_without_a_place_has_no_line_and_gaps_are_lines() -> None:
    low = finding(severity=Severity.LOW, title="Small", fingerprint=PRINT, rule=None, category="hygiene")
    grave = finding(severity=Severity.CRITICAL, title="Large", anchored=False, fingerprint=PRINT)
    lines = render_concise(review(findings=(low, grave))).splitlines()
    assert lines[0] == f"{grave.file}: critical: Large [{grave.rule}] (01234567)"
    assert lines[1] == f"{low.file}:{low.line_start}: low: Small [hygiene] (01234567)"
    *gaps, verdict = render_concise(incomplete_review()).splitlines()
    assert any(": not reviewed: " in gap for gap in gaps)
    assert verdict.startswith("INCOMPLETE: ")


def test_hostile_text_stays_on_its_line() -> None:
    whole = hostile_review()
    text = render_concise(whole, ascii_only=True)
    assert text.isascii()
    assert "\x1b" not in text
    assert len(text.splitlines()) <= len(whole.findings) + len(whole.errors) + 10
