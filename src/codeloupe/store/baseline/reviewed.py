"""What a review or a sweep found, as far as the baseline needs it, and reading that from a JSON report of version 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.config.problems import escape
from codeloupe.errors import UsageError
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import Review, ReviewError
from codeloupe.model.suppression import Suppression, SuppressionKind
from codeloupe.model.sweep import CommitSweep

_STANDARD_INPUT = Path("-")
_MAX_REPORT_BYTES = 256_000_000
_HINT = "give a file that `codeloupe review --format json -o FILE` or `codeloupe commits --output json` wrote"


class ReviewedFindings(Struct, frozen=True):
    """The findings of one review and what it told beside them. `name` is how messages call the review."""

    name: str
    findings: tuple[Finding, ...]
    errors: tuple[ReviewError, ...] = ()
    complete: bool = True


def findings_of(review: Review, *, name: str, hidden: tuple[Finding, ...] = ()) -> ReviewedFindings:
    """Those of a review at hand; `hidden` are the ones below its `min_severity`."""
    return ReviewedFindings(name, (*review.findings, *hidden), review.errors, review.complete)


def findings_of_sweep(sweep: CommitSweep, *, name: str) -> ReviewedFindings:
    """Those of all commits of a sweep, together."""
    reviews = [commit.review for commit in sweep.commits if commit.review is not None]
    findings = tuple(finding for review in reviews for finding in review.findings)
    return ReviewedFindings(name, findings, complete=all(commit.reviewed for commit in sweep.commits))


def read_report(path: Path) -> ReviewedFindings:
    """Those of a report in a file; `-` is standard input. Raises UsageError for what is no report of version 1."""
    name = escape(str(path))
    try:
        document = json.loads(_content(path))
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read the report {name}: {reason}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a JSON report", hint=_HINT) from error
    try:
        return _reviewed(name, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is not a JSON report of version 1", hint=_HINT) from error


def _content(path: Path) -> bytes:
    with path.open("rb") if path != _STANDARD_INPUT else nullcontext(sys.stdin.buffer) as file:
        data = file.read(_MAX_REPORT_BYTES + 1)
    if len(data) > _MAX_REPORT_BYTES:
        raise ValueError("too large")
    return data


def _reviewed(name: str, document: Mapping[str, Any]) -> ReviewedFindings:
    if document["schema_version"] != 1:
        raise ValueError("another version")
    if "sweep_id" in document:
        # What a sweep calls evidence is the place; the quote has a name of its own there.
        swept = (_finding({**finding, "evidence": finding["quote"]}) for finding in document["findings"])
        whole = all(commit["reviewed"] is True for commit in document["commits"])
        return ReviewedFindings(name, tuple(swept), complete=whole)
    errors = (ReviewError(_text(error, "kind"), _text(error, "message")) for error in document["errors"])
    findings = (_finding(finding) for finding in document["findings"])
    return ReviewedFindings(name, tuple(findings), tuple(errors), complete=document["complete"] is True)


def _finding(document: Mapping[str, Any]) -> Finding:
    return Finding(
        file=_text(document, "file"),
        line_start=_line(document, "line_start"),
        line_end=_line(document, "line_end"),
        severity=Severity.parse(document["severity"]),
        category=_text(document, "category"),
        title=_text(document, "title"),
        body=_text(document, "body"),
        evidence=_text(document, "evidence"),
        reviewer=_text(document, "reviewer"),
        rule=_text(document, "rule") if document.get("rule") else None,
        verification=str(document.get("verification", "")),
        fingerprint=_text(document, "fingerprint").lower(),
        # Reports of earlier versions have a line for what could not be placed.
        anchored=document.get("anchored", True) is True,
        status=_status(_text(document, "status")),
        # Reports of earlier versions do not have it.
        suppression=_suppression(document.get("suppression")),
    )


def _line(document: Mapping[str, Any], key: str) -> int | None:
    return None if document[key] is None else int(document[key])


def _status(word: str) -> FindingStatus:
    """A status that a later version has is none that counts as open here."""
    return next((known for known in FindingStatus if known == word), FindingStatus.DISMISSED)


def _suppression(document: Mapping[str, Any] | None) -> Suppression | None:
    if document is None:
        return None
    known = next((kind for kind in SuppressionKind if kind == document["kind"]), SuppressionKind.INLINE)
    return Suppression(kind=known, reason=_text(document, "reason"))


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no text")
    return value
