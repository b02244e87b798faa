from __future__ import annotations

import io

from codeloupe.cli.progress import ProgressDisplay, ProgressMode
from codeloupe.model.events import CommitReviewed
from codeloupe.model.finding import Severity
from tests.unit.commits.sweep_samples import failed_review, finding, not_reviewed, reviewed

ENDED = (
    CommitReviewed(reviewed(1), 1, 1200),
    CommitReviewed(reviewed(2, finding(Severity.HIGH, title="Wrong\x1b[2J sum")), 2, 1200),
    CommitReviewed(not_reviewed(3, "timeout\n::error::x"), 3, 1200),
    CommitReviewed(not_reviewed(4, "invalid answer", review=failed_review(findings=(finding(Severity.LOW),))), 4, 1200),
)


def shown(mode: ProgressMode) -> tuple[str, ProgressDisplay]:
    stream = io.StringIO()
    display = ProgressDisplay(stream=stream, mode=mode, clock=lambda: 0.0)
    for event in ENDED:
        display.emit(event)
    return stream.getvalue(), display


def test_each_commit_is_a_line_with_its_findings_below() -> None:
    told, _ = shown(ProgressMode.PLAIN)
    assert told.splitlines() == [
        "codeloupe: commit 1/1,200 0000001ccc LEAVE 1.00, 0 findings: fix: number 1",
        "codeloupe: commit 2/1,200 0000002ccc FIX 0.70, 1 finding: fix: number 2",
        "  high  app/db.py:42  Wrong\\x1b[2J sum",
        "codeloupe: commit 3/1,200 0000003ccc could not be reviewed: timeout ::error::x",
        "codeloupe: commit 4/1,200 0000004ccc could not be reviewed: invalid answer",
        "  low  app/db.py:42  Statement is built from a variable",
    ]


def test_the_live_line_counts_commits_and_shows_the_latest_findings() -> None:
    told, display = shown(ProgressMode.LIVE)
    assert told == ""
    assert "4/1,200 commits, 2 could not be reviewed  1 high, 1 low" in display.status()
    assert [row[1][0].strip() for row in display.above()] == ["app/db.py:42", "app/db.py:42"]


def test_silence_is_silent() -> None:
    assert shown(ProgressMode.SILENT)[0] == ""


def test_the_tally_knows_how_many_commits_ended() -> None:
    display = shown(ProgressMode.SILENT)[1]
    assert (display.commits_done, display.commits_failed) == (4, 2)
