from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import Policy, Review
from codeloupe.reports.sarif import render_sarif
from tests.report_documents import check_sarif
from tests.rows import each
from tests.telling_reviews import (
    HOSTILE,
    ODD_PATH,
    closed_findings,
    empty_review,
    hostile_review,
    incomplete_review,
    open_findings,
    passed_review,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review


def results(*findings: Any) -> list[Any]:
    return list(check_sarif(render_sarif(review(*findings)))["results"])


def invocation(whole: Review) -> Any:
    (only,) = check_sarif(render_sarif(whole))["invocations"]
    return only


@each("whole", [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()])
def test_every_review_is_a_log_that_the_schema_of_the_standard_accepts(whole: Review) -> None:
    run = check_sarif(render_sarif(whole))

    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert len({rule["id"] for rule in rules}) == len(rules)
    known = {kind["id"] for kind in run["tool"]["driver"]["notifications"]}
    assert {told["descriptor"]["id"] for told in run["invocations"][0]["toolExecutionNotifications"]} <= known


@each(("severity", "level"), [("CRITICAL", "error"), ("HIGH", "error"), ("MEDIUM", "warning"), ("LOW", "note")])
def test_the_level_follows_the_severity(severity: str, level: str) -> None:
    (result,) = results(finding(severity=Severity[severity]))

    assert result["level"] == level


def test_a_worse_finding_ranks_higher_and_agreement_breaks_ties() -> None:
    ranks = [
        result["rank"]
        for result in results(
            finding(severity=Severity.CRITICAL),
            finding(severity=Severity.HIGH, agreement=99),
            finding(severity=Severity.HIGH),
            finding(severity=Severity.LOW),
        )
    ]

    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 4
    assert all(0 <= rank <= 100 for rank in ranks)


def test_a_finding_has_its_place_its_code_and_its_fingerprint() -> None:
    (result,) = results(finding(fingerprint="f-1", line_start=4, line_end=6, evidence="a\n\tb\nc"))

    (place,) = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "app/db.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 4, "endLine": 6, "snippet": {"text": "a\n\tb\nc"}},
    }
    assert result["partialFingerprints"] == {"codeloupeFingerprint/v1": "f-1"}


@each("path", [ODD_PATH, "100%.py", "a:b.py", "c\\d.py", "%41.py", "q?x=1#y.py", " lead.py"])
def test_any_path_is_a_relative_address_that_leads_back_to_its_bytes(path: str) -> None:
    (result,) = results(finding(file=path))

    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert not set(uri) & set(' :?#\\"<>')
    assert unquote_to_bytes(uri) == path.encode("utf-8", "surrogateescape")


def test_a_finding_without_a_place_has_no_region_and_is_a_note() -> None:
    (result,) = results(unplaced_finding(severity=Severity.CRITICAL))

    assert "region" not in result["locations"][0]["physicalLocation"]
    assert result["level"] == "note"
    assert "could not be placed" in result["message"]["text"]
    assert result["properties"]["severity"] == "critical"


@each("path", ["", "/etc/passwd", "../up.py", "a/../../up.py"])
def test_a_finding_that_names_no_file_of_the_repository_is_told_beside_the_results(path: str) -> None:
    run = check_sarif(render_sarif(review(unplaced_finding(file=path, severity=Severity.LOW))))

    assert run["results"] == []
    (told,) = run["invocations"][0]["toolExecutionNotifications"]
    assert told["descriptor"]["id"] == "finding-without-file"
    assert "Is nowhere" in told["message"]["text"]


def test_what_counts_for_nothing_is_suppressed_with_the_reason() -> None:
    told = {
        result["message"]["text"].split("\n")[0]: result["suppressions"][0] for result in results(*closed_findings())
    }

    assert told["Was wrong"]["justification"] == "refuted: it is checked above"
    assert told["Is accepted"] == {
        "kind": "external",
        "status": "accepted",
        "justification": "suppressed by the baseline: known since spring, the team, until 2030-01-02",
    }
    assert told["Is waved"]["kind"] == "inSource"
    assert {kind["kind"] for title, kind in told.items() if title != "Is waved"} == {"external"}
    assert len(told) == 5


