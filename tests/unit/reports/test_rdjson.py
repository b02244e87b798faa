from __future__ import annotations

import json

from codeloupe.model.finding import Severity
from codeloupe.model.review import Policy, Review
from codeloupe.reports.rdjson import render_rdjson, render_rdjsonl
from tests.report_documents import check_rdjson, check_rdjsonl
from tests.rows import each
from tests.telling_reviews import (
    HOSTILE,
    closed_findings,
    empty_review,
    hostile_review,
    incomplete_review,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review

EVERY = [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()]


@each("whole", EVERY)
def test_every_review_is_a_document_of_reviewdogs_format(whole: Review) -> None:
    check_rdjson(render_rdjson(whole))


@each("whole", EVERY)
def test_the_stream_holds_the_same_diagnostics_one_a_line(whole: Review) -> None:
    lines = check_rdjsonl(render_rdjsonl(whole))

    without_source = [{key: value for key, value in line.items() if key != "source"} for line in lines]
    assert without_source == json.loads(render_rdjson(whole))["diagnostics"]


def test_nothing_found_is_a_document_without_diagnostics_and_an_empty_stream() -> None:
    assert check_rdjson(render_rdjson(passed_review())) == {
        "source": {"name": "codeloupe"},
        "severity": "INFO",
        "diagnostics": [],
    }
    assert render_rdjsonl(passed_review()) == ""


@each(("severity", "word"), [("CRITICAL", "ERROR"), ("HIGH", "ERROR"), ("MEDIUM", "WARNING"), ("LOW", "INFO")])
def test_the_severity_is_one_of_reviewdogs(severity: str, word: str) -> None:
    document = check_rdjson(render_rdjson(review(finding(severity=Severity[severity]))))

    assert document["diagnostics"][0]["severity"] == word
    assert document["severity"] == word


def test_a_finding_has_its_whole_lines_its_rule_and_its_advice() -> None:
    (told,) = check_rdjson(render_rdjson(review(finding(line_end=44))))["diagnostics"]

    assert told["location"] == {"path": "app/db.py", "range": {"start": {"line": 42}, "end": {"line": 44}}}
    assert told["code"] == {"value": "S608"}
    assert told["message"].startswith("Statement is built from a variable (high)\n\n")
    assert told["message"].endswith("Fix:\nPass the value as a parameter.")
    assert "suggestions" not in told


def test_an_exact_replacement_is_a_suggestion() -> None:
    (told,) = check_rdjson(
        render_rdjson(review(finding(suggestion="```suggestion\n    cursor.execute(query, name)\n```")))
    )["diagnostics"]

    assert told["suggestions"] == [
        {"range": {"start": {"line": 42}, "end": {"line": 42}}, "text": "    cursor.execute(query, name)"}
    ]
    assert "Fix" not in told["message"]


def test_a_finding_without_a_place_has_no_range_and_is_information() -> None:
    (told,) = check_rdjson(render_rdjson(review(unplaced_finding(severity=Severity.LOW))))["diagnostics"]
    (grave,) = check_rdjson(render_rdjson(review(unplaced_finding())))["diagnostics"]

    assert told["location"] == {"path": "app/db.py"}
    assert (told["severity"], grave["severity"]) == ("INFO", "ERROR")
    assert "could not be placed" in told["message"]


def test_what_counts_for_nothing_is_left_out() -> None:
    assert check_rdjson(render_rdjson(review(*closed_findings())))["diagnostics"] == []


@each(("may_pass", "severity"), [(False, "ERROR"), (True, "WARNING")])
def test_what_could_not_be_reviewed_is_a_diagnostic(may_pass: bool, severity: str) -> None:
    whole = incomplete_review(policy=Policy(pass_when_incomplete=may_pass))
    told = check_rdjson(render_rdjson(whole))["diagnostics"]

    assert [(one["location"]["path"], one["severity"]) for one in told] == [
        ("app/slow.py", severity),
        ("data/dump.sql", severity),
    ]
    assert told[0]["message"].startswith("Not reviewed: app/slow.py")


def test_messages_are_safe_as_markdown() -> None:
    (told,) = check_rdjson(render_rdjson(review(finding(title=HOSTILE, body=HOSTILE))))["diagnostics"]

    assert "<svg" not in told["message"]
    assert "](" not in told["message"].replace("\\](", "")
    assert " @everyone" not in told["message"]


def test_a_line_beyond_32_bits_is_kept_within_them() -> None:
    (told,) = check_rdjson(render_rdjson(review(finding(line_start=2**40, line_end=2**50))))["diagnostics"]

    assert told["location"]["range"]["end"]["line"] == 2**31 - 1
