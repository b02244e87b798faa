"""What trends need of saved reviews and findings, out of columns and an index alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from codeloupe.store.columns import text_column, text_of
from codeloupe.store.history_trends import FindingRow, ReviewFact

# The end of the calendar; a damaged time must not end the counting of all others.
_LAST_MOMENT = 253_402_300_799.0


def review_facts(connection: sqlite3.Connection, repositories: Sequence[str] | None) -> list[ReviewFact]:
    """Every review, those of sweeps too, the oldest first."""
    condition, values = _of(repositories)
    rows = connection.execute(
        "SELECT number, CAST(saved_at AS REAL), CAST(repository AS BLOB), CAST(reviewer AS BLOB),"  # noqa: S608 - marks and words of ours
        " CAST(cost_usd AS REAL), CAST(unknown_costs AS INTEGER), CAST(duration_seconds AS REAL)"
        f" FROM reviews WHERE {condition} ORDER BY turn, number",
        values,
    )
    return [
        ReviewFact(
            number,
            min(max(saved_at, 0.0), _LAST_MOMENT),
            text_of(repository),
            text_of(reviewer),
            cost_usd,
            unknown_costs,
            duration,
        )
        for number, saved_at, repository, reviewer, cost_usd, unknown_costs, duration in rows
    ]


def finding_facts(connection: sqlite3.Connection, repositories: Sequence[str] | None) -> list[FindingRow]:
    """Every finding that was shown, in no order: to sort them all is not the index's business."""
    condition, values = _of(repositories)
    rows = connection.execute(
        "SELECT f.review, CAST(f.fingerprint AS BLOB), CAST(f.expert AS BLOB), f.status = 'fixed', f.is_open"  # noqa: S608 - as above
        " FROM reviews CROSS JOIN findings AS f INDEXED BY findings_of_review ON f.review = reviews.number"
        f" WHERE {condition} AND NOT f.hidden",
        values,
    )
    return rows.fetchall()


def _of(repositories: Sequence[str] | None) -> tuple[str, list[str]]:
    if repositories is None:
        return "1", []
    marks = ", ".join("?" * len(repositories))
    return f"repository IN ({marks})", [text_column(name) for name in repositories]
