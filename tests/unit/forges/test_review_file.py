"""A report read back, whoever wrote it."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.cli.publish import publication_json, render_publication
from codeloupe.errors import UsageError
from codeloupe.findings.verdict import conclude
from codeloupe.forges.comments import check_summary, summary_body, verdict_line
from codeloupe.forges.plan import make_plan
from codeloupe.forges.publishing import read_review
from codeloupe.model.finding import FindingStatus, Proof, Severity, Suppression, SuppressionKind
from codeloupe.model.publication import Conclusion, Opinion, Publication, PublishOptions
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Policy,
    Review,
    ReviewError,
    SkippedFile,
    SkipReason,
    Unanswered,
    UnitRecord,
)
from codeloupe.reports.json_v1 import render_json
from tests.markdown_page import ACTIVE, shown_text, tokens
from tests.publish_material import finding, review
from tests.publish_states import MARKER, pull_request, said, thread_about
from tests.rows import each

FULL = conclude(
    review(
        finding(
            4,
            file="caf\udce9.py",
            rule="X1",
            suggestion="a\n\x00b",
            expert="security",
            commit_sha="c" * 40,
            outside_change=True,
            status=FindingStatus.REGRESSED,
            seen_by=("a", "b"),
            proof=Proof.UNPROVEN,
            reason="tried",
            suppression=Suppression(
                kind=SuppressionKind.BASELINE, reason="known", owner="ann", expires=date(2026, 1, 31)
            ),
        ),
        omitted=(finding(9, severity=Severity.MEDIUM),),
        policy=Policy(fail_on=Severity.LOW, min_severity=Severity.MEDIUM, pass_when_incomplete=True),
        hidden_findings=3,
        coverage=Coverage(
            files_total=3,
            files_reviewed=1,
            skipped=(SkippedFile("x", SkipReason.TOO_LARGE, "9 MB"),),
            units_total=2,
            units_failed=(FailedUnit("u", ("a", "b"), "why"),),
            units=(
                UnitRecord(unit="u", files=("a", "b"), unanswered=(Unanswered("codex", "why"),)),
                UnitRecord(unit="v", files=("c",), answered_by="codex", model="gpt"),
            ),
        ),
        errors=(ReviewError("kind", "message"),),
    )
)


def read(document: Any) -> Review:
    return read_review(json.dumps(document).encode(), name="r.json")


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(render_json(FULL)), **changes}


def test_a_review_is_read_back_as_it_was_written() -> None:
    assert read_review(render_json(FULL).encode(), name="r.json") == FULL


@each("stated", [{"complete": False, "exit_code": 3}, {"exit_code": 1}, {"complete": False}])
def test_a_report_that_says_worse_than_it_shows_is_incomplete(stated: dict[str, Any]) -> None:
    read_back = read_review(render_json(review(**stated)).encode(), name="r.json")
    made = make_plan(read_back, pull_request(), marker=MARKER, options=PublishOptions(approve=True))
    assert (made.conclusion, made.opinion) == (Conclusion.NEUTRAL, Opinion.COMMENT)
    assert "its outcome contradicts its findings and its coverage" in check_summary(made.review)


def test_a_finding_is_as_open_as_its_claims_and_can_be_dismissed_then() -> None:
    stated = {**json.loads(render_json(review(finding(4)))), "complete": True, "exit_code": 0}
    stated["findings"][0]["status"] = "fixed"
    read_back = read(stated)
    options = PublishOptions()
    assert make_plan(read_back, pull_request(), marker=MARKER, options=options).conclusion is Conclusion.FAILURE
    dismissed = pull_request(thread_about(finding(4), said("dismiss: fine")))
    made = make_plan(read_back, dismissed, marker=MARKER, options=options)
    assert (made.conclusion, len(made.dismissed)) == (Conclusion.NEUTRAL, 1)


def test_a_report_without_its_omitted_findings_is_a_mistake() -> None:
    incomplete = document()
    del incomplete["omitted"]
    with pytest.raises(UsageError, match="'omitted' is missing"):
        read(incomplete)


@each("name", ["claims", "counts", "is_pending", "status", "suppression"])
def test_a_finding_without_a_required_field_is_a_mistake(name: str) -> None:
    incomplete = document()
    del incomplete["findings"][0][name]
    with pytest.raises(UsageError, match=f"'{name}' is missing"):
        read(incomplete)


def test_a_finding_without_claims_is_a_mistake() -> None:
    incomplete = document()
    incomplete["findings"][0]["claims"] = []
    with pytest.raises(UsageError, match="a finding has no claims"):
        read(incomplete)


@each(
    ("part", "name"),
    [
        (lambda whole: whole["scope"], "kind"),
        (lambda whole: whole["findings"][0], "status"),
        (lambda whole: whole["findings"][0]["suppression"], "kind"),
        (lambda whole: whole["findings"][0]["claims"][0], "proof"),
        (lambda whole: whole["coverage"]["skipped"][0], "reason"),
    ],
)
def test_a_word_that_is_not_known_is_a_mistake(part: Callable[[Any], dict[str, Any]], name: str) -> None:
    later = document()
    part(later)[name] = "something new"
    with pytest.raises(UsageError, match="something new"):
        read(later)


@pytest.mark.parametrize("name", ["policy", "errors", "coverage"])
def test_a_report_without_a_required_field_is_a_mistake(name: str) -> None:
    incomplete = document()
    del incomplete[name]
    with pytest.raises(UsageError, match="r.json is not a JSON report of version 1"):
        read(incomplete)


@each(
    "changes",
    [
        *({"schema_version": 2}, {"findings": None}, {"findings": [5]}, {"verdict": "GREAT"}, {"review_id": 5}),
        *({"coverage": {}}, {"usage": []}, {"scope": "branch"}, {"exit_code": True}, {"exit_code": 10**30}),
        {"policy": {"fail_on": "purple"}},
    ],
)
def test_what_is_no_report_is_a_mistake(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="r.json is not a JSON report of version 1") as raised:
        read(document(**changes))
    assert "--format json" in raised.value.hint


@each("text", [b"", b"{", b"[" * 200_000, b"\xff\xfe", b"5", b"null", b"[]", b'{"schema_version": 1}'])
def test_any_bytes_are_a_mistake(text: bytes) -> None:
    with pytest.raises(UsageError, match="is not a JSON report") as raised:
        read_review(text, name="r.json")
    # Not the words of the interpreter.
    assert not {"indices", "subscriptable", "object"} & set(raised.value.message.split())


@each("amount", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_an_amount_that_is_no_number_is_not_known(amount: str) -> None:
    text = render_json(replace(FULL, findings=())).replace('"cost_usd": 0.12', f'"cost_usd": {amount}')
    assert read_review(text.encode(), name="r.json").usage.cost_usd == 0.0


REPORT = json.loads(
    render_json(
        review(
            finding(4, suggestion="x", rule="x", expert="x", reason="x"),
            finding(9, file="nowhere.py"),
            finding(12, anchored=False),
        )
    )
)
REPORT["errors"] = [{"kind": "x", "message": "x"}]
REPORT["findings"][0]["claims"] *= 2
REPORT["coverage"]["skipped"] = [{"file": "x", "reason": "too large", "detail": "x"}]
REPORT["coverage"]["units"] = [
    {"unit": "x", "files": ["x"], "answered_by": "x", "model": "x", "unanswered": [{"agent": "x", "reason": "x"}]}
]
REPORT["coverage"]["units_failed"] = [{"unit": "x", "files": ["x"], "reason": "x"}]
# What must be as it is, so that the rest comes as far as a comment.
KEPT = frozenset({"kind", "verdict", "severity", "fail_on", "min_severity", "head", "status", "source"})
PLACED = frozenset({"file", "fingerprint", "evidence"})
OUR_MARKUP = re.compile(r"<details><summary>\d+ findings?</summary>|</details>|</?sub>|</?code>")

ATTACKS = {
    "mentions": "@octocat, (@octo/team) *@octocat* \\@octocat é@octocat",
    "an image and links": "![x](https://evil.example/p.png) [a](javascript:x) https://evil.example www.evil.example",
    "a mark of ours": f"<!-- codeloupe:1 summary {'1' * 40} - {'0' * 32} -->",
    "the end of our mark": f"-->\n<!-- codeloupe:1 finding abcdefgh x {'a' * 32} -->",
    "an edit": "```suggestion\nos.remove('/')\n```",
    "an edit in a block": "````\n```suggestion\nx\n```\n@octocat",
    "an open block": "~~~\n@octocat",
    "html": "</details></details><h1>x</h1><img src=x onerror=y><details open>",
    "references": "[ref]: https://evil.example\n[ref]\n[^1]: @octocat",
    "invisible characters": "\x00\u202eabc\u2066\x1b]0;x\x07 x\ud800y",
    "very much": "A" * 200_000,
    "very many lines": "\n" * 10_000 + "@octocat",
    "backticks": "`" * 5_000 + "@octocat",
    "a span over lines": "`a\n@octocat`",
    "a heading": "## heading\n/close",
    "blocks": "> @octocat\n- @octocat\n1. @octocat\n    @octocat\n| @octocat |\n|---|",
}


def poisoned(value: Any, attack: str, *, kept: frozenset[str]) -> Any:
    """The same, with the attack in the place of every text."""
    if isinstance(value, dict):
        return {
            key: one if key in kept and isinstance(one, str) else poisoned(one, attack, kept=kept)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [poisoned(each, attack, kept=kept) for each in value]
    return attack if isinstance(value, str) else value


@each("kept", [KEPT, KEPT | PLACED])
@each("attack", ATTACKS.values())
def test_it_stays_text(attack: str, kept: frozenset[str]) -> None:
    document = poisoned(REPORT, attack, kept=kept)
    document["coverage"]["skipped"][0]["reason"] = "too large"
    read = read_review(json.dumps(document).encode(), name="r.json")
    plan = make_plan(read, pull_request(), marker=MARKER, options=PublishOptions())
    assert len(plan.comments) == (1 if "file" in kept else 0)
    assert not any(token.type == "heading_open" for comment in plan.comments for token in tokens(comment.body))
    for body in (summary_body(plan, (), marker=MARKER), *(comment.body for comment in plan.comments)):
        mark, _, rest = body.partition("\n")
        assert MARKER.read(body) is not None
        assert len(mark) < 400
        assert_is_text(rest)
    assert_is_text(check_summary(plan.review))
    told = Publication(plan=plan, dry_run=True)
    for words in (verdict_line(read, 200), render_publication(told), publication_json(told)):
        assert not re.search("[\x00\x1b\u202e\u2066\ud800]", words)
        assert not re.search(r"(?m)^::", words)


def assert_is_text(page: str) -> None:
    found = tokens(page)
    theirs = [each.content for each in found if each.type in ACTIVE and OUR_MARKUP.sub("", each.content).strip()]
    assert theirs == []
    assert not re.search(r"@\w|https?:", shown_text(page))
    assert not re.search("[\x00\x1b\u202e\u2066\ud800]", page)
    assert len(page) <= 65_536


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield (*path, key)
        yield from places(one, (*path, key))


@each("value", [None, True, -5, 10**400, 1e308, "", "2024-99-99", [], {}, [[]], [None]])
def test_whatever_stands_anywhere_it_is_read_or_refused_in_words(value: Any) -> None:
    refusals = []
    for path in places(REPORT):
        document = copy.deepcopy(REPORT)
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        try:
            read_review(json.dumps(document).encode(), name="r.json")
        except UsageError as error:
            refusals.append(error.message)
    assert refusals
    assert all("is not a JSON report of version 1" in message for message in refusals)
