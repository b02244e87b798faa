"""Whatever a review holds, every format is a valid document of its kind, and the same one each time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
)
from codeloupe.model.severity import Severity
from codeloupe.model.suppression import Suppression, SuppressionKind
from codeloupe.reports.formats import FORMATS, Layout
from codeloupe.system.sanitise import terminal
from tests.html_page import read_page
from tests.markdown_page import ACTIVE, kinds
from tests.report_documents import check_gitlab, check_junit, check_rdjson, check_rdjsonl, check_sarif
from tests.telling_reviews import HOSTILE

TEXT = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["", " ", "\n", HOSTILE, "`", "```\nx\n```", "a/b.py", "../x", "/", "<b>", "]]>", "::", "-->"]
)
LINE = st.integers(-1, 60) | st.sampled_from([2**31, 2**63])
SUPPRESSIONS = st.builds(
    Suppression, kind=st.sampled_from(SuppressionKind), reason=TEXT, owner=TEXT, expires=st.none() | st.just(date.max)
)
FINDINGS = st.builds(
    Finding,
    file=TEXT,
    line_start=LINE,
    line_end=LINE,
    severity=st.sampled_from(Severity),
    category=TEXT,
    title=TEXT,
    body=TEXT,
    evidence=TEXT,
    reviewer=TEXT,
    rule=st.none() | TEXT,
    suggestion=st.none() | TEXT,
    confidence=st.none() | st.floats(),
    expert=st.none() | TEXT,
    commit_sha=st.none() | TEXT,
    fingerprint=TEXT,
    anchored=st.booleans(),
    outside_change=st.booleans(),
    status=st.sampled_from(FindingStatus),
    agreement=st.integers(-1, 9),
    seen_by=st.lists(TEXT, max_size=2).map(tuple),
    verification=TEXT,
    suppression=st.none() | SUPPRESSIONS,
)
COVERAGES = st.builds(
    Coverage,
    files_total=st.integers(0, 9),
    files_reviewed=st.integers(0, 9),
    skipped=st.lists(st.builds(SkippedFile, TEXT, st.sampled_from(SkipReason), TEXT), max_size=2).map(tuple),
    units_total=st.integers(0, 9),
    units_failed=st.lists(st.builds(FailedUnit, TEXT, st.lists(TEXT, max_size=2).map(tuple), TEXT), max_size=2).map(
        tuple
    ),
)
REVIEWS = st.builds(
    Review,
    review_id=TEXT,
    scope=st.builds(Scope, st.sampled_from(ScopeKind), st.none() | TEXT, st.none() | TEXT, TEXT),
    reviewer=st.builds(ReviewerInfo, TEXT, TEXT, st.none() | TEXT),
    verdict=st.sampled_from(Verdict),
    complete=st.booleans(),
    exit_code=st.sampled_from([0, 1, 3]),
    summary=TEXT,
    policy=st.builds(Policy, st.sampled_from(Severity), st.sampled_from(Severity), st.booleans()),
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
    hidden_findings=st.integers(0, 3),
    coverage=COVERAGES,
    usage=st.builds(Usage, cost_usd=st.floats(0, 9), duration_seconds=st.floats(0, 1e6)),
    errors=st.lists(st.builds(ReviewError, TEXT, TEXT), max_size=2).map(tuple),
)


def _check_markdown(text: str) -> None:
    assert not kinds(text) & ACTIVE


def _check_github(text: str) -> None:
    for line in text[:-1].split("\n"):
        assert line.startswith(("::error ", "::warning ", "::notice "))
        assert line.count("::") == 2
        assert terminal(line) == line


CHECKS: dict[str, Callable[[str], Any]] = {
    "sarif": check_sarif,
    "junit": check_junit,
    "gitlab-codequality": check_gitlab,
    "rdjson": check_rdjson,
    "rdjsonl": check_rdjsonl,
    "html": read_page,
    "markdown": _check_markdown,
    "github": _check_github,
}


@given(whole=REVIEWS)
def test_any_review_is_a_valid_document_in_every_format(whole: Review) -> None:
    for name, check in CHECKS.items():
        text = FORMATS[name](whole, Layout())
        text.encode("utf-8")
        check(text)
        assert FORMATS[name](whole, Layout()) == text
