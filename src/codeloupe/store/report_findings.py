"""Findings of a JSON report, read back; the report may come from an untrusted job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import convert

from codeloupe.model.finding import Finding, Severity

_OF_FINDING = ("status", "counts", "is_pending", "fingerprint", "commit_sha")
_OF_CLAIM = (
    *("reporter", "source", "title", "file", "body", "category", "line_start", "line_end", "evidence", "anchored"),
    *("outside_change", "rule", "expert", "suggestion", "replacement", "seen_by", "proof", "reason", "end"),
    "silenced_by",
)


def read_finding(document: Mapping[str, Any]) -> Finding:
    """Return a finding of a report of version 1. Raise KeyError, TypeError, AttributeError or ValueError if it is none.

    Every field is required, and a word that is not known, such as a status, is an error: it might hide a finding.
    """
    claims = [_claim(claim) for claim in document["claims"]]
    if not claims:
        raise ValueError("a finding has no claims")
    facts = {name: document[name] for name in _OF_FINDING}
    facts["claims"] = claims
    facts["severity"] = Severity.parse(document["severity"]).value
    facts["suppression"] = _suppression(document["suppression"])
    return convert(facts, Finding)


def _claim(document: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: document[name] for name in _OF_CLAIM}
    facts["severity"] = Severity.parse(document["severity"]).value
    facts["code"] = {"names": document["statements"]}
    return facts


def _suppression(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if document is None:
        return None
    return {**document, "owner": document["owner"] or "", "expires": document["expires"] or None}
