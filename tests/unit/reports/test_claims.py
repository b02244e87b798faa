"""Claims, pending findings, statuses and failovers, as each format shows them."""

import json
from typing import Any

import pytest

from codeloupe.model.finding import Finding, FindingStatus, Proof, Severity, Suppression, SuppressionKind
from codeloupe.model.review import FAILOVER, Coverage, Level, Review, ReviewError, Unanswered, UnitRecord
from codeloupe.reports import FORMATS, Layout, render
from codeloupe.reports.wording import counts_text, failovers_of, notes_of, status_text, why_not_counted
from tests.findings_material import make_claim
from tests.html_page import read_page
from tests.rows import each
from tests.telling_reviews import UNITS, joined_finding, pending_finding
from tests.unit.reports.examples import finding, review


def shown(whole: Review, name: str) -> str:
    text = render(whole, name, Layout(width=200))
    return read_page(text).text if name == "html" else text


# The other formats are lists with a line or a field for each finding.
@each("name", ["text", "markdown", "html", "junit", "sarif", "github", "rdjson"])
def test_each_further_claim_is_shown_with_its_reporter_severity_and_proof(name: str) -> None:
    text = shown(review(joined_finding()), name)
    assert "high by codex, confirmed: name is not checked" in text
    assert "medium by gate" in text
    assert "high by ruff" not in text


def test_json_has_all_claims() -> None:
    (document,) = json.loads(render(review(joined_finding()), "json", Layout()))["findings"]
    told = [(one["reporter"], one["source"], one["severity"], one["proof"]) for one in document["claims"]]
    assert told == [
        ("ruff", "analyser", "high", None),
        ("codex", "agent", "high", "confirmed"),
        ("gate", "external", "medium", None),
    ]
    assert document["counts"] is True
    assert document["is_pending"] is False


@each("name", FORMATS)
def test_a_pending_finding_says_why_it_needs_a_person(name: str) -> None:
    text = shown(review(pending_finding(), complete=False, exit_code=3), name)
    assert "a high claim could not be verified" in text or name == "json"
    assert "eeds a person" in text or name == "json"
    assert "Is open to doubt" in text


def test_a_confirmed_claim_without_a_place_needs_a_person() -> None:
    doubtful = pending_finding(anchored=False, proof=Proof.CONFIRMED, reason="it is reached")
    text = shown(review(doubtful, complete=False, exit_code=3), "text")
    assert "a high claim was confirmed, but its code was not found" in text


def test_a_finding_that_counts_and_is_pending_is_counted_as_both() -> None:
    both = pending_finding(counts=True, severity=Severity.MEDIUM)
    assert counts_text(review(both)) == "1 medium; 1 needs a person"
    assert counts_text(review(pending_finding())) == "none; 1 needs a person"


@each("name", ["text", "markdown", "html", "junit", "sarif"])
def test_a_silenced_finding_names_its_comment(name: str) -> None:
    silenced = finding(status=FindingStatus.SILENCED, silenced_by="# noqa: S608")
    text = shown(review(silenced, exit_code=0), name).replace("\\", "")
    assert "silenced by a comment in the code: # noqa: S608" in text


@each(
    ("changes", "words"),
    [
        ({"status": FindingStatus.FIXED}, "fixed"),
        ({"status": FindingStatus.SILENCED}, "silenced by a comment in the code"),
        (
            {"status": FindingStatus.GONE},
            "gone: its file is no longer reviewed",
        ),
        ({"status": FindingStatus.REFUTED}, "refuted"),
        ({"status": FindingStatus.UNPROVEN, "proof": Proof.UNPROVEN, "reason": "not shown"}, "unproven: not shown"),
        (
            {
                "status": FindingStatus.DISMISSED,
                "suppression": Suppression(kind=SuppressionKind.DISMISSAL, reason="only in tests", owner="ada"),
            },
            "dismissed: only in tests, ada",
        ),
    ],
)
def test_a_closed_finding_says_why_it_does_not_count(changes: dict[str, Any], words: str) -> None:
    assert why_not_counted(finding(**changes)) == words


@pytest.mark.parametrize("status", [FindingStatus.OPEN, FindingStatus.REGRESSED])
@each("name", ["text", "markdown", "html", "junit", "github", "rdjson"])
def test_an_open_finding_of_an_earlier_review_says_so(name: str, status: FindingStatus) -> None:
    assert status_text(finding(status=status)) in shown(review(finding(status=status)), name)


@each("name", ["text", "markdown", "html", "json", "junit", "sarif"])
def test_a_failover_names_who_answered_and_why_others_did_not(name: str) -> None:
    whole = review(coverage=Coverage(files_total=3, files_reviewed=3, units_total=4, units=UNITS))
    text = shown(whole, name).replace("\\", "")
    for words in ("codex", "gpt", "agent_sdk", "its quota ended", "timeout after 300 s", "app/db.py", "app/api.py"):
        assert words in text


def test_units_with_the_same_failover_are_one_entry_and_first_answers_are_none() -> None:
    quota = "not answered by agent_sdk: its quota ended"
    told = [(one.name, one.units, one.why) for one in failovers_of(review(coverage=Coverage(units=UNITS)))]
    assert told == [
        (
            "2 units",
            ("app/db.py", "app/api.py"),
            f"answered by codex with gpt; {quota}",
        ),
        (
            "app/slow.py#2",
            ("app/slow.py#2",),
            f"answered by no agent; {quota}; not answered by codex: timeout after 300 s",
        ),
    ]


def test_a_unit_that_its_only_agent_did_not_answer_is_a_gap_and_no_failover() -> None:
    alone = UnitRecord(unit="a.py", files=("a.py",), unanswered=(Unanswered("codex", "timeout"),))
    assert failovers_of(review(coverage=Coverage(units=(alone,)))) == []


def test_the_error_of_a_failover_is_not_told_twice() -> None:
    error = ReviewError(FAILOVER, "codex answered app/db.py", level=Level.NOTE)
    assert notes_of(review(errors=(error,), coverage=Coverage(units=UNITS))) == []
    assert len(notes_of(review(errors=(error,)))) == 1


def test_the_rule_of_a_finding_is_that_of_its_analyser() -> None:
    main = finding(reporter="codex", rule=None)
    rule = make_claim(reporter="ruff", rule="S608", rule_title="Hardcoded sql expression", file=main.file)
    both = Finding(claims=(*main.claims, rule), severity=Severity.HIGH)
    document = json.loads(render(review(both), "sarif", Layout()))
    (told,) = document["runs"][0]["tool"]["driver"]["rules"]
    assert told["shortDescription"]["text"] == "Hardcoded sql expression"
