"""From a review to the baseline: which findings are meant, what is kept of them, and which entries are used."""

from __future__ import annotations

import io
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.baseline import Baseline, BaselineEntry, EntryState
from codeloupe.model.finding import FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import ReviewError
from codeloupe.reports.json_v1 import render_json
from codeloupe.store.baseline_findings import (
    Acceptance,
    ReviewedFindings,
    all_open,
    chosen,
    entry_for,
    findings_of,
    read_report,
    standings,
    to_prune,
)
from tests.rows import each
from tests.unit.reports.examples import review
from tests.unit.store.baseline_samples import ONE, TODAY, TWO, entry, finding

TERMS = Acceptance(reason="legacy", owner="me", expires=date(2031, 1, 1))
NEAR = "1111111199"
REVIEWED = ReviewedFindings(
    "the review", (finding(ONE), finding(TWO, file="b.py", line_start=9), finding(NEAR, line_start=4), finding(""))
)


@each(
    ("word", "message", "hint"),
    [
        ("22222", "'22222' is neither a fingerprint (6 or more of 0-9 and a-f)", "its findings are"),
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


@each(
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


def test_a_finding_is_named_by_fingerprint_or_place_and_its_entry_can_be_written_without_a_secret() -> None:
    found = chosen(REVIEWED, ["222222", TWO.upper(), "11111111a"])
    assert [each.fingerprint for each in found] == [TWO, ONE]
    assert [each.fingerprint for each in chosen(REVIEWED, ["b.py:9", "a.py:4"])] == [TWO, NEAR]
    with pytest.raises(UsageError) as caught:
        chosen(ReviewedFindings("it", ()), ["abcdef"])
    assert caught.value.hint == "that review has no finding that counts"
    token = "ghp_" + "a1B2" * 9
    kept = entry_for(finding(evidence=f"connect({token})", file="caf\udce9.py"), TERMS)
    assert token not in kept.evidence
    assert kept.file == "caf\\xe9.py"


ASIDE = Suppression(kind=SuppressionKind.BASELINE, reason="legacy")


def document(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render_json(review(finding(fingerprint="aa11"), complete=False)))
    return {**loaded, **changes}


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "report.json"
    path.write_text(content)
    return path


def test_a_report_gives_what_the_review_itself_gives(tmp_path: Path) -> None:
    made = review(
        finding(fingerprint="aa11", file="caf\udce9.py"),
        finding(fingerprint="bb22", suppression=ASIDE),
        finding(fingerprint="cc33", status=FindingStatus.REFUTED),
        errors=(ReviewError("baseline_unused", "old"),),
    )
    told = read_report(written(tmp_path, render_json(made)))
    direct = findings_of(made, name=told.name)
    assert [each.fingerprint for each in told.findings] == ["aa11", "bb22", "cc33"]
    assert [(each.file, each.is_open, each.evidence, each.title) for each in told.findings] == [
        (each.file, each.is_open, each.evidence, each.title) for each in direct.findings
    ]
    assert (told.errors, told.complete) == (direct.errors, True)
    assert told.findings[1].suppression is not None
    assert told.findings[1].suppression.kind is SuppressionKind.BASELINE


def test_a_report_of_an_earlier_or_later_version_or_from_standard_input_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, later = document(), document()
    del old["findings"][0]["suppression"]
    found = read_report(written(tmp_path, json.dumps(old)))
    assert found.findings[0].is_open
    assert not found.complete
    later["findings"][0]["status"] = "postponed"
    with pytest.raises(UsageError, match="of version 1 .*'postponed'"):
        read_report(written(tmp_path, json.dumps(later)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(document()).encode())))
    assert len(read_report(Path("-")).findings) == 1


@each(
    ("content", "message"),
    [
        ("not json", "is not a JSON report"),
        ("[" * 100_000, "is not a JSON report"),
        ("[]", "is not a JSON report of version 1"),
        ("{}", "is not a JSON report of version 1"),
        (json.dumps(document(schema_version=2)), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{}])), "is not a JSON report of version 1"),
        (json.dumps(document(errors=["x"])), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "severity": "huge"}])), "of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "line_start": "x"}])), "of version 1"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_report(written(tmp_path, content))
    assert "--format json" in caught.value.hint


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the report .*: no such file"):
        read_report(tmp_path / "gone")
    with pytest.raises(UsageError, match="is a directory"):
        read_report(tmp_path)


THREE = "33333333cccc22223333444455556666"
USED = Suppression(kind=SuppressionKind.BASELINE, reason="x")
INLINE = Suppression(kind=SuppressionKind.INLINE, reason="x")


def states(*entries: BaselineEntry, reviewed: ReviewedFindings | None = None) -> list[EntryState]:
    return [each.state for each in standings(Baseline(entries), reviewed, today=TODAY)]


def test_without_a_review_only_what_has_expired_is_known() -> None:
    entries = entry(expires=date(2030, 6, 14)), entry(TWO, expires=TODAY), entry(THREE)
    assert states(*entries) == [EntryState.EXPIRED, EntryState.UNSEEN, EntryState.UNSEEN]


def test_a_review_tells_what_is_used_and_what_is_not() -> None:
    unused = ReviewError(
        "baseline_unused", f"x: 1 entry fits nothing in a.py any more: {entry(TWO, line=7).in_short()}; y"
    )
    reviewed = ReviewedFindings("it", (finding(ONE, suppression=USED), finding(THREE, suppression=INLINE)), (unused,))
    found = states(entry(ONE), entry(TWO), entry(THREE), reviewed=reviewed)
    assert found == [EntryState.USED, EntryState.UNUSED, EntryState.UNSEEN]


def test_an_entry_is_used_only_by_a_finding_and_unused_only_by_the_word_for_that() -> None:
    # One that was added after the review is used if its finding is still there.
    reviewed = ReviewedFindings("it", (finding(ONE), replace(finding(TWO), status=FindingStatus.FIXED)))
    assert states(entry(ONE), entry(TWO), reviewed=reviewed) == [EntryState.USED, EntryState.UNSEEN]
    for kind in ("baseline_expired", "not_reviewed"):
        told = ReviewError(kind, f"x: {entry(TWO, line=7).in_short()}")
        assert states(entry(TWO), reviewed=ReviewedFindings("it", (), (told,))) == [EntryState.UNSEEN]


def test_what_has_expired_or_is_unused_is_pruned() -> None:
    told = ReviewError("baseline_unused", entry(TWO, line=7).in_short())
    baseline = Baseline((entry(ONE), entry(TWO), entry(THREE, expires=date(2000, 1, 1))))
    gone = to_prune(standings(baseline, ReviewedFindings("it", (), (told,)), today=TODAY))
    assert [each.entry.fingerprint for each in gone] == [TWO, THREE]
