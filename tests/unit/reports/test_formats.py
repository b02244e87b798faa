"""Every format: a valid document of its kind that leaves nothing out. Then what each format for programs says."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import pytest
from junitparser import Error, Failure, Skipped

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import Policy, Review, ReviewError
from codeloupe.reports import FORMATS, Layout, render
from tests.report_documents import CHECKS
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
    shown_diff,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review

EDIT = "```suggestion\n    cursor.execute(query, name)\n```"
EVERY = [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()]
# What a format says of a review that is not whole, and of none that is.
INCOMPLETE_MARKS = {
    "text": "INCOMPLETE",
    "concise": "INCOMPLETE",
    "json": '"complete": false',
    "sarif": '"executionSuccessful": false',
    "markdown": "INCOMPLETE",
    "html": "INCOMPLETE",
    "junit": "<error",
    "gitlab-codequality": "Not reviewed",
    "rdjson": "Not reviewed",
    "rdjsonl": "Not reviewed",
    "github": "could not review everything",
}


def read(name: str, whole: Review) -> Any:
    """What a reader of the format makes of a review."""
    return CHECKS[name](render(whole, name, Layout()))


def loaded_by(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


class TestEveryFormat:
    def test_each_is_here(self) -> None:
        assert list(FORMATS) == list(INCOMPLETE_MARKS) == list(CHECKS)

    @each("name", FORMATS)
    @each("whole", EVERY)
    def test_each_takes_every_review_and_ends_its_last_line(self, name: str, whole: Review) -> None:
        text = render(whole, name, Layout())
        CHECKS[name](text)
        assert text.endswith("\n") or (name == "rdjsonl" and not text)
        assert render(whole, name, Layout()) == text

    @each(("name", "mark"), INCOMPLETE_MARKS.items())
    @each(
        "whole",
        [
            incomplete_review(),
            review(complete=False, exit_code=3),
            review(complete=False, exit_code=0, policy=Policy(pass_when_incomplete=True)),
        ],
    )
    def test_an_incomplete_review_looks_incomplete(self, name: str, mark: str, whole: Review) -> None:
        assert mark in render(whole, name, Layout())
        assert mark not in render(passed_review(), name, Layout())

    @each("name", FORMATS)
    def test_an_open_finding_is_there(self, name: str) -> None:
        assert "Statement is built from a variable" in render(review(finding()), name, Layout())

    def test_the_page_shows_the_diff_that_the_layout_brings(self) -> None:
        assert "all of them" in render(review(finding()), "html", Layout(diff=shown_diff()))
        assert "all of them" not in render(review(finding()), "html", Layout())

    @pytest.mark.program
    def test_a_format_loads_when_it_is_asked_for_and_only_text_loads_what_lays_it_out(self) -> None:
        names = "[n for n in sys.modules if n.startswith('codeloupe.reports.')]"
        assert loaded_by(f"import sys, codeloupe.reports; print({names})") == "[]"
        script = (
            "import sys; from tests.unit.reports.examples import *\n"
            "from codeloupe.reports import FORMATS, Layout, render\n"
            "for name in FORMATS:\n    name == 'text' or render(review(finding()), name, Layout())\n"
            "print('rich' in sys.modules)"
        )
        assert loaded_by(script) == "False"

    @each(
        ("name", "words"),
        [
            ("gitlab-codequality", ("blocker", "critical", "major", "minor")),
            ("rdjson", ("ERROR", "ERROR", "WARNING", "INFO")),
            ("sarif", ("error", "error", "warning", "note")),
        ],
    )
    def test_the_severity_is_one_of_its_own(self, name: str, words: tuple[str, ...]) -> None:
        told = [read(name, review(finding(severity=step))) for step in Severity]
        if name == "gitlab-codequality":
            assert tuple(issue["severity"] for (issue,) in told) == words
        elif name == "rdjson":
            assert tuple(one["diagnostics"][0]["severity"] for one in told) == words
            assert tuple(one["severity"] for one in told) == words
        else:
            assert tuple(run["results"][0]["level"] for run in told) == words


@pytest.mark.defect("U2")
def test_in_lines_a_finding_without_a_place_has_no_line_and_gaps_are_lines() -> None:
    prints = "0123456789abcdef" * 2
    low = finding(severity=Severity.LOW, title="Small", fingerprint=prints, rule=None, category="hygiene")
    grave = finding(severity=Severity.CRITICAL, title="Large", anchored=False, fingerprint=prints)
    lines = render(review(findings=(low, grave)), "concise", Layout()).splitlines()
    assert lines[0] == f"{grave.file}: critical: Large [{grave.rule}] (01234567)"
    assert lines[1] == f"{low.file}:{low.line_start}: low: Small [hygiene] (01234567)"
    *gaps, verdict = render(incomplete_review(), "concise", Layout()).splitlines()
    assert any(": not reviewed: " in gap for gap in gaps)
    assert verdict.startswith("INCOMPLETE: ")
    hostile = hostile_review()
    text = render(hostile, "concise", Layout(ascii_only=True))
    assert text.isascii()
    assert len(text.splitlines()) <= len(hostile.findings) + len(hostile.errors) + 10


def issues(whole: Review) -> Any:
    return read("gitlab-codequality", whole)


class TestGitLab:
    def test_a_finding_has_exactly_the_fields_of_the_format(self) -> None:
        assert issues(review(finding(fingerprint="f-1"))) == [
            {
                "description": "Statement is built from a variable",
                "check_name": "S608",
                "fingerprint": "f-1",
                "severity": "critical",
                "location": {"path": "app/db.py", "lines": {"begin": 42}},
            }
        ]

    def test_what_counts_for_nothing_is_left_out(self) -> None:
        assert issues(review(*closed_findings())) == issues(passed_review()) == issues(empty_review()) == []

    def test_a_finding_without_a_place_is_about_the_repository_and_names_its_file(self) -> None:
        (issue,), (grave,), (outside,) = (
            issues(review(unplaced_finding(**changes)))
            for changes in ({"severity": Severity.LOW}, {"severity": Severity.CRITICAL}, {"file": "../../etc/passwd"})
        )
        assert (issue["severity"], grave["severity"]) == ("info", "blocker")
        assert issue["location"] == grave["location"] == outside["location"] == {"path": ".", "lines": {"begin": 1}}
        assert "could not be placed in the code in app/db.py" in issue["description"]
        assert "../../etc/passwd" in outside["description"]

    def test_what_could_not_be_reviewed_is_an_issue_of_its_file(self) -> None:
        told = issues(incomplete_review())
        assert [(issue["location"]["path"], issue["severity"]) for issue in told] == [
            ("app/slow.py", "critical"),
            ("data/dump.sql", "critical"),
        ]
        assert told[0]["description"] == "Not reviewed: app/slow.py#2: timeout after 300 s"
        assert issues(review(complete=False, exit_code=3))[0]["check_name"] == "codeloupe/incomplete"

    def test_findings_that_share_a_fingerprint_or_have_none_are_told_apart(self) -> None:
        same = [finding(fingerprint="f"), finding(fingerprint="f"), finding(), finding(), finding(file="b.py")]
        assert len({issue["fingerprint"] for issue in issues(review(*same))}) == 5


def cases(whole: Review) -> dict[str, list[Any]]:
    return {case.name: case.result for suite in read("junit", whole) for case in suite}


def kind_of(results: list[Any]) -> type[Any] | None:
    return type(results[0]) if results else None


class TestJUnit:
    def test_each_finding_is_told_by_what_it_counts_for(self) -> None:
        told = {
            name.partition(": ")[2].partition(" (line")[0]: kind_of(result)
            for name, result in cases(telling_review(complete=True)).items()
        }
        closed = dict.fromkeys(("Was wrong", "Is accepted", "Is waved", "Was dismissed", "Was fixed"), Skipped)
        failed = dict.fromkeys(("Blocks", "Stays", "Is back"), Failure)
        passed = dict.fromkeys(("Could be better", "Is a nit"))
        assert told.items() >= {**closed, **failed, **passed, "Is nowhere": Skipped}.items()
        assert cases(empty_review()) == {"verdict": []}

    def test_what_blocks_depends_on_the_policy(self) -> None:
        medium, name = finding(severity=Severity.MEDIUM), "medium S608: Statement is built from a variable (line 42)"
        assert kind_of(cases(review(medium))[name]) is None
        assert kind_of(cases(review(medium, policy=Policy(fail_on=Severity.MEDIUM)))[name]) is Failure

    def test_what_could_not_be_reviewed_is_an_error_and_what_was_left_out_is_skipped(self) -> None:
        told = {
            name: (kind_of(results), results[0].message)
            for name, results in cases(incomplete_review()).items()
            if results
        }
        assert told["not reviewed: app/slow.py#2"] == (Error, "timeout after 300 s")
        assert told["not reviewed: data/dump.sql"][0] is Error
        assert told["left out: poetry.lock"] == (Skipped, "lock file")
        assert kind_of(cases(review(complete=False, exit_code=3))["not reviewed: the review"]) is Error

    def test_findings_that_block_and_are_hidden_fail_the_verdict(self) -> None:
        (failure,) = cases(review(exit_code=1, hidden_findings=1))["verdict"]
        assert type(failure) is Failure
        assert "hidden by min_severity" in failure.message

    def test_a_failure_says_where_why_and_how_to_mend_it(self) -> None:
        (failure,) = cases(review(finding()))["high S608: Statement is built from a variable (line 42)"]
        assert failure.type == "high P1"
        assert failure.text.startswith("app/db.py:42: Statement is built from a variable\n")
        assert "    cursor.execute(query + name)" in failure.text
        assert "Fix: Pass the value as a parameter." in failure.text

    def test_there_is_one_suite_for_each_file(self) -> None:
        suites = read("junit", review(finding(), finding(file="b.py"), unplaced_finding(file="")))
        assert [suite.name for suite in suites] == ["codeloupe", "?", "app/db.py", "b.py"]

    def test_no_character_that_xml_forbids_is_left(self) -> None:
        text = render(hostile_review(), "junit", Layout())
        assert not [character for character in text if ord(character) < 32 and character not in "\n\t"]
        assert "\ufffe" not in text


def diagnostics(whole: Review) -> Any:
    return read("rdjson", whole)["diagnostics"]


class TestReviewdog:
    @each("whole", EVERY)
    def test_the_stream_holds_the_same_diagnostics_one_a_line(self, whole: Review) -> None:
        lines = read("rdjsonl", whole)
        assert [{key: value for key, value in line.items() if key != "source"} for line in lines] == diagnostics(whole)

    def test_nothing_found_is_a_document_without_diagnostics_and_an_empty_stream(self) -> None:
        nothing = {"source": {"name": "codeloupe"}, "severity": "INFO", "diagnostics": []}
        assert read("rdjson", passed_review()) == nothing
        assert render(passed_review(), "rdjsonl", Layout()) == ""
        assert diagnostics(review(*closed_findings())) == []

    def test_a_finding_has_its_whole_lines_its_rule_and_its_advice(self) -> None:
        (told,) = diagnostics(review(finding(line_end=44)))
        assert told["location"] == {"path": "app/db.py", "range": {"start": {"line": 42}, "end": {"line": 44}}}
        assert told["code"] == {"value": "S608"}
        assert told["message"].startswith("Statement is built from a variable (high)\n\n")
        assert told["message"].endswith("Fix:\nPass the value as a parameter.")
        assert "suggestions" not in told

    def test_an_exact_replacement_is_a_suggestion(self) -> None:
        (told,) = diagnostics(review(finding(suggestion=EDIT)))
        line = {"start": {"line": 42}, "end": {"line": 42}}
        assert told["suggestions"] == [{"range": line, "text": "    cursor.execute(query, name)"}]
        assert "Fix" not in told["message"]

    def test_a_finding_without_a_place_has_no_range_and_is_information(self) -> None:
        (told,) = diagnostics(review(unplaced_finding(severity=Severity.LOW)))
        (grave,) = diagnostics(review(unplaced_finding()))
        assert told["location"] == {"path": "app/db.py"}
        assert (told["severity"], grave["severity"]) == ("INFO", "ERROR")
        assert "could not be placed" in told["message"]

    @each(("may_pass", "severity"), [(False, "ERROR"), (True, "WARNING")])
    def test_what_could_not_be_reviewed_is_a_diagnostic(self, may_pass: bool, severity: str) -> None:
        told = diagnostics(incomplete_review(policy=Policy(pass_when_incomplete=may_pass)))
        places = [(one["location"]["path"], one["severity"]) for one in told]
        assert places == [("app/slow.py", severity), ("data/dump.sql", severity)]
        assert told[0]["message"].startswith("Not reviewed: app/slow.py")

    def test_messages_are_safe_as_markdown_and_lines_stay_within_32_bits(self) -> None:
        (told,) = diagnostics(review(finding(title=HOSTILE, body=HOSTILE, line_start=2**40, line_end=2**50)))
        assert "<svg" not in told["message"]
        assert "](" not in told["message"].replace("\\](", "")
        assert " @everyone" not in told["message"]
        assert told["location"]["range"]["end"]["line"] == 2**31 - 1


def commands(whole: Review) -> list[tuple[str, dict[str, str], str]]:
    """Level, properties and message of each line, read as the runner reads them."""
    text = render(whole, "github", Layout())
    lines = [re.fullmatch(r"::(error|warning|notice) ([^:]*)::(.*)", line) for line in text[:-1].split("\n")]
    told = []
    for line in lines:
        assert line, text
        pairs = dict(part.split("=", 1) for part in line[2].split(","))
        told.append((line[1], {key: unquote(value) for key, value in pairs.items()}, unquote(line[3])))
    return told


class TestGitHub:
    @each("whole", EVERY)
    def test_there_are_ten_of_a_level_at_most_and_the_last_is_the_verdict(self, whole: Review) -> None:
        levels = [level for level, _, _ in commands(whole)]
        assert all(levels.count(level) <= 10 for level in set(levels))
        assert levels[-1] == "notice"

    @each(("whole", "word"), [(passed_review(), "PASS"), (empty_review(), "Nothing to review")])
    def test_a_review_with_nothing_to_tell_is_one_notice(self, whole: Review, word: str) -> None:
        ((level, properties, message),) = commands(whole)
        assert (level, properties) == ("notice", {"title": f"codeloupe: {word}"})
        assert "Findings: none." in message

    def test_a_finding_that_blocks_is_an_error_at_its_lines(self) -> None:
        told, _ = commands(review(finding(line_end=44)))
        title = "high P1: Statement is built from a variable"
        assert told == (
            "error",
            {"file": "app/db.py", "line": "42", "endLine": "44", "title": title},
            "Whoever controls `name` can read any row.\nFix: Pass the value as a parameter.",
        )

    def test_what_does_not_block_is_no_error(self) -> None:
        whole = review(*(finding(severity=step) for step in Severity), policy=Policy(fail_on=Severity.CRITICAL))
        assert [level for level, _, _ in commands(whole)] == ["error", "warning", "warning", "notice", "notice"]

    def test_a_path_and_a_title_are_escaped_by_the_runners_rules(self) -> None:
        line = render(review(finding(file="a,b:c%.py", title="50%, or: more")), "github", Layout()).split("\n")[0]
        assert "file=a%2Cb%3Ac%25.py," in line
        assert "title=high P1%3A 50%25%2C or%3A more::" in line
        assert commands(review(finding(file="a  b/c .py")))[0][1]["file"] == "a  b/c .py"

    def test_no_text_can_begin_a_command_and_an_endless_one_is_cut(self) -> None:
        body = f"x\n::stop-commands::y\r\n{HOSTILE}"
        text = render(review(finding(title=HOSTILE, body=body, file=ODD_PATH)), "github", Layout())
        assert len(text.splitlines()) == 2
        endless = review(finding(title="t" * 100_000, body="b" * 1_000_000))
        assert len(render(endless, "github", Layout())) < 10_000

    def test_a_finding_without_a_place_is_a_notice_without_a_line(self) -> None:
        (level, properties, message), _ = commands(review(unplaced_finding(severity=Severity.LOW)))
        gap, (grave, _, _), _ = commands(review(unplaced_finding(severity=Severity.CRITICAL)))
        assert (level, grave) == ("notice", "warning")
        assert "app/db.py: a critical claim could not be placed in the code and was not refuted" in gap[2]
        assert properties == {"file": "app/db.py", "title": "low P3: Is nowhere"}
        assert "could not be placed" in message

    def test_what_counts_for_nothing_is_only_counted_and_other_problems_are_warnings(self) -> None:
        ((level, _, message),) = commands(review(*closed_findings(), exit_code=0))
        assert level == "notice"
        assert "1 refuted; 4 set aside" in message
        problem, _ = commands(review(errors=(ReviewError("history", "is not writable"),)))
        assert problem == ("warning", {"title": "codeloupe: history"}, "is not writable")

    @each(("exit_code", "level"), [(3, "error"), (0, "warning")])
    def test_all_gaps_are_told_in_one_annotation_before_everything_else(self, exit_code: int, level: str) -> None:
        may_pass = Policy(pass_when_incomplete=not exit_code)
        gaps = incomplete_review().coverage
        told = commands(review(complete=False, exit_code=exit_code, coverage=gaps, policy=may_pass))
        assert told[0] == (
            level,
            {"title": "codeloupe could not review everything"},
            "app/slow.py#2: timeout after 300 s\ndata/dump.sql: too large: 4 MB, the limit is 1 MB",
        )
        assert told[-1][1]["title"] == "codeloupe: INCOMPLETE"

    def test_of_each_level_the_ten_worst_are_shown_and_the_rest_is_counted(self) -> None:
        nits = [finding(severity=Severity.LOW, title=f"nit {number}") for number in range(30)]
        blocking = [finding(title=f"bad {number:02}") for number in range(15)]
        told = commands(review(*nits, *blocking, finding(severity=Severity.CRITICAL, title="worst", file="z.py")))
        levels = [level for level, _, _ in told]
        assert (levels.count("error"), levels.count("notice")) == (10, 10)
        assert told[0][1]["title"] == "critical P0: worst"
        assert "6 more of level error, 21 more of level notice" in told[-1][2]


def results(*findings: Finding) -> list[Any]:
    return list(read("sarif", review(*findings))["results"])


def rules(*findings: Finding) -> list[Any]:
    return list(read("sarif", review(*findings))["tool"]["driver"]["rules"])


def invocation(whole: Review) -> Any:
    (only,) = read("sarif", whole)["invocations"]
    return only


class TestSarif:
    @each("whole", EVERY)
    def test_rules_and_notifications_are_declared(self, whole: Review) -> None:
        run = read("sarif", whole)
        declared = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert all(declared[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
        assert len(set(declared)) == len(declared)
        known = {kind["id"] for kind in run["tool"]["driver"]["notifications"]}
        assert {told["descriptor"]["id"] for told in run["invocations"][0]["toolExecutionNotifications"]} <= known

    def test_a_worse_finding_ranks_higher_and_agreement_breaks_ties(self) -> None:
        steps = (Severity.CRITICAL, Severity.HIGH, Severity.HIGH, Severity.LOW)
        told = results(*(finding(severity=step, agreement=99 if at == 1 else 1) for at, step in enumerate(steps)))
        ranks = [result["rank"] for result in told]
        assert ranks == sorted(set(ranks), reverse=True)
        assert all(0 <= rank <= 100 for rank in ranks)

    def test_a_finding_has_its_place_its_code_and_its_fingerprint(self) -> None:
        (result,) = results(finding(fingerprint="f-1", line_start=4, line_end=6, evidence="a\n\tb\nc"))
        (place,) = result["locations"]
        assert place["physicalLocation"] == {
            "artifactLocation": {"uri": "app/db.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 4, "endLine": 6, "snippet": {"text": "a\n\tb\nc"}},
        }
        assert result["partialFingerprints"] == {"codeloupeFingerprint/v1": "f-1"}

    @each("path", [ODD_PATH, "100%.py", "a:b.py", "c\\d.py", "%41.py", "q?x=1#y.py", " lead.py"])
    def test_any_path_is_a_relative_address_that_leads_back_to_its_bytes(self, path: str) -> None:
        (result,) = results(finding(file=path))
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii()
        assert not set(uri) & set(' :?#\\"<>')
        assert unquote_to_bytes(uri) == path.encode("utf-8", "surrogateescape")

    def test_a_finding_without_a_place_has_no_region_and_is_a_note(self) -> None:
        (result,) = results(unplaced_finding(severity=Severity.CRITICAL))
        assert "region" not in result["locations"][0]["physicalLocation"]
        assert (result["level"], result["properties"]["severity"]) == ("note", "critical")
        assert "could not be placed" in result["message"]["text"]

    @each("path", ["", "/etc/passwd", "../up.py", "a/../../up.py"])
    def test_a_finding_that_names_no_file_of_the_repository_is_told_beside_the_results(self, path: str) -> None:
        whole = review(unplaced_finding(file=path, severity=Severity.LOW))
        assert read("sarif", whole)["results"] == []
        (told,) = invocation(whole)["toolExecutionNotifications"]
        assert told["descriptor"]["id"] == "finding-without-file"
        assert "Is nowhere" in told["message"]["text"]

    def test_what_counts_for_nothing_is_suppressed_with_the_reason(self) -> None:
        told = {one["message"]["text"].split("\n")[0]: one["suppressions"][0] for one in results(*closed_findings())}
        assert told["Was wrong"]["justification"] == "refuted: it is checked above"
        assert told["Is accepted"] == {
            "kind": "external",
            "status": "accepted",
            "justification": "suppressed by the baseline: known since spring, the team, until 2030-01-02",
        }
        assert told.pop("Is waved")["kind"] == "inSource"
        assert [one["kind"] for one in told.values()] == ["external"] * 4
        assert not any("suppressions" in result for result in results(*open_findings(), unplaced_finding()))

    def test_the_state_to_an_earlier_review_is_told_for_all_or_for_none(self) -> None:
        without = results(finding(), finding(status=FindingStatus.REFUTED))
        assert not any("baselineState" in result for result in without)
        assert [result["baselineState"] for result in results(*open_findings(), *closed_findings())] == [
            *("new", "unchanged", "new", "new", "new"),
            *("new", "new", "new", "unchanged", "absent"),
        ]

    def test_an_exact_replacement_is_a_fix_of_whole_lines_and_advice_is_none(self) -> None:
        edit, advice = results(finding(suggestion=EDIT), finding(suggestion="Pass the value as a parameter."))
        ((change,),) = [fix["artifactChanges"] for fix in edit["fixes"]]
        assert change["artifactLocation"]["uri"] == "app/db.py"
        lines, text = {"startLine": 42, "endLine": 42}, "    cursor.execute(query, name)"
        assert change["replacements"] == [{"deletedRegion": lines, "insertedContent": {"text": text}}]
        assert "Fix:" not in edit["message"]["text"]
        assert "fixes" not in advice
        assert advice["message"]["text"].endswith("Fix: Pass the value as a parameter.")

    def test_a_whole_review_ran_well_with_findings_too(self) -> None:
        assert invocation(passed_review()) == {
            "executionSuccessful": True,
            "exitCode": 0,
            "exitCodeDescription": "nothing found",
            "toolExecutionNotifications": [],
        }
        assert invocation(review(finding()))["executionSuccessful"] is True

    def test_an_incomplete_review_says_what_is_missing(self) -> None:
        notes = {one["descriptor"]["id"]: one for one in invocation(telling_review())["toolExecutionNotifications"]}
        assert {kind: note["level"] for kind, note in notes.items() if kind != "problem"} == {
            "unit-failed": "error",
            "unplaced-claim": "error",
            "file-not-reviewed": "error",
            "file-left-out": "note",
        }
        failed = notes["unit-failed"]
        assert failed["message"]["text"] == "app/slow.py#2: timeout after 300 s"
        assert failed["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "app/slow.py"
        assert notes["problem"]["message"]["text"] == "history: is not writable"
        unnamed = invocation(review(complete=False, exit_code=3))["toolExecutionNotifications"]
        assert [note["descriptor"]["id"] for note in unnamed] == ["incomplete"]

    def test_words_in_a_message_make_no_link_and_a_rule_has_a_plain_name(self) -> None:
        (result,) = results(finding(title="[click](http://evil.test)", body=HOSTILE))
        assert "](" not in result["message"]["text"]
        odd = rules(finding(rule=None, category="Größe / $(x) </b>"), finding(rule="", category=""))
        assert [rule["id"] for rule in odd] == ["Gr--e-/---x---/b", "general"]

    def test_only_security_has_a_security_severity(self) -> None:
        told = rules(finding(severity=Severity.CRITICAL), finding(rule="B1", category="style"), finding())
        severities = {rule["id"]: rule["properties"].get("security-severity") for rule in told}
        assert severities == {"S608": "9.5", "B1": None}

    def test_numbers_beyond_reason_stay_within_the_standard(self) -> None:
        (result,) = results(finding(line_start=2**40, line_end=2**41, confidence=float("nan"), agreement=-3))
        assert "region" not in result["locations"][0]["physicalLocation"]
        assert "confidence" not in result["properties"]
