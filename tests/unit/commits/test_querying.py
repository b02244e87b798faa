import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from codeloupe.commits.sweep import review_commits, with_whole_days
from codeloupe.errors import RevisionError
from codeloupe.model.sweep import CommitQuery
from tests.rows import each
from tests.sweep_history import make_commits, numbered_commits


def days(since: str | None, until: str | None) -> tuple[str | None, str | None]:
    query = with_whole_days(CommitQuery(since=since, until=until))
    return query.since, query.until


@each("day", ["2024-05-31", "2024/5/31", " 2024.05.31 "])
def test_a_day_is_all_of_it(day: str) -> None:
    assert days(day, day) == ("2024-05-31 00:00:00", "2024-05-31 23:59:59")


@each("moment", [None, "2 days ago", "2024-05-31 12:00", "2024-05-31T12:00Z", "31.05.2024", "2024-5"])
def test_what_is_no_plain_day_stays_as_it_is(moment: str | None) -> None:
    assert days(moment, moment) == (moment, moment)


@each("day", ["2024-13-01", "2023-02-29", "0000-01-01"])
def test_a_day_that_no_calendar_has_is_refused(day: str) -> None:
    with pytest.raises(RevisionError, match="is no day of the calendar"):
        days(day, None)


@pytest.mark.program
@pytest.mark.requirement("D1")
def test_the_commits_of_a_day_are_the_same_at_every_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    midnight = datetime(2024, 5, 31, tzinfo=UTC)
    make_commits(tmp_path, numbered_commits(3), first_seconds=int((midnight - timedelta(seconds=60)).timestamp()))
    query = CommitQuery(since="2024-05-31", until="2024-05-31")
    sweep = asyncio.run(review_commits(query, repo=tmp_path, reviewers=()))
    assert [commit.commit.time.minute for commit in sweep.commits] == [1, 0]
