"""Every format: a valid document of its kind that leaves nothing out. Then what each format for programs says."""

import json
import re
import subprocess
import sys
from typing import Any
from urllib.parse import unquote, unquote_to_bytes
from xml.etree import ElementTree as ET

import pytest
from junitparser import Error, Failure, Skipped
from msgspec.structs import replace

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import Coverage, FailedUnit, Level, Policy, Review, ReviewError, SkippedFile, SkipReason
from codeloupe.reports import FORMATS, Layout, render
from tests.findings_material import changed_finding, make_claim
from tests.markdown_page import ACTIVE, kinds, tokens
from tests.report_cases import GOLDEN, REVIEWS, documents
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
    pending_finding,
    telling_review,
    unplaced_finding,
)
from tests.unit.reports.examples import finding, review

EVERY = [telling_review(), passed_review(), empty_review(), incomplete_review(), hostile_review()]
# What a format says of a review that is not whole, and of none that is.
INCOMPLETE_MARKS = {
    "text": "INCOMPLETE",
    "concise": "INCOMPLETE",
    "json": '"complete": false',
    "sarif": '"executionSuccessful": false',
    "markdown": "INCOMPLETE",
    "html": "INCOMPLETE",
    "junit": "not reviewed: ",
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

    @pytest.mark.defect("E7")
    @each("name", [name for name in FORMATS if name != "json"])
    @each("level", list(Level))
    def test_the_code_of_an_error_is_for_json_alone(self, name: str, level: Level) -> None:
        error = ReviewError("some_internal_kind", "the guidance in NOTES.md was not used", level=level)
        for whole in (passed_review(), incomplete_review(), review(finding())):
            text = render(replace(whole, errors=(error,)), name, Layout())
            assert "some_internal_kind" not in text
            if name not in ("gitlab-codequality", "rdjson", "rdjsonl"):
                assert "The guidance in NOTES.md was not used." in text

    @pytest.mark.defect("E7")
    @each(("name", "heading"), [("text", "Notes\n"), ("markdown", "## Notes\n"), ("html", "<summary>1 note</summary>")])
    def test_a_note_is_not_among_the_problems(self, name: str, heading: str) -> None:
        error = ReviewError("kind", "the change itself adds 1 comment", level=Level.NOTE)
        text = render(replace(passed_review(), errors=(error,)), name, Layout())
        assert heading in text
        assert "roblem" not in text.partition("<body")[2 if name == "html" else 0]

    @pytest.mark.defect("E18")
    @each(
        ("exit_code", "complete", "result"),
        [(0, True, "passed"), (0, False, "passed"), (1, True, "failure"), (1, False, "failure"), (3, False, "error")],
    )
    def test_junit_fails_if_and_only_if_the_review_does(self, exit_code: int, complete: bool, result: str) -> None:
        policy = Policy(pass_when_incomplete=exit_code == 0)
        document = ET.fromstring(
            render(review(exit_code=exit_code, complete=complete, policy=policy), "junit", Layout())
        )
        verdict = document.find(".//testcase[@name='verdict']")
        assert verdict is not None
        assert ([child.tag for child in verdict if child.tag != "system-out"] or ["passed"]) == [result]
        is_red = document.find(".//failure") is not None or document.find(".//error") is not None
        assert is_red is (exit_code != 0)

    @pytest.mark.defect("E18")
    def test_sarif_gives_each_rule_the_title_of_its_analyser(self) -> None:
        one = make_claim(reporter="ruff", rule="F401", rule_title="Unused import", title="`os` imported but unused")
        other = make_claim(reporter="ast-grep", rule="js-eval", title="Text from outside is run as code")
        whole = review(*(Finding(claims=(claim,), severity=claim.severity) for claim in (one, other)))
        rules = json.loads(render(whole, "sarif", Layout()))["runs"][0]["tool"]["driver"]["rules"]
        assert {rule["id"]: rule["shortDescription"]["text"] for rule in rules} == {
            "F401": "Unused import",
            "js-eval": "Text from outside is run as code",
        }

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


def test_every_report_is_what_it_was() -> None:
    """A change of a report is made on purpose: `python -m tests.report_cases` renews the files."""
    made, kept = dict(documents()), {file.name: file.read_bytes().decode() for file in GOLDEN.iterdir()}
    assert made.keys() == kept.keys()
    for name, text in made.items():
        assert text == kept[name], name


def test_gitlab_tells_findings_apart_that_share_a_fingerprint_or_have_none() -> None:
    same = [finding(fingerprint="f"), finding(fingerprint="f"), finding(), finding(), finding(file="b.py")]
    assert len({issue["fingerprint"] for issue in read("gitlab-codequality", review(*same))}) == 5
    assert read("gitlab-codequality", review(*closed_findings())) == []


def cases(whole: Review) -> dict[str, list[Any]]:
    return {case.name: case.result for suite in read("junit", whole) for case in suite}


class TestJUnit:
    def test_each_finding_is_told_by_what_it_counts_for(self) -> None:
        told = {
            name.partition(": ")[2].partition(" (line")[0]: type(result[0]) if result else None
            for name, result in cases(telling_review(complete=True)).items()
        }
        closed = dict.fromkeys((finding.title for finding in closed_findings()), Skipped)
        failed = dict.fromkeys(("Blocks", "Stays", "Is back", "Is nowhere"), Failure)
        passed = dict.fromkeys(("Could be better", "Is a nit"))
        assert told.items() >= {**closed, **failed, **passed, "Is open to doubt": Skipped}.items()
        assert told["app/slow.py#2"] is told["data/dump.sql"] is Error
        assert cases(empty_review()) == {"verdict": []}

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

    @each(("may_pass", "severity"), [(False, "ERROR"), (True, "WARNING")])
    def test_what_could_not_be_reviewed_is_a_diagnostic_and_what_counts_for_nothing_is_none(
        self, may_pass: bool, severity: str
    ) -> None:
        told = diagnostics(incomplete_review(policy=Policy(pass_when_incomplete=may_pass)))
        places = [(one["location"]["path"], one["severity"]) for one in told]
        assert places == [("app/slow.py", severity), ("data/dump.sql", severity)]
        assert diagnostics(review(*closed_findings())) == []

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
    @each("whole", [*EVERY, REVIEWS["very-many"]])
    def test_there_are_ten_of_a_level_at_most_and_the_last_is_the_verdict(self, whole: Review) -> None:
        levels = [level for level, _, _ in commands(whole)]
        assert all(levels.count(level) <= 10 for level in set(levels))
        assert levels[-1] == "notice"

    def test_what_blocks_is_an_error_the_rest_is_none_and_what_counts_for_nothing_is_only_counted(self) -> None:
        whole = review(*(finding(severity=step) for step in Severity), policy=Policy(fail_on=Severity.CRITICAL))
        assert [level for level, _, _ in commands(whole)] == ["error", "warning", "warning", "notice", "notice"]
        gap, claim, _ = commands(review(pending_finding(), complete=False, exit_code=3))
        assert (gap[0], claim[0]) == ("error", "warning")
        unplaced, _ = commands(review(unplaced_finding()))
        assert unplaced[0] == "error"
        assert "line" not in unplaced[1]
        assert "The code of this finding was not found." in unplaced[2]
        ((level, _, message),) = commands(review(*closed_findings(), exit_code=0))
        assert level == "notice"
        assert "1 unproven; 1 refuted; 6 set aside" in message

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


def results(*findings: Finding) -> list[Any]:
    return list(read("sarif", review(*findings))["results"])


class TestSarif:
    @each("whole", EVERY)
    def test_rules_and_notifications_are_declared_and_incomplete_is_no_success(self, whole: Review) -> None:
        run = read("sarif", whole)
        declared = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert all(declared[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
        assert len(set(declared)) == len(declared)
        known = {kind["id"] for kind in run["tool"]["driver"]["notifications"]}
        (invocation,) = run["invocations"]
        assert {told["descriptor"]["id"] for told in invocation["toolExecutionNotifications"]} <= known
        assert invocation["executionSuccessful"] is whole.complete

    @each("path", [ODD_PATH, "100%.py", "a:b.py", "c\\d.py", "%41.py", "q?x=1#y.py", " lead.py"])
    def test_any_path_is_a_relative_address_that_leads_back_to_its_bytes(self, path: str) -> None:
        (result,) = results(finding(file=path))
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii()
        assert not set(uri) & set(' :?#\\"<>')
        assert unquote_to_bytes(uri) == path.encode("utf-8", "surrogateescape")

    @each("path", ["", "/etc/passwd", "../up.py", "a/../../up.py"])
    def test_a_finding_that_names_no_file_of_the_repository_is_told_beside_the_results(self, path: str) -> None:
        run = read("sarif", review(unplaced_finding(file=path, severity=Severity.LOW)))
        assert run["results"] == []
        (told,) = run["invocations"][0]["toolExecutionNotifications"]
        assert told["descriptor"]["id"] == "finding-without-file"

    def test_the_state_to_an_earlier_review_is_told_for_all_or_for_none(self) -> None:
        without = results(finding(), finding(status=FindingStatus.REFUTED))
        assert not any("baselineState" in result for result in without)
        assert [result["baselineState"] for result in results(*open_findings(), *closed_findings())] == [
            *("new", "unchanged", "new", "new", "new"),
            *("new", "new", "new", "unchanged", "absent", "unchanged", "absent", "new"),
        ]

    def test_words_in_a_message_make_no_link_a_rule_has_a_plain_name_and_numbers_stay_in_the_standard(self) -> None:
        odd = {"line_start": 2**40, "line_end": 2**41}
        (result,) = results(finding(title="[click](http://evil.test)", body=HOSTILE, rule="Größe / $(x) </b>", **odd))
        assert "](" not in result["message"]["text"]
        assert result["ruleId"] == "Gr--e-/---x---/b"
        assert "region" not in result["locations"][0]["physicalLocation"]


def markdown(whole: Review) -> str:
    return render(whole, "markdown", Layout())


def headings(page: str) -> list[str]:
    found = tokens(page)
    inlines = (found[index + 1] for index, token in enumerate(found) if token.type == "heading_open")
    return ["".join(child.content for child in inline.children or []) for inline in inlines]


def test_quoted_code_cannot_leave_its_fence() -> None:
    page = markdown(review(finding(evidence="x = 1\n````\n# PASS\n<img src=x>")))
    assert not kinds(page) & ACTIVE
    assert headings(page) == ["❌ codeloupe: FAIL", "Findings", "🟧 high P1: Statement is built from a variable"]


def test_a_place_with_a_bar_stays_in_its_cell() -> None:
    page = markdown(review(finding(file="a|b.py", title="x | y")))
    assert "| x \\| y | `a\\|b.py:42` |" in page


def test_long_lists_are_cut_and_counted() -> None:
    many: list[Finding] = [finding(title=f"number {number}") for number in range(1_000)]
    skipped = tuple(SkippedFile(f"{number}.lock", SkipReason.LOCK_FILE) for number in range(100))
    page = markdown(review(*many, coverage=Coverage(files_total=200, files_reviewed=100, skipped=skipped)))
    assert page.count("and 800 more; the JSON report has them all") == 2
    assert "- and 50 more" in page
    assert len(page) < 200_000


@each("sign", ["x ", "ü", "🟥", "|", "`"])
def test_pages_stay_below_what_github_takes(sign: str) -> None:
    long = finding(title=sign * 1_000, body=sign * 20_000, evidence=(sign * 1_000 + "\n") * 50, file=sign * 900)
    gaps = tuple(FailedUnit(sign * 900, (), sign * 900) for _ in range(200))
    whole = review(
        *([long] * 300),
        *([changed_finding(long, anchored=False)] * 300),
        *([replace(long, counts=False, is_pending=True)] * 300),
        *([replace(long, status=FindingStatus.REFUTED)] * 300),
        complete=False,
        coverage=Coverage(files_total=1, units_failed=gaps),
        errors=(ReviewError(sign * 900, sign * 900),) * 100,
    )
    assert len(markdown(whole).encode()) < 1024 * 1024
