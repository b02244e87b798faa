"""One scale of severity, known by all its names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.finding import Severity
from tests.rows import each

SPELLINGS = {
    Severity.CRITICAL: ["P0", "p0", "0", 0, "[P0]", "critical", " CRITICAL "],
    Severity.HIGH: ["P1", "p 1", "1", 1, "[P1]", "[ p1 ]", "high", "error", "Error"],
    Severity.MEDIUM: ["P2", "2", 2, "medium", "warning", "\tWarning\n"],
    Severity.LOW: ["P3", "3", 3, "low", "suggestion", "info", "INFO"],
}


@each(("severity", "text"), [(severity, text) for severity, texts in SPELLINGS.items() for text in texts])
@pytest.mark.requirement("D5")
@pytest.mark.requirement("V7")
def test_every_accepted_spelling_is_read(severity: Severity, text: object) -> None:
    assert Severity.parse(text) is severity


@each("severity", Severity)
def test_a_severity_reads_as_itself_and_by_both_of_its_names(severity: Severity) -> None:
    assert Severity.parse(severity) is severity
    assert Severity.parse(severity.label) is severity
    assert Severity.parse(f"P{severity.priority}") is severity


@each(
    "text",
    [
        "",
        "P4",
        "4",
        -1,
        4,
        1.0,
        True,
        None,
        "blocker!",
        "highest",
        "P1 high",
        "p",
        [],
        b"high",
        "\N{FULLWIDTH DIGIT ONE}",
    ],
)
def test_anything_else_is_refused_with_its_own_words(text: object) -> None:
    with pytest.raises(ValueError, match="not a severity"):
        Severity.parse(text)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none(), st.booleans()))
def test_nothing_but_a_value_error_comes_out(text: object) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(Severity.parse(text), Severity)


def test_at_least_compares_by_badness() -> None:
    order = [Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW]
    for worse, severity in enumerate(order):
        for better, threshold in enumerate(order):
            assert severity.at_least(threshold) == (worse <= better)


def test_labels_and_priorities_are_those_of_the_reports() -> None:
    assert [(severity.label, severity.priority) for severity in Severity] == [
        ("critical", 0),
        ("high", 1),
        ("medium", 2),
        ("low", 3),
    ]
