"""History as JSON, version 1: fields are added, never changed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import fields

from codeloupe.model.finding import Finding
from codeloupe.model.history import Comparison, HistoryEntry, Listing, Removed, ReviewRecord, Trends
from codeloupe.model.severity import Severity
from codeloupe.system.untrusted import json_document


def list_json(listing: Listing) -> str:
    """The entries of a list."""
    return _document({"entries": [_entry(entry) for entry in listing.entries], "problems": list(listing.problems)})


def comparison_json(comparison: Comparison, earlier: ReviewRecord, later: ReviewRecord) -> str:
    """What became of findings from one review to another."""
    groups = {field.name: getattr(comparison, field.name) for field in fields(comparison)}
    return _document(
        {
            "from": _review(earlier),
            "to": _review(later),
            **{name: [_finding(finding) for finding in findings] for name, findings in groups.items()},
            "problems": [*earlier.problems, *later.problems],
        }
    )


def trends_json(trends: Sequence[Trends]) -> str:
    """Trends, by each key that was asked for; null where something cannot be told apart."""
    return _document(
        {
            "trends": {
                told.by.value: [
                    {
                        "key": row.key,
                        "reviews": row.reviews,
                        "findings": row.findings,
                        "fixed": row.fixed,
                        "fixed_share": row.fixed_share,
                        "cost_usd": _finite(row.cost_usd),
                        "unknown_costs": row.unknown_costs,
                        "duration_seconds": _finite(row.duration_seconds),
                    }
                    for row in told.rows
                ]
                for told in trends
            },
            "problems": sorted({problem for told in trends for problem in told.problems}),
        }
    )


def removed_json(removed: Removed, *, dry_run: bool, freed_bytes: int) -> str:
    """What was removed, or would be."""
    return _document(
        {
            "dry_run": dry_run,
            "reviews": removed.reviews,
            "sweeps": removed.sweeps,
            "findings": removed.findings,
            "size_bytes": removed.size_bytes,
            "freed_bytes": freed_bytes,
        }
    )


def _document(content: dict[str, Any]) -> str:
    text = json.dumps({"schema_version": 1, **content}, indent=2, ensure_ascii=False, allow_nan=False)
    return json_document(text) + "\n"


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "id": entry.entry_id,
        "kind": entry.kind.value,
        "saved_at": _moment(entry.saved_at),
        "repository": entry.repository_label,
        "branch": entry.branch,
        "scope": {"kind": entry.scope, "description": entry.description},
        "verdict": entry.verdict,
        "complete": entry.complete,
        "exit_code": entry.exit_code,
        "summary": entry.summary,
        "findings": {step.label: entry.counts.of(step) for step in Severity},
        "set_aside": entry.set_aside,
        "commits": entry.commits,
        "reviewer": entry.reviewer,
        "cost_usd": _finite(entry.cost_usd),
        "unknown_costs": entry.unknown_costs,
        "duration_seconds": _finite(entry.duration_seconds),
    }


def _review(record: ReviewRecord) -> dict[str, Any]:
    return {
        "id": record.review.review_id,
        "saved_at": _moment(record.saved_at),
        "branch": record.branch,
        "scope": {"kind": record.review.scope.kind.value, "description": record.review.scope.description},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "fingerprint": finding.fingerprint,
        "file": finding.file,
        "line_start": finding.line_start,
        "line_end": finding.line_end,
        "severity": finding.severity.label,
        "category": finding.category,
        "title": finding.title,
        "expert": finding.expert,
        "reviewer": finding.reviewer,
        "status": finding.status.value,
    }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _finite(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None
