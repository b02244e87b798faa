from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.forges.review_file import read_review
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, ReviewError, SkippedFile, SkipReason
from codeloupe.reports.json_v1 import render_json
from tests.publish_material import finding, review
from tests.rows import each

FULL = review(
    finding(
        4,
        file="caf\udce9.py",
        rule="X1",
        suggestion="a\n\x00b",
        confidence=0.5,
        expert="security",
        commit_sha="c" * 40,
        outside_change=True,
        status=FindingStatus.REGRESSED,
        agreement=2,
        seen_by=("a", "b"),
        verification="tried",
        suppression=Suppression(kind=SuppressionKind.BASELINE, reason="known", owner="ann", expires=date(2026, 1, 31)),
    ),
    complete=False,
    exit_code=3,
    policy=Policy(fail_on=Severity.LOW, min_severity=Severity.MEDIUM, pass_when_incomplete=True),
    hidden_findings=3,
    coverage=Coverage(
        files_total=3,
        files_reviewed=1,
        skipped=(SkippedFile("x", SkipReason.TOO_LARGE, "9 MB"),),
        units_total=2,
        units_failed=(FailedUnit("u", ("a", "b"), "why"),),
    ),
    errors=(ReviewError("kind", "message"),),
)


def read(document: Any) -> Review:
    return read_review(json.dumps(document).encode(), name="r.json")


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(render_json(FULL)), **changes}


def test_a_review_is_read_back_as_it_was_written() -> None:
    assert read_review(render_json(FULL).encode(), name="r.json") == FULL


def test_a_report_of_an_earlier_version_lacks_some_fields() -> None:
    older = document()
    for name in ("hidden_findings", "policy"):
        del older[name]
    for name in ("rule", "seen_by", "verification", "suppression"):
        del older["findings"][0][name]
    read_back = read(older)
    assert read_back.policy == Policy()
    assert read_back.findings[0].suppression is None


def test_words_of_a_later_version_never_make_it_look_better() -> None:
    later = document()
    later["scope"]["kind"] = "something new"
    later["findings"][0].update(status="something new", suppression=None)
    later["coverage"]["skipped"][0]["reason"] = "something new"
    read_back = read(later)
    assert read_back.scope.kind is ScopeKind.RANGE
    assert read_back.findings[0].is_open
    assert read_back.coverage.skipped[0].is_gap


@each(
    "changes",
    [
        {"schema_version": 2},
        {"findings": None},
        {"findings": [5]},
        {"verdict": "GREAT"},
        {"review_id": 5},
        {"coverage": {}},
        {"usage": []},
        {"scope": "branch"},
        {"exit_code": True},
        {"exit_code": 10**30},
        {"policy": {"fail_on": "purple"}},
    ],
)
def test_what_is_no_report_is_a_mistake_in_words(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="r.json is not a JSON report of version 1") as raised:
        read(document(**changes))
    assert "--format json" in raised.value.hint


@each("text", [b"", b"{", b"[" * 200_000, b"\xff\xfe", b"5", b"null", b"[]", b'{"schema_version": 1}'])
def test_any_bytes_are_a_mistake_in_words(text: bytes) -> None:
    with pytest.raises(UsageError, match="is not a JSON report") as raised:
        read_review(text, name="r.json")
    # Not the words of the interpreter.
    assert not {"indices", "subscriptable", "object"} & set(raised.value.message.split())


@each("amount", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_an_amount_that_is_no_number_is_not_known(amount: str) -> None:
    text = render_json(replace(FULL, findings=())).replace('"cost_usd": 0.12', f'"cost_usd": {amount}')
    assert read_review(text.encode(), name="r.json").usage.cost_usd == 0.0
