"""The JSON report, version 1: fields are added, never changed, so its types are kept apart from the internal ones.

A reader must expect fields that it does not know: later versions add some.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from codeloupe import __version__
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import FindingStatus, Severity, Source, SuppressionKind
from codeloupe.model.review import Review
from codeloupe.system.untrusted import json_document

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema_of(document: type) -> dict[str, Any]:
    """The schema of a TypedDict and of all that it holds. Raises TypeError for a type that JSON does not have.

    `Annotated[..., {...}]` adds words of JSON Schema to a type.
    """
    parts: dict[str, Any] = {}
    whole = _group(document, parts)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": document.__name__,
        **whole,
        "$defs": parts,
    }


def _group(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    fields = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": "\n".join(map(str.strip, (kind.__doc__ or "").strip().split("\n"))),
        "properties": {name: _schema(field, parts) for name, field in fields.items()},
        "required": list(fields),
    }


def _schema(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(arguments[0], parts), **arguments[1]}
    if is_typeddict(kind):
        parts[kind.__name__] = _group(kind, parts)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"const": arguments[0]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], parts)}
    if origin in (UnionType, Union):
        return {"anyOf": [_schema(each, parts) for each in arguments]}
    raise TypeError(f"JSON has no {kind!r}")


class UsageV1(TypedDict):
    """What it cost; `cached` counts answers that were bought before and came from the ledger.

    `cost_usd` is what is known; `unknown_costs` counts the calls that did not tell theirs.
    """

    requests: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    duration_seconds: float
    unknown_costs: int


TOOL = {"name": "codeloupe", "version": __version__}


def json_text(content: object, *, indent: int | None = 2) -> str:
    """A JSON document with a newline at its end, valid and encodable as UTF-8 whatever its texts hold."""
    return json_document(json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)) + "\n"


def document(kind: Any, value: Any, **given: Any) -> dict[str, Any]:
    """What a TypedDict wants to know of an object: its attributes of the same names, and what is given apart.

    An empty text becomes None where the type has None; a number that JSON cannot write becomes 0 where it has not.
    """
    made: dict[str, Any] = {}
    for name, allows_none, group in _fields(kind):
        found = given[name] if name in given else getattr(value, name)
        if name in given:
            made[name] = found
        elif found is None or (found == "" and allows_none):
            made[name] = None
        elif group is not None:
            made[name] = (
                [document(group, each) for each in found] if isinstance(found, tuple) else document(group, found)
            )
        else:
            made[name] = _plain(found, unknown=None if allows_none else 0.0)
    return made


def fields_of(value: Any, names: str) -> dict[str, Any]:
    """Some attributes of an object, with `names` between spaces."""
    return {name: _plain(getattr(value, name)) for name in names.split()}


@cache
def _fields(kind: Any) -> list[tuple[str, bool, Any]]:
    """The fields of a TypedDict: name, whether it may be None, and the TypedDict that it holds, or holds a list of."""
    found = []
    for name, hint in get_type_hints(kind).items():
        parts = (hint, *get_args(hint))
        found.append((name, NoneType in parts, next((part for part in parts if is_typeddict(part)), None)))
    return found


def _plain(value: Any, *, unknown: float | None = None) -> Any:
    """A value as JSON has it; `unknown` is for a number that it cannot write."""
    if isinstance(value, Enum):
        return value.label if isinstance(value, Severity) else value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return unknown
    return str(value) if isinstance(value, PurePath) else value


SeverityWord = Annotated[str, {"enum": ["critical", "high", "medium", "low"]}]
ScopeWord = Annotated[str, {"enum": [kind.value for kind in ScopeKind]}]
StatusWord = Annotated[str, {"enum": [status.value for status in FindingStatus]}]
SuppressionWord = Annotated[str, {"enum": [kind.value for kind in SuppressionKind]}]
SourceWord = Annotated[str, {"enum": [source.value for source in Source]}]
VerdictWord = Annotated[str, {"enum": ["PASS", "NEEDS_WORK", "FAIL", "INCOMPLETE"]}]
Priority = Annotated[int, {"minimum": 0, "maximum": 3}]


class ToolV1(TypedDict):
    """The program that made the document."""

    name: Literal["codeloupe"]
    version: str


class ScopeV1(TypedDict):
    """What was reviewed; `head` is null for an index or a working tree."""

    kind: ScopeWord
    base: str | None
    head: str | None
    description: str


class ReviewerV1(TypedDict):
    """Who reviewed, and why that one."""

    type: str
    model: str | None
    why: str


class SuppressionV1(TypedDict):
    """Why a finding does not count although it stands; `expires` is the last day (YYYY-MM-DD) on which that holds."""

    kind: SuppressionWord
    reason: str
    owner: str | None
    expires: str | None


class FindingV1(TypedDict):
    """One defect. A path that is not UTF-8 holds lone surrogates (`\\udc80` to `\\udcff`), one for each such byte.

    `seen_by` names each independent look that found it, `agreement` counts them; `verification` says what the attempt
    to refute it showed, and is empty when none was made. A finding with a `suppression` does not count.
    """

    fingerprint: str
    file: str
    line_start: int | None
    line_end: int | None
    severity: SeverityWord
    priority: Priority
    category: str
    title: str
    body: str
    suggestion: str | None
    replacement: str | None
    evidence: str
    confidence: float | None
    expert: str | None
    reviewer: str
    source: SourceWord
    commit_sha: str | None
    anchored: bool
    outside_change: bool
    status: StatusWord
    agreement: int
    rule: str | None
    seen_by: list[str]
    verification: str
    suppression: SuppressionV1 | None


class SkippedV1(TypedDict):
    """A file that was not reviewed; `reason` is a fixed phrase, `detail` adds numbers or names and may be empty.

    `accepted` is false where the settings in force do not let such a file stay unread: the review is then incomplete.
    """

    file: str
    reason: str
    detail: str
    accepted: bool


class FailedUnitV1(TypedDict):
    """A piece of the change that could not be reviewed."""

    unit: str
    files: list[str]
    reason: str


class CoverageV1(TypedDict):
    """What was looked at and what was not."""

    files_total: int
    files_reviewed: int
    skipped: list[SkippedV1]
    units_total: int
    units_failed: list[FailedUnitV1]


class ErrorV1(TypedDict):
    """Something that went wrong and did not stop the review."""

    kind: str
    message: str


class PolicyV1(TypedDict):
    """What decided the exit code."""

    fail_on: SeverityWord
    min_severity: SeverityWord
    pass_when_incomplete: bool


class ReviewV1(TypedDict):
    """The whole document.

    `nothing_to_review` tells a PASS that speaks of no code: the change was empty, or all of it was left out on purpose.
    """

    schema_version: Literal[1]
    tool: ToolV1
    review_id: str
    scope: ScopeV1
    reviewer: ReviewerV1
    verdict: VerdictWord
    passed: bool
    complete: bool
    exit_code: int
    summary: str
    findings: list[FindingV1]
    coverage: CoverageV1
    usage: UsageV1
    errors: list[ErrorV1]
    hidden_findings: int
    policy: PolicyV1
    nothing_to_review: bool


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return schema_of(ReviewV1)


def render_json(review: Review) -> str:
    """The review as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end."""
    return json_text(document(ReviewV1, review, schema_version=1, tool=TOOL))
