import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.finding import FindingStatus, Proof, Severity, Suppression, SuppressionKind
from codeloupe.model.review import Coverage
from codeloupe.model.sweep import CommitSweep
from codeloupe.reports import Layout
from codeloupe.reports.json_v1 import json_schema
from codeloupe.reports.sweep import render_sweep_json, render_sweep_markdown, render_sweep_text, render_sweep_xml
from tests.rows import each
from tests.unit.commits.sweep_samples import commit, failed_review, finding, not_reviewed, review, reviewed, sweep

SPENT = Usage(requests=4, cached=1, input_tokens=1200, output_tokens=90, cost_usd=0.31, duration_seconds=12.3)
MIXED = sweep(
    reviewed(1),
    reviewed(2, finding(Severity.HIGH, suggestion="Pass it as a parameter.")),
    reviewed(
        3,
        finding(Severity.CRITICAL, proof=Proof.CONFIRMED, reason="any caller can"),
        finding(Severity.LOW, title="nit"),
    ),
    not_reviewed(4, "timeout"),
    not_reviewed(5, "invalid answer: no JSON", review=failed_review(findings=(finding(Severity.MEDIUM),))),
    strict=True,
    usage=SPENT,
)
KNOWN = Suppression(kind=SuppressionKind.BASELINE, reason="known since 2019")
EMPTY = sweep()
FAILED = sweep(not_reviewed(1, "not logged in: run /login"), not_reviewed(2, "not begun: not logged in"))
SUMMARY = "5 commits reviewed, 1 OK, 1 need fixes, 1 should be reverted, 2 could not be reviewed"


def text(outcome: CommitSweep, *, width: int = 100, **changes: Any) -> str:
    return render_sweep_text(outcome, Layout(width=width, **changes))


def as_json(outcome: CommitSweep) -> Any:
    return json.loads(render_sweep_json(outcome))


def as_xml(outcome: CommitSweep) -> ET.Element:
    return ET.fromstring(render_sweep_xml(outcome).encode("utf-8"))


RENDERERS: dict[str, Callable[[CommitSweep], str]] = {
    "text": text,
    "json": render_sweep_json,
    "markdown": render_sweep_markdown,
    "xml": render_sweep_xml,
}


@pytest.mark.requirement("D1")
def test_the_json_has_the_whole_sweep() -> None:
    document = as_json(MIXED)
    assert list(document) == [
        "schema_version", "tool", "sweep_id", "description", "reviewer", "summary", "score", "exit_code", "strict",
        "usage", "commits", "findings",
    ]  # fmt: skip
    assert (document["schema_version"], document["summary"]) == (1, SUMMARY)
    assert (document["exit_code"], document["strict"], document["score"]) == (1, True, 0.72)
    assert document["usage"]["cost_usd"] == 0.31
    first, second, _, failed, partly = document["commits"]
    assert first == {
        "sha": commit(1).sha,
        "author": "Ada Example",
        "email": "ada@example.invalid",
        "time": "2024-05-31T12:31:00+00:00",
        "subject": "fix: number 1",
        "category": "bug_fix",
        "experts": ["reliability"],
        "files": ["app/db.py"],
        "insertions": 3,
        "deletions": 1,
        "verdict": "LEAVE",
        "score": 1.0,
        "reviewed": True,
        "failure": None,
        "findings": [],
        "plan": [],
        "review": first["review"],
    }
    assert first["review"]["complete"] is True
    assert first["review"]["coverage"]["files_reviewed"] == 1
    assert [step["phase"] for step in second["plan"]] == ["red", "green", "refactor"]
    assert (failed["verdict"], failed["score"], failed["reviewed"]) == ("INCOMPLETE", None, False)
    assert (failed["failure"], failed["review"], failed["findings"]) == ("timeout", None, [])
    told = (partly["verdict"], partly["failure"], len(partly["findings"]))
    assert told == ("INCOMPLETE", "invalid answer: no JSON", 1)
    assert partly["review"]["coverage"]["units_failed"]


@pytest.mark.requirement("D5")
def test_a_finding_has_the_fields_of_a_sweep_and_those_of_a_review() -> None:
    document = as_json(MIXED)
    found = document["commits"][1]["findings"][0]
    assert {
        "commit_sha": commit(2).sha,
        "expert": "reliability",
        "severity": "high",
        "category": "security",
        "description": "Statement is built from a variable\n\nWhoever controls `name` can read any row.",
        "evidence": "app/db.py:42",
        "quote": "cursor.execute(query + name)",
        "fingerprint": "high-1",
    }.items() <= found.items()
    assert json_schema()["$defs"]["FindingV1"]["properties"].keys() <= found.keys()
    assert document["findings"] == [one for each in document["commits"] for one in each["findings"]]
    assert len(document["findings"]) == 4


