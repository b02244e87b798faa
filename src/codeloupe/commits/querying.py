"""What a query for commits means: in words, and where the settings for them come from."""

from __future__ import annotations

import re
from datetime import date

from msgspec.structs import replace

from codeloupe.errors import RevisionError
from codeloupe.model.scope import DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery

_DAY = re.compile(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})")


def with_whole_days(query: CommitQuery) -> CommitQuery:
    """The query with each day of the calendar as all of it: from its beginning, or until its end, in local time.

    To git a day without a time is this very moment of it, so that the same words would choose other commits at night
    than in the morning. Raises RevisionError for a day that no calendar has, which git would take for another.
    """
    return replace(query, since=_timed(query.since, "00:00:00"), until=_timed(query.until, "23:59:59"))


def _timed(text: str | None, time: str) -> str | None:
    found = _DAY.fullmatch((text or "").strip())
    if found is None:
        return text
    try:
        day = date(int(found[1]), int(found[3]), int(found[4]))
    except ValueError as error:
        raise RevisionError(f"{text!r} is no day of the calendar", hint="write it as YYYY-MM-DD") from error
    return f"{day.isoformat()} {time}"


def describe(query: CommitQuery) -> str:
    """The query in words."""
    parts = [
        f"commits of {query.revision}",
        f"since {query.since}" if query.since else "",
        f"until {query.until}" if query.until else "",
        f"by {query.author}" if query.author else "",
        f"at most {query.max_count:,}" if query.max_count is not None else "",
        "each that a merge brought in by itself" if query.merges else "",
    ]
    return ", ".join(part for part in parts if part)


def scope_of(query: CommitQuery) -> ScopeRequest:
    """Where the settings come from when the commits are not trusted: the base of a range, else that of the branch."""
    return RangeScope(query.revision) if ".." in query.revision else DefaultScope()
