"""What a program reports and cannot be read may be grave: that is no whole review, whatever else it reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from codeloupe.engine.external.command import CommandReviewer
from codeloupe.model.scope import UncommittedScope
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.engine.external.review_tasks import INFO, review_now


@each("severity", ["low", "medium", "high"])
def test_a_finding_that_cannot_be_read_is_a_gap(repository: GitRepository, tmp_path: Path, severity: str) -> None:
    repository.write("a.py", "x = 1\n")
    repository.commit()
    repository.write("a.py", "x = 1\ny = x / 0\n")
    known = {"file": "a.py", "line": 2, "title": "known", "severity": severity}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"findings": [known, {**known, "title": "odd", "severity": "horrible"}]}))
    printing = f"import sys; sys.stdout.write(open({str(report)!r}).read())"
    reviewer = CommandReviewer((sys.executable, "-I", "-S", "-c", printing), info=INFO)
    outcome = review_now(reviewer, UncommittedScope(), repository.path)
    assert [found.title for found in outcome.findings] == ["known"]
    assert outcome.units_failed
