"""The JSON report, version 1: fields are added, never changed, so its types are kept apart from the internal ones.

A reader must expect fields that it does not know: later versions add some.
"""

from __future__ import annotations

import inspect
import json
import math
from datetime import date
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from codeloupe import __version__
from codeloupe.model.agent import Usage
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import FindingStatus, Severity, Source, SuppressionKind
from codeloupe.model.review import Review
from codeloupe.system.untrusted import json_document

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema_of(document: type) -> dict[str, Any]:
    """The schema of a TypedDict and of all that it holds. Raises TypeError for a type that JSON does not have.

    `Annotated[..., {...}]` adds words of JSON Schema to a type.
    """
    parts: dict[str, Any] = {}
    whole = _group(document, parts)
    return {"$schema": _DIALECT, "title": document.__name__, **whole, "$defs": parts}


def _group(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    fields = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
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


def document(kind: Any, value: Any, **given: Any) -> dict[str, Any]:
    """What a TypedDict wants to know of an object: its attributes of the same names, and what is given apart.

    An enumeration becomes its word, what JSON cannot write becomes None, or 0 where the type has no None.
    """
    return {
        name: given[name] if name in given else _plain(getattr(value, name), allows_none=allows_none, group=group)
        for name, allows_none, group in _fields(kind)
    }


@cache
def _fields(kind: Any) -> list[tuple[str, bool, Any]]:
    """The fields of a TypedDict: name, whether it may be None, and the TypedDict that it holds, or holds a list of."""
    found = []
    for name, hint in get_type_hints(kind).items():
        parts = (hint, *get_args(hint))
        found.append((name, NoneType in parts, next((part for part in parts if is_typeddict(part)), None)))
    return found


def _plain(value: Any, *, allows_none: bool, group: Any) -> Any:
    if isinstance(value, Severity):
        return value.label
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(item, allows_none=False, group=group) for item in value]
    if value == "" and allows_none:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None if allows_none else 0.0
    return value if group is None or value is None else document(group, value)


def usage_v1(usage: Usage) -> UsageV1:
    """The usage as JSON has it."""
    return cast("UsageV1", document(UsageV1, usage))


def finite(number: float) -> float:
    """JSON has no word for infinity; a number that cannot be written counts as not known, which is 0."""
    return number if math.isfinite(number) else 0.0


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
    """The review as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end.

    Always valid JSON that can be encoded as UTF-8, whatever the findings and paths hold.
    """
    data = document(ReviewV1, review, schema_version=1, tool={"name": "codeloupe", "version": __version__})
    return json_document(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
