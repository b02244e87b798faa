from __future__ import annotations

from typing import Any

from junitparser import Error, Failure, Skipped

from codeloupe.model.finding import Severity
from codeloupe.model.review import Policy, Review
from codeloupe.reports.junit import render_junit
from tests.report_documents import check_junit
from tests.rows import each
from tests.telling_reviews import (
    empty_review,
    hostile_review,
    incomplete_review,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review


def cases(whole: Review) -> dict[str, list[Any]]:
    suites = check_junit(render_junit(whole))
    return {case.name: case.result for suite in suites for case in suite}


def kind_of(results: list[Any]) -> type[Any] | None:
    return type(results[0]) if results else None


@each("whole", [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()])
def test_every_review_is_xml_whose_counts_hold(whole: Review) -> None:
    check_junit(render_junit(whole))


def test_an_empty_review_is_one_test_that_passed() -> None:
    assert cases(empty_review()) == {"verdict": []}


def test_each_finding_is_told_by_what_it_counts_for() -> None:
    told = {
        name.partition(": ")[2].partition(" (line")[0]: kind_of(result)
        for name, result in cases(telling_review(complete=True)).items()
    }

    assert told["Blocks"] is Failure
    assert told["Stays"] is Failure
    assert told["Is back"] is Failure
    assert told["Could be better"] is None
    assert told["Is a nit"] is None
    assert told["Is nowhere"] is Skipped
    for title in ("Was wrong", "Is accepted", "Is waved", "Was dismissed", "Was fixed"):
        assert told[title] is Skipped


def test_what_blocks_depends_on_the_policy() -> None:
    medium = finding(severity=Severity.MEDIUM)

    assert kind_of(cases(review(medium))["medium S608: Statement is built from a variable (line 42)"]) is None
    strict = review(medium, policy=Policy(fail_on=Severity.MEDIUM))
    assert kind_of(cases(strict)["medium S608: Statement is built from a variable (line 42)"]) is Failure


def test_what_could_not_be_reviewed_is_an_error_and_what_was_left_out_is_skipped() -> None:
    told = cases(incomplete_review())

    assert kind_of(told["not reviewed: app/slow.py#2"]) is Error
    assert told["not reviewed: app/slow.py#2"][0].message == "timeout after 300 s"
    assert kind_of(told["not reviewed: data/dump.sql"]) is Error
    assert kind_of(told["left out: poetry.lock"]) is Skipped
    assert told["left out: poetry.lock"][0].message == "lock file"


def test_an_incomplete_review_without_a_named_gap_is_an_error() -> None:
    told = cases(review(complete=False, exit_code=3))

    assert kind_of(told["not reviewed: the review"]) is Error


def test_findings_that_block_and_are_hidden_fail_the_verdict() -> None:
    told = cases(review(exit_code=1, hidden_findings=1))

    assert kind_of(told["verdict"]) is Failure
    assert "hidden by min_severity" in told["verdict"][0].message


def test_a_failure_says_where_why_and_how_to_mend_it() -> None:
    told = cases(review(finding()))

    (failure,) = told["high S608: Statement is built from a variable (line 42)"]
    assert failure.type == "high P1"
    assert failure.text.startswith("app/db.py:42: Statement is built from a variable\n")
    assert "    cursor.execute(query + name)" in failure.text
    assert "Fix: Pass the value as a parameter." in failure.text


def test_there_is_one_suite_for_each_file() -> None:
    suites = check_junit(render_junit(review(finding(), finding(file="b.py"), unplaced_finding(file=""))))

    assert [suite.name for suite in suites] == ["codeloupe", "?", "app/db.py", "b.py"]


def test_no_character_that_xml_forbids_is_left() -> None:
    text = render_junit(hostile_review())

    assert not [character for character in text if ord(character) < 32 and character not in "\n\t"]
    assert "\ufffe" not in text