def test_what_counts_is_not_suppressed() -> None:
    assert not any("suppressions" in result for result in results(*open_findings(), unplaced_finding()))


def test_the_state_to_an_earlier_review_is_told_for_all_or_for_none() -> None:
    without = results(finding(), finding(status=FindingStatus.REFUTED))
    compared = results(*open_findings(), *closed_findings())

    assert not any("baselineState" in result for result in without)
    assert [result["baselineState"] for result in compared] == [
        *("new", "unchanged", "new", "new", "new"),
        *("new", "new", "new", "unchanged", "absent"),
    ]


def test_an_exact_replacement_is_a_fix_of_whole_lines() -> None:
    (result,) = results(finding(suggestion="```python\n    cursor.execute(query, name)\n```"))

    ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
    assert change["artifactLocation"]["uri"] == "app/db.py"
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 42, "endLine": 42},
            "insertedContent": {"text": "    cursor.execute(query, name)"},
        }
    ]
    assert "Fix:" not in result["message"]["text"]


def test_advice_in_words_is_part_of_the_message_and_no_fix() -> None:
    (result,) = results(finding(suggestion="Pass the value as a parameter."))

    assert "fixes" not in result
    assert result["message"]["text"].endswith("Fix: Pass the value as a parameter.")


def test_a_whole_review_ran_well() -> None:
    assert invocation(passed_review()) == {
        "executionSuccessful": True,
        "exitCode": 0,
        "exitCodeDescription": "nothing found",
        "toolExecutionNotifications": [],
    }


def test_a_review_with_findings_ran_well_too() -> None:
    assert invocation(review(finding()))["executionSuccessful"] is True


def test_an_incomplete_review_did_not_run_well_and_says_what_is_missing() -> None:
    told = invocation(telling_review())

    assert told["executionSuccessful"] is False
    by_kind = {note["descriptor"]["id"]: note for note in told["toolExecutionNotifications"]}
    assert by_kind["unit-failed"]["level"] == "error"
    assert by_kind["unit-failed"]["message"]["text"] == "app/slow.py#2: timeout after 300 s"
    assert by_kind["unit-failed"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "app/slow.py"
    assert by_kind["file-not-reviewed"]["level"] == "error"
    assert by_kind["problem"]["message"]["text"] == "history: is not writable"
    assert by_kind["file-left-out"]["level"] == "note"


def test_an_incomplete_review_without_a_named_gap_still_says_so() -> None:
    told = invocation(review(complete=False, exit_code=3))

    assert told["executionSuccessful"] is False
    assert [note["descriptor"]["id"] for note in told["toolExecutionNotifications"]] == ["incomplete"]


def test_an_incomplete_review_that_may_pass_did_not_run_well_either() -> None:
    told = invocation(incomplete_review(policy=Policy(pass_when_incomplete=True)))

    assert told["executionSuccessful"] is False


def test_words_in_a_message_make_no_link() -> None:
    (result,) = results(finding(title="[click](http://evil.test)", body=HOSTILE))

    assert "](" not in result["message"]["text"]


def test_a_name_that_a_model_chose_is_a_plain_rule() -> None:
    run = check_sarif(
        render_sarif(review(finding(rule=None, category="Größe / $(x) </b>"), finding(rule="", category="")))
    )

    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["Gr--e-/---x---/b", "general"]


def test_only_security_has_a_security_severity() -> None:
    run = check_sarif(
        render_sarif(review(finding(severity=Severity.CRITICAL), finding(rule="B1", category="style"), finding()))
    )

    severities = {rule["id"]: rule["properties"].get("security-severity") for rule in run["tool"]["driver"]["rules"]}
    assert severities == {"S608": "9.5", "B1": None}


def test_numbers_beyond_reason_stay_within_the_standard() -> None:
    (result,) = results(finding(line_start=2**40, line_end=2**41, confidence=float("nan"), agreement=-3))

    assert "region" not in result["locations"][0]["physicalLocation"]
    assert "confidence" not in result["properties"]
