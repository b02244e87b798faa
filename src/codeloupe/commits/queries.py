"""Which commits a sweep reviews: the query in words, with whole days, and as a scope."""

from __future__ import annotations

from datetime import date

from msgspec.structs import replace

from codeloupe.errors import RevisionError
from codeloupe.model.scope import DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery
from codeloupe.system.regex import regex

_DAY = regex(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})")


def with_whole_days(query: CommitQuery) -> CommitQuery:
    """Return the query with each day of the calendar as a whole day: from its beginning, or until its end.

    Times are local. Git completes a day without a time with the current time, so that the same words would choose other
    commits in the morning than at night. Raise RevisionError for a day that does not exist, which git would take for
    another one.
    """
    since = _timed(query.since, "00:00:00")
    until = _timed(query.until, "23:59:59")
    return replace(query, since=since, until=until)


def _timed(text: str | None, moment: str) -> str | None:
    found = _DAY.fullmatch((text or "").strip())
    if found is None:
        return text
    try:
        day = date(int(found[1]), int(found[3]), int(found[4]))
    except ValueError as error:
        raise RevisionError(f"{text!r} is not a valid date", hint="write it as YYYY-MM-DD") from error
    return f"{day.isoformat()} {moment}"


def describe(query: CommitQuery) -> str:
    """Describe a query in words."""
    parts = [f"commits of {query.revision}"]
    if query.since:
        parts.append(f"since {query.since}")
    if query.until:
        parts.append(f"until {query.until}")
    if query.author:
        parts.append(f"by {query.author}")
    if query.max_count is not None:
        parts.append(f"at most {query.max_count:,}")
    if query.merges:
        parts.append("each merged commit on its own")
    return ", ".join(parts)


def scope_of(query: CommitQuery) -> ScopeRequest:
    """Return the scope whose base has the settings for untrusted commits: the range, or else the branch."""
    if ".." in query.revision:
        return RangeScope(query.revision)
    return DefaultScope()
