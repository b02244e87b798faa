"""Severities in the words of models."""

from __future__ import annotations

import pytest

from codeloupe.engine.parse.items import stated_severity
from codeloupe.model.severity import Severity
from tests.rows import each


@pytest.mark.requirement("V7")
@each(
    ("stated", "severity"),
    [
        ("blocker", Severity.CRITICAL),
        ("BLOCKER", Severity.CRITICAL),
        ("Must fix", Severity.CRITICAL),
        ("major", Severity.HIGH),
        ("should fix", Severity.MEDIUM),
        ("moderate", Severity.MEDIUM),
        ("minor", Severity.LOW),
        ("nit", Severity.LOW),
        ("HIGH (P1)", Severity.HIGH),
        ("P1 - high", Severity.HIGH),
        ("1 (high)", Severity.HIGH),
        ("Severity: high", Severity.HIGH),
        ("**HIGH**", Severity.HIGH),
        ("🔴 Critical!", Severity.CRITICAL),
        ("medium-high", Severity.HIGH),
        ("P0/P1", Severity.CRITICAL),
        (1.0, Severity.HIGH),
    ],
)
def test_other_names_and_decoration_are_understood(stated: object, severity: Severity) -> None:
    assert stated_severity(stated) is severity


@each(
    "stated",
    [
        "banana",
        "not critical",
        "non-critical",
        "very high",
        "critical|high|medium|low",
        "high|medium",
        "low to critical",
        "error, warning or suggestion",
        "8/10",
        "high 8.5",
        "1.0",
        "P4",
        "",
        "!!",
        "high " * 40,
        1.5,
        True,
        None,
        ["high"],
    ],
)
def test_what_leaves_a_doubt_is_no_severity(stated: object) -> None:
    with pytest.raises(ValueError, match="not a severity"):
        stated_severity(stated)
