"""A review read back from its JSON report, version 1. The file may come from a job that nobody trusts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, TypeVar

from codeloupe.errors import UsageError
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Source
from codeloupe.model.review import (
    Coverage,
    FailedUnit,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
)
from codeloupe.model.severity import Severity
from codeloupe.model.suppression import Suppression, SuppressionKind

_Item = TypeVar("_Item")
_HINT = "give a file that `codeloupe review --format json -o FILE` wrote"
_LARGEST_NUMBER = 10**12
_DAY = 10

Document = Mapping[str, Any]


def read_review(text: bytes, *, name: str) -> Review:
    """The review in a report. Raises UsageError for what is none of version 1; what is not known yet is passed over."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a JSON report", hint=_HINT) from error
    try:
        return _review(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is not a JSON report of version 1 ({_why(error)})", hint=_HINT) from error


def _why(error: Exception) -> str:
    """In words for people: what the interpreter says of a wrong kind is about its own affairs."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error)[:200] if isinstance(error, ValueError) else "a value in it has the wrong type"


def _review(document: Document) -> Review:
    if document["schema_version"] != 1:
        raise ValueError("its version is another")
    reviewer = document["reviewer"]
    return Review(
        review_id=_text(document, "review_id"),
        scope=_scope(document["scope"]),
        reviewer=ReviewerInfo(_text(reviewer, "type"), _text(reviewer, "why"), _optional_text(reviewer, "model")),
        verdict=Verdict(document["verdict"]),
        complete=document["complete"] is True,
        exit_code=_number(document, "exit_code"),
        summary=_text(document, "summary"),
        policy=_policy(document.get("policy") or {}),
        findings=_all(document, "findings", _finding),
        hidden_findings=_number(document, "hidden_findings") if "hidden_findings" in document else 0,
        coverage=_coverage(document["coverage"]),
        usage=_usage(document["usage"]),
        errors=_all(document, "errors", lambda each: ReviewError(_text(each, "kind"), _text(each, "message"))),
    )


def _scope(document: Document) -> Scope:
    # A kind that a later version has is told by its commits all the same.
    kind = next((each for each in ScopeKind if each == document["kind"]), ScopeKind.RANGE)
    base, head = _optional_text(document, "base"), _optional_text(document, "head")
    return Scope(kind, base, head, _text(document, "description"))


def _policy(document: Document) -> Policy:
    plain = Policy()
    return Policy(
        fail_on=Severity.parse(document.get("fail_on", plain.fail_on)),
        min_severity=Severity.parse(document.get("min_severity", plain.min_severity)),
        pass_when_incomplete=document.get("pass_when_incomplete") is True,
    )


def _finding(document: Document) -> Finding:
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
        source=next((each for each in Source if each == document.get("source")), Source.AGENT),
        rule=_optional_text(document, "rule"),
        suggestion=_optional_text(document, "suggestion"),
        replacement=_optional_text(document, "replacement") if "replacement" in document else None,
        confidence=_amount(document.get("confidence")),
        expert=_optional_text(document, "expert"),
        commit_sha=_optional_text(document, "commit_sha"),
        fingerprint=_text(document, "fingerprint"),
        anchored=document["anchored"] is True,
        outside_change=document["outside_change"] is True,
        # One that a later version has counts as open: what is not known is not set aside.
        status=next((each for each in FindingStatus if each == document["status"]), FindingStatus.OPEN),
        agreement=_number(document, "agreement"),
        seen_by=_all(document, "seen_by", _as_text) if "seen_by" in document else (),
        verification=_text(document, "verification") if "verification" in document else "",
        suppression=_suppression(document.get("suppression")),
    )


def _suppression(document: Document | None) -> Suppression | None:
    if document is None:
        return None
    expires = _optional_text(document, "expires")
    return Suppression(
        kind=SuppressionKind(document["kind"]),
        reason=_text(document, "reason"),
        owner=_optional_text(document, "owner") or "",
        expires=None if expires is None else date.fromisoformat(expires[:_DAY]),
    )


def _coverage(document: Document) -> Coverage:
    return Coverage(
        files_total=_number(document, "files_total"),
        files_reviewed=_number(document, "files_reviewed"),
        skipped=_all(document, "skipped", _skipped),
        units_total=_number(document, "units_total"),
        units_failed=_all(document, "units_failed", _failed),
    )


def _skipped(document: Document) -> SkippedFile:
    # A reason that a later version has is a gap: nobody here knows that it is none.
    reason = next((each for each in SkipReason if each == document["reason"]), SkipReason.UNREADABLE)
    accepted = document.get("accepted")
    return SkippedFile(
        _text(document, "file"),
        reason,
        _text(document, "detail") if "detail" in document else "",
        # What this version does not know, no other version accepts for it.
        accepted if isinstance(accepted, bool) and reason == document["reason"] else None,
    )


def _failed(document: Document) -> FailedUnit:
    return FailedUnit(_text(document, "unit"), _all(document, "files", _as_text), _text(document, "reason"))


def _usage(document: Document) -> Usage:
    return Usage(
        requests=_number(document, "requests"),
        cached=_number(document, "cached"),
        input_tokens=_number(document, "input_tokens"),
        output_tokens=_number(document, "output_tokens"),
        cost_usd=_amount(document["cost_usd"]) or 0.0,
        duration_seconds=_amount(document["duration_seconds"]) or 0.0,
        unknown_costs=_number(document, "unknown_costs") if "unknown_costs" in document else 0,
    )


def _all(document: Document, key: str, read: Callable[[Any], _Item]) -> tuple[_Item, ...]:
    if not isinstance(document[key], list):
        raise TypeError(f"{key} is no list")
    return tuple(read(each) for each in document[key])


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value


def _text(document: Document, key: str) -> str:
    if not isinstance(document[key], str):
        raise TypeError(f"{key} is no text")
    return str(document[key])


def _optional_text(document: Document, key: str) -> str | None:
    return None if document.get(key) is None else _text(document, key)


def _number(document: Document, key: str) -> int:
    value = document[key]
    if type(value) is not int or not -1 <= value <= _LARGEST_NUMBER:
        raise TypeError(f"{key} is not a possible number")
    return value


def _line(document: Document, key: str) -> int | None:
    return None if document[key] is None else _number(document, key)


def _amount(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("an amount is not a number")
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) else None
