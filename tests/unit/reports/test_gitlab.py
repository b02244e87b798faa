from __future__ import annotations

from codeloupe.model.finding import Severity
from codeloupe.model.review import Review
from codeloupe.reports.gitlab import render_gitlab
from tests.report_documents import check_gitlab
from tests.rows import each
from tests.telling_reviews import (
    closed_findings,
    empty_review,
    hostile_review,
    incomplete_review,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review


@each("whole", [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()])
def test_every_review_is_a_report_that_gitlab_reads(whole: Review) -> None:
    check_gitlab(render_gitlab(whole))


@each("whole", [passed_review(), empty_review()])
def test_a_review_with_nothing_to_tell_is_an_empty_list(whole: Review) -> None:
    assert render_gitlab(whole) == "[]\n"


def test_a_finding_has_exactly_the_fields_of_the_format() -> None:
    (issue,) = check_gitlab(render_gitlab(review(finding(fingerprint="f-1"))))

    assert issue == {
        "description": "Statement is built from a variable",
        "check_name": "S608",
        "fingerprint": "f-1",
        "severity": "critical",
        "location": {"path": "app/db.py", "lines": {"begin": 42}},
    }


@each(("severity", "word"), [("CRITICAL", "blocker"), ("HIGH", "critical"), ("MEDIUM", "major"), ("LOW", "minor")])
def test_the_severity_is_one_of_gitlabs(severity: str, word: str) -> None:
    (issue,) = check_gitlab(render_gitlab(review(finding(severity=Severity[severity]))))

    assert issue["severity"] == word


def test_what_counts_for_nothing_is_left_out() -> None:
    assert check_gitlab(render_gitlab(review(*closed_findings()))) == []


def test_a_finding_without_a_place_is_about_the_repository_and_names_its_file() -> None:
    (issue,) = check_gitlab(render_gitlab(review(unplaced_finding(severity=Severity.LOW))))
    (grave,) = check_gitlab(render_gitlab(review(unplaced_finding(severity=Severity.CRITICAL))))

    assert (issue["severity"], grave["severity"]) == ("info", "blocker")
    assert issue["location"] == grave["location"] == {"path": ".", "lines": {"begin": 1}}
    assert "could not be placed in the code in app/db.py" in issue["description"]


def test_a_path_outside_of_the_repository_is_only_words() -> None:
    (issue,) = check_gitlab(render_gitlab(review(unplaced_finding(file="../../etc/passwd"))))

    assert issue["location"]["path"] == "."
    assert "../../etc/passwd" in issue["description"]


def test_what_could_not_be_reviewed_is_an_issue_of_its_file() -> None:
    issues = check_gitlab(render_gitlab(incomplete_review()))

    assert [(issue["location"]["path"], issue["severity"]) for issue in issues] == [
        ("app/slow.py", "critical"),
        ("data/dump.sql", "critical"),
    ]
    assert issues[0]["description"] == "Not reviewed: app/slow.py#2: timeout after 300 s"


def test_an_incomplete_review_without_a_named_gap_is_not_an_empty_list() -> None:
    (issue,) = check_gitlab(render_gitlab(review(complete=False, exit_code=3)))

    assert issue["check_name"] == "codeloupe/incomplete"


def test_findings_that_share_a_fingerprint_or_have_none_are_told_apart() -> None:
    same = [finding(fingerprint="f"), finding(fingerprint="f"), finding(), finding(), finding(file="b.py")]

    assert len(check_gitlab(render_gitlab(review(*same)))) == 5
    assert render_gitlab(review(*same)) == render_gitlab(review(*same))
