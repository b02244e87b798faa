"""A review read back from its JSON report, version 1. The file may come from a job that nobody trusts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import ValidationError, convert

from codeloupe.errors import UsageError
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import FindingStatus, Severity, Source
from codeloupe.model.review import Review, SkipReason

_HINT = "give a file that `codeloupe review --format json -o FILE` wrote"
_LARGEST_NUMBER = 10**12
_DAY = 10
# Without one of these a document says less than a review must, however it was made.
_NEEDED = ("findings", "coverage", "usage", "errors")
_LIMITS = ("fail_on", "min_severity")

Document = Mapping[str, Any]


def read_review(text: bytes, *, name: str) -> Review:
    """The review in a report. Raises UsageError for what is none of version 1; what is not known yet is passed over."""
    try:
        document = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a JSON report", hint=_HINT) from error
    try:
        return convert(_review(document), Review)
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        # What the interpreter says of a wrong kind is about its own affairs.
        why = "a value in it has the wrong type" if isinstance(error, (TypeError, AttributeError)) else str(error)[:200]
        why = f"{error} is missing" if isinstance(error, KeyError) else why
        raise UsageError(f"{name} is not a JSON report of version 1 ({why})", hint=_HINT) from error


def _whole(digits: str) -> int | None:
    number = int(digits) if len(digits) < 20 else _LARGEST_NUMBER + 1
    return number if -1 <= number <= _LARGEST_NUMBER else None


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else 0.0


def _review(document: Document) -> dict[str, Any]:
    """The document in the words of this version: severities as numbers, and unknown words as the safest known one."""
    if document["schema_version"] != 1:
        raise ValueError("its version is another")
    policy, usage = document.get("policy") or {}, document["usage"]
    coverage = {**document["coverage"], "skipped": [_skipped(each) for each in document["coverage"]["skipped"]]}
    return {
        **document,
        **{key: document[key] for key in _NEEDED},
        "scope": {**document["scope"], "kind": _known(ScopeKind.RANGE, document["scope"]["kind"])},
        "policy": {**policy, **{key: Severity.parse(policy[key]).value for key in _LIMITS if key in policy}},
        "usage": {**usage, "cost_usd": usage["cost_usd"] or 0.0, "duration_seconds": usage["duration_seconds"] or 0.0},
        "findings": [_finding(each) for each in document["findings"]],
        "coverage": coverage,
    }


def _finding(document: Document) -> dict[str, Any]:
    suppression = document.get("suppression")
    if suppression is not None:
        expires = suppression.get("expires")
        suppression = {**suppression, "owner": suppression.get("owner") or "", "expires": expires and expires[:_DAY]}
    return {
        **document,
        "severity": Severity.parse(document["severity"]).value,
        "source": _known(Source.AGENT, document.get("source")),
        # A status that a later version has counts as open: what is not known is not set aside.
        "status": _known(FindingStatus.OPEN, document["status"]),
        "suppression": suppression,
        **{key: document[key] for key in ("fingerprint", "anchored", "outside_change", "agreement")},
    }


def _skipped(document: Document) -> dict[str, Any]:
    # A reason that a later version has is a gap: nobody here knows that it is none, and no other version accepts it.
    reason = _known(SkipReason.UNREADABLE, document["reason"])
    return {
        **document,
        "reason": reason,
        "accepted": document.get("accepted") if reason == document["reason"] else None,
    }


def _known(otherwise: StrEnum, word: object) -> str:
    return next((each for each in type(otherwise) if each == word), otherwise).value
