from __future__ import annotations

from datetime import date

import pytest

from codeloupe.errors import UsageError
from codeloupe.model.baseline import BaselineEntry, Suppression, SuppressionKind
from codeloupe.model.finding import FindingStatus
from codeloupe.model.severity import Severity
from codeloupe.store.baseline_findings import Acceptance, ReviewedFindings, all_open, chosen, entry_for
from tests.rows import rows
from tests.unit.store.baseline.baseline_samples import ONE, TWO, finding

TERMS = Acceptance(reason="legacy", owner="me", expires=date(2031, 1, 1))
NEAR = "1111111199"
REVIEWED = ReviewedFindings(
    "the review", (finding(ONE), finding(TWO, file="b.py", line_start=9), finding(NEAR, line_start=4), finding(""))
)


def test_a_finding_is_named_by_the_beginning_of_its_fingerprint() -> None:
    found = chosen(REVIEWED, ["222222", TWO.upper(), "11111111a"])
    assert [each.fingerprint for each in found] == [TWO, ONE]


def test_a_finding_is_named_by_its_place() -> None:
    assert [each.fingerprint for each in chosen(REVIEWED, ["b.py:9", "a.py:4"])] == [TWO, NEAR]


@rows(
    ("word", "message", "hint"),
    [
        ("22222", "'22222' is too short for a fingerprint", "at least 6 characters"),
        ("abcdef", "no finding of the review is 'abcdef'", "its findings are 11111111aaaa2222 a.py:3 built from text;"),
        ("eval", "'eval' is neither a fingerprint", "its findings are"),
        ("", "'' is neither a fingerprint", "its findings are"),
        ("a.py:99", "no finding of the review is 'a.py:99'", "its findings are"),
        ("a.py:x", "no finding of the review is 'a.py:x'", "its findings are"),
        ("a.py:²", "no finding of the review is 'a.py:²'", "its findings are"),
        (
            "111111",
            "'111111' may be any of these:\n  11111111aaaa2222 a.py:3 built from text\n  1111111199 a.py:4",
            "more",
        ),
    ],
)
def test_a_word_that_names_no_finding_or_several_is_told(word: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(REVIEWED, [word])
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_a_review_without_findings_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(ReviewedFindings("it", ()), ["abcdef"])
    assert caught.value.hint == "that review has no finding that counts"


def test_all_are_those_that_count() -> None:
    aside = Suppression(kind=SuppressionKind.INLINE, reason="x")
    reviewed = ReviewedFindings(
        "it",
        (
            finding("a1"),
            finding("a2", status=FindingStatus.REFUTED),
            finding("a3", suppression=aside),
            finding("a4", status=FindingStatus.OPEN, anchored=False),
            finding("a5", status=FindingStatus.FIXED),
            finding(""),
        ),
    )
    assert [each.fingerprint for each in all_open(reviewed)] == ["a1", "a4"]


def test_an_entry_holds_what_tells_the_finding() -> None:
    assert entry_for(finding(title="built\n from  text"), TERMS) == BaselineEntry(
        fingerprint=ONE,
        file="a.py",
        title="built from text",
        body="why",
        evidence="run(query + name)",
        severity=Severity.HIGH,
        reason="legacy",
        owner="me",
        expires=date(2031, 1, 1),
    )


@rows(
    ("evidence", "kept"),
    [
        ("", ""),
        ("}\n\n  total = price + tax\n", "total = price + tax"),
        ("}\n)", ""),
        ('password = "hunt********"', 'password = "hunt'),
        ("a[redacted]b", ""),
        ("x = [redacted] + other_value", "+ other_value"),
        ("first(part) ... the_rest", "first(part)"),
        ("y" * 500, "y" * 120),
        ("caf\ufffd = broken", ""),
    ],
)
def test_of_the_code_a_piece_is_kept_that_shows_no_secret(evidence: str, kept: str) -> None:
    assert entry_for(finding(evidence=evidence), TERMS).evidence == kept


def test_a_token_in_the_code_is_not_written_into_the_file() -> None:
    token = "ghp_" + "a1B2" * 9
    assert token not in entry_for(finding(evidence=f"connect({token})"), TERMS).evidence


def test_a_path_that_is_not_utf8_can_be_written() -> None:
    assert entry_for(finding(file="caf\udce9.py"), TERMS).file == "caf\\xe9.py"
