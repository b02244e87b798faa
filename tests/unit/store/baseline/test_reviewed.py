from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import UsageError
from codeloupe.model.baseline import Suppression, SuppressionKind
from codeloupe.model.finding import FindingStatus
from codeloupe.model.review import ReviewError
from codeloupe.reports.json_v1 import render_json
from codeloupe.store.baseline_findings import findings_of, read_report
from tests.rows import rows
from tests.unit.reports.examples import finding, review

ASIDE = Suppression(kind=SuppressionKind.BASELINE, reason="legacy")


def document(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render_json(review(finding(fingerprint="aa11"), complete=False)))
    return {**loaded, **changes}


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "report.json"
    path.write_text(content)
    return path


def test_a_report_gives_what_the_review_itself_gives(tmp_path: Path) -> None:
    made = review(
        finding(fingerprint="aa11", file="caf\udce9.py"),
        finding(fingerprint="bb22", suppression=ASIDE),
        finding(fingerprint="cc33", status=FindingStatus.REFUTED),
        errors=(ReviewError("baseline_unused", "old"),),
    )
    told = read_report(written(tmp_path, render_json(made)))
    direct = findings_of(made, name=told.name)
    assert [each.fingerprint for each in told.findings] == ["aa11", "bb22", "cc33"]
    assert [(each.file, each.is_open, each.evidence, each.title) for each in told.findings] == [
        (each.file, each.is_open, each.evidence, each.title) for each in direct.findings
    ]
    assert (told.errors, told.complete) == (direct.errors, True)
    assert told.findings[1].suppression is not None
    assert told.findings[1].suppression.kind is SuppressionKind.BASELINE


def test_a_report_from_before_suppressions_can_be_read(tmp_path: Path) -> None:
    old = document()
    del old["findings"][0]["suppression"]
    found = read_report(written(tmp_path, json.dumps(old)))
    assert found.findings[0].is_open
    assert not found.complete


def test_a_report_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(document()).encode())))
    assert len(read_report(Path("-")).findings) == 1


def test_a_status_that_is_not_known_does_not_count(tmp_path: Path) -> None:
    later = document()
    later["findings"][0]["status"] = "postponed"
    assert not read_report(written(tmp_path, json.dumps(later))).findings[0].is_open


@rows(
    ("content", "message"),
    [
        ("not json", "is not a JSON report"),
        ("[" * 100_000, "is not a JSON report"),
        ("[]", "is not a JSON report of version 1"),
        ("null", "is not a JSON report of version 1"),
        ("{}", "is not a JSON report of version 1"),
        (json.dumps(document(schema_version=2)), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{}])), "is not a JSON report of version 1"),
        (json.dumps(document(findings=5)), "is not a JSON report of version 1"),
        (json.dumps(document(errors=["x"])), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "severity": "huge"}])), "of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "title": 5}])), "of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "line_start": "x"}])), "of version 1"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_report(written(tmp_path, content))
    assert "--format json" in caught.value.hint


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the report .*: no such file"):
        read_report(tmp_path / "gone")
    with pytest.raises(UsageError, match="is a directory"):
        read_report(tmp_path)