@each("outcome", [EMPTY, FAILED])
def test_an_empty_and_a_failed_sweep_are_valid_documents_that_say_so(outcome: CommitSweep) -> None:
    document = as_json(outcome)
    root = as_xml(outcome)
    assert document["summary"] == root.findtext("summary") == outcome.summary
    assert len(document["commits"]) == len(root.findall("commits/commit")) == len(outcome.commits)
    assert outcome.summary in render_sweep_markdown(outcome)
    assert outcome.summary in text(outcome)
    assert document["score"] is None
    assert "score" not in root.attrib
    for render in RENDERERS.values():
        assert ("not logged in: run /login" in render(outcome)) is (outcome is FAILED)


@each("name", RENDERERS)
def test_every_commit_is_in_every_report_with_all_that_is_known(name: str) -> None:
    shown = RENDERERS[name](MIXED)
    for one in MIXED.commits:
        assert one.commit.sha[:10] in shown
        assert one.commit.subject in shown
    known = ("Ada Example", "2024-05-31", "reliability", "app/db.py:42", "LEAVE", "FIX", "REVERT", SUMMARY)
    told = ("timeout", "invalid answer: no JSON", "Statement is built from a variable", "Write a test that fails")
    assert [words for words in (*known, *told) if words not in shown] == []
    # A commit that failed never looks clean.
    shown = RENDERERS[name](FAILED)
    assert (shown.count("INCOMPLETE") >= 2, "LEAVE" in shown) == (True, False)


def test_the_xml_has_the_numbers_as_attributes_and_the_words_as_text() -> None:
    root = as_xml(MIXED)
    assert (root.tag, root.get("exit-code"), root.get("strict"), root.get("score")) == ("sweep", "1", "true", "0.72")
    first = root.findall("commits/commit")[0]
    assert (first.get("insertions"), first.get("deletions"), first.get("verdict")) == ("3", "1", "LEAVE")
    assert [file.text for file in first.findall("files/file")] == ["app/db.py"]
    found = root.findall("commits/commit/findings/finding")
    assert [one.get("severity") for one in found] == ["high", "critical", "low", "medium"]
    assert found[0].findtext("evidence") == "app/db.py:42"
    assert [step.get("phase") for step in root.findall("commits/commit/plan/step")][:3] == ["red", "green", "refactor"]


@each("width", [20, 60, 80, 120, 300])
@each("ascii_only", [False, True])
def test_the_text_keeps_to_its_width_but_for_the_summary(width: int, ascii_only: bool) -> None:
    shown = text(MIXED, width=width, ascii_only=ascii_only)
    assert shown.isascii() or not ascii_only
    assert [line for line in shown.splitlines() if len(line) > max(width, 20)] in ([], [SUMMARY])
    assert SUMMARY in shown


def test_the_text_of_a_commit_without_findings_is_two_lines() -> None:
    shown = text(sweep(*map(reviewed, (1, 2, 3))), width=80).splitlines()[3:9]
    assert shown[::2] == [f"LEAVE   1.00  000000{number}ccc  fix: number {number}" for number in (1, 2, 3)]
    about = "  Ada Example · 2024-05-31 12:{0} UTC · bug_fix · reliability · +3 -1 in 1 file"
    assert shown[1::2] == [about.format(minute) for minute in (31, 32, 33)]


@each(("total", "words"), [(3, "none reviewed"), (0, "no changes")])
@each("name", ["text", "markdown"])
def test_a_commit_with_nothing_to_review_says_so(name: str, total: int, words: str) -> None:
    assert words in RENDERERS[name](sweep(reviewed(1, review=review(coverage=Coverage(files_total=total)))))
    assert words not in RENDERERS[name](sweep(reviewed(1)))


@each(
    ("changes", "words"),
    [
        (
            {"status": FindingStatus.REFUTED, "proof": Proof.REFUTED, "reason": "the caller checks"},
            "refuted: the caller checks",
        ),
        ({"status": FindingStatus.GONE}, "gone: its file is no longer reviewed"),
        ({"suppression": KNOWN}, "suppressed by the baseline: known since 2019"),
    ],
)
@each("name", ["text", "markdown"])
def test_what_does_not_count_is_shown_with_the_reason(name: str, changes: dict[str, Any], words: str) -> None:
    shown = RENDERERS[name](sweep(reviewed(1, finding(Severity.CRITICAL, **changes))))
    assert f"not counted: {words}" in shown
    assert "LEAVE" in shown
    assert "Plan, test first" not in shown


def test_the_end_of_a_strict_and_of_an_incomplete_sweep_is_told() -> None:
    assert "--strict fails on them" in text(MIXED)
    assert "Not every commit could be reviewed." in text(FAILED)
    assert "accepted, because on_incomplete is pass" in text(replace(FAILED, exit_code=0))
    assert "accepted, because on_incomplete is pass" in render_sweep_markdown(replace(FAILED, exit_code=0))
