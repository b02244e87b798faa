"""What a query for commits means: in words, and where the settings for them come from."""

from __future__ import annotations

from codeloupe.model.scope import DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery


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
